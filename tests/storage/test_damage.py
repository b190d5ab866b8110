"""Saved files changed by accident or malice, edited, or not saved by this package.

Loading them is an error that says what is wrong, or gives the original content. `damage.py` makes
cases of every kind; here are a few of each, and those that take files of other kinds.
"""

import copy
import json
import os
import re
import struct
import sys
import zipfile
import zlib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import zarr
from damage import LOADERS, as_store, meaning, result_of, sealed, subjects
from grids import THOROUGH, TIMES
from processes import output

import streamgda
from streamgda import ClassMoments
from streamgda.errors import FormatError, InvalidParameterError, SourceError, SourceNotFoundError
from streamgda.storage import format as storage_format
from streamgda.storage.opening import described

N_CASES = TIMES * (15 if THOROUGH else 3)  # of each subject
SUBJECTS = subjects()
MOMENTS = SUBJECTS["moments-full"]


# --- what is not ours -------------------------------------------------------------------------


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
    for load in (streamgda.load, ClassMoments.load):
        with pytest.raises(SourceNotFoundError, match="nothing does not exist"):
            load(tmp_path / "nothing")


def test_foreign_group(tmp_path):
    zarr.create_group(tmp_path / "group", attributes={"title": "rainfall"})
    zarr.create_group(tmp_path / "clash", attributes={"streamgda": 5})
    zarr.create_group(tmp_path / "other", attributes={"streamgda": {"format": "other"}})
    for path in tmp_path.iterdir():
        with pytest.raises(FormatError, match="a zarr group, but not one that streamgda saved"):
            ClassMoments.load(path)


@pytest.mark.parametrize("version", [0, 2, 5, "3", None])
def test_unknown_version(version):
    tree = json.loads(MOMENTS.files["zarr.json"])
    tree["attributes"][storage_format.FORMAT]["version"] = version
    newer = as_store(sealed(MOMENTS.files, tree))
    match = rf"format version {version!r}; .* reads version 3, 4. Update streamgda"
    with pytest.raises(FormatError, match=match):
        MOMENTS.load(newer)


def test_description_that_does_not_match_its_checksum():
    tree = json.loads(MOMENTS.files["zarr.json"])
    tree["attributes"][storage_format.FORMAT]["attributes"]["n_skipped"] = 5
    with pytest.raises(FormatError, match="its description has another checksum"):
        MOMENTS.load(as_store(MOMENTS.files | {"zarr.json": json.dumps(tree).encode()}))


# --- damage -----------------------------------------------------------------------------------


def test_chunks_that_are_missing_or_cut_are_named():
    others = {key: value for key, value in MOMENTS.files.items() if key != "mean/c/0/0"}
    for files, message in ((others, "is missing"), (others | {"mean/c/0/0": b"cut"}, "does not")):
        with pytest.raises(FormatError, match=f"is damaged.*chunk mean/c/0/0 {message}"):
            MOMENTS.load(as_store(files))


# --- contents with right checksums ------------------------------------------------------------

NAN, INF = np.nan, np.inf


def put(values, **entries):
    """Return a copy of an array in which some entries are others, by their numbers."""
    values = values.copy()
    for at, value in entries.items():
        values.reshape(-1)[int(at[1:])] = value
    return values


def refuse(name, message, attributes=(), **arrays):
    """Check that a file is refused after changes of attributes, by their path, or of arrays."""
    subject = SUBJECTS[name]
    others = copy.deepcopy(subject.attributes)
    for path, value in dict(attributes).items():
        *parents, last = path.split("/")
        holder = others
        for parent in parents:
            holder = holder[int(parent) if isinstance(holder, list) else parent]
        holder[last] = value
    held = dict(subject.arrays)
    for path, change in arrays.items():
        array = path.replace("__", "/")
        held[array] = change(held[array]) if callable(change) else change
    store = as_store(subject.written(others, held))
    with pytest.raises(FormatError, match=message) as caught:
        LOADERS[subject.kind](store)
    assert re.match(r"<MemoryStore|memory://", str(caught.value)), "the message names the file"


