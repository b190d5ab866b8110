"""Benchmark data: MNIST or a stand-in of the same shape, and synthetic rows."""

from __future__ import annotations

import os
from functools import cache, lru_cache

import numpy as np

from streamgda.datasets import load_mnist
from streamgda.runtime import threads

STAND_IN = "stand-in for MNIST"
Images = tuple[str, np.ndarray, np.ndarray, np.ndarray, np.ndarray]

_SIDE, _BLOBS, _MARGIN = 28, 5, 1
_SHARE_OF_INK = 0.19  # fraction of MNIST's pixels that are not zero
_BLOCK = 1 << 16  # rows drawn from one random generator


def mnist(quick: bool = False) -> Images:
    """Return name, training images, labels, test images, labels; images are uint8, (n, 784)."""
    if quick:
        return "few images", *stand_in(1000, 100)
    return _mnist()


@cache
def _mnist() -> Images:
    folder = os.environ.get("STREAMGDA_MNIST")
    if folder:
        return "MNIST", *load_mnist(folder)
    return STAND_IN, *stand_in(60_000, 10_000)


def stand_in(n_train: int, n_test: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Generate smooth strokes that differ by class and image, with an empty margin."""
    random = np.random.default_rng(0)
    n = n_train + n_test
    y = random.integers(0, 10, n).astype(np.uint8)
    middles = random.uniform(8, 20, (2, 10, _BLOBS)).astype(np.float32)[:, y]
    middles += random.normal(0, 1.5, middles.shape).astype(np.float32)
    widths = random.uniform(1.4, 3.2, middles.shape).astype(np.float32)
    ink = random.uniform(0.5, 1.5, (n, _BLOBS)).astype(np.float32)
    at = np.arange(_SIDE, dtype=np.float32)
    rows, columns = np.exp(-0.5 * ((at - middles[..., None]) / widths[..., None]) ** 2)
    pages = (rows * ink[..., None]).transpose(0, 2, 1) @ columns
    pages[:, :_MARGIN] = pages[:, -_MARGIN:] = 0
    pages[:, :, :_MARGIN] = pages[:, :, -_MARGIN:] = 0
    blank = np.quantile(pages[:5000], 1 - _SHARE_OF_INK)
    X = np.clip((pages - blank) * 400, 0, 255).astype(np.uint8).reshape(n, -1)
    return X[:n_train], y[:n_train], X[n_train:], y[n_train:]


@lru_cache(maxsize=3)
def rows(n_rows: int, n_features: int, n_classes: int, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Generate Gaussian rows in classes a few standard deviations apart."""
    random = np.random.default_rng(0)
    y = random.integers(0, n_classes, n_rows)
    means = 2 * random.standard_normal((n_classes, n_features), dtype=np.float32)
    X = np.empty((n_rows, n_features), dtype)

    def draw(start: int) -> None:
        labels = y[start : start + _BLOCK]
        block = np.random.default_rng([0, start]).standard_normal(
            (labels.size, n_features), dtype=np.float32
        )
        X[start : start + _BLOCK] = block + means[labels]

    threads.run(draw, [(start,) for start in range(0, n_rows, _BLOCK)])
    return X, y
