"""Passes that are resumed: the journal of what is done, and what is compared.

A checkpoint is the file of the moments of the first slabs, blocks or batches, saved with a
description of the pass as their offset. The same call resumes after them, to the same bits. Shapes,
types and parameters are compared, and of the rows the first slab and the last one that was done.
"""

from __future__ import annotations

import contextlib
import math
import time
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
from scipy.sparse import issparse

from streamgda.errors import (
    CheckpointError,
    FormatError,
    InvalidParameterError,
    MemoryBudgetError,
    MergeError,
    StreamGDAError,
)
from streamgda.moments import Moments
from streamgda.rows.counting import Slab
from streamgda.rows.source import RowSource, as_array
from streamgda.runtime.parameters import as_number, shown, unexpected
from streamgda.storage.files import check_place, local_path
from streamgda.storage.format import check_whole
from streamgda.storage.saved import load

REMEDY = "Pass what it was started with, or name another path, or delete it to start again"

_SAMPLED_ROWS = 64  # So many rows of a slab are compared.


# --- what is compared -----------------------------------------------------------------------------


def describe(source: RowSource) -> str:
    """Return shape and type in words."""
    return f"shape {source.shape}, {source.dtype or 'columns of several types'}"


def check_same(held: Mapping[str, Any], now: Mapping[str, Any], where: str) -> None:
    """Raise `CheckpointError` that names the first entry in which two descriptions differ."""
    for name in {**now, **held}:
        if held.get(name) != now.get(name):
            raise CheckpointError(
                f"{where} was started with {name}: {held.get(name)}; now it is {now.get(name)}. "
                f"{REMEDY}"
            )


