"""Names of the features: from columns to moments, models, files and stores, and checked there."""

import io

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import zarr
from samples import blobs
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis as Theirs

from streamgda import (
    LinearDiscriminantAnalysis,
    PairwiseMoments,
    SlidingWindow,
    accumulate,
    load,
)
from streamgda.datasets import convert
from streamgda.errors import (
    CheckpointError,
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


NUMBERED = FRAME.set_axis([0, 1, 2], axis=1)
NO_NAMES = ([], "length", [1, 2, 3], {"a": 1}, ["length", "width", 3])


@pytest.mark.parametrize(
    "rows", [NUMBERED, ROWS, *(stored(FRAME, attribute) for attribute in NO_NAMES)]
)
def test_rows_without_names(rows):
    moments = accumulate(rows, LABELS)
    assert moments.feature_names is None
    with pytest.raises(InvalidParameterError, match="no names; give indices from 0 to 2"):
        moments.select_features(["length"])


def test_names_that_do_not_fit():
    with pytest.raises(SourceError, match=r"2 names in its attribute .* and shape \(60, 3\); exp"):
        accumulate(stored(FRAME, ["length", "width"]), LABELS)
    twice = accumulate(stored(FRAME, ["length", "width", "width"]), LABELS)
    with pytest.raises(InvalidParameterError, match="names 'height', 'width'; expected names that"):
        twice.select_features(["height", "length", "width"])
    wide = pd.DataFrame(np.zeros((2, 400)), columns=[f"band {i}" for i in range(400)])
    named = ClassMoments("diag").update(wide, [0, 1])
    with pytest.raises(InvalidDataError, match=r"'band 395', \.\.\. \(400 names\)") as error:
        named.update(wide[wide.columns[::-1]], [0, 1])
    assert len(str(error.value)) < 300


def test_windows_and_files_keep_names():
    window = SlidingWindow(2).update(FRAME, LABELS).update(ROWS, LABELS)
    assert window.moments.feature_names == NAMES
    with pytest.raises(MergeError, match="in another order"):
        window.append(accumulate(TURNED, LABELS))
    for saved in (window, PairwiseMoments().update(FRAME, LABELS), accumulate(FRAME, LABELS)):
        loaded = type(saved).from_bytes(saved.to_bytes())
        assert getattr(loaded, "moments", loaded).feature_names == NAMES
    kind, state = storage_format.read(io.BytesIO(saved.to_bytes()))
    file = io.BytesIO()
    storage_format.write(file, kind, state | {"feature_names": ["length", "width"]})
    with pytest.raises(FormatError, match="list of 3 strings"):
        ClassMoments.from_bytes(file.getvalue())
    assert window.update(ROWS, LABELS).moments.feature_names is None


def test_algebra_keeps_names_with_their_columns():
    moments, plain = ClassMoments().update(FRAME, LABELS), ClassMoments().update(ROWS, LABELS)
    for found in (
        moments + plain,
        plain + moments,
        moments + moments - plain,
        moments * 0.5,
        moments.reduce("diag"),
        moments.relabel({0: 1, 1: 0}),
        moments.copy().update(ROWS, LABELS),
    ):
        assert found.feature_names == NAMES
        chosen = found.select_features(["mass", "length"])
        assert chosen.feature_names == ("mass", "length")
        np.testing.assert_array_equal(chosen.means, found.means[:, [2, 0]])
        assert chosen.select_features(["length"]).feature_names == ("length",)


@EVERY_KIND
@pytest.mark.parametrize(
    ("other", "message"),
    [
        (TURNED, "'mass', 'width', 'length'; these moments expected the same names in another ord"),
        (OTHERS, r"these moments expected .* \(unexpected: 'weight'; missing: 'mass'\)"),
    ],
)
def test_other_names_raise(kind, other, message):
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


@pytest.mark.parametrize("source", [lambda frame: frame, stored, lazily])
def test_a_checkpoint_of_other_names_raises(source, tmp_path):
    kept = {"checkpoint": tmp_path / "pass.zip"}
    y = lazily(pd.Series(LABELS)) if source is lazily else LABELS
    accumulate(source(FRAME), y, **kept)
    with pytest.raises(CheckpointError, match=r"with (feature_names: |X, by the name)"):
        accumulate(source(OTHERS), y, **kept)
    assert accumulate(source(FRAME), y, **kept).feature_names == NAMES


def test_commands_show_and_check_names(command, tmp_path):
    rows, turned, model, moments = (tmp_path / name for name in ("a", "b", "model", "moments"))
    convert(FRAME, LABELS, rows)
    convert(TURNED, LABELS, turned)
    assert command("fit", rows, "--out", model).code == 0
    load(model).moments_.save(moments)
    for path in (rows, rows / "X", model, moments):
        assert "length, width, mass" in command("info", path).out
        assert '"width"' in command("info", path, "--json").out
    for words in (("predict", turned, "--out", tmp_path / "y"), ("evaluate", turned)):
        code, _, err = command(*words, "--model", model)
        assert code == 1
        assert "model expected the same names in another order, 'length', 'width', 'mass'" in err
