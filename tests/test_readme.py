"""Every example of the README runs, in its order, in one folder."""

import os
import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_examples_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    blocks = BLOCK.findall(README.read_text())
    assert {kind for kind, _ in blocks} == {"python", "console"}
    for kind, text in blocks:
        if kind == "python":
            exec(compile(text, "README.md", "exec"), names)
        else:
            for line in text.splitlines():
                run_command(line.removeprefix("$ "))


def run_command(line):
    assert line.startswith("streamgda "), line
    scripts = Path(sys.executable).parent
    done = subprocess.run(
        line,
        shell=True,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"},
    )
    assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"


def test_two_commands_are_marked():
    text = README.read_text()
    for mark in ("<!-- main job -->", "<!-- test command -->"):
        assert re.search(rf"{mark}\n```bash\n[^\n]+\n```", text), mark
