"""Loading what was damaged, edited, or not saved by this package."""

import json
import zipfile

import numpy as np
import pytest
import zarr
from samples import blobs
from saved_states import assert_same, some_moments

import streamgda
from streamgda import GaussianModel, LinearDiscriminantAnalysis, storage
from streamgda.errors import FormatError, SourceNotFoundError
from streamgda.moments import ClassMoments
from streamgda.storage.saved import state_of

# --- what is not ours -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["nothing", "nothing.zip", "no/where/at/all"])
def test_missing_path(tmp_path, name):
    with pytest.raises(SourceNotFoundError, match=rf"{name} does not exist"):
        ClassMoments.load(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        storage.kind_of(tmp_path / name)


def test_not_a_group(tmp_path):
    (tmp_path / "file").write_text("no zarr")
    (tmp_path / "file.zip").write_text("no zip")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder.zip").mkdir()
    (tmp_path / "json").mkdir()
    (tmp_path / "json" / "zarr.json").write_text("{")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("a", "b")
    zarr.create_array(tmp_path / "array", data=np.arange(3))
    for path in sorted(tmp_path.iterdir()):
        with pytest.raises(FormatError, match="is not a zarr group that can be read"):
            ClassMoments.load(path)
    with pytest.raises(FormatError, match="is not a zarr group that can be read"):
        ClassMoments.load(zarr.storage.MemoryStore())


def test_foreign_group(tmp_path):
    zarr.create_group(tmp_path / "group", attributes={"title": "rainfall"})
    zarr.create_group(tmp_path / "clash", attributes={"streamgda": 5})
    zarr.create_group(tmp_path / "other", attributes={"streamgda": {"format": "other"}})
    for path in tmp_path.iterdir():
        with pytest.raises(FormatError, match="a zarr group, but not one that streamgda saved"):
            ClassMoments.load(path)


def edit(path, change, node=""):
    """Change the attributes, with a valid checksum, or the whole metadata of a node."""
    file = path / node / "zarr.json"
    description = json.loads(file.read_text())
    if node:
        change(description)
    else:
        head = description["attributes"]["streamgda"]
        change(head)
        head.pop("checksum")
        head["checksum"] = storage.checksum_of(head)
        bind(path, head["checksum"])
    file.write_text(json.dumps(description))


def bind(path, checksum):
    """Give all arrays the checksum of their description."""
    for file in path.glob("*/zarr.json"):
        node = json.loads(file.read_text())
        node["attributes"] = dict.fromkeys(node["attributes"], checksum)
        file.write_text(json.dumps(node))


@pytest.fixture
def saved(tmp_path):
    moments = some_moments(labels=np.array(["b", "a", "b", "c"]))
    for _ in range(2):  # three rows a class, and means that take two float64 numbers
        moments.update(np.random.default_rng(1).normal(size=(4, 3)), ["a", "b", "c", "c"])
    assert state_of(moments)[1]["mean_low"].any()
    moments.save(tmp_path / "saved")
    return tmp_path / "saved"


@pytest.mark.parametrize("version", [0, 1, 2, 5, "3", None])
def test_unknown_version(saved, version):
    edit(saved, lambda head: head.update(version=version))
    with pytest.raises(FormatError, match=rf"format version {version!r}; this streamgda reads"):
        ClassMoments.load(saved)


def test_wrong_kind(tmp_path, saved):
    with pytest.raises(FormatError, match="holds 'moments', expected 'model'"):
        storage.read(saved, "model")
    storage.write(tmp_path / "model", "model", {}, {})
    with pytest.raises(FormatError, match="holds 'model', expected 'moments'"):
        ClassMoments.load(tmp_path / "model")


# --- damage -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [0.02, 0.5, 0.9, 0.999])
def test_truncated_zip(tmp_path, kept):
    some_moments().save(tmp_path / "moments.zip")
    whole = (tmp_path / "moments.zip").read_bytes()
    (tmp_path / "cut.zip").write_bytes(whole[: int(kept * len(whole))])
    with pytest.raises(FormatError, match=r"cut\.zip is not a zarr group that can be read"):
        ClassMoments.load(tmp_path / "cut.zip")


def test_flipped_bytes_in_a_zip(tmp_path):
    """A wrong byte at any place: an error, or the same numbers."""
    path, moments = tmp_path / "moments.zip", some_moments()
    moments.save(path)
    whole, noticed = path.read_bytes(), 0
    for at in range(0, len(whole), max(1, len(whole) // 60)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            loaded = ClassMoments.load(path)
        except FormatError:
            noticed += 1
        else:
            assert state_of(loaded)[0].keys() == state_of(moments)[0].keys()
            assert_same(loaded, moments)
    assert noticed > 20


def chunks_of(path):
    return sorted(p for p in path.rglob("*") if p.is_file() and p.name != "zarr.json")


@pytest.mark.parametrize("name", ["count", "mean", "mean_low", "scatter"])
def test_truncated_chunk(saved, name):
    (chunk,) = chunks_of(saved / name)
    whole = chunk.read_bytes()
    for size in (0, 1, len(whole) // 2, len(whole) - 1):
        chunk.write_bytes(whole[:size])
        with pytest.raises(FormatError, match="saved is damaged"):
            ClassMoments.load(saved)


@pytest.mark.parametrize("name", ["count", "mean", "mean_low", "scatter"])
def test_missing_chunk(saved, name):
    (chunk,) = chunks_of(saved / name)
    chunk.unlink()
    with pytest.raises(FormatError, match=rf"damaged.*chunk {name}/c/.* is missing"):
        ClassMoments.load(saved)


@pytest.mark.parametrize("name", ["count", "mean", "scatter"])
def test_missing_array(saved, name):
    (saved / name / "zarr.json").unlink()
    with pytest.raises(FormatError, match="saved is damaged"):
        ClassMoments.load(saved)


@pytest.mark.parametrize("name", ["count", "mean", "mean_low", "scatter"])
def test_flipped_bytes_in_a_chunk(saved, name):
    """Each byte in turn: an error, or the same numbers (if compression ignores the byte)."""
    (chunk,) = chunks_of(saved / name)
    before = ClassMoments.load(saved)
    whole, noticed = chunk.read_bytes(), 0
    for at in range(len(whole)):
        chunk.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        try:
            assert_same(ClassMoments.load(saved), before)
        except FormatError as error:
            noticed += 1
            assert "saved is damaged" in str(error)  # noqa: PT017
    assert noticed > 0.8 * len(whole)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("mean", {"shape": [3, 2]}),
        ("mean", {"shape": [2, 3]}),
        ("mean", {"shape": [3, 3, 1]}),
        ("mean", {"shape": "wide"}),
        ("mean", {"data_type": "int64"}),
        ("mean", {"data_type": "float32"}),
        ("count", {"data_type": "float64"}),
        ("count", {"codecs": []}),
        ("count", {"node_type": "group"}),
        ("count", {"zarr_format": 9}),
        ("scatter", {"shape": [3, 3, 4]}),
    ],
)
def test_edited_metadata_of_an_array(saved, name, changes):
    edit(saved, lambda node: node.update(changes), name)
    with pytest.raises(FormatError, match="saved is damaged"):
        ClassMoments.load(saved)


def change_array(name, spec):
    return lambda head: head["arrays"].update({name: spec})


@pytest.mark.parametrize(
    "change",
    [
        change_array("mean", [[2, 3], "<f8", 0]),
        change_array("mean", [[3, 3], "<f4", 0]),
        change_array("mean", [[3, 3], "<f8", 0]),
        change_array("mean", [[3, 3]]),
        change_array("mean", None),
        change_array("other", [[3, 3], "<f8", 0]),
        lambda head: head.update(arrays=None),
        lambda head: head.update(attributes=7),
        lambda head: head.pop("attributes"),
        lambda head: head["arrays"].pop("mean"),
        lambda head: head["attributes"].pop("classes"),
        lambda head: head["attributes"].update(classes=["a", "b", "c"]),
        lambda head: head["attributes"].update(covariance_type="round"),
        lambda head: head["attributes"].update(covariance_type="diag"),
        lambda head: head["attributes"].update(covariance_type="tied"),
        lambda head: head["attributes"].update(origin=0, reach=5),
        lambda head: head["attributes"]["classes"].update(values=["a", "b"]),
        lambda head: head["attributes"]["classes"].update(dtype="|O"),
        lambda head: head["attributes"]["classes"].update(dtype="i4,f4"),
        lambda head: head["attributes"]["classes"].update(dtype="<i8"),
        lambda head: head["attributes"]["classes"].update(dtype="|i1", values=[1, 2, 1000]),
        lambda head: head["attributes"]["classes"].update(dtype="S3", values=["a", "b", "c"]),
        lambda head: head["attributes"]["classes"].update(dtype="<i8", values=[[1], [2], [3]]),
        lambda head: head["attributes"]["classes"].update(values=["a", "c", "b"]),
        lambda head: head["attributes"]["classes"].update(values=["a", "b", "b"]),
        lambda head: head["attributes"]["classes"].pop("dtype"),
    ],
)
def test_edited_description(saved, change):
    edit(saved, change)
    with pytest.raises(FormatError, match="damaged"):
        ClassMoments.load(saved)


def test_description_that_does_not_match_its_checksum(saved):
    file = saved / "zarr.json"
    node = json.loads(file.read_text())
    node["attributes"]["streamgda"]["attributes"]["n_skipped"] = 5
    file.write_text(json.dumps(node))
    with pytest.raises(FormatError, match="its description has another checksum"):
        ClassMoments.load(saved)


def test_impossible_values(saved):
    """Values with a valid checksum that moments cannot have."""
    for name, value in [("count", -1), ("mean", np.nan), ("scatter", np.inf)]:
        attributes, arrays = state_of(some_moments())
        arrays = {key: array.copy() for key, array in arrays.items()}
        arrays[name].flat[0] = value
        storage.write(saved, "moments", attributes, arrays)
        with pytest.raises(FormatError, match=f"damaged: {name} holds impossible values"):
            ClassMoments.load(saved)


# --- saved estimators -------------------------------------------------------------------------


@pytest.fixture
def fitted():
    return LinearDiscriminantAnalysis().fit(*blobs())


def test_saved_files_of_another_version(tmp_path, fitted):
    path = tmp_path / "lda"
    fitted.save(path)
    metadata = json.loads((path / "zarr.json").read_text())
    metadata["attributes"]["streamgda"]["version"] = 99
    (path / "zarr.json").write_text(json.dumps(metadata))
    with pytest.raises(FormatError, match=r"version 99; .* reads version 3, 4. Update streamgda"):
        streamgda.load(path)


@pytest.mark.parametrize("keep", [0.0, 0.5, 0.95])
def test_truncated_zip_files(tmp_path, fitted, keep):
    path = tmp_path / "lda.zip"
    fitted.save(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(keep * len(content))])
    with pytest.raises(FormatError, match=r"lda.zip is not a zarr group that can be read"):
        streamgda.load(path)


def test_truncated_and_missing_chunks(tmp_path, fitted):
    path = tmp_path / "lda"
    fitted.save(path)
    chunks = sorted(file for file in path.rglob("*") if file.is_file() and file.name != "zarr.json")
    assert len(chunks) > 5
    for chunk in chunks:
        content = chunk.read_bytes()
        for damaged in (content[:-1], content[: len(content) // 2], b""):
            chunk.write_bytes(damaged)
            with pytest.raises(FormatError, match="is damaged"):
                streamgda.load(path)
        chunk.unlink()
        with pytest.raises(FormatError, match="is damaged"):
            streamgda.load(path)
        chunk.write_bytes(content)
    streamgda.load(path)


@pytest.mark.parametrize("load", [streamgda.load, ClassMoments.load, GaussianModel.load])
def test_files_that_are_not_ours(tmp_path, load):
    with pytest.raises(SourceNotFoundError, match="nothing does not exist"):
        load(tmp_path / "nothing")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(FormatError, match="is not a zarr group that can be read"):
        load(tmp_path / "text")
    zarr.create_group(tmp_path / "group")
    with pytest.raises(FormatError, match="is a zarr group, but not one that streamgda saved"):
        load(tmp_path / "group")
