"""Public objects are in the reference, with docstrings complete by numpydoc's validation."""

import inspect
import re
from pathlib import Path

import pytest
from numpydoc.validate import validate

import streamgda
import streamgda.datasets
import streamgda.plots

# Left out: ES01 and SA01, which want further paragraphs and a See Also section in every docstring.
# Of functions, methods and classes, EX01 wants an example.
CHECKS = {
    *("GL01", "GL02", "GL03", "GL05", "GL06", "GL07", "GL08", "GL09", "GL10"),
    *("SS01", "SS02", "SS03", "SS04", "SS05", "SS06"),
    *("PR01", "PR02", "PR03", "PR04", "PR05", "PR06", "PR07", "PR08", "PR09", "PR10"),
    *("RT01", "RT02", "RT03", "RT04", "RT05", "YD01"),
}

PUBLIC = {
    f"{module.__name__}.{name}": getattr(module, name)
    for module in (streamgda, streamgda.datasets, streamgda.plots)
    for name in module.__all__
    if not inspect.ismodule(getattr(module, name)) and name != "__version__"
}


def home(attribute):
    """The module in which a function, class, method or property is defined."""
    for name in ("__func__", "fget", "func"):  # Class methods and properties wrap one.
        attribute = getattr(attribute, name, attribute)
    return getattr(attribute, "__module__", None) or ""


def documented(name, thing):
    """Paths of a public object and of the public members that this package defines.

    The docstring of a dataclass describes its fields.
    """
    yield name
    others = getattr(thing, "__dataclass_fields__", {})
    for member, attribute in inspect.getmembers_static(thing) if inspect.isclass(thing) else ():
        if member.startswith("_") or member in others:
            continue
        if home(attribute).startswith("streamgda"):
            yield f"{name}.{member}"


@pytest.mark.parametrize("name", PUBLIC)
def test_public_docstrings_are_complete(name):
    problems = []
    for path in documented(name, PUBLIC[name]):
        found = validate(path)
        wanted = CHECKS if "property" in found["type"] else CHECKS | {"EX01"}
        problems += [f"{path}: {c} {message}" for c, message in found["errors"] if c in wanted]
        called = found["type"] in ("function", "method") and "\nParameters\n" in found["docstring"]
        if called and "\nRaises\n" not in found["docstring"]:
            problems.append(f"{path}: it does not say which exceptions are raised")
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("module", [streamgda, streamgda.datasets, streamgda.plots])
def test_every_public_name_is_in_the_reference(module):
    page = (Path(__file__).parents[2] / "docs" / "api" / "index.rst").read_text()
    found, current = set(), ""
    for start, name in re.findall(r"^\.\. currentmodule:: (\S+)|^   (\w+)$", page, re.MULTILINE):
        current = start or current
        if name and current == module.__name__:
            found.add(name)
    public = {path.rpartition(".")[2] for path in PUBLIC if path.startswith(module.__name__ + ".")}
    assert found - {"errors"} == {name for name in public if hasattr(module, name)}
