"""`accumulate`: class moments of rows of every kind.

Memory
------
Slabs, and the moments of as many classes as labels in memory have or may be expected, fit the
budget. If more classes appear, moments that would exceed it raise an error beforehand.
Of dask collections the budget holds the moments, not the blocks, which dask evaluates: the moments
of each block get an equal share.

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

import contextlib
import math
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, overload

import numpy as np

from streamgda.engine.checkpoint import REMEDY, Checkpoint, checksum, describe
from streamgda.engine.plan import CLASSES_EXPECTED, best_rows, decoded_once, plan_rows
from streamgda.engine.reading import Progress, reading, reporter
from streamgda.errors import (
    CheckpointError,
    InvalidDataError,
    InvalidParameterError,
    MemoryBudgetError,
)
from streamgda.moments import (
    ClassMoments,
    GroupedMoments,
    Moments,
    PairwiseMoments,
    group_labels,
)
from streamgda.moments.covariance_types import Structure, structure_of
from streamgda.rows import Rows, as_batches
from streamgda.rows.counting import ACCUMULATING, CHECK_SUMS, RowRule, Slab, row_rule
from streamgda.rows.labels import as_labels
from streamgda.rows.source import RowSource, as_source, placing
from streamgda.runtime import threads
from streamgda.runtime.memory import allowed_bytes, readable
from streamgda.runtime.parameters import unexpected

_MATRICES = 5  # A thread that factorises a covariance holds so many matrices.


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


def accumulate(  # type: ignore[misc]  # The overloads name only what distinguishes them.
    X: Any,
    y: Any = None,
    *,
    covariance_type: str = "full",
    sample_weight: Any = None,
    groups: Any = None,
    classes: Any = None,
    max_memory: int | str | None = None,
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
    progress : bool or callable
        Show progress, or call with ``(rows_done, rows_total)``.
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
    in_batches = y is None or columns is not None
    if in_batches:
        rows = Rows(X, y, groups, sample_weight, row_rule(on_invalid, **counting))
    else:
        rows = Rows.of(
            *(X, y, sample_weight, groups), features=features, on_invalid=on_invalid, **counting
        )
    asked = Accumulation(
        _without_rows(on_invalid, covariance_type, groups, feature_map),
        rule=rows.rule,
        expected=None if classes is None else np.unique(as_labels(classes, "classes")),
        max_memory=max_memory,
        progress=progress,
        checkpoint=checkpoint,
        checkpoint_every=checkpoint_every,
    )
    if in_batches:
        moments = _accumulated_batches(asked, rows, features, columns)
    else:
        moments = _accumulated(asked, rows)
    if asked.expected is not None and moments.n_features is not None:
        moments.declare(asked.expected)
    return moments


def _without_rows(on_invalid: str, covariance_type: str, groups: Any, feature_map: Any) -> Moments:
    """Return moments without rows, of the requested kind."""
    if on_invalid != "pairwise":
        kind: Any = ClassMoments if groups is None else GroupedMoments
        return kind(covariance_type, feature_map=feature_map)
    if groups is not None or feature_map is not None or covariance_type != "full":
        raise InvalidParameterError(
            f"on_invalid='pairwise' keeps matrices for each class, without groups and without "
            f"feature_map; got covariance_type={covariance_type!r}. Use 'skip' with "
            f"groups or a map; PairwiseMoments.to_moments converts to other covariance types"
        )
    return PairwiseMoments()


def accumulate_into(
    moments: Any,
    rows: Rows,
    expected: np.ndarray | None = None,
    **options: Any,
) -> Any:
    """Add rows from any container to moments: all of them, or none if there is an error.

    An interruption, too, leaves the moments as they were or complete. The memory of a model of the
    moments is planned, too.

    Parameters
    ----------
    moments : ClassMoments or GroupedMoments
        Rows in memory that need one slab are added in place.
    rows : Rows
        Without labels, they are of one class, 0.
    expected : ndarray, sorted, optional
        Labels that may occur.
    **options
        Fields of `Accumulation`, such as a checkpoint.

    Returns
    -------
    ClassMoments or GroupedMoments
        `moments`, or new ones.
    """
    rows = rows if moments._takes_sparse else rows.dense()
    X = None if options else rows.at_once
    if X is not None:
        y = one_class(X) if rows.y is None else rows.y
        y, groups, weight = (
            a.whole() if isinstance(a, RowSource) else a for a in (y, rows.groups, rows.weight)
        )
        return moments._update(Slab(X, y, groups, weight), rows.rule, expected)
    model = structure_of(moments.covariance_type)
    asked = Accumulation(moments._emptied(), rows.rule, expected, model=model, **options)
    added = _accumulated(asked, rows)
    return added if moments.n_features is None else moments + added


# --- what is added --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Accumulation:
    """Parameters of a pass that accumulates moments, here and on dask.

    Attributes
    ----------
    empty : Moments
        Moments without rows, of the kind that is accumulated.
    rule : RowRule
        Which rows count.
    expected : ndarray, sorted, optional
        Labels that may occur.
    model : Structure, optional
        Structure of the covariances of a model of the moments, if its memory counts.
    max_memory, progress, checkpoint, checkpoint_every
        See `accumulate`.
    feature_names : tuple of str, optional
        Names of the features of the rows.
    n_bytes : float
        Bytes that the moments may take, and a model of them afterwards.
    """

    empty: Moments
    rule: RowRule = CHECK_SUMS
    expected: np.ndarray | None = None
    model: Structure | None = None
    max_memory: int | str | None = None
    progress: Progress = False
    checkpoint: Any = None
    checkpoint_every: float = 60.0
    feature_names: tuple[str, ...] | None = None
    n_bytes: float = math.inf

    def add(self, moments: Moments, slab: Slab) -> None:
        """Add rows to moments.

        Raises
        ------
        MemoryBudgetError
            If moments with these rows as well would need more than they may take.
        """
        if slab.y is None:
            slab = slab._replace(y=one_class(slab.X))
        if self.n_bytes < math.inf:
            self._check_budget(moments, slab)
        moments._update(slab, self.rule, self.expected)
        moments._name_features(self.feature_names)

    def _check_budget(self, moments: Moments, slab: Slab) -> None:
        d, start, grouped = slab.X.shape[1], slab.first_row, slab.groups is not None
        if not grouped and self.needed(moments.classes.size + len(slab.y), d) <= self.n_bytes:
            return  # The labels need not be counted.
        n_classes = self.rule.class_labels(slab.y, moments.classes, start).size
        n_groups = 0
        if grouped and isinstance(moments, GroupedMoments):
            n_groups = group_labels(slab.groups, start, known=moments.groups).values.size
        needed = self.needed(n_classes, d, n_groups)
        if needed > self.n_bytes:
            what = f"{n_groups} groups x " if grouped else ""
            raise MemoryBudgetError(
                f"moments of {what}{n_classes} classes need {readable(needed)}, and max_memory (by "
                f"default half of what is available) leaves {readable(self.n_bytes)} for them "
                f"beside the rows. Pass a larger max_memory, or use covariance_type='tied' or "
                f"'diag', or fewer features or larger groups"
            )

    def needed(self, n_classes: int, n_features: int, n_groups: int = 0) -> int:
        """Return the bytes that moments of so many classes need."""
        lifting, lifted = self.empty._lifting, 0
        if lifting is not None:
            lifting = lifting.bound(n_features)
            n_features, lifted = lifting.n_out, lifting.nbytes
        state, held = self.empty._bytes(n_classes, n_features, n_groups)
        if self.model is None:
            return held + lifted
        # A centred copy, covariances and their roots, of all groups together.
        matrices = _MATRICES * threads.n_threads() * 8 * math.prod(self.model.shape(n_features))
        state //= max(1, n_groups)
        model = 2 * (state + self.model.model_bytes(n_classes, n_features)) + matrices
        return max(held + lifted, model)

    def planned(self, rows: Rows) -> tuple[Self, Rows, int]:
        """Return the pass with what is left for its moments, and how its rows are read.

        Returns
        -------
        asked : Accumulation
        rows : Rows
            With the labels in memory if their chunks are longer than slabs.
        slab_rows : int

        Raises
        ------
        MemoryBudgetError
            If the smallest slab and the moments of a few classes do not fit.
        """
        allowed, d, labels = allowed_bytes(self.max_memory), rows.X.shape[1], 0
        n_classes = 1 if rows.y is None else min(rows.y.n_rows, CLASSES_EXPECTED)
        if rows.y is not None and rows.y.chunk_rows > best_rows(rows.X):
            rows, labels = decoded_once(rows, allowed)
        slab_rows, in_flight = plan_rows(
            rows,
            allowed,
            held=labels + self.needed(n_classes, d),
            copies=int(rows.rule.selects),
            scratch=self.empty._scratch_bytes(d),
        )
        return replace(self, n_bytes=allowed - labels - in_flight), rows, slab_rows

    def started(
        self, reader: str, counted: str, sources: list[Any], **description: str
    ) -> Checkpoint | None:
        """Return the checkpoint of the pass, with what its file holds; None without one.

        It compares the parameters of the pass, what reads the rows, and descriptions of these.
        Whether invalid rows are skipped is not included: it makes no difference before the first
        of them.
        """
        if self.checkpoint is None:
            return None
        empty, unlabelled = self.empty, self.rule.unlabelled
        description = {
            **{source.name: describe(source) for source in sources},
            **description,
            "moments": type(empty).__name__,
            "covariance_type": getattr(empty, "covariance_type", "full"),
            "nodata": repr(self.rule.nodata),
            "classes": str(None if self.expected is None else self.expected.tolist()),
            "unlabelled": str(None if unlabelled is None else unlabelled.tolist()),
            "feature_map": str(empty._lifting),
            "feature_names": str(self.feature_names),
            "read by": reader,
        }
        kept = Checkpoint(self.checkpoint, self.checkpoint_every, description, empty, counted)
        if self.rule.action == "raise" and kept.moments.n_skipped:
            raise CheckpointError(
                f"{kept.title} was started with on_invalid: skip, and "
                f"{kept.moments.n_skipped} rows were left out; now it is raise. {REMEDY}"
            )
        return kept


def one_class(X: Any) -> np.ndarray:
    """Return the labels of rows without labels: one for all of them."""
    return np.zeros(X.shape[0], np.int64)


# --- passes ---------------------------------------------------------------------------------------


def _accumulated(asked: Accumulation, rows: Rows) -> Moments:
    """Choose what accumulates rows, and accumulate them slab by slab if that is this process."""
    rows = rows.opened()
    rows = rows if asked.empty._takes_sparse else rows.dense()
    asked = replace(asked, feature_names=rows.X.feature_names)
    if rows.executor == "dask":
        from streamgda.engine.dask.accumulate import accumulate_blocks  # noqa: PLC0415

        return accumulate_blocks(asked, rows)
    with placing(*rows.checked().sources):
        asked, rows, slab_rows = asked.planned(rows)
    moments, kept = asked.empty, asked.started("this process", "rows", rows.sources)
    if kept is not None:
        moments = kept.moments
        slab_rows = kept.resume(slab_rows, lambda *slab: checksum(rows.read(*slab)))
    first = 0 if kept is None else kept.done
    with (
        reading(rows, slab_rows, "accumulating", asked.progress, first) as slabs,
        kept or contextlib.nullcontext(),
    ):
        for slab in slabs:
            if kept is None:
                asked.add(moments, slab)
            else:
                kept.add(asked.add, slab.first_row, slab.first_row + slab.X.shape[0], slab)
    return moments


def _accumulated_batches(asked: Accumulation, rows: Rows, features: Any, columns: Any) -> Moments:
    """Accumulate batches one after another, in this process or as partitions on dask."""
    if rows.groups is not None:
        raise InvalidParameterError(
            "groups are given, and X holds batches: call GroupedMoments().update(X, y, groups) for "
            "each of them"
        )
    if rows.y is not None:
        raise unexpected("columns", columns, "None, because y is given, and X holds no batches")
    batches = as_batches(rows.X, rows.weight, features=features, columns=columns)
    asked = replace(asked, feature_names=batches.feature_names)
    if batches.executor == "dask":
        from streamgda.engine.dask.accumulate import accumulate_partitions  # noqa: PLC0415

        return accumulate_partitions(asked, batches)
    numbered, n_rows = enumerate(batches), 0

    def checked(_: int, stop: int) -> int:
        """Consume the batches before `stop`, which are held; return the checksum of the last."""
        nonlocal n_rows
        for number, batch in numbered:
            n_rows += as_source(batch.y, "y").n_rows
            if number == stop - 1:
                return checksum(batch)
        raise IndexError

    moments, kept = asked.empty, asked.started("this process", "batches", [], X="batches")
    if kept is not None:
        moments = kept.moments
        kept.resume(1, checked)
    with (
        reporter(asked.progress, None, "accumulating", first=n_rows) as report,
        kept or contextlib.nullcontext(),
    ):
        for number, batch in numbered:
            try:
                if kept is None:
                    asked.add(moments, batch)
                else:
                    kept.add(asked.add, number, number + 1, batch)
            except InvalidDataError as error:
                error.place(f"batch {number}")
                raise
            n_rows += as_source(batch.y, "y").n_rows
            report(n_rows)
    return moments
