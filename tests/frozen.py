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
