"""Distances between Gaussians: of the classes of a model, pair by pair, or of two states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg
from scipy.spatial.distance import cdist

from streamgda.errors import InvalidParameterError, MergeError
from streamgda.models.covariance import Regularisation, estimate
from streamgda.models.gaussian import GaussianModel
from streamgda.models.model import part_of
from streamgda.moments import ClassMoments, held_sums
from streamgda.rows.labels import find, join_labels
from streamgda.runtime import lapack, threads
from streamgda.runtime.display import frame_of
from streamgda.runtime.parameters import as_flag, check_type, refuse
from streamgda.storage.saved import synchronized

_BATCH = 1 << 18  # values of the matrices that a thread treats at a time
_FRECHET = "frechet"
_EPS = np.finfo(np.float64).eps

Terms = tuple[np.ndarray, np.ndarray]


def bhattacharyya(distance: np.ndarray, logs: np.ndarray) -> np.ndarray:
    """Return Bhattacharyya distances from the two terms of an overlap."""
    return distance / 8 + logs / 2


def saturated(distance: np.ndarray) -> np.ndarray:
    """Return ``2 (1 - exp(-distance))``, exact for small distances too."""
    return -2 * np.expm1(-distance)


class Measure(NamedTuple):
    """A separability as a function of two terms of a pair of Gaussians.

    Attributes
    ----------
    by_overlap : bool
        The terms are those of the Bhattacharyya distance: the squared Mahalanobis distance of the
        means in the mean covariance, and the log-determinant of the mean covariance less the mean
        log-determinant. Otherwise the Kullback-Leibler divergences in both directions.
    value : callable
        Takes arrays of both terms.
    symmetric : bool
        The separability is the same in both directions.
    most : float
        The largest value.
    """

    by_overlap: bool
    value: Callable[[np.ndarray, np.ndarray], np.ndarray]
    symmetric: bool = True
    most: float = np.inf


MEASURES = {
    "jeffries_matusita": Measure(True, lambda d, logs: saturated(bhattacharyya(d, logs)), most=2.0),
    "matusita": Measure(
        True, lambda d, logs: np.sqrt(saturated(bhattacharyya(d, logs))), most=2**0.5
    ),
    "bhattacharyya": Measure(True, bhattacharyya),
    "mahalanobis": Measure(True, lambda d, _: d),
    "divergence": Measure(False, lambda there, back: there + back),
    "transformed_divergence": Measure(
        False, lambda there, back: saturated((there + back) / 8), most=2.0
    ),
    "kullback_leibler": Measure(False, lambda there, _: there, symmetric=False),
}


def measure_of(method: object, name: str = "method") -> Measure:
    """Return the measure with that name; `name` is that of the parameter in errors.

    Raises
    ------
    InvalidParameterError
        For any other value.
    """
    if isinstance(method, str) and method in MEASURES:
        return MEASURES[method]
    raise refuse(name, method, f"one of {', '.join(MEASURES)}")


def separability(
    model_or_moments: Any,
    method: str = "jeffries_matusita",
    *,
    covariance_type: str | None = None,
    ddof: int = 0,
    pooling: float = 0.0,
    shrinkage: float | str | None = None,
    reg_param: float = 0.0,
    var_smoothing: float = 0.0,
    as_frame: bool = False,
) -> Any:
    r"""Return how well each pair of classes can be separated.

    ========================== ========================= ================================
    method                     value in row i, column j  range
    ========================== ========================= ================================
    ``jeffries_matusita``      :math:`2 (1 - e^{-B})`    0 to 2
    ``matusita``               its square root           0 to 1.414
    ``bhattacharyya``          :math:`B`                 from 0
    ``mahalanobis``            :math:`M`                 from 0; a squared distance
    ``kullback_leibler``       :math:`K_{ij}`            from 0; not symmetric
    ``divergence``             :math:`K_{ij} + K_{ji}`   from 0
    ``transformed_divergence`` :math:`2 (1 - e^{-D/8})`  0 to 2; of the divergence D
    ========================== ========================= ================================

    .. math:: M = g^T \Sigma^{-1} g, \quad B = \frac M8
              + \frac12 \ln \frac{|\Sigma|}{\sqrt{|\Sigma_i| |\Sigma_j|}}

    .. math:: K_{ij} = \frac12 \left( \mathrm{tr}\, \Sigma_j^{-1} \Sigma_i - d
              + g^T \Sigma_j^{-1} g - \ln \frac{|\Sigma_i|}{|\Sigma_j|} \right)

    where :math:`g = m_i - m_j` and :math:`\Sigma = (\Sigma_i + \Sigma_j) / 2`. Priors have no
    effect.

    Parameters
    ----------
    model_or_moments : GaussianModel, estimator or ClassMoments
        Model of the classes, a fitted Gaussian estimator, or moments.
    method : str
        One of the names in the table.
    covariance_type, ddof, pooling, shrinkage, reg_param, var_smoothing : optional
        Covariances that are estimated from moments; see `GaussianDiscriminantAnalysis`. Their type
        is by default that of the moments.
    as_frame : bool
        Return a pandas data frame, with the classes as index and columns.

    Returns
    -------
    ndarray or data frame, shape (n_classes, n_classes)
        Zero on the diagonal; NaN for classes without rows.

    Raises
    ------
    InvalidParameterError
        For another method, or a regularisation of a model, which has its own.

    Notes
    -----
    The scale, with 2 for classes without overlap, is that of Richards [1]_. Swain and Davis [2]_
    give ``matusita``, and the transformed divergence times 1000. The Bayes error of two equally
    probable classes is at most :math:`e^{-B} / 2` (Kailath [3]_).

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
    measure = measure_of(method)
    how = Regularisation(ddof, pooling, shrinkage, reg_param, var_smoothing)
    model = _model_of(model_or_moments, covariance_type, how)
    values = measure.value(*(_overlap_terms if measure.by_overlap else _divergence_terms)(model))
    np.fill_diagonal(values, 0.0)
    seen = ~np.isnan(model.means[:, 0])
    values = np.where(seen & seen[:, None], values, np.nan)
    return frame_of(values, model.classes, model.classes) if as_frame else values


