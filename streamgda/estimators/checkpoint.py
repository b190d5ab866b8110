"""Streams: the state and the place in the stream that it belongs to, kept together."""

from __future__ import annotations

import json
import time
from typing import Any

from streamgda import storage
from streamgda.engine.fingerprints import REMEDY
from streamgda.engine.journal import as_file, check_interval, replacing
from streamgda.errors import CheckpointError, FormatError, InvalidParameterError
from streamgda.estimators.load import load
from streamgda.moments import ClassMoments, PairwiseMoments, SlidingWindow


class Checkpoint:
    """A file with what was learnt of a stream, and the caller's offset in the stream.

    Both are replaced in one step: whenever the process is killed, the file holds an offset and
    exactly what came before it. Whoever goes on at that offset counts every row once.

    Parameters
    ----------
    path : path
        Of a zip file. An estimator in it can be loaded with `load`, moments with
        `ClassMoments.load` and a window with `SlidingWindow.load`.
    every : float
        Seconds after which `due` says that it is time to save again.

    Attributes
    ----------
    state : estimator, ClassMoments, PairwiseMoments, SlidingWindow or None
        What was saved; None where nothing was yet.
    offset : object
        What was saved with it.

    Raises
    ------
    CheckpointError
        Where something else is at the path, or what is there is damaged.

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
    (array([2, 1]), array([2, 2]))
    >>> folder.cleanup()
    """

    def __init__(self, path: Any, every: float = 60.0) -> None:
        self._file = as_file(path)
        self._every = check_interval(every, "every")
        self._saved = time.monotonic()
        self.state: Any = None
        self.offset: Any = None
        if self._file.exists():
            self._load()

    def _load(self) -> None:
        readers = {
            "estimator": load,
            "moments": ClassMoments.load,
            "pairwise": PairwiseMoments.load,
            "window": SlidingWindow.load,
        }
        try:
            kind = storage.kind_of(self._file)
            if kind not in readers:
                raise FormatError(f"it holds {kind!r}")
            self.offset = storage.read(self._file, kind)[0].get("offset")
            self.state = readers[kind](self._file)
        except FormatError as error:
            raise CheckpointError(
                f"{self._file} is not the checkpoint of a stream, or is damaged: {error}. {REMEDY}"
            ) from None

    @property
    def due(self) -> bool:
        """Whether `every` seconds have passed since it was opened or saved."""
        return time.monotonic() - self._saved >= self._every

    def save(self, state: Any, offset: Any) -> None:
        """Replace what is kept.

        Parameters
        ----------
        state : estimator, ClassMoments, PairwiseMoments or SlidingWindow
        offset : object
            Where the stream is to be gone on with: anything that JSON can hold.

        Raises
        ------
        InvalidParameterError
            For an offset that JSON cannot hold. The file stays as it was.
        """
        try:
            json.dumps(offset, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise InvalidParameterError(
                f"offset={offset!r} cannot be kept: {error}. Give what JSON can hold, such as a "
                f"number, a text, or a dict of them"
            ) from None
        with replacing(self._file) as partial:
            state.save(partial, offset=offset)
        self.state, self.offset, self._saved = state, offset, time.monotonic()
