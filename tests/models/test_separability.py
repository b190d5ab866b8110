"""Separability of classes: the textbooks' formulas, integrals, and properties."""

import naive
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from samples import blobs

from streamgda import (
    BernoulliNB,
    ClassMoments,
    GaussianDiscriminantAnalysis,
    GaussianDiscriminantCV,
    GaussianNB,
    LinearDiscriminantAnalysis,
    separability,
)
from streamgda.errors import InvalidParameterError, MergeError, SingularCovarianceError
from streamgda.models.separability import METHODS

EVERY_METHOD = pytest.mark.parametrize("method", METHODS)
EVERY_TYPE = pytest.mark.parametrize("covariance_type", naive.COVARIANCE_TYPES)
LIMITS = {"jeffries_matusita": 2, "transformed_divergence": 2}


@EVERY_METHOD
@EVERY_TYPE
@pytest.mark.parametrize("how", [{}, {"ddof": 1, "reg_param": 0.1, "shrinkage": 0.2}])
def test_textbook_formulas(covariance_type, method, how):
    X, y = blobs(200, 5, 4)
    m = naive.moments(X, y)
    S = naive.regularised_covariances(X, y, covariance_type, **how)
    expected = naive.separability(m.means, S, method)
    estimator = GaussianDiscriminantAnalysis(covariance_type, **how).fit(X, y)
    moments = ClassMoments(covariance_type).update(X, y)
    full = ClassMoments().update(X, y)
    for found in (
        separability(estimator, method),
        separability(estimator.model_, method=method),
        separability(moments, method, **how),
        separability(full, method, covariance_type=covariance_type, **how),
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
        assert (np.diag(found) == 0).all()
        if method != "kullback_leibler":
            np.testing.assert_allclose(found, found.T, rtol=1e-11)


def test_integrals_of_two_densities():
    """Their definitions, without the algebra of Gaussians: sums over a fine grid of the plane."""
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(size=(40, 2)) @ [[1, 0.5], [0, 0.6]], rng.normal(size=(40, 2)) + 1])
    y = np.repeat([0, 1], 40)
    m, S = naive.moments(X, y).means, naive.covariance(X, y)
    axis = np.linspace(-9, 10, 400)
    plane = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    gaps = plane[:, None] - m
    squares = np.einsum("rki,kij,rkj->rk", gaps, np.linalg.inv(S), gaps)
    logs = -0.5 * (squares + np.log(np.linalg.det(S))) - np.log(2 * np.pi)
    area = (axis[1] - axis[0]) ** 2
    p, q = np.exp(logs).T
    moments = ClassMoments().update(X, y)
    jeffries_matusita = ((np.sqrt(p) - np.sqrt(q)) ** 2).sum() * area
    assert separability(moments)[0, 1] == pytest.approx(jeffries_matusita, rel=1e-6)
    for i, j, density in ((0, 1, p), (1, 0, q)):
        divergence = (density * (logs[:, i] - logs[:, j])).sum() * area
        found = separability(moments, "kullback_leibler")[i, j]
        assert found == pytest.approx(divergence, rel=1e-6)


@EVERY_METHOD
@given(seed=st.integers(0, 2**32), scale=st.sampled_from([1e-6, 1.0, 1e6]))
def test_units_make_no_difference(method, seed, scale):
    rng = np.random.default_rng(seed)
    X, y = blobs(200, 3, 3, seed=seed)
    assume(all(np.linalg.cond(np.corrcoef(X[y == k].T)) < 1e6 for k in range(3)))
    A = np.linalg.qr(rng.normal(size=(3, 3)))[0] * scale * np.exp(rng.uniform(-2, 2, 3))
    shift = rng.normal(size=3) * scale
    found = separability(ClassMoments().update(X @ A + shift, y), method)
    expected = separability(ClassMoments().update(X, y), method)
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9)
    assert (found >= 0).all()
    assert (found <= LIMITS.get(method, np.inf)).all()


