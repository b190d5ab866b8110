"""Checkpoints of a pass over rows: a file that is replaced in one step, between slabs only."""

from __future__ import annotations

import contextlib
import glob
import os
import time
from collections.abc import Iterator, Mapping
from numbers import Real
from pathlib import Path
from typing import Any, Self

from streamgda import storage
from streamgda.errors import CheckpointError, FormatError, InvalidDataError, InvalidParameterError
from streamgda.identity import REMEDY, SeenBatches, SeenSlabs, refuse_others
from streamgda.moments import Moments

KIND = "checkpoint"


def as_file(path: Any) -> Path:
    """The local path of a file that is replaced in one step, without what a killed run left there.

    Raises
    ------
    InvalidParameterError
        For an address, or a path where a directory is.
    """
    if not isinstance(path, str | os.PathLike) or "://" in str(path):
        raise InvalidParameterError(f"checkpoint={path!r}; expected a path on this machine")
    file = Path(path).resolve()
    if file.is_dir():
        raise InvalidParameterError(f"checkpoint={str(path)!r} is a directory; a file is written")
    for left in file.parent.glob(f"{glob.escape(file.name)}.*.partial*"):
        left.unlink(missing_ok=True)
    return file


def check_interval(seconds: float, name: str) -> float:
    """The seconds themselves; raise `InvalidParameterError` where they are none."""
    if isinstance(seconds, Real) and seconds >= 0:
        return float(seconds)
    raise InvalidParameterError(f"{name}={seconds!r}; expected a number of seconds, 0 or more")


@contextlib.contextmanager
def replacing(file: Path) -> Iterator[Path]:
    """A path to write a zip file to, which takes the place of `file` in one step.

    Whenever the process or the machine stops, the one file or the other is there.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f"{file.name}.{os.getpid()}.partial.zip")
    try:
        yield partial
        with partial.open("rb+") as written:
            os.fsync(written.fileno())
        partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)


class Journal:
    """Moments as they grow, kept in a file at intervals, and how far they have come.

    Used as a context, it keeps what was done on leaving too, also where that is by an error; but
    never moments that were interrupted while rows were being added to them.

    Parameters
    ----------
    path : path or None
        None keeps nothing.
    every : float
        Seconds between two writes, at least.
    made_of : dict of str
        What the moments are made of, and how; another run must have the same.
    moments : Moments
        Without rows, to begin with.

    Attributes
    ----------
    moments : Moments
    done : int
        Rows, or batches, that they hold.
    kept : dict or None
        What was kept of the data by the run that is gone on with, if one is.
    seen : SeenSlabs or SeenBatches
        To be set before the first row is added.

    Raises
    ------
    CheckpointError
        Where the file is damaged, or of other things.
    """

    seen: SeenSlabs | SeenBatches

    def __init__(
        self, path: Any, every: float, made_of: Mapping[str, str], moments: Moments
    ) -> None:
        self.moments = moments
        self.done = 0
        self.kept: dict[str, Any] | None = None
        self._file = None if path is None else as_file(path)
        self._every = check_interval(every, "checkpoint_every")
        self._made_of = dict(made_of)
        self._written = 0  # rows, or batches, that are in the file,
        self._since = time.monotonic()  # and when that was
        self._sound = True
        if self._file is not None and self._file.exists():
            self._resume()

    def __str__(self) -> str:
        return str(self._file)

    def _resume(self) -> None:
        try:
            attributes, arrays = storage.read(self._file, KIND)
            made_of = dict(attributes["made_of"])
            self.kept = dict(attributes["seen"])
            refuse_others(made_of, self._made_of, str(self))  # of which the moments might be others
            self.moments = type(self.moments).from_state(attributes["moments"], arrays)
            self.done = self._written = int(attributes["done"])
        except CheckpointError:
            raise
        except (FormatError, LookupError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"{self} is not a checkpoint of such a pass, or is damaged: {error}. {REMEDY}"
            ) from None

    @contextlib.contextmanager
    def adding(self, done: int, *seen: Any) -> Iterator[None]:
        """Within this context rows are added to the moments, which hold `done` afterwards.

        Parameters
        ----------
        done : int
        *seen
            What `self.seen` is told of the rows.
        """
        self._sound = False
        try:
            yield
        except InvalidDataError:  # then the moments are as they were
            self._sound = True
            raise
        if self._file is not None:
            self.seen.add(*seen)
        self.done = done
        self._sound = True
        if time.monotonic() - self._since >= self._every:
            self._write()

    def _write(self) -> None:
        if self._file is None or self.done == self._written:
            return
        moments, arrays = self.moments.state()
        attributes = {
            "made_of": self._made_of,
            "done": self.done,
            "seen": self.seen.as_json(),
            "moments": moments,
        }
        with replacing(self._file) as partial:
            storage.write(partial, KIND, attributes, arrays)
        self._written, self._since = self.done, time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._sound:
            self._write()
        if error is not None and self._written:
            what = "rows" if isinstance(self.seen, SeenSlabs) else "batches"
            error.add_note(
                f"The checkpoint {self} keeps what was done, the first {self._written:,} {what}: "
                f"run the same again to go on after them"
            )
