"""Importing: names come when they are used, and rooms import in one direction."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from processes import output

import streamgda

PACKAGE = Path(streamgda.__file__).parent


def imports(tree):
    """Modules and names that a file imports, but those within functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif not isinstance(node, ast.FunctionDef):
            yield from imports(node)


def test_rooms_import_in_one_direction_and_nothing_private():
    """A room is a folder of the package; public names come from the package itself."""
    rooms = {}
    for file in PACKAGE.rglob("*.py"):
        room = file.relative_to(PACKAGE).parts[0]
        for name in imports(ast.parse(file.read_text(encoding="utf-8"))):
            library, *inner = name.split(".")
            folder = (*inner, "")[0]  # It is empty for the package itself.
            if library == "streamgda" and (PACKAGE / folder).is_dir() and folder not in ("", room):
                rooms.setdefault(room, set()).add(folder)
            # The module `_thread` is documented.
            elif library not in ("streamgda", "__future__", "_thread"):
                assert not any(part.startswith("_") for part in inner), f"{file}: {name}"
    TopologicalSorter(rooms).prepare()  # A circle raises CycleError.


def test_public_names_are_there():
    """Names that are imported when they are used are those that type checkers find."""
    for name in streamgda.__all__:
        assert getattr(streamgda, name) is not None, name
    assert dir(streamgda) == streamgda.__all__


def test_submodules_are_found_and_other_names_are_not():
    assert streamgda.errors.__name__ == "streamgda.errors"
    with pytest.raises(AttributeError, match="nothing"):
        _ = streamgda.nothing


def test_nothing_is_loaded_before_it_is_used():
    """The version and the options need no library that computes; all names no dask and no zarr."""
    # scikit-learn itself loads pandas and rich where they are installed.
    code = """
import sys
def loaded(before=()):
    print(*{name.split(".")[0] for name in sys.modules if name not in before})
import streamgda.datasets
from streamgda.cli import main
try: main(["--version"])
except SystemExit: loaded()
import numba, scipy.linalg, sklearn.base, sklearn.metrics
before = set(sys.modules)
import streamgda.plots
from streamgda import *
loaded(before)
"""
    version, *lines = output("-W", "error", "-c", code).splitlines()
    assert version == f"streamgda {streamgda.__version__}"
    first, others = (set(line.split()) for line in lines)
    assert "typer" in first
    heavy = {"numba", "llvmlite", "scipy", "sklearn", "rich", "psutil", "asyncio"}
    unused = {"dask", "distributed", "zarr", "matplotlib", "pandas"}
    assert (heavy | unused) & first == set()
    assert (unused | {"rich"}) & others == set()
    assert "streamgda" in others
