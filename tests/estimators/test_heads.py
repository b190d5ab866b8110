"""Every estimator, with and without a map, has the same answers from the same rows.

What only classifiers promise is in `test_conformance.py`.
"""

import pickle
from functools import partial

import dask.array as da
import naive
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import ESTIMATORS, METHODS, assert_equal_to_rounding, blobs, held
from scipy import sparse
from sklearn.base import clone
from sklearn.preprocessing import StandardScaler

from streamgda import (
    PCA,
    BernoulliNB,
    ClassMoments,
    GaussianDiscriminantAnalysis,
    GaussianNB,
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
    RandomFeatures,
    Ridge,
    RidgeClassifier,
    Standardize,
    load,
)
from streamgda.errors import InvalidDataError, InvalidParameterError, MergeError

X, Y = blobs(400)
N, D = X.shape
NAMES = [*"abcd"]
WEIGHTS = np.random.default_rng(0).integers(0, 4, N)
RELU = RandomFeatures(12, random_state=3)
SCALER = StandardScaler().fit(X)
REFERENCE = ClassMoments("diag").update(X, Y)
TARGETS = np.column_stack([X[:, 0] * X[:, 1], Y])

CLASS_WEIGHT = {0: 2.0, 1: 0.5, 2: 1.0}

# An estimator, its targets, and the methods whose answers are compared.
PLAIN = {
    "ridge": (Ridge(0.1), TARGETS[:, 0], ["predict"]),
    "targets": (Ridge([0.1, 2.0]), TARGETS, ["predict"]),
    "ridge classifier": (RidgeClassifier(0.1, class_weight=CLASS_WEIGHT), Y, ["decision_function"]),
    "components": (PCA(2), Y, ["residual", "transform"]),
}
SCORES = [method for method in METHODS if method != "p_values"]  # P-values know weights from rows.
PROBABILITIES = ["predict_proba", "score_samples"]
CLASSIFIERS = {
    "bernoulli": (BernoulliNB(binarize=0.5, alpha=0.1), Y, PROBABILITIES),
    "lda": (LinearDiscriminantAnalysis("lsqr", 0.1), Y, [*PROBABILITIES, "mahalanobis"]),
    "qda": (QuadraticDiscriminantAnalysis(reg_param=0.1), Y, [*PROBABILITIES, "mahalanobis"]),
    "gda": (GaussianDiscriminantAnalysis("tied", shrinkage=0.2), Y, PROBABILITIES),
    "nb": (GaussianNB(var_smoothing=1e-3), Y, PROBABILITIES),
}
HEADS = PLAIN | {
    f"{name} behind a map": (clone(estimator).set_params(feature_map=RELU), y, methods)
    for name, (estimator, y, methods) in (PLAIN | CLASSIFIERS).items()
}


HEADS |= {
    f"{name} standardised": (clone(estimator).set_params(feature_map=feature_map), y, methods)
    for name, feature_map in {
        "ridge": Standardize(),
        "targets": [RELU, Standardize()],
        "ridge classifier": Standardize(),
        "components": Standardize(),
        "lda": Standardize(),
        "gda": [RELU, Standardize()],
    }.items()
    for estimator, y, methods in [(PLAIN | CLASSIFIERS)[name]]
}
HEADS |= {
    name: (estimator, Y, [method for method in SCORES if hasattr(estimator, method)])
    for name, estimator in ESTIMATORS.items()
}


@pytest.fixture(params=HEADS)
def head(request):
    """A function that makes the estimator, its targets, and a function that compares answers."""
    estimator, y, methods = HEADS[request.param]

    def assert_alike(found, expected, rtol=1e-9, rows=X, its_rows=X):
        for method in methods:
            wanted = np.asarray(getattr(expected, method)(its_rows))
            answers = np.asarray(getattr(found, method)(rows))
            scale = rtol * np.abs(wanted).max()
            np.testing.assert_allclose(answers, wanted, rtol=0, atol=scale, err_msg=method)
        if request.param in ESTIMATORS:  # Parameters of these are compared, too.
            assert_equal_to_rounding(found, expected, its_rows, min(rtol, 1e-12))

    return partial(clone, estimator), y, assert_alike


# --- the same answers from the same rows ------------------------------------------------------


