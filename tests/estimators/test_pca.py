"""PCA from moments: scikit-learn's answers and checks, an oracle, every container, offsets."""

import pickle

import dask.array as da
import naive
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import held
from scipy import sparse
from sklearn import datasets, decomposition
from sklearn.utils.estimator_checks import parametrize_with_checks

from streamgda import PCA, ClassMoments, RandomFeatures, accumulate, load
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


# Of all components, those along which nothing varies are arbitrary, with weights and without.
@parametrize_with_checks([PCA(2), PCA(1, whiten=True, feature_map=RandomFeatures(5))])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


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


@given(st.lists(st.integers(1, 59), unique=True, max_size=6), st.integers(0, 2**31))
@settings(max_examples=25, deadline=None)
def test_rows_are_cut_and_labelled_in_any_way(cuts, seed):
    X = np.random.default_rng(seed).normal(size=(60, 4)) + 1e6
    y = np.random.default_rng(seed).integers(0, 3, 60)
    whole, cut, parts = PCA().fit(X), PCA(), np.split(np.arange(60), sorted(cuts))
    for part in parts:
        cut.partial_fit(X[part])
    moments = sum(accumulate(X[part], y[part]) for part in parts)
    more = PCA().fit(np.vstack([X, X[:9] + 1])).forget(X[:9] + 1)
    of_moments = PCA.from_moments(moments), PCA.from_moments(moments.reduce("tied"))
    for pca in (cut, more, *of_moments):
        assert pca.n_samples_ == 60
        np.testing.assert_allclose(pca.explained_variance_, whole.explained_variance_, rtol=1e-9)
        np.testing.assert_allclose(pca.residual(X), whole.residual(X), atol=1e-9)
    np.testing.assert_allclose(moments.pca(4), whole.components_, atol=1e-6)


def test_weights_are_repetitions():
    X, weights = correlated(40), np.arange(40) % 4
    weighted = PCA(2).fit(X, sample_weight=weights)
    repeated = PCA(2).fit(np.repeat(X, weights, axis=0))
    assert weighted.n_samples_ == repeated.n_samples_
    np.testing.assert_allclose(weighted.components_, repeated.components_, atol=1e-12)
    np.testing.assert_allclose(weighted.noise_variance_, repeated.noise_variance_)


CONTAINERS = {
    "zarr": lambda X: held(X, "zarr"),
    "dask": lambda X: da.from_array(X, chunks=(90, 3)),
    "dask of unknown size": lambda X: da.from_array(X, chunks=90)[da.ones(500, chunks=90) > 0],
    "frame": pd.DataFrame,
    "sparse": sparse.csr_array,
}


@pytest.mark.parametrize("kind", CONTAINERS)
def test_every_container(kind):
    X = (100 * correlated(500)).astype(np.int16)  # which are summed without rounding
    rows, expected = CONTAINERS[kind](X), PCA(2).fit(X)
    for pca in (PCA(2).fit(rows), PCA(2).partial_fit(rows)):
        np.testing.assert_array_equal(pca.components_, expected.components_)
    for name in ("transform", "residual"):
        found, wanted = getattr(expected, name)(rows), getattr(expected, name)(X)
        assert isinstance(found, da.Array) == isinstance(rows, da.Array)
        np.testing.assert_allclose(found, wanted, atol=1e-9)


def test_coordinates_are_stored_and_read_back(tmp_path):
    X = correlated(500)
    pca = PCA(2).fit(X)
    coordinates = pca.transform(held(X, "zarr"), out=tmp_path / "coordinates")
    np.testing.assert_allclose(coordinates[:], pca.transform(X), atol=1e-9)
    back = pca.inverse_transform(coordinates, out=np.empty((500, 6)))
    again = pca.inverse_transform(pca.transform(X).tolist())
    np.testing.assert_allclose(back, again, atol=1e-9)


def test_invalid_rows_and_names():
    X = correlated(100)
    X[3, 1], X[7] = np.nan, -9
    frame = pd.DataFrame(X, columns=list("abcdef"))
    pca = PCA(2).fit(frame, nodata=-9, on_invalid="skip")
    assert (pca.n_samples_, pca.moments_.n_skipped) == (98, 2)
    assert pca.feature_names_in_.tolist() == list("abcdef")
    filled = pca.residual(frame, nodata=-9, on_invalid="fill", fill=-1)
    assert (np.flatnonzero(filled == -1) == [3, 7]).all()
    with pytest.raises(InvalidDataError, match=r"X\[3, 1\]|row 3"):
        pca.transform(frame)
    with pytest.raises(InvalidDataError, match="feature names"):
        pca.transform(frame[list("fedcba")], nodata=-9, on_invalid="fill")


def test_saved_as_it_was_fitted(tmp_path):
    X = correlated()
    pca = PCA(0.9, whiten=True).fit(X).set_params(n_components=1)
    pca.save(tmp_path / "pca.zip")
    wanted = PCA(1, whiten=True).fit(X).partial_fit(X + 1).components_
    for loaded in (load(tmp_path / "pca.zip"), pickle.loads(pickle.dumps(pca))):
        assert loaded.get_params() == pca.get_params()
        np.testing.assert_array_equal(loaded.transform(X), pca.transform(X))
        np.testing.assert_array_equal(loaded.partial_fit(X + 1).components_, wanted)


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
