"""`streamgda stream` predicts rows as they arrive, learns from them, and resumes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import NAMES, PROGRAM, Command, rows

import streamgda
from streamgda.datasets import lines
from streamgda.datasets.predictions import Predictions
from streamgda.errors import StreamGDAError

COLUMNS = ["height", "rings", "age"]


def csv_of(X: np.ndarray, y: Any, names: list[str] | None = None) -> str:
    """Rows as CSV; a label that is None is empty."""
    names = names or COLUMNS
    body = [
        ",".join([*map(repr, row), "" if label is None else f'"{label}"'])
        for row, label in zip(X.tolist(), y, strict=True)
    ]
    return "\n".join([",".join([*names, "kind"]), *body, ""])


@pytest.fixture
def stream(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[list[str], str]]:
    """A function that streams a text, and returns the predictions and what was reported."""
    monkeypatch.chdir(tmp_path)

    def run(text: str | bytes, *options: object, code: int = 0) -> tuple[list[str], str]:
        data = text.encode() if isinstance(text, str) else text
        (tmp_path / "rows").write_bytes(data)
        ended = command("stream", "rows", "--label-column=kind", *options)
        assert ended.code == code, ended.err
        return ended.out.splitlines()[1:], ended.err

    return run


def started(*arguments: object, **pipes: Any) -> subprocess.Popen[bytes]:
    """Start the command line in another process."""
    command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, **pipes)


def blocks(n_rows: int, most: int) -> list[slice]:
    """The rows that are learnt at a time: a twentieth of those before, 1 to `most`."""
    cuts = [0]
    while cuts[-1] < n_rows:
        cuts.append(min(n_rows, cuts[-1] + max(1, min(most, cuts[-1] // 20))))
    return [slice(a, b) for a, b in pairwise(cuts)]


@pytest.mark.filterwarnings("ignore::streamgda.errors.ConstantFeatureWarning")
@pytest.mark.filterwarnings("ignore::streamgda.errors.CollinearityWarning")
@pytest.mark.parametrize(
    ("estimator", "half_life", "most", "options"),
    [
        (streamgda.GaussianNB(), None, 1, ("--kind=nb",)),
        (streamgda.LinearDiscriminantAnalysis(), 50.0, 4, ("--kind=lda", "--half-life=50")),
        (
            streamgda.QuadraticDiscriminantAnalysis(reg_param=0.1),
            None,
            1000,
            ("--kind=qda", "--reg-param=0.1"),
        ),
    ],
)
def test_rows_are_predicted_before_they_are_learnt(
    stream: Callable[..., Any],
    estimator: Any,
    half_life: float | None,
    most: int,
    options: tuple[str, ...],
) -> None:
    """A plain loop over the batches finds the same, to the bit."""
    X, y = rows(130)
    found, report = stream(csv_of(X, y), *options, f"--batch-rows={most}", "--save=m.zip")
    expected: list[str] = []
    least = 1 if "--kind=nb" in options else 2  # classes that `fit` needs
    for part in blocks(len(y), most):
        try:
            found_now = estimator.predict(X[part]).tolist()
            expected += found_now if estimator.classes_.size >= least else [""] * len(found_now)
        except (AttributeError, StreamGDAError):  # nothing, or too little, is learnt
            expected += [""] * len(y[part])
        estimator.partial_fit(X[part], y[part], half_life=half_life)
    scored = [label for label in expected if label]
    right = sum(label == true for label, true in zip(expected, y.tolist(), strict=True))
    assert [text.strip('"') for text in found] == expected
    assert found[0] == '""'
    assert len(scored) > 100
    assert f"rows: 130, accuracy: {right / len(scored):.4f}, rows a second: " in report
    saved = streamgda.load("m.zip")
    np.testing.assert_array_equal(saved.moments_.means, estimator.moments_.means)
    assert saved.feature_names_in_.tolist() == COLUMNS


# --- how rows arrive ------------------------------------------------------------------------------


def test_results_do_not_depend_on_how_rows_arrive(
    stream: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = rows(300)
    labels = [None if n % 7 == 0 else label for n, label in enumerate(y)]
    options = ("--kind=qda", "--proba", f"--classes={','.join(NAMES)}", "--save=m.zip")
    results = []
    for size in (37, 1000, 1 << 20):
        monkeypatch.setattr(lines, "_BYTES", size)
        found = stream(csv_of(X, labels), *options, "--overwrite")[0]
        results.append((found, streamgda.load("m.zip").moments_.to_bytes()))
    assert results[0] == results[1] == results[2]
    label, *shares = found[-1].split(",")
    assert NAMES[np.argmax([*map(float, shares)])] == label
    assert sum(map(float, shares)) == pytest.approx(1, abs=1e-5)
    assert streamgda.load("m.zip").class_count_.sum() == sum(label is not None for label in labels)


def test_pyarrow_reads_the_same(
    stream: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks of all sizes, so that each kind of line is read with others and alone."""
    pytest.importorskip("pyarrow")
    odd = ["+1,2,3,ham", "1e1, 2 ,3, ham", "1_0,2,3,ham", "1,2,nan,ham", "1,2,,ham", "1,2,3,NA"]
    odd += ["1,2,3", "", "height,rings,age,kind", "0x1,2,3,ham", "1,2,3,h\xe4m", "inf,2,3,ham"]
    X, y = rows(60)
    text = csv_of(X, y).replace('"', "").splitlines()
    data = "\n".join([*text[:30], *odd, *text[30:], ""]).encode("latin-1")
    results = []
    for fewest in (0, 1 << 30):
        monkeypatch.setattr("streamgda.datasets.arrowlines._FEWEST", fewest)
        for size in (25, 400, 1 << 20):
            monkeypatch.setattr(lines, "_BYTES", size)
            results.append(stream(data, "--kind=nb", "--save=m.zip", "--overwrite"))
            results[-1] += (streamgda.load("m.zip").moments_.to_bytes(),)
    found, report, _ = results[0]
    assert all((r[0], r[2]) == (found, results[0][2]) for r in results)
    assert len(found) == 70
    assert "lines that cannot be read: 7" in report


