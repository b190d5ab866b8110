"""Parameters at the time of learning, which later changes of an estimator do not reach."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from sklearn.base import clone

Estimator = TypeVar("Estimator")


def present_settings(estimator: Estimator, last: Estimator | None) -> Estimator:
    """Return an unfitted copy with the present parameters: `last` if none changed since then."""
    present: Any = estimator
    if last is not None:
        for name, used in vars(last).items():
            value = getattr(estimator, name)
            if value is not used and not _same(value, used):
                break
        else:
            return last
    params = present.get_params(deep=False)
    return type(estimator)(**{name: _copied(value) for name, value in params.items()})


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
