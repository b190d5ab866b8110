"""Tests of equal means: Wilks, Pillai, Hotelling-Lawley, Roy, and Hotelling's T2."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from streamgda.errors import InvalidDataError
from streamgda.models.covariance import Regularisation
from streamgda.models.covariance_test import by_effective_rows, shown_p, shown_size
from streamgda.models.discriminants import discriminant_directions
from streamgda.models.gaussian import GaussianModel
from streamgda.models.model import check_classes
from streamgda.moments import ClassMoments
from streamgda.moments.covariance_types import structure_of
from streamgda.runtime.display import html_table
from streamgda.runtime.parameters import check_type

_ADVICE = "Test fewer directions (moments.project(moments.pca(n_components)))"


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
    takes classes as Gaussian, with one covariance (`covariance_test`).

    The p-value is about the presence of a difference, not its size: among :math:`10^8` rows, every
    difference is significant. Decide by the effect sizes [4]_ :math:`1 - \Lambda^{1/s}`,
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
    return _compare_means(by_effective_rows(moments), tol)


def _compare_means(moments: ClassMoments, tol: float) -> MeansTest:
    """Return the result of `means_test` for moments of rows without weights."""
    how = Regularisation(tol=tol, advice=_ADVICE)
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
