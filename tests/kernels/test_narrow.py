"""Products and squares of narrow rows, against numpy."""

import numpy as np
import pytest
from frozen import NO_WEIGHTS, frozen

from streamgda.kernels import kernel
from streamgda.kernels.centred import add_class_squares, sum_weights
from streamgda.kernels.narrow import BUCKET_FEATURES, add_narrow_products
from streamgda.kernels.vectors import LANES, padded_width

NO_ORDER = np.empty(0, np.intp)
WIDTHS = [1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 15, 16, 17, 24, BUCKET_FEATURES - 1, BUCKET_FEATURES]
DTYPES = ["f8", *(pytest.param(dtype, marks=pytest.mark.slow) for dtype in ("f4", "u1", "i2"))]
N_CLASSES = 3


@kernel
def add_twice(X, order, codes, weights, first, last, totals, vectors, products):
    sum_weights(codes, weights, first, last, totals)
    for _ in range(2):  # the second call writes the same
        add_narrow_products(X, order, codes, weights, first, last, totals, vectors, products)


def added(X, order, codes, weights, first, last, pivots, totals, sums, products):
    vectors = np.stack((pivots, sums))
    add_twice(X, order, codes, weights, first, last, totals, vectors, products)
    sums[:] = vectors[1]


def padded(values, width):
    out = np.zeros((len(values), width))
    out[:, : values.shape[1]] = values
    return out


def rows(d, dtype, n):
    random = np.random.default_rng(d)
    low, high = (-9, 9) if dtype in ("f8", "f4") else (0, 120)
    # The memory after the last row holds no numbers, and must not be read.
    held = np.full(n * d + 8, 99 if np.dtype(dtype).kind in "iu" else np.nan, dtype)
    X = held[: n * d].reshape(n, d)
    X[...] = random.integers(low, high, (n, d))
    codes = random.integers(0, N_CLASSES - 1, n) * 2  # and no rows of one class
    return frozen(X), codes, random.integers(1, 5, n).astype(float)


def garbage(n_classes, d, n_matrices):
    """Totals, sums and products that must be overwritten."""
    width = padded_width(d)
    shapes = n_classes, (n_classes, width), (n_matrices, width, width)
    return tuple(np.full(shape, np.nan) for shape in shapes)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("step", [0, 1])
def test_sums_and_products(dtype, weighted, step):
    """In buckets that are never full, and in some that are full several times."""
    for d in WIDTHS:
        for n in (4, 37, 300):
            X, codes, w = rows(d, dtype, n)
            w = frozen(w**2) if weighted else NO_WEIGHTS  # with exact roots
            pivots = np.arange(N_CLASSES * d, dtype=float).reshape(N_CLASSES, d) + 0.5
            totals, sums, products = garbage(N_CLASSES, d, N_CLASSES if step else 1)
            expected_totals, expected_sums = np.zeros(N_CLASSES), np.zeros((N_CLASSES, d))
            expected = np.zeros((len(products), d, d))
            for r, k in list(enumerate(codes))[3:-1]:
                weight, t = w[r] if weighted else 1.0, X[r] - pivots[k]
                expected_totals[k] += weight
                expected_sums[k] += weight * t
                expected[step * k] += weight * np.outer(t, t)
            if step:  # matrices of classes without rows are left as they are
                products[expected_totals == 0] = 0.0
            about = padded(pivots, padded_width(d))
            added(X, NO_ORDER, codes, w, 3, n - 1, about, totals, sums, products)
            np.testing.assert_array_equal(totals, expected_totals)
            np.testing.assert_array_equal(sums[:, :d], expected_sums)  # halves: exact
            lower = np.tril_indices(d)
            np.testing.assert_array_equal(products[:, *lower], expected[:, *lower])
            assert not sums[:, d:].any()
            assert not products[:, d:].any()
            assert not products[:, :, d:].any()
            order = np.random.default_rng(n).permutation(n)
            again = garbage(N_CLASSES, d, len(products))
            again[2][~expected.any(axis=(1, 2))] = 0.0
            places = np.argsort(order)  # row order[r] of these is row r of those
            added(frozen(X[places]), order, codes, w, 3, n - 1, about, *again)
            for one, other in zip(again, (totals, sums, products), strict=True):
                np.testing.assert_array_equal(one, other)


def test_not_finite_values_stay_in_their_features():
    X = frozen(np.array([[1.0, np.nan, 3.0], [4.0, 5.0, np.inf]]))
    held = garbage(2, 3, 2)
    with np.errstate(invalid="ignore"):
        added(
            X, NO_ORDER, np.array([0, 1]), NO_WEIGHTS, 0, 2, np.zeros((2, padded_width(3))), *held
        )
    np.testing.assert_array_equal(held[1][:, :3], [[1, np.nan, 3], [4, 5, np.inf]])
    assert not held[1][:, 3:].any()


# --- squares ----------------------------------------------------------------------------------


@kernel
def add(X, order, codes, weights, first, last, vectors, sums):
    add_class_squares(X, order, codes, weights, first, last, len(sums), vectors, sums)


@pytest.mark.parametrize("dtype", ["f8", "f4", "u1", "i2"])
@pytest.mark.parametrize("weighted", [False, True])
def test_sums_and_squares(dtype, weighted):
    random = np.random.default_rng(0)
    for d in (1, 2, LANES - 1, LANES, LANES + 1, 2 * LANES, 20, 33):
        n, width, parts = 50, padded_width(d), 1 + 3 * (d % 2)
        # The memory after the last row holds no numbers, and must not be read.
        held = np.full(n * d + LANES, 99 if dtype in ("u1", "i2") else np.nan, dtype)
        X = held[: n * d].reshape(n, d)
        X[...] = random.integers(0, 100, (n, d))
        order = random.permutation(n) if d % 4 > 1 else NO_ORDER
        codes = random.integers(0, 4 - 1, n)  # and no rows of one class
        weights = frozen(random.integers(1, 5, n) / 4) if weighted else NO_WEIGHTS
        pivots, sums = np.zeros((4, width)), np.zeros((parts, 4, 2, width))
        pivots[:, :d] = random.integers(0, 100, (4, d)) + 0.5
        sums[..., :d] = [[7.0], [9.0]]
        expected = sums.copy()
        for r in range(3, n - 1):
            k, w, part = codes[r], weights[r] if weighted else 1.0, r % parts
            t = X[order[r] if order.size else r].astype(float) - pivots[k, :d]
            expected[part, k, :, :d] += w * t, w * t * t
        add(frozen(X), order, codes, weights, 3, n - 1, pivots[None], sums)
        np.testing.assert_array_equal(sums, expected)  # quarters: exact
