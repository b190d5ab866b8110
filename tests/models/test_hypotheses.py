"""Tests of equal covariances and equal means: statistics, approximations, levels, errors."""

import naive
import numpy as np
import pytest
from naive import box_m, manova
from samples import blobs
from scipy import stats

from streamgda import ClassMoments, covariance_test, means_test
from streamgda.errors import InvalidDataError, MergeError, SingularCovarianceError

STATISTICS = ["wilks", "pillai"]
TESTS = [covariance_test, means_test]


def moments_of(X, y, weights=None):
    return ClassMoments().update(X, y, weights)


def values(test):
    return [getattr(test, name).statistic for name in STATISTICS]


X, Y = blobs(90, 3, 3)
MOMENTS = moments_of(X, Y)


# --- statistics -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("n_classes", "n_features"), [(2, 3), (3, 1), (3, 4), (5, 2)])
@pytest.mark.parametrize("weighted", [False, True])
def test_statistics_are_those_of_the_oracle(n_classes, n_features, weighted):
    rows, y = blobs(120, n_features, n_classes)
    weights = np.random.default_rng(0).uniform(0.2, 3, 120) if weighted else None
    moments = moments_of(rows, y, weights)
    test = covariance_test(moments)
    np.testing.assert_allclose(test.statistic, box_m(rows, y, weights), rtol=1e-10)
    np.testing.assert_allclose(values(means_test(moments)), manova(rows, y, weights), rtol=1e-9)


@pytest.mark.parametrize(("n_classes", "n_features"), [(2, 3), (3, 4), (5, 2), (6, 6)])
def test_statsmodels_agrees(n_classes, n_features):
    manova = pytest.importorskip("statsmodels.multivariate.manova")
    multivariate = pytest.importorskip("statsmodels.stats.multivariate")
    rows, y = blobs(400, n_features, n_classes, seed=1)
    rows += 20 * np.random.default_rng(0).normal(size=rows.shape)
    moments, indicators = moments_of(rows, y), np.eye(n_classes)[y]
    contrasts = np.diff(np.eye(n_classes), axis=0)
    table = manova.MANOVA(rows, indicators).mv_test([("means", contrasts)])
    test = means_test(moments)
    found = [getattr(test, name) for name in STATISTICS]
    found = [[s.statistic, *s.df, s.f, s.p_value] for s in found]
    expected = table.results["means"]["stat"].iloc[:2]
    expected = expected[["Value", "Num DF", "Den DF", "F Value", "Pr > F"]].to_numpy(float)
    np.testing.assert_allclose(found, expected, rtol=1e-6)

    covariances = [np.atleast_2d(c) for c in moments.covariance(ddof=1)]
    box = multivariate.test_cov_oneway(covariances, moments.class_count)
    test = covariance_test(moments)
    np.testing.assert_allclose(test.statistic, box.statistic_base, rtol=1e-8)
    np.testing.assert_allclose(test.chi_square.p_value, box.pvalue_chi2, rtol=1e-6)
    assert test.chi_square.df == (box.df_chi2,)
    np.testing.assert_allclose(test.f.df, box.df_f, rtol=1e-9)
    np.testing.assert_allclose(test.f.p_value, box.pvalue_f, rtol=1e-6)


def test_of_one_feature_they_are_the_analysis_of_variance_and_bartlett_s_test():
    groups, moments = [X[k == Y, 0] for k in range(3)], moments_of(X[:, :1], Y)
    anova, test = stats.f_oneway(*groups), means_test(moments)
    for name in STATISTICS:
        found = getattr(test, name)
        np.testing.assert_allclose([found.f, found.p_value], anova, rtol=1e-9)
    between = found.f * 2 / (found.f * 2 + 87)  # This is eta squared.
    np.testing.assert_allclose(test.effect_size, between, rtol=1e-9)
    # Box's F of one feature, of which statsmodels has the wrong sign in `b - M`.
    found, df = covariance_test(moments), np.bincount(Y) - 1
    a = (np.sum(1 / df) - 1 / df.sum()) / (3 * 2)
    df2 = 4 / a**2
    b, M = df2 / (1 - a + 2 / df2), found.statistic
    np.testing.assert_allclose([*found.f.df, found.f.statistic], [2, df2, df2 * M / (2 * (b - M))])


