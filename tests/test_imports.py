"""Imports go downwards only, and importing the package costs no more than it must."""

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import streamgda

PACKAGE = Path(streamgda.__file__).parent

# From the ground up: a room imports from those above it in this list, and from itself.
ROOMS = [
    "errors",
    "kernels",
    "runtime",
    "storage",
    "rows",
    "moments",
    "models",
    "engine",
    "engine.dask",
    "estimators",
    "__init__",  # the public names, which the rooms below may use like anybody else
    "datasets",
    "plots",
    "cli",
]
LEVEL = {room: level for level, room in enumerate(ROOMS)}
COMPILERS = {"jit", "njit", "vectorize", "guvectorize", "cfunc", "stencil"}
COMPILERS |= {"kernel", "fast_kernel", "inline_kernel", "shared_kernel"}

FILES = sorted(PACKAGE.rglob("*.py"))


def room_of(file: Path) -> str:
    return room_of_module(".".join(file.relative_to(PACKAGE).with_suffix("").parts))


def room_of_module(name: str) -> str:
    """The room of a module, by its name within the package."""
    return "engine.dask" if name.startswith("engine.dask") else name.partition(".")[0]


def imports(tree: ast.AST, inside: bool = False) -> Iterator[tuple[str, list[str], bool]]:
    """Module, names taken from it, and whether that is inside of a function."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, [], inside
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here"
            yield node.module, [alias.name for alias in node.names], inside
        else:
            function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from imports(node, inside or function)


def rooms_used(tree: ast.AST) -> Iterator[tuple[str, bool]]:
    for module, names, inside in imports(tree):
        if module.split(".")[0] != "streamgda":
            continue
        path = module.removeprefix("streamgda").lstrip(".")
        for name in names or [""]:
            whole = f"{path}.{name}".strip(".")
            room = room_of_module(whole)
            yield (room if room in LEVEL else "__init__"), inside


def parse(file: Path) -> ast.AST:
    return ast.parse(file.read_text(encoding="utf-8"))


EVERY_FILE = pytest.mark.parametrize(
    "file", FILES, ids=[str(file.relative_to(PACKAGE)) for file in FILES]
)


def test_every_room_has_a_level():
    assert {room_of(file) for file in FILES} == LEVEL.keys()


@EVERY_FILE
def test_imports_go_downwards(file):
    room = room_of(file)
    for used, inside in rooms_used(parse(file)):
        if (room, used) == ("engine", "engine.dask"):
            assert inside, "dask is loaded where it is used"
        elif used != room:
            assert LEVEL[used] < LEVEL[room], f"{room} imports {used}"


@EVERY_FILE
def test_compiled_functions_are_kernels(file):
    tree = parse(file)
    libraries = {module.split(".")[0] for module, _, _ in imports(tree)}
    room = room_of(file)
    if room == "kernels":
        allowed = {"numba", "numpy", "llvmlite", "streamgda"} | sys.stdlib_module_names
        assert libraries <= allowed
        return
    assert "numba" not in libraries or room == "runtime"
    decorators = {
        re.match(r"[\w.]+", ast.unparse(decorator))[0].split(".")[-1]
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        for decorator in node.decorator_list
    }
    assert not decorators & COMPILERS
    assert not {name for _, names, _ in imports(tree) for name in names} & COMPILERS


@EVERY_FILE
def test_other_libraries_are_used_by_their_public_names(file):
    for module, names, _ in imports(parse(file)):
        if module.split(".")[0] in ("streamgda", "__future__"):
            continue
        private = [part for part in (*module.split("."), *names) if part.startswith("_")]
        assert not private, f"{module}: {names}"


def test_importing_the_package_loads_no_library_that_it_may_not_need():
    # scikit-learn itself loads pandas and rich where they are installed.
    code = """
import sys, numba, scipy.linalg, sklearn.base, sklearn.metrics
before = set(sys.modules)
import streamgda
print(*sorted({name.split(".")[0] for name in set(sys.modules) - before}))
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert "streamgda" in loaded
    heavy = {"dask", "distributed", "zarr", "matplotlib", "pandas", "rich", "typer"}
    assert heavy & loaded == set()


def test_public_names_are_there():
    for name in streamgda.__all__:
        assert getattr(streamgda, name).__module__.startswith("streamgda")
    assert streamgda.__all__ == sorted(streamgda.__all__)


def test_a_changed_kernel_makes_all_cached_kernels_stale(tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "streamgda", ignore=shutil.ignore_patterns("__pycache__"))
    code = "from streamgda.kernels.merging import merge; print(merge.py_func.__qualname__)"

    def name_of_a_kernel():
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return done.stdout

    before = name_of_a_kernel()
    assert before == name_of_a_kernel()
    with (tmp_path / "streamgda" / "kernels" / "tiles.py").open("a") as file:
        file.write("# changed")
    assert before != name_of_a_kernel()
