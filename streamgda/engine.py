"""One machine: rows read ahead in slabs, accumulated or scored in order, within a memory budget."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamgda.errors import InvalidDataError, InvalidParameterError, MemoryBudgetError
from streamgda.moments import ClassMoments
from streamgda.moments.labels import as_labels
from streamgda.moments.structure import structure_of
from streamgda.sources import RowSource, as_source, is_dask

_SLAB_BYTES = 1 << 25  # rows that are read at a time
_SCRATCH_BYTES = 3 << 25  # what the kernels pack, group and cast at a time, at most

Progress = bool | Callable[[int, int | None], None]


def accumulate(
    X: Any,
    y: Any = None,
    *,
    covariance_type: str = "full",
    sample_weight: Any = None,
    max_memory: int | str | None = None,
    progress: Progress = False,
) -> ClassMoments:
    """Read rows once, wherever they are, and keep their class moments.

    Parameters
    ----------
    X : array-like, numpy.memmap, zarr.Array, dask.array.Array or data frame
        Rows, shape (n_rows, n_features). With `y` omitted: an iterable of batches, each
        ``(X, y)`` or ``(X, y, sample_weight)``.
    y : array-like, zarr.Array or dask.array.Array, shape (n_rows,), optional
        Class labels.
    covariance_type : str
        What is kept of the scatter; see `ClassMoments`.
    sample_weight : array-like, zarr.Array or dask.array.Array, shape (n_rows,), optional
        Non-negative weights.
    max_memory : int or str, optional
        Bytes, or a text such as ``"512MB"``: data in flight and state together. Labels are then
        counted first, and nothing is begun that would need more. Of dask arrays the budget is
        the cluster's own, and is not looked at here.
    progress : bool or callable
        True shows a bar in a terminal; a callable is given ``(rows_done, rows_total)``.

    Returns
    -------
    ClassMoments

    Raises
    ------
    InvalidDataError
        For rows, labels or weights that cannot be used.
    MemoryBudgetError
        Where `max_memory` is too little.

    Examples
    --------
    >>> import numpy as np
    >>> from streamgda import accumulate
    >>> X = np.arange(12.0).reshape(6, 2)
    >>> accumulate(X, [0, 1, 0, 1, 0, 1]).class_count
    array([3, 3])
    >>> accumulate((X[i : i + 2], [0, 1]) for i in (0, 2, 4)).means
    array([[4., 5.],
           [6., 7.]])
    """
    structure = structure_of(covariance_type)
    if is_dask(X) or is_dask(y):
        from streamgda import distributed  # noqa: PLC0415  (dask is loaded where it is used)

        return distributed.accumulate(
            X, y, covariance_type=covariance_type, sample_weight=sample_weight
        )
    moments = ClassMoments(covariance_type)
    if y is None:
        return _accumulate_batches(moments, X, sample_weight, progress)
    rows = as_source(X)
    companions = [as_source(as_labels(y) if isinstance(y, list | tuple) else y, "y")]
    if sample_weight is not None:
        companions.append(as_source(sample_weight, "sample_weight"))
    check_rows(rows, *companions)
    allowed = as_bytes(max_memory)
    plan = Slabs.plan(rows, allowed, _state_bytes(structure, rows, companions[0], allowed))
    with reporter(progress, rows.n_rows, "accumulating") as report:
        for start, (block, labels, *weights) in plan.read(rows, *companions):
            moments._update(block, labels, weights[0] if weights else None, start)
            report(start + block.shape[0])
    return moments


def _accumulate_batches(
    moments: ClassMoments, batches: Any, sample_weight: Any, progress: Progress
) -> ClassMoments:
    if sample_weight is not None:
        raise InvalidDataError(
            "sample_weight comes with rows and labels; an iterable of batches holds its own: "
            "(X, y, weight)"
        )
    if isinstance(batches, np.ndarray) or hasattr(batches, "dtype") or hasattr(batches, "iloc"):
        raise InvalidDataError(
            f"y is missing: X is a {type(batches).__name__} of rows; pass accumulate(X, y), or an "
            f"iterable of (X, y) batches"
        )
    done = 0
    with reporter(progress, None, "accumulating") as report:
        for number, batch in enumerate(_batches(batches)):
            if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
                raise InvalidDataError(
                    f"batch {number} is a {type(batch).__name__}; expected a tuple (X, y) or "
                    f"(X, y, weight)"
                )
            try:
                moments._update(*batch)
            except InvalidDataError as error:
                raise InvalidDataError(f"batch {number}: {error}") from None
            done += np.shape(batch[1])[0]
            report(done)
    return moments


def _batches(batches: Any) -> Iterable[Any]:
    try:
        return iter(batches)
    except TypeError:
        raise InvalidDataError(
            f"X is a {type(batches).__name__}; without y, an iterable of (X, y) batches is expected"
        ) from None


def score(
    function: Callable[..., np.ndarray],
    X: Any,
    out: Any = None,
    *,
    out_row_bytes: int = 8,
    max_memory: int | str | None = None,
    progress: Progress = False,
) -> Any:
    """Score rows slab by slab.

    Parameters
    ----------
    function : callable
        Called as ``function(rows, first_row)``; gives an array with one entry a row.
    X : array-like, zarr.Array or data frame, shape (n_rows, n_features)
    out : numpy.ndarray, zarr.Array, or path or store for one to create; optional
        Where the scores go. Without it they are gathered in memory.
    out_row_bytes : int
        Bytes of one row's scores.
    max_memory, progress
        As of `accumulate`.

    Returns
    -------
    numpy.ndarray or zarr.Array
        `out`, or what was made in its place.
    """
    rows = as_source(X)
    check_rows(rows)
    plan = Slabs.plan(rows, as_bytes(max_memory), 0, out_row_bytes)
    with (
        reporter(progress, rows.n_rows, "scoring") as report,
        ThreadPoolExecutor(1, thread_name_prefix="streamgda-write") as writer,
    ):
        writing: Future[None] | None = None
        for start, (block,) in plan.read(rows):
            scores = function(block, start)
            if not start:
                out = _target(out, (rows.n_rows, *scores.shape[1:]), scores.dtype, plan.n_rows)
            if writing is not None:
                writing.result()
                report(start)
            writing = writer.submit(out.__setitem__, slice(start, start + len(scores)), scores)
        assert writing is not None  # there are rows
        writing.result()
        report(rows.n_rows)
    return out


def _target(out: Any, shape: tuple[int, ...], dtype: np.dtype, slab_rows: int) -> Any:
    if out is None:
        return np.empty(shape, dtype)
    if hasattr(out, "shape") and hasattr(out, "dtype"):
        fits = tuple(out.shape) == shape
        if not fits or not np.can_cast(dtype, out.dtype, casting="same_kind"):
            raise InvalidDataError(
                f"out has shape {tuple(out.shape)} and dtype {out.dtype}, expected shape {shape} "
                f"and a dtype that holds {dtype}"
            )
        return out
    import zarr  # noqa: PLC0415

    return zarr.create_array(
        out,
        shape=shape,
        chunks=(min(slab_rows, shape[0]), *shape[1:]),
        # Strings of fixed width have no specification in zarr v3; those of any width do.
        dtype=str if dtype.kind == "U" else dtype,
        overwrite=False,
    )


def check_rows(rows: RowSource, *companions: RowSource) -> None:
    """Raise `InvalidDataError` unless all have one shape (n_rows,) beside (n_rows, n_features)."""
    if len(rows.shape) != 2:
        raise InvalidDataError(
            f"X has shape {rows.shape}; expected a 2D array of rows x features (one row: "
            f"X.reshape(1, -1), one feature: X.reshape(-1, 1))"
        )
    for companion, name in zip(companions, ("labels", "weights"), strict=False):
        if len(companion.shape) != 1:
            raise InvalidDataError(f"{name} have shape {companion.shape}; expected one a row")
        if companion.n_rows != rows.n_rows:
            raise InvalidDataError(
                f"X has {rows.n_rows} rows but there are {companion.n_rows} {name} (inconsistent "
                f"numbers of samples); give one a row"
            )
    if not rows.n_rows:
        raise InvalidDataError("X has 0 rows (0 sample(s)); at least one is needed")


@dataclass(frozen=True)
class Slabs:
    """How rows are cut for reading.

    Attributes
    ----------
    n_rows : int
        Rows of a slab: whole chunks or shards, where there are any.
    """

    n_rows: int

    @classmethod
    def plan(
        cls, rows: RowSource, allowed: int | None, state: int, out_row_bytes: int = 0
    ) -> Slabs:
        """Cut the rows so that all that is in flight stays within the budget.

        In flight are the slab that is worked on, the one that is read ahead, and what is being
        decoded for it; of scores, those that are made and those that are written. A state is held
        twice while classes are added to it.

        Raises
        ------
        MemoryBudgetError
            Where not even the least slab fits.
        """
        slab_rows = _SLAB_BYTES // max(1, rows.row_bytes, out_row_bytes)
        wanted = max(rows.unit, slab_rows // rows.unit * rows.unit)
        if allowed is None:
            return cls(min(wanted, rows.n_rows))
        fixed = 2 * state + _SCRATCH_BYTES
        flying = (0 if rows.in_memory else 3 * rows.row_bytes) + 2 * out_row_bytes
        n_rows = wanted
        if flying:
            fitting = max(0, allowed - fixed) // flying // rows.unit * rows.unit
            n_rows = min(wanted, max(rows.unit, fitting))
        required = fixed + flying * min(n_rows, rows.n_rows)
        if required > allowed:
            raise MemoryBudgetError(
                f"this needs {readable(required)} of memory, max_memory allows "
                f"{readable(allowed)}: {readable(2 * state)} for the moments, "
                f"{readable(required - fixed)} for rows being read ({n_rows} at a time, as they "
                f"are stored) and {readable(_SCRATCH_BYTES)} to work in. A larger max_memory "
                f"helps, or covariance_type='tied' or 'diag', fewer features, smaller chunks"
            )
        return cls(min(n_rows, rows.n_rows))

    def read(self, *sources: RowSource) -> Iterator[tuple[int, list[np.ndarray]]]:
        """Yield the first row's number and the rows of each slab; one slab is read ahead."""
        starts = range(0, sources[0].n_rows, self.n_rows)

        def slab(start: int) -> list[np.ndarray]:
            stop = min(start + self.n_rows, sources[0].n_rows)
            return [source.read(start, stop) for source in sources]

        if all(source.in_memory for source in sources):
            for start in starts:
                yield start, slab(start)
            return
        with ThreadPoolExecutor(1, thread_name_prefix="streamgda-read") as reader:
            ahead = reader.submit(slab, 0)
            for start in starts:
                block = ahead.result()
                if start + self.n_rows < sources[0].n_rows:
                    ahead = reader.submit(slab, start + self.n_rows)
                yield start, block


