"""Fingerprints of data and models: shapes, types and checksums, cheap beside the work itself.

Labels and weights are narrow, and all of them are compared. Of the rows, a sample is.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from streamgda.errors import CheckpointError
from streamgda.rows import Rows, as_source
from streamgda.rows.arrays import CodedLabels, distinct, is_masked
from streamgda.rows.in_memory import as_array
from streamgda.rows.names import ATTRIBUTE
from streamgda.rows.sources import RowSource, Slab
from streamgda.rows.sparse import CompressedRows
from streamgda.storage.format import check_whole
from streamgda.storage.saved import state_of

REMEDY = "Pass what it was started with, or name another path, or delete it to start again"

_COLUMN_ROWS = 1 << 20  # labels and weights that are read again at a time
_SAMPLED_SLABS = 16
_SAMPLED_ROWS = 64  # of each of these slabs,
_SAMPLED_BYTES = 1 << 20  # but at most this many bytes


def describe(source: RowSource) -> str:
    """Return shape and type in words."""
    return f"shape {source.shape}, {source.dtype or 'columns of several types'}"


def refuse_others(held: Mapping[str, Any], now: Mapping[str, Any], where: str) -> None:
    """Raise `CheckpointError` that names the first entry in which two descriptions differ."""
    for name in {**now, **held}:
        if held.get(name) != now.get(name):
            raise CheckpointError(
                f"{where} was started with {name}: {held.get(name)}; now it is {now.get(name)}. "
                f"{REMEDY}"
            )


def checksum(values: Any, before: int = 0) -> int:
    """Return the checksum of values that follow those of the checksum `before`.

    It does not depend on how the values are cut into pieces.

    Examples
    --------
    >>> checksum(np.arange(4)) == checksum(np.arange(2, 4), checksum(np.arange(2)))
    True
    """
    if isinstance(values, CompressedRows):
        for array in values.arrays:
            before = checksum(array, before)
        return before
    masked = np.empty(0, np.intp)
    if is_masked(values):  # a mark follows each masked value; what is behind a mask is no value
        masked = np.flatnonzero(np.ma.getmask(values)) + 1
        values = np.ma.filled(values)
    if values.dtype.kind in "biufcmM":
        values = np.asarray(values)  # labels, kept by their codes or not
        memory = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        memory = np.insert(memory, masked * values.itemsize, 1) if masked.size else memory
        return zlib.crc32(memory.data, before)
    # The memory of strings has a width, or holds addresses, that depend on the cut.
    labels = values if type(values) is CodedLabels else distinct(values.ravel())
    texts = np.array([f"{value}\0" for value in labels.values.tolist()], object)
    text = "".join(np.insert(texts[labels.codes], masked, "\1").tolist())
    return zlib.crc32(text.encode("utf-8", "surrogatepass"), before)


def fingerprint_method(
    method: str, model: Any, options: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the fingerprint of a method of a model: its name, and a checksum of the model."""
    attributes, arrays = state_of(model)
    attributes.pop(ATTRIBUTE, None)  # names make no difference to scores
    arrays = {**arrays, **(options or {})}
    value = zlib.crc32(json.dumps(attributes, sort_keys=True).encode())
    for name in sorted(arrays):
        value = checksum(np.asarray(arrays[name]), value)
    return {"method": method, "model": f"checksum {value:08x}"}


