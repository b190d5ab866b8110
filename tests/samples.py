"""Rows that several test files use."""

import numpy as np


def blobs(
    n_rows: int = 300, n_features: int = 4, n_classes: int = 3, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Correlated Gaussian classes of different size, place and shape; labels 0, 1, ..."""
    rng = np.random.default_rng(seed)
    share = np.arange(1, n_classes + 1) / np.arange(1, n_classes + 1).sum()
    y = rng.choice(n_classes, n_rows, p=share)
    y[:n_classes] = np.arange(n_classes)
    X = np.empty((n_rows, n_features))
    for k in range(n_classes):
        mix = rng.normal(size=(n_features, n_features)) / np.sqrt(n_features) + np.eye(n_features)
        rows = y == k
        X[rows] = 2 * rng.normal(size=n_features) + rng.normal(size=(rows.sum(), n_features)) @ mix
    return X, y


def bytes_of(X: np.ndarray) -> np.ndarray:
    """The rows as uint8, spread over most of its range."""
    low, high = X.min(), X.max()
    return np.round(250 * (X - low) / (high - low)).astype(np.uint8)
