"""Helpers that run the command line, and rows for it to work on."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

from streamgda.rows.source import RowSource

NAMES = np.array(["eggs", "ham", "spam & [bold]beans"])
PROGRAM = "from streamgda.cli import main; main()"


class Ended(NamedTuple):
    """The exit code and output of a command."""

    code: int
    out: str
    err: str


Command = Callable[..., Ended]


def rows(n: int = 240, *, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    codes = random.integers(0, 3, n)
    centres = np.array([[0.0, 0, 0], [3, 1, 0], [0, 3, 2]])
    return centres[codes] + random.normal(size=(n, 3)), NAMES[codes]


def interrupt_at(patch: pytest.MonkeyPatch, row: int) -> None:
    """Interrupt the reading of rows at the given row."""
    read = RowSource.mapped

    def interrupted(source: RowSource, start: int, stop: int) -> np.ndarray:
        if start == row and len(source.shape) == 2:
            raise KeyboardInterrupt
        return read(source, start, stop)

    patch.setattr(RowSource, "mapped", interrupted)
