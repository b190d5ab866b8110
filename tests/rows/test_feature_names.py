"""Names of the features: from columns to moments, models, files and stores, and checked there."""

import io

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import zarr
from samples import blobs
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis as Theirs

from streamgda import (
    GaussianNB,
    LinearDiscriminantAnalysis,
    PairwiseMoments,
    SlidingWindow,
    accumulate,
)
from streamgda.errors import (
    CheckpointError,
    ConstantFeatureWarning,
    FormatError,
    InvalidDataError,
    InvalidParameterError,
    MergeError,
    SourceError,
)
from streamgda.moments import ClassMoments
from streamgda.storage import format as storage_format

ROWS, LABELS = blobs(60, 3)
FRAME = pd.DataFrame(ROWS, columns=["length", "width", "mass"])
TURNED = FRAME[["mass", "width", "length"]]
OTHERS = FRAME.rename(columns={"mass": "weight"})
NAMES = tuple(FRAME.columns)
EVERY_KIND = pytest.mark.parametrize("kind", [ClassMoments, PairwiseMoments])


def stored(frame, attribute=None):
    """Return rows as a zarr array, by default with the names of their columns."""
    names = list(map(str, frame.columns)) if attribute is None else attribute
    attributes = {"feature_names": names} if names else None
    return zarr.create_array(
        zarr.storage.MemoryStore(), data=frame.to_numpy(), chunks=(16, 3), attributes=attributes
    )


def lazily(frame):
    return dd.from_pandas(frame, npartitions=3)


# --- moments ------------------------------------------------------------------------------------


SOURCES = {
    "frame": lambda frame: (frame, LABELS),
    "zarr": lambda frame: (stored(frame), LABELS),
    "dask frame": lambda frame: (lazily(frame), lazily(pd.Series(LABELS))),
}


def test_rows_without_names_give_none():
    numbered = FRAME.set_axis([0, 1, 2], axis=1)
    assert accumulate(numbered, LABELS).feature_names is None
    assert accumulate(ROWS, LABELS).feature_names is None
    assert accumulate(da.from_array(ROWS), da.from_array(LABELS)).feature_names is None
    for attribute in ([], "length", [1, 2, 3], {"a": 1}, ["length", "width", 3]):
        assert accumulate(stored(FRAME, attribute), LABELS).feature_names is None
    with pytest.raises(SourceError, match=r"2 names in its attribute .* and shape \(60, 3\); exp"):
        accumulate(stored(FRAME, ["length", "width"]), LABELS)
    assert ClassMoments().feature_names is PairwiseMoments().feature_names is None


def random_frame(random, names):
    X = random.normal(size=(6, len(names))) + random.normal(size=len(names))
    return pd.DataFrame(X, columns=list(names)), random.integers(0, 2, 6)


@pytest.mark.parametrize("seed", range(4))
def test_algebra_keeps_names_with_their_columns(seed):
    """Rows in a plain frame, with weights, are the oracle: its columns are found by name."""
    random = np.random.default_rng(seed)
    rows, y = random_frame(random, "abcde")
    rows, moments = rows.assign(weight=1.0, y=y), ClassMoments().update(rows, y)
    for step in random.permutation(
        ["add", "without", "decay", "select", "reduce", "save", "relabel"]
    ):
        names = moments.feature_names
        if step in ("add", "without"):
            more, y = random_frame(random, names)
            added = ClassMoments(moments.covariance_type)
            added.update(more if step == "add" else more.to_numpy(), y)
            first = step == "add" and random.random() < 0.5
            moments = added + moments if first else moments + added
            rows = pd.concat([rows, more.assign(weight=1.0, y=y)])
        elif step == "decay":
            moments, rows = moments * 0.5, rows.assign(weight=rows["weight"] / 2)
        elif step == "select":
            chosen = [*random.permutation(names)[: random.integers(2, 5)]]
            moments = moments.select_features(chosen)
            assert moments.feature_names == tuple(chosen)
        elif step == "reduce":
            moments = moments.reduce("diag")
        elif step == "save":
            moments = ClassMoments.from_bytes(moments.to_bytes())
        else:
            moments, rows = moments.relabel({0: 1, 1: 0}), rows.assign(y=1 - rows["y"])
        for k, means in zip(moments.classes, moments.means, strict=True):
            mine = rows[rows["y"] == k]
            expected = np.average(mine[[*moments.feature_names]], axis=0, weights=mine["weight"])
            np.testing.assert_allclose(means, expected, rtol=1e-9)


@EVERY_KIND
@pytest.mark.parametrize(
    ("other", "message"),
    [
        (TURNED, "'mass', 'width', 'length'; these moments expected the same names in another ord"),
        (OTHERS, r"these moments expected .* \(unexpected: 'weight'; missing: 'mass'\)"),
    ],
)
def test_other_names_are_refused(kind, other, message):
    moments, before = kind().update(FRAME, LABELS), kind().update(FRAME, LABELS)
    with pytest.raises(InvalidDataError, match=message):
        moments.update(other, LABELS)
    with pytest.raises(MergeError, match=message):
        moments += kind().update(other, LABELS)
    assert moments.feature_names == NAMES
    np.testing.assert_array_equal(moments.class_count, before.class_count)
    if kind is ClassMoments:
        with pytest.raises(MergeError, match=message):
            moments - kind().update(other, LABELS)


