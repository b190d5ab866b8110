"""Statistics that were summed elsewhere become sums: their shapes, and a few checks."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from streamgda.errors import InvalidDataError, InvalidParameterError, PrecisionWarning
from streamgda.moments.covariance_types import Structure, structure_of
from streamgda.moments.sums import Sums
from streamgda.runtime.parameters import as_number, as_numbers, unexpected

_SLACK = 1e-6  # Matrices may be asymmetric, and squares negative, by this share of deviations.
_NOTHING = 2.0**-43  # This share of uncentred sums of squares is rounding.
_DIGITS = 16  # A float64 has so many digits.
_WARNED = 2  # The loss of more digits raises a warning.


def statistics_of(
    classes: np.ndarray,
    counts: Any,
    means: Any,
    given: dict[str, Any],
    ddof: float,
    squared_weights: Any,
    covariance_type: str,
) -> Sums:
    """Return the sums of rows with these statistics; see `ClassMoments.from_statistics`."""
    k = classes.size
    count = _counts("counts", counts, k)
    squares = count if squared_weights is None else _counts("squared_weights", squared_weights, k)
    seen = count > 0
    mean = as_numbers("means", means, "an array of numbers")
    if mean.ndim != 2 or len(mean) != k or not mean.size:
        raise InvalidParameterError(
            f"means have shape {mean.shape}; expected (n_classes, n_features) with {k} classes"
        )
    if not np.isfinite(mean[seen]).all():
        raise InvalidDataError("means of classes with rows have to be finite numbers")
    mean, d = np.where(seen[:, None], mean, 0.0), mean.shape[1]
    name, values = _only(given)
    values = as_numbers(name, values, "an array of numbers")
    structure = structure_of(covariance_type)
    alike = structure.one_variance and name == "covariances"  # All features share a variance.
    expected = (k,) * structure.per_class + (() if alike else structure.shape(d))
    if values.shape != expected:
        raise InvalidParameterError(
            f"{name} have shape {values.shape}; expected {expected} for {k} classes, {d} features "
            f"and covariance_type={covariance_type!r}"
        )
    if alike:
        values = np.repeat(values[..., None], d, axis=-1)
    values = values.reshape(structure.n_groups(k), *structure.shape(d)).copy()
    values[structure.group_sums(count) == 0] = 0
    labels = classes.tolist() if structure.per_class else None

    def fail_where(wrong: np.ndarray, what: str) -> None:
        if wrong.any():
            group, *features = np.argwhere(wrong)[0].tolist()
            of = "" if labels is None else f" of class {labels[group]!r}"
            at = "" if not features else f" in feature {' and '.join(map(str, features[:2]))}"
            raise InvalidDataError(f"{name}{of} {what}{at}, which no rows have")

    if name == "covariances":
        weight = structure.group_weights(count, as_number("ddof", ddof, "a number >= 0", 0))
        values[(weight <= 0) & (structure.group_sums(np.maximum(count - 1, 0)) == 0)] = 0  # 0 / 0
        values *= np.maximum(weight, 0).reshape(-1, *[1] * (values.ndim - 1))
    fail_where(~np.isfinite(values), "are not finite numbers")
    uncentred = structure.diagonal(values).copy()
    if name == "second_moments":
        values = _centred(structure, values, count, mean)
        left = structure.diagonal(values).copy()
        nothing = np.abs(left) <= _NOTHING * uncentred
        values[nothing[:, :, None] | nothing[:, None] if structure.matrix else nothing] = 0
        _warn_of_offset(uncentred, left)
    diagonal = structure.diagonal(values)
    fail_where(diagonal < -_SLACK * np.abs(uncentred), "hold negative sums of squares")
    np.maximum(diagonal, 0, out=diagonal)
    if structure.matrix:
        deviation = np.sqrt(diagonal)
        most = _SLACK * deviation[:, :, None] * deviation[:, None]
        fail_where(np.abs(values - values.swapaxes(1, 2)) > most, "are not symmetric")
        values = (values + values.swapaxes(1, 2)) / 2
    packed = np.ascontiguousarray(structure.pack(values))
    sums: Sums = Sums(structure, count, squares.copy(), mean, np.zeros((k, d)), packed).checked()
    return sums


def _counts(name: str, values: Any, n_classes: int) -> np.ndarray:
    expected = f"a number >= 0 for each of the {n_classes} classes"
    numbers = as_numbers(name, values, expected, finite=True)
    if numbers.shape != (n_classes,) or (numbers < 0).any():
        raise unexpected(name, values, expected)
    return numbers.astype(np.float64)


def _only(given: dict[str, Any]) -> tuple[str, Any]:
    """Return the only statistic that is not None, and its name."""
    found = [(name, values) for name, values in given.items() if values is not None]
    if len(found) != 1:
        raise InvalidParameterError(
            f"{', '.join(name for name, _ in found) or 'nothing'} is given; expected one of "
            f"{', '.join(given)}"
        )
    return found[0]


def _centred(
    structure: Structure, values: np.ndarray, count: np.ndarray, mean: np.ndarray
) -> np.ndarray:
    """Return uncentred sums less those of the means, with one rounding."""
    longer = mean.astype(np.longdouble)
    products = longer[:, :, None] * longer[:, None] if structure.matrix else longer * longer
    products *= count.reshape(-1, *[1] * (products.ndim - 1))
    return (values - structure.group_sums(products)).astype(np.float64)


def _warn_of_offset(uncentred: np.ndarray, squares: np.ndarray) -> None:
    """Warn of the digits that uncentred sums of squares have lost."""
    varies = squares != 0  # Squares of a constant are zero, or rounding.
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = uncentred[varies] / np.maximum(squares[varies], 0)
    lost = min(_DIGITS, np.log10(np.max(ratio, initial=1.0)))
    if lost >= _WARNED:
        warnings.warn(
            f"second_moments are sums about zero, and the distance of the rows from it has cost "
            f"{lost:.0f} of the {_DIGITS} digits of a variance; sum rows less a constant near "
            f"their mean, or give scatters or covariances about the means",
            PrecisionWarning,
            stacklevel=4,
        )
