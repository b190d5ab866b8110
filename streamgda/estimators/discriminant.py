"""Discriminant analysis with any covariance type, and quadratic discriminant analysis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Unpack

import numpy as np
from scipy import linalg
from sklearn.utils.validation import check_is_fitted

from streamgda.errors import UnsupportedError
from streamgda.estimators import export
from streamgda.estimators.gaussian import GaussianClassifier
from streamgda.estimators.moment_classifier import fitted
from streamgda.estimators.row_estimator import GapScoring, takes
from streamgda.models.covariance import Covariances, Regularisation
from streamgda.models.discriminants import discriminant_directions
from streamgda.moments import ClassMoments
from streamgda.runtime import threads
from streamgda.runtime.parameters import as_number

_ADVICE = {
    "svd": "Increase reg_param, or use solver='eigen' with shrinkage",
    "eigen": "Increase shrinkage",
}


class GaussianDiscriminantAnalysis(GaussianClassifier):
    r"""Gaussian discriminant analysis with any covariance type, from one pass over the rows.

    It predicts the class with the largest :math:`\ln \pi_k + \ln N(x; m_k, \Sigma_k)`: that is
    QDA (``"full"``), LDA (``"tied"``), Gaussian naive Bayes (``"diag"``), and models in between.

    Parameters
    ----------
    covariance_type : {"full", "tied", "diag", "tied_diag", "spherical", "tied_spherical"}
        Structure of the covariances: one for each class, or one for all (``tied``), with
        covariances between features, variances only (``diag``), or one variance (``spherical``).
    priors : array-like, shape (n_classes,), optional
        Priors of the sorted classes; by default their shares of the rows.
    shrinkage : float in [0, 1], {"auto", "oas"}, optional
        Amount :math:`a` of :math:`(1-a) \Sigma + a\,\mathrm{tr}(\Sigma)/d\,I`. ``"auto"`` is
        scikit-learn's: each class is standardised, shrunk by Ledoit and Wolf's amount and scaled
        back; for a pooled covariance, these are averaged, weighted with the priors. It needs a
        cheap second pass over the rows, so that only `fit` can compute it. ``"oas"``
        follows from one pass. It is that of `sklearn.covariance.oas` for the rows as they are, less
        their class means: if units or scales of features differ, standardise the rows first, or set
        `standardize`. The number of weighted rows in its formula is the effective one
        :math:`(\sum w)^2 / \sum w^2`: only ratios of weights matter.
    pooling : float in [0, 1]
        Friedman's :math:`\lambda`, from a covariance for each class (0) to one for all (1).
    reg_param : float in [0, 1]
        Amount :math:`r` of :math:`(1-r) \Sigma + r I`.
    var_smoothing : float >= 0
        Fraction of the largest variance of a feature that is added to every variance.
    ddof : int
        Scatters are divided by the number of rows less `ddof`.
    tol : float
        A covariance is singular if, scaled to unit variances, it has an eigenvalue of at most
        ``tol ** 2``.
    store_covariance : bool
        Keep `covariance_` after its first use, instead of computing it each time.
    temperature : float > 0
        Divides the joint log-likelihoods before they become posteriors; `calibrate` chooses it.
    feature_map : RandomFeatures, Standardize, transformer, or list; optional
        Map that is applied to rows before the model, in `fit` and in all methods that score rows.
        Fitted attributes describe the mapped rows, except `n_features_in_`, which counts the
        features before the map.

    Attributes
    ----------
    classes_, class_count_, priors_, means_, covariance_, shrinkage_, epsilon_
    constant_features_ : ndarray of int
        Features that are constant over all rows and left out of the density.
    moments_ : ClassMoments
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Defined if X has column names that are strings.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from streamgda import GaussianDiscriminantAnalysis
    >>> X, y = load_iris(return_X_y=True)
    >>> gda = GaussianDiscriminantAnalysis("spherical").fit(X, y)
    >>> gda.predict(X[:2])
    array([0, 0])
    >>> gda.covariance_.round(2)
    array([0.08, 0.15, 0.22])
    """

    _float32_of_float32 = False

    def __init__(
        self,
        covariance_type: str = "full",
        *,
        priors: Any = None,
        shrinkage: float | str | None = None,
        pooling: float = 0.0,
        reg_param: float = 0.0,
        var_smoothing: float = 0.0,
        ddof: int = 0,
        tol: float = 1e-4,
        store_covariance: bool = False,
        temperature: float = 1.0,
        feature_map: Any = None,
    ) -> None:
        self.covariance_type = covariance_type
        self.priors = priors
        self.shrinkage = shrinkage
        self.pooling = pooling
        self.reg_param = reg_param
        self.var_smoothing = var_smoothing
        self.ddof = ddof
        self.tol = tol
        self.store_covariance = store_covariance
        self.temperature = temperature
        self.feature_map = feature_map

    _least_classes = 2

    def _covariance_type(self) -> str:
        return self.covariance_type

    def _regularisation(self) -> Regularisation:
        return Regularisation(
            ddof=self.ddof,
            pooling=self.pooling,
            shrinkage=self.shrinkage,
            reg_param=self.reg_param,
            var_smoothing=self.var_smoothing,
            tol=self.tol,
        )

    @fitted
    def priors_(self) -> np.ndarray:
        """Class priors, shape (n_classes,)."""
        return self.model_.priors

    @fitted
    def means_(self) -> np.ndarray:
        """Class means, shape (n_classes, n_features); NaN for a class without rows."""
        check_is_fitted(self)
        return self._in_type(self._held.means)

    @takes(GapScoring)
    def decision_function(self, X: Any, **scoring: Unpack[GapScoring]) -> Any:
        """Return the discriminants of the classes, or the log-odds of the second of two.

        Parameters
        ----------
        X, out, features, nodata, on_invalid, fill, keys, max_memory, on_missing : see `predict`
            Rows, the destination of the result, and how rows are read.

        Returns
        -------
        ndarray, shape (n_rows, n_classes), or (n_rows,) for one or two; or as for `predict`
            Discriminants.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        InvalidDataError, InvalidParameterError
            As for `predict`.

        Examples
        --------
        >>> from streamgda import LinearDiscriminantAnalysis
        >>> lda = LinearDiscriminantAnalysis().fit([[1.0], [3.0], [6.0], [8.0]], [0, 0, 1, 1])
        >>> lda.decision_function([[2.0], [4.5], [7.0]]).round(3)
        array([-12.5,   0. ,  12.5])
        """
        return self._scored("decision_function", X, scoring)

    @fitted
    def covariance_(self) -> np.ndarray:
        """Regularised covariances of all features, in the shape of the covariance type.

        (K, d, d), (d, d), (K, d), (d,), (K,) or (); with `standardize`, ``"spherical"`` has a
        variance for each feature: (K, d) or (d,).
        """
        covariances = self._covariances
        structure, values = covariances.structure, covariances.values
        values = structure.shown(values)
        return structure.ungroup(values)

    @fitted
    def shrinkage_(self) -> np.ndarray:
        """Amount of shrinkage of each covariance, shape (n_classes,), or (1,) where tied.

        With ``"auto"`` it is that of each class: a tied covariance is their average.
        """
        return self._amounts[0]

    @fitted
    def epsilon_(self) -> float:
        """Value that `var_smoothing` adds to the variances, scaled ones with `standardize`."""
        return self._amounts[1]

    def _counterpart(self) -> export.Counterpart:
        settings, model = self._settings, self.model_
        shrunk = settings.shrinkage is not None
        match settings.covariance_type:
            case "full":
                solver = "eigen" if shrunk else "svd"
                found = export.quadratic(model, settings.shrinkage, solver=solver)
                if settings.store_covariance:
                    found.attributes["covariance_"] = list(self.covariance_)
                return found
            case "tied":
                amount = export.amount(settings.shrinkage, self.shrinkage_)
                more = {"solver": "lsqr" if shrunk else "svd", "shrinkage": amount}
                n_components = min(model.classes.size - 1, model.n_features)
                directions = discriminant_directions(model, settings.tol)
                found = export.linear(model, model.linear, directions, n_components, **more)
                if shrunk or settings.store_covariance:
                    found.attributes["covariance_"] = self.covariance_
                return found
            case "diag":
                return export.independent(model, self.class_count_, self.epsilon_)
        raise UnsupportedError(
            f"scikit-learn has no estimator of covariance type {settings.covariance_type!r}; "
            f"'full', 'tied' and 'diag' are converted"
        )


class QuadraticDiscriminantAnalysis(GaussianClassifier):
    r"""Quadratic discriminant analysis: a covariance matrix for each class.

    It corresponds to `sklearn.discriminant_analysis.QuadraticDiscriminantAnalysis`, but needs only
    one pass over the rows.

    Parameters
    ----------
    solver : {"svd", "eigen"}
        Both find the same model from the same moments. ``"svd"`` takes a `reg_param`, and
        ``"eigen"`` shrinkage or a `covariance_estimator`, as in scikit-learn.
    shrinkage : float in [0, 1], {"auto", "oas"}, optional
        Amount :math:`a` of :math:`(1-a) \Sigma + a\,\mathrm{tr}(\Sigma)/d\,I`. ``"auto"`` is
        scikit-learn's: each class is standardised, shrunk by Ledoit and Wolf's amount and scaled
        back. It needs a cheap second pass over the rows, so that only `fit` can compute it.
        ``"oas"`` follows from one pass. It is that of `sklearn.covariance.oas` for the rows as they
        are, less their class means: if units or scales of features differ, standardise the rows
        first. The number of weighted rows in its formula is the effective one :math:`(\sum w)^2 /
        \sum w^2`: only ratios of weights matter.
    priors : array-like, shape (n_classes,), optional
        Priors of the sorted classes, used as they are; by default their shares of the rows.
    reg_param : float in [0, 1]
        Amount :math:`r` of :math:`(1-r) \Sigma + r I`, with solver ``"svd"`` only.
    store_covariance : bool
        Whether the fitted estimator has a `covariance_`.
    tol : float
        A covariance is singular if, scaled to unit variances, it has an eigenvalue of at most
        ``tol ** 2``. scikit-learn compares the eigenvalues of the covariance itself with `tol`,
        and so refuses the same rows in smaller units.
    covariance_estimator : object, optional
        Estimates the covariance of the rows of each class in place of a shrinkage: an object with
        a method ``fit`` and then an attribute ``covariance_``, such as those of
        `sklearn.covariance`. It needs the rows themselves: arrays in memory, in `fit`.
    temperature : float > 0
        Divides the joint log-likelihoods before they become posteriors; `calibrate` chooses it.
    feature_map : RandomFeatures, Standardize, transformer, or list; optional
        Map that is applied to rows before the model; see `GaussianDiscriminantAnalysis`.

    Attributes
    ----------
    classes_, class_count_, priors_, means_, shrinkage_, rotations_, scalings_
    covariance_ : ndarray, shape (n_classes, n_features, n_features)
        With ``store_covariance=True``.
    constant_features_, moments_, n_features_in_, feature_names_in_

    Notes
    -----
    Features that are constant over all rows are left out of the density. In scikit-learn, shrinkage
    gives them a variance, which differs between classes: each adds minus half its logarithm to the
    discriminant of the class. Labels of rows near a boundary may differ; with `reg_param` or
    without regularisation, none do.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from streamgda import QuadraticDiscriminantAnalysis
    >>> X, y = load_iris(return_X_y=True)
    >>> QuadraticDiscriminantAnalysis().fit(X, y).score(X, y)
    0.98
    >>> QuadraticDiscriminantAnalysis(solver="eigen", shrinkage=0.5).fit(X, y).score(X, y)
    0.9666666666666667
    """

    _any_sum_of_priors = True
    _SOLVERS = "svd", "eigen"
    _NOT_WITH_SVD = "covariance_estimator is not supported with solver='svd'"

    def __init__(
        self,
        *,
        solver: str = "svd",
        shrinkage: float | str | None = None,
        priors: Any = None,
        reg_param: float = 0.0,
        store_covariance: bool = False,
        tol: float = 1e-4,
        covariance_estimator: Any = None,
        temperature: float = 1.0,
        feature_map: Any = None,
    ) -> None:
        self.solver = solver
        self.shrinkage = shrinkage
        self.priors = priors
        self.reg_param = reg_param
        self.store_covariance = store_covariance
        self.tol = tol
        self.covariance_estimator = covariance_estimator
        self.temperature = temperature
        self.feature_map = feature_map

    _least_classes = 2

    def _covariance_type(self) -> str:
        return "full"

    def _regularisation(self) -> Regularisation:
        svd = self.solver == "svd"
        reg_param = as_number("reg_param", self.reg_param, "a number between 0 and 1", 0, 1)
        return Regularisation(
            shrinkage=self.shrinkage,
            reg_param=reg_param if svd else 0.0,
            tol=self.tol,
            advice=_ADVICE[self.solver],
        )

    def _estimate(
        self, moments: ClassMoments, how: Regularisation, beside: Any = None, **options: Any
    ) -> Covariances:
        if beside is None:
            return super()._estimate(moments, how, **options)
        return replace(beside.each, values=beside.each.values.copy())

    decision_function = GaussianDiscriminantAnalysis.decision_function
    priors_ = GaussianDiscriminantAnalysis.priors_
    means_ = GaussianDiscriminantAnalysis.means_
    shrinkage_ = GaussianDiscriminantAnalysis.shrinkage_

    @fitted
    def covariance_(self) -> np.ndarray:
        """Regularised class covariances, shape (n_classes, n_features, n_features)."""
        self._needs_stored_covariance()
        return self._in_type(self._covariances.values)

    def _counterpart(self) -> export.Counterpart:
        found = export.quadratic(self.model_, self._settings.shrinkage)
        if self._settings.store_covariance:
            found.attributes["covariance_"] = list(self._covariances.values)
        return found

    @property
    def _axes(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Variances and principal axes of each class, by falling variance."""
        return self._once("axes", self._compute_axes)

    def _compute_axes(self) -> list[tuple[np.ndarray, np.ndarray]]:
        return threads.run_serial_blas(_principal_axes, ((c,) for c in self._covariances.values))

    @fitted
    def rotations_(self) -> Sequence[np.ndarray]:
        """Principal axes of each class as columns by falling variance, (n_features, n_features)."""
        return [self._in_type(vectors) for _, vectors in self._axes]

    @fitted
    def scalings_(self) -> Sequence[np.ndarray]:
        """Variances along the principal axes of each class, in falling order, (n_features,)."""
        return [self._in_type(values) for values, _ in self._axes]


def _principal_axes(covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return variances and axes by falling variance; NaN for a class without rows."""
    if np.isnan(covariance).any():
        return covariance.diagonal().copy(), covariance
    values, vectors = linalg.eigh(covariance)
    return values[::-1], vectors[:, ::-1]
