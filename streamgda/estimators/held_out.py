"""Scores of candidates by functions, which need all rows of a test set together."""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import FitFailedWarning

from streamgda.errors import (
    ConstantFeatureWarning,
    InvalidParameterError,
    MemoryBudgetError,
    StreamGDAError,
)
from streamgda.estimators.candidates import SUMS, CandidateScores, codes_of
from streamgda.estimators.discriminant import GaussianDiscriminantAnalysis
from streamgda.estimators.scorings import LIKELIHOOD, apply_functions, as_score
from streamgda.estimators.validation import calls_within
from streamgda.models.gaussian import GaussianModel
from streamgda.moments import ClassMoments
from streamgda.runtime.memory import readable
from streamgda.runtime.parameters import shown

Rows = tuple[np.ndarray, np.ndarray, np.ndarray]  # with the codes of their labels, and weights

_ROWS = 1 << 20  # that are counted at a time
_BESIDE = 24  # bytes of the code, the weight and the number of a row


class HeldOutScores(CandidateScores):
    """Scores by functions of an estimator, rows and labels, split by split.

    A pass over the rows collects those of as many test sets as half of the memory holds. The sums
    of scores have shape (4 + n_functions, n_candidates, n_splits): the last are the values of the
    functions.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.errors: dict[str, str] = {}  # the last of each function

    def score(self, total: ClassMoments) -> None:
        """Score the candidates in all splits, with passes over the rows if needed.

        Parameters
        ----------
        total : ClassMoments
            Moments of all rows.

        Raises
        ------
        MemoryBudgetError
            If the rows of a test set exceed the memory.
        InvalidParameterError
            If a function returns anything but a number.
        """
        journal, sizes = self.journal, self._sizes()
        assert journal.sums is not None
        n_rows = int(self.rows.rows.n_rows)
        ends = n_rows + np.cumsum(sizes)
        journal.scored = [len(self.candidates)] * -(-int(sizes.sum()) // n_rows)  # rows, at most
        first = int((ends <= journal.done).sum())  # of a search that resumes
        collected: dict[int, list[Rows]] = {}
        for s, fitted in self._splits_of(range(len(self.candidates))):
            if s < first or not fitted:
                continue
            if s not in collected:
                collected = self._collect(s, sizes, total)
            sums = self._scores_of_split(fitted, collected.pop(s), total.classes)
            with journal.adding(int(ends[s])):
                journal.sums[:, :, s] = sums
        if self._built_in:
            self._read_sums()
        for column, table in zip(self.scoring.functions, journal.sums[SUMS:], strict=True):
            self.scores[column] = np.where(journal.sums[2] > 0, table, np.nan)

    def warn(self) -> None:
        """Warn once of candidates with singular covariances, and of functions that failed."""
        super().warn()
        for column, error in self.errors.items():
            warnings.warn(
                f"{self._named(column)} failed in some split, and is nan there: {error}",
                FitFailedWarning,
                stacklevel=calls_within() + 1,
            )

    def failure(self) -> StreamGDAError | None:
        """Return an error that left a candidate without a score, if there was one."""
        for column, error in self.errors.items():
            return InvalidParameterError(
                f"{self._named(column)} failed for all candidates: {error}"
            )
        return super().failure()

    def _named(self, column: str) -> str:
        return f"scoring={shown(self.scoring.scores[column])}"

    @property
    def _built_in(self) -> bool:
        """True if accuracies or log-losses are among the scores that are needed."""
        return bool(set(self.scoring.built_in.values()) - {LIKELIHOOD})

    def _fit(self, train: ClassMoments, params: dict[str, Any]) -> Any:
        """Return the estimator of a candidate."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConstantFeatureWarning)  # once, of the best candidate
            return GaussianDiscriminantAnalysis.from_moments(train, **params)

    @staticmethod
    def _model_of(fitted: Any) -> GaussianModel:
        model: GaussianModel = fitted.model_
        return model

    def _sizes(self) -> np.ndarray:
        """Return the number of rows of each test set that are scored."""
        n_rows = int(self.rows.rows.n_rows)
        sizes = np.zeros(len(self.splits.tests), np.int64)
        for start in range(0, n_rows, _ROWS):
            tests = self._drawn(start, min(start + _ROWS, n_rows))
            sizes += [rows.size for rows in tests]
        return sizes

    def _drawn(self, start: int, stop: int) -> list[np.ndarray]:
        """Return the rows of each test set that are scored, as numbers from `start`."""
        tests = self.splits.test_rows(start, stop)
        if self.sample is None:
            return tests
        return [self.sample.drawn(s, start, rows) for s, rows in enumerate(tests)]

    def _collect(self, first: int, sizes: np.ndarray, total: ClassMoments) -> dict[int, list[Rows]]:
        """Return the rows of test sets, from the first on, of as many as fit in memory."""
        rows = self.rows.rows
        row_bytes = max(rows.row_bytes, 8 * rows.shape[1]) + _BESIDE
        held = self.rows.held_bytes(total.covariance_type)
        room = (self.rows.allowed // 2 - held) // 2  # those of a set are joined in a copy
        needed = np.cumsum(sizes[first:]) * row_bytes
        if needed[0] > room:
            raise MemoryBudgetError(
                f"scoring={self.scoring.description} needs the {sizes[first]:,} rows of "
                f"a test set together, {readable(int(needed[0]))}, and max_memory leaves "
                f"{readable(max(0, int(room)))} for them. Pass a larger max_memory, more folds or "
                f"score_sample, or one of accuracy, neg_log_loss and joint_log_likelihood"
            )
        n_sets = int((needed <= room).sum())
        plan = self.rows.plan(held + 2 * int(needed[n_sets - 1]))
        pieces: dict[int, list[Rows]] = {s: [] for s in range(first, first + n_sets)}
        for start, X, codes, weights in self.rows.scored(plan, 0, total.classes):
            tests = self._drawn(start, start + len(X))
            for s, found in pieces.items():
                found.append((X[tests[s]], codes[tests[s]], weights[tests[s]]))
        return pieces

    def _scores_of_split(
        self, fitted: dict[int, Any], pieces: list[Rows], classes: np.ndarray
    ) -> np.ndarray:
        """Return the sums of scores of candidates, and the values of functions, in a split."""
        X, codes, weights = (np.concatenate(arrays) for arrays in zip(*pieces, strict=True))
        sums = np.zeros((SUMS + len(self.scoring.functions), len(self.candidates)))
        truth = codes_of(classes, self._model_of(next(iter(fitted.values()))))[codes]
        known = (truth >= 0) & (weights > 0)
        X, y, truth, weights = X[known], classes[codes[known]], truth[known], weights[known]
        if not truth.size:
            return sums
        given = weights if len(self.rows.companions) > 1 else None
        for c, estimator in fitted.items():
            started = time.perf_counter()
            sums[2, c] = weights.sum()
            if self._built_in:
                sums[:2, c] = estimator.model_.held_out(X, truth, weights)
            found = apply_functions(self.scoring.functions, estimator, X, y, given)
            for number, column in enumerate(self.scoring.functions, SUMS):
                sums[number, c] = as_score(found[column])
                if isinstance(found[column], str):
                    self.errors[column] = str(found[column])
            sums[SUMS - 1, c] = time.perf_counter() - started
        return sums
