"""Saved files changed by accident or malice: an error of streamgda, or the original content.

A case changes a saved object in one or a few places. Unless it updates the checksums too, loading
must fail or return the saved object to the bit. Otherwise loading may return something else, which
must be well-formed.
"""

import functools
import json
import os
import random
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
import zarr
from zarr.buffer.cpu import Buffer

import streamgda
from streamgda import (
    ClassMoments,
    GaussianDiscriminantAnalysis,
    GaussianModel,
    GaussianNB,
    ThresholdClassifier,
    storage,
)
from streamgda.errors import FormatError, SourceNotFoundError
from streamgda.storage.saved import state_of

THOROUGH = os.environ.get("STREAMGDA_TESTS") == "thorough"
# Of each saved thing, twice.
N_CASES = int(os.environ.get("STREAMGDA_FUZZ_CASES", "200" if THOROUGH else "40"))
NASTY = [
    *(None, True, False, 0, 1, -1, 2, 255, 2**31, 2**63, -(2**63), 10**30, 0.5, -0.0, 1e308),
    *(float("nan"), float("inf"), "", "x", "a" * 1000, "\0", "..", "../count", "/dev/zero", "full"),
    *("diag", "<f8", "|O", "|V8", "<i8", "|S9", "<U2000000000", "<f16", "<M8", "<M8[Y]", "f4,i8"),
    *("os.system", "GaussianNB", "numcodecs.pickle", "group", "zstd", [], [[]], [0], [1], [3, 3]),
    *([2**40, 2**40], [-1], ["b", "a"], [None], [1e400], {}, {"name": "zstd"}, {"a": [{}]}),
]


def subjects():
    """A maker and a loader for each saved thing; they run when asked for, as kernels compile."""
    random_rows = np.random.default_rng(0)
    X = random_rows.normal(size=(24, 3))
    names, numbers = np.array(["b", "a", "cc"] * 8), np.arange(24) % 3
    dates = numbers.astype("M8[D]")
    ints = random_rows.integers(0, 255, (24, 3)).astype(np.uint8)

    def gda():
        return GaussianDiscriminantAnalysis(reg_param=0.1).fit(X, names)

    def rule():
        costs = {"cost": [[0, 2], [1, 0]], "class_weight": {"a": 2, "b": 1}}
        return ThresholdClassifier(GaussianNB(), **costs).fit(X, names > "a")

    def nb():
        return GaussianNB(priors=[0.2, 0.3, 0.5]).fit(ints, names.astype("S2"))

    return {
        "moments": (lambda: ClassMoments().update(X, names, np.arange(24.0)), ClassMoments.load),
        "exact": (lambda: ClassMoments("tied").update(ints, numbers), ClassMoments.load),
        "diag": (lambda: ClassMoments("diag").update(ints.astype("i2"), dates), ClassMoments.load),
        "model": (lambda: gda().model_, GaussianModel.load),
        "gda": (gda, streamgda.load),
        "threshold": (rule, streamgda.load),
        "nb": (nb, streamgda.load),
    }


SUBJECTS = subjects()
EVERY_SUBJECT = pytest.mark.parametrize("name", SUBJECTS)


@functools.cache
def subject(name):
    """An object to save, and its loader."""
    make, load = SUBJECTS[name]
    return make(), load


def files_of(saved):
    """The files that saving writes, by key."""
    held = {}
    saved.save(zarr.storage.MemoryStore(held))
    return {key: value.to_bytes() for key, value in held.items()}


def meaning(loaded):
    """The content of the loaded object, as bytes."""
    attributes, arrays = state_of(loaded)
    plain = {name: [a.dtype.str, a.shape, a.tobytes().hex()] for name, a in arrays.items()}
    return json.dumps([attributes, plain], sort_keys=True)


# --- changes: each takes the files and a source of chance, and changes some in place -----------


def flip(files, chance):
    key = chance.choice(sorted(files))
    for _ in range(chance.choice([1, 1, 1, 4])):
        if files[key]:
            data = bytearray(files[key])
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            files[key] = bytes(data)


def cut(files, chance):
    key = chance.choice(sorted(files))
    files[key] = files[key][: chance.randrange(len(files[key]) + 1)]


def lengthen(files, chance):
    files[chance.choice(sorted(files))] += chance.randbytes(chance.choice([1, 8, 100]))


def remove(files, chance):
    del files[chance.choice(sorted(files))]


