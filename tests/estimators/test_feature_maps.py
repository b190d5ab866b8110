"""Maps of rows before the moments: an estimator with one is an estimator of lifted rows."""

import pickle
import zlib
from functools import partial

import dask.array as da
import naive
import numpy as np
import pandas as pd
import pytest
import zarr
from samples import blobs
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Binarizer, FunctionTransformer, StandardScaler

import streamgda
from streamgda import (
    BernoulliNB,
    ClassMoments,
    GaussianDiscriminantAnalysis,
    GaussianDiscriminantCV,
    GaussianNB,
    GroupedMoments,
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
    RandomFeatures,
    Ridge,
    RidgeClassifier,
    SlidingWindow,
    Standardize,
    accumulate,
    distance,
)
from streamgda.errors import (
    InvalidDataError,
    InvalidParameterError,
    MergeError,
    UnsupportedError,
)
from streamgda.moments.feature_maps import Lifting, _matrix, normal_numbers

X, Y = blobs(400)
N = X.shape[1]
RELU = RandomFeatures(12, random_state=3)
SCALER = StandardScaler().fit(X)
REFERENCE = ClassMoments("diag").update(X, Y)

MAPS = {
    "relu": (RELU, partial(naive.random_features, n=12, seed=3)),
    "fourier": (
        RandomFeatures(9, "fourier", gamma=0.2),
        partial(naive.random_features, n=9, kind="fourier", gamma=0.2),
    ),
    "standard": (Standardize(REFERENCE), lambda rows: (rows - X.mean(axis=0)) / X.std(axis=0)),
    "transformer": (SCALER, SCALER.transform),
    "list": (
        [Standardize(REFERENCE), RandomFeatures(7)],
        lambda rows: naive.random_features(SCALER.transform(rows), 7),
    ),
}


@pytest.fixture(params=MAPS)
def mapped(request):
    feature_map, naively = MAPS[request.param]
    return feature_map, naively(X)


ESTIMATORS = {
    "lda": LinearDiscriminantAnalysis("lsqr", 0.1),
    "qda": QuadraticDiscriminantAnalysis(reg_param=0.1),
    "gda": GaussianDiscriminantAnalysis("tied", shrinkage="auto"),
    "nb": GaussianNB(),
}
TARGETS = np.column_stack([X[:, 0] * X[:, 1], Y])
HEADS = {
    "ridge": (Ridge(alphas=[0.1, 10.0]), TARGETS[:, 0], "predict"),
    "several targets": (Ridge(alpha=[0.1, 2.0]), TARGETS, "predict"),
    "ridge classifier": (RidgeClassifier(alphas=[0.1, 10.0]), Y, "decision_function"),
    "bernoulli": (BernoulliNB(binarize=0.5, alpha=0.1), Y, "predict_log_proba"),
    "components": (streamgda.PCA(3), Y, "residual"),
    **{name: (estimator, Y, "predict_proba") for name, estimator in ESTIMATORS.items()},
}


# --- the generator and the maps --------------------------------------------------------------


def test_random_numbers_have_the_same_bits_everywhere():
    weights, phases = _matrix(RandomFeatures(40, "fourier", random_state=7), 25, np.dtype("f8"))
    assert zlib.crc32(weights.astype("<f8").tobytes()) == 76663044
    assert zlib.crc32(phases.astype("<f8").tobytes()) == 2546211549


def test_random_numbers_are_normal():
    from scipy.special import ndtri
    from scipy.stats import kstest

    n = 300_000  # more than are drawn at a time
    found = np.concatenate([numbers for _, numbers in normal_numbers(1, n)])
    assert found.size == n
    assert kstest(found, "norm").pvalue > 0.01
    expected = ndtri(naive.uniform(n, 1, 0))
    np.testing.assert_allclose(found, expected, rtol=3e-7)


