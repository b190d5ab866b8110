"""Maps of rows before the moments: random numbers, moments, fitted transformers, failures."""

import pickle
from functools import partial

import dask.array as da
import naive
import numpy as np
import pandas as pd
import pytest
from samples import blobs, held
from sklearn import decomposition, discriminant_analysis, linear_model
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, PredefinedSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Binarizer, FunctionTransformer, StandardScaler

from streamgda import (
    PCA,
    BernoulliNB,
    ClassMoments,
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

X, Y = blobs(400)
N = X.shape[1]
RELU = RandomFeatures(12, random_state=3)
SCALER = StandardScaler().fit(X)
REFERENCE = ClassMoments("diag").update(X, Y)

# --- the generator and the maps --------------------------------------------------------------


def test_random_numbers_do_not_change():
    found = RandomFeatures(3, "fourier", random_state=7).transform([[0.0, 0.0], [1.0, 2.0]])
    expected = [[0.60379172, -0.5553238, -0.811805], [0.61702861, -0.13513559, -0.43797797]]
    np.testing.assert_allclose(found, expected, atol=1e-8)


@pytest.mark.parametrize(
    ("dtype", "lifted"), [("u1", "f4"), ("i1", "f4"), ("f4", "f4"), ("u2", "f8"), ("f8", "f8")]
)
def test_types_of_lifted_rows(dtype, lifted):
    rows = np.abs(X).astype(dtype)
    found = RELU.transform(rows)
    assert found.dtype == lifted
    np.testing.assert_allclose(found, naive.random_features(rows, 12, seed=3), rtol=1e-5, atol=1e-5)


# --- moments -----------------------------------------------------------------------------------


def test_all_that_adds_rows_maps_them(in_this_thread):
    wanted = accumulate(X, Y, feature_map=RELU)
    batches = ((X[rows : rows + 90], Y[rows : rows + 90]) for rows in range(0, len(X), 90))
    window = SlidingWindow(2, feature_map=RELU)
    for rows in (slice(9), slice(200), slice(200, None)):
        window.update(X[rows], Y[rows])
    for found in (
        accumulate(held(X, "zarr"), held(Y, "zarr"), feature_map=RELU),
        accumulate(da.from_array(X, (70, 2)), held(Y, "dask", 70), feature_map=RELU),
        accumulate(batches, feature_map=RELU),
        accumulate(X, Y, groups=Y, feature_map=RELU).total(),
        sum(accumulate(X, Y, groups=np.arange(len(X)) % 3, feature_map=RELU).values()),
        window.moments,
    ):
        assert found.feature_map == RELU
        np.testing.assert_allclose(found.covariance(), wanted.covariance(), atol=1e-10)


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
    pipeline = make_pipeline(StandardScaler(), decomposition.PCA(3)).fit(X)
    nb = GaussianNB(feature_map=pipeline).fit(X, Y)
    loaded = GaussianNB.from_bytes(nb.to_bytes())
    assert loaded.moments_ + nb.moments_  # Both maps have one fingerprint.
    with pytest.raises(UnsupportedError, match=r"set_params\(feature_map=\.\.\.\)"):
        loaded.predict(X)
    other = make_pipeline(StandardScaler(), decomposition.PCA(3)).fit(X[:100])
    with pytest.raises(InvalidParameterError, match="call fit with all rows"):
        loaded.set_params(feature_map=other).predict(X)
    loaded.set_params(feature_map=pickle.loads(pickle.dumps(pipeline)))
    assert np.array_equal(loaded.predict_proba(X), nb.predict_proba(X))
    assert loaded.partial_fit(X, Y).class_count_.sum() == 2 * len(X)


def test_components_are_a_map():
    pca = PCA(2).fit(X)
    nb = GaussianNB(feature_map=pca).fit(X, Y)
    expected = GaussianNB().fit(pca.transform(X), Y).predict_proba(pca.transform(X))
    np.testing.assert_allclose(nb.predict_proba(X), expected, rtol=1e-9)
    loaded = GaussianNB.from_bytes(nb.to_bytes()).set_params(feature_map=pca)
    assert np.array_equal(loaded.predict_proba(X), nb.predict_proba(X))


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
    for make in (GaussianNB, BernoulliNB, partial(LinearDiscriminantAnalysis, "lsqr", 0.1)):
        nb = make(feature_map=FunctionTransformer(logarithms).fit(positive)).fit(positive, Y)
        for method, arguments in (("predict", ()), ("partial_fit", (Y,)), ("fit", (Y,))):
            with pytest.raises(InvalidDataError, match="NaN"):
                getattr(nb, method)(-positive, *arguments)
    unnamed = FunctionTransformer(lambda rows: rows + 1).fit(X)
    with pytest.raises(InvalidParameterError, match="cannot be pickled"):
        GaussianNB(feature_map=unnamed).fit(X, Y)


# --- standardised by the moments of the estimator ------------------------------------------------

ALPHAS = [1e-3, 0.1, 10.0]
FOLDS = np.random.default_rng(5).integers(0, 4, len(Y))
COMMON = [  # An estimator, its method, and its peer behind a StandardScaler.
    (Ridge(3.0), "predict", linear_model.Ridge(3.0, solver="svd")),
    (RidgeClassifier(3.0), "decision_function", linear_model.RidgeClassifier(3.0, solver="svd")),
    (PCA(2), "transform", decomposition.PCA(2, svd_solver="covariance_eigh")),
    (
        QuadraticDiscriminantAnalysis(reg_param=0.1),
        "predict_proba",
        discriminant_analysis.QuadraticDiscriminantAnalysis(reg_param=0.1),
    ),
    (
        Ridge(alphas=ALPHAS, cv=FOLDS),
        "predict",
        GridSearchCV(
            make_pipeline(StandardScaler(), linear_model.Ridge(solver="svd")),
            {"ridge__alpha": ALPHAS},
            cv=PredefinedSplit(FOLDS),
            scoring="neg_mean_squared_error",
        ),
    ),
    (
        GaussianDiscriminantCV({"reg_param": [0.1, 0.5]}, cv=FOLDS, scoring="neg_log_loss"),
        "predict_proba",
        GridSearchCV(
            make_pipeline(StandardScaler(), discriminant_analysis.QuadraticDiscriminantAnalysis()),
            {"quadraticdiscriminantanalysis__reg_param": [0.1, 0.5]},
            cv=PredefinedSplit(FOLDS),
            scoring="neg_log_loss",
        ),
    ),
]


@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize(("mine", "method", "theirs"), COMMON)
def test_standardised_rows_are_those_of_two_passes(mine, method, theirs, offset):
    rows = np.round(X * [1, 10, 1000, 0.1] * 2**20) / 2**20 + offset
    mine, theirs = clone(mine).set_params(feature_map=Standardize()), clone(theirs)
    searches = hasattr(theirs, "param_grid")
    theirs = theirs if searches else make_pipeline(StandardScaler(), theirs)
    wanted = getattr(theirs.fit(rows, Y), method)(rows)
    found = getattr(mine.fit(rows, Y), method)(rows)
    if method == "transform":  # Signs are arbitrary.
        found, wanted = np.abs(found), np.abs(wanted)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12 * np.abs(wanted).max())
    if searches:
        scores = mine.cv_results_["mean_test_score"], theirs.cv_results_["mean_test_score"]
        np.testing.assert_allclose(*scores, rtol=1e-12)


