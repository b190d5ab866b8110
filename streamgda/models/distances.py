"""Distances between the Gaussians of two states: of all their rows, or class by class."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import linalg

from streamgda.errors import MergeError
from streamgda.models.covariance import Regularisation, estimate
from streamgda.models.separability import MEASURES, separability
from streamgda.moments import ClassMoments
from streamgda.rows.labels import find, join_labels
from streamgda.runtime.parameters import as_flag, check_type, refuse

_FRECHET = "frechet"
_KINDS = (_FRECHET, *MEASURES)
_EPS = np.finfo(np.float64).eps


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
        moments._held_sums()  # refuses moments without rows
    if kind not in _KINDS:
        raise refuse("kind", kind, f"one of {', '.join(_KINDS)}")
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
    sums = both.centred()
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