@pytest.mark.parametrize(
    ("name", "array", "change", "message"),
    [
        (
            "moments-full",
            "count",
            lambda a: put(a, _0=-1),
            "count holds impossible values",
        ),
        ("moments-full", "count", lambda a: 0 * a + 1e308, "counts of the classes sum to inf"),
        (
            "moments-exact-tied",
            "count",
            lambda a: put(a, _0=1 << 60),
            "counts of the classes",
        ),
        (
            "moments-exact-tied",
            "count",
            lambda a: put(a, _0=1 << 40),
            "rows are never summed",
        ),
        (
            "moments-exact-tied",
            "total",
            lambda a: put(a, _0=1 << 60),
            "total holds impossible",
        ),
        ("moments-spherical", "count", lambda a: a.astype("u8"), "count has shape"),
        ("moments-full", "mean", lambda a: put(a, _1=INF), "mean holds impossible values"),
        ("moments-full", "mean_low", lambda a: a + 1, "more than the rounding error"),
        ("moments-full", "scatter", lambda a: -a, "negative sum of squares"),
        ("moments-norms", "norms", lambda a: -a, "norms has the negative sum of squares"),
        ("pairwise", "pairs", lambda a: -a, "pairs holds impossible values"),
        ("pairwise", "pairs", lambda a: 2 * a, "more pairs than rows"),
        ("pairwise", "products", lambda a: -a, "products has the negative sum of squares"),
        ("pairwise", "means", lambda a: a[:, :2], "means has shape"),
        ("window", "2/count", lambda a: a + 1, "other counts than its blocks"),
        ("model", "features", lambda a: put(a, _0=-1), "features holds impossible values"),
        ("model", "features", lambda a: put(a, _0=2), "not in ascending order"),
        ("model", "means", lambda a: put(a, _0=INF), "means holds impossible values"),
        ("model", "means", lambda a: put(a, _0=NAN), "means holds impossible values"),
        ("model", "roots", lambda a: -a, "roots are not positive"),
        ("model", "log_determinants", lambda a: a + 1, "not those of its roots"),
        ("model", "priors", lambda a: -a, "priors must be non-negative"),
        ("model", "priors", lambda a: put(a, _0=-1), "must be non-negative"),
        ("bernoulli", "log_one", lambda a: -a, "above one"),
        ("bernoulli", "log_one", lambda a: a - 1, "do not sum to one"),
        ("bernoulli", "log_zero", lambda a: put(a, _0=NAN), "log_zero holds impossible"),
        ("bernoulli", "log_one", lambda a: a.astype("f4"), "log_one has shape"),
        ("threshold", "threshold", lambda a: put(a, _1=INF), "no threshold"),
        ("threshold", "threshold", lambda a: a.astype("i8"), "no threshold"),
        ("gda", "model/means", lambda a: a[:, :2], "its arrays do not fit|features"),
    ],
)
def test_arrays_that_cannot_be(name, array, change, message):
    refuse(name, message, **{array.replace("/", "__"): change})


LABELS = {"dtype": "<i8", "values": [0, 1, 2]}


