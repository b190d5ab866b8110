"""Statistics that were summed elsewhere as centred sums: their shapes, and what rows can have."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from scipy import linalg

from streamgda.errors import InvalidDataError, InvalidParameterError, PrecisionWarning
from streamgda.moments.centred import ROUNDING, CentredSums
from streamgda.moments.covariance_types import STRUCTURES, Structure, structure_of
from streamgda.runtime.parameters import as_number, as_numbers, refuse

_SLACK = 1e-6  # of matrices that are symmetric and not indefinite, relative to deviations
_NOTHING = 2.0**-43  # share of uncentred sums of squares that is nothing but rounding
_DIGITS = 16  # of a float64
_WARNED = 2  # digits whose loss is told


def sums_of(
    classes: np.ndarray,
    counts: Any,
    means: Any,
    given: dict[str, Any],
    ddof: float,
    squared_weights: Any,
    covariance_type: str | None,
) -> CentredSums:
    """Return the sums of rows with these statistics; see `ClassMoments.from_statistics`."""
    k = classes.size
    count = _counts("counts", counts, k)
    squares = None if squared_weights is None else _counts("squared_weights", squared_weights, k)
    if squares is not None and not ((squares > 0) == (count > 0)).all():
        raise refuse("squared_weights", squared_weights, "numbers above zero where counts are")
    if squares is not None and (squares > (1 + _SLACK) * count**2).any():
        raise InvalidDataError("squared_weights are more than squares of counts, which none are")
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
    structure = _structure(name, values.shape, k, d, covariance_type)
    if structure.one_variance and name == "covariances":
        values = np.repeat(values[..., None], d, axis=-1)
    values = values.reshape(structure.n_groups(k), *structure.shape(d)).copy()
    whole = count == count.round()
    one = whole & (count <= 1) & (squares is None or squares >= count)
    alone = structure.group_sums(np.where(one, 0, count)) == 0
    values[structure.group_sums(count) == 0] = 0
    labels = classes.tolist() if structure.per_class else None

    def refuse_where(wrong: np.ndarray, what: str) -> None:
        if wrong.any():
            group, *features = np.argwhere(wrong)[0].tolist()
            of = "" if labels is None else f" of class {labels[group]!r}"
            at = "" if not features else f" in feature {' and '.join(map(str, features[:2]))}"
            raise InvalidDataError(f"{name}{of} {what}{at}, which no rows have")

    rounding = np.zeros(structure.diagonal(values).shape)
    if name == "covariances":
        weight = structure.group_weights(count, as_number("ddof", ddof, "a number >= 0", 0))
        values[alone & (weight <= 0)] = 0  # 0 / 0 is NaN elsewhere, and nothing here
        refuse_where((weight <= 0) & ~alone, f"are of no more rows than ddof={ddof:g}")
        values *= np.maximum(weight, 0).reshape(-1, *[1] * (values.ndim - 1))
    refuse_where(~np.isfinite(values), "are no finite numbers")
    if name == "second_moments":
        uncentred = structure.diagonal(values).copy()
        values, rounding = _centred(structure, values, count, mean), ROUNDING * uncentred
        left = np.where(alone[:, None], 0.0, structure.diagonal(values))
        nothing = np.abs(left) <= _NOTHING * uncentred
        values[nothing[:, :, None] | nothing[:, None] if structure.matrix else nothing] = 0
    squares_of = structure.diagonal(values)
    slack = d * rounding + _SLACK * np.sqrt(d) * np.abs(squares_of)
    refuse_where(squares_of < -slack, "hold negative sums of squares")
    refuse_where(alone[:, None] & (squares_of > slack), "of one row vary")
    np.maximum(squares_of, 0, out=squares_of)
    if structure.matrix:
        deviation = np.sqrt(squares_of + slack)
        most = deviation[:, :, None] * deviation[:, None]
        refuse_where(np.abs(values - values.swapaxes(1, 2)) > _SLACK * most, "are not symmetric")
        refuse_where(np.abs(values) > (1 + _SLACK) * most, "hold more than variances allow")
        values = (values + values.swapaxes(1, 2)) / 2
        free = structure.group_sums(np.maximum(count - 1, 0))  # directions in which rows can vary
        most = np.where(whole.all() and squares is None, free, d)
        definite, fits = _definite(values, slack, deviation, most)
        refuse_where(~definite, "are indefinite matrices")
        refuse_where(~fits, "vary in more directions than their number of rows allows")
    if whole.all() and squares is None:
        count = count.astype(np.int64)
    sums = CentredSums(structure, count, mean, np.zeros((k, d)), structure.pack(values), squares)
    sums.rounding = rounding if rounding.any() else None
    try:
        sums.check(k)
    except ValueError as error:
        raise InvalidDataError(f"{error}, which no rows have") from None
    if name == "second_moments":
        _warn_of_offset(uncentred, left)
    return sums.checked()


def _counts(name: str, values: Any, n_classes: int) -> np.ndarray:
    expected = f"a number >= 0 for each of the {n_classes} classes"
    numbers = as_numbers(name, values, expected, finite=True)
    if numbers.shape != (n_classes,) or (numbers < 0).any():
        raise refuse(name, values, expected)
    return numbers.copy()


def _only(given: dict[str, Any]) -> tuple[str, Any]:
    """Return the only statistic that is not None, and its name."""
    found = [(name, values) for name, values in given.items() if values is not None]
    if len(found) != 1:
        raise InvalidParameterError(
            f"{', '.join(name for name, _ in found) or 'nothing'} is given; expected one of "
            f"{', '.join(given)}"
        )
    return found[0]


def _structure(
    name: str, shape: tuple[int, ...], k: int, d: int, covariance_type: str | None
) -> Structure:
    """Return the only covariance type of statistics with this shape."""
    if covariance_type is None:
        # Apart from covariances, spherical types have the shapes of "diag" and "tied_diag".
        known = [s for s in STRUCTURES.values() if name == "covariances" or not s.one_variance]
    else:
        known = [structure_of(covariance_type)]

    def shape_of(structure: Structure) -> tuple[int, ...]:
        shown = (k,) * structure.per_class + structure.shape(d)
        return shown[:-1] if structure.one_variance and name == "covariances" else shown

    found = [structure for structure in known if shape_of(structure) == shape]
    if len(found) > 1:
        types = " and ".join(repr(structure.name) for structure in found)
        raise InvalidParameterError(
            f"{name} have shape {shape}, which the covariance types {types} have for {k} classes "
            f"and {d} features; pass covariance_type"
        )
    if not found:
        shapes = ", ".join(f"{shape_of(s)} for {s.name!r}" for s in known)
        raise InvalidParameterError(
            f"{name} have shape {shape}; expected for {k} classes and {d} features {shapes}"
        )
    return found[0]


def _centred(
    structure: Structure, values: np.ndarray, count: np.ndarray, mean: np.ndarray
) -> np.ndarray:
    """Return uncentred sums less those of the means, with one rounding."""
    out = values.astype(np.longdouble)
    groups, longer = structure.groups(count.size), mean.astype(np.longdouble)
    for group, n, m in zip(groups, count, longer, strict=True):
        out[group] -= n * (m[:, None] * m if structure.matrix else m * m)
    return out.astype(np.float64)


def _warn_of_offset(uncentred: np.ndarray, squares: np.ndarray) -> None:
    """Warn of the digits that uncentred sums of squares have lost."""
    varies = squares != 0  # those of a constant are zero, or rounding that looks like a variance
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


def _definite(
    lower: np.ndarray, slack: np.ndarray, deviation: np.ndarray, most: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return where matrices are not indefinite, and of at most this rank, to rounding."""
    unit = np.where(deviation > 0, deviation, 1.0)
    good, fits = np.ones((2, len(lower)), bool)
    for g, (matrix, scale) in enumerate(zip(lower, unit, strict=True)):
        scaled = matrix / (scale[:, None] * scale)
        rounding = slack[g] / scale**2
        if most[g] < len(scaled):
            limit = len(scaled) * (_SLACK + rounding.max())
            fits[g] = linalg.lapack.dpstrf(scaled, tol=limit, lower=1)[2] <= most[g]
        scaled[np.diag_indices_from(scaled)] += rounding + (deviation[g] == 0)
        try:
            np.linalg.cholesky(scaled)
        except np.linalg.LinAlgError:
            good[g] = False
    return good, fits
