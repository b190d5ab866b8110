"""Linear discriminant analysis: classifier and dimension reduction from pooled moments."""

from __future__ import annotations

from functools import partial
from typing import Any, Self, Unpack

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from streamgda.errors import (
    CollinearityWarning,
    InvalidDataError,
    InvalidParameterError,
    UnsupportedError,
)
from streamgda.estimators import export
from streamgda.estimators.discriminant import GaussianDiscriminantAnalysis
from streamgda.estimators.gaussian import GaussianClassifier, GivenCovariances
from streamgda.estimators.moment_classifier import fitted
from streamgda.estimators.row_estimator import Scorer, Scoring, takes, warn
from streamgda.models import discriminants
from streamgda.models.covariance import Covariances, Regularisation, average
from streamgda.models.discriminants import LinearModel, LinearScores
from streamgda.models.gaussian import GaussianModel
from streamgda.moments import ClassMoments
from streamgda.moments.fourth import TOTAL
from streamgda.runtime.parameters import as_integer, as_number
from streamgda.storage.saved import build

_SINGULAR = {"svd": "scaled", "lsqr": "features", "eigen": "refuse"}
_PRIOR_ERROR = 1e-5  # sums of priors that differ more from one are reported
_SINGLE = ("posterior", "log_posterior", "relative_scores", "log_odds")