def _model_of(
    model_or_moments: Any, covariance_type: str | None, how: Regularisation
) -> GaussianModel:
    """Return the model of moments, or of a fitted estimator, search or threshold."""
    if isinstance(model_or_moments, ClassMoments):
        held = model_or_moments.covariance_type
        kind = held if covariance_type is None else covariance_type
        return GaussianModel.from_moments(model_or_moments, kind, how)
    expected = "a GaussianModel, a fitted Gaussian estimator, or ClassMoments"
    model = part_of("model_or_moments", model_or_moments, "model_", GaussianModel, expected)
    if covariance_type is not None or how != Regularisation():
        raise InvalidParameterError(
            f"covariance_type and regularisation are parameters for moments, and "
            f"{type(model_or_moments).__name__} has its own covariances; pass ClassMoments"
        )
    return model


def _overlap_terms(model: GaussianModel) -> Terms:
    r"""Return the two terms of the Bhattacharyya distances of all classes, shape (K, K) each.

    They are :math:`g^T \Sigma^{-1} g` and :math:`\ln |\Sigma| - (\ln |\Sigma_i| + \ln |\Sigma_j|)
    / 2` of the mean covariance :math:`\Sigma`, zero on the diagonal.
    """
    if not model.structure.per_class:
        distance = _pooled_distances(model)
        return distance, np.zeros_like(distance)
    compute = _matrix_overlap if model.structure.matrix else _diagonal_overlap
    distance, logs = _by_rows(compute, model)
    lower = np.tri(len(distance), k=-1)  # both are symmetric: one half has its rounding errors
    distance, logs = distance * lower, logs * lower
    return distance + distance.T, logs + logs.T


def _divergence_terms(model: GaussianModel) -> Terms:
    """Return Kullback-Leibler divergences from row to column, shape (K, K), and the transpose."""
    if not model.structure.per_class:
        there = _pooled_distances(model) / 2
    else:
        compute = _matrix_divergence if model.structure.matrix else _diagonal_divergence
        (there,) = _by_rows(compute, model)
    return there, there.T


