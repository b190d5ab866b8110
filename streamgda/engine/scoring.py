"""`score`: scores of rows of every kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamgda.engine.checkpoint import checksum, describe
from streamgda.engine.plan import plan_rows
from streamgda.engine.progress import Progress
from streamgda.engine.reading import on_dask, reading
from streamgda.engine.resumable_outputs import Output
from streamgda.rows import Rows, as_source
from streamgda.rows.arrays import as_slab, is_plain
from streamgda.rows.sources import RowSource, Slab, check_rows
from streamgda.rows.xarray import LabelledRows
from streamgda.runtime import threads
from streamgda.runtime.memory import allowed_bytes
from streamgda.runtime.parameters import refuse


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
            raise refuse("keys", keys, "names of columns of X, such as keys='id'")
        object.__setattr__(self, "keys", tuple(keys))

    @property
    def row_bytes(self) -> int:
        """Bytes of the scores of a row."""
        return int(np.dtype(self.dtype).itemsize * (self.columns or 1))


def score(function: Callable[..., np.ndarray], X: Any, out: Any = None, **options: Any) -> Any:
    """Score rows from any container.

    Parameters
    ----------
    function : callable
        Called as ``function(rows, first_row)``; returns an array with one entry for each row.
    X : array-like, memmap, zarr.Array, data frame or dask collection
        Rows, shape (n_rows, n_features).
    out : numpy.ndarray, zarr.Array, or path or store to create one in; optional
        Destination of the scores; by default they are gathered in memory.
    **options
        What else is known of the scores, and how they are written; see `Scoring`.

    Returns
    -------
    numpy.ndarray or zarr.Array; or a lazy dask.array.Array; or a DataArray
        `out`, or what was created in its place. Scores of dask collections are lazy without
        `out`. Those of a DataArray are one, with the columns last.

    Raises
    ------
    CheckpointError
        If `out` is half-written with scores of other rows or by another function.
    InvalidDataError
        If `out` has another shape, or a data type that cannot hold the scores.
    """
    plain = options.get("max_memory") is options.get("keys") is None
    if out is None and plain and not options.get("progress"):
        whole = X if is_plain(X) else Rows(X).at_once
        if whole is not None:  # nothing to read, and no memory to plan
            scores = function(whole, 0)
            about = (options.get(each) for each in ("name", "classes", "fill"))
            return X.wrapped(scores, *about) if isinstance(X, RowSource) else scores
    asked = Scoring(function, **options)
    rows = as_source(X)
    if out is not None and isinstance(rows, LabelledRows):
        raise refuse("out", out, "None: write the DataArray that is returned by its own to_zarr")
    if rows.executor == "dask":
        return on_dask().score(asked, rows, out)
    check_rows(rows)
    scores = _score_source(asked, rows, out)
    return rows.wrapped(scores, asked.name, asked.classes, asked.fill) if out is None else scores


def _score_source(asked: Scoring, rows: RowSource, out: Any) -> Any:
    """Score rows in this process."""
    held = asked.held + (rows.n_rows * asked.row_bytes if out is None else 0)
    keys = rows.keys(asked.keys) if asked.keys else None
    allowed = allowed_bytes(asked.max_memory)
    kept = None
    if asked.fingerprint and out is not None:
        kept = {**asked.fingerprint, "X": describe(rows)}
    output = Output(out, rows, asked, kept)
    output.check()
    slab_rows = plan_rows(
        Rows(rows, keys),
        allowed,
        held,
        out_row_bytes=asked.row_bytes,
        out_rows=output.unit,
    )
    if kept:

        def checked(start: int, stop: int) -> tuple[int, int]:
            bounds = (0, output.seen["slab_rows"]), (start, stop)
            first, last = (checksum(Slab(rows.read(*slab))) for slab in bounds)
            return first, last

        slab_rows = output.resume(slab_rows, checked)
    return _score_slabs(asked, rows, output, slab_rows)


def _score_slabs(asked: Scoring, rows: RowSource, output: Output, slab_rows: int) -> Any:
    """Score rows in this process; a slab is written while the next one is scored."""
    with (
        reading(Rows(rows), slab_rows, "scoring", asked.progress, output.done) as slabs,
        output,
    ):

        def scored() -> Iterator[tuple[int, int, np.ndarray]]:
            prepared = False
            for slab in slabs:
                scores = as_slab(asked.function(slab.X, slab.first_row), "scores")
                if not prepared:
                    output.prepare(scores.shape[1:], scores.dtype, slab_rows)
                    prepared = True
                last = checksum(Slab(slab.X)) if output.keeps else 0
                yield slab.first_row, last, scores

        threads.in_background(output.put, scored())
    return output.result
