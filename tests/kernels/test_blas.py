"""Products by BLAS against NumPy's."""

from pathlib import Path

import numba
import numpy as np
import pytest
from processes import output

from streamgda.kernels import blas, kernel

EVERY_TYPE = pytest.mark.parametrize("dtype", ["float32", "float64"])
SHAPES = [(1, 1), (3, 2), (1, 5), (5, 1), (7, 12), (0, 3)]


@kernel
def products(A, B, beta, gram, cross):
    blas.gram(A, beta, gram)
    blas.cross(A, B, beta, cross)


@kernel
def cached_product(A, C):
    """Compiled by a single test: others that run meanwhile would write the same index."""
    blas.gram(A, 0.0, C)


def matrix(rng, n, d, dtype):
    """Part of wider rows of whole numbers, whose products are exact."""
    return rng.integers(-9, 10, (n, d + 3)).astype(dtype)[:, 2 : 2 + d]


@pytest.mark.parametrize("beta", [0.0, 1.0, 0.5])
@EVERY_TYPE
def test_products(dtype, beta):
    """Old values count unless `beta` is zero; nothing else changes, nor an upper triangle."""
    rng = np.random.default_rng(0)
    for n, d in SHAPES:
        A, B = matrix(rng, n, d, dtype), matrix(rng, n, 4, dtype)
        results = [matrix(rng, *shape, dtype) for shape in ((d, d), (d, 4))]
        expected = []
        for C, product in zip(results, (A.T @ A, A.T @ B), strict=True):
            whole = C.base.copy()
            whole[:, 2:-1] = product + beta * C
            expected.append(whole)
        upper = np.triu_indices(d, 1)
        expected[0][:, 2:-1][upper] = results[0][upper]
        if not beta:
            results[0][np.tril_indices(d)] = results[1][...] = np.nan
        products(A, B, beta, *results)
        for C, whole in zip(results, expected, strict=True):
            np.testing.assert_array_equal(C.base, whole)


def test_only_floats_of_one_type():
    floats = np.zeros((2, 2))
    for A in (np.zeros((2, 2), np.float32), np.zeros((2, 2), int), np.zeros(2)):
        with pytest.raises((TypeError, numba.TypingError), match="BLAS"):
            products(A, floats, 0.0, floats, floats)


@pytest.mark.slow
def test_compiled_products_are_cached_for_other_processes(monkeypatch):
    """Where BLAS is at another address."""
    A = np.arange(4.0).reshape(2, 2)
    cached_product(A, A.copy())
    script = (
        "import numpy as np, test_blas as t; A = np.arange(4.0).reshape(2, 2);"
        "C = np.zeros((2, 2)); t.cached_product(A, C);"
        "print(C.tolist(), len(t.cached_product.stats.cache_hits))"
    )
    monkeypatch.syspath_prepend(Path(__file__).parent)
    assert output("-c", script) == "[[4.0, 0.0], [6.0, 10.0]] 1\n"