def _state_bytes(structure: Any, rows: RowSource, labels: RowSource, allowed: int | None) -> int:
    """Bytes of the moments to come: the labels are counted, where there is a budget to hold."""
    if allowed is None:
        return 0
    seen: set[Any] = set()
    for start in range(0, labels.n_rows, 1 << 22):
        seen.update(np.unique(labels.read(start, start + (1 << 22))).tolist())
    return int(structure.state_bytes(len(seen), rows.shape[1]))


_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_UNITS |= {"KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}


def as_bytes(size: int | str | None) -> int | None:
    """A number of bytes, from one or from a text such as ``"512MB"`` or ``"2GiB"``.

    Raises
    ------
    InvalidParameterError
        For anything else.

    Examples
    --------
    >>> as_bytes("512MB"), as_bytes("2GiB")
    (512000000, 2147483648)
    """
    if size is None:
        return None
    if isinstance(size, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?I?)B?\s*", size.upper())
        if match and match[2] in _UNITS:
            return int(float(match[1]) * _UNITS[match[2]])
    elif isinstance(size, int | np.integer) and not isinstance(size, bool) and size > 0:
        return int(size)
    raise InvalidParameterError(
        f"max_memory={size!r}; expected a number of bytes above 0, or a text such as '512MB'"
    )


def readable(size: float) -> str:
    """Bytes as a person would say them.

    Examples
    --------
    >>> readable(49_172_480)
    '49.2 MB'
    """
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size:.0f} bytes"


@contextlib.contextmanager
def reporter(progress: Progress, total: int | None, what: str) -> Iterator[Callable[[int], None]]:
    """A function to call with the rows done so far: a bar, the caller's own, or nothing."""
    if callable(progress):
        yield lambda done: progress(done, total)
    elif not progress or not sys.stderr.isatty():
        yield lambda done: None
    else:
        from rich.console import Console  # noqa: PLC0415
        from rich.progress import (  # noqa: PLC0415
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("rows"),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(what, total=total)
            yield lambda done: bar.update(task, completed=done)
