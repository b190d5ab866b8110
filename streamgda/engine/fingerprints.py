"""What tells data from other data: shapes, types, and checksums that cost little beside the work.

Labels and weights are narrow, and all of them are compared. Of the rows, a few are.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from streamgda.errors import CheckpointError
from streamgda.rows.sources import RowSource
from streamgda.storage.saved import state_of

REMEDY = "Give what it was begun with, or name another path, or delete it to begin anew"

_COLUMN_ROWS = 1 << 20  # of labels and weights, read again at a time
_SAMPLED_SLABS = 16
_SAMPLED_ROWS = 64  # of each of them,
_SAMPLED_BYTES = 1 << 20  # but no more than that


def describe(source: RowSource) -> str:
    """Shape and type, as a person would say them."""
    return f"shape {source.shape}, {source.dtype or 'columns of several types'}"


def refuse_others(held: Mapping[str, Any], now: Mapping[str, Any], where: str) -> None:
    """Raise `CheckpointError` that names the first entry in which two descriptions differ."""
    for name in {**now, **held}:
        if held.get(name) != now.get(name):
            raise CheckpointError(
                f"{where} was begun with {name}: {held.get(name)}; now it is {now.get(name)}. "
                f"{REMEDY}"
            )


def checksum(values: np.ndarray, before: int = 0) -> int:
    """Checksum of values that follow those of the checksum `before`; the same however cut.

    Examples
    --------
    >>> checksum(np.arange(4)) == checksum(np.arange(2, 4), checksum(np.arange(2)))
    True
    """
    if values.dtype.kind in "biufcmM":
        return zlib.crc32(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data, before)
    # What holds texts has a width or addresses that depend on the cut.
    text = "".join(f"{value}\0" for value in values.ravel().tolist())
    return zlib.crc32(text.encode("utf-8", "surrogatepass"), before)


def made_by(method: str, model: Any, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What tells the scores of a method of a model from others: its name, and a checksum."""
    attributes, arrays = state_of(model)
    arrays = {**arrays, **(options or {})}
    value = zlib.crc32(json.dumps(attributes, sort_keys=True).encode())
    for name in sorted(arrays):
        value = checksum(np.asarray(arrays[name]), value)
    return {"method": method, "model": f"checksum {value:08x}"}


def sample(block: np.ndarray) -> int:
    """Checksum of some rows, evenly spread over a block of them."""
    fitting = max(1, _SAMPLED_BYTES * len(block) // max(1, block.nbytes))
    return checksum(block[:: -(-len(block) // min(_SAMPLED_ROWS, fitting))])


class SeenSlabs:
    """What was seen of rows that are read slab by slab, with their labels and weights.

    Of the rows, those of a few slabs: the first, the last that was done, and some between.

    Parameters
    ----------
    rows : RowSource
    columns : sequence of RowSource
    slab_rows : int
    """

    def __init__(self, rows: RowSource, columns: Sequence[RowSource], slab_rows: int) -> None:
        self.n_rows = rows.n_rows
        self._rows, self._columns = rows, columns
        self._slab_rows = slab_rows
        self._spacing = -(-rows.n_rows // (slab_rows * _SAMPLED_SLABS)) * slab_rows
        self._checksums = [0] * len(columns)
        # By the first row of the slab: the one behind its last, and a checksum.
        self._samples: dict[int, tuple[int, int]] = {}

    def add(self, start: int, block: np.ndarray, columns: Sequence[np.ndarray]) -> None:
        """See the slab that is next."""
        pairs = zip(self._checksums, columns, strict=True)
        self._checksums = [checksum(column, before) for before, column in pairs]
        self.add_sample(start, start + len(block), sample(block))

    def add_sample(self, start: int, stop: int, sampled: int) -> None:
        """See the slab that is next, of which a sample was taken; there are no columns."""
        *_, before, last = [-1, -1, *self._samples]
        if last >= 0 and before // self._spacing == last // self._spacing:
            del self._samples[last]  # it was kept as the last one only
        self._samples[start] = stop, sampled

    def as_json(self) -> dict[str, Any]:
        """What to keep."""
        samples = [[start, *sampled] for start, sampled in self._samples.items()]
        return {"slab_rows": self._slab_rows, "columns": self._checksums, "samples": samples}

    def check(self, kept: Mapping[str, Any], done: int, where: str) -> None:
        """Go on after the rows that something was kept of, which are read again.

        Raises
        ------
        CheckpointError
            Where they are not the same.
        """
        try:
            samples = {int(n): (int(stop), int(value)) for n, stop, value in kept["samples"]}
            columns = list(kept["columns"])
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"{where} is damaged: {error!r}. {REMEDY}") from None
        for start in range(0, done, _COLUMN_ROWS):
            stop = min(start + _COLUMN_ROWS, done)
            pairs = zip(self._checksums, self._columns, strict=True)
            self._checksums = [checksum(c.read(start, stop), before) for before, c in pairs]
        if self._checksums != columns:
            raise CheckpointError(
                f"{where} was begun with other labels or weights: those of the first {done} rows "
                f"are not what they were. {REMEDY}"
            )
        self._samples = samples
        for start, (stop, value) in samples.items():
            if sample(self._rows.read(start, stop)) != value:
                raise CheckpointError(
                    f"{where} was begun with other rows: rows {start} to {stop - 1} are not what "
                    f"they were. {REMEDY}"
                )


class SeenBatches:
    """What was seen of an iterable of batches."""

    def __init__(self) -> None:
        self._checksum = 0

    def add(self, X: Any, *columns: Any) -> None:
        """See the batch that is next."""
        self._checksum = checksum(np.array([sample(np.asarray(X))]), self._checksum)
        for column in columns:
            self._checksum = checksum(np.asarray(column), self._checksum)

    def as_json(self) -> dict[str, Any]:
        """What to keep."""
        return {"checksum": self._checksum}

    def check(self, kept: Mapping[str, Any], done: int, where: str, batches: Iterator[Any]) -> int:
        """Take the batches that something was kept of, and say how many rows they have.

        Raises
        ------
        CheckpointError
            Where they are not the same.
        """
        n_rows = 0
        for number in range(done):
            batch = next(batches, None)
            if not isinstance(batch, tuple | list):
                raise CheckpointError(
                    f"{where} holds {done} batches; now there are {number}. {REMEDY}"
                )
            self.add(*batch)
            n_rows += np.shape(batch[1])[0]
        if self.as_json() != kept:
            raise CheckpointError(
                f"{where} was begun with other batches: the first {done} are not what they were. "
                f"{REMEDY}"
            )
        return n_rows


Seen = tuple[int, int]  # checksums of all labels and weights, and of a sample of the rows
NOTHING: Seen = (0, 0)  # was seen where there are no rows


def see(before: Seen | None, X: Any, columns: Sequence[Any]) -> Seen:
    """What was seen of a part, with its next batch: labels and weights, and its first rows.

    Examples
    --------
    >>> X, y = np.ones((4, 2)), np.arange(4)
    >>> see(see(None, X[:2], [y[:2]]), X[2:], [y[2:]]) == see(None, X[:2], [y])
    True
    """
    labels, rows = before or (0, sample(np.asarray(X)))
    for column in columns:
        labels = checksum(np.asarray(column), labels)
    return labels, rows
