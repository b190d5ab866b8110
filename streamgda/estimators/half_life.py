"""Weights that halve with age, so that a model follows a stream that changes."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import numpy as np

from streamgda.errors import InvalidDataError, InvalidParameterError
from streamgda.moments.algebra import FORGOTTEN
from streamgda.rows.validity import as_weights


def recency(half_life: float, X: Any, sample_weight: Any = None) -> tuple[np.ndarray, float]:
    """What rows weigh once the last of them was seen, and what all earlier ones lose by them.

    Parameters
    ----------
    half_life : float > 0
        Rows after which a row weighs half as much.
    X : object with a known number of rows
        The oldest row first.
    sample_weight : array-like, shape (n_rows,), optional
        What rows weigh when they are seen.

    Returns
    -------
    weights : ndarray, shape (n_rows,)
    gamma : float
        The factor for the weight of earlier rows.

    Examples
    --------
    >>> recency(1, [[3.0], [5.0], [4.0]])
    (array([0.25, 0.5 , 1.  ]), 0.125)
    """
    number = isinstance(half_life, Real) and not isinstance(half_life, bool)
    if not number or not (math.isfinite(half_life) and half_life > 0):
        raise InvalidParameterError(
            f"half_life={half_life!r}; expected a number of rows above 0, or None to forget nothing"
        )
    n_rows = X.shape[0] if hasattr(X, "shape") else len(X)
    if math.isnan(n_rows):
        raise InvalidDataError(
            "X has row chunks of unknown size, so that the age of a row is not known; call "
            "X.compute_chunk_sizes() first"
        )
    weights = np.exp2(np.arange(1 - n_rows, 1) / half_life)
    weights[weights < FORGOTTEN] = 0
    if sample_weight is not None:
        weights *= as_weights(sample_weight, n_rows)
    return weights, 0.5 ** (n_rows / half_life)
