"""Arguments and options that several commands share.

Modules of the command line import NumPy, scikit-learn, zarr and rich inside functions: asking for
help should not wait for them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

Store = Annotated[
    str,
    typer.Argument(
        metavar="STORE", help="zarr group of rows and labels: directory, .zip or address."
    ),
]
Model = Annotated[str, typer.Argument(metavar="MODEL", help="Estimator that was saved.")]
XName = Annotated[
    str, typer.Option("--x", metavar="NAME", help="Name of the array that holds the rows.")
]
YName = Annotated[
    str, typer.Option("--y", metavar="NAME", help="Name of the array that holds the labels.")
]
MaxMemory = Annotated[
    str | None,
    typer.Option(
        metavar="BYTES",
        help="What rows and sums may take, such as 512MB; refused where that is too little.",
    ),
]


class MissingChunks(StrEnum):
    """What a chunk that is not there means."""

    FILL = "fill"
    ERROR = "error"


Missing = Annotated[
    MissingChunks,
    typer.Option(
        "--missing", help="Chunks that are not there: rows of the fill value, or an error."
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object, for programs to read.")]
