"""`Saved`: objects that can be written to a file or as bytes; `load` reads any of them.

Nothing registers its class: names in files are looked up among the public names of the package,
which imports them.
"""

from __future__ import annotations

import io
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from copy import deepcopy
from functools import wraps
from importlib import import_module
from typing import Any, BinaryIO, ClassVar, Self, TypeVar, cast

import numpy as np

from streamgda.errors import FormatError
from streamgda.runtime.display import html_table
from streamgda.storage import files
from streamgda.storage.format import check_offset, read, write

State = tuple[dict[str, Any], dict[str, np.ndarray]]  # attributes (as JSON) and arrays

# Contents that do not fit each other raise these when an object is built from them.
_DAMAGE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)

_ESTIMATOR = "estimator"  # the kind of estimators, whose files name their classes
_CLASSES = {  # of the other kinds
    "drift": "DriftMonitor",
    "grouped": "GroupedMoments",
    "moments": "ClassMoments",
    "pairwise": "PairwiseMoments",
    "window": "SlidingWindow",
}


class Saved(ABC):
    """Base of objects that can be written to a file or as bytes, and read again.

    Subclasses define `_kind`, `_state` and `_from_state`. Only this module and subclasses call
    these; other modules call `state_of` and `restore`.
    """

    _kind: ClassVar[str] = _ESTIMATOR  # identifies saved objects
    offset_: Any = None  # that this object was saved with, if it was loaded

    def _locked(self) -> Any:
        """Return a context in which no other thread changes this object."""
        return getattr(self, "_lock", None) or nullcontext()

    def __getstate__(self) -> Any:
        """Return the attributes for copies and pickles, as they are between two changes."""
        with self._locked():
            state: Any = super().__getstate__()
            return state.copy()

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """Take the attributes of a copy or a pickle; arrays that change get memory of their own.

        Those of a pickle may be read-only, mapped from a file, or buffers of somebody else.
        """
        vars(self).update(_owned(dict(state)))

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
        check_offset(offset)
        with self._locked():
            attributes, arrays = self._state()
            if offset is not None:
                attributes = attributes | {"offset": offset}
            with files.replacing(path, storage_options) as file:
                write(file, self._kind, attributes, arrays)

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
            write(file, self._kind, *self._state())
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
        if self._kind != _ESTIMATOR:
            return {"kind": self._kind}
        estimator: Any = self
        defaults = type(estimator)().get_params(deep=False)
        params = estimator.get_params(deep=False)
        held = getattr(estimator, "moments_", None)
        if held is None:
            held = getattr(estimator, "model_", None)
        return {
            **({} if held is None else description_of(held)),
            "kind": self._kind,
            "estimator": type(self).__name__,
            "parameters": {k: _shown(v) for k, v in params.items() if v != defaults[k]},
            "features": getattr(estimator, "n_features_in_", None),
        }

    def _repr_html_(self) -> str:
        """Return the description as HTML, for notebooks."""
        facts = self._description()
        classes = facts.pop("classes", ())
        columns = [*classes[0]] if classes else []
        facts = {name.replace("_", " "): fact for name, fact in facts.items() if name != "bytes"}
        return html_table(type(self).__name__, facts, columns, [c.values() for c in classes])

    @abstractmethod
    def _state(self) -> State:
        """Return attributes (for JSON) and arrays, from which `_from_state` builds an equal."""

    @classmethod
    @abstractmethod
    def _from_state(cls, attributes: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        """Build an object from the result of `_state`.

        Contents that do not fit each other raise LookupError, TypeError, ValueError and the like;
        `restore` turns these into FormatError. What is returned is valid, whatever the file holds:
        see `streamgda.storage.format`.
        """


def _owned(value: Any) -> Any:
    """Return a value whose arrays, and those of its parts, own their memory and can be written."""
    if isinstance(value, np.ndarray):
        own = type(value) is np.ndarray and value.flags.owndata and value.flags.writeable
        return value if own else np.array(value)
    if isinstance(value, Saved):  # It has taken its own state.
        return value
    if isinstance(value, dict):
        return type(value)({key: _owned(part) for key, part in value.items()})
    if isinstance(value, tuple) and hasattr(value, "_make"):
        return value._make(map(_owned, value))
    if type(value) in (list, tuple):
        return type(value)(map(_owned, value))
    if type(value).__module__.startswith("streamgda.") and hasattr(value, "__dict__"):
        for name, part in vars(value).items():
            vars(value)[name] = _owned(part)
    return value


Kind = TypeVar("Kind", bound=Saved)
Function = TypeVar("Function", bound=Callable[..., Any])


def synchronized(function: Function) -> Function:
    """Let no thread change the saved objects among the arguments, one or two, during a call."""

    @wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        given = (*arguments, *options.values())
        if len(given) == 1 and (own := getattr(given[0], "_locked", None)):  # at once: a property
            with own():
                return function(*arguments, **options)
        locks = [each._locked() for each in given if isinstance(each, Saved)] or [nullcontext()]
        locks.sort(key=id)  # as another thread, for b - a
        with locks[0], locks[-1]:
            return function(*arguments, **options)

    return call  # type: ignore[return-value]


def state_of(saved: Saved) -> State:
    """Return attributes (for JSON) and arrays from which `restore` builds an equal object."""
    return saved._state()


def description_of(saved: Saved) -> dict[str, Any]:
    """Return what is known of an object, for JSON."""
    return saved._description()


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


def _read(file: BinaryIO, name: Any, kind: Any = None) -> Any:
    """Return the object in a file, of a class or of any; errors have the name of the file."""
    try:
        found, attributes, arrays = read(file)
        if kind is None:
            kind = Saved if found == _ESTIMATOR else class_named(_CLASSES.get(found, found), Saved)
        if found != kind._kind:
            raise FormatError(f"it holds {found!r:.100}, expected {kind._kind!r}")
        saved: Any = restore(kind, attributes, arrays)
    except FormatError as error:
        raise FormatError(f"{name}: {error}") from None
    if attributes.get("offset") is not None:
        saved.offset_ = attributes["offset"]
    return saved


def class_named(name: str, base: type[Kind]) -> type[Kind]:
    """Return a public class by its name, which has to be that of `base` or of a subclass of it."""
    package = import_module("streamgda")
    found = getattr(package, name) if name in package.__all__ else None
    if not isinstance(found, type) or not issubclass(found, Saved):
        raise FormatError(f"it is of class {name!r}, which is not in this version of streamgda")
    if not issubclass(found, base):
        raise FormatError(
            f"it is of class {name!r}, which is not {base.__name__} or a subclass of it: "
            f"{name}.load and streamgda.load return it"
        )
    return found


def restore(
    kind: type[Kind], attributes: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> Kind:
    """Build an object of a class, or of a subclass, from the result of `state_of`.

    Raises
    ------
    FormatError
        If the attributes and arrays do not fit each other.
    """
    try:
        if kind._kind == _ESTIMATOR:
            kind = class_named(attributes["estimator"], kind)
        with np.errstate(all="ignore"):  # The checks find such values.
            return kind._from_state(attributes, arrays)
    except FormatError:
        raise
    except _DAMAGE as error:
        what = f"it lacks {error}" if isinstance(error, KeyError) else f"{error!s:.500}"
        raise FormatError(f"the saved {kind._kind} is damaged: {what}") from None


def _shown(value: Any) -> Any:
    """Return the value for JSON: an estimator or an infinite number as text."""
    finite = not isinstance(value, float) or math.isfinite(value)
    plain = value is None or isinstance(value, bool | int | float | str | list)
    return value if plain and finite else " ".join(str(value).split())


def nested(parts: Mapping[str, Saved]) -> State:
    """Return the attributes of several objects by name, and their arrays as ``name/array``."""
    states = {name: state_of(part) for name, part in parts.items()}
    arrays = {
        f"{name}/{key}": array for name, (_, own) in states.items() for key, array in own.items()
    }
    return {name: attributes for name, (attributes, _) in states.items()}, arrays


def arrays_within(arrays: Mapping[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    """Return the arrays of the part that `nested` saved under a name."""
    start = f"{name}/"
    return {key.removeprefix(start): a for key, a in arrays.items() if key.startswith(start)}


def restore_nested(
    kind: type[Kind], attributes: Mapping[str, Mapping[str, Any]], arrays: Mapping[str, np.ndarray]
) -> dict[str, Kind]:
    """Build the objects that `nested` saved, by name; parameters as of `restore`."""
    return {
        name: restore(kind, own, arrays_within(arrays, name)) for name, own in attributes.items()
    }
