"""One machine: slabs of rows accumulated or scored in order."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Literal, overload

import numpy as np

from streamgda.engine.fingerprints import REMEDY, SeenBatches, SeenSlabs, describe, sample
from streamgda.engine.journal import RowJournal
from streamgda.engine.outputs import Output, refuse_half_written
from streamgda.engine.plan import plan_moments, plan_rows
from streamgda.engine.progress import Progress, reporter
from streamgda.errors import CheckpointError, InvalidDataError, InvalidParameterError
from streamgda.moments import ClassMoments, Moments, PairwiseMoments, add_rows
from streamgda.moments.structures import structure_of
from streamgda.rows.labels import as_labels
from streamgda.rows.slabs import Slabs
from streamgda.rows.sources import RowSource, as_source, check_rows, is_dask, placing
from streamgda.rows.validity import Invalid
from streamgda.runtime.memory import allowed_bytes


@overload
def accumulate(
    X: Any, y: Any = ..., *, on_invalid: Literal["pairwise"], **options: Any
) -> PairwiseMoments: ...


@overload
def accumulate(
    X: Any, y: Any = ..., *, on_invalid: Literal["raise", "skip"] = ..., **options: Any
) -> ClassMoments: ...


def accumulate(  # type: ignore[misc]  # the overloads name what tells them apart only
    X: Any,
    y: Any = None,
    *,
    covariance_type: str = "full",
    norms: bool = False,
    sample_weight: Any = None,
    classes: Any = None,
    max_memory: int | str | None = None,
    for_model: bool = False,
    progress: Progress = False,
    on_invalid: str = "raise",
    nodata: float | None = None,
    checkpoint: Any = None,
    checkpoint_every: float = 60.0,
) -> Any:
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
    norms : bool
        Whether to keep what Ledoit and Wolf's shrinkage is made of; see `ClassMoments`.
    sample_weight : array-like, zarr.Array or dask.array.Array, shape (n_rows,), optional
        Non-negative weights.
    classes : array-like, shape (n_classes,), optional
        The labels that are expected: any other is an error. They are classes though no row has
        them.
    max_memory : int or str, optional
        Bytes, or a text such as ``"512MB"``: data in flight and state together; by default half
        of what the machine has available or a control group allows. Nothing is begun that would
        need more: labels are counted first, where they could be too many classes. Where slabs must
        be smaller to fit, floats are summed in another order, and the last bits may differ. On a
        cluster it bounds each task that reads a zarr array; of dask arrays it is not looked at.
    for_model : bool
        Plan for a model too that is made of the moments.
    progress : bool or callable
        True shows rates, time left and memory: a bar in a terminal, elsewhere a line every ten
        seconds, on stderr. A callable is given ``(rows_done, rows_total)``, the total None where
        it is not known.
    on_invalid : {"raise", "skip", "pairwise"}
        Of rows with NaN, infinity or `nodata` in any feature: an error that names the first, or
        they are left out and counted (`ClassMoments.n_skipped`). With ``"pairwise"``, `nodata` and
        NaN are missing values, and all others of such rows count: `PairwiseMoments` are kept.
    nodata : int or float, optional
        The value that says, in rasters, that nothing was measured. Of any type of rows.
    checkpoint : path, optional
        A file that keeps the moments while they grow. Where the process is killed, or an error
        ends it, the same call goes on after the rows that the file holds, and gives the same
        bits as one that nothing disturbed. A finished call leaves the file: the same one again
        gives what is in it. All labels and weights, and some of the rows, are compared with
        those that were counted. Where it was a bad row that ended it, the same call goes on once
        that row has been mended in its place, or with ``on_invalid="skip"``. Of batches, as many
        as are held are taken and not added again. On a cluster, and of dask collections, the file
        keeps parts that are complete: the same call, on any number of workers, makes the others.
        Of dask collections the names, shapes and types are compared, and four of the parts; a name
        must be the same in every process, as it is of what is made of stores, arrays and files,
        but not of impure delayed objects.
    checkpoint_every : float
        Seconds from one writing of the file to the next, at least.

    Returns
    -------
    ClassMoments, or PairwiseMoments with ``on_invalid="pairwise"``

    Raises
    ------
    InvalidDataError
        For rows, labels or weights that cannot be used. Of a single row, it names the number, and
        array and chunk, block or batch. The checkpoint keeps the rows before, or the parts without
        it.
    ReadError
        Where a store cannot be read: array, chunk and rows are named.
    MemoryBudgetError
        Where `max_memory` is too little.
    CheckpointError
        Where the checkpoint is of other data, labels or parameters, or damaged.
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
    >>> moments = accumulate(X, [0, 1, 0, 1, 0, 1], on_invalid="skip", nodata=7)
    >>> moments.class_count, moments.n_skipped
    (array([3, 2]), 1)
    >>> accumulate(X, [0, 1, 0, 1, 0, 1], on_invalid="pairwise", nodata=7).pair_count[1]
    array([[3., 2.],
           [2., 2.]])
    """
    structure = structure_of(covariance_type)
    invalid = Invalid(on_invalid, nodata)
    expected = None if classes is None else np.unique(as_labels(classes, "classes"))
    checks = {"invalid": invalid, "expected": expected}
    moments = _empty(covariance_type, norms, invalid)
    # Whether invalid rows are skipped is not told: before the first of them it is all the same.
    made_of = {
        "moments": type(moments).__name__,
        "covariance_type": covariance_type,
        "norms": str(norms),
        "nodata": repr(invalid.nodata),
        "classes": str(None if expected is None else expected.tolist()),
    }
    how: dict[str, Any] = {
        "moments": moments,
        "progress": progress,
        "checkpoint": checkpoint,
        "checkpoint_every": checkpoint_every,
        "made_of": made_of,
        **checks,
    }
    if is_dask(X) or is_dask(y) or (y is None and _is_delayed(X)):
        from streamgda.engine import dask as distributed  # noqa: PLC0415

        merged = distributed.accumulate(X, y, sample_weight=sample_weight, **how)
        return _declared(merged, expected)

    def begun() -> RowJournal:
        made_of["read by"] = "this process"
        journal = RowJournal(checkpoint, checkpoint_every, made_of, moments)
        if invalid.action == "raise":
            journal.refuse_skipped()
        return journal

    if y is None:
        batches = _batches(X, sample_weight)
        made_of["X"] = "batches"
        return _declared(_accumulate_batches(begun(), batches, checks, progress), expected)
    sources = [as_source(X), as_source(as_labels(y) if isinstance(y, list | tuple) else y, "y")]
    if sample_weight is not None:
        sources.append(as_source(sample_weight, "sample_weight"))
    rows, *companions = sources
    check_rows(rows, *companions)
    for source, name in zip(sources, ("X", "y", "sample_weight"), strict=False):
        refuse_half_written(source.values, name)
        made_of[name] = describe(source)
    with placing(*sources):
        plan, labels = plan_moments(
            rows,
            *companions,
            moments=moments,
            allowed=allowed_bytes(max_memory),
            copies=int(invalid.action == "skip"),
            model=structure if for_model else None,
        )
        if _on_cluster(rows):
            from streamgda.engine import dask as distributed  # noqa: PLC0415

            merged = distributed.accumulate_store(rows, companions, plan, **how)
        else:
            read = [rows, labels, *companions[1:]]
            merged = _accumulate_slabs(begun(), plan, read, checks, progress)
    return _declared(merged, expected)


