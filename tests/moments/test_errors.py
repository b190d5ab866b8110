"""Bad input to moments raises errors and leaves them unchanged."""

import numpy as np
import pytest
from grids import pairs
from moment_checks import SIZES, TYPES, assert_moments, fails, sample
from samples import bits

from streamgda import ClassMoments
from streamgda.errors import InvalidDataError, InvalidParameterError, MergeError


@pytest.fixture(params=["centred", "exact", "weighted", "empty"])
def moments(request):
    X, y = sample(50, 3)
    return {
        "centred": lambda: ClassMoments().update(X, y),
        "exact": lambda: ClassMoments().update(X.astype(np.int8), y),
        "weighted": lambda: ClassMoments().update(X, y, np.full(50, 0.3)),
        "empty": ClassMoments,
    }[request.param]()


def update_fails(moments, message, X, y, weights=None):
    fails(InvalidDataError, message, lambda held: held.update(X, y, weights), moments)


def with_value(value, row=2, column=1, dtype="float64", shape=(4, 3)):
    X = np.ones(shape, dtype)
    X[row, column] = value
    return X


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", ">f8", "object"])
@pytest.mark.parametrize(
    ("value", "name"), [(np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")]
)
def test_values_that_are_not_finite(moments, value, name, dtype):
    message = f"Input X contains {name}: row 2, column 1 is {value}. Every value must be finite"
    X = with_value(value, dtype=dtype)
    for y in ([0, 1, 0, 7], [0, 1, 5, 0]):  # A new label, or the only row of a class.
        update_fails(moments, message, X, y)
        update_fails(moments, message, np.asfortranarray(X), y, np.ones(4))


@pairs("size, value, covariance_type", SIZES, [np.nan, np.inf, 1e200], TYPES)
def test_values_that_are_not_finite_late_in_an_array(size, value, covariance_type, use_threads):
    use_threads(2)
    X, y = sample(*SIZES[size])
    moments = ClassMoments(covariance_type).update(X[:100], y[:100])
    row = len(X) * 9 // 10
    bad = X.copy()
    bad[row, -1] = bad[-1, 0] = value
    message = "overflow" if value == 1e200 else f"row {row}, column {X.shape[1] - 1}"
    for some in (moments, moments - moments):  # Some classes have no rows.
        update_fails(some, message, bad, y)
        update_fails(some, message, bad, y, np.ones(len(X)))
    moments.update(X[100:], y[100:])
    assert_moments(moments, X, y)


def test_rows_are_numbered_as_they_came():
    """Rows of weight zero do not enter the sums, but count for the row numbers in messages."""
    X = with_value(np.nan, row=3)
    update_fails(ClassMoments(), "row 3, column 1", X, [0, 1, 0, 1], [0, 1, 0, 1])


def test_shapes_that_do_not_fit(moments):
    before = bits(moments)
    moments.update(np.empty((0, 3)), [])
    moments.update(np.empty((0, 3), np.int8), np.empty(0, int), np.empty(0))
    assert bits(moments) == before
    update_fails(moments, "X has 0 features", np.ones((4, 0)), [0, 1, 0, 1])
    for n in (0, 3, 5):
        message = rf"X has 4 rows but y has {n} labels .*; give one label a row"
        update_fails(moments, message, np.ones((4, 3)), np.zeros(n, int))
    if moments.n_features:
        for width in (1, 2, 4):
            message = f"X has {width} features, but these moments have 3 features"
            update_fails(moments, message, np.ones((4, width)), [0, 1, 0, 1])


ROWS, LABELS = np.ones((4, 3)), [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (ROWS.astype(complex), "Complex data not supported: X has dtype complex128; real"),
        (np.full((4, 3), "a"), r"X has dtype <U1; real numbers are expected"),
        (np.full((4, 3), "a", object), "X holds objects that are not numbers: could not convert"),
        (np.full((4, 3), 1j, object), "X holds objects that are not numbers"),
        (np.full((4, 3), 10**400, object), "X holds objects that are not numbers: int too large"),
        (np.full((4, 3), None, object), "Input X contains NaN: row 0, column 0|are not numbers"),
        (ROWS.astype("M8[D]"), r"X has dtype datetime64\[D\]; real numbers are expected"),
        (np.ones(4), r"X has shape \(4,\); expected a 2D array of rows x features"),
        (np.ones((4, 3, 1)), r"X has shape \(4, 3, 1\); expected a 2D array"),
        (5.0, "X has no rows: it is float"),
    ],
)
def test_rows_of_the_wrong_kind(moments, X, message):
    update_fails(moments, message, X, LABELS)
    update_fails(moments, message, X, np.array(LABELS))


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, -1, 1, 1], r"sample_weight\[1\] is -1.0; weights are finite and >= 0"),
        ([1, 1, np.nan, 1], r"sample_weight\[2\] is nan; weights are finite and >= 0"),
        ([1, 1, 1, np.inf], r"sample_weight\[3\] is inf; weights are finite and >= 0"),
        (-2, r"sample_weight\[0\] is -2"),
        ([1, 1, 1], r"sample_weight has shape \(3,\), expected one weight a row: \(4,\)"),
        (np.ones((4, 1)), r"sample_weight has shape \(4, 1\), expected"),
        ([], r"sample_weight has shape \(0,\), expected"),
        (["a"] * 4, r"sample_weight has dtype <U1; numbers are expected"),
        ([1j] * 4, r"sample_weight has dtype complex128; numbers are expected"),
        ([1e308] * 4, "sample_weight sums to infinity; scale the weights down"),
    ],
)
def test_wrong_weights(moments, weights, message):
    update_fails(moments, message, ROWS, LABELS, weights)


