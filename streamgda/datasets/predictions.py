"""Predictions of the rows of a stream, as lines of CSV."""

from __future__ import annotations

import contextlib
import csv
import io
import os
import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import numpy as np

from streamgda.engine.fingerprints import REMEDY
from streamgda.errors import CheckpointError
from streamgda.estimators.online import OnlineClassifier


class Predictions:
    """CSV with a line for each row: its predicted class, and probabilities if they are asked for.

    Parameters
    ----------
    file : binary file
    columns : sequence, optional
        Classes whose probabilities are written.
    """

    def __init__(self, file: IO[bytes], columns: Sequence[Any] | None = None) -> None:
        self.file, self._columns = file, columns
        # Quotation marks, because many readers skip empty lines.
        self._none = '""' + "," * len(columns or ())

    @classmethod
    @contextlib.contextmanager
    def opened(
        cls, path: Path | None, size: int, columns: Sequence[Any] | None = None
    ) -> Iterator[Predictions]:
        """Open a file and cut it to `size` bytes, or standard output.

        Raises
        ------
        CheckpointError
            If the file is shorter than that.
        """
        if path is None:
            yield cls(sys.stdout.buffer, columns)
            return
        with path.open("r+b" if path.exists() else "w+b") as file:
            if file.seek(0, os.SEEK_END) < size:
                raise CheckpointError(
                    f"{path} has fewer than the {size} bytes that were written before. {REMEDY}"
                )
            file.truncate(size)
            file.seek(size)
            yield cls(file, columns)

    def size(self) -> int:
        """Return the size of the file, whose contents are on the disk; 0 for standard output."""
        self.file.flush()
        if self.file is sys.stdout.buffer:
            return 0
        os.fsync(self.file.fileno())
        return self.file.tell()

    def start(self) -> None:
        """Write the names of the columns."""
        names = ["prediction", *(f"probability_{label}" for label in self._columns or ())]
        self._write([",".join(map(_field, names))])

    def write(self, learner: OnlineClassifier, X: np.ndarray, good: np.ndarray) -> list[Any]:
        """Write a line for each row, and return the predictions; None where there is none.

        Parameters
        ----------
        learner : OnlineClassifier
        X : ndarray, shape (n_rows, n_features)
        good : ndarray of int
            Rows that can be predicted.
        """
        rows = X if len(good) == len(X) else X[good]
        found = learner.predict(rows) if len(rows) else None
        if found is None:
            self._write([self._none] * len(X))
            return [None] * len(X)
        texts = [*map(_field, found)]
        if self._columns is not None:
            columns = self._probabilities(learner, rows)
            texts = [*map(",".join, zip(texts, *columns, strict=True))]
        if rows is not X:
            found = _spread(found, good, len(X), None)
            texts = _spread(texts, good, len(X), self._none)
        self._write(texts)
        return found

    def _probabilities(self, learner: OnlineClassifier, X: np.ndarray) -> list[list[str]]:
        """Return a column of texts for each class."""
        by_class = dict(zip(*learner.predict_proba(X), strict=True))
        none = [0.0] * len(X)  # of a class that the model leaves out
        return [[f"{p:.6g}" for p in by_class.get(c, none)] for c in self._columns or ()]

    def _write(self, lines: list[str]) -> None:
        self.file.write(("\n".join(lines) + "\n").encode())


def _spread(values: list[Any], rows: np.ndarray, n_rows: int, other: Any) -> list[Any]:
    """Return a list of `n_rows` with values in some rows, and another value in the others."""
    spread = [other] * n_rows
    for row, value in zip(rows.tolist(), values, strict=True):
        spread[row] = value
    return spread


@lru_cache(maxsize=1 << 12)
def _field(value: Any) -> str:
    """Return a field of CSV, in quotation marks where it needs them."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow([value])
    return line.getvalue()
