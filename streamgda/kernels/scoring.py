"""Squared Mahalanobis distances and linear scores of rows, class by class.

Narrow rows are taken in transposed blocks, so that every loop runs along rows; wide rows in
dot-product tiles, as scatter is. Both treat each row alike wherever it stands: blocks are padded
with zeros instead of having a ragged end of their own.
"""

import numpy as np

from streamgda.kernels import fast_kernel, inline_kernel, kernel

BLOCK = 128  # rows of a transposed block
WIDE = 32  # features from which on tiles beat transposed blocks
WIDE_BLOCK = 48  # rows whose centred copy stays in the second cache beside the factor
TILE_ROWS = 4
TILE_COLUMNS = 3
LANES = 16


@inline_kernel
def _transpose(X, features, first, n, P):
    """Write features of rows ``first:first + n`` into the transposed block, zeros after them."""
    for j in range(features.shape[0]):
        f = features[j]
        for r in range(n):
            P[j, r] = X[first + r, f]
        for r in range(n, BLOCK):
            P[j, r] = 0.0


@fast_kernel
def matrix_distances(X, features, centres, roots, out):
    """Write ``|roots[k] (x - centres[k])|^2`` for lower triangular roots: ``out[r, k]``.

    A single root serves all centres.
    """
    d = features.shape[0]
    P = np.empty((d, BLOCK))
    C = np.empty((d, BLOCK))
    z = np.empty(BLOCK)
    q = np.empty(BLOCK)
    for first in range(0, X.shape[0], BLOCK):
        n = min(BLOCK, X.shape[0] - first)
        _transpose(X, features, first, n, P)
        for k in range(centres.shape[0]):
            for j in range(d):
                for r in range(BLOCK):
                    C[j, r] = P[j, r] - centres[k, j]
            W = roots[min(k, roots.shape[0] - 1)]
            q[:] = 0.0
            for i in range(d):
                z[:] = 0.0
                for j in range(i + 1):
                    w = W[i, j]
                    for r in range(BLOCK):
                        z[r] += w * C[j, r]
                for r in range(BLOCK):
                    q[r] += z[r] * z[r]
            for r in range(n):
                out[first + r, k] = q[r]