@pytest.mark.parametrize("dtype", ["float64", "int8"])
@pytest.mark.parametrize(
    ("y", "message"),
    [
        (["a", "b", "a", "b"], r"labels of dtype <U1 \(such as .*'a'.*\) do not mix with classes"),
        ([0.5, 1, 2, 3], r"continuous. y\[0\] is 0.5"),
        (np.array(["2020"] * 4, "M8[D]"), r"labels of dtype datetime64\[D\] .* do not mix with"),
    ],
)
def test_wrong_labels(y, message, dtype):
    update_fails(ClassMoments().update(ROWS, LABELS), message, ROWS.astype(dtype), y)


def add_in_place(a, b):
    a += b


OPERATIONS = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "+=": add_in_place}


@pytest.mark.parametrize("dtype", ["float64", "uint8"])
def test_subtracting_more_than_was_added(dtype):
    X, y = sample(dtype=dtype)
    part, whole = ClassMoments().update(X[:100], y[:100]), ClassMoments().update(X, y)
    n, m = part.class_count[0], whole.class_count[0]
    for a, b, message in (
        (part, whole, f"subtracting {m} rows of class 0 from moments that hold {n} of them"),
        (part, ClassMoments().update(X[:1], [9]), "subtracting 1 rows of class 9 .* hold 0 of"),
        (ClassMoments(), part, "that hold 0 of them"),
        (part, part.relabel({0: "a", 1: "b", 2: "c"}), "of class 'a' .* that hold 0 of them"),
    ):
        fails(MergeError, message, OPERATIONS["-"], a, b)


@pytest.mark.parametrize("sign", OPERATIONS)
@pytest.mark.parametrize("dtype", ["float64", "uint8"])
def test_merging_moments_that_do_not_fit(dtype, sign):
    X, y = sample(dtype=dtype)
    a, operation = ClassMoments().update(X, y), OPERATIONS[sign]
    narrow = ClassMoments().update(X[:, :2], y)
    for some in (a, a - a):
        fails(MergeError, "of 5 features and of 2 features do not combine", operation, some, narrow)
    for covariance_type in TYPES[1:]:
        message = f"covariance_type='full' and {covariance_type!r} do not combine; .* reduce"
        for other in (a.reduce(covariance_type), ClassMoments(covariance_type)):
            fails(MergeError, message, operation, a, other)
    names = ClassMoments().update(X, np.array(["a", "b", "c"])[y])
    if sign != "-":
        fails(InvalidDataError, "do not mix with classes of dtype int64", operation, a, names)
    for other in (5, "moments", None, X):
        with pytest.raises(TypeError):
            operation(a, other)


