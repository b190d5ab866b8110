"""Saving and loading: bit for bit, or with an error that says what is wrong."""

import json
import os
import pickle
import threading
from pathlib import Path

import numpy as np
import pytest
import zarr
from moment_checks import assert_same, some_moments

from streamgda import (
    DriftMonitor,
    GaussianDiscriminantAnalysis,
    GaussianModel,
    GaussianNB,
    SlidingWindow,
)
from streamgda.errors import SourceError
from streamgda.moments import ClassMoments
from streamgda.storage import format as storage_format
from streamgda.storage import replacing as replacement
from streamgda.storage.format import pack_labels, unpack_labels
from streamgda.storage.replacing import move_into_place, replacing

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
        assert storage_format.kind_of(store) == "moments"
    assert not [path for path in tmp_path.rglob("*") if "partial" in path.name]


def test_groups_inside_a_group_are_each_other_s_neighbours():
    root = zarr.create_group(zarr.storage.MemoryStore(), attributes={"mine": 1})
    first, second = some_moments(), some_moments("diag", "uint8")
    first.save(root.create_group("first"))
    second.save(root.create_group("second"))
    first.save(root["first"])  # does not touch the second
    assert_same(ClassMoments.load(root["first"]), first)
    assert_same(ClassMoments.load(root["second"]), second)
    assert root.attrs["mine"] == 1


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS.keys())
def test_any_labels(tmp_path, labels):
    moments = some_moments(labels=labels)
    moments.save(tmp_path / "moments.zip")
    loaded = ClassMoments.load(tmp_path / "moments.zip")
    assert_same(loaded, moments)
    packed = json.loads(json.dumps(pack_labels(moments.classes)))
    assert unpack_labels(packed).tolist() == moments.classes.tolist()


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
    storage_format.write(tmp_path / "it", "odds", attributes, arrays)
    _, read, loaded = storage_format.read(tmp_path / "it", "odds")
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


def test_a_file_is_on_the_disk_before_it_replaces_another(tmp_path, monkeypatch):
    events, fsync, replace = [], os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda file: events.append("fsync") or fsync(file))
    monkeypatch.setattr(Path, "replace", lambda *paths: events.append("replace") or replace(*paths))
    with replacing(tmp_path / "file") as partial:
        partial.write_text("new")
    assert events == ["fsync", "replace"]


def test_a_link_stays_a_link(tmp_path):
    some_moments().save(tmp_path / "there")
    (tmp_path / "link").symlink_to(tmp_path / "there")
    some_moments("diag").save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert ClassMoments.load(tmp_path / "there").covariance_type == "diag"


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
    for n in (1, 7, 1001):
        array = np.ones((n, 3_000_000 // n))
        storage_format.write(tmp_path / "it.zip", "odds", {}, {"a": array})
        assert (tmp_path / "it.zip").stat().st_size < 1.1 * array.nbytes + 4096
        np.testing.assert_array_equal(
            storage_format.read(tmp_path / "it.zip", "odds")[2]["a"], array
        )


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


@pytest.mark.parametrize("name", ["rows", "notes", "notes.zip", "folder"])
def test_what_was_not_saved_is_not_replaced(tmp_path, name):
    path = tmp_path / name
    if name == "rows":
        zarr.create_group(path).create_array("X", data=np.eye(3))
    elif name == "folder":
        path.mkdir()
        (path / "precious").write_text("once only")
    else:
        path.write_text("once only")
    before = [file.read_bytes() for file in sorted(tmp_path.rglob("*")) if file.is_file()]
    with pytest.raises(SourceError, match=rf"{name} holds something else .*choose another path"):
        some_moments().save(path)
    assert before == [file.read_bytes() for file in sorted(tmp_path.rglob("*")) if file.is_file()]
    for empty in ("empty", "empty.zip"):
        (tmp_path / empty).mkdir()
        some_moments().save(tmp_path / empty)
        assert_same(ClassMoments.load(tmp_path / empty), some_moments())


LEARNING = {
    "moments": ClassMoments,
    "window": lambda: SlidingWindow(2),
    "monitor": lambda: DriftMonitor(some_moments(), window=100),
    "estimator": GaussianNB,
}


@pytest.mark.parametrize("name", LEARNING)
def test_another_thread_learns_after_the_state_is_written(name, monkeypatch):
    """Large states change in place: a file could hold half of what was added."""
    held, waited = LEARNING[name](), []
    learn = getattr(held, "partial_fit", None) or held.update
    rows = np.eye(4, 3), np.array([3, -1, 3, 7])
    learn(*rows)

    def slowly(store, kind, attributes, arrays):
        thread = threading.Thread(target=learn, args=rows)
        thread.start()
        thread.join(0.2)
        waited.append((thread, thread.is_alive()))

    monkeypatch.setattr("streamgda.storage.saved.write", slowly)
    held.save({})
    ((thread, alive),) = waited
    thread.join()
    assert alive


@pytest.mark.parametrize("name", LEARNING)
def test_pickles_and_copies_wait_for_threads_that_learn(name):
    held = LEARNING[name]()
    (getattr(held, "partial_fit", None) or held.update)(np.eye(4, 3), np.array([3, -1, 3, 7]))
    with held._locked():
        thread = threading.Thread(target=pickle.dumps, args=(held,))
        thread.start()
        thread.join(0.1)
        assert thread.is_alive()
    thread.join()


def test_what_was_saved_in_memory_does_not_change_with_the_object():
    moments, store = ClassMoments().update(np.eye(40), np.arange(40) % 2), {}
    moments.save(store)
    moments.update(np.ones((4, 40)), np.arange(4) % 2)
    assert ClassMoments.load(store).class_count.tolist() == [20, 20]
