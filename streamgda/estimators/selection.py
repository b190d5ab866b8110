"""Model selection by cross-validation, from one pass over the rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from numbers import Integral
from typing import Any, NamedTuple, Self, Unpack

import numpy as np
from scipy.special import log_softmax
from sklearn.base import ClassifierMixin
from sklearn.exceptions import FitFailedWarning
from sklearn.model_selection import ParameterGrid

from streamgda.engine.folds import NEVER, each_split, with_folds
from streamgda.engine.plan import decoded_once, plan_rows
from streamgda.engine.reading import in_process
from streamgda.engine.reading import reading as read_slabs
from streamgda.errors import (
    ConstantFeatureWarning,
    InvalidDataError,
    InvalidParameterError,
    StreamGDAError,
)
from streamgda.estimators.base import MomentEstimator, Reading, warn
from streamgda.estimators.discriminant import GaussianDiscriminantAnalysis
from streamgda.models.covariance import Summary
from streamgda.models.gaussian import Gaussians
from streamgda.moments import ClassMoments, GroupedMoments
from streamgda.moments.covariance_types import structure_of
from streamgda.moments.feature_maps import Lifting, lifted
from streamgda.rows import Rows
from streamgda.rows.counting import RowRule, Slab, is_plain
from streamgda.rows.labels import as_labels, find
from streamgda.runtime import threads
from streamgda.runtime.memory import allowed_bytes
from streamgda.runtime.parameters import as_flag, shown, unexpected
from streamgda.storage.format import State, check_whole

LIKELIHOOD, ACCURACY, LOG_LOSS = "joint_log_likelihood", "accuracy", "neg_log_loss"
SCORINGS = (ACCURACY, LOG_LOSS, LIKELIHOOD)
# The map of rows before the candidates, and their models by their numbers, for each split.
Models = list[tuple[Lifting | None, dict[int, Gaussians]]]

_BLOCK_VALUES, _BLOCK_ROWS = 1 << 18, 1 << 10  # A thread scores a block within its cache.
_LEAST_LOG = np.log(np.finfo(np.float64).eps)  # There, `sklearn.metrics.log_loss` clips.

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


class Choice(NamedTuple):
    """The best candidate, its number, the scores of all, and errors of those that failed."""

    estimator: GaussianDiscriminantAnalysis
    number: int
    results: dict[str, Any]
    n_splits: int
    failures: dict[int, StreamGDAError]


def _by_best(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of the search that calls this method of its best estimator."""

    @wraps(method)
    def call(self: GaussianDiscriminantCV, *arguments: Any, **options: Any) -> Any:
        return getattr(self.best_estimator_, method.__name__)(*arguments, **options)

    return call


