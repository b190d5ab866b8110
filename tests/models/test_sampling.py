"""Sampled rows: the right distribution, and the seeds of scikit-learn."""

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
from streamgda.errors import (
    CollinearityWarning,
    InvalidParameterError,
    SingularCovarianceWarning,
    UnsupportedError,
)

N = 5000


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


def test_only_classes_with_a_density_are_drawn():
    X, y = blobs()
    qda = QuadraticDiscriminantAnalysis().partial_fit(X, y).partial_fit(X[:1] + 9, [7])
    with pytest.warns(SingularCovarianceWarning, match="class 7"):
        assert set(qda.sample(N, 0)[1]) == {0, 1, 2}
    with pytest.raises(InvalidParameterError, match="class 7, which has no density"):
        qda.sample(10, 0, y=7)
    collinear = np.column_stack([X, X[:, 0]])
    with pytest.warns(CollinearityWarning):
        drawn, _ = LinearDiscriminantAnalysis().fit(collinear, y).sample(N, 0)
    np.testing.assert_allclose(drawn[:, 4], drawn[:, 0], atol=1e-6)
    with pytest.raises(UnsupportedError, match="needs all rows at once"):
        qda.set_params(solver="eigen", shrinkage="auto").sample()


def test_seeds_are_those_of_scikit_learn():
    fitted = GaussianNB().fit(*blobs())
    first, other = (fitted.sample(10, seed)[0] for seed in (1, 2))
    assert not np.isin(first, other).any()
    random = np.random.RandomState(1)
    np.testing.assert_array_equal(fitted.sample(10, random)[0], first)
    assert not np.isin(fitted.sample(10, random)[0], first).any()
    assert not np.isin(fitted.sample(10)[0], fitted.sample(10)[0]).any()
