"""`accumulate`: class moments of rows of every kind.

Memory
------
Slabs, and the moments of as many classes as labels in memory have or may be expected, fit the
budget. If more classes appear, moments that would exceed it raise an error beforehand.
Of dask collections the budget holds the moments, not the blocks, which dask evaluates: as many
tasks run at a time as there is room for. On a cluster it is that of each task.

Checkpoints
-----------
A checkpoint is a file with the moments accumulated so far. If the process is killed or an error
ends it, the same call resumes after the rows in the file and returns the same bits as a run that
was never interrupted. A completed call leaves the file, and calling again returns its content.

The call must be the same: the parameters, shapes and types, the first slab and the last one that
the file holds are compared. If an invalid row ended the run, the call resumes once that row
has been corrected in place, or with ``on_invalid="skip"``. Batches that the file holds are
consumed and not added again. Of dask collections the file holds the first blocks, on any number
of workers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, overload

import numpy as np

from streamgda.engine.accumulation import Accumulation, one_class
from streamgda.engine.checkpoint import checksum, describe
from streamgda.engine.plan import MomentsBudget, most_rows, plan_moments
from streamgda.engine.progress import Progress, reporter
from streamgda.engine.reading import on_dask, reading
from streamgda.errors import InvalidDataError, InvalidParameterError
from streamgda.moments import ClassMoments, GroupedMoments, Moments, PairwiseMoments
from streamgda.moments.covariance_types import structure_of
from streamgda.moments.feature_maps import Lifting
from streamgda.rows import Rows, as_batches
from streamgda.rows.batches import Batches
from streamgda.rows.counting import ACCUMULATING, Slab, is_plain, row_rule
from streamgda.rows.labels import as_labels
from streamgda.rows.source import as_source, placing
from streamgda.runtime.memory import allowed_bytes
from streamgda.runtime.parameters import refuse


@overload
def accumulate(
    X: Any, y: Any = ..., *, on_invalid: Literal["pairwise"], **options: Any
) -> PairwiseMoments: ...


@overload
def accumulate(
    X: Any,
    y: Any = ...,
    *,
    on_invalid: Literal["raise", "skip"] = ...,
    groups: None = ...,
    **options: Any,
) -> ClassMoments: ...


@overload
def accumulate(
    X: Any,
    y: Any = ...,
    *,
    groups: Any,
    on_invalid: Literal["raise", "skip"] = ...,
    **options: Any,
) -> GroupedMoments: ...


def accumulate(  # type: ignore[misc]  # the overloads name only what distinguishes them
    X: Any,
    y: Any = None,
    *,
    covariance_type: str = "full",
    sample_weight: Any = None,
    groups: Any = None,
    classes: Any = None,
    max_memory: int | str | None = None,
    for_model: bool = False,
    progress: Progress = False,
    on_invalid: str = "raise",
    nodata: float | None = None,
    unlabelled: Any = None,
    features: Any = None,
    columns: Any = None,
    feature_map: Any = None,
    checkpoint: Any = None,
    checkpoint_every: float = 60.0,
) -> Any:
    """Accumulate the class moments of rows from any container, in one pass.

    Parameters
    ----------
    X : array-like, sparse matrix, memmap, zarr.Array, data frame, dask collection, batches
        Rows, shape (n_rows, n_features). Without `y`,
        batches ``(X, y)`` or ``(X, y, weight)``, or a list of ``dask.delayed`` ones.
    y : array-like, zarr.Array or dask.array.Array, shape (n_rows,), optional
        Class labels.
    covariance_type : str
        The scatter that is kept; see `ClassMoments`.
    sample_weight, groups : array-like, zarr.Array or dask.array.Array, shape (n_rows,), optional
        Non-negative weights; sites, subjects, days or other groups that `GroupedMoments` keep.
    classes : array-like, shape (n_classes,), optional
        All labels that may occur; they become classes even without rows.
    max_memory : int or str, optional
        Bytes, or a text such as ``"512MB"``, for rows in flight and moments; by default half of
        the available memory. Smaller slabs may change the last bits of sums of floats.
    for_model, progress : bool, bool or callable
        Plan the memory of a model, too; show progress, or call with ``(rows_done, rows_total)``.
    on_invalid : {"raise", "skip", "pairwise"}
        Raise an error for rows with NaN, infinity, masked values, `nodata` or a missing label;
        skip and count them; or keep `PairwiseMoments`, of which values may be missing.
    nodata, unlabelled : number; label or sequence of labels; optional
        Value that marks missing measurements, and labels of rows that do not count at all.
    features, columns : str; tuple of names; optional
        Dimension of a DataArray with the features; names of X, y (and weights) in dicts or tables.
    feature_map : RandomFeatures, Standardize, transformer, or list; optional
        Map of the rows before they are added, slab by slab: the moments are of lifted rows, which
        are never stored. Rows are checked before it. Fitted transformers are scikit-learn's.
    checkpoint, checkpoint_every : path, float
        File from which the same call resumes, and the least number of seconds between two writes.

    Returns
    -------
    ClassMoments, GroupedMoments with groups, or PairwiseMoments with ``on_invalid="pairwise"``
        Moments of the rows.

    Raises
    ------
    InvalidDataError, ReadError, ClusterError
        For rows, labels or weights that are invalid or cannot be read; if the cluster fails.
    MemoryBudgetError, CheckpointError
        If `max_memory` is too small, or the checkpoint is damaged or belongs to other data.

    Examples
    --------
    >>> from streamgda import accumulate
    >>> X, y = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], [0, 1, 0]
    >>> accumulate(X, y).class_count
    array([2, 1])
    """
    counting: Any = {"unlabelled": unlabelled, "nodata": nodata, "actions": ACCUMULATING}
    if y is None:  # X are batches.
        rows = Rows(X, None, groups, sample_weight, row_rule(on_invalid, **counting))
    else:
        rows = Rows.of(
            *(X, y, sample_weight, groups), features=features, on_invalid=on_invalid, **counting
        )
    asked = Accumulation(
        covariance_type=covariance_type,
        rule=rows.rule,
        expected=None if classes is None else np.unique(as_labels(classes, "classes")),
        max_memory=max_memory,
        for_model=for_model,
        progress=progress,
        checkpoint=checkpoint,
        checkpoint_every=checkpoint_every,
        grouped=groups is not None,
        feature_map=Lifting.of(feature_map),
    )
    if columns is not None or y is None:
        moments = _accumulated_batches(asked, rows, features, columns)
    elif max_memory is checkpoint is None and not progress and _in_one_slab(rows):
        asked = replace(asked, budget=MomentsBudget(allowed_bytes(None)))
        moments = asked.empty()
        asked.add(moments, Slab(rows.X, rows.y, rows.groups, rows.weight))
    else:
        moments = _accumulated(asked, rows)
    if asked.expected is not None and moments.n_features is not None:
        moments.declare(asked.expected)
    return moments


def _in_one_slab(rows: Rows) -> bool:
    """Return True for arrays in memory that fit each other, and need no plan."""
    X = rows.X
    if not is_plain(X) or X.ndim != 2 or not 0 < len(X) <= most_rows(X.itemsize * X.shape[1]):
        return False
    return all(isinstance(a, np.ndarray) and a.shape == X.shape[:1] for a in rows.beside)


def accumulate_into(
    moments: ClassMoments,
    rows: Rows,
    expected: np.ndarray | None = None,
    **options: Any,
) -> ClassMoments:
    """Add rows from any container to moments: all of them, or none if there is an error.

    An interruption, too, leaves the moments as they were or complete.

    Parameters
    ----------
    moments : ClassMoments
        Rows in memory that need one slab are added in place.
    rows : Rows
        Without labels, they are of one class, 0.
    expected : ndarray, sorted, optional
        Labels that may occur.
    **options
        Fields of `Accumulation`, such as a checkpoint.

    Returns
    -------
    ClassMoments
        `moments`, or new ones.
    """
    rows = rows if moments._takes_sparse else rows.dense()
    X = None if options else rows.at_once
    if X is not None:
        y = one_class(X) if rows.y is None else rows.y
        return moments._update(Slab(X, y, weight=rows.weight), rows.rule, expected)
    asked = Accumulation(
        covariance_type=moments.covariance_type,
        rule=rows.rule,
        expected=expected,
        for_model=True,
        feature_map=moments._lifting,
        **options,
    )
    added: Any = _accumulated(asked, rows)
    return added if moments.n_features is None else moments + added


def _accumulated(asked: Accumulation, rows: Rows) -> Moments:
    """Choose how rows are accumulated: with `_accumulated_batches` the only place that does."""
    moments, rows = asked.empty(), rows.opened()
    rows = rows if moments._takes_sparse else rows.dense()
    asked = replace(asked, feature_names=rows.X.feature_names)
    if rows.executor == "dask":
        return on_dask().accumulate(asked, rows)
    model = structure_of(asked.covariance_type) if asked.for_model else None
    with placing(*rows.checked().sources):
        allowed = allowed_bytes(asked.max_memory)
        slab_rows, rows, budget = plan_moments(rows, moments, allowed, model)
    return _accumulate_slabs(replace(asked, budget=budget), slab_rows, rows)


def _accumulated_batches(asked: Accumulation, rows: Rows, features: Any, columns: Any) -> Moments:
    if asked.grouped:
        raise InvalidParameterError(
            "groups are given, and X holds batches: call GroupedMoments().update(X, y, groups) for "
            "each of them"
        )
    if rows.y is not None:
        raise refuse("columns", columns, "None, because y is given, and X holds no batches")
    batches = as_batches(rows.X, rows.weight, features=features, columns=columns)
    asked = replace(asked, feature_names=batches.feature_names)
    if batches.executor == "dask":
        return on_dask().accumulate_partitions(asked, list(batches))
    return _accumulate_batches(asked, batches)


def _accumulate_slabs(asked: Accumulation, slab_rows: int, rows: Rows) -> Moments:
    described = {source.name: describe(source) for source in rows.sources}
    journal = asked.journal("this process", described)

    def checked(start: int, stop: int) -> tuple[int, int]:
        first = rows.read(0, journal.seen["slab_rows"])
        return checksum(first), checksum(rows.read(start, stop))

    slab_rows = journal.resume(slab_rows, checked)
    # Rows without a label are not read, unless they are compared.
    labelled = asked.rule.unlabelled is not None and not journal.keeps
    wanted = asked.rule.any_labelled if labelled else None
    with (
        reading(rows, slab_rows, "accumulating", asked.progress, journal.done, wanted) as slabs,
        journal,
    ):
        for slab in slabs:
            if n_rows := len(slab.X):
                journal.add(asked.add, slab.first_row, slab.first_row + n_rows, slab)
    return journal.moments


def _accumulate_batches(asked: Accumulation, batches: Batches) -> Moments:
    waiting, done = (Slab.of_batch(batch) for batch in batches), 0
    journal = asked.journal("this process", {"X": "batches"}, "batches")

    def checked(start: int, stop: int) -> tuple[int, int]:
        nonlocal done
        found = []
        for number in range(stop):
            batch = next(waiting)
            done += as_source(batch.y, "y").n_rows
            found += [checksum(batch)] if number in (0, start) else []
        return found[0], found[-1]

    journal.resume(1, checked)
    with reporter(asked.progress, None, "accumulating", first=done) as report, journal:
        for number, batch in enumerate(waiting, journal.done):
            try:
                journal.add(asked.add, number, number + 1, batch)
            except InvalidDataError as error:
                error.place(f"batch {number}")
                raise
            done += as_source(batch.y, "y").n_rows
            report(done)
    return journal.moments