@pytest.mark.parametrize(
    ("dtype", "lifted"), [("u1", "f4"), ("i1", "f4"), ("f4", "f4"), ("u2", "f8"), ("f8", "f8")]
)
def test_types_of_lifted_rows(dtype, lifted):
    rows = np.abs(X).astype(dtype)
    found = RELU.transform(rows)
    assert found.dtype == lifted
    np.testing.assert_allclose(found, naive.random_features(rows, 12, seed=3), rtol=1e-5, atol=1e-5)


# --- moments -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical"])
def test_moments_are_those_of_lifted_rows(mapped, kind):
    feature_map, rows = mapped
    moments = accumulate(X, Y, covariance_type=kind, feature_map=feature_map)
    wanted = ClassMoments(kind).update(rows, Y)
    np.testing.assert_allclose(moments.means, wanted.means, atol=1e-6)
    np.testing.assert_allclose(moments.covariance(), wanted.covariance(), atol=1e-5)
    loaded = ClassMoments.from_bytes(moments.to_bytes())
    assert (loaded + moments).class_count.sum() == 2 * len(X)
    assert str(Lifting.of(feature_map)) in repr(loaded)
    assert pickle.loads(pickle.dumps(moments)).feature_map is not None


def test_every_container_and_executor_lifts_the_same_rows(tmp_path, in_this_thread):
    wanted = accumulate(X, Y, feature_map=RELU)
    stored = zarr.create_array(tmp_path / "X", data=X, chunks=(64, N))
    labels = zarr.create_array(tmp_path / "y", data=Y, chunks=(64,))
    batches = ((X[rows : rows + 90], Y[rows : rows + 90]) for rows in range(0, len(X), 90))
    rows, codes = da.from_array(X, chunks=(70, 2)), da.from_array(Y, chunks=70)
    for found in (
        accumulate(stored, labels, feature_map=RELU),
        accumulate(batches, feature_map=RELU),
        accumulate(rows, codes, feature_map=RELU),
        accumulate(X, Y, groups=Y, feature_map=RELU).total(),
        sum(accumulate(X, Y, groups=np.arange(len(X)) % 3, feature_map=RELU).values()),
        SlidingWindow(2, feature_map=RELU).update(X[:9], Y[:9]).update(X[:200], Y[:200])
        .update(X[200:], Y[200:]).moments,
    ):  # fmt: skip
        assert found.feature_map == RELU
        np.testing.assert_allclose(found.covariance(), wanted.covariance(), atol=1e-10)


def test_a_checkpoint_is_of_one_map(tmp_path):
    options = {"checkpoint": tmp_path / "c.zip", "feature_map": RELU}
    wanted = accumulate(X, Y, **options)
    assert np.array_equal(accumulate(X, Y, **options).means, wanted.means)
    with pytest.raises(streamgda.errors.CheckpointError, match="feature_map"):
        accumulate(X, Y, **options | {"feature_map": RandomFeatures(12)})


def test_invalid_rows_are_those_before_the_map():
    holes = X.copy()
    holes[7, 2], holes[9, 1] = np.nan, -999
    for found in (
        lambda: accumulate(holes, Y, feature_map=RELU),
        lambda: GaussianNB(feature_map=RELU).fit(X, Y).predict(holes),
    ):
        with pytest.raises(InvalidDataError, match="row 7, column 2"):
            found()
    kept = np.delete(np.arange(len(X)), [7, 9])
    rules = {"nodata": -999, "on_invalid": "skip"}
    found = accumulate(holes, Y, feature_map=RELU, **rules)
    assert found.n_skipped == 2
    wanted = accumulate(X[kept], Y[kept], feature_map=RELU)
    np.testing.assert_allclose(found.means, wanted.means)
    nb = GaussianNB(feature_map=RELU).fit(holes, Y, **rules)
    filled = nb.predict(holes, nodata=-999, on_invalid="fill", fill=-1)
    assert np.flatnonzero(filled == -1).tolist() == [7, 9]


