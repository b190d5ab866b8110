"""Exceptions and warnings, each also of the built-in kind that a caller would expect.

No message of them holds a secret: all pass through `printable`.
"""

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache, wraps
from typing import Any

import numpy as np

_HIDDEN = "***"
# These find what stands before the host of a URL, or of one that became a path, and its query.
# Clients name the host, or the path, without the scheme.
_USER = re.compile(
    r"(\b[a-z][a-z0-9+.-]+:/{1,2})[^\s'\"<>]*@|[^\s/'\"<>(),=]+@(?=\w)", re.IGNORECASE
)
_QUERY = re.compile(
    r"(\b[a-z][a-z0-9+.-]+:/{1,2}[^\s'\"<>?]*\?)[^\s'\"<>]*?(?=[]:,;.)]*(?:[\s'\"<>]|$))",
    re.IGNORECASE,
)
# This finds the value that follows such a name elsewhere, as in a path without its host or a dict.
_NAMED = re.compile(
    r"((?:\b|_)(?:x-(?:amz|goog|ms)-[\w-]+|sig|sas|pwd|pass(?:word|wd)|secret\w*|\w*token|signature"
    r"|credentials?|authorization|(?:api|account|access|private)[_-]?key(?:[_-]?id)?)"
    r"(?:['\"]?\s*[=:]\s*))(?!\*\*\*)"
    r"(?:bearer |basic )?((?:b?'[^']*')|(?:b?\"[^\"]*\")|[^\s&'\",;)}\]]+)",
    re.IGNORECASE,
)


def printable(location: object) -> str:
    """Return a location, or a text that holds some, without user, password, query and tokens.

    Whatever is shown, logged or saved of a location has passed through this function.

    Examples
    --------
    >>> printable("s3://key:secret@bucket/rows, https://host/rows?X-Amz-Signature=ab12: not found")
    's3://***@bucket/rows, https://host/rows?***: not found'
    >>> printable("the bucket key:secret@bucket is unknown")
    'the bucket ***@bucket is unknown'
    >>> printable({"anon": False, "secret": "ab12", "sas_token": "sv=1&sig=2"})
    "{'anon': False, 'secret': ***, 'sas_token': ***}"
    """
    text = _USER.sub(lambda found: f"{found[1] or ''}{_HIDDEN}@", str(location))
    return _NAMED.sub(rf"\1{_HIDDEN}", _QUERY.sub(rf"\1{_HIDDEN}", text))


class StreamGDAError(Exception):
    """Base class of all errors that streamgda raises; their texts are `printable`."""

    def __init__(self, *texts: Any) -> None:
        super().__init__(*(printable(text) if isinstance(text, str) else text for text in texts))


def brief(error: BaseException) -> str:
    """Return type and message of an error on one short line; some messages hold whole requests.

    Examples
    --------
    >>> brief(ValueError("no checksum"))
    'ValueError: no checksum'
    """
    return f"{type(error).__name__}: {error!s:.300}".replace("\n", " ")


@contextlib.contextmanager
def raised_as(kind: type[StreamGDAError], what: str) -> Iterator[None]:
    """Enter a context in which errors of other libraries become errors of a kind.

    Parameters
    ----------
    kind : type of exception
    what : str
        The message, to which the type and the message of the error are added.

    Examples
    --------
    >>> from streamgda.errors import SourceError
    >>> with raised_as(SourceError, "rows.tif cannot be read"):
    ...     raise OSError("no space left")
    Traceback (most recent call last):
    streamgda.errors.SourceError: rows.tif cannot be read: OSError: no space left
    """
    try:
        yield
    except (MemoryError, StreamGDAError):
        raise
    except Exception as error:  # Each library, file system and codec has its own kinds.
        raise kind(f"{what}: {brief(error)}") from cause_of(error)


def cause_of(error: BaseException) -> BaseException | None:
    """Return an error as the cause of another one, which is shown with it; None for a secret.

    Errors of clients hold whole requests.
    """
    seen: BaseException | None = error
    while seen is not None:
        text = f"{seen!r} {seen}"
        if printable(text) != text:
            return None
        seen = seen.__cause__ or seen.__context__
    return error


