"""Destinations of scores; an attribute of zarr arrays keeps how far they have been written.

A run that was stopped is resumed by the same run, and half an array is never mistaken for a whole
one.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from streamgda.engine.checkpoint import REMEDY, Journal, check_same, checksum, describe
from streamgda.engine.reading import Progress
from streamgda.errors import (
    CheckpointError,
    InvalidDataError,
    InvalidParameterError,
    SourceError,
    SourceNotFoundError,
    printable,
)
from streamgda.rows.counting import Slab
from streamgda.rows.opening import is_table_path, table_files
from streamgda.rows.source import RowSource
from streamgda.rows.zarr import StoredRows
from streamgda.runtime.parameters import unexpected
from streamgda.storage.opening import (
    MARK,
    WHOLE,
    as_target,
    creating,
    mark_of,
    open_node,
    writing,
)


@dataclass(frozen=True)
class Scoring:
    """The scores of a pass, and how they are written.

    Attributes
    ----------
    function : callable
        Called as ``function(rows, first_row)``.
    dtype : dtype
        Data type of the scores.
    columns : int, optional
        Scores of each row; by default one, and the result is one-dimensional.
    labels : ndarray, optional
        All values of the scores, if these are labels.
    name, classes, fill : str, ndarray, label or number; optional
        Name of the scores, classes to which their columns belong, and the result of invalid rows,
        for containers that keep them.
    keys : str or sequence of str, optional
        Columns of the table that is scored which are copied to a table of scores.
    fingerprint : dict, optional
        Identifies `function`, as JSON. If it is given, an attribute of a zarr array keeps how far
        it has been written; if the process is stopped, the same call resumes there.
    held : int
        Bytes that the function needs for any number of rows.
    max_memory, progress
        See `streamgda.accumulate`.
    """

    function: Callable[..., np.ndarray]
    dtype: Any = np.float64
    columns: int | None = None
    labels: np.ndarray | None = None
    name: str | None = None
    classes: np.ndarray | None = None
    fill: Any = None
    keys: Any = ()
    fingerprint: Mapping[str, Any] | None = None
    held: int = 0
    max_memory: int | str | None = None
    progress: Progress = False

    def __post_init__(self) -> None:
        keys = () if self.keys is None else self.keys
        keys = (keys,) if isinstance(keys, str) else keys
        if not isinstance(keys, Sequence) or not all(isinstance(name, str) for name in keys):
            raise unexpected("keys", keys, "names of columns of X, such as keys='id'")
        object.__setattr__(self, "keys", tuple(keys))

    @property
    def row_bytes(self) -> int:
        """Bytes of the scores of a row."""
        return int(np.dtype(self.dtype).itemsize * (self.columns or 1))


_TABLE_ROWS = 1 << 16  # So many scores are written together, as a row group of Parquet.
_CHUNK_BYTES = 4 << 20  # A chunk of scores has at most so many bytes.
_EVERY = 10.0  # At least so many seconds pass between two updates of the attribute.
# Labels shrink more than with zarr's own choice, in a fifth of the time.
_COMPRESSION: Any = {"cname": "lz4", "clevel": 1, "shuffle": "bitshuffle"}


class Output(Journal):
    """Scores of rows, written slab by slab.

    Parameters
    ----------
    out : numpy.ndarray, zarr.Array, path or zarr store to create one in, or None
        None gathers the scores in memory.
    rows : RowSource
    asked : Scoring
        Kind of the scores.

    Zarr arrays get the attribute if the scores have a fingerprint, and a half-written one with the
    same fingerprint is resumed. So is a complete one at a path, of which no row is left: a run may
    be stopped just there.

    Raises
    ------
    CheckpointError
        If the array is half-written with other scores.
    TypeError
        For any other `out`.
    """

    def __init__(self, out: Any, rows: RowSource, asked: Scoring) -> None:
        super().__init__(_EVERY)
        given = isinstance(out, np.ndarray) or (hasattr(out, "shape") and StoredRows.accepts(out))
        self.array = out if given else None
        self._out = out if given or out is None else as_target(out)
        self._table = not given and is_table_path(self._out)
        if self._table:
            _check_file(self._out)
        if asked.keys and not self._table:
            raise InvalidParameterError(
                f"keys={', '.join(asked.keys)} are copied to a table, and out={out} is not one; "
                f"expected the path of a .parquet or .csv file"
            )
        self.title = "out" if self.array is out else printable(out)
        self._rows, self._asked = rows, asked
        self._file = contextlib.ExitStack()
        self._fingerprint: dict[str, Any] | None = None
        self._started = False  # Nothing is written to `out` before.
        # Attributes in a zip file cannot be updated.
        replaceable = getattr(getattr(out, "store", out), "supports_deletes", True)
        if asked.fingerprint is not None and out is not None and replaceable:
            self._fingerprint = {**asked.fingerprint, "X": describe(rows)}
            self._open()
        self._check()

    def _open(self) -> None:
        given = self.array is not None
        found = self.array if given else _existing(self._out)
        mark = mark_of(found)
        if mark is None:
            return
        try:
            complete, fingerprint = bool(mark["complete"]), dict(mark["made_of"])
            if mark["done"]:
                self.restored(mark["done"], mark["seen"])
        except (LookupError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"the attribute {MARK} of {self.title} is damaged: {error!r}. {REMEDY}"
            ) from None
        if complete and (given or fingerprint != self._fingerprint):
            self.done = self._written = 0
            self.seen = {}
            return  # The caller's array is filled again.
        check_same(fingerprint, self._fingerprint or {}, self.title)
        self.array, self._started = found, True

    def _check(self) -> None:
        """Raise `InvalidDataError` for an array that cannot hold the scores.

        It has another shape, is read-only, or would change a score but by rounding.
        """
        if self.array is None:
            return
        dtype = np.dtype(self._asked.dtype)
        width = () if self._asked.columns is None else (self._asked.columns,)
        found, held = tuple(self.array.shape), np.dtype(self.array.dtype)
        lost = _lost(dtype, held, self._asked.labels)
        expected = (self._rows.n_rows, *width)
        if found != expected or lost:
            raise InvalidDataError(
                f"out has shape {found} and dtype {held}, expected shape {expected} and a dtype "
                f"that holds {lost or dtype}"
            )
        writeable = getattr(self.array, "flags", {"WRITEABLE": True})["WRITEABLE"]
        if not writeable or getattr(self.array, "read_only", False):
            raise InvalidDataError("out is read-only; open it for writing, or pass a copy")

    def prepare(self, width: tuple[int, ...], dtype: np.dtype, slab_rows: int) -> None:
        """Create an array for scores of that width and type, unless one exists."""
        if self._started:
            return
        if self.array is None and self._out is None:
            self.array = np.empty((self._rows.n_rows, *width), dtype)
        elif self.array is None and self._table:
            table = table_files(self._out).writing_table
            about = self._rows, width, dtype, self._asked
            self.array = self._file.enter_context(table(self._out, *about))
            self._file.callback(_check_file, self._out)
        elif self.array is None:
            import zarr  # noqa: PLC0415

            row_bytes = dtype.itemsize * math.prod(width)
            with creating(self._out):
                self.array = zarr.create_array(
                    self._out,
                    shape=(self._rows.n_rows, *width),
                    chunks=(_chunk_rows(slab_rows, row_bytes), *width),
                    # Fixed-width strings are not in the specification of zarr v3; others are.
                    dtype=str if dtype.kind == "U" else dtype,
                    compressors=zarr.codecs.BloscCodec(**_COMPRESSION),
                    attributes=self._mark() if self._fingerprint else {},
                    overwrite=False,
                    config=WHOLE,
                )
        elif self._fingerprint is None and mark_of(self.array):
            del self.array.attrs[MARK]  # It belongs to the scores that these replace.
        elif self.keeps:
            self.write()
        self._started = True

    @property
    def unit(self) -> int:
        """Rows that are written together: multiples of them are whole chunks or shards."""
        if self.array is None:
            return _TABLE_ROWS if self._table else 1
        stored = getattr(self.array, "shards", None) or getattr(self.array, "chunks", None)
        return int(stored[0]) if stored else 1

    @property
    def result(self) -> Any:
        """The array with the scores, or the path of a table."""
        return self._out if self._table else self.array

    @property
    def keeps(self) -> bool:
        """True if an attribute of the array keeps how far it has been written."""
        return self._fingerprint is not None and hasattr(self.array, "store")  # zarr has stores.

    def put(self, start: int, scores: np.ndarray, sizes: Sequence[int] = ()) -> None:
        """Write the scores of a slab, or of a round of blocks of these sizes."""
        array: Any = self.array
        held = getattr(array, "dtype", scores.dtype)  # A table has no type.
        if scores.dtype.kind == held.kind == "f":
            try:
                with np.errstate(over="raise"):
                    scores = scores.astype(held, copy=False)
            except FloatingPointError:
                raise InvalidDataError(
                    f"out has dtype {held}, in which a score of dtype {scores.dtype} is infinite; "
                    f"pass an out of dtype {scores.dtype}"
                ) from None
        with writing(array):
            array[start : start + len(scores)] = scores
        first, last = (sizes[0], sizes[-1]) if sizes else (len(scores), len(scores))
        stop = start + len(scores)
        if self.keeps:
            self.seen.setdefault("first", checksum(Slab(scores[:first])))
            self.advance(stop - last, stop, checksum(Slab(scores[-last:])))

    def _mark(self) -> dict[str, Any]:
        mark = {
            "complete": self.done == self._rows.n_rows,
            "done": self.done,
            "n_rows": self._rows.n_rows,
            "made_of": self._fingerprint,
            "seen": self.seen,
        }
        return {MARK: mark}

    def write(self) -> None:
        """Bring the attribute of the array up to date."""
        array: Any = self.array
        with writing(array):
            array.update_attributes(self._mark())

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._file.__exit__(kind, error, trace)
        if self._started:
            super().__exit__(kind, error, trace)


def _chunk_rows(slab_rows: int, row_bytes: int) -> int:
    """Return the rows of a chunk of scores: some MiB, of which slabs are multiples if possible."""
    while slab_rows % 2 == 0 and slab_rows * row_bytes > _CHUNK_BYTES:
        slab_rows //= 2
    return slab_rows


def _lost(dtype: np.dtype, held: np.dtype, labels: np.ndarray | None) -> str:
    """Return what an array of type `held` would not keep of such scores, or an empty string."""
    if labels is None:
        rounded = dtype.kind == held.kind == "f"
        return "" if rounded or np.can_cast(dtype, held) else str(dtype)
    if labels.dtype.kind in "mM":
        labels = labels[~np.isnat(labels)]  # NaT stays NaT, but differs from itself
    changed = np.ones(labels.size, bool)
    numbers = labels.dtype.kind in "biuf" and held.kind in "biuf"
    if numbers or np.can_cast(labels.dtype, held, casting="same_kind"):
        with contextlib.suppress(ValueError), np.errstate(all="ignore"):
            changed = labels.astype(held).astype(labels.dtype) != labels
    return f"{labels.dtype} labels such as {labels[changed][0]!s}" if changed.any() else ""


def _existing(out: Any) -> Any:
    """Return the array or group at a place; None if there is none that can be opened."""
    # Creating an array reports what is wrong.
    with contextlib.suppress(SourceError, SourceNotFoundError):
        return open_node(out, mode="r+")
    return None


def _check_file(path: Path) -> None:
    """Raise SourceError if there is anything at the path of a file."""
    if path.exists():
        raise SourceError(f"out={path} exists already; choose another path, or remove it first")
