"""Names of the features: from the columns of a container to moments, models and files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from streamgda.errors import InvalidParameterError
from streamgda.rows.source import as_source
from streamgda.runtime.parameters import shown

Names = tuple[str, ...]

ATTRIBUTE = "feature_names"  # Saved objects and zarr arrays of rows keep the names under it.
_SHOWN = 5  # Messages show so many names.


def as_names(columns: Any) -> Names | None:
    """Return the labels of columns as names of features; None unless all are strings."""
    names = tuple(columns)
    return names if names and all(isinstance(name, str) for name in names) else None


def join_names(held: Names | None, found: Names | None, what: str, kind: type[Exception]) -> Any:
    """Return the names of features that two sets of rows have in common.

    Parameters
    ----------
    held, found : tuple of str or None
        Names that are expected and those that came. Rows without names fit any names.
    what : str
        The object that expects names, in an error: for example, "these moments".
    kind : type of exception
        Type of the error.

    Returns
    -------
    tuple of str or None

    Raises
    ------
    kind
        If the names differ, or their order does.
    """
    if found is None or found == held:
        return held
    if held is None:
        return found
    if sorted(held) == sorted(found):
        raise kind(
            f"the features are {_listed(found)}; {what} expected the same names in another order, "
            f"{_listed(held)}. Reorder the columns"
        )
    others, missing = Counter(found) - Counter(held), Counter(held) - Counter(found)
    differing = [f"unexpected: {_listed(list(others))}"] if others else []
    differing += [f"missing: {_listed(list(missing))}"] if missing else []
    raise kind(
        f"the features are {_listed(found)}; {what} expected {_listed(held)} "
        f"({'; '.join(differing)}). Select or rename the columns"
    )


def _listed(names: Sequence[str]) -> str:
    more = f", ... ({len(names)} names)" if len(names) > _SHOWN else ""
    return f"{', '.join(map(repr, names[:_SHOWN]))}{more}"


def feature_numbers(chosen: Any, names: Names | None, n_features: int, what: str) -> Any:
    """Return the indices of features that are given by name; anything else as it is.

    Parameters
    ----------
    chosen : str or sequence of str, or anything else
    names : tuple of str or None
        Names of all features.
    n_features : int
    what : str
        Name of the parameter, in an error.

    Raises
    ------
    InvalidParameterError
        For names that no feature or several features have.
    """
    listed = isinstance(chosen, Sequence) or getattr(chosen, "ndim", 0) == 1
    given = [chosen] if isinstance(chosen, str) else as_names(chosen) if listed else None
    if given is None:
        return chosen
    if names is None:
        raise InvalidParameterError(
            f"{what}={shown(chosen)}, but the features have no names; give indices from 0 to "
            f"{n_features - 1}"
        )
    counts = Counter(names)
    wrong = [name for name in given if counts[name] != 1]
    if wrong:
        raise InvalidParameterError(
            f"{what} names {_listed(wrong)}; expected names that one feature has, among "
            f"{_listed(names)}"
        )
    numbers = {name: number for number, name in enumerate(names)}
    return np.array([numbers[name] for name in given])


def named_rows(X: Any) -> tuple[Any, Names | None]:
    """Return rows, as a source unless they are an array or a list, and the names of features."""
    if isinstance(X, np.ndarray | list | tuple):
        return X, None
    source = as_source(X)
    return source, source.feature_names


# --- saving ---------------------------------------------------------------------------------------


def saved_names(names: Names | None) -> dict[str, Any]:
    """Return the attribute that holds names; none without names."""
    return {} if names is None else {ATTRIBUTE: [*names]}


def restored_names(attributes: Mapping[str, Any], n_features: int | None) -> Names | None:
    """Return the names that `saved_names` has saved.

    Raises
    ------
    ValueError
        Unless there is a name for each feature.
    """
    held = attributes.get(ATTRIBUTE)
    if held is None:
        return None
    texts = type(held) is list and all(isinstance(name, str) for name in held)
    if not texts or len(held) != (n_features or 0):
        raise ValueError(f"{ATTRIBUTE} are {held!r:.100}, expected a list of {n_features} strings")
    return tuple(held)
