"""Distances between Gaussians, of classes and of two states: formulas, integrals, properties."""

import naive
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from samples import blobs

from streamgda import (
    BernoulliNB,
    ClassMoments,
    GaussianDiscriminantAnalysis,
    GaussianDiscriminantCV,
    GaussianNB,
    LinearDiscriminantAnalysis,
    accumulate,
    distance,
    separability,
)
from streamgda.errors import (
    InvalidDataError,
    InvalidParameterError,
    MergeError,
    SingularCovarianceError,
)
from streamgda.models.separability import METHODS

EVERY_METHOD = pytest.mark.parametrize("method", METHODS)
EVERY_TYPE = pytest.mark.parametrize("covariance_type", naive.COVARIANCE_TYPES)
LIMITS = {"jeffries_matusita": 2, "transformed_divergence": 2}
X, Y = blobs(60, 3, 2)
MOMENTS = ClassMoments().update(X, Y)

# --- classes --------------------------------------------------------------------------------------


@EVERY_METHOD
@EVERY_TYPE
@pytest.mark.parametrize("how", [{}, {"ddof": 1, "reg_param": 0.1, "shrinkage": 0.2}])
def test_textbook_formulas(covariance_type, method, how):
    rows, y = blobs(200, 5, 4)
    m = naive.moments(rows, y)
    S = naive.regularised_covariances(rows, y, covariance_type, **how)
    expected = naive.separability(m.means, S, method)
    estimator = GaussianDiscriminantAnalysis(covariance_type, **how).fit(rows, y)
    moments = ClassMoments(covariance_type).update(rows, y)
    for found in [separability(each, method) for each in (estimator, moments)[: 1 + (not how)]]:
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
        assert (np.diag(found) == 0).all()
        if method != "kullback_leibler":
            np.testing.assert_allclose(found, found.T, rtol=1e-11)


@EVERY_METHOD
@given(seed=st.integers(0, 2**32), scale=st.sampled_from([1e-6, 1.0, 1e6]))
def test_units_make_no_difference(method, seed, scale):
    rng = np.random.default_rng(seed)
    rows, y = blobs(200, 3, 3, seed=seed)
    assume(all(np.linalg.cond(np.corrcoef(rows[y == k].T)) < 1e6 for k in range(3)))
    A = np.linalg.qr(rng.normal(size=(3, 3)))[0] * scale * np.exp(rng.uniform(-2, 2, 3))
    shift = rng.normal(size=3) * scale
    found = separability(ClassMoments().update(rows @ A + shift, y), method)
    expected = separability(ClassMoments().update(rows, y), method)
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9)
    assert (found >= 0).all()
    assert (found <= LIMITS.get(method, np.inf)).all()


@EVERY_METHOD
@EVERY_TYPE
def test_equal_and_distant_classes(covariance_type, method):
    """Equal classes have separability zero, almost equal ones almost zero: no rounding error."""
    rows, _ = blobs(50, 3, 1)
    close = ClassMoments(covariance_type)
    close.update(np.vstack([rows, rows, rows + 1e-6]), np.repeat([0, 1, 2], 50))
    found = separability(close, method)
    assert 0 <= found[0, 1] <= 1e-13
    assert 0 < found[0, 2] < 1e-10
    far = ClassMoments(covariance_type).update(X + 1e6 * Y[:, None], Y)
    limit = LIMITS.get(method, np.inf)
    apart = separability(far, method)[0, 1]
    assert apart == pytest.approx(limit) or apart > 1e9


@EVERY_METHOD
@EVERY_TYPE
def test_classes_without_rows_and_constant_features(covariance_type, method):
    constant = np.insert(X, 2, 7.0, axis=1)
    moments = ClassMoments(covariance_type).update(constant, 2 * Y).declare([1])
    found = separability(moments, method)
    assert np.isnan(found[1]).all()
    assert np.isnan(found[:, 1]).all()
    expected = separability(MOMENTS.reduce(covariance_type), method)
    np.testing.assert_allclose(found[::2, ::2], expected, rtol=1e-10, atol=1e-12)


def test_searches_single_classes_and_dropped_directions():
    options = {"cv": 2, "scoring": "joint_log_likelihood"}
    search = GaussianDiscriminantCV({"covariance_type": ["diag"]}, **options).fit(X, Y)
    np.testing.assert_allclose(separability(search), separability(MOMENTS.reduce("diag")))
    assert separability(MOMENTS.select_classes([1])).tolist() == [[0.0]]
    with pytest.warns(UserWarning, match="collinear"):  # Such directions do not count.
        lda = LinearDiscriminantAnalysis().fit(np.hstack([X, X[:, :1] + X[:, 1:2]]), Y)
    expected = separability(LinearDiscriminantAnalysis().fit(X, Y))
    np.testing.assert_allclose(separability(lda), expected, rtol=1e-6)


