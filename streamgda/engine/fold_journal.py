"""`FoldJournal`: checkpoints of the moments of folds, and of the scores of rows held out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from streamgda.engine.fingerprints import REMEDY
from streamgda.engine.journal import Journal, RowJournal
from streamgda.errors import CheckpointError
from streamgda.moments import ClassMoments


class FoldJournal(RowJournal):
    """A journal of moments of parts of rows, and then of sums of scores.

    Parameters
    ----------
    path, every, description
        As of `Journal`.
    parts : list of ClassMoments
        Empty moments of each part, for a pass that starts.
    shape : tuple of int
        Shape of the sums of scores.

    Attributes
    ----------
    parts : list of ClassMoments
        Moments of the parts so far.
    done : int
        Rows that were read so far, counted again in each pass.
    scored : list of int
        Number of candidates that each pass scores; empty before the first one.
    sums : ndarray of float64
        Sums of scores so far.
    """

    kind = "{:,} rows, counted in each pass"

    def __init__(
        self,
        path: Any,
        every: float,
        description: Mapping[str, str],
        parts: list[ClassMoments],
        shape: tuple[int, ...],
    ) -> None:
        Journal.__init__(self, path, every, description)
        names = [str(number) for number in range(len(parts))]
        fits = self.sums is None or self.sums.shape == shape
        if self.kept is not None and (sorted(self.held) != sorted(names) or not fits):
            raise CheckpointError(f"{self} is damaged: it holds other folds. {REMEDY}")
        held: dict[str, Any] = self.held
        self.parts = [held.get(name, part) for name, part in zip(names, parts, strict=True)]
        if self.sums is None:
            self.sums = np.zeros(shape)
        self._sound = True

    @property
    def n_passes(self) -> int:
        """Number of passes over the rows, as far as it is known."""
        return 1 + len(self.scored)

    @contextlib.contextmanager
    def adding(self, done: int, *seen: Any) -> Iterator[None]:
        """Enter a context in which the caller adds rows to moments or sums.

        Parameters
        ----------
        done : int
            Number of rows that were read afterwards, counted again in each pass.
        *seen
            Arguments of ``self.seen.add``, in the first pass.
        """
        self.try_place()
        self._sound = False
        yield
        if self.keeps and seen:
            self.seen.add(*seen)
        self.done, self._sound = done, True
        if self.due:
            self.keep()

    def keep(self) -> None:
        """Write moments and sums, unless an update of them was interrupted."""
        if self._sound and self.done != self._written:
            moments = {str(number): part for number, part in enumerate(self.parts)}
            self._write(self.seen.as_json(), moments)