@pytest.mark.parametrize(
    ("name", "attribute", "value", "message"),
    [
        *(("bernoulli", "threshold", value, "threshold is") for value in ({}, "high", [], True)),
        *(("bernoulli", "threshold", value, "threshold is|too large") for value in (NAN, 10**400)),
        ("moments-full", "n_skipped", 1.0, "n_skipped is 1.0, expected a whole number"),
        ("moments-full", "norms", "yes", "norms is 'yes', expected true or false"),
        ("moments-exact-tied", "origin", 7, "rows are never summed about 7"),
        ("moments-exact-tied", "reach", -1, "reach is -1"),
        ("moments-full", "classes", LABELS | {"values": [0, 1, 1]}, "not the sorted labels"),
        ("moments-full", "classes", LABELS | {"values": [0, 1, 2.5]}, "labels are damaged"),
        ("moments-full", "classes", LABELS | {"dtype": "<f8", "values": [0.0, 0.5, 1.0]}, "sorted"),
        ("moments-empty", "classes", LABELS, "it lacks 'scatter'"),
        ("grouped-full", "cells/sharing", 2, "cells are not of 3 groups"),
        ("grouped-full", "cells/covariance_type", "diag", "scatter"),
        ("grouped-full", "classes", LABELS | {"values": [0, 1]}, "classes"),
        ("grouped-full", "groups", LABELS | {"values": [0, 1]}, "groups"),
        ("window", "n_blocks", 2, "blocks of 2"),
        ("window", "older", 99, "older is 99"),
        ("window", "covariance_type", "tied_diag", "blocks are moments of kinds"),
        ("gda", "params/tol", -1, "tol=-1; expected"),
        ("gda", "params/priors", [0.5, 0.4], "sum of the priors"),
        ("gda", "params/ddof", 10**400, "the parameter ddof"),
        ("gda", "params/reg_param", {}, "the parameter reg_param"),
        ("gda", "model/classes", LABELS | {"values": [0, 1, 3]}, "different classes"),
        ("bernoulli-nb", "params/alpha", "x", "alpha='x'; expected"),
        ("bernoulli-nb", "params/class_prior", [-2.0], "class_prior"),
        ("nb", "feature_names", ["a", "b"], "expected a list of 3 strings"),
        ("nb", "feature_names", ["a", "b", 3], "not all strings"),
        ("threshold", "params/cost", [[0, INF], [1, 0]], "cost="),
        ("pass", "done", -1, "done is -1"),
        ("pass", "done", True, "done is True"),
        ("pass", "seen", {}, "its fingerprints are"),
        ("pass", "seen", {"checksum": NAN}, "seen is nan"),
        ("pass", "made_of/nodata", 3, "made_of are not all strings"),
        ("pass", "made_of/covariance_type", "diag", "its moments are of covariance_type"),
        ("slabs", "seen/samples", [[0, 0, 5]], "samples is 0"),
        ("slabs", "seen/slab_rows", 0, "slab_rows is 0"),
        ("dask", "seen/parts", {"0-1": [[INF, 0]]}, "seen is inf"),
    ],
)
def test_attributes_that_cannot_be(name, attribute, value, message):
    refuse(name, message, {attribute: value})


@pytest.mark.parametrize("name", SUBJECTS)
def test_arrays_that_are_missing_or_unknown(name):
    subject = SUBJECTS[name]
    for array in subject.arrays.keys() - {"moments/squares"}:  # which earlier versions lack
        others = {key: value for key, value in subject.arrays.items() if key != array}
        with pytest.raises(
            FormatError, match=r"lacks '|not fit each other|moments are missing|holds '"
        ):
            LOADERS[subject.kind](as_store(subject.written(None, others)))
    others = subject.arrays | {"more": np.zeros(2)}
    if subject.kind not in ("estimator", "checkpoint", "window"):
        with pytest.raises(FormatError, match=r"'more'|lacks '"):
            LOADERS[subject.kind](as_store(subject.written(None, others)))


def test_what_could_not_be_read_again_is_not_saved(tmp_path, monkeypatch):
    moments = ClassMoments.load(as_store(SUBJECTS["moments-full"].files))
    moments.save(tmp_path / "it.zip")
    monkeypatch.setattr("streamgda.storage.format.MOST_METADATA", 1 << 14)
    with pytest.raises(InvalidParameterError, match=r"labels, names and offset take \d+ bytes"):
        moments.save(tmp_path / "it.zip", offset="x" * (1 << 14))
    assert ClassMoments.load(tmp_path / "it.zip").n_features == 3


def test_metadata_that_is_too_long_is_not_described(tmp_path, monkeypatch):
    moments = ClassMoments.load(as_store(SUBJECTS["moments-full"].files))
    for path in (tmp_path / "it", tmp_path / "it.zip"):
        moments.save(path)
    os.truncate(tmp_path / "it" / "zarr.json", 3 << 30)
    with (
        pytest.raises(SourceError, match=r"zarr\.json has 3221225472 bytes, expected at most"),
        described(tmp_path / "it"),
    ):
        pass
    monkeypatch.setattr("streamgda.storage.guards.MOST_METADATA", 1000)
    with (
        pytest.raises(SourceError, match="expected at most 1000"),
        described(tmp_path / "it.zip"),
    ):
        pass


