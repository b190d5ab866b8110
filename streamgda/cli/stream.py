"""`streamgda stream`: predict rows as they arrive, and learn from them."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from streamgda.cli import options, screen
from streamgda.cli import stream_options as own
from streamgda.cli.convert import column_of
from streamgda.cli.inputs import split_names
from streamgda.cli.paths import (
    check_distinct,
    refuse_occupied,
    refuse_replacing,
    stored_bytes,
    stored_size,
)
from streamgda.cli.recipes import is_given, recipe_of
from streamgda.cli.signals import Stop, stop_on_signals
from streamgda.errors import UnsupportedError

if TYPE_CHECKING:
    from streamgda.datasets.online import OnlineRun

_STDIN = "-"
_BROKEN_PIPE = 128 + 13  # the exit code of a program that SIGPIPE ends
_SHOWN = 10  # lines that cannot be read
_PARAMETERS = (
    *("solver", "covariance_type", "shrinkage", "pooling", "reg_param", "var_smoothing"),
    *("standardize", "priors", "tol", "ddof", "alpha", "binarize"),
)


def stream(
    source: own.Source = _STDIN,
    model: own.StartModel = None,
    kind: own.StartKind = None,
    label_column: own.LabelColumn = None,
    features: own.Features = None,
    classes: own.Classes = None,
    half_life: own.HalfLife = None,
    batch_rows: own.BatchRows = 1000,
    proba: own.Proba = False,
    output: own.Output = None,
    save: own.Save = None,
    checkpoint: own.CheckpointFile = None,
    checkpoint_every: options.CheckpointEvery = 60.0,
    follow: own.Follow = False,
    every: own.Every = 10.0,
    drift_window: own.DriftWindow = 10_000,
    strict: own.Strict = False,
    format: own.Format = None,
    delimiter: options.Delimiter = None,
    header: options.Header = None,
    na: options.MissingMarkers = None,
    default_na: options.DefaultMarkers = True,
    solver: options.SolverName = None,
    covariance_type: options.CovarianceType = None,
    shrinkage: options.Shrinkage = None,
    pooling: options.Pooling = None,
    reg_param: options.RegParam = None,
    var_smoothing: options.VarSmoothing = None,
    standardize: options.Standardize = False,
    priors: options.Priors = None,
    tol: options.Tol = None,
    ddof: options.Ddof = None,
    alpha: options.Alpha = None,
    binarize: options.Binarize = None,
    overwrite: options.Overwrite = False,
) -> None:
    """Predict each row of a stream, then learn from it.

    Rows are lines of CSV with a header, or JSON objects; columns are found by name. A prediction is
    written for each row: an empty one if the line cannot be read, and as long as there is no model.

    Ctrl-C ends the stream like the end of the input. After a kill, the same command resumes from
    --checkpoint: no row is lost or repeated, neither in the estimator nor in --output. Standard
    input must begin with the same bytes again; standard output cannot be taken back, and repeats
    the predictions after the checkpoint.
    """
    given = dict(
        locals()
    )  # as typer converted them, which the parameters of its context may not be
    _check_usage(given)
    estimator, about = _estimator(given)
    kept = _checkpoint(given)
    resumed = kept is not None and kept.offset is not None
    _refuse_replacing(output, save, overwrite or resumed)
    bad = _BadLines()
    with stop_on_signals() as stop:
        run = _run(given, estimator, kept, about, on_bad=bad.report, stopped=stop)
        reports = _Reports(run)
        try:
            with screen.live(every, panel=output is not None or not sys.stdout.isatty()) as show:
                for _ in run.steps():
                    show(reports.figures)
                show(reports.figures, now=True)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the last flush
            raise typer.Exit(_BROKEN_PIPE) from None
    _end(run, save, stop)


def _check_usage(given: dict[str, Any]) -> None:
    source, model, kind = (given[name] for name in ("source", "model", "kind"))
    if (model is None) == (kind is None):
        raise typer.BadParameter(
            "give --model to start from a saved estimator, or --kind to start from nothing"
        )
    if given["follow"] and source == _STDIN:
        raise typer.BadParameter(
            "standard input is read as long as it is open; name a file", param_hint="--follow"
        )
    if kind is None and given["classes"] is not None:
        raise typer.BadParameter("--model has classes", param_hint="--classes")
    if given["classes"] is None:
        for name in ("proba", "priors"):
            if kind is not None and given[name]:
                raise typer.BadParameter("name the --classes, too", param_hint=f"--{name}")
    paths = {f"--{name}": given[name] for name in ("output", "save", "checkpoint")}
    check_distinct({"SOURCE": None if source == _STDIN else Path(source), **paths})


def _estimator(given: dict[str, Any]) -> tuple[Any, dict[str, str]]:
    """Return the estimator to start from, and a description of it."""
    from streamgda import load  # noqa: PLC0415  (see the note in `options`)
    from streamgda.estimators.base import MomentClassifier  # noqa: PLC0415

    parameters = {name: given[name] for name in _PARAMETERS}
    if given["kind"] is not None:
        recipe = recipe_of(given["kind"], **parameters)
        return recipe.estimator_class(**recipe.params), {"kind": repr(recipe)}
    for name, value in parameters.items():
        if is_given(value):
            raise typer.BadParameter(
                "the estimator of --model has its own parameters",
                param_hint=f"--{name.replace('_', '-')}",
            )
    estimator = load(given["model"])
    if not isinstance(estimator, MomentClassifier):
        raise UnsupportedError(
            f"{given['model']} is a {type(estimator).__name__}, which cannot learn from a stream; "
            f"fit it with --kind {', '.join(options.Kind)}"
        )
    return estimator, {"model": str(given["model"])}


def _checkpoint(given: dict[str, Any]) -> Any:
    from streamgda import Checkpoint  # noqa: PLC0415

    if given["checkpoint"] is None:
        return None
    return Checkpoint(given["checkpoint"], given["checkpoint_every"])


def _refuse_replacing(output: Path | None, save: Path | None, allowed: bool) -> None:
    """Raise InvalidParameterError if an output exists and may not be replaced."""
    if output is not None and stored_bytes(output):
        refuse_occupied(output, allowed)
    if save is not None:
        refuse_replacing(save, "estimator", allowed)


def _run(
    given: dict[str, Any], estimator: Any, kept: Any, about: dict[str, str], **calls: Any
) -> OnlineRun:
    from streamgda.datasets.linecolumns import LineOptions  # noqa: PLC0415
    from streamgda.datasets.online import OnlineOptions, OnlineRun  # noqa: PLC0415

    column, names, classes = given["label_column"], given["features"], given["classes"]
    delimiter, na = given["delimiter"], given["na"]
    lines = LineOptions(
        format=given["format"] and given["format"].value,
        delimiter=delimiter and delimiter.replace("\\t", "\t"),
        header=given["header"],
        label=None if column is None else column_of(column),
        features=None if names is None else split_names(names),
        na_values=None if na is None else tuple(na),
        keep_default_na=given["default_na"],
    )
    same = ("source", "output", "follow", "strict", "proba", "half_life", "batch_rows")
    online = OnlineOptions(
        lines=lines,
        classes=None if classes is None else tuple(split_names(classes)),
        **{name: given[name] for name in (*same, "drift_window")},
    )
    return OnlineRun(estimator, online, kept, about | {"save": str(given["save"])}, **calls)


def _end(run: OnlineRun, save: Path | None, stop: Stop) -> None:
    """Save the estimator, and exit with the code that a shell expects."""
    estimator = run.learner.estimator
    if run.lines.unfinished:
        screen.note(
            "the last line has no line break yet, and is left: the same command reads it when it "
            "is complete"
        )
    if save is not None and hasattr(estimator, "moments_"):
        estimator.save(save)
        screen.note(f"{' '.join(repr(estimator).split())}: saved to {save} ({stored_size(save)})")
    elif save is not None:
        screen.note(f"nothing was learnt: no estimator is saved to {save}")
    if stop():
        raise typer.Exit(stop.exit_code)


class _BadLines:
    """Notes on the first lines that cannot be read."""

    def __init__(self) -> None:
        self._shown = 0

    def report(self, text: str) -> None:
        """Write a note, unless there were many."""
        self._shown += 1
        if self._shown <= _SHOWN:
            more = "" if self._shown < _SHOWN else "; further ones are only counted"
            screen.note(f"{text}{more}")


class _Reports:
    """Figures of a run for its reports."""

    def __init__(self, run: OnlineRun) -> None:
        self._run, self._before = run, replace(run.counts)
        self._since = self._now()

    def figures(self) -> dict[str, str]:
        """Return the figures, some of them since the last call."""
        counts, before = self._run.counts, self._before
        seconds = self._now() - self._since
        shown = {"rows": f"{counts.rows:,}"}
        if counts.scored:
            shown["accuracy"] = f"{counts.right / counts.scored:.4f}"
        if before.scored < counts.scored and before.rows:
            right, scored = counts.right - before.right, counts.scored - before.scored
            shown["accuracy of late"] = f"{right / scored:.4f}"
        shown["rows a second"] = f"{(counts.rows - before.rows) / max(seconds, 1e-9):,.0f}"
        if self._run.drift.n_windows or self._run.drift.failure:
            shown["drift"] = str(self._run.drift)
        if counts.bad:
            shown["lines that cannot be read"] = f"{counts.bad:,}"
        if self._run.learner.refusal:
            shown["no predictions"] = self._run.learner.refusal
        self._before, self._since = replace(counts), self._now()
        return shown

    @staticmethod
    def _now() -> float:
        from streamgda.runtime.compilation import compiled_seconds  # noqa: PLC0415

        return time.monotonic() - compiled_seconds()
