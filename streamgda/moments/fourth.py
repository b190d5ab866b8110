"""Fourth powers of scaled rows, from a second pass over the rows, for Ledoit and Wolf's shrinkage.

The scales follow from the moments of a first pass, but not the sums of ``w |t|^4`` of the scaled
rows t. In a second pass, the squared lengths ``|t|^2`` are rows of one feature for each scaling:
their own class moments have these sums. For rows in their own units, `ClassMoments` keeps fourth
moments on request, see `streamgda.moments.sums`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from streamgda.errors import InvalidDataError
from streamgda.kernels.leave_one_out import own_squares
from streamgda.moments.base import held_sums
from streamgda.moments.feature_maps import Lifting
from streamgda.moments.lifted import lifted
from streamgda.moments.sums import Sums, between_means, class_variance, pooled_variance
from streamgda.rows import labels as label_codes
from streamgda.rows.arrays import as_kernel_rows, row_type
from streamgda.rows.counting import RowRule, Slab
from streamgda.runtime import threads

if TYPE_CHECKING:
    from streamgda.moments.class_moments import ClassMoments

_PART_ELEMENTS = 1 << 20  # of a part of the rows that one thread scales

CLASS, WITHIN, TOTAL = "class", "within", "total"


class Scaling(NamedTuple):
    """Centres and scales of the rows of each class.

    Attributes
    ----------
    centre, centre_low : ndarray, shape (n_classes, n_features)
        The centres are the sums of both.
    precision : ndarray, shape (n_classes, n_features)
        One over the variances.
    """

    centre: np.ndarray
    centre_low: np.ndarray
    precision: np.ndarray

    @classmethod
    def of(cls, sums: Sums, name: str) -> Self:
        """Return one of the scalings by the moments of the rows.

        Parameters
        ----------
        sums : Sums
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
            high, rest = mean[first], low[first] - between_means(sums)[1][0]
            mean, low = (np.broadcast_to(part, mean.shape) for part in (high, rest))
        precision = np.broadcast_to(1 / variance, mean.shape)
        return cls(*(np.array(values, order="C") for values in (mean, low, precision)))


@dataclass(frozen=True)
class ScaledRows:
    """Scaled rows, whose fourth powers are summed in a second pass.

    Attributes
    ----------
    classes : ndarray, shape (n_classes,)
    scalings : dict of str to Scaling
        Scalings of the rows, by name.
    lifting : Lifting, optional
        Map of the rows before they are scaled.
    """

    classes: np.ndarray
    scalings: dict[str, Scaling]
    lifting: Lifting | None = None

    @classmethod
    def of(cls, moments: ClassMoments, names: Sequence[str]) -> Self:
        """Return the rows of these moments, which determine the scalings."""
        sums = held_sums(moments).centred()
        scalings = {name: Scaling.of(sums, name) for name in names}
        return cls(moments.classes, scalings, moments._lifting)

    def squares(self, slab: Slab, rule: RowRule) -> tuple[Any, ...]:
        """Return squared lengths of the rows that count, shape (n, n_scalings); labels, weights."""
        X, y, weights, _, _ = rule.counted(slab, self.classes)
        codes = label_codes.find(y, self.classes)
        if (codes < 0).any():
            raise InvalidDataError(
                f"the label {np.asarray(y[codes < 0])[0]!s} was not there when the rows were read "
                f"before: they changed between two passes over them"
            )
        X = lifted(X, self.lifting, slab.first_row)
        squares, largest = np.empty((2, len(self.scalings), len(codes)))
        step = max(256, _PART_ELEMENTS // X.shape[1])

        def part(start: int) -> None:
            rows = slice(start, start + step)
            block = as_kernel_rows(X[rows], row_type(X.dtype).dtype)
            for scaling, *out in zip(self.scalings.values(), squares, largest, strict=True):
                own_squares(block, codes[rows], *scaling, *(a[rows] for a in out))

        threads.run(part, ((start,) for start in range(0, len(codes), step)))
        return squares.T, y, weights if weights.size else None

    def keep(self, squares: ClassMoments, moments: ClassMoments) -> None:
        """Keep the sums of fourth powers, of all squared lengths, with the moments of the rows.

        Raises
        ------
        InvalidDataError
            If they are not of the same rows.
        """
        counts = squares.declare(self.classes).class_count, moments.class_count
        if not np.allclose(*counts, rtol=1e-9, atol=0):
            raise InvalidDataError(
                f"the classes had {counts[1].tolist()} rows, and {counts[0].tolist()} when they "
                f"were read again: they changed between two passes over them"
            )
        sums = held_sums(squares).centred()
        fourth = sums.packed + sums.count[:, None] * (sums.mean + sums.mean_low) ** 2
        moments._keep_scaled(dict(zip(self.scalings, fourth.T.copy(), strict=True)))