# --- damage at random, and files of other kinds ------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("name", SUBJECTS)
def test_damage(name):
    results = Counter()
    for number in range(N_CASES):
        result, fault = result_of(SUBJECTS[name], number)
        assert not fault, f"{name} {number}\n{fault}"
        results[result] += 1
    assert results["refused"] > N_CASES / 4, results


@pytest.mark.parametrize("name", SUBJECTS)
def test_members_of_another_file_are_noticed(name, tmp_path):
    """Each member alone is taken from a file that differs in its description only."""
    subject, (other, _) = SUBJECTS[name], SUBJECTS[name].twins
    differing = [key for key, value in subject.files.items() if other[key] != value]
    assert len(differing) == 1 + len(subject.arrays)
    for key in differing if len(differing) > 1 else []:
        with pytest.raises(FormatError, match="is damaged"):
            subject.load(as_store(subject.files | {key: other[key]}))
    assert meaning(subject.load(as_store(other)), as_store(other), subject.kind) != subject.meaning


def test_descriptions_of_the_version_without_binding_are_noticed():
    """The description of a file of version 3 does not fit arrays of a later one."""
    tree = json.loads(MOMENTS.files["zarr.json"])
    tree["attributes"][storage_format.FORMAT]["version"] = 3
    older = sealed(MOMENTS.files, tree)
    with pytest.raises(FormatError, match="has attributes"):
        MOMENTS.load(as_store(older))


def write_directory(path, files):
    for key, value in files.items():
        (path / key).parent.mkdir(parents=True, exist_ok=True)
        (path / key).write_bytes(value)
    return path


