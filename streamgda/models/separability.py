"""Distances between Gaussians: of the classes of a model, pair by pair, or of two states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import linalg

from streamgda.models.covariance import (
    Regularisation,
    Summary,
    estimate,
    inverse_roots,
    singular_error,
)
from streamgda.models.gaussian import Gaussians
from streamgda.moments import ClassMoments
from streamgda.runtime import threads
from streamgda.runtime.parameters import check_type, unexpected
from streamgda.storage.saved import synchronized

_EPS = np.finfo(np.float64).eps
_FRECHET = "frechet"
_TOL = 1e-4  # `QuadraticDiscriminantAnalysis` has the same tolerance.


def _saturated(distance: np.ndarray) -> np.ndarray:
    """Return ``2 (1 - exp(-distance))``, exact for small distances too."""
    return -2 * np.expm1(-distance)


# These are functions of the squared Mahalanobis distances M, the Bhattacharyya distances B and the
# Kullback-Leibler divergences K (from row to column) of all pairs.
METHODS: dict[str, Callable[..., np.ndarray]] = {
    "jeffries_matusita": lambda M, B, K: _saturated(B),
    "bhattacharyya": lambda M, B, K: B,
    "mahalanobis": lambda M, B, K: M,
    "kullback_leibler": lambda M, B, K: K,
    "transformed_divergence": lambda M, B, K: _saturated((K + K.T) / 8),
}


def separability(model_or_moments: Any, method: str = "jeffries_matusita") -> np.ndarray:
    r"""Return the separability of all pairs of classes.

    ========================== ======================================== ===========================
    method                     value in row i, column j                 range
    ========================== ======================================== ===========================
    ``jeffries_matusita``      :math:`2 (1 - e^{-B})`                   0 to 2
    ``bhattacharyya``          :math:`B`                                from 0
    ``mahalanobis``            :math:`M`                                from 0; a squared distance
    ``kullback_leibler``       :math:`K_{ij}`                           from 0; not symmetric
    ``transformed_divergence`` :math:`2 (1 - e^{-(K_{ij}+K_{ji})/8})`   0 to 2
    ========================== ======================================== ===========================

    .. math:: M = g^T \Sigma^{-1} g, \quad B = \frac M8
              + \frac12 \ln \frac{|\Sigma|}{\sqrt{|\Sigma_i| |\Sigma_j|}}

    .. math:: K_{ij} = \frac12 \left( \mathrm{tr}\, \Sigma_j^{-1} \Sigma_i - d
              + g^T \Sigma_j^{-1} g - \ln \frac{|\Sigma_i|}{|\Sigma_j|} \right)

    where :math:`g = m_i - m_j` and :math:`\Sigma = (\Sigma_i + \Sigma_j) / 2`. Priors have no
    effect.

    Parameters
    ----------
    model_or_moments : estimator or ClassMoments
        A fitted Gaussian estimator, with its regularisation; or moments, with covariances of their
        type.
    method : str
        One of the names in the table.

    Returns
    -------
    ndarray, shape (n_classes, n_classes)
        Zero on the diagonal; NaN for classes without rows, or without an invertible covariance in
        an estimator.

    Raises
    ------
    InvalidParameterError
        For another method.
    SingularCovarianceError
        For moments of a class whose covariance has no inverse.

    Notes
    -----
    The scale, with 2 for classes without overlap, is that of Richards [1]_. Swain and Davis [2]_
    give the root of the Jeffries-Matusita distance, and the transformed divergence times 1000. The
    Bayes error of two equally probable classes is at most :math:`e^{-B} / 2` (Kailath [3]_).

    References
    ----------
    .. [1] Richards (2013). Remote Sensing Digital Image Analysis, 5th ed., chapter 10.
    .. [2] Swain and Davis (1978). Remote Sensing: The Quantitative Approach, chapter 3.
    .. [3] Kailath (1967). The Divergence and Bhattacharyya Distance Measures in Signal Selection.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from streamgda import accumulate, separability
    >>> separability(accumulate(*load_iris(return_X_y=True))).round(3)
    array([[0.   , 2.   , 2.   ],
           [2.   , 0.   , 1.729],
           [2.   , 1.729, 0.   ]])
    """
    if not isinstance(method, str) or method not in METHODS:
        raise unexpected("method", method, f"one of {', '.join(METHODS)}")
    if isinstance(model_or_moments, ClassMoments):
        alive, centres, roots = _of_moments(model_or_moments)
        n_classes = model_or_moments.classes.size
    else:
        estimator = getattr(model_or_moments, "best_estimator_", model_or_moments)
        model = getattr(estimator, "model_", estimator)
        wanted = "a fitted Gaussian estimator or ClassMoments"
        check_type("model_or_moments", model, Gaussians, wanted)
        n_classes, roots, alive = model.classes.size, model.roots, model.alive
        centres = model.centres[alive]
    values = np.full((n_classes, n_classes), np.nan)
    values[np.ix_(alive, alive)] = _values(method, centres, roots)
    return values


@synchronized
def _of_moments(moments: ClassMoments) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the classes with rows, their means less an origin, and roots of their covariances."""
    held = Summary.of(moments)
    seen, features = np.flatnonzero(held.count > 0), np.flatnonzero(held.variances > 0)
    values = estimate(held, moments.covariance_type, Regularisation(), features).values
    roots = inverse_roots(values if len(values) == 1 else values[seen], _TOL)
    advice = "Leave out features, or pass an estimator that regularises it"
    if (roots.ranks < features.size).any():
        named = held.classes[seen], held.count[seen]
        raise singular_error(roots.ranks, features.size, *named, advice)
    return seen, held.offsets[np.ix_(seen, features)], roots.values


