"""Labels by codes: some labels, and for each row the number of its label among them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from streamgda.kernels.sums import WORD, number_entries
from streamgda.runtime import threads

_PART = 1 << 17  # labels that a thread numbers at a time


@dataclass(frozen=True, eq=False)
class CodedLabels:
    """Labels by their codes, as those of categories; numpy converts them to an array of labels.

    Attributes
    ----------
    values : ndarray, shape (n_values,)
        Labels in any order; some may occur in no row, and some several times in `values`.
    codes : ndarray of int, shape (n_rows,)
        Number of each row's label.
    """

    values: np.ndarray
    codes: np.ndarray

    ndim = 1

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of rows, as the shape of an array."""
        return self.codes.shape

    @property
    def size(self) -> int:
        """Number of rows."""
        return self.codes.size

    @property
    def dtype(self) -> np.dtype:
        """Data type of the labels."""
        return self.values.dtype

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: Any) -> Any:
        """Return the label of a row, or those of some rows, by their codes."""
        codes = self.codes[rows]
        return CodedLabels(self.values, codes) if np.ndim(codes) else self.values[codes]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return the labels as an array."""
        return np.asarray(self.values[self.codes], dtype)

    def copy(self) -> CodedLabels:
        """Return the labels, with codes of their own."""
        return CodedLabels(self.values, self.codes.copy())

    def tolist(self) -> list[Any]:
        """Return the labels as a list."""
        labels: list[Any] = np.asarray(self).tolist()
        return labels


def coded(codes: np.ndarray, words: list[Any]) -> CodedLabels:
    """Return labels by the codes of a library, in which a missing label has a negative one."""
    if codes.min(initial=0) < 0:
        words, codes = [*words, None], np.where(codes < 0, len(words), codes)
    values = np.empty(len(words), object)
    values[:] = words
    return CodedLabels(values, codes)


def distinct(labels: np.ndarray) -> CodedLabels:
    """Return labels by codes. Those in `values` differ in their bytes, within each part of rows.

    Entries of an array with the same bytes are equal, whatever its type: those of an array of
    objects are addresses. Equal labels may differ in their bytes, such as equal strings that are
    several objects, and 0.0 and -0.0.

    Examples
    --------
    >>> coded = distinct(np.array(["b", "a", "b"]))
    >>> coded.values, coded.codes
    (array(['b', 'a'], dtype='<U1'), array([0, 1, 0], dtype=int32))
    """
    labels = np.ascontiguousarray(labels)
    memory, size = np.ndarray((labels.nbytes,), np.uint8, labels), labels.dtype.itemsize
    mask = np.frombuffer((b"\xff" * min(size, WORD)).ljust(WORD, b"\0"), np.uint64)[0]
    codes: Any = np.empty(labels.size, np.int32 if labels.size < 1 << 31 else np.int64)

    def number(start: int, stop: int) -> np.ndarray:
        entries = memory[start * size : stop * size]
        if size < WORD:
            entries = np.append(entries, np.zeros(WORD, np.uint8))
        entries.flags.writeable = False  # as some labels are, so that one kernel serves all
        bits = int(stop - start).bit_length() + 1
        firsts = np.empty(stop - start, np.int64)
        table = np.zeros(1 << bits, np.int32)
        n = number_entries(entries, size, mask, bits, table, firsts, codes[start:stop])
        return firsts[:n] // max(size, 1) + start

    parts = [(i, min(i + _PART, labels.size)) for i in range(0, labels.size, _PART)]
    firsts, n_values = [np.empty(0, np.int64), *threads.run(number, parts)], 0
    for (start, stop), first in zip(parts, firsts[1:], strict=True):
        if n_values:
            codes[start:stop] += n_values
        n_values += first.size
    return CodedLabels(labels[np.concatenate(firsts)], codes)


def coded_texts(labels: Sequence[Any]) -> CodedLabels | None:
    """Return strings, or bytes, by the codes of different ones, with None among them or not.

    It is None for other labels.
    """
    numbers: defaultdict[Any, int] = defaultdict(count().__next__)
    try:
        codes = np.fromiter(map(numbers.__getitem__, labels), np.int32, len(labels))
    except TypeError:  # not all can be hashed
        return None
    kinds = {*map(type, numbers)} - {type(None)}
    texts = any(all(issubclass(kind, base) for kind in kinds) for base in (str, bytes))
    return CodedLabels(np.array([*numbers], object), codes) if texts else None
