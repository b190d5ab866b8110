"""scikit-learn's own checks of estimators and its own test modules, run on those of streamgda."""

import ast
import importlib.util
from pathlib import Path

import numpy as np
import pytest
import sklearn
from packaging.version import Version
from samples import DIVIDES_BY_N
from sklearn.utils.estimator_checks import parametrize_with_checks

import streamgda
from streamgda import (
    PCA,
    BernoulliNB,
    GaussianDiscriminantAnalysis,
    GaussianDiscriminantCV,
    GaussianNB,
    LinearDiscriminantAnalysis,
    MixtureDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
    RandomFeatures,
    Ridge,
    RidgeClassifier,
)
from streamgda.errors import InvalidParameterError, SingularCovarianceError

# --- checks -----------------------------------------------------------------------------------

# Their rows are constant within each class, or fewer than features; smoothing allows for both.
_SHAPES = {"check_sample_weights_shape", "check_sample_weights_not_overwritten"}
_SINGULAR = _SHAPES | {
    "check_sample_weight_equivalence_on_dense_data",
    "check_sample_weight_equivalence_on_sparse_data",
}
_SINGULAR_FULL = set(_SINGULAR)
if Version(sklearn.__version__) < Version("1.8"):  # Older versions have fewer rows.
    _SINGULAR_FULL |= {"check_n_features_in_after_fitting", "check_dtype_object"}

# Checks that call partial_fit, which cannot read the rows twice.
_PARTIAL_FIT = {
    "check_estimators_partial_fit_n_features",
    "check_fit_score_takes_y",
    "check_n_features_in_after_fitting",
}
NO_SECOND_READING = dict.fromkeys(_PARTIAL_FIT, InvalidParameterError)

# Ledoit and Wolf's estimate of scikit-learn takes no weights.
_WEIGHTED = {f"check_sample_weights_{kind}" for kind in ("pandas_series", "not_an_array", "list")}
NO_WEIGHTS = {
    **dict.fromkeys(_WEIGHTED | _SHAPES, ValueError),
    "check_classifiers_one_label_sample_weights": AssertionError,
}

# Weights change what k-means draws, as in scikit-learn, which expects that of KMeans.
_EQUIVALENCE = {f"check_sample_weight_equivalence_on_{kind}_data" for kind in ("dense", "sparse")}
RANDOM_CENTRES = dict.fromkeys(_EQUIVALENCE, AssertionError)

# Estimators, and the errors that checks of these names meet. Of all components of PCA, those along
# which nothing varies are arbitrary, with weights and without; so its checks are of a few.
CHECKED = [
    (GaussianDiscriminantAnalysis("tied_diag"), dict.fromkeys(_SHAPES, SingularCovarianceError)),
    (QuadraticDiscriminantAnalysis(), dict.fromkeys(_SINGULAR_FULL, SingularCovarianceError)),
    (LinearDiscriminantAnalysis(), {}),
    (GaussianNB(), {}),
    (BernoulliNB(), {}),
    (BernoulliNB(feature_map=RandomFeatures(20)), {}),
    (GaussianDiscriminantAnalysis("spherical", var_smoothing=1e-3), {}),
    (LinearDiscriminantAnalysis("eigen", shrinkage=0.1), {}),
    (  # Ledoit and Wolf find no noise, and shrink nothing
        QuadraticDiscriminantAnalysis(solver="eigen", shrinkage="auto"),
        dict.fromkeys(_SINGULAR, SingularCovarianceError) | NO_SECOND_READING | NO_WEIGHTS,
    ),
    (
        GaussianDiscriminantAnalysis(
            "tied", var_smoothing=1e-3, feature_map=RandomFeatures(8, "fourier")
        ),
        {},
    ),
    (Ridge(0.0), {}),
    (Ridge(alphas=[0.1, 1.0], cv=2), {}),
    (RidgeClassifier(alphas=[0.1, 1.0], cv=2), {}),
    (RidgeClassifier(class_weight="balanced"), {}),
    (Ridge(feature_map=RandomFeatures(20)), {}),
    (PCA(2), {}),
    (PCA(1, whiten=True, feature_map=RandomFeatures(5)), {}),
    (MixtureDiscriminantAnalysis(2, reg_param=0.1), RANDOM_CENTRES),
    (MixtureDiscriminantAnalysis(3, "tied_diag", n_iter=1, var_smoothing=1e-3), RANDOM_CENTRES),
    (GaussianDiscriminantCV({"var_smoothing": [1e-3, 0.1]}), NO_SECOND_READING),
    (GaussianDiscriminantCV({"var_smoothing": [0.1]}, scoring="joint_log_likelihood"), {}),
]
ERRORS = {repr(estimator): errors for estimator, errors in CHECKED}


