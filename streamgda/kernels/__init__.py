"""Numba kernels: arrays in, arrays out (``out`` last), serial, ``nogil``, no validation.

Conventions shared by all of them: ``X`` is C-contiguous, shape (n_rows, n_features); ``codes``
holds each row's class number; matrices of scatter are filled in their lower triangle only.
"""

from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numba

# Sums may be reordered and multiply-adds fused; NaN and infinity keep their meaning.
FASTMATH = {"reassoc", "contract"}

_SOURCES = sha256(b"".join(f.read_bytes() for f in sorted(Path(__file__).parent.glob("*.py"))))
_STAMP = _SOURCES.hexdigest()[:12]


def _compiled(function: Callable[..., Any], **options: Any) -> Any:
    # Numba finds what it has cached of a function by its name and its own file, and would not see
    # that a kernel which it calls has changed. With all sources in the name it does.
    function.__qualname__ += f"_{_STAMP}"
    settings = {
        "nogil": True,
        "cache": True,
        "no_cfunc_wrapper": True,
        "error_model": "numpy",  # to look out for zero at every division keeps loops from vectors
        **options,
    }
    return numba.njit(**settings)(function)


kernel = _compiled
fast_kernel = partial(_compiled, fastmath=FASTMATH)
# For arithmetic whose order matters: multiply-adds may be fused, no more.
contracting_kernel = partial(_compiled, fastmath={"contract"})
# Compiled as part of its caller, which takes the compiler less time than a kernel of its own.
inline_kernel = partial(_compiled, inline="always", cache=False)
# The same for what Python calls too.
shared_kernel = partial(_compiled, inline="always")
