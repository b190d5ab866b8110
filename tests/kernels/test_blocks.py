"""Blocks of rows, and merging: against rationals, and against long sums."""

from fractions import Fraction

import numpy as np
import pytest

from streamgda.kernels import blocks, buckets
from streamgda.storage.format import pack_triangles

KERNELS = {
    "variances": (blocks.add_variances, False),
    "wide": (blocks.add_wide, True),
    "narrow": (buckets.add_narrow, True),
}
EVERY_KERNEL = pytest.mark.parametrize("name", KERNELS)


def zeros(n_classes, d, matrix, pooled=False):
    size = d * (d + 1) // 2 if matrix else d
    vectors = np.zeros(n_classes), np.zeros(n_classes)
    means = np.zeros((n_classes, d)), np.zeros((n_classes, d))
    return *vectors, *means, np.zeros((1 if pooled else n_classes, size))


def sums_of(name, X, codes, weights=None, n_classes=None, *, base=0, pooled=False):
    kernel, matrix = KERNELS[name]
    n_classes = n_classes or int(codes.max()) + 1 - base
    state = zeros(n_classes, X.shape[1], matrix, pooled)
    weights = np.empty(0) if weights is None else weights
    kernel(X, np.argsort(codes, kind="stable"), codes, weights, base, *state)
    return state


def expected(name, X, codes, weights=None, n_classes=None, *, base=0, pooled=False):
    """Counts, means and scatters in long double."""
    matrix, K = KERNELS[name][1], n_classes or int(codes.max()) + 1 - base
    w = np.ones(len(X), np.longdouble) if weights is None else weights.astype(np.longdouble)
    means, scatters = np.zeros((K, X.shape[1]), np.longdouble), []
    for k in range(K):
        own = codes == k + base
        Z, v = X[own].astype(np.longdouble), w[own][:, None]
        start = Z[:1] if len(Z) else 0
        gap = (v * (Z - start)).sum(axis=0) / max(v.sum(), 1e-300)
        means[k] = gap + (Z[0] if len(Z) else 0)
        T = (Z - start) - gap
        scatters.append((v * T).T @ T if matrix else (v * T * T).sum(axis=0))
    S = pack_triangles(np.array(scatters)) if matrix else np.array(scatters)
    return means, S.sum(axis=0, keepdims=True) if pooled else S


@EVERY_KERNEL
@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_rows_of_classes(name, pooled, weighted, dtype):
    """Of any number: none of some class, one, and more than a block; in batches, too."""
    rng = np.random.default_rng(0)
    for n, d in ((1, 1), (9, 3), (700, 5), (3000, 70)):
        X, codes = rng.normal(size=(n, d)).astype(dtype) + 3, 2 + rng.integers(0, 3, n)
        codes[:1] = 5
        weights = rng.uniform(0.1, 3, n) if weighted else None
        given = codes, weights, 4
        state = sums_of(name, X, *given, base=2, pooled=pooled)
        means, S = expected(name, X, *given, base=2, pooled=pooled)
        number = np.bincount(codes - 2, weights, 4)
        np.testing.assert_allclose(state[0], number, rtol=1e-14)
        own = np.bincount(codes - 2, None if weights is None else weights**2, 4)
        np.testing.assert_allclose(state[1], own, rtol=1e-14)
        seen = number > 0
        np.testing.assert_allclose((state[2] + state[3])[seen], means[seen].astype(float))
        single = dtype == "float32" and name == "wide"
        close = {"rtol": 0, "atol": 1e-6 * float(np.abs(S).max()) if single else 1e-11}
        np.testing.assert_allclose(state[4], S.astype(float), **close)
        half = n // 2
        again = zeros(4, d, KERNELS[name][1], pooled)
        for some in (slice(half), slice(half, n)):
            if len(codes[some]):
                part = sums_of(
                    name, X[some], codes[some], weights if weights is None else weights[some], 4,
                    base=2, pooled=pooled,
                )  # fmt: skip
                blocks.merge(np.arange(4), 1.0, *part, *again)
        np.testing.assert_allclose(again[4], state[4], **close)


@pytest.mark.parametrize("scale", [1e-25, 1e-12, 1e25, 1e37])
def test_wide_rows_of_float32_that_their_squares_leave(scale):
    """They are multiplied in float64, block by block."""
    X = (np.random.default_rng(0).normal(size=(50, 70)) * scale).astype(np.float32)
    codes = np.zeros(50, np.int64)
    state, S = sums_of("wide", X, codes), expected("wide", X, codes)[1]
    np.testing.assert_allclose(state[4] / scale**2, (S / scale**2).astype(float), atol=1e-4)


def exact(n, mean, square):
    """Moments of one class of one feature."""
    values = [float(n)], [float(n)], [[mean]], [[0.0]], [[square]]
    return tuple(np.array(each) for each in values)


def test_merging_follows_chan_and_is_undone():
    """In rationals: means of 1/2 and of 2, whatever is heavier; and at 1e15 from zero."""
    for n, m in ((1, 3), (3, 1), (2, 2)):
        for shift in (0.0, 1e15):
            a, b = exact(n, shift + 0.5, 4.0), exact(m, shift + 2.0, 0.25)
            blocks.merge(np.array([0]), 1.0, *b, *a)
            gap = Fraction(3, 2)
            square = Fraction(17, 4) + gap * gap * n * m / (n + m)
            assert a[0][0] == n + m
            assert a[4][0, 0] == pytest.approx(float(square), rel=1e-15)
            mean = (Fraction(n, 2) + 2 * m) / (n + m)
            assert (a[2][0, 0] - shift) + a[3][0, 0] == pytest.approx(float(mean), rel=1e-15)
            blocks.merge(np.array([0]), -1.0, *b, *a)
            assert a[0][0] == n
            assert a[4][0, 0] == pytest.approx(4.0, rel=1e-14)
            assert (a[2][0, 0] - shift) + a[3][0, 0] == pytest.approx(0.5, rel=1e-14)
            blocks.merge(np.array([0]), -1.0, *exact(n, shift + 0.5, 4.0), *a)
            assert not any(array.any() for array in a[:4])
