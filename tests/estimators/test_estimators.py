"""The scikit-learn interface: scikit-learn's checks and tools, failures, moments, samples."""

import naive
import numpy as np
import pytest
import sklearn
from packaging.version import Version
from samples import (
    blobs,
)
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from streamgda import (
    BernoulliNB,
    GaussianDiscriminantAnalysis,
    GaussianNB,
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
    RandomFeatures,
)
from streamgda.errors import (
    InvalidParameterError,
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


@pytest.mark.soak
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
