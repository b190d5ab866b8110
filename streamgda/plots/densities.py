"""Densities of the classes along a direction, and the thresholds between them.

Two Gaussians have two thresholds if their variances differ, and one if they do not; it is closer to
the mean of the class with the smaller prior.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import brentq

from streamgda.errors import InvalidParameterError
from streamgda.plots.figures import (
    add_legend,
    axes_of,
    colours_of,
    mixed,
    paper_and_ink,
    points,
    project,
)
from streamgda.runtime.parameters import as_integer

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_REACH = 4  # Standard deviations of each class that are shown.
_RESOLUTION = 1000


def plot_densities(
    estimator: Any,
    X: Any = None,
    y: Any = None,
    ax: Axes | None = None,
    *,
    feature: int | str | None = None,
    direction: Any = None,
    colors: Any = None,
    bins: int = 50,
    **kwargs: Any,
) -> Axes:
    r"""Plot the class densities along a direction, and the thresholds between them.

    Class k is drawn as :math:`\pi_k N(w^T x; w^T m_k, w^T \Sigma_k w)`. Where the largest of these
    changes is a threshold, drawn as a dashed line.

    Parameters
    ----------
    estimator : Gaussian classifier
        Fitted estimator.
    X : array-like, shape (n_rows, n_features), optional
        Rows to show as histograms, one for each class, with areas equal to their shares.
    y : array-like, shape (n_rows,), optional
        Their labels, required with `X`.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; those of a new figure by default.
    feature : int or str, optional
        Index or name of a feature; the first one by default.
    direction : array-like, shape (n_features,), optional
        Direction w instead, such as a row of LDA's ``coef_``.
    colors : sequence of colours, optional
        Colour of each class, in sorted order.
    bins : int
        Number of bins of the histograms.
    **kwargs
        Passed to `matplotlib.axes.Axes.plot` for the densities.

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the plot.

    Raises
    ------
    InvalidParameterError
        For an unknown feature or direction, one along which a class does not vary, and `X` without
        `y`.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from streamgda import GaussianNB
    >>> from streamgda.plots import plot_densities
    >>> X, y = [[0.0], [2], [3], [5], [4], [6]], [0, 0, 0, 1, 1, 1]
    >>> ax = plot_densities(GaussianNB().fit(X, y), ax=Figure().subplots())
    >>> lines = [line for line in ax.lines if line.get_linestyle() == "--"]
    >>> [round(float(line.get_xdata()[0]), 2) for line in lines]
    [3.55]
    """
    if X is not None and y is None:
        raise InvalidParameterError("X without y; histograms are of the rows of a class")
    bins = as_integer("bins", bins, "at least 1 bin", 1)
    line = project(estimator, 1, feature, None if direction is None else [direction])
    rows = None if X is None else points(estimator, line, X, y)
    ax = axes_of(ax)
    palette = colours_of(colors, line.labels.size)
    if rows is not None:
        values, codes = rows[0][:, 0], rows[1]
        edges = np.histogram_bin_edges(values, bins)
        for k, colour in enumerate(palette):
            heights = np.histogram(values[codes == k], edges)[0] / (values.size * np.diff(edges))
            ax.stairs(heights, edges, fill=True, color=colour, alpha=0.35)
    reach = _REACH * np.sqrt(line.covariances[:, 0])
    z = np.linspace((line.means - reach).min(), (line.means + reach).max(), _RESOLUTION)
    joint = line.log_joint(z[:, None])
    ink = paper_and_ink(ax)[1]
    for label, density, colour in zip(line.labels, np.exp(joint.T), palette, strict=True):
        style: dict[str, Any] = {"color": mixed(colour, ink, 0.2), "label": str(label)}
        ax.plot(z, density, **style | kwargs)
    largest = joint.argmax(axis=1)
    for i in np.flatnonzero(np.diff(largest)):

        def lead(at: float, pair: np.ndarray = largest[i : i + 2]) -> float:
            return float(np.subtract(*line.log_joint([[at]])[0, pair]))

        if lead(z[i]) > 0 > lead(z[i + 1]):  # Classes that coincide lead by rounding.
            ax.axvline(brentq(lead, z[i], z[i + 1]), color=ink, linestyle="--", linewidth=1)
    add_legend(ax, line.labels.size)
    ax.set(xlabel=line.names[0], ylabel="density x prior", xlim=z[[0, -1]])
    ax.set_ylim(bottom=0)
    return ax
