"""Fisher's discriminant: no other direction separates the classes better."""

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import blobs
from scipy import linalg
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis as ScikitLDA

from streamgda import (
    FisherDiscriminant,
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
    accumulate,
)
from streamgda.errors import InvalidParameterError, MergeError, SingularCovarianceError


def between_and_within(X, y):
    """Covariance of the class means, and that within classes."""
    m = naive.moments(X, y)
    priors = m.count / m.count.sum()
    gaps = m.means - priors @ m.means
    return (priors * gaps.T) @ gaps, naive.covariance(X, y, "tied")


def up_to_sign(found, expected):
    signs = np.sign((found * expected).sum(axis=0))
    return found * signs


@pytest.mark.parametrize("n_classes", [2, 3, 4])
def test_directions_solve_the_generalised_eigenproblem(n_classes):
    X, y = blobs(n_features=5, n_classes=n_classes)
    B, W = between_and_within(X, y)
    values, vectors = linalg.eigh(B, W)
    fisher = FisherDiscriminant.from_moments(accumulate(X, y))
    k = n_classes - 1
    assert fisher.components.shape == (k, 5)
    np.testing.assert_allclose(fisher.criteria, values[::-1][:k], rtol=1e-9)
    expected = vectors[:, ::-1][:, :k]
    np.testing.assert_allclose(up_to_sign(fisher.components.T, expected), expected, rtol=1e-7)
    np.testing.assert_allclose(fisher.components @ W @ fisher.components.T, np.eye(k), atol=1e-10)


def test_of_two_classes_it_is_the_direction_of_document_004():
    X, y = blobs(n_classes=2)
    m, S = naive.moments(X, y), naive.covariance(X, y, "tied")
    fisher = FisherDiscriminant.from_moments(accumulate(X, y))
    expected = np.linalg.solve(S, m.means[0] - m.means[1])
    found = fisher.components[0]
    cosine = found @ expected / np.linalg.norm(found) / np.linalg.norm(expected)
    np.testing.assert_allclose(abs(cosine), 1, rtol=1e-12)
    w = np.random.default_rng(0).normal(size=4)
    j = (w @ m.means[0] - w @ m.means[1]) ** 2 / (w @ S @ w)
    shares = m.count / m.count.sum()
    np.testing.assert_allclose(fisher.criterion(w), shares[0] * shares[1] * j, rtol=1e-10)


@given(st.integers(0, 2**32 - 1), st.integers(2, 4), st.sampled_from(["full", "tied", "diag"]))
def test_no_direction_is_better(seed, n_classes, covariance_type):
    X, y = blobs(80, 3, n_classes, seed)
    fisher = FisherDiscriminant.from_moments(accumulate(X, y, covariance_type=covariance_type))
    best = fisher.criteria[0]
    np.testing.assert_allclose(fisher.criterion(fisher.components[0]), best, rtol=1e-9)
    random = np.random.default_rng(seed)
    wide = random.normal(size=(200, 3))
    near = fisher.components[0] + 1e-3 * random.normal(size=(200, 3))
    for w in (wide, near, 1e9 * wide):
        assert (fisher.criterion(w) <= best * (1 + 1e-9)).all()


def test_criterion_is_the_ratio_of_variances_of_projected_rows():
    X, y = blobs()
    B, W = between_and_within(X, y)
    w = np.random.default_rng(1).normal(size=(20, 4))
    fisher = FisherDiscriminant.from_moments(accumulate(X, y))
    expected = np.einsum("ni,ij,nj->n", w, B, w) / np.einsum("ni,ij,nj->n", w, W, w)
    np.testing.assert_allclose(fisher.criterion(w), expected, rtol=1e-10)
    np.testing.assert_allclose(fisher.criterion(w[3]), expected[3], rtol=1e-10)


def test_agrees_with_scikit_learn_and_with_our_transformer():
    X, y = blobs(n_features=6, n_classes=4)
    fisher = FisherDiscriminant.from_moments(accumulate(X, y), 2)
    found = fisher.transform(X)
    ours = LinearDiscriminantAnalysis(n_components=2).fit(X, y).transform(X)
    np.testing.assert_allclose(found, ours, rtol=1e-9, atol=1e-9)
    theirs = ScikitLDA(solver="eigen", n_components=2).fit(X, y).transform(X)
    theirs = theirs - theirs.mean(axis=0)
    theirs *= found.std(axis=0) / theirs.std(axis=0)
    np.testing.assert_allclose(up_to_sign(found, theirs), theirs, rtol=1e-7, atol=1e-8)


def test_projected_moments_are_those_of_the_transformed_rows():
    X, y = blobs(n_features=6)
    moments = accumulate(X + 1e6, y)
    fisher = FisherDiscriminant.from_moments(moments)
    rows = fisher.transform(X + 1e6)
    projected, again = fisher.project(moments), accumulate(rows, y)
    np.testing.assert_allclose(projected.means, again.means, rtol=0, atol=1e-8)
    np.testing.assert_allclose(projected.covariance(), again.covariance(), rtol=0, atol=1e-8)
    plane = QuadraticDiscriminantAnalysis.from_moments(projected)
    expected = QuadraticDiscriminantAnalysis().fit(rows, y).predict(rows)
    np.testing.assert_array_equal(plane.predict(rows), expected)


def test_constant_features_have_no_weight():
    X, y = blobs()
    plain = FisherDiscriminant.from_moments(accumulate(X, y))
    wider = FisherDiscriminant.from_moments(accumulate(np.insert(X, 2, 5.0, axis=1), y))
    assert (wider.components[:, 2] == 0).all()
    np.testing.assert_allclose(np.delete(wider.components, 2, 1), plain.components, rtol=1e-12)
    assert np.isnan(wider.criterion([0, 0, 1, 0, 0]))


def test_shrinkage_makes_singular_covariances_regular():
    X, y = blobs()
    X = np.hstack([X, X[:, :1]])
    moments = accumulate(X, y)
    with pytest.raises(SingularCovarianceError):
        FisherDiscriminant.from_moments(moments)
    fisher = FisherDiscriminant.from_moments(moments, shrinkage=0.1)
    B, W = between_and_within(X, y)
    shrunk = 0.9 * W + 0.1 * np.trace(W) / 5 * np.eye(5)
    expected = linalg.eigh(B, shrunk)[1][:, :2:-1]
    found = up_to_sign(fisher.components.T, expected)
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("wanted", [0, 3, 1.5])
def test_more_components_than_there_are(wanted):
    with pytest.raises(InvalidParameterError, match="expected 1 to 2, the number of directions"):
        FisherDiscriminant.from_moments(accumulate(*blobs()), wanted)


def test_other_bad_input():
    fisher = FisherDiscriminant.from_moments(accumulate(*blobs()))
    for w in (np.zeros(3), np.zeros((1, 1, 4)), 1.0):
        with pytest.raises(InvalidParameterError, match="expected 4 numbers a direction"):
            fisher.criterion(w)
    with pytest.raises(MergeError, match="needs covariances between features"):
        fisher.project(accumulate(*blobs(), covariance_type="diag"))
