"""scikit-learn's own test modules, as its wheel ships them, run on the classes of streamgda.

A module is read as text, and where it imports a class that streamgda has, it gets that one.
Everything else, the tables of parameters too, stays as it is.
"""

import ast
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamgda


def replaced(tree: ast.Module) -> ast.Module:
    """Import from streamgda what it has and a module of scikit-learn's estimators is asked for."""
    body: list[ast.stmt] = []
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sklearn."):
            ours = [alias for alias in node.names if alias.name in streamgda.__all__]
            theirs = [alias for alias in node.names if alias not in ours]
            pairs = ((node.module, theirs), ("streamgda", ours))
            nodes = [ast.ImportFrom(module, names, 0) for module, names in pairs if names]
            body += [ast.copy_location(each, node) for each in nodes]
        else:
            body.append(node)
    return ast.fix_missing_locations(ast.Module(body, tree.type_ignores))


def source_of(name: str) -> Path:
    """Return the file of a test module; skip where scikit-learn is older, or has no tests."""
    pytest.importorskip(
        "sklearn", "1.9", reason="its tests of earlier versions expect other divisors"
    )
    folders = importlib.util.find_spec("sklearn").submodule_search_locations
    path = Path(folders[0]) / "tests" / f"{name}.py"
    if not path.parent.is_dir():
        pytest.skip("scikit-learn is installed without its tests", allow_module_level=True)
    return path


def listed(mark: pytest.Mark) -> pytest.Mark:
    """Return a mark whose parameters are a list, as pytest wants them, and no generator."""
    if mark.name != "parametrize":
        return mark
    names, values, *others = mark.args
    return pytest.mark.parametrize(names, list(values), *others, **mark.kwargs).mark


def functions_of(name: str, left_out: Mapping[str, str]) -> dict[str, Any]:
    """Return the tests of a module, to be added to the globals of a test module of ours.

    `left_out` gives the reason for each test that is left out, by its name with its parameters.
    It must fail: a test that passes, or does not exist, fails the suite.
    """
    path = source_of(name)
    namespace: dict[str, Any] = {"__name__": f"streamgda_{name}", "__file__": str(path)}
    exec(compile(replaced(ast.parse(path.read_text())), str(path), "exec"), namespace)
    tests = {key: value for key, value in namespace.items() if key.startswith("test_")}
    for test in tests.values():
        test.pytestmark = [listed(mark) for mark in getattr(test, "pytestmark", [])]

    @pytest.fixture(autouse=True)
    def expect_failure(request: pytest.FixtureRequest) -> None:
        reason = left_out.get(request.node.name)
        if reason is not None:
            request.applymarker(pytest.mark.xfail(reason=reason, strict=True))

    # Fixtures of scikit-learn's conftest.py.

    @pytest.fixture
    def global_random_seed() -> int:
        return 42

    @pytest.fixture(params=[np.float32, np.float64], ids=["float32", "float64"])
    def global_dtype(request: pytest.FixtureRequest) -> Any:
        return request.param

    def test_left_out_tests_exist(request: pytest.FixtureRequest) -> None:
        names = {item.name for item in request.node.parent.collect()}
        assert left_out.keys() <= names
        assert len(names) > len(left_out)

    return {
        **tests,
        "expect_failure": expect_failure,
        "global_random_seed": global_random_seed,
        "global_dtype": global_dtype,
        "test_left_out_tests_exist": test_left_out_tests_exist,
        # scikit-learn runs its tests with warnings that do not raise.
        "pytestmark": pytest.mark.filterwarnings("default"),
    }
