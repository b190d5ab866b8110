"""`Saved`: objects that can be written to a file or as bytes; `load` reads any of them.

Nothing registers its class: names in files are looked up among the public names of the package,
which imports them.
"""

from __future__ import annotations

import io
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from copy import deepcopy
from functools import wraps
from importlib import import_module
from typing import Any, BinaryIO, Self, TypeVar, cast

import numpy as np

from streamgda.errors import FormatError, InvalidParameterError, brief
from streamgda.runtime.parameters import html_table, shown
from streamgda.storage import files
from streamgda.storage.format import State, read, write


class Saved(ABC):
    """Base of objects that can be written to a file or as bytes, and read again.

    Subclasses define `_state` and `_from_state`, which only this module and subclasses call.
    """

    offset_: Any = None  # This object was saved with it, if it was loaded.

    def _locked(self) -> Any:
        """Return a context in which no other thread changes this object."""
        return getattr(self, "_lock", None) or nullcontext()

    def __getstate__(self) -> Any:
        """Return the attributes for copies and pickles, as they are between two changes."""
        with self._locked():
            state: Any = super().__getstate__()
            return state.copy()

    def __copy__(self) -> Self:
        """Return a deep copy: states change in place, and a shallow one would change with them."""
        return deepcopy(self)

    def save(
        self,
        path: Any,
        *,
        offset: Any = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Write this object to a file, replacing the one that was saved there.

        Whenever the process is killed, the file is the old or the new one.

        Parameters
        ----------
        path : path or URL
            A URL of any file system of fsspec, such as ``s3://bucket/model.npz``.
        offset : object, optional
            The position in a stream up to which this object has learned: any value that JSON can
            hold. The loaded object has it as `offset_`.
        storage_options : dict, optional
            Options of the file system of a URL: credentials, an endpoint.

        Raises
        ------
        SourceError
            If a directory or a file that streamgda did not save is there.
        InvalidParameterError
            If JSON cannot hold the offset.

        Examples
        --------
        >>> from streamgda import ClassMoments
        >>> from tempfile import TemporaryDirectory
        >>> moments = ClassMoments().update([[1.0], [3.0]], ["ant", "ant"])
        >>> with TemporaryDirectory() as folder:
        ...     moments.save(f"{folder}/moments.npz", offset=2)
        ...     loaded = ClassMoments.load(f"{folder}/moments.npz")
        >>> loaded.class_count, loaded.offset_
        (array([2]), 2)
        """
        own = {} if offset is None else {"position": _kept_by_json(offset)}
        with self._locked():
            state = self._state() | own
            with files.replacing(path, storage_options) as file:
                write(file, type(self).__name__, state)

    @classmethod
    def load(cls, path: Any, *, storage_options: Mapping[str, Any] | None = None) -> Self:
        """Read an object that `save` wrote.

        Parameters
        ----------
        path : path or URL
            The file that `save` wrote.
        storage_options : dict, optional
            Options of the file system of a URL: credentials, an endpoint.

        Returns
        -------
        object
            Equal to the saved object.

        Raises
        ------
        SourceNotFoundError
            If the file does not exist.
        FormatError
            If the file holds anything else, or is damaged.

        Examples
        --------
        >>> from streamgda import ClassMoments
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     ClassMoments().update([[1.0], [3.0]], ["ant", "ant"]).save(f"{folder}/moments.npz")
        ...     ClassMoments.load(f"{folder}/moments.npz").class_count
        array([2])
        """
        with files.reading(path, storage_options) as file:
            return cast(Self, _read(file, path, cls))

    def to_bytes(self) -> bytes:
        """Return this object as bytes, to be sent or stored anywhere.

        They are those of the file that `save` writes without an offset. The same object gives the
        same bytes every time.

        Returns
        -------
        bytes
            Not compressed. `from_bytes` reads them, and so does `load` from a file of them.

        Examples
        --------
        >>> from streamgda import ClassMoments
        >>> moments = ClassMoments().update([[1.0], [3.0]], ["ant", "ant"])
        >>> data = moments.to_bytes()
        >>> ClassMoments.from_bytes(data).means, data == moments.to_bytes()
        (array([[2.]]), True)
        """
        file = io.BytesIO()
        with self._locked():
            write(file, type(self).__name__, self._state())
        return file.getvalue()

    @classmethod
    def from_bytes(cls, data: Any) -> Self:
        """Read an object from the result of `to_bytes`, or the contents of a file of `save`.

        Unlike pickle, reading executes nothing: the bytes may come from anyone.

        Parameters
        ----------
        data : bytes, bytearray, memoryview or pyarrow.Buffer
            The contents of the file.

        Returns
        -------
        object
            Equal to the saved object.

        Raises
        ------
        TypeError
            For anything but bytes, such as a path.
        FormatError
            If the bytes hold anything else, are incomplete or damaged.

        Examples
        --------
        >>> from streamgda import ClassMoments
        >>> data = ClassMoments().update([[1.0], [3.0]], ["ant", "ant"]).to_bytes()
        >>> ClassMoments.from_bytes(data[:100])
        Traceback (most recent call last):
        streamgda.errors.FormatError: data: it is damaged or incomplete: ...
        """
        return _read(io.BytesIO(memoryview(data)), "data", cls)

    def _description(self) -> dict[str, Any]:
        """Return what is known of this object, for JSON; `repr` and `streamgda info` show it."""
        return {"kind": type(self).__name__}

    def _repr_html_(self) -> str:
        """Return the description as HTML, for notebooks."""
        facts = self._description()
        classes = facts.pop("classes", ())
        columns = [*classes[0]] if classes else []
        facts = {name.replace("_", " "): fact for name, fact in facts.items() if name != "bytes"}
        return html_table(type(self).__name__, facts, columns, [c.values() for c in classes])

    @abstractmethod
    def _state(self) -> State:
        """Return arrays and values that JSON can hold, from which `_from_state` builds an equal."""

    @classmethod
    @abstractmethod
    def _from_state(cls, state: Mapping[str, Any]) -> Self:
        """Build an object from the result of `_state`.

        Contents that do not fit each other raise any error, which `load` turns into a FormatError.
        What is returned is valid, whatever the file holds: see `streamgda.storage.format`.
        """


Function = TypeVar("Function", bound=Callable[..., Any])


def synchronized(function: Function) -> Function:
    """Let no thread change the saved objects among the arguments, one or two, during a call."""

    @wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        given = (*arguments, *options.values())
        # A property has one argument.
        if len(given) == 1 and (own := getattr(given[0], "_locked", None)):
            with own():
                return function(*arguments, **options)
        locks = [each._locked() for each in given if isinstance(each, Saved)] or [nullcontext()]
        locks.sort(key=id)  # Another thread may compute b - a.
        with locks[0], locks[-1]:
            return function(*arguments, **options)

    return call  # type: ignore[return-value]


def load(path: Any, *, storage_options: Mapping[str, Any] | None = None) -> Any:
    """Load what `save` wrote: an estimator, moments, a window, a monitor or a model.

    Parameters
    ----------
    path : path or URL
        The file that `save` wrote.
    storage_options : dict, optional
        Options of the file system of a URL: credentials, an endpoint.

    Returns
    -------
    object
        Equal to the saved object, and of its class. A fitted estimator gives bit for bit the same
        scores, and `partial_fit` continues from the same rows. Its `offset_` is the offset that it
        was saved with, or None.

    Raises
    ------
    SourceNotFoundError
        If the file does not exist.
    FormatError
        If the file holds anything else, has an unknown format version, or is damaged.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from streamgda import GaussianNB, load
    >>> nb = GaussianNB().fit([[0.0], [1.0], [5.0], [7.0]], ["a", "a", "b", "b"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     nb.save(Path(folder) / "nb.npz")
    ...     load(Path(folder) / "nb.npz").predict([[2.0], [6.0]])
    array(['a', 'b'], dtype='<U1')
    """
    with files.reading(path, storage_options) as file:
        return _read(file, path)


def _read(file: BinaryIO, name: Any, base: type[Saved] = Saved) -> Any:
    """Return the object in a file, of a class or a subclass; errors have the name of the file."""
    try:
        kind, state = read(file)
        with np.errstate(all="ignore"):  # The checks find such values.
            saved: Any = _class_named(kind, base)._from_state(state)
    except MemoryError:
        raise
    except FormatError as error:
        raise FormatError(f"{name}: {error}") from None
    except Exception as error:  # Zip files, NumPy and the classes raise any kind.
        raise FormatError(f"{name}: it is damaged or incomplete: {brief(error)}") from None
    if "position" in state:
        saved.offset_ = state["position"]
    return saved


def _class_named(name: str, base: type[Saved]) -> type[Saved]:
    """Return a public class by its name, which has to be that of `base` or of a subclass of it."""
    package = import_module("streamgda")
    found = getattr(package, name) if name in package.__all__ else None
    if not isinstance(found, type) or not issubclass(found, Saved):
        raise FormatError(f"it holds {name!r:.100}, which this version of streamgda does not have")
    if not issubclass(found, base):
        raise FormatError(f"it holds {name}; expected {base.__name__}")
    return found


def _kept_by_json(offset: Any) -> Any:
    """Return an offset; raise `InvalidParameterError` unless JSON can hold it and gives it back."""
    try:
        same = json.loads(json.dumps(offset, allow_nan=False)) == offset
    except (TypeError, ValueError, RecursionError):
        same = False
    if same:
        return offset
    raise InvalidParameterError(
        f"offset={shown(offset)} cannot be saved: give a value that JSON holds and gives back, "
        f"such as a number, a string, or a dict of them"
    )


def _shown(value: Any) -> Any:
    """Return the value for JSON: an estimator or an infinite number as text."""
    finite = not isinstance(value, float) or math.isfinite(value)
    plain = value is None or isinstance(value, bool | int | float | str | list)
    return value if plain and finite else " ".join(str(value).split())
