"""Bad input: the message says what came, what was expected and what to do; nothing changes."""

import itertools

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import zarr
from samples import KINDS, blobs, fails, held

from streamgda import LinearDiscriminantAnalysis, accumulate
from streamgda.errors import InvalidDataError, SourceError

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
WRONG = {  # What replaces good arguments, and what the error says.
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
    "no labels": ({"y": None}, "y is missing|y is None"),
    "no weight": ({"sample_weight": 0 * WEIGHTS}, "every sample_weight is zero, or every row"),
}
FINE = {  # Some give an error of scikit-learn.
    *(("frame", name) for name in ("one dimension", "columns of labels", "a missing label")),
    ("numpy", "columns of labels"),
    ("fit", "another width"),
    ("partial_fit", "no weight"),
}
SCORED = ["NaN", "infinity", "complex", "another width", "no rows", "one dimension"]


def zarr_group(**arrays):
    group = zarr.create_group({})
    for name, array in arrays.items():
        group.create_array(name, data=array)
    return group


def cases(methods, names, fine):
    every = itertools.product(KINDS, methods, names)
    return [case for case in every if not {(case[0], case[2]), case[1:]} & fine]


@pytest.mark.parametrize(("kind", "method", "name"), cases(["fit", "partial_fit"], WRONG, FINE))
def test_what_cannot_be_learned(small_slabs, fitted, kind, method, name):
    given, match = WRONG[name]
    learned = {"X": ROWS, "y": CLASSES} | given
    arguments = {name: None if x is None else held(x, kind) for name, x in learned.items()}
    fails(ValueError, match, fitted, method, **arguments)


@pytest.mark.parametrize(  # Lazy results of no rows are empty.
    ("kind", "method", "name"), cases(PREDICT, SCORED, {*FINE, ("dask", "no rows")})
)
def test_what_cannot_be_scored(small_slabs, fitted, kind, method, name):
    given, match = WRONG[name]
    fails(ValueError, match, fitted, method, held(given["X"], kind))


@LEARN
def test_objects_and_strings(fitted, method):
    _, y = blobs(4)
    huge = ROWS.round().astype(int).astype(object)
    huge[7, 1] = 10**400
    for rows in (huge, huge.tolist(), pd.DataFrame(huge)):
        fails(InvalidDataError, "int too large", fitted, method, rows, CLASSES)
        fails(InvalidDataError, "int too large", fitted, "predict", rows)
    for rows in (np.array([["a", 1, 2, 3]] * 4, object), np.array([["a"] * 4] * 4)):
        fails(ValueError, r"convert string to float|Convert your data", fitted, method, rows, y)
        fails(ValueError, r"convert string to float|Convert your data", fitted, "predict", rows)
        with pytest.raises(InvalidDataError, match=r"not numbers|real numbers are expected"):
            accumulate(rows, y)


@pytest.mark.parametrize("made", [zarr_group, dict])
def test_groups_in_place_of_arrays(fitted, made):
    """HDF5's groups are mappings, too."""
    group = made(rows=ROWS, more=ROWS)
    match = r"is a \w+ of arrays; expected an array. Pass one of its entries: more, rows"
    for method in ("fit", "partial_fit"):
        fails(SourceError, f"X {match}", fitted, method, group, CLASSES)
        fails(SourceError, "y is a .* of arrays", fitted, method, ROWS, group)
    fails(SourceError, f"X {match}", fitted, "predict", group)
    with pytest.raises(InvalidDataError, match=r"y is missing: X is a \w+ of more, rows; pass"):
        accumulate(group)
    scalar = zarr.array(3.0)
    for X, y, match in (
        (scalar, CLASSES, "X has shape"),
        (zarr.array(ROWS), scalar, "have shape"),
        (da.from_array(ROWS), da.from_array(np.zeros(())), "have shape"),
    ):
        with pytest.raises(InvalidDataError, match=rf"{match} \(\)"):
            accumulate(X, y)


@pytest.mark.parametrize("learn", [LinearDiscriminantAnalysis().fit, accumulate])
@pytest.mark.parametrize("name", ["X", "y"])
@pytest.mark.parametrize(
    ("made", "match"),
    [
        (lambda _: "rows.csv", r"the path 'rows.csv'; open .* first: X, y = open_store\(path\)"),
        (lambda rows: (row for row in rows), r"an iterator \(generator\); expected an array"),
    ],
)
def test_paths_and_iterators_in_place_of_rows_or_labels(learn, name, made, match):
    arguments = {"X": ROWS, "y": CLASSES}
    with pytest.raises(InvalidDataError, match=f"{name} is {match}"):
        learn(**arguments | {name: made(arguments[name])})
