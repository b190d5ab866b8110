"""Saving and loading: bit for bit, or with an error that says what is wrong."""

import json
import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
import zarr
from samples import blobs

from streamgda import GaussianDiscriminantAnalysis, GaussianModel, storage
from streamgda.errors import FormatError, SourceError, SourceNotFoundError
from streamgda.moments import ClassMoments
from streamgda.storage import pack_labels, unpack_labels
from streamgda.storage import replacing as replacement
from streamgda.storage.replacing import move_into_place, replacing
from streamgda.storage.saved import state_of

LABELS = {
    "int64": np.array([3, -1, 3, 7]),
    "uint8": np.array([3, 200, 3, 7], np.uint8),
    "uint64": np.array([2**64 - 1, 0, 5, 5], np.uint64),
    "int8-big-endian": np.array([300, 2, 2, 1], ">i2"),
    "float": np.array([1.0, -2.0, 0.0, 1e300]),
    "float16": np.array([1.0, -2.0, 0.0, 512.0], np.float16),
    "bool": np.array([True, False, True, True]),
    "strings": np.array(["b", "ä\n\0c", "", "\U0001f600"]),
    "bytes": np.array([b"b", b"\xff\0\xfe", b"", b"b"]),
    "objects": np.array(["b", "abc", "", "b"], object),
    "dates": np.array(["2020-01-01", "1969-07-21", "2020-01-01", "9999-12-31"], "M8[D]"),
    "times": np.array(["2020-01-01", "1969-07-21", "2020-01-01", "2100-12-31"], "M8[ns]"),
    "durations": np.array([5, -1, 5, 0], "m8[s]"),
}


def some_moments(covariance_type="full", dtype="float64", labels=LABELS["int64"]):
    X = np.random.default_rng(0).integers(0, 100, (4, 3)).astype(dtype)
    if dtype == "float64":
        X /= 7
    return ClassMoments(covariance_type).update(X, labels)


def assert_same(a, b):
    """Check that the states are equal to the bit."""
    (attributes, arrays), (others, other_arrays) = state_of(a), state_of(b)
    assert attributes == others
    assert a.classes.dtype == b.classes.dtype
    assert (a.classes == b.classes).all()
    assert arrays.keys() == other_arrays.keys()
    for name, array in arrays.items():
        assert array.dtype == other_arrays[name].dtype
        assert array.shape == other_arrays[name].shape
        assert array.tobytes() == other_arrays[name].tobytes()


def left_overs(folder):
    return [p.name for p in folder.rglob("*") if "partial" in p.name or "old" in p.name]


# --- round trips ------------------------------------------------------------------------------


def stores(tmp_path):
    yield tmp_path / "directory"
    yield str(tmp_path / "string")
    yield tmp_path / "file.zip"
    yield tmp_path / "not" / "yet" / "there.zip"
    yield zarr.storage.MemoryStore()
    yield zarr.storage.LocalStore(tmp_path / "local")
    root = zarr.create_group(zarr.storage.MemoryStore())
    yield root.create_group("inside")
    yield root.create_group("inside/deeper")
    yield zarr.create_group(tmp_path / "outer").create_group("inner")


@pytest.mark.parametrize("dtype", ["float64", "uint8"])
def test_any_store(tmp_path, dtype):
    moments = some_moments(dtype=dtype)
    for store in stores(tmp_path):
        moments.save(store)
        assert_same(ClassMoments.load(store), moments)
        moments.save(store)  # over the first
        assert_same(ClassMoments.load(store), moments)
        assert storage.kind_of(store) == "moments"
    assert not left_overs(tmp_path)


def test_groups_inside_a_group_are_each_other_s_neighbours():
    root = zarr.create_group(zarr.storage.MemoryStore(), attributes={"mine": 1})
    first, second = some_moments(), some_moments("diag", "uint8")
    first.save(root.create_group("first"))
    second.save(root.create_group("second"))
    first.save(root["first"])  # does not touch the second
    assert_same(ClassMoments.load(root["first"]), first)
    assert_same(ClassMoments.load(root["second"]), second)
    assert root.attrs["mine"] == 1


