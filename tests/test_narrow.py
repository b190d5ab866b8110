"""Rank-one updates by narrow rows, against numpy; runs with ``NUMBA_DISABLE_JIT=1`` too."""

import numpy as np
import pytest
from frozen import NO_WEIGHTS, frozen

from streamgda.kernels import kernel
from streamgda.kernels.narrow_products import (
    MAX_FEATURES,
    add_narrow_products,
    add_narrow_sums,
    padded_width,
)

WIDTHS = [1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 15, 16]
DTYPES = ["f8", "f4", "u1", "i2"]
N_CLASSES = 3


@kernel
def added(X, codes, weights, centre, centre_low, sums_step, sums, step, products):
    add_narrow_products(X, codes, weights, centre, centre_low, sums_step, sums, step, products)


@kernel
def summed(X, codes, weights, centre, sums):
    add_narrow_sums(X, codes, weights, centre, centre, 1, sums, 0, sums)


def padded(values, width):
    out = np.zeros((len(values), width))
    out[:, : values.shape[1]] = values
    return out


def rows(d, dtype, n=37):
    random = np.random.default_rng(d)
    low, high = (-9, 9) if dtype in ("f8", "f4") else (0, 120)
    # The memory after the last row holds no numbers, and must not be read.
    held = np.full(n * d + 8, 99 if np.dtype(dtype).kind in "iu" else np.nan, dtype)
    X = held[: n * d].reshape(n, d)
    X[...] = random.integers(low, high, (n, d))
    return frozen(X), random.integers(0, N_CLASSES, n), random.integers(1, 5, n).astype(float)


def test_padded_width():
    assert [padded_width(d) for d in (1, 4, 5, 16)] == [4, 4, 8, 16]
    assert padded_width(MAX_FEATURES) == MAX_FEATURES


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("step", [0, 1])
def test_sums_and_products(dtype, weighted, step):
    for d in WIDTHS:
        X, codes, w = rows(d, dtype)
        w = frozen(w**2) if weighted else NO_WEIGHTS  # with exact roots
        width = padded_width(d)
        centre = np.arange(N_CLASSES * d, dtype=float).reshape(N_CLASSES, d)
        low = np.full((N_CLASSES, d), 0.5)
        sums = np.zeros((N_CLASSES, width))
        products = np.zeros((N_CLASSES if step else 1, width, width))
        about = padded(centre, width), padded(low, width)
        added(X, codes, w, *about, 1, sums, step, products)
        t = (X - centre[codes]) - low[codes]
        expected_sums, expected = np.zeros((N_CLASSES, d)), np.zeros((len(products), d, d))
        for r, k in enumerate(codes):
            weight = w[r] if weighted else 1.0
            expected_sums[k] += weight * t[r]
            expected[step * k] += weight * np.outer(t[r], t[r])
        np.testing.assert_array_equal(sums, padded(expected_sums, width))  # halves: exact
        ignored = np.zeros((1, width))  # one sum of all classes
        added(X, codes, w, *about, 0, ignored, step, np.zeros_like(products))
        np.testing.assert_array_equal(ignored[0], sums.sum(axis=0))
        sums[:] = 0
        summed(X, codes, w, padded(centre + 0.5, width), sums)
        np.testing.assert_array_equal(sums, padded(expected_sums, width))
        lower = np.tril_indices(d)
        np.testing.assert_array_equal(products[:, *lower], expected[:, *lower])
        assert not products[:, d:].any()
        assert not products[:, :, d:].any()


def test_no_rows():
    X, codes, _ = rows(5, "f8", 0)
    centre = np.zeros((N_CLASSES, 8))
    sums, products = np.zeros((N_CLASSES, 8)), np.zeros((N_CLASSES, 8, 8))
    added(frozen(X), codes, NO_WEIGHTS, centre, centre, 1, sums, 1, products)
    assert not sums.any()
    assert not products.any()


def test_not_finite_values_stay_in_their_features():
    X = np.array([[1.0, np.nan, 3.0], [4.0, 5.0, np.inf]])
    out, centre = np.zeros((2, 4)), np.zeros((2, 4))
    with np.errstate(invalid="ignore"):
        summed(frozen(X), np.array([0, 1]), NO_WEIGHTS, centre, out)
    np.testing.assert_array_equal(out, [[1, np.nan, 3, 0], [4, 5, np.inf, 0]])