# --- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: RandomFeatures(0), "n=0; expected a number of features, at least 1"),
        (lambda: RandomFeatures(9, "tanh"), "kind='tanh'; expected 'relu' or 'fourier'"),
        (lambda: RandomFeatures(9, "fourier", gamma="scale"), "needs all rows"),
        (lambda: RandomFeatures(9, gamma=0.5), "kind='fourier' only"),
        (lambda: RandomFeatures(9, random_state=None), "random_state=None"),
        (lambda: Standardize(ClassMoments("spherical")), "a variance for each feature"),
        (lambda: Standardize(GroupedMoments().update([[1.0]], [0], [0])), "a variance for each"),
        (lambda: GaussianNB(feature_map=decomposition.PCA()).fit(X, Y), "not fitted"),
        (lambda: Standardize().transform(X), "last map of an estimator"),
        (lambda: accumulate(X, Y, feature_map=Standardize()), "last map of an estimator"),
        (lambda: GaussianNB(feature_map=[Standardize(), RELU]).fit(X, Y), "last map of an estim"),
        (lambda: BernoulliNB(feature_map=Standardize()).fit(X, Y), r"Standardize\(moments\)"),
        (lambda: GaussianNB(feature_map="relu").fit(X, Y), "feature_map='relu'"),
        (lambda: GaussianNB(feature_map=[]).fit(X, Y), "expected None, RandomFeatures"),
        (lambda: accumulate(X, Y, on_invalid="pairwise", feature_map=RELU), "without feature_map"),
        (lambda: GaussianDiscriminantCV({"feature_map": [RELU]}).fit(X, Y), "behind no map"),
        (lambda: GaussianNB.from_moments(REFERENCE, feature_map=RELU), "added behind no map"),
    ],
)
def test_parameters_that_raise(make, text):
    with pytest.raises(InvalidParameterError, match=text):
        make()


MOMENTS = accumulate(X, Y, feature_map=RELU)
OTHER = RandomFeatures(12, random_state=4)


def grouped(feature_map):
    return GroupedMoments(feature_map=feature_map).update(X, Y, Y)


SEED = r"random_state=3.* and .*random_state=4.* do not combine"


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda nb: MOMENTS + accumulate(X, Y, feature_map=OTHER), MergeError, SEED),
        (lambda nb: MOMENTS + ClassMoments().update(X, Y), MergeError, "and no map do not"),
        (
            lambda nb: MOMENTS + accumulate(X[:, :2], Y, feature_map=RELU),
            MergeError,
            "of 2 features",
        ),
        (lambda nb: distance(MOMENTS, accumulate(X, Y, feature_map=OTHER)), MergeError, SEED),
        (lambda nb: grouped(RELU) + grouped(OTHER), MergeError, "do not combine"),
        (lambda nb: MOMENTS.update(X[:, :2], Y), InvalidDataError, f"2 features, .* have {N}"),
        (lambda nb: Standardize(REFERENCE).transform(X[:, :2]), InvalidDataError, f"of {N} feat"),
        (lambda nb: nb.predict(RELU.transform(X)), ValueError, f"GaussianNB is expecting {N}"),
        (lambda nb: nb.set_params(feature_map=OTHER).predict(X), InvalidParameterError, "call fit"),
        (lambda nb: nb.sample(), UnsupportedError, r"feature_map\.transform"),
        (lambda nb: nb.to_sklearn(), UnsupportedError, r"feature_map\.transform"),
        (lambda nb: nb.predict(X, on_missing="marginal"), InvalidParameterError, "as they are"),
    ],
)
def test_maps_and_widths_that_do_not_match(call, error, match):
    with pytest.raises(error, match=match):
        call(GaussianNB(feature_map=RELU).fit(X, Y))


def test_moments_of_chosen_lifted_features_have_no_map():
    assert MOMENTS.select_features([0, 5]).feature_map is None
    assert MOMENTS.project(MOMENTS.pca(3)).feature_map is None
    assert MOMENTS.select_classes([0, 1]).feature_map == RELU
    assert MOMENTS.reduce("diag").feature_map == RELU