def test_json_is_read_as_csv_is(stream: Callable[..., Any]) -> None:
    X, y = rows(80)
    labels = [None if n % 9 == 0 else label for n, label in enumerate(y)]
    table = [
        dict(zip([*COLUMNS, "kind"], [*row, label], strict=True))
        for row, label in zip(X.tolist(), labels, strict=True)
    ]
    for n, row in enumerate(table):
        if n % 2:
            table[n] = dict(reversed(row.items()))
        if n % 18 == 0:
            del table[n]["kind"]
    found = stream("\n".join(map(json.dumps, table)), "--kind=nb", "--save=m.zip")[0]
    expected = stream(csv_of(X, labels), "--kind=nb", "--save=n.zip")[0]
    assert found == expected
    saved = [streamgda.load(name).moments_.to_bytes() for name in ("m.zip", "n.zip")]
    assert saved[0] == saved[1]


def test_columns_are_found_by_name(stream: Callable[..., Any], data: Path, tmp_path: Path) -> None:
    X, y = rows(60)
    stream(csv_of(X, y), "--kind=nb", "--save=m.zip")
    others = np.column_stack([X[:, 2], y == y[0], X[:, 0], X[:, 1]])
    turned = csv_of(others, y, ["age", "other", "height", "rings"])
    found = stream(turned, "--model=m.zip", "--save=n.zip")[0]
    assert found == stream(csv_of(X, y), "--model=m.zip", "--save=o.zip")[0]
    assert streamgda.load("n.zip").class_count_.sum() == 120
    # without names of features, or a header, columns are in order
    assert len(stream(csv_of(X, y), f"--model={data / 'qda.zip'}")[0]) == 60
    body = csv_of(X, y).split("\n", 1)[1].replace(",", ";")
    plain = stream(body.replace("\n", "\r\n"), "--model=m.zip", "--no-header", "--label-column=3")[
        0
    ]
    header = stream(b"\xef\xbb\xbf" + csv_of(X, y).encode(), "--model=m.zip")[0]
    assert plain == [*header]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("height,rings,kind\n1,2,ham\n", "--model=m.zip", "0 columns named 'age'"),
        ("height,rings,age\n1,2,3\n", "--model=m.zip", "0 columns named 'kind'"),
        ('{"height": 1, "rings": 2, "kind": 1}\n', "--model=m.zip", "line 1 has no age"),
        ("1,2,ham\n", "--kind=nb --no-header --label-column=7", "index of one of 3 columns"),
        ("", "--kind=nb", "rows has no first line"),
        ("\xff\xfe\n", "--kind=nb", "line 1 cannot be read"),
        ("a,kind\n1,x\n", "--kind=qda --shrinkage=auto", "known when all of them have been read"),
        ("a,kind\n1,x\n", "--kind=nb --delimiter=ab", "must be one character"),
        ("a,kind\n1,x\n", "--model=nowhere.zip", "nowhere.zip does not exist"),
        ("a,kind\n1,x\n", "--kind=nb --output=m.zip", "--overwrite replaces it"),
        ("a,kind\n1,x\n", "--kind=nb --save=m.zip", "--overwrite replaces it"),
    ],
)
def test_nothing_is_learnt_if_columns_are_missing(
    stream: Callable[..., Any], tmp_path: Path, text: str, options: str, message: str
) -> None:
    X, y = rows(20)
    model = streamgda.GaussianNB().fit(X, y)
    model.feature_names_in_ = np.array(COLUMNS, object)
    model.save(tmp_path / "m.zip")
    before = (tmp_path / "m.zip").read_bytes()
    found, report = stream(text.encode("latin-1"), *options.split(), code=1)
    assert found == []
    assert report.count("\n") == 1
    assert message in report
    assert (tmp_path / "m.zip").read_bytes() == before


