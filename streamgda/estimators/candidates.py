"""Candidates of a search: their models for each split, and the scores of these."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from sklearn.exceptions import FitFailedWarning

from streamgda.engine.fold_journal import FoldJournal
from streamgda.engine.folds import FoldedRows
from streamgda.engine.samples import TestSamples
from streamgda.engine.splits import added
from streamgda.errors import InvalidParameterError, SingularCovarianceError, StreamGDAError
from streamgda.estimators.discriminant import GaussianDiscriminantAnalysis
from streamgda.estimators.scorings import ACCURACY, LIKELIHOOD, LOG_LOSS, SCORINGS, Scoring
from streamgda.estimators.validation import calls_within
from streamgda.models.gaussian import GaussianModel
from streamgda.models.likelihood import joint_log_likelihood
from streamgda.moments import ClassMoments
from streamgda.moments.covariance_types import structure_of
from streamgda.rows.labels import find
from streamgda.runtime import threads
from streamgda.runtime.parameters import shown

Models = dict[int, dict[int, GaussianModel]]  # of each split, by the number of the candidate

_BLOCK_ELEMENTS = 1 << 19  # of rows and scores that a thread has in the cache
_FEWEST_ROWS = 1 << 10  # of a block and a split: roots of wide rows come from farther caches

SUMS = 4  # of each candidate and split: right, log-likelihood and weight of rows, and seconds

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
        Moments of the parts of the rows, and sums of scores of shape (4, n_candidates, n_splits).
    scoring : Scoring
        Scores that are needed. The joint log-likelihood follows from the moments, and is computed
        in any case.
    sample : TestSamples, optional
        Rows of the test sets that are scored; by default all.

    Attributes
    ----------
    scores : dict of str to ndarray, shape (n_candidates, n_splits)
        Scores by their names; NaN if there is none.
    fit_times : ndarray, shape (n_candidates, n_splits)
        Seconds in which models were computed from moments.
    failures : dict of int to SingularCovarianceError
        The last error of each candidate that has a singular covariance.
    """

    def __init__(
        self,
        candidates: list[dict[str, Any]],
        rows: FoldedRows,
        journal: FoldJournal,
        scoring: Scoring,
        sample: TestSamples | None = None,
    ) -> None:
        self.candidates = candidates
        self.rows = rows
        self.journal = journal
        self.scoring = scoring
        self.sample = sample
        self.splits = rows.splits
        self.scores: dict[str, np.ndarray] = {}
        self.fit_times = np.zeros((len(candidates), len(self.splits.tests)))
        self.failures: dict[int, SingularCovarianceError] = {}

    def score(self, total: ClassMoments) -> None:
        """Score the candidates in all splits, with passes over the rows if needed.

        Parameters
        ----------
        total : ClassMoments
            Moments of all rows.
        """
        if set(self.scoring.scores.values()) == {LIKELIHOOD}:
            self._models_of(range(len(self.candidates)))
            return
        journal, n_rows, at = self.journal, int(self.rows.rows.n_rows), 0
        journal.scored = journal.scored or passes(self.rows, self.candidates, total)
        for number, size in enumerate(journal.scored, 1):
            models = self._models_of(range(at, at + size))
            at += size
            if models and journal.done < (number + 1) * n_rows:
                self._score_rows(models, total, number * n_rows)
        self._read_sums()

    @property
    def score_times(self) -> np.ndarray:
        """Seconds of scoring, shape (n_candidates, n_splits)."""
        assert self.journal.sums is not None
        return self.journal.sums[SUMS - 1]

    def tables(self) -> dict[str, np.ndarray]:
        """Return the scores by their columns: those that are needed, and others that are known."""
        nothing = np.full(self.fit_times.shape, np.nan)
        wanted = {
            column: self.scores.get(self.scoring.built_in.get(column, column), nothing)
            for column in self.scoring.scores
        }
        return wanted | {
            name: table
            for name, table in self.scores.items()
            if name in SCORINGS and name not in wanted
        }

    def _read_sums(self) -> None:
        """Compute accuracies and log-losses from the sums of scores."""
        assert self.journal.sums is not None
        right, log_likelihood, weight = self.journal.sums[:3]
        scored = weight > 0
        self._scores_of(ACCURACY)[scored] = right[scored] / weight[scored]
        self._scores_of(LOG_LOSS)[scored] = log_likelihood[scored] / weight[scored]

    def _models_of(self, numbers: Sequence[int]) -> Models:
        """Return the models of candidates for each split."""
        return {s: models for s, models in self._splits_of(numbers) if models}

    def _splits_of(self, numbers: Sequence[int]) -> Iterator[tuple[int, dict[int, Any]]]:
        """Yield each split and what is fitted to its training set, after its likelihoods."""
        likelihood = self._scores_of(LIKELIHOOD)
        trains = self.splits.training_moments(self.journal.parts)
        for s, (train, test) in enumerate(zip(trains, self.splits.tests, strict=True)):
            held_out = added(self.journal.parts, test)
            if not held_out.class_count.any():
                continue
            fitted = dict(self._fitted_to(train, numbers, s))
            for c, each in fitted.items():
                total, weight = joint_log_likelihood(self._model_of(each), held_out)
                likelihood[c, s] = total / weight if weight else np.nan
            yield s, fitted

    def warn(self) -> None:
        """Warn once of candidates with singular covariances."""
        if self.failures:
            last = max(self.failures)
            warnings.warn(
                f"{len(self.failures)} of {len(self.candidates)} candidates score nan in some "
                f"split, where covariances are singular. The last is {self.candidates[last]}: "
                f"{self.failures[last]}",
                FitFailedWarning,
                stacklevel=calls_within() + 1,
            )

    def failure(self) -> StreamGDAError | None:
        """Return an error that left a candidate without a score, if there was one."""
        return next(iter(self.failures.values()), None)

    def _scores_of(self, name: str) -> np.ndarray:
        shape = len(self.candidates), len(self.splits.tests)
        return self.scores.setdefault(name, np.full(shape, np.nan))

    def _fitted_to(
        self, train: ClassMoments, numbers: Sequence[int], s: int
    ) -> Iterator[tuple[int, Any]]:
        """Yield what is fitted to a training set, without candidates of singular covariances."""
        if (train.class_count > 0).sum() < 2:
            return
        train = train * 1.0  # integer sums are centred once, not for every candidate
        for c in numbers:
            started = time.perf_counter()
            try:
                fitted = self._fit(train, self.candidates[c])
            except SingularCovarianceError as error:
                self.failures[c] = error
                continue
            self.fit_times[c, s] = time.perf_counter() - started
            yield c, fitted

    def _fit(self, train: ClassMoments, params: dict[str, Any]) -> Any:
        """Return the model of a candidate."""
        candidate = GaussianDiscriminantAnalysis(**params)
        how, kind = candidate._regularisation(), candidate.covariance_type
        return GaussianModel.from_moments(train, kind, how, candidate.priors)

    @staticmethod
    def _model_of(fitted: Any) -> GaussianModel:
        """Return the model of what `_fit` returns."""
        return fitted

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
        codes_in = {s: codes_of(classes, next(iter(split.values()))) for s, split in models.items()}
        width = classes.size + self.rows.rows.shape[1]
        step = max(_BLOCK_ELEMENTS // width, _FEWEST_ROWS * len(self.splits.tests))
        first = max(0, self.journal.done - before)
        for start, X, codes, weights in self.rows.scored(plan, first, classes):
            blocks = [slice(at, at + step) for at in range(0, len(X), step)]
            calls = (
                (models, codes_in, start + b.start, X[b], codes[b], weights[b]) for b in blocks
            )
            with self.journal.adding(before + start + len(X)):
                for sums in threads.run_serial_blas(self._scores, calls):
                    self.journal.sums += sums

    def _scores(
        self,
        models: Models,
        codes_in: dict[int, np.ndarray],
        start: int,
        X: np.ndarray,
        codes: np.ndarray,
        weights: np.ndarray,
    ) -> np.ndarray:
        """Return the sums of the scores of a block of rows, and the seconds that they took."""
        sums = np.zeros((SUMS, len(self.candidates), len(self.splits.tests)))
        tests = self.splits.test_rows(start, start + len(X))
        for s, split in models.items():
            rows = tests[s]
            if self.sample is not None:
                rows = self.sample.drawn(s, start, rows)
            truth = codes_in[s][codes[rows]]
            rows, truth = rows[truth >= 0], truth[truth >= 0]
            if not rows.size:
                continue
            held_out, w = X[rows], weights[rows]
            for c, model in split.items():
                started = time.perf_counter()
                sums[:3, c, s] = *model.held_out(held_out, truth, w), w.sum()
                sums[3, c, s] = time.perf_counter() - started
        return sums


def codes_of(classes: np.ndarray, model: GaussianModel) -> np.ndarray:
    """Return the number of each class in a model, and -1 at the end and for those without rows."""
    codes = find(classes, model.classes)
    return np.append(np.where(np.isnan(model.means[codes, 0]), -1, codes), -1)


def all_candidates(param_grid: Any) -> list[dict[str, Any]]:
    """Return all combinations of the grids, by default of `GRID`.

    Raises
    ------
    InvalidParameterError
        If they are not parameters, need another pass over the rows, or there are none.
    """
    from sklearn.model_selection import ParameterGrid  # noqa: PLC0415  (slow to import)

    try:
        candidates = list(ParameterGrid(list(GRID) if param_grid is None else param_grid))
        for params in candidates:
            candidate = GaussianDiscriminantAnalysis(**params)
            candidate._kept()
            candidate._check_one_pass()
    except InvalidParameterError:
        raise
    except (TypeError, ValueError) as error:
        raise InvalidParameterError(
            f"param_grid={shown(param_grid)} is not parameters of "
            f"GaussianDiscriminantAnalysis with lists of values to try: {error}"
        ) from None
    if not candidates:
        raise InvalidParameterError("param_grid is empty; give at least one candidate")
    return candidates


def kept_by_all(candidates: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the parameters of moments from which all candidates can be computed and scored."""
    kept = [GaussianDiscriminantAnalysis(**params)._kept() for params in candidates]
    matrix = any(structure_of(k["covariance_type"]).matrix for k in kept)
    fourth_moments = any(k["fourth_moments"] for k in kept)
    return {"covariance_type": "full" if matrix else "diag", "fourth_moments": fourth_moments}


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
