"""Rank-one updates of rows of few features, against numpy; with ``NUMBA_DISABLE_JIT=1`` too."""

import numpy as np
import pytest

from streamgda.kernels import kernel
from streamgda.kernels.narrow import NARROW, add_narrow_products, add_narrow_sums, padded_width

WIDTHS = [1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 15, 16]
DTYPES = ["f8", "f4", "u1", "i1", "u2", "i2"]
N_CLASSES = 3


@kernel
def sums_of(X, codes, weights, centre, out):
    add_narrow_sums(X, codes, weights, centre, out)


@kernel
def products_of(X, codes, weights, centre, centre_low, step, out):
    add_narrow_products(X, codes, weights, centre, centre_low, step, out)


def padded(values, width):
    out = np.zeros((len(values), width))
    out[:, : values.shape[1]] = values
    return out


def rows(d, dtype, n=37):
    random = np.random.default_rng(d)
    low, high = (-9, 9) if dtype in ("f8", "f4") else (0, 120)
    # What follows the last row in memory is no number, and must not be looked at.
    held = np.full(n * d + 8, 99 if np.dtype(dtype).kind in "iu" else np.nan, dtype)
    X = held[: n * d].reshape(n, d)
    X[...] = random.integers(low, high, (n, d))
    return X, random.integers(0, N_CLASSES, n), random.integers(1, 5, n).astype(float)


def test_padded_width():
    assert [padded_width(d) for d in (1, 4, 5, 16)] == [4, 4, 8, 16]
    assert padded_width(NARROW) == NARROW


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("weighted", [False, True])
def test_sums(dtype, weighted):
    for d in WIDTHS:
        X, codes, w = rows(d, dtype)
        width = padded_width(d)
        centre = np.arange(N_CLASSES * d, dtype=float).reshape(N_CLASSES, d)
        out = np.zeros((N_CLASSES, width))
        sums_of(X, codes, w if weighted else np.empty(0), padded(centre, width), out)
        expected = np.zeros((N_CLASSES, d))
        np.add.at(
            expected, codes, (w if weighted else np.ones(len(w)))[:, None] * (X - centre[codes])
        )
        np.testing.assert_array_equal(out, padded(expected, width))  # whole numbers: exact


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("step", [0, 1])
def test_products(dtype, weighted, step):
    for d in WIDTHS:
        X, codes, w = rows(d, dtype)
        w = w**2  # of which roots are exact
        width = padded_width(d)
        centre = np.arange(N_CLASSES * d, dtype=float).reshape(N_CLASSES, d)
        low = np.full((N_CLASSES, d), 0.5)
        out = np.zeros((N_CLASSES if step else 1, width, width))
        weights = w if weighted else np.empty(0)
        products_of(X, codes, weights, padded(centre, width), padded(low, width), step, out)
        t = (X - centre[codes]) - low[codes]
        expected = np.zeros((len(out), d, d))
        for r, k in enumerate(codes):
            expected[step * k] += (w[r] if weighted else 1.0) * np.outer(t[r], t[r])
        lower = np.tril_indices(d)
        np.testing.assert_array_equal(out[:, *lower], expected[:, *lower])
        assert not out[:, d:].any()
        assert not out[:, :, d:].any()


def test_no_rows():
    X, codes, _ = rows(5, "f8", 0)
    centre = np.zeros((N_CLASSES, 8))
    out = np.zeros((N_CLASSES, 8, 8))
    sums_of(X, codes, np.empty(0), centre, out[0])
    products_of(X, codes, np.empty(0), centre, centre, 1, out)
    assert not out.any()


def test_not_finite_values_stay_in_their_features():
    X = np.array([[1.0, np.nan, 3.0], [4.0, 5.0, np.inf]])
    out = np.zeros((2, 4))
    with np.errstate(invalid="ignore"):
        sums_of(X, np.array([0, 1]), np.empty(0), np.zeros((2, 4)), out)
    np.testing.assert_array_equal(out, [[1, np.nan, 3, 0], [4, 5, np.inf, 0]])
