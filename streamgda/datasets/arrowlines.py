"""Blocks of lines of CSV, as pyarrow reads them: fast, and the same as Python reads."""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from streamgda.datasets.lines import Block
from streamgda.datasets.textfiles import SPACES

_FEWEST = 1 << 14  # bytes that pyarrow reads in less time than Python


def arrow_columns(
    block: Block, delimiter: str, width: int, features: Sequence[int], label: int | None
) -> tuple[np.ndarray, list[str], list[int]] | None:
    """Return the features of a block, distinct labels, and the number of each row's label.

    None if pyarrow is not installed, or may read any of the lines in another way than Python.

    Parameters
    ----------
    block : Block
    delimiter : str
    width : int
        Number of fields of a line.
    features : sequence of int
        Columns of the features.
    label : int or None
        Column of the labels.
    """
    data = block.data
    csv = _arrow_csv()
    if csv is None or len(data) < _FEWEST or b'"' in data:
        return None
    if delimiter == SPACES or not delimiter.isascii():
        return None
    import pyarrow as pa  # noqa: PLC0415

    names = [str(column) for column in range(width)]
    types = {names[column]: pa.float64() for column in features}
    if label is not None:
        types[names[label]] = pa.dictionary(pa.int32(), pa.string())
    try:
        data.decode("utf-8")
        table = csv.read_csv(
            io.BytesIO(data),
            csv.ReadOptions(column_names=names, block_size=len(data) + 1),
            csv.ParseOptions(delimiter=delimiter, quote_char=False),
            csv.ConvertOptions(column_types=types, include_columns=[*types], null_values=[]),
        )
    except (pa.ArrowException, UnicodeDecodeError):
        return None
    if table.num_rows != len(block.ends):  # blank lines, or a carriage return within a line
        return None
    X = np.empty((table.num_rows, len(features)))
    for values, column in zip(X.T, table.columns, strict=False):
        values[:] = column.to_numpy()
    if label is None:
        return X, [], []
    [codes] = table.columns[-1].chunks
    return X, codes.dictionary.to_pylist(), codes.indices.to_pylist()


@cache
def _arrow_csv() -> Any:
    """Return pyarrow's reader of CSV; None if it is not installed."""
    try:
        from pyarrow import csv  # noqa: PLC0415
    except ImportError:
        return None
    return csv