@pytest.mark.parametrize("zipped", [False, True])
def test_relative_paths(tmp_path, monkeypatch, zipped):
    monkeypatch.chdir(tmp_path)
    name = "moments.zip" if zipped else "moments"
    some_moments().save(name)
    assert_same(ClassMoments.load(tmp_path / name), some_moments())


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS.keys())
def test_any_labels(tmp_path, labels):
    moments = some_moments(labels=labels)
    moments.save(tmp_path / "moments.zip")
    loaded = ClassMoments.load(tmp_path / "moments.zip")
    assert_same(loaded, moments)
    packed = json.loads(json.dumps(pack_labels(moments.classes)))
    assert unpack_labels(packed).tolist() == moments.classes.tolist()


@pytest.mark.parametrize("dtype", ["float64", "uint8", "int16"])
@pytest.mark.parametrize(
    "covariance_type", ["full", "tied", "diag", "tied_diag", "spherical", "tied_spherical"]
)
def test_any_covariance_type(covariance_type, dtype):
    store, moments = zarr.storage.MemoryStore(), some_moments(covariance_type, dtype)
    moments.save(store)
    loaded = ClassMoments.load(store)
    assert_same(loaded, moments)
    assert loaded.exact == moments.exact == (dtype != "float64")
    assert (loaded.covariance() == moments.covariance()).all()
    rows = np.ones((2, 3), dtype)
    assert_same(loaded.update(rows, [0, 3]), moments.update(rows, [0, 3]))  # and goes on


@pytest.mark.parametrize("name", ["empty", "emptied", "emptied exact", "decayed away", "weighted"])
def test_odd_moments(tmp_path, name):
    moments = {
        "empty": ClassMoments("tied"),
        "emptied": some_moments() - some_moments(),
        "emptied exact": some_moments(dtype="uint8") - some_moments(dtype="uint8"),
        "decayed away": some_moments() * 0,
        "weighted": some_moments() * 0.3,
    }[name]
    for path in (tmp_path / "moments", tmp_path / "moments.zip"):
        moments.save(path)
        assert_same(ClassMoments.load(path), moments)


def test_arrays_of_any_kind(tmp_path):
    arrays = {
        "scalar": np.array(3.5),
        "empty": np.empty((0, 4)),
        "flags": np.array([True, False]),
        "half": np.array([1.5, 2.5], np.float16),
        "big-endian": np.array([1.5, 2.5], ">f8"),
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "strided": np.arange(12)[::-3],
        "unsigned-in-four-bytes": np.array([0, 2**32 - 1]),
        "signed-in-four-bytes": np.array([-(2**31), 2**31 - 1]),
        "beyond-four-bytes": np.array([[-1, 2**32 - 1], [2**62, -(2**63)]]),
        "uint64": np.array([1, 2**64 - 1], np.uint64),
        "inner/of/groups": np.array([np.nan, -0.0, np.inf]),
        "chunked": np.arange(3.0 * (1 << 19)).reshape(3, -1),  # more than one chunk of 8 MiB
        "zeros": np.zeros((2, 2)),
    }
    attributes = {"text": "ä", "list": [1, 2.5, None], "nested": {"a": True}}
    storage.write(tmp_path / "it", "odds", attributes, arrays)
    read, loaded = storage.read(tmp_path / "it", "odds")
    assert read == attributes
    assert loaded.keys() == arrays.keys()
    for name, array in arrays.items():
        native = array.astype(array.dtype.newbyteorder("="))
        assert loaded[name].dtype == native.dtype
        assert loaded[name].shape == array.shape
        assert loaded[name].tobytes() == native.tobytes()
    assert len(list((tmp_path / "it" / "chunked" / "c").iterdir())) > 1


