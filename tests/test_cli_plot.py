"""The command line draws pictures and learning curves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import Command, rows
from samples import held

import streamgda
from streamgda.cli.learning import Stream
from streamgda.datasets import convert
from streamgda.rows.slabs import Slabs


@pytest.mark.parametrize(
    "arguments",
    [
        "confusion --store rows.zarr",
        "boundary --store rows.zarr --features 2,0",
        "boundary --store rows.zarr --directions fisher",
        "boundary --directions pca",
        "boundary",
        "densities --store rows.zarr --features 2",
        "densities --directions fisher",
        "means --shape 1,3",
        "samples --shape 1,3 --n 2 --seed 1",
        "spectra",
        "spectra --n 2",
        "learning --store rows.zarr",
    ],
)
def test_plot_draws_pictures(
    done: Callable[..., str], data: Path, tmp_path: Path, arguments: str
) -> None:
    pytest.importorskip("matplotlib")
    picture, *options = arguments.split()
    options = [str(data / o) if o.endswith(".zarr") else o for o in options]
    out = tmp_path / "picture.png"
    said = done("plot", picture, data / "qda.zip", "--out", out, *options)
    assert said.startswith(f"{picture} of QuadraticDiscriminantAnalysis: drawn to")
    assert out.read_bytes().startswith(b"\x89PNG")


def test_directions_have_the_shrinkage_of_the_estimator(
    done: Callable[..., str], data: Path, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    for rule in ("auto", "ledoit_wolf"):
        model, out = tmp_path / f"{rule}.zip", tmp_path / f"{rule}.png"
        done("fit", data / "rows.zarr", "--model", model, f"--shrinkage={rule}")
        done("plot", "densities", model, "--directions", "fisher", "--out", out)
        assert out.read_bytes().startswith(b"\x89PNG")


@pytest.fixture
def curve(done: Callable[..., str], data: Path, tmp_path: Path, monkeypatch: Any) -> Any:
    """Rows seen and accuracies, as `plot learning` draws them."""
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    figures: list[Any] = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *_, **__: figures.append(self))

    def draw(model: Path, store: Path, *options: object) -> tuple[np.ndarray, np.ndarray]:
        out = tmp_path / "curve.png"
        said = done("plot", "learning", model, "--store", store, "--out", out, *options)
        assert said.startswith("learning of")
        return figures[-1].axes[0].lines[0].get_data()

    return draw


def test_a_learning_curve_ends_at_the_model_of_all_rows_but_those_held_out(
    data: Path, curve: Any
) -> None:
    X, y = rows()
    seen, accuracy = curve(data / "qda.zip", data / "rows.zarr", "--n", 8)
    held_out = np.arange(len(X)) % 10 == 0
    qda = streamgda.QuadraticDiscriminantAnalysis().fit(X[~held_out], y[~held_out])
    assert seen[-1] == (~held_out).sum()
    assert accuracy[-1] == qda.score(X[held_out], y[held_out])
    assert 4 <= len(seen) <= 20
    assert seen[0] < 40  # the rise at the start is included


def test_a_learning_curve_is_held_against_the_store_that_is_named(
    data: Path, tmp_path: Path, curve: Any
) -> None:
    X, y = rows(seed=1)
    convert(X, tmp_path / "test.zarr", labels=y)
    model = tmp_path / "nb.zip"
    streamgda.GaussianNB(var_smoothing=0.5).fit(*rows()).save(model)
    seen, accuracy = curve(model, data / "rows.zarr", "--test", tmp_path / "test.zarr")
    assert seen[-1] == 240
    expected = streamgda.GaussianNB(var_smoothing=0.5).fit(*rows())
    assert accuracy[-1] == expected.score(X, y)
    fifty = np.searchsorted(seen, 50)
    n = int(seen[fifty])
    first = streamgda.GaussianNB(var_smoothing=0.5).fit(rows()[0][:n], rows()[1][:n])
    assert accuracy[fifty] == first.score(X, y)


@pytest.mark.parametrize("hold_out", [True, False])
@pytest.mark.parametrize("n", [1, 40])
def test_batches_and_held_out_rows_are_all_rows_once(n: int, hold_out: bool) -> None:
    X = np.arange(523.0)[:, None]
    stored = [held(array, "zarr", 50) for array in (X, X[:, 0].astype(int))]
    estimator = streamgda.GaussianNB().fit(X, X[:, 0] > 100)
    stream = Stream(estimator, *stored, n, hold_out, "100MB")
    stream._slabs = Slabs(100)
    batches = list(stream)
    learned = np.concatenate([labels for _, labels in batches])
    np.testing.assert_array_equal(np.concatenate([rows for rows, _ in batches])[:, 0], learned)
    if not hold_out:
        np.testing.assert_array_equal(learned, np.arange(523))
        return
    rows_held, labels_held = stream.held_out()
    np.testing.assert_array_equal(labels_held, np.arange(0, 523, 10))
    np.testing.assert_array_equal(rows_held[:, 0], labels_held)
    np.testing.assert_array_equal(np.sort(np.append(learned, labels_held)), np.arange(523))


def test_a_learning_curve_of_other_rows_is_refused(
    command: Command, data: Path, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    arguments = ("plot", "learning", data / "qda.zip", "--out", tmp_path / "p.png")
    rows_of = ("--store", data / "rows.zarr")
    for options in (("--store", data / "narrow.zarr"), (*rows_of, "--test", data / "narrow.zarr")):
        refused = command(*arguments, *options)
        assert refused.code == 1
        assert "expects rows of 3 features" in refused.err
    refused = command(*arguments, *rows_of, "--max-memory", "1kB")
    assert refused.code == 1
    assert "max_memory" in refused.err
    assert not list(tmp_path.iterdir())


def test_plot_replaces_nothing_unasked(
    command: Command, done: Callable[..., str], data: Path, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "picture.svg"
    done("plot", "spectra", data / "qda.zip", "--out", out)
    refused = command("plot", "boundary", data / "qda.zip", "--out", out)
    assert refused.code == 1
    assert "--overwrite replaces it" in refused.err
    done("plot", "boundary", data / "qda.zip", "--out", out, "--overwrite")
    unknown = command("plot", "spectra", data / "qda.zip", "--out", tmp_path / "picture.xyz")
    assert unknown.code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["picture.svg"]
    square = command("plot", "means", data / "qda.zip", "--out", tmp_path / "means.png")
    assert "shape=(1, 1) does not match 3 features" in square.err