@fast_kernel
def wide_matrix_distances(X, features, centres, roots, out):
    """Do what `matrix_distances` does; `roots` is padded with zeros to whole tiles and lanes."""
    d = features.shape[0]
    R = np.zeros((WIDE_BLOCK, roots.shape[2]))
    q = np.empty(WIDE_BLOCK)
    for k in range(centres.shape[0]):
        W = roots[min(k, roots.shape[0] - 1)]
        for first in range(0, X.shape[0], WIDE_BLOCK):
            n = min(WIDE_BLOCK, X.shape[0] - first)
            for r in range(n):
                for j in range(d):
                    R[r, j] = X[first + r, features[j]] - centres[k, j]
            R[n:] = 0.0
            q[:] = 0.0
            for i in range(0, W.shape[0], TILE_COLUMNS):
                length = min((i + TILE_COLUMNS + LANES - 1) // LANES * LANES, W.shape[1])
                for r in range(0, n, TILE_ROWS):
                    s00 = s01 = s02 = 0.0
                    s10 = s11 = s12 = 0.0
                    s20 = s21 = s22 = 0.0
                    s30 = s31 = s32 = 0.0
                    for j in range(length):
                        a0 = R[r, j]
                        a1 = R[r + 1, j]
                        a2 = R[r + 2, j]
                        a3 = R[r + 3, j]
                        b0 = W[i, j]
                        b1 = W[i + 1, j]
                        b2 = W[i + 2, j]
                        s00 += a0 * b0
                        s01 += a0 * b1
                        s02 += a0 * b2
                        s10 += a1 * b0
                        s11 += a1 * b1
                        s12 += a1 * b2
                        s20 += a2 * b0
                        s21 += a2 * b1
                        s22 += a2 * b2
                        s30 += a3 * b0
                        s31 += a3 * b1
                        s32 += a3 * b2
                    q[r] += s00 * s00 + s01 * s01 + s02 * s02
                    q[r + 1] += s10 * s10 + s11 * s11 + s12 * s12
                    q[r + 2] += s20 * s20 + s21 * s21 + s22 * s22
                    q[r + 3] += s30 * s30 + s31 * s31 + s32 * s32
            for r in range(n):
                out[first + r, k] = q[r]


@fast_kernel
def diagonal_distances(X, features, centres, precisions, out):
    """Write ``sum_j precisions[k, j] (x_j - centres[k, j])^2``: ``out[r, k]``.

    A single row of precisions serves all centres.
    """
    d = features.shape[0]
    P = np.empty((d, BLOCK))
    q = np.empty(BLOCK)
    for first in range(0, X.shape[0], BLOCK):
        n = min(BLOCK, X.shape[0] - first)
        _transpose(X, features, first, n, P)
        for k in range(centres.shape[0]):
            g = min(k, precisions.shape[0] - 1)
            q[:] = 0.0
            for j in range(d):
                c = centres[k, j]
                p = precisions[g, j]
                for r in range(BLOCK):
                    t = P[j, r] - c
                    q[r] += p * (t * t)
            for r in range(n):
                out[first + r, k] = q[r]


@fast_kernel
def linear_scores(X, features, centre, coefficients, intercepts, out):
    """Write ``coefficients[k] . (x - centre) + intercepts[k]``: ``out[r, k]``."""
    d = features.shape[0]
    P = np.empty((d, BLOCK))
    q = np.empty(BLOCK)
    for first in range(0, X.shape[0], BLOCK):
        n = min(BLOCK, X.shape[0] - first)
        _transpose(X, features, first, n, P)
        for j in range(d):
            for r in range(BLOCK):
                P[j, r] -= centre[j]
        for k in range(coefficients.shape[0]):
            q[:] = intercepts[k]
            for j in range(d):
                w = coefficients[k, j]
                for r in range(BLOCK):
                    q[r] += w * P[j, r]
            for r in range(n):
                out[first + r, k] = q[r]


@fast_kernel
def all_finite(X):
    """Whether all values of a floating-point array are finite."""
    check = 0.0
    for r in range(X.shape[0]):
        for j in range(X.shape[1]):
            check += X[r, j] * 0.0
    return check == 0.0


@kernel
def distances_to_scores(constants, scores):
    """Turn distances into ``constants[k] - distance / 2``, in place."""
    for r in range(scores.shape[0]):
        for k in range(scores.shape[1]):
            scores[r, k] = constants[k] - 0.5 * scores[r, k]


@kernel
def largest(scores, out):
    """Write the column of each row's largest score, the first of equal ones."""
    for r in range(scores.shape[0]):
        best = 0
        for k in range(1, scores.shape[1]):
            if scores[r, k] > scores[r, best]:
                best = k
        out[r] = best


@kernel
def log_sum_exp(scores, out):
    """Write ``log sum_k exp(scores[r, k])``, shifted by the largest."""
    for r in range(scores.shape[0]):
        top = scores[r].max()
        if top == -np.inf:
            out[r] = top
            continue
        total = 0.0
        for k in range(scores.shape[1]):
            total += np.exp(scores[r, k] - top)
        out[r] = top + np.log(total)


@kernel
def log_posterior(scores, out):
    """Write ``scores[r, k] - log sum exp scores[r]``; equal shares where all are minus infinity."""
    n_classes = scores.shape[1]
    for r in range(scores.shape[0]):
        top = scores[r].max()
        if top == -np.inf:
            out[r] = -np.log(n_classes)
            continue
        total = 0.0
        for k in range(n_classes):
            total += np.exp(scores[r, k] - top)
        for k in range(n_classes):
            out[r, k] = (scores[r, k] - top) - np.log(total)


@kernel
def posterior(scores, out):
    """Write the exponentials of `log_posterior`."""
    n_classes = scores.shape[1]
    for r in range(scores.shape[0]):
        top = scores[r].max()
        if top == -np.inf:
            out[r] = 1.0 / n_classes
            continue
        total = 0.0
        for k in range(n_classes):
            out[r, k] = np.exp(scores[r, k] - top)
            total += out[r, k]
        for k in range(n_classes):
            out[r, k] /= total
