"""Bad input: the message says what came, what was expected and what to do; nothing changes."""

import re

import naive
import numpy as np
import pandas as pd
import pytest
import zarr
from samples import KINDS, blobs, held, refuses
from scipy import sparse

from streamgda import (
    ClassMoments,
    FisherDiscriminant,
    GaussianDiscriminantAnalysis,
    GaussianNB,
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
    ThresholdClassifier,
    accumulate,
)
from streamgda.engine import plan
from streamgda.errors import (
    InvalidDataError,
    InvalidParameterError,
    MemoryBudgetError,
    SingularCovarianceError,
    SourceError,
    StreamGDAError,
)

EVERY_KIND = pytest.mark.parametrize("kind", KINDS)
LEARN = pytest.mark.parametrize("method", ["fit", "partial_fit"])
PREDICT = ["predict", "predict_proba", "score_samples", "mahalanobis", "transform"]


@pytest.fixture
def fitted():
    return LinearDiscriminantAnalysis().fit(*blobs())


@pytest.fixture
def small_slabs(monkeypatch):
    monkeypatch.setattr(plan, "_SLAB_BYTES", 1)


# --- values -----------------------------------------------------------------------------------


@EVERY_KIND
@LEARN
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_in_learning(small_slabs, fitted, kind, method, value):
    X, y = blobs()
    X[250, 3] = value
    name = "NaN" if np.isnan(value) else "infinity"
    match = f"contains {name}: row 250, column 3 is {value}.*must be finite; leave .* out or fill"
    refuses(InvalidDataError, match, fitted, method, held(X, kind), held(y, kind))


@EVERY_KIND
@pytest.mark.parametrize("method", PREDICT)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_in_scoring(small_slabs, fitted, kind, method, value):
    X, _ = blobs()
    X[250, 3] = value
    refuses(InvalidDataError, r"row 250, column 3 is", fitted, method, held(X, kind))


@EVERY_KIND
def test_rows_are_numbered_with_those_of_weight_zero(small_slabs, fitted, kind):
    X, y = blobs()
    weights = (np.arange(300) % 3 > 0) * 1.0
    X[250, 3] = np.nan
    rows = held(X, kind), held(y, kind), held(weights, kind)
    refuses(InvalidDataError, "row 250, column 3", fitted, "fit", *rows)
    X[250, 3], X[249, 3] = 0, np.nan  # which does not count, as its weight is zero
    fitted.fit(held(X, kind), held(y, kind), held(weights, kind))


def test_values_too_large_to_square(fitted):
    X, y = blobs()
    X[3] = 1e200
    refuses(InvalidDataError, "overflow float64.*scale the data down", fitted, "fit", X, y)


def test_masked_values_of_a_frame(fitted):
    X, y = blobs()
    frame = pd.DataFrame(X).astype("Float64")
    frame.iloc[7, 2] = pd.NA
    refuses(InvalidDataError, "NaN: row 7, column 2", fitted, "partial_fit", frame, y)


@EVERY_KIND
@LEARN
def test_complex_numbers_in_learning(fitted, kind, method):
    X, y = blobs()
    refuses(ValueError, "Complex data not supported", fitted, method, held(X + 0j, kind), y)


@EVERY_KIND
def test_complex_numbers_in_scoring(fitted, kind):
    X, _ = blobs()
    refuses(ValueError, "Complex data not supported", fitted, "predict", held(X + 0j, kind))


@LEARN
def test_objects_and_strings(fitted, method):
    _, y = blobs(4)
    for rows in (np.array([["a", 1, 2, 3]] * 4, object), np.array([["a"] * 4] * 4)):
        refuses(ValueError, r"convert string to float|Convert your data", fitted, method, rows, y)
        refuses(ValueError, r"convert string to float|Convert your data", fitted, "predict", rows)
        with pytest.raises(InvalidDataError, match=r"not numbers|real numbers are expected"):
            accumulate(rows, y)


@LEARN
def test_sparse_matrices(fitted, method):
    X, y = blobs()
    rows = sparse.csr_matrix(X)
    refuses(TypeError, r"sparse csr matrix; .* X.toarray\(\)", fitted, method, rows, y)
    refuses(TypeError, r"sparse csr matrix; .* X.toarray\(\)", fitted, "predict", rows)
    with pytest.raises(InvalidDataError, match=r"sparse csr matrix; .* X.toarray\(\)"):
        ClassMoments().update(rows, y)


# --- shapes -----------------------------------------------------------------------------------