def fingerprint_rows(block: Any) -> int:
    """Return the checksum of a sample of rows, evenly spaced in a block."""
    fitting = max(1, _SAMPLED_BYTES * len(block) // max(1, block.nbytes))
    return checksum(block[:: -(-len(block) // min(_SAMPLED_ROWS, fitting))])


class SeenSlabs:
    """Fingerprints of rows that are read slab by slab, with their labels and weights.

    Samples are kept of a few slabs: the first, the last one processed, and some in between.

    Parameters
    ----------
    rows : Rows
        Sources.
    slab_rows : int
    """

    def __init__(self, rows: Rows, slab_rows: int) -> None:
        self.n_rows = rows.X.n_rows
        self._rows = rows
        self._slab_rows = slab_rows
        self._spacing = -(-self.n_rows // (slab_rows * _SAMPLED_SLABS)) * slab_rows
        self._checksums = [0] * len(rows.beside)
        # By the first row of the slab: one past its last row, and a checksum.
        self._samples: dict[int, tuple[int, int]] = {}

    def add(self, slab: Slab) -> None:
        """Add the next slab."""
        self._add_columns(slab)
        stop = slab.first_row + len(slab.X)
        self.add_sample(slab.first_row, stop, fingerprint_rows(slab.X))

    def _add_columns(self, slab: Slab) -> None:
        pairs = zip(self._checksums, slab.beside, strict=True)
        self._checksums = [checksum(column, before) for before, column in pairs]

    def add_sample(self, start: int, stop: int, sampled: int) -> None:
        """Add the next slab by the fingerprint of its rows; there are no columns."""
        *_, before, last = [-1, -1, *self._samples]
        if last >= 0 and before // self._spacing == last // self._spacing:
            del self._samples[last]  # it was kept only because it was the last one
        self._samples[start] = stop, sampled

    def as_json(self) -> dict[str, Any]:
        """Return what is kept, as JSON."""
        samples = [[start, *sampled] for start, sampled in self._samples.items()]
        return {"slab_rows": self._slab_rows, "columns": self._checksums, "samples": samples}

    def check(self, kept: Mapping[str, Any], done: int, where: str) -> None:
        """Read the first `done` rows again and compare them with what was kept of them.

        Raises
        ------
        CheckpointError
            If they differ.
        """
        try:
            samples = {int(n): (int(stop), int(value)) for n, stop, value in kept["samples"]}
            columns = list(kept["columns"])
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"{where} is damaged: {error!r}. {REMEDY}") from None
        beside = replace(self._rows, X=None)
        for start in range(0, done, _COLUMN_ROWS):
            self._add_columns(beside.read(start, min(start + _COLUMN_ROWS, done)))
        if self._checksums != columns:
            raise CheckpointError(
                f"{where} was started with other labels or weights: those of the first {done} "
                f"rows have changed. {REMEDY}"
            )
        self._samples = samples
        for start, (stop, value) in samples.items():
            if fingerprint_rows(self._rows.X.read(start, stop)) != value:
                raise CheckpointError(
                    f"{where} was started with other rows: rows {start} to {stop - 1} have "
                    f"changed. {REMEDY}"
                )


class SeenBatches:
    """The fingerprint of an iterable of batches."""

    def __init__(self) -> None:
        self._checksum = 0

    def add(self, batch: Slab) -> None:
        """Add the next batch."""
        self._checksum = checksum(
            np.array([fingerprint_rows(as_source(batch.X).whole())]), self._checksum
        )
        for column in batch.beside:
            self._checksum = checksum(as_array(column, "y"), self._checksum)

    def as_json(self) -> dict[str, Any]:
        """Return what is kept, as JSON."""
        return {"checksum": self._checksum}

    def check(self, kept: Mapping[str, Any], done: int, where: str, batches: Iterator[Slab]) -> int:
        """Consume the first `done` batches, compare them, and return their number of rows.

        Raises
        ------
        CheckpointError
            If they differ.
        """
        n_rows = 0
        for number in range(done):
            batch = next(batches, None)
            if batch is None:
                raise CheckpointError(
                    f"{where} holds {done} batches; now there are {number}. {REMEDY}"
                )
            self.add(batch)
            n_rows += as_source(batch.y, "y").n_rows
        if self.as_json() != kept:
            raise CheckpointError(
                f"{where} was started with other batches: the first {done} have changed. {REMEDY}"
            )
        return n_rows


def check_seen(seen: Mapping[str, Any], done: int) -> None:
    """Raise ValueError unless a journal keeps such fingerprints of what it has done.

    They are those of `SeenSlabs` or `SeenBatches`, or of the parts of a pass on dask.
    """
    wholes: list[Any] = []
    match {**seen}:
        case {"slab_rows": slab_rows, "columns": list(columns), "samples": list(samples)}:
            wholes = [*columns, *chain(*samples)]
            check_whole("slab_rows", slab_rows, 1)
            for start, stop, _ in samples:
                check_whole("samples", start, 0, done)
                check_whole("samples", stop, start + 1, done)
        case {"checksum": value}:
            wholes = [value]
        case {"cut": dict(cut), "parts": dict(parts)}:
            check_whole("slab_rows", cut.get("slab_rows", 1), 1)
            wholes = [*chain(*chain(*parts.values()))]
        case _:
            raise ValueError(f"its fingerprints are {seen!r:.200}")
    for value in wholes:
        check_whole("seen", value, 0)


# Of a part: checksums of all labels and weights, and of a sample of the rows.
PartFingerprint = tuple[int, int]
NO_ROWS: PartFingerprint = (0, 0)


def fingerprint_part(before: PartFingerprint | None, batch: Slab) -> PartFingerprint:
    """Return the fingerprint of a part after its next batch; rows are those of the first one.

    Examples
    --------
    >>> X, y = np.ones((4, 2)), np.arange(4)
    >>> first = fingerprint_part(None, Slab(X[:2], y[:2]))
    >>> fingerprint_part(first, Slab(X[2:], y[2:])) == fingerprint_part(None, Slab(X[:2], y))
    True
    """
    labels, rows = before or (0, fingerprint_rows(as_source(batch.X).whole()))
    for column in batch.beside:
        labels = checksum(as_array(column, "y"), labels)
    return labels, rows