def swap(files, chance):
    a, b = chance.choice(sorted(files)), chance.choice(sorted(files))
    files[a], files[b] = files[b], files[a]


def overwrite(files, chance):
    key = chance.choice(sorted(files))
    noise = [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"[" * 10**5,
        b"1" * 10**5,
        b"\xff\xfe",
        chance.randbytes(64),
    ]
    files[key] = chance.choice(noise)


def edit(files, chance, sealed=False):
    key = chance.choice([key for key in sorted(files) if key.endswith("zarr.json")])
    key = "zarr.json" if sealed else key
    try:
        tree = json.loads(files[key])
    except (ValueError, RecursionError):  # was changed before
        return
    places = list(walk(tree["attributes"][storage.FORMAT] if sealed else tree))
    if not places:
        return
    holder, at = chance.choice(places)
    change = chance.randrange(4)
    if change == 0:
        del holder[at]
    elif change == 1 and isinstance(holder, list):
        holder.append(chance.choice(NASTY))
    elif change == 2:
        other, there = chance.choice(places)
        if there in other if isinstance(other, dict) else there < len(other):
            holder[at] = json.loads(json.dumps(other[there]))
    else:
        holder[at] = chance.choice(NASTY)
    if sealed:
        head = tree["attributes"][storage.FORMAT]
        head.pop("checksum", None)
        head["checksum"] = storage.checksum_of(head)
    files[key] = json.dumps(tree).encode()


def edit_and_seal(files, chance):
    edit(files, chance, sealed=True)


def change_numbers_and_seal(files, chance):
    """Change the values of an array, and update its checksum."""
    tree = json.loads(files["zarr.json"])
    head = tree["attributes"][storage.FORMAT]
    name = chance.choice(sorted(head["arrays"]))
    key = next(key for key in sorted(files) if key.startswith(f"{name}/c"))
    dtype = np.dtype(head["arrays"][name][1])
    values = np.frombuffer(files[key], dtype).copy()
    if dtype.kind == "f":
        changed = chance.choice([0, 1, -1, 7, np.nan, np.inf, 1e308])
    else:
        limits = np.iinfo(dtype)
        changed = chance.choice([0, 1, 7, int(limits.min), int(limits.max)])
    values[chance.randrange(values.size)] = changed
    files[key] = values.tobytes()
    head["arrays"][name][2] = zlib.crc32(files[key])
    del head["checksum"]
    head["checksum"] = storage.checksum_of(head)
    files["zarr.json"] = json.dumps(tree).encode()


def walk(tree):
    """Each place in a JSON tree, as its container and its key or index there."""
    if not isinstance(tree, dict | list):
        return
    for at in list(tree) if isinstance(tree, dict) else range(len(tree)):
        yield tree, at
        yield from walk(tree[at])


ANY = [flip, cut, lengthen, remove, swap, overwrite, edit]
SEALED = [edit_and_seal, change_numbers_and_seal]


def check(load, store, wanted):
    """Return True if loading raises an error of ours, False if it gives the object to the bit."""
    try:
        loaded = load(store)
    except (FormatError, SourceNotFoundError):
        return True
    if wanted is not None:
        assert meaning(loaded) == wanted
    else:
        meaning(loaded)
    return False


@pytest.mark.thorough
@EVERY_SUBJECT
@pytest.mark.parametrize("sealed", [False, True], ids=["damaged", "sealed"])
def test_in_memory(name, sealed):
    saved, load = subject(name)
    files, wanted = files_of(saved), meaning(saved)
    assert not check(load, memory(files), wanted)
    refused = 0
    for seed in range(N_CASES):
        chance, changed = random.Random(f"{name} {seed}"), dict(files)
        for _ in range(1 if sealed else chance.choice([1, 1, 2])):
            if changed:
                chance.choice(SEALED if sealed else ANY)(changed, chance)
        refused += check(load, memory(changed), None if sealed else wanted)
    assert refused > N_CASES / (3 if sealed else 2)  # most integers could be sums


def memory(files):
    return zarr.storage.MemoryStore({k: Buffer.from_bytes(v) for k, v in files.items()})


