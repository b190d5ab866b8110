"""PCA from moments: scikit-learn's answers, an oracle, any labels, offsets."""

import naive
import numpy as np
import pytest
from samples import held
from sklearn import datasets, decomposition

from streamgda import PCA, ClassMoments, RandomFeatures, accumulate
from streamgda.errors import (
    InvalidDataError,
    InvalidParameterError,
    MergeError,
    UnsupportedError,
)

IRIS, LABELS = datasets.load_iris(return_X_y=True)


def correlated(n=300, d=6, offset=0.0):
    rng = np.random.default_rng(7)
    return rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + offset


@pytest.mark.parametrize("whiten", [False, True])
@pytest.mark.parametrize("n_components", [None, 1, 3, 0.5, 0.99])
@pytest.mark.parametrize("X", [IRIS, correlated(), datasets.load_wine().data], ids=len)
def test_answers_are_those_of_scikit_learn(X, n_components, whiten):
    mine = PCA(n_components, whiten=whiten).fit(X)
    theirs = decomposition.PCA(n_components, whiten=whiten, svd_solver="covariance_eigh").fit(X)
    assert mine.n_components_ == theirs.n_components_
    assert mine.n_samples_ == theirs.n_samples_
    scale = theirs.explained_variance_[0]
    for name in ("mean_", "explained_variance_", "explained_variance_ratio_", "noise_variance_"):
        np.testing.assert_allclose(
            getattr(mine, name), getattr(theirs, name), rtol=1e-11, atol=1e-13 * scale, err_msg=name
        )
    np.testing.assert_allclose(mine.singular_values_, theirs.singular_values_, rtol=1e-9)
    np.testing.assert_allclose(mine.components_, theirs.components_, atol=1e-10)
    coordinates, wanted = mine.transform(X), theirs.transform(X)
    np.testing.assert_allclose(coordinates, wanted, atol=1e-8)
    back = theirs.inverse_transform(wanted)
    np.testing.assert_allclose(mine.inverse_transform(coordinates), back, atol=1e-8)
    projector, wanted = (each.components_.T @ each.components_ for each in (mine, theirs))
    np.testing.assert_allclose(projector, wanted, atol=1e-12)
    assert mine.get_feature_names_out().tolist() == theirs.get_feature_names_out().tolist()


@pytest.mark.parametrize("offset", [0, 1e3, 1e7])
def test_offsets_cost_no_digits(offset):
    X = correlated(offset=offset)
    axes, variances, coordinates, residual = naive.principal_components(X, 2)
    pca = PCA(2).fit(X)
    np.testing.assert_allclose(pca.explained_variance_, variances, rtol=1e-12)
    np.testing.assert_allclose(pca.components_, axes, atol=1e-11)
    np.testing.assert_allclose(pca.transform(X), coordinates, atol=1e-10)
    np.testing.assert_allclose(pca.residual(X), residual, rtol=1e-9, atol=1e-11)


def test_labels_make_no_difference():
    X, y, expected = correlated(60, offset=1e6), np.arange(60) % 3, PCA().fit(correlated(60) + 1e6)
    moments = accumulate(X, y)
    for pca in (PCA.from_moments(moments), PCA.from_moments(moments.reduce("tied"))):
        assert pca.n_samples_ == 60
        np.testing.assert_allclose(pca.explained_variance_, expected.explained_variance_, rtol=1e-9)
        np.testing.assert_allclose(pca.residual(X), expected.residual(X), atol=1e-9)
    np.testing.assert_allclose(moments.pca(6), expected.components_, atol=1e-6)


def test_coordinates_are_stored_and_read_back(tmp_path):
    X = correlated()
    pca = PCA(2).fit(X)
    coordinates = pca.transform(held(X, "zarr"), out=tmp_path / "coordinates")
    np.testing.assert_allclose(coordinates[:], pca.transform(X), atol=1e-9)
    back = pca.inverse_transform(coordinates, out=np.empty(X.shape))
    again = pca.inverse_transform(pca.transform(X).tolist())
    np.testing.assert_allclose(back, again, atol=1e-9)


def test_the_number_of_components_counts_at_once():
    pca = PCA(0.9, whiten=True).fit(IRIS).set_params(n_components=1)
    wanted = PCA(1, whiten=True).fit(IRIS).transform(IRIS)
    np.testing.assert_array_equal(pca.transform(IRIS), wanted)


BEHIND = PCA(2, feature_map=RandomFeatures(5)).fit(IRIS)
DIAGONAL = accumulate(IRIS, LABELS, covariance_type="diag")


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: PCA(0).fit(IRIS), "n_components=0; expected an integer from 1 to .*=4"),
        (lambda: PCA(5).fit(IRIS), "at most 4"),
        (lambda: PCA(1.0).fit(IRIS), "a share between 0 and 1"),
        (lambda: PCA("mle").fit(IRIS), "a share between 0 and 1"),
        (lambda: PCA(whiten="yes").fit(IRIS), "True or False"),
        (lambda: PCA().fit(IRIS[:1]), "n_samples=1"),
        (lambda: PCA().fit(IRIS, sample_weight=np.full(150, 1e-3)), "larger weights"),
        (lambda: PCA.from_moments(DIAGONAL), "covariances between features"),
        (lambda: PCA.from_moments(ClassMoments()), "no row"),
        (lambda: BEHIND.inverse_transform(BEHIND.transform(IRIS)), "no inverse"),
        (lambda: PCA(2).fit(IRIS).inverse_transform(np.ones((1, 3))), "3 coordinates, but there"),
    ],
)
def test_failures(call, match):
    errors = InvalidParameterError, InvalidDataError, MergeError, UnsupportedError
    with pytest.raises(errors, match=match):
        call()


def test_features_that_are_nothing_beside_others():
    small = PCA().fit(IRIS * [1e-160, 1, 1, 1])
    np.testing.assert_allclose(small.components_[:3, 1:], PCA().fit(IRIS[:, 1:]).components_)
