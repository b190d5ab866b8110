"""The scikit-learn interface: scikit-learn's checks and tools, failures, moments, samples."""

import pickle

import naive
import numpy as np
import pandas as pd
import pytest
import sklearn
from grids import pairs
from packaging.version import Version
from samples import (
    ESTIMATORS,
    EVERY_ESTIMATOR,
    METHODS,
    PARAMETERS,
    assert_equal_to_rounding,
    assert_same_bits,
    blobs,
    make,
    results,
    snapshot,
)
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import streamgda
from streamgda import (
    BernoulliNB,
    ClassMoments,
    GaussianDiscriminantAnalysis,
    GaussianNB,
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
    RandomFeatures,
)
from streamgda.errors import (
    InvalidParameterError,
    MergeError,
    SingularCovarianceError,
)

# --- scikit-learn's own checks ----------------------------------------------------------------

# Their rows are constant within each class, or fewer than features; smoothing allows for both.
_SHAPES = {"check_sample_weights_shape", "check_sample_weights_not_overwritten"}
_EQUIVALENCE = {
    "check_sample_weight_equivalence_on_dense_data",
    "check_sample_weight_equivalence_on_sparse_data",
}
_SINGULAR = {"full": _SHAPES | _EQUIVALENCE, "tied_diag": _SHAPES}
if Version(sklearn.__version__) < Version("1.8"):  # with fewer rows
    _SINGULAR["full"] |= {"check_n_features_in_after_fitting", "check_dtype_object"}

# Checks that call partial_fit, which cannot read the rows twice.
_PARTIAL_FIT = {
    "check_estimators_partial_fit_n_features",
    "check_fit_score_takes_y",
    "check_n_features_in_after_fitting",
}


def singular_checks(estimator):
    """Checks whose data have singular covariances, which are refused unless regularised."""
    params = estimator.get_params()
    if isinstance(estimator, LinearDiscriminantAnalysis) and estimator.solver == "svd":
        return set()  # it drops directions
    if params.get("shrinkage") == "auto":  # Ledoit and Wolf find no noise, and shrink nothing
        return _SHAPES | _EQUIVALENCE
    if isinstance(estimator, BernoulliNB) or any(
        params.get(name) for name in ("var_smoothing", "reg_param", "shrinkage")
    ):
        return set()
    return _SINGULAR.get(estimator._covariance_type(), set())


@pytest.mark.filterwarnings("ignore::streamgda.errors.CollinearityWarning")
@parametrize_with_checks(
    [
        GaussianDiscriminantAnalysis("tied_diag"),
        QuadraticDiscriminantAnalysis(),
        LinearDiscriminantAnalysis(),
        GaussianNB(),
        BernoulliNB(),
        BernoulliNB(feature_map=RandomFeatures(20)),
        GaussianDiscriminantAnalysis("spherical", var_smoothing=1e-3),
        LinearDiscriminantAnalysis("eigen", shrinkage=0.1),
        QuadraticDiscriminantAnalysis(solver="eigen", shrinkage="auto"),
        GaussianDiscriminantAnalysis(
            "tied", var_smoothing=1e-3, feature_map=RandomFeatures(8, "fourier")
        ),
    ]
)
def test_scikit_learn_checks(estimator, check):
    name = check.func.__name__
    if estimator.get_params().get("shrinkage") == "auto" and name in _PARTIAL_FIT:
        with pytest.raises(InvalidParameterError, match="partial_fit"):
            check(estimator)
        return
    if name not in singular_checks(estimator):
        check(estimator)
        return
    with pytest.raises(SingularCovarianceError):
        check(estimator)


# --- scikit-learn's tools ---------------------------------------------------------------------


@EVERY_ESTIMATOR
def test_pickle(name):
    X, y = blobs()
    fitted = make(name).fit(X, y)
    restored = pickle.loads(pickle.dumps(fitted))
    assert_same_bits(results(restored, X), results(fitted, X))
    more, labels = blobs(seed=1)
    restored.partial_fit(more, labels)
    assert_same_bits(results(restored, X), results(fitted.partial_fit(more, labels), X))


