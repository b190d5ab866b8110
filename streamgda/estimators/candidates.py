"""Candidates of a search: their models for each split, and the scores of these."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from sklearn.exceptions import FitFailedWarning

from streamgda.engine.folds import FoldedRows, added
from streamgda.errors import SingularCovarianceError
from streamgda.estimators.base import unfitted
from streamgda.estimators.discriminant import GaussianDiscriminantAnalysis
from streamgda.estimators.gaussian import regularisation_of
from streamgda.estimators.learning import kept_by
from streamgda.models.gaussian import GaussianModel
from streamgda.models.likelihood import joint_log_likelihood
from streamgda.moments import ClassMoments
from streamgda.moments.structures import structure_of
from streamgda.rows.labels import find
from streamgda.runtime.parameters import shown
from streamgda.storage.checks import check_array

LIKELIHOOD, ACCURACY, LOG_LOSS = "joint_log_likelihood", "accuracy", "neg_log_loss"
SCORINGS = (ACCURACY, LOG_LOSS, LIKELIHOOD)

# From common to separate covariances, the simpler first: of equal scores, the first is chosen.
# Standardised shrinkage does not depend on units; `reg_param` and `var_smoothing` do, as those of
# scikit-learn, and are better where all features have the same, such as the pixels of an image.
GRID: tuple[dict[str, list[Any]], ...] = (
    {"covariance_type": ["tied"]},
    {
        "covariance_type": ["tied"],
        "standardize": [True],
        "shrinkage": [1e-6, 1e-3, 0.01, 0.1, 0.3],
    },
    {"covariance_type": ["tied_diag", "diag"], "var_smoothing": [1e-9, 1e-6, 1e-3, 0.01, 0.1]},
    {"covariance_type": ["full"]},
    {"covariance_type": ["full"], "reg_param": [1e-3, 0.01, 0.1, 0.3, 0.5]},
    {"covariance_type": ["full"], "var_smoothing": [0.01, 0.1, 0.3]},
    {
        "covariance_type": ["full"],
        "standardize": [True],
        "pooling": [0.5, 0.1, 0.0],
        "shrinkage": [1e-3, 0.01, 0.1, 0.3],
    },
)


class CandidateScores:
    """Scores of candidates, split by split.

    Attributes
    ----------
    scores : dict of str to ndarray, shape (n_candidates, n_splits)
        NaN if there is none.
    failures : dict of int to SingularCovarianceError
        The last error of each candidate that has a singular covariance.
    """

    def __init__(self, candidates: list[dict[str, Any]], rows: FoldedRows) -> None:
        self.candidates = candidates
        self.rows = rows
        self.splits = rows.splits
        self.scores: dict[str, np.ndarray] = {}
        self.failures: dict[int, SingularCovarianceError] = {}

    def score(self, numbers: Sequence[int], moments: list[ClassMoments], scoring: str) -> None:
        """Score some of the candidates in all splits, with a pass over the rows if needed.

        Parameters
        ----------
        numbers : sequence of int
            Candidates.
        moments : list of ClassMoments
            Moments of the parts of the rows. The joint log-likelihood follows from them, and is
            computed in any case.
        scoring : str
            Score that is needed.
        """
        likelihood = self._scores_of(LIKELIHOOD)
        models: dict[int, dict[int, GaussianModel]] = {}
        for s, (train, test) in enumerate(zip(self.splits.trains, self.splits.tests, strict=True)):
            held_out = added(moments, test)
            if not held_out.class_count.any():
                continue
            for c, model in self._models(numbers, added(moments, train)):
                total, weight = joint_log_likelihood(model, held_out)
                likelihood[c, s] = total / weight if weight else np.nan
                if scoring != LIKELIHOOD:
                    models.setdefault(s, {})[c] = model
        if models:
            self._score_rows(models, moments[0].covariance_type)

    def warn(self) -> None:
        """Warn once of candidates with singular covariances."""
        if self.failures:
            last = max(self.failures)
            warnings.warn(
                f"{len(self.failures)} of {len(self.candidates)} candidates score nan in some "
                f"split, where covariances are singular. The last is {self.candidates[last]}: "
                f"{self.failures[last]}",
                FitFailedWarning,
                stacklevel=4,
            )

    def _scores_of(self, name: str) -> np.ndarray:
        shape = len(self.candidates), len(self.splits.tests)
        return self.scores.setdefault(name, np.full(shape, np.nan))

    def _models(
        self, numbers: Sequence[int], train: ClassMoments
    ) -> Iterator[tuple[int, GaussianModel]]:
        """Yield the models of a training set, without those that have singular covariances."""
        if (train.class_count > 0).sum() < 2:
            return
        train = train * 1.0  # integer sums are centred once, not for every candidate
        for c in numbers:
            candidate = GaussianDiscriminantAnalysis(**self.candidates[c])
            how, kind = regularisation_of(candidate), candidate.covariance_type
            try:
                yield c, GaussianModel.from_moments(train, kind, how, candidate.priors)
            except SingularCovarianceError as error:
                self.failures[c] = error

    def _score_rows(
        self, models: dict[int, dict[int, GaussianModel]], covariance_type: str
    ) -> None:
        """Score the rows held out of each split with its models, in one pass."""
        shape = len(self.candidates), len(self.splits.tests)
        right, log_loss, weight = np.zeros((3, *shape))
        state = self.rows.held_bytes(covariance_type)
        state += sum(_bytes_of(model) for split in models.values() for model in split.values())
        for _, arrays, parts in self.rows.read(state, "scoring"):
            for s, split in models.items():
                chosen = np.concatenate([parts[part] for part in self.splits.tests[s]])
                X, labels, *given = (array[chosen] for array in arrays)
                X, labels, weights = self.rows.counted(X, labels, given[0] if given else None)
                for c, model in split.items():
                    codes = find(labels, model.classes)
                    known = (codes >= 0) & ~np.isnan(model.means[codes, 0])
                    if not known.any():
                        continue
                    w = weights[known] if weights.size else np.ones(known.sum())
                    scores = model.log_posterior(X if known.all() else X[known])
                    truth = codes[known]
                    right[c, s] += float(w @ (scores.argmax(axis=1) == truth))
                    log_loss[c, s] += float(w @ scores[np.arange(truth.size), truth])
                    weight[c, s] += float(w.sum())
        scored = weight > 0
        self._scores_of(ACCURACY)[scored] = right[scored] / weight[scored]
        self._scores_of(LOG_LOSS)[scored] = log_loss[scored] / weight[scored]


def kept_by_all(candidates: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the parameters of moments from which all candidates can be computed and scored."""
    kept = [kept_by(GaussianDiscriminantAnalysis(**params)) for params in candidates]
    matrix = any(structure_of(k["covariance_type"]).matrix for k in kept)
    norms = any(k["norms"] for k in kept)
    return {"covariance_type": "full" if matrix else "diag", "norms": norms}


