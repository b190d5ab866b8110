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
from streamgda.engine.fingerprints import REMEDY, SeenBatches, SeenSlabs, refuse_others
from streamgda.errors import (
    CheckpointError,
    ClusterError,
    FormatError,
    InvalidDataError,
    InvalidParameterError,
)
from streamgda.moments import ClassMoments, Moments, PairwiseMoments

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


class Record:
    """Moments in a file, and how far the pass has come that they are of.

    Used as a context, it keeps what was done on leaving too, also where that is by an error.

    Parameters
    ----------
    path : path or None
        None keeps nothing.
    every : float
        Seconds between two writes, at least.
    made_of : dict of str
        What the moments are made of, and how; another run must have the same.

    Attributes
    ----------
    kind : str
        What is counted.
    done : int
        How many of these the moments hold.
    kept : dict or None
        What was kept of the data by the run that is gone on with, if one is.
    held : dict of str to Moments
        What that run has made.

    Raises
    ------
    CheckpointError
        Where the file is damaged, or of other things.
    """

    kind = "the first {:,} rows"

    def __init__(self, path: Any, every: float, made_of: Mapping[str, str]) -> None:
        self.done = 0
        self.kept: dict[str, Any] | None = None
        self.held: dict[str, Moments] = {}
        self._file = None if path is None else as_file(path)
        self._every = check_interval(every, "checkpoint_every")
        self._made_of = dict(made_of)
        self._written = 0  # rows, batches or parts that are in the file,
        self._since = time.monotonic()  # and when that was
        if self._file is not None and self._file.exists():
            self._resume(self._file)

    def __str__(self) -> str:
        return str(self._file)

    def _resume(self, file: Path) -> None:
        try:
            attributes, self.held = read(file)
            made_of = dict(attributes["made_of"])
            self.kept = dict(attributes["seen"])
            self.done = self._written = int(attributes["done"])
        except (FormatError, LookupError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"{self} is not a checkpoint of such a pass, or is damaged: {error}. {REMEDY}"
            ) from None
        refuse_others(made_of, self._made_of, str(self))

    def refuse_skipped(self) -> None:
        """Raise `CheckpointError` where invalid rows were left out of what is held."""
        n_skipped = sum(moments.n_skipped for moments in self.held.values())
        if n_skipped:
            raise CheckpointError(
                f"{self} was begun with on_invalid: skip, and {n_skipped} rows were left out; now "
                f"it is raise. {REMEDY}"
            )

    @property
    def keeps(self) -> bool:
        """Whether there is a file at all."""
        return self._file is not None

    @property
    def due(self) -> bool:
        """Whether it is time to write."""
        return self.keeps and time.monotonic() - self._since >= self._every

    def keep(self) -> None:
        """Write the moments that there are, where they are more than the file holds."""
        raise NotImplementedError

    def _write(self, seen: Mapping[str, Any], held: Mapping[str, Moments]) -> None:
        if self._file is None or self.done == self._written:
            return
        states = {name: moments.state() for name, moments in held.items()}
        attributes = {
            "made_of": self._made_of,
            "done": self.done,
            "seen": dict(seen),
            "moments": {name: state for name, (state, _) in states.items()},
        }
        arrays = {
            f"{name}/{array}": values
            for name, (_, arrays) in states.items()
            for array, values in arrays.items()
        }
        with replacing(self._file) as partial:
            storage.write(partial, KIND, attributes, arrays)
        self._written, self._since = self.done, time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # Of a cluster that failed nothing can be fetched.
        with contextlib.suppress(*() if error is None else (ClusterError,)):
            self.keep()
        if error is not None and self._written:
            error.add_note(
                f"The checkpoint {self} keeps what was done, {self.kind.format(self._written)}: "
                f"run the same again to go on after them"
            )


def read(file: Path) -> tuple[dict[str, Any], dict[str, Moments]]:
    """What a checkpoint says of itself, and the moments in it.

    Raises
    ------
    FormatError, LookupError, TypeError, ValueError
        Where it is damaged, or something else.
    """
    attributes, arrays = storage.read(file, KIND)
    kinds: dict[str, type[Moments]] = {k.__name__: k for k in (ClassMoments, PairwiseMoments)}
    kind = kinds[attributes["made_of"]["moments"]]
    held = {}
    for name, state in dict(attributes["moments"]).items():
        within = f"{name}/"
        mine = {a.removeprefix(within): v for a, v in arrays.items() if a.startswith(within)}
        held[name] = kind.from_state(state, mine)
    return attributes, held


class Journal(Record):
    """Moments to which rows are added, kept in a file at intervals.

    Never are moments kept that were interrupted while rows were being added to them.

    Parameters
    ----------
    path, every, made_of
        As of `Record`.
    moments : Moments
        Without rows, to begin with.

    Attributes
    ----------
    moments : Moments
    seen : SeenSlabs or SeenBatches
        To be set before the first row is added.
    """

    seen: SeenSlabs | SeenBatches

    def __init__(
        self, path: Any, every: float, made_of: Mapping[str, str], moments: Moments
    ) -> None:
        super().__init__(path, every, made_of)
        if self.kept is not None and self.held.keys() != {"rows"}:
            raise CheckpointError(f"{self} is damaged: it holds no moments of rows. {REMEDY}")
        self.moments = self.held.get("rows", moments)
        self._sound = True

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
        if self.keeps:
            self.seen.add(*seen)
        self.done = done
        self._sound = True
        if self.due:
            self.keep()

    def keep(self) -> None:
        """Write the moments, unless they are not whole."""
        if self._sound and self.done:
            self._write(self.seen.as_json(), {"rows": self.moments})