class LinearDiscriminantAnalysis(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, GaussianClassifier
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
          subtracting a mean. A singular covariance is refused.

    shrinkage : float in [0, 1], {"auto", "oas"}, optional
        Amount :math:`a` of :math:`(1-a) \Sigma + a\,\mathrm{tr}(\Sigma)/d\,I`. ``"auto"`` is
        scikit-learn's: each class is standardised, shrunk by Ledoit and Wolf's amount and scaled
        back, and the results are averaged, weighted with the priors. It needs a cheap second pass
        over the rows, so that only `fit` can compute it. ``"oas"`` follows from one pass.
        It is that of `sklearn.covariance.oas` for all rows as they are, each less its class mean:
        if units or scales of features differ, standardise the rows first. The number of weighted
        rows in its formula is the effective one :math:`(\sum w)^2 / \sum w^2`: only ratios of
        weights matter.
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
        Estimates the covariance of the rows of each class in place of a shrinkage: an object with
        a method ``fit`` and then an attribute ``covariance_``, such as those of
        `sklearn.covariance`. It needs the rows themselves: arrays in memory, in `fit`.
    temperature : float > 0
        Divides the joint log-likelihoods before they become posteriors; `calibrate` chooses it.
    feature_map : RandomFeatures, Standardize, transformer, or list; optional
        Map that is applied to rows before the model; see `GaussianDiscriminantAnalysis`.

    Attributes
    ----------
    classes_, class_count_, priors_, means_, coef_, intercept_
    covariance_, shrinkage_
    xbar_ : ndarray, shape (n_features,)
        With solver ``"svd"``.
    scalings_, explained_variance_ratio_
        With the solvers ``"svd"`` and ``"eigen"``.
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

    _model_type = LinearModel
    _any_sum_of_priors = True
    _SOLVERS = discriminants.SOLVERS
    _NOT_WITH_SVD = "covariance estimator is not supported with svd solver"

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

    # --- parameters ---------------------------------------------------------------------------

    def _covariance_type(self) -> str:
        return "tied"

    def _regularisation(self) -> Regularisation:
        tol = as_number("tol", self.tol, "a number >= 0", 0)
        return Regularisation(
            shrinkage=self.shrinkage,
            tol=tol if self.solver == "svd" else 0.0,
            singular=_SINGULAR[self.solver],
            advice="Set shrinkage above 0, or use solver='svd', which drops directions",
        )

    def _kept(self) -> dict[str, Any]:
        kept = super()._kept()
        weighted = self.solver != "svd" or self.store_covariance
        return kept | ({"covariance_type": "full"} if weighted and self.priors is not None else {})

    def _scalings(self) -> tuple[str, ...]:
        scalings = super()._scalings()
        return (*scalings, TOTAL) if scalings and self.solver == "eigen" else scalings

    def _check_fitted(self) -> None:
        super()._check_fitted()
        self._components_wanted  # noqa: B018  (fit refuses too many)

    # --- the model ----------------------------------------------------------------------------

    def _priors_of(self, moments: ClassMoments) -> np.ndarray:
        priors = super()._priors_of(moments)
        total = priors.sum()
        return priors / total if abs(total - 1) > _PRIOR_ERROR else priors

    def _make_model(
        self, moments: ClassMoments, beside: GivenCovariances | None = None
    ) -> GaussianModel:
        count = moments.class_count
        if count.dtype.kind == "i" and count.any() and (count <= 1).all():
            raise InvalidDataError(
                f"The number of samples must be more than the number of classes; got one sample of "
                f"each of {(count > 0).sum()} classes. Give more rows"
            )
        return super()._make_model(moments, beside)

    def _of_covariances(self, *numbers: Any, **attributes: Any) -> LinearModel:
        return LinearModel.of(*numbers, **attributes, solver=self.solver, tol=float(self.tol))

    def _model_of_numbers(  # type: ignore[override]
        self, classes: np.ndarray, **numbers: Any
    ) -> Any:
        if "coef" in numbers:
            return build(LinearScores.of, classes, **numbers)
        return build(super()._model_of_numbers, classes, **numbers)

    def _compute_model(self) -> LinearModel:
        model: Any = super()._compute_model()  # refuses priors that are no numbers
        given = self._settings.priors
        if given is not None and abs(np.sum(given) - 1) > _PRIOR_ERROR:
            warn("The priors do not sum to 1. Renormalizing")
        dropped = model.features.size - model.rank
        if dropped and dropped != getattr(self, "_reported_dropped", 0):
            warn(
                f"{dropped} of {model.features.size} directions of the features do not vary within "
                f"the classes, as features are collinear or there are few rows, and are dropped",
                CollinearityWarning,
            )
        self._reported_dropped = dropped
        return model

    def _estimate(
        self, moments: ClassMoments, how: Regularisation, beside: Any = None, **options: Any
    ) -> Covariances:
        if beside is not None:
            return average(beside.each, self._priors_of(moments))
        weights = None
        # With `svd`, they weight only what users see, which includes constant features.
        weighted = self.solver != "svd" or not options.get("drop_constant", True)
        if weighted and self.priors is not None and moments.covariance_type == "full":
            weights = self._priors_of(moments)
        return discriminants.estimate_pooled(moments, how, weights, **options)

    def _check_removable(self) -> None:
        super()._check_removable()
        settings, model = self._settings, self.model_
        if settings.solver != "svd":
            if settings.priors is not None:
                raise UnsupportedError(
                    f"leave-one-out has no formula for solver={settings.solver!r} with priors, "
                    f"which weight the covariances of the classes; use solver='svd'"
                )
        elif model.drops_directions:
            raise UnsupportedError(
                "leave-one-out has no formula for class means that differ in fewer directions "
                "than there are classes, less one; use solver='lsqr'"
            )

    def _separations(self) -> np.ndarray:
        model = self.model_
        if self._settings.solver != "svd" or self.classes_.size <= 2:
            return super()._separations()
        most = min(int((model.priors > 0).sum()) - 1, model.rank)
        return np.sqrt(model.directions[1][[0, most - 1]])

    @classmethod
    def from_parameters(  # type: ignore[override]
        cls,
        coef: Any = None,
        intercept: Any = None,
        classes: Any = None,
        *,
        means: Any = None,
        covariance: Any = None,
        priors: Any = None,
        constant_features: Any = None,
        **params: Any,
    ) -> Self:
        """Return an estimator of given numbers, from a file or a paper.

        With `coef` and `intercept` it predicts labels and their probabilities as an estimator with
        such `coef_` and `intercept_`. Densities, distances, samples and `transform` need `means`,
        `covariance` and `priors` instead. (With solver ``"svd"`` and `priors` of its own, the
        `covariance_` of an estimator is not that of its discriminants, as in scikit-learn.)
        The result has no `moments_`: attributes and methods that need them raise an AttributeError,
        and `partial_fit` an error. It can be saved and loaded.

        Parameters
        ----------
        coef : array-like, shape (n_classes, n_features), or (1, n_features) for two classes
            Weights of the features.
        intercept : array-like, shape (n_classes,), or (1,) for two classes
            Offsets of the weighted features.
        classes : array-like, shape (n_classes,)
            Class labels, sorted.
        means : array-like, shape (n_classes, n_features)
            NaN for a class without rows.
        covariance : array-like, shape (n_features, n_features)
            Covariance within classes.
        priors : array-like, shape (n_classes,)
            Priors of the classes.
        constant_features : array-like of int, optional
            Features to be left out of the density, as in `constant_features_`; by default those
            whose variances are zero in all classes.
        **params
            Parameters of the estimator; those that regularise do not change what is given.

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
        >>> from streamgda import LinearDiscriminantAnalysis
        >>> lda = LinearDiscriminantAnalysis.from_parameters([[5.0]], [-22.5], ["ant", "bee"])
        >>> lda.predict([[4.0], [5.0]]), lda.decision_function([[5.0]])
        (array(['ant', 'bee'], dtype='<U3'), array([2.5]))
        """
        discriminants = {"coef": coef, "intercept": intercept}
        densities = {"means": means, "covariances": covariance, "priors": priors}
        given, others = discriminants, {**densities, "constant_features": constant_features}
        if coef is None and intercept is None:
            given, others = densities, {}
        lacking = [name for name, value in {**given, "classes": classes}.items() if value is None]
        if lacking or any(value is not None for value in others.values()):
            raise InvalidParameterError(
                "from_parameters takes classes with coef and intercept, or with means, covariance "
                "and priors; all of them, and none of the others"
            )
        numbers = {**given, "constant_features": constant_features}
        return cls._of_numbers(classes, numbers, params)

    # --- fitted attributes --------------------------------------------------------------------

    def _needs_solver(self, name: str, *solvers: str) -> None:
        """Raise AttributeError unless the model was found by one of the solvers."""
        check_is_fitted(self)
        if self._settings.solver not in solvers:
            raise AttributeError(
                f"{type(self).__name__} has {name} with solver="
                f"{' or '.join(map(repr, solvers))} only; it was fitted with "
                f"{self._settings.solver!r}"
            )

    @fitted
    def priors_(self) -> np.ndarray:
        """Class priors, shape (n_classes,)."""
        return self._in_type(self.model_.priors)

    means_ = GaussianDiscriminantAnalysis.means_

    @fitted
    def xbar_(self) -> np.ndarray:
        """Mean of the class means, weighted with the priors, shape (n_features,)."""
        self._needs_solver("xbar_", "svd")
        return self._in_type(self.model_.xbar)

    @fitted
    def covariance_(self) -> np.ndarray:
        """Regularised pooled covariance, shape (n_features, n_features)."""
        check = getattr(self, "_settings", None)
        if check is None or check.solver == "svd":
            self._needs_stored_covariance()
        return self._covariances.values[0]

    @fitted
    def shrinkage_(self) -> np.ndarray:
        """Amount of shrinkage, shape (1,), or (n_classes,) with ``shrinkage="auto"``."""
        return self._amounts[0]

    @property
    def _coefficients(self) -> tuple[np.ndarray, np.ndarray]:
        model = self.model_
        if isinstance(model, LinearScores):
            return model.about_zero
        return discriminants.about_zero(model, *model.discriminants)

    @fitted
    def coef_(self) -> np.ndarray:
        """Weights of the features, (n_classes, n_features), or (1, n_features) for two classes."""
        values = self._coefficients[0]
        return self._in_type(values) if self._single_discriminants else values

    @fitted
    def intercept_(self) -> np.ndarray:
        """Offsets of the weighted features, shape (n_classes,), or (1,) for two classes."""
        values = self._coefficients[1]
        return self._in_type(values) if self._single_discriminants else values

    @property
    def _single_discriminants(self) -> bool:
        return self._settings.solver == "svd" or self.classes_.size == 2

    @property
    def _directions(self) -> tuple[np.ndarray, np.ndarray]:
        """Scalings, and the between-class variance along each in whitened rows."""
        model = self.model_
        if self._settings.solver != "eigen":
            return model.directions
        return self._once("directions", self._eigen_directions)

    def _eigen_directions(self) -> tuple[np.ndarray, np.ndarray]:
        how = self._settings._regularisation()
        # Shrinkage gives constant features a variance.
        within = self._estimated(drop_constant=not self._covariances.shrinkage.any())
        if self._beside is not None:
            total = self._beside.total
        else:
            total = discriminants.total_covariance(self.moments_, how, float(within.shrinkage[0]))
        return discriminants.eigen_directions(within, total, how)

    @fitted
    def scalings_(self) -> np.ndarray:
        r"""Discriminant directions, columns by falling between-class variance.

        The shape is (n_features, rank). Along them the within-class covariance is the unit matrix.
        """
        self._needs_solver("scalings_", "svd", "eigen")
        scalings = self._directions[0]
        return self._in_type(scalings) if self._settings.solver == "svd" else scalings

    @fitted
    def explained_variance_ratio_(self) -> np.ndarray:
        """Share of the between-class variance along each direction, shape (n_components,)."""
        self._needs_solver("explained_variance_ratio_", "svd", "eigen")
        variances = self._directions[1]
        shares = (variances / (variances.sum() or 1))[: self._components_wanted]
        return self._in_type(shares) if self._settings.solver == "svd" else shares

    @property
    def _max_components(self) -> int:
        """Number of components, which subclasses of scikit-learn's class read."""
        return self._components_wanted

    @property
    def _n_features_out(self) -> int:
        wanted = self._components_wanted
        if self._settings.solver == "lsqr":
            return wanted
        return min(wanted, self._directions[0].shape[1])

    @property
    def _components_wanted(self) -> int:
        most = min(self.classes_.size - 1, self._held.n_features)
        wanted = self._settings.n_components
        if wanted is None:
            return most
        limit = f"min(n_features, n_classes - 1) = {most}"
        expected = f"an integer >= 1; n_components cannot be larger than {limit}"
        asked = partial(as_integer, "n_components", wanted, expected, 1, most)
        return self._once("n_components", asked)

    def _counterpart(self) -> export.Counterpart:
        settings, model = self._settings, self.model_
        more = {"shrinkage": export.amount(settings.shrinkage, self.shrinkage_)}
        directions = None if settings.solver == "lsqr" else self._directions
        n_components = self._components_wanted
        found = export.linear(model, model.discriminants, directions, n_components, **more)
        if settings.solver != "svd" or settings.store_covariance:
            found.attributes["covariance_"] = self._covariances.values[0]
        return found

    # --- scoring ------------------------------------------------------------------------------

    decision_function = GaussianDiscriminantAnalysis.decision_function

    @property
    def _single_scores(self) -> tuple[str, ...]:
        return _SINGLE if self._single_discriminants else ()

    def _scorer(self, method: str, **options: Any) -> Scorer:
        if method != "transform" or options:
            return super()._scorer(method, **options)
        model, solver = self.model_, self._settings.solver
        if solver == "lsqr":
            raise UnsupportedError(
                "transform not implemented for 'lsqr' solver (use 'svd' or 'eigen')."
            )
        scalings = self._directions[0][:, : self._components_wanted]
        own = {"directions": scalings} | ({} if solver == "svd" else {"centred": False})
        single = self._single and solver == "svd"
        function, width = partial(model.project, **own), scalings.shape[1]
        return Scorer("project", function, model, None, width, own, method, single)

    @takes(Scoring)
    def transform(self, X: Any, **scoring: Unpack[Scoring]) -> Any:
        """Project rows on the directions that separate the classes best.

        Parameters
        ----------
        X, out, features, nodata, on_invalid, fill, keys, max_memory : see `predict`
            Rows, the destination of the result, and how rows are read.

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
        return self._scored("transform", X, scoring)
