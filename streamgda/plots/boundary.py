r"""Decision boundaries in a plane, with the Gaussians of the classes.

With two directions as the rows of :math:`D`, a row x is shown at :math:`z = D x`, and class k is
the Gaussian with mean :math:`D m_k` and covariance :math:`D \Sigma_k D^T`. Colours mix as the
posterior of these Gaussians mixes the classes, lines mark where the most probable class changes,
and ellipses are :math:`(z - D m_k)^T (D \Sigma_k D^T)^{-1} (z - D m_k) = r^2` for r standard
deviations, with a share of :math:`1 - \exp(-r^2 / 2)` of the class within.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import special

from streamgda.plots.figures import (
    Projection,
    add_legend,
    axes_of,
    colours_of,
    mixed,
    paper_and_ink,
    points,
    project,
)
from streamgda.runtime.parameters import as_integer, unexpected

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PARTS = ("regions", "boundaries", "classes", "points")
_DEVIATIONS = (1, 2)  # Ellipses have these sizes, in standard deviations.
_REACH = 3  # Standard deviations of each class that are shown.


def plot_decision_boundary(
    estimator: Any,
    X: Any = None,
    y: Any = None,
    ax: Axes | None = None,
    *,
    features: Sequence[int | str] | None = None,
    directions: Any = None,
    parts: Sequence[str] = _PARTS,
    colors: Sequence[Any] | None = None,
    resolution: int = 300,
    **kwargs: Any,
) -> Axes:
    r"""Plot how an estimator divides a plane: posteriors, boundaries, and Gaussians as ellipses.

    The model is projected onto the plane, in which each class is a Gaussian with mean :math:`D m`
    and covariance :math:`D \Sigma D^T`.

    Parameters
    ----------
    estimator : Gaussian classifier
        Fitted estimator.
    X : array-like, shape (n_rows, n_features), optional
        Rows to show as points.
    y : array-like, shape (n_rows,), optional
        Labels, for the colours of the points; ``estimator.predict(X)`` colours them by prediction.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; those of a new figure by default.
    features : (int, int) or (str, str), optional
        Indices or names of two features. If there are more, the directions of best separation are
        shown by default.
    directions : array-like, shape (2, n_features), optional
        Directions instead, such as ``moments.pca(2)``.
    parts : sequence of {"regions", "boundaries", "classes", "points"}
        Parts to draw: the plane shaded by the posterior; the boundaries between regions; means of
        the classes, and ellipses of one and two standard deviations; the rows.
    colors : sequence of colours, optional
        Colour of each class, in sorted order.
    resolution : int
        Points along each axis at which posteriors are evaluated.
    **kwargs
        Passed to `matplotlib.axes.Axes.scatter` for the points.

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the plot.

    Raises
    ------
    InvalidParameterError
        If features or directions do not span a plane in which the classes vary, or a part or colour
        is unknown.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from streamgda import LinearDiscriminantAnalysis, plots
    >>> lda = LinearDiscriminantAnalysis().fit([[0.0, 0], [0, 1], [3, 0], [4, 1]], [0, 0, 1, 1])
    >>> len(plots.plot_decision_boundary(lda, ax=Figure().subplots()).patches)
    4
    """
    if isinstance(parts, str) or not set(parts) <= set(_PARTS):
        raise unexpected("parts", parts, f"a list of some of {', '.join(_PARTS)}")
    resolution = as_integer("resolution", resolution, "an integer from 2 to 10000", 2, 10_000)
    plane = project(estimator, 2, features, directions)
    positions, codes = np.empty((0, 2)), None
    if X is not None and "points" in parts:
        positions, codes = points(estimator, plane, X, y)
    ax = axes_of(ax)
    palette = colours_of(colors, plane.labels.size)
    across, up = _grid(plane, positions, resolution)
    corners = np.stack(np.meshgrid(across, up), axis=-1)
    joint = plane.log_joint(corners.reshape(-1, 2)).reshape(resolution, resolution, -1)
    if "regions" in parts:
        pale = mixed(palette, paper_and_ink(ax)[0], 0.5)
        colours = np.clip(special.softmax(joint, axis=2) @ pale, 0, 1)
        # Posteriors are those of pixel centres.
        half = (across[1] - across[0]) / 2, (up[1] - up[0]) / 2
        box = across[0] - half[0], across[-1] + half[0], up[0] - half[1], up[-1] + half[1]
        ax.imshow(colours, extent=box, origin="lower", aspect=ax.get_aspect())
    if "boundaries" in parts:
        _draw_boundaries(ax, across, up, joint)
    for k, label in enumerate(plane.labels):
        colour = palette[k]
        ax.plot([], [], "o", color=colour, label=str(label))  # The legend shows it.
        if "classes" in parts:
            _draw_class(ax, plane.means[k], plane.covariances[k], colour)
    if len(positions):
        paper, ink = paper_and_ink(ax)
        # One call draws all points, so that no class covers the others.
        shown = "grey" if codes is None else np.vstack([palette, paper])[codes]
        style: Any = {"s": 12, "linewidths": 0.4, "edgecolors": [ink], "alpha": 0.8, "c": shown}
        ax.scatter(positions[:, 0], positions[:, 1], **style | kwargs)
    add_legend(ax, plane.labels.size)
    ax.set(xlabel=plane.names[0], ylabel=plane.names[1])
    ax.set(xlim=across[[0, -1]], ylim=up[[0, -1]])
    return ax


def _grid(
    plane: Projection, positions: np.ndarray, resolution: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return positions along both axes that cover all points and classes."""
    reach = _REACH * np.sqrt(np.einsum("kii->ki", plane.covariances))
    covered = np.vstack([plane.means - reach, plane.means + reach, positions])
    across, up = np.linspace(covered.min(axis=0), covered.max(axis=0), resolution).T
    return across, up


def _draw_boundaries(ax: Axes, across: np.ndarray, up: np.ndarray, joint: np.ndarray) -> None:
    """Draw a line where the lead of each class over all others is zero."""
    for k in range(joint.shape[-1] if joint.shape[-1] > 1 else 0):
        with np.errstate(invalid="ignore"):  # A class of prior zero never leads.
            lead = joint[..., k] - np.delete(joint, k, axis=-1).max(axis=-1)
        if lead.min() < 0 < lead.max():
            ink = tuple(paper_and_ink(ax)[1])
            ax.contour(across, up, lead, levels=[0], colors=[ink], linewidths=0.9)


def _draw_class(ax: Axes, mean: Any, covariance: np.ndarray, colour: Any) -> None:
    """Draw the mean and the ellipses of a class."""
    from matplotlib.patches import Ellipse  # noqa: PLC0415

    ink = paper_and_ink(ax)[1]
    variances, axes = np.linalg.eigh(covariance)
    angle = np.degrees(np.arctan2(axes[1, 1], axes[0, 1]))
    minor, major = 2 * np.sqrt(np.maximum(variances, 0))
    style: dict[str, Any] = {"fill": False, "edgecolor": mixed(colour, ink, 0.4), "linewidth": 1.3}
    for radius in _DEVIATIONS:
        ax.add_patch(Ellipse(mean, radius * major, radius * minor, angle=angle, **style))
    ax.plot(*mean, "X", color=colour, markeredgecolor=ink, markersize=8)
