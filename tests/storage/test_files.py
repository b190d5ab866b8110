"""Files are written aside and moved into place; nothing but saved files is ever replaced."""

import os
import stat
import threading
import traceback

import fsspec.implementations.memory
import numpy as np
import pytest
import zarr
from moment_checks import assert_same, some_moments

import streamgda
from streamgda import ClassMoments, DriftMonitor, GaussianNB, SlidingWindow, datasets, open_store
from streamgda.errors import (
    FormatError,
    InvalidParameterError,
    SourceError,
    SourceNotFoundError,
    StreamGDAError,
    WriteError,
)
from streamgda.storage import files, saved

OLD, NEW = some_moments("diag"), some_moments()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("place", ["it.npz", "it", "it.zip", "not/yet/there.npz", "x" * 255])
def test_any_path(tmp_path, place):
    for path in (tmp_path / place, str(tmp_path / place), f"file://{tmp_path}/{place}"):
        OLD.save(path)
        NEW.save(path)
        assert_same(ClassMoments.load(path), NEW)
    assert len(names((tmp_path / place).parent)) == 1


@pytest.mark.parametrize("place", [{}, 3, None, b"it", "", "s3:/bucket/it.npz", "a\0b"])
def test_other_places_raise(place):
    error = InvalidParameterError if isinstance(place, str) else TypeError
    for use in (NEW.save, ClassMoments.load, streamgda.load):
        with pytest.raises(error, match="path"):
            use(place)


