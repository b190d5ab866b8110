"""Scores and times of candidates as a table, in the form of `sklearn.model_selection`."""

from __future__ import annotations

from itertools import count, takewhile
from typing import Any

import numpy as np

from streamgda.estimators.discriminant import GaussianDiscriminantAnalysis
from streamgda.estimators.moment_classifier import unfitted
from streamgda.runtime.parameters import as_integer, shown
from streamgda.storage.checks import check_array

TIMES = ("mean_fit_time", "std_fit_time", "mean_score_time", "std_score_time")


def results_of(
    candidates: list[dict[str, Any]], scores: dict[str, np.ndarray], times: dict[str, np.ndarray]
) -> dict[str, Any]:
    """Return scores and times in the form of `GridSearchCV`.

    Parameters
    ----------
    candidates : list of dict
    scores : dict of str to ndarray, shape (n_candidates, n_splits)
        Scores by the name of their column; NaN if there is none.
    times : dict of str to ndarray, shape (n_candidates,)
        Seconds, by the names in `TIMES`.
    """
    results: dict[str, Any] = dict(times)
    for name in sorted({name for params in candidates for name in params}):
        results[f"param_{name}"] = _column(name, candidates)
    results["params"] = candidates
    for name, table in scores.items():
        for f, split in enumerate(table.T):
            results[f"split{f}_test_{name}"] = split.copy()
        used = table[:, ~np.isnan(table).all(axis=0)]
        nothing = np.full(len(candidates), np.nan)
        mean = used.mean(axis=1) if used.size else nothing
        order = np.nan_to_num(mean, nan=-np.inf)
        results[f"mean_test_{name}"] = mean
        with np.errstate(invalid="ignore"):  # a likelihood of zero is minus infinity
            results[f"std_test_{name}"] = used.std(axis=1) if used.size else nothing
        rank = 1 + (order[None, :] > order[:, None]).sum(axis=1)
        results[f"rank_test_{name}"] = rank.astype(np.int32)
    return results


def times_of(fit: np.ndarray, score: np.ndarray) -> dict[str, np.ndarray]:
    """Return means and deviations of seconds, by the names in `TIMES`."""
    means = (fit.mean(axis=1), fit.std(axis=1), score.mean(axis=1), score.std(axis=1))
    return dict(zip(TIMES, means, strict=True))


def _column(name: str, candidates: list[dict[str, Any]]) -> np.ma.MaskedArray:
    """Return the values of a parameter, masked for candidates that do not have it."""
    values = {c: params[name] for c, params in enumerate(candidates) if name in params}
    try:
        found = np.array(list(values.values()))
        numbers = found.dtype.kind in "biuf" and found.ndim == 1
    except ValueError:  # lists of different lengths
        numbers = False
    column = np.ma.masked_all(len(candidates), found.dtype if numbers else object)
    for c, value in values.items():
        column[c] = value
    return column


def best_of(results: dict[str, Any], column: str | None, refit: Any) -> int | None:
    """Return the number of the best candidate by a score or a function; None without these.

    Raises
    ------
    InvalidParameterError
        If the function returns anything else.
    """
    if column is not None:
        mean = results[f"mean_test_{column}"]
        best = int(np.nanargmax(mean))
        return best
    if not callable(refit):
        return None
    number, n_candidates = refit(results), len(results["params"])
    expected = f"the number of one of {n_candidates} candidates"
    return as_integer("the result of refit", number, expected, 0, n_candidates - 1)


def scores_in(results: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return the scores of which `results_of` returned the results."""
    splits = range(n_splits_in(results))
    names = [n.removeprefix("mean_test_") for n in results if n.startswith("mean_test_")]
    return {
        name: np.column_stack([results[f"split{f}_test_{name}"] for f in splits]) for name in names
    }


def n_splits_in(results: dict[str, Any]) -> int:
    """Return the number of splits of results."""
    name = next(name for name in results if name.startswith("mean_test_"))
    name = name.removeprefix("mean_")
    return sum(1 for _ in takewhile(lambda f: f"split{f}_{name}" in results, count()))


def check_scores(
    candidates: list[dict[str, Any]], scores: dict[str, np.ndarray], names: list[str]
) -> None:
    """Raise ValueError unless these are candidates, and their scores of these names."""
    kind = GaussianDiscriminantAnalysis
    for params in candidates:
        unfitted(kind, {"estimator": kind.__name__, "params": params})
    if not names or set(names) != scores.keys():
        raise ValueError(f"it has no scores of {shown(names)}")
    shape = (len(candidates), *scores[names[0]].shape[1:])
    for name in names:
        finite = np.where(np.isfinite(scores[name]), scores[name], 0.0)
        check_array(name, finite, shape, "f8")
