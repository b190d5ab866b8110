"""Parameters at the time of learning, which later changes of an estimator do not reach."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any, TypeVar

import numpy as np
from sklearn.base import clone

Estimator = TypeVar("Estimator")


def present_settings(estimator: Estimator, last: Estimator | None) -> Estimator:
    """Return an unfitted copy with the present parameters: `last` if none changed since then.

    Parameters are the instance's own attributes that a constructor of its class or of a base of it
    names, so that those count, too, which a subclass sets or passes on by ``**kwargs``. No
    constructor is called.
    """
    if last is not None:
        for name, used in vars(last).items():
            value = getattr(estimator, name)
            if value is not used and not _same(value, used):
                break
        else:
            return last
    kind = type(estimator)
    settings = object.__new__(kind)
    for name in _parameters(kind):  # type: ignore[arg-type]
        if hasattr(estimator, name):
            vars(settings)[name] = _copied(getattr(estimator, name))
    return settings


@cache
def _parameters(kind: type) -> tuple[str, ...]:
    """Return the names of the parameters of the constructors of a class and its bases."""
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    constructors = [vars(base)["__init__"] for base in kind.__mro__ if "__init__" in vars(base)]
    parameters = [
        parameter
        for constructor in constructors[:-1]  # but that of `object`
        for parameter in [*inspect.signature(constructor).parameters.values()][1:]
    ]
    return tuple({parameter.name: None for parameter in parameters if parameter.kind in named})


def _copied(value: Any) -> Any:
    """Return a parameter that does not change, or a copy of one that might."""
    if isinstance(value, str | float | int | None):
        return value
    try:
        return clone(value, safe=False)
    except TypeError:  # a generator, say, which the check of the parameters refuses
        return value


def _same(value: Any, used: Any) -> bool:
    """Return whether a parameter is surely equal to the one that was used."""
    if type(value) is not type(used) or type(value) not in (list, tuple, np.ndarray):
        return False
    if type(value) is not np.ndarray:
        return repr(value) == repr(used)
    return (value.dtype, value.shape, value.tobytes()) == (used.dtype, used.shape, used.tobytes())
