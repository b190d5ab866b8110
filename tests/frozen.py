"""Arrays for kernels as the package hands them over."""

import numpy as np


def frozen(array):
    """A view that cannot be written to, as the package's rows and weights cannot.

    Numba compiles a kernel again for arrays that can, which takes seconds.
    """
    view = np.ascontiguousarray(array).view()
    view.setflags(write=False)
    return view


NO_WEIGHTS = frozen(np.empty(0))


def no_weights(dtype):
    """No weights for rows of a type: exact sums, which never have any, pass a writable array."""
    return np.empty(0) if np.dtype(dtype).itemsize <= 2 else NO_WEIGHTS