@pytest.mark.filterwarnings("ignore::streamgda.errors.CollinearityWarning")
@parametrize_with_checks([estimator for estimator, _ in CHECKED])
def test_scikit_learn_checks(estimator, check):
    error = ERRORS[repr(estimator)].get(check.func.__name__)
    if error is None:
        check(estimator)
        return
    with pytest.raises(error):
        check(estimator)


# --- test modules -----------------------------------------------------------------------------

# A module is read as text, as the wheel ships it, and where it imports a class that streamgda has,
# it gets that one. Everything else, the tables of parameters too, stays as it is.
_CONSTANT = (
    "features that are constant over all rows are left out of the density, with a warning; and "
    "reg_param makes any covariance regular, so that the class needs no more rows than features"
)
_LATER = "partial_fit takes any labels if it is not passed classes"

# The reason for each test that must fail, by its name with its parameters.
LEFT_OUT = {
    "test_lda_dtype_match[float32-float32]": "all answers are float64",
    "test_qda_covariance_estimator": "expects the words of QDA for an error that LDA has in others",
    "test_qda_regularization[svd]": _CONSTANT,
    "test_qda_regularization[eigen]": _CONSTANT,
    "test_gnb_partial_fit[float32]": "all answers are float64",
    "test_gnb": _LATER,
    "test_NB_partial_fit_no_first_classes[BernoulliNB]": _LATER,
    "test_NB_partial_fit_no_first_classes[GaussianNB]": _LATER,
    "test_gnb_check_update_with_no_data": "calls _update_mean_variance, a private helper",
    "test_check_alpha": "calls _check_alpha, a private method",
    "test_discretenb_provide_prior[BernoulliNB]": "expects that a fit that fails sets classes_",
}


def replaced(tree):
    """The module, with imports from streamgda of what it has."""
    body = []
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sklearn."):
            ours = [alias for alias in node.names if alias.name in streamgda.__all__]
            theirs = [alias for alias in node.names if alias not in ours]
            pairs = ((node.module, theirs), ("streamgda", ours))
            nodes = [ast.ImportFrom(module, names, 0) for module, names in pairs if names]
            body += [ast.copy_location(each, node) for each in nodes]
        else:
            body.append(node)
    return ast.fix_missing_locations(ast.Module(body, tree.type_ignores))


def listed(mark):
    """The mark, whose parameters are a list, as pytest wants them, and no generator."""
    if mark.name != "parametrize":
        return mark
    names, values, *others = mark.args
    return pytest.mark.parametrize(names, list(values), *others, **mark.kwargs).mark


def functions_of(name):
    """The tests of a module by their names."""
    folder = Path(importlib.util.find_spec("sklearn").submodule_search_locations[0]) / "tests"
    if not folder.is_dir():
        return {}
    path = folder / f"{name}.py"
    namespace = {"__name__": f"streamgda_{name}", "__file__": str(path)}
    exec(compile(replaced(ast.parse(path.read_text())), str(path), "exec"), namespace)
    tests = {key: value for key, value in namespace.items() if key.startswith("test_")}
    for test in tests.values():
        # scikit-learn runs its tests with warnings that do not raise.
        warns = pytest.mark.filterwarnings("default").mark
        test.pytestmark = [*(listed(mark) for mark in getattr(test, "pytestmark", [])), warns]
    return tests


THEIRS = {}
if DIVIDES_BY_N:  # Tests of earlier versions expect other divisors.
    THEIRS = functions_of("test_discriminant_analysis") | functions_of("test_naive_bayes")
globals().update(THEIRS)


@pytest.fixture(autouse=True)
def expect_failure(request):
    if request.node.name in LEFT_OUT:
        reason = LEFT_OUT[request.node.name]
        request.applymarker(pytest.mark.xfail(reason=reason, strict=True))


@pytest.fixture
def global_random_seed():
    """A fixture of scikit-learn's conftest.py, as the next one."""
    return 42


@pytest.fixture(params=[np.float32, np.float64], ids=["float32", "float64"])
def global_dtype(request):
    return request.param


@pytest.mark.skipif(not THEIRS, reason="scikit-learn has no tests, or is older than 1.9")
def test_left_out_tests_exist(request):
    names = {item.name for item in request.node.parent.collect()}
    assert LEFT_OUT.keys() <= names
    assert len(names) > len(LEFT_OUT)
