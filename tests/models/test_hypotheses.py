"""Tests of equal covariances and equal means: statistics, approximations, levels and refusals."""

import naive
import numpy as np
import pytest
from naive import box_m, manova
from samples import blobs, bytes_of
from scipy import stats
from sklearn.datasets import load_iris

from streamgda import ClassMoments, covariance_test, means_test
from streamgda.errors import InvalidDataError, MergeError, SingularCovarianceError

STATISTICS = ["wilks", "pillai"]


def moments_of(X, y, weights=None):
    return ClassMoments().update(X, y, weights)


def values(test):
    return [getattr(test, name).statistic for name in STATISTICS]


# --- statistics -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("n_classes", "n_features"), [(2, 3), (3, 1), (3, 4), (5, 2)])
@pytest.mark.parametrize("weighted", [False, True])
def test_statistics_are_those_of_the_oracle(n_classes, n_features, weighted):
    X, y = blobs(120, n_features, n_classes)
    weights = np.random.default_rng(0).uniform(0.2, 3, 120) if weighted else None
    moments = moments_of(X, y, weights)
    test = covariance_test(moments)
    np.testing.assert_allclose(test.statistic, box_m(X, y, weights), rtol=1e-10)
    np.testing.assert_allclose(values(means_test(moments)), manova(X, y, weights)[:2], rtol=1e-9)


def test_iris_gives_the_published_tables():
    moments = moments_of(*load_iris(return_X_y=True))
    box = covariance_test(moments)  # R's heplots::boxM and rstatix::box_m; SPSS for F
    np.testing.assert_allclose(box.statistic, 146.663, atol=5e-4)
    np.testing.assert_allclose(box.chi_square.statistic, 140.943, atol=5e-4)
    np.testing.assert_allclose(box.chi_square.p_value, 3.35e-20, rtol=2e-3)
    np.testing.assert_allclose(box.f.statistic, 7.045, atol=5e-4)
    assert (box.chi_square.df, box.f.df[0], round(box.f.df[1])) == ((20,), 20, 77567)
    means = means_test(moments)  # R's summary(manova(...))
    np.testing.assert_allclose(values(means), [0.023439, 1.1919], rtol=3e-5)
    for found, (f, df) in zip(
        [means.wilks, means.pillai],
        [(199.15, (8, 288)), (53.466, (8, 290))],
        strict=True,
    ):
        np.testing.assert_allclose(found.f, f, rtol=5e-5)
        assert found.df == df


@pytest.mark.parametrize(("n_classes", "n_features"), [(2, 3), (3, 4), (5, 2), (6, 6)])
def test_statsmodels_agrees(n_classes, n_features):
    manova = pytest.importorskip("statsmodels.multivariate.manova")
    multivariate = pytest.importorskip("statsmodels.stats.multivariate")
    X, y = blobs(400, n_features, n_classes, seed=1)
    X += 20 * np.random.default_rng(0).normal(size=X.shape)
    moments, indicators = moments_of(X, y), np.eye(n_classes)[y]
    contrasts = np.diff(np.eye(n_classes), axis=0)
    table = manova.MANOVA(X, indicators).mv_test([("means", contrasts)])
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


def test_of_two_classes_all_are_hotelling_s_exact_test():
    X, y = blobs(60, 3, 2)
    test = means_test(moments_of(X, y))
    a, b = X[y == 0], X[y == 1]
    gap, covariance = a.mean(axis=0) - b.mean(axis=0), naive.covariance(X, y, "tied", ddof=1)
    t2 = len(a) * len(b) / 60 * gap @ np.linalg.solve(covariance, gap)
    f = (60 - 3 - 1) / (58 * 3) * t2
    for name in STATISTICS:
        found = getattr(test, name)
        np.testing.assert_allclose([found.f, *found.df], [f, 3, 56], rtol=1e-9)
        np.testing.assert_allclose(found.p_value, stats.f.sf(f, 3, 56), rtol=1e-9)


def test_of_one_feature_they_are_the_analysis_of_variance_and_bartlett_s_test():
    X, y = blobs(90, 1, 3)
    groups = [X[y == k, 0] for k in range(3)]
    moments, anova = moments_of(X, y), stats.f_oneway(*groups)
    for name in STATISTICS:
        found = getattr(means_test(moments), name)
        np.testing.assert_allclose([found.f, found.p_value], anova, rtol=1e-9)
    between = found.f * 2 / (found.f * 2 + 87)  # eta squared
    np.testing.assert_allclose(means_test(moments).effect_size, between, rtol=1e-9)
    found, bartlett = covariance_test(moments.reduce("diag")), stats.bartlett(*groups)
    np.testing.assert_allclose(found.features.statistic, [bartlett.statistic], rtol=1e-9)
    np.testing.assert_allclose(found.features.p_value, [bartlett.pvalue], rtol=1e-9)
    assert found.statistic == pytest.approx(covariance_test(moments).statistic)
    # Box's F of one feature, of which statsmodels has the wrong sign in `b - M`.
    df = np.bincount(y) - 1
    a = (np.sum(1 / df) - 1 / df.sum()) / (3 * 2)
    df2 = 4 / a**2
    b, M = df2 / (1 - a + 2 / df2), found.statistic
    np.testing.assert_allclose([*found.f.df, found.f.statistic], [2, df2, df2 * M / (2 * (b - M))])


# --- covariance types -----------------------------------------------------------------------------


def test_variances_are_tested_by_feature_and_together():
    X, y = blobs(120, 4, 3)
    moments = moments_of(X, y)
    together = covariance_test(moments.reduce("diag"))
    alone = [covariance_test(moments.select_features([j])) for j in range(4)]
    assert together.statistic == pytest.approx(sum(test.statistic for test in alone))
    assert together.chi_square.df == (8,)
    for j in range(4):
        found = together.features.statistic[j], together.features.p_value[j]
        np.testing.assert_allclose(found, stats.bartlett(*(X[y == k, j] for k in range(3))))
    assert covariance_test(moments).features is None


