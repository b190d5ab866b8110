"""`PCA`: principal component analysis of rows of any container, in one pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self, Unpack

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from streamgda.estimators.moment_classifier import MomentEstimator, fitted
from streamgda.estimators.row_estimator import RowReading, Scoring, takes
from streamgda.models.principal_components import PrincipalComponents
from streamgda.moments import ClassMoments
from streamgda.rows import as_source
from streamgda.runtime.parameters import as_flag, check_type, refuse
from streamgda.storage.saved import synchronized

_SOLVERS = ("auto", "full", "covariance_eigh", "arpack", "randomized")


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
    n_components : int, float in (0, 1), "mle", optional
        Number of components. A float takes as many as explain more than this share of the variance,
        and ``"mle"`` as many as Minka's maximum likelihood finds [1]_. By default min(n_samples,
        n_features).
    copy : bool
        Has no effect, because rows are never changed.
    whiten : bool
        Divide coordinates by their standard deviations.
    svd_solver : {"auto", "full", "covariance_eigh", "arpack", "randomized"}
        Has no effect: every solver is ``"covariance_eigh"``, which is exact.
    tol, iterated_power, n_oversamples, power_iteration_normalizer, random_state : optional
        Parameters of other solvers, which have no effect.
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

    References
    ----------
    .. [1] Minka (2000). Automatic choice of dimensionality for PCA. NIPS 13, 598-604.

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

    _model_type = PrincipalComponents
    _float32_of_float32 = True
    _single_scores = ("transform", "restore")
    model_: PrincipalComponents
    _model_methods: Mapping[str, tuple[str, str | None]] = {
        "transform": ("transform", "variances"),
        "inverse_transform": ("restore", "mean"),
        "residual": ("residual", None),
        "score_samples": ("log_density", None),
    }

    def __init__(
        self,
        n_components: int | float | str | None = None,
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

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _covariance_type(self) -> str:
        return "full"

    def _kept(self) -> dict[str, Any]:
        as_flag("whiten", self.whiten)
        if self.svd_solver not in _SOLVERS:
            raise refuse("svd_solver", self.svd_solver, f"one of {', '.join(_SOLVERS)}")
        return super()._kept()

    def _make_model(self, moments: ClassMoments, beside: Any = None) -> PrincipalComponents:
        return PrincipalComponents.of(moments, self.n_components, bool(self.whiten))

    # --- learning -----------------------------------------------------------------------------

    @takes(RowReading)
    def fit(  # type: ignore[override]
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        **reading: Unpack[RowReading],
    ) -> Self:
        """Find the components of rows, in one pass over them.

        To bound the memory of the pass, keep a checkpoint or show progress, call `accumulate`,
        and pass the result to `from_moments`.

        Parameters
        ----------
        X : array-like, numpy.memmap, zarr.Array, dask.array.Array or data frame
            Rows, shape (n_rows, n_features).
        y : None
            Ignored.
        sample_weight : array-like, shape (n_rows,), optional
            Non-negative weights: a row of weight 2 counts as two rows.
        features, nodata, on_invalid : see `GaussianDiscriminantAnalysis.fit`
            How rows are read, and which of them count.

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

    @takes(RowReading)
    def partial_fit(  # type: ignore[override]
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        half_life: float | None = None,
        **reading: Unpack[RowReading],
    ) -> Self:
        """Add rows: the result is that of `fit` on all of them, to rounding, in any batches.

        Components are computed when they are first used.

        Parameters
        ----------
        X, y, sample_weight : see `fit`
            Rows and their weights.
        half_life : float, optional
            Number of rows after which a row counts half; see `GaussianNB.partial_fit`.
        features, nodata, on_invalid : see `fit`
            How rows are read, and which of them count.

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
        given: Any = {"half_life": half_life, **reading}
        return super().partial_fit(X, None, None, sample_weight, **given)

    @takes(RowReading)
    def forget(  # type: ignore[override]
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        **reading: Unpack[RowReading],
    ) -> Self:
        """Remove rows: the components are then as if they had never been added.

        Parameters
        ----------
        X, y, sample_weight, features, nodata, on_invalid : see `fit`
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

    @fitted
    def components_(self) -> np.ndarray:
        """Principal axes, shape (n_components, n_features)."""
        return self.model_.components

    @fitted
    def explained_variance_(self) -> np.ndarray:
        """Variance along each component, shape (n_components,)."""
        return self.model_.variances

    @fitted
    def explained_variance_ratio_(self) -> np.ndarray:
        """Share of the variance of all features, shape (n_components,)."""
        return self.model_.shares

    @fitted
    def singular_values_(self) -> np.ndarray:
        """Norms of the centred rows' coordinates, shape (n_components,)."""
        return np.asarray(np.sqrt(self.model_.variances * (self.n_samples_ - 1)))

    @fitted
    def mean_(self) -> np.ndarray:
        """Mean of all rows, shape (n_features,)."""
        return self.model_.mean

    @fitted
    def noise_variance_(self) -> float:
        """Mean variance along the directions that are left out, as probabilistic PCA has it."""
        return self.model_.noise

    @fitted
    def n_components_(self) -> int:
        """Number of components."""
        return self.model_.variances.size

    @fitted
    def n_samples_(self) -> float:
        """Number of rows, or the sum of their weights."""
        return self.model_.n_rows

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def get_covariance(self) -> np.ndarray:
        r"""Return :math:`\sum_i (\lambda_i - \sigma^2) c_i c_i^T + \sigma^2 I`.

        Unlike that of scikit-learn, it does not depend on `whiten`.

        Returns
        -------
        ndarray, shape (n_features, n_features)
            Covariance of probabilistic principal component analysis.

        Examples
        --------
        >>> from streamgda import PCA
        >>> PCA(1).fit([[0.0, 0.0], [1.0, 2.0], [2.0, 4.0]]).get_covariance().round(3)
        array([[1., 2.],
               [2., 4.]])
        """
        return self.model_.covariance

    def get_precision(self) -> np.ndarray:
        """Return the inverse of `get_covariance`.

        Returns
        -------
        ndarray, shape (n_features, n_features)
            Precision matrix.

        Raises
        ------
        SingularCovarianceError
            If there is none.

        Examples
        --------
        >>> from streamgda import PCA
        >>> PCA().fit([[0.0, 0.0], [2.0, 0.0], [1.0, 3.0]]).get_precision().round(3)
        array([[1.   , 0.   ],
               [0.   , 0.333]])
        """
        return self.model_.precision

    # --- scoring ------------------------------------------------------------------------------

    @takes(Scoring)
    def transform(self, X: Any, **scoring: Unpack[Scoring]) -> Any:
        """Return the coordinates of rows along the components.

        Parameters
        ----------
        X, out, features, nodata, on_invalid, fill, keys, max_memory : see `GaussianNB.predict`
            Rows in any container, the destination of the result, and how rows are read.

        Returns
        -------
        ndarray, shape (n_rows, n_components); or `out`; or a lazy dask array
            Coordinates; float32 if these rows and all that were learnt are.

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
        return self._scored("transform", X, scoring)

    @takes(Scoring)
    def inverse_transform(self, X: Any, **scoring: Unpack[Scoring]) -> Any:
        """Return the rows with given coordinates: points of the subspace of the components.

        Parameters
        ----------
        X, out, features, nodata, on_invalid, fill, keys, max_memory : see `transform`
            Coordinates, shape (n_rows, n_components), in any container.

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
        self._refuse_lifted("inverse_transform returns rows, and a feature map has no inverse")
        return self._scored("inverse_transform", X, scoring)

    @takes(Scoring)
    def residual(self, X: Any, **scoring: Unpack[Scoring]) -> Any:
        r"""Return the squared distance :math:`|z - \sum_i c_i c_i^T z|^2, z = x - m`, of rows.

        Rows of another kind are far from the subspace of the components: ViM [1]_ and NeCo [2]_
        detect unknown images by this distance in the features of a network.

        Parameters
        ----------
        X, out, features, nodata, on_invalid, fill, keys, max_memory : see `transform`
            Rows in any container, the destination of the result, and how rows are read.

        Returns
        -------
        ndarray, shape (n_rows,); or as for `transform`
            Squared distances from the subspace, computed in float64.

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
        return self._scored("residual", X, scoring)

    @takes(Scoring)
    def score_samples(self, X: Any, **scoring: Unpack[Scoring]) -> Any:
        """Return the log-density of rows in probabilistic principal component analysis.

        Parameters
        ----------
        X, out, features, nodata, on_invalid, fill, keys, max_memory : see `transform`
            Rows in any container, the destination of the result, and how rows are read.

        Returns
        -------
        ndarray, shape (n_rows,); or as for `transform`
            Logarithms of the Gaussian density with `mean_` and the covariance `get_covariance`.

        Raises
        ------
        SingularCovarianceError
            If that covariance has no inverse.

        Examples
        --------
        >>> from streamgda import PCA
        >>> pca = PCA().fit([[0.0, 0.0], [2.0, 0.0], [1.0, 3.0]])
        >>> pca.score_samples([[1.0, 1.0], [9.0, 9.0]]).round(2)
        array([ -2.39, -45.05])
        """
        return self._scored("score_samples", X, scoring)

    def score(self, X: Any, y: Any = None, *, max_memory: int | str | None = None) -> float:
        """Return the mean of `score_samples`.

        Parameters
        ----------
        X : array-like, zarr.Array or dask.array.Array, shape (n_rows, n_features)
            Rows.
        y : None
            Ignored.
        max_memory : see `transform`
            Memory for rows in flight and their log-densities.

        Returns
        -------
        float
            Mean log-density.

        Raises
        ------
        SingularCovarianceError
            As for `score_samples`.

        Examples
        --------
        >>> from streamgda import PCA
        >>> pca = PCA().fit([[0.0, 0.0], [2.0, 0.0], [1.0, 3.0]])
        >>> round(pca.score([[1.0, 1.0], [9.0, 9.0]]), 2)
        -23.72
        """
        scores = self.score_samples(X, max_memory=max_memory)
        return float(as_source(scores, "scores").whole().mean())
