"""Compiled kernels: where they are kept, and for which types."""

import shutil
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest
from processes import output

import streamgda
from streamgda import kernels
from streamgda.kernels.blocks import gram

PACKAGE = Path(streamgda.__file__).parent

WITHOUT_FOLDERS = """
from streamgda.kernels import sums
import numpy as np
print(sums.all_below(np.ones(3), 2.0), sums.all_below.stats.cache_path)
"""


@pytest.mark.soak
def test_kernels_work_where_no_folder_can_be_written(tmp_path):
    """A file stands where a folder would have to be, which stops the superuser, too."""
    copy = tmp_path / "site" / "streamgda"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "kernels" / "__pycache__").touch()
    (tmp_path / "home").touch()
    elsewhere = dict.fromkeys(
        ("HOME", "XDG_CACHE_HOME", "LOCALAPPDATA"), str(tmp_path / "home" / "x")
    )
    elsewhere |= {"PYTHONPATH": str(tmp_path / "site"), "NUMBA_CACHE_DIR": ""}
    assert output("-P", "-c", WITHOUT_FOLDERS, **elsewhere).split() == ["True", "None"]


BEYOND = """
import numpy as np
from streamgda.kernels.sums import encode_labels
try:
    print(encode_labels(np.zeros(3, int), 0, np.zeros(1, int), np.zeros(4, int)[:2]))
except IndexError:
    print("checked")
"""


@pytest.mark.soak
def test_kernels_with_checked_indices_are_kept_apart(tmp_path):
    """Writing one number beyond an array, within the memory of a longer one."""
    for checked, out in (("0", "True"), ("1", "checked"), ("0", "True")):
        cache = {"NUMBA_CACHE_DIR": str(tmp_path), "NUMBA_BOUNDSCHECK": checked}
        assert output("-c", BEYOND, **cache).strip() == out


@kernels.kernel
def cached_product(A, C):
    """Compiled by a single test: others that run meanwhile would write the same index."""
    gram(A, C)


@pytest.mark.soak
def test_products_by_blas_are_cached_for_processes_where_it_is_at_another_address(monkeypatch):
    A = np.arange(4.0).reshape(2, 2)
    cached_product(A, A.copy())
    script = (
        "import numpy as np, test_caching as t; A = np.arange(4.0).reshape(2, 2);"
        "C = np.zeros((2, 2)); t.cached_product(A, C);"
        "print(C.tolist(), len(t.cached_product.stats.cache_hits))"
    )
    monkeypatch.syspath_prepend(Path(__file__).parent)
    assert output("-c", script) == "[[4.0, 0.0], [6.0, 10.0]] 1\n"


def test_read_only_arrays_need_no_other_code():
    kernel = kernels.kernel(lambda pair, more: pair[0].sum() + more.sum(), cache=False)
    rows = np.arange(6.0)
    fixed = rows.copy()
    fixed.flags.writeable = False
    for _ in range(2):
        for pair in ((rows, rows), (fixed, rows), (fixed, fixed), (rows, fixed)):
            assert kernel(pair, pair[1]) == 30
    assert len(kernel.signatures) == 1


def test_a_changed_kernel_makes_all_cached_kernels_stale(tmp_path):
    """Numba finds a compiled kernel again by its name, which holds a digest of all sources."""
    for file in (PACKAGE / "kernels").glob("*.py"):
        (tmp_path / file.name).write_bytes(file.read_bytes())

    def name_of_a_kernel():
        spec = spec_from_file_location("kernels", tmp_path / "__init__.py")
        kernels = module_from_spec(spec)
        spec.loader.exec_module(kernels)

        def some():
            pass

        return kernels.kernel(some, cache=False).py_func.__qualname__.rpartition(".")[2]

    before = name_of_a_kernel()
    assert before == name_of_a_kernel()
    with (tmp_path / "tiles.py").open("a") as file:
        file.write("# changed")
    assert before != name_of_a_kernel()
