"""Tests of equal covariances (Box, Bartlett) and of equal means (Wilks, Pillai, Hotelling, Roy)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import special

from streamgda.errors import InvalidDataError, MergeError
from streamgda.models.covariance import Regularisation, estimate, factorise
from streamgda.models.discriminants import discriminant_directions
from streamgda.models.gaussian import GaussianModel
from streamgda.models.model import check_classes
from streamgda.moments import ClassMoments, held_sums
from streamgda.moments.centred import CentredSums
from streamgda.moments.covariance_types import pooled, structure_of
from streamgda.runtime.display import html_table
from streamgda.runtime.parameters import check_type
from streamgda.storage.saved import synchronized

# Remedies for a singular covariance, by its type.
_COVARIANCE_ADVICE = {
    "full": "Test the variances alone (moments.reduce('diag')) or fewer directions "
    "(moments.project(moments.pca(n_components)))",
    "diag": "Test the mean variances (moments.reduce('spherical'))",
    "spherical": "Drop classes without variance (moments.drop_classes)",
}
_MEANS_ADVICE = "Test fewer directions (moments.project(moments.pca(n_components)))"


@dataclass(frozen=True)
class Approximation:
    """A statistic with its approximate distribution under the hypothesis, chi-square or F.

    Attributes
    ----------
    statistic : float, or ndarray of one for each feature
    df : tuple of float
        One number of degrees of freedom for chi-square, two for F.
    p_value : float, or ndarray of one for each feature
        Zero if it is less than the smallest float64.
    """

    statistic: float | np.ndarray
    df: tuple[float, ...]
    p_value: float | np.ndarray


def by_effective_rows(moments: ClassMoments) -> ClassMoments:
    """Return moments with the weights of each class scaled to sum to its effective number of rows.

    A scatter then has as many degrees of freedom, approximately, as one of that many rows.
    """
    sums = held_sums(moments).centred()
    if sums.squares is None:
        return moments
    structure, seen = sums.structure, sums.count > 0
    count = sums.effective_count(lambda each: each)
    scale = np.divide(count, sums.count, out=np.zeros_like(count), where=seen)
    if not structure.per_class:
        if np.ptp(scale[seen]) > 1e-9 * scale.max():
            raise MergeError(
                f"means_test() cannot weight the scatter of each class by its effective number of "
                f"rows: moments of covariance_type={structure.name!r} hold one pooled over all. "
                f"Accumulate 'full' moments, or rows without weights"
            )
        scale = scale[seen][:1]
    scatter = sums.packed * scale[:, None]
    scaled = CentredSums(structure, count, sums.mean, sums.mean_low, scatter)
    names = moments.feature_names
    return ClassMoments._of_sums(structure, moments.classes, scaled, feature_names=names)


def shown_size(test: Any) -> str:
    """Return the size of the data of a test as text."""
    return f"{test.n_rows:.6g} rows, {test.n_features} features, {test.n_classes} classes"


def shown_p(p_value: float | np.ndarray) -> str:
    """Return a p-value as text; one that is less than any float64 is not shown as zero."""
    return f"p = {p_value:.3g}" if p_value >= 1e-300 else "p < 1e-300"


# --- covariances ------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class CovarianceTest:
    """Result of `covariance_test`.

    Parameters
    ----------
    statistic : float
        Box's M.
    chi_square : Approximation
        Box's chi-square approximation: ``statistic``, ``df`` and ``p_value``.
    f : Approximation
        Box's F approximation, the better one for few rows.
    features : Approximation or None
        Bartlett's test of each feature that varies, for ``"diag"`` moments.
    effect_size : float
        Mean Kullback-Leibler divergence of the classes' Gaussians from those with the pooled
        covariance, in nats per row, which does not grow with the number of rows.
    n_rows : float
        Rows of all classes; if they have weights, the effective number.
    n_classes : int
        Classes with rows.
    n_features : int
        Features that vary.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from streamgda import ClassMoments, covariance_test
    >>> test = covariance_test(ClassMoments().update(*load_iris(return_X_y=True)))
    >>> round(test.statistic, 2), test.chi_square.df, test.n_classes
    (146.66, (20.0,), 3)
    """

    statistic: float
    chi_square: Approximation
    f: Approximation
    features: Approximation | None
    effect_size: float
    n_rows: float
    n_classes: int
    n_features: int

    def __repr__(self) -> str:
        (df,), (df1, df2) = self.chi_square.df, self.f.df
        return (
            f"CovarianceTest: {shown_size(self)}\n"
            f"  Box's M = {self.statistic:.6g}\n"
            f"  chi-square = {self.chi_square.statistic:.6g}, df {df:g}, "
            f"{shown_p(self.chi_square.p_value)}\n"
            f"  F = {self.f.statistic:.6g}, df {df1:g} and {df2:g}, {shown_p(self.f.p_value)}\n"
            f"  effect size = {self.effect_size:.3g} nats a row"
        )

    def _repr_html_(self) -> str:
        facts = {"size": shown_size(self), "effect size": self.effect_size, "M": self.statistic}
        tests = {"chi-square": self.chi_square, "F": self.f}
        rows = [(name, t.statistic, t.df, t.p_value) for name, t in tests.items()]
        return html_table("CovarianceTest", facts, ("test", "statistic", "df", "p-value"), rows)


@synchronized
def covariance_test(moments: ClassMoments, *, tol: float = 1e-4) -> CovarianceTest:
    r"""Test whether the covariances of the classes are equal, from moments alone.

    Parameters
    ----------
    moments : ClassMoments
        ``"full"`` tests matrices; ``"diag"`` variances, taking features as independent within
        classes; ``"spherical"`` one variance per class.
    tol : float
        Tolerance for a singular covariance, as for `QuadraticDiscriminantAnalysis`.

    Returns
    -------
    CovarianceTest
        Box's M with its chi-square and F approximations.

    Raises
    ------
    MergeError
        For moments with a pooled scatter.
    InvalidDataError
        If fewer than two classes have rows, or weights leave a class too few effective rows.
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
    w^2` of each class: only ratios of weights matter. P-values of unequal weights are approximate
    and rather too large.

    Features that are constant over all rows are left out.

    References
    ----------
    .. [1] G. E. P. Box, A general distribution theory for a class of likelihood criteria,
       Biometrika 36 (1949), 317-346.
    .. [2] S. Kullback, Information Theory and Statistics (1959), chapter 12.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from streamgda import accumulate, covariance_test
    >>> covariance_test(accumulate(*load_iris(return_X_y=True)))
    CovarianceTest: 150 rows, 4 features, 3 classes
      Box's M = 146.663
      chi-square = 140.943, df 20, p = 3.35e-20
      F = 7.04526, df 20 and 77566.8, p = 3.58e-20
      effect size = 0.499 nats a row
    """
    check_type("moments", moments, ClassMoments, "ClassMoments")
    structure = structure_of(moments.covariance_type)
    if not structure.per_class:
        raise MergeError(
            f"covariance_test() needs a covariance for each class, but moments of covariance_type="
            f"{structure.name!r} hold one pooled over all; accumulate {structure.kind!r} moments"
        )
    check_classes(moments.classes, moments.class_count, least=2)
    moments = by_effective_rows(moments)
    how = Regularisation(ddof=1, tol=tol, advice=_COVARIANCE_ADVICE[structure.name])
    each, both = (estimate(moments, kind, how) for kind in (structure.name, pooled(structure.name)))
    seen, d = each.count > 0, each.features.size
    log_each = factorise(each, how, overwrite=structure.matrix)[1][seen]
    log_pooled = factorise(both, how)[1]
    df = each.count[seen] - 1.0
    size = d if structure.matrix else 1
    if (df < size).any():  # of weighted rows, or the covariance would have been singular
        k = df.argmin()
        raise InvalidDataError(
            f"covariance_test() needs at least {size + 1} rows of each class, but the weights of "
            f"class {each.classes[seen][k]!s} are those of {df[k] + 1:.3g} rows (their effective "
            f"number). Give more rows of it, or drop it (moments.drop_classes)"
        )
    statistic = max(0.0, float(df @ (log_pooled - log_each)))  # rounding may leave less
    effect_size = statistic / (2 * df.sum())
    one_variance = structure.one_variance  # of d times as many values
    features, copies = None, 1
    if not structure.matrix and not one_variance:
        features, copies = bartlett(both.values, each.values[seen], df), d
    approximations = box_approximations(statistic, df * d if one_variance else df, size, copies)
    n_rows = float(each.count.sum())
    return CovarianceTest(statistic, *approximations, features, effect_size, n_rows, df.size, d)


def _corrections(df: np.ndarray, size: int) -> tuple[float, float]:
    """Return Box's c1 and c2 of matrices with these degrees of freedom, of `size` rows."""
    more, total = df.size - 1, df.sum()
    inverse, squares = (1 / df).sum() - 1 / total, (1 / df**2).sum() - 1 / total**2
    c1 = inverse * (2 * size**2 + 3 * size - 1) / (6 * (size + 1) * more)
    c2 = squares * (size - 1) * (size + 2) / (6 * more)
    return float(c1), float(c2)


def box_approximations(
    statistic: float, df: np.ndarray, size: int, copies: int
) -> tuple[Approximation, Approximation]:
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
        left = df2 / (1 - c1 + 2 / df2) - statistic  # to the end of the approximate distribution
        f = df2 * statistic / (df1 * left) if left > 0 else np.inf
    return (
        Approximation(chi_square, (df1,), float(special.chdtrc(df1, chi_square))),
        Approximation(f, (df1, df2), float(special.fdtrc(df1, df2, f))),
    )


def bartlett(common: np.ndarray, variances: np.ndarray, df: np.ndarray) -> Approximation:
    """Return Bartlett's test of each feature."""
    statistic = np.maximum(df @ np.log(common / variances), 0) / (1 + _corrections(df, 1)[0])
    more = df.size - 1.0
    return Approximation(statistic, (more,), special.chdtrc(more, statistic))


# --- means --------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class MeansStatistic:
    """A statistic of the hypothesis of equal means, with its F approximation.

    Attributes
    ----------
    statistic : float
    f : float
    df : tuple of float
        Two numbers of degrees of freedom.
    p_value : float
        Zero if it is less than the smallest float64.
    effect_size : float
        Share of the variance that is between classes, in [0, 1), which does not grow with the rows.
    """

    statistic: float
    f: float
    df: tuple[float, float]
    p_value: float
    effect_size: float

    def __repr__(self) -> str:
        return (
            f"MeansStatistic: {self.statistic:.6g}, F = {self.f:.6g}, df {self.df[0]:g} and "
            f"{self.df[1]:g}, {shown_p(self.p_value)}, effect size = {self.effect_size:.3g}"
        )


@dataclass(frozen=True, repr=False)
class MeansTest:
    r"""Result of `means_test`.

    Parameters
    ----------
    wilks : MeansStatistic
        Wilks's lambda: ``statistic``, ``f``, ``df``, ``p_value`` and ``effect_size``.
    pillai : MeansStatistic
        Pillai's trace, the least sensitive to unequal covariances.
    hotelling_lawley : MeansStatistic
        Hotelling-Lawley trace. F is NaN for three classes or more with so few rows that the mean
        of the trace is infinite.
    roy : MeansStatistic
        Roy's largest root. F is an upper bound, and the p-value a lower one, unless the classes
        differ along one direction only.
    hotelling_t2 : MeansStatistic or None
        Hotelling's :math:`T^2`, with the exact F, if there are two classes.
    roots : ndarray
        Eigenvalues of :math:`W^{-1} B`, falling, of which all statistics are functions.
    n_rows : float
        Rows of all classes; if they have weights, the effective number.
    n_classes : int
        Classes with rows.
    n_features : int
        Features that vary.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from streamgda import ClassMoments, means_test
    >>> test = means_test(ClassMoments().update(*load_iris(return_X_y=True)))
    >>> round(test.wilks.statistic, 4), round(test.pillai.statistic, 4), test.hotelling_t2
    (0.0234, 1.1919, None)
    """

    wilks: MeansStatistic
    pillai: MeansStatistic
    hotelling_lawley: MeansStatistic
    roy: MeansStatistic
    hotelling_t2: MeansStatistic | None
    roots: np.ndarray
    n_rows: float
    n_classes: int
    n_features: int

    @property
    def _named(self) -> dict[str, MeansStatistic]:
        named = {
            "Wilks's lambda": self.wilks,
            "Pillai's trace": self.pillai,
            "Hotelling-Lawley trace": self.hotelling_lawley,
            "Roy's largest root": self.roy,
            "Hotelling's T2": self.hotelling_t2,
        }
        return {name: found for name, found in named.items() if found is not None}

    def __repr__(self) -> str:
        lines = [
            str(found).replace("MeansStatistic:", f"  {name} =")
            for name, found in self._named.items()
        ]
        return "\n".join([f"MeansTest: {shown_size(self)}", *lines])

    def _repr_html_(self) -> str:
        columns = ("statistic", "value", "F", "df", "p-value", "effect size")
        rows = [
            (name, found.statistic, found.f, found.df, found.p_value, found.effect_size)
            for name, found in self._named.items()
        ]
        return html_table("MeansTest", {"size": shown_size(self)}, columns, rows)


@synchronized
def means_test(moments: ClassMoments, *, tol: float = 1e-4) -> MeansTest:
    r"""Test whether the means of the classes are equal, from moments alone (one-way MANOVA).

    Parameters
    ----------
    moments : ClassMoments
        ``"full"`` or ``"tied"``.
    tol : float
        Tolerance for a singular covariance, as for `LinearDiscriminantAnalysis`.

    Returns
    -------
    MeansTest
        Wilks's lambda, the traces of Pillai and of Hotelling and Lawley, and Roy's largest root;
        for two classes also Hotelling's :math:`T^2`.

    Raises
    ------
    MergeError
        For moments without covariances between features.
    InvalidDataError
        If fewer than two classes have rows, or weights leave too few effective rows.
    SingularCovarianceError
        If the pooled scatter within classes has no inverse, as with fewer rows than classes and
        features together.

    Notes
    -----
    With W the scatter within classes, B that of their means, :math:`\theta_i` the :math:`s =
    \min(d, K - 1)` largest eigenvalues of :math:`W^{-1} B`: Wilks's :math:`\Lambda = \prod 1 / (1
    + \theta_i)` has Rao's F [1]_; Pillai's :math:`V = \sum \theta_i / (1 + \theta_i)` the usual F
    [2]_; Hotelling and Lawley's :math:`U = \sum \theta_i` McKeon's [3]_; Roy's :math:`\theta_1` an
    upper bound. For two classes, all are the exact F of :math:`T^2 = (n - 2) \theta_1`. The test
    assumes that the classes are Gaussian, with one covariance (`covariance_test`).

    The p-value says whether there is a difference, not how large it is: among :math:`10^8` rows,
    every difference is significant. Decide by the effect sizes [4]_ :math:`1 - \Lambda^{1/s}`,
    :math:`V / s`, :math:`(U/s) / (1 + U/s)` and :math:`\theta_1 / (1 + \theta_1)`, which for one
    feature are :math:`\eta^2`, the share of the variance that is between classes.

    Rows with weights, and decayed ones, count by the effective number :math:`(\sum w)^2 / \sum
    w^2` of each class: only ratios of weights matter. P-values of unequal weights are approximate
    and rather too large.

    Features that are constant over all rows are left out.

    References
    ----------
    .. [1] C. R. Rao, An asymptotic expansion of the distribution of Wilks' criterion, Bulletin of
       the International Statistical Institute 33 (1951), 177-180.
    .. [2] K. C. S. Pillai, Some new test criteria in multivariate analysis, Annals of Mathematical
       Statistics 26 (1955), 117-121.
    .. [3] J. J. McKeon, F approximations to the distribution of Hotelling's T0^2, Biometrika 61
       (1974), 381-383.
    .. [4] E. M. Cramer and W. A. Nicewander, Some symmetric, invariant measures of multivariate
       association, Psychometrika 44 (1979), 43-54.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from streamgda import accumulate, means_test
    >>> test = means_test(accumulate(*load_iris(return_X_y=True)))
    >>> test.wilks
    MeansStatistic: 0.0234386, F = 199.145, df 8 and 288, p = 1.37e-112, effect size = 0.847
    >>> test.roots.round(2)
    array([32.19,  0.29])
    """
    check_type("moments", moments, ClassMoments, "ClassMoments")
    structure_of(moments.covariance_type).check_covariances("means_test")
    check_classes(moments.classes, moments.class_count, least=2)
    moments = by_effective_rows(moments)
    how = Regularisation(tol=tol, advice=_MEANS_ADVICE)
    model = GaussianModel.from_moments(moments, "tied", how)
    count = moments.class_count[moments.class_count > 0]
    n_rows, n_classes, d = float(count.sum()), count.size, model.features.size
    df = n_rows - n_classes
    if df < d:  # of weighted rows, or the covariance would have been singular
        raise InvalidDataError(
            f"means_test() needs at least {d + n_classes} rows, as many as features and classes, "
            f"but the weights are those of {n_rows:.3g} rows (their effective number). Give more "
            f"rows, or test fewer features (moments.select_features)"
        )
    roots = discriminant_directions(model)[1][: min(d, n_classes - 1)]
    wilks, pillai = _wilks(roots, df, d, n_classes - 1), _pillai(roots, df, d, n_classes - 1)
    roy = _roy(roots, df, d, n_classes - 1)
    hotelling = _hotelling_lawley(roots, df, d, n_classes - 1)
    t2 = replace(roy, statistic=df * roy.statistic) if n_classes == 2 else None
    return MeansTest(wilks, pillai, hotelling, roy, t2, roots, n_rows, n_classes, d)


def _wilks(roots: np.ndarray, df: float, p: int, q: int) -> MeansStatistic:
    """Return Wilks's lambda of p features and q + 1 classes, with Rao's F."""
    log = -float(np.log1p(roots).sum())
    sides = p * p + q * q - 5
    t = np.sqrt((p * p * q * q - 4) / sides) if sides > 0 else 1.0
    df1, df2 = p * q, (df - (p - q + 1) / 2) * t - (p * q - 2) / 2
    effect_size = -np.expm1(log / roots.size)
    return _statistic(np.exp(log), np.expm1(-log / t) * df2 / df1, df1, df2, effect_size)


def _pillai(roots: np.ndarray, df: float, p: int, q: int) -> MeansStatistic:
    """Return Pillai's trace of p features and q + 1 classes."""
    s, value, rest = roots.size, (roots / (1 + roots)).sum(), (1 / (1 + roots)).sum()
    df1, df2 = s * max(p, q), s * (df - p + s)
    return _statistic(value, value / rest * df2 / df1, df1, df2, value / s)


def _hotelling_lawley(roots: np.ndarray, df: float, p: int, q: int) -> MeansStatistic:
    """Return the Hotelling-Lawley trace of p features and q + 1 classes, with McKeon's F."""
    s, value, excess = roots.size, roots.sum(), df - p - 1
    if s == 1:
        return _roy(roots, df, p, q)
    df1, df2, f = p * q, np.nan, np.nan
    if excess > 0:
        a, b = p * q + 2, p + q + 1
        df2 = 4 + a * (excess - 2) * (excess + 1) / (a + excess * b)
        f = value / df1 * df2 * (a + excess * b) / (2 * b + (excess - 1) * a)
    return _statistic(value, f, df1, df2, value / (s + value))


def _roy(roots: np.ndarray, df: float, p: int, q: int) -> MeansStatistic:
    """Return Roy's largest root of p features and q + 1 classes, with an upper bound of F."""
    value, df1 = roots[0], max(p, q)
    df2 = df - df1 + q
    return _statistic(value, value * df2 / df1, df1, df2, value / (1 + value))


def _statistic(
    value: float, f: float, df1: float, df2: float, effect_size: float
) -> MeansStatistic:
    df = float(df1), float(df2)
    return MeansStatistic(
        float(value), float(f), df, float(special.fdtrc(*df, f)), float(effect_size)
    )
