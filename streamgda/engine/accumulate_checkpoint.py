"""Checkpoints of passes that accumulate rows: journals write them, and resume from them."""

from __future__ import annotations

import contextlib
import functools
import math
import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from streamgda.engine.fingerprints import REMEDY, check_seen, refuse_others
from streamgda.engine.reading import Resumable
from streamgda.errors import (
    CheckpointError,
    FormatError,
    InvalidDataError,
    InvalidParameterError,
    MergeError,
)
from streamgda.moments import ClassMoments, GroupedMoments, Moments, PairwiseMoments
from streamgda.rows.sources import Slab
from streamgda.runtime.parameters import as_number, shown
from streamgda.storage.files import check_place, local_path
from streamgda.storage.format import check_texts, check_whole
from streamgda.storage.saved import Saved, State, description_of, nested, restore_nested

KIND = "checkpoint"
_KINDS: tuple[type[Moments], ...] = (ClassMoments, GroupedMoments, PairwiseMoments)
_MOMENTS = {kind.__name__: kind for kind in _KINDS}


def as_file(path: Any) -> Path:
    """Return the local path of a checkpoint.

    Raises
    ------
    InvalidParameterError
        If the path is a URL or a directory.
    """
    found = local_path(path)
    if found is None:
        raise InvalidParameterError(f"checkpoint={shown(path)}; expected a path on this machine")
    file = found.resolve()
    if file.is_dir():
        raise InvalidParameterError(f"checkpoint={str(path)!r} is a directory; expected a file")
    return file


def check_interval(seconds: float, name: str) -> float:
    """Return an interval; raise InvalidParameterError unless it is a number of seconds."""
    if type(seconds) is float and seconds == math.inf:  # never, after the first time
        return seconds
    return as_number(name, seconds, "a number of seconds, 0 or more", 0)