@pytest.mark.parametrize("gamma", [-1, -1e-300, np.nan, np.inf, -np.inf])
def test_wrong_decay(moments, gamma):
    message = rf"gamma={gamma!r}; expected a finite number >= 0".replace("(", r"\(")
    fails(InvalidParameterError, message.replace(")", r"\)"), lambda m: m * gamma, moments)
    fails(InvalidParameterError, "expected a finite number", lambda m: gamma * m, moments)
    for other in ("a", None, 1j):
        fails(TypeError, "unsupported operand|can't multiply", lambda m, g=other: m * g, moments)


FULL = ClassMoments().update(*sample())
NO_CLASSES = r"labels \[.*\] are not among the classes \[0, 1, 2\]"
NO_INDEX = "index does not fit 5 features|index has shape .*; expected|have no names"
BOOLEANS = "labels are booleans, but the classes are of dtype int64; for a mask, pass cl"
ONE_SCATTER = "have one scatter for all classes, from which no class can be left out"
THIN = r"needs covariances between features, which .* does not keep; use 'full'"
NO_PROJECTION = r"components has shape .*, expected \(n_components, 5\)"


def wrong(method, error, message, *arguments, of=("full",)):
    """Cases of one method, which has the same error for all these arguments."""
    return [(method, error, message, argument, name) for argument in arguments for name in of]


@pytest.mark.parametrize(
    ("method", "error", "message", "arguments", "of"),
    [
        *wrong("select_features", InvalidParameterError, NO_INDEX, [[5]], [[-6]], [[True, False]]),
        *wrong("select_features", InvalidParameterError, NO_INDEX, [[0.5]], ["a"], [[[0, 1]]]),
        *wrong("select_features", InvalidParameterError, NO_INDEX, [[]], [slice(0, 0)]),
        *wrong("select_classes", InvalidParameterError, NO_CLASSES, [[0, 7]], [["a"]], [[0.0, -1]]),
        *wrong("select_classes", InvalidParameterError, BOOLEANS, [[True, False, True]]),
        *wrong("drop_classes", InvalidParameterError, BOOLEANS, [[True, False, True]]),
        *wrong("select_classes", MergeError, ONE_SCATTER, [[0]], of=TYPES[1::2]),
        *wrong("relabel", InvalidParameterError, NO_CLASSES, [{7: 0}], [{"a": 0}], [{-1.0: 0}]),
        *wrong("relabel", InvalidDataError, "do not mix", [{0: "a"}]),
        *wrong("relabel", InvalidDataError, r"new labels\[0\] is missing", [{0: np.nan}]),
        *wrong("pca", InvalidParameterError, "expected 1 to 5", [0], [6], [-1]),
        *wrong("pca", MergeError, THIN, [2], of=TYPES[2:]),
        *wrong("project", MergeError, THIN, [np.eye(5)], of=TYPES[2:]),
        *wrong("project", InvalidParameterError, NO_PROJECTION, [np.ones((2, 4))], [np.ones(5)]),
        *wrong("project", InvalidParameterError, "all finite", [np.full((1, 5), np.nan)]),
        *wrong("project", InvalidParameterError, "all finite", [np.eye(5), np.full(5, np.inf)]),
        *wrong("project", InvalidParameterError, r"offset has shape", [np.eye(5), 3.0]),
        *wrong("project", InvalidParameterError, r"offset has shape", [np.eye(5), np.ones((1, 5))]),
    ],
)
def test_wrong_views(method, error, message, arguments, of):
    fails(error, message, lambda m: getattr(m, method)(*arguments), FULL.reduce(of))


@pytest.mark.parametrize(
    "function",
    [
        lambda m: m.covariance(),
        lambda m: m.centred(),
        lambda m: m.pca(1),
        lambda m: m.project([[1.0]]),
        lambda m: m.declare([1]),
        lambda m: m.select_features([0]),
    ],
)
def test_nothing_seen_yet(function):
    fails(InvalidDataError, r"hold no rows; call update\(X, y\) first", function, ClassMoments())