@EVERY_METHOD
@EVERY_TYPE
def test_close_classes_are_not_drowned_by_rounding(covariance_type, method):
    """Equal classes have separability zero, and those that are almost equal almost zero."""
    X, _ = blobs(50, 3, 1)
    moments = ClassMoments().update(np.vstack([X, X, X + 1e-6]), np.repeat([0, 1, 2], 50))
    found = separability(moments, method, covariance_type=covariance_type)
    assert 0 <= found[0, 1] <= 1e-13
    distance = separability(moments, "mahalanobis", covariance_type="tied")[0, 2]
    if covariance_type == "tied":
        share = {"kullback_leibler": 2, "mahalanobis": 1, "bhattacharyya": 8}
        by = {"jeffries_matusita": 4, "transformed_divergence": 4} | share
        assert found[0, 2] == pytest.approx(distance / by[method], rel=1e-3)
    else:
        assert found[0, 2] < 1e-10


def test_classes_that_do_not_overlap_have_the_largest_values():
    X, y = blobs(60, 2, 2)
    moments = ClassMoments().update(X + 1e6 * y[:, None], y)
    for method, limit in LIMITS.items():
        assert separability(moments, method)[0, 1] == pytest.approx(limit)


@EVERY_METHOD
@EVERY_TYPE
def test_classes_without_rows_and_constant_features(covariance_type, method):
    X, y = blobs(80, 4, 2)
    constant = np.hstack([X[:, :2], np.full((80, 1), 7.0), X[:, 2:]])
    moments = ClassMoments().update(constant, 2 * y).declare([1])
    found = separability(moments, method, covariance_type=covariance_type)
    assert found.shape == (3, 3)
    assert np.isnan(found[1]).all()
    assert np.isnan(found[:, 1]).all()
    expected = separability(ClassMoments().update(X, y), method, covariance_type=covariance_type)
    np.testing.assert_allclose(found[::2, ::2], expected, rtol=1e-10, atol=1e-12)


def test_estimators_of_every_kind():
    X, y = blobs(90, 2, 2)
    scoring = "joint_log_likelihood"  # of the moments alone
    search = GaussianDiscriminantCV({"covariance_type": ["diag"]}, cv=2, scoring=scoring).fit(X, y)
    expected = separability(ClassMoments("diag").update(X, y))
    np.testing.assert_allclose(separability(search), expected)
    one = separability(ClassMoments().update(X[y == 1], y[y == 1]))
    assert one.tolist() == [[0.0]]
    with pytest.warns(UserWarning, match="collinear"):  # directions that LDA dropped do not count
        lda = LinearDiscriminantAnalysis().fit(np.hstack([X, X[:, :1] + X[:, 1:]]), y)
    expected = separability(LinearDiscriminantAnalysis().fit(X, y))
    np.testing.assert_allclose(separability(lda), expected, rtol=1e-6)


def test_what_has_no_separability_is_refused():
    X, y = blobs(60, 3, 2)
    moments = ClassMoments().update(X, y)
    for other in (None, BernoulliNB().fit(X, y), GaussianNB(), GaussianNB, X):
        with pytest.raises(TypeError, match=r"model_or_moments is .* expected a fitted"):
            separability(other)
    with pytest.raises(InvalidParameterError, match=r"method='euclid'; expected one of jeffries"):
        separability(moments, "euclid")
    with pytest.raises(InvalidParameterError, match="has its own covariances; pass ClassMoments"):
        separability(GaussianNB().fit(X, y), reg_param=0.1)
    with pytest.raises(InvalidParameterError, match="ddof='1'"):
        separability(moments, ddof="1")
    with pytest.raises(MergeError, match="'full'"):
        separability(moments.reduce("diag"), covariance_type="full")
    flat = ClassMoments().update(X[:, [0, 0]], y)
    with pytest.raises(SingularCovarianceError):
        separability(flat)
    assert separability(flat, reg_param=0.1)[0, 1] > 0
