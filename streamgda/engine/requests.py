"""The parameters of a pass, handed on as one object."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamgda.engine.journal import check_interval
from streamgda.engine.progress import Progress
from streamgda.errors import InvalidParameterError
from streamgda.moments import (
    ClassMoments,
    FourthMoments,
    GroupedMoments,
    Moments,
    PairwiseMoments,
)
from streamgda.moments.covariance_types import structure_of
from streamgda.rows.invalid_rows import CHECK_SUMS, RowRule
from streamgda.runtime.parameters import as_flag


@dataclass(frozen=True)
class Accumulation:
    """Parameters of a pass that accumulates moments; see `streamgda.accumulate`.

    Attributes
    ----------
    covariance_type : str
    fourth_moments : bool
    rule : RowRule
        Which rows count.
    expected : ndarray, sorted, optional
        Labels that may occur.
    max_memory : int or str, optional
    for_model : bool
    progress : bool or callable
    checkpoint : path, optional
    checkpoint_every : float
    again : FourthMoments, optional
        Sums without rows, to which the rows are added in a second pass over them.
    feature_names : tuple of str, optional
        Names of the features of the rows.
    grouped : bool
        The rows have groups, which follow the labels.
    """

    covariance_type: str = "full"
    fourth_moments: bool = False
    rule: RowRule = CHECK_SUMS
    expected: np.ndarray | None = None
    max_memory: int | str | None = None
    for_model: bool = False
    progress: Progress = False
    checkpoint: Any = None
    checkpoint_every: float = 60.0
    again: FourthMoments | None = None
    feature_names: tuple[str, ...] | None = None
    grouped: bool = False

    def __post_init__(self) -> None:
        structure_of(self.covariance_type)
        as_flag("fourth_moments", self.fourth_moments)
        check_interval(self.checkpoint_every, "checkpoint_every")

    def empty(self) -> Moments:
        """Return moments without rows, of the requested kind."""
        if self.again is not None:
            return self.again.copy()
        if self.grouped and self.rule.action == "pairwise":
            raise InvalidParameterError(
                "on_invalid='pairwise' keeps no moments of groups; use 'skip' with groups, or call "
                "accumulate for the rows of each group"
            )
        if self.grouped:
            return GroupedMoments(self.covariance_type, fourth_moments=self.fourth_moments)
        if self.rule.action != "pairwise":
            return ClassMoments(self.covariance_type, fourth_moments=self.fourth_moments)
        if self.covariance_type != "full" or self.fourth_moments:
            raise InvalidParameterError(
                f"on_invalid='pairwise' keeps matrices for each class, and no fourth moments; got "
                f"covariance_type={self.covariance_type!r}, fourth_moments={self.fourth_moments}. "
                f"PairwiseMoments.to_moments converts them to any covariance type"
            )
        return PairwiseMoments()

    def add(self, moments: Moments, X: Any, y: Any, *given: Any, first_row: int = 0) -> None:
        """Add rows to moments; they are numbered from `first_row` in errors.

        The columns are groups, if the moments are of groups, and perhaps weights.
        """
        columns = [*given]
        options: Any = {"first_row": first_row, "rule": self.rule, "expected": self.expected}
        if isinstance(moments, GroupedMoments):
            options["groups"], *columns = columns
        moments._update(X, y, *columns, **options)
        moments._name_features(self.feature_names)

    def declared(self, moments: Moments) -> Moments:
        """Return moments among whose classes are all labels that may occur."""
        if self.expected is not None and moments.n_features is not None:
            moments.declare(self.expected)
        return moments

    def description(self, **rows: str) -> dict[str, str]:
        """Return what a checkpoint compares, together with what it compares of the rows.

        Whether invalid rows are skipped is not included: it makes no difference before the first
        of them.
        """
        expected = None if self.expected is None else self.expected.tolist()
        return {
            "moments": type(self.empty()).__name__,
            "covariance_type": self.covariance_type,
            "norms": str(self.fourth_moments),
            "nodata": repr(self.rule.nodata),
            "classes": str(expected),
            **({} if self.rule.unlabelled is None else {"unlabelled": self._unlabelled}),
            **rows,
        }

    @property
    def _unlabelled(self) -> str:
        return str(self.rule.unlabelled.tolist())


@dataclass(frozen=True)
class Scoring:
    """Parameters of a pass that scores rows; see `streamgda.engine.score`.

    Attributes
    ----------
    function : callable
    dtype : dtype
    columns : int or None
    labels : ndarray or None
    name : str or None
    classes : ndarray or None
    fill : label or number, optional
    keys : sequence of str
    overwrite : bool
    fingerprint : dict, optional
    held : int
    max_memory : int or str, optional
    progress : bool or callable
    """

    function: Callable[..., np.ndarray]
    dtype: Any = np.float64
    columns: int | None = None
    labels: np.ndarray | None = None
    name: str | None = None
    classes: np.ndarray | None = None
    fill: Any = None
    keys: Sequence[str] = ()
    overwrite: bool = False
    fingerprint: Mapping[str, Any] | None = None
    held: int = 0
    max_memory: int | str | None = None
    progress: Progress = False

    @property
    def row_bytes(self) -> int:
        """Bytes of the scores of a row."""
        return int(np.dtype(self.dtype).itemsize * (self.columns or 1))
