"""Rows to draw, and parts of pictures."""

import numpy as np
from matplotlib.axes import Axes

NAMES = np.array(["ant", "bee", "cat"])


def blobs(n_features: int = 2, *, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    y = random.integers(0, 3, 300)
    mixing = random.normal(size=(3, n_features, n_features)) + 2 * np.eye(n_features)
    noise = random.normal(size=(300, n_features))
    return 6 * random.normal(size=(3, n_features))[y] + np.einsum("kij,nj->ni", mixing, noise), y


def legend(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]
