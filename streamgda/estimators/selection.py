"""Model selection by cross-validation, from one pass over the rows."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from streamgda.engine.fold_journal import FoldJournal
from streamgda.engine.folds import FoldedRows
from streamgda.engine.journal import only_run
from streamgda.engine.samples import TestSamples
from streamgda.engine.splits import added
from streamgda.errors import InvalidDataError
from streamgda.estimators.candidates import SUMS, CandidateScores, all_candidates, kept_by_all
from streamgda.estimators.cv_results import (
    best_of,
    n_splits_in,
    results_of,
    times_of,
)
from streamgda.estimators.discriminant import GaussianDiscriminantAnalysis
from streamgda.estimators.held_out import HeldOutScores
from streamgda.estimators.moment_classifier import NO_ROWS
from streamgda.estimators.saved_search import SavedSearch
from streamgda.estimators.saving import plain
from streamgda.estimators.scoring import RowClassifier, Scorer, scorer_of
from streamgda.estimators.scorings import ACCURACY, LIKELIHOOD, Scoring, as_scoring
from streamgda.estimators.splits import splitting
from streamgda.estimators.validation import names_in, validate_labelled
from streamgda.models.model import check_classes
from streamgda.rows import as_rows
from streamgda.rows.invalid_rows import row_rule
from streamgda.runtime.memory import allowed_bytes
from streamgda.runtime.parameters import as_flag, as_integer, as_number

_MOST = (1 << 128) - 1  # seeds have up to 128 bits
_LEARNT = ("best_estimator_", "best_index_", "refit_time_", "feature_names_in_")  # not always
_SAMPLE = "None, a number of rows, or a share of them, above 0 and up to 1.0"


class GaussianDiscriminantCV(SavedSearch, RowClassifier):
    """Choose the parameters of `GaussianDiscriminantAnalysis` by cross-validation.

    It corresponds to `sklearn.model_selection.GridSearchCV`, but one pass over the rows yields the
    moments of all folds; the candidates of each split follow from the sum of the moments of the
    other folds, also of hundreds of groups. With ``scoring="joint_log_likelihood"`` that is all:
    the mean of ln p(x, y) over the rows held out follows from their moments exactly. Otherwise one
    further pass scores all candidates; if their models, or the test sets that a function scores,
    exceed half of `max_memory`, it takes several passes.

    If `cv` is an integer, the fold of a row is a hash of its number and of `random_state`: it does
    not depend on how the rows are stored or read, and neighbouring rows are in different folds.
    Other splits may overlap, or leave rows out; they too take one pass. The best candidate is
    computed from the moments of all rows, without a further pass.

    Parameters
    ----------
    param_grid : dict of str to list, or list of such dicts, optional
        Parameters of `GaussianDiscriminantAnalysis` and values to try in all combinations, or
        several such grids. By default 37 combinations: common and separate, full and diagonal
        covariances without regularisation, with `reg_param` and `var_smoothing`, and with
        shrinkage and pooling of standardised features, whose units make no difference. Of
        candidates with equal scores the first is chosen, and simpler ones come first by default.
    cv : int, splitter, array of int or iterable of (train, test)
        Number of folds, at least 2; or a splitter as in `sklearn.model_selection`, such as
        ``StratifiedKFold(5)`` or ``LeaveOneGroupOut()``; or the fold of each row, -1 for rows that
        are never held out; or numbers (or masks) of the rows of each training and test set. A
        splitter gets the labels, and the rows if they are in memory: those of scikit-learn need
        only their number.
    scoring : str, callable, list or dict; default "accuracy"
        Score to maximise, averaged over the folds. ``"accuracy"``, ``"neg_log_loss"`` and
        ``"joint_log_likelihood"`` are computed block by block. If classes are not Gaussian, the
        three choose different candidates: the log-loss prefers less confident models, and the
        likelihood those that fit the distribution best, even if others classify more rows
        correctly. Any other name of `sklearn.metrics.get_scorer_names`, or a function
        ``scorer(estimator, X, y)``, gets all rows of a test set at once. A list of names, or a dict
        of names to names or functions, computes several scores, and `refit` chooses by one.
    random_state : int
        Non-negative seed of the folds, if `cv` is an integer, and of `score_sample`.
    max_memory : int or str, optional
        Bytes, or a text such as ``"2GB"``, for rows in flight, moments and models.
    verbose : bool
        Show progress.
    score_sample : int or float, optional
        Number of rows held out, or share of them, to score; by default all. They are drawn at
        random by `random_state`, of each split in proportion to its test set. All rows are learnt
        from in any case, and the joint log-likelihood, which needs no scores, is that of all rows.
    refit : bool, str or callable
        With several scores, the name of the one that decides. With False no candidate is fitted to
        all rows, and the search does not predict. A function gets `cv_results_` and returns the
        number of the best candidate.

    Attributes
    ----------
    best_estimator_ : GaussianDiscriminantAnalysis
        The best candidate, fitted to all rows; not with ``refit=False``.
    best_params_ : dict
        Its parameters.
    best_score_ : float
        Its mean score over the splits; none if `refit` is a function.
    best_index_ : int
        Its number in `cv_results_`.
    cv_results_ : dict of str to list or ndarray
        An entry for each candidate, as in `GridSearchCV`: ``params``, ``param_...``,
        ``split0_test_score`` and so on, ``mean_test_score``, ``std_test_score`` and
        ``rank_test_score``; and the same for the other scores that were computed, by their names.
        NaN (with one `FitFailedWarning`) if covariances are singular, if a function fails, or if
        a split has no rows to compare. ``mean_fit_time`` is the seconds of computing a model of a
        split from moments, and an equal share of the pass that all models come from;
        ``mean_score_time`` is the seconds of scoring on one thread.
    n_splits_ : int
        Number of splits.
    scorer_ : callable, or dict of str to callable
        Functions that compute the scores, by name if there are several.
    multimetric_ : bool
        True if `scoring` is a list or a dict.
    refit_time_ : float
        Seconds of computing `best_estimator_` from the moments of all rows.
    classes_, n_features_in_, feature_names_in_

    Notes
    -----
    Held-out rows of a class that the training set of their split does not have are left out of
    scores, for no candidate could predict it. Weights of rows count in training, in scores by name,
    and in functions that take a ``sample_weight``. `score` returns the accuracy, whatever
    `scoring` is.

    A ``"full"`` candidate has a model for each fold, of ``16 * n_classes * n_features**2`` bytes:
    little up to a hundred features, but 98 MB for 784 pixels and ten digits, times five folds.
    Most of the time goes into scoring rather than reading. Rows projected on principal components
    (`ClassMoments.pca`) take a small part of that time, and digits are classified better.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from streamgda import GaussianDiscriminantCV
    >>> X, y = load_iris(return_X_y=True)
    >>> grid = {"covariance_type": ["full", "tied", "diag"], "shrinkage": [0.0, 0.1]}
    >>> search = GaussianDiscriminantCV(grid).fit(X, y)
    >>> search.best_params_
    {'covariance_type': 'full', 'shrinkage': 0.1}
    >>> search.predict(X[:2])
    array([0, 0])

    The splits of scikit-learn, and those of groups:

    >>> from sklearn.model_selection import GroupKFold, StratifiedKFold
    >>> search = GaussianDiscriminantCV(grid, cv=StratifiedKFold(5)).fit(X, y)
    >>> round(search.best_score_, 3)
    0.98
    >>> search = GaussianDiscriminantCV(grid, cv=GroupKFold(3)).fit(X, y, groups=[*range(30)] * 5)
    >>> search.n_splits_
    3
    """

    n_features_in_: int

    def __init__(
        self,
        param_grid: Mapping[str, Sequence[Any]]
        | Sequence[Mapping[str, Sequence[Any]]]
        | None = None,
        *,
        cv: Any = 5,
        scoring: Any = ACCURACY,
        random_state: int = 0,
        max_memory: int | str | None = None,
        verbose: bool = False,
        score_sample: float | None = None,
        refit: Any = True,
    ) -> None:
        self.param_grid = param_grid
        self.cv = cv
        self.scoring = scoring
        self.random_state = random_state
        self.max_memory = max_memory
        self.verbose = verbose
        self.score_sample = score_sample
        self.refit = refit

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        groups: Any = None,
        features: str | None = None,
        unlabelled: Any = None,
        nodata: float | None = None,
        on_invalid: str = "raise",
        checkpoint: Any = None,
        checkpoint_every: float = 60.0,
    ) -> Self:
        """Choose among the candidates.

        Parameters
        ----------
        X, y, sample_weight : see `GaussianDiscriminantAnalysis.fit`
            Rows, labels and weights; dask arrays have chunks of known size.
        groups : array-like, shape (n_rows,), optional
            Groups of the rows, for a splitter that uses them, such as `GroupKFold`.
        features, unlabelled, nodata, on_invalid : see `GaussianDiscriminantAnalysis.fit`
            How rows are read, and which of them count, both in training and in test sets.
        checkpoint : path, optional
            File from which the same call resumes if the process is killed or an error ends it.
            Parameters, labels and weights, and a sample of the rows are compared with it.
        checkpoint_every : float
            Least number of seconds between two writes.

        Returns
        -------
        GaussianDiscriminantCV
            The fitted search.

        Raises
        ------
        InvalidDataError
            For rows, labels or weights that cannot be used, or too few for any split.
        InvalidParameterError
            For invalid parameters or candidates, or splits that do not fit the rows.
        MemoryBudgetError
            If the moments of the folds exceed `max_memory`.
        CheckpointError
            If the checkpoint is damaged or belongs to other rows or another search.
        SingularCovarianceError
            If all candidates have singular covariances.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from streamgda import GaussianDiscriminantCV
        >>> X, y = load_iris(return_X_y=True)
        >>> search = GaussianDiscriminantCV({"covariance_type": ["full", "tied", "diag"]}).fit(X, y)
        >>> search.best_params_
        {'covariance_type': 'tied'}
        """
        candidates = self._candidates()
        scoring = self._scoring()
        split = splitting(self.cv, self.random_state, groups)
        template = GaussianDiscriminantAnalysis()
        X, nodata = as_rows(X, features, nodata)
        rule = row_rule(on_invalid, nodata, unlabelled, y=y)
        X, y = validate_labelled(template, X, y, reset=True, rule=rule)
        allowed = allowed_bytes(self.max_memory)
        rows = FoldedRows(X, y, sample_weight, split, allowed, self.verbose, rule)
        sample = self._sample(rows, scoring)
        kept = checkpoint, checkpoint_every
        kind = HeldOutScores if scoring.functions else CandidateScores
        with only_run(checkpoint):
            journal = self._journal(kept, candidates, rows, scoring, sample)
            journal.name_features(names_in(template))
            with journal:
                started = time.perf_counter()
                rows.accumulate(**kept_by_all(candidates), journal=journal)
                splits = kind(candidates, rows, journal, scoring, sample)
                return self._choose(splits, template, started)

    def _journal(
        self,
        kept: tuple[Any, float],
        candidates: list[dict[str, Any]],
        rows: FoldedRows,
        scoring: Scoring,
        sample: TestSamples | None,
    ) -> FoldJournal:
        """Return the journal of a search, kept in a file every so many seconds."""
        seed = f" of seed {self.random_state}" if sample else ""
        return rows.journal(
            *kept,
            **kept_by_all(candidates),
            scores=(SUMS + len(scoring.functions), len(candidates), len(rows.splits.tests)),
            candidates=repr([plain(params) for params in candidates]),
            score_sample=f"{self.score_sample}{seed}",
            scoring=scoring.description,
        )

    def _scoring(self) -> Scoring:
        """Return the scores to compute; refuse a `refit` that does not choose by them."""
        scoring = as_scoring(self.scoring)
        scoring.refit_column(self.refit)
        return scoring

    def _sample(self, rows: FoldedRows, scoring: Scoring) -> TestSamples | None:
        """Return the rows of the test sets that are scored; None for all of them."""
        size = self.score_sample
        if size is None or set(scoring.scores.values()) == {LIKELIHOOD}:
            return None
        return TestSamples(rows.splits, int(rows.rows.n_rows), size, self.random_state)

    def _candidates(self) -> list[dict[str, Any]]:
        """Return all combinations of the grids; refuse invalid ones."""
        as_integer("random_state", self.random_state, "an integer >= 0", 0, _MOST)
        as_flag("verbose", self.verbose)
        if isinstance(self.score_sample, float):
            as_number("score_sample", self.score_sample, _SAMPLE, sys.float_info.min, 1.0)
        elif self.score_sample is not None:
            as_integer("score_sample", self.score_sample, _SAMPLE, 1)
        return all_candidates(self.param_grid)

    def _choose(
        self, splits: CandidateScores, template: GaussianDiscriminantAnalysis, started: float
    ) -> Self:
        """Score the candidates, and fit the best to all rows."""
        candidates, rows, scoring = splits.candidates, splits.rows, splits.scoring
        total = added(splits.journal.parts, rows.splits.everything)
        if total.n_features is None:
            raise InvalidDataError(NO_ROWS)
        check_classes(total.classes, total.class_count, least=2)
        total._name_features(names_in(template))
        shared = (time.perf_counter() - started) / splits.fit_times.size  # of the pass for moments
        splits.score(total)
        times = times_of(splits.fit_times + shared, splits.score_times)
        results = results_of(candidates, splits.tables(), times)
        column = scoring.refit_column(self.refit)
        decisive = list(scoring.scores) if column is None else [column]
        if np.isnan([results[f"mean_test_{name}"] for name in decisive]).all():
            raise splits.failure() or InvalidDataError(
                f"no row can be held out of {len(rows.splits.tests)} folds: at least two classes "
                f"need rows in at least two folds; give more rows, or a smaller cv"
            )
        splits.warn()
        learnt = {"cv_results_": results, "n_features_in_": template.n_features_in_}
        learnt |= {"scorer_": scoring.scorers, "multimetric_": scoring.several}
        learnt["_best_column"] = column
        best = best_of(results, column, self.refit)
        if best is not None:
            learnt["best_index_"] = best
        if best is not None and self.refit:
            started = time.perf_counter()
            chosen = GaussianDiscriminantAnalysis.from_moments(total, **candidates[best])
            learnt["best_estimator_"] = chosen
            learnt["refit_time_"] = time.perf_counter() - started
        if hasattr(template, "feature_names_in_"):
            learnt["feature_names_in_"] = template.feature_names_in_
        state = {name: value for name, value in vars(self).items() if name not in _LEARNT}
        self.__dict__ = state | learnt  # at once, whatever exception from outside arrives
        return self

    # --- the best candidate ----------------------------------------------------------------------

    @property
    def best_params_(self) -> dict[str, Any]:
        """Parameters of the best candidate."""
        check_is_fitted(self, "cv_results_")
        return dict(self.cv_results_["params"][self.best_index_])

    @property
    def best_score_(self) -> float:
        """Mean score of the best candidate over the splits."""
        check_is_fitted(self, "cv_results_")
        if self._best_column is None:
            raise AttributeError("there is no best_score_, as refit names none of the scores")
        return float(self.cv_results_[f"mean_test_{self._best_column}"][self.best_index_])

    @property
    def n_splits_(self) -> int:
        """Number of splits."""
        check_is_fitted(self, "cv_results_")
        return n_splits_in(self.cv_results_)

    @property
    def classes_(self) -> np.ndarray:
        """Class labels, sorted, shape (n_classes,)."""
        return self._best.classes_

    predict_proba = GaussianDiscriminantAnalysis.predict_proba
    predict_log_proba = GaussianDiscriminantAnalysis.predict_log_proba
    decision_function = GaussianDiscriminantAnalysis.decision_function

    @property
    def _best(self) -> GaussianDiscriminantAnalysis:
        if hasattr(self, "cv_results_") and not hasattr(self, "best_estimator_"):
            raise NotFittedError(
                "this search was fitted with refit=False, and has no best_estimator_ to predict "
                "with; fit it with refit=True, or with the score that decides"
            )
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_

    def _scorer(self, method: str, **options: Any) -> Scorer:
        return scorer_of(self._best, method, **options)
