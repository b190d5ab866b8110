"""Tests of equal covariances (Box, Bartlett) and of equal means (Wilks, Pillai), from moments."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg, special

from streamgda.errors import InvalidDataError, MergeError, SingularCovarianceError
from streamgda.models.covariance import Summary, inverse_roots, singular_error
from streamgda.moments import ClassMoments
from streamgda.runtime.parameters import check_type
from streamgda.storage.saved import synchronized

_TOL = 1e-4  # `QuadraticDiscriminantAnalysis` has the same tolerance.


class Statistic(NamedTuple):
    """A statistic with its distribution under the hypothesis, chi-square or F.

    Attributes
    ----------
    statistic : float, or ndarray of one for each feature
    df : tuple of float
        One number of degrees of freedom for chi-square, two for F.
    p_value : float, or ndarray of one for each feature
        Zero if it is less than the smallest float64.
    f : float, optional
        What has the distribution F, if that is not the statistic.
    """

    statistic: Any
    df: tuple[float, ...]
    p_value: Any
    f: float | None = None


class CovarianceTest(NamedTuple):
    """Result of `covariance_test`.

    Attributes
    ----------
    statistic : float
        Box's M.
    chi_square : Statistic
        Box's chi-square approximation.
    f : Statistic
        Box's F approximation, the better one for few rows.
    features : Statistic or None
        Bartlett's test of each feature that varies, for ``"diag"`` moments.
    effect_size : float
        Mean Kullback-Leibler divergence of the classes' Gaussians from those with the pooled
        covariance, in nats per row, which does not grow with the number of rows.
    """

    statistic: float
    chi_square: Statistic
    f: Statistic
    features: Statistic | None
    effect_size: float


class MeansTest(NamedTuple):
    r"""Result of `means_test`.

    Attributes
    ----------
    wilks : Statistic
        Wilks's lambda; exact for two classes.
    pillai : Statistic
        Pillai's trace, the less sensitive to unequal covariances.
    effect_size : float
        :math:`1 - \Lambda^{1/s}`, the share of the variance that is between classes.
    roots : ndarray
        Eigenvalues of :math:`W^{-1} B`, falling, of which the statistics are functions.
    """

    wilks: Statistic
    pillai: Statistic
    effect_size: float
    roots: np.ndarray


def _summary(
    moments: Any, name: str, kinds: tuple[str, str]
) -> tuple[Summary, np.ndarray, np.ndarray]:
    """Return moments of two classes or more, which of them have rows, and the features that vary.

    Scatters of weighted rows are scaled to as many degrees of freedom as they have approximately.
    """
    check_type("moments", moments, ClassMoments, "ClassMoments")
    if moments.covariance_type not in kinds:
        raise MergeError(
            f"{name}() of moments of covariance_type={moments.covariance_type!r}; accumulate "
            f"{kinds[0]!r} or {kinds[1]!r} moments"
        )
    held = Summary.of(moments)
    seen, features = np.flatnonzero(held.count > 0), np.flatnonzero(held.variances > 0)
    if seen.size < 2:
        raise InvalidDataError(f"{name}() compares classes, and {seen.size} of them has rows")
    if not features.size:
        raise InvalidDataError(f"{name}(): no feature varies")
    groups = len(held.scatter) == held.count.size
    rows, count = (each if groups else each.sum(keepdims=True) for each in (held.rows, held.count))
    share = rows / np.where(count > 0, count, 1)
    scatter = held.scatter * share.reshape(-1, *[1] * (held.scatter.ndim - 1))
    index = [np.arange(len(scatter)), *[features] * (scatter.ndim - 1)]
    return replace(held, scatter=scatter[np.ix_(*index)]), seen, features


@synchronized
def covariance_test(moments: ClassMoments) -> CovarianceTest:
    r"""Test whether the covariances of the classes are equal, from moments alone.

    Parameters
    ----------
    moments : ClassMoments
        ``"full"`` tests matrices; ``"diag"`` variances, taking features as independent within
        classes.

    Returns
    -------
    CovarianceTest
        Box's M with its chi-square and F approximations.

    Raises
    ------
    MergeError
        For moments with a pooled scatter.
    InvalidDataError
        If fewer than two classes have rows.
    SingularCovarianceError
        If the covariance of a class has no inverse, as with no more rows than features.

    Notes
    -----
    With :math:`\nu_k = n_k - 1`, :math:`\nu = \sum \nu_k`, the unbiased covariances :math:`C_k`
    and the pooled one :math:`C`, Box's statistic is

    .. math:: M = \nu \ln |C| - \sum_k \nu_k \ln |C_k|

    of which [1]_ gives the approximations. Variances of independent features are matrices of one
    feature, whose statistics are added; so are their cumulants, hence the same approximations. The
    test assumes that the classes are Gaussian: with heavy tails it rejects too often.

    The p-value says whether there is a difference, not how large it is: among :math:`10^8` rows,
    every difference is significant. Decide by the effect size :math:`M / (2 \nu)`, the mean
    Kullback-Leibler divergence of :math:`N(0, C_k)` from :math:`N(0, C)` [2]_: the log-likelihood
    that a row gains from a covariance per class.

    Rows with weights, and decayed ones, count by the effective number :math:`(\sum w)^2 / \sum
    w^2` of each class. Features that are constant over all rows are left out.

    References
    ----------
    .. [1] G. E. P. Box, A general distribution theory for a class of likelihood criteria,
       Biometrika 36 (1949), 317-346.
    .. [2] S. Kullback, Information Theory and Statistics (1959), chapter 12.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from streamgda import accumulate, covariance_test
    >>> test = covariance_test(accumulate(*load_iris(return_X_y=True)))
    >>> round(test.statistic, 2), round(test.f.statistic, 3), round(test.effect_size, 3)
    (146.66, 7.045, 0.499)
    """
    held, seen, features = _summary(moments, "covariance_test", ("full", "diag"))
    df, d = np.maximum(held.rows[seen] - 1.0, 1e-9), features.size
    each = held.scatter[seen] / df.reshape(-1, *[1] * (held.scatter.ndim - 1))
    common = np.tensordot(df, each, axes=1)[None] / df.sum()
    roots, whole = inverse_roots(each, _TOL), inverse_roots(common, _TOL)
    size = d if each.ndim == 3 else 1
    ranks = np.where(df < size, df.astype(int), roots.ranks)
    advice = (
        "Test the variances alone (moments.reduce('diag')) or fewer directions "
        "(moments.project(moments.pca(n_components)))"
    )
    if (ranks < d).any():
        raise singular_error(ranks, d, held.classes[seen], held.rows[seen], advice)
    gains = whole.log_determinants - roots.log_determinants
    statistic = max(0.0, float(df @ gains))  # Rounding may leave less.
    bartlett, copies = None, 1
    if each.ndim == 2:
        copies, more = d, df.size - 1.0
        found = np.maximum(df @ np.log(common / each), 0) / (1 + _corrections(df, 1)[0])
        bartlett = Statistic(found, (more,), special.chdtrc(more, found))
    approximations = box_approximations(statistic, df, size, copies)
    return CovarianceTest(statistic, *approximations, bartlett, statistic / (2 * float(df.sum())))


def _corrections(df: np.ndarray, size: int) -> tuple[float, float]:
    """Return Box's c1 and c2 of matrices with these degrees of freedom, of `size` rows."""
    more, total = df.size - 1, df.sum()
    inverse, squares = (1 / df).sum() - 1 / total, (1 / df**2).sum() - 1 / total**2
    c1 = inverse * (2 * size**2 + 3 * size - 1) / (6 * (size + 1) * more)
    c2 = squares * (size - 1) * (size + 2) / (6 * more)
    return float(c1), float(c2)


