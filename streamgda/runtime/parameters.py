"""Checks of parameters: one for each kind of value, and one form of message for all of them."""

from __future__ import annotations

import math
import operator
import warnings
from numbers import Integral, Real
from typing import Any

import numpy as np

from streamgda.errors import InvalidParameterError

LEAST = math.ulp(0.0)  # the smallest number above zero
BELOW_ONE = math.nextafter(1.0, 0.0)

_LONGEST = 200  # characters of a value in a message


def shown(value: Any) -> str:
    """Return the representation of a value on one line, shortened if it is long.

    Examples
    --------
    >>> shown("twelve"), len(shown([0] * 1000)), shown(10**5000)
    ("'twelve'", 203, 'int (too long to show)')
    """
    try:
        text = " ".join(repr(value).split())
    except Exception:  # integers of many digits; objects of the caller can raise anything
        return f"{type(value).__name__} (too long to show)"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 50]}...{text[-50:]}"


def refuse(name: str, value: Any, expected: str) -> InvalidParameterError:
    """Return the error for a parameter that has another value than what is expected."""
    return InvalidParameterError(f"{name}={shown(value)}; expected {expected}")


def as_number(
    name: str, value: Any, expected: str, low: float = -math.inf, high: float = math.inf
) -> float:
    """Return a parameter that is a finite real number.

    Parameters
    ----------
    name : str
    value : object
    expected : str
        Description of such numbers, for the message.
    low, high : float
        Limits, which are allowed values.

    Raises
    ------
    InvalidParameterError
        For anything else, booleans among it.

    Examples
    --------
    >>> as_number("tol", 10**400, "a number >= 0", 0)
    Traceback (most recent call last):
    streamgda.errors.InvalidParameterError: tol=...; expected a number >= 0
    """
    if type(value) is not float:  # the common case, at every call of a stream
        real = isinstance(value, Real) and not isinstance(value, bool)
        try:
            number = float(value) if real else math.nan
        except OverflowError:
            number = math.nan
    else:
        number = value
    if not low <= number <= high or math.isinf(number):
        raise refuse(name, value, expected)
    return number


def as_integer(
    name: str, value: Any, expected: str, low: int = 0, high: int = (1 << 63) - 1
) -> int:
    """Return a parameter that is a whole number from `low` to `high`; otherwise as `as_number`.

    Examples
    --------
    >>> as_integer("n_samples", 2.5, "an integer >= 1", 1)
    Traceback (most recent call last):
    streamgda.errors.InvalidParameterError: n_samples=2.5; expected an integer >= 1
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = low - 1
    if number > high:
        expected += f", at most {high}"
    if isinstance(value, bool) or not low <= number <= high:
        raise refuse(name, value, expected)
    return number


def as_flag(name: str, value: Any) -> bool:
    """Return a parameter that is True or False, or one or zero in its place."""
    if not isinstance(value, bool | np.bool_ | Integral) or value not in (0, 1):
        raise refuse(name, value, "True or False")
    return bool(value)


def renamed(old: str, given: Any, name: str, value: Any) -> Any:
    """Return the value of a parameter, which callers may have given by its deprecated name."""
    if given is None:
        return value
    message = f"{old} is deprecated, and will be removed in streamgda 0.4: use {name}"
    warnings.warn(message, FutureWarning, stacklevel=3)
    return given


def check_type(name: str, value: Any, kind: Any, expected: str) -> None:
    """Raise `TypeError` unless an argument is an object of that kind."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} is {_described(value)}; expected {expected}")


def _described(value: Any) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return "None" if value is None else f"of type {type(value).__name__}"


def as_numbers(name: str, value: Any, expected: str, finite: bool = False) -> np.ndarray:
    """Return a parameter that is an array of real numbers as float64, in any shape.

    NaN and infinity pass unless `finite` is True.

    Raises
    ------
    InvalidParameterError
        For anything else, masked values among it.
    """
    try:
        values = np.asanyarray(value)
        if values.dtype.kind == "O":  # integers beyond 64 bits, fractions, decimals
            values = values.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        values = np.empty(0, "V")
    if values.dtype.kind not in "biuf" or np.ma.is_masked(values):
        raise refuse(name, value, expected)
    numbers = np.asarray(values, np.float64)
    if finite and not np.isfinite(numbers).all():
        raise refuse(name, value, f"{expected}, all finite")
    return numbers