class Folded(MomentEstimator):
    """Base of the estimators that choose parameters by rows that are held out, fold by fold.

    Their `moments_` are grouped by fold. The fold of a row follows from its number, or is its
    group, so that batches of a stream go to the folds in which `fit` would hold their rows out.
    """

    cv: Any
    random_state: Any
    _kinds: Any = (ClassMoments | GroupedMoments, "ClassMoments or GroupedMoments")
    _reads = MomentEstimator._reads | {"groups"}
    # Rows so far whose folds were made here; None if the folds are groups that were given.
    _n_numbered: int | None = 0

    def _chooses(self) -> bool:
        """Return True if there is anything to choose, for which folds are kept."""
        return True

    def _empty(self, kind: str | None = None) -> Any:
        held = vars(self).get("moments_")
        folds = self._chooses() if held is None else isinstance(held, GroupedMoments)
        if not folds:
            return super()._empty(kind)
        return GroupedMoments(kind or self._covariance_type(), feature_map=self._maps())

    def _in_folds(self, rows: Rows, method: str, max_memory: int | str | None = None) -> Rows:
        if not isinstance(self._empty(), GroupedMoments):
            if rows.groups is not None:
                raise InvalidParameterError("groups were given, but no alphas to choose from")
            return rows
        before, whole = self._n_numbered, isinstance(self.cv, Integral)
        rows = rows if whole and is_plain(rows.X) else in_process(rows)
        given = rows.groups is not None and (whole or method != "fit")
        if method == "forget" and not (given and before is None):
            raise InvalidParameterError(
                "forget takes rows from their folds, which are known of groups only; pass groups= "
                "to partial_fit, or to fit with an integer cv, and the same ones to forget"
            )
        if not (given or whole or method == "fit"):
            raise InvalidParameterError(
                f"cv={shown(self.cv)} splits all rows at once, which partial_fit does not have; "
                f"give an integer, or the groups of the rows, each of which is then a fold"
            )
        if "moments_" in vars(self) and given != (before is None):
            raise InvalidParameterError(
                "the folds of the rows so far are their groups; pass groups= again"
                if before is None
                else "groups were given, and the folds of the rows so far are not their groups; "
                "pass groups= from the first call on"
            )
        n_rows = int(rows.X.shape[0])
        if method == "fit" and whole and not given and n_rows < self.cv:
            raise unexpected("cv", self.cv, f"at most the number of rows (n_samples={n_rows})")
        self._n_numbered = None if given else (before or 0) + n_rows
        return rows if given else with_folds(self.cv, self.random_state, rows, before or 0)

    def _adopt(self, moments: Any) -> None:
        super()._adopt(moments)
        self._n_numbered = None if isinstance(moments, GroupedMoments) else 0

    def _moments_of_kind(self) -> ClassMoments:
        if not isinstance(self.moments_, GroupedMoments):
            return super()._moments_of_kind()
        return self._as_asked(self.moments_.total())[0]

    def _splits(self) -> Iterator[tuple[ClassMoments, ...]]:
        """Yield the moments of the training set and of the rows held out, for each split."""
        moments = self.moments_
        if not isinstance(moments, GroupedMoments):
            raise InvalidDataError(
                "a choice needs moments of folds, and these rows were added without any: call fit, "
                "or pass GroupedMoments to from_moments"
            )
        if len(moments) < 2:
            raise InvalidDataError(
                f"candidates are compared by rows that are held out, and {len(moments)} fold has "
                f"rows (n_samples={moments.class_count.sum():g}); give rows of two folds at least"
            )
        for others, own in each_split(moments):
            yield tuple(self._as_asked(others, own))

    # --- saving -------------------------------------------------------------------------------

    def _state(self) -> State:
        return super()._state() | {"n_numbered": self._n_numbered}

    def _restore(self, state: Mapping[str, Any]) -> None:
        n = state["n_numbered"]
        self._n_numbered = None if n is None else check_whole("n_numbered", n, 0)


