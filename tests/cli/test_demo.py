"""`streamgda demo`: what it measures, what it prints in 80 columns, and what it leaves behind."""

import gzip
import json
import re
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from streamgda.errors import MissingLibraryError

cli_demo = import_module("streamgda.cli.demo")

CONTROL = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def commands_of(out):
    """The commands that are to be tried next."""
    lines = [line.partition("#")[0] for line in out.splitlines()]
    return [line.split()[1:] for line in lines if line.startswith("  streamgda")]


def test_demo_measures_what_it_prints(command, tmp_path):
    ended = command("demo")
    assert (ended.code, ended.err) == (0, "")
    assert "\x1b" not in ended.out
    assert max(map(len, ended.out.splitlines())) <= 80
    table = {line.split()[0]: line.split() for line in ended.out.splitlines() if line.strip()}
    columns = "smoothing accuracy (validation) accuracy (test) test rows/s"
    assert " ".join(table["model"]) == f"model {columns}"
    accuracies = {name: float(table[name][3]) for name in ("QDA", "LDA", "GaussianNB")}
    assert 0.97 < accuracies["QDA"] <= 1
    assert 0.92 < accuracies["LDA"] < accuracies["QDA"]
    assert 0.85 < accuracies["GaussianNB"] < accuracies["QDA"]
    confusion = np.array([[int(n.replace(".", "0")) for n in table[str(i)][1:]] for i in range(10)])
    assert confusion.sum() == 1797 // 4
    assert confusion.trace() / confusion.sum() == pytest.approx(accuracies["QDA"], abs=5e-5)
    assert "rows a second" in ended.out
    assert "streamgda demo --mnist FOLDER" in ended.out
    assert ended.out.endswith("A picture of QDA is in streamgda-demo.png\n")
    assert [path.name for path in tmp_path.iterdir()] == ["streamgda-demo.png"]
    assert (tmp_path / "streamgda-demo.png").read_bytes().startswith(b"\x89PNG")


def write_mnist(folder):
    """Four files in the layout of MNIST: blurred bars, horizontal or vertical."""
    random = np.random.default_rng(0)
    for part, n in (("train", 300), ("t10k", 80)):
        y = random.integers(0, 2, n).astype(np.uint8)
        X = random.integers(0, 60, (n, 5, 5)).astype(np.uint8)
        X[y == 0, 2] += 80
        X[y == 1, :, 2] += 80
        for name, array in ((f"{part}-images-idx3-ubyte", X), (f"{part}-labels-idx1-ubyte", y)):
            head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes()
            (folder / f"{name}.gz").write_bytes(gzip.compress(head + array.tobytes()))


def test_what_the_demo_recommends_works(command, done, tmp_path):
    write_mnist(tmp_path)
    out = done("demo", "--mnist", tmp_path, "--out", "digits", "--picture", "nowhere/a.png")
    assert "The picture was not saved" in out
    assert "250 train, 50 validation, 80 test rows" in out
    evaluated, fitted = (
        next(line for line in commands_of(out) if line[0] == name) for name in ("evaluate", "fit")
    )
    assert json.loads(done(*evaluated, "--json"))["accuracy"] > 0.9
    assert "250 rows x 25 features" in done(*fitted)
    described = next(line for line in commands_of(out) if line[0] == "info")
    assert json.loads(done(*described, "--json"))["rows"] == 300
    parts = ["model.npz", "test", "train", "validation"]
    assert sorted(path.name for path in Path("digits").iterdir()) == parts
    again = command("demo", "--out", "digits")
    assert (again.code, again.out) == (1, "")
    assert "name another path" in again.err


def test_commands_for_a_table_work(done, capfd, tmp_path):
    """Those that are recommended where nothing was kept."""
    (tmp_path / "table.csv").write_text("a,b,kind\n1,2,x\n2,1,x\n3,2,x\n7,7,y\n8,6,y\n7,5,y\n")
    cli_demo.show_next(None, None)
    recommended = commands_of(capfd.readouterr().out)
    assert [line[0] for line in recommended] == ["demo", "convert", "fit", "demo"]
    for line in recommended[1:3]:
        done(*line)


def test_the_demo_fits_a_narrow_terminal_and_says_how_to_get_a_picture(command, monkeypatch):
    def missing(module, extra, what):
        raise MissingLibraryError(f"{what} need {module}: pip install streamgda[{extra}]")

    write_mnist(Path())
    monkeypatch.setattr(cli_demo, "require", missing)
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes the pipe for a terminal
    monkeypatch.setenv("COLUMNS", "80")
    ended = command("demo", "--mnist", ".")
    assert ended.code == 0
    assert "\x1b" in ended.out
    lines = CONTROL.sub("", ended.out).splitlines()
    assert max(map(len, lines)) <= 80
    assert "pictures need matplotlib: pip install streamgda[plot]" in lines
    assert not Path("streamgda-demo.png").exists()
