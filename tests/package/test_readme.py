"""Every example of the README and of the documentation runs and prints what its page shows."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from streamgda.cli import main

TOP = Path(__file__).parents[2]
README = TOP / "README.md"
SITE = TOP / "docs"
PAGES = sorted(set(SITE.rglob("*.md")) - set(SITE.glob("generated/**/*.md")))
SLOW_BLOCK = re.compile(r"^```python slow\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```(python|console|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Not all of this code is run.
CODE = re.compile(r"^```(?!text$)\w.*\n((?:.*\n)*?)```$", re.MULTILINE)


@pytest.mark.parametrize("page", [README, *PAGES], ids=lambda page: str(page.relative_to(TOP)))
def test_examples_run(page, tmp_path, monkeypatch, capsys):
    """A block of text is what the block of Python before it prints."""
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    blocks = BLOCK.findall(page.read_text())
    for library in ("duckdb", "torch"):
        if any(f"import {library}\n" in text for _, text in blocks):
            pytest.importorskip(library)
    if page == README:
        assert {kind for kind, _ in blocks} == {"python", "console", "text"}
    for kind, text in blocks:
        if kind == "python":
            capsys.readouterr()
            exec(compile(text, page.name, "exec"), names)
        elif kind == "text":
            assert capsys.readouterr().out.strip() == text.strip()
        else:
            for line in text.splitlines():
                run_command(line.removeprefix("$ "))


def test_code_fits_on_a_page():
    for page in [README, *PAGES]:
        lines = [line for code in CODE.findall(page.read_text()) for line in code.splitlines()]
        assert not [(page.name, line) for line in lines if len(line) > 88]


@pytest.mark.soak
def test_slow_examples_run(tmp_path, monkeypatch):
    """Those that start processes, each a script of its own."""
    monkeypatch.chdir(tmp_path)
    scripts = [text for page in [README, *PAGES] for text in SLOW_BLOCK.findall(page.read_text())]
    assert scripts
    for text in scripts:
        exec(compile(text, "script", "exec"), {"__name__": "__main__"})


def run_command(line):
    program, *arguments = shlex.split(line)
    assert program == "streamgda", line
    with pytest.raises(SystemExit) as ended:  # It runs here, because a start takes seconds.
        main(arguments)
    assert not ended.value.code, line


def test_the_installed_command_runs():
    scripts = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["streamgda", "--version"], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.startswith("streamgda ")


def test_commands_are_marked():
    text = README.read_text()
    for mark in ("<!-- main job -->", "<!-- test command -->", "<!-- site command -->"):
        assert re.search(rf"{mark}\n```bash\n[^\n]+\n```", text), mark