@EVERY_KIND
@pytest.mark.parametrize("method", ["partial_fit", *PREDICT])
def test_another_number_of_features(fitted, kind, method):
    X, y = blobs()
    labels = [held(y, kind)] if method == "partial_fit" else []
    match = "X has 3 features, but LinearDiscriminantAnalysis is expecting 4 features"
    refuses(ValueError, match, fitted, method, held(X[:, :3], kind), *labels)


@EVERY_KIND
@LEARN
def test_labels_of_another_length(small_slabs, fitted, kind, method):
    X, y = blobs()
    match = r"(300.*299|299.*300).*"
    refuses(ValueError, match, fitted, method, held(X, kind), held(y[:-1], kind))
    with pytest.raises(InvalidDataError, match=r"X has 300 rows but .* 299 .*give one"):
        accumulate(held(X, kind), held(y[:-1], kind))


@EVERY_KIND
@LEARN
def test_weights_of_another_length(fitted, kind, method):
    X, y = blobs()
    match = r"300.*299|\(299,\), expected .*\(300,\)"
    rows = held(X, kind), held(y, kind)
    weights = held(np.ones(299), kind)
    refuses(InvalidDataError, match, fitted, method, *rows, sample_weight=weights)


@EVERY_KIND
@LEARN
def test_no_rows(fitted, kind, method):
    X, y = np.empty((0, 4)), np.empty(0, int)
    refuses(ValueError, r"0 rows|0 sample\(s\)", fitted, method, held(X, kind), held(y, kind))
    if kind != "dask":  # a lazy result of no rows is no rows
        refuses(ValueError, r"0 rows|0 sample\(s\)", fitted, "predict", held(X, kind))


def test_no_rows_in_blocks_of_unknown_size(fitted):
    X, y = (held(array, "dask") for array in blobs())
    none = X[:, 0] > np.inf
    refuses(InvalidDataError, "X has 0 rows.*at least one", fitted, "fit", X[none], y[none])


@pytest.mark.parametrize("kind", ["numpy", "zarr", "dask"])
@LEARN
def test_one_dimension(fitted, kind, method):
    y = np.arange(10) % 2
    refuses(ValueError, r"2D array", fitted, method, held(y * 1.0, kind), y)
    refuses(ValueError, r"2D array", fitted, "predict", held(y * 1.0, kind))


@pytest.mark.parametrize("kind", ["zarr", "dask"])
@LEARN
def test_labels_in_two_dimensions(fitted, kind, method):
    X, y = blobs()
    labels = held(np.column_stack([y, y]), kind)
    refuses(InvalidDataError, "expected one .*row", fitted, method, held(X, kind), labels)


@EVERY_KIND
@LEARN
def test_missing_labels(fitted, kind, method):
    X, _ = blobs()
    refuses(ValueError, r"y is missing|y is None", fitted, method, held(X, kind), None)


def test_rows_without_labels_or_batches():
    X, y = blobs()
    with pytest.raises(InvalidDataError, match=r"y is missing.*accumulate\(X, y\), or an iterable"):
        accumulate(X)
    with pytest.raises(InvalidDataError, match=r"X is a int; .* an iterable of \(X, y\) batches"):
        accumulate(3)
    with pytest.raises(InvalidDataError, match=r"batch 1 is a list; expected a tuple \(X, y\)"):
        accumulate([(X, y), [X, y, y, y]])
    with pytest.raises(InvalidDataError, match=r"batch 1: X has 300 rows but y has 299"):
        accumulate([(X, y), (X, y[:-1])])
    with pytest.raises(InvalidDataError, match=r"batch 2: .*3 features, but .* 4 features"):
        accumulate([(X, y), (X, y), (X[:, :3], y)])
    assert accumulate([(X[:0], y[:0]), (X, y)]).class_count.sum() == len(X)
    with pytest.raises(InvalidDataError, match=r"batches hold their own weights"):
        accumulate([(X, y)], sample_weight=np.ones(300))


# --- labels, weights, priors ------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["numpy", "zarr", "dask"])
@LEARN
@pytest.mark.parametrize(
    ("labels", "match"),
    [
        (np.linspace(0, 1, 300), "Unknown label type: continuous"),
        (np.where(np.arange(300) == 5, np.nan, 1.0), "NaN"),
    ],
)
def test_labels_that_are_not_classes(fitted, kind, method, labels, match):
    X, _ = blobs()
    refuses(ValueError, match, fitted, method, held(X, kind), held(labels, kind))