# --- classifiers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_classifier_scores_lifted_rows(mapped, name):
    feature_map, rows = mapped
    plain = clone(ESTIMATORS[name]).fit(rows, Y)
    lifting = clone(ESTIMATORS[name]).set_params(feature_map=feature_map).fit(X, Y)
    assert lifting.n_features_in_ == N
    assert lifting.moments_.n_features == rows.shape[1]
    for method in ("predict_proba", "score_samples", "mahalanobis"):
        found, wanted = getattr(lifting, method)(X), getattr(plain, method)(rows)
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3)
    assert lifting.score(X, Y) == plain.score(rows, Y)


@pytest.fixture(params=HEADS)
def head(request):
    """An estimator with a map, the same without, targets, and a method."""
    plain, targets, method = HEADS[request.param]
    return clone(plain).set_params(feature_map=RELU), clone(plain), targets, method


def test_every_head_is_one_of_lifted_rows(head, tmp_path, in_this_thread):
    lifting, plain, targets, method = head
    plain.fit(RELU.transform(X), targets)
    wanted = getattr(plain, method)(RELU.transform(X))
    scores = getattr(lifting.fit(X, targets), method)(X)
    np.testing.assert_allclose(scores, wanted, rtol=1e-6, atol=1e-9)
    assert lifting.n_features_in_ == N
    if hasattr(plain, "alpha_"):
        assert lifting.alpha_ == plain.alpha_
    if not isinstance(lifting, streamgda.PCA):
        assert lifting.score(X, targets) == pytest.approx(plain.score(RELU.transform(X), targets))

    stored = zarr.create_array(tmp_path / "X", data=X, chunks=(64, N))
    lazy, codes = da.from_array(X, chunks=(70, N)), da.from_array(np.asarray(targets), chunks=70)
    for rows, of_rows in ((stored, targets), (lazy, codes)):
        found = getattr(clone(lifting).fit(rows, of_rows), method)(rows)
        np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-6, atol=1e-9)


def test_what_a_head_learned_is_saved_resumed_and_forgotten(head):
    lifting, _, targets, method = head
    params = lifting.get_params()
    if params.get("alphas"):  # which, like "auto", needs all rows at once
        lifting.set_params(alphas=None)
    if params.get("shrinkage") == "auto":
        lifting.set_params(shrinkage="oas")
    lifting.set_params(feature_map=[Standardize(REFERENCE), RELU])

    def scores(estimator):
        return getattr(estimator, method)(X)

    lifting.partial_fit(X[:250], targets[:250])
    loaded = type(lifting).from_bytes(lifting.to_bytes())
    assert loaded.get_params() == lifting.get_params()
    assert np.array_equal(scores(loaded), scores(lifting))
    loaded.partial_fit(X[250:], targets[250:])
    whole = clone(lifting).fit(X, targets)
    np.testing.assert_allclose(scores(loaded), scores(whole), rtol=1e-6, atol=1e-9)
    loaded.forget(X[250:], targets[250:])
    np.testing.assert_allclose(scores(loaded), scores(lifting), rtol=1e-6, atol=1e-9)

    moments, params = lifting.moments_, lifting.get_params()
    del params["feature_map"]
    if isinstance(lifting, Ridge):
        params["target"] = [*range(12, moments.n_features)]
    found = type(lifting).from_moments(moments, **params)
    assert found.get_params() == lifting.get_params()
    assert found.n_features_in_ == N
    np.testing.assert_allclose(scores(found), scores(lifting), rtol=1e-9, atol=1e-9)
    other = RandomFeatures(12, random_state=4)
    with pytest.raises(InvalidParameterError, match=r"random_state=4.*random_state=3"):
        type(lifting).from_moments(moments, **params, feature_map=other)
    with pytest.raises(MergeError, match="do not combine"):
        moments + clone(lifting).set_params(feature_map=other).fit(X, targets).moments_
    with pytest.raises(InvalidParameterError, match="call fit"):
        lifting.set_params(feature_map=None).partial_fit(X, targets)