@given(cuts=st.sets(st.integers(1, N - 1), max_size=6), forgotten=st.integers(1, 200))
def test_rows_in_parts(head, cuts, forgotten):
    make, y, assert_alike = head
    weights = WEIGHTS / 3 + 0.1
    whole, parts = make().fit(X, y, sample_weight=weights), make()
    for part in np.split(np.arange(N), sorted(cuts)):
        parts.partial_fit(X[part], y[part], sample_weight=weights[part])
    assert_alike(parts, whole)
    old, left = slice(None, forgotten), slice(forgotten, None)
    parts.forget(X[old], y[old], sample_weight=weights[old])
    assert_alike(parts, make().fit(X[left], y[left], sample_weight=weights[left]))


def test_weights_are_repetitions_and_half_lives_are_weights(head):
    make, y, assert_alike = head
    weighted = make().fit(X, y, sample_weight=WEIGHTS)
    repeated = make().fit(X.repeat(WEIGHTS, axis=0), y.repeat(WEIGHTS, axis=0))
    assert_alike(weighted, repeated)
    if hasattr(weighted, "score"):
        score = repeated.score(X.repeat(WEIGHTS, axis=0), y.repeat(WEIGHTS, axis=0))
        assert weighted.score(X, y, WEIGHTS) == pytest.approx(score)
    fading = make().partial_fit(X[:150], y[:150], half_life=50)
    fading.partial_fit(X[150:], y[150:], half_life=50)
    by_age = 0.5 ** (np.arange(N)[::-1] / 50)
    assert_alike(fading, make().fit(X, y, sample_weight=by_age), 1e-7)


CONTAINERS = {
    "zarr": lambda rows: held(rows, "zarr"),
    "dask": lambda rows: da.from_array(rows, (90, 3)[: rows.ndim]),
    "dask of unknown size": lambda rows: da.from_array(rows, 90)[da.ones(N, chunks=90) > 0],
    "frame": partial(held, kind="frame"),
    "sparse": lambda rows: sparse.csr_array(rows) if rows.shape[1:] == (D,) else rows,
    "list": np.ndarray.tolist,
}


@pytest.mark.parametrize("kind", CONTAINERS)
def test_every_container(head, kind, in_this_thread, tmp_path):
    make, y, assert_alike = head
    expected, rows, targets = make().fit(X, y), CONTAINERS[kind](X), CONTAINERS[kind](y)
    for found in (make().fit(rows, targets), make().partial_fit(rows, targets)):
        assert_alike(found, expected)
    assert_alike(found, expected, rows=rows)
    answer = found.transform if isinstance(found, PCA) else found.predict
    assert hasattr(answer(rows), "dask") == hasattr(rows, "dask")
    if kind != "dask of unknown size":
        out = answer(rows, out=tmp_path / "out.zarr")
        np.testing.assert_array_equal(out[...], np.asarray(answer(rows)))
    if hasattr(expected, "score"):
        assert found.score(rows, targets) == pytest.approx(expected.score(X, y))


def test_copies_files_and_pickles_continue_alike(head, tmp_path):
    make, y, assert_alike = head
    frame = pd.DataFrame(X, columns=NAMES)
    fitted = make().partial_fit(frame[:250], y[:250])
    fitted.save(tmp_path / "e.npz")
    copies = [
        load(tmp_path / "e.npz"),
        type(fitted).from_bytes(fitted.to_bytes()),
        pickle.loads(pickle.dumps(fitted)),
        clone(fitted).partial_fit(frame[:250], y[:250]),
    ]
    whole = make().fit(frame, y)
    for copy in copies:
        assert copy.get_params() == fitted.get_params()
        assert copy.feature_names_in_.tolist() == NAMES
        assert_alike(copy, fitted, 0, frame, frame)
        assert_alike(copy.partial_fit(frame[250:], y[250:]), whole, 1e-9, frame, frame)


