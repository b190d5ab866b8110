"""Probabilities of classes from their scores, class by class, in plain loops."""

import numpy as np

from streamgda.kernels import fast_kernel, kernel

_LEAST = -745.0  # exp of anything less is zero


@fast_kernel
def _exponentials(scores, tops, out, sums):
    """Write ``exp(scores[k] - tops)`` and its sums over the classes."""
    sums[:] = 0.0
    for k in range(len(scores)):
        for r in range(sums.size):
            t = scores[k, r] - tops[r]
            value = np.exp(t) if t >= _LEAST else 0.0
            out[k, r] = value
            sums[r] += value


@kernel
def posteriors(scores, scale, logarithmic, out):
    """Write ``exp(scale * scores[k, r])``, normalised over the classes, to ``out[r, k]``.

    With `logarithmic`, its logarithm. All classes are equally probable where all scores are -inf.
    """
    n_classes, n_rows = scores.shape
    step = max(1, min(n_rows, 8192 // max(1, n_classes)))
    scaled, shares = np.empty((n_classes, step)), np.empty((n_classes, step))
    tops, sums = np.empty(step), np.empty(step)
    for first in range(0, n_rows, step):
        n = min(step, n_rows - first)
        tops[:n] = -np.inf
        for k in range(n_classes):
            for r in range(n):
                value = scale * scores[k, first + r]
                scaled[k, r] = value
                tops[r] = max(tops[r], value)
        for r in range(n):
            if tops[r] == -np.inf:
                scaled[:, r] = 0.0
                tops[r] = 0.0
        _exponentials(scaled[:, :n], tops[:n], shares[:, :n], sums[:n])
        if logarithmic:
            for r in range(n):
                total = tops[r] + np.log(sums[r])
                for k in range(n_classes):
                    out[first + r, k] = scaled[k, r] - total
        else:
            for r in range(n):
                for k in range(n_classes):
                    out[first + r, k] = shares[k, r] / sums[r]


@kernel
def log_sums(scores, out):
    """Write the logarithm of the sum of ``exp(scores[k, r])`` over the classes to ``out[r]``."""
    for r in range(out.size):
        top = -np.inf
        for k in range(len(scores)):
            top = max(top, scores[k, r])
        total = 0.0
        if top > -np.inf:
            for k in range(len(scores)):
                total += np.exp(scores[k, r] - top)
        out[r] = top + np.log(total) if top > -np.inf else -np.inf
