"""The command line on errors: one line that explains, and nothing left behind."""

import warnings

import pytest
from commands import Ended, rows

from streamgda.cli import main
from streamgda.cli import screen as cli_screen
from streamgda.datasets import convert


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("fit nowhere.zarr --out m.zip", "nowhere.zarr does not exist"),
        ("fit {data}/unlabelled.zarr --out m.zip", "lacks labels: it has no array 'y'"),
        ("fit {data}/rows.zarr --out m.zip --max-memory 1MB", "--max-memory allows 1.0 MB"),
        ("fit {data}/rows.zarr --out m.zip --max-memory lots", "--max-memory lots"),
        ("fit {data}/rows.zarr --out m.zip --reg-param 2", "--reg-param 2.0"),
        ("fit --moments-in {data}/qda.zip --out m.zip", "expected 'moments'"),
        ("fit {data}/rows.zarr --out {file}", "is not a file that streamgda saved"),
        (
            "fit {data}/rows.zarr --out m.zip --kind gda --covariance-type diag --shrinkage oas",
            "use 'full' or 'tied'",
        ),
        ("select nowhere.zarr --out m.zip", "nowhere.zarr does not exist"),
        ("select {data}/rows.zarr --out m.zip --max-memory 1MB", "--max-memory allows 1.0 MB"),
        ("select {data}/rows.zarr --out m.zip --cv 1", "--cv 1"),
        ("select {data}/rows.zarr --out m.zip --grid shrinkage=much", "--shrinkage much"),
        ("select {data}/rows.zarr --out m.zip --grid colour=red", "--grid has 'colour'"),
        ("select {data}/rows.zarr --out {file}", "is not a file that streamgda saved"),
        ("predict {data}/rows.zarr --model {data}/truncated.zip --out o", "is damaged"),
        (
            "predict {data}/rows.zarr --model {data}/rows.zarr --out o",
            "rows.zarr is a directory; expected a file",
        ),
        ("predict {data}/narrow.zarr --model {data}/qda.zip --out o", "expects rows of 3 features"),
        (
            "predict {data}/rows.zarr --model {data}/qda.zip --out o --max-memory 1MB",
            "allows 1.0 MB",
        ),
        ("predict {data}/rows.zarr --model {data}/qda.zip --out {file}/o", "{file}"),
        (
            "predict {data}/rows.zarr --model {data}/pca.zip --out o",
            "which predicts no labels",
        ),
        ("evaluate {data}/unlabelled.zarr --model {data}/qda.zip", "lacks labels"),
        ("evaluate {data}/numbers.zarr --model {data}/qda.zip", "do not mix"),
        ("evaluate {data}/rows.zarr --model {data}/qda.zip --max-memory 1MB", "allows 1.0 MB"),
        ("info nowhere", "nowhere does not exist"),
        ("info {data}/truncated.zip", "is damaged or incomplete"),
        ("info {file}", "is not a file that streamgda saved"),
        ("convert nowhere.csv --out t.zarr", "nowhere.csv does not exist"),
        ("fit {file} --out m", "`streamgda convert` makes zarr of files of other kinds"),
        ("convert {file} --out t.zarr", "does not identify its format"),
        ("convert {data}/rows.zarr --labels no.npy --out t.zarr", "no.npy does not exist"),
        ("select {data}/rows.zarr --groups y --cv 1 --out m.zip", "--cv 1"),
        ("fit {data}/kind=a/rows.zarr --out m.zip", "/kind=a/rows.zarr does not exist"),
        ("demo --mnist {data}", "lacks train-images"),
    ],
)
def test_failures_are_one_line_and_leave_nothing(
    command, data, tmp_path, monkeypatch, arguments, message
):
    monkeypatch.chdir(tmp_path)
    (file := tmp_path / "some.file").write_text("text")
    ended = command(*(part.format(data=data, file=file) for part in arguments.split()))
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("streamgda: ")
    assert ended.err.count("\n") == 1
    assert message.format(file=file) in ended.err
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    "arguments",
    [
        "fit --out m.zip",
        "fit rows.zarr",
        "fit rows.zarr --out m.zip --kind svm",
        "fit rows.zarr --out m.zip --moments-out m.zip",
        "fit rows.zarr --out m.zip --kind lda --priors half,half",
        "select rows.zarr",
        "select rows.zarr --out m.zip --scoring f1",
        "select rows.zarr --out m.zip --grid shrinkage",
        "select rows.zarr --out m.zip --grid shrinkage=",
        "predict m.zip rows.zarr --out o --proba --density",
        "predict m.zip rows.zarr --out o.zip",
        "convert rows.csv --out rows.zarr --chunk-rows 0",
        "evaluate m.zip",
        "fit rows.zarr --out m.zip --kind gda --covariance-type round",
        "elect",
    ],
)
def test_wrong_usage(command, arguments):
    ended = command(*arguments.split())
    assert (ended.code, ended.out) == (2, "")
    assert "Usage: streamgda" in ended.err


def test_warnings_are_one_line(command, tmp_path):
    X, y = rows()
    X[:, 1] = 7
    convert(X, tmp_path / "rows.zarr", labels=y)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        ended = command("fit", tmp_path / "rows.zarr", "--out", tmp_path / "m.zip")
    assert ended.code == 0
    assert ended.err.startswith("streamgda: warning: 1 of 3 features are constant")
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (MemoryError(), "out of memory"),
        (PermissionError(13, "Permission denied", "rows.zarr"), "Permission denied: rows.zarr"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (ConnectionError(), "ConnectionError"),
    ],
)
def test_errors_of_the_system_are_explained(command, monkeypatch, error, line):
    def fail(path):
        raise error

    monkeypatch.setattr("streamgda.cli.info.describe", fail)
    assert command("info", "rows.zarr") == Ended(1, "", f"streamgda: {line}\n")


def test_our_own_mistakes_are_not_hidden(monkeypatch):
    def fail(path):
        raise KeyError("mistake")

    monkeypatch.setattr("streamgda.cli.info.describe", fail)
    with pytest.raises(KeyError, match="mistake"):
        main(["info", "rows.zarr"])


def test_tables_in_a_pipe_are_not_cut(capfd):
    cli_screen.show_table(("name", "rows"), [("a" * 300, "1"), ("b", "[red]")])
    _, first, second = capfd.readouterr().out.splitlines()
    assert first.split() == ["a" * 300, "1"]
    assert second.split() == ["b", "[red]"]


def test_tables_in_a_terminal_have_a_rule_under_the_heading(capfd, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    cli_screen.show_table(("name", "rows"), [("a", "1")])
    out = capfd.readouterr().out
    assert "─" in out
    assert "\x1b" in out