class GaussianDiscriminantCV(ClassifierMixin, Folded):
    """Choose the parameters of `GaussianDiscriminantAnalysis` by cross-validation.

    It corresponds to `sklearn.model_selection.GridSearchCV`, but one pass over the rows yields the
    moments of all folds, even if these are hundreds of groups; the candidates of each split follow
    from the sum of the moments of the other folds. With ``scoring="joint_log_likelihood"`` that is
    all: the mean of ln p(x, y) over the rows held out follows from their moments exactly, so that
    rows of a stream are added by `partial_fit`, and the choice is up to date at any time. Otherwise
    one further pass of `fit` scores all candidates, whose models are in memory together.

    If `cv` is an integer, the fold of a row follows from its number and from `random_state`, and
    not from how the rows are stored, read or cut into batches: each `cv` consecutive rows are in
    different folds, in random order. Folds have the same size, and those of rows sorted by class
    the same shares of each class. Each row is held out once at most: for other splits and scores,
    pass `GaussianDiscriminantAnalysis` to a search of scikit-learn. The best candidate is computed
    from the moments of all rows, without a further pass. Temperatures, which change probabilities
    and neither labels nor likelihoods, do not follow from moments: compare them in `fit`, by
    ``"neg_log_loss"``, or call `calibrate` of the best estimator.

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
        Number of folds, at least 2, which `groups` take the place of; or a splitter as in
        `sklearn.model_selection`, such as ``StratifiedKFold(5)`` or ``GroupKFold(5)``; or the fold
        of each row, -1 for rows that are never held out; or indices (or masks) of the rows of each
        training and test set, which hold a row out once at most and otherwise learn from it. A
        splitter gets the labels, and the rows if they are in memory: those of scikit-learn need
        only their number.
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
        Number of splits, whose rows count.
    moments_ : GroupedMoments
        Moments of the rows of each fold; those of several streams add up to those of all, for
        `from_moments`. Of rows in fold -1, which are never held out, all models learn.
    classes_, n_features_in_, feature_names_in_

    Notes
    -----
    Held-out rows of a class that the training set of their split does not have count as wrong, as
    in `GridSearchCV`; the log-loss and the likelihood, which would be infinite, leave them out. A
    candidate that cannot be fitted to a training set, such as one with a prior for a class that it
    lacks, scores NaN. Weights of rows count in training and in scores.
    `score` returns the accuracy, whatever `scoring` is.

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
    {'covariance_type': 'tied', 'shrinkage': 0.0}
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

    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, **reading: Unpack[Reading]
    ) -> Self:
        """Choose among the candidates.

        Parameters
        ----------
        X, y, sample_weight : see `GaussianNB.fit`
            Rows, labels and weights.
        **reading
            How rows are read, and which of them count, both in training and in test sets; see
            `GaussianNB.fit`; and `groups` of the rows, shape (n_rows,). With an integer `cv` each
            group is a fold; a splitter, such as `GroupKFold`, gets them.

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
        {'covariance_type': 'tied'}
        """
        return super().fit(X, y, sample_weight, **reading)

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        classes: Any = None,
        sample_weight: Any = None,
        *,
        half_life: float | None = None,
        **reading: Unpack[Reading],
    ) -> Self:
        """Add rows to the folds, from which the choice follows at any time.

        The result is that of `fit` with the same folds on all rows, to rounding, in any batches.

        Parameters
        ----------
        X, y, classes, sample_weight, half_life, **reading : see `GaussianNB.partial_fit`
            Rows, their labels and weights, and how they are read; and `groups` of the rows, which
            are then the folds. Without them `cv` is an integer.

        Returns
        -------
        GaussianDiscriminantCV
            The search itself.

        Raises
        ------
        InvalidDataError, InvalidParameterError
            See `fit`; and for any `scoring` but ``"joint_log_likelihood"``, as the others do not
            follow from moments. The search is then unchanged.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from streamgda import GaussianDiscriminantCV
        >>> X, y = load_iris(return_X_y=True)
        >>> grid = {"covariance_type": ["full", "tied", "diag"]}
        >>> search = GaussianDiscriminantCV(grid, scoring="joint_log_likelihood")
        >>> for start in range(0, 150, 30):
        ...     _ = search.partial_fit(X[start : start + 30], y[start : start + 30])
        >>> search.best_params_, round(search.best_score_, 3)
        ({'covariance_type': 'full'}, -1.711)
        """
        return super().partial_fit(X, y, classes, sample_weight, half_life=half_life, **reading)

    # --- what `MomentEstimator` asks for ------------------------------------------------------

    _instead = f"scoring={LIKELIHOOD!r}, which follows from moments"

    def _covariance_type(self) -> str:
        kinds = {params.get("covariance_type", "full") for params in self._candidates()}
        return "full" if {"full", "tied"} & kinds else "diag"

    def _check_parameters(self) -> None:
        self._candidates()

    def _needs_all_rows(self) -> str | None:
        return None if self.scoring == LIKELIHOOD else f"scoring={self.scoring!r}"

    def _added(self, moments: Any, rows: Rows, **options: Any) -> Any:
        return super()._added(moments, rows, progress=self.verbose or None, **options)

    def _in_folds(self, rows: Rows, method: str, max_memory: int | str | None = None) -> Rows:
        rows = super()._in_folds(rows, method)
        if not self._needs_all_rows():
            return rows
        # Rows are read twice, and their labels decoded once.
        return decoded_once(in_process(rows), allowed_bytes(max_memory))[0]

    def _find(self, rows: Rows, max_memory: int | str | None) -> np.ndarray:
        """Return all scores of candidates in splits, in the order of `SCORINGS`."""
        candidates, moments = self._candidates(), self.moments_
        assert isinstance(moments, GroupedMoments)
        allowed = allowed_bytes(max_memory)
        rows, held = rows.dense(), rows.y.n_rows * rows.y.row_bytes
        # The models of all candidates are in memory beside a slab.
        kinds = [params.get("covariance_type", "full") for params in candidates]
        size: Any = moments.classes.size, moments.n_features
        needed = len(moments) * sum(structure_of(kind).model_bytes(*size) for kind in kinds)
        held += moments.nbytes + 2 * needed
        slab_rows, _ = plan_rows(rows, allowed, held, copies=2, out_row_bytes=8 * sum(size))
        models, likelihoods, failures = self._fitted(candidates)
        self._warn_of(failures)
        with read_slabs(rows, slab_rows, "scoring", self.verbose) as slabs:
            scores = _scores_of_rows(slabs, rows.rule, candidates, moments, models)
        return np.stack([*scores, likelihoods])

    def _fitted(
        self, candidates: list[dict[str, Any]]
    ) -> tuple[Models, np.ndarray, dict[int, StreamGDAError]]:
        """Return the models of candidates in each split, and what follows from moments alone.

        Returns
        -------
        models : Models
        likelihoods : ndarray, shape (n_candidates, n_splits)
            Mean joint log-likelihoods of the rows held out; NaN where there are none, or no model.
        failures : dict of int to StreamGDAError
            The last error of each candidate that could not be fitted.
        """
        models: Models = []
        columns: list[np.ndarray] = []
        failures: dict[int, StreamGDAError] = {}
        for others, own in self._splits():
            held_out, fitted, column = Summary.of(own), {}, np.full(len(candidates), np.nan)
            # Integers are centred once, rather than for each candidate.
            train = others * 1.0 if others.exact else others
            for c, params in enumerate(candidates):
                try:
                    with warnings.catch_warnings(category=ConstantFeatureWarning, action="ignore"):
                        model = GaussianDiscriminantAnalysis.from_moments(train, **params).model_
                except StreamGDAError as error:
                    failures[c] = error
                    continue
                fitted[c] = model
                total, weight = model.joint_log_likelihood(held_out)
                column[c] = total / weight if weight else np.nan
            models.append((train._lifting, fitted))
            columns.append(column)
        likelihoods = np.column_stack(columns)
        if failures and np.isnan(compared("score", likelihoods)["mean_test_score"]).all():
            raise next(iter(failures.values()))
        return models, likelihoods, failures

    def _warn_of(self, failures: dict[int, StreamGDAError]) -> None:
        """Warn of candidates that could not be fitted, which have these errors."""
        if failures:
            candidates, last = self._candidates(), max(failures)
            warn(
                f"{len(failures)} of {len(candidates)} candidates score nan in some split, where "
                f"they cannot be fitted. The last is {candidates[last]}: {failures[last]}",
                FitFailedWarning,
            )

    def _check_fit(self, model: Choice) -> None:
        self._warn_of(model.failures)

    def _make_model(self, moments: ClassMoments, found: Any) -> Choice:
        candidates = self._candidates()
        failures: dict[int, StreamGDAError] = {}
        if self._needs_all_rows():
            scores = dict(zip(SCORINGS, found, strict=True))
        else:
            _, likelihoods, failures = self._fitted(candidates)
            scores = {LIKELIHOOD: likelihoods}
        results = {"params": candidates, **compared("score", scores[self.scoring])}
        for name, table in scores.items():
            results |= compared(name, table)
        mean = results["mean_test_score"]
        if np.isnan(mean).all():
            raise InvalidDataError(
                "no row can be held out from the others: at least two classes need rows in at "
                "least two folds; give more rows, or a smaller cv"
            )
        equal = np.flatnonzero(mean == np.nanmax(mean))
        if self.param_grid is None:  # Few rows classify many of our candidates equally well.
            surest = results.get(f"mean_test_{LOG_LOSS}", mean)[equal]
            equal = equal[np.argsort(-surest, kind="stable")]
        best = int(equal[0])
        fitted = GaussianDiscriminantAnalysis.from_moments(moments, **candidates[best])
        return Choice(fitted, best, results, scores[LIKELIHOOD].shape[1], failures)

    def _checked_found(self, found: np.ndarray) -> np.ndarray:
        if found.dtype != np.float64 or found.shape[:-1] != (3, len(self._candidates())):
            raise ValueError("its scores are not those of its candidates")
        return found

    def _candidates(self) -> list[dict[str, Any]]:
        """Return all combinations of the grids; raise `InvalidParameterError` for invalid ones."""
        as_flag("verbose", self.verbose)
        if not isinstance(self.scoring, str) or self.scoring not in SCORINGS:
            expected = f"one of {', '.join(SCORINGS)}; GridSearchCV of scikit-learn takes any score"
            raise unexpected("scoring", self.scoring, expected)
        try:
            candidates = list(ParameterGrid(GRID if self.param_grid is None else self.param_grid))
            models = [GaussianDiscriminantAnalysis(**params) for params in candidates]
        except (TypeError, ValueError) as error:
            raise InvalidParameterError(
                f"param_grid={shown(self.param_grid)}: {error}; expected a dict of parameters of "
                f"GaussianDiscriminantAnalysis and lists of values to try, or a list of such dicts"
            ) from error
        for model in models:
            model._check_parameters()
        if not candidates:
            raise InvalidParameterError("param_grid is empty; give at least one candidate")
        return candidates

    # --- the best candidate -------------------------------------------------------------------

    @property
    def best_estimator_(self) -> GaussianDiscriminantAnalysis:
        """The best candidate, fitted to all rows."""
        return self.model_.estimator

    @property
    def best_index_(self) -> int:
        """Index of the best candidate in `cv_results_`."""
        return self.model_.number

    @property
    def best_params_(self) -> dict[str, Any]:
        """Parameters of the best candidate."""
        return self.cv_results_["params"][self.best_index_]

    @property
    def best_score_(self) -> float:
        """Mean score of the best candidate over the splits."""
        return float(self.cv_results_["mean_test_score"][self.best_index_])

    @property
    def cv_results_(self) -> dict[str, Any]:
        """Scores of the candidates, as in `GridSearchCV`."""
        return self.model_.results

    @property
    def n_splits_(self) -> int:
        """Number of splits."""
        return self.model_.n_splits

    @property
    def classes_(self) -> np.ndarray:
        """Class labels, sorted, shape (n_classes,)."""
        return self.moments_.classes

    predict = _by_best(GaussianDiscriminantAnalysis.predict)
    predict_proba = _by_best(GaussianDiscriminantAnalysis.predict_proba)
    predict_log_proba = _by_best(GaussianDiscriminantAnalysis.predict_log_proba)
    decision_function = _by_best(GaussianDiscriminantAnalysis.decision_function)
    score = _by_best(GaussianDiscriminantAnalysis.score)


def _scores_of_rows(
    slabs: Iterator[Slab],
    rule: RowRule,
    candidates: list[dict[str, Any]],
    moments: GroupedMoments,
    models: Models,
) -> tuple[np.ndarray, np.ndarray]:
    """Return accuracy and log-loss of candidates in splits, from one more pass over the rows.

    Rows of classes that a training set lacks are wrong, and the log-loss leaves them out.
    """
    classes, groups = moments.classes, moments.groups
    held_out = groups[find(groups, np.array([NEVER])) < 0]
    step = max(_BLOCK_ROWS, _BLOCK_VALUES // (classes.size + (moments.n_features or 0)))
    sums = np.zeros((4, len(candidates), len(models)))
    for slab in slabs:
        X, labels, weights, numbers, _ = rule.counted(slab, classes)
        folds = find(as_labels(slab.groups), held_out)
        folds = folds if numbers is None else folds[numbers]
        codes = find(labels, classes)
        weights = weights if weights.size else np.ones(codes.size)
        for fold in np.unique(folds[folds >= 0]):
            at = np.flatnonzero(folds == fold)
            lifting, fitted = models[fold]
            arrays = np.asarray(lifted(X[at], lifting)), codes[at], weights[at]
            blocks = [slice(start, start + step) for start in range(0, at.size, step)]
            calls = ((candidates, fitted, *(a[b] for a in arrays)) for b in blocks)
            sums[:, :, fold] += sum(threads.run_serial_blas(_sums_of, calls))
    right, total, log_likelihood, learned = sums
    with np.errstate(invalid="ignore"):  # Some splits have no rows to compare.
        return right / total, log_likelihood / learned


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
    with np.errstate(invalid="ignore"):  # A likelihood of zero is minus infinity.
        deviation = used.std(axis=1) if used.size else nothing
    order = np.nan_to_num(mean, nan=-np.inf)
    rank = 1 + (order[None, :] > order[:, None]).sum(axis=1)
    return {
        **{f"split{f}_test_{name}": split.copy() for f, split in enumerate(table.T)},
        f"mean_test_{name}": mean,
        f"std_test_{name}": deviation,
        f"rank_test_{name}": rank.astype(np.int32),
    }