def checksum(slab: Slab) -> int:
    """Return a checksum of all labels, groups and weights of a slab, and of some of its rows.

    Examples
    --------
    >>> X, y = np.zeros((4, 2)), np.arange(4)
    >>> checksum(Slab(X, y)) == checksum(Slab(X, y[::-1]))
    False
    """
    X = as_array(slab.X)
    n_rows = X.shape[0]
    value = _checksum(X[:: max(1, n_rows // _SAMPLED_ROWS)], n_rows)
    for column in slab[1:4]:  # Labels, groups and weights.
        value = value if column is None else _checksum(np.asanyarray(column), value)
    return value


def _checksum(values: Any, before: int) -> int:
    if issparse(values):
        for array in (values.data, values.indices, values.indptr):
            before = _checksum(array, before)
        return before
    if values.dtype.kind in "biufcmM":
        return zlib.crc32(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data, before)
    text = "\0".join(map(str, values.ravel().tolist()))  # The memory of objects holds addresses.
    return zlib.crc32(text.encode("utf-8", "surrogatepass"), before)


# --- what is kept ---------------------------------------------------------------------------------


class Journal:
    """Base of what keeps how much of a pass is done, from where another run resumes it.

    As a context manager, it is also written on leaving, even after an error.

    Parameters
    ----------
    every : float
        Minimum number of seconds between two times at which it is written.

    Attributes
    ----------
    title : str
        Name of the file or array that keeps it, in messages.
    counted : str
        What is counted: rows, batches or blocks.
    done : int
        Number of them that are done.
    seen : dict of str to int
        The rows of a slab; the checksum of the first one; and of the last one that is done, with
        its first row.
    """

    title: str
    counted = "rows"
    done = 0
    _written = 0  # The value of `done` when it was written last.

    def __init__(self, every: float) -> None:
        self._every, self._since = every, time.monotonic()
        self.seen: dict[str, int] = {}

    def write(self) -> None:
        """Write what is done."""
        raise NotImplementedError

    def restored(self, done: Any, seen: Any) -> None:
        """Take over how much is done; raise ValueError if that cannot be."""
        self.done = self._written = check_whole("done", done, 0)
        names = ("slab_rows", "first", "start", "last")
        self.seen = {name: check_whole(name, seen[name], 0) for name in names}
        if not self.seen["start"] < self.done:
            raise ValueError(f"{done} are done after a slab at {self.seen['start']}")

    def resume(self, slab_rows: int, checked: Callable[[int, int], int]) -> int:
        """Return the rows of a slab in the run that is resumed, or those planned if there is none.

        Parameters
        ----------
        slab_rows : int
            Rows of a slab that the memory budget allows.
        checked : callable
            Called with the bounds of the first slab and of the last one that is done; returns the
            checksum of each.

        Raises
        ------
        CheckpointError
            If they differ from those that are kept.
        MemoryBudgetError
            If the memory budget requires smaller slabs.
        """
        if not self.done:
            self.seen["slab_rows"] = slab_rows
            return slab_rows
        held, start = self.seen["slab_rows"], self.seen["start"]
        if held > slab_rows:
            raise MemoryBudgetError(
                f"the work to resume was started in slabs of {held} rows, but max_memory, by "
                f"default half of what is available, now allows {slab_rows}: pass a larger "
                f"max_memory (that of the first run if it had one), free memory, or start again"
            )
        slabs = {"first": (0, min(held, self.done))}
        if start:
            slabs["last"] = start, self.done
        for name, slab in slabs.items():
            try:
                found = checked(*slab)
            except IndexError:
                raise CheckpointError(
                    f"{self.title} was started with more rows: it holds the first "
                    f"{self.done:,} {self.counted}. {REMEDY}"
                ) from None
            if found != self.seen[name]:
                raise CheckpointError(
                    f"{self.title} was started with other rows, labels or weights: "
                    f"{self.counted} {slab[0]} to {slab[1] - 1} have changed. {REMEDY}"
                )
        return held

    def advance(self, start: int, stop: int, last: int) -> None:
        """Record that everything before `stop` is done, and the checksum of the last slab."""
        self.seen.setdefault("first", last)
        self.seen |= {"start": start, "last": last}
        self.done = stop
        if time.monotonic() - self._since >= self._every:
            self._keep()

    def _keep(self) -> None:
        if self.done != self._written:
            self.write()
            self._written, self._since = self.done, time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # A failure of the disk must not hide an earlier error.
        with contextlib.suppress(*([] if error is None else [OSError])):
            self._keep()
        if error is not None and self._written:
            error.add_note(
                f"{self.title} keeps what was done, the first {self._written:,} {self.counted}: "
                f"run the same call again to resume after them"
            )


class Checkpoint(Journal):
    """The moments of the rows so far, in a file from which the same call resumes.

    Parameters
    ----------
    path : path
    every : float
        Minimum number of seconds between two writes.
    description : dict of str
        A description of the data and of the pass. A run that resumes must have the same.
    empty : Moments
        Moments without rows.
    counted : str
        What is counted.

    Attributes
    ----------
    moments : Moments
        Moments of the rows so far.

    Raises
    ------
    InvalidParameterError
        If the path is a URL or a directory.
    CheckpointError
        If the file is damaged, or belongs to other data or another pass.
    """

    def __init__(
        self, path: Any, every: float, description: dict[str, str], empty: Moments, counted: str
    ) -> None:
        if every != math.inf:
            as_number("checkpoint_every", every, "a number of seconds, 0 or more", 0)
        super().__init__(every)
        self.moments, self.counted = empty, counted
        self._description, self._adding = description, False
        file = local_path(path)
        if file is None:
            raise unexpected("checkpoint", path, "a path on this machine")
        if file.is_dir():
            raise InvalidParameterError(f"checkpoint={shown(path)} is a directory; expected a file")
        self._file = file.resolve()
        self.title = f"The checkpoint {self._file}"
        check_place(self._file)
        if self._file.exists():
            self._open(str(self._file))

    def _open(self, file: str) -> None:
        try:
            moments = load(file)
            description = dict(moments.offset_["made_of"])
            self.restored(moments.offset_["done"], moments.offset_["seen"])
        except (FormatError, LookupError, TypeError, ValueError):
            raise CheckpointError(
                f"{file} is not a checkpoint of a pass over rows, or is damaged. {REMEDY}"
            ) from None
        check_same(description, self._description, file)
        try:  # A transformer is not saved: it comes from the moments without rows.
            self.moments = moments + self.moments
        except MergeError as error:
            raise CheckpointError(
                f"{file} was started with other features: {error}. {REMEDY}"
            ) from None

    def write(self) -> None:
        """Write the moments."""
        offset = {"made_of": self._description, "done": self.done, "seen": self.seen}
        self.moments.save(self._file, offset=offset)

    def add(
        self, function: Callable[[Moments, Slab], None], start: int, stop: int, slab: Slab
    ) -> None:
        """Add the rows ``start:stop`` to the moments by a function."""
        self._adding = True
        function(self.moments, slab)
        self._adding = False
        self.advance(start, stop, checksum(slab))

    def replace(self, moments: Moments, stop: int, first: int, last: int) -> None:
        """Take over the moments before `stop`, and the checksums of the first and last block."""
        self.moments = moments
        self.seen.setdefault("first", first)
        self.advance(stop - 1, stop, last)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._adding and not isinstance(error, StreamGDAError):
            self.done = self._written  # An interrupt may have come after the last rows were added.
        super().__exit__(kind, error, trace)
