"""Model selection by cross-validation, from one pass over the rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Self, Unpack

import numpy as np
from scipy.special import log_softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import FitFailedWarning, NotFittedError
from sklearn.utils.validation import check_is_fitted

from streamgda.engine.folds import Folds, as_folds
from streamgda.engine.plan import decoded_once, distinct_labels, plan_rows
from streamgda.engine.reading import in_process
from streamgda.engine.reading import reading as read_slabs
from streamgda.errors import (
    InvalidDataError,
    InvalidParameterError,
    SingularCovarianceError,
    StreamGDAError,
)
from streamgda.estimators.base import Reading, names_in, warn
from streamgda.estimators.discriminant import GaussianDiscriminantAnalysis
from streamgda.models.calibration import (
    N_SUMS,
    SHARPNESS,
    best_temperature,
    likelihood_at,
    likelihoods,
)
from streamgda.models.covariance import NO_ROWS, Summary
from streamgda.models.gaussian import Gaussians
from streamgda.moments import ClassMoments, GroupedMoments
from streamgda.moments.covariance_types import structure_of
from streamgda.moments.feature_maps import Lifting
from streamgda.moments.grouped import each_held_out
from streamgda.moments.lifted import lifted
from streamgda.rows import Rows
from streamgda.rows.counting import Slab
from streamgda.rows.labels import find
from streamgda.rows.source import RowSource, placing
from streamgda.runtime import threads
from streamgda.runtime.memory import allowed_bytes
from streamgda.runtime.parameters import as_flag, as_integer, refuse, shown
from streamgda.storage.saved import Saved, State, arrays_within, restore

LIKELIHOOD, ACCURACY, LOG_LOSS = "joint_log_likelihood", "accuracy", "neg_log_loss"
SCORINGS = (ACCURACY, LOG_LOSS, LIKELIHOOD)

_MOST = (1 << 128) - 1  # seeds have up to 128 bits
_BLOCK_ELEMENTS = 1 << 19  # of rows and scores that a thread has in the cache
_FEWEST_ROWS = 1 << 10  # of a block and a split: roots of wide rows come from farther caches

# From common to separate covariances, the simpler first.
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


class GaussianDiscriminantCV(ClassifierMixin, Saved, BaseEstimator):
    """Choose the parameters of `GaussianDiscriminantAnalysis` by cross-validation.

    It corresponds to `sklearn.model_selection.GridSearchCV`, but one pass over the rows yields the
    moments of all folds, even if these are hundreds of groups; the candidates of each split follow
    from the sum of the moments of the other folds. With ``scoring="joint_log_likelihood"`` that is
    all: the mean of ln p(x, y) over the rows held out follows from their moments exactly. Otherwise
    one further pass scores all candidates, or several if their models exceed half of `max_memory`.

    If `cv` is an integer, the fold of a row is a hash of its number and of `random_state`: it does
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
        are never held out; or numbers (or masks) of the rows of each training and test set, which
        hold a row out once at most and otherwise learn from it. A splitter gets the labels, and the
        rows if they are in memory: those of scikit-learn need only their number.
    scoring : {"accuracy", "neg_log_loss", "joint_log_likelihood"}
        Score to maximise, averaged over the folds. If classes are not Gaussian, they choose
        different candidates: the log-loss prefers less confident models, and the likelihood those
        that fit the distribution best, even if others classify more rows correctly.
    random_state : int
        Non-negative seed of the folds, if `cv` is an integer.
    max_memory : int or str, optional
        Bytes, or a text such as ``"2GB"``, for rows in flight, moments and models.
    verbose : bool
        Show progress.
    calibrate : bool
        Choose the temperature of each candidate, too, which makes the classes of all rows held out
        most likely, in the pass that scores them; ``"neg_log_loss"`` then compares candidates at
        their temperatures. See `GaussianDiscriminantAnalysis.calibrate`.
    refit : bool
        With False no candidate is fitted to all rows, and the search does not predict.
    feature_map : RandomFeatures, Standardize, transformer, or list; optional
        Map of rows before all candidates, which share the pass over them.

    Attributes
    ----------
    best_estimator_ : GaussianDiscriminantAnalysis
        The best candidate, fitted to all rows; not with ``refit=False``.
    best_params_ : dict
        Its parameters.
    best_score_ : float
        Its mean score over the splits.
    best_index_ : int
        Its number in `cv_results_`.
    cv_results_ : dict of str to list or ndarray
        An entry for each candidate, as in `GridSearchCV`: ``params``, ``split0_test_score`` and so
        on, ``mean_test_score``, ``std_test_score`` and ``rank_test_score``; and the same for all
        scores that were computed, by their names; with `calibrate` also ``temperature``. NaN (with
        one `FitFailedWarning`) if covariances are singular, or if a split has no rows to compare.
    n_splits_ : int
        Number of splits.
    classes_, n_features_in_, feature_names_in_

    Notes
    -----
    Held-out rows of a class that the training set of their split does not have count as wrong, as
    in `GridSearchCV`; the log-loss and the likelihood, which would be infinite, leave them out. A
    candidate that cannot be fitted to a training set, such as one with a prior for a class that it
    lacks, scores NaN. Weights of rows count in training and in scores.
    `score` returns the accuracy, whatever `scoring` is. Saving a search saves its best estimator.

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
        max_memory: int | str | None = None,
        verbose: bool = False,
        calibrate: bool = False,
        refit: bool = True,
        feature_map: Any = None,
    ) -> None:
        self.feature_map = feature_map
        self.param_grid = param_grid
        self.cv = cv
        self.scoring = scoring
        self.random_state = random_state
        self.max_memory = max_memory
        self.verbose = verbose
        self.calibrate = calibrate
        self.refit = refit

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
            If the moments of the folds exceed `max_memory`.
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
        candidates = self._candidates()
        template = GaussianDiscriminantAnalysis()
        given = template._read(X, y, sample_weight, reading, reset=True)
        if isinstance(given.X, RowSource):
            groups = given.X.laid_out(groups, "groups")
        rows = in_process(given)
        rows, held = decoded_once(rows, allowed_bytes(self.max_memory))
        folds = as_folds(self.cv, self.random_state, groups, rows.X, rows.y)
        scores = _Scores(self, candidates, folds.beside(rows), folds, held)
        total = scores.accumulate()
        if total.n_features is None:
            raise InvalidDataError(NO_ROWS)
        if np.count_nonzero(total.class_count) < 2:
            raise InvalidDataError(
                "The number of classes has to be greater than one; got 1 class with rows. Give "
                "rows of at least one other class"
            )
        total._name_features(names_in(template))
        scores.score()
        return self._choose(scores, total, template)

    def _candidates(self) -> list[dict[str, Any]]:
        """Return all combinations of the grids; refuse invalid ones, and other parameters.

        Raises
        ------
        InvalidParameterError
            If they are not parameters, need another pass over the rows, or there are none.
        """
        from sklearn.model_selection import ParameterGrid  # noqa: PLC0415  (slow to import)

        as_integer("random_state", self.random_state, "an integer >= 0", 0, _MOST)
        as_flag("verbose", self.verbose)
        as_flag("calibrate", self.calibrate)
        if not isinstance(self.scoring, str) or self.scoring not in SCORINGS:
            expected = (
                f"one of {', '.join(SCORINGS)}; a search of scikit-learn takes any scores: "
                f"GridSearchCV(GaussianDiscriminantAnalysis(), param_grid, scoring=scoring)"
            )
            raise refuse("scoring", self.scoring, expected)
        as_flag("refit", self.refit)
        try:
            grid = list(GRID) if self.param_grid is None else self.param_grid
            candidates = list(ParameterGrid(grid))
            known = GaussianDiscriminantAnalysis().get_params()
            for params in candidates:
                if "feature_map" in params:
                    raise InvalidParameterError(
                        "param_grid has feature_map, and the candidates share one pass: pass "
                        "GaussianDiscriminantCV(feature_map=...), and compare searches"
                    )
                if other := params.keys() - known:
                    raise InvalidParameterError(
                        f"param_grid has {min(other)!r}, and the parameters of "
                        f"GaussianDiscriminantAnalysis are {', '.join(known)}; choose among them"
                    )
                candidate = GaussianDiscriminantAnalysis(**params)
                candidate._check_parameters()
                if needed := candidate._needs_all_rows():
                    raise InvalidParameterError(
                        f"{needed} needs all rows at once; expected 'oas' or a number"
                    )
        except InvalidParameterError:
            raise
        except (TypeError, ValueError) as error:
            raise InvalidParameterError(
                f"param_grid={shown(self.param_grid)}; expected a dict of parameters and lists of "
                f"values to try, or a list of such dicts: {error}"
            ) from None
        if self.calibrate and any("temperature" in params for params in candidates):
            raise InvalidParameterError(
                "param_grid has a temperature, and calibrate=True chooses one; give either"
            )
        if not candidates:
            raise InvalidParameterError("param_grid is empty; give at least one candidate")
        return candidates

    def _choose(
        self, scores: _Scores, total: ClassMoments, template: GaussianDiscriminantAnalysis
    ) -> Self:
        """Choose the best candidate, and fit it to the moments of all rows."""
        results, n_splits = scores.results(), scores.folds.n_folds
        mean = results["mean_test_score"]
        if np.isnan(mean).all():
            raise next(iter(scores.failures.values()), None) or InvalidDataError(
                f"no row can be held out of {n_splits} folds: at least two classes need rows in at "
                f"least two folds; give more rows, or a smaller cv"
            )
        if scores.failures:
            last = max(scores.failures)
            warn(
                f"{len(scores.failures)} of {len(mean)} candidates score nan in some split, where "
                f"they cannot be fitted. The last is {results['params'][last]}: "
                f"{scores.failures[last]}",
                FitFailedWarning,
            )
        equal = np.flatnonzero(mean == np.nanmax(mean))
        if self.param_grid is None:  # few rows classify many of our candidates equally well
            surest = results.get(f"mean_test_{LOG_LOSS}", mean)[equal]
            equal = equal[np.argsort(-surest, kind="stable")]
        best = int(equal[0])
        learnt: dict[str, Any] = {
            "cv_results_": results,
            "best_index_": best,
            "best_params_": dict(results["params"][best]),
            "best_score_": float(mean[best]),
            "n_splits_": n_splits,
            "n_features_in_": template.n_features_in_,
        }
        if self.refit:
            params = results["params"][best]
            if self.calibrate:
                params = params | {"temperature": float(results["temperature"][best])}
            chosen = GaussianDiscriminantAnalysis.from_moments(total, **params)
            learnt["best_estimator_"] = chosen
        if hasattr(template, "feature_names_in_"):
            learnt["feature_names_in_"] = template.feature_names_in_
        given = {name: value for name, value in vars(self).items() if not name.endswith("_")}
        self.__dict__ = given | learnt  # at once, whatever exception from outside arrives
        return self

    # --- the best candidate ----------------------------------------------------------------------

    @property
    def classes_(self) -> np.ndarray:
        """Class labels, sorted, shape (n_classes,)."""
        return self._best.classes_

    def predict(self, X: Any, **reading: Any) -> Any:
        """Return the most probable class of each row, by `best_estimator_`; see its method.

        Parameters
        ----------
        X, **reading : see `GaussianDiscriminantAnalysis.predict`
            Rows, and how they are read.

        Returns
        -------
        ndarray, shape (n_rows,)
            Results of that method.

        Raises
        ------
        InvalidDataError, InvalidParameterError
            As there.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from streamgda import GaussianDiscriminantCV
        >>> X, y = load_iris(return_X_y=True)
        >>> search = GaussianDiscriminantCV({"covariance_type": ["full", "tied"]}).fit(X, y)
        >>> search.predict(X[:2])
        array([0, 0])
        """
        return self._best.predict(X, **reading)

    def predict_proba(self, X: Any, **reading: Any) -> Any:
        """Return the probabilities of the classes, by `best_estimator_`; see its method.

        Parameters
        ----------
        X, **reading : see `GaussianDiscriminantAnalysis.predict`
            Rows, and how they are read.

        Returns
        -------
        ndarray, shape (n_rows, n_classes)
            Results of that method.

        Raises
        ------
        InvalidDataError, InvalidParameterError
            As there.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from streamgda import GaussianDiscriminantCV
        >>> X, y = load_iris(return_X_y=True)
        >>> search = GaussianDiscriminantCV({"covariance_type": ["full", "tied"]}).fit(X, y)
        >>> search.predict_proba(X[:2]).shape
        (2, 3)
        """
        return self._best.predict_proba(X, **reading)

    def predict_log_proba(self, X: Any, **reading: Any) -> Any:
        """Return the logarithms of probabilities, by `best_estimator_`; see its method.

        Parameters
        ----------
        X, **reading : see `GaussianDiscriminantAnalysis.predict`
            Rows, and how they are read.

        Returns
        -------
        ndarray, shape (n_rows, n_classes)
            Results of that method.

        Raises
        ------
        InvalidDataError, InvalidParameterError
            As there.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from streamgda import GaussianDiscriminantCV
        >>> X, y = load_iris(return_X_y=True)
        >>> search = GaussianDiscriminantCV({"covariance_type": ["full", "tied"]}).fit(X, y)
        >>> search.predict_log_proba(X[:2]).shape
        (2, 3)
        """
        return self._best.predict_log_proba(X, **reading)

    def decision_function(self, X: Any, **reading: Any) -> Any:
        """Return the discriminants of the classes, by `best_estimator_`; see its method.

        Parameters
        ----------
        X, **reading : see `GaussianDiscriminantAnalysis.predict`
            Rows, and how they are read.

        Returns
        -------
        ndarray, shape (n_rows, n_classes)
            Results of that method.

        Raises
        ------
        InvalidDataError, InvalidParameterError
            As there.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from streamgda import GaussianDiscriminantCV
        >>> X, y = load_iris(return_X_y=True)
        >>> search = GaussianDiscriminantCV({"covariance_type": ["full", "tied"]}).fit(X, y)
        >>> search.decision_function(X[:2]).shape
        (2, 3)
        """
        return self._best.decision_function(X, **reading)

    def score(self, X: Any, y: Any, sample_weight: Any = None, **reading: Any) -> Any:
        """Return the share of rows that `best_estimator_` predicts correctly.

        Parameters
        ----------
        X, y, sample_weight, **reading : see `GaussianDiscriminantAnalysis.score`
            Rows, and how they are read.

        Returns
        -------
        float
            Accuracy.

        Raises
        ------
        InvalidDataError, InvalidParameterError
            As there.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from streamgda import GaussianDiscriminantCV
        >>> X, y = load_iris(return_X_y=True)
        >>> search = GaussianDiscriminantCV({"covariance_type": ["full", "tied"]}).fit(X, y)
        >>> search.score(X, y)
        0.98
        """
        return self._best.score(X, y, sample_weight, **reading)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    @property
    def _best(self) -> Any:
        if hasattr(self, "cv_results_") and not hasattr(self, "best_estimator_"):
            raise NotFittedError(
                "this search was fitted with refit=False, and has no best_estimator_ to predict "
                "with; fit it with refit=True"
            )
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_

    def _state(self) -> State:
        return self._best._state()

    @classmethod
    def _from_state(cls, attributes: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Any:
        """Return the best estimator of a search that an earlier version saved."""
        best = attributes["best_estimator"], arrays_within(arrays, "best_estimator")
        return restore(GaussianDiscriminantAnalysis, *best)


class _Scores:
    """Scores of candidates in each split, from passes over the rows.

    Attributes
    ----------
    parts : dict of int to ClassMoments
        Moments of the rows of each fold that has any.
    scores : dict of str to ndarray, shape (n_candidates, n_splits)
        Scores by their names; NaN if there is none.
    tempered : ndarray, shape (n_candidates, n_splits, N_SUMS, n_sharpnesses); or None
        Sums of `streamgda.models.calibration.likelihoods`, if temperatures are chosen.
    failures : dict of int to StreamGDAError
        The last error of each candidate that could not be fitted.
    """

    def __init__(
        self,
        search: GaussianDiscriminantCV,
        candidates: list[dict[str, Any]],
        rows: Rows,
        folds: Folds,
        held: int,
    ) -> None:
        self.search, self.candidates = search, candidates
        self.rows, self.folds = rows, folds
        kinds = {GaussianDiscriminantAnalysis(**params)._covariance_type() for params in candidates}
        matrix = bool(kinds & {"full", "tied"})
        self.lifting, self.n_features = Lifting.of(search.feature_map), int(rows.X.shape[1])
        self.lifted_bytes = 0
        if self.lifting is not None:
            self.lifting = self.lifting.bound(self.n_features)
            self.n_features = self.lifting.n_out
            self.lifted_bytes = threads.n_threads() * self.lifting.nbytes
        self.kept = GroupedMoments("full" if matrix else "diag", feature_map=self.lifting)
        self.parts: dict[int, ClassMoments] = {}
        self.allowed = allowed_bytes(search.max_memory)
        with placing(*rows.sources):
            self.n_classes = distinct_labels(rows.y, rows.rule).size
        self.n_parts = folds.n_folds + 1  # with the rows that are never held out
        sums = max(5, 3 + self.n_parts.bit_length())  # one for each halving of the parts
        state = self.kept._bytes(self.n_classes, self.n_features, 1)[0]
        self.held = held + (self.n_parts + sums) * state
        shape = len(candidates), folds.n_folds
        self.scores = {LIKELIHOOD: np.full(shape, np.nan)}
        self.tempered = None
        if search.calibrate:
            self.tempered = np.zeros((*shape, N_SUMS, SHARPNESS.size))
        self.failures: dict[int, StreamGDAError] = {}

    def _read(self, held: int, what: str) -> AbstractContextManager[Iterator[Slab]]:
        held += self.lifted_bytes
        slab_rows = plan_rows(self.rows, self.allowed, held, copies=1)
        return read_slabs(self.rows, slab_rows, what, self.search.verbose)

    def accumulate(self) -> ClassMoments:
        """Add all rows to the moments of their folds, in one pass, and return those of all rows."""
        moments = self.kept.copy()
        adding = moments._bytes(self.n_classes, self.n_features, self.n_parts)[1]
        with self._read(max(adding, self.held), "accumulating") as slabs:
            for slab in slabs:
                moments._update(slab, self.rows.rule)
        self.parts, self.classes = {fold: moments[fold] for fold in moments}, moments.classes
        return moments.total()

    def score(self) -> None:
        """Score the candidates in all splits, with passes over the rows if needed."""
        if self.search.scoring == LIKELIHOOD and self.tempered is None:
            for _ in self._models_of(range(len(self.candidates))):
                pass  # their likelihoods are known
            return
        # Weight of right rows, log-likelihood, weight, and weight of classes that were not learned.
        sums = np.zeros((4, len(self.candidates), self.folds.n_folds))
        for numbers in self._passes():
            models = dict(self._models_of(numbers))
            if models:
                self._score_rows(models, sums)
        right, log_likelihood, weight, never = sums
        with np.errstate(invalid="ignore"):  # nothing was scored of some splits
            self.scores[ACCURACY] = right / (weight + never)
            self.scores[LOG_LOSS] = log_likelihood / weight
            if self.tempered is not None:
                self._temper(weight)

    def _temper(self, weight: np.ndarray) -> None:
        """Choose the temperatures, and compute the log-losses at these."""
        assert self.tempered is not None
        self.temperatures = np.array([best_temperature(sums.sum(axis=0)) for sums in self.tempered])
        for c, temperature in enumerate(self.temperatures):
            found = [likelihood_at(sums, temperature) for sums in self.tempered[c]]
            self.scores[LOG_LOSS][c] = found / weight[c]

    def _passes(self) -> Iterator[range]:
        """Yield the numbers of the candidates whose models fit in memory together."""
        room = left = self.allowed // 2 - self.held
        first = 0
        for number, params in enumerate(self.candidates):
            kind = params.get("covariance_type", "full")
            model = structure_of(kind).model_bytes(self.n_classes, self.n_features)
            needed = 2 * self.folds.n_folds * model  # with copies for scoring
            if number > first and needed > left:
                yield range(first, number)
                first, left = number, room
            left -= needed
        yield range(first, len(self.candidates))

    def _models_of(self, numbers: Sequence[int]) -> Iterator[tuple[int, dict[int, Gaussians]]]:
        """Yield each split and the models of candidates, whose likelihoods are then known."""
        last, kept = self.folds.n_folds, self.kept.covariance_type
        never = ClassMoments(kept, feature_map=self.lifting)
        folds = {fold: moments for fold, moments in self.parts.items() if fold < last}
        for s, others in each_held_out(folds, self.parts.get(last, never)):
            if (others.class_count > 0).sum() < 2:
                continue
            held_out, models = self.parts[s], {}
            train = others * 1.0 if others.exact else others  # centred once, not for each candidate
            for c in numbers:
                given = {**self.candidates[c], "feature_map": self.search.feature_map}
                candidate = GaussianDiscriminantAnalysis(**given)
                candidate.moments_, candidate._reported = train, True
                try:
                    model = candidate._compute_model()[0]  # of mapped rows, once for all
                    candidate._check_fit(model)
                except (InvalidDataError, InvalidParameterError, SingularCovarianceError) as error:
                    self.failures[c] = error
                    continue
                total, weight = model.joint_log_likelihood(Summary.of(held_out))
                self.scores[LIKELIHOOD][c, s] = total / weight if weight else np.nan
                models[c] = model
            if models:
                yield s, models

    def _score_rows(self, models: dict[int, dict[int, Gaussians]], sums: np.ndarray) -> None:
        """Add the scores of the rows held out of each split by its models, from one pass.

        Every block of rows is scored by all models while it is in the cache.
        """
        every = [model for split in models.values() for model in split.values()]
        held = sum(model.nbytes for model in every)
        step = _BLOCK_ELEMENTS // (self.classes.size + self.n_features)
        step = max(step, _FEWEST_ROWS * (1 if self.lifting else self.folds.n_folds))
        with self._read(self.held + held, "scoring") as slabs:
            for slab in slabs:
                arrays = self._counted(slab)
                blocks = [slice(at, at + step) for at in range(0, len(arrays[0]), step)]
                calls = ((models, sums.shape, *(array[b] for array in arrays)) for b in blocks)
                for found, tempered in threads.run_serial_blas(self._scores_of, calls):
                    sums += found
                    if tempered is not None:
                        self.tempered = self.tempered + tempered

    def _counted(self, slab: Slab) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return rows, codes of their classes, folds and weights."""
        X, labels, weights, numbers, _ = self.rows.rule.counted(slab, self.classes)
        at: Any = slice(None) if numbers is None else numbers
        codes = find(labels, self.classes)
        weights = weights if weights.size else np.ones(codes.size)
        return X, codes, slab.groups[at], weights

    def _scores_of(
        self,
        models: dict[int, dict[int, Gaussians]],
        shape: tuple[int, ...],
        X: np.ndarray,
        codes: np.ndarray,
        folds: np.ndarray,
        weights: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the sums of the scores of a block of rows, and what is tempered."""
        sums = np.zeros(shape)
        tempered = None if self.tempered is None else np.zeros_like(self.tempered)
        for s, split in models.items():
            some = next(iter(split.values()))
            truths = find(self.classes, some.classes)
            truths[~np.isin(truths, some.alive)] = -1  # classes without rows to learn from
            truths = np.append(truths, -1)[codes]
            held = (folds == s) & (codes >= 0)
            sums[3, [*split], s] = weights[held & (truths < 0)].sum()
            rows = np.flatnonzero(held & (truths >= 0))
            if not rows.size:
                continue
            held_out = np.asarray(lifted(X[rows], self.lifting))
            truth, w = truths[rows], weights[rows]
            for c, model in split.items():
                temperature = self.candidates[c].get("temperature", 1.0)
                own = None if tempered is None else tempered[c, s]
                found = _held_out(model, held_out, truth, w, temperature, own)
                sums[:3, c, s] = *found, w.sum()
        return sums, tempered

    def results(self) -> dict[str, Any]:
        """Return scores in the form of `GridSearchCV`."""
        results: dict[str, Any] = {"params": self.candidates}
        if self.tempered is not None:
            results["temperature"] = self.temperatures
        for name, table in {"score": self.scores[self.search.scoring], **self.scores}.items():
            results |= compared(name, table)
        return results


def _held_out(
    model: Gaussians,
    X: np.ndarray,
    truth: np.ndarray,
    weights: np.ndarray,
    temperature: float,
    tempered: np.ndarray | None,
) -> tuple[float, float]:
    """Return the weight of rows whose class is predicted, and the log-likelihood of the classes.

    The logarithms are clipped as `sklearn.metrics.log_loss` clips them: a single impossible row
    leaves them finite. `tempered` is added to, see `streamgda.models.calibration.likelihoods`.
    """
    scores = model._relative(model._rows(X, 0))
    if tempered is not None:
        tempered += likelihoods(scores.copy(), truth, weights)
    logs = log_softmax(scores / temperature, axis=0)[truth, np.arange(truth.size)]
    np.maximum(logs, np.log(np.finfo(np.float64).eps), out=logs)
    return float(weights @ (scores.argmax(axis=0) == truth)), float(weights @ logs)


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
