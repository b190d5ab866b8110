"""What models share: vectors packed for scoring, and what is made of scores.

Scores lie class by class, shape (n_classes, n_rows); whoever makes something of them may overwrite
them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from streamgda.errors import InvalidDataError
from streamgda.kernels import scoring
from streamgda.kernels.tiles import ROWS
from streamgda.runtime import threads

# A thread has about so many values of rows and scores in hand at a time: between two chunks it has
# to wait for Python. Of wide rows, so many that the root of a class is used several times while it
# is in the cache.
_CHUNK_ELEMENTS = 1 << 19
_CHUNK_ROWS = 384
_BLOCK = 96  # rows that chunks are made of, whole panels of every kind


class Strips(dict[np.dtype, np.ndarray]):
    """Vectors packed for `multiply_tile`, once for each type that is asked for.

    Parameters
    ----------
    vectors : ndarray, shape (n_vectors, d) or (groups, n_vectors, d)

    Notes
    -----
    Shape ([groups,] n_strips, d, ROWS): a strip is `ROWS` vectors side by side, the last filled
    up with zeros.
    """

    def __init__(self, vectors: np.ndarray) -> None:
        super().__init__()
        self.vectors = vectors
        self.n_vectors = vectors.shape[-2]

    def __missing__(self, dtype: np.dtype) -> np.ndarray:
        *groups, n, d = self.vectors.shape
        strips = np.zeros((*groups, -(-n // ROWS), d, ROWS), dtype)
        with np.errstate(over="ignore"):
            for a in range(min(ROWS, n)):
                rows = self.vectors[..., a::ROWS, :]
                strips[..., : rows.shape[-2], :, a] = rows
        self[dtype] = strips
        return strips


def by_chunks(
    scores_of: Callable[[np.ndarray, int], np.ndarray],
    finish: Callable[[np.ndarray, np.ndarray], None],
    X: np.ndarray,
    n_scores: int,
    out: np.ndarray,
    first_row: int,
) -> np.ndarray:
    """Score rows chunk by chunk, on all threads, into `out`, which is returned.

    Parameters
    ----------
    scores_of : callable
        Called as ``scores_of(rows, number of the first)``; gives scores class by class, or what
        else `finish` takes.
    finish : callable
        Called as ``finish(scores, part of out)``.
    X : ndarray, shape (n_rows, n_features)
    n_scores : int
        Scores that a row has.
    out : ndarray, one entry a row
    first_row : int
        Where the rows stand in a larger array.
    """
    step = max(
        _CHUNK_ELEMENTS // (X.shape[1] + n_scores),
        min(_CHUNK_ROWS, X.shape[0] // threads.n_threads()),
    )
    step = max(_BLOCK, step // _BLOCK * _BLOCK)

    def work(start: int) -> None:
        rows = slice(start, start + step)
        finish(scores_of(X[rows], first_row + start), out[rows])

    threads.run(work, ((start,) for start in range(0, X.shape[0], step)))
    return out


# --- from scores, class by class, to what is said of rows; scores are overwritten ----------------


def most_probable(classes: np.ndarray) -> Callable[[np.ndarray, np.ndarray], None]:
    """What writes the class with the largest score, the first of equal ones."""
    write = labelled(classes)

    def finish(scores: np.ndarray, out: np.ndarray) -> None:
        codes = np.empty(out.size, np.int64)
        scoring.largest(scores, codes)
        write(codes, out)

    return finish


def labelled(classes: np.ndarray) -> Callable[[np.ndarray, np.ndarray], None]:
    """What writes the classes that have these numbers."""

    def finish(codes: np.ndarray, out: np.ndarray) -> None:
        np.take(classes, codes, out=out, mode="clip")  # without a copy, as other modes are

    return finish


def check_width(X: np.ndarray, n_features: int) -> None:
    """Raise `InvalidDataError` for rows of another width than the model's."""
    if X.shape[1] != n_features:
        raise InvalidDataError(
            f"X has {X.shape[1]} features, but this model is expecting {n_features} features as "
            f"input"
        )


def copied(scores: np.ndarray, out: np.ndarray) -> None:
    """Scores as they are."""
    out[...] = scores.T


def difference(scores: np.ndarray, out: np.ndarray) -> None:
    """Of two classes, how much the second has more."""
    np.subtract(scores[1], scores[0], out=out)


def posterior(scores: np.ndarray, out: np.ndarray) -> None:
    """Probabilities."""
    scoring.posteriors(scores, out)


def _subtract_largest(scores: np.ndarray) -> np.ndarray:
    """Each row's largest score, which is subtracted; of nothing but -inf, zeros are left."""
    top: np.ndarray = scores.max(axis=0)
    with np.errstate(invalid="ignore"):
        scores -= top
    scores[:, top == -np.inf] = 0.0
    return top


def log_posterior(scores: np.ndarray, out: np.ndarray) -> None:
    """Logarithms of probabilities, exact also where these are rounded to zero."""
    _subtract_largest(scores)
    total = np.empty(out.shape[0])
    scoring.exponentials(scores.copy(), total)
    np.subtract(scores, np.log(total), out=out.T)


def log_sum_exp(scores: np.ndarray, out: np.ndarray) -> None:
    """The logarithm of what the classes have together."""
    top = _subtract_largest(scores)
    scoring.exponentials(scores, out)
    np.log(out, out=out)
    out += top
