"""Products by BLAS against NumPy's."""

from pathlib import Path

import numpy as np
import pytest
from processes import output

from streamgda.kernels import blocks, kernel


@kernel
def cached_product(A, C):
    """Compiled by a single test: others that run meanwhile would write the same index."""
    blocks.gram(A, C)


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
