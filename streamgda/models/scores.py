"""Scores of rows in chunks, and the answers that are computed from scores.

Scores are class by class, shape (n_classes, n_rows). The functions that compute answers from them
may overwrite them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from streamgda.errors import InvalidDataError
from streamgda.kernels import scoring
from streamgda.rows import named_rows
from streamgda.rows.names import join_names
from streamgda.rows.sparse import CompressedRows
from streamgda.runtime import threads

# A chunk has about this many values of rows and scores, because a thread has to wait for Python
# between two chunks. Chunks of wide rows have enough rows to use the root of a class several times
# while it is in the cache.
_CHUNK_ELEMENTS = 1 << 19
_CHUNK_ROWS = 384
_FEW_PRODUCTS = 1 << 18
_EXP_BLOCK = 256  # rows that stay in the first cache, with the scores of some classes
_BLOCK = 96  # chunks are multiples of it: whole panels of every kind

Finish = Callable[[np.ndarray, np.ndarray], None]  # called as ``finish(scores, part of out)``


def scratch_bytes(n_features: int) -> int:
    """Return the most bytes of the chunks that are scored at a time: cast, packed, and scores."""
    return threads.n_threads() * 24 * max(_CHUNK_ELEMENTS, _CHUNK_ROWS * n_features)


def by_chunks(
    scores_of: Callable[[np.ndarray, int], np.ndarray],
    finish: Finish,
    X: Any,
    n_scores: int,
    out: np.ndarray,
    first_row: int,
    by_blas: bool,
) -> np.ndarray:
    """Score rows chunk by chunk, on all threads, into `out`, which is returned.

    Parameters
    ----------
    scores_of : callable
        Called as ``scores_of(rows, number of the first row)``; returns scores class by class, or
        whatever `finish` takes.
    finish : Finish
    X : ndarray or CompressedRows, shape (n_rows, n_features)
    n_scores : int
        Scores of each row.
    out : ndarray, one entry a row
    first_row : int
        Number of the first row in a larger array.
    by_blas : bool
        Limit BLAS to one thread of each of ours.
    """
    width = X.row_elements if type(X) is CompressedRows else X.shape[1]
    step = _BLOCK
    if X.shape[0] > step:  # a few rows take less time than to count threads
        wide = min(_CHUNK_ROWS, X.shape[0] // threads.n_threads())
        step = max(step, max(_CHUNK_ELEMENTS // (width + n_scores), wide) // _BLOCK * _BLOCK)

    def work(start: int) -> None:
        rows = slice(start, start + step)
        finish(scores_of(X[rows], first_row + start), out[rows])

    calls = [(start,) for start in range(0, X.shape[0], step)]
    # For so few products, BLAS uses one thread anyway.
    serial = by_blas and X.shape[0] * width * n_scores > _FEW_PRODUCTS
    (threads.run_serial_blas if serial else threads.run)(work, calls)
    return out


# --- answers from scores, which are overwritten --------------------------------------------------


def labelled(classes: np.ndarray) -> Finish:
    """Return a function that writes the classes with given numbers."""

    def finish(codes: np.ndarray, out: np.ndarray) -> None:
        np.take(classes, codes, out=out, mode="clip")  # other modes make a copy

    return finish


def checked_names(X: Any, names: tuple[str, ...] | None) -> Any:
    """Return rows; raise `InvalidDataError` if their features have other names than a model's."""
    if names is not None and type(X) is not np.ndarray:
        X, found = named_rows(X)
        join_names(names, found, "this model", InvalidDataError)
    return X


def check_width(X: np.ndarray, n_features: int) -> None:
    """Raise `InvalidDataError` unless rows have the width of the model."""
    if X.shape[1] != n_features:
        raise InvalidDataError(
            f"X has {X.shape[1]} features, but this model is expecting {n_features} features as "
            f"input"
        )


def copied(scores: np.ndarray, out: np.ndarray) -> None:
    """Write the scores."""
    out[...] = scores.T


def difference(scores: np.ndarray, out: np.ndarray) -> None:
    """Write the score of the second of two classes, or of the only one, less that of the first."""
    np.subtract(scores[-1], scores[0], out=out)


def exponentials(scores: np.ndarray, total: np.ndarray) -> None:
    """Replace scores of at most zero by their exponentials, and write their sums over classes."""
    powers = np.empty(_EXP_BLOCK)
    scoring.exponentials(scores, total, powers, powers.view(np.int64))


def posterior(scores: np.ndarray, out: np.ndarray) -> None:
    """Write probabilities."""
    _subtract_largest(scores)
    total = np.empty(out.shape[0])
    exponentials(scores, total)
    np.divide(scores, total, out=out.T)


def _subtract_largest(scores: np.ndarray) -> np.ndarray:
    """Subtract each row's largest score and return it; rows of nothing but -inf become zero."""
    top: np.ndarray = scores.max(axis=0)
    with np.errstate(invalid="ignore"):
        scores -= top
    scores[:, top == -np.inf] = 0.0
    return top


def log_posterior(scores: np.ndarray, out: np.ndarray) -> None:
    """Write logarithms of probabilities, exact even where these are rounded to zero."""
    _subtract_largest(scores)
    total = np.empty(out.shape[0])
    exponentials(scores.copy(), total)
    np.subtract(scores, np.log(total), out=out.T)


def log_sum_exp(scores: np.ndarray, out: np.ndarray) -> None:
    """Write the logarithm of the sum over the classes."""
    top = _subtract_largest(scores)
    exponentials(scores, out)
    np.log(out, out=out)
    out += top
