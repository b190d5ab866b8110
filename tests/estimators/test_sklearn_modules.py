"""scikit-learn's own test modules, as its wheel ships them, run on the classes of streamgda.

A module is read as text, and where it imports a class that streamgda has, it gets that one.
Everything else, the tables of parameters too, stays as it is.
"""

import ast
import importlib.util
from pathlib import Path

import numpy as np
import pytest

import streamgda

pytest.importorskip("sklearn", "1.9", reason="its tests of earlier versions expect other divisors")

# scikit-learn runs its tests with warnings that do not raise.
pytestmark = pytest.mark.filterwarnings("default")

_CONSTANT = (
    "features that are constant over all rows are left out of the density, with a warning; and "
    "reg_param makes any covariance regular, so that the class needs no more rows than features"
)
_LATER = "partial_fit takes any labels if it is not passed classes"

# The reason for each test that must fail, by its name with its parameters.
LEFT_OUT = {
    "test_lda_dtype_match[float32-float32]": "all answers are float64",
    "test_qda_regularization[svd]": _CONSTANT,
    "test_qda_regularization[eigen]": _CONSTANT,
    "test_gnb_partial_fit[float32]": "all answers are float64",
    "test_gnb": _LATER,
    "test_NB_partial_fit_no_first_classes[BernoulliNB]": _LATER,
    "test_NB_partial_fit_no_first_classes[GaussianNB]": _LATER,
    "test_gnb_check_update_with_no_data": "calls _update_mean_variance, a private helper",
    "test_check_alpha": "calls _check_alpha, a private method",
    "test_discretenb_provide_prior[BernoulliNB]": "expects that a fit that fails sets classes_",
}


def replaced(tree):
    """The module, with imports from streamgda of what it has."""
    body = []
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


def listed(mark):
    """The mark, whose parameters are a list, as pytest wants them, and no generator."""
    if mark.name != "parametrize":
        return mark
    names, values, *others = mark.args
    return pytest.mark.parametrize(names, list(values), *others, **mark.kwargs).mark


def functions_of(name):
    """The tests of a module by their names."""
    folder = Path(importlib.util.find_spec("sklearn").submodule_search_locations[0]) / "tests"
    if not folder.is_dir():
        pytest.skip("scikit-learn is installed without its tests", allow_module_level=True)
    path = folder / f"{name}.py"
    namespace = {"__name__": f"streamgda_{name}", "__file__": str(path)}
    exec(compile(replaced(ast.parse(path.read_text())), str(path), "exec"), namespace)
    tests = {key: value for key, value in namespace.items() if key.startswith("test_")}
    for test in tests.values():
        test.pytestmark = [listed(mark) for mark in getattr(test, "pytestmark", [])]
    return tests


globals().update(functions_of("test_discriminant_analysis") | functions_of("test_naive_bayes"))


@pytest.fixture(autouse=True)
def expect_failure(request):
    if request.node.name in LEFT_OUT:
        reason = LEFT_OUT[request.node.name]
        request.applymarker(pytest.mark.xfail(reason=reason, strict=True))


@pytest.fixture
def global_random_seed():
    """A fixture of scikit-learn's conftest.py, as the next one."""
    return 42


@pytest.fixture(params=[np.float32, np.float64], ids=["float32", "float64"])
def global_dtype(request):
    return request.param


def test_left_out_tests_exist(request):
    names = {item.name for item in request.node.parent.collect()}
    assert LEFT_OUT.keys() <= names
    assert len(names) > len(LEFT_OUT)
