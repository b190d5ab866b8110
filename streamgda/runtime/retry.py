"""Errors of other libraries as errors of this package."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from streamgda.errors import StreamGDAError, cause_of


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
    except Exception as error:  # each library, file system and codec has its own kinds
        raise kind(f"{what}: {brief(error)}") from cause_of(error)


@contextlib.contextmanager
def not_hiding(error: BaseException | None) -> Iterator[None]:
    """Enter a context in which failures of disks and networks do not hide an earlier error.

    Examples
    --------
    >>> with not_hiding(KeyboardInterrupt()):
    ...     raise OSError("no space left")
    """
    try:
        yield
    except OSError:
        if error is None:
            raise


def brief(error: BaseException) -> str:
    """Return type and message of an error on one short line; some messages hold whole requests.

    Examples
    --------
    >>> brief(ValueError("no checksum"))
    'ValueError: no checksum'
    """
    return f"{type(error).__name__}: {error!s:.300}".replace("\n", " ")