def _values(method: str, centres: np.ndarray, roots: np.ndarray) -> np.ndarray:
    """Return the separability of Gaussians with these means and roots of inverse covariances."""
    if roots.ndim == 2:  # One over the variances: independent features are roots of size 1.
        roots = np.sqrt(roots)
    if len(roots) == 1:
        white = centres @ roots[0].T if roots.ndim == 3 else centres * roots[0]
        M = ((white[:, None] - white) ** 2).sum(axis=2)
        B, K = M / 8, M / 2
    else:
        compute = _matrices if roots.ndim == 3 else _variances
        calls = ((centres, roots, i) for i in range(len(centres)))
        M, B, K = (
            np.array(each) for each in zip(*threads.run_serial_blas(compute, calls), strict=True)
        )
    return METHODS[method](M, B, K)


Rows = tuple[np.ndarray, np.ndarray, np.ndarray]


def _variances(centres: np.ndarray, roots: np.ndarray, i: int) -> Rows:
    """Return a row of M, B and K, of independent features."""
    squares = (centres[i] - centres) ** 2
    ratio = roots / roots[i]  # Deviations of class i are divided by those of the others.
    M = 2 * (roots**2 / (1 + ratio**2) * squares).sum(axis=1)
    B = M / 8 + np.log1p((ratio - 1) ** 2 / (2 * ratio)).sum(axis=1) / 2
    excess = (ratio - 1) * (ratio + 1)
    K = (excess - np.log1p(excess) + roots**2 * squares).sum(axis=1) / 2
    return M, B, np.maximum(K, 0)


def _matrices(centres: np.ndarray, roots: np.ndarray, i: int) -> Rows:
    """Return a row of M, B and K, in coordinates in which the covariance of class j is one.

    There that of class i is F F', and the mean covariance (F F' + I) / 2.
    """
    n, d = centres.shape
    M, B, K = np.zeros((3, n))
    own = linalg.solve_triangular(roots[i], np.eye(d), lower=True)
    for j in range(n):
        if j == i:
            continue
        F, offset = roots[j] @ own, roots[j] @ (centres[i] - centres[j])
        mean = linalg.cholesky((F @ F.T + np.eye(d)) / 2, lower=True)
        M[j] = (linalg.solve_triangular(mean, offset, lower=True) ** 2).sum()
        diagonal = F.diagonal()
        logs = np.log(mean.diagonal() ** 2 / diagonal).sum()  # This is ln |mean| - ln |F|.
        B[j] = M[j] / 8 + max(0.0, logs) / 2
        excess = (diagonal - 1) * (diagonal + 1)
        traces = (excess - np.log1p(excess)).sum() + (np.tril(F, -1) ** 2).sum()
        K[j] = (max(0.0, traces) + offset @ offset) / 2
    return M, B, K


# --- two states ---------------------------------------------------------------------------------


