"""Numba kernels: arrays in, arrays out (``out`` last), serial, ``nogil``, no validation.

Conventions shared by all of them: ``X`` is C-contiguous, shape (n_rows, n_features); ``codes``
holds each row's class number; matrices of scatter are filled in their lower triangle only.
"""

import numba

# Sums may be reordered and multiply-adds fused; NaN and infinity keep their meaning.
FASTMATH = {"reassoc", "contract"}

kernel = numba.njit(nogil=True, cache=True)
fast_kernel = numba.njit(nogil=True, cache=True, fastmath=FASTMATH)
inline_kernel = numba.njit(nogil=True, cache=True, inline="always")
