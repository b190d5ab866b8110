"""Searches as saved groups: parameters, scores, times and the best estimator."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from streamgda.errors import InvalidParameterError
from streamgda.estimators.cv_results import TIMES, check_scores, results_of, scores_in
from streamgda.estimators.discriminant import GaussianDiscriminantAnalysis
from streamgda.estimators.saving import SavedEstimator, describe, plain
from streamgda.estimators.scorings import SCORINGS, Scoring
from streamgda.estimators.splits import splitting
from streamgda.estimators.validation import names_in
from streamgda.runtime.memory import allowed_bytes
from streamgda.runtime.parameters import shown
from streamgda.storage.checks import check_array, check_whole
from streamgda.storage.saved import State, arrays_within, nested, restore


class SavedSearch(SavedEstimator):
    """Base of `GaussianDiscriminantCV`, which saves and loads it."""

    cv: Any
    scoring: Any
    refit: Any
    random_state: int
    max_memory: int | str | None
    cv_results_: dict[str, Any]
    best_index_: int
    best_estimator_: GaussianDiscriminantAnalysis
    refit_time_: float
    scorer_: Any
    multimetric_: bool
    n_features_in_: int
    feature_names_in_: np.ndarray
    _best_column: str | None

    def _candidates(self) -> list[dict[str, Any]]:
        raise NotImplementedError

    def _scoring(self) -> Scoring:
        raise NotImplementedError

    def _state(self) -> State:
        check_is_fitted(self, "best_estimator_")
        self._check_saved()
        results = self.cv_results_
        scores = scores_in(results)
        if isinstance(self.scoring, str) and self.scoring in SCORINGS:
            del scores["score"]  # which is one of the others
        state, arrays = nested({"best_estimator": self.best_estimator_})
        attributes = {
            **describe(self),
            **state,
            "candidates": plain(results["params"]),
            "best_index": self.best_index_,
            "scores": list(scores),
            "refit_time": self.refit_time_,
        }
        arrays |= {f"scores/{name}": table for name, table in scores.items()}
        return attributes, arrays | {f"times/{name}": results[name] for name in TIMES}

    def _check_saved(self) -> None:
        """Raise `InvalidParameterError` for parameters that cannot be saved and loaded."""
        if not isinstance(self.cv, Integral):
            raise InvalidParameterError(
                f"a search with cv={shown(self.cv)} cannot be saved, as its type is not one of "
                f"this package; save best_estimator_, or use pickle or joblib"
            )
        scoring = self._scoring()
        functions = not all(isinstance(score, str) for score in scoring.scores.values())
        if functions or callable(self.refit):
            raise InvalidParameterError(
                "a search with functions as scoring or refit cannot be saved; save "
                "best_estimator_, or use pickle or joblib"
            )
        if any("/" in column for column in scoring.scores):
            raise InvalidParameterError(
                f"scoring={shown(self.scoring)} has a name with a slash, with which a search "
                f"cannot be saved"
            )
        self._candidates()
        splitting(self.cv, self.random_state, None)
        allowed_bytes(self.max_memory)

    @classmethod
    def _restored(cls, attributes: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        search = cls(**attributes["params"])
        search._check_saved()
        best: Any = restore(
            GaussianDiscriminantAnalysis,
            attributes["best_estimator"],
            arrays_within(arrays, "best_estimator"),
        )
        candidates = list(attributes["candidates"])
        scores = arrays_within(arrays, "scores")
        check_scores(candidates, scores, attributes["scores"])
        scoring = search._scoring()
        if not scoring.several and "score" not in scores:
            scores = {"score": scores[scoring.scores["score"]], **scores}
        unknown = np.full(len(candidates), np.nan)
        times = arrays_within(arrays, "times")
        times = {name: times.get(name, unknown) for name in TIMES}
        for name, column in times.items():
            check_array(name, np.nan_to_num(column), (len(candidates),), "f8")
        search.cv_results_ = results_of(candidates, scores, times)
        search.scorer_, search.multimetric_ = scoring.scorers, scoring.several
        search._best_column = scoring.refit_column(search.refit)
        search.refit_time_ = float(attributes.get("refit_time", np.nan))
        most = len(candidates) - 1
        search.best_index_ = check_whole("best_index", attributes["best_index"], 0, most)
        search.best_estimator_, search.n_features_in_ = best, best.n_features_in_
        chosen = candidates[search.best_index_]
        if chosen != {name: plain(getattr(best, name)) for name in chosen}:
            raise ValueError("its best estimator has other parameters than its best candidate")
        if names_in(best) is not None:
            search.feature_names_in_ = best.feature_names_in_
        return search
