"""Bad input: the message says what came, what was expected and what to do; nothing changes."""

import itertools
import re

import numpy as np
import pandas as pd
import pytest
import zarr
from samples import KINDS, blobs, held, refuses

from streamgda import (
    GaussianDiscriminantAnalysis,
    GaussianNB,
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
    accumulate,
)
from streamgda.errors import (
    InvalidDataError,
    InvalidParameterError,
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
def small_slabs(slabs_of):
    slabs_of(1)


def changed(values, place, value):
    values = values.astype(float)
    values[place] = value
    return values


ROWS, CLASSES = blobs()
WEIGHTS = np.ones(300)
WIDTH = "X has 3 features, but LinearDiscriminantAnalysis is expecting 4 features"
WEIGHT = r"sample_weight\[257\] is {}; weights are finite and >= 0"
NOT_FINITE = "contains {}: row 250, column 3 is {}.*must be finite; leave .* out or fill"
REFUSED = {  # what is given in place of good rows, labels and weights; what the error says
    "NaN": ({"X": changed(ROWS, (250, 3), np.nan)}, NOT_FINITE.format("NaN", "nan")),
    "infinity": ({"X": changed(ROWS, (250, 3), np.inf)}, NOT_FINITE.format("infinity", "inf")),
    "-infinity": ({"X": changed(ROWS, (250, 3), -np.inf)}, NOT_FINITE.format("infinity", "-inf")),
    "complex": ({"X": ROWS + 0j}, "Complex data not supported"),
    "another width": ({"X": ROWS[:, :3]}, WIDTH),
    "no rows": ({"X": ROWS[:0], "y": CLASSES[:0]}, r"0 rows|0 sample\(s\)"),
    "one dimension": ({"X": CLASSES * 1.0}, "2D array"),
    "fewer labels": ({"y": CLASSES[:-1]}, r"(300.*299|299.*300)"),
    "columns of labels": ({"y": np.column_stack([CLASSES, CLASSES])}, "expected one .*row"),
    "numbers": ({"y": np.linspace(0, 1, 300)}, "Unknown label type: continuous"),
    "a missing label": ({"y": np.where(np.arange(300) == 5, np.nan, 1.0)}, "NaN"),
    "fewer weights": ({"sample_weight": WEIGHTS[1:]}, r"300.*299|\(299,\), expected .*\(300,\)"),
    "a negative weight": ({"sample_weight": changed(WEIGHTS, 257, -1)}, WEIGHT.format(-1.0)),
    "a missing weight": ({"sample_weight": changed(WEIGHTS, 257, np.nan)}, WEIGHT.format("nan")),
    "no weight": (
        {"sample_weight": 0 * WEIGHTS},
        "every sample_weight is zero, or every row",
    ),
}
FINE = {  # or an error of scikit-learn
    *(("frame", name) for name in ("one dimension", "columns of labels", "a missing label")),
    ("numpy", "columns of labels"),
    ("fit", "another width"),
    ("partial_fit", "no weight"),
}
SCORED = ["NaN", "infinity", "complex", "another width", "no rows", "one dimension"]


def cases(methods, names, fine):
    every = itertools.product(KINDS, methods, names)
    return [case for case in every if not {(case[0], case[2]), case[1:]} & fine]


@pytest.mark.parametrize(("kind", "method", "name"), cases(["fit", "partial_fit"], REFUSED, FINE))
def test_what_cannot_be_learnt(small_slabs, fitted, kind, method, name):
    given, match = REFUSED[name]
    learnt = {"X": ROWS, "y": CLASSES} | given
    arguments = {argument: held(values, kind) for argument, values in learnt.items()}
    refuses(ValueError, match, fitted, method, **arguments)


@pytest.mark.parametrize(  # a lazy result of no rows is no rows
    ("kind", "method", "name"), cases(PREDICT, SCORED, {*FINE, ("dask", "no rows")})
)
def test_what_cannot_be_scored(small_slabs, fitted, kind, method, name):
    given, match = REFUSED[name]
    refuses(ValueError, match, fitted, method, held(given["X"], kind))


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


@LEARN
def test_objects_and_strings(fitted, method):
    _, y = blobs(4)
    for rows in (np.array([["a", 1, 2, 3]] * 4, object), np.array([["a"] * 4] * 4)):
        refuses(ValueError, r"convert string to float|Convert your data", fitted, method, rows, y)
        refuses(ValueError, r"convert string to float|Convert your data", fitted, "predict", rows)
        with pytest.raises(InvalidDataError, match=r"not numbers|real numbers are expected"):
            accumulate(rows, y)


# --- shapes -----------------------------------------------------------------------------------


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


@EVERY_KIND
def test_labels_of_two_kinds(fitted, kind):
    X, y = blobs()
    match = "labels of dtype .* do not mix with classes of dtype int64.* give all labels in one"
    refuses(
        InvalidDataError, match, fitted, "partial_fit", held(X, kind), held(y.astype(str), kind)
    )
    with pytest.raises(InvalidDataError, match="labels of several kinds: y"):
        accumulate(X[:2], [1, "a"])


@pytest.mark.parametrize("method", ["fit", "predict", "partial_fit"])
def test_integers_that_no_float_holds(fitted, method):
    X, y = blobs()
    labels = () if method == "predict" else (y,)
    whole = X.round().astype(int).astype(object)
    getattr(fitted, method)(whole, *labels)
    whole[7, 1] = 10**400
    for rows in (whole, whole.tolist(), pd.DataFrame(whole)):
        refuses(InvalidDataError, "int too large", fitted, method, rows, *labels)


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


# --- classes ----------------------------------------------------------------------------------


def test_one_class():
    X, y = blobs()
    one = np.zeros_like(y)
    match = r"greater than one; got 1 class \(0\) with rows. Give rows of at least one other"
    for make in (QuadraticDiscriminantAnalysis, GaussianDiscriminantAnalysis):
        refuses(InvalidDataError, match, make(), "fit", X, one)


def test_a_class_with_one_row():
    X, y = blobs()
    y[0] = 9
    match = r"class 9 \(rank 0 of 4, 1 row\).*reg_param.* or give more rows"
    refuses(SingularCovarianceError, match, GaussianDiscriminantAnalysis("full"), "fit", X, y)


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


@pytest.mark.parametrize("value", ["lots", "", "1.5.5GB", "-1MB", "12 parrots", 0, -5, 1.5, True])
def test_malformed_memory_budgets(value):
    with pytest.raises(
        InvalidParameterError,
        match=rf"max_memory={re.escape(repr(value))}; expected .* such as '512MB'",
    ):
        accumulate(*blobs(), max_memory=value)


# --- scores -----------------------------------------------------------------------------------


def test_labels_and_weights_of_scores(fitted):
    X, y = blobs()
    accuracy = fitted.score(X, y)
    names = np.array(["a", "b", "c"])[y]
    for labels in (names, names.tolist(), y > 1, y * 1.0):
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


def group_of(**arrays):
    group = zarr.create_group({})
    for name, array in arrays.items():
        group.create_array(name, data=array)
    return group


@pytest.mark.parametrize(("made", "kind"), [(group_of, "Group"), (dict, "dict")])
def test_groups_in_place_of_arrays(fitted, made, kind):
    """HDF5's groups are mappings, too."""
    X, y = blobs()
    group = made(rows=X, more=X)
    match = f"X is a {kind} of arrays; expected an array. Pass one of its entries: more, rows"
    refuses(SourceError, match, fitted, "fit", group, y)
    refuses(SourceError, match, fitted, "partial_fit", group, y)
    refuses(SourceError, match, fitted, "predict", group)
    refuses(SourceError, f"y is a {kind} of arrays", fitted, "fit", X, group)
    refuses(SourceError, f"y is a {kind} of arrays", fitted, "fit", group["rows"], group)
    with pytest.raises(SourceError, match=match):
        accumulate(group, y)
    with pytest.raises(InvalidDataError, match=f"y is missing: X is a {kind} of more, rows; pass"):
        accumulate(group)


def test_every_error_is_of_a_built_in_kind_too():
    kinds = {kind for error in StreamGDAError.__subclasses__() for kind in error.__mro__}
    assert {ValueError, MemoryError, FileNotFoundError, np.linalg.LinAlgError} <= kinds


@pytest.mark.parametrize("learn", [LinearDiscriminantAnalysis().fit, accumulate])
@pytest.mark.parametrize(("X", "y"), [("rows.csv", CLASSES), (ROWS, "rows.csv")])
def test_a_path_in_place_of_rows_or_labels_is_to_be_opened(learn, X, y):
    name = "X" if isinstance(X, str) else "y"
    with pytest.raises(
        InvalidDataError,
        match=rf"{name} is the path 'rows.csv'; open .* first: X, y = open_store\(path\)",
    ):
        learn(X, y)


def test_an_array_in_a_store_without_dimensions_is_refused():
    scalar, rows = zarr.array(3.0), zarr.array(np.zeros((4, 2)))
    with pytest.raises(InvalidDataError, match=r"X has shape \(\); expected a 2D array"):
        accumulate(scalar, np.zeros(4))
    with pytest.raises(InvalidDataError, match=r"labels have shape \(\)"):
        accumulate(rows, scalar)
