"""Retries after failures of networks and disks, which may be temporary."""

from __future__ import annotations

import time
from collections.abc import Callable
from traceback import walk_tb
from typing import TypeVar

from streamgda.errors import StreamGDAError

Result = TypeVar("Result")

PAUSES = (0.1, 0.5, 2.0)  # seconds before each retry
_FINAL = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)
_CLIENTS = {"aiohttp", "botocore", "aiobotocore", "obstore", "requests", "google", "gcsfs"}


def is_temporary(error: BaseException) -> bool:
    """Return whether an error may be temporary: that of a network or a disk, not of the data.

    Errors of network clients are recognised by the package that defines or raises them: a client
    with many requests may break down in many ways if one of them fails. Errors of this package are
    final: they say that retries have failed, or that none would help.

    Examples
    --------
    >>> is_temporary(TimeoutError()), is_temporary(FileNotFoundError()), is_temporary(ValueError())
    (True, False, False)
    """
    modules = [kind.__module__ for kind in type(error).__mro__]
    raised = [frame.f_globals.get("__name__", "") for frame, _ in walk_tb(error.__traceback__)]
    packages = {module.partition(".")[0] for module in (*modules, *raised[-1:])}
    failed = isinstance(error, OSError) or not packages.isdisjoint(_CLIENTS)
    return failed and not isinstance(error, (*_FINAL, StreamGDAError))


def with_retries(call: Callable[[], Result]) -> Result:
    """Return the result of a call, which is retried after errors that may be temporary."""
    for pause in PAUSES:
        try:
            return call()
        except Exception as error:
            if not is_temporary(error):
                raise
            time.sleep(pause)
    return call()


def brief(error: BaseException) -> str:
    """Return type and message of an error on one short line; some messages hold whole requests.

    Examples
    --------
    >>> brief(ValueError("no checksum"))
    'ValueError: no checksum'
    """
    return f"{type(error).__name__}: {error!s:.300}".replace("\n", " ")
