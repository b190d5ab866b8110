"""Numba kernels: arrays in, arrays out (``out`` last), serial, ``nogil``, no validation.

They share these conventions. ``X`` is C-contiguous, shape (n_rows, n_features). ``codes`` holds
the class number of each row. ``weights`` is empty if every row has weight one. A scatter matrix is
its lower triangle, row by row: row i starts at ``i (i + 1) / 2`` (`row_start`).
"""

from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numba
from numba import config, types
from numba.core.compiler_lock import global_compiler_lock

from streamgda.kernels.vectors import SHAPE
from streamgda.runtime.interruption import deferred_interrupts

_SOURCES = sha256(b"".join(f.read_bytes() for f in sorted(Path(__file__).parent.glob("*.py"))))
_STAMP = f"{SHAPE.name}_{_SOURCES.hexdigest()[:12]}"
if config.BOUNDSCHECK:  # Numba does not keep checked code apart.
    _STAMP += "_checked"


def _compiled(function: Callable[..., Any], *, cache: bool = True, **options: Any) -> Any:
    # Numba looks up a cached function by its name and its own file, so it would miss a change to
    # a kernel that the function calls. A hash of all sources in the name prevents that.
    function.__qualname__ += f"_{_STAMP}"
    settings = {
        "nogil": True,
        "no_cfunc_wrapper": True,
        "error_model": "numpy",  # Checks for zero would prevent vectorisation.
        **options,
    }
    try:
        compiled = numba.njit(cache=cache, **settings)(function)
    except RuntimeError:  # NUMBA_CACHE_DIR names a folder that can be written.
        compiled = numba.njit(cache=False, **settings)(function)
    compiled.compile = partial(_compile, compiled, compiled.compile, set())
    return compiled


def _compile(kernel: Any, compile_: Callable[..., Any], known: set[Any], signature: Any) -> Any:
    """Compile a kernel; read-only arrays, which it only reads, need no code of their own."""
    writable = tuple(map(_writable, signature))
    # Interrupted half-way, Numba would keep locks, and lose declarations.
    with deferred_interrupts(), global_compiler_lock:
        entry_point = compile_(writable)
        if signature != writable and signature not in known:  # Calls find the code at once.
            known.add(signature)
            types_of = kernel.overloads[writable].signature.replace(args=signature)
            alias = {"signature": types_of, "entry_point": entry_point, "objectmode": False}
            kernel.add_overload(SimpleNamespace(**alias))
            del kernel.overloads[signature]  # Callers need more of an overload.
    return entry_point


def _writable(kind: Any) -> Any:
    """Return the type without marks of read-only arrays."""
    if isinstance(kind, types.Array):
        return kind.copy(readonly=False)
    if isinstance(kind, types.BaseTuple):
        return types.BaseTuple.from_types(tuple(map(_writable, kind)))
    return kind


kernel = _compiled
# Sums may be reordered and multiply-adds fused; NaN and infinity keep their meaning.
fast_kernel = partial(_compiled, fastmath={"reassoc", "contract"})
# For arithmetic whose order matters: multiply-adds may be fused, and nothing else changed.
contracting_kernel = partial(_compiled, fastmath={"contract"})
# Compiled as part of its caller, which takes less time than compiling it separately.
inline_kernel = partial(_compiled, inline="always", cache=False)
