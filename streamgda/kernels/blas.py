"""The lower triangle of ``A' A`` by BLAS, for kernels: without the GIL, on row-major matrices.

Kernels call the routines of `scipy.linalg.cython_blas` by symbols, which are registered when this
module is imported; addresses in the code would make cached kernels invalid in other processes. BLAS
may use several threads for a call, and other bits with them, unless `runtime.threads` limits it.
"""

import numpy as np
from llvmlite import binding
from numba import types
from numba.extending import get_cython_function_address

from streamgda.kernels import kernel

for _name in ("ssyrk", "dsyrk"):
    _address = get_cython_function_address("scipy.linalg.cython_blas", _name)
    binding.add_symbol(f"streamgda_{_name}", _address)

_SYRK = types.void(*[types.voidptr] * 10)
_ssyrk = types.ExternalFunction("streamgda_ssyrk", _SYRK)
_dsyrk = types.ExternalFunction("streamgda_dsyrk", _SYRK)


@kernel
def gram(A, C):
    """Write the lower triangle of ``A.T @ A``, float32 or float64 as both contiguous matrices."""
    # BLAS stores matrices by columns: it sees their transposes, and an upper triangle.
    flags = np.array([ord("U"), ord("N")], np.uint8)
    sizes, scales = np.array([A.shape[1], A.shape[0]], np.int32), np.array([1, 0], A.dtype)
    options = flags.ctypes, flags[1:].ctypes, sizes.ctypes, sizes[1:].ctypes
    one, zero, width = scales.ctypes, scales[1:].ctypes, sizes.ctypes
    if A.itemsize == 4:
        _ssyrk(*options, one, A.ctypes, width, zero, C.ctypes, width)
    else:
        _dsyrk(*options, one, A.ctypes, width, zero, C.ctypes, width)
