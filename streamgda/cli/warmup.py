"""`streamgda warmup`: compile the kernels ahead of time."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from streamgda.cli import screen


def warmup(
    types: Annotated[
        str, typer.Option(metavar="TYPE,...", help="Data types of rows.")
    ] = "uint8,float32,float64",
    kinds: Annotated[
        str, typer.Option(metavar="KIND,...", help="Estimators: qda, lda, gnb.")
    ] = "qda,lda,gnb",
) -> None:
    """Compile the kernels ahead of time: as an image is built, or once on a machine."""
    import streamgda  # noqa: PLC0415  (see the note in `options`)

    started = time.perf_counter()
    streamgda.warmup(types, kinds, progress=True)
    screen.say(f"kernels compiled or found in {time.perf_counter() - started:.1f} s")