def box_approximations(
    statistic: float, df: np.ndarray, size: int, copies: int = 1
) -> tuple[Statistic, Statistic]:
    """Return the chi-square and the F approximation of Box's M.

    Parameters
    ----------
    statistic : float
    df : ndarray, shape (n_classes,)
        Degrees of freedom of the class covariances.
    size : int
        Rows of the covariance matrices.
    copies : int
        Number of independent statistics of that size in the sum.
    """
    c1, c2 = _corrections(df, size)
    df1 = copies * (df.size - 1) * size * (size + 1) / 2
    df2 = (df1 + 2) / abs(c2 - c1**2)
    chi_square = statistic * (1 - c1)
    if c2 > c1**2:
        f = statistic * (1 - c1 - df1 / df2) / df1
    else:
        # The approximate distribution ends there.
        left = df2 / (1 - c1 + 2 / df2) - statistic
        f = df2 * statistic / (df1 * left) if left > 0 else np.inf
    return (
        Statistic(chi_square, (df1,), float(special.chdtrc(df1, chi_square))),
        Statistic(f, (df1, df2), float(special.fdtrc(df1, df2, f))),
    )


@synchronized
def means_test(moments: ClassMoments) -> MeansTest:
    r"""Test whether the means of the classes are equal, from moments alone (one-way MANOVA).

    Parameters
    ----------
    moments : ClassMoments
        ``"full"`` or ``"tied"``.

    Returns
    -------
    MeansTest
        Wilks's lambda and Pillai's trace.

    Raises
    ------
    MergeError
        For moments without covariances between features.
    InvalidDataError
        If fewer than two classes have rows.
    SingularCovarianceError
        If the pooled scatter within classes has no inverse, as with fewer rows than classes and
        features together.

    Notes
    -----
    With W the scatter within classes, B that of their means, :math:`\theta_i` the :math:`s =
    \min(d, K - 1)` largest eigenvalues of :math:`W^{-1} B`: Wilks's :math:`\Lambda = \prod 1 / (1
    + \theta_i)` has Rao's F [1]_, and Pillai's :math:`V = \sum \theta_i / (1 + \theta_i)` the usual
    F [2]_. For two classes both are the exact F of Hotelling's :math:`T^2 = (n - 2) \theta_1`. The
    test assumes that the classes are Gaussian, with one covariance (`covariance_test`). The p-value
    says whether there is a difference, and the effect size [3]_ how large it is.

    Rows with weights, and decayed ones, count by the effective number :math:`(\sum w)^2 / \sum
    w^2` of each class. Features that are constant over all rows are left out.

    References
    ----------
    .. [1] C. R. Rao, An asymptotic expansion of the distribution of Wilks' criterion, Bulletin of
       the International Statistical Institute 33 (1951), 177-180.
    .. [2] K. C. S. Pillai, Some new test criteria in multivariate analysis, Annals of Mathematical
       Statistics 26 (1955), 117-121.
    .. [3] E. M. Cramer and W. A. Nicewander, Some symmetric, invariant measures of multivariate
       association, Psychometrika 44 (1979), 43-54.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from streamgda import accumulate, means_test
    >>> test = means_test(accumulate(*load_iris(return_X_y=True)))
    >>> round(test.wilks.statistic, 4), test.wilks.df, round(test.effect_size, 3)
    (0.0234, (8.0, 288.0), 0.847)
    >>> test.roots.round(2)
    array([32.19,  0.29])
    """
    held, seen, features = _summary(moments, "means_test", ("full", "tied"))
    n = held.rows[seen]
    p, q, df = features.size, seen.size - 1, float(n.sum() - seen.size)
    within = inverse_roots(held.scatter.sum(axis=0)[None] / max(df, 1), _TOL)
    if within.ranks[0] < p or df < p:
        raise SingularCovarianceError(
            f"means_test(): the pooled covariance of {p} features has rank {within.ranks[0]}, from "
            f"{n.sum():g} rows. Test fewer directions (moments.project(moments.pca(n_components)))"
        )
    offsets = held.offsets[np.ix_(seen, features)]
    white = np.sqrt(n)[:, None] * ((offsets - n @ offsets / n.sum()) @ within.values[0].T)
    s = min(p, q)
    roots = linalg.svdvals(white)[:s] ** 2 / df
    log, sides = -float(np.log1p(roots).sum()), p * p + q * q - 5
    t = np.sqrt((p * p * q * q - 4) / sides) if sides > 0 else 1.0
    df1, df2 = p * q, (df - (p - q + 1) / 2) * t - (p * q - 2) / 2
    wilks = _f_test(np.exp(log), np.expm1(-log / t) * df2 / df1, df1, df2)
    share, rest = (roots / (1 + roots)).sum(), (1 / (1 + roots)).sum()
    df1, df2 = s * max(p, q), s * (df - p + s)
    pillai = _f_test(share, share / rest * df2 / df1, df1, df2)
    return MeansTest(wilks, pillai, float(-np.expm1(log / s)), roots)


def _f_test(statistic: float, f: float, df1: float, df2: float) -> Statistic:
    p_value = float(special.fdtrc(df1, df2, f))
    return Statistic(float(statistic), (float(df1), float(df2)), p_value, float(f))
