"""Discriminants as formulas: they equal the textbooks' and the estimators' scores."""

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import blobs

from streamgda import (
    GaussianDiscriminantAnalysis,
    GaussianNB,
    LinearDiscriminantAnalysis,
    LinearDiscriminants,
    QuadraticDiscriminantAnalysis,
    QuadraticDiscriminants,
)
from streamgda.errors import InvalidParameterError

TIED = [t for t in naive.COVARIANCE_TYPES if naive.is_tied(t)]
FORMULAS = [
    *((LinearDiscriminants, t) for t in TIED),
    *((QuadraticDiscriminants, t) for t in naive.COVARIANCE_TYPES),
]


# --- the textbooks' formulas --------------------------------------------------------------------


def test_linear_ones_are_those_of_documents_001_and_003():
    X, y = blobs()
    m, S = naive.moments(X, y), naive.covariance(X, y, "tied")
    P, priors = np.linalg.inv(S), m.count / m.count.sum()
    lda = LinearDiscriminantAnalysis().fit(X, y)
    from_zero, about_mean = LinearDiscriminants.of(lda, 0), LinearDiscriminants.of(lda)
    for i in range(3):
        w, w0 = from_zero.of_class(i)
        np.testing.assert_allclose(w, P @ m.means[i], rtol=1e-10)
        np.testing.assert_allclose(
            w0, -0.5 * m.means[i] @ P @ m.means[i] + np.log(priors[i]), rtol=1e-10
        )
        for j in range(3):
            gap, total = m.means[i] - m.means[j], m.means[i] + m.means[j]
            w0 = -0.5 * gap @ P @ total + np.log(priors[i] / priors[j])  # eq. 14 and 24
            for discriminants in (from_zero, about_mean):
                pair = discriminants.pair(i, j)
                np.testing.assert_allclose(pair.w, P @ gap, rtol=1e-9, atol=1e-12)
                np.testing.assert_allclose(pair.intercept, w0, rtol=1e-9, atol=1e-12)


def test_quadratic_ones_are_those_of_documents_000_and_001():
    X, y = blobs()
    m, S = naive.moments(X, y), naive.covariance(X, y, "full")
    P, priors = np.linalg.inv(S), m.count / m.count.sum()
    qda = QuadraticDiscriminantAnalysis().fit(X, y)
    A, b, c = QuadraticDiscriminants.of(qda, 0).pair(2, 0)
    np.testing.assert_allclose(A, -0.5 * (P[2] - P[0]), rtol=1e-9)
    np.testing.assert_allclose(b, P[2] @ m.means[2] - P[0] @ m.means[0], rtol=1e-9)
    inner = [m.means[k] @ P[k] @ m.means[k] for k in range(3)]
    ratio = np.linalg.slogdet(S[2])[1] - np.linalg.slogdet(S[0])[1]
    expected = -0.5 * (ratio + inner[2] - inner[0]) + np.log(priors[2] / priors[0])
    np.testing.assert_allclose(c, expected, rtol=1e-9)


# --- what the estimators compute ----------------------------------------------------------------


@pytest.mark.parametrize(("kind", "covariance_type"), FORMULAS)
@pytest.mark.parametrize("origin", [None, 0, 1.5])
def test_they_reproduce_the_classifier(kind, covariance_type, origin):
    X, y = blobs()
    X[:, 2] = 7  # left out of the density
    with pytest.warns(match="constant"):
        fitted = GaussianDiscriminantAnalysis(covariance_type, priors=[0.5, 0.2, 0.3]).fit(X, y)
    discriminants = kind.of(fitted, origin)
    values = discriminants(X)
    np.testing.assert_array_equal(fitted.classes_[values.argmax(axis=1)], fitted.predict(X))
    np.testing.assert_allclose(discriminants.posterior(X), fitted.predict_proba(X), atol=1e-10)
    for a in range(3):
        np.testing.assert_allclose(discriminants.of_class(a)(X), values[:, a], rtol=1e-12)
        for b in range(3):
            found = discriminants.pair(a, b)(X)
            expected = fitted.predict_log_proba(X)[:, a] - fitted.predict_log_proba(X)[:, b]
            np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(
    "estimator", [LinearDiscriminantAnalysis(), QuadraticDiscriminantAnalysis(), GaussianNB()]
)
def test_of_two_classes_the_pair_is_the_decision_function(estimator):
    X, y = blobs(n_classes=2)
    fitted = estimator.fit(X, np.array(["no", "yes"])[y])
    pair = QuadraticDiscriminants.of(fitted).pair("yes", "no")
    np.testing.assert_allclose(pair(X), fitted.model_.log_odds(X), rtol=1e-9, atol=1e-10)
    np.testing.assert_array_equal(np.where(pair(X) > 0, "yes", "no"), fitted.predict(X))


