"""Distances between two states: an oracle, offsets, singular covariances, classes."""

import naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgda import ClassMoments, accumulate, distance
from streamgda.errors import (
    InvalidDataError,
    InvalidParameterError,
    MergeError,
    SingularCovarianceError,
)

KINDS = ["frechet", "kullback_leibler", "bhattacharyya"]


def oracle(kind, X, Y, ddof=0):
    gaussians = [(each.mean(axis=0), np.cov(each.T, ddof=ddof)) for each in (X, Y)]
    return getattr(naive, kind)(*gaussians[0], *gaussians[1])


def two_sets(d=5, offset=0.0):
    rng = np.random.default_rng(3)
    X, Y = (rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) / 3 for n in (90, 70))
    return X + offset, Y + 0.3 + offset


def moments_of(X, covariance_type="full"):
    return accumulate(X, np.arange(len(X)) % 3, covariance_type=covariance_type)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("covariance_type", ["full", "tied"])
def test_of_all_rows(kind, covariance_type):
    X, Y = two_sets()
    a, b = moments_of(X, covariance_type), moments_of(Y, covariance_type)
    assert distance(a, b, kind) == pytest.approx(oracle(kind, X, Y), rel=1e-10)
    # At an offset of 1e7, the rows themselves have lost seven digits.
    far = [moments_of(each, covariance_type) for each in two_sets(offset=1e7)]
    assert distance(far[0], far[1], kind) == pytest.approx(oracle(kind, X, Y), rel=1e-6)
    assert distance(a, b, "frechet", ddof=1) == pytest.approx(oracle("frechet", X, Y, 1))


@pytest.mark.parametrize("kind", KINDS)
def test_class_by_class(kind):
    X, Y = two_sets()
    labels = np.arange(90) % 3
    a, b = accumulate(X, labels), accumulate(Y, labels[:70])
    expected = [oracle(kind, X[labels == k], Y[labels[:70] == k]) for k in range(3)]
    np.testing.assert_allclose(distance(a, b, kind, by_class=True), expected)
    some = distance(a.drop_classes([0]), b.relabel({2: 9}).declare([2]), kind, by_class=True)
    assert np.isnan(some).tolist() == [True, False, True, True]  # of 0, 1, 2 and 9
    assert some[1] == pytest.approx(expected[1])


@pytest.mark.parametrize("covariance_type", ["diag", "tied_diag", "spherical", "tied_spherical"])
def test_of_variances(covariance_type):
    X, Y = two_sets()
    a, b = moments_of(X, covariance_type), moments_of(Y, covariance_type)
    deviations = X.std(axis=0), Y.std(axis=0)
    if "spherical" in covariance_type:
        deviations = [np.sqrt((each**2).mean() * np.ones(5)) for each in deviations]
    expected = ((X.mean(axis=0) - Y.mean(axis=0)) ** 2).sum()
    expected += ((deviations[0] - deviations[1]) ** 2).sum()
    assert distance(a, b) == pytest.approx(expected)
    assert distance(a, b, "kullback_leibler") > 0


@given(st.integers(1, 6), st.integers(0, 2**31), st.sampled_from([0.0, 1e-9, 1.0, 1e6]))
@settings(max_examples=40, deadline=None)
def test_frechet_distances_of_singular_covariances(rank, seed, apart):
    """Rows in subspaces, equal ones, and single rows: never NaN, complex or below zero."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rank, 6))
    Y = X + apart * rng.normal(size=(rank, 6))
    a, b = (ClassMoments().update(rows, np.zeros(rank, int)) for rows in (X, Y))
    found = distance(a, b)
    assert found >= ((X.mean(axis=0) - Y.mean(axis=0)) ** 2).sum() * (1 - 1e-9) >= 0
    assert found <= ((X - Y) ** 2).sum(axis=1).mean() * (1 + 1e-6) + 1e-20  # of these pairs
    assert found == pytest.approx(distance(b, a), rel=1e-6, abs=1e-20)
    assert distance(a, a) <= 1e-25


def test_regularised():
    X, Y = np.random.default_rng(0).normal(size=(2, 4, 6))
    a, b = (ClassMoments().update(rows, np.zeros(4, int)) for rows in (X, Y))
    with pytest.raises(SingularCovarianceError) as caught:
        distance(a, b, "kullback_leibler")
    assert caught.value.classes == ["a", "b"]
    eye = 0.1 * np.eye(6)
    A, B = (0.9 * np.cov(rows.T, ddof=0) + eye for rows in (X, Y))
    gap = X.mean(axis=0) - Y.mean(axis=0)
    expected = (np.trace(np.linalg.solve(B, A)) - 6 + gap @ np.linalg.solve(B, gap)) / 2
    expected += (np.linalg.slogdet(B)[1] - np.linalg.slogdet(A)[1]) / 2
    assert distance(a, b, "kullback_leibler", reg_param=0.1) == pytest.approx(expected)


def test_states_that_have_no_distance():
    X, Y = two_sets()
    a, b = moments_of(X), moments_of(Y)
    with pytest.raises(InvalidParameterError, match="kind='wasserstein'; expected one of frechet"):
        distance(a, b, "wasserstein")
    with pytest.raises(TypeError, match="b is of type ndarray; expected ClassMoments"):
        distance(a, Y)
    with pytest.raises(InvalidDataError, match="no row"):
        distance(a, ClassMoments())
    with pytest.raises(MergeError, match="bring both to one with reduce"):
        distance(a, b.reduce("diag"))
    with pytest.raises(MergeError, match="5 features and of 4 features"):
        distance(a, moments_of(Y[:, :4]))
    with pytest.raises(MergeError, match="one scatter for all classes"):
        distance(a.reduce("tied"), b.reduce("tied"), by_class=True)
