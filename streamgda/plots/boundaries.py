"""Lines between the regions of classes on a grid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from streamgda.plots.figures import paper_and_ink

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LEAST = -1e6  # bounds log-posteriors, because that of a class with prior zero is minus infinity


def draw_boundaries(
    ax: Axes, across: np.ndarray, up: np.ndarray, log_posterior: np.ndarray
) -> None:
    """Draw a contour around the region of each class, unless an earlier class has drawn it.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    across, up : ndarray
        Positions of the grid.
    log_posterior : ndarray, shape (up.size, across.size, n_classes)
    """
    n = log_posterior.shape[-1]
    if n < 2:
        return
    _, ink = paper_and_ink(ax)
    best = log_posterior.argmax(axis=-1)
    for k in np.unique(best):
        won = np.nonzero(best == k)  # the contour is next to these pixels
        rows, columns = _around(won[0], up.size), _around(won[1], across.size)
        own = log_posterior[rows, columns]
        others = np.delete(own, k, axis=-1)
        lead = np.clip(own[..., k], _LEAST, 0) - np.clip(others.max(axis=-1), _LEAST, 0)
        lead = np.ma.masked_where(others.argmax(axis=-1) < k, lead)
        if lead.count() and lead.min() < 0 < lead.max():
            style: dict[str, Any] = {
                "levels": [0],
                "colors": [tuple(ink)],
                "linewidths": 1.2 if n <= 10 else 0.8,
            }
            ax.contour(across[columns], up[rows], lead, **style)


def _around(numbers: np.ndarray, size: int) -> slice:
    return slice(max(0, numbers.min() - 2), min(size, numbers.max() + 3))
