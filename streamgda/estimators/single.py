"""Estimators whose results are float32 if all rows were, as in scikit-learn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from streamgda.estimators.gaussian import GaussianClassifier
from streamgda.estimators.scoring import Scorer
from streamgda.moments import ClassMoments
from streamgda.rows import adapter_of, as_rows, as_source
from streamgda.rows.invalid_rows import RowRule
from streamgda.storage.saved import State


class SingleAsRows(GaussianClassifier):
    """Base of the estimators with float32 results for float32 rows.

    Sums are float64 all the same; results are rounded at the end.
    """

    _single = False  # all rows so far were float32

    # --- learning -----------------------------------------------------------------------------

    def _accumulated(
        self,
        settings: Self,
        X: Any,
        y: Any,
        sample_weight: Any,
        rule: RowRule,
        first: bool,
        *more: Any,
    ) -> ClassMoments:
        single = _is_single(X)
        moments = super()._accumulated(settings, X, y, sample_weight, rule, first, *more)
        self._single = single and (first or self._single)
        return moments

    def _with_rows(self, settings: Self, X: Any, *arguments: Any) -> ClassMoments:
        if self._single and not _is_single(X):
            self._single = False
        return super()._with_rows(settings, X, *arguments)

    def _add_at_once(self, X: Any, y: Any, classes: Any) -> bool:
        if self._single and not _is_single(X):
            return False
        return super()._add_at_once(X, y, classes)

    def _in_type(self, values: np.ndarray) -> np.ndarray:
        """Return values as float32 if all rows were, as in scikit-learn."""
        return values.astype(np.float32) if self._single else values

    # --- scoring ------------------------------------------------------------------------------

    def _is_single_score(self, scorer: Scorer) -> bool:
        """Return True if float32 rows have float32 scores of that kind."""
        return False

    def _score_rows(
        self, scorer: Scorer, X: Any, out: Any, features: str | None, *reading: Any
    ) -> Any:
        X, _ = as_rows(X, features)  # once: a LazyFrame is counted by a query
        scores = super()._score_rows(scorer, X, out, None, *reading)
        single = self._single and out is None and self._is_single_score(scorer) and _is_single(X)
        return scores.astype(np.float32) if single else scores

    # --- saving -------------------------------------------------------------------------------

    def _state(self) -> State:
        attributes, arrays = super()._state()
        return attributes | ({"rows": "float32"} if self._single else {}), arrays

    @classmethod
    def _restored(cls, attributes: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        estimator = super()._restored(attributes, arrays)
        estimator._single = attributes.get("rows") == "float32"
        return estimator


def _is_single(X: Any) -> bool:
    """Return True for rows of float32."""
    if not adapter_of(X).checked_at_once:
        X = as_source(X)
    return bool(getattr(X, "dtype", None) == np.float32)
