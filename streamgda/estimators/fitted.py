"""`fitted`: attributes that follow from what was learnt, and are read only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    fitted = property
else:

    class fitted(property):  # noqa: N801
        """A property whose arrays are read-only, and which cannot be set."""

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            """Return the value, in which nothing can be changed."""
            return read_only(super().__get__(instance, owner))

        def __set__(self, instance: Any, value: Any) -> None:
            """Raise an error that says what to do instead."""
            kind = type(instance).__name__
            raise AttributeError(
                f"{self.fget.__name__} of {kind} follows from what was learnt, and cannot be set. "
                f"For other parameters, such as priors, call set_params and then refit(); for a "
                f"model of given numbers, {kind}.from_parameters"
            )


def read_only(value: Any) -> Any:
    """Return a view of an array, or of each in a list, that cannot be written to."""
    if isinstance(value, np.ndarray):
        value = value.view()
        value.flags.writeable = False
    elif isinstance(value, list):
        return tuple(map(read_only, value))
    return value
