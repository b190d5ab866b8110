"""Shrinkage from moments: against the naive oracle and scikit-learn."""

import naive
import numpy as np
import pytest
from samples import KINDS, blobs, bytes_of, held
from sklearn import covariance as sklearn

from streamgda import (
    ClassMoments,
    GaussianDiscriminantAnalysis,
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
)
from streamgda.errors import InvalidParameterError
from streamgda.models.shrinkage import shrinkage_of
from streamgda.moments.covariance_types import structure_of


def centred(X, y, weights=None):
    """Rows minus their class means."""
    m = naive.moments(X, y, weights)
    return np.asarray(X, float) - m.means[np.searchsorted(m.classes, y)]


def expected(X, y, per_class, weights=None):
    rows = centred(X, y, weights)
    w = np.ones(len(y)) if weights is None else weights
    parts = [y == k for k in np.unique(y)] if per_class else [slice(None)]
    return [naive.oas(rows[part], w[part]) for part in parts]


def qda(**params):
    return QuadraticDiscriminantAnalysis(solver="eigen", shrinkage="oas", **params)


def lda():
    return LinearDiscriminantAnalysis("lsqr", shrinkage="oas")


@pytest.mark.parametrize("offset", [0, 1e6, 1e8])
@pytest.mark.parametrize("shape", [(300, 4), (60, 25), (400, 2)])
def test_amounts_are_those_of_scikit_learn(offset, shape):
    X, y = blobs(*shape)
    shifted = X + offset
    if offset:
        X = shifted - offset  # the rows as they are after the rounding
    of_classes = [sklearn.oas(X[y == k]) for k in range(3)]
    of_all = [sklearn.oas(centred(X, y), assume_centered=True)]
    for estimator, known in ((qda(store_covariance=True), of_classes), (lda(), of_all)):
        covariances, amounts = zip(*known, strict=True)
        fitted = estimator.fit(shifted, y)
        np.testing.assert_allclose(fitted.shrinkage_, amounts, rtol=1e-9)
        found = fitted.covariance_ if len(known) > 1 else [fitted.covariance_]
        np.testing.assert_allclose(found, covariances, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", "float64"])
@pytest.mark.parametrize("weighted", [False, True])
def test_amounts_are_those_of_the_oracle(dtype, weighted):
    X, y = blobs(120, 3)
    X = bytes_of(X).astype(dtype)
    weights = np.random.default_rng(0).uniform(0.2, 3, len(y)) if weighted else None
    moments = ClassMoments().update(X, y, weights)
    for per_class, name in ((True, "full"), (False, "tied")):
        found = shrinkage_of(moments, "oas", structure_of(name))
        np.testing.assert_allclose(found, expected(X, y, per_class, weights), rtol=1e-10)


def test_edges():
    X, y = blobs(50, 3)
    assert qda().fit(X[:, :1], y).shrinkage_.max() == 0
    assert lda().fit(*blobs(40, 30)).score(*blobs(40, 30)) > 0.9  # few rows
    # A class of one row, which has no spread; one of two rows, which is only noise.
    few = ClassMoments().update([[0.0, 1.0], [2.0, 2.0], [3.0, 5.0]], [0, 1, 1])
    assert shrinkage_of(few, "oas", structure_of("full")).tolist() == [1, 1]
    assert lda().fit(X, y).moments_.covariance_type == "tied"


@pytest.mark.parametrize("scale", [2.0**-400, 2.0**400])
def test_units_do_not_matter(scale):
    X, y = blobs(200, 4)
    np.testing.assert_array_equal(qda().fit(X * scale, y).shrinkage_, qda().fit(X, y).shrinkage_)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", [qda, lda])
def test_every_kind_of_array_gives_the_same(kind, make):
    X, y = blobs(300, 4)
    whole = make().fit(X, y)
    found = make().fit(held(X, kind), held(y, kind))
    np.testing.assert_allclose(found.shrinkage_, whole.shrinkage_, rtol=1e-12)


def test_covariances_and_names_that_do_not_fit_are_refused():
    for covariance_type in ("diag", "tied_diag", "spherical", "tied_spherical"):
        gda = GaussianDiscriminantAnalysis(covariance_type, shrinkage="oas")
        with pytest.raises(InvalidParameterError, match="use 'full' or 'tied', or a number"):
            gda.fit(*blobs())
        assert not hasattr(gda, "moments_")
    with pytest.raises(InvalidParameterError, match=r"pooling=0\.5 mixes it"):
        GaussianDiscriminantAnalysis(shrinkage="oas", pooling=0.5).fit(*blobs())
    GaussianDiscriminantAnalysis("tied", shrinkage="oas", pooling=0.5).fit(*blobs())
    with pytest.raises(InvalidParameterError, match="or one of auto, oas"):
        QuadraticDiscriminantAnalysis(solver="eigen", shrinkage="lw").fit(*blobs())
