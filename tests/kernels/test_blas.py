"""Products by BLAS against NumPy's."""

from pathlib import Path

import numpy as np
import pytest
from processes import output

from streamgda.kernels import blas, kernel


@kernel
def cached_product(A, C):
    """Compiled by a single test: others that run meanwhile would write the same index."""
    blas.gram(A, C)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(1, 1), (3, 2), (1, 5), (5, 1), (7, 12)])
def test_products(shape, dtype):
    """Old values do not count, and the upper triangle stays as it was."""
    A = np.random.default_rng(0).integers(-9, 10, shape).astype(dtype)  # with exact products
    C = np.full((shape[1], shape[1]), np.nan, dtype)
    blas.gram(A, C)
    lower = np.tril_indices(shape[1])
    np.testing.assert_array_equal(C[lower], (A.T @ A)[lower])
    assert np.isnan(C[np.triu_indices(shape[1], 1)]).all()


@pytest.mark.soak
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