def test_what_cannot_be_loaded(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_text("hello")
    for name, error, message in (
        ("nothing.npz", SourceNotFoundError, r"nothing\.npz does not exist"),
        ("folder", FormatError, "folder is a directory; expected a file"),
        ("text", FormatError, "text: it is not a file that streamgda saved"),
    ):
        with pytest.raises(error, match=message):
            streamgda.load(tmp_path / name)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names on this platform")
def test_what_was_not_saved_is_not_replaced(tmp_path):
    for folder in ("folder", "empty"):
        (tmp_path / folder).mkdir()
    (tmp_path / "folder" / "precious").write_text("once only")
    (tmp_path / "text").write_text("once only")
    (tmp_path / "nothing in it").write_text("")
    np.savez(tmp_path / "other.npz", X=np.eye(3))
    os.mkfifo(tmp_path / "pipe")
    before = names(tmp_path)
    for place in before:
        match = f"{place} is not a file that streamgda saved, and would be lost"
        for use in (NEW.save, files.check_place):
            with pytest.raises(SourceError, match=match):
                use(tmp_path / place)
    assert names(tmp_path) == before
    assert (tmp_path / "text").read_text() == "once only"
    (tmp_path / "text").write_bytes(OLD.to_bytes()[:100])  # This file is damaged.
    NEW.save(tmp_path / "text")
    with pytest.raises(ValueError, match="not fitted"):
        GaussianNB().save(tmp_path / "text")
    assert_same(ClassMoments.load(tmp_path / "text"), NEW)


def test_where_nothing_can_be_written(tmp_path):
    (tmp_path / "text").write_text("")
    for use in (NEW.save, files.check_place):
        with pytest.raises(OSError, match="text"):
            use(tmp_path / "text" / "it.npz")
    with pytest.raises(OSError, match="nowhere"):
        NEW.save("/proc/nowhere/it.npz")


@pytest.mark.skipif(os.name == "nt", reason="Windows lets few users make links")
def test_links_stay_links(tmp_path):
    OLD.save(tmp_path / "there.npz")
    (tmp_path / "link").symlink_to("there.npz")
    (tmp_path / "chain").symlink_to("link")
    (tmp_path / "future").symlink_to(tmp_path / "later.npz")
    NEW.save(tmp_path / "chain")
    NEW.save(tmp_path / "future")
    assert all((tmp_path / name).is_symlink() for name in ("link", "chain", "future"))
    assert names(tmp_path) == ["chain", "future", "later.npz", "link", "there.npz"]
    for name in names(tmp_path):
        assert_same(ClassMoments.load(tmp_path / name), NEW)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_modes(tmp_path, umask):
    def mode(name):
        return stat.S_IMODE((tmp_path / name).stat().st_mode)

    before = os.umask(umask)
    try:
        (tmp_path / "other").write_text("")
        NEW.save(tmp_path / "new.npz")
        assert mode("new.npz") == mode("other") == 0o666 & ~umask
        (tmp_path / "new.npz").chmod(0o640)
        NEW.save(tmp_path / "new.npz")
        assert mode("new.npz") == 0o640
    finally:
        os.umask(before)


@pytest.mark.parametrize("step", ["fsync", "replace", "chmod"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_failures_leave_the_old_file(tmp_path, monkeypatch, step, error):
    OLD.save(tmp_path / "it.npz")

    def failing(*_):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(os, step, failing)
        with pytest.raises(type(error)) as raised:
            NEW.save(tmp_path / "it.npz")
    if isinstance(error, OSError):
        assert raised.value.filename == str(tmp_path / "it.npz")
    assert names(tmp_path) == ["it.npz"]
    assert_same(ClassMoments.load(tmp_path / "it.npz"), OLD)


LEARNING = {
    "moments": ClassMoments,
    "window": lambda: SlidingWindow(2),
    "monitor": lambda: DriftMonitor(some_moments(), window=100),
    "estimator": GaussianNB,
}


@pytest.mark.parametrize("name", LEARNING)
def test_another_thread_learns_after_the_state_is_written(name, tmp_path, monkeypatch):
    """Large states change in place: a file could hold half of what was added."""
    held, waited = LEARNING[name](), []
    learn = getattr(held, "partial_fit", None) or held.update
    rows = np.eye(4, 3), np.array([3, -1, 3, 7])
    learn(*rows)

    def slowly(*_):
        thread = threading.Thread(target=learn, args=rows)
        thread.start()
        thread.join(0.2)
        waited.append((thread, thread.is_alive()))

    monkeypatch.setattr(saved, "write", slowly)
    held.save(tmp_path / "it.npz")
    ((thread, alive),) = waited
    thread.join()
    assert alive


# --- URLs -------------------------------------------------------------------------------------


@pytest.fixture
def memory():
    memory = fsspec.filesystem("memory")
    yield memory
    memory.store.clear()


def test_urls(memory, monkeypatch):
    url = "memory://models/it.npz"
    OLD.save(url)
    NEW.save(url, offset=7)
    assert_same(ClassMoments.load(url), NEW)
    assert streamgda.load(url).offset_ == 7
    memory.pipe_file("/models/text", b"once only")

    def failing(*_, **__):
        raise TimeoutError("too slow")

    monkeypatch.setattr(type(memory), "pipe_file", failing)
    for use, place, error, message in (
        (NEW.save, "memory://models/text", SourceError, "is not a file that streamgda"),
        (streamgda.load, "memory://models/text", FormatError, ": it is not a file"),
        (streamgda.load, "memory://models/other", SourceNotFoundError, " does not exist"),
        (streamgda.load, "nothing://rows/it", SourceError, "cannot be read: Protocol not known"),
        (NEW.save, "memory://new", WriteError, "cannot be written: too slow"),
    ):
        with pytest.raises(error, match=f"{place}.*{message}"):
            use(place)


class Vault(fsspec.implementations.memory.MemoryFileSystem):
    """Files that need a key."""

    protocol, store, pseudo_dirs = "vault", {}, [""]

    def __init__(self, *, key="", **options):
        super().__init__(**options)
        if key != "k":
            raise PermissionError("give the key")


def test_options_of_file_systems(tmp_path):
    fsspec.register_implementation("vault", Vault, clobber=True)
    options, (X, y) = {"storage_options": {"key": "k"}}, (np.eye(4, 3), [3, -1, 3, -1])
    store = zarr.storage.FsspecStore.from_url("vault://lab/rows", **options)
    datasets.convert(X, y, store)
    for found, expected in zip(open_store("vault://lab/rows", **options), (X, y), strict=True):
        np.testing.assert_array_equal(found[:], expected)
    model = GaussianNB().fit(X, y)
    model.save("vault://lab/nb.npz", **options)
    model.moments_.save("vault://lab/moments.npz", **options)
    assert_same(ClassMoments.load("vault://lab/moments.npz", **options), model.moments_)
    model = streamgda.load("vault://lab/nb.npz", **options)
    out = zarr.storage.FsspecStore.from_url("vault://lab/predicted", **options)
    model.predict(X, out=out)
    np.testing.assert_array_equal(zarr.open(out)[:], y)
    for use in (open_store, streamgda.load, model.save):
        with pytest.raises(StreamGDAError, match=r"vault://lab/nb.npz cannot be .*give the key"):
            use("vault://lab/nb.npz")
        for place in (tmp_path, str(tmp_path)):
            with pytest.raises(InvalidParameterError, match="storage_options are for URLs"):
                use(place, **options)
    with pytest.raises(InvalidParameterError, match="a table, on this machine"):
        model.predict(X, out="vault://lab/predicted.csv")


def test_commands_take_urls(command, memory):
    datasets.convert(np.eye(4, 3), [3, -1, 3, -1], "memory://lab/rows")
    for words in (
        "fit memory://lab/rows --kind gnb --out memory://lab/m.npz",
        "predict memory://lab/rows --model memory://lab/m.npz --out memory://lab/predicted",
        "evaluate memory://lab/rows --model memory://lab/m.npz",
        "convert memory://lab/rows --out memory://lab/again",
        "info memory://lab/again",
        "info memory://lab/m.npz",
    ):
        assert command(*words.split()).code == 0
    assert zarr.open("memory://lab/predicted")[:].tolist() == [3, -1, 3, -1]


@pytest.mark.parametrize("offset", [5, "a", [1, {"b": None}], {"part": 3}, 0, False])
def test_offsets_come_back(tmp_path, offset):
    for name, make in LEARNING.items():
        held = make()
        (getattr(held, "partial_fit", None) or held.update)(np.eye(4, 3), [3, -1, 3, 7])
        assert held.offset_ is None
        held.save(tmp_path / name, offset=offset)
        loaded = streamgda.load(tmp_path / name)
        assert loaded.offset_ == offset
        loaded.save(tmp_path / name)
        assert streamgda.load(tmp_path / name).offset_ is None


@pytest.mark.parametrize("offset", [{0: 1}, {10: 1, 9: 2}, (1, 2), {1, 2}, np.nan, np.int64(3)])
def test_offsets_that_json_does_not_give_back_raise(tmp_path, offset):
    with pytest.raises(InvalidParameterError, match=r"offset=.* cannot be saved: "):
        NEW.save(tmp_path / "it.npz", offset=offset)
    assert not names(tmp_path)


@pytest.mark.parametrize("kind", [TimeoutError, FileNotFoundError])
@pytest.mark.parametrize("step", ["cat_file", "pipe_file"])
def test_errors_of_urls_hold_no_secret(monkeypatch, step, kind):
    """What stands before the @ of a URL, and its query, may be a key."""
    secret = "".join(["pl4", "nted"])  # The source is in tracebacks.
    url = f"memory://key:{secret}@models/it.npz?sig={secret}"

    def failing(*_, **__):
        raise kind(f"no answer from {url}")

    memory = fsspec.implementations.memory.MemoryFileSystem
    monkeypatch.setattr(memory, step, failing)
    use = NEW.save if step == "pipe_file" else streamgda.load
    with pytest.raises(StreamGDAError) as raised:
        use(url)
    assert secret not in "".join(traceback.format_exception(raised.value))