@pytest.mark.parametrize(
    "options",
    [
        "",
        "--kind=nb --model=m.zip",
        "--kind=nb --proba",
        "--kind=nb --priors=0.5,0.5",
        "--kind=nb --output=c --checkpoint=c",
        "--model=m.zip --reg-param=1",
        "--model=m.zip --classes=a,b",
    ],
)
def test_wrong_usage(stream: Callable[..., Any], options: str) -> None:
    stream("a,kind\n1,x\n", *options.split(), code=2)


# --- lines that cannot be read, and models that cannot be computed --------------------------------


def test_bad_lines_are_named_and_keep_their_place(stream: Callable[..., Any]) -> None:
    X, y = rows(40)
    text = csv_of(X, y).splitlines()
    bad = {
        "1,2,3": "it has 3 fields, the first line has 4",
        "1,two,3,ham": "rings is not a number: 'two'",
        "1,2,,ham": "age is missing: ''",
        "1,inf,3,ham": "rings is not finite: 'inf'",
        '1,2,3,"ham': "unexpected end of data",
        "1,2,3,\xff": "it is not UTF-8",
    }
    lines = [*text[:21], *bad, text[0], "", *text[21:], ""]
    data = "\n".join(lines).encode("latin-1")
    found, report = stream(data, "--kind=nb", "--save=m.zip")
    assert [n for n, line in enumerate(found) if line == '""'][-6:] == [*range(20, 26)]
    assert len(found) == 46
    for number, reason in enumerate(bad.values(), 22):
        assert f"streamgda: rows, line {number}: {reason}" in report
    assert "lines that cannot be read: 6" in report
    clean = stream(csv_of(X, y), "--kind=nb", "--save=n.zip")[0]
    assert found[:20] == clean[:20]
    assert streamgda.load("m.zip").class_count_.sum() == 40
    found, report = stream(data, "--kind=nb", "--strict", code=1)
    assert (len(found), report.count("\n")) == (20, 1)
    assert "streamgda: rows, line 22: it has 3 fields" in report


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "it is not JSON"),
        ("[1]", "it is not a JSON object"),
        ('{"a": 1}', "b is missing"),
        ('{"a": 1, "b": "2"}', "b is not a number: '2'"),
        ('{"a": 1, "b": true}', "b is not a number: True"),
        ('{"a": NaN, "b": 2}', "a is not finite"),
        ('{"a": 1' + "0" * 400 + ', "b": 2}', "a is not finite"),
        ('{"a": 1, "b": 2, "kind": [3]}', "the label is no text or number"),
        ('{"a": 1, "b": 2, "kind": "x"}', "the label 'x' is no int64, as the classes are"),
    ],
)
def test_json_that_is_no_row(stream: Callable[..., Any], line: str, reason: str) -> None:
    good = '{"a": 1, "b": 2, "kind": 3}\n'
    found, report = stream(good + line + "\n" + good, "--kind=nb", "--save=m.zip")
    assert len(found) == 3
    assert f"rows, line 2: {reason}" in report
    assert streamgda.load("m.zip").classes_.tolist() == [3]


def test_a_class_with_few_rows_does_not_end_predictions(stream: Callable[..., Any]) -> None:
    X, y = rows(200)
    rare = np.flatnonzero(y == "ham")
    order = [*np.flatnonzero(y != "ham"), *rare]
    found = stream(csv_of(X[order], y[order]), "--kind=qda", "--batch-rows=1")[0]
    start = len(y) - len(rare)
    assert '""' not in found[20:]
    assert "ham" not in found[: start + 4]  # a covariance of three features needs four rows
    assert found[start + 20 :].count("ham") > 0.8 * (len(rare) - 20)


