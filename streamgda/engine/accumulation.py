"""`Accumulation`: the parameters of a pass that accumulates moments, here and on dask."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamgda.engine.checkpoint import REMEDY, Journal
from streamgda.engine.plan import MomentsBudget
from streamgda.engine.progress import Progress
from streamgda.errors import CheckpointError, InvalidParameterError
from streamgda.moments import ClassMoments, GroupedMoments, Moments, PairwiseMoments
from streamgda.moments.covariance_types import structure_of
from streamgda.moments.feature_maps import Lifting
from streamgda.rows.counting import CHECK_SUMS, RowRule, Slab
from streamgda.runtime.parameters import as_number


@dataclass(frozen=True)
class Accumulation:
    """Parameters of a pass that accumulates moments; see `streamgda.accumulate`.

    Attributes
    ----------
    covariance_type : str
    rule : RowRule
        Which rows count.
    expected : ndarray, sorted, optional
        Labels that may occur.
    max_memory : int or str, optional
    for_model : bool
    progress : bool or callable
    checkpoint : path, optional
    checkpoint_every : float
    feature_names : tuple of str, optional
        Names of the features of the rows.
    grouped : bool
        The rows have groups.
    feature_map : Lifting, optional
        Map of the rows before they are added.
    budget : MomentsBudget, optional
        The bytes that the moments may take.
    """

    covariance_type: str = "full"
    rule: RowRule = CHECK_SUMS
    expected: np.ndarray | None = None
    max_memory: int | str | None = None
    for_model: bool = False
    progress: Progress = False
    checkpoint: Any = None
    checkpoint_every: float = 60.0
    feature_names: tuple[str, ...] | None = None
    grouped: bool = False
    feature_map: Lifting | None = None
    budget: MomentsBudget | None = None

    def __post_init__(self) -> None:
        structure_of(self.covariance_type)
        if self.checkpoint_every != math.inf:
            expected = "a number of seconds, 0 or more"
            as_number("checkpoint_every", self.checkpoint_every, expected, 0)

    def empty(self) -> Moments:
        """Return moments without rows, of the requested kind."""
        if self.rule.action != "pairwise":
            kind: Any = GroupedMoments if self.grouped else ClassMoments
            return kind(self.covariance_type, feature_map=self.feature_map)
        if self.grouped or self.feature_map is not None or self.covariance_type != "full":
            raise InvalidParameterError(
                f"on_invalid='pairwise' keeps matrices for each class, without groups and without "
                f"feature_map; got covariance_type={self.covariance_type!r}. Use 'skip' with "
                f"groups or a map; PairwiseMoments.to_moments converts to other covariance types"
            )
        return PairwiseMoments()

    def add(self, moments: Moments, slab: Slab) -> None:
        """Add rows to moments."""
        if slab.y is None:
            slab = slab._replace(y=one_class(slab.X))
        if self.budget is not None:
            self.budget.check(moments, slab, self.rule)
        moments._update(slab, self.rule, self.expected)
        moments._name_features(self.feature_names)

    def journal(self, reader: str, rows: Mapping[str, str], counted: str = "rows") -> Journal:
        """Return the journal of a pass, with what its file holds.

        It compares the parameters of the pass, what reads the rows, and a description of these.
        Whether invalid rows are skipped is not included: it makes no difference before the first
        of them.
        """
        unlabelled = self.rule.unlabelled
        description = {
            "moments": type(self.empty()).__name__,
            "covariance_type": self.covariance_type,
            "nodata": repr(self.rule.nodata),
            "classes": str(None if self.expected is None else self.expected.tolist()),
            "unlabelled": str(None if unlabelled is None else unlabelled.tolist()),
            "feature_map": str(self.feature_map),
            "feature_names": str(self.feature_names),
            **rows,
            "read by": reader,
        }
        kept = self.checkpoint, self.checkpoint_every
        journal = Journal(*kept, description, self.empty(), counted)
        if self.rule.action == "raise" and journal.moments.n_skipped:
            raise CheckpointError(
                f"{journal.title} was started with on_invalid: skip, and "
                f"{journal.moments.n_skipped} rows were left out; now it is raise. {REMEDY}"
            )
        return journal


def one_class(X: Any) -> np.ndarray:
    """Return the labels of rows without labels: one for all of them."""
    return np.zeros(len(X), np.int64)