def test_features_that_no_name_identifies_are_refused():
    wide = pd.DataFrame(np.zeros((2, 400)), columns=[f"band {i}" for i in range(400)])
    named = ClassMoments("diag").update(wide, [0, 1])
    with pytest.raises(InvalidDataError, match=r"'band 395', \.\.\. \(400 names\)") as error:
        named.update(wide[wide.columns[::-1]], [0, 1])
    assert len(str(error.value)) < 300
    moments = accumulate(stored(FRAME, ["length", "width", "width"]), LABELS)
    with pytest.raises(InvalidParameterError, match="names 'height', 'width'; expected names that"):
        moments.select_features(["height", "length", "width"])
    with pytest.raises(InvalidParameterError, match="no names; give indices from 0 to 2"):
        accumulate(ROWS, LABELS).select_features(["length"])


def test_a_window_has_the_names_of_its_blocks():
    window = SlidingWindow(2).update(FRAME, LABELS).update(ROWS, LABELS)
    assert window.feature_names == window.moments.feature_names == NAMES
    with pytest.raises(MergeError, match="in another order"):
        window.append(accumulate(TURNED, LABELS))
    assert len(window) == 2
    assert window.update(ROWS, LABELS).feature_names is None


# --- files --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "saved",
    [
        ClassMoments("tied").update(FRAME, LABELS),
        PairwiseMoments().update(FRAME, LABELS),
        SlidingWindow(2).update(FRAME, LABELS),
    ],
    ids=lambda saved: type(saved).__name__,
)
def test_files_keep_names(saved):
    assert type(saved).from_bytes(saved.to_bytes()).feature_names == NAMES
    kind, attributes, arrays = storage_format.read(io.BytesIO(saved.to_bytes()))
    if "feature_names" in attributes:
        damaged, file = attributes | {"feature_names": ["length", "width"]}, io.BytesIO()
        storage_format.write(file, kind, damaged, arrays)
        with pytest.raises(FormatError, match="list of 3 strings"):
            type(saved).from_bytes(file.getvalue())


@pytest.mark.parametrize("source", ["frame", "zarr", "dask frame"])
def test_a_checkpoint_of_other_names_is_refused(source, tmp_path):
    path = tmp_path / "pass.zip"
    accumulate(*SOURCES[source](FRAME), checkpoint=path)
    message = "was started with (feature_names: |X, by the name)"
    with pytest.raises(CheckpointError, match=message):
        accumulate(*SOURCES[source](FRAME.set_axis(OTHERS.columns, axis=1)), checkpoint=path)
    assert accumulate(*SOURCES[source](FRAME), checkpoint=path).feature_names == NAMES


# --- estimators ---------------------------------------------------------------------------------


@pytest.mark.parametrize("frame", [TURNED, OTHERS, OTHERS.set_axis([*"wxy"], axis=1)])
@pytest.mark.parametrize("container", [stored, lazily, lambda frame: frame])
def test_messages_are_those_of_scikit_learn(frame, container):
    with pytest.raises(ValueError, match="feature names should match") as theirs:
        Theirs().fit(FRAME, LABELS).predict(frame)
    ours = LinearDiscriminantAnalysis().fit(stored(FRAME), LABELS)
    rows = container(frame)
    y = lazily(pd.Series(LABELS)) if isinstance(rows, dd.DataFrame) else LABELS
    for call in (ours.predict, ours.predict_proba, ours.transform, ours.decision_function):
        with pytest.raises(ValueError, match="feature names should match") as error:
            call(rows)
        assert str(error.value) == str(theirs.value)
    for call in (ours.partial_fit, ours.forget, ours.score):
        with pytest.raises(ValueError, match="feature names should match"):
            call(rows, y)
    assert ours.class_count_.sum() == len(ROWS)


def test_messages_name_features():
    constant = FRAME.assign(width=1.0)
    with pytest.warns(ConstantFeatureWarning, match="left out of the density: width$"):
        GaussianNB().fit(constant, LABELS)
    missing = FRAME.assign(width=np.nan)
    with pytest.raises(InvalidDataError, match="class 0 has no value of feature width"):
        PairwiseMoments().update(missing, LABELS).to_moments()


# --- stores and commands --------------------------------------------------------------------------


@pytest.fixture
def stores(tmp_path):
    """Return the paths of stores with the columns of a model, and with them in another order."""
    paths = tmp_path / "rows", tmp_path / "turned"
    for path, frame in zip(paths, (FRAME, TURNED), strict=True):
        group = zarr.create_group(path)
        attributes = {"feature_names": [*frame.columns]}
        group.create_array("X", data=frame.to_numpy(), attributes=attributes)
        group.create_array("y", data=LABELS)
    return paths


def test_commands_show_and_check_names(command, stores, tmp_path):
    rows, turned = stores
    model, moments = tmp_path / "model.zip", tmp_path / "moments.zip"
    assert command("fit", rows, "--out", model, "--moments-out", moments).code == 0
    for path in (rows, rows / "X", model, moments):
        assert "length, width, mass" in command("info", path).out
        assert '"width"' in command("info", path, "--json").out
    for arguments in (
        ("predict", turned, "--model", model, "--out", tmp_path / "y"),
        ("evaluate", turned, "--model", model),
    ):
        code, _, err = command(*arguments)
        assert code == 1
        assert (
            "model.zip expected the same names in another order, 'length', 'width', 'mass'" in err
        )
