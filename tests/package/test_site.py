"""The documentation has a place for every public object."""

import re
from pathlib import Path

import pytest

import streamgda
import streamgda.datasets
import streamgda.plots

REFERENCE = (Path(__file__).parents[2] / "docs" / "api" / "index.rst").read_text()


@pytest.mark.parametrize("module", [streamgda, streamgda.datasets, streamgda.plots])
def test_every_public_name_is_in_the_reference(module):
    listed = re.findall(r"^\.\. currentmodule:: (\S+)|^   (\w+)$", REFERENCE, re.MULTILINE)
    found, current = set(), ""
    for start, name in listed:
        current = start or current
        if name and current == module.__name__:
            found.add(name)
    assert found - {"errors"} == set(module.__all__)