def test_grid_search_and_cross_validation_in_two_processes():
    X, y = blobs()
    search = GridSearchCV(
        GaussianDiscriminantAnalysis(),
        {"covariance_type": list(naive.COVARIANCE_TYPES), "shrinkage": [None, 0.5]},
        n_jobs=2,
        error_score="raise",
    ).fit(X, y)
    assert search.best_params_["covariance_type"] == "full"
    alone = cross_val_score(search.best_estimator_, X, y)
    assert alone.tolist() == cross_val_score(search.best_estimator_, X, y, n_jobs=2).tolist()
    assert search.best_score_ == pytest.approx(alone.mean())


@EVERY_ESTIMATOR
def test_feature_names(name, tmp_path):
    X, y = blobs(n_features=3)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    fitted = make(name).fit(frame, y)
    assert fitted.feature_names_in_.tolist() == ["a", "b", "c"]
    assert_same_bits(results(fitted, frame), results(make(name).fit(X, y), X))
    fitted.save(tmp_path / "estimator")
    for estimator in (fitted, streamgda.load(tmp_path / "estimator")):
        for use in (estimator.predict, lambda X, e=estimator: e.partial_fit(X, y)):
            with pytest.raises(ValueError, match="feature names should match"):
                use(frame[["b", "a", "c"]])
    assert not hasattr(fitted.fit(X, y), "feature_names_in_")


def test_transform_names_its_columns():
    X, y = blobs()
    lda = LinearDiscriminantAnalysis().fit(X, y)
    names = ["lineardiscriminantanalysis0", "lineardiscriminantanalysis1"]
    assert lda.get_feature_names_out().tolist() == names
    frame = lda.set_output(transform="pandas").transform(X)
    assert frame.columns.tolist() == names
    np.testing.assert_array_equal(frame, lda.set_output(transform="default").transform(X))
    assert LinearDiscriminantAnalysis(n_components=1).fit(X, y).transform(X).shape == (300, 1)


def test_transform_has_no_more_columns_than_the_means_span():
    noise = np.random.default_rng(0).normal(size=(50, 2))
    noise -= noise.mean(axis=0)
    X, y = np.vstack([noise, noise + 1, noise + 2]), np.repeat([0, 1, 2], 50)
    lda = LinearDiscriminantAnalysis().set_output(transform="pandas").fit(X, y)
    assert lda.transform(X).columns.tolist() == ["lineardiscriminantanalysis0"]
    assert lda.explained_variance_ratio_.tolist() == [1, pytest.approx(0, abs=1e-20)]
    lda.fit(np.vstack([noise, noise]), np.repeat([0, 1], 50))
    assert lda.transform(X).shape == (150, 0)
    assert lda.explained_variance_ratio_.tolist() == [0]


@EVERY_ESTIMATOR
def test_nothing_is_known_before_fit(name, tmp_path):
    X, y = blobs()
    estimator = make(name)
    for attribute in ("classes_", "class_count_", *PARAMETERS):
        assert not hasattr(estimator, attribute)
    for method in METHODS:
        if hasattr(estimator, method):
            with pytest.raises(NotFittedError):
                getattr(estimator, method)(X)
    for use in (lambda: estimator.score(X, y), estimator.sample):
        with pytest.raises(NotFittedError):
            use()
    with pytest.raises(NotFittedError):
        estimator.save(tmp_path / "estimator")