# --- two states -----------------------------------------------------------------------------------

KINDS = ["frechet", "kullback_leibler", "bhattacharyya"]


def oracle(kind, A, B, ddof=0):
    (m, S), (n, T) = ((each.mean(axis=0), np.cov(each.T, ddof=ddof)) for each in (A, B))
    return getattr(naive, kind)(m, S, n, T)


def two_sets(offset=0.0):
    rng = np.random.default_rng(3)
    A, B = (rng.normal(size=(n, 5)) @ rng.normal(size=(5, 5)) / 3 for n in (90, 70))
    return A + offset, B + 0.3 + offset


def moments_of(rows, covariance_type="full"):
    return accumulate(rows, np.arange(len(rows)) % 3, covariance_type=covariance_type)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("covariance_type", ["full", "tied"])
def test_distances_of_all_rows(kind, covariance_type):
    A, B = two_sets()
    a, b = moments_of(A, covariance_type), moments_of(B, covariance_type)
    assert distance(a, b, kind) == pytest.approx(oracle(kind, A, B), rel=1e-10)
    # At an offset of 1e7, the rows themselves have lost seven digits.
    far = [moments_of(each, covariance_type) for each in two_sets(offset=1e7)]
    assert distance(*far, kind) == pytest.approx(oracle(kind, A, B), rel=1e-6)
    assert distance(a, b, "frechet", ddof=1) == pytest.approx(oracle("frechet", A, B, 1))


@pytest.mark.parametrize("covariance_type", ["diag", "tied_diag", "spherical", "tied_spherical"])
def test_distances_of_variances(covariance_type):
    A, B = two_sets()
    a, b = moments_of(A, covariance_type), moments_of(B, covariance_type)
    deviations = A.std(axis=0), B.std(axis=0)
    if "spherical" in covariance_type:
        deviations = [np.sqrt((each**2).mean() * np.ones(5)) for each in deviations]
    expected = ((A.mean(axis=0) - B.mean(axis=0)) ** 2).sum()
    expected += ((deviations[0] - deviations[1]) ** 2).sum()
    assert distance(a, b) == pytest.approx(expected)
    assert distance(a, b, "kullback_leibler") > 0


@given(st.integers(1, 6), st.integers(0, 2**31), st.sampled_from([0.0, 1e-9, 1.0, 1e6]))
@settings(max_examples=40, deadline=None)
def test_frechet_distances_of_singular_covariances(rank, seed, apart):
    """Rows in subspaces, equal ones, and single rows: never NaN, complex or below zero."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(rank, 6))
    B = A + apart * rng.normal(size=(rank, 6))
    a, b = (ClassMoments().update(rows, np.zeros(rank, int)) for rows in (A, B))
    found = distance(a, b)
    assert found >= ((A.mean(axis=0) - B.mean(axis=0)) ** 2).sum() * (1 - 1e-9) >= 0
    # The distance of these pairs is an upper bound.
    assert found <= ((A - B) ** 2).sum(axis=1).mean() * (1 + 1e-6) + 1e-20
    assert found == pytest.approx(distance(b, a), rel=1e-6, abs=1e-20)
    assert distance(a, a) <= 1e-25


# --- what has none --------------------------------------------------------------------------------

FLAT = ClassMoments().update(X[:, [0, 0]], Y)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: separability(None), TypeError, "expected a fitted"),
        (lambda: separability(BernoulliNB().fit(X, Y)), TypeError, "expected a fitted"),
        (lambda: separability(GaussianNB()), TypeError, "expected a fitted"),
        (lambda: separability(MOMENTS, "euclid"), InvalidParameterError, "one of jeffries"),
        (lambda: separability(FLAT), SingularCovarianceError, "rank 1 of 2"),
        (lambda: distance(MOMENTS, MOMENTS, "l2"), InvalidParameterError, "one of frechet"),
        (lambda: distance(MOMENTS, X), TypeError, "b is of type ndarray; expected ClassMoments"),
        (lambda: distance(MOMENTS, ClassMoments()), InvalidDataError, "no row"),
        (lambda: distance(MOMENTS, MOMENTS, ddof="1"), InvalidParameterError, "ddof='1'"),
        (lambda: distance(MOMENTS, MOMENTS.reduce("diag")), MergeError, "diag"),
        (lambda: distance(FLAT, FLAT, "mahalanobis"), SingularCovarianceError, "class a .rank 1"),
        (lambda: distance(MOMENTS, FLAT), MergeError, "3 features and of 2 features"),
    ],
)
def test_failures(call, error, match):
    with pytest.raises(error, match=match):
        call()
