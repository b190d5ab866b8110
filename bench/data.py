"""The data that is timed on: MNIST, or a stand-in of its shape and kind; and synthetic rows."""

from __future__ import annotations

import os
from functools import cache

import numpy as np

from streamgda.datasets import load_mnist

STAND_IN = "a synthetic stand-in of MNIST's shape (set STREAMGDA_MNIST to use the real files)"


@cache
def mnist() -> tuple[str, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Name, training images and labels, test images and labels; images uint8, (n, 784)."""
    folder = os.environ.get("STREAMGDA_MNIST")
    if folder:
        return "MNIST", *load_mnist(folder)
    random = np.random.default_rng(0)
    y = random.integers(0, 10, 70_000).astype(np.uint8)
    strokes = random.random((10, 784)) < 0.2
    X = (strokes[y] * random.integers(0, 256, (y.size, 784))).astype(np.uint8)
    return STAND_IN, X[:60_000], y[:60_000], X[60_000:], y[60_000:]


@cache
def rows(n_rows: int, n_features: int, n_classes: int, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Gaussian rows in classes a few standard deviations apart."""
    random = np.random.default_rng(0)
    y = random.integers(0, n_classes, n_rows)
    X = random.standard_normal((n_rows, n_features), dtype=np.float32)
    X += random.standard_normal((n_classes, n_features), dtype=np.float32)[y] * 2
    return X.astype(dtype), y
