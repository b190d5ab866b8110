"""Sampled rows: the right distribution, singular or not, and always the same bits."""

import naive
import numpy as np
import pytest
from moment_checks import matrices
from samples import blobs

from streamgda import (
    GaussianDiscriminantAnalysis,
    GaussianNB,
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
)
from streamgda.errors import SingularCovarianceError

N = 5000  # more than two blocks


# --- the distribution ---------------------------------------------------------------------------


@pytest.mark.parametrize("covariance_type", naive.COVARIANCE_TYPES)
def test_classes_have_the_means_and_covariances(covariance_type):
    X, y = blobs()
    fitted = GaussianDiscriminantAnalysis(covariance_type).fit(X, y)
    S = matrices(naive.covariance(X, y, covariance_type), covariance_type, 4)
    drawn, labels = fitted.sample(60_000, 1)
    found = naive.moments(drawn, labels)
    for k in range(3):
        n, variance = found.count[k], S[k].diagonal()
        error = np.abs(found.means[k] - fitted.means_[k]) / np.sqrt(variance / n)
        assert error.max() < 5
        deviation = np.sqrt((np.outer(variance, variance) + S[k] ** 2) / n)
        assert (np.abs(found.scatter[k] / n - S[k]) / deviation).max() < 5


@pytest.mark.parametrize(
    "make", [QuadraticDiscriminantAnalysis, LinearDiscriminantAnalysis, GaussianNB]
)
@pytest.mark.filterwarnings("ignore::streamgda.errors.ConstantFeatureWarning")
def test_samples_vary_as_the_class_does_and_no_further(make):
    X, y = blobs()
    X = np.hstack([X, X[:, :1] - 2 * X[:, 1:2], np.full((300, 1), 0.1)])  # dependent; constant
    X[y == 1, 3] = 1e6  # constant in one class
    estimator = make(var_smoothing=0) if make is GaussianNB else make()
    if make is not LinearDiscriminantAnalysis:
        with pytest.raises(SingularCovarianceError, match=r"To sample .*call partial_fit\(X, y\)"):
            estimator.fit(X, y)
    drawn, labels = estimator.partial_fit(X, y).sample(N, 0)
    assert (drawn[:, 5] == 0.1).all()
    if make is not LinearDiscriminantAnalysis:
        assert (drawn[labels == 1, 3] == 1e6).all()
    if make is not GaussianNB:
        np.testing.assert_allclose(drawn[:, 4], drawn[:, 0] - 2 * drawn[:, 1], atol=1e-5)
    within = [
        naive.moments(*rows).scatter.sum(axis=0).diagonal()[:3] / len(rows[0])
        for rows in ((drawn, labels), (X, y))
    ]
    np.testing.assert_allclose(within[0], within[1], rtol=0.2)


def test_a_class_with_one_row():
    X, y = blobs()
    estimator = QuadraticDiscriminantAnalysis().partial_fit(X, y).partial_fit(X[:1] + 9, [7])
    drawn, _ = estimator.sample(10, 0, y=7)
    np.testing.assert_array_equal(drawn, np.repeat(X[:1] + 9, 10, axis=0))


# --- always the same rows -----------------------------------------------------------------------


@pytest.mark.parametrize("rank", [2, 7, 30])
@pytest.mark.parametrize("make", [QuadraticDiscriminantAnalysis, LinearDiscriminantAnalysis])
def test_neither_the_order_of_rows_nor_batches_have_a_say(make, rank):
    random = np.random.default_rng(rank)
    y = random.integers(0, 3, 400)
    rows = random.normal(size=(400, rank)) @ random.normal(size=(rank, 30))
    X = (rows + y[:, None]) * 10.0 ** random.integers(-3, 3, 30) + 5  # rank + 1 over all classes
    X[:, 4] = 0.1
    X[y == 1, 5] = 3.0
    expected, labels = make().partial_fit(X, y).sample(N, 0)
    scale = X.std(axis=0) + 1e-300
    for order in (np.argsort(X[:, 0]), np.arange(400)[::-1], random.permutation(400)):
        for cut in (0, 1, 150):
            fitted = make().partial_fit(X[order[cut:]], y[order[cut:]])
            if cut:
                fitted.partial_fit(X[order[:cut]], y[order[:cut]])
            drawn, found = fitted.sample(N, 0)
            np.testing.assert_array_equal(found, labels)
            assert (np.abs(drawn - expected) / scale).max() < 1e-11


def test_seeds_are_those_of_scikit_learn():
    fitted = GaussianNB().fit(*blobs())
    first, other = (fitted.sample(10, seed)[0] for seed in (1, 2))
    assert not np.isin(first, other).any()
    random = np.random.RandomState(1)
    np.testing.assert_array_equal(fitted.sample(10, random)[0], first)
    assert not np.isin(fitted.sample(10, random)[0], first).any()
    assert not np.isin(fitted.sample(10)[0], fitted.sample(10)[0]).any()
    blocks = fitted.sample(N, 1)[0]
    assert np.unique(blocks).size == blocks.size  # each block has a separate random stream
