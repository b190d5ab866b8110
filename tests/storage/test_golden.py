"""Files that older releases saved stay readable, with the contents and the scores that they had.

The files in ``golden/`` were written once, by the release that introduced their format version
(``golden/make.py``). No later change may write them again: their checksums are in
``golden/SHA256SUMS``. A new version of the format adds a folder and its checksums.
"""

import hashlib
import shutil
import sys

import numpy as np
import pandas as pd
import pytest
from damage import GOLDEN, LOADERS

import streamgda
from streamgda import Checkpoint, accumulate
from streamgda.storage import format as storage_format

FOLDERS = sorted(GOLDEN.glob("version*"))
NAMED, GROUPED, HEADS = (GOLDEN / name for name in ("names", "groups", "heads"))
FILES = sorted(file for folder in (*FOLDERS, GROUPED) for file in folder.glob("*.zip"))
NEW_PARAMETERS = {
    "feature_map": None,
    "temperature": 1.0,
    "standardize": False,
    "solver": "svd",
    "covariance_estimator": None,
}

EVERY_FILE = pytest.mark.parametrize(
    "file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}"
)
EVERY_FOLDER = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)


@pytest.fixture(scope="module")
def make():
    """Return the program that wrote the files, for the batches of the checkpoints."""
    sys.path.insert(0, str(GOLDEN))
    try:
        import make
    finally:
        sys.path.remove(str(GOLDEN))
    return make


def expected_of(folder, name):
    """Return the arrays that were saved beside a file, by their names."""
    with np.load(folder / "expected.npz") as arrays:
        return part_of(arrays, name)


def part_of(arrays, name):
    start = f"{name}/"
    return {key.removeprefix(start): arrays[key] for key in arrays if key.startswith(start)}


def assert_equal(found, expected):
    """Integers and labels are exact; another processor may round floats in other ways."""
    if expected.dtype.kind == "f":
        scale = max(1.0, np.nanmax(np.abs(expected), initial=0))
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12 * scale)
    else:
        np.testing.assert_array_equal(found, expected, strict=True)


def assert_holds(moments, expected):
    """The moments have the classes, counts, means and covariances that were expected."""
    assert_equal(moments.classes, expected["classes"])
    assert_equal(moments.class_count, expected["class_count"])
    if "means" in expected:
        assert_equal(moments.means, expected["means"])
        assert_equal(moments.covariance(), expected["covariance"])


def test_the_files_are_those_that_were_written():
    lines = (GOLDEN / "SHA256SUMS").read_text().splitlines()
    listed = {name: digest for digest, name in (line.split() for line in lines)}
    there = [file for folder in (*FOLDERS, NAMED, GROUPED, HEADS) for file in folder.iterdir()]
    found = {
        file.relative_to(GOLDEN).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in there
    }
    assert found == listed


def test_there_are_files_of_the_current_version_and_of_every_kind():
    newest = GOLDEN / f"version{storage_format.VERSION}"
    assert newest in FOLDERS
    files = [*newest.glob("*.zip"), *GROUPED.glob("*.zip"), *HEADS.glob("*.zip")]
    assert {storage_format.kind_of(file) for file in files} == LOADERS.keys()


@EVERY_FILE
def test_saved_objects_are_loaded(file):
    kind = storage_format.kind_of(file)
    loaded, expected = LOADERS[kind](file), expected_of(file.parent, file.stem)
    if kind == "checkpoint":
        assert 0 < loaded.done < 8
        return
    if kind in ("model", "bernoulli"):
        rows = expected_of(file.parent, "data")["X" if kind == "model" else "ones"]
        assert_equal(loaded.log_density(rows), expected["log_density"])
        return
    if kind == "grouped":
        assert list(loaded) == ([] if "empty" in file.stem else ["east", "north", "south"])
        for part in [*loaded, "total"]:
            moments = loaded.total() if part == "total" else loaded[part]
            assert_holds(moments, part_of(expected, part))
        return
    moments = {"estimator": "moments_", "window": "moments"}.get(kind)
    assert_holds(getattr(loaded, moments) if moments else loaded, expected)


