"""The shape of the library: its packages, what they import, bases of classes, private names."""

import ast
import inspect
import re
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from processes import output

import streamgda

PACKAGE = Path(streamgda.__file__).parent

# From the ground up: a package imports from those named here, which are above it, and from itself.
PACKAGES = {
    "errors": "",
    "runtime": "errors",
    "kernels": "runtime",
    "storage": "errors runtime",
    "rows": "errors kernels runtime storage",
    "moments": "errors kernels runtime storage rows",
    "models": "errors kernels runtime storage rows moments",
    "engine": "errors runtime storage rows moments models",
    "engine.dask": "errors runtime storage rows moments models engine",
    "estimators": "errors runtime storage rows moments models engine",
    "versions": "kernels",
    "__init__": "versions",  # and what `__init__.pyi` names, when it is used
    "datasets": "errors runtime storage rows moments models engine estimators __init__",
    "plots": "errors runtime rows moments models engine estimators __init__",
    "cli": "errors runtime storage rows moments models engine estimators __init__ datasets plots",
    "__main__": "cli",
}
PACKAGES_USED = {package: set(names.split()) for package, names in PACKAGES.items()}
COMPILERS = {"jit", "njit", "vectorize", "guvectorize", "cfunc", "stencil"}
COMPILERS |= {"kernel", "fast_kernel", "contracting_kernel", "inline_kernel", "shared_kernel"}

FILES = sorted(PACKAGE.rglob("*.py"))


def name_of(file: Path) -> str:
    return file.relative_to(PACKAGE).as_posix()


@cache
def parse(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def package_of(file: Path) -> str:
    return package_of_module(".".join(file.relative_to(PACKAGE).with_suffix("").parts))


def package_of_module(name: str) -> str:
    """The package of a module, by its name within the package."""
    return "engine.dask" if name.startswith("engine.dask") else name.partition(".")[0]


def imports(tree: ast.AST, inside: bool = False) -> Iterator[tuple[str, list[str], bool]]:
    """Module, names imported from it, and whether that is inside a function."""
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


def packages_used(tree: ast.AST) -> Iterator[tuple[str, bool]]:
    for module, names, inside in imports(tree):
        if module.split(".")[0] != "streamgda":
            continue
        path = module.removeprefix("streamgda").lstrip(".")
        for name in names or [""]:
            whole = f"{path}.{name}".strip(".")
            package = package_of_module(whole)
            yield (package if package in PACKAGES else "__init__"), inside


# --- packages ----------------------------------------------------------------------------------


def test_nothing_else_is_at_the_top():
    packages = {package.partition(".")[0] for package in PACKAGES}
    found = {path.name for path in PACKAGE.iterdir() if path.name != "__pycache__"}
    files = {"__init__", "__main__", "errors", "versions"}
    assert found == {"py.typed", "__init__.pyi", *(f"{file}.py" for file in files)} | (
        packages - files
    )
    assert {package_of(file) for file in FILES} == PACKAGES.keys()


def test_imports_go_downwards():
    wrong = []
    for file in FILES:
        package = package_of(file)
        for used, inside in packages_used(parse(file)):
            if (package, used) == ("engine", "engine.dask"):
                allowed = inside  # dask is loaded where it is used
            else:
                allowed = used == package or used in PACKAGES_USED[package]
            if not allowed:
                wrong.append(f"{name_of(file)} imports {used}")
    assert not wrong


def test_packages_are_in_order():
    above: set[str] = set()
    for package, used in PACKAGES_USED.items():
        assert used <= above, package
        above.add(package)


# --- what files hold ----------------------------------------------------------------------------


def test_compiled_functions_are_kernels():
    wrong = []
    for file in FILES:
        tree = parse(file)
        libraries = {module.split(".")[0] for module, _, _ in imports(tree)}
        package = package_of(file)
        if package == "kernels":
            allowed = {"numba", "numpy", "llvmlite", "streamgda"} | sys.stdlib_module_names
            wrong += [f"{name_of(file)} imports {library}" for library in libraries - allowed]
            continue
        if "numba" in libraries and package != "runtime":
            wrong.append(f"{name_of(file)} imports numba")
        decorators = {
            re.match(r"[\w.]+", ast.unparse(decorator))[0].split(".")[-1]
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef)
            for decorator in node.decorator_list
        }
        names = {name for _, names, _ in imports(tree) for name in names}
        wrong += [f"{name_of(file)} compiles: {name}" for name in (decorators | names) & COMPILERS]
    assert not wrong


def test_an_abstract_class_has_several_kinds():
    """A base of one class is a part of that class."""
    classes = set()
    for file in FILES:
        if file.name != "__main__.py":
            module = ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts)
            own = import_module(module.removesuffix(".__init__"))
            classes |= {c for c in vars(own).values() if inspect.isclass(c)}
    kinds = Counter(base for kind in classes for base in kind.__bases__)
    ours = {c for c in classes if c.__module__.startswith("streamgda.") and inspect.isabstract(c)}
    assert ours
    assert {c.__name__ for c in ours if kinds[c] < 2} == set()


# --- private names ------------------------------------------------------------------------------


def test_other_libraries_are_used_by_their_public_names():
    wrong = []
    for file in FILES:
        for module, names, _ in imports(parse(file)):
            # The library reference documents `_thread`.
            if module.split(".")[0] not in ("streamgda", "__future__", "_thread"):
                private = [part for part in (*module.split("."), *names) if part.startswith("_")]
                wrong += [f"{name_of(file)}: {module}.{name}" for name in private]
    assert not wrong


# --- importing ----------------------------------------------------------------------------------


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

        return kernels.kernel(some, cache=False).py_func.__qualname__.rpartition("_")[2]

    before = name_of_a_kernel()
    assert before == name_of_a_kernel()
    with (tmp_path / "tiles.py").open("a") as file:
        file.write("# changed")
    assert before != name_of_a_kernel()