@EVERY_KIND
def test_labels_of_two_kinds(fitted, kind):
    X, y = blobs()
    match = "labels of dtype .* do not mix with classes of dtype int64.* give all labels in one"
    refuses(
        InvalidDataError, match, fitted, "partial_fit", held(X, kind), held(y.astype(str), kind)
    )
    with pytest.raises(InvalidDataError, match="y holds objects of type int, str"):
        accumulate(X[:2], [1, "a"])


@EVERY_KIND
@pytest.mark.parametrize("value", [-1.0, np.nan, np.inf])
def test_weights_out_of_range(small_slabs, fitted, kind, value):
    X, y = blobs()
    weights = np.where(np.arange(300) == 257, value, 1.0)
    match = rf"sample_weight\[257\] is {value}; weights are finite and >= 0"
    rows = held(X, kind), held(y, kind)
    refuses(InvalidDataError, match, fitted, "fit", *rows, held(weights, kind))
    refuses(
        InvalidDataError, match, fitted, "partial_fit", *rows, sample_weight=held(weights, kind)
    )


@pytest.mark.parametrize("method", ["fit", "predict", "partial_fit"])
def test_integers_that_no_float_holds(fitted, method):
    X, y = blobs()
    labels = () if method == "predict" else (y,)
    whole = X.round().astype(int).astype(object)
    getattr(fitted, method)(whole, *labels)
    whole[7, 1] = 10**400
    for rows in (whole, whole.tolist(), pd.DataFrame(whole)):
        refuses(InvalidDataError, "int too large", fitted, method, rows, *labels)


@EVERY_KIND
def test_weights_that_are_all_zero(fitted, kind):
    X, y = blobs()
    match = "every sample_weight is zero, or every row is unlabelled or invalid: no row is left"
    refuses(InvalidDataError, match, fitted, "fit", *(held(a, kind) for a in (X, y, 0.0 * y)))


@pytest.mark.parametrize(
    ("priors", "match"),
    [
        (
            [0.5, 0.5],
            r"priors has shape \(2,\); expected one for each of the 3 classes \[0, 1, 2\]",
        ),
        ([[0.2, 0.3, 0.5]], r"priors has shape \(1, 3\)"),
        (0.5, r"priors has shape \(\)"),
        ([0.5, 0.6, -0.1], r"must be non-negative; got \[0.5, 0.6, -0.1\]"),
        ([0.5, np.nan, 0.5], r"must be non-negative; got \[0.5, nan, 0.5\]"),
        ([0.5, 0.5, 0.5], r"sum of the priors should be 1; got 1.5. Divide them by their sum"),
        ("uniform", r"priors='uniform'; expected one number for each class"),
    ],
)
def test_priors(fitted, priors, match):
    X, y = blobs()
    for make in (GaussianDiscriminantAnalysis, GaussianNB):
        refuses(InvalidParameterError, match, make(priors=priors), "fit", X, y)
    if "sum" not in match:  # LDA divides by it, and QDA takes any, as in scikit-learn
        qda = QuadraticDiscriminantAnalysis(priors=priors)
        refuses(InvalidParameterError, match, qda, "fit", X, y)
        refuses(InvalidParameterError, match, fitted.set_params(priors=priors), "fit", X, y)


def test_a_prior_for_a_class_without_rows():
    X, y = blobs()
    nb = GaussianNB(priors=[0.2, 0.2, 0.2, 0.4]).partial_fit(X, y, classes=[0, 1, 2, 9])
    refuses(InvalidParameterError, "class 9 has a prior of 0.4 but no rows", nb, "predict", X)


# --- classes ----------------------------------------------------------------------------------


def test_one_class():
    X, y = blobs()
    one = np.zeros_like(y)
    match = r"greater than one; got 1 class \(0\) with rows. Give rows of at least one other"
    for make in (QuadraticDiscriminantAnalysis, GaussianDiscriminantAnalysis):
        refuses(InvalidDataError, match, make(), "fit", X, one)
    refuses(InvalidDataError, match, ThresholdClassifier(), "fit", X, one)
    refuses(InvalidDataError, match, FisherDiscriminant, "from_moments", accumulate(X, one))


def test_a_class_with_one_row():
    X, y = blobs()
    y[0] = 9
    match = r"class 9 \(rank 0 of 4, 1 row\).*reg_param.* or give more rows"
    refuses(SingularCovarianceError, match, GaussianDiscriminantAnalysis("full"), "fit", X, y)
    begun = QuadraticDiscriminantAnalysis().partial_fit(X, y)
    refuses(SingularCovarianceError, match, begun, "predict", X)


# --- parameters -------------------------------------------------------------------------------