def test_rows_are_binarised_behind_the_map():
    nb = BernoulliNB(feature_map=RELU, binarize=0.5).partial_fit(X, Y)
    ones = [(RELU.transform(X[k == Y]) > 0.5).sum(axis=0) for k in nb.classes_]
    assert np.array_equal(nb.feature_count_, ones)
    with pytest.raises(InvalidParameterError, match=r"threshold=0\.1.*threshold=0\.5"):
        BernoulliNB.from_moments(nb.moments_, binarize=0.1)
    with pytest.raises(InvalidDataError, match="not of zeros and ones"):
        BernoulliNB(feature_map=RELU, binarize=None).fit(X, Y)
    scaler = [RELU, Binarizer(threshold=0.5).fit(RELU.transform(X))]
    given = BernoulliNB(feature_map=scaler, binarize=None).fit(X, Y)
    np.testing.assert_allclose(given.predict_proba(X), nb.predict_proba(X), rtol=1e-9)


# --- fitted transformers -------------------------------------------------------------------------


def test_of_a_transformer_a_fingerprint_is_saved():
    pipeline = make_pipeline(StandardScaler(), PCA(3)).fit(X)
    nb = GaussianNB(feature_map=pipeline).fit(X, Y)
    loaded = GaussianNB.from_bytes(nb.to_bytes())
    assert loaded.moments_ + nb.moments_  # the same fingerprint
    with pytest.raises(UnsupportedError, match=r"set_params\(feature_map=\.\.\.\)"):
        loaded.predict(X)
    other = make_pipeline(StandardScaler(), PCA(3)).fit(X[:100])
    with pytest.raises(InvalidParameterError, match="call fit with all rows"):
        loaded.set_params(feature_map=other).predict(X)
    loaded.set_params(feature_map=pickle.loads(pickle.dumps(pipeline)))
    assert np.array_equal(loaded.predict_proba(X), nb.predict_proba(X))
    assert loaded.partial_fit(X, Y).class_count_.sum() == 2 * len(X)


def test_a_transformer_that_is_fitted_again_changes_no_model():
    scaler = StandardScaler().fit(X)
    nb = GaussianNB(feature_map=scaler).fit(X, Y)
    before, fingerprint = nb.predict_proba(X), nb.moments_.copy().to_bytes()
    scaler.fit(100 * X + 7)
    assert np.array_equal(nb.predict_proba(X), before)
    assert nb.moments_.to_bytes() == fingerprint
    with pytest.raises(InvalidParameterError, match="call fit with all rows"):
        nb.partial_fit(X, Y)
    with pytest.raises(InvalidParameterError, match="call fit with all rows"):
        nb.set_params(feature_map=[scaler]).predict(X)


def test_columns_of_a_transformer_are_compared_by_name():
    frame = pd.DataFrame(X, columns=[*"abcdefgh"[:N]])
    nb = GaussianNB(feature_map=StandardScaler().fit(frame)).fit(frame, Y)
    assert nb.score(frame, Y) == GaussianNB(feature_map=SCALER).fit(X, Y).score(X, Y)
    turned = frame[frame.columns[::-1]]
    for method in ("fit", "partial_fit"):
        with pytest.raises(InvalidDataError, match="in the same order"):
            getattr(clone(nb).set_params(feature_map=nb.feature_map), method)(turned, Y)
    with pytest.raises(ValueError, match="same order"):
        nb.predict(turned)


def logarithms(rows):
    with np.errstate(all="ignore"):
        return np.log(rows)