def drop_new_parameters(described):
    """Drop parameters that older files lack, which have their defaults, of estimators and parts."""
    for name, value in [*described.items()]:
        if isinstance(value, dict):
            drop_new_parameters(value)
        elif name in NEW_PARAMETERS:
            assert described.pop(name) == NEW_PARAMETERS[name], "an older file has the default"


@EVERY_FILE
def test_saved_objects_are_written_in_the_same_layout(file, tmp_path):
    """And their bytes are files, and the bytes of files are objects."""
    kind = storage_format.kind_of(file)
    loaded = LOADERS[kind](file)
    (tmp_path / file.name).write_bytes(loaded.to_bytes())
    assert type(loaded).from_bytes(file.read_bytes()).to_bytes() == loaded.to_bytes()
    (_, attributes, arrays), (_, others, other_arrays) = (
        storage_format.read(path, kind) for path in (tmp_path / file.name, file)
    )
    attributes.pop("offset", None), others.pop("offset", None)
    drop_new_parameters(attributes)
    assert attributes == others
    assert arrays.keys() == other_arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, other_arrays[name], strict=True)


@pytest.mark.parametrize("name", ["qda", "lda", "nb", "gda", "bernoulli-nb", "threshold"])
@EVERY_FOLDER
def test_estimators_score_as_they_did(folder, name):
    loaded, data = streamgda.load(folder / f"{name}.zip"), expected_of(folder, "data")
    rows = data[{"gda": "bytes", "bernoulli-nb": "ones"}.get(name, "X")]
    if name == "nb":
        rows = pd.DataFrame(rows, columns=["length", "width", "height"])
        assert loaded.feature_names_in_.tolist() == [*rows.columns]
    expected = expected_of(folder, name)
    for method in {"predict", "predict_log_proba", "decision_function"} & expected.keys():
        assert_equal(getattr(loaded, method)(rows), expected[method])


@EVERY_FOLDER
def test_a_stream_has_its_state_and_its_offset(folder, tmp_path):
    shutil.copy(folder / "stream.zip", tmp_path)
    checkpoint = Checkpoint(tmp_path / "stream.zip")
    assert checkpoint.offset == {"offset": 17}
    assert_holds(checkpoint.state.moments_, expected_of(folder, "stream"))


@pytest.mark.parametrize("name", ["pass", "dask"])
@EVERY_FOLDER
def test_passes_resume_from_their_checkpoints(folder, name, make, tmp_path):
    path = shutil.copy(folder / f"{name}.zip", tmp_path)
    data = expected_of(folder, "data")
    batches = make.batches(data) if name == "pass" else make.delayed(data)
    assert_holds(accumulate(batches, checkpoint=path), expected_of(folder, name))


@pytest.mark.parametrize("file", sorted(NAMED.glob("*.zip")), ids=lambda file: file.stem)
def test_saved_objects_know_the_names_of_their_features(file):
    loaded = LOADERS[storage_format.kind_of(file)](file)
    if file.stem == "pass":
        loaded = loaded.moments["rows"]
    if file.stem == "lda":
        assert loaded.feature_names_in_.tolist() == ["length", "width", "height"]
        loaded = loaded.moments_
    assert loaded.feature_names == ("length", "width", "height")


@pytest.mark.parametrize("file", sorted(HEADS.glob("*.zip")), ids=lambda file: file.stem)
def test_saved_heads(file, make, tmp_path):
    kind = storage_format.kind_of(file)
    loaded, expected = LOADERS[kind](file), expected_of(HEADS, file.stem)
    loaded.save(tmp_path / file.name)
    again, before = (storage_format.read(path, kind) for path in (tmp_path / file.name, file))
    assert again[1] == before[1]
    np.testing.assert_equal(again[2], before[2])
    data = expected_of(HEADS, "data")
    found = make.described_head(loaded, expected.keys() - {"p_values"}, data)
    assert found.keys() == expected.keys()
    for name, value in found.items():
        assert_equal(np.asarray(value), expected[name])
