"""Failures of networks and disks: asking again, as they may pass, and saying what they were."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")

PAUSES = (0.1, 0.5, 2.0)  # seconds, before what failed is asked again
_FINAL = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)
_CLIENTS = {"aiohttp", "botocore", "aiobotocore", "obstore", "requests", "google", "gcsfs"}


def may_pass(error: BaseException) -> bool:
    """Whether it was a network or a disk that failed, and not what was read.

    Clients of networks have errors of their own, which are told by the package they come from.

    Examples
    --------
    >>> may_pass(TimeoutError()), may_pass(FileNotFoundError()), may_pass(ValueError())
    (True, False, False)
    """
    packages = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
    failed = isinstance(error, OSError) or not packages.isdisjoint(_CLIENTS)
    return failed and not isinstance(error, _FINAL)


def patiently(call: Callable[[], Result]) -> Result:
    """What a call returns; where it fails and that may pass, it is made again, later and later."""
    for pause in PAUSES:
        try:
            return call()
        except Exception as error:
            if not may_pass(error):
                raise
            time.sleep(pause)
    return call()


def brief(error: BaseException) -> str:
    """Kind and text of an error on one short line; clients put whole requests into theirs.

    Examples
    --------
    >>> brief(ValueError("no checksum"))
    'ValueError: no checksum'
    """
    return f"{type(error).__name__}: {error!s:.300}".replace("\n", " ")