def _declared(moments: Any, classes: np.ndarray | None) -> Any:
    """The moments, with classes that are there without rows."""
    return moments if classes is None or moments.n_features is None else moments.declare(classes)


def _accumulate_slabs(
    journal: RowJournal,
    plan: Slabs,
    sources: list[RowSource],
    checks: dict[str, Any],
    progress: Progress,
) -> Any:
    rows, *companions = sources
    plan = _go_on(journal, plan, rows, companions)
    with (
        reporter(
            progress, rows.n_rows, "accumulating", first=journal.done, row_bytes=rows.row_bytes
        ) as report,
        journal,
    ):
        for start, (block, labels, *weights) in plan.read(rows, *companions, first=journal.done):
            done = start + block.shape[0]
            with journal.adding(done, start, block, (labels, *weights)):
                weight = weights[0] if weights else None
                add_rows(journal.moments, block, labels, weight, first_row=start, **checks)
            report(done)
    return journal.moments


def _empty(covariance_type: str, norms: bool, invalid: Invalid) -> Moments:
    """Moments without rows, of the kind that was asked for."""
    if invalid.action != "pairwise":
        return ClassMoments(covariance_type, norms=norms)
    if covariance_type != "full" or norms:
        raise InvalidParameterError(
            f"on_invalid='pairwise' keeps matrices for each class, and no norms; got "
            f"covariance_type={covariance_type!r}, norms={norms}. PairwiseMoments.to_moments makes "
            f"any covariance type of them"
        )
    return PairwiseMoments()


