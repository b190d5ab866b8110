"""Arguments and options of `streamgda stream`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from streamgda.cli.options import Kind


class LineFormat(StrEnum):
    """Formats of lines."""

    CSV = "csv"
    JSON = "json"


Source = Annotated[
    str, typer.Argument(metavar="[SOURCE]", help="File of rows; standard input by default, or as -")
]
StartModel = Annotated[
    Path | None, typer.Option(metavar="PATH", help="Saved estimator to start from.")
]
StartKind = Annotated[
    Kind | None, typer.Option(help="Estimator that starts from nothing, instead of --model.")
]
LabelColumn = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Name, or index from 0, of the column of labels. Rows whose label is empty are only "
        "predicted; without this option, all are.",
    ),
]
Features = Annotated[
    str | None,
    typer.Option(
        metavar="NAME,...",
        help="Columns of features; those of --model, or all but the labels, by default.",
    ),
]
Classes = Annotated[
    str | None,
    typer.Option(
        metavar="LABEL,...",
        help="--kind: labels that are classes before their first row. All labels are integers if "
        "these are; by default, if the first label of the stream is.",
    ),
]
HalfLife = Annotated[
    float | None,
    typer.Option(metavar="ROWS", help="Number of labelled rows after which a row counts half."),
]
BatchRows = Annotated[
    int,
    typer.Option(
        min=1,
        help="Learn at most this many rows at a time, and at most 5 % of all before. Rows are "
        "predicted from those before their batch; 1 is strictly row by row.",
    ),
]
Proba = Annotated[
    bool,
    typer.Option(
        "--proba", help="Write class probabilities too, a column for each class known at the start."
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="CSV of the predictions; standard output by default."),
]
Save = Annotated[
    Path | None, typer.Option(metavar="PATH", help="File for the estimator at the end.")
]
CheckpointFile = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        help="Save estimator and position to this file; run the same command again to resume.",
    ),
]
Follow = Annotated[
    bool, typer.Option("--follow", help="Wait for more rows at the end of the file.")
]
Every = Annotated[
    float, typer.Option(metavar="SECONDS", min=0, help="Time between two reports on stderr.")
]
DriftWindow = Annotated[
    int,
    typer.Option(
        metavar="ROWS",
        min=0,
        help="Compare windows of so many rows with --model, or with what --kind has learnt from "
        "ten of them; 0 for no reports of drift. bernoulli is not compared.",
    ),
]
Strict = Annotated[
    bool, typer.Option("--strict", help="Stop at the first line that cannot be read.")
]
Format = Annotated[
    LineFormat | None,
    typer.Option(help="Format of the lines; JSON by default if the first one begins with {."),
]
