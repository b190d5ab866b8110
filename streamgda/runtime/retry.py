"""Retries after failures of networks and disks, which may be temporary."""

from __future__ import annotations

import contextlib
import errno
import random
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from traceback import walk_tb
from typing import TypeVar

from streamgda.errors import StreamGDAError, cause_of

Result = TypeVar("Result")

SECONDS = 60.0  # for which failed requests are retried, unless the caller says otherwise
FIRST = 0.1  # seconds before the first retry; each of the following pauses is twice as long
_LONGEST = 10.0
_FINAL = (
    *(FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError),
    ssl.SSLCertVerificationError,
    StreamGDAError,
)
_FINAL_NUMBERS = (errno.ENAMETOOLONG, errno.ELOOP)  # of operating systems, which have no class
_CLIENTS = {"aiohttp", "botocore", "aiobotocore", "obstore", "requests", "google", "gcsfs"}
# Names of errors of clients that no waiting mends.
_REFUSED = re.compile(
    r"NoCredentials|PartialCredentials|ParamValidation|InvalidURL|PermissionDenied|Unauthenticated"
    r"|NotFound|NotSupported|InvalidPath|UnknownConfiguration|CertificateError"
)
_PASSING = (408, 425, 429)  # statuses below 500 after which a request may be repeated
_STATUS = re.compile(r"status(?: code)?:? \(?(\d{3})\b")  # in messages of obstore
_UNKNOWN_HOST = re.compile(r"Name or service not known|No address associated|nodename nor servname")


def is_temporary(error: BaseException) -> bool:
    """Return whether an error may be temporary: that of a network or a disk, not of the data.

    Errors of network clients are recognised by the package that defines or raises them: a client
    with many requests may break down in many ways if one of them fails. Requests that the server
    refuses (status 403, an expired token), hosts that are not known and certificates that are not
    valid are final. So are errors of this package: they say that retries have failed, or that none
    would help.

    Examples
    --------
    >>> is_temporary(TimeoutError()), is_temporary(FileNotFoundError()), is_temporary(ValueError())
    (True, False, False)
    """
    return is_of_network(error) and not any(map(_is_final, _with_causes(error)))


def is_of_network(error: BaseException) -> bool:
    """Return whether an error is that of a network, its client, or a disk."""
    modules = [kind.__module__ for kind in type(error).__mro__]
    raised = [frame.f_globals.get("__name__", "") for frame, _ in walk_tb(error.__traceback__)]
    packages = {module.partition(".")[0] for module in (*modules, *raised[-1:])}
    return isinstance(error, OSError) or not packages.isdisjoint(_CLIENTS)


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__ or (None if found.__suppress_context__ else found.__context__)


def _is_final(error: BaseException) -> bool:
    status = _status(error)
    if status is not None:
        return status < 500 and status not in _PASSING
    unknown = isinstance(error, socket.gaierror) and error.errno != socket.EAI_AGAIN
    refused = _REFUSED.search(type(error).__name__) or _UNKNOWN_HOST.search(str(error))
    final = isinstance(error, _FINAL) or getattr(error, "errno", None) in _FINAL_NUMBERS
    return unknown or final or bool(refused)


def _status(error: BaseException) -> int | None:
    """Return the status of a response of HTTP that an error reports."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # of botocore
        if "Timeout" in str(response.get("Error", {}).get("Code")):  # of the body that it waits for
            return 408
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    else:
        status = getattr(error, "status", None) or getattr(error, "status_code", None)
        status = status or getattr(response, "status_code", None)
        if status is None and type(error).__module__.startswith("gcsfs"):
            status = getattr(error, "code", None)
    if status is None and type(error).__module__.startswith("obstore"):
        found = _STATUS.search(str(error))
        status = None if found is None else int(found[1])
    return status if isinstance(status, int) and 300 <= status < 600 else None


def pauses(seconds: float | None = None) -> Iterator[float]:
    """Yield the seconds to wait before each retry: growing ones, and `seconds` in all.

    They differ by chance, so that many requests that failed at once are not repeated at once.
    """
    left, pause = SECONDS if seconds is None else seconds, FIRST
    while left > 0:
        yield min(left, pause) * random.uniform(0.5, 1.0)
        left, pause = left - pause, min(2 * pause, _LONGEST)


def with_retries(call: Callable[[], Result], seconds: float | None = None) -> Result:
    """Return the result of a call, which is retried after errors that may be temporary."""
    waits = pauses(seconds)
    while True:
        try:
            return call()
        except Exception as error:
            pause = next(waits, None) if is_temporary(error) else None
            if pause is None:
                raise
        time.sleep(pause)


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
