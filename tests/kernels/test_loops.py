"""Loops written as LLVM, against the same functions as Python."""

import numpy as np
import pytest
from numba import config, types

from streamgda.kernels import kernel
from streamgda.kernels.loops import loops

pytestmark = pytest.mark.skipif(bool(config.DISABLE_JIT), reason="they are Python")
LIMIT = 2.5


def halves(n):
    return n >> 1, n % 2 == 1


@loops(types.float64)
def mixed(X, codes, bounded, out):
    """Use each kind of statement and of value; arguments change, and arrays have parts."""
    n, d = X.shape
    total, seen, any_large = 0.0, 0, False
    for r in range(n - 1, 0):  # of no row
        total += r
    for r in range(0, n, 2):
        row, k = X[r], codes[r]
        for j in range(d):
            value = row[j] if k > 0 and row[j] > -1 else k - row[j]
            any_large |= abs(value) > LIMIT
            out[k, j] += min(value, LIMIT) if bounded else np.sqrt(abs(value))
        seen += k != 0
        total += seen / n + (k // 2) * 3
    while n > 1:
        n, odd = halves(n)
        if odd or n == 4:
            total -= max(n, 1.5, total)
    if not any_large:
        return total
    return total + np.int64(2.75) + seen * any_large


@kernel
def added(X, codes, bounded, out):
    return mixed(X, codes, bounded, out)


@pytest.mark.parametrize("dtype", ["f8", "f4", "u1", "i2"])
@pytest.mark.parametrize("n", [1, 2, 9, 33])
@pytest.mark.parametrize("bounded", [False, True])
def test_equal_to_python(dtype, n, bounded):
    random = np.random.default_rng(n)
    X = random.integers(0, 5, (n, 3)).astype(dtype)
    if X.dtype.kind != "u":
        X = X - X.dtype.type(2)
    codes = random.integers(0, 4, n)
    out, expected = np.zeros((4, 3)), np.zeros((4, 3))
    value = added(X, codes, bounded, out)
    assert value == mixed.py_func(X.astype("f8"), codes, bounded, expected)
    np.testing.assert_array_equal(out, expected)


def test_numbers_do_not_lose_digits_unseen():
    """A variable keeps the kind of its first value; a whole number does not become another."""

    @loops(types.float64)
    def lossy(x):
        total = 0
        total += x[0]
        return total

    @kernel
    def lossy_kernel(x):
        return lossy(x)

    with pytest.raises(Exception, match="would become"):
        lossy_kernel(np.ones(1))
