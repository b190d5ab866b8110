"""Replacing files and folders: several writers, left-overs, errors that name the path."""

import contextlib
import errno
import gc
import os
import shutil
import signal
import subprocess
import sys
import threading
from _thread import get_ident
from functools import cache
from pathlib import Path

import dask
import dask.array as da
import pytest
import zarr
from stops import Rows, X, Y, stopped

from streamgda import Checkpoint, ClassMoments, GaussianNB, accumulate
from streamgda.datasets import convert
from streamgda.errors import CheckpointError, InvalidParameterError, SourceError
from streamgda.storage import format as storage_format
from streamgda.storage import guards
from streamgda.storage import replacing as replacement
from streamgda.storage.guards import replaced_group
from streamgda.storage.replacing import exchange, exists, move_into_place, replacing

resource = pytest.importorskip("resource")

pytestmark = pytest.mark.usefixtures("small_slabs")


@cache  # when a test needs them: they compile kernels
def moments(n):
    return ClassMoments("diag").update(X[:n], Y[:n])


def save_few(path):
    moments(100).save(path)


def save_many(path):
    moments(300).save(path)


@pytest.fixture(params=[True, False], ids=["exchanging", "in two steps"])
def exchanging(request, monkeypatch):
    """Systems that exchange two directories in one step, and others."""
    if not request.param:
        monkeypatch.setattr(replacement, "exchange", lambda *paths: False)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


# --- several writers ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["m", "m.zip"])
@pytest.mark.usefixtures("exchanging")
def test_the_old_or_the_new_model_is_there_while_threads_save(tmp_path, monkeypatch, name):
    monkeypatch.setattr(replacement, "_PATIENCE", 300.0)  # however slow a writer is
    path, errors = tmp_path / name, []
    save_few(path)

    def work(call):
        try:
            for _ in range(8):
                call()
        except Exception as error:
            errors.append(error)

    def load():
        assert ClassMoments.load(path).class_count.sum() in (100, 300)

    calls = [lambda: save_few(path), lambda: save_many(path), load, load]
    workers = [threading.Thread(target=work, args=(call,)) for call in calls]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert errors == []
    load()
    assert names(tmp_path) == [name]


def in_batches(rows, path):
    return accumulate(((rows[i : i + 30], Y[i : i + 30]) for i in (0, 30)), checkpoint=path)


def in_dask(rows):
    return da.from_array(rows, chunks=100, name=False, meta=X[:0])


RESUMED = {
    "rows": lambda rows, path: accumulate(rows, Y, checkpoint=path),
    "groups": lambda rows, path: accumulate(rows, Y, groups=Y, checkpoint=path),
    "batches": in_batches,
    "dask": lambda rows, path: accumulate(in_dask(rows), Y, checkpoint=path),
    "scores": lambda rows, path: GaussianNB().fit(X, Y).predict(rows, out=path),
    "scores of dask": lambda rows, path: GaussianNB().fit(X, Y).predict(in_dask(rows), out=path),
}


@pytest.mark.parametrize("what", RESUMED)
def test_what_is_resumed_has_one_writer(tmp_path, what):
    """A second run is refused while the first one lives, and the first is not disturbed."""
    run, path, refused = RESUMED[what], tmp_path / "kept", []

    class Asking(Rows):
        ndim = 2

        def __getitem__(self, rows):
            if not refused:
                refused.append(1)
                with pytest.raises((CheckpointError, SourceError), match="kept is being written"):
                    run(X, path)
            return self.array[rows]

    with dask.config.set(scheduler="synchronous"):
        run(Asking(), path)
    assert refused == [1]
    assert names(tmp_path) == ["kept"]


OTHER = """
import sys
from streamgda import Checkpoint
from streamgda.errors import CheckpointError
try:
    Checkpoint(sys.argv[1])
except CheckpointError as error:
    print(f"CheckpointError: {error}", flush=True)
input()
print(Checkpoint(sys.argv[1]).offset)
"""