def test_without_a_model_the_reason_is_reported(stream: Callable[..., Any]) -> None:
    X, y = rows(30)
    found, report = stream(csv_of(X[:, [0, 1, 1]], y), "--kind=qda")
    assert set(found) == {'""'}
    assert "no predictions: the covariance of 3 of 3 classes is singular" in report
    assert "accuracy" not in report
    report = stream(csv_of(X, [None] * 30), "--kind=qda", "--save=m.zip")[1]
    assert "nothing was learnt: no estimator is saved to m.zip" in report


# --- checkpoints ----------------------------------------------------------------------------------

KEPT = ("--kind=nb", "--batch-rows=1", "--checkpoint=c.zip", "--output=p.csv", "--save=m.zip")


def test_a_file_that_grew_is_read_on(stream: Callable[..., Any], tmp_path: Path) -> None:
    X, y = rows(90)
    text, saved = csv_of(X, y), []
    stream(text, *KEPT)
    saved.append(((tmp_path / "p.csv").read_bytes(), streamgda.load("m.zip").to_bytes()))
    for name in ("c.zip", "p.csv", "m.zip"):
        (tmp_path / name).unlink()
    for end in (0.3, 0.35, 0.8, 1):
        part = text[: int(end * len(text))]
        report = stream(part, *KEPT)[1]
        assert ("the last line has no line break yet" in report) == (part[-1] != "\n")
    saved.append(((tmp_path / "p.csv").read_bytes(), streamgda.load("m.zip").to_bytes()))
    assert saved[0] == saved[1]
    assert f"rows: 90, accuracy: {np.mean(scored_right(saved[0][0], y)):.4f}" in report


def scored_right(output: bytes, y: np.ndarray) -> list[bool]:
    found = output.decode().split("\n")[1:-1]
    return [a == b for a, b in zip(found, y, strict=True) if a != '""']


