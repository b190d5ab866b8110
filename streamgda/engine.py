"""One machine: slabs of rows accumulated or scored in order."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from streamgda.errors import InvalidDataError
from streamgda.moments import ClassMoments
from streamgda.moments.labels import as_labels
from streamgda.moments.structure import structure_of
from streamgda.progress import Progress, reporter
from streamgda.slabs import Slabs, as_bytes
from streamgda.sources import RowSource, as_source, check_rows, is_dask


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
    X : array-like, numpy.memmap, zarr.Array, data frame, dask array or dask data frame
        Rows, shape (n_rows, n_features). With `y` omitted: an iterable of batches, each
        ``(X, y)`` or ``(X, y, sample_weight)``, or a list of ``dask.delayed`` ones. A zarr array
        is read by the workers themselves where a `distributed.Client` is active.
    y : array-like, zarr.Array or dask.array.Array, shape (n_rows,), optional
        Class labels.
    covariance_type : str
        What is kept of the scatter; see `ClassMoments`.
    sample_weight : array-like, zarr.Array or dask.array.Array, shape (n_rows,), optional
        Non-negative weights.
    max_memory : int or str, optional
        Bytes, or a text such as ``"512MB"``: data in flight and state together. Labels are then
        counted first, and nothing is begun that would need more. On a cluster it bounds each
        task that reads a zarr array; of dask arrays it is not looked at.
    progress : bool or callable
        True shows a bar in a terminal; a callable is given ``(rows_done, rows_total)``, the total
        None where it is not known.

    Returns
    -------
    ClassMoments

    Raises
    ------
    InvalidDataError
        For rows, labels or weights that cannot be used.
    MemoryBudgetError
        Where `max_memory` is too little.
    ClusterError
        Where a cluster fails that does the work.

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
    if is_dask(X) or is_dask(y) or (y is None and _is_delayed(X)):
        from streamgda import distributed  # noqa: PLC0415  (dask is loaded where it is used)

        return distributed.accumulate(
            X,
            y,
            covariance_type=covariance_type,
            sample_weight=sample_weight,
            progress=progress,
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
    if _on_cluster(rows):
        from streamgda import distributed  # noqa: PLC0415

        return distributed.accumulate_store(
            rows, companions, plan.n_rows, covariance_type=covariance_type, progress=progress
        )
    with reporter(progress, rows.n_rows, "accumulating") as report:
        for start, (block, labels, *weights) in plan.read(rows, *companions):
            moments._update(block, labels, weights[0] if weights else None, start)
            report(start + block.shape[0])
    return moments


def _is_delayed(X: Any) -> bool:
    """Whether these are partitions that dask has yet to make."""
    return isinstance(X, list | tuple) and bool(X) and hasattr(X[0], "__dask_graph__")


def _on_cluster(rows: RowSource) -> bool:
    """Whether workers of an active `distributed.Client` are to read these rows."""
    if rows.in_memory or "distributed" not in sys.modules:
        return False
    from streamgda import distributed  # noqa: PLC0415

    return distributed.reads_itself(rows.values)


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
    if _on_cluster(rows):
        from streamgda import distributed  # noqa: PLC0415

        if out is not None:
            first = function(rows.read(0, 1), 0)
            shape = (rows.n_rows, *first.shape[1:])
            out = target(out, shape, first.dtype, distributed.scored_rows(rows))
        if out is None or distributed.reads_itself(out):
            return distributed.score_store(function, rows, out, plan.n_rows, progress)
    with (
        reporter(progress, rows.n_rows, "scoring") as report,
        ThreadPoolExecutor(1, thread_name_prefix="streamgda-write") as writer,
    ):
        writing: Future[None] | None = None
        for start, (block,) in plan.read(rows):
            scores = function(block, start)
            if not start:
                out = target(out, (rows.n_rows, *scores.shape[1:]), scores.dtype, plan.n_rows)
            if writing is not None:
                writing.result()
                report(start)
            writing = writer.submit(out.__setitem__, slice(start, start + len(scores)), scores)
        assert writing is not None  # there are rows
        writing.result()
        report(rows.n_rows)
    return out


def target(out: Any, shape: tuple[int, ...], dtype: np.dtype, slab_rows: int) -> Any:
    """What scores of that shape are written to: `out`, or what is made where it says.

    Raises
    ------
    InvalidDataError
        For an array that they do not fit.
    """
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


def _state_bytes(structure: Any, rows: RowSource, labels: RowSource, allowed: int | None) -> int:
    """Bytes of the moments to come: the labels are counted, where there is a budget to hold."""
    if allowed is None:
        return 0
    seen: set[Any] = set()
    for start in range(0, labels.n_rows, 1 << 22):
        seen.update(np.unique(labels.read(start, start + (1 << 22))).tolist())
    return int(structure.state_bytes(len(seen), rows.shape[1]))
