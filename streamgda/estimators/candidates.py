"""Candidates of a search: their models for each split, and the scores of these."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from sklearn.exceptions import FitFailedWarning

from streamgda.engine.fold_journal import FoldJournal
from streamgda.engine.folds import FoldedRows
from streamgda.engine.samples import TestSamples
from streamgda.engine.splits import added
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
from streamgda.runtime import threads
from streamgda.runtime.parameters import shown
from streamgda.storage.checks import check_array

Models = dict[int, dict[int, GaussianModel]]  # of each split, by the number of the candidate

_BLOCK_ELEMENTS = 1 << 19  # of rows and scores that a thread has in the cache
_FEWEST_ROWS = 1 << 10  # of a block and a split: roots of wide rows come from farther caches

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

    Parameters
    ----------
    candidates : list of dict
    rows : FoldedRows
    journal : FoldJournal
        Moments of the parts of the rows, and sums of scores of shape (3, n_candidates, n_splits).
    sample : TestSamples, optional
        Rows of the test sets that are scored; by default all.

    Attributes
    ----------
    scores : dict of str to ndarray, shape (n_candidates, n_splits)
        NaN if there is none.
    failures : dict of int to SingularCovarianceError
        The last error of each candidate that has a singular covariance.
    """

    def __init__(
        self,
        candidates: list[dict[str, Any]],
        rows: FoldedRows,
        journal: FoldJournal,
        sample: TestSamples | None = None,
    ) -> None:
        self.candidates = candidates
        self.rows = rows
        self.journal = journal
        self.sample = sample
        self.splits = rows.splits
        self.scores: dict[str, np.ndarray] = {}
        self.failures: dict[int, SingularCovarianceError] = {}

    def score(self, total: ClassMoments, scoring: str) -> None:
        """Score the candidates in all splits, with passes over the rows if needed.

        Parameters
        ----------
        total : ClassMoments
            Moments of all rows.
        scoring : str
            Score that is needed. The joint log-likelihood follows from the moments, and is
            computed in any case.
        """
        if scoring == LIKELIHOOD:
            self._models_of(range(len(self.candidates)))
            return
        journal, n_rows, at = self.journal, int(self.rows.rows.n_rows), 0
        journal.scored = journal.scored or passes(self.rows, self.candidates, total)
        for number, size in enumerate(journal.scored, 1):
            models = self._models_of(range(at, at + size))
            at += size
            if models and journal.done < (number + 1) * n_rows:
                self._score_rows(models, total, number * n_rows)
        assert journal.sums is not None
        right, log_likelihood, weight = journal.sums
        scored = weight > 0
        self._scores_of(ACCURACY)[scored] = right[scored] / weight[scored]
        self._scores_of(LOG_LOSS)[scored] = log_likelihood[scored] / weight[scored]

    def _models_of(self, numbers: Sequence[int]) -> Models:
        """Return the models of candidates for each split, whose likelihoods are computed."""
        likelihood = self._scores_of(LIKELIHOOD)
        models: Models = {}
        trains = self.splits.training_moments(self.journal.parts)
        for s, (train, test) in enumerate(zip(trains, self.splits.tests, strict=True)):
            held_out = added(self.journal.parts, test)
            if not held_out.class_count.any():
                continue
            for c, model in self._models(numbers, train):
                total, weight = joint_log_likelihood(model, held_out)
                likelihood[c, s] = total / weight if weight else np.nan
                models.setdefault(s, {})[c] = model
        return models

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

    def _score_rows(self, models: Models, total: ClassMoments, before: int) -> None:
        """Add the scores of the rows held out of each split by its models, from one pass.

        Every block of rows is scored by all models while it is in the cache.

        Parameters
        ----------
        models : dict of int to dict of int to GaussianModel
            Models of each split.
        total : ClassMoments
            Moments of all rows.
        before : int
            Rows that were read in the passes before.
        """
        state = self.rows.held_bytes(total.covariance_type)
        state += sum(_bytes_of(model) for split in models.values() for model in split.values())
        plan, classes = self.rows.plan(state), total.classes
        codes_of = {
            s: _codes_of(classes, next(iter(split.values()))) for s, split in models.items()
        }
        width = classes.size + self.rows.rows.shape[1]
        step = max(_BLOCK_ELEMENTS // width, _FEWEST_ROWS * len(self.splits.tests))
        first = max(0, self.journal.done - before)
        for start, X, codes, weights in self.rows.scored(plan, first, classes):
            blocks = [slice(at, at + step) for at in range(0, len(X), step)]
            calls = (
                (models, codes_of, start + b.start, X[b], codes[b], weights[b]) for b in blocks
            )
            with self.journal.adding(before + start + len(X)):
                for sums in threads.run_serial_blas(self._scores, calls):
                    self.journal.sums += sums

    def _scores(
        self,
        models: Models,
        codes_of: dict[int, np.ndarray],
        start: int,
        X: np.ndarray,
        codes: np.ndarray,
        weights: np.ndarray,
    ) -> np.ndarray:
        """Return the sums of the scores of a block of rows: right, log-likelihood and weight."""
        sums = np.zeros((3, len(self.candidates), len(self.splits.tests)))
        tests = self.splits.test_rows(start, start + len(X))
        for s, split in models.items():
            rows = tests[s]
            if self.sample is not None:
                rows = self.sample.drawn(s, start, rows)
            truth = codes_of[s][codes[rows]]
            rows, truth = rows[truth >= 0], truth[truth >= 0]
            if not rows.size:
                continue
            held_out, w = X[rows], weights[rows]
            for c, model in split.items():
                sums[:, c, s] = *model.held_out(held_out, truth, w), w.sum()
        return sums


def _codes_of(classes: np.ndarray, model: GaussianModel) -> np.ndarray:
    """Return the number of each class in a model, and -1 at the end and for those without rows."""
    codes = find(classes, model.classes)
    return np.append(np.where(np.isnan(model.means[codes, 0]), -1, codes), -1)


def kept_by_all(candidates: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the parameters of moments from which all candidates can be computed and scored."""
    kept = [kept_by(GaussianDiscriminantAnalysis(**params)) for params in candidates]
    matrix = any(structure_of(k["covariance_type"]).matrix for k in kept)
    norms = any(k["norms"] for k in kept)
    return {"covariance_type": "full" if matrix else "diag", "norms": norms}


def _bytes_of(model: GaussianModel) -> int:
    """Return the bytes of a model, whose roots are also packed for scoring."""
    return 2 * model.roots.nbytes + 2 * model.means.nbytes


def passes(rows: FoldedRows, candidates: list[dict[str, Any]], total: ClassMoments) -> list[int]:
    """Return the number of candidates of each pass, whose models fit in memory together."""
    shape = total.classes.size, rows.rows.shape[1]
    room = left = rows.allowed // 2 - rows.held_bytes(total.covariance_type)
    passes = [0]
    for params in candidates:
        structure = structure_of(params.get("covariance_type", "full"))
        needed = 2 * len(rows.splits.tests) * structure.state_bytes(*shape)  # as in `_bytes_of`
        if passes[-1] and needed > left:
            passes.append(0)
            left = room
        passes[-1] += 1
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
