"""Columns of Arrow as numbers and labels; pyarrow is imported with this module."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamgda.errors import InvalidDataError
from streamgda.rows.arrays import CodedLabels, coded, concatenated, numbered, of_columns
from streamgda.rows.labels import family
from streamgda.runtime import threads

_PART = 1 << 19  # texts that a thread encodes at a time
EXPECTED_LABELS = "class labels of one kind are whole numbers, strings, booleans or dates"
Values = tuple[np.ndarray, np.ndarray | None]  # and a mask that is True for missing ones, if any

_WHOLE_DIGITS = 18  # that int64 holds


def number_type(kind: Any) -> np.dtype | None:
    """Return the data type of the numbers in a column of this Arrow type; None for others."""
    kind = _plain_type(kind)
    if pa.types.is_boolean(kind):
        return np.dtype(np.uint8)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return np.dtype(kind.to_pandas_dtype())
    if pa.types.is_decimal(kind) or pa.types.is_null(kind):
        return np.dtype(np.float64)
    return number_type(kind.value_type) if list_width(kind) else None


def list_width(kind: Any) -> int:
    """Return the number of values in each list of this Arrow type: 0 if it is none, -1 for any."""
    kind = _plain_type(kind)
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size)
    return -1 if pa.types.is_list(kind) or pa.types.is_large_list(kind) else 0


def label_type(kind: Any) -> np.dtype | None:
    """Return the data type of the labels in a column of this Arrow type; None for others.

    That of text is object: its width is unknown.
    """
    kind = _plain_type(kind)
    if pa.types.is_boolean(kind):
        return np.dtype(bool)
    if _is_text(kind) or pa.types.is_decimal(kind):  # of which float64 holds some only
        return np.dtype(object)
    if list_width(kind):
        return None
    if pa.types.is_date32(kind):
        return np.dtype("M8[D]")
    if pa.types.is_date64(kind) or pa.types.is_timestamp(kind):
        return np.dtype(f"M8[{getattr(kind, 'unit', 'ms')}]")
    return number_type(kind)


def common_type(kinds: Iterable[Any], type_of: Callable[[Any], np.dtype | None]) -> np.dtype | None:
    """Return the data type that holds the values of columns of these Arrow types.

    It is None if one of them has no data type, or they are of kinds that do not mix.
    """
    types = [type_of(kind) for kind in kinds]
    found = {dtype for dtype in types if dtype is not None}
    if len(found) < len({*types}) or len({family(dtype) for dtype in found}) > 1:
        return None
    common = np.result_type(*found)
    wide = type_of is label_type and any(t.kind in "iu" and t.itemsize == 8 for t in found)
    return np.dtype(object) if wide and common.kind == "f" else common  # float64 holds some only


def feature_matrix(columns: list[Any], dtype: np.dtype, width: int) -> Any:
    """Return columns of numbers, or one of lists, as rows of a width.

    Missing floats are NaN, and missing integers masked.
    """
    if list_width(columns[0].type):
        values, missing = _numbers(_flattened(_plain(columns[0]), width))
        matrix = values.astype(dtype, copy=False).reshape(-1, width)
        return matrix if missing is None else np.ma.array(matrix, mask=missing.reshape(-1, width))
    numbers = viewed(columns)
    if numbers is not None:
        return of_columns(numbers, dtype)
    found = [_numbers(column) for column in columns]
    if dtype.kind == "f":
        found = [(v if m is None else np.where(m, np.nan, v), None) for v, m in found]
    rows = of_columns([values for values, _ in found], dtype)
    if all(missing is None for _, missing in found):
        return rows
    nothing = np.zeros(len(rows), bool)
    mask = np.stack([nothing if missing is None else missing for _, missing in found], 1)
    return np.ma.array(np.asarray(rows), mask=mask)


def viewed(columns: list[Any]) -> list[np.ndarray] | None:
    """Return columns of numbers without a copy; None if some are of other kinds or have nulls."""
    kinds = (column.type for column in columns)
    if not all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in kinds):
        return None
    return None if any(c.null_count for c in columns) else [c.to_numpy() for c in columns]


def _flattened(column: Any, width: int) -> Any:
    """Return the values of lists, of which each row has as many."""
    lengths = pc.fill_null(pc.list_value_length(column), -1).to_numpy(zero_copy_only=False)
    if (lengths != width).any():
        row = int((lengths != width).argmax())
        found = "nothing" if lengths[row] < 0 else f"a list of {lengths[row]}"
        raise InvalidDataError(f"X[{row}] of a block is {found}; expected {width} values a row")
    return column.flatten()


def as_label_array(column: Any) -> Any:
    """Return a column of labels: missing ones are None, NaN or NaT."""
    column = _storage(column)
    if pa.types.is_dictionary(column.type):
        return _codes_of_part(column)
    if _is_text(column.type):
        return _codes(column)
    if pa.types.is_decimal(column.type):
        whole = column.type.scale == 0 and column.type.precision <= _WHOLE_DIGITS
        return as_label_array(column.cast(pa.int64() if whole else pa.string()))
    if number_type(column.type) is None:
        dtype = label_type(column.type)
        if dtype is None:
            raise InvalidDataError(f"labels are {column.type}; {EXPECTED_LABELS}")
        dates: np.ndarray = column.to_numpy(zero_copy_only=False)
        return dates.astype(dtype)
    values, missing = _numbers(column)
    values = values.astype(bool) if pa.types.is_boolean(column.type) else values
    if missing is None or values.dtype.kind == "f":
        return values
    labels = values.astype(object)
    labels[missing] = None
    return labels


def _codes(column: Any) -> CodedLabels:
    """Return texts by codes."""
    wide = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    narrow = pa.types.is_string(column.type) or pa.types.is_binary(column.type)
    if column.null_count or not (wide or narrow):
        starts = range(0, max(1, len(column)), _PART)
        parts = threads.run(_codes_of_part, ((column[i : i + _PART],) for i in starts))
        return concatenated(parts)
    _, offsets, values = column.buffers()
    places = np.frombuffer(offsets or b"", np.int64 if wide else np.int32)[column.offset :]
    memory = np.frombuffer(values or b"", np.uint8)

    def entries(start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        return memory, places[start : stop + 1].astype(np.int64, copy=False)

    codes, firsts = numbered(len(column), entries)
    return coded(codes, column.take(pa.array(firsts)).to_pylist())


def _codes_of_part(column: Any) -> CodedLabels:
    """Return texts or categories by codes, which pyarrow finds if it does not have them."""
    encoded = column.dictionary_encode()
    indices = encoded.indices
    if indices.null_count:
        indices = indices.cast("int64").fill_null(-1)
    return coded(indices.to_numpy(zero_copy_only=False), encoded.dictionary.to_pylist())


def _numbers(column: Any) -> Values:
    column = _plain(column)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    if pa.types.is_decimal(column.type) or pa.types.is_null(column.type):
        column = column.cast(pa.float64())
    if not column.null_count or pa.types.is_floating(column.type):
        return column.to_numpy(zero_copy_only=False), None
    missing = column.is_null().to_numpy(zero_copy_only=False)
    return column.fill_null(0).to_numpy(zero_copy_only=False), missing


def _plain(column: Any) -> Any:
    """Return the values of a column of an extension type, or of categories."""
    column = _storage(column)
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _storage(column: Any) -> Any:
    """Return the values of a column of an extension type, or of one in chunks, as one array."""
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    while isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    return column


def _plain_type(kind: Any) -> Any:
    while isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_text(kind: Any) -> bool:
    texts = ("string", "large_string", "string_view")
    bytestrings = ("binary", "large_binary", "binary_view", "fixed_size_binary")
    return any(getattr(pa.types, f"is_{name}")(kind) for name in (*texts, *bytestrings))
