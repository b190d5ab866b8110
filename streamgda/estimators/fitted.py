"""`fitted`: attributes that follow from what was learnt, and are read only."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    fitted = property
else:

    def fitted(method: Callable[[Any], Any]) -> property:
        """Return a property whose arrays are read-only, and which cannot be set."""

        @wraps(method)
        def get(instance: Any) -> Any:
            value = method(instance)
            return read_only(value) if isinstance(value, np.ndarray | list) else value

        def refuse(instance: Any, value: Any) -> None:
            kind = type(instance).__name__
            raise AttributeError(
                f"{method.__name__} of {kind} follows from what was learnt, and cannot be set. For "
                f"other parameters, such as priors, call set_params and then refit(); for a model "
                f"of given numbers, {kind}.from_parameters"
            )

        return property(get, refuse)


def read_only(value: Any) -> Any:
    """Return a view of an array, or of each in a list, that cannot be written to."""
    if isinstance(value, list):
        return tuple(map(read_only, value))
    view: np.ndarray = value.view()
    view.flags.writeable = False
    return view
