"""Norms of centred rows, which Ledoit and Wolf's shrinkage needs in addition to the scatter.

For each class, these are the sums of ``w |t|^2 t`` and of ``w |t|^4``, where t is the row less the
class mean: shape (n_classes, n_features + 1). Together with the scatter they can be moved to
another mean, and so they can be merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

import numpy as np
from scipy.linalg import blas

from streamgda.errors import InvalidDataError, MergeError
from streamgda.kernels.norms import add_norms
from streamgda.moments.centred import ROUNDING, CentredSums
from streamgda.rows.arrays import as_kernel_rows, row_type
from streamgda.runtime import threads

_PART_ELEMENTS = 1 << 20  # of a part of the rows that one thread adds

# Sign (1 for rows added, -1 for rows subtracted), norms, sums, and the class that each of their
# classes becomes.
NormsOfPart = tuple[int, np.ndarray, CentredSums, np.ndarray]


def norms_of_rows(
    X: np.ndarray,
    codes: np.ndarray,
    weights: np.ndarray,
    mean: np.ndarray,
    mean_low: np.ndarray,
    inverse: np.ndarray | None = None,
) -> np.ndarray:
    """Return the norms of rows less the means of their classes, times `inverse` if it is given.

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
        norms = np.zeros((n_classes, d + 1))
        block = as_kernel_rows(X[rows], dtype)
        add_norms(block, codes[rows], weights[rows], mean, mean_low, inverse, norms)
        return norms

    total = np.zeros((n_classes, d + 1))
    starts = ((start,) for start in range(0, X.shape[0], step))
    with closing(threads.imap(part, starts)) as parts:
        for norms in parts:
            total += norms
    if not np.isfinite(total).all():
        raise InvalidDataError(
            "Input X contains values whose fourth powers overflow float64, which this shrinkage "
            "(norms=True) sums; scale the data down"
        )
    return total


def merge_norms(parts: Sequence[NormsOfPart], n_classes: int) -> np.ndarray:
    """Return the norms about the common means of rows that were added and subtracted.

    Parameters
    ----------
    parts : sequence of NormsOfPart
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
    for sign, norms, sums, at in parts:
        for k in np.flatnonzero(sums.count > 0).tolist():
            sources.setdefault(int(at[k]), []).append((sign, norms, sums, k))
    for target, own in sources.items():
        weights = np.array([sign * float(sums.count[k]) for sign, _, sums, k in own])
        if weights.sum() <= 1e-12 * weights.max():  # all are subtracted again
            continue
        high = np.array([sums.mean[k] for _, _, sums, k in own])
        low = np.array([sums.mean_low[k] for _, _, sums, k in own])
        gaps = (high - high[0]) + (low - low[0])
        steps = weights @ gaps / weights.sum() - gaps
        size = 0.0
        for (sign, norms, sums, k), step in zip(own, steps, strict=True):
            part = _about(norms[k], sums.count[k], sums.scatter[k], step)
            merged[target] += sign * part
            square = float(step @ step)
            spread = float(sums.scatter[k].trace()) + sums.count[k] * square
            size += norms[k, -1] + spread * square
        # The magnitudes of all terms of `_about` sum to at most 8 times the size, by the inequality
        # of Cauchy and Schwarz, with up to 4 times the relative error of the step, which grows as
        # in `CentredSums.subtract`. What an earlier subtraction left is not known.
        bound = 32 * ROUNDING * (1 + weights.max() / weights.sum()) * size
        known = all(sums.rounding is None for _, _, sums, _ in own)
        if known and merged[target, -1] < -bound:
            raise MergeError(
                "subtracting these moments leaves norms that no rows have: only rows that were "
                "added can be subtracted"
            )
    np.maximum(merged[:, -1], 0, out=merged[:, -1])
    return merged


def _about(norms: np.ndarray, count: float, scatter: np.ndarray, step: np.ndarray) -> np.ndarray:
    """Return the norms of one class about its mean plus `step`."""
    if not step.any():
        return norms
    # The lower triangle of `scatter` is the upper one of Fortran's transposed view.
    product = blas.dsymv(1.0, scatter.T, step, lower=0)
    trace, square = float(scatter.trace()), float(step @ step)
    cubes = norms[:-1] - 2 * product - (trace + count * square) * step
    fourth = norms[-1] - 4 * (step @ norms[:-1] - step @ product) + 2 * square * trace
    return np.append(cubes, fourth + count * (square * square))
