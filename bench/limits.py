"""Measured limits of the machine, and lower bounds of the time for a task."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import numba
import numpy as np

from streamgda.kernels.processors import SHAPE
from streamgda.runtime import threads

INTEGER = "integer"


@dataclass(frozen=True)
class Work:
    """Memory traffic and arithmetic that a task needs at least.

    Attributes
    ----------
    n_bytes : float
        Bytes read and written, each once.
    multiply_adds : dict of str to float
        Number of multiply-adds for each of float32, float64 and integer.
    calls : int
        Number of calls from Python into compiled code.
    """

    n_bytes: float = 0.0
    multiply_adds: dict[str, float] = field(default_factory=dict)
    calls: int = 0


@dataclass(frozen=True)
class Limits:
    """Limits of the machine with all allowed threads.

    Attributes
    ----------
    bandwidth : float
        Bytes read from memory per second.
    rates : dict of str to float
        Multiply-adds per second for each of float32, float64 and integer.
    call : float
        Seconds to call an empty compiled function from Python.
    integer : str
        Explanation of the integer rate.
    """

    bandwidth: float
    rates: dict[str, float]
    call: float
    integer: str

    def of(self, work: Work) -> tuple[float, str]:
        """Return the lower bound of the time in seconds, and its cause."""
        bounds = {
            "memory": work.n_bytes / self.bandwidth,
            "arithmetic": sum(n / self.rates[kind] for kind, n in work.multiply_adds.items()),
            "calls": work.calls * self.call,
        }
        name = max(bounds, key=bounds.__getitem__)
        return bounds[name], name


def measured(quick: bool = False) -> Limits:
    """Measure this machine; with `quick`, roughly."""
    memory = np.ones(1 << (20 if quick else 26))  # 512 MiB: more than any cache holds
    size = 512 if quick else 2048
    rates = {}
    for kind in ("float32", "float64"):
        square = np.ones((size, size), kind)
        rates[kind] = size**3 / best(lambda square=square: square @ square)
    factor = SHAPE.together
    rates[INTEGER] = factor * rates["float32"]
    one, calls = np.ones((1, 1)), 1000
    return Limits(
        bandwidth=memory.nbytes / best(lambda: read(memory)),
        rates=rates,
        call=best(lambda: [_nothing(one, one) for _ in range(calls)]) / calls,
        integer=(
            f"{factor} x that of float32: one vector instruction multiplies and adds {factor} "
            f"integers in the space of one float32"
        ),
    )


def best(call: Callable[[], object], repeats: int = 5) -> float:
    """Return the seconds of the fastest call, after one call that is not counted."""
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def read(X: np.ndarray) -> None:
    """Read an array once on all threads, and sum it."""
    words = X.reshape(-1).view(np.uint8)
    words = words[: words.size // 8 * 8].view(np.int64)
    cuts = np.linspace(0, words.size, 4 * threads.n_threads() + 1).astype(int)
    threads.run(_sum, [(words[a:b],) for a, b in pairwise(cuts)])


@numba.njit(nogil=True)
def _sum(words):
    total = 0
    for word in words:
        total += word
    return total


@numba.njit
def _nothing(X, y):
    return 0


# --- the work of each operation ----------------------------------------------------------------


def kind_of(X: np.ndarray) -> str:
    """Return the kind of arithmetic used for rows of this type."""
    return X.dtype.name if X.dtype.kind == "f" else INTEGER


def moments(
    X: np.ndarray, y: np.ndarray, n_classes: int, structure: str = "full", chunks: int = 1
) -> Work:
    """Return the work of moments; the state is written once per chunk."""
    n, d = X.shape
    products = d if structure == "diag" else d * (d + 1) / 2
    state = (1 if structure == "tied" else n_classes) * (d if structure == "diag" else d * d)
    n_bytes = X.nbytes + y.nbytes + 8 * chunks * (state + n_classes * d)
    return Work(n_bytes, {kind_of(X): n * products}, chunks)


def fit(X: np.ndarray, y: np.ndarray, n_classes: int, structure: str) -> Work:
    """Return the work of moments and of a Cholesky factor of each covariance."""
    work = moments(X, y, n_classes, structure)
    factors = {"full": n_classes, "tied": 1, "diag": 0}[structure] * X.shape[1] ** 3 / 6
    adds = dict(work.multiply_adds)
    adds["float64"] = adds.get("float64", 0.0) + factors
    return Work(work.n_bytes, adds, 1)


def score(
    X: np.ndarray, d: int, n_classes: int, structure: str, probabilities: bool = False
) -> Work:
    """Return the work of scores: per row and class, a triangle (full) or vectors (tied, diag)."""
    n = len(X)
    products = {"full": d * (d + 1) / 2, "tied": d, "diag": 2 * d}[structure]
    written = 8 * n * (n_classes if probabilities else 1)
    return Work(X.nbytes + written, {kind_of(X): n * n_classes * products}, 1)
