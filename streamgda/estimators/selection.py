"""Model selection by cross-validation, from one pass over the rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any, Self, Unpack

import numpy as np
from scipy.special import log_softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import FitFailedWarning
from sklearn.model_selection import ParameterGrid
from sklearn.utils.validation import check_is_fitted

from streamgda.engine.folds import each_split, with_folds
from streamgda.engine.plan import decoded_once, plan_rows
from streamgda.engine.reading import in_process
from streamgda.engine.reading import reading as read_slabs
from streamgda.errors import (
    ConstantFeatureWarning,
    InvalidDataError,
    InvalidParameterError,
    StreamGDAError,
)
from streamgda.estimators.base import Reading, warn
from streamgda.estimators.discriminant import GaussianDiscriminantAnalysis
from streamgda.models.covariance import Summary
from streamgda.models.gaussian import Gaussians
from streamgda.moments import GroupedMoments
from streamgda.moments.covariance_types import structure_of
from streamgda.moments.lifted import lifted
from streamgda.rows.counting import RowRule, Slab
from streamgda.rows.labels import find
from streamgda.runtime import threads
from streamgda.runtime.memory import allowed_bytes
from streamgda.runtime.parameters import as_flag, as_integer, refuse, shown

LIKELIHOOD, ACCURACY, LOG_LOSS = "joint_log_likelihood", "accuracy", "neg_log_loss"
SCORINGS = (ACCURACY, LOG_LOSS, LIKELIHOOD)
Models = dict[int, dict[int, Gaussians]]  # of candidates, by their numbers, for each split

_LARGEST_SEED = (1 << 128) - 1
_BLOCK_VALUES, _BLOCK_ROWS = 1 << 18, 1 << 10  # of rows and scores that a thread has in its cache
_LEAST_LOG = np.log(np.finfo(np.float64).eps)  # at which `sklearn.metrics.log_loss` clips

# Candidates go from common to separate covariances, the simpler first.
# Standardised shrinkage does not depend on units; `reg_param` and `var_smoothing` do, as those of
# scikit-learn, and are better where all features have the same, such as the pixels of an image.
GRID: tuple[dict[str, list[Any]], ...] = (
    {"covariance_type": ["tied"]},
    {
        "covariance_type": ["tied"],
        "shrinkage": [1e-6, 1e-3, 0.01, 0.1, 0.3],
    },
    {"covariance_type": ["tied_diag", "diag"], "var_smoothing": [1e-9, 1e-6, 1e-3, 0.01, 0.1]},
    {"covariance_type": ["full"]},
    {"covariance_type": ["full"], "reg_param": [1e-3, 0.01, 0.1, 0.3, 0.5]},
    {"covariance_type": ["full"], "var_smoothing": [0.01, 0.1, 0.3]},
    {
        "covariance_type": ["full"],
        "pooling": [0.5, 0.1, 0.0],
        "shrinkage": [1e-3, 0.01, 0.1, 0.3],
    },
)


def _by_best(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of the search that calls this method of its best estimator."""

    @wraps(method)
    def call(self: GaussianDiscriminantCV, *arguments: Any, **options: Any) -> Any:
        check_is_fitted(self)
        return getattr(self.best_estimator_, method.__name__)(*arguments, **options)

    return call