def _pooled_distances(model: GaussianModel) -> np.ndarray:
    """Return the squared Mahalanobis distances of the class means, in a pooled covariance."""
    root, means = model.roots[0], model._mean_gaps
    white = means @ root.T if model.structure.matrix else means * np.sqrt(root)
    return np.asarray(cdist(white, white, "sqeuclidean"))


def _by_rows(compute: Callable[..., Any], model: GaussianModel) -> np.ndarray:
    """Return what a function computes of each class and all classes, on all threads.

    It gets the roots of the classes, their means, and the number of a class, and returns a row for
    each term.
    """
    means = model._mean_gaps
    calls = ((model.roots, means, k) for k in range(len(means)))
    return np.stack(threads.run_serial_blas(compute, calls), axis=1)


def _diagonal_overlap(roots: np.ndarray, means: np.ndarray, i: int) -> Terms:
    ratio = np.sqrt(roots / roots[i])  # of the deviations of class i to those of the others
    harmonic = roots / (1 + ratio**2)  # half of one over the mean variance
    distance = 2 * (harmonic * (means[i] - means) ** 2).sum(axis=1)
    # ln ((v + w) / 2) - (ln v + ln w) / 2, each term of which is positive.
    return distance, np.log1p((ratio - 1) ** 2 / (2 * ratio)).sum(axis=1)


def _diagonal_divergence(roots: np.ndarray, means: np.ndarray, i: int) -> tuple[np.ndarray]:
    excess = (roots - roots[i]) / roots[i]  # of the variance of class i over those of the others
    terms = excess - np.log1p(excess) + roots * (means[i] - means) ** 2
    return (np.maximum(terms, 0).sum(axis=1) / 2,)


def _matrix_overlap(roots: np.ndarray, means: np.ndarray, i: int) -> Terms:
    distance, logs = np.zeros((2, len(roots)))
    d = means.shape[1]
    for some, factors, gaps in _whitened(roots, means, i, i):
        # The mean covariance in coordinates where that of the other class is one, bordered by the
        # distance of the means: in the last row, its Cholesky factor has the whitened distance. The
        # corner leaves the matrix positive definite, as the covariance is at least 1/2.
        bordered = np.empty((len(gaps), d + 1, d + 1))
        bordered[:, :d, :d] = (factors @ factors.swapaxes(1, 2) + np.eye(d)) / 2
        bordered[:, :d, d] = bordered[:, d, :d] = gaps
        bordered[:, d, d] = 1 + 2 * (gaps**2).sum(axis=1)
        root = np.linalg.cholesky(bordered)
        distance[some] = (root[:, d, :d] ** 2).sum(axis=1)
        diagonals = np.einsum("kii->ki", root)[:, :d] ** 2 / np.einsum("kii->ki", factors)
        logs[some] = np.maximum(np.log(diagonals).sum(axis=1), 0)
    return distance, logs


def _matrix_divergence(roots: np.ndarray, means: np.ndarray, i: int) -> tuple[np.ndarray]:
    divergence = np.zeros(len(roots))
    for some, factors, gaps in _whitened(roots, means, i, len(roots)):
        diagonals = np.einsum("kii->ki", factors)
        excess = (diagonals - 1) * (diagonals + 1)
        diagonal = np.maximum(excess - np.log1p(excess), 0).sum(axis=1)
        below = (np.tril(factors, -1) ** 2).sum(axis=(1, 2))
        divergence[some] = (diagonal + below + (gaps**2).sum(axis=1)) / 2
    return (divergence,)


