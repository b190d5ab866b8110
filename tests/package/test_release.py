"""Versions, dependencies and Pythons agree in all files that name them."""

import sys
import tomllib
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.version import Version

import streamgda

TOP = Path(__file__).parents[2]
PROJECT = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
REQUIRED = [Requirement(line) for line in PROJECT["dependencies"]]
OPTIONAL = {
    name: [Requirement(line) for line in lines]
    for name, lines in PROJECT["optional-dependencies"].items()
}


def text_of(name):
    return (TOP / name).read_text(encoding="utf-8")


def yaml_of(name):
    return yaml.safe_load(text_of(name))


def bound(requirement):
    """Return the least version that a requirement allows; it has no other condition."""
    assert [part.operator for part in requirement.specifier] == [">="], requirement
    return Version(next(iter(requirement.specifier)).version)


# --- version ------------------------------------------------------------------------------------


def test_the_version_is_the_same_everywhere():
    citation = yaml_of("CITATION.cff")
    assert citation["version"] == streamgda.__version__
    released = f"## {streamgda.__version__} - {citation['date-released']}"
    assert released in text_of("CHANGELOG.md").splitlines()


# --- dependencies -------------------------------------------------------------------------------


def test_versions_of_all_dependencies_are_shown(capsys):
    streamgda.show_versions()
    shown = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert {requirement.name for requirement in REQUIRED} < shown.keys()
    assert shown["streamgda"] == streamgda.__version__
    assert shown["python"].startswith(f"{sys.version.split()[0]} ")
    assert shown["numpy"] == sys.modules["numpy"].__version__
    assert {"processor", "kernels", "system", "openblas", "pyarrow"} <= shown.keys()


def test_the_oldest_environment_has_the_least_versions():
    lines = [line.partition("#")[0] for line in text_of(".github/oldest.txt").splitlines()]
    pins = dict(line.strip().split("==") for line in lines if line.strip())
    extras = OPTIONAL.keys() - {"docs", "bench"}
    tried = [requirement for extra in extras for requirement in OPTIONAL[extra]]
    wrong = {
        requirement.name: str(requirement.specifier)
        for requirement in [*REQUIRED, *tried]
        if requirement.specifier and Version(pins[requirement.name]) != bound(requirement)
    }
    assert not wrong


def test_extras_agree_on_the_versions_that_they_need():
    seen = {}
    for requirement in [*REQUIRED, *(part for parts in OPTIONAL.values() for part in parts)]:
        if requirement.specifier:
            assert seen.setdefault(requirement.name, requirement.specifier) == requirement.specifier
