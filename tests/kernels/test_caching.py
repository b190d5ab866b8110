"""Compiled kernels: where they are kept, repaired and shared; compiling ahead of time."""

import json
import os
import shutil
import stat
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numba
import numpy as np
import pytest
from processes import output

import streamgda
from streamgda import kernels
from streamgda.kernels import caching

PACKAGE = Path(streamgda.__file__).parent


def twice(x):
    return x + x


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The folder that Numba keeps kernels in."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    caching._temporary_folder.cache_clear()
    yield tmp_path / "cache"
    caching._temporary_folder.cache_clear()


@pytest.fixture
def compiled(cache):
    """Return a kernel as another process would have it."""

    def fresh():
        twice.__qualname__ = "twice"
        return kernels.kernel(twice)

    return fresh


# --- where they are kept ------------------------------------------------------------------------

WITHOUT_FOLDERS = """
import tempfile, warnings
tempfile.tempdir = {!r}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from streamgda.kernels import sums
    import numpy as np
    found = sums.all_below(np.ones(3), 2.0)
print(found, sums.all_below.stats.cache_path)
print(*(warning.message for warning in caught), sep="\\n")
"""


@pytest.mark.slow
def test_a_temporary_folder_where_no_other_can_be_written(tmp_path):
    """A file stands where a folder would have to be, which stops the superuser, too."""
    copy = tmp_path / "site" / "streamgda"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "kernels" / "__pycache__").touch()
    (tmp_path / "home").touch()
    (tmp_path / "temporary").mkdir()
    elsewhere = dict.fromkeys(
        ("HOME", "XDG_CACHE_HOME", "LOCALAPPDATA"), str(tmp_path / "home" / "x")
    )
    elsewhere |= {"PYTHONPATH": str(tmp_path / "site"), "NUMBA_CACHE_DIR": ""}
    for temporary in (tmp_path / "temporary", tmp_path / "home"):
        program = WITHOUT_FOLDERS.format(str(temporary))
        first, *warned = output("-P", "-c", program, **elsewhere).splitlines()
        found, folder = first.split()
        assert found == "True"
        assert len(warned) == 1
        assert "set NUMBA_CACHE_DIR to a folder" in warned[0]
        if temporary.is_dir():
            assert Path(folder).is_relative_to(temporary)
            assert str(next(temporary.iterdir())) in warned[0]
            assert list(Path(folder).glob("sums.all_below*.nbc"))
        else:
            assert folder == "None"


BEYOND = """
import numpy as np
from streamgda.kernels.sums import encode_labels
try:
    print(encode_labels(np.zeros(3, int), 0, np.zeros(1, int), np.zeros(4, int)[:2]))
except IndexError:
    print("checked")
"""


