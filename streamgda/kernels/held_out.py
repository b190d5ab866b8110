"""Scores of rows whose class is known, compared with it."""

import numpy as np

from streamgda.kernels import kernel


@kernel
def compare_with_truth(scores, truth, weights, of_truth):
    """Return the weight of the rows whose true class is the first with the largest score.

    Subtract each row's largest score from `scores`, shape (n_classes, n_rows), and write what is
    left of that of its true class to `of_truth`. If all scores are -inf, zeros are left.
    """
    n_rows = truth.shape[0]
    top, best = scores[0].copy(), np.zeros(n_rows, np.int64)
    for k in range(1, scores.shape[0]):
        row = scores[k]
        for r in range(n_rows):
            best[r] = k if row[r] > top[r] else best[r]
            top[r] = max(top[r], row[r])
    for k in range(scores.shape[0]):
        row = scores[k]
        for r in range(n_rows):
            row[r] = row[r] - top[r] if top[r] > -np.inf else 0.0
    right = 0.0
    for r in range(n_rows):
        of_truth[r] = scores[truth[r], r]
        right += weights[r] if best[r] == truth[r] else 0.0
    return right
