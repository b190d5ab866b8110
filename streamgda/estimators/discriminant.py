"""Discriminant analysis: with any covariance type, quadratic, and linear."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import Any, Unpack

import numpy as np
from scipy import linalg
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from streamgda.errors import CollinearityWarning, InvalidDataError, UnsupportedError
from streamgda.estimators.base import Reading, warn
from streamgda.estimators.classifier import GaussianClassifier
from streamgda.models.covariance import (
    Regularisation,
    Roots,
    Summary,
    estimate,
    inverse_roots,
    pseudo_root,
)
from streamgda.models.gaussian import Gaussians
from streamgda.moments import ClassMoments
from streamgda.runtime.parameters import as_integer, as_number


class DiscriminantAnalysis(GaussianClassifier):
    """Base of the discriminant analyses: the attributes that all of them have."""

    _least_classes = 2
    _centred = True  # Linear discriminants are those of rows less the mean of the class means.

    @property
    def priors_(self) -> np.ndarray:
        """Class priors, shape (n_classes,)."""
        return self.model_.priors

    @property
    def means_(self) -> np.ndarray:
        """Class means, shape (n_classes, n_features); NaN for a class without rows."""
        check_is_fitted(self)
        return self._moments_of_kind().means

    @property
    def shrinkage_(self) -> np.ndarray:
        """Amount of shrinkage of each covariance.

        Shape (n_classes,), or (1,) for a pooled one; with ``"auto"``, the amounts of the classes,
        whose covariances are averaged.
        """
        return self._all_covariances().shrinkage

    def decision_function(self, X: Any, **reading: Unpack[Reading]) -> Any:
        """Return the discriminants of the classes, or the log-odds of the second of two.

        Parameters
        ----------
        X, **reading : see `predict`
            Rows.

        Returns
        -------
        ndarray, shape (n_rows, n_classes), or (n_rows,) for one or two; or as for `predict`
            Discriminants.

        Raises
        ------
        InvalidDataError, InvalidParameterError
            As for `predict`.

        Examples
        --------
        >>> from streamgda import LinearDiscriminantAnalysis
        >>> lda = LinearDiscriminantAnalysis().fit([[1.0], [3.0], [6.0], [8.0]], [0, 0, 1, 1])
        >>> lda.decision_function([[2.0], [5.0], [7.0]]).round(3)
        array([-12.5,   2.5,  12.5])
        """
        scored = self._scored()
        classes = scored.model.classes
        if classes.size <= 2:
            return self._map("decision_function", "log_odds", X, reading, scored)
        given: Any = {"columns": classes.size, "classes": classes}
        given["options"] = {"centred": self._centred}
        return self._map("decision_function", "discriminants", X, reading, scored, **given)


class GaussianDiscriminantAnalysis(DiscriminantAnalysis):
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
        back; for a pooled covariance, these are averaged, weighted with the priors. It needs all
        rows at once, so that only `fit` can compute it, of rows that fit in memory. ``"oas"``, that
        of `sklearn.covariance.oas` for the rows less their class means, follows from one pass. The
        number of weighted rows in its formula is the effective one :math:`(\sum w)^2 / \sum w^2`.
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

    _advice = GaussianClassifier._advice + ", use a simpler covariance_type"

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
        self.temperature = temperature
        self.feature_map = feature_map

    @property
    def _model_type(self) -> str:  # type: ignore[override]
        return self.covariance_type

    def _covariance_type(self) -> str:
        averaged = self.covariance_type == "tied" and self._needs_all_rows()
        return "full" if averaged else self.covariance_type

    def _regularisation(self) -> Regularisation:
        return Regularisation(
            self.ddof, self.pooling, self.shrinkage, self.reg_param, self.var_smoothing
        )

    @property
    def covariance_(self) -> np.ndarray:
        """Regularised covariances of all features, in the shape of the covariance type.

        (K, d, d), (d, d), (K, d), (d,), (K,) or ().
        """
        values, kind = self._all_covariances().values, self.covariance_type
        values = values[:, 0] if "spherical" in kind else values
        return values[0] if kind.startswith("tied") else values

    @property
    def epsilon_(self) -> float:
        """Value that `var_smoothing` adds to the variances."""
        return self._all_covariances().epsilon


class QuadraticDiscriminantAnalysis(DiscriminantAnalysis):
    r"""Quadratic discriminant analysis: a covariance matrix for each class.

    It corresponds to `sklearn.discriminant_analysis.QuadraticDiscriminantAnalysis`, but needs only
    one pass over the rows.

    Parameters
    ----------
    solver : {"svd", "eigen"}
        Both find the same model from the same moments. ``"svd"`` takes a `reg_param`, and
        ``"eigen"`` shrinkage or a `covariance_estimator`, as in scikit-learn.
    shrinkage : float in [0, 1], {"auto", "oas"}, optional
        Amount :math:`a` of :math:`(1-a) \Sigma + a\,\mathrm{tr}(\Sigma)/d\,I`, or a rule for it;
        see `GaussianDiscriminantAnalysis`.
    priors : array-like, shape (n_classes,), optional
        Priors of the sorted classes, used as they are; by default their shares of the rows.
    reg_param : float in [0, 1]
        Amount :math:`r` of :math:`(1-r) \Sigma + r I`, with solver ``"svd"`` only.
    store_covariance : bool
        Whether the fitted estimator has a `covariance_`.
    tol : float
        A covariance is singular if, scaled to unit variances, it has an eigenvalue of at most
        ``tol ** 2``. scikit-learn compares the eigenvalues of the covariance itself with `tol`,
        and so raises an error for the same rows in smaller units.
    covariance_estimator : object, optional
        Estimates the covariance of the rows of each class in place of a shrinkage: an object with
        a method ``fit`` and then an attribute ``covariance_``, such as those of
        `sklearn.covariance`. It needs all rows at once, in `fit`, which keeps the covariances.
    temperature, feature_map : float > 0; RandomFeatures, Standardize, transformer, or list
        Temperature of posteriors and map of rows; see `GaussianDiscriminantAnalysis`.

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

    _model_type = "full"
    _advice = "Increase reg_param, or shrinkage with solver='eigen'"
    _any_sum_of_priors = True
    _solvers = "svd", "eigen"
    _theirs = "sklearn.discriminant_analysis:QuadraticDiscriminantAnalysis"

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

    def _regularisation(self) -> Regularisation:
        as_number("reg_param", self.reg_param, "a number between 0 and 1", 0, 1)
        reg_param = self.reg_param if self.solver == "svd" else 0.0
        return Regularisation(shrinkage=self.shrinkage, reg_param=reg_param)

    @property
    def covariance_(self) -> np.ndarray:
        """Regularised class covariances, shape (n_classes, n_features, n_features)."""
        if not self.store_covariance:
            raise AttributeError("covariance_ is there with store_covariance=True only")
        return self._all_covariances().values

    @property
    def rotations_(self) -> list[np.ndarray]:
        """Principal axes of each class as columns by falling variance, (n_features, n_features)."""
        return [_principal_axes(each)[1] for each in self._all_covariances().values]

    @property
    def scalings_(self) -> list[np.ndarray]:
        """Variances along the principal axes of each class, in falling order, (n_features,)."""
        return [_principal_axes(each)[0] for each in self._all_covariances().values]

    def _overrides(self, model: Gaussians) -> dict[str, Any]:
        # A rotation has a column for each feature: what those before do not predict of it; the
        # scaling is the variance of that. Principal axes would mix features of different scales,
        # and so lose digits. A class without rows has a prior of zero.
        n_classes, d = model.classes.size, model.features.size
        roots = np.tile(np.eye(d), (n_classes, 1, 1))
        roots[model.alive] = model.roots
        scales = np.einsum("kii->ki", roots)
        rotations = np.zeros((n_classes, model.n_features, d))
        rotations[:, model.features] = np.swapaxes(roots / scales[:, :, None], 1, 2)
        found: dict[str, Any] = {"rotations_": [*rotations], "scalings_": [*scales**-2.0]}
        if self.shrinkage == "oas":  # This name is not known there.
            estimator = resolve_name("sklearn.covariance:OAS")()
            found |= {"shrinkage": None, "covariance_estimator": estimator}
        return found | {"means_": np.nan_to_num(self.means_)}