def test_variances_are_tested_by_feature_and_together():
    together = covariance_test(MOMENTS.reduce("diag"))
    alone = [covariance_test(MOMENTS.select_features([j])) for j in range(3)]
    assert together.statistic == pytest.approx(sum(test.statistic for test in alone))
    assert together.chi_square.df == (6,)
    for j in range(3):
        found = together.features.statistic[j], together.features.p_value[j]
        np.testing.assert_allclose(found, stats.bartlett(*(X[k == Y, j] for k in range(3))))
    assert covariance_test(MOMENTS).features is None


# --- p-values and effect sizes --------------------------------------------------------------------


def test_many_rows_make_all_significant_and_leave_effect_sizes():
    many = MOMENTS
    for _ in range(24):  # Each row counts 2**24 times.
        many = many + many
    for test in TESTS:
        assert test(MOMENTS).effect_size == pytest.approx(test(many).effect_size, rel=0.1)
    assert covariance_test(many).f.p_value == means_test(many).pillai.p_value == 0
    assert covariance_test(MOMENTS).f.p_value > 0


def test_the_effect_of_unequal_covariances_is_a_mean_divergence():
    S, pooled = naive.covariance(X, Y, ddof=1), naive.covariance(X, Y, "tied", ddof=1)
    ratio = [np.linalg.solve(pooled, s) for s in S]
    divergence = [(np.trace(r) - 3 - np.log(np.linalg.det(r))) / 2 for r in ratio]
    expected = np.average(divergence, weights=np.bincount(Y) - 1)
    assert covariance_test(MOMENTS).effect_size == pytest.approx(expected)


# --- what makes no difference ---------------------------------------------------------------------

ALIKE = {
    "parts": moments_of(X[:30], Y[:30]) + moments_of(X[30:], Y[30:]),
    "a class without rows": MOMENTS.relabel({0: 7}).declare([0]),
    "equal weights within classes": moments_of(X, Y, 0.1 * np.array([1, 2, 5])[Y]),
    "decay": MOMENTS * 0.5,
    "a constant feature": moments_of(np.insert(X, 1, 3.0, axis=1), Y),
}


def statistics(moments):
    means = means_test(moments)
    return [*values(means), *(getattr(means, name).f for name in STATISTICS)]


@pytest.mark.parametrize("name", ALIKE)
def test_only_what_varies_counts(name):
    found, expected = covariance_test(ALIKE[name]), covariance_test(MOMENTS)
    assert found.statistic == pytest.approx(expected.statistic)
    assert found.f.statistic == pytest.approx(expected.f.statistic)
    assert statistics(ALIKE[name]) == pytest.approx(statistics(MOMENTS))
    if name != "equal weights within classes":  # Other weights pool otherwise.
        assert statistics(ALIKE[name].reduce("tied")) == pytest.approx(statistics(MOMENTS))


# --- errors ---------------------------------------------------------------------------------------

FEW = moments_of(np.vstack([X, X[:3]]), np.append(Y, [3, 3, 3]))
DEPENDENT = moments_of(np.column_stack([X, X.sum(axis=1)]), Y)
ONE = moments_of(X[:4], [0, 0, 0, 1]).reduce("diag")
NONE = moments_of(X, Y, np.where(np.arange(90) < 5, 1, 1e-6))  # There are few effective rows.


@pytest.mark.parametrize(
    ("tests", "moments", "error", "match"),
    [
        (TESTS, moments_of(X, 0 * Y), InvalidDataError, "compares classes, and 1 of them"),
        (TESTS, ClassMoments(), InvalidDataError, "no row is left"),
        (TESTS, X, TypeError, "moments"),
        (TESTS, moments_of(np.ones((90, 2)), Y), InvalidDataError, "no feature varies"),
        (TESTS, NONE, SingularCovarianceError, "of 3|rank"),
        (TESTS[:1], MOMENTS.reduce("tied"), MergeError, "accumulate 'full' or 'diag'"),
        (TESTS[1:], MOMENTS.reduce("diag"), MergeError, "accumulate 'full' or 'tied'"),
        (TESTS[:1], FEW, SingularCovarianceError, r"class 3 \(rank 2 of 3, 3 rows\).*'diag'"),
        (TESTS[:1], DEPENDENT, SingularCovarianceError, r"class 0 \(rank 3 of 4"),
        (TESTS[1:], DEPENDENT, SingularCovarianceError, "4 features has rank 3.*moments.project"),
        (TESTS[:1], ONE, SingularCovarianceError, r"class 1 \(rank 0 of 3, 1 row"),
    ],
)
def test_moments_that_cannot_be_tested(tests, moments, error, match):
    for test in tests:
        with pytest.raises(error, match=match):
            test(moments)
