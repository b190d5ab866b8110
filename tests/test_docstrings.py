"""Docstrings of public objects are complete, by numpydoc's validation."""

import inspect

import pytest
from numpydoc.validate import validate

import streamgda
import streamgda.datasets
import streamgda.plots

# Left out: ES01, SA01 and EX01, which want further paragraphs, a See Also section and an example in
# every docstring.
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
}


def home(attribute):
    """The module in which a function, class, method or property is defined."""
    for name in ("__func__", "fget", "func"):  # of class methods, properties, cached properties
        attribute = getattr(attribute, name, attribute)
    return getattr(attribute, "__module__", None) or ""


def documented(name, thing):
    """Paths of a public object and of the public members that this package defines."""
    yield name
    for member, attribute in inspect.getmembers_static(thing) if inspect.isclass(thing) else ():
        if not member.startswith("_") and home(attribute).startswith("streamgda"):
            yield f"{name}.{member}"


@pytest.mark.parametrize("name", PUBLIC)
def test_public_docstrings_are_complete(name):
    problems = [
        f"{path}: {code} {message}"
        for path in documented(name, PUBLIC[name])
        for code, message in validate(path)["errors"]
        if code in CHECKS
    ]
    assert not problems, "\n".join(problems)