PARAMETERS = {
    "covariance_type": ["Full", "", None, 3],
    "shrinkage": [-0.1, 1.5, "none", np.nan, True],
    "pooling": [-0.1, 1.5, "some", None, np.nan],
    "reg_param": [-0.1, 1.5, None],
    "var_smoothing": [-1e-9, np.inf, "1e-9", None],
    "ddof": [-1, "1", None],
    "tol": [-1e-4, np.nan, None],
    "n_components": [0, 3, 1.5, "two"],
}


@pytest.mark.parametrize(
    "make",
    [
        GaussianDiscriminantAnalysis,
        QuadraticDiscriminantAnalysis,
        LinearDiscriminantAnalysis,
        GaussianNB,
    ],
)
def test_parameters_are_checked_when_fitting(make):
    X, y = blobs()
    known = make().get_params()
    for name in PARAMETERS.keys() & known.keys():
        for value in PARAMETERS[name]:
            estimator = make(**{name: value})  # which construction does not check
            match = rf"{name}={re.escape(repr(value))}.*(expected|use one of|cannot be larger)"
            refuses(InvalidParameterError, match, estimator, "fit", X, y)
            if name != "n_components":  # of which there can be more when there are more classes
                refuses(InvalidParameterError, match, estimator, "partial_fit", X, y)


@pytest.mark.parametrize("covariance_type", naive.COVARIANCE_TYPES)
def test_unknown_covariance_types_name_the_known_ones(covariance_type):
    with pytest.raises(InvalidParameterError, match=rf"'wide' is not known; .*{covariance_type}"):
        accumulate(*blobs(), covariance_type="wide")


@pytest.mark.parametrize("value", ["lots", "", "1.5.5GB", "-1MB", "12 parrots", 0, -5, 1.5, True])
def test_malformed_memory_budgets(value):
    with pytest.raises(
        InvalidParameterError,
        match=rf"max_memory={re.escape(repr(value))}; expected .* such as '512MB'",
    ):
        accumulate(*blobs(), max_memory=value)


def test_memory_budgets_that_are_too_small():
    X, y = (held(array, "zarr") for array in blobs())
    with pytest.raises(MemoryBudgetError, match=r"needs .* MB .* allows 1.0 MB.*larger max_memory"):
        accumulate(X, y, max_memory="1MB")


# --- scores -----------------------------------------------------------------------------------


def test_labels_and_weights_of_scores(fitted):
    X, y = blobs()
    accuracy = fitted.score(X, y)
    names = np.array(["a", "b", "c"])[y]
    for labels in (names, names.astype("S"), names.astype("S").tolist(), y > 1, y * 1.0):
        nb = GaussianNB().fit(X, labels)
        assert nb.score(X, labels) == np.mean(nb.predict(X) == np.asarray(labels))
    for dtype in (bool, "u1", "i1", "f4"):
        weights = np.full(300, 100).astype(dtype)
        for kind in KINDS:
            given = held(X, kind), held(y, kind), held(weights, kind)
            assert fitted.score(*given) == pytest.approx(accuracy, rel=1e-12)
    match = "do not mix with classes of dtype int64"
    refuses(InvalidDataError, match, fitted, "score", X, names)
    refuses(ValueError, "inconsistent numbers of samples", fitted, "score", X, y[:-1])
    refuses(InvalidDataError, "every sample_weight is zero", fitted, "score", X, y, 0 * y)
    weights = np.where(np.arange(300) == 7, -1, 1)
    refuses(InvalidDataError, r"sample_weight\[7\] is -1", fitted, "score", X, y, weights)


# --- stores and files -------------------------------------------------------------------------


def test_groups_in_place_of_arrays(fitted):
    X, y = blobs()
    group = zarr.create_group({})
    group.create_array("rows", data=X)
    match = "X is a zarr group; expected an array. Pass one of its arrays: rows"
    refuses(SourceError, match, fitted, "fit", group, y)
    refuses(SourceError, match, fitted, "partial_fit", group, y)
    refuses(SourceError, match, fitted, "predict", group)
    refuses(SourceError, "y is a zarr group", fitted, "fit", X, group)
    refuses(SourceError, "y is a zarr group", fitted, "fit", group["rows"], group)
    with pytest.raises(SourceError, match=match):
        accumulate(group, y)


def test_every_error_is_of_a_built_in_kind_too():
    kinds = {kind for error in StreamGDAError.__subclasses__() for kind in error.__mro__}
    assert {ValueError, MemoryError, FileNotFoundError, np.linalg.LinAlgError} <= kinds
