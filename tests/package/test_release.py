"""What a release says of itself agrees everywhere: version, dependencies, checks, Pythons."""

import os
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

import streamgda
from streamgda import versions

TOP = Path(__file__).parents[2]
PROJECT = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
REQUIRED = [Requirement(line) for line in PROJECT["dependencies"]]
OPTIONAL = {
    name: [Requirement(line) for line in lines]
    for name, lines in PROJECT["optional-dependencies"].items()
}
# Packages of conda-forge that have other names, by the extra of the package of PyPI.
CONDA = {"dask": ["dask-core", "distributed"]}


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
    version = streamgda.__version__
    assert yaml_of("CITATION.cff")["version"] == version
    assert yaml_of("conda/recipe.yaml")["context"]["version"] == version
    releases = re.findall(r"^## \[([^]]+)] - (\d{4}-\d\d-\d\d)$", text_of("CHANGELOG.md"), re.M)
    assert releases[0] == (version, yaml_of("CITATION.cff")["date-released"])
    numbers = [Version(number) for number, _ in releases]
    assert numbers == sorted(numbers, reverse=True)
    for number, _ in releases:
        assert f"\n[{number}]: {PROJECT['urls']['Homepage']}/" in text_of("CHANGELOG.md")


def test_notes_of_a_release_are_its_section_of_the_changelog(tmp_path):
    """The command of the workflow, up to what publishes them."""
    steps = yaml_of(".github/workflows/release.yml")["jobs"]["notes"]["steps"]
    command = steps[-1]["run"].partition("gh release")[0]
    changelog = text_of("CHANGELOG.md")
    (tmp_path / "CHANGELOG.md").write_text(changelog, encoding="utf-8")

    def publish(tag):
        shell = ["bash", "-euc", command]
        return subprocess.run(
            shell, check=False, cwd=tmp_path, env={**os.environ, "TAG": tag}
        ).returncode

    for version in re.findall(r"^## \[([^]]+)] - ", changelog, re.M):
        assert publish(f"v{version}") == 0
        notes = (tmp_path / "notes.md").read_text(encoding="utf-8")
        section = re.split(r"^## .*$|^\[.*$", changelog.split(f"## [{version}]")[1], flags=re.M)[0]
        assert notes.split() == section.split("\n", 1)[1].split()
        assert not re.search(r"^(?!$|- |### )", notes, re.M)
    assert publish("v0.0.9") != 0


def test_the_changelog_has_sections_of_keep_a_changelog():
    sections = set(re.findall(r"^### (.+)$", text_of("CHANGELOG.md"), re.M))
    assert sections <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_the_policy_names_the_versions_of_the_format():
    from streamgda.storage.format import VERSION

    assert f"integer of its own: {VERSION} in streamgda" in text_of("docs/policy.md")
    kept = {int(folder.name[7:]) for folder in (TOP / "tests/golden").glob("version*")}
    assert max(kept) == VERSION


def test_the_module_is_the_command(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["streamgda", "--version"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("streamgda", run_name="__main__")
    assert not ended.value.code
    assert capsys.readouterr().out == f"streamgda {streamgda.__version__}\n"


# --- dependencies -------------------------------------------------------------------------------


def test_versions_of_all_dependencies_are_shown(capsys, monkeypatch):
    names = versions.dependencies()
    users = [extra for extra in OPTIONAL if extra not in ("docs", "test", "bench")]
    expected = [*REQUIRED, *(part for extra in users for part in OPTIONAL[extra])]
    assert set(names) == {requirement.name for requirement in expected}
    monkeypatch.setattr(versions, "dependencies", lambda: [*names, "no-such-package"])
    streamgda.show_versions()
    shown = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert shown["streamgda"] == streamgda.__version__
    assert shown["python"].startswith(f"{sys.version.split()[0]} ")
    assert shown["numpy"] == sys.modules["numpy"].__version__
    assert shown["no-such-package"] == "not installed"
    assert {"processor", "kernels", "threads", "system"} <= shown.keys()
    assert int(shown["threads"]) >= 1


def test_the_recipe_needs_what_the_package_needs():
    recipe = yaml_of("conda/recipe.yaml")
    expected = {
        f"{name} {requirement.specifier}"
        for requirement in REQUIRED
        for name in CONDA.get(requirement.name, [requirement.name])
    }
    python = f"python {PROJECT['requires-python']}"
    assert set(recipe["requirements"]["run"]) == expected | {python}
    assert python in recipe["requirements"]["host"]
    entry = PROJECT["scripts"]["streamgda"]
    assert recipe["build"]["python"]["entry_points"] == [f"streamgda = {entry}"]


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


# --- checks -------------------------------------------------------------------------------------


def test_the_hooks_are_the_checks_of_ci():
    tools = ("ruff ", "codespell ", "mypy")
    lines = [line.partition("#")[0].strip() for line in text_of(".ci/run").splitlines()]
    expected = [line for line in lines if line.startswith(tools)]
    hooks = yaml_of(".pre-commit-config.yaml")["repos"][0]["hooks"]
    assert sorted(hook["entry"] for hook in hooks) == sorted(expected)


def test_workflows_run_every_supported_python():
    jobs = yaml_of(".github/workflows/tests.yml")["jobs"]
    tried = jobs["newest"]["strategy"]["matrix"]["python"]
    kind = "Programming Language :: Python :: 3."
    assert tried == [f"3.{c[len(kind) :]}" for c in PROJECT["classifiers"] if c.startswith(kind)]
    assert PROJECT["requires-python"] == f">={tried[0]}"
    oldest = [step.get("with", {}).get("python-version") for step in jobs["oldest"]["steps"]]
    assert tried[0] in oldest
    commands = [step.get("run", "") for step in jobs["oldest"]["steps"]]
    assert any(".github/oldest.txt" in command for command in commands)
    for workflow in sorted((TOP / ".github/workflows").glob("*.yml")):
        for action in re.findall(r"uses: (\S+)", workflow.read_text()):
            assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action), action  # tags can be moved
