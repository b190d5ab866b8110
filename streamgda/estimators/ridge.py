"""Ridge regression and classification, and ordinary least squares, from moments."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Self, Unpack

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.validation import check_is_fitted

from streamgda import engine
from streamgda.engine.folds import each_split, with_folds
from streamgda.engine.reading import in_process
from streamgda.errors import (
    CollinearityWarning,
    InvalidDataError,
    InvalidParameterError,
    UnsupportedError,
    as_attribute_error,
)
from streamgda.estimators.base import (
    MomentEstimator,
    Reading,
    in_turn,
    joined_maps,
    validated_rows,
    warn,
)
from streamgda.estimators.classifier import MomentClassifier
from streamgda.estimators.selection import compared
from streamgda.models.covariance import NO_ROWS
from streamgda.models.ridge import Columns, RidgeModel
from streamgda.moments import ClassMoments, GroupedMoments
from streamgda.moments.feature_maps import Lifting
from streamgda.rows import Rows, targets_of
from streamgda.rows.names import feature_numbers
from streamgda.rows.source import as_source
from streamgda.runtime.parameters import as_flag, as_numbers, check_type, refuse, shown
from streamgda.storage.format import State, check_array, check_whole
from streamgda.storage.saved import synchronized


class PenalisedLeastSquares(MomentEstimator):
    """Base of the ridge estimators, which choose the penalty and fit coefficients to moments.

    With `alphas`, `_found` has a row for each penalty, with its scores in the folds beside it.
    """

    n_iter_ = 1  # There is one step of refinement.

    def __init__(
        self,
        alpha: Any = 1.0,
        *,
        fit_intercept: bool = True,
        copy_X: bool = True,
        max_iter: int | None = None,
        tol: float = 1e-4,
        solver: str = "auto",
        positive: bool = False,
        random_state: int | None = None,
        alphas: Any = None,
        cv: Any = 5,
        feature_map: Any = None,
    ) -> None:
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.copy_X = copy_X
        self.max_iter = max_iter
        self.tol = tol
        self.solver = solver
        self.positive = positive
        self.random_state = random_state
        self.alphas = alphas
        self.cv = cv
        self.feature_map = feature_map

    def _covariance_type(self) -> str:
        return "full"

    def _check_parameters(self) -> None:
        as_flag("fit_intercept", self.fit_intercept)
        if as_flag("positive", self.positive):
            expected = "False: coefficients of one sign need sklearn.linear_model.Ridge"
            raise refuse("positive", True, expected)
        for name, given in (("alpha", self.alpha), ("alphas", self.alphas)):
            if given is not None or name == "alpha":
                expected = "a number >= 0, or a list of numbers >= 0"
                values = as_numbers(name, given, expected, finite=True)
                if values.ndim > 1 or not values.size or (values < 0).any():
                    raise refuse(name, given, expected)

    # --- learning -----------------------------------------------------------------------------

    @in_turn
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        groups: Any = None,
        **reading: Unpack[Reading],
    ) -> Self:
        """Fit the coefficients to rows and their targets or labels, in one pass over them.

        Parameters
        ----------
        X, y, sample_weight : see `GaussianNB.fit`
            Rows, targets of shape (n_rows,) or (n_rows, n_targets), or labels for a classifier, and
            weights of rows. `Ridge` multiplies in float64.
        groups : array-like, shape (n_rows,), optional
            Groups of the rows, for `alphas` and a splitter `cv` that uses them.
        **reading
            How rows are read; see `GaussianNB.fit`. `nodata` and `on_invalid` are of targets, too.

        Returns
        -------
        estimator
            The estimator itself.

        Raises
        ------
        InvalidDataError, InvalidParameterError
            For rows, targets, weights or parameters that cannot be used.

        Examples
        --------
        >>> from streamgda import Ridge
        >>> ridge = Ridge(alpha=0).fit([[1.0], [2.0], [4.0]], [3.0, 5.0, 9.0])
        >>> ridge.coef_, round(float(ridge.intercept_), 12)
        (array([2.]), 1.0)
        """
        if self.alphas is None:
            if groups is not None:
                raise InvalidParameterError("groups were given, but no alphas to choose from")
            return super().fit(X, y, sample_weight, **reading)
        new = self._unfitted()
        new._check_parameters()
        rows = new._read(X, y, sample_weight, reading, reset=True)
        rows = in_process(replace(new._summed(rows), groups=groups))
        rows, n_folds = with_folds(self.cv, self.random_state or 0, rows)
        moments: Any = GroupedMoments(self._covariance_type(), feature_map=new._maps())
        moments = new._added(moments, rows, max_memory=reading.get("max_memory"))
        new._choose(moments, never=n_folds)
        new._check_fit(new.model_)
        self.__dict__ = new.__dict__
        return self

    def _choose(
        self,
        moments: GroupedMoments,
        never: Any = None,
        columns_of: Callable[[ClassMoments], ClassMoments] = lambda moments: moments,
    ) -> None:
        """Keep the scores of the penalties, each group held out in turn, and the total moments.

        Parameters
        ----------
        moments : GroupedMoments
        never : label, optional
            Group that is never held out.
        columns_of : callable
            Returns moments whose columns are features and targets.
        """
        if not len(moments):
            raise InvalidDataError(NO_ROWS)
        if len(moments) < 2:
            raise InvalidDataError(
                f"alphas are compared by rows that are held out, and {len(moments)} fold has rows; "
                f"give rows of at least two folds or groups"
            )
        alphas = np.asarray(self.alphas, np.float64)
        scores = [alphas]
        for _, others, own in each_split(moments, never):
            train = self._columns(columns_of(others))
            held_out = self._columns(columns_of(own), weighted=False)
            models = [RidgeModel.fit(train, a, bool(self.fit_intercept)) for a in alphas]
            errors = [model.squared_errors(held_out).mean() for model in models]
            scores.append(-np.array(errors) / held_out.weight)
        self.moments_ = columns_of(moments.total())
        self._found = np.column_stack(scores)

    def _needs_all_rows(self) -> str | None:
        return None if self.alphas is None else "a choice among alphas"

    # --- the model ----------------------------------------------------------------------------

    def _columns(self, moments: ClassMoments, weighted: bool = True) -> Columns:
        """Return the moments of features and targets, by default with weights of classes."""
        raise NotImplementedError

    def _make_model(self, moments: ClassMoments, found: Any) -> RidgeModel:
        classes = moments.classes if isinstance(self, ClassifierMixin) else None
        columns = self._columns(moments)
        return RidgeModel.fit(columns, self.alpha_, bool(self.fit_intercept), classes)

    def _check_fit(self, model: RidgeModel) -> None:
        if model.n_dropped:
            warn(
                f"{model.n_dropped} of {model.n_features} directions of the features do not vary "
                f"to rounding, as features are collinear or there are few rows: the coefficients "
                f"are those of smallest norm. Pass alpha > 0",
                CollinearityWarning,
            )

    @property
    def alpha_(self) -> Any:
        """The penalty of the fit: `alpha`, or the one that was chosen among `alphas`."""
        check_is_fitted(self)
        if self.alphas is None:
            return self.alpha
        scores = self._scores_of_alphas()
        return float(scores[scores[:, 1:].mean(axis=1).argmax(), 0])

    @property
    def cv_results_(self) -> dict[str, Any]:
        """Scores of the `alphas` in each split, as in `GridSearchCV`, if they were compared."""
        check_is_fitted(self)
        if self.alphas is None:
            raise AttributeError("there are no cv_results_ without alphas to choose from")
        alphas, scores = np.split(self._scores_of_alphas(), [1], axis=1)
        alphas = alphas[:, 0]
        params = [{"alpha": alpha} for alpha in alphas.tolist()]
        return {"param_alpha": alphas, "params": params, **compared("score", scores)}

    def _scores_of_alphas(self) -> np.ndarray:
        found = self._found
        if found is None or not np.array_equal(found[:, 0], self.alphas):
            error = UnsupportedError("the alphas were not compared: call fit with all rows")
            raise as_attribute_error(error)
        return np.asarray(found)

    def _checked_found(self, found: np.ndarray) -> np.ndarray:
        check_array("found", found, (np.size(self.alphas), found.shape[1]), "f8")
        return found


class Ridge(RegressorMixin, PenalisedLeastSquares):
    r"""Linear regression with a penalty on the squared coefficients, from one pass over the rows.

    It corresponds to `sklearn.linear_model.Ridge`, and with ``alpha=0`` to ordinary least squares.
    The state is the count, the mean and the scatter of features and targets side by side, about
    their means: rows may come in parts, be forgotten, and be merged, and offsets of the rows cost
    no digits. With the scatter :math:`S` the coefficients solve

    .. math:: (S_{xx} + \alpha I)\, w = S_{xy}

    by Cholesky's factors of the matrix scaled to unit diagonal, and one step of refinement.

    Parameters
    ----------
    alpha : float or array-like, shape (n_targets,)
        Non-negative penalty, or one for each of several targets.
    fit_intercept : bool
        Without it the fit goes through the origin.
    copy_X, max_iter, tol, solver : as in scikit-learn
        They make no difference: all solvers find the same coefficients.
    positive : False
        Only False is accepted: coefficients of one sign are not supported.
    random_state : int, optional
        Seed of the folds, if `cv` is an integer.
    alphas : list of float, optional
        Penalties among which `fit` chooses the one with the smallest mean squared error of rows
        held out, averaged over the splits: the scores are those of `GridSearchCV` with
        ``scoring="neg_mean_squared_error"``, but one pass yields the moments of all folds, from
        which they follow exactly. Weights of rows count in fits and in errors.
    cv : int, splitter, array of int or iterable of (train, test)
        Splits of the rows for `alphas`; see `GaussianDiscriminantCV`.
    feature_map : RandomFeatures, Standardize, transformer, or list; optional
        Map that is applied to rows before the model; see `GaussianDiscriminantAnalysis`.

    Attributes
    ----------
    coef_ : ndarray, shape (n_features,) or (n_targets, n_features)
    intercept_ : float, or ndarray of shape (n_targets,)
    alpha_ : float
        The penalty that was used.
    n_iter_ : int
    cv_results_ : dict
        Scores of the `alphas`.
    moments_ : ClassMoments
        Moments of features and targets.
    n_features_in_, feature_names_in_

    Notes
    -----
    Moments square the condition number :math:`\kappa` of the centred features scaled to unit
    variance: of about 16 digits, :math:`2 \log_{10} \kappa` are lost. Directions that do not vary
    to rounding are left out, with a warning.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from streamgda import Ridge
    >>> X, y = load_diabetes(return_X_y=True)
    >>> ridge = Ridge(alphas=[0.01, 0.1, 1.0]).fit(X, y)
    >>> ridge.alpha_, round(ridge.score(X, y), 3)
    (0.01, 0.517)
    """

    _targets: int | None = None  # The number of targets; None for one that is not a column.

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    @property
    def _n_targets(self) -> int:  # type: ignore[override]
        return self._targets or 1

    # --- learning -----------------------------------------------------------------------------

    def _read(self, X: Any, y: Any, weight: Any, reading: Any = (), *, reset: bool = False) -> Rows:
        given = dict(reading)
        given.pop("max_memory", None)
        if given.get("unlabelled") is not None:
            raise refuse("unlabelled", given["unlabelled"], "None: targets are not labels")
        rows = Rows.of(X, y, weight, **given)
        if rows.y is None:
            raise InvalidParameterError(
                f"{type(self).__name__} requires y to be passed, but the target y is None; give "
                f"one target, or several, for each row"
            )
        X = validated_rows(self, rows.X, reset=reset)
        targets = targets_of(as_source(X), rows.y)
        n_targets = math.prod(targets.shape[1:]) if len(targets.shape) > 1 else None
        if reset:
            self._targets = n_targets
        elif (n_targets or 1) != self._n_targets:
            raise InvalidDataError(
                f"y has {n_targets or 1} targets, but there were {self._n_targets} before"
            )
        return replace(rows, X=X, y=targets)

    def _summed(self, rows: Rows) -> Rows:
        return rows if rows.y is None else engine.with_targets(rows)

    def _maps(self) -> Lifting | None:
        lifting = super()._maps()
        return lifting and replace(lifting, n_targets=self._n_targets)

    def _added(self, moments: ClassMoments, rows: Rows, **options: Any) -> ClassMoments:
        try:
            return super()._added(moments, rows, **options)
        except InvalidDataError as error:
            if error.column is None or error.column < self.n_features_in_:
                raise
            raise InvalidDataError(
                f"Input y contains NaN, infinity or a masked value: y[{error.row}]. Every target "
                f"must be finite; on_invalid='skip' leaves such rows out",
                *("y", error.row),
            ) from None

    def partial_fit(  # type: ignore[override]  # targets are not classes
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        half_life: float | None = None,
        **reading: Unpack[Reading],
    ) -> Self:
        """Add rows: the result is that of `fit` on all of them, to rounding, in any batches.

        Parameters
        ----------
        X, y, sample_weight, half_life, **reading : see `fit` and `GaussianNB.partial_fit`
            Rows, targets and weights, and how rows are read.

        Returns
        -------
        Ridge
            The estimator itself.

        Raises
        ------
        InvalidDataError, InvalidParameterError
            See `fit`; the estimator is then unchanged.

        Examples
        --------
        >>> from streamgda import Ridge
        >>> ridge = Ridge(alpha=0).partial_fit([[1.0], [2.0]], [3.0, 5.0])
        >>> ridge.partial_fit([[4.0]], [9.0]).coef_
        array([2.])
        """
        return super().partial_fit(X, y, None, sample_weight, half_life=half_life, **reading)

    @classmethod
    @synchronized
    def from_moments(  # type: ignore[override]
        cls, moments: Any, *, target: Any, **params: Any
    ) -> Self:
        """Return the regression of some columns on all others, from moments, without reading rows.

        Parameters
        ----------
        moments : ClassMoments or GroupedMoments
            Moments of features and targets with covariances, of any classes, which are joined.
            `alphas` are compared by the groups of `GroupedMoments`, each held out in turn.
        target : str or int, or list of these
            Columns of the targets, by name or by index. Behind a `feature_map`, such as those of
            another `Ridge`, they are all the targets that it was fitted to.
        **params
            Parameters of the estimator.

        Returns
        -------
        Ridge
            The fitted estimator.

        Raises
        ------
        TypeError
            For anything but moments.
        InvalidParameterError
            For targets that are not columns, and parameters out of range.
        InvalidDataError, MergeError
            For moments without rows, or without covariances between columns.

        Examples
        --------
        >>> import pandas as pd
        >>> from streamgda import Ridge, accumulate
        >>> frame = pd.DataFrame({"area": [1.0, 2.0, 4.0], "rooms": [1, 3, 2], "price": [3, 5, 9]})
        >>> moments = accumulate(frame, [0, 0, 0])
        >>> Ridge.from_moments(moments, target="price", alpha=0).coef_.round(9)
        array([2., 0.])
        >>> Ridge.from_moments(moments, target="rooms").feature_names_in_
        array(['area', 'price'], dtype=object)
        """
        kinds = ClassMoments | GroupedMoments
        check_type("moments", moments, kinds, "ClassMoments or GroupedMoments")
        estimator = cls(**params)
        estimator._check_parameters()
        if moments.n_features is None:
            raise InvalidDataError(NO_ROWS)
        width, lifting = moments.n_features, moments._lifting
        targets = np.atleast_1d(feature_numbers(target, moments.feature_names, width, "target"))
        features = np.setdiff1d(np.arange(width), targets)
        if not 0 < targets.size == width - features.size < width:
            expected = f"the name or the number of a column, 0 to {width - 1}, or a list of them"
            raise refuse("target", target, f"{expected}, fewer than all {width} columns")
        if lifting and (targets.size != lifting.n_targets or features[-1] >= features.size):
            raise InvalidParameterError(
                f"target={shown(target)} of moments of rows behind {lifting}; give the moments of "
                f"a Ridge with a feature_map, and all of its targets"
            )
        estimator._targets = None if targets.size == 1 else targets.size
        if estimator.feature_map is None:
            estimator.feature_map = moments.feature_map
        joined_maps(estimator._maps(), moments)

        def columns_of(part: ClassMoments) -> ClassMoments:
            ordered = part.select_features(np.append(features, targets))
            ordered._lifting = lifting
            return ordered.reduce("tied")._in_one_class()

        grouped = isinstance(moments, GroupedMoments)
        if grouped and estimator.alphas is not None:
            estimator._choose(moments, columns_of=columns_of)
        estimator._adopt(columns_of(moments.total() if grouped else moments))
        estimator._check_fit(estimator.model_)
        return estimator

    def _columns(self, moments: ClassMoments, weighted: bool = True) -> Columns:
        return Columns.of(moments, self._n_targets)

    # --- answers ------------------------------------------------------------------------------

    @property
    def coef_(self) -> np.ndarray:
        """Coefficients, shape (n_features,) or (n_targets, n_features)."""
        values = self.model_.coefficients
        return np.asarray(values if self._n_targets > 1 else values[0])

    @property
    def intercept_(self) -> Any:
        """Predictions at the origin, a number or, of targets in columns, shape (n_targets,)."""
        values = self.model_.intercepts
        if not self.fit_intercept:
            return 0.0
        return values[0] if self._targets is None else values

    def predict(self, X: Any, **reading: Unpack[Reading]) -> Any:
        """Return the prediction of the target, or of the targets, of each row.

        Parameters
        ----------
        X, **reading : see `GaussianNB.predict`
            Rows, how they are read, and where results are written.

        Returns
        -------
        ndarray, shape (n_rows,) or (n_rows, n_targets); or `out`; or a lazy dask array
            Predictions.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        InvalidDataError, InvalidParameterError
            For rows, an `out` or a `fill` that cannot be used.

        Examples
        --------
        >>> from streamgda import Ridge
        >>> Ridge(alpha=0).fit([[1.0], [2.0], [4.0]], [3.0, 5.0, 9.0]).predict([[3.0]])
        array([7.])
        """
        check_is_fitted(self)
        if self._n_targets == 1:
            return self._map("predict", "target", X, reading)
        return self._map("predict", "joint", X, reading, columns=self._n_targets)

    def score(self, X: Any, y: Any, sample_weight: Any = None, **reading: Unpack[Reading]) -> float:
        """Return the coefficient of determination of the predictions.

        That of several targets is the mean, as in scikit-learn.

        Parameters
        ----------
        X, y, sample_weight, **reading : see `fit` and `predict`
            Rows, targets and weights, and how rows are read.

        Returns
        -------
        float
            R squared; one is best. NaN, with a warning, for a single row.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        ValueError
            For rows, targets, weights or options that cannot be used.

        Examples
        --------
        >>> from streamgda import Ridge
        >>> X, y = [[1.0], [2.0], [4.0]], [3.0, 5.0, 9.0]
        >>> round(Ridge(alpha=0).fit(X, y).score(X, y), 9)
        1.0
        """
        predicted = as_source(self.predict(X, **reading)).whole()
        return r2_score(as_source(y, "y").whole(), predicted, sample_weight=sample_weight)

    # --- saving -------------------------------------------------------------------------------

    def _state(self) -> State:
        return super()._state() | {"targets": self._targets}

    def _restore(self, state: Mapping[str, Any]) -> None:
        if state["targets"] is not None:
            self._targets = check_whole("targets", state["targets"], 1)


class RidgeClassifier(ClassifierMixin, PenalisedLeastSquares):
    r"""Ridge regression of the classes, coded as 1 and -1, from one pass over the rows.

    It corresponds to `sklearn.linear_model.RidgeClassifier`: a row gets the class with the largest
    prediction. The state is that of linear discriminants, the count and the mean of each class and
    the scatter within classes, from which the products of rows and codes follow.

    Parameters
    ----------
    alpha : float
        Non-negative penalty.
    fit_intercept : bool
        Without it the fit goes through the origin.
    copy_X, max_iter, tol : as in scikit-learn
        They make no difference.
    class_weight : dict or "balanced", optional
        Factors of the weights of the rows of each class; those of "balanced" make the weights of
        all classes the same, where scikit-learn's count rows whatever their weights. They need a
        scatter for each class rather than one for all.
    solver, positive, random_state, alphas, cv : see `Ridge`
        The errors by which `alphas` are compared are those of the codes, as in
        `RidgeClassifierCV`: the accuracy of labels does not follow from moments.
    feature_map : RandomFeatures, Standardize, transformer, or list; optional
        Map that is applied to rows before the model; see `GaussianDiscriminantAnalysis`.

    Attributes
    ----------
    classes_ : ndarray, shape (n_classes,)
    coef_ : ndarray, shape (n_classes, n_features), or (1, n_features) for two classes
    intercept_ : ndarray, shape (n_classes,), or (1,)
    alpha_, n_iter_, cv_results_, moments_, n_features_in_, feature_names_in_

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from streamgda import RidgeClassifier, accumulate
    >>> X, y = load_iris(return_X_y=True)
    >>> RidgeClassifier(alphas=[0.1, 1.0, 10.0]).fit(X, y).score(X, y)
    0.8533333333333334
    >>> RidgeClassifier.from_moments(accumulate(X, y), class_weight={1: 2.0}).coef_.shape
    (3, 4)
    """

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        fit_intercept: bool = True,
        copy_X: bool = True,
        max_iter: int | None = None,
        tol: float = 1e-4,
        class_weight: Any = None,
        solver: str = "auto",
        positive: bool = False,
        random_state: int | None = None,
        alphas: Any = None,
        cv: Any = 5,
        feature_map: Any = None,
    ) -> None:
        given: Any = {"copy_X": copy_X, "max_iter": max_iter, "tol": tol, "solver": solver}
        given |= {"positive": positive, "random_state": random_state, "alphas": alphas, "cv": cv}
        given["feature_map"] = feature_map
        super().__init__(alpha, fit_intercept=fit_intercept, **given)
        self.class_weight = class_weight

    def _covariance_type(self) -> str:
        return "tied" if self.class_weight is None else "full"

    def _columns(self, moments: ClassMoments, weighted: bool = True) -> Columns:
        if not weighted or self.class_weight is None:
            return Columns.of_classes(moments)
        seen = moments.class_count > 0
        classes, factors = moments.classes[seen], np.zeros(seen.size)
        factors[seen] = compute_class_weight(self.class_weight, classes=classes, y=classes)
        if isinstance(self.class_weight, str):  # balanced: `y` has each class once
            count = moments.class_count[seen]
            factors[seen] = count.sum() / (count.size * count)
        if (factors < 0).any():
            raise refuse("class_weight", self.class_weight, "numbers >= 0")
        return Columns.of_classes(moments, factors)

    def _check_fit(self, model: RidgeModel) -> None:
        MomentClassifier._check_fit(self, model)
        super()._check_fit(model)

    _least_classes = 2
    classes_ = MomentClassifier.classes_
    predict = MomentClassifier.predict
    score = MomentClassifier.score

    @property
    def coef_(self) -> np.ndarray:
        """Coefficients, shape (n_classes, n_features), or (1, n_features) for two classes."""
        return np.asarray(self.model_.coefficients[-self._n_functions :])

    @property
    def intercept_(self) -> Any:
        """Scores at the origin, shape (n_classes,), or (1,) for two classes."""
        return self.model_.intercepts[-self._n_functions :] if self.fit_intercept else 0.0

    @property
    def _n_functions(self) -> int:
        return 1 if self.classes_.size == 2 else self.classes_.size

    def decision_function(self, X: Any, **reading: Unpack[Reading]) -> Any:
        """Return the predicted code of each class, or of the second of two.

        Parameters
        ----------
        X, **reading : see `predict`
            Rows.

        Returns
        -------
        ndarray, shape (n_rows, n_classes), or (n_rows,) for two classes; or as for `predict`
            Scores.

        Raises
        ------
        InvalidDataError, InvalidParameterError
            For rows, an `out` or a `fill` that cannot be used.

        Examples
        --------
        >>> from streamgda import RidgeClassifier
        >>> model = RidgeClassifier(0.0).fit([[1.0], [3.0], [6.0], [8.0]], [0, 0, 1, 1])
        >>> model.decision_function([[4.5], [7.0]]).round(3)
        array([0.   , 0.862])
        """
        name, scored = "decision_function", self._scored()
        classes = scored.model.classes
        if classes.size == 2:
            return self._map(name, "target", X, reading, scored=scored)
        columns = {"columns": classes.size, "classes": classes}
        return self._map(name, "joint", X, reading, scored=scored, **columns)
