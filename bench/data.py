"""Benchmark data: MNIST or a stand-in of its shape, and Gaussian rows."""

from __future__ import annotations

import os
from functools import cache, lru_cache

import numpy as np

from streamgda.datasets import load_mnist


@cache
def mnist() -> tuple[str, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return name, training images, labels, test images, labels; images are uint8, (n, 784)."""
    folder = os.environ.get("STREAMGDA_MNIST")
    if folder:
        return "MNIST", *load_mnist(folder)
    random = np.random.default_rng(0)
    y = random.integers(0, 10, 70_000).astype(np.uint8)
    strokes = random.normal(size=(10, 784)).astype(np.float32)
    X = random.normal(size=(y.size, 784), scale=2).astype(np.float32) + 3 * strokes[y] - 2
    X = np.clip(40 * X, 0, 255).astype(np.uint8)  # Most values are zero, as pixels of digits are.
    return "stand-in for MNIST", X[:60_000], y[:60_000], X[60_000:], y[60_000:]


@lru_cache(maxsize=2)
def rows(n: int, d: int, n_classes: int, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Return Gaussian rows in classes a few standard deviations apart, and their labels."""
    random = np.random.default_rng(0)
    y = random.integers(0, n_classes, n)
    means = 2 * random.standard_normal((n_classes, d), dtype=np.float32)
    X = random.standard_normal((n, d), dtype=np.float32)
    X += means[y]
    return X.astype(dtype, copy=False), y