class GaussianDiscriminantCV(ClassifierMixin, BaseEstimator):
    """Choose the parameters of `GaussianDiscriminantAnalysis` by cross-validation.

    It corresponds to `sklearn.model_selection.GridSearchCV`, but one pass over the rows yields the
    moments of all folds, even if these are hundreds of groups; the candidates of each split follow
    from the sum of the moments of the other folds. With ``scoring="joint_log_likelihood"`` that is
    all: the mean of ln p(x, y) over the rows held out follows from their moments exactly. Otherwise
    one further pass scores all candidates, whose models are in memory together.

    If `cv` is an integer, the fold of a row is a hash of its index and of `random_state`: it does
    not depend on how the rows are stored or read, and neighbouring rows are in different folds.
    Below 1,000 rows, folds have equal shares of each class.
    Each row is held out once at most: for other splits and scores, pass
    `GaussianDiscriminantAnalysis` to a search of scikit-learn. The best candidate is computed from
    the moments of all rows, without a further pass.

    Parameters
    ----------
    param_grid : dict of str to list, or list of such dicts, optional
        Parameters of `GaussianDiscriminantAnalysis` and values to try in all combinations, or
        several such grids. By default 42 combinations: common and separate, full and diagonal
        covariances without regularisation, with `reg_param` and `var_smoothing`, and with
        shrinkage and pooling of standardised features, whose units make no difference. Of
        candidates with equal scores the first is chosen; by default the one with the best
        log-loss, as few rows often give several the same accuracy.
    cv : int, splitter, array of int or iterable of (train, test)
        Number of folds, at least 2; or a splitter as in `sklearn.model_selection`, such as
        ``StratifiedKFold(5)`` or ``LeaveOneGroupOut()``; or the fold of each row, -1 for rows that
        are never held out; or indices (or masks) of the rows of each training and test set, which
        hold a row out once at most and otherwise learn from it. A splitter gets the labels, and the
        rows if they are in memory: those of scikit-learn need only their number.
    scoring : {"accuracy", "neg_log_loss", "joint_log_likelihood"}
        Score to maximise, averaged over the folds. If classes are not Gaussian, they choose
        different candidates: the log-loss prefers less confident models, and the likelihood those
        that fit the distribution best, even if others classify more rows correctly.
    random_state : int
        Non-negative seed of the folds, if `cv` is an integer.
    verbose : bool
        Show progress.
    feature_map : RandomFeatures, Standardize, transformer, or list; optional
        Map of rows before all candidates, which share the pass over them.

    Attributes
    ----------
    best_estimator_ : GaussianDiscriminantAnalysis
        The best candidate, fitted to all rows.
    best_params_ : dict
        Its parameters.
    best_score_ : float
        Its mean score over the splits.
    best_index_ : int
        Its index in `cv_results_`.
    cv_results_ : dict of str to list or ndarray
        An entry for each candidate, as in `GridSearchCV`: ``params``, ``split0_test_score`` and so
        on, ``mean_test_score``, ``std_test_score`` and ``rank_test_score``; and the same for all
        scores that were computed, by their names. NaN (with one `FitFailedWarning`) if covariances
        are singular, or if a split has no rows to compare.
    n_splits_ : int
        Number of splits.
    classes_, n_features_in_, feature_names_in_

    Notes
    -----
    Held-out rows of a class that the training set of their split does not have count as wrong, as
    in `GridSearchCV`; the log-loss and the likelihood, which would be infinite, leave them out. A
    candidate that cannot be fitted to a training set, such as one with a prior for a class that it
    lacks, scores NaN. Weights of rows count in training and in scores.
    `score` returns the accuracy, whatever `scoring` is. `best_estimator_` can be saved.

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
    {'covariance_type': 'full', 'shrinkage': 0.0}
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

    def __init__(
        self,
        param_grid: Mapping[str, Sequence[Any]]
        | Sequence[Mapping[str, Sequence[Any]]]
        | None = None,
        *,
        cv: Any = 5,
        scoring: str = ACCURACY,
        random_state: int = 0,
        verbose: bool = False,
        feature_map: Any = None,
    ) -> None:
        self.param_grid = param_grid
        self.cv = cv
        self.scoring = scoring
        self.random_state = random_state
        self.verbose = verbose
        self.feature_map = feature_map

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        groups: Any = None,
        **reading: Unpack[Reading],
    ) -> Self:
        """Choose among the candidates.

        Parameters
        ----------
        X, y, sample_weight : see `GaussianDiscriminantAnalysis.fit`
            Rows, labels and weights.
        groups : array-like, shape (n_rows,), optional
            Groups of the rows, for a splitter that uses them, such as `GroupKFold`.
        **reading
            How rows are read, and which of them count, both in training and in test sets; see
            `GaussianDiscriminantAnalysis.fit`.

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
            If the moments of the folds and the models exceed `max_memory`.
        SingularCovarianceError
            If all candidates have singular covariances.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from streamgda import GaussianDiscriminantCV
        >>> X, y = load_iris(return_X_y=True)
        >>> search = GaussianDiscriminantCV({"covariance_type": ["full", "tied", "diag"]}).fit(X, y)
        >>> search.best_params_
        {'covariance_type': 'full'}
        """
        candidates, of_rows = self._candidates(), self.scoring != LIKELIHOOD
        template = GaussianDiscriminantAnalysis(feature_map=self.feature_map)
        rows = template._read(X, y, sample_weight, reading, reset=True)
        rows = in_process(replace(rows, groups=groups)).dense()
        allowed = allowed_bytes(reading.get("max_memory"))
        rows, held = decoded_once(rows, allowed)
        rows, n_folds = with_folds(self.cv, self.random_state, rows)
        kinds = [params.get("covariance_type", "full") for params in candidates]
        kind = "full" if {"full", "tied"} & set(kinds) else "diag"
        moments: Any = GroupedMoments(kind, feature_map=self.feature_map)
        options: Any = {"progress": self.verbose, "max_memory": reading.get("max_memory")}
        moments = template._added(moments, rows, **options)
        total = moments.total()
        Summary.of(total)  # It raises an error for moments without rows.
        slab_rows, size = 0, (total.classes.size, total.n_features or 0)
        if of_rows:  # The models of all candidates are in memory beside a slab.
            needed = n_folds * sum(structure_of(each).model_bytes(*size) for each in kinds)
            held += moments.nbytes + 2 * needed
            slab_rows, _ = plan_rows(rows, allowed, held, copies=2, out_row_bytes=8 * sum(size))
        models, likelihoods, failures = _fitted(candidates, moments, n_folds, keep=of_rows)
        scores = {LIKELIHOOD: likelihoods}
        if of_rows:
            with read_slabs(rows, slab_rows, "scoring", self.verbose) as slabs:
                scores |= _scores_of_rows(slabs, rows.rule, candidates, moments, models, n_folds)
        results = {"params": candidates, **compared("score", scores[self.scoring])}
        for name, table in scores.items():
            results |= compared(name, table)
        mean = results["mean_test_score"]
        if np.isnan(mean).all():
            raise next(iter(failures.values()), None) or InvalidDataError(
                f"no row can be held out of {n_folds} folds: at least two classes need rows in at "
                f"least two folds; give more rows, or a smaller cv"
            )
        if failures:
            last = max(failures)
            warn(
                f"{len(failures)} of {len(candidates)} candidates score nan in some split, where "
                f"they cannot be fitted. The last is {candidates[last]}: {failures[last]}",
                FitFailedWarning,
            )
        equal = np.flatnonzero(mean == np.nanmax(mean))
        if self.param_grid is None:  # Few rows classify many of our candidates equally well.
            surest = results.get(f"mean_test_{LOG_LOSS}", mean)[equal]
            equal = equal[np.argsort(-surest, kind="stable")]
        best = int(equal[0])
        learned: dict[str, Any] = {
            "cv_results_": results,
            "best_index_": best,
            "best_params_": candidates[best],
            "best_score_": float(mean[best]),
            "best_estimator_": GaussianDiscriminantAnalysis.from_moments(total, **candidates[best]),
            "n_splits_": n_folds,
            "n_features_in_": template.n_features_in_,
        }
        if hasattr(template, "feature_names_in_"):
            learned["feature_names_in_"] = template.feature_names_in_
        # One assignment, so that an interruption leaves the old search or the new one.
        given = {name: value for name, value in vars(self).items() if not name.endswith("_")}
        self.__dict__ = given | learned
        return self

    def _candidates(self) -> list[dict[str, Any]]:
        """Return all combinations of the grids; raise `InvalidParameterError` for invalid ones."""
        as_integer("random_state", self.random_state, "an integer >= 0", 0, _LARGEST_SEED)
        as_flag("verbose", self.verbose)
        if not isinstance(self.scoring, str) or self.scoring not in SCORINGS:
            expected = f"one of {', '.join(SCORINGS)}; GridSearchCV of scikit-learn takes any score"
            raise refuse("scoring", self.scoring, expected)
        try:
            candidates = list(ParameterGrid(GRID if self.param_grid is None else self.param_grid))
            for params in candidates:
                GaussianDiscriminantAnalysis(**params)._check_parameters()
        except (TypeError, ValueError) as error:
            raise InvalidParameterError(
                f"param_grid={shown(self.param_grid)}: {error}; expected a dict of parameters of "
                f"GaussianDiscriminantAnalysis and lists of values to try, or a list of such dicts"
            ) from error
        if not candidates:
            raise InvalidParameterError("param_grid is empty; give at least one candidate")
        return candidates

    # --- the best candidate -------------------------------------------------------------------

    @property
    def classes_(self) -> np.ndarray:
        """Class labels, sorted, shape (n_classes,)."""
        check_is_fitted(self)
        return self.best_estimator_.classes_

    predict = _by_best(GaussianDiscriminantAnalysis.predict)
    predict_proba = _by_best(GaussianDiscriminantAnalysis.predict_proba)
    predict_log_proba = _by_best(GaussianDiscriminantAnalysis.predict_log_proba)
    decision_function = _by_best(GaussianDiscriminantAnalysis.decision_function)
    score = _by_best(GaussianDiscriminantAnalysis.score)


def _fitted(
    candidates: list[dict[str, Any]], moments: GroupedMoments, n_folds: int, keep: bool
) -> tuple[Models, np.ndarray, dict[int, StreamGDAError]]:
    """Return the models of candidates in each split, and what follows from moments alone.

    Returns
    -------
    models : dict of int to dict of int to Gaussians
    likelihoods : ndarray, shape (n_candidates, n_folds)
        Mean joint log-likelihoods of the rows held out; NaN where there are none, or no model.
    failures : dict of int to StreamGDAError
        The last error of each candidate that could not be fitted.
    """
    models: Models = {}
    likelihoods, failures = np.full((len(candidates), n_folds), np.nan), {}
    for fold, others, own in each_split(moments, never=n_folds):
        models[fold], held_out = {}, Summary.of(own)
        # Integers are centred once, rather than for each candidate.
        train = others * 1.0 if others.exact else others
        for c, params in enumerate(candidates):
            try:
                with warnings.catch_warnings(category=ConstantFeatureWarning, action="ignore"):
                    model = GaussianDiscriminantAnalysis.from_moments(train, **params).model_
            except StreamGDAError as error:
                failures[c] = error
                continue
            if keep:
                models[fold][c] = model
            total, weight = model.joint_log_likelihood(held_out)
            likelihoods[c, fold] = total / weight if weight else np.nan
    return models, likelihoods, failures


def _scores_of_rows(
    slabs: Iterator[Slab],
    rule: RowRule,
    candidates: list[dict[str, Any]],
    moments: GroupedMoments,
    models: Models,
    n_folds: int,
) -> dict[str, np.ndarray]:
    """Return the scores of candidates in splits that follow from one more pass over the rows.

    Rows of classes that a training set lacks are wrong, and the log-loss leaves them out.
    """
    classes = moments.classes
    step = max(_BLOCK_ROWS, _BLOCK_VALUES // (classes.size + (moments.n_features or 0)))
    sums = np.zeros((4, len(candidates), n_folds))
    for slab in slabs:
        X, labels, weights, numbers, _ = rule.counted(slab, classes)
        folds = slab.groups if numbers is None else slab.groups[numbers]
        codes = find(labels, classes)
        weights = weights if weights.size else np.ones(codes.size)
        for fold in models.keys() & set(folds.tolist()):
            at = np.flatnonzero(folds == fold)
            arrays = np.asarray(lifted(X[at], moments._lifting)), codes[at], weights[at]
            blocks = [slice(start, start + step) for start in range(0, at.size, step)]
            calls = ((candidates, models[fold], *(a[b] for a in arrays)) for b in blocks)
            sums[:, :, fold] += sum(threads.run_serial_blas(_sums_of, calls))
    right, total, log_likelihood, learned = sums
    with np.errstate(invalid="ignore"):  # Some splits have no rows to compare.
        return {ACCURACY: right / total, LOG_LOSS: log_likelihood / learned}


def _sums_of(
    candidates: list[dict[str, Any]],
    models: dict[int, Gaussians],
    X: np.ndarray,
    truth: np.ndarray,
    weights: np.ndarray,
) -> np.ndarray:
    """Return sums over rows held out, a column for each candidate.

    They are the weights of the rows that are classified correctly and of all rows, and the
    log-probabilities and the weights of the rows of classes that were learned.
    """
    sums, numbers = np.zeros((4, len(candidates))), np.arange(truth.size)
    for c, model in models.items():
        scores = model._relative(model._rows(X, 0))
        learned = weights * np.isin(truth, model.alive)
        logs = log_softmax(scores / candidates[c].get("temperature", 1.0), axis=0)
        own = np.maximum(logs[truth, numbers], _LEAST_LOG)
        right = weights @ (scores.argmax(axis=0) == truth)
        sums[:, c] = right, weights.sum(), learned @ own, learned.sum()
    return sums


def compared(name: str, table: np.ndarray) -> dict[str, Any]:
    """Return scores of candidates in splits, a column each, in the form of `GridSearchCV`."""
    used = table[:, ~np.isnan(table).all(axis=0)]
    nothing = np.full(len(table), np.nan)
    mean = used.mean(axis=1) if used.size else nothing
    with np.errstate(invalid="ignore"):  # a likelihood of zero is minus infinity
        deviation = used.std(axis=1) if used.size else nothing
    order = np.nan_to_num(mean, nan=-np.inf)
    rank = 1 + (order[None, :] > order[:, None]).sum(axis=1)
    return {
        **{f"split{f}_test_{name}": split.copy() for f, split in enumerate(table.T)},
        f"mean_test_{name}": mean,
        f"std_test_{name}": deviation,
        f"rank_test_{name}": rank.astype(np.int32),
    }