def test_tied_moments_give_the_same_means_test_and_no_covariance_test():
    moments = moments_of(*blobs(80, 3, 3))
    assert values(means_test(moments.reduce("tied"))) == pytest.approx(values(means_test(moments)))
    with pytest.raises(MergeError, match="accumulate 'full' or 'diag'"):
        covariance_test(moments.reduce("tied"))
    with pytest.raises(MergeError, match="accumulate 'full' or 'tied'"):
        means_test(moments.reduce("diag"))


# --- p-values and effect sizes --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("covariance_type", "weighted"), [("full", False), ("diag", False), ("full", True)]
)
def test_p_values_are_uniform_if_the_hypothesis_holds(covariance_type, weighted):
    rng, y, p_values = np.random.default_rng(0), np.repeat([0, 1, 2], [8, 9, 12]), []
    if weighted:
        y = np.repeat(y, 5)
    for _ in range(80):
        weights = rng.uniform(1, 2, y.size) if weighted else None
        moments = moments_of(rng.normal(size=(y.size, 2)), y, weights)
        test = covariance_test(moments.reduce(covariance_type))
        means = means_test(moments)
        p_values.append(
            [test.chi_square.p_value, test.f.p_value, means.wilks.p_value, means.pillai.p_value]
        )
    for column in np.transpose(p_values):
        assert stats.kstest(column, "uniform").pvalue > 0.01


def test_many_rows_make_all_significant_and_leave_effect_sizes():
    X, y = blobs(90, 3, 3)
    few = many = moments_of(X, y)
    for _ in range(24):  # each row 2**24 times
        many = many + many
    for test in covariance_test, means_test:
        assert test(few).effect_size == pytest.approx(test(many).effect_size, rel=0.1)
    assert covariance_test(many).f.p_value == means_test(many).pillai.p_value == 0
    assert covariance_test(few).f.p_value > 0


def test_the_effect_of_unequal_covariances_is_a_mean_divergence():
    X, y = blobs(200, 3, 2)
    S, pooled = naive.covariance(X, y, ddof=1), naive.covariance(X, y, "tied", ddof=1)
    ratio = [np.linalg.solve(pooled, s) for s in S]
    divergence = [(np.trace(r) - 3 - np.log(np.linalg.det(r))) / 2 for r in ratio]
    expected = np.average(divergence, weights=np.bincount(y) - 1)
    assert covariance_test(moments_of(X, y)).effect_size == pytest.approx(expected)


# --- rows, weights and refusals -------------------------------------------------------------------


def test_only_the_moments_count():
    X, y = blobs(100, 3, 3)
    X = bytes_of(X)
    whole = moments_of(X, y)
    parts = moments_of(X[:30], y[:30]) + moments_of(X[30:], y[30:])
    renamed = parts.relabel({0: 7}).declare([0])  # a class without rows
    for other in (parts, renamed):
        assert covariance_test(other).statistic == pytest.approx(covariance_test(whole).statistic)
        assert values(means_test(other)) == pytest.approx(values(means_test(whole)))


def test_equal_weights_are_none():
    X, y = blobs(90, 3, 3)
    moments = moments_of(X, y)
    for weight in (0.1, 1.0, 40.0):
        scaled = moments_of(X, y, np.full(90, weight) * np.array([1, 2, 5])[y])  # within classes
        assert covariance_test(scaled).f.p_value == pytest.approx(
            covariance_test(moments).f.p_value
        )
        assert values(means_test(scaled)) == pytest.approx(values(means_test(moments)))
    faded = (moments * 0.5).reduce("tied")
    assert values(means_test(faded)) == pytest.approx(values(means_test(moments)))


def test_constant_features_are_left_out():
    X, y = blobs(60, 3, 2)
    wide = np.insert(X, 1, 3.0, axis=1)
    for test in covariance_test, means_test:
        assert repr(test(moments_of(wide, y))) == repr(test(moments_of(X, y)))


def test_singular_covariances_are_refused_with_classes_and_remedies():
    X, y = blobs(40, 3, 2)
    few = moments_of(np.vstack([X, X[:3]]), np.append(y, [2, 2, 2]))
    with pytest.raises(SingularCovarianceError, match=r"class 2 \(rank 2 of 3, 3 rows\).*'diag'"):
        covariance_test(few)
    covariance_test(few.reduce("diag"))
    dependent = moments_of(np.column_stack([X, X.sum(axis=1)]), y)
    with pytest.raises(SingularCovarianceError, match=r"class 0 \(rank 3 of 4"):
        covariance_test(dependent)
    with pytest.raises(SingularCovarianceError, match=r"4 features has rank 3.*moments.project"):
        means_test(dependent)
    one = moments_of(X[:4], [0, 0, 0, 1])
    with pytest.raises(SingularCovarianceError, match=r"class 1 \(rank 0 of 3, 1 row"):
        covariance_test(one.reduce("diag"))


def test_other_moments_are_refused():
    X, y = blobs(40, 3, 2)
    weights = np.where(np.arange(40) % 20 < 2, 1, 1e-6)
    for test in covariance_test, means_test:
        with pytest.raises(InvalidDataError, match="compares classes, and 1 of them"):
            test(moments_of(X, np.zeros(40, int)))
        with pytest.raises(InvalidDataError, match="no row is left"):
            test(ClassMoments())
        with pytest.raises(SingularCovarianceError, match=r"of 3|rank"):
            test(moments_of(X, y, weights))
        with pytest.raises(TypeError, match="moments"):
            test(X)
