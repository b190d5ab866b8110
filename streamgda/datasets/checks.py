"""Parameter checks."""

from __future__ import annotations

import operator
from typing import Any

from streamgda.errors import InvalidParameterError


def at_least(least: int, name: str, value: Any) -> int:
    """Return the value as an integer; raise InvalidParameterError if it is below `least`.

    Examples
    --------
    >>> at_least(1, "chunk_rows", 0)
    Traceback (most recent call last):
    streamgda.errors.InvalidParameterError: chunk_rows must be at least 1, not 0
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidParameterError(f"{name} must be an integer, not {value!r}") from None
    if number < least:
        raise InvalidParameterError(f"{name} must be at least {least}, not {number}")
    return number