def test_maps_that_make_nan_or_cannot_be_pickled():
    positive = np.abs(X) + 1
    for make in (GaussianNB, BernoulliNB, lambda **p: LinearDiscriminantAnalysis("lsqr", 0.1, **p)):
        nb = make(feature_map=FunctionTransformer(logarithms).fit(positive)).fit(positive, Y)
        for method, arguments in (("predict", ()), ("partial_fit", (Y,)), ("fit", (Y,))):
            with pytest.raises(InvalidDataError, match="NaN"):
                getattr(nb, method)(-positive, *arguments)
    unnamed = FunctionTransformer(lambda rows: rows + 1).fit(X)
    with pytest.raises(InvalidParameterError, match="cannot be pickled"):
        GaussianNB(feature_map=unnamed).fit(X, Y)


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: RandomFeatures(0), "n=0; expected a number of features, at least 1"),
        (lambda: RandomFeatures(-3), "n=-3"),
        (lambda: RandomFeatures(9, "tanh"), "kind='tanh'; expected 'relu' or 'fourier'"),
        (lambda: RandomFeatures(9, "fourier", gamma="scale"), "needs all rows"),
        (lambda: RandomFeatures(9, gamma=0.5), "kind='fourier' only"),
        (lambda: RandomFeatures(9, random_state=None), "random_state=None"),
        (lambda: Standardize(ClassMoments("spherical")), "a variance for each feature"),
        (
            lambda: Standardize(GroupedMoments().update([[1.0]], [0], [0])),
            "a variance for each feature",
        ),
        (lambda: GaussianNB(feature_map=PCA()).fit(X, Y), "not fitted"),
        (lambda: GaussianNB(feature_map="relu").fit(X, Y), "feature_map='relu'"),
        (lambda: GaussianNB(feature_map=[]).fit(X, Y), "expected None, RandomFeatures"),
        (
            lambda: accumulate(X, Y, on_invalid="pairwise", feature_map=RELU),
            "leave out feature_map",
        ),
        (
            lambda: GaussianDiscriminantCV({"feature_map": [RELU]}).fit(X, Y),
            "added behind no map",
        ),
        (
            lambda: GaussianNB.from_moments(REFERENCE, feature_map=RELU),
            "added behind no map",
        ),
    ],
)
def test_parameters_that_are_refused(make, text):
    with pytest.raises(InvalidParameterError, match=text):
        make()


def test_maps_and_widths_that_do_not_match_are_refused():
    moments = accumulate(X, Y, feature_map=RELU)
    seed = RandomFeatures(12, random_state=4)
    with pytest.raises(MergeError, match=r"random_state=3.* and .*random_state=4.* do not combine"):
        moments + accumulate(X, Y, feature_map=seed)
    with pytest.raises(MergeError, match="and no map do not combine"):
        moments + ClassMoments().update(RELU.transform(X), Y)
    with pytest.raises(MergeError, match="of 2 features"):
        moments + accumulate(X[:, :2], Y, feature_map=RELU)
    with pytest.raises(InvalidDataError, match=f"2 features, but these moments have {N}"):
        moments.update(X[:, :2], Y)
    nb = GaussianNB(feature_map=RELU).fit(X, Y)
    with pytest.raises(ValueError, match=f"X has 12 features, but GaussianNB is expecting {N}"):
        nb.predict(RELU.transform(X))
    with pytest.raises(InvalidParameterError, match="call fit"):
        nb.set_params(feature_map=seed).partial_fit(X, Y)
    nb.set_params(feature_map=RELU)
    with pytest.raises(InvalidDataError, match=f"a map of rows of {N} features"):
        Standardize(REFERENCE).transform(X[:, :2])
    for refused in (nb.sample, nb.to_sklearn):
        with pytest.raises(UnsupportedError, match=r"feature_map\.transform"):
            refused()
    nb.set_params(feature_map=RELU)
    with pytest.raises(InvalidParameterError, match="features as they are"):
        nb.predict(X, on_missing="marginal")
    with pytest.raises(MergeError, match="do not combine"):
        distance(moments, accumulate(X, Y, feature_map=seed))
    grouped = GroupedMoments(feature_map=RELU).update(X, Y, Y)
    with pytest.raises(MergeError, match="do not combine"):
        grouped + GroupedMoments(feature_map=seed).update(X, Y, Y)


def test_moments_of_chosen_lifted_features_have_no_map():
    moments = accumulate(X, Y, feature_map=RELU)
    assert moments.select_features([0, 5]).feature_map is None
    assert moments.project(moments.pca(3)).feature_map is None
    assert moments.select_classes([0, 1]).feature_map == RELU
    assert moments.reduce("diag").feature_map == RELU