def as_link(path):
    path.replace(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


def as_device(path):
    path.unlink()
    path.symlink_to("/dev/zero")


def as_pipe(path):
    path.unlink()
    os.mkfifo(path)


def as_directory(path):
    path.unlink()
    path.mkdir()


@pytest.mark.skipif(sys.platform == "win32", reason="has other kinds of files")
@pytest.mark.parametrize("key", ["zarr.json", "mean/zarr.json", "mean/c/0/0"])
@pytest.mark.parametrize("become", [as_link, as_device, as_pipe, as_directory])
def test_only_plain_files_are_read(tmp_path, key, become):
    path = write_directory(tmp_path / "saved", MOMENTS.files)
    become(path / key)
    with pytest.raises(FormatError, match="is not a regular file within the directory"):
        MOMENTS.load(path)


def test_arrays_lie_inside(tmp_path):
    """A name that leads out of the directory is not followed, even if all else is valid."""
    write_directory(tmp_path / "other", MOMENTS.files)
    for out in ("../other/mean", str(tmp_path / "other" / "mean"), "inner/../mean", "link/mean"):

        def rename(head, out=out):
            head["arrays"][out] = head["arrays"].pop("mean")

        path = write_directory(tmp_path / str(zlib.crc32(out.encode())), changed(rename))
        (path / "link").symlink_to(tmp_path / "other")
        with pytest.raises(FormatError):
            MOMENTS.load(path)


def zip_of(path, members, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for key, value in members:
            archive.writestr(key, value)
    return path


def test_zip_files_of_others_are_refused(tmp_path):
    members = list(MOMENTS.files.items())
    plain = zip_of(tmp_path / "plain.zip", members)
    assert meaning(MOMENTS.load(plain), plain, "moments") == MOMENTS.meaning
    packed = zip_of(tmp_path / "packed.zip", members, zipfile.ZIP_DEFLATED)
    with pytest.warns(UserWarning, match="Duplicate name"):
        twice = zip_of(tmp_path / "twice.zip", [*members, members[0]])
    for path in (packed, twice):
        with pytest.raises(FormatError, match="members that are compressed, repeated or too long"):
            MOMENTS.load(path)


# --- bombs: small files that claim to be large -------------------------------------------------

BOMB_ROWS = 1 << 30  # of 8 bytes
HUGE = 3 << 30  # bytes
CHILD = """
import resource, sys
from streamgda import ClassMoments, storage
from streamgda.errors import FormatError

def used():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmPeak"))

ClassMoments.load(sys.argv[1])
before = used()
for path in sys.argv[2:]:
    try:
        ClassMoments.load(path)
    except FormatError as error:
        print(used() - before, path, str(error)[:200].replace("\\n", " "))
"""


def changed(change):
    """Return the files with a changed description and valid checksums."""
    tree = json.loads(MOMENTS.files["zarr.json"])
    change(tree["attributes"][storage_format.FORMAT])
    return sealed(MOMENTS.files, tree)


def huge_zip(path, member=None):
    """Return a zip file with a member, or a table of contents, of gigabytes of zeros."""
    zip_of(path, MOMENTS.files.items())
    with zipfile.ZipFile(path) as archive:
        start = archive.start_dir
    whole = path.read_bytes()
    head, contents, end = whole[:start], bytearray(whole[start:-22]), bytearray(whole[-22:])
    if member is None:
        size, offset = HUGE + len(contents), start
    else:
        size, offset = len(contents), HUGE + start
        entry = contents.index(member.encode()) - 46
        contents[entry + 20 : entry + 28] = struct.pack("<II", HUGE, HUGE)
    end[12:20] = struct.pack("<II", size, offset)
    with path.open("wb") as file:
        file.write(head)
        file.seek(HUGE + start)
        file.write(contents + end)
    return path


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peaks are read from /proc")
@pytest.mark.slow
def test_bombs(tmp_path):
    """A process that loads them never allocates much memory."""
    files = MOMENTS.files
    shape = [3, BOMB_ROWS]

    def claim(head):
        head["arrays"] |= {"mean": [shape, "<f8", 0]}

    def as_claimed(**changes):
        node = json.loads(files["mean/zarr.json"]) | {"shape": shape}
        node["chunk_grid"]["configuration"]["chunk_shape"] = [1, BOMB_ROWS]
        return {"mean/zarr.json": json.dumps(node | changes).encode()}

    def wide_labels(head):
        head["attributes"]["classes"]["dtype"] = "<U400000000"

    zstd = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "zstd"}]
    voids = {"name": "raw_bytes", "configuration": {"length_bytes": 1 << 33}}
    inner = {"node_type": "array", "data_type": voids, "fill_value": "", "shape": [1]}
    nodes = {"kind": "inline", "must_understand": False, "metadata": {"a": inner}}
    group = json.loads(files["zarr.json"]) | {"consolidated_metadata": nodes}
    bombs = {
        "fill": changed(claim) | as_claimed(),
        "codec": changed(claim) | as_claimed(codecs=zstd),
        "voids": changed(claim) | as_claimed(data_type=voids, fill_value="AA=="),
        "long": changed(lambda head: head["arrays"].update(count=[[1 << 50], "<f8", 0])),
        "labels": changed(wide_labels),
        "consolidated": {"zarr.json": json.dumps(group).encode()},
        "deep": files | {"zarr.json": b'{"attributes":' + b"[" * 10**6},
    }
    for name, others in bombs.items():
        bombs[name] = str(write_directory(tmp_path / name, others))
    for key in ("zarr.json", "mean/zarr.json", "mean/c/0/0"):
        folder = write_directory(tmp_path / key.replace("/", "-"), files)
        os.truncate(folder / key, HUGE)
        bombs[key] = str(folder)
    for name, member in (("table", None), ("node", "mean/zarr.json"), ("chunk", "mean/c/0/0")):
        bombs[f"{name}.zip"] = str(huge_zip(tmp_path / f"{name}.zip", member))
    deflated = zip_of(
        tmp_path / "deflated.zip",
        [("zarr.json", files["zarr.json"]), ("mean/c/0/0", bytes(1 << 26))],
        zipfile.ZIP_DEFLATED,
    )
    good = write_directory(tmp_path / "good", files)
    # Threads would reserve memory of their own.
    done = output("-c", CHILD, good, *bombs.values(), deflated, MALLOC_ARENA_MAX="1")
    lines = done.splitlines()
    assert len(lines) == len(bombs) + 1, done
    for line in lines:
        assert int(line.split()[0]) < 64 << 20, line
