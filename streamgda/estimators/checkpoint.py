"""`Checkpoint`: a file with the state learnt from a stream and the position in the stream."""

from __future__ import annotations

import contextlib
import os
import time
import weakref
from typing import Any

from streamgda.engine.accumulate_checkpoint import CheckpointContents, as_file, check_interval
from streamgda.engine.fingerprints import REMEDY
from streamgda.errors import CheckpointError, FormatError
from streamgda.runtime.parameters import check_type
from streamgda.storage.format import check_offset
from streamgda.storage.replacing import lock_of, locked, owner, replacing
from streamgda.storage.saved import Saved, read_saved

_STATE = "a fitted estimator, moments, a SlidingWindow or a DriftMonitor"


class Checkpoint:
    """A file that holds the state learnt from a stream, and the position in the stream.

    Both are replaced in one step: whenever the process is killed, the file holds a position and
    the state of exactly the rows before it. A process that resumes there counts every row once.
    While this object lives, other processes cannot open the file as a `Checkpoint`; `load` reads it
    at any time.

    Parameters
    ----------
    path : path
        Path of a zip file. `load` also reads the state from it.
    every : float
        Seconds between two saves, after which `due` is true.

    Attributes
    ----------
    state : estimator, moments, SlidingWindow, DriftMonitor or None
        The saved state; None before the first save.
    offset : object
        The position that was saved with it.

    Raises
    ------
    CheckpointError
        If the file is damaged, holds anything else, or is in use by another process.

    Examples
    --------
    >>> import tempfile
    >>> from streamgda import Checkpoint, GaussianNB
    >>> rows, labels = [[0.0], [1.0], [5.0], [7.0]], ["a", "a", "b", "b"]
    >>> folder = tempfile.TemporaryDirectory()
    >>> def learn(until):
    ...     checkpoint = Checkpoint(f"{folder.name}/nb.zip")
    ...     nb = checkpoint.state or GaussianNB()
    ...     for n in range(checkpoint.offset or 0, until):
    ...         nb.partial_fit(rows[n : n + 1], labels[n : n + 1])
    ...         checkpoint.save(nb, n + 1)
    ...     return nb.class_count_
    >>> learn(3), learn(4)
    (array([2., 1.]), array([2., 2.]))
    >>> folder.cleanup()
    """

    def __init__(self, path: Any, every: float = 60.0) -> None:
        self._file = as_file(path)
        self._every = check_interval(every, "every")
        self._saved = time.monotonic()
        self.state: Any = None
        self.offset: Any = None
        self._lock = contextlib.ExitStack()
        weakref.finalize(self, self._lock.close)
        self._holder: int | None = None  # the process that holds the lock: not a forked child
        self._hold()
        self._found = self._stamp()
        if self._found is not None:
            self._load()

    def __str__(self) -> str:
        return str(self._file)

    def _hold(self) -> None:
        """Keep other processes from using the file, as long as this object lives."""
        lock = lock_of(self._file)
        with contextlib.suppress(OSError):  # a directory that cannot be written, or is missing
            if self._holder != os.getpid() and self._lock.enter_context(locked(lock)):
                self._holder = os.getpid()
            if self._holder != os.getpid() and (process := owner(lock)) != os.getpid():
                raise CheckpointError(
                    f"{self} is in use by process {process}: wait for it, or name another path "
                    f"(if there is none, remove {lock})"
                )

    def _stamp(self) -> tuple[int, int] | None:
        """Return what distinguishes the file from the one that replaces it."""
        try:
            found = self._file.stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns

    def _load(self) -> None:
        try:
            self.state, self.offset = read_saved(self._file)
            if isinstance(self.state, CheckpointContents):
                raise FormatError("it is the checkpoint of a pass over rows")
        except FormatError as error:
            raise CheckpointError(
                f"{self._file} is not the checkpoint of a stream, or is damaged: {error}. {REMEDY}"
            ) from None

    @property
    def due(self) -> bool:
        """True if `every` seconds have passed since the checkpoint was opened or saved."""
        return time.monotonic() - self._saved >= self._every

    def save(self, state: Any, offset: Any) -> None:
        """Replace the saved state and its position.

        Parameters
        ----------
        state : estimator, moments, SlidingWindow or DriftMonitor
            The state learnt from the rows before `offset`.
        offset : object
            The position at which to resume the stream: any value that JSON can hold.

        Raises
        ------
        CheckpointError
            If the file is in use by another process, or was saved by another `Checkpoint` since
            this one read or saved it. The file does not change.
        InvalidParameterError
            If JSON cannot hold the offset. The file does not change.
        TypeError
            For any other state. The file does not change.

        Examples
        --------
        >>> from tempfile import TemporaryDirectory
        >>> from streamgda import Checkpoint, ClassMoments
        >>> with TemporaryDirectory() as folder:
        ...     checkpoint = Checkpoint(f"{folder}/stream.zip")
        ...     checkpoint.save(ClassMoments().update([[1.0], [3.0]], [0, 0]), offset=2)
        ...     print(Checkpoint(f"{folder}/stream.zip").offset)
        2
        """
        check_type("state", state, Saved, _STATE)
        check_offset(offset)
        self._hold()
        if self._stamp() != self._found:
            raise CheckpointError(
                f"{self} was saved by another run since this one opened it: open it again, and "
                f"resume at its offset"
            )
        with replacing(self._file, ".zip") as partial:
            state.save(partial, offset=offset)
        self._found = self._stamp()
        self.state, self.offset, self._saved = state, offset, time.monotonic()
