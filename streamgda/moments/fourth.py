"""Fourth moments of rows, which Ledoit and Wolf's shrinkage needs in addition to the scatter.

`ClassMoments` keeps those of rows in their own units on request: for each class, the
sums of ``w |t|^2 t`` and of ``w |t|^4``, where t is the row less the class mean, in an array of
shape (n_classes, n_features + 1). Together with the scatter they can be moved to another mean, and
so they can be merged. `FourthMoments` are those of scaled rows, from a second pass over the rows:
the scales follow from the moments of the first pass, but these sums do not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from scipy.linalg import blas

from streamgda import storage
from streamgda.errors import InvalidDataError, MergeError
from streamgda.kernels.centred import add_norms
from streamgda.kernels.sums import count_rows
from streamgda.moments.base import Moments
from streamgda.moments.centred import (
    ROUNDING,
    CentredSums,
    between_means,
    class_variance,
    pooled_variance,
)
from streamgda.rows import labels as label_codes
from streamgda.rows.arrays import NO_WEIGHTS, as_kernel_rows, row_type
from streamgda.rows.invalid_rows import CHECK_SUMS, RowRule, as_maskable_matrix, rows_to_count
from streamgda.runtime import threads
from streamgda.storage.saved import State

if TYPE_CHECKING:
    from streamgda.moments.class_moments import ClassMoments

_PART_ELEMENTS = 1 << 20  # of a part of the rows that one thread adds

# Sign (1 for rows added, -1 for rows subtracted), fourth moments, sums, and the class that each of
# their classes becomes.
FourthOfPart = tuple[int, np.ndarray, CentredSums, np.ndarray]


def fourth_of_rows(
    X: np.ndarray,
    codes: np.ndarray,
    weights: np.ndarray,
    mean: np.ndarray,
    mean_low: np.ndarray,
    inverse: np.ndarray | None = None,
) -> np.ndarray:
    """Return the sums of rows less the means of their classes, times `inverse` if it is given.

    Raises
    ------
    InvalidDataError
        If they overflow float64.
    """
    n_classes, d = mean.shape
    inverse = np.ones_like(mean) if inverse is None else inverse
    step = max(256, _PART_ELEMENTS // d)
    dtype = row_type(X.dtype).dtype

    def part(start: int) -> np.ndarray:
        rows = slice(start, start + step)
        fourth = np.zeros((n_classes, d + 1))
        block = as_kernel_rows(X[rows], dtype)
        add_norms(block, codes[rows], weights[rows], mean, mean_low, inverse, fourth)
        return fourth

    total = np.zeros((n_classes, d + 1))
    starts = ((start,) for start in range(0, X.shape[0], step))
    with closing(threads.imap(part, starts)) as parts:
        for fourth in parts:
            total += fourth
    if not np.isfinite(total).all():
        raise InvalidDataError(
            "Input X contains values whose fourth powers overflow float64, which this shrinkage "
            "(fourth_moments=True) sums; scale the data down"
        )
    return total


def merge_fourth(parts: Sequence[FourthOfPart], n_classes: int) -> np.ndarray:
    """Return the fourth moments about the common means of rows that were added and subtracted.

    Parameters
    ----------
    parts : sequence of FourthOfPart
    n_classes : int

    Returns
    -------
    ndarray, shape (n_classes, n_features + 1)

    Raises
    ------
    MergeError
        If a sum of fourth powers is negative by more than rounding: other rows were subtracted.
    """
    merged = np.zeros((n_classes, parts[0][1].shape[1]))
    sources: dict[int, list[tuple[int, np.ndarray, CentredSums, int]]] = {}
    for sign, fourth, sums, at in parts:
        for k in np.flatnonzero(sums.count > 0).tolist():
            sources.setdefault(int(at[k]), []).append((sign, fourth, sums, k))
    for target, own in sources.items():
        weights = np.array([sign * float(sums.count[k]) for sign, _, sums, k in own])
        if weights.sum() <= 1e-12 * weights.max():  # all are subtracted again
            continue
        high = np.array([sums.mean[k] for _, _, sums, k in own])
        low = np.array([sums.mean_low[k] for _, _, sums, k in own])
        gaps = (high - high[0]) + (low - low[0])
        steps = weights @ gaps / weights.sum() - gaps
        size = 0.0
        for (sign, fourth, sums, k), step in zip(own, steps, strict=True):
            part = _about(fourth[k], sums.count[k], sums.scatter[k], step)
            merged[target] += sign * part
            square = float(step @ step)
            spread = float(sums.scatter[k].trace()) + sums.count[k] * square
            size += fourth[k, -1] + spread * square
        # The magnitudes of all terms of `_about` sum to at most 8 times the size, by the inequality
        # of Cauchy and Schwarz, with up to 4 times the relative error of the step, which grows as
        # in `CentredSums.subtract`. What an earlier subtraction left is not known.
        bound = 32 * ROUNDING * (1 + weights.max() / weights.sum()) * size
        known = all(sums.rounding is None for _, _, sums, _ in own)
        if known and merged[target, -1] < -bound:
            raise MergeError(
                "subtracting these moments leaves fourth moments that no rows have: only rows "
                "that were added can be subtracted"
            )
    np.maximum(merged[:, -1], 0, out=merged[:, -1])
    return merged


def _about(fourth: np.ndarray, count: float, scatter: np.ndarray, step: np.ndarray) -> np.ndarray:
    """Return the fourth moments of one class about its mean plus `step`."""
    if not step.any():
        return fourth
    # The lower triangle of `scatter` is the upper one of Fortran's transposed view.
    product = blas.dsymv(1.0, scatter.T, step, lower=0)
    trace, square = float(scatter.trace()), float(step @ step)
    cubes = fourth[:-1] - 2 * product - (trace + count * square) * step
    last = fourth[-1] - 4 * (step @ fourth[:-1] - step @ product) + 2 * square * trace
    return np.append(cubes, last + count * (square * square))


CLASS, WITHIN, TOTAL = "class", "within", "total"


@dataclass(frozen=True)
class Scaling:
    """Centres and scales of the rows of each class.

    Attributes
    ----------
    centre, centre_low : ndarray, shape (n_classes, n_features)
        The centres are the sums of both.
    inverse : ndarray, shape (n_classes, n_features)
        One over the standard deviations.
    """

    centre: np.ndarray
    centre_low: np.ndarray
    inverse: np.ndarray

    @classmethod
    def of(cls, sums: CentredSums, name: str) -> Self:
        """Return one of the scalings by the moments of the rows.

        Parameters
        ----------
        sums : CentredSums
        name : {"class", "within", "total"}
            The mean and the standard deviations of the row's own class; the mean of its class and
            the pooled standard deviations within classes; or those of all rows.
        """
        mean, low = sums.mean, sums.mean_low
        if name == CLASS:
            variance = class_variance(sums)
        elif name == WITHIN:
            variance = pooled_variance(sums)[None]
        else:
            variance = class_variance(sums, total=True)
            first = int((sums.count > 0).argmax())
            high, rest = mean[first], low[first] - between_means(sums)[0]
            mean, low = (np.broadcast_to(part, mean.shape) for part in (high, rest))
        inverse = np.broadcast_to(1 / np.sqrt(variance), mean.shape)
        return cls(*(np.ascontiguousarray(array) for array in (mean, low, inverse)))


class FourthMoments(Moments):
    r"""Sums :math:`\sum w_i |t_i|^4` of the scaled rows :math:`t_i` of each class.

    Parameters
    ----------
    classes : ndarray, shape (n_classes,)
    scalings : dict of str to Scaling
        Scalings of the rows, by name.
    """

    _kind = "fourth moments"

    def __init__(self, classes: np.ndarray, scalings: Mapping[str, Scaling]) -> None:
        super().__init__()
        self._classes = classes
        self.scalings = scalings
        self._count = np.zeros(classes.size)
        self.fourth = {name: np.zeros(classes.size) for name in scalings}

    @classmethod
    def of(cls, moments: ClassMoments, names: Sequence[str]) -> Self:
        """Return sums without rows, for scalings that moments of the same rows determine."""
        sums = moments.centred()
        return cls(moments.classes, {name: Scaling.of(sums, name) for name in names})

    @property
    def class_count(self) -> np.ndarray:
        """Rows of each class, or their total weight, shape (n_classes,)."""
        return self._count.copy()

    @property
    def n_features(self) -> int | None:
        """Number of features."""
        return next(iter(self.scalings.values())).centre.shape[1]

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self._bytes(self._classes.size, int(self.n_features or 0))[0]

    def _bytes(self, n_classes: int, n_features: int, n_groups: int = 0) -> tuple[int, int]:
        state = 8 * n_classes * len(self.scalings) * (3 * n_features + 2)
        return state, 3 * state  # the sums of a part of the rows, and of all those that are added

    def _update(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        first_row: int = 0,
        rule: RowRule = CHECK_SUMS,
        expected: np.ndarray | None = None,
    ) -> Self:
        X = as_maskable_matrix(X)
        y = rule.as_labels(y, first_row)
        self._check_shapes(X, y)
        weights = NO_WEIGHTS
        if sample_weight is not None or not rule.counts_all(X):
            X, y, weights, _, _ = rows_to_count(X, y, sample_weight, rule, first_row)
        if not y.size:
            return self
        codes = label_codes.find(y, self._classes)
        if (codes < 0).any():
            raise InvalidDataError(
                f"the label {y[codes < 0][0]!s} was not there when the rows were read before: they "
                f"changed between two passes over them"
            )
        count = np.zeros(self._classes.size)
        count_rows(codes, weights, count)
        added = {
            name: fourth_of_rows(X, codes, weights, s.centre, s.centre_low, s.inverse)[:, -1]
            for name, s in self.scalings.items()
        }
        self._replace(count, added)
        return self

    def _replace(self, count: np.ndarray, added: Mapping[str, np.ndarray]) -> None:
        with self._lock:
            fourth = {name: values + added[name] for name, values in self.fourth.items()}
            self._count, self.fourth = self._count + count, fourth

    def _declare(self, labels: np.ndarray) -> None:
        """Do nothing: all classes are known beforehand."""

    def _add(self, other: FourthMoments) -> None:
        self._replace(other._count, other.fourth)

    def copy(self) -> FourthMoments:
        """Return independent sums with the same values."""
        copied = FourthMoments(self._classes, self.scalings)
        with self._lock:
            copied._count, copied.fourth = self._count, self.fourth  # which are never changed
        return copied

    def keep(self, moments: ClassMoments) -> None:
        """Keep the sums with the moments of the same rows.

        Raises
        ------
        InvalidDataError
            If they are not the same rows.
        """
        counts = self._count, moments.class_count
        if not np.allclose(*counts, rtol=1e-9, atol=0):
            raise InvalidDataError(
                f"the classes had {counts[1].tolist()} rows, and {counts[0].tolist()} when they "
                f"were read again: they changed between two passes over them"
            )
        moments._keep_scaled(self.fourth)

    # --- saving -------------------------------------------------------------------------------

    def _state(self) -> State:
        arrays = {"count": self._count}
        for name, scaling in self.scalings.items():
            arrays |= {f"{name}_{key}": array for key, array in vars(scaling).items()}
            arrays[f"{name}_fourth"] = self.fourth[name]
        return {"classes": storage.pack_labels(self._classes), "names": [*self.scalings]}, arrays

    @classmethod
    def _from_state(cls, attributes: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        keys = "centre", "centre_low", "inverse"
        names = attributes["names"]
        scalings = {name: Scaling(*(arrays[f"{name}_{key}"] for key in keys)) for name in names}
        moments = cls(storage.unpack_labels(attributes["classes"]), scalings)
        moments._count = arrays["count"]
        moments.fourth = {name: arrays[f"{name}_fourth"] for name in names}
        return moments