@pytest.mark.thorough
@EVERY_SUBJECT
def test_zip_files(name, tmp_path):
    saved, load = subject(name)
    saved.save(tmp_path / "whole.zip")
    whole, wanted = (tmp_path / "whole.zip").read_bytes(), meaning(saved)
    refused = 0
    for seed in range(N_CASES // 3):
        chance, changed = random.Random(seed), {"zip": whole}
        chance.choice([flip, flip, flip, cut, lengthen])(changed, chance)
        (tmp_path / "changed.zip").write_bytes(changed["zip"])
        refused += check(load, tmp_path / "changed.zip", wanted)
    assert refused > N_CASES / 12


def write_directory(path, files):
    for key, value in files.items():
        (path / key).parent.mkdir(parents=True, exist_ok=True)
        (path / key).write_bytes(value)
    return path


def test_directories(tmp_path):
    saved, load = subject("moments")
    files, wanted = files_of(saved), meaning(saved)
    for seed in range(N_CASES // 6):
        chance, changed = random.Random(seed), dict(files)
        chance.choice(ANY)(changed, chance)
        check(load, write_directory(tmp_path / str(seed), changed), wanted)


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
    saved, load = subject("moments")
    path = write_directory(tmp_path / "saved", files_of(saved))
    become(path / key)
    with pytest.raises(FormatError, match="is not a regular file within the directory"):
        load(path)


def test_arrays_lie_inside(tmp_path):
    """A name that leads out of the directory is not followed, even if all else is valid."""
    saved, load = subject("moments")
    write_directory(tmp_path / "other", files_of(saved))
    for out in ("../other/mean", str(tmp_path / "other" / "mean"), "inner/../mean", "link/mean"):
        files = files_of(saved)
        tree = json.loads(files["zarr.json"])
        head = tree["attributes"][storage.FORMAT]
        head["arrays"][out] = head["arrays"].pop("mean")
        del head["checksum"]
        head["checksum"] = storage.checksum_of(head)
        path = write_directory(tmp_path / str(zlib.crc32(out.encode())), files)
        (path / "zarr.json").write_text(json.dumps(tree))
        (path / "link").symlink_to(tmp_path / "other")
        with pytest.raises(FormatError):
            load(path)


def zip_of(path, members, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for key, value in members:
            archive.writestr(key, value)
    return path


def test_zip_files_of_others_are_refused(tmp_path):
    saved, load = subject("moments")
    members = list(files_of(saved).items())
    assert not check(load, zip_of(tmp_path / "plain.zip", members), meaning(saved))
    packed = zip_of(tmp_path / "packed.zip", members, zipfile.ZIP_DEFLATED)
    with pytest.warns(UserWarning, match="Duplicate name"):
        twice = zip_of(tmp_path / "twice.zip", [*members, members[0]])
    for path in (packed, twice):
        with pytest.raises(FormatError, match="members that are compressed, repeated or too long"):
            load(path)


# --- bombs: small files that claim to be large -------------------------------------------------

BOMB_ROWS = 1 << 30  # of 8 bytes
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


def bomb(files, change):
    """Files with a changed description and a valid checksum."""
    tree = json.loads(files["zarr.json"])
    head = tree["attributes"][storage.FORMAT]
    change(head)
    del head["checksum"]
    head["checksum"] = storage.checksum_of(head)
    return files | {"zarr.json": json.dumps(tree).encode()}


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peaks are read from /proc")
def test_bombs(tmp_path):
    """A process that loads them never allocates much memory."""
    files = files_of(subject("moments")[0])
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
        "fill": bomb(files, claim) | as_claimed(),
        "codec": bomb(files, claim) | as_claimed(codecs=zstd),
        "voids": bomb(files, claim) | as_claimed(data_type=voids, fill_value="AA=="),
        "long": bomb(files, lambda head: head["arrays"].update(count=[[1 << 50], "<f8", 0])),
        "labels": bomb(files, wide_labels),
        "consolidated": {"zarr.json": json.dumps(group).encode()},
        "deep": files | {"zarr.json": b'{"attributes":' + b"[" * 10**6},
    }
    for name, changed in bombs.items():
        bombs[name] = str(write_directory(tmp_path / name, changed))
    deflated = zip_of(
        tmp_path / "deflated.zip",
        [("zarr.json", files["zarr.json"]), ("mean/c/0/0", bytes(1 << 26))],
        zipfile.ZIP_DEFLATED,
    )
    good = write_directory(tmp_path / "good", files)
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(good), *bombs.values(), str(deflated)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(bombs) + 1, done.stdout
    for line in lines:
        assert int(line.split()[0]) < 64 << 20, line
