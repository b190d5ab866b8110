"""Ridge regression and classification, and ordinary least squares, from moments."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self, Unpack

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.validation import check_is_fitted

from streamgda import engine
from streamgda.errors import (
    CollinearityWarning,
    InvalidDataError,
    InvalidParameterError,
)
from streamgda.estimators.base import (
    Reading,
    joined_maps,
    validated_rows,
    warn,
)
from streamgda.estimators.classifier import MomentClassifier
from streamgda.estimators.selection import Folded, compared
from streamgda.models.covariance import NO_ROWS
from streamgda.models.ridge import Columns, RidgeModel
from streamgda.moments import ClassMoments
from streamgda.moments.feature_maps import Lifting
from streamgda.rows import Rows, targets_of
from streamgda.rows.names import feature_numbers
from streamgda.rows.source import as_source
from streamgda.runtime.parameters import as_flag, as_numbers, check_type, shown, unexpected
from streamgda.storage.format import State, check_whole
from streamgda.storage.saved import synchronized


class PenalisedLeastSquares(Folded):
    """Base of the ridge estimators, which choose the penalty and fit coefficients to moments."""

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
            raise unexpected("positive", True, expected)
        for name, given in (("alpha", self.alpha), ("alphas", self.alphas)):
            if given is not None or name == "alpha":
                expected = "a number >= 0, or a list of numbers >= 0"
                values = as_numbers(name, given, expected, finite=True)
                if values.ndim > 1 or not values.size or (values < 0).any():
                    raise unexpected(name, given, expected)

    # --- learning -----------------------------------------------------------------------------

    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, **reading: Unpack[Reading]
    ) -> Self:
        """Fit the coefficients to rows and their targets or labels, in one pass over them.

        Parameters
        ----------
        X, y, sample_weight : see `GaussianNB.fit`
            Rows, targets of shape (n_rows,) or (n_rows, n_targets), or labels for a classifier, and
            weights of rows. `Ridge` multiplies in float64.
        **reading
            How rows are read; see `GaussianNB.fit`. `nodata` and `on_invalid` are of targets, too.
            With `alphas` there may be `groups` of the rows: see `cv`.

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
        return super().fit(X, y, sample_weight, **reading)

    def _chooses(self) -> bool:
        return self.alphas is not None

    # --- the model ----------------------------------------------------------------------------

    def _columns(self, moments: ClassMoments, weighted: bool = True) -> Columns:
        """Return the moments of features and targets, by default with weights of classes."""
        raise NotImplementedError

    def _make_model(self, moments: ClassMoments, found: Any) -> RidgeModel:
        classes = moments.classes if isinstance(self, ClassifierMixin) else None
        alpha, scores, intercept = self.alpha, None, bool(self.fit_intercept)
        if self.alphas is not None:
            alphas = np.ravel(np.asarray(self.alphas, np.float64))
            scores = np.column_stack([self._scores(alphas, *split) for split in self._splits()])
            alpha = float(alphas[scores.mean(axis=1).argmax()])
        model = RidgeModel.fit(self._columns(moments), alpha, intercept, classes)
        return replace(model, scores=scores)

    def _scores(self, alphas: np.ndarray, others: ClassMoments, own: ClassMoments) -> np.ndarray:
        """Return the scores of penalties in a split: mean squared errors with a minus sign."""
        train, held_out = self._columns(others), self._columns(own, weighted=False)
        models = (RidgeModel.fit(train, alpha, bool(self.fit_intercept)) for alpha in alphas)
        errors = [model.squared_errors(held_out).mean() for model in models]
        return -np.array(errors) / held_out.weight

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
        return self.model_.alpha

    @property
    def cv_results_(self) -> dict[str, Any]:
        """Scores of the `alphas` in each split, as in `GridSearchCV`, if they were compared."""
        scores = self.model_.scores
        if scores is None:
            raise AttributeError("there are no cv_results_ without alphas to choose from")
        alphas = np.ravel(np.asarray(self.alphas, np.float64))
        params = [{"alpha": alpha} for alpha in alphas.tolist()]
        return {"param_alpha": alphas, "params": params, **compared("score", scores)}


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
        Penalties of which the one with the smallest mean squared error of rows held out is used,
        averaged over the splits: the scores are those of `GridSearchCV` with
        ``scoring="neg_mean_squared_error"``. They follow exactly from the moments of the folds,
        which are all that is kept: `partial_fit` adds to them, and the choice is up to date at any
        time. Weights of rows count in fits and in errors.
    cv : int, splitter, array of int or iterable of (train, test)
        Splits of the rows for `alphas`; see `GaussianDiscriminantCV`. With an integer, `groups`
        that are passed with the rows are the folds. `partial_fit` takes an integer or groups.
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
    moments_ : ClassMoments, or GroupedMoments with `alphas`
        Moments of features and targets, of each fold if there are `alphas`.
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
    (0.1, 0.513)
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
            raise unexpected("unlabelled", given["unlabelled"], "None: targets are not labels")
        self._check_options(given)
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
        return engine.with_targets(replace(rows, X=X, y=targets))

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
            See `fit`; the estimator is then unchanged. With `alphas`, for batches with `groups`
            after others without, or the reverse.

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
            `alphas` are compared by the groups of `GroupedMoments`, each held out in turn, such as
            the sum of the `moments_` of two streams.
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
        check_type("moments", moments, *cls._kinds)
        estimator = cls(**params)
        estimator._check_parameters()
        if moments.n_features is None:
            raise InvalidDataError(NO_ROWS)
        width, lifting = moments.n_features, moments._lifting
        targets = np.atleast_1d(feature_numbers(target, moments.feature_names, width, "target"))
        features = np.setdiff1d(np.arange(width), targets)
        if not 0 < targets.size == width - features.size < width:
            expected = f"the name or the number of a column, 0 to {width - 1}, or a list of them"
            raise unexpected("target", target, f"{expected}, fewer than all {width} columns")
        if lifting and (targets.size != lifting.n_targets or features[-1] >= features.size):
            raise InvalidParameterError(
                f"target={shown(target)} of moments of rows behind {lifting}; give the moments of "
                f"a Ridge with a feature_map, and all of its targets"
            )
        estimator._targets = None if targets.size == 1 else targets.size
        if estimator.feature_map is None:
            estimator.feature_map = moments.feature_map
        joined_maps(estimator._maps(), moments)
        ordered = moments.select_features(np.append(features, targets))
        ordered._lifting = lifting
        estimator._adopt(ordered.reduce("tied")._in_one_class())
        estimator._scored(estimator._check_fit)
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
        super()._restore(state)
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
        `RidgeClassifierCV`: the accuracy of labels does not follow from moments. Each fold keeps a
        scatter for each class.
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
        if isinstance(self.class_weight, str):  # "balanced": `y` has each class once.
            count = moments.class_count[seen]
            factors[seen] = count.sum() / (count.size * count)
        if (factors < 0).any():
            raise unexpected("class_weight", self.class_weight, "numbers >= 0")
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
