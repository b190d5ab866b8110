"""Base classes of the Gaussian estimators: covariances, distances, rejection, sampling."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self, Unpack, overload

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from streamgda import engine
from streamgda.errors import (
    ConstantFeatureWarning,
    InvalidDataError,
    InvalidParameterError,
    StreamGDAError,
    UnsupportedError,
)
from streamgda.estimators.held_out import add_up
from streamgda.estimators.moment_classifier import MomentClassifier, fitted
from streamgda.estimators.row_estimator import (
    GapScoring,
    Scorer,
    Scoring,
    takes,
    validate_rows,
    warn,
)
from streamgda.models.covariance import (
    Covariances,
    Regularisation,
    estimate,
    given_covariances,
    without_features,
)
from streamgda.models.gaussian import GaussianModel
from streamgda.models.leave_one_out import GaussianLeaveOneOut
from streamgda.models.marginals import filled
from streamgda.models.model import check_classes, check_priors
from streamgda.models.sampling import Sampler, codes_to_sample, sample
from streamgda.moments import ClassMoments
from streamgda.moments.covariance_types import structure_of
from streamgda.moments.grouped import OtherParts
from streamgda.moments.lifted import lifted
from streamgda.rows import Rows
from streamgda.rows.counting import Slab, as_matrix, as_weights
from streamgda.rows.labels import as_labels, find, with_label
from streamgda.rows.source import RowSource, as_source, check_lengths
from streamgda.runtime.parameters import BELOW_ONE, as_flag, as_number, refuse, shown
from streamgda.storage.saved import State, state_of

_SHARE = 1e-9  # of the weight of a class that rounding may add


class GivenCovariances(NamedTuple):
    """Covariances that a `covariance_estimator` found.

    Attributes
    ----------
    each : Covariances
        Those of the classes.
    total : ndarray, shape (n_features, n_features)
        That of all rows.
    """

    each: Covariances
    total: np.ndarray


def _found_by(estimator: Any, rows: np.ndarray) -> np.ndarray:
    """Return the covariance that a copy of an estimator finds of rows."""
    copied = clone(estimator, safe=False)
    copied.fit(rows)
    if not hasattr(copied, "covariance_"):
        raise InvalidParameterError(
            f"{type(estimator).__name__} does not have a covariance_ attribute after fit; "
            f"expected an estimator such as those of sklearn.covariance"
        )
    covariance, d = np.atleast_2d(np.asarray(copied.covariance_, np.float64)), rows.shape[1]
    if covariance.shape != (d, d) or not np.isfinite(covariance).all():
        raise InvalidParameterError(
            f"the covariance_ of {type(estimator).__name__} has shape {covariance.shape}; "
            f"expected finite numbers in shape {(d, d)}"
        )
    return covariance


def left_out(model: GaussianModel) -> np.ndarray:
    """Return the features that are constant over all rows, in order."""
    return np.setdiff1d(np.arange(model.n_features), model.features)


class GaussianClassifier(MomentClassifier):
    """Base of the Gaussian estimators, which define covariance type and regularisation.

    Results are float32 if all rows were, as in scikit-learn. Sums are float64 all the same; results
    are rounded at the end.
    """

    _model_type = GaussianModel
    _float32_of_float32 = True
    _SOLVERS: ClassVar[tuple[str, ...]] = ()
    _NOT_WITH_SVD: ClassVar[str]  # the refusal of a covariance estimator

    def _regularisation(self) -> Regularisation:
        raise NotImplementedError

    @property
    def _covariance_estimator(self) -> Any:
        """The parameter `covariance_estimator`, of those that have it."""
        return getattr(self, "covariance_estimator", None)

    def _kept(self) -> dict[str, Any]:
        solver, estimator = getattr(self, "solver", None), self._covariance_estimator
        if self._SOLVERS and not (isinstance(solver, str) and solver in self._SOLVERS):
            raise refuse("solver", solver, f"one of {', '.join(map(repr, self._SOLVERS))}")
        if estimator is not None and not hasattr(estimator, "fit"):
            raise refuse("covariance_estimator", estimator, "an object with a method fit, or None")
        as_flag("store_covariance", getattr(self, "store_covariance", False))
        return super()._kept() | self._regularisation().needs(self._covariance_type())

    def _check_supported(self) -> None:
        """Raise an error for parameters that the solver does not support.

        Files of earlier versions may have them; their estimators go on as they were saved.
        """
        shrinkage, estimator = getattr(self, "shrinkage", None), self._covariance_estimator
        if getattr(self, "solver", None) == "svd":
            others = " or ".join(f"solver={name!r}" for name in self._SOLVERS if name != "svd")
            if shrinkage is not None:
                raise UnsupportedError(
                    f"shrinkage not supported with 'svd' solver: shrinkage={shown(shrinkage)} "
                    f"needs {others}"
                )
            if estimator is not None:
                raise InvalidParameterError(f"{self._NOT_WITH_SVD}. Try another solver: {others}")
        if estimator is not None and shrinkage not in (None, 0):
            raise InvalidParameterError(
                "covariance_estimator and shrinkage parameters are not None. Only one of the two "
                "can be set."
            )

    def _scalings(self) -> tuple[str, ...]:
        ruled = isinstance(getattr(self, "shrinkage", None), str)
        return self._regularisation().scalings if ruled else ()

    # --- learning -----------------------------------------------------------------------------

    def _check_one_pass(self) -> None:
        if self._covariance_estimator is not None:
            raise InvalidParameterError(
                "covariance_estimator needs all rows at once, so that rows cannot be added or "
                "removed; call fit with all of them, or use a shrinkage"
            )
        super()._check_one_pass()

    def _check_kept(self, settings: Self, rows_change: bool = True) -> None:
        for one in (self._settings, settings):
            if one._covariance_estimator is not None:
                one._check_one_pass()
        super()._check_kept(settings, rows_change)

    def _of_all_rows(
        self, settings: Self, empty: ClassMoments, rows: Rows, **options: Any
    ) -> ClassMoments:
        moments = super()._of_all_rows(settings, empty, rows, **options)
        if settings._SOLVERS:
            self._beside = settings._given_covariances(rows, moments)
        return moments

    def _given_covariances(self, rows: Rows, moments: ClassMoments) -> GivenCovariances | None:
        """Return the covariances that the covariance estimator finds, if there is one."""
        estimator = self._covariance_estimator
        if estimator is None:
            return None
        source = as_source(rows.X)
        if not source.in_memory:
            raise InvalidParameterError(
                f"covariance_estimator needs rows in memory, and X is a "
                f"{type(source.values).__name__}; give an array, or use a shrinkage, which follows "
                f"from sums over the rows"
            )
        if rows.weight is not None:
            raise InvalidParameterError(
                "covariance_estimator takes no sample_weight; leave out one of them"
            )
        X, y, *_ = rows.rule.counted(Slab(source.whole(), rows.y))
        labels = np.asarray(y)
        X = np.asarray(lifted(X, moments._lifting))
        X = X if X.dtype.kind == "f" else X.astype(np.float64)
        of_classes = [_found_by(estimator, X[labels == label]) for label in moments.classes]
        each = Covariances(
            structure_of("full"),
            moments.classes,
            moments.class_count,
            np.arange(X.shape[1]),
            np.array(of_classes),
            epsilon=0.0,
            shrinkage=np.zeros(moments.classes.size),
            means_low=moments.centred().mean_low,
        )
        return GivenCovariances(each, _found_by(estimator, X))

    # --- the model ----------------------------------------------------------------------------

    def _priors_of(self, moments: ClassMoments) -> np.ndarray:
        """Return the priors of the classes, by default their shares of the rows."""
        given, normalised = getattr(self, "priors", None), not self._any_sum_of_priors
        return check_priors(given, moments.classes, moments.class_count, normalised=normalised)

    def _make_model(self, moments: ClassMoments, beside: Any = None) -> GaussianModel:
        check_classes(moments.classes, moments.class_count)
        priors, how = self._priors_of(moments), self._regularisation()
        covariances, names = self._estimate(moments, how, beside), moments.feature_names
        return self._of_covariances(covariances, moments.means, priors, how, feature_names=names)

    def _estimate(
        self, moments: ClassMoments, how: Regularisation, beside: Any = None, **options: Any
    ) -> Covariances:
        """Return the covariances that moments determine with these parameters."""
        priors = getattr(self, "priors", None)
        return estimate(moments, self._covariance_type(), how, priors=priors, **options)

    def _of_covariances(self, *numbers: Any, **attributes: Any) -> GaussianModel:
        """Return the model of covariances; arguments as of `GaussianModel.of`."""
        return GaussianModel.of(*numbers, **attributes)

    @classmethod
    def from_parameters(
        cls,
        means: Any,
        covariances: Any,
        priors: Any,
        classes: Any,
        *,
        constant_features: Any = None,
        **params: Any,
    ) -> Self:
        """Return an estimator of given means, covariances and priors, from a file or a paper.

        It predicts what an estimator with such `means_`, `covariance_` and `priors_` predicts.
        The result has no `moments_`: attributes and methods that need them raise an AttributeError,
        and `partial_fit` an error. It can be saved and loaded.

        Parameters
        ----------
        means : array-like, shape (n_classes, n_features)
            NaN for a class without rows.
        covariances : array-like
            Covariances in the shape of `covariance_`; (n_classes, n_features, n_features) for
            covariance type ``"full"``.
        priors : array-like, shape (n_classes,)
            Priors of the classes.
        classes : array-like, shape (n_classes,)
            Class labels, sorted.
        constant_features : array-like of int, optional
            Features to be left out of the density, as in `constant_features_`; by default those
            whose variances are zero in all classes.
        **params
            Parameters of the estimator, such as the covariance type; those that regularise do not
            change what is given.

        Returns
        -------
        estimator
            The fitted estimator.

        Raises
        ------
        InvalidParameterError
            For numbers that do not fit each other.
        SingularCovarianceError
            If a covariance has no inverse.

        Examples
        --------
        >>> import json
        >>> from sklearn.datasets import load_iris
        >>> from streamgda import QuadraticDiscriminantAnalysis
        >>> X, y = load_iris(return_X_y=True)
        >>> qda = QuadraticDiscriminantAnalysis(store_covariance=True).fit(X, y)
        >>> text = json.dumps(
        ...     {
        ...         "means": qda.means_.tolist(),
        ...         "covariances": qda.covariance_.tolist(),
        ...         "priors": qda.priors_.tolist(),
        ...         "classes": qda.classes_.tolist(),
        ...     }
        ... )
        >>> QuadraticDiscriminantAnalysis.from_parameters(**json.loads(text)).score(X, y)
        0.98
        """
        numbers = {"means": means, "covariances": covariances, "priors": priors}
        numbers["constant_features"] = constant_features
        return cls._of_numbers(classes, numbers, params)

    def _model_of_numbers(  # type: ignore[override]
        self,
        classes: np.ndarray,
        means: np.ndarray,
        covariances: np.ndarray,
        priors: np.ndarray,
        constant_features: np.ndarray | None = None,
    ) -> GaussianModel:
        every = given_covariances(
            structure_of(self._covariance_type()), classes, means, covariances
        )
        normalised = not self._any_sum_of_priors
        priors = check_priors(priors, classes, every.count, normalised=normalised)
        varying = without_features(every, constant_features)
        return self._of_covariances(varying, means, priors, self._regularisation())

    def _compute_model(self) -> GaussianModel:
        model: GaussianModel = super()._compute_model()
        if model.feature_map is not None or model.features.size == model.n_features:
            return model  # features of a map are no columns of the caller
        constant = left_out(model)
        if not np.array_equal(getattr(self, "_reported_constant", ()), constant):
            names = model.feature_names or range(model.n_features)
            listed = ", ".join(str(names[j]) for j in constant[:10])
            listed += ", ..." if constant.size > 10 else ""
            warn(
                f"{constant.size} of {self.n_features_in_} features are constant over all rows "
                f"and are left out of the density: {listed}",
                ConstantFeatureWarning,
            )
            self._reported_constant = constant
        return model

    def _estimated(self, drop_constant: bool = True) -> Covariances:
        """Return the covariances of the fitted model."""
        numbers = self._numbers
        if numbers is None or "means" not in numbers:
            settings, options = self._settings, {"drop_constant": drop_constant}
            how = settings._regularisation()
            return settings._estimate(self.moments_, how, self._beside, **options)
        structure, means = structure_of(self._settings._covariance_type()), numbers["means"]
        every = given_covariances(structure, self.classes_, means, numbers["covariances"])
        return without_features(every, self.constant_features_) if drop_constant else every

    @property
    def _covariances(self) -> Covariances:
        """Covariances of all features, including constant ones."""
        check_is_fitted(self)
        keep = bool(getattr(self._settings, "store_covariance", False))
        compute = partial(self._estimated, drop_constant=False)
        return self._once("covariances", compute, keep)

    @property
    def _amounts(self) -> tuple[np.ndarray, float]:
        """Amounts of shrinkage, and the value that was added to the variances."""

        def compute() -> tuple[np.ndarray, float]:
            self.moments_  # noqa: B018  (numbers alone do not tell)
            covariances = self._covariances
            return covariances.shrinkage, covariances.epsilon

        return self._once("amounts", compute)

    @fitted
    def constant_features_(self) -> np.ndarray:
        """Features that are constant over all rows and left out of the density."""
        return left_out(self.model_)

    def _needs_stored_covariance(self) -> None:
        """Raise AttributeError unless covariances were asked for."""
        check_is_fitted(self)
        if self._numbers is None and not self._settings.store_covariance:
            raise AttributeError(
                f"{type(self).__name__} has covariance_ with store_covariance=True only"
            )

    # --- leave-one-out ------------------------------------------------------------------------

    def _leave_one_out(self) -> GaussianLeaveOneOut:
        self._check_removable()
        settings = self._settings
        kind = "counted" if getattr(settings, "priors", None) is None else "given"
        how = settings._regularisation()
        own = how, kind, self._separations()
        return GaussianLeaveOneOut.without_rows(self.model_, self.moments_, *own)

    def _separations(self) -> np.ndarray:
        """Return the singular values of class means from which directions may be dropped."""
        return np.zeros(2)

    def _check_removable(self) -> None:
        """Raise `UnsupportedError` if removing a row changes what has no formula."""
        if isinstance(self._beside, GivenCovariances):
            raise UnsupportedError(
                "leave-one-out has no formula for a covariance_estimator, which needs all rows "
                "for each fit; use a shrinkage"
            )

    # --- scoring ------------------------------------------------------------------------------

    def _with_background(self) -> tuple[GaussianModel, GaussianModel]:
        """Return the model, and the Gaussian of all rows, regardless of class."""

        def compute() -> GaussianModel:
            given, total = self._beside, None
            if isinstance(given, GivenCovariances):
                one, values, count = given.each, given.total[None], self.moments_.class_count
                total = replace(one, classes=one.classes[:1], count=count.sum(keepdims=True))
                total = replace(total, values=values, shrinkage=np.zeros(1))
            how = self._settings._regularisation()
            return self.model_.background(self.moments_, how, total)

        with self._locked():  # both are of the same moments
            return self.model_, self._once("background", compute)

    @overload
    def predict(self, X: np.ndarray, *, out: None = ..., **options: Any) -> np.ndarray: ...

    @overload
    def predict(self, X: Any, *, out: Any = ..., **options: Any) -> Any: ...

    @takes(GapScoring)
    def predict(
        self, X: Any, *, reject: float = 0.0, reject_label: Any = None, **scoring: Any
    ) -> Any:
        """Return the most probable class of each row, or a label for rejected rows.

        Parameters
        ----------
        X : array-like, zarr.Array, dask.array.Array or data frame, shape (n_rows, n_features)
            Rows.
        reject : float in [0, 1)
            Rows are rejected if their p-value (see `p_values`) for the predicted class is below
            `reject`. If the classes are Gaussian, about this share of their rows is rejected.
        reject_label : label, optional
            Label of rejected rows. It has the type of the class labels and is not one of them; by
            default -1, an empty string or NaT.
        out : numpy.ndarray, zarr.Array, or path or zarr store to create one in; optional
            Destination of the result, which is written slab by slab; for a dask array, whose
            result is lazy otherwise, block by block. On a cluster each chunk or shard is written
            by one task. Elsewhere an attribute of a zarr array, ``streamgda_scores``, keeps how
            far it has been written: if the process is stopped, the same call resumes there.
        features : str, optional
            Name of the dimension that holds the features, if `X` is a DataArray.
        nodata : int or float, optional
            Value that marks missing measurements.
        on_invalid : {"raise", "fill"}
            Raise an error for rows with NaN, infinity, masked values or `nodata`, or give them
            `fill` as their result.
        fill : label or number, optional
            Result for invalid rows. Among labels, it has the type of the class labels and is not
            one of them, by default -1, an empty string or NaT; otherwise it is a number, by default
            NaN.
        keys : str or sequence of str, optional
            Names of columns of the table that is scored, which are copied to an `out` that is a
            table.
        max_memory : int or str, optional
            Bytes, or a text such as ``"512MB"``, for rows in flight, scores and the model; by
            default half of the available memory. dask collections ignore it.
        on_missing : {"raise", "marginal"}
            Treat rows with NaN, masked values or `nodata` as invalid, or score them by the
            distribution of the features that they have; the others are integrated out, which is
            exact. Rows with infinity, and rows without any feature, are then invalid.

        Returns
        -------
        ndarray, shape (n_rows,); or `out`; or a lazy dask array
            Labels.

        Raises
        ------
        InvalidDataError, InvalidParameterError
            For rows, an `out`, or a parameter that cannot be used.

        Examples
        --------
        >>> from streamgda import QuadraticDiscriminantAnalysis
        >>> X, y = [[1.0], [3.0], [6.0], [9.0]], ["ant", "ant", "bee", "bee"]
        >>> qda = QuadraticDiscriminantAnalysis().fit(X, y)
        >>> qda.predict([[2.0], [50.0]])
        array(['ant', 'bee'], dtype='<U3')
        >>> qda.predict([[2.0], [500.0]], reject=0.01, reject_label="neither")
        array(['ant', 'neither'], dtype='<U7')
        """
        if type(reject) is float and not reject:
            return self._scored("predict", X, scoring)
        return self._scored("predict", X, scoring, reject=reject, reject_label=reject_label)

    def _model_for(self, method: str) -> GaussianModel:
        model: GaussianModel = super()._model_for(method)
        if method != "p_values" or model.degrees is not None:
            return model

        def compute() -> GaussianModel:  # for files of 0.2.0, which lack the degrees of freedom
            found = self._estimated()
            if found.precision is None:
                return model
            degrees, unbiased = found.precision().of_classes(found.structure)
            return replace(model, degrees=degrees, unbiased=unbiased)

        with self._locked():  # model and moments are those of the same rows
            completed: GaussianModel = self._once("precision", compute)
        return completed

    def _scorer(self, method: str, **options: Any) -> Scorer:
        if method == "relative_mahalanobis" and not options:
            model, background = self._with_background()
            function = partial(model.relative_mahalanobis, background=background)
            columns, own = model.classes.size, state_of(background)[1]
            return Scorer(method, function, model, None, columns, own, method)
        if method == "impute" and not options:
            model, width = self.model_, self.n_features_in_
            return Scorer("filled", filled, model, None, width, method=method)
        rejects = options and method == "predict" and options.keys() <= {"reject", "reject_label"}
        if not rejects:
            return super()._scorer(method, **options)
        reject = options.get("reject", 0.0)
        reject = as_number("reject", reject, "a number from 0 to below 1", 0, BELOW_ONE)
        if reject == 0:
            return super()._scorer(method)
        labels = with_label(self.classes_, "reject_label", options.get("reject_label"))
        rule: dict[str, Any] = {"reject": reject, "label": labels[-1]}
        model = self._model_for("p_values")
        model.rejection_limits(reject)  # refuses classes without p-values
        function = partial(model.predict_or_reject, **rule)
        return Scorer("predict_or_reject", function, model, labels, None, rule)

    @takes(Scoring)
    def impute(self, X: Any, **scoring: Unpack[Scoring]) -> Any:
        r"""Return the rows with their gaps filled by the means of what is missing.

        The mean of the missing features given the others, over the classes,

        .. math:: E[x_m | x_o] = \sum_k p(k | x_o) \big(m_{km}
                  + \Sigma_{k,mo} \Sigma_{k,oo}^{-1} (x_o - m_{ko})\big)

        Predictions need no imputation: see ``on_missing`` of `predict`.

        Parameters
        ----------
        X, out, features, nodata, on_invalid, fill, keys, max_memory : see `predict`
            Rows, whose gaps are NaN, masked values or `nodata`, the destination of the result, and
            how rows are read.

        Returns
        -------
        ndarray, shape (n_rows, n_features); or as for `predict`
            Rows; those without any feature are invalid.

        Raises
        ------
        InvalidDataError, InvalidParameterError
            As for `predict`.
        UnsupportedError
            If features depend on each other, so that the density leaves out directions.

        References
        ----------
        R. J. A. Little and D. B. Rubin: Statistical analysis with missing data, Wiley, 2002,
        section 11.2.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.datasets import load_iris
        >>> from streamgda import QuadraticDiscriminantAnalysis
        >>> X, y = load_iris(return_X_y=True)
        >>> qda = QuadraticDiscriminantAnalysis().fit(X, y)
        >>> row = np.array([[5.1, 3.5, np.nan, 0.2]])
        >>> qda.impute(row).round(2), qda.predict(row, on_missing="marginal")
        (array([[5.1 , 3.5 , 1.45, 0.2 ]]), array([0]))
        """
        return self._scored("impute", X, scoring)

    @takes(GapScoring)
    def mahalanobis(self, X: Any, y: Any = None, **scoring: Unpack[GapScoring]) -> Any:
        """Return the squared Mahalanobis distance to each class, or to the given one.

        Parameters
        ----------
        X : see `predict`
            Rows.
        y : array-like, shape (n_rows,), optional
            Class of each row: only the distance to it is computed. With many classes, such as a
            Gaussian for each position of an image, this takes a small part of the time.
        out, features, nodata, on_invalid, fill, keys, max_memory, on_missing : see `predict`
            The destination of the result, and how rows are read.

        Returns
        -------
        ndarray, shape (n_rows, n_classes), or (n_rows,) with `y`; or as for `predict`
            Squared distances.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        InvalidDataError, InvalidParameterError
            As for `predict`.

        Examples
        --------
        >>> from streamgda import QuadraticDiscriminantAnalysis
        >>> qda = QuadraticDiscriminantAnalysis().fit([[1.0], [3.0], [6.0], [9.0]], [0, 0, 1, 1])
        >>> qda.mahalanobis([[2.0], [5.0]]).round(2)
        array([[ 0.  , 13.44],
               [ 9.  ,  2.78]])
        """
        return self._scored_own("mahalanobis", X, y, scoring)

    @takes(Scoring)
    def relative_mahalanobis(self, X: Any, **scoring: Unpack[Scoring]) -> Any:
        r"""Return the squared Mahalanobis distance to each class, less that to all rows together.

        With the mean :math:`m_0` and the covariance :math:`\Sigma_0` of all rows, regardless of
        class, it is

        .. math:: (x-m_k)^T \Sigma_k^{-1} (x-m_k) - (x-m_0)^T \Sigma_0^{-1} (x-m_0)

        The further a row is from all classes, compared with the data as a whole, the larger is
        its minimum over the classes. Directions in which all rows vary, but which do not
        distinguish classes, nearly cancel, so that the minimum also detects rows of unknown classes
        that resemble the known ones. Compare the minimum with its quantiles for rows of the known
        classes; it has no chi-square distribution.

        Parameters
        ----------
        X, out, features, nodata, on_invalid, fill, keys, max_memory : see `predict`
            Rows, the destination of the result, and how rows are read.

        Returns
        -------
        ndarray, shape (n_rows, n_classes); or as for `predict`
            Differences of squared distances, which may be negative.

        Raises
        ------
        InvalidDataError, InvalidParameterError
            For rows, an `out`, or a parameter that cannot be used.
        SingularCovarianceError
            If the covariance of all rows is singular to rounding, beside those of the classes.

        See Also
        --------
        mahalanobis : The distances to the classes.
        p_values : Shares of the classes that are further away.
        score_samples : Log-density of the rows.

        Notes
        -----
        Mean and covariance of all rows follow from the moments, without another pass, also for
        estimators from files. The covariance is of the kind of those of the classes (a matrix,
        variances or one variance), and is regularised by the same parameters as that of a class.
        Where the rule of the shrinkage needs a second pass over the rows (``"auto"``), its amount
        is the mean of those of the classes, weighted with their rows.

        References
        ----------
        J. Ren, S. Fort, J. Liu, A. G. Roy, S. Padhy and B. Lakshminarayanan: A simple fix to
        Mahalanobis distance for improving near-OOD detection, 2021, arXiv:2106.09022.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.datasets import load_iris
        >>> from streamgda import GaussianDiscriminantAnalysis
        >>> X, y = load_iris(return_X_y=True)
        >>> gda = GaussianDiscriminantAnalysis("tied").fit(X[:100], y[:100])
        >>> distances = gda.relative_mahalanobis(X).min(axis=1)
        >>> unknown = distances > np.quantile(distances[:100], 0.99)
        >>> unknown[100:].mean()  # of a species that it has not seen
        np.float64(0.9)
        """
        return self._scored("relative_mahalanobis", X, scoring)

    @takes(Scoring)
    def p_values(self, X: Any, **scoring: Unpack[Scoring]) -> Any:
        r"""Return the share of each class that is further from its mean than the row.

        It is the p-value of `mahalanobis` for Gaussian classes. The distribution of the distance
        takes into account that means and covariances are estimates: it is an F distribution, exact
        for rows that the estimator has not seen. A row whose p-values are small for all classes is
        an outlier.

        Parameters
        ----------
        X, out, features, nodata, on_invalid, fill, keys, max_memory : see `predict`
            Rows, the destination of the result, and how rows are read.

        Returns
        -------
        ndarray, shape (n_rows, n_classes); or as for `predict`
            P-values; NaN for a class without rows, or with too few of them for its covariance.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        InvalidDataError, InvalidParameterError
            As for `predict`.

        Notes
        -----
        With n rows of a class and d features, of whose covariance S has nu degrees of freedom (one
        less than the rows of the class, or all rows less the classes), :math:`n/(n+1)\,(x-m)^T
        S^{-1} (x-m)` is Hotelling's :math:`T^2`: its product with (nu - d + 1) / (nu d) is
        F(d, nu - d + 1). With one variance for all features, a d-th of it is F(d, nu d). Without
        covariances it is a sum of d variables F(1, nu), whose distribution is computed. Covariances
        that are regularised or weighted count with effective degrees of freedom, which is an
        approximation: from 8 rows of a class, with any shrinkage of features with one variance, a
        p-value below 0.01 has a probability of at most 0.02, and one below 0.001 of 0.004. Those of
        a ``covariance_estimator`` count as known (chi-square).

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from streamgda import QuadraticDiscriminantAnalysis
        >>> X, y = load_iris(return_X_y=True)
        >>> qda = QuadraticDiscriminantAnalysis().fit(X[::2], y[::2])
        >>> qda.p_values(X[1:100:50]).round(4)
        array([[0.577 , 0.    , 0.    ],
               [0.    , 0.7738, 0.0155]])
        """
        return self._scored("p_values", X, scoring)

    def leave_one_out_proba(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        priors: str = "counted",
        out: Any = None,
        features: str | None = None,
        max_memory: int | str | None = None,
    ) -> Any:
        r"""Return the probability of each class by the model fitted without the row.

        The result is that of as many fits as there are rows, each without one of them, to
        rounding; it takes two passes over the rows. Without a row x, the scatter of its class of n
        rows loses :math:`\frac{n}{n-1}\,\delta\delta^T`, with :math:`\delta = x - m`. The squared
        distance of x to the mean of its class, by the covariance C of that class without
        regularisation, :math:`q = \delta^T C^{-1} \delta`, becomes

        .. math:: \frac{n^2 q}{(n-1)^2} \cdot \frac{n-1}{n - n q / (n-1)}

        by the formula of Sherman and Morrison. See `streamgda.models.leave_one_out`. The first pass
        finds rows that have nearly all the weight of their class, or cause nearly all the variance
        of a feature or of a direction. Subtracting such a row would leave only rounding errors, so
        that the model without it is fitted to the other rows.

        Parameters
        ----------
        X : array-like, zarr.Array, dask.array.Array or data frame, shape (n_rows, n_features)
            Rows that the estimator was fitted to: all of them, or some.
        y : array-like, zarr.Array or dask.array.Array, shape (n_rows,)
            Their labels in the fit. They are read as a whole.
        sample_weight : array-like, shape (n_rows,), optional
            Their weights in the fit, with which they are removed. Rows of weight zero may have any
            label.
        priors : {"counted", "fixed"}
            Priors without the row: the classes' shares of the other rows, as a fit to these
            has them, or those of the fit to all rows, as in ``lda`` and ``qda`` of R's package
            MASS with ``CV=TRUE``. It makes no difference where the estimator has `priors`.
        out : numpy.ndarray, zarr.Array, or path or zarr store to create one in; optional
            Destination of the result; see `predict`.
        features : str, optional
            Name of the dimension that holds the features, if `X` is a DataArray.
        max_memory : see `predict`
            Memory for rows in flight, probabilities, labels and the model.

        Returns
        -------
        ndarray, shape (n_rows, n_classes); or as for `predict`
            Probabilities. That of a class is zero for its only row, with counted priors.

        Raises
        ------
        InvalidDataError
            For sparse rows, and for rows or labels that cannot be those of the fit. Also if the
            only row of a class is left out while the class has a fixed prior or too few classes are
            left, and if the model without a row has to be fitted to the others and some of these
            are missing.
        SingularCovarianceError
            If a covariance is singular without one of the rows. Errors are those of the fit without
            that row, whose number they give.
        UnsupportedError
            Where a row changes the covariances in more than one direction: rules for the
            shrinkage, `pooling`, regularisation with `standardize`, a `covariance_estimator`,
            `priors` that weight covariances (solvers ``"lsqr"`` and ``"eigen"``), dropped
            directions.

        Notes
        -----
        Regularisation, `ddof` and priors are those of a fit without the row: also the mean variance
        that shrinkage adds, and the largest one of `var_smoothing`. Rows of float32 are multiplied
        in float32, as they are by `predict_proba`; for data with few rows in some direction, whose
        removal divides that rounding error by a small number, give float64.

        References
        ----------
        B. D. Ripley: Pattern Recognition and Neural Networks, Cambridge University Press, 1996.
        W. N. Venables and B. D. Ripley: Modern Applied Statistics with S, Springer, 2002.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from streamgda import QuadraticDiscriminantAnalysis
        >>> X, y = load_iris(return_X_y=True)
        >>> qda = QuadraticDiscriminantAnalysis().fit(X, y)
        >>> qda.leave_one_out_proba(X, y)[70].round(3)
        array([0.   , 0.152, 0.848])
        >>> qda.predict_proba(X)[70].round(3)
        array([0.   , 0.328, 0.672])
        """
        rows = Rows.of(X, y, sample_weight, features=features)
        return self._scored_without("posterior", rows, priors, max_memory, out)[0]

    def leave_one_out_score(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        priors: str = "counted",
        features: str | None = None,
        max_memory: int | str | None = None,
    ) -> float:
        """Return the share of rows that the model fitted without them classifies correctly.

        Parameters
        ----------
        X, y, sample_weight, priors, features, max_memory : see `leave_one_out_proba`
            Rows that the estimator was fitted to, with their labels and weights.

        Returns
        -------
        float
            Accuracy; with weights, the share of the total weight.

        Raises
        ------
        InvalidDataError, SingularCovarianceError, UnsupportedError
            As for `leave_one_out_proba`.

        Examples
        --------
        >>> from sklearn.datasets import load_wine
        >>> from streamgda import QuadraticDiscriminantAnalysis
        >>> X, y = load_wine(return_X_y=True)
        >>> qda = QuadraticDiscriminantAnalysis().fit(X, y)
        >>> round(qda.score(X, y), 3), round(qda.leave_one_out_score(X, y), 3)
        (0.994, 0.994)
        """
        rows = Rows.of(X, y, sample_weight, features=features)
        right, weights = self._scored_without("right", rows, priors, max_memory)
        return float(np.average(as_source(right, "right").whole(), weights=weights))

    def _scored_without(
        self,
        answer: str,
        rows: Rows,
        priors: str,
        max_memory: int | str | None,
        out: Any = None,
    ) -> tuple[Any, np.ndarray | None]:
        """Return what the model without a row says of each row, and the weights of the rows."""
        if priors not in ("counted", "fixed"):
            raise refuse("priors", priors, "'counted' or 'fixed'")

        def compute() -> GaussianLeaveOneOut:
            model = self._leave_one_out()
            return model if priors == "counted" else replace(model, prior_kind="given")

        model = self._once(f"leave_one_out_{priors}", compute)
        check_lengths(as_source(rows.X))  # labels belong to rows by their number
        X, rows = validate_rows(self, rows.X), rows.opened()
        codes, weights = self._codes_of_fit(rows, model.count)
        own: dict[str, Any] = {"codes": codes}
        own |= {} if weights is None else {"weights": weights}
        columns = self.classes_.size if answer in ("posterior", "log_posterior") else None
        method = f"leave_one_out_{answer}"
        if answer == "posterior" and self._settings._temperature != 1:
            own["temperature"] = self._settings._temperature

        def scored(answer: str, columns: int | None, out: Any = None, **flags: np.ndarray) -> Any:
            function = partial(model.leave_one_out, answer=answer, **own, **flags)
            options = own | {"priors": priors}
            scorer = Scorer(method, function, self.model_, None, columns, options, method)
            return scorer.score(X, out, max_memory=max_memory)

        # In memory, the first pass is the only one, unless the removal of a row is a refit.
        if out is None and rows.X.in_memory and rows.X.executor != "dask":
            influential = np.zeros(codes.size, bool)
            first = scored(answer, columns, influential=influential)
            if not influential.any():
                return first, weights
            del first
        else:
            right = as_source(rows.X.laid_out(scored("right", None), "right")).whole()
            influential = np.isnan(right)
        at = np.flatnonzero(influential)
        own |= self._refits(model, rows.X, X, codes, weights, at, max_memory)
        return scored(answer, columns, out), weights

    def _likelihoods_without(self, rows: Rows, max_memory: int | str | None) -> np.ndarray:
        scores, weights = self._scored_without("log_posterior", rows, "counted", max_memory)
        codes, _ = self._codes_of_fit(rows.opened(), self.class_count_)
        weights = np.ones(codes.size) if weights is None else weights
        return add_up(as_source(scores, "scores").whole().T, codes, weights)

    def _codes_of_fit(self, rows: Rows, count: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the codes and weights of rows, which could be those of the fit."""
        labels, weights = as_labels(rows.y.whole()), None
        check_lengths(rows.X, as_source(labels, "y"))
        codes = find(labels, self.classes_)
        if rows.weight is not None:
            weights = as_weights(rows.weight.whole(), codes.size)
            codes[weights == 0] = count.argmax()  # rows that are not in the fit have any label
        if codes.min(initial=0) < 0:
            at = int((codes < 0).argmax())
            raise InvalidDataError(
                f"y[{at}] is {labels[at]!s}, which is not a class of the fit; give the rows and "
                f"labels that the estimator was fitted to",
                *("y", at),
            )
        given = np.bincount(codes, weights, self.classes_.size)
        over = given > count * (1 + _SHARE)
        if over.any():
            k = int(over.argmax())
            raise InvalidDataError(
                f"class {self.classes_[k]!s} has a weight of {given[k]:g} here, and of "
                f"{count[k]:g} in the fit; give rows, labels and weights that the estimator "
                f"was fitted to"
            )
        return codes.astype(np.min_scalar_type(self.classes_.size)), weights

    def _refits(
        self,
        model: GaussianLeaveOneOut,
        source: RowSource,
        X: Any,
        codes: np.ndarray,
        weights: np.ndarray | None,
        at: np.ndarray,
        max_memory: int | str | None,
    ) -> dict[str, Any]:
        """Return the numbers and log-posteriors of rows `at` that need a fit to the others.

        The weights that the formulas get of them are zero. Their moments are those of the rows that
        need none, and all of them but one: rows are added only, so that nothing cancels.
        """
        if not at.size:
            return {}
        total = np.bincount(codes, weights, self.classes_.size)
        if (total < model.count * (1 - _SHARE)).any():
            raise InvalidDataError(
                f"without row {at[0]}, nearly nothing is left of the weight or of some variance of "
                f"its class, so that all rows of the fit are needed; give all of them"
            )
        others = codes.astype(np.int64)
        others[at] = -1
        kind = self.moments_.covariance_type
        values = np.concatenate([as_matrix(source.read(r, r + 1)) for r in at.tolist()])
        labels = self.classes_[codes[at]]

        def without(weights: np.ndarray | None) -> Iterator[tuple[int, ClassMoments]]:
            mapped: Any = {"covariance_type": kind, "feature_map": self.moments_._lifting}
            options = {"sample_weight": weights, "unlabelled": -1, **mapped}
            rest = ClassMoments(**mapped)
            if at.size < codes.size:
                rest = engine.accumulate(X, others, max_memory=max_memory, **options)
                rest = rest.relabel({k: self.classes_[k] for k in rest.classes})

            def add(moments: ClassMoments, some: range) -> ClassMoments:
                rows = slice(some.start, some.stop)
                return moments.update(
                    values[rows], labels[rows], None if weights is None else weights[at[rows]]
                )

            return iter(OtherParts(at.size, rest, add))

        plain: Any = itertools.repeat((0, None))
        if self._beside is not None:  # smoothing follows rows without weights
            plain = without(None)
        refits = np.empty((at.size, self.classes_.size))
        for (i, moments), (_, beside) in zip(without(weights), plain, strict=False):
            x, row = values[i : i + 1], int(at[i])
            refits[i] = self._refitted(model.prior_kind, moments, beside, x, row)
        shares = np.ones(codes.size) if weights is None else weights.copy()
        shares[at] = 0
        return {"weights": shares, "refitted": at, "refits": refits}

    def _refitted(
        self,
        prior_kind: str,
        moments: ClassMoments,
        beside: ClassMoments | None,
        x: np.ndarray,
        row: int,
    ) -> np.ndarray:
        """Return the log-posterior of a row by the model that the others determine."""
        left = np.isin(self.classes_, moments.classes[moments.class_count > 0])
        gone = (self.class_count_ > 0) & ~left
        if gone.any() and prior_kind == "given":
            raise InvalidDataError(
                f"row {row} is the only one of class {self.classes_[gone][0]!s}, which has a fixed "
                f"prior and no rows without it. Leave out the class, or its prior"
            )
        try:
            model = self._model_of(moments, beside)
        except StreamGDAError as error:
            error.args = (f"without row {row}: {error}", *error.args[1:])
            raise
        seen = np.isin(self.classes_, model.classes)
        if prior_kind == "given":
            model = replace(model, priors=self.model_.priors[seen])
        posterior = np.full(self.classes_.size, -np.inf)
        posterior[seen] = model.log_posterior(x)[0]
        return posterior

    def sample(
        self, n_samples: int = 1, random_state: Any = None, y: Any = None, *, out: Any = None
    ) -> tuple[Any, Any]:
        """Draw rows from the Gaussians of the classes, on all threads.

        The result depends on the seed only, neither on the number of threads nor on `out`. Unlike
        other methods, this one needs no inverse of a covariance: rows of a class with a singular
        covariance vary in the directions in which the class does. (`fit` refuses such classes,
        `partial_fit` does not.)

        Parameters
        ----------
        n_samples : int
            Number of rows.
        random_state : int, RandomState instance or None
            Seed.
        y : label, or array-like of labels of shape (n_samples,); optional
            Classes of the rows; by default drawn from the priors.
        out : numpy.ndarray, zarr.Array, or path or zarr store to create a group in; optional
            An array, of shape (n_samples, n_features), gets the rows; a group gets arrays "X" and
            "y", slab by slab, which `open_store` opens.

        Returns
        -------
        X : ndarray of float64, shape (n_samples, n_features); or an array in `out`
            Rows. Features that are constant over all rows have their value.
        y : ndarray, shape (n_samples,); or a zarr.Array if `out` is a group
            Labels.

        Raises
        ------
        InvalidParameterError
            For a class that has no rows, or a number of samples below one.
        InvalidDataError
            If `out` has another shape, or does not hold floating-point numbers.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from streamgda import QuadraticDiscriminantAnalysis
        >>> qda = QuadraticDiscriminantAnalysis().fit(*load_iris(return_X_y=True))
        >>> X, y = qda.sample(1000, random_state=0)
        >>> X.shape, (qda.predict(X) == y).mean().round(2)
        ((1000, 4), np.float64(0.99))
        """
        n_samples, random, labels = self._drawing(n_samples, random_state, y, out is None)
        with self._locked():  # the moments do not change meanwhile
            held = self._held
            given = self._numbers is not None
            priors = held.priors if given else self._settings._priors_of(held)
            sampler = Sampler.of(self._estimated(), held.means, priors / priors.sum())
        codes = None
        if labels is not None:
            codes = np.broadcast_to(
                codes_to_sample(labels, sampler.classes, sampler.means), n_samples
            )
        return sample(sampler, n_samples, random, codes, out)

    # --- saving -------------------------------------------------------------------------------

    def _state(self) -> State:
        check_is_fitted(self)
        if isinstance(self._beside, GivenCovariances) or self._covariance_estimator is not None:
            raise InvalidParameterError(
                "an estimator with a covariance_estimator cannot be saved, as its type is not one "
                "of this package; use pickle or joblib"
            )
        return super()._state()