@pytest.mark.slow
def test_the_checkpoint_of_a_stream_has_one_process(tmp_path):
    """Within a process, the one that saved last goes on: another was started over meanwhile."""
    path = tmp_path / "kept"
    opened = Checkpoint(path)
    opened.save(moments(100), 1)
    other = subprocess.Popen(
        [sys.executable, "-c", OTHER, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    refused = f"CheckpointError: {path} is in use by process {os.getpid()}"
    assert other.stdout.readline().startswith(refused)
    again = Checkpoint(path)
    assert again.offset == 1
    again.save(moments(300), 2)
    with pytest.raises(CheckpointError, match="was saved by another run since this one opened it"):
        opened.save(moments(100), 2)
    del opened
    assert Checkpoint(path).offset == 2
    again.save(moments(100), 3)
    del again
    assert names(tmp_path) == ["kept"]
    assert other.communicate("go on", timeout=300)[0] == "3\n"


ORPHAN = """
import os, signal, sys
from streamgda import Checkpoint, ClassMoments
from streamgda.errors import CheckpointError
checkpoint = Checkpoint(sys.argv[1])
if os.fork():
    os.kill(os.getpid(), signal.SIGKILL)
input()
try:
    checkpoint.save(ClassMoments(), 1)
except CheckpointError as error:
    print(error)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_children_that_outlive_a_killed_process_do_not_hold_its_locks(tmp_path):
    path, pipes = tmp_path / "kept", {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, "-c", ORPHAN, path], text=True, **pipes)
    assert process.wait(300) == -signal.SIGKILL
    checkpoint = Checkpoint(path)
    checkpoint.save(moments(100), 7)
    refused = f"{path} is in use by process {os.getpid()}"
    assert process.communicate("go on\n", timeout=300)[0].startswith(refused)
    assert Checkpoint(path).offset == 7
    del checkpoint
    assert names(tmp_path) == ["kept"]


def test_a_conversion_does_not_replace_what_appeared_meanwhile(tmp_path):
    for name in ("rows", "rows.zip"):

        def batches(path=tmp_path / name):
            yield X[:10], Y[:10]
            convert(X, path, labels=Y)
            yield X[10:20], Y[10:20]

        with pytest.raises(InvalidParameterError, match="exists: overwrite=True"):
            convert(batches(), tmp_path / name)
        assert convert(tmp_path / name, zarr.storage.MemoryStore())["X"].shape == X.shape
    assert names(tmp_path) == ["rows", "rows.zip"]


@pytest.mark.parametrize("version", [2, 3])
def test_files_are_not_written_into_stores_of_zarr(tmp_path, version):
    group = zarr.open_group(tmp_path / "rows.zarr", mode="w", zarr_format=version)
    array = group.create_array("X", data=X)
    before = sorted((tmp_path / "rows.zarr").rglob("*"))
    nb = GaussianNB().fit(X, Y)
    for place in ("m.zip", "X/m.zip", "X/m", "other/m.zip"):
        with pytest.raises(SourceError, match="is within the zarr"):
            nb.save(tmp_path / "rows.zarr" / place)
    for place in ("labels.csv", "X/labels"):
        with pytest.raises(SourceError, match="is within the zarr"):
            nb.predict(array, out=tmp_path / "rows.zarr" / place)
    with pytest.raises(CheckpointError, match="is within the zarr"):
        accumulate(array, Y, checkpoint=tmp_path / "rows.zarr" / "sums.zip")
    assert sorted((tmp_path / "rows.zarr").rglob("*")) == before
    nb.predict(array, out=tmp_path / "rows.zarr" / "labels")
    nb.save(tmp_path / "rows.zarr" / "model")
    assert sorted(GaussianNB.load(tmp_path / "rows.zarr" / "model").classes_) == sorted(set(Y))


# --- left-overs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["m", "m.zip"])
def test_left_overs_are_removed_and_those_of_others_stay(tmp_path, name):
    save_few(tmp_path / name)
    other = ["m.zip.partial", f"{name}.20240101.old", f"{name}.lock", "m.old"]
    other.append("m.zip.zip.streamgda-01234567.partial")
    for what in ("01234567.partial", "01234567.lock", "89abcdef.old"):
        (tmp_path / f"{name}.streamgda-{what}").write_text("half")
    (tmp_path / f"{name}.streamgda-fedcba98.partial").mkdir()
    (tmp_path / f"{name}.streamgda-fedcba98.partial" / "zarr.json").write_text("{}")
    for file in other:
        (tmp_path / file).write_text("of something else")
    with replacing(tmp_path / name) as live:
        live.mkdir()
        save_few(tmp_path / name)
        number = live.name.split(".")[-2]
        alive = [f"{name}.{number}.lock", f"{name}.{number}.partial"]
        assert names(tmp_path) == sorted([*other, *alive, name])
        save_many(live)
    assert names(tmp_path) == sorted([*other, name])


@pytest.mark.parametrize("read", [ClassMoments.load, save_few, exists])
def test_old_contents_are_moved_back(tmp_path, read):
    save_few(tmp_path / "m.streamgda-01234567.old")
    (tmp_path / "m.streamgda-01234567.partial").mkdir()
    read(tmp_path / "m")
    assert names(tmp_path) == ["m"]
    assert ClassMoments.load(tmp_path / "m").class_count.sum() == 100


def test_a_reader_waits_for_a_writer_between_two_renames(tmp_path, monkeypatch):
    monkeypatch.setattr(replacement, "_PATIENCE", 300.0)  # however late the writer is
    save_few(tmp_path / "m")
    with replacing(tmp_path / "m") as partial:
        save_many(partial)
        old = partial.with_suffix(".old")
        (tmp_path / "m").rename(old)
        waiting = threading.Timer(0.02, old.rename, [tmp_path / "m"])
        waiting.start()
        assert ClassMoments.load(tmp_path / "m").class_count.sum() == 100
        waiting.join()
    assert ClassMoments.load(tmp_path / "m").class_count.sum() == 300
    assert names(tmp_path) == ["m"]


@pytest.mark.parametrize("kinds", [("file", "folder"), ("folder", "file"), ("folder", "folder")])
@pytest.mark.usefixtures("exchanging")
def test_anything_replaces_anything(tmp_path, kinds):
    for kind, name in zip(kinds, ("old", "new"), strict=True):
        file = tmp_path / name if kind == "file" else tmp_path / name / "file"
        file.parent.mkdir(exist_ok=True)
        file.write_text(name)
    move_into_place(tmp_path / "new", tmp_path / "old")
    assert names(tmp_path) == ["old"]
    assert (tmp_path / "old").is_dir() == (kinds[1] == "folder")


@pytest.mark.skipif(sys.platform not in ("linux", "darwin"), reason="the system cannot")
def test_folders_are_exchanged_in_one_step(tmp_path):
    for name in "ab":
        (tmp_path / name / name).mkdir(parents=True)
    assert exchange(tmp_path / "a", tmp_path / "b")
    assert (names(tmp_path / "a"), names(tmp_path / "b")) == (["b"], ["a"])
    assert not exchange(tmp_path / "a", tmp_path / "c")


# --- errors ---------------------------------------------------------------------------------------


@pytest.fixture
def full_disk():
    """Files cannot grow over one byte, or another size, while the context is entered."""

    @contextlib.contextmanager
    def full(size=1):
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    return full


WRITES = {
    "a zip": ("m.zip", save_many),
    "a folder": ("m", save_many),
    "rows in a zip": ("rows.zip", lambda path: convert(X, path)),
    "rows in a folder": ("rows", lambda path: convert(X, path)),
    "a checkpoint": ("kept", lambda path: accumulate(X, Y, checkpoint=path)),
    "a stream": ("kept", lambda path: Checkpoint(path).save(moments(300), 1)),
    "scores": ("out", lambda path: GaussianNB().fit(X, Y).predict(X, out=path)),
    "a text": ("out.csv", lambda path: GaussianNB().fit(X, Y).predict(X, out=path)),
    "a table": ("out.parquet", lambda path: GaussianNB().fit(X, Y).predict(X, out=path)),
}


@pytest.mark.parametrize("what", WRITES)
def test_a_full_disk_names_the_file(tmp_path, tmp_path_factory, full_disk, what):
    name, write = WRITES[what]
    write(tmp_path_factory.mktemp("written") / name)  # compiled kernels are kept on the disk, too
    with full_disk(), pytest.raises(OSError, match=rf"{tmp_path / name}'$") as full:
        write(tmp_path / name)
    assert full.value.errno == errno.EFBIG
    assert full.value.filename == str(tmp_path / name)
    del full
    gc.collect()  # a checkpoint in the traceback
    assert [left for left in names(tmp_path) if left != "out"] == []
    write(tmp_path / name)
    assert names(tmp_path) == [name]


@pytest.mark.parametrize("what", ["rows", "scores"])
def test_a_full_disk_hides_no_interruption(tmp_path, full_disk, what):
    run, path = RESUMED[what], tmp_path / "kept"
    with contextlib.ExitStack() as disk:

        class Filling(Rows):
            def __getitem__(self, rows):
                if rows.start == 150:
                    disk.enter_context(full_disk(1000))  # which chunks of scores fit
                return super().__getitem__(rows)

        for rows in (Rows(at=90, error=KeyboardInterrupt()), Filling(X, 150, KeyboardInterrupt())):
            with pytest.raises(KeyboardInterrupt) as stop:
                run(rows, path)
            assert "the first 90 rows: run the same call again" in stop.value.__notes__[0]
    rows = Rows()
    run(rows, path)
    assert rows.read[-7:] == [90, 120, 150, 180, 210, 240, 270]


@pytest.mark.parametrize("what", WRITES)
def test_a_place_where_nothing_can_be_written_is_named(tmp_path, what):
    name, write = WRITES[what]
    path = tmp_path / f"{'long' * 62}{Path(name).suffix}"  # temporary names are longer
    if what == "scores":
        path = tmp_path / f"{'long' * 64}"
    with pytest.raises(OSError, match=f"{path}'$") as refused:
        write(path)
    assert refused.value.errno == errno.ENAMETOOLONG
    assert names(tmp_path) == []


def test_a_checkpoint_is_read_where_nothing_can_be_written(tmp_path, monkeypatch):
    Checkpoint(tmp_path / "stream").save(moments(100), 7)
    accumulate(Rows(), Y, checkpoint=tmp_path / "complete")
    stopped(tmp_path / "half")
    for name in ("stream", "complete", "half"):
        (tmp_path / f"{name}.streamgda-01234567.partial.zip").write_text("half")

    def refuse(path, *arguments, **options):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    for method in ("open", "unlink", "mkdir"):
        monkeypatch.setattr(Path, method, refuse)
    assert Checkpoint(tmp_path / "stream").offset == 7
    assert accumulate(Rows(), Y, checkpoint=tmp_path / "complete").class_count.sum() == 300
    rows = Rows()
    with pytest.raises(PermissionError, match=r"half'"):
        accumulate(rows, Y, checkpoint=tmp_path / "half")
    assert len(rows.read) < 10


def test_writes_end_with_the_group(tmp_path):
    with replaced_group(tmp_path / "rows", lambda place: None) as group:
        array = group.create_array("X", data=X)
    shutil.rmtree(tmp_path / "rows")
    with pytest.raises(RuntimeError, match="has ended"):
        array[:] = 1
    assert names(tmp_path) == []


def test_zarr_is_waited_for_where_no_interrupt_arrives(tmp_path, monkeypatch):
    """Otherwise a lock might stay locked, and with it the only thread of zarr."""
    threads = []

    def watch(place, name):
        call = getattr(place, name)
        watched = lambda *given: (threads.append(get_ident()), call(*given))[1]  # noqa: E731
        monkeypatch.setattr(place, name, watched)

    watch(guards._Ending, "end")
    watch(storage_format, "_fill")
    watch(storage_format, "_description")
    with contextlib.suppress(InterruptedError), replaced_group(tmp_path / "m", lambda place: None):
        raise InterruptedError
    save_few(tmp_path / "m")
    ClassMoments.load(tmp_path / "m")
    assert len(threads) == 4
    assert get_ident() not in threads
