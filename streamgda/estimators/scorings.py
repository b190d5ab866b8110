"""Scores by which a search compares its candidates, from its `scoring` and `refit`."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np

from streamgda.errors import InvalidParameterError
from streamgda.rows.labels import check_expected, coded_labels, encode
from streamgda.runtime.parameters import refuse, shown

LIKELIHOOD, ACCURACY, LOG_LOSS = "joint_log_likelihood", "accuracy", "neg_log_loss"
SCORINGS = (ACCURACY, LOG_LOSS, LIKELIHOOD)  # computed here, others by scikit-learn or the caller

_EXPECTED = (
    f"one of {', '.join(SCORINGS)}, a name of sklearn.metrics.get_scorer_names(), a function "
    f"scorer(estimator, X, y), or a list or dict of them"
)


@dataclass(frozen=True)
class Scoring:
    """Scores to compute, by the name of their column in ``cv_results_``.

    Attributes
    ----------
    scores : dict of str to str or callable
        Names of scores, or functions.
    several : bool
        True if they were given as a list or a dict.
    """

    scores: dict[str, Any]
    several: bool

    @property
    def built_in(self) -> dict[str, str]:
        """Scores that are computed here, by column."""
        return {column: s for column, s in self.scores.items() if s in SCORINGS}

    @cached_property
    def functions(self) -> dict[str, Callable[..., Any]]:
        """Functions of an estimator, rows and labels that compute the other scores, by column."""
        return {column: function_of(s) for column, s in self.scores.items() if s not in SCORINGS}

    @property
    def scorers(self) -> Any:
        """Functions of all scores: a dict of several, or the only one."""
        functions = {column: function_of(score) for column, score in self.scores.items()}
        return functions if self.several else functions["score"]

    @property
    def description(self) -> str:
        """Text that identifies the scores of rows; the same for all that are computed here."""
        named = {c: s if isinstance(s, str) else _name(s) for c, s in self.scores.items()}
        return f"{named}" if self.functions else ", ".join(SCORINGS)

    def refit_column(self, refit: Any) -> str | None:
        """Return the column by which the best candidate is chosen; None if by no single one.

        Raises
        ------
        InvalidParameterError
            If `refit` does not say which of several scores decides.
        """
        if callable(refit):
            return None
        if not self.several:
            given = isinstance(refit, str) and refit not in ("score", self.scores["score"])
            if given or not isinstance(refit, str | bool | np.bool_):
                raise refuse("refit", refit, "True, False, or a function of cv_results_")
            return "score"
        if isinstance(refit, str) and refit in self.scores:
            return refit
        if refit is False:
            return None
        raise refuse(
            "refit",
            refit,
            f"the score that decides, one of {', '.join(self.scores)}; or False, or a function of "
            f"cv_results_ that returns the number of the best candidate",
        )


def as_scoring(scoring: Any) -> Scoring:
    """Return the scores that `scoring` names.

    Raises
    ------
    InvalidParameterError
        For anything else.
    """
    if isinstance(scoring, Mapping):
        found, several = dict(scoring), True
        if not all(isinstance(column, str) for column in found):
            raise refuse("scoring", scoring, "a dict of names to scores")
    elif isinstance(scoring, list | tuple):
        if not all(isinstance(name, str) for name in scoring) or len(set(scoring)) < len(scoring):
            raise refuse("scoring", scoring, "different names of scores; or a dict of functions")
        found, several = {name: name for name in scoring}, True
    else:
        found, several = {"score": ACCURACY if scoring is None else scoring}, False
    if not found:
        raise refuse("scoring", scoring, "at least one score")
    for score in found.values():
        function_of(score)
    return Scoring(found, several)


def function_of(score: Any) -> Callable[..., Any]:
    """Return the function of an estimator, rows and labels that a name stands for, or is given."""
    from sklearn.metrics import get_scorer  # noqa: PLC0415  (slow to import)

    if isinstance(score, str) and score != LIKELIHOOD:
        try:
            return get_scorer(score)
        except ValueError:
            raise refuse("scoring", score, _EXPECTED) from None
    if score == LIKELIHOOD:
        return mean_log_likelihood
    if not callable(score) or isinstance(score, type):
        raise refuse("scoring", score, _EXPECTED)
    return score


def mean_log_likelihood(estimator: Any, X: Any, y: Any) -> float:
    """Return the mean of ln p(x, y) over rows, whose classes the estimator has to know."""
    labels = coded_labels(y)
    codes, classes = encode(labels, estimator.classes_)
    check_expected(labels, codes, classes, estimator.classes_)
    return float(estimator.predict_joint_log_proba(X)[np.arange(len(codes)), codes].mean())


def apply_functions(
    functions: Mapping[str, Callable[..., Any]],
    estimator: Any,
    X: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray | None,
) -> dict[str, float | str]:
    """Return the scores of an estimator, or texts of errors; rows are predicted once for all.

    Parameters
    ----------
    functions : dict of str to callable
    estimator : classifier
    X, y : ndarray
        Rows that were held out, and their labels.
    weights : ndarray or None
        Weights of the rows, for functions that take them.

    Raises
    ------
    InvalidParameterError
        If a function returns anything but a number.
    """
    from sklearn.metrics import check_scoring  # noqa: PLC0415  (slow to import)

    found: dict[str, Any] = {}
    shared = functions if weights is None else {}  # it passes weights to its own scorers only
    if shared:
        found = check_scoring(estimator, scoring=shared, raise_exc=False)(estimator, X, y)
    for column, function in functions.items():
        if column not in shared:
            takes = "sample_weight" in inspect.signature(function).parameters
            weighted = {"sample_weight": weights} if takes else {}
            try:
                found[column] = function(estimator, X, y, **weighted)
            except Exception as error:
                found[column] = f"{type(error).__name__}: {error}"
    for column, score in found.items():
        if not isinstance(score, str | Real):
            raise InvalidParameterError(
                f"scoring returned {shown(score)} for {column!r}; expected a number. Give several "
                f"scores as a dict of functions"
            )
    return {c: s.strip().splitlines()[-1] if isinstance(s, str) else s for c, s in found.items()}


def as_score(found: float | str) -> float:
    """Return a score; NaN in place of the text of an error."""
    return math.nan if isinstance(found, str) else float(found)


def _name(function: Any) -> str:
    """Return a text that identifies a function in other processes, too."""
    name = getattr(function, "__qualname__", None)
    return repr(function) if name is None else f"{function.__module__}.{name}"