def _go_on(
    work: RowJournal | Output, plan: Slabs, rows: RowSource, companions: list[RowSource]
) -> Slabs:
    """Cut the rows as the run did that is gone on with, if one is, and see that they are its."""
    if work.kept is not None:
        slab_rows = work.kept.get("slab_rows")
        if not isinstance(slab_rows, int) or slab_rows < 1 or not 0 <= work.done <= rows.n_rows:
            raise CheckpointError(
                f"{work} is damaged: {work.done} rows in slabs of {slab_rows}. {REMEDY}"
            )
        plan = plan.resumed(slab_rows)
    work.seen = SeenSlabs(rows, companions, plan.n_rows)
    if work.kept is not None:
        work.seen.check(work.kept, work.done, str(work))
    return plan


def _is_delayed(X: Any) -> bool:
    """Whether these are partitions that dask has yet to make."""
    return isinstance(X, list | tuple) and bool(X) and hasattr(X[0], "__dask_graph__")


def _on_cluster(rows: RowSource) -> bool:
    """Whether workers of an active `distributed.Client` are to read these rows."""
    if rows.in_memory or "distributed" not in sys.modules:
        return False
    from streamgda.engine import dask as distributed  # noqa: PLC0415

    return distributed.reads_itself(rows.values)


def _accumulate_batches(
    journal: RowJournal, batches: Iterator[Any], checks: dict[str, Any], progress: Progress
) -> Any:
    seen, done = SeenBatches(), 0
    journal.seen, journal.kind = seen, "the first {:,} batches"
    if journal.kept is not None:
        done = seen.check(journal.kept, journal.done, str(journal), batches)
    with reporter(progress, None, "accumulating", first=done) as report, journal:
        for number, batch in enumerate(batches, journal.done):
            if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
                raise InvalidDataError(
                    f"batch {number} is a {type(batch).__name__}; expected a tuple (X, y) or "
                    f"(X, y, weight)"
                )
            try:
                with journal.adding(number + 1, *batch):
                    X, y, *weights = batch
                    weight = weights[0] if weights else None
                    add_rows(journal.moments, X, y, weight, **checks)
            except InvalidDataError as error:
                error.place(f"batch {number}")
                raise
            done += np.shape(batch[1])[0]
            report(done)
    return journal.moments


def _batches(batches: Any, sample_weight: Any) -> Iterator[Any]:
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
    made_of: Mapping[str, Any] | None = None,
    out_row_bytes: int = 8,
    held: int = 0,
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
    made_of : dict, optional
        What `function` is, as JSON. Where it is given, a zarr array bears a mark that says how
        far it is written; where the process is stopped, the same call goes on from there, also on
        a cluster.
    out_row_bytes : int
        Bytes of one row's scores.
    held : int
        Bytes that the function takes, however many rows there are.
    max_memory, progress
        As of `accumulate`.

    Returns
    -------
    numpy.ndarray or zarr.Array
        `out`, or what was made in its place.

    Raises
    ------
    CheckpointError
        Where half-written scores of other rows, or by another function, stand there.
    """
    rows = as_source(X)
    check_rows(rows)
    refuse_half_written(rows.values, "X")
    held += rows.n_rows * out_row_bytes if out is None else 0
    plan = plan_rows(rows, allowed_bytes(max_memory), held, out_row_bytes=out_row_bytes)
    output = Output(out, made_of and {**made_of, "X": describe(rows)})
    plan = _go_on(output, plan, rows, [])
    if _on_cluster(rows):
        from streamgda.engine import dask as distributed  # noqa: PLC0415

        if out is not None:
            first = function(rows.read(0, 1), 0)
            shape = (rows.n_rows, *first.shape[1:])
            output.prepare(shape, first.dtype, distributed.scored_rows(rows))
        if out is None or distributed.reads_itself(output.array):
            with placing(rows):
                return distributed.score_store(function, rows, output, plan.n_rows, progress)
    with (
        placing(rows),
        reporter(
            progress, rows.n_rows, "scoring", first=output.done, row_bytes=rows.row_bytes
        ) as report,
        output,
        ThreadPoolExecutor(1, thread_name_prefix="streamgda-write") as writer,
    ):
        writing: Future[None] | None = None
        for start, (block,) in plan.read(rows, first=output.done):
            scores = function(block, start)
            if writing is None:
                output.prepare((rows.n_rows, *scores.shape[1:]), scores.dtype, plan.n_rows)
            else:
                writing.result()
                report(start)
            writing = writer.submit(output.put, start, sample(block), scores)
        if writing is not None:
            writing.result()
            report(rows.n_rows)
    return output.array