def test_other_streams_and_runs_are_not_resumed(stream: Callable[..., Any], tmp_path: Path) -> None:
    X, y = rows(40)
    text = csv_of(X, y)
    stream(text, *KEPT)
    kept = {name: (tmp_path / name).read_bytes() for name in ("c.zip", "p.csv", "m.zip")}
    cases = [
        (text.replace("ham", "hem"), KEPT, "does not begin with the"),
        (text[:300], KEPT, "does not begin with the"),
        (text, (*KEPT, "--half-life=9"), "was started with half_life: None; now it is 9.0"),
        (text, ("--kind=lda", *KEPT[1:]), "was started with kind"),
        (text, (*KEPT, "--save=n.zip"), "was started with save: m.zip; now it is n.zip"),
    ]
    for changed, options, message in cases:
        assert message in stream(changed, *options, code=1)[1]
        assert kept == {name: (tmp_path / name).read_bytes() for name in kept}
    (tmp_path / "p.csv").write_bytes(kept["p.csv"][:50])
    assert "p.csv has fewer than the" in stream(text, *KEPT, code=1)[1]
    streamgda.Checkpoint("c.zip").save(streamgda.load("m.zip"), 40)
    assert "is not the checkpoint of such a stream" in stream(text, *KEPT, code=1)[1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_stream_after_a_batch(
    stream: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    X, y = rows(60)
    stream(csv_of(X, y), *KEPT)
    saved = streamgda.load("m.zip").to_bytes(), (tmp_path / "p.csv").read_bytes()
    for name in ("c.zip", "p.csv", "m.zip"):
        (tmp_path / name).unlink()
    write, calls = Predictions.write, []

    def interrupted(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 25:
            os.kill(os.getpid(), number)
        return write(*arguments)

    monkeypatch.setattr(Predictions, "write", interrupted)
    report = stream(csv_of(X, y), *KEPT, code=128 + number)[1]
    assert "rows: 25," in report
    assert streamgda.load("m.zip").class_count_.sum() == 25
    stream(csv_of(X, y), *KEPT)
    assert (streamgda.load("m.zip").to_bytes(), (tmp_path / "p.csv").read_bytes()) == saved


def test_standard_input_resumes_from_its_start(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    X, y = rows(60)
    text = csv_of(X, y)
    options = ("--label-column=kind", "--kind=nb", "--checkpoint=c.zip", "--batch-rows=1")

    def piped(part: str) -> list[str]:
        (tmp_path / "part").write_text(part)
        with (tmp_path / "part").open() as file, monkeypatch.context() as patch:
            patch.setattr("sys.stdin", file)
            ended = command("stream", "-", *options)
            assert ended.code == 0, ended.err
            return ended.out.splitlines()

    first, second = piped(text[: len(text) // 2]), piped(text)
    (tmp_path / "c.zip").unlink()
    assert first + second == piped(text)


# --- reports --------------------------------------------------------------------------------------


def test_reports(stream: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = rows(100)
    monkeypatch.setattr(lines, "_BYTES", 2000)
    report = stream(csv_of(X, y), "--kind=nb", "--every=0")[1].splitlines()
    assert len(report) > 3
    assert ", accuracy of late: " in report[2]
    assert report[-1].startswith("streamgda: rows: 100, accuracy: ")
    monkeypatch.setenv("FORCE_COLOR", "1")
    panel = stream(csv_of(X, y), "--kind=nb", "--output=p.csv")[1]
    assert "streamgda stream" in panel
    assert "╭" in panel


def test_drift_is_reported(stream: Callable[..., Any]) -> None:
    X, y = rows(400)
    labels = [None if n % 5 == 0 else label for n, label in enumerate(y)]
    X[300:] += 2
    text = csv_of(X, labels)
    report = stream(text, "--kind=nb", "--drift-window=20", "--save=m.zip")[1]
    windows = (len(y) - 250) // 20  # the first ten windows of rows with labels are the reference
    assert f"drift: 5 of {windows} windows, last rows 120 to 140 (all rows: means" in report
    report = stream(text, "--model=m.zip", "--drift-window=200", "--half-life=1000")[1]
    assert "drift: 1 of 2 windows, last rows 200 to 400 (all rows: means)" in report
    bernoulli = "--kind=bernoulli", "--drift-window=20"
    assert "drift" not in stream(text, *bernoulli)[1]
    assert "drift" not in stream(text, "--kind=nb", "--drift-window=0")[1]


def test_what_cannot_be_compared_ends_the_reports_of_drift_only(stream: Callable[..., Any]) -> None:
    text = csv_of(rows(60)[0], ["ham"] * 60)
    found, report = stream(text, "--kind=nb", "--drift-window=1")
    assert len(found) == 60
    assert "drift: not compared: window=1" in report


# --- processes that are killed --------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="pipes are waited for")
def test_a_killed_process_resumes_in_a_file_that_grows(command: Command, tmp_path: Path) -> None:
    """``kill -9`` of ``--follow``, while the last line is half written; then to its end."""
    X, y = rows(400)
    text = csv_of(X, y).encode()
    source, output = tmp_path / "rows.csv", tmp_path / "p.csv"
    source.write_bytes(text[:9000])
    options = ("stream", source, "--label-column=kind", "--kind=qda", "--output", output)
    options += ("--checkpoint", tmp_path / "c.zip", "--save", tmp_path / "m.zip")
    running = started(*options, "--follow", "--checkpoint-every=0", "--every=0")
    assert running.stderr is not None
    for line in running.stderr:  # until all complete lines are predicted
        if b"rows: " in line and line.split(b"rows: ")[1].split(b",")[0] == b"%d" % (
            text[:9000].count(b"\n") - 1
        ):
            break
    running.kill()
    running.wait()
    running.stderr.close()
    assert text[9000 - 1 : 9000] != b"\n"
    assert output.stat().st_size
    source.write_bytes(text)
    assert command(*options).code == 0
    resumed = output.read_bytes(), streamgda.load(tmp_path / "m.zip").to_bytes()
    for name in ("c.zip", "p.csv", "m.zip"):
        (tmp_path / name).unlink()
    assert command(*options).code == 0
    assert (output.read_bytes(), streamgda.load(tmp_path / "m.zip").to_bytes()) == resumed


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="pipes are waited for")
def test_a_pipe_that_is_closed_and_a_signal_end_a_process(tmp_path: Path) -> None:
    X, y = rows(400)
    (tmp_path / "rows.csv").write_text(csv_of(X, y))
    options = ("stream", "--label-column=kind", "--kind=nb", "--checkpoint", tmp_path / "c.zip")
    closed = started(*options, tmp_path / "rows.csv", stdout=subprocess.PIPE)
    waiting = started(*options[:-2], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert closed.stdout is not None
    closed.stdout.close()
    assert closed.communicate()[1] == b""
    assert closed.returncode == 141
    assert waiting.stdin is not None
    assert waiting.stdout is not None
    waiting.stdin.write(csv_of(X[:5], y[:5]).encode())
    waiting.stdin.flush()
    found = [waiting.stdout.readline() for _ in range(6)]  # while the input stays open
    waiting.send_signal(signal.SIGTERM)
    assert b"rows: 5," in waiting.communicate()[1]
    assert found[0] == b"prediction\n"
    assert waiting.returncode == 143