@dataclass
class CheckpointContents(Saved):
    """The contents of a checkpoint: moments, and the part of a pass that they are computed from.

    Attributes
    ----------
    description : dict of str
        A description of the data and of the pass.
    done : int
        Rows, batches or parts that the moments include.
    seen : dict
        Fingerprints of these.
    moments : dict of str to Moments
    """

    _kind = KIND

    description: dict[str, str]
    done: int
    seen: dict[str, Any]
    moments: dict[str, Moments]

    def _description(self) -> dict[str, Any]:
        moments = description_of(functools.reduce(operator.add, self.moments.values()))
        return {**moments, "kind": "checkpoint", "done": self.done}

    def _state(self) -> State:
        states, arrays = nested(self.moments)
        return {
            "made_of": self.description,
            "done": self.done,
            "seen": self.seen,
            "moments": states,
        }, arrays

    @classmethod
    def _from_state(cls, attributes: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        description = dict(attributes["made_of"])
        check_texts("made_of", [*description.values()], len(description))
        done = check_whole("done", attributes["done"], 0)
        check_seen(attributes["seen"], done)
        kind = _MOMENTS[description["moments"]]
        moments = restore_nested(kind, attributes["moments"], arrays)
        for part in moments.values():
            fourth = getattr(part, "fourth_moments", False)
            held = getattr(part, "covariance_type", "full"), str(fourth)
            if held != (description["covariance_type"], description["norms"]):
                raise ValueError(f"its moments are of covariance_type, fourth_moments {held}")
        return cls(description, done, attributes["seen"], moments)


class Journal(Resumable):
    """Base of the objects that write the checkpoints of a pass, and resume from them.

    Parameters
    ----------
    path : path or None
        The checkpoint. With None, nothing is written.
    every : float
        Minimum number of seconds between two writes.
    description : dict of str
        A description of the data and of the pass. A run that resumes must have the same.

    Attributes
    ----------
    held : dict of str to Moments
        Moments from the checkpoint that this run resumes, if any.

    Raises
    ------
    CheckpointError
        If the file is damaged, or belongs to other data or another pass.
    """

    def __init__(self, path: Any, every: float, description: Mapping[str, str]) -> None:
        super().__init__(check_interval(every, "checkpoint_every"))
        self.held: dict[str, Moments] = {}
        self._file = None if path is None else as_file(path)
        self.title = f"The checkpoint {self._file}"
        self._description = dict(description)
        self._tried = False
        if self._file is not None and self._file.exists():
            self._open(self._file)
        else:
            self.try_place()

    def __str__(self) -> str:
        return str(self._file)

    def _open(self, file: Path) -> None:
        try:
            contents = CheckpointContents.load(file)
        except FormatError as error:
            raise CheckpointError(
                f"{self} is not a checkpoint of a pass over rows, or is damaged: {error}. {REMEDY}"
            ) from None
        refuse_others(contents.description, self._description, str(self))
        self.kept, self.held = contents.seen, contents.moments
        self.done = self._written = contents.done

    def try_place(self) -> None:
        """Raise an error, before the pass rather than later, if no checkpoint can be written."""
        if self._file is not None and not self._tried:
            check_place(self._file)
        self._tried = True

    def refuse_skipped(self) -> None:
        """Raise CheckpointError if invalid rows were skipped in the checkpoint."""
        n_skipped = sum(moments.n_skipped for moments in self.held.values())
        if n_skipped:
            raise CheckpointError(
                f"{self} was started with on_invalid: skip, and {n_skipped} rows were left out; "
                f"now it is raise. {REMEDY}"
            )

    def join(self, empty: Moments, names: tuple[str, ...] | None) -> None:
        """Give moments from the checkpoint a map of rows and names of features.

        A transformer is not saved, and comes from `empty`, moments without rows.

        Raises
        ------
        CheckpointError
            If the checkpoint was started with others.
        """
        for moments in self.held.values():
            try:
                moments += empty  # noqa: PLW2901  (in place)
                moments._name_features(names)
            except MergeError as error:
                raise CheckpointError(
                    f"{self} was started with other features: {error}. {REMEDY}"
                ) from None

    @property
    def keeps(self) -> bool:
        """True if checkpoints are written."""
        return self._file is not None

    def _write(self, seen: Mapping[str, Any], moments: Mapping[str, Moments]) -> None:
        if self._file is None or self.done == self._written:
            return
        contents = CheckpointContents(self._description, self.done, dict(seen), dict(moments))
        contents.save(self._file)
        self._was_kept()


class RowJournal(Journal):
    """A journal of moments to which rows are added in order.

    Moments are never written if an error or an interrupt left them with part of a batch of rows.

    Parameters
    ----------
    path, every, description
        As of `Journal`.

    Attributes
    ----------
    moments : Moments
        Moments of the rows so far.
    """

    moments: Moments
    _sound = True

    def started(self, moments: Moments) -> Moments:
        """Return the moments of the rows so far; those that are given, without rows, at first."""
        if self.kept is not None and self.held.keys() != {"rows"}:
            raise CheckpointError(f"{self} is damaged: it holds no moments of rows. {REMEDY}")
        self.moments = self.held.get("rows", moments)
        return self.moments

    @contextlib.contextmanager
    def adding(self, done: int, slab: Slab) -> Iterator[None]:
        """Enter a context in which the caller adds rows to the moments.

        Parameters
        ----------
        done : int
            Number of rows or batches that the moments include afterwards.
        slab : Slab
            The rows.
        """
        self.try_place()
        self._sound = False
        try:
            yield
        except InvalidDataError:  # the moments are unchanged
            self._sound = True
            raise
        if self.keeps:
            self.seen.add(slab)
        self.done = done
        self._sound = True
        if self.due:
            self.keep()

    def keep(self) -> None:
        """Write the moments, unless an update of them was interrupted."""
        if self.keeps and self._sound and self.done:
            self._write(self.seen.as_json(), {"rows": self.moments})