def _whitened(roots: np.ndarray, means: np.ndarray, i: int, stop: int) -> Any:
    """Yield classes up to `stop` with class i in coordinates where their covariance is one.

    These are slices of classes, Cholesky factors of the covariance of class i, shape (n, d, d), and
    the distances of its mean, shape (n, d).
    """
    d = means.shape[1]
    factor = roots[i].copy()
    lapack.invert_lower(factor)
    step = max(1, _BATCH // d**2)
    for start in range(0, stop, step):
        some = slice(start, min(start + step, stop))
        gaps = (roots[some] @ (means[i] - means[some])[:, :, None])[:, :, 0]
        yield some, roots[some] @ factor, gaps


# --- two states ---------------------------------------------------------------------------------


@synchronized
def distance(
    a: ClassMoments,
    b: ClassMoments,
    kind: str = _FRECHET,
    *,
    by_class: bool = False,
    ddof: int = 0,
    shrinkage: float | None = None,
    reg_param: float = 0.0,
    var_smoothing: float = 0.0,
) -> Any:
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
    by_class : bool
        Compare each class with the class of the same label, instead of all rows with all rows.
    ddof : int
        Subtracted from the number of rows; FID is computed with 1.
    shrinkage, reg_param, var_smoothing : float, optional
        Regularisation of the covariances; see `GaussianDiscriminantAnalysis`. All but the Frechet
        distance need covariances with an inverse.

    Returns
    -------
    float, or ndarray, shape (n_classes,)
        The distance; with `by_class`, one for each label that either has, sorted, which is NaN
        where one of them has no rows.

    Raises
    ------
    TypeError
        For anything but `ClassMoments`.
    MergeError
        For moments of different features or covariance types, and for pooled scatters
        (``"tied"``) with `by_class`.
    InvalidDataError, InvalidParameterError
        For moments without rows, and parameters out of range.
    SingularCovarianceError
        For covariances that need an inverse and have none; the classes in its message are ``"a"``
        and ``"b"``.

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
    >>> distance(a, b, "kullback_leibler", by_class=True).round(2)
    array([0.96, 0.96])
    """
    for name, moments in (("a", a), ("b", b)):
        check_type(name, moments, ClassMoments, "ClassMoments")
        held_sums(moments)  # refuses moments without rows
    if kind not in (_FRECHET, *MEASURES):
        raise refuse("kind", kind, f"one of {', '.join((_FRECHET, *MEASURES))}")
    how = Regularisation(
        ddof=ddof, shrinkage=shrinkage, reg_param=reg_param, var_smoothing=var_smoothing
    )
    if a.covariance_type != b.covariance_type:
        raise MergeError(
            f"a has covariance_type={a.covariance_type!r} and b {b.covariance_type!r}; bring both "
            f"to one with reduce()"
        )
    a._lifting_with(b)  # refuses rows behind different maps
    if not as_flag("by_class", by_class):
        return _between(a, b, kind, how)
    classes = join_labels(a.classes, b.classes)
    distances = np.full(classes.size, np.nan)
    for k in range(classes.size):
        own, other = (m._keep(find(m.classes, classes[k : k + 1]) >= 0) for m in (a, b))
        if own.class_count.any() and other.class_count.any():
            distances[k] = _between(own, other, kind, how)
    return distances


def _between(a: ClassMoments, b: ClassMoments, kind: str, how: Regularisation) -> float:
    """Return the distance between the Gaussians of all rows."""
    both = a._in_one_class("a") + b._in_one_class("b")
    if kind != _FRECHET:
        numbers = {name: getattr(how, name) for name in ("ddof", "shrinkage", "reg_param")}
        values = separability(both, kind, **numbers, var_smoothing=how.var_smoothing)
        return float(values[0, 1])
    sums = held_sums(both).centred()
    gap = (sums.mean[0] - sums.mean[1]) + (sums.mean_low[0] - sums.mean_low[1])
    covariances = estimate(both, both.covariance_type, how, drop_constant=False).values
    roots = [_root(values) for values in covariances]
    if covariances.ndim == 3:
        left, _, right = linalg.svd(roots[0].T @ roots[1])
        roots[1] = roots[1] @ (left @ right).T
    return float(gap @ gap + ((roots[0] - roots[1]) ** 2).sum())


def _root(covariance: np.ndarray) -> np.ndarray:
    """Return R with R R' = covariance, without directions whose variance is rounding; or roots."""
    if covariance.ndim == 1:
        return np.sqrt(covariance)
    variances, vectors = linalg.eigh(covariance, driver="evd")
    variances[variances <= variances.size * _EPS * variances[-1]] = 0
    return np.asarray(vectors * np.sqrt(variances))