@EVERY_ESTIMATOR
def test_integer_weights_are_repetitions(name):
    X, y = blobs()
    weights = np.random.default_rng(0).integers(0, 4, len(X))
    estimator = make(name)
    if name == "GaussianNB":  # smoothing follows the rows without weights, as in scikit-learn
        estimator.set_params(var_smoothing=0)
    weighted = clone(estimator).fit(X, y, weights)
    # Weights that are not whole numbers leave no count from which to subtract `ddof`; these do.
    repeated = estimator.fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    assert_equal_to_rounding(weighted, repeated, X)
    assert weighted.score(X, y, weights) == pytest.approx(
        repeated.score(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    )


# --- failing ----------------------------------------------------------------------------------


FAILURES = {
    "a NaN": lambda X, y: (np.where(np.arange(X.size).reshape(X.shape) == 801, np.nan, X), y),
    "an infinity beside new labels": lambda X, y: (np.where(X.max() == X, np.inf, X), y + 1),
    "another length": lambda X, y: (X, y[:-1]),
    "a negative weight": lambda X, y: (X, y, np.where(y == 0, -1.0, 1.0)),
    "labels that are continuous": lambda X, y: (X, y + 0.5),
}
FAILURES_AFTER_OTHER_ROWS = {
    "another width": lambda X, y: (X[:, :2], y),
    "labels of another kind": lambda X, y: (X, y.astype(str)),
}


@pairs("name, what, method, fitted", ESTIMATORS, FAILURES, ["fit", "partial_fit"], [False, True])
def test_failures_leave_no_trace(name, what, method, fitted):
    X, y = blobs()
    estimator = make(name)
    if fitted:
        estimator.fit(X, y).predict(X)
    before = snapshot(estimator)
    rows, labels, *weights = FAILURES[what](X, y)
    with pytest.raises(ValueError, match=r"NaN|infinity|inconsistent|weight|continuous"):
        getattr(estimator, method)(rows, labels, sample_weight=weights[0] if weights else None)
    assert snapshot(estimator) == before


@EVERY_ESTIMATOR
@pytest.mark.parametrize("what", FAILURES_AFTER_OTHER_ROWS)
def test_rows_unlike_earlier_ones_leave_no_trace(name, what):
    X, y = blobs()
    estimator = make(name).fit(X, y)
    before = snapshot(estimator)
    with pytest.raises(ValueError, match=r"2 features|do not mix"):
        estimator.partial_fit(*FAILURES_AFTER_OTHER_ROWS[what](X, y))
    assert snapshot(estimator) == before


@pytest.mark.parametrize("fitted", [False, True])
def test_a_singular_fit_leaves_no_trace(fitted):
    X, y = blobs()
    for estimator in (QuadraticDiscriminantAnalysis(), LinearDiscriminantAnalysis("eigen")):
        if fitted:
            estimator.fit(X, y)
        before = snapshot(estimator)
        with pytest.raises(SingularCovarianceError):
            estimator.fit(np.column_stack([X, X[:, 0]]), y)
        assert snapshot(estimator) == before


def test_too_many_components_leave_no_trace():
    X, y = blobs()
    lda = LinearDiscriminantAnalysis().fit(X, y).set_params(n_components=3)
    before = snapshot(lda)
    with pytest.raises(InvalidParameterError, match=r"n_components=3; .*= 2"):
        lda.fit(X, y)
    assert snapshot(lda) == before


# --- from moments -----------------------------------------------------------------------------


@EVERY_ESTIMATOR
def test_from_moments(name):
    X, y = blobs()
    moments = ClassMoments("full").update(X > 0 if name == "BernoulliNB" else X, y)
    fitted = make(name).fit(X, y)
    made = type(fitted).from_moments(moments, **fitted.get_params())
    assert made.n_features_in_ == 4
    assert_equal_to_rounding(made, fitted, X)
    before = results(made, X)
    moments.update(*blobs(seed=1))  # a copy was taken
    assert_same_bits(results(made, X), before)


def test_from_moments_that_do_not_suffice():
    moments = ClassMoments("diag").update(*blobs())
    with pytest.raises(MergeError, match="'diag' do not hold what 'full' needs"):
        QuadraticDiscriminantAnalysis.from_moments(moments)


# --- samples ----------------------------------------------------------------------------------


@EVERY_ESTIMATOR
def test_samples(name):
    X, y = blobs()
    labels = np.array(["x", "y", "z"])[y]
    fitted = make(name).fit(X, labels)
    drawn, drawn_labels = fitted.sample(30_000, random_state=0)
    again, _ = fitted.sample(30_000, random_state=0)
    assert np.array_equal(drawn, again)
    assert drawn.shape == (30_000, 4)
    share = (drawn_labels[:, None] == fitted.classes_).mean(axis=0)
    np.testing.assert_allclose(share, [(labels == k).mean() for k in "xyz"], atol=0.02)
    # Fitted to its own samples, it is nearly the same model.
    agree = make(name).fit(drawn, drawn_labels).predict(X) == fitted.predict(X)
    assert agree.mean() > 0.97


def test_samples_of_given_classes():
    fitted = GaussianNB().fit(*blobs())
    assert fitted.sample(3, y=2)[1].tolist() == [2, 2, 2]
    assert fitted.sample(3, y=[2, 0, 1])[1].tolist() == [2, 0, 1]
    assert fitted.sample()[0].shape == (1, 4)
    with pytest.raises(InvalidParameterError, match="2 labels for 3 samples"):
        fitted.sample(3, y=[0, 1])
    with pytest.raises(InvalidParameterError, match="n_samples=0; expected at least 1"):
        fitted.sample(0)
