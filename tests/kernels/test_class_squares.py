"""Sums and squares of classes, against numpy; runs with ``NUMBA_DISABLE_JIT=1`` too."""

import numpy as np
import pytest
from frozen import NO_WEIGHTS, frozen

from streamgda.kernels import kernel
from streamgda.kernels.class_squares import add_class_squares
from streamgda.kernels.vectors import LANES, padded_width

N_CLASSES = 4


@kernel
def add(X, codes, weights, first, last, vectors, squares):
    add_class_squares(X, codes, weights, first, last, vectors, squares)


@pytest.mark.parametrize("dtype", ["f8", "f4", "u1", "i2"])
@pytest.mark.parametrize("weighted", [False, True])
def test_sums_and_squares(dtype, weighted):
    random = np.random.default_rng(0)
    for d in (1, 2, LANES - 1, LANES, LANES + 1, 2 * LANES, 20, 33):
        n, width = 50, padded_width(d)
        # The memory after the last row holds no numbers, and must not be read.
        held = np.full(n * d + LANES, 99 if dtype in ("u1", "i2") else np.nan, dtype)
        X = held[: n * d].reshape(n, d)
        X[...] = random.integers(0, 100, (n, d))
        codes = random.integers(0, N_CLASSES - 1, n)  # and no rows of one class
        weights = frozen(random.integers(1, 5, n) / 4) if weighted else NO_WEIGHTS
        vectors, squares = np.zeros((3, N_CLASSES, width)), np.zeros((N_CLASSES, width))
        vectors[0, :, :d] = random.integers(0, 100, (N_CLASSES, d)) + 0.5
        vectors[1, :, :d], squares[:, :d] = 7.0, 9.0
        expected = vectors.copy(), squares.copy()
        for r in range(3, n - 1):
            k, w = codes[r], weights[r] if weighted else 1.0
            t = X[r].astype(float) - vectors[0, k, :d]
            expected[0][1, k, :d] += w * t
            expected[1][k, :d] += w * t * t
        add(frozen(X), codes, weights, 3, n - 1, vectors, squares)
        np.testing.assert_array_equal(vectors, expected[0])  # quarters: exact
        np.testing.assert_array_equal(squares, expected[1])
        add(frozen(X), codes, weights, 5, 5, vectors, squares)  # no rows
        np.testing.assert_array_equal(squares, expected[1])
