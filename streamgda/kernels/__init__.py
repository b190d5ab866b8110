"""Numba kernels: arrays in, arrays out (``out`` last), serial, ``nogil``, no validation.

They share these conventions. ``X`` is C-contiguous, shape (n_rows, n_features). ``codes`` holds
the class number of each row. ``weights`` is empty if every row has weight one. A scatter matrix is
its lower triangle, row by row: row i starts at ``i (i + 1) / 2`` (`row_start`).

With ``NUMBA_DISABLE_JIT=1`` they run as Python. What only LLVM or BLAS can run has a plain form for
that, see `intrinsic_of`.
"""

from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from numba import config
from numba.core.compiler_lock import global_compiler_lock
from numba.extending import intrinsic

from streamgda.kernels.caching import cached, compile_or_load
from streamgda.kernels.processors import SHAPE
from streamgda.runtime.interruption import uninterrupted

# Sums may be reordered and multiply-adds fused; NaN and infinity keep their meaning.
FASTMATH = {"reassoc", "contract"}

_SOURCES = sha256(b"".join(f.read_bytes() for f in sorted(Path(__file__).parent.glob("*.py"))))
_STAMP = f"{SHAPE.name}_{_SOURCES.hexdigest()[:12]}"
if config.BOUNDSCHECK:  # other code, which Numba would not keep apart
    _STAMP += "_checked"


def _compiled(function: Callable[..., Any], **options: Any) -> Any:
    if config.DISABLE_JIT:
        return function
    # Numba looks up a cached function by its name and its own file, so it would miss a change to
    # a kernel that the function calls. A hash of all sources in the name prevents that.
    function.__qualname__ += f"_{_STAMP}"
    settings = {
        "nogil": True,
        "cache": True,
        "no_cfunc_wrapper": True,
        "error_model": "numpy",  # a check for zero at every division would prevent vectorisation
        **options,
    }
    compiled = cached(function, settings)
    compiled.compile = partial(_compile, compiled, compiled.compile)
    return compiled


def _compile(compiled: Any, compile_: Callable[..., Any], signature: Any) -> Any:
    """Compile a kernel; interrupted half-way, Numba would keep locks, and lose declarations."""
    if global_compiler_lock.is_locked():  # by this thread: the kernel is part of another function
        return compile_or_load(compiled, compile_, signature)
    return uninterrupted(compile_or_load, compiled, compile_, signature)


kernel = _compiled
fast_kernel = partial(_compiled, fastmath=FASTMATH)
# For arithmetic whose order matters: multiply-adds may be fused, and nothing else changed.
contracting_kernel = partial(_compiled, fastmath={"contract"})
# Compiled as part of its caller, which takes less time than compiling it separately.
inline_kernel = partial(_compiled, inline="always", cache=False)
# Compiled once for all its callers, which are kernels too, with nothing for calls from Python.
inner_kernel = partial(_compiled, no_cpython_wrapper=True, cache=False)
# Compiled as part of its callers, for functions that Python calls too.
shared_kernel = partial(_compiled, inline="always")


def intrinsic_of(plain: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """Decorate an intrinsic, whose place a plain function takes where Numba is disabled."""
    return lambda function: plain if config.DISABLE_JIT else intrinsic(function)
