"""`PCA`: principal component analysis of rows of any container, in one pass."""

from __future__ import annotations

from typing import Any, Self, Unpack

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from streamgda.errors import UnsupportedError
from streamgda.estimators.base import MomentEstimator, Reading
from streamgda.models.principal_components import PrincipalComponents
from streamgda.moments import ClassMoments
from streamgda.runtime.parameters import as_flag, check_type
from streamgda.storage.saved import synchronized


class PCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, MomentEstimator):
    r"""Principal component analysis of rows in any container, in one pass over them.

    It corresponds to `sklearn.decomposition.PCA`, and its numbers are those of the solver
    ``"covariance_eigh"``: the eigenvectors and eigenvalues :math:`\lambda_i` of

    .. math:: S = \frac{1}{n - 1} \sum_i (x_i - m) (x_i - m)^T

    The sum is centred, so that an offset of the rows costs no digits. `partial_fit` adds rows and
    `forget` removes them; `from_moments` takes moments of classes, of parts of the rows, or from
    another machine.

    Parameters
    ----------
    n_components : int, float in (0, 1), optional
        Number of components. A float takes as many as explain more than this share of the variance.
        By default min(n_samples, n_features).
    copy : bool
        Has no effect, because rows are never changed.
    whiten : bool
        Divide coordinates by their standard deviations.
    svd_solver, tol, iterated_power, n_oversamples : as in scikit-learn
        They have no effect: every solver is ``"covariance_eigh"``, which is exact.
    power_iteration_normalizer, random_state : as in scikit-learn
        They have no effect, either.
    feature_map : RandomFeatures, Standardize, transformer, or list; optional
        Map that is applied to rows first; see `GaussianDiscriminantAnalysis`. Components and means
        then describe the mapped rows, and `inverse_transform` raises an error.

    Attributes
    ----------
    components_ : ndarray, shape (n_components, n_features)
        Orthonormal axes by falling variance; the largest entry of each is positive.
    explained_variance_, explained_variance_ratio_, singular_values_
    mean_, noise_variance_, n_components_, n_samples_
        As in scikit-learn. With weights, `n_samples_` is their sum.
    moments_ : ClassMoments
        Moments of all rows, as one class 0.
    n_features_in_, feature_names_in_

    See Also
    --------
    ClassMoments.project : Moments of the coordinates, without reading rows again.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from streamgda import PCA
    >>> X, y = load_iris(return_X_y=True)
    >>> pca = PCA(2).fit(X)
    >>> pca.explained_variance_ratio_.round(3)
    array([0.925, 0.053])
    >>> pca.transform(X[:2]).round(3)
    array([[-2.684,  0.319],
           [-2.714, -0.177]])

    The squared distance from the plane of the components tells rows of another kind:

    >>> pca.residual([X[0], X[0] + [0, 2, 0, 0]]).round(2)
    array([0.  , 1.77])
    """

    model_: PrincipalComponents

    def __init__(
        self,
        n_components: float | None = None,
        *,
        copy: bool = True,
        whiten: bool = False,
        svd_solver: str = "auto",
        tol: float = 0.0,
        iterated_power: int | str = "auto",
        n_oversamples: int = 10,
        power_iteration_normalizer: str = "auto",
        random_state: Any = None,
        feature_map: Any = None,
    ) -> None:
        self.n_components = n_components
        self.copy = copy
        self.whiten = whiten
        self.svd_solver = svd_solver
        self.tol = tol
        self.iterated_power = iterated_power
        self.n_oversamples = n_oversamples
        self.power_iteration_normalizer = power_iteration_normalizer
        self.random_state = random_state
        self.feature_map = feature_map

    def _covariance_type(self) -> str:
        return "full"

    def _check_parameters(self) -> None:
        as_flag("whiten", self.whiten)

    def _make_model(self, moments: ClassMoments, found: Any) -> PrincipalComponents:
        return PrincipalComponents.of(moments, self.n_components, bool(self.whiten))

    # --- learning -----------------------------------------------------------------------------

    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, **reading: Unpack[Reading]
    ) -> Self:
        """Find the components of rows, in one pass over them.

        Parameters
        ----------
        X, y, sample_weight, **reading : see `GaussianNB.fit`
            Rows, their weights, and how they are read; `y` is ignored.

        Returns
        -------
        PCA
            The estimator itself.

        Raises
        ------
        InvalidDataError
            For rows or weights that cannot be used, and fewer than two rows.
        InvalidParameterError
            For parameters out of range.

        Examples
        --------
        >>> from streamgda import PCA
        >>> PCA(1).fit([[0.0, 0.0], [1.0, 2.0], [2.0, 4.0]]).components_.round(3)
        array([[0.447, 0.894]])
        """
        return super().fit(X, None, sample_weight, **reading)

    def partial_fit(  # type: ignore[override]  # there are no classes
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        half_life: float | None = None,
        **reading: Unpack[Reading],
    ) -> Self:
        """Add rows: the result is that of `fit` on all of them, to rounding, in any batches.

        Components are computed when they are first used.

        Parameters
        ----------
        X, y, sample_weight, half_life, **reading : see `GaussianNB.partial_fit`
            Rows, their weights, and how they are read; `y` is ignored.

        Returns
        -------
        PCA
            The estimator itself.

        Raises
        ------
        InvalidDataError
            For rows or weights that cannot be used; the rows so far stay as they were.

        Examples
        --------
        >>> from streamgda import PCA
        >>> pca = PCA()
        >>> for rows in ([[0.0, 0.0]], [[1.0, 2.0], [2.0, 4.0]]):
        ...     _ = pca.partial_fit(rows)
        >>> pca.explained_variance_
        array([5., 0.])
        """
        return super().partial_fit(X, None, None, sample_weight, half_life=half_life, **reading)

    def forget(
        self, X: Any, y: Any = None, sample_weight: Any = None, **reading: Unpack[Reading]
    ) -> Self:
        """Remove rows: the components are then as if they had never been added.

        Parameters
        ----------
        X, y, sample_weight, **reading : see `fit`
            Rows that were added before.

        Returns
        -------
        PCA
            The estimator itself.

        Raises
        ------
        MergeError
            For rows that were not added, as far as that can be told.

        Examples
        --------
        >>> from streamgda import PCA
        >>> pca = PCA().fit([[0.0, 0.0], [1.0, 2.0], [2.0, 4.0], [90.0, 0.0]])
        >>> pca.forget([[90.0, 0.0]]).explained_variance_.round(9)
        array([5., 0.])
        """
        return super().forget(X, None, sample_weight, **reading)

    @classmethod
    @synchronized
    def from_moments(cls, moments: ClassMoments, **params: Any) -> Self:
        """Return the components of the rows of all classes together, without reading any.

        Parameters
        ----------
        moments : ClassMoments
            Moments with covariances between features (``"full"`` or ``"tied"``).
        **params
            Parameters of the estimator.

        Returns
        -------
        PCA
            The fitted estimator.

        Raises
        ------
        TypeError
            For anything but `ClassMoments`.
        MergeError
            For moments without covariances between features.
        InvalidDataError, InvalidParameterError
            As for `fit`.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from streamgda import PCA, accumulate
        >>> moments = accumulate(*load_iris(return_X_y=True))
        >>> PCA.from_moments(moments, n_components=0.95).n_components_
        2
        """
        check_type("moments", moments, ClassMoments, "ClassMoments")
        moments._structure.check_covariances("PCA.from_moments")
        return super().from_moments(moments._in_one_class(), **params)

    # --- fitted attributes --------------------------------------------------------------------

    @property
    def components_(self) -> np.ndarray:
        """Principal axes, shape (n_components, n_features)."""
        return self.model_.components

    @property
    def explained_variance_(self) -> np.ndarray:
        """Variance along each component, shape (n_components,)."""
        return self.model_.variances

    @property
    def explained_variance_ratio_(self) -> np.ndarray:
        """Share of the variance of all features, shape (n_components,)."""
        return self.model_.shares

    @property
    def singular_values_(self) -> np.ndarray:
        """Norms of the centred rows' coordinates, shape (n_components,)."""
        return np.asarray(np.sqrt(self.model_.variances * (self.n_samples_ - 1)))

    @property
    def mean_(self) -> np.ndarray:
        """Mean of all rows, shape (n_features,)."""
        return self.model_.origin + self.model_.offset

    @property
    def noise_variance_(self) -> float:
        """Mean variance along the directions that are left out."""
        return self.model_.noise

    @property
    def n_components_(self) -> int:
        """Number of components."""
        return self.model_.variances.size

    @property
    def n_samples_(self) -> float:
        """Number of rows, or the sum of their weights."""
        return self.model_.n_rows

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    # --- coordinates --------------------------------------------------------------------------

    def transform(self, X: Any, **reading: Unpack[Reading]) -> Any:
        """Return the coordinates of rows along the components.

        Parameters
        ----------
        X, **reading : see `GaussianNB.predict`
            Rows, how they are read, and where results are written.

        Returns
        -------
        ndarray, shape (n_rows, n_components); or `out`; or a lazy dask array
            Coordinates.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        InvalidDataError, InvalidParameterError
            For rows or an `out` that cannot be used.

        Examples
        --------
        >>> from streamgda import PCA
        >>> PCA(1).fit([[0.0, 0.0], [1.0, 2.0], [2.0, 4.0]]).transform([[3.0, 6.0]]).round(3)
        array([[4.472]])
        """
        check_is_fitted(self)
        return self._map("transform", "joint", X, reading, columns=self.n_components_)

    def inverse_transform(self, X: Any, **reading: Unpack[Reading]) -> Any:
        """Return the rows with given coordinates: points of the subspace of the components.

        Parameters
        ----------
        X, **reading : see `transform`
            Coordinates, shape (n_rows, n_components), in place of rows.

        Returns
        -------
        ndarray, shape (n_rows, n_features); or as for `transform`
            Rows.

        Raises
        ------
        InvalidDataError, InvalidParameterError
            For coordinates or an `out` that cannot be used.
        UnsupportedError
            If there is a `feature_map`, which has no inverse.

        Examples
        --------
        >>> from streamgda import PCA
        >>> pca = PCA(1).fit([[0.0, 0.0], [1.0, 2.0], [2.0, 4.0]])
        >>> pca.inverse_transform(pca.transform([[3.0, 6.0]])).round(3)
        array([[3., 6.]])
        """
        check_is_fitted(self)
        if self.feature_map is not None:
            raise UnsupportedError(
                "inverse_transform returns rows, and a feature map has no inverse: fit PCA without "
                "feature_map to feature_map.transform(X)"
            )
        options: Any = {"columns": self.n_features_in_, "of_features": False}
        return self._map("inverse_transform", "restore", X, reading, **options)

    def residual(self, X: Any, **reading: Unpack[Reading]) -> Any:
        r"""Return the squared distance :math:`|z - \sum_i c_i c_i^T z|^2, z = x - m`, of rows.

        Rows of another kind are far from the subspace of the components: ViM [1]_ and NeCo [2]_
        detect unknown images by this distance in the features of a network.

        Parameters
        ----------
        X, **reading : see `transform`
            Rows, and how they are read.

        Returns
        -------
        ndarray, shape (n_rows,); or as for `transform`
            Squared distances from the subspace.

        Raises
        ------
        InvalidDataError, InvalidParameterError
            For rows or an `out` that cannot be used.

        References
        ----------
        .. [1] Wang et al. (2022). ViM: out-of-distribution with virtual-logit matching. CVPR.
        .. [2] Ben Ammar et al. (2024). NECO: neural collapse based out-of-distribution detection.

        Examples
        --------
        >>> from streamgda import PCA
        >>> PCA(1).fit([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]]).residual([[5.0, 0.0], [5.0, 3.0]])
        array([0., 9.])
        """
        return self._map("residual", "residual", X, reading)
