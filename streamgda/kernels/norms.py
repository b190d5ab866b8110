"""Third and fourth powers of the norms of rows about their class means."""

import numpy as np

from streamgda.kernels import fast_kernel


@fast_kernel
def add_norms(X, codes, weights, mean, mean_low, inverse, norms):
    """Add ``w |t|^2 t`` and then ``w |t|^4`` to the class's row of `norms`, of d + 1 entries.

    t is the row minus its class mean, which is ``mean + mean_low``, times `inverse`.
    """
    d = X.shape[1]
    centred = np.empty(d)
    for r in range(X.shape[0]):
        k = np.uint64(codes[r])
        square = 0.0
        for j in range(d):
            t = (X[r, j] - mean[k, j] - mean_low[k, j]) * inverse[k, j]
            centred[j] = t
            square += t * t
        weighted = square * weights[r] if weights.shape[0] > 0 else square
        for j in range(d):
            norms[k, j] += weighted * centred[j]
        norms[k, d] += weighted * square