def test_invalid_rows_and_names(head):
    make, y, assert_alike = head
    holes, good = X.copy(), np.delete(np.arange(N), [7, 9])
    holes[7, 2], holes[9, 1] = np.nan, -999
    rules = {"nodata": -999, "on_invalid": "skip"}
    frame, whole = (pd.DataFrame(rows, columns=NAMES) for rows in (holes, X))
    fitted = make().fit(frame, y, **rules)
    assert (fitted.moments_.n_skipped, fitted.n_features_in_) == (2, D)
    assert_alike(fitted, make().fit(whole.iloc[good], y[good]), 1e-9, whole, whole)
    answer = fitted.residual if isinstance(fitted, PCA) else fitted.predict
    filled = np.asarray(answer(frame, nodata=-999, on_invalid="fill", fill=-9))
    assert np.flatnonzero((filled == -9).reshape(N, -1).all(axis=1)).tolist() == [7, 9]
    before = fitted.to_bytes()
    learning = (partial(method, y=y) for method in (fitted.partial_fit, fitted.forget))
    for call in (answer, *learning):
        with pytest.raises(InvalidDataError, match=r"X\[7, 2\]|row 7, column 2"):
            call(frame.replace(-999, 0))
        with pytest.raises(ValueError, match="same order"):
            call(whole[NAMES[::-1]])
        with pytest.raises(ValueError, match="now missing"):
            call(whole[NAMES[:2]])
        assert fitted.to_bytes() == before


def test_invalid_rows_are_numbered_in_any_slab(head, slabs_of):
    make, y, _ = head
    slabs_of(1)  # Each chunk of 64 rows is read alone.
    fitted, bad = make().fit(X, y), X.copy()
    bad[130, 2] = np.inf
    answer = fitted.residual if isinstance(fitted, PCA) else fitted.predict
    for call in (answer, partial(fitted.fit, y=held(y, "zarr")), partial(fitted.partial_fit, y=y)):
        with pytest.raises(InvalidDataError, match=r"X\[130, 2\]|row 130, column 2"):
            call(held(bad, "zarr"))


# --- maps -------------------------------------------------------------------------------------

MAPS = {
    "relu": (RELU, partial(naive.random_features, n=12, seed=3)),
    "fourier": (
        RandomFeatures(9, "fourier", gamma=0.2),
        partial(naive.random_features, n=9, kind="fourier", gamma=0.2),
    ),
    "standard of the same rows": (Standardize(), SCALER.transform),
    "standard": (Standardize(REFERENCE), lambda rows: (rows - X.mean(axis=0)) / X.std(axis=0)),
    "transformer": (SCALER, SCALER.transform),
    "list": (
        [Standardize(REFERENCE), RandomFeatures(7)],
        lambda rows: naive.random_features(SCALER.transform(rows), 7),
    ),
}


@pytest.mark.parametrize("name", PLAIN | CLASSIFIERS)
@pytest.mark.parametrize("given", MAPS)
def test_an_estimator_behind_a_map_is_one_of_mapped_rows(name, given):
    estimator, y, methods = (PLAIN | CLASSIFIERS)[name]
    feature_map, mapped = MAPS[given][0], MAPS[given][1](X)
    if feature_map == Standardize() and name == "bernoulli":
        pytest.skip("ones are counted behind the map")
    plain = clone(estimator).fit(mapped, y)
    lifting = clone(estimator).set_params(feature_map=feature_map).fit(X, y)
    assert lifting.n_features_in_ == D
    for method in methods:
        found, wanted = getattr(lifting, method)(X), getattr(plain, method)(mapped)
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3, err_msg=method)
    if hasattr(lifting, "score"):
        assert lifting.score(X, y) == pytest.approx(plain.score(mapped, y))


@pytest.mark.parametrize("name", PLAIN | CLASSIFIERS)
def test_moments_bring_their_map(name):
    estimator, y, methods = HEADS[f"{name} behind a map"]
    fitted = clone(estimator).fit(X, y)
    moments, params = fitted.moments_, fitted.get_params()
    del params["feature_map"]
    if isinstance(fitted, Ridge):
        params["target"] = [*range(12, moments.n_features)]
    found, other = type(fitted).from_moments(moments, **params), RandomFeatures(12, random_state=4)
    assert found.get_params() == fitted.get_params()
    assert found.n_features_in_ == D
    for method in methods:
        answers = getattr(found, method)(X).reshape(N, -1)
        wanted = getattr(fitted, method)(X).reshape(N, -1)
        np.testing.assert_allclose(answers, wanted, rtol=1e-9, atol=1e-9)
    with pytest.raises(InvalidParameterError, match=r"random_state=4.*random_state=3"):
        type(fitted).from_moments(moments, **params, feature_map=other)
    with pytest.raises(MergeError, match="do not combine"):
        moments + clone(fitted).set_params(feature_map=other).fit(X, y).moments_
    with pytest.raises(InvalidParameterError, match="call fit"):
        fitted.set_params(feature_map=None).partial_fit(X, y)