def _principal_axes(covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return variances and axes by falling variance; NaN for a class without rows."""
    if np.isnan(covariance).any():
        return covariance.diagonal().copy(), covariance
    values, vectors = linalg.eigh(covariance)
    return values[::-1], vectors[:, ::-1]


class LinearDiscriminantAnalysis(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, DiscriminantAnalysis
):
    r"""Linear discriminant analysis: one covariance matrix, pooled within classes.

    It corresponds to `sklearn.discriminant_analysis.LinearDiscriminantAnalysis`, but needs only one
    pass over the rows. The covariance is :math:`\sum_k \pi_k S_k / n_k`, which without `priors` is
    :math:`\sum_k S_k / n` (document 002, eq. 10); with solver ``"svd"`` it is the latter for any
    priors.

    Parameters
    ----------
    solver : {"svd", "lsqr", "eigen"}
        All solvers find the same model from the same moments, and score rows in the same way. They
        differ as those of scikit-learn do:

        - ``"svd"`` drops directions of the features that do not vary within the classes, such as
          those of collinear features, and warns (see `tol`). It takes no shrinkage.
        - ``"lsqr"`` takes shrinkage or a `covariance_estimator`. It has no `transform`. If the
          covariance is singular, its Moore-Penrose inverse is used.
        - ``"eigen"`` takes shrinkage or a `covariance_estimator` too. Rows are transformed without
          subtracting a mean. A singular covariance is an error.

    shrinkage : float in [0, 1], {"auto", "oas"}, optional
        Amount :math:`a` of :math:`(1-a) \Sigma + a\,\mathrm{tr}(\Sigma)/d\,I`, or a rule for it;
        see `GaussianDiscriminantAnalysis`. With ``"auto"``, the covariances of the classes are
        shrunk one by one, and averaged with the priors as weights.
    priors : array-like, shape (n_classes,), optional
        Priors of the sorted classes; by default their shares of the rows. If their sum is not one,
        they are divided by it, with a warning. With the solvers ``"lsqr"`` and ``"eigen"`` they
        also weight the covariances of the classes, which needs a matrix for each class rather than
        one for all.
    n_components : int, optional
        Number of columns of `transform`, by default the most: min(n_classes - 1, n_features).
    store_covariance : bool
        Whether solver ``"svd"`` gives the estimator a `covariance_`; the other solvers always do.
    tol : float
        With solver ``"svd"``, directions are dropped along which, with the features scaled to unit
        variances within classes, the variance is at most ``tol ** 2``, and discriminant directions
        if their singular value is at most `tol` times the largest.
    covariance_estimator : object, optional
        See `QuadraticDiscriminantAnalysis`.
    temperature, feature_map : float > 0; RandomFeatures, Standardize, transformer, or list
        Temperature of posteriors and map of rows; see `GaussianDiscriminantAnalysis`.

    Attributes
    ----------
    classes_, class_count_, priors_, means_, coef_, intercept_
    covariance_, shrinkage_
    xbar_, scalings_, explained_variance_ratio_
    constant_features_, moments_, n_features_in_, feature_names_in_

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from streamgda import LinearDiscriminantAnalysis
    >>> X, y = load_iris(return_X_y=True)
    >>> lda = LinearDiscriminantAnalysis(n_components=1).fit(X, y)
    >>> lda.score(X, y), lda.transform(X).shape
    (0.98, (150, 1))

    Shrinkage, and any covariance estimator, need another solver:

    >>> from sklearn.covariance import OAS
    >>> LinearDiscriminantAnalysis("lsqr", shrinkage=0.1).fit(X, y).score(X, y)
    0.98
    >>> LinearDiscriminantAnalysis("eigen", covariance_estimator=OAS()).fit(X, y).score(X, y)
    0.98
    """

    _any_sum_of_priors = True
    _model_type = "tied"
    _least_classes = 1  # A single class is accepted in scikit-learn, too.
    _solvers = "svd", "lsqr", "eigen"
    _theirs = "sklearn.discriminant_analysis:LinearDiscriminantAnalysis"
    _advice = "Set shrinkage above 0, or use solver='svd', which drops directions"

    def __init__(
        self,
        solver: str = "svd",
        shrinkage: float | str | None = None,
        priors: Any = None,
        n_components: int | None = None,
        store_covariance: bool = False,
        tol: float = 1e-4,
        covariance_estimator: Any = None,
        *,
        temperature: float = 1.0,
        feature_map: Any = None,
    ) -> None:
        self.solver = solver
        self.shrinkage = shrinkage
        self.priors = priors
        self.n_components = n_components
        self.store_covariance = store_covariance
        self.tol = tol
        self.covariance_estimator = covariance_estimator
        self.temperature = temperature
        self.feature_map = feature_map

    # --- the model ----------------------------------------------------------------------------

    @property
    def _weighted(self) -> bool:  # type: ignore[override]
        return self.solver != "svd" and self.priors is not None

    def _covariance_type(self) -> str:
        weighted = self.priors is not None and (self.solver != "svd" or self.store_covariance)
        return "full" if weighted or self._needs_all_rows() else "tied"

    def _regularisation(self) -> Regularisation:
        return Regularisation(shrinkage=self.shrinkage)

    def _priors_of(self, summary: Summary) -> np.ndarray:
        priors = super()._priors_of(summary)
        total = priors.sum()
        return priors if abs(total - 1) <= 1e-5 else np.asarray(priors / total)

    def _make_model(self, moments: ClassMoments, found: Any) -> Gaussians:
        count = moments.class_count
        if count.dtype.kind == "i" and (count <= 1).all():
            raise InvalidDataError(
                f"The number of samples must be more than the number of classes; got one sample of "
                f"each of {(count > 0).sum()} classes. Give more rows"
            )
        model = super()._make_model(moments, found)
        self._check_components(model)
        return model

    def _check_fit(self, model: Gaussians) -> None:
        super()._check_fit(model)
        d, dropped = model.features.size, model.features.size - model.rank
        if self.priors is not None and abs(np.sum(self.priors) - 1) > 1e-5:
            warn("The priors do not sum to 1. Renormalizing")
        if dropped:
            warn(
                f"{dropped} of {d} directions of the features do not vary within the classes, as "
                f"features are collinear or there are few rows, and are dropped",
                CollinearityWarning,
            )

    def _roots(self, covariances: np.ndarray) -> Roots:
        if self.solver == "eigen":
            return super()._roots(covariances)
        scaled, d = self.solver == "svd", covariances.shape[-1]
        tol = self.tol if scaled else 0.0
        roots = inverse_roots(covariances, tol)
        if roots.ranks[0] == d:
            return roots
        root, logs = pseudo_root(covariances[0], tol, scaled)
        return Roots(root[None], np.array([logs]), np.array([d]))

    # --- fitted attributes --------------------------------------------------------------------

    @property
    def covariance_(self) -> np.ndarray:
        """Regularised pooled covariance, shape (n_features, n_features)."""
        if self.solver == "svd" and not self.store_covariance:
            raise AttributeError("covariance_ is there with store_covariance=True only")
        if self.solver != "svd" or self.priors is None:
            return self._all_covariances().values[0]
        # It is weighted in scikit-learn, where the model is not.
        summary = Summary.of(self._moments_of_kind())
        weights = self._priors_of(summary)
        return estimate(summary, "tied", self._regularisation(), weights=weights).values[0]

    @property
    def xbar_(self) -> np.ndarray:
        """Mean of the class means, weighted with the priors, shape (n_features,)."""
        return np.asarray(self.model_.priors @ np.nan_to_num(self.means_))

    @property
    def coef_(self) -> np.ndarray:
        """Weights of the features, (n_classes, n_features), or (1, n_features) for two classes."""
        return self.model_.coefficients(self._centred)[0]

    @property
    def intercept_(self) -> np.ndarray:
        """Offsets of the weighted features, shape (n_classes,), or (1,) for two classes."""
        return self.model_.coefficients(self._centred)[1]

    @property
    def scalings_(self) -> np.ndarray:
        r"""Discriminant directions, columns by falling between-class variance.

        The shape is (n_features, rank). Along them the within-class covariance is the unit matrix.
        """
        return self.model_.directions(self.tol)[0]

    @property
    def explained_variance_ratio_(self) -> np.ndarray:
        """Share of the between-class variance along each direction, shape (n_components,)."""
        variances = self.model_.directions(self.tol)[1]
        return (variances / (variances.sum() or 1))[: self._max_components]

    @property
    def _centred(self) -> bool:  # type: ignore[override]
        return self.solver == "svd"

    def _check_components(self, model: Gaussians) -> int:
        """Return the number of components, which subclasses of scikit-learn's class read."""
        most = min(model.classes.size - 1, model.n_features)
        if self.n_components is None:
            return most
        expected = "an integer; n_components cannot be larger than min(n_features, n_classes - 1)"
        return as_integer("n_components", self.n_components, expected, 1, most)

    @property
    def _max_components(self) -> int:
        return self._check_components(self.model_)

    @property
    def _n_features_out(self) -> int:
        if self.solver == "lsqr":
            return self._max_components
        return min(self._max_components, self.model_.directions(self.tol)[0].shape[1])

    def _overrides(self, model: Gaussians) -> dict[str, Any]:
        most = {"_max_components": self._max_components, "_n_features_out": self._n_features_out}
        found = {"means_": np.nan_to_num(self.means_), **most}
        if model.classes.size == 1:  # Its score would be read as log-odds.
            found |= {"coef_": np.zeros_like(self.coef_), "intercept_": np.zeros(1)}
        if self.shrinkage == "oas":
            found["shrinkage"] = float(self.shrinkage_[0])
        return found

    def transform(self, X: Any, **reading: Unpack[Reading]) -> Any:
        """Project rows on the directions that separate the classes best.

        Parameters
        ----------
        X, **reading : see `predict`
            Rows.

        Returns
        -------
        ndarray, shape (n_rows, min(n_components, rank)); or as for `predict`
            Projected rows; with solver ``"svd"``, less `xbar_`.

        Raises
        ------
        UnsupportedError
            With solver ``"lsqr"``, which finds no directions.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from streamgda import LinearDiscriminantAnalysis
        >>> X, y = load_iris(return_X_y=True)
        >>> LinearDiscriminantAnalysis(n_components=1).fit(X, y).transform(X[:3]).round(2)
        array([[8.14],
               [7.2 ],
               [7.57]])
        """
        scored = self._scored()
        model = scored.model
        if self.solver == "lsqr":
            raise UnsupportedError(
                "transform not implemented for 'lsqr' solver (use 'svd' or 'eigen')."
            )
        n = self._check_components(model)
        directions = model.directions(self.tol)[0][model.features, :n]
        offsets = model.zero(self._centred) @ directions
        given: Any = {"options": {"directions": directions, "offsets": offsets}}
        given["columns"] = directions.shape[1]
        return self._map("transform", "transform", X, reading, scored, **given)
