"""Figures, axes and colours; matplotlib is imported on first use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from streamgda.errors import InvalidParameterError
from streamgda.runtime.parameters import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_INSIDE = 10  # classes that a legend within the axes names
_MOST_IN_LEGEND = 64
_LEGEND_LINES = 16
_BRIGHTNESS = np.array([0.299, 0.587, 0.114])  # of red, green and blue


def means_of(estimator: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return a mask of the classes with rows, and all class means; also of given numbers."""
    held = estimator._held
    means = held.means if hasattr(held, "means") else estimator.moments_.means
    return ~np.isnan(means[:, 0]), means


def axes_of(ax: Axes | None) -> Axes:
    """Return the given axes, or those of a new figure."""
    plt = require("matplotlib.pyplot", "plot", "plots")
    return plt.subplots(layout="constrained")[1] if ax is None else ax


def grid_of(axes: Any, rows: int, columns: int, needed: int, height: float = 1.5) -> np.ndarray:
    """Return `needed` axes as a flat array, of those given or of a new figure; hide the others.

    Raises
    ------
    InvalidParameterError
        If fewer axes are given.
    """
    plt = require("matplotlib.pyplot", "plot", "plots")
    if axes is None:
        size = (1.2 * columns, height * rows)
        _, axes = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    axes = np.asarray(axes, object).ravel()
    if axes.size < needed:
        raise InvalidParameterError(f"{axes.size} axes given, expected {needed}")
    for ax in axes[needed:]:
        ax.set_axis_off()
    return axes[:needed]


def colours_of(n: int) -> np.ndarray:
    """Return distinct colours, RGB, shape (n, 3).

    The first ten are those of Petroff (arXiv:2107.02270), which suit colour-blind readers too.
    """
    import matplotlib as mpl  # noqa: PLC0415

    if n <= 10:
        return np.array(mpl.color_sequences["petroff10"][:n])
    if n <= 20:
        return mpl.colormaps["tab20"](np.arange(n))[:, :3]
    return mpl.colormaps["gist_rainbow"](np.linspace(0, 1, n))[:, :3]


def paper_and_ink(ax: Axes) -> tuple[np.ndarray, np.ndarray]:
    """Return the colour behind the axes, and black or white, whichever differs more from it."""
    from matplotlib.colors import to_rgba  # noqa: PLC0415

    grounds = [ax.get_facecolor(), ax.figure.get_facecolor(), "white"]
    paper = np.zeros(3)
    for *colour, alpha in reversed([to_rgba(ground) for ground in grounds]):
        paper = alpha * np.array(colour) + (1 - alpha) * paper
    return paper, np.full(3, float(paper @ _BRIGHTNESS < 0.5))


def mixed(colour: Any, other: Any, share: float) -> np.ndarray:
    """Return a colour with a share of another one."""
    return (1 - share) * np.asarray(colour) + share * np.asarray(other)


def add_legend(ax: Axes, n: int, notes: Sequence[Any] = ()) -> None:
    """Add a legend of `n` classes, unless there are too many, and of further artists.

    It is beside the axes if there are many classes and the figure makes room for it.
    """
    handles = [] if n > _MOST_IN_LEGEND else ax.get_legend_handles_labels()[0]
    handles += notes
    if not handles:
        return
    style: dict[str, Any] = {"title": "class" if len(handles) > len(notes) else None}
    if len(handles) > MOST_INSIDE + 4:
        style |= {"ncols": -(-len(handles) // _LEGEND_LINES), "fontsize": "small"}
    elif notes:
        style["fontsize"] = "small"
    if len(handles) > MOST_INSIDE + 4 and ax.figure.get_layout_engine() is not None:
        style |= {"loc": "upper left", "bbox_to_anchor": (1.01, 1), "borderaxespad": 0}
    else:
        style["loc"] = "best"
    ax.legend(handles=handles, **style)
