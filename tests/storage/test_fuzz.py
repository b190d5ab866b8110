"""Saved files changed by accident or malice: an error of streamgda, or the original content.

`damage.py` makes the cases. Here are a few of each, and those that take files of other kinds.
"""

import json
import os
import struct
import subprocess
import sys
import zipfile
import zlib
from collections import Counter
from pathlib import Path

import pytest
from damage import as_store, meaning, result_of, sealed, subjects
from grids import THOROUGH

from streamgda import storage
from streamgda.errors import FormatError

# Of each subject; tests/damage.py runs 10,000 in all.
N_CASES = 30 if THOROUGH else 5
SUBJECTS = subjects()
MOMENTS = SUBJECTS["moments-full"]


@pytest.mark.thorough
@pytest.mark.parametrize("name", SUBJECTS)
def test_damage(name):
    results = Counter()
    for number in range(N_CASES):
        result, fault = result_of(SUBJECTS[name], number)
        assert not fault, f"{name} --only {number}\n{fault}"
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
    tree["attributes"][storage.FORMAT]["version"] = 3
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
    change(tree["attributes"][storage.FORMAT])
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
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(good), *bombs.values(), str(deflated)],
        env={**os.environ, "MALLOC_ARENA_MAX": "1"},  # threads would reserve memory of their own
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(bombs) + 1, done.stdout
    for line in lines:
        assert int(line.split()[0]) < 64 << 20, line
