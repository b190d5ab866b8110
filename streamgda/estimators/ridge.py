"""Ridge regression and classification, and ordinary least squares, from moments."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self, Unpack

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.utils.validation import check_is_fitted

from streamgda import engine
from streamgda.engine.folds import as_folds
from streamgda.engine.reading import in_process
from streamgda.errors import CollinearityWarning, InvalidDataError, InvalidParameterError
from streamgda.estimators.discriminant import GaussianDiscriminantAnalysis
from streamgda.estimators.moment_classifier import (
    NO_ROWS,
    MomentClassifier,
    MomentEstimator,
    empty_like,
    fitted,
    joined_maps,
    weights_of,
)
from streamgda.estimators.row_estimator import (
    Comparing,
    Reading,
    Scoring,
    names_in,
    takes,
    validate_rows,
    warn,
)
from streamgda.estimators.selection import compared
from streamgda.models.ridge import Columns, Fit, RidgeModel
from streamgda.moments import ClassMoments, GroupedMoments
from streamgda.moments.grouped import each_held_out
from streamgda.rows import Rows, as_source
from streamgda.rows.names import Names, feature_numbers, saved_names
from streamgda.rows.targets import targets_of
from streamgda.runtime.parameters import (
    as_flag,
    as_integer,
    as_number,
    as_numbers,
    check_type,
    refuse,
    shown,
)
from streamgda.storage.format import check_array, check_whole
from streamgda.storage.saved import State, synchronized

_CLASS_WEIGHT = "numbers >= 0"
_SOLVERS = ("auto", "svd", "cholesky", "lsqr", "sparse_cg", "sag", "saga")
_MOST = (1 << 128) - 1  # seeds have up to 128 bits


class PenalisedLeastSquares(MomentEstimator):
    """Base of the ridge estimators, which choose the penalty and fit coefficients to moments.

    Attributes
    ----------
    _beside : float or None
        The penalty that was chosen among `alphas`.
    _scores : ndarray, shape (n_alphas, n_splits), or None
        Scores of these.
    """

    _model_type = RidgeModel
    _float32_of_float32 = True
    _single_scores = "target", "targets", "relative_scores", "log_odds"
    _scores: np.ndarray | None = None

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

    # --- parameters ---------------------------------------------------------------------------

    def _covariance_type(self) -> str:
        return "full"

    def _kept(self) -> dict[str, Any]:
        as_flag("fit_intercept", self.fit_intercept)
        as_flag("copy_X", self.copy_X)
        as_number("tol", self.tol, "a number >= 0", 0)
        if self.max_iter is not None:
            as_integer("max_iter", self.max_iter, "an integer >= 1, or None", 1)
        if self.random_state is not None:
            as_integer("random_state", self.random_state, "an integer >= 0, or None", 0, _MOST)
        if not isinstance(self.solver, str) or self.solver not in _SOLVERS:
            raise refuse("solver", self.solver, f"one of {', '.join(_SOLVERS)}, which all agree")
        if as_flag("positive", self.positive):
            raise refuse(
                "positive", True, "False: coefficients of one sign need sklearn.linear_model.Ridge"
            )
        expected = "a number >= 0, or one for each target"
        alpha = as_numbers("alpha", self.alpha, expected, finite=True)
        if alpha.ndim > 1 or not alpha.size or (alpha < 0).any():
            raise refuse("alpha", self.alpha, expected)
        if self.alphas is not None:
            self._candidates()
        return super()._kept()

    def _candidates(self) -> np.ndarray:
        """Return the penalties to choose from."""
        expected = "None, or a list of numbers >= 0"
        alphas = as_numbers("alphas", self.alphas, expected, finite=True)
        if alphas.ndim != 1 or not alphas.size or (alphas < 0).any():
            raise refuse("alphas", self.alphas, expected)
        return alphas

    def _check_one_pass(self) -> None:
        if self.alphas is not None:
            raise InvalidParameterError(
                "alphas are compared by the folds of all rows, and so by fit alone, or by "
                "from_moments with the moments of groups; for rows in parts, pass alpha"
            )

    # --- learning -----------------------------------------------------------------------------

    @takes(Reading)
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
        X : array-like, numpy.memmap, zarr.Array, dask.array.Array or data frame
            Rows, shape (n_rows, n_features), of any real type. `Ridge` multiplies in float64.
        y : array-like, zarr.Array, dask.array.Array or data frame
            Targets, shape (n_rows,) or (n_rows, n_targets); labels for a classifier.
        sample_weight : array-like, shape (n_rows,), optional
            Non-negative weights; a row of weight zero is ignored.
        groups : array-like, shape (n_rows,), optional
            Groups of the rows, for `alphas` and a splitter `cv` that uses them.
        features, unlabelled, nodata, on_invalid : see `GaussianNB.fit`
            How rows are read, and which of them count. For `Ridge`, `nodata` and `on_invalid` are
            of targets, too, and `unlabelled` is refused.

        Returns
        -------
        estimator
            The estimator itself.

        Raises
        ------
        InvalidDataError
            For rows, targets or weights that cannot be used.
        InvalidParameterError
            For parameters out of range.

        Examples
        --------
        >>> from streamgda import Ridge
        >>> ridge = Ridge(alpha=0).fit([[1.0], [2.0], [4.0]], [3.0, 5.0, 9.0])
        >>> ridge.coef_, round(float(ridge.intercept_), 12)
        (array([2.]), 1.0)
        """
        if groups is not None and self.alphas is None:
            raise InvalidParameterError("groups were given, but no alphas to choose from by them")
        rows = replace(self._read("fit", X, y, sample_weight, reading), groups=groups)
        return self._learn(self._of_all_rows, rows, adds=True, afresh=True, checked=True)

    def _of_all_rows(
        self, settings: Self, empty: ClassMoments, rows: Rows, **options: Any
    ) -> ClassMoments:
        self._scores = None
        if settings.alphas is None:
            return super()._of_all_rows(settings, empty, rows, **options)
        read = in_process(settings._summed(replace(rows, groups=None)))
        labels = as_source(np.zeros(read.X.n_rows, bool)) if read.y is None else read.y
        folds = as_folds(settings.cv, settings.random_state or 0, rows.groups, read.X, labels)
        kept = self._empty(settings._kept(), GroupedMoments)
        options["grouped"] = True
        grouped: Any = engine.accumulate_into(kept, folds.beside(read), **options)
        parts = {number: grouped[number] for number in grouped}
        never = parts.pop(folds.n_folds, None)
        if not parts:
            return empty
        return self._chosen(settings, parts, never)

    def _chosen(
        self, settings: Self, parts: Mapping[Any, ClassMoments], never: ClassMoments | None = None
    ) -> ClassMoments:
        """Choose the penalty with the best mean score over the parts; return the total moments.

        Parameters
        ----------
        settings : estimator
        parts : mapping of label to ClassMoments
            Moments of the rows of each fold.
        never : ClassMoments, optional
            Moments of rows that are never held out.
        """
        if len(parts) + (never is not None) < 2:
            raise InvalidDataError(
                f"alphas are compared by rows that are held out, and {len(parts)} fold has rows; "
                f"give rows of at least two folds or groups"
            )
        alphas, rest = settings._candidates(), next(iter(parts.values())) * 0.0
        rest = rest if never is None else never
        scores = np.empty((alphas.size, len(parts)))
        for number, (label, others) in enumerate(each_held_out(parts, rest)):
            held_out = self._columns(settings, parts[label], weighted=False)
            train = self._columns(settings, others)
            for a, alpha in enumerate(alphas):
                fit = settings._fit_of(train, alpha)
                scores[a, number] = -fit.squared_errors(held_out).mean() / held_out.weight
        self._scores = scores
        self._beside = float(alphas[scores.mean(axis=1).argmax()])
        return sum(parts.values(), rest)

    def _columns(self, settings: Self, moments: ClassMoments, weighted: bool = True) -> Columns:
        """Return the moments of features and targets."""
        raise NotImplementedError

    def _fit_of(self, columns: Columns, alpha: Any = None) -> Fit:
        """Return the fit with these parameters."""
        n_targets = columns.mean.size - columns.n_features
        alpha = self.alpha if alpha is None else alpha
        if np.ndim(alpha) and np.size(alpha) != n_targets:
            raise InvalidParameterError(
                f"alpha has {np.size(alpha)} penalties for {n_targets} targets (Number of targets "
                f"and number of penalties do not correspond); give one, or one for each target"
            )
        alphas = np.broadcast_to(np.asarray(alpha, np.float64), (n_targets,))
        return Fit(columns, alphas, bool(self.fit_intercept))

    @property
    def _fitted(self) -> Fit:
        """The fit to all rows."""
        return self._once("fit", self._compute_fit)

    def _compute_fit(self) -> Fit:
        settings, moments = self._settings, self.moments_
        chosen = None if settings.alphas is None else self._beside
        return settings._fit_of(self._columns(settings, moments), chosen)

    def _compute_model(self) -> RidgeModel:
        fit, names = self._fitted, names_in(self)
        scores = isinstance(self, ClassifierMixin)
        model = RidgeModel.of_fit(fit, self.moments_.classes, names, scores)
        lifting = self.moments_._lifting
        return replace(model, feature_map=lifting and lifting.of_features)

    def _check_fitted(self) -> None:
        super()._check_fitted()
        fit = self._fitted
        dropped = fit.n_features - fit.rank - fit.n_constant
        if dropped > 0:
            warn(
                f"{dropped} of {fit.n_features} directions of the features do not vary to "
                f"rounding, as features are collinear or there are few rows: the coefficients are "
                f"those of smallest norm. Pass alpha > 0",
                CollinearityWarning,
            )

    # --- fitted attributes ----------------------------------------------------------------------

    @fitted
    def alpha_(self) -> Any:
        """The penalty of the fit: `alpha`, or the one that was chosen among `alphas`."""
        check_is_fitted(self)
        return self._settings.alpha if self._scores is None else self._beside

    @fitted
    def n_iter_(self) -> int:
        """Steps of refinement of the coefficients: one."""
        check_is_fitted(self)
        return 1

    @fitted
    def best_score_(self) -> float:
        """Mean score of `alpha_` over the splits, if it was chosen among `alphas`."""
        return float(self.cv_results_["mean_test_score"].max())

    @property
    def cv_results_(self) -> dict[str, Any]:
        """Scores of the `alphas` in each split, as in `GridSearchCV`, if they were compared."""
        check_is_fitted(self)
        if self._scores is None:
            raise AttributeError("there are no cv_results_ without alphas to choose from")
        alphas = self._settings._candidates()
        params = [{"alpha": alpha} for alpha in alphas.tolist()]
        return {"param_alpha": alphas, "params": params, **compared("score", self._scores)}

    # --- saving -------------------------------------------------------------------------------

    def _state(self) -> State:
        attributes, arrays = super()._state()
        attributes["moments"] |= saved_names(self.moments_.feature_names)
        if self._scores is not None:
            attributes["alpha"], arrays["scores"] = self._beside, self._scores
        return attributes, arrays

    @classmethod
    def _from_state(cls, attributes: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        estimator = super()._from_state(attributes, arrays)
        if "alpha" in attributes:
            estimator._beside = as_number("alpha", attributes["alpha"], "a number >= 0", 0)
            shape = estimator._settings._candidates().size, arrays["scores"].shape[1]
            check_array("scores", arrays["scores"], shape, "f8")
            estimator._scores = arrays["scores"]
        return estimator


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
        Changing the import is enough: all solvers (but ``"lbfgs"``) find the same coefficients
        from the same moments, and rows are never changed.
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
        Folds of this choice; see `GaussianDiscriminantCV`. Only a number of them is saved.
    feature_map : RandomFeatures, Standardize, transformer, or list; optional
        Map that is applied to the features first; see `GaussianDiscriminantAnalysis`.

    Attributes
    ----------
    coef_ : ndarray, shape (n_features,), or (n_targets, n_features) for several
    intercept_ : float, or ndarray, shape (n_targets,)
    n_iter_ : int
        Steps of refinement: one.
    alpha_, best_score_, cv_results_
        The chosen penalty, its mean score, and the scores of all in each split.
    r2_, residual_variance_, standard_errors_
    moments_ : ClassMoments
        Moments of features and, in the last columns, targets, in one class.
    n_features_in_, feature_names_in_

    Notes
    -----
    Moments square the condition number of the features: with :math:`\kappa` that of the centred
    features, each scaled to unit variance, coefficients have about
    :math:`16 - 2 \log_{10} \kappa` correct digits, where a QR decomposition of all rows keeps
    :math:`16 - \log_{10} \kappa`. Directions that do not vary to rounding are left out, with a
    warning.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from streamgda import Ridge
    >>> X, y = load_diabetes(return_X_y=True)
    >>> ridge = Ridge(alphas=[0.01, 0.1, 1.0]).fit(X, y)
    >>> ridge.alpha_, round(ridge.score(X, y), 3)
    (0.01, 0.517)
    >>> Ridge(alpha=0.0).fit(X, y).standard_errors_.round(1)[:3]
    array([59.7, 61.2, 66.5])
    """

    _targets: int | None = None  # number of the targets; None for one that is no column

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    # --- learning -----------------------------------------------------------------------------

    def _validated(self, rows: Rows, reset: bool) -> Rows:
        if rows.rule.unlabelled is not None:
            raise refuse("unlabelled", rows.rule.unlabelled, "None: targets are no labels")
        if rows.y is None:
            raise InvalidParameterError(
                f"{type(self).__name__} requires y to be passed, but the target y is None; give "
                f"one target, or several, for each row"
            )
        X = validate_rows(self, rows.X, reset=reset)
        y = targets_of(as_source(X), rows.y)
        targets = math.prod(y.shape[1:]) if len(y.shape) > 1 else None
        if reset:
            self._targets = targets
        elif (targets or 1) != (self._targets or 1):
            raise InvalidDataError(
                f"y has {targets or 1} targets, but there were {self._targets or 1} before"
            )
        return replace(rows, X=X, y=y)

    def _learn(self, change: Any, rows: Rows | None = None, **options: Any) -> Self:
        try:
            return super()._learn(change, rows, **options)
        except InvalidDataError as error:
            width = 0 if rows is None or error.column is None else as_source(rows.X).shape[1]
            if not width or error.column is None or error.column < width:
                raise
            raise InvalidDataError(
                f"Input y contains NaN, infinity or a masked value: y[{error.row}]. Every target "
                f"must be finite; on_invalid='skip' leaves such rows out",
                *("y", error.row),
            ) from None

    def _summed(self, rows: Rows) -> Rows:
        return engine.with_targets(rows)

    def _empty(self, kept: Mapping[str, Any], kind: Any = ClassMoments) -> Any:
        lifting = kept["feature_map"]
        mapped = lifting and replace(lifting, n_targets=self._targets or 1)
        return super()._empty({**kept, "feature_map": mapped}, kind)

    def _column_names(self) -> Names | None:
        return None  # targets have none

    @takes(Reading)
    def partial_fit(  # type: ignore[override]  # targets are no classes
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
        X, y, sample_weight : see `fit`
            Rows, targets and weights.
        half_life : float, optional
            Number of rows after which a row counts half; see `GaussianNB.partial_fit`.
        features, unlabelled, nodata, on_invalid : see `fit`
            How rows are read, and which of them count.

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
        given: Any = {"half_life": half_life, **reading}
        return super().partial_fit(X, y, None, sample_weight, **given)

    def _add_at_once(self, X: Any, y: Any, classes: Any) -> bool:
        return False  # targets are no labels

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
            Columns of the targets, by name or by number. Behind a `feature_map`, such as those of
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
        estimator._kept()
        grouped = isinstance(moments, GroupedMoments)
        if moments.n_features is None:
            raise InvalidDataError("these moments hold no rows")
        if not grouped:
            estimator._check_one_pass()
        width, names = moments.n_features, moments.feature_names
        columns = _columns_of(target, names, width)
        features = np.setdiff1d(np.arange(width), columns)
        if not features.size:
            raise refuse("target", target, f"fewer than all {width} columns")
        lifting = moments._lifting
        if lifting is not None:
            if columns.size != lifting.n_targets or features[-1] != features.size - 1:
                raise InvalidParameterError(
                    f"target={shown(target)} of moments of rows behind {lifting}, whose columns "
                    f"are no columns of the rows; give the moments of a Ridge with a feature_map, "
                    f"and all of its targets"
                )
            if estimator.feature_map is None:
                estimator.feature_map = moments.feature_map
        joined_maps(estimator._kept(), moments)

        def of(part: ClassMoments) -> ClassMoments:
            ordered = part.select_features(np.append(features, columns))
            ordered._lifting = lifting
            return ordered.reduce("tied")._in_one_class()

        settings = estimator._current_settings()
        estimator._targets = None if columns.size == 1 else columns.size
        estimator.n_features_in_ = int(moments._n_features_in or 0) - columns.size
        if names is not None:
            estimator.feature_names_in_ = np.array([names[i] for i in features], object)
        if grouped and estimator.alphas is not None:
            learnt = estimator._chosen(settings, {g: of(moments[g]) for g in moments})
        else:
            learnt = of(moments.total() if grouped else moments)
        estimator._adopt(learnt, settings)
        estimator._check_fitted()
        return estimator

    def _columns(self, settings: Any, moments: ClassMoments, weighted: bool = True) -> Columns:
        return Columns.of(moments, int(moments.n_features or 0) - (self._targets or 1))

    # --- fitted attributes ----------------------------------------------------------------------

    def _shaped(self, values: np.ndarray) -> Any:
        """Return values of the targets, or of the only one."""
        return values if (self._targets or 1) > 1 else values[0]

    @fitted
    def coef_(self) -> np.ndarray:
        """Coefficients, shape (n_features,) or (n_targets, n_features)."""
        return self._in_type(self._shaped(self.model_.coefficients))

    @fitted
    def intercept_(self) -> Any:
        """Predictions at the origin, a number or, of targets in columns, shape (n_targets,)."""
        if not self._settings.fit_intercept:
            return 0.0
        values = self._in_type(self.model_.at_zero)
        return values[0] if self._targets is None else values

    @fitted
    def r2_(self) -> Any:
        """Coefficient of determination of the rows learnt, a number or shape (n_targets,)."""
        return self._shaped(self._fitted.r2(self._fitted.columns))

    @fitted
    def residual_variance_(self) -> Any:
        r"""Unbiased variance of the residuals, a number or shape (n_targets,).

        The sum of their squares is divided by the number of rows, or their weight, less the
        degrees of freedom of the fit, :math:`\mathrm{tr}(S_{xx} + \alpha I)^{-1} S_{xx}`, and one
        for the intercept.
        """
        return self._shaped(self._fitted.residual_variances)

    @fitted
    def standard_errors_(self) -> np.ndarray:
        """Standard errors of the coefficients, in their shape, as if residuals were independent.

        They do not contain the bias of a penalty.
        """
        return self._shaped(self._fitted.standard_errors.T)

    # --- scoring --------------------------------------------------------------------------------

    @property
    def _model_methods(self) -> Mapping[str, tuple[str, str | None]]:  # type: ignore[override]
        several = (self._targets or 1) > 1
        return {"predict": ("targets", "coefficients") if several else ("target", None)}

    @takes(Scoring)
    def predict(self, X: Any, **scoring: Unpack[Scoring]) -> Any:
        """Return the prediction of the target, or of the targets, of each row.

        Parameters
        ----------
        X, out, features, nodata, on_invalid, fill, keys, max_memory : see `GaussianNB.predict`
            Rows, the destination of the result, and how rows are read.

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
        return self._scored("predict", X, scoring)

    @takes(Comparing)
    def score(
        self, X: Any, y: Any, sample_weight: Any = None, **reading: Unpack[Comparing]
    ) -> float:
        """Return the coefficient of determination of the predictions, from one pass over the rows.

        That of several targets is the mean, as in scikit-learn. It follows from the moments of the
        rows: predictions are not stored.

        Parameters
        ----------
        X, y, sample_weight : see `fit`
            Rows, targets and weights.
        features, unlabelled, nodata, on_invalid : see `fit`
            How rows are read, and which of them count.
        max_memory : int or str, optional
            Memory for rows in flight and moments; see `accumulate`.

        Returns
        -------
        float
            R squared; one is best. NaN, with a warning, for a single row.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        InvalidDataError, InvalidParameterError
            For rows, targets, weights or options that cannot be used.

        Examples
        --------
        >>> from streamgda import Ridge
        >>> X, y = [[1.0], [2.0], [4.0]], [3.0, 5.0, 9.0]
        >>> round(Ridge(alpha=0).fit(X, y).score(X, y), 9)
        1.0
        """
        check_is_fitted(self)
        max_memory = reading.pop("max_memory", None)
        rows = self._validated(self._read("score", X, y, sample_weight, reading), reset=False)
        planned: dict[str, Any] = {} if max_memory is None else {"max_memory": max_memory}
        empty = empty_like(self.moments_)
        moments = engine.accumulate_into(empty, self._summed(rows), **planned)
        if moments.n_features is None:
            raise InvalidDataError(NO_ROWS)
        if as_source(rows.X).shape[0] < 2:
            warn(
                "R^2 score is not well-defined with less than two samples, as a single row does "
                "not vary; give more rows, or score predictions by their squared errors",
                UndefinedMetricWarning,
            )
            return math.nan
        return float(self._fitted.r2(self._columns(None, moments)).mean())

    # --- saving -------------------------------------------------------------------------------

    def _state(self) -> State:
        attributes, arrays = super()._state()
        return {**attributes, "targets": self._targets}, arrays

    def _restored_width(self, attributes: Mapping[str, Any]) -> int:
        width, lifting = super()._restored_width(attributes), self.moments_._lifting
        if self.moments_.n_features is None:
            width += attributes["targets"] or 1
        if attributes["targets"] is not None:
            self._targets = check_whole("targets", attributes["targets"], 1, width - 1)
        if lifting is not None and lifting.n_targets != (self._targets or 1):
            raise ValueError("its feature map is of another number of targets")
        return width - (self._targets or 1)


def _columns_of(target: Any, names: Any, width: int) -> np.ndarray:
    """Return the numbers of the columns that are targets."""
    expected = f"the name or the number of a column, 0 to {width - 1}, or a list of several"
    found = np.atleast_1d(np.asarray(feature_numbers(target, names, width, "target")))
    different = np.intersect1d(found, np.arange(width))
    if found.dtype.kind not in "iu" or not found.size or found.shape != different.shape:
        raise refuse("target", target, expected)
    return found


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
    copy_X, max_iter, tol : see `Ridge`
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
    coef_ : ndarray, shape (n_classes, n_features), or (n_features,) for two classes
    intercept_ : ndarray, shape (n_classes,), or (1,)
    alpha_, best_score_, cv_results_, n_iter_, moments_, n_features_in_, feature_names_in_

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

    _least_classes = 2
    _model_methods: Mapping[str, tuple[str, str | None]] = {
        "predict": ("predict", None),
        "decision_function": ("relative_scores", "classes"),
    }

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

    def _kept(self) -> dict[str, Any]:
        weight = self.class_weight
        if isinstance(weight, Mapping):
            given = as_numbers("class_weight", [*weight.values()], _CLASS_WEIGHT, finite=True)
            if (given < 0).any():
                raise refuse("class_weight", weight, _CLASS_WEIGHT)
        elif weight is not None and (not isinstance(weight, str) or weight != "balanced"):
            raise refuse("class_weight", weight, "None, 'balanced' or a dict of numbers")
        return super()._kept()

    def _columns(self, settings: Any, moments: ClassMoments, weighted: bool = True) -> Columns:
        weight = settings.class_weight if weighted else None
        if weight is None:
            return Columns.of_classes(moments)
        count = moments.class_count.astype(np.float64)
        if isinstance(weight, str):
            present = count > 0
            shares = present.sum() * np.where(present, count, 1.0)
            return Columns.of_classes(moments, count.sum() / shares)
        return Columns.of_classes(moments, weights_of(moments.classes, weight, _CLASS_WEIGHT))

    @fitted
    def classes_(self) -> np.ndarray:
        """Class labels, sorted, shape (n_classes,)."""
        check_is_fitted(self)
        return self.moments_.classes

    @fitted
    def coef_(self) -> np.ndarray:
        """Coefficients, shape (n_classes, n_features), or (n_features,) for two classes."""
        coefficients = self._in_type(self.model_.coefficients)
        return coefficients[1] if len(coefficients) == 2 else coefficients

    @fitted
    def intercept_(self) -> Any:
        """Scores at the origin, shape (n_classes,), or (1,) for two classes."""
        values = self._in_type(self.model_.at_zero)
        if not self._settings.fit_intercept:
            return 0.0
        return values[1:] if len(values) == 2 else values

    predict = MomentClassifier.predict
    score = MomentClassifier.score
    decision_function = GaussianDiscriminantAnalysis.decision_function