def _bytes_of(model: GaussianModel) -> int:
    """Return the bytes of a model, whose roots are also packed for scoring."""
    return 2 * model.roots.nbytes + 2 * model.means.nbytes


def passes(
    rows: FoldedRows, candidates: list[dict[str, Any]], total: ClassMoments
) -> list[list[int]]:
    """Return the numbers of the candidates of each pass, whose models fit in memory together."""
    shape = total.classes.size, rows.rows.shape[1]
    room = left = rows.allowed // 2 - rows.held_bytes(total.covariance_type)
    passes: list[list[int]] = [[]]
    for c, params in enumerate(candidates):
        structure = structure_of(params.get("covariance_type", "full"))
        needed = 2 * len(rows.splits.tests) * structure.state_bytes(*shape)  # as in `_bytes_of`
        if passes[-1] and needed > left:
            passes.append([])
            left = room
        passes[-1].append(c)
        left -= needed
    return passes


def check_scores(
    candidates: list[dict[str, Any]], scores: dict[str, np.ndarray], names: list[str]
) -> None:
    """Raise ValueError unless these are candidates, and their scores of these names."""
    kind = GaussianDiscriminantAnalysis
    for params in candidates:
        unfitted(kind, {"estimator": kind.__name__, "params": params})
    if not names or names != [name for name in SCORINGS if name in scores]:
        raise ValueError(f"it has no scores of {shown(names)}")
    shape = (len(candidates), *scores[names[0]].shape[1:])
    for name in names:
        finite = np.where(np.isfinite(scores[name]), scores[name], 0.0)
        check_array(name, finite, shape, "f8")


def scores_in(results: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return the scores of which `results_of` returned the results."""
    names = [name for name in SCORINGS if f"mean_test_{name}" in results]
    n_splits = sum(name.startswith("split") and name.endswith("_test_score") for name in results)
    return {
        name: np.column_stack([results[f"split{f}_test_{name}"] for f in range(n_splits)])
        for name in names
    }


def results_of(
    candidates: list[dict[str, Any]], scores: dict[str, np.ndarray], scoring: str
) -> dict[str, Any]:
    """Return the scores in the form of `GridSearchCV`."""
    results: dict[str, Any] = {"params": candidates}
    for name in sorted({name for params in candidates for name in params}):
        column = np.ma.masked_all(len(candidates), object)
        for c, params in enumerate(candidates):
            if name in params:
                column[c] = params[name]
        results[f"param_{name}"] = column
    chosen = scores.get(scoring, np.full((len(candidates), 1), np.nan))
    for name, table in {"score": chosen, **scores}.items():
        for f, split in enumerate(table.T):
            results[f"split{f}_test_{name}"] = split.copy()
        used = table[:, ~np.isnan(table).all(axis=0)]
        nothing = np.full(len(candidates), np.nan)
        mean = used.mean(axis=1) if used.size else nothing
        order = np.nan_to_num(mean, nan=-np.inf)
        results[f"mean_test_{name}"] = mean
        with np.errstate(invalid="ignore"):  # a likelihood of zero is minus infinity
            results[f"std_test_{name}"] = used.std(axis=1) if used.size else nothing
        results[f"rank_test_{name}"] = 1 + (order[None, :] > order[:, None]).sum(axis=1)
    return results
