"""Linear discriminant analysis: classifier and dimension reduction from pooled moments."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from streamgda.estimators.gaussian import DiscriminantAnalysis
from streamgda.estimators.scoring import Scorer
from streamgda.models import fisher
from streamgda.models.covariance import Regularisation
from streamgda.runtime.parameters import as_integer


class LinearDiscriminantAnalysis(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, DiscriminantAnalysis
):
    r"""Linear discriminant analysis: one covariance matrix, pooled within classes.

    It corresponds to `sklearn.discriminant_analysis.LinearDiscriminantAnalysis`, but needs only one
    pass over the rows. The covariance is :math:`\sum_k S_k / n` (document 002, eq. 10) for any
    priors; scikit-learn weights the covariances of the classes with priors that are passed.

    Parameters
    ----------
    shrinkage : float in [0, 1], {"auto", "ledoit_wolf", "oas"}, optional
        Amount :math:`a` of :math:`(1-a) \Sigma + a\,\mathrm{tr}(\Sigma)/d\,I`. ``"auto"`` is
        scikit-learn's: each class is standardised, shrunk by Ledoit and Wolf's amount and scaled
        back, and the results are averaged, weighted with the priors. It needs a cheap second pass
        over the rows, and so `fit`. ``"ledoit_wolf"`` and ``"oas"`` follow from one pass. They are
        those of `sklearn.covariance.ledoit_wolf` and `sklearn.covariance.oas` for all rows as they
        are, each less its class mean: if units or scales of features differ, standardise the rows
        first. Ledoit and Wolf's amounts need a matrix for each class rather than one for all. The
        number of weighted rows in their formulas is the effective one :math:`(\sum w)^2 / \sum
        w^2`: only ratios of weights matter.
    priors : array-like, shape (n_classes,), optional
        Priors of the sorted classes; by default their shares of the rows.
    n_components : int, optional
        Number of columns of `transform`, by default the most: min(n_classes - 1, n_features).
    store_covariance : bool
        Keep `covariance_` after its first use.
    tol : float
        The covariance is singular if, scaled to unit variances, it has an eigenvalue of at most
        ``tol ** 2``.

    Attributes
    ----------
    classes_, class_count_, priors_, means_, xbar_, covariance_, shrinkage_, coef_, intercept_
    scalings_, explained_variance_ratio_
    constant_features_, moments_, n_features_in_, feature_names_in_

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from streamgda import LinearDiscriminantAnalysis
    >>> X, y = load_iris(return_X_y=True)
    >>> lda = LinearDiscriminantAnalysis(n_components=1).fit(X, y)
    >>> lda.score(X, y), lda.transform(X).shape
    (0.98, (150, 1))
    """

    def __init__(
        self,
        *,
        shrinkage: float | str | None = None,
        priors: Any = None,
        n_components: int | None = None,
        store_covariance: bool = False,
        tol: float = 1e-4,
    ) -> None:
        self.shrinkage = shrinkage
        self.priors = priors
        self.n_components = n_components
        self.store_covariance = store_covariance
        self.tol = tol

    def _covariance_type(self) -> str:
        return "tied"

    def _regularisation(self) -> Regularisation:
        return Regularisation(shrinkage=self.shrinkage, tol=self.tol)

    def _check_fitted(self) -> None:
        super()._check_fitted()
        self._components_wanted  # noqa: B018  (fit refuses too many)

    @property
    def xbar_(self) -> np.ndarray:
        """Mean of the class means, weighted with the priors, shape (n_features,)."""
        return self.model_.xbar

    @property
    def covariance_(self) -> np.ndarray:
        """Regularised pooled covariance, shape (n_features, n_features)."""
        return self._covariances.values[0]

    @property
    def shrinkage_(self) -> np.ndarray:
        """Amount of shrinkage, shape (1,), or (n_classes,) with ``shrinkage="auto"``."""
        return self._amounts[0]

    @property
    def _coefficients(self) -> tuple[np.ndarray, np.ndarray]:
        model = self.model_
        coefficients = np.zeros((model.classes.size, model.n_features))
        coefficients[:, model.features], intercepts = model.linear
        intercepts = intercepts - coefficients @ model.xbar
        if model.classes.size == 2:
            return np.diff(coefficients, axis=0), np.diff(intercepts)
        return coefficients, intercepts

    @property
    def coef_(self) -> np.ndarray:
        """Weights of the features, (n_classes, n_features), or (1, n_features) for two classes."""
        return self._coefficients[0]

    @property
    def intercept_(self) -> np.ndarray:
        """Offsets of the weighted features, shape (n_classes,), or (1,) for two classes."""
        return self._coefficients[1]

    @property
    def _directions(self) -> tuple[np.ndarray, np.ndarray]:
        """Scalings, and the between-class variance along each in whitened rows."""
        found: tuple[np.ndarray, np.ndarray] = self._once(
            "directions", lambda: fisher.directions(self.model_, self._settings.tol)
        )
        return found

    @property
    def scalings_(self) -> np.ndarray:
        r"""Discriminant directions, columns by falling between-class variance.

        The shape is (n_features, rank). Along them the within-class covariance is the unit matrix.
        """
        return self._directions[0]

    @property
    def explained_variance_ratio_(self) -> np.ndarray:
        """Share of the between-class variance along each direction, shape (n_components,)."""
        variances = self._directions[1]
        return (variances / (variances.sum() or 1))[: self._components_wanted]

    @property
    def _n_features_out(self) -> int:
        return min(self._components_wanted, self.scalings_.shape[1])

    @property
    def _components_wanted(self) -> int:
        most = min(self.classes_.size - 1, self.n_features_in_)
        wanted = self._settings.n_components
        if wanted is None:
            return most
        limit = f"min(n_features, n_classes - 1) = {most}"
        expected = f"an integer >= 1; n_components cannot be larger than {limit}"
        return self._derived(as_integer, "n_components", wanted, expected, 1, most)

    def transform(self, X: Any, *, out: Any = None) -> Any:
        """Project rows on the directions that separate the classes best.

        Parameters
        ----------
        X, out : see `predict`
            Rows, and the destination of the result.

        Returns
        -------
        ndarray, shape (n_rows, min(n_components, rank)); or as for `predict`
            Projected rows.
        """
        scalings = self.scalings_[:, : self._components_wanted]
        along = {"directions": scalings}
        function = partial(self.model_.project, **along)
        scorer = Scorer("project", function, self.model_, columns=scalings.shape[1], options=along)
        return self._score_rows(scorer, X, out)
