"""Suite `kernels`: each family of kernels beside a plain form of the same work, on one thread.

A kernel stays if its plain form, by BLAS, NumPy or bare loops in Numba, takes more than twice as
long for some usual shapes. The bare loops sum about zero, with fewer digits than the kernels.
"""

import numba
import numpy as np
from scipy.linalg import blas

from bench.tasks import Task, Tasks
from streamgda.kernels import blocks, buckets, integers, panels, sums
from streamgda.moments.adding import in_class_order
from streamgda.moments.covariance_types import STRUCTURES, symmetric
from streamgda.moments.sums import ExactSums, Sums
from streamgda.runtime import threads

K, NONE, RNG = 10, np.empty(0), np.random.default_rng(0)


@numba.njit(fastmath=True)
def loops(X, codes, total, scatter):
    for r in range(len(X)):
        at, k = 0, codes[r]
        for i in range(X.shape[1]):
            total[k, i] += X[r, i]
            for j in range(i + 1):
                scatter[k, at + j] += total.dtype.type(X[r, i]) * X[r, j]
            at += i + 1


def by_class(X, y):
    for k in range(K):
        Z = X[y == k].astype(float)
        blas.dsyrk(1.0, (Z - Z.mean(axis=0)).T)


def whole(triangles, d):
    lower, matrices = np.tril_indices(d), np.empty((K, d, d))
    matrices[:, lower[0], lower[1]] = matrices[:, lower[1], lower[0]] = triangles


def kernels() -> Tasks:
    """Yield the kernels as ours, their plain forms as peers, and the ratio that keeps a kernel."""
    for title, ours, name, plain in pairs():
        with threads.serial_blas():
            yield Task(title, ours, {name: plain}, {"": 2.0})


def pairs():
    types = ["f8"] * 3 + ["u1"] * 3 + ["u2"]
    for d, dtype in zip((8, 16, 64, 16, 128, 784, 784), types, strict=True):
        n, kind = 4_000_000 // d, Sums if dtype == "f8" else ExactSums
        X, y = RNG.integers(0, 256, (n, d)).astype(dtype), RNG.integers(0, K, n)
        X *= 1 if dtype == "u1" else 200  # Both bytes vary.
        state, title = kind.zeros(STRUCTURES["full"], K, d).state, f"products, {n:,} x {d} {dtype}"
        name, plain = "loops", lambda: loops(X, y, *state[-2:])
        if d > 100:
            given = X.view(np.uint8), in_class_order(y, K)[0], y, 0, X.itemsize, np.uint8(0)
            add, name, plain = integers.add_bytes, "BLAS by class", lambda: by_class(X, y)
        elif kind is ExactSums:
            add, given = buckets.add_narrow_exact, (X, np.arange(n), y, 0)
        else:
            add, given = buckets.add_narrow, (X, np.arange(n), y, NONE, 0)
        yield title, lambda: add(*given, *state), name, plain
    for n, d, dtype in ((200_000, 8, "f8"), (20_000, 64, "f8"), (2_000, 784, "f4")):
        X, roots = RNG.normal(size=(n, d)).astype(dtype), RNG.normal(size=(K, d, d)).astype(dtype)
        y, state = RNG.integers(0, K, n), Sums.zeros(STRUCTURES["diag"], K, d).state
        ours = lambda: blocks.add_variances(X, np.arange(n), y, NONE, 0, *state)
        plain = lambda: [X[y == k].var(axis=0) for k in range(K)]
        yield f"variances, {n:,} x {d} {dtype}", ours, "NumPy by class", plain
        centres, weights, out = RNG.normal(size=(K, d)), np.ones((K, d)), np.empty((K, n))
        given, rest = (X, np.arange(d), np.zeros(d), centres), (1.0, np.zeros(K), out)
        ours = lambda: panels.triangle_scores(*given, roots, *rest)
        each = [(centres[k], roots[k].T) for k in range(K)]
        plain = lambda: [np.square((X - c).astype(dtype) @ R).sum(axis=1) for c, R in each]
        yield f"distances, {n:,} x {d} {dtype}", ours, "BLAS by class", plain
        ours = lambda: panels.diagonal_scores(*given, weights, *rest)
        plain = lambda: [np.square(X - c) @ weights[0] for c in centres]
        yield f"distances by variances, {n:,} x {d} {dtype}", ours, "NumPy by class", plain
    y, table, starts = RNG.integers(0, K, 1_000_000), np.arange(K), np.empty(K + 1, int)
    codes, scores = np.empty(y.size, int), RNG.normal(size=(K, y.size))
    ours = lambda: sums.encode_labels(y, 0, table, codes)
    yield "labels", ours, "NumPy", lambda: (y.min() < 0, y.max() >= K, (table[y] < 0).any())
    ours = lambda: sums.group_rows(y, codes, starts)
    yield "rows by class", ours, "NumPy", lambda: np.argsort(y, kind="stable")
    yield "largest scores", lambda: panels.largest(scores, codes), "NumPy", lambda: scores.argmax(0)
    packed = RNG.normal(size=(K, 40 * 41 // 2))
    yield "matrices of triangles", lambda: symmetric(packed), "NumPy", lambda: whole(packed, 40)