def sendable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function raise its errors without their causes, which often cannot be pickled.

    Dask sends errors from process to process.
    """

    @wraps(function)
    def run(*args: Any) -> Any:
        try:
            return function(*args)
        except StreamGDAError as error:
            raised = error
        raised.__cause__ = raised.__context__ = None
        raise raised

    return run


class InvalidDataError(StreamGDAError, ValueError):
    """Rows, labels or weights that cannot be used: NaN, wrong width, length or type.

    Attributes
    ----------
    array : str or None
        "X", "y" or "sample_weight" if the error concerns one row, None otherwise.
    row, column : int or None
        Position in that array. A caller that knows the origin of the rows adds it with `place`.
    """

    def __init__(
        self,
        message: str = "",
        array: str | None = None,
        row: int | None = None,
        column: int | None = None,
    ) -> None:
        super().__init__(message)
        self.array, self.row, self.column = array, row, column

    def place(self, where: str) -> None:
        """Put the place of the error at the start of the message."""
        self.args = (printable(f"{where}: {self}"),)


class InvalidParameterError(StreamGDAError, ValueError, TypeError):
    """A parameter value that is out of range or does not fit the data.

    It is a TypeError, too, as scikit-learn's is.
    """


class UnsupportedError(InvalidParameterError, NotImplementedError):
    """Parameters or methods that do not go with the solver."""


class MergeError(StreamGDAError, ValueError):
    """Moments that cannot be combined: other width or structure, or more removed than added."""


class SingularCovarianceError(StreamGDAError, np.linalg.LinAlgError):
    """A class covariance that has no inverse; the message names classes, ranks and remedies.

    Attributes
    ----------
    classes : list
        Labels of the classes whose covariances these are; empty for a pooled covariance.
    """

    def __init__(self, message: str = "", classes: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.classes = list(classes)


class MemoryBudgetError(StreamGDAError, MemoryError):
    """More memory needed than ``max_memory`` allows; raised before any work is done."""


class FormatError(StreamGDAError, ValueError):
    """A saved file that is not from streamgda, has an unknown version, or is damaged."""


class CheckpointError(StreamGDAError, ValueError):
    """A checkpoint or partial output that belongs to other work, or is damaged."""


class SourceError(StreamGDAError, ValueError):
    """A store or file that exists but does not have the expected content."""


class ReadError(SourceError, OSError):
    """Rows that exist but cannot be read; the message names array, chunk and rows."""


class WriteError(StreamGDAError, OSError):
    """A remote store that cannot be written."""


class SourceNotFoundError(StreamGDAError, FileNotFoundError):
    """A store or file that does not exist."""


class MissingLibraryError(StreamGDAError, ImportError):
    """An optional library that is not installed; the message names the extra that installs it."""


class ClusterError(StreamGDAError, RuntimeError):
    """A cluster whose workers or scheduler died, or cannot reach a store."""


class CollinearityWarning(UserWarning):
    """Directions without variance within classes, which linear discriminant analysis drops."""


class PrecisionWarning(UserWarning):
    """Digits that statistics from elsewhere have lost, because they were not centred."""


class SingularCovarianceWarning(UserWarning):
    """Classes are left out of predictions, as they have no invertible covariance yet."""


class ConstantFeatureWarning(UserWarning):
    """Features that are constant over all data and left out of the density."""


@cache
def _of_attribute(kind: Any) -> Any:
    """Return the kind of errors that are of a kind and AttributeErrors."""

    def reduced(error: StreamGDAError) -> tuple[Any, ...]:  # Other processes know `kind` only.
        return kind, error.args, vars(error)

    attributes = {"__module__": kind.__module__, "__doc__": kind.__doc__, "__reduce__": reduced}
    return type(kind.__name__, (kind, AttributeError), attributes)


def as_attribute_error(error: StreamGDAError) -> StreamGDAError:
    """Return an error that is an AttributeError too.

    It is raised where a fitted attribute cannot be computed, for which `hasattr` is then false.
    """
    if isinstance(error, OSError | AttributeError):  # No class can be an OSError, too.
        return error
    kind: Any = type(error)
    found: StreamGDAError = _of_attribute(kind)(*error.args)
    vars(found).update(vars(error))
    return found.with_traceback(error.__traceback__)