@pytest.mark.slow
def test_kernels_with_checked_indices_are_kept_apart(tmp_path):
    """Writing one number beyond an array, within the memory of a longer one."""
    for checked, out in (("0", "True"), ("1", "checked"), ("0", "True")):
        cache = {"NUMBA_CACHE_DIR": str(tmp_path), "NUMBA_BOUNDSCHECK": checked}
        assert output("-c", BEYOND, **cache).strip() == out


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="the folder is the user's on Windows")
@pytest.mark.parametrize("taken", ["", "open to others", "link", "file"])
def test_the_temporary_folder_is_private(tmp_path, monkeypatch, cache, taken):
    """No other user may have made it, because its files are executed."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    usual = tmp_path / f"streamgda-{os.getuid()}"
    match taken:
        case "open to others":
            usual.mkdir()
            usual.chmod(0o770)
        case "link":
            (tmp_path / "target").mkdir(mode=0o700)
            usual.symlink_to(tmp_path / "target")
        case "file":
            usual.touch()
    with pytest.warns(RuntimeWarning, match="NUMBA_CACHE_DIR"):
        folder = Path(caching._temporary_folder())
    if taken == "file":
        assert folder == Path()
        return
    assert (folder == usual) == (not taken)
    found = folder.lstat()
    assert stat.S_ISDIR(found.st_mode)
    assert stat.S_IMODE(found.st_mode) == 0o700
    assert found.st_uid == os.getuid()


def test_files_of_a_folder_that_is_only_readable_are_copied(tmp_path, monkeypatch, compiled, cache):
    """The cache of an image: Numba passes over it where it cannot write to it."""
    assert compiled()(2) == 4

    def refuse(*arguments, dir=None, **options):  # also for the superuser
        if Path(dir).is_relative_to(cache) or Path(dir).is_relative_to(Path(__file__).parent):
            raise PermissionError
        return real(*arguments, dir=dir, **options)

    real = tempfile.TemporaryFile
    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    kernel = compiled()
    assert kernel(3) == 6
    assert not Path(kernel.stats.cache_path).is_relative_to(cache)
    assert sum(kernel.stats.cache_hits.values()) == 1
    assert not kernel.stats.cache_misses


# --- damage, and other processes ----------------------------------------------------------------


@pytest.mark.parametrize("end", ["nbi", "nbc"])
@pytest.mark.parametrize("content", [b"", b"\0" * 1000, b"\x80\x04nonsense", "half"])
def test_damaged_files_are_replaced(compiled, cache, end, content):
    assert compiled()(2) == 4
    (file,) = cache.rglob(f"*.{end}")
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2] if content == "half" else content)
    assert compiled()(3) == 6
    repaired = compiled()
    assert repaired(4) == 8
    assert sum(repaired.stats.cache_hits.values()) == 1


def test_a_file_of_another_signature_is_replaced(compiled, cache):
    """Two processes that compile a kernel at once may choose the same name for two files."""
    assert compiled()(2) == 4
    (file,) = cache.rglob("*.nbc")
    of_integers = file.read_bytes()
    shutil.rmtree(cache)
    assert compiled()(1.5) == 3.0
    file.write_bytes(of_integers)
    assert compiled()(2.5) == 5.0
    repaired = compiled()
    assert repaired(3.5) == 7.0
    assert sum(repaired.stats.cache_hits.values()) == 1


def test_kernels_work_where_they_cannot_be_saved(compiled, monkeypatch):
    kernel = compiled()

    def full(*arguments):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.warns(RuntimeWarning, match="no space left"):
        assert kernel(2) == 4


TOGETHER = """
import json, pathlib, sys, time
import numpy as np
from streamgda.kernels import sums
used = sums.all_below, sums.copy_symmetric
folder, together = pathlib.Path(sys.argv[1]), int(sys.argv[2])
(folder / f"{together} {sys.argv[3]}").touch()
while len(list(folder.glob(f"{together} *"))) < together:
    time.sleep(0.001)
found = []
for dtype in ("float64", "float32"):
    triangle = np.array([[0, 4, 5, 8, 9, 10]], dtype)
    out = np.zeros((1, 3, 3), dtype)
    sums.copy_symmetric(triangle, np.arange(3), out)
    found.append((out.tolist(), sums.all_below(triangle[0], 9.0)))
print(json.dumps([found, sum(sum(kernel.stats.cache_misses.values()) for kernel in used)]))
"""


@pytest.mark.slow
def test_processes_that_compile_at_once(tmp_path):
    """They agree, and leave a cache that a third one uses."""

    def run(n, number):
        cache = str(tmp_path / "cache")
        return json.loads(output("-c", TOGETHER, tmp_path, n, number, NUMBA_CACHE_DIR=cache))

    def found(n):
        with ThreadPoolExecutor(n) as threads:
            return [*threads.map(run, [n] * n, range(n))]

    (one, _), (other, _) = found(2)
    assert one == other
    assert found(1) == [[one, 0]]


# --- signatures ---------------------------------------------------------------------------------


def test_read_only_arrays_need_no_other_code(cache):
    def total(pair, more):
        return pair[0].sum() + more.sum()

    kernel = kernels.kernel(total)
    rows = np.arange(6.0)
    fixed = rows.copy()
    fixed.flags.writeable = False
    for _ in range(2):
        for pair in ((rows, rows), (fixed, rows), (fixed, fixed), (rows, fixed)):
            assert kernel(pair, pair[1]) == 30
    assert len(kernel.signatures) == 1


def test_threads_that_load_a_kernel_at_once(cache, monkeypatch):
    """Each adds the types of its arguments; calls find the code at once afterwards."""
    kernel = kernels.kernel(lambda rows: rows.sum())
    rows = np.arange(6.0)
    rows.flags.writeable = False
    fixed = (numba.typeof(rows),)
    with ThreadPoolExecutor(2) as threads:
        one, other = threads.map(kernel.compile, (fixed, fixed))
    assert one == other
    monkeypatch.setattr(kernel, "compile", None)  # is not called
    assert kernel(rows) == 15