@synchronized
def distance(a: ClassMoments, b: ClassMoments, kind: str = _FRECHET, *, ddof: int = 0) -> float:
    r"""Return the distance between the Gaussians of two sets of rows.

    .. math:: F = |g|^2 + \mathrm{tr} \left( \Sigma_a + \Sigma_b
              - 2 (\Sigma_a^{1/2} \Sigma_b \Sigma_a^{1/2})^{1/2} \right), \quad g = m_a - m_b

    is the squared Frechet (2-Wasserstein) distance [1]_, by which generated images are compared
    with real ones (FID [2]_). It is computed as :math:`|g|^2 + \min_Q |R_a - R_b Q|^2` over
    orthogonal matrices, with :math:`R R^T = \Sigma`: a sum of squares, which is right for
    singular covariances and for almost equal ones, and never complex or below zero.

    Parameters
    ----------
    a, b : ClassMoments
        Moments of the same covariance type. Matrices of covariances make Gaussians with them, and
        variances (``"diag"``, ``"spherical"``) make Gaussians of independent features.
    kind : str
        ``"frechet"``, ``"kullback_leibler"`` (from `a` to `b`), ``"bhattacharyya"``, or another
        method of `separability`, which has their formulas.
    ddof : int
        Subtracted from the number of rows in the Frechet distance; FID is computed with 1.

    Returns
    -------
    float
        The distance of all rows from all rows. That of a class is the distance of
        ``a.select_classes([label])`` from ``b.select_classes([label])``.

    Raises
    ------
    TypeError
        For anything but `ClassMoments`.
    MergeError
        For moments of different features or covariance types.
    InvalidDataError, InvalidParameterError
        For moments without rows, and parameters out of range.
    SingularCovarianceError
        For covariances without an inverse, which all but the Frechet distance need; the classes in
        its message are ``"a"`` and ``"b"``.

    See Also
    --------
    separability : The same between the classes of one model.

    References
    ----------
    .. [1] Dowson and Landau (1982). The Frechet distance between multivariate normal
           distributions. Journal of Multivariate Analysis 12, 450-455.
    .. [2] Heusel et al. (2017). GANs trained by a two time-scale update rule converge to a local
           Nash equilibrium. NIPS 30.

    Examples
    --------
    >>> import numpy as np
    >>> from streamgda import accumulate, distance
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(1e7, 1, (1000, 3)), np.arange(1000) % 2
    >>> a, b = accumulate(X, y), accumulate(2 * (X - 1e7) + 1e7, y)
    >>> round(distance(a, b), 3)
    2.968
    >>> [
    ...     round(distance(a.select_classes([k]), b.select_classes([k]), "kullback_leibler"), 2)
    ...     for k in (0, 1)
    ... ]
    [0.96, 0.96]
    """
    for name, moments in (("a", a), ("b", b)):
        check_type(name, moments, ClassMoments, "ClassMoments")
        Summary.of(moments)  # It raises an error for moments without rows.
    if not isinstance(kind, str) or kind not in (_FRECHET, *METHODS):
        raise unexpected("kind", kind, f"one of {', '.join((_FRECHET, *METHODS))}")
    how = Regularisation(ddof).check(a.covariance_type)
    both = a._in_one_class("a") + b._in_one_class("b")  # `+` raises for different maps of rows
    if kind != _FRECHET:
        _, centres, roots = _of_moments(both)
        return float(_values(kind, centres, roots)[0, 1])
    held = Summary.of(both)
    covariances = estimate(held, both.covariance_type, how).values
    offset = held.offsets[1] - held.offsets[0]
    if covariances.ndim == 2:
        first, second = np.sqrt(covariances)
        return float(offset @ offset + ((first - second) ** 2).sum())
    first, second = (_root(values) for values in covariances)
    left, _, right = linalg.svd(first.T @ second)
    return float(offset @ offset + ((first - second @ (left @ right).T) ** 2).sum())


def _root(covariance: np.ndarray) -> np.ndarray:
    """Return R with R R' = covariance, without directions whose variance is rounding."""
    variances, vectors = linalg.eigh(covariance, driver="evd")
    variances[variances <= variances.size * _EPS * variances[-1]] = 0
    return np.asarray(vectors * np.sqrt(variances))