def test_of_a_full_covariance_they_are_the_decision_function():
    X, y = blobs()
    qda = QuadraticDiscriminantAnalysis().fit(X, y)
    values = QuadraticDiscriminants.of(qda)(X)
    np.testing.assert_allclose(values, qda.decision_function(X), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", [LinearDiscriminants, QuadraticDiscriminants])
def test_far_from_zero_they_are_as_good_as_near(kind):
    X, y = blobs()
    X = np.round(X * 2**20) / 2**20  # so that moving the rows rounds nothing
    offset = 2.0**23
    near = kind.of(LinearDiscriminantAnalysis().fit(X, y))
    far = kind.of(LinearDiscriminantAnalysis().fit(X + offset, y))
    np.testing.assert_allclose(far.pair(0, 1)(X + offset), near.pair(0, 1)(X), rtol=1e-8, atol=1e-7)


# --- where boundaries meet (document 001, figure 2 and below) ------------------------------------


@given(st.integers(0, 2**32 - 1), st.sampled_from(TIED))
def test_three_boundaries_in_a_plane_meet_in_one_point(seed, covariance_type):
    X, y = blobs(60, 2, 3, seed)
    fitted = GaussianDiscriminantAnalysis(covariance_type).fit(X, y)
    discriminants = LinearDiscriminants.of(fitted)
    pairs = [discriminants.pair(*labels) for labels in ((0, 1), (1, 2), (2, 0))]
    point = discriminants.meeting(0, 1, 2)
    # The point may be far from all rows: scores are large there, and so is their rounding.
    scale = max(np.abs(pair.w) @ np.abs(point - pair.origin) + abs(pair.w0) for pair in pairs)
    for pair in pairs:
        assert abs(pair(point[None])[0]) < 1e-9 * scale
    # Any two boundaries determine it: the third goes through it because log-odds add up.
    crossing = np.linalg.solve([pairs[0].w, pairs[1].w], [-pairs[0].w0, -pairs[1].w0])
    np.testing.assert_allclose(point - discriminants.origin, crossing, rtol=1e-6, atol=1e-9)
    if scale < 1e3:
        np.testing.assert_allclose(fitted.predict_proba(point[None]), 1 / 3, rtol=1e-6)


def test_boundaries_in_space_meet_next_to_the_mean():
    X, y = blobs(n_features=5)
    lda = LinearDiscriminantAnalysis().fit(X, y)
    discriminants = LinearDiscriminants.of(lda)
    point = discriminants.meeting(0, 1, 2)
    np.testing.assert_allclose(lda.predict_proba(point[None]), 1 / 3, rtol=1e-9)
    w = np.array([discriminants.pair(0, k).w for k in (1, 2)])
    along = np.linalg.svd(w)[2][2:]  # their intersection has three dimensions
    np.testing.assert_allclose(along @ (point - lda.xbar_), 0, atol=1e-9)
    np.testing.assert_allclose(lda.predict_proba((point + 5 * along[0])[None]), 1 / 3, rtol=1e-9)


def test_parallel_boundaries_do_not_meet():
    X = np.array([[0.0], [2.0], [4.0], [6.0], [8.0], [11.0]])
    lda = LinearDiscriminantAnalysis().fit(X, [0, 0, 1, 1, 2, 2])
    with pytest.raises(InvalidParameterError, match="do not meet"):
        LinearDiscriminants.of(lda).meeting(0, 1, 2)
    with pytest.raises(InvalidParameterError, match="two classes or more"):
        LinearDiscriminants.of(lda).meeting(0)


# --- what is refused ----------------------------------------------------------------------------


def test_classes_without_rows_and_priors_of_zero():
    X, y = blobs()
    fitted = GaussianDiscriminantAnalysis("tied").partial_fit(X, y, classes=[0, 1, 2, 3])
    discriminants = LinearDiscriminants.of(fitted)
    assert (discriminants(X)[:, 3] == -np.inf).all()
    np.testing.assert_allclose(discriminants.posterior(X), fitted.predict_proba(X), atol=1e-12)
    for label in (3, 9, "a"):
        with pytest.raises(InvalidParameterError, match=r"not one of the classes .* \[0, 1, 2\]"):
            discriminants.pair(0, label)
    unlikely = GaussianDiscriminantAnalysis("tied", priors=[0.5, 0.5, 0]).fit(X, y)
    never = LinearDiscriminants.of(unlikely)
    assert (never.pair(0, 2)(X) == np.inf).all()


def test_no_linear_discriminants_or_no_such_origin():
    X, y = blobs()
    qda = QuadraticDiscriminantAnalysis().fit(X, y)
    with pytest.raises(InvalidParameterError, match="use QuadraticDiscriminants"):
        LinearDiscriminants.of(qda)
    for origin in ([1.0, 2.0], np.nan, np.zeros((1, 4))):
        with pytest.raises(InvalidParameterError, match="origin has shape"):
            QuadraticDiscriminants.of(qda, origin)