def test_no_pickle(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("pickled")

    moments = some_moments(labels=LABELS["objects"])
    for name in ("dump", "dumps", "load", "loads", "Pickler", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    for path in (tmp_path / "moments", tmp_path / "moments.zip"):
        moments.save(path)
        assert_same(ClassMoments.load(path), moments)
    files = [p for p in (tmp_path / "moments").rglob("*") if p.is_file()]
    assert len(files) == 1 + 4 * 2  # the group; metadata and one chunk of each array
    for path in files:
        with pytest.raises(AssertionError, match="pickled"):
            pickle.loads(path.read_bytes())


# --- replacing --------------------------------------------------------------------------------


@pytest.mark.parametrize("zipped", [False, True])
def test_saving_replaces(tmp_path, zipped):
    path = tmp_path / ("moments.zip" if zipped else "moments")
    some_moments().save(path)
    other = some_moments("diag", "uint8")
    other.save(path)
    assert_same(ClassMoments.load(path), other)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    if not zipped:
        assert not (path / "mean").exists()  # nothing of the first is left


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("number", [0, 1, 3])
def test_failure_in_the_middle_leaves_the_old_contents(tmp_path, monkeypatch, zipped, number):
    path = tmp_path / ("moments.zip" if zipped else "moments")
    some_moments().save(path)
    create, written = zarr.Group.create_array, []

    def failing(*args, **kwargs):
        if len(written) == number:
            raise OSError("disk full")
        written.append(args)
        return create(*args, **kwargs)

    monkeypatch.setattr(zarr.Group, "create_array", failing)
    for target in (path, tmp_path / f"new{path.suffix}"):
        written.clear()
        with pytest.raises(OSError, match="disk full"):
            some_moments("diag").save(target)
    assert_same(ClassMoments.load(path), some_moments())
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_zip_file_is_replaced_in_one_step(tmp_path, monkeypatch):
    path = tmp_path / "moments.zip"
    some_moments().save(path)
    replace = Path.replace

    def watching(self, target):
        assert Path(target).exists()  # the store is never missing
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", watching)
    some_moments("diag").save(path)
    assert ClassMoments.load(path).covariance_type == "diag"


def test_a_file_is_on_the_disk_before_it_replaces_another(tmp_path, monkeypatch):
    events, fsync, replace = [], os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda file: events.append("fsync") or fsync(file))
    monkeypatch.setattr(Path, "replace", lambda *paths: events.append("replace") or replace(*paths))
    with replacing(tmp_path / "file") as partial:
        partial.write_text("new")
    assert events == ["fsync", "replace"]


def test_an_empty_folder_gives_way_to_a_zip(tmp_path):
    path = tmp_path / "moments.zip"
    path.mkdir()
    some_moments().save(path)
    assert_same(ClassMoments.load(path), some_moments())
    assert not left_overs(tmp_path)


def test_rows_in_zarr_are_not_replaced(tmp_path):
    rows = zarr.create_group(tmp_path / "rows.zarr")
    rows.create_array("X", data=np.eye(3))
    with pytest.raises(SourceError, match=r"rows.zarr holds something else .*choose another path"):
        some_moments().save(tmp_path / "rows.zarr")
    np.testing.assert_array_equal(rows["X"][:], np.eye(3))


def test_a_file_of_other_things_is_not_replaced(tmp_path):
    for name in ("notes", "notes.zip"):
        (tmp_path / name).write_text("once only")
        with pytest.raises(SourceError, match="holds something else"):
            some_moments().save(tmp_path / name)
        assert (tmp_path / name).read_text() == "once only"
    assert not left_overs(tmp_path)


def test_a_link_stays_a_link(tmp_path):
    some_moments().save(tmp_path / "there")
    (tmp_path / "link").symlink_to(tmp_path / "there")
    some_moments("diag").save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert ClassMoments.load(tmp_path / "there").covariance_type == "diag"


def test_a_folder_of_other_things_is_not_deleted(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "precious").write_text("once only")
    with pytest.raises(SourceError, match=r"data holds something else"):
        some_moments().save(tmp_path / "data")
    assert (tmp_path / "data" / "precious").read_text() == "once only"
    (tmp_path / "empty").mkdir()
    some_moments().save(tmp_path / "empty")
    assert_same(ClassMoments.load(tmp_path / "empty"), some_moments())


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


# --- no larger than it must be ----------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["uint8", "float64"])
def test_files_hold_triangles_and_narrow_integers(tmp_path, dtype):
    d, k = 100, 10
    random = np.random.default_rng(0)
    X, y = random.integers(0, 255, (1500, d)).astype(dtype), np.arange(1500) % k
    fitted = GaussianDiscriminantAnalysis().fit(X, y)
    triangles = k * d * (d + 1) // 2
    number = 4 if dtype == "uint8" else 8
    rest = 5 * k * d * 8 + (1 << 14)
    fitted.moments_.save(tmp_path / "moments.zip")
    assert (tmp_path / "moments.zip").stat().st_size < triangles * number + rest
    fitted.model_.save(tmp_path / "model.zip")
    assert (tmp_path / "model.zip").stat().st_size < triangles * 8 + rest
    fitted.save(tmp_path / "both.zip")
    assert (tmp_path / "both.zip").stat().st_size < triangles * (8 + number) + 2 * rest
    assert_same(ClassMoments.load(tmp_path / "moments.zip"), fitted.moments_)
    assert_same(GaussianModel.load(tmp_path / "model.zip"), fitted.model_)


def test_parts_of_large_arrays_fill_up_little(tmp_path):
    for n in (1, 3, 7, 10, 11, 1001):
        array = np.ones((n, 3_000_000 // n))
        storage.write(tmp_path / "it.zip", "odds", {}, {"a": array})
        assert (tmp_path / "it.zip").stat().st_size < 1.1 * array.nbytes + 4096
        np.testing.assert_array_equal(storage.read(tmp_path / "it.zip", "odds")[1]["a"], array)


def test_triangles():
    for d in (1, 2, 3, 10):
        check_triangles(d)
    for size in (2, 4, 5, 7):
        with pytest.raises(ValueError, match=f"{size} numbers do not fill a triangle of a matrix"):
            storage.unpack_triangles(np.zeros((1, size)))


def check_triangles(d):
    matrices = np.random.default_rng(0).normal(size=(4, d, d))
    packed = storage.pack_triangles(matrices)
    assert packed.shape == (4, d * (d + 1) // 2)
    np.testing.assert_array_equal(storage.unpack_triangles(packed), np.tril(matrices), strict=True)


@pytest.mark.parametrize("shape", [(5,), (2, 4), (2, 3, 3), (3, 3)])
def test_arrays_that_are_no_triangles_are_reported(tmp_path, shape):
    attributes, arrays = state_of(some_moments())
    storage.write(tmp_path / "it", "moments", attributes, arrays | {"scatter": np.zeros(shape)})
    with pytest.raises(FormatError, match="damaged"):
        ClassMoments.load(tmp_path / "it")
    attributes, arrays = state_of(GaussianDiscriminantAnalysis().fit(*blobs()).model_)
    storage.write(tmp_path / "model", "model", attributes, arrays | {"roots": np.zeros(shape)})
    with pytest.raises(FormatError, match="damaged"):
        GaussianModel.load(tmp_path / "model")


# --- replacing in one step --------------------------------------------------------------------


def test_a_directory_that_cannot_be_moved_leaves_the_old_one(tmp_path, monkeypatch):
    path, partial = tmp_path / "there", tmp_path / "there.new"
    for folder in (path, partial):
        folder.mkdir()
        (folder / "name").write_text(folder.name)
    replace = Path.replace

    def failing(self, target):
        if self == partial:
            raise OSError("another file system")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", failing)
    monkeypatch.setattr(replacement, "exchange", lambda *paths: False)
    with pytest.raises(OSError, match="another file system"):
        move_into_place(partial, path)
    assert (path / "name").read_text() == "there"
    assert len(list(tmp_path.iterdir())) == 2


def test_two_writers_do_not_share_a_temporary_name(tmp_path):
    with replacing(tmp_path / "file") as first, replacing(tmp_path / "file") as second:
        assert first != second
        first.write_text("first")
        second.write_text("second")
    assert (tmp_path / "file").read_text() == "first"  # it left last
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
