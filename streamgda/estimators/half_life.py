"""Weights that decay with age, so that a model follows a changing stream."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from streamgda.errors import InvalidDataError
from streamgda.moments.centred import FORGOTTEN
from streamgda.rows import as_source
from streamgda.rows.invalid_rows import as_weights
from streamgda.runtime.parameters import LEAST, as_number


def half_life_weights(
    half_life: float, X: Any, sample_weight: Any = None
) -> tuple[np.ndarray, float]:
    """Return the weights of rows after the last of them, and the decay of all earlier rows.

    Parameters
    ----------
    half_life : float > 0
        Number of rows after which a row counts half.
    X : object with a known number of rows
        Rows, the oldest first.
    sample_weight : array-like, shape (n_rows,), optional
        Weights of the rows before they decay.

    Returns
    -------
    weights : ndarray, shape (n_rows,)
    gamma : float
        Factor for the weights of earlier rows.

    Examples
    --------
    >>> half_life_weights(1, [[3.0], [5.0], [4.0]])
    (array([0.25, 0.5 , 1.  ]), 0.125)
    """
    expected = "a number of rows above 0, or None to forget nothing"
    half_life = as_number("half_life", half_life, expected, LEAST)
    n_rows = X.shape[0] if hasattr(X, "shape") else as_source(X).n_rows
    if math.isnan(n_rows):
        raise InvalidDataError(
            "X has row chunks of unknown size, and half_life needs the age of each row; call "
            "X.compute_chunk_sizes() first"
        )
    with np.errstate(over="ignore"):
        weights = np.exp2(np.arange(1 - n_rows, 1) / half_life)
    weights[weights < FORGOTTEN] = 0
    if sample_weight is not None:
        weights *= as_weights(sample_weight, n_rows)
    return weights, 0.5 ** (n_rows / half_life)
