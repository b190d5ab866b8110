"""`SavedEstimator`: estimators as saved groups, identified by the name of their class."""

from __future__ import annotations

import math
import sys
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Self, TypeVar

import numpy as np
from sklearn.base import BaseEstimator

from streamgda.errors import FormatError
from streamgda.storage.saved import Saved, description_of

_CLASSES: dict[str, type[SavedEstimator]] = {}  # by their names


class SavedEstimator(Saved, BaseEstimator):
    """Base of estimators that can be saved.

    `load` of a base class reads an estimator of any of its subclasses.
    """

    _kind = "estimator"

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.__module__.startswith("streamgda."):  # other packages may use the same names
            _CLASSES[cls.__name__] = cls

    def _description(self) -> dict[str, Any]:
        defaults = type(self)().get_params(deep=False)
        params = self.get_params(deep=False)
        held = getattr(self, "moments_", None)
        if held is None:
            held = getattr(self, "model_", None)
        return {
            **({} if held is None else description_of(held)),
            "kind": "estimator",
            "estimator": type(self).__name__,
            "parameters": {k: _shown(v) for k, v in params.items() if v != defaults[k]},
            "features": getattr(self, "n_features_in_", None),
            "threshold": _shown(getattr(self, "threshold_", None)),
        }

    @classmethod
    def _from_state(cls, attributes: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        return _class_named(attributes["estimator"], cls)._restored(attributes, arrays)

    @classmethod
    @abstractmethod
    def _restored(cls, attributes: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        """Build an estimator of this class; see `Saved._from_state`."""


def _shown(value: Any) -> Any:
    """Return the value for JSON: an estimator or an infinite number as text."""
    finite = not isinstance(value, float) or math.isfinite(value)
    plain = value is None or isinstance(value, bool | int | float | str | list)
    return value if plain and finite else " ".join(str(value).split())


Kind = TypeVar("Kind", bound=SavedEstimator)


def describe(estimator: BaseEstimator) -> dict[str, Any]:
    """Return the name of an estimator's class and its parameters, for JSON."""
    params = plain(estimator.get_params(deep=False))
    return {"estimator": type(estimator).__name__, "params": params}


def described(base: type[Kind], description: Mapping[str, Any]) -> Kind:
    """Build an unfitted estimator from the result of `describe`: of a class or of a subclass of it.

    Raises
    ------
    FormatError
        If there is no such class.
    TypeError
        If the parameters are anything but finite numbers, strings and lists of numbers.
    """
    params = dict(description["params"])
    for name, value in params.items():
        if not _is_plain(value):
            raise TypeError(f"the parameter {name}={value!r:.100} is of no type that is saved")
    return _class_named(description["estimator"], base)(**params)


def _class_named(name: str, base: type[Kind]) -> type[Kind]:
    kind = _CLASSES.get(name)
    if kind is None or not issubclass(kind, base):
        raise FormatError(
            f"the saved estimator is of class {name!r}, which is not {base.__name__} or a subclass "
            f"of it in this version of streamgda"
        )
    return kind


def plain(value: Any) -> Any:
    """Return a parameter, or a list or dict of them, for JSON."""
    if isinstance(value, Mapping):
        return {name: plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return value.tolist() if hasattr(value, "tolist") else value


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(isinstance(entry, int | float) and _is_plain(entry) for entry in value)
    if isinstance(value, int | float):
        return abs(value) <= sys.float_info.max
    return value is None or isinstance(value, str)
