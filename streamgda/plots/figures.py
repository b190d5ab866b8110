"""Figures, axes and colours; matplotlib is imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from streamgda.errors import InvalidParameterError
from streamgda.rows import as_source
from streamgda.rows.labels import as_labels, find
from streamgda.rows.sources import check_lengths

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_IN_LEGEND = 20


def axes_of(ax: Axes | None) -> Axes:
    """Return the given axes, or those of a new figure."""
    plt = _pyplot()
    return plt.subplots(layout="constrained")[1] if ax is None else ax


def grid_of(axes: Any, rows: int, columns: int, needed: int, height: float = 1.5) -> np.ndarray:
    """Return `needed` axes as a flat array, of those given or of a new figure; hide the others.

    Raises
    ------
    InvalidParameterError
        If fewer axes are given.
    """
    plt = _pyplot()
    if axes is None:
        size = (1.2 * columns, height * rows)
        _, axes = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    axes = np.asarray(axes, object).ravel()
    if axes.size < needed:
        raise InvalidParameterError(f"{axes.size} axes given, expected {needed}")
    for ax in axes[needed:]:
        ax.set_axis_off()
    return axes[:needed]


def codes_of(y: Any, points: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return the number of each label among the classes, -1 for others; there is one a point.

    Raises
    ------
    InvalidDataError
        For labels that cannot be used, or another number of them.
    """
    labels = as_source(y, "y")
    check_lengths(as_source(points), labels)
    return find(as_labels(labels.whole()), classes)


def colours_of(n: int) -> np.ndarray:
    """Return distinct colours, RGB, shape (n, 3).

    The first ten are those of Petroff (arXiv:2107.02270), which suit colour-blind readers too.
    """
    import matplotlib as mpl  # noqa: PLC0415

    if n <= 10:
        return np.array(mpl.color_sequences["petroff10"][:n])
    if n <= 20:
        return mpl.colormaps["tab20"](np.arange(n))[:, :3]
    return mpl.colormaps["hsv"](np.arange(n) / n)[:, :3]


def add_legend(ax: Axes, n: int) -> None:
    """Add a legend of `n` classes, unless there are too many."""
    if n <= _MOST_IN_LEGEND:
        ax.legend(title="class", loc="best")


def _pyplot() -> Any:
    try:
        import matplotlib.pyplot as plt  # noqa: PLC0415
    except ImportError as error:
        raise ImportError(
            "plots need matplotlib, which is not installed: pip install streamgda[plot]"
        ) from error
    return plt
