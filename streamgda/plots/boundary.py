r"""Decision boundaries in a plane, with the Gaussians of the classes.

With two directions as the rows of :math:`D`, a row x is shown at :math:`z = D x`, and class k is
the Gaussian with mean :math:`D m_k` and covariance :math:`D \Sigma_k D^T`. Colours mix as the
posterior of these Gaussians mixes the classes, lines mark where the most probable class changes,
and ellipses are :math:`(z - D m_k)^T (D \Sigma_k D^T)^{-1} (z - D m_k) = r^2` for r standard
deviations, with a share of :math:`1 - \exp(-r^2 / 2)` of the class within.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from streamgda.estimators.gaussian import GaussianClassifier
from streamgda.plots.densities import Points, Projection
from streamgda.plots.figures import (
    MOST_INSIDE,
    add_legend,
    axes_of,
    colours_of,
    mixed,
    paper_and_ink,
)
from streamgda.runtime.parameters import as_integer, as_numbers, refuse

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PARTS = ("regions", "boundaries", "pairs", "classes", "points")
_LEVELS = "posteriors between 0 and 1"
_DEVIATIONS = "numbers of standard deviations above 0"
_REACH = 3  # standard deviations shown of each class
_MOST_LABELS = 120  # classes up to which labels are at the means
_FEW_POINTS = 1000
_LEAST = -1e6  # bounds log-posteriors, because that of a class with prior zero is minus infinity


def plot_decision_boundary(
    estimator: GaussianClassifier,
    X: Any = None,
    y: Any = None,
    ax: Axes | None = None,
    *,
    features: Sequence[int | str] | None = None,
    directions: Any = None,
    parts: Sequence[str] = ("regions", "boundaries", "classes", "points"),
    deviations: Sequence[float] = (1, 2),
    levels: Sequence[float] = (),
    principal_axes: bool = False,
    colors: Sequence[Any] | None = None,
    line_color: Any = None,
    resolution: int = 300,
    max_points: int | None = 2000,
    **kwargs: Any,
) -> Axes:
    r"""Plot how an estimator divides a plane: posteriors, boundaries, and Gaussians as ellipses.

    The model is projected onto the plane, in which each class is a Gaussian with mean :math:`D m`
    and covariance :math:`D \Sigma D^T`.

    Parameters
    ----------
    estimator : GaussianClassifier
        Fitted estimator.
    X : array-like, shape (n_rows, n_features), optional
        Rows to show as points.
    y : array-like, shape (n_rows,), optional
        Labels, for the colours of the points; ``estimator.predict(X)`` colours them by prediction.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on, which keep an equal aspect; those of a new figure by default.
    features : (int, int) or (str, str), optional
        Numbers or names of two features. If there are more, the directions of best separation are
        shown by default.
    directions : array-like, shape (2, n_features), optional
        Directions instead, such as ``moments.pca(2)``.
    parts : sequence of {"regions", "boundaries", "pairs", "classes", "points"}
        Parts to draw: the plane shaded by the posterior; the boundaries between regions; the
        dashed line where the classes of each pair are equally probable, also where a third one is
        more probable; means, ellipses and axes of the classes; the rows. ``["points"]`` shows
        nothing but the data.
    deviations : sequence of float
        Sizes of the ellipses in standard deviations.
    levels : sequence of float
        Posteriors, such as 0.1 to 0.9, whose contours are drawn and labelled, for each class.
    principal_axes : bool
        Draw the axes :math:`u_1` and :math:`u_2` of each class, as long as a standard deviation
        along them: eigenvectors of its covariance in the plane.
    colors : sequence of colours, optional
        Colour of each class, in sorted order.
    line_color : colour, optional
        Colour of the boundaries.
    resolution : int
        Points along each axis at which posteriors are evaluated.
    max_points : int or None
        Largest number of points. Of more rows a stratified sample is shown, as the legend says;
        None shows all.
    **kwargs
        Passed to `matplotlib.axes.Axes.scatter` for the points.

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the plot.

    Raises
    ------
    InvalidParameterError
        If features or directions do not span a plane, or a part, level or colour is unknown.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from streamgda import LinearDiscriminantAnalysis, plots
    >>> lda = LinearDiscriminantAnalysis().fit([[0.0, 0], [0, 1], [3, 0], [4, 1]], [0, 0, 1, 1])
    >>> len(plots.plot_decision_boundary(lda, ax=Figure().subplots()).patches)  # ellipses
    4
    """
    projection = Projection.of(estimator, 2, features, directions)
    if isinstance(parts, str) or not set(parts) <= set(_PARTS):
        raise refuse("parts", parts, f"a list of some of {', '.join(_PARTS)}")
    resolution = as_integer("resolution", resolution, "an integer from 2 to 10000", 2, 10_000)
    radii = as_numbers("deviations", deviations, _DEVIATIONS, finite=True)
    if radii.ndim != 1 or not (radii > 0).all():
        raise refuse("deviations", deviations, _DEVIATIONS)
    shown = as_numbers("levels", levels, _LEVELS, finite=True)
    if shown.ndim != 1 or not ((shown > 0) & (shown < 1)).all():
        raise refuse("levels", levels, _LEVELS)
    points = None if X is None else projection.points(X, y, max_points)
    n_classes = projection.labels.size
    pixels = _pixels(ax := axes_of(ax), projection, points, resolution)
    palette = _palette(colors, n_classes)
    positions = np.stack(np.meshgrid(*pixels), axis=-1).reshape(-1, 2)
    posterior = projection.log_posterior(positions).reshape(resolution, resolution, -1)
    ax.set(xlim=pixels[0][[0, -1]], ylim=pixels[1][[0, -1]])
    if "regions" in parts:
        _shade(ax, *pixels, posterior, palette)
    finite = np.maximum(posterior, _LEAST)
    if "pairs" in parts:
        for a, b in combinations(np.flatnonzero(projection.priors > 0), 2):
            gap = finite[..., a] - finite[..., b]
            _draw_line(ax, *pixels, gap, line_color, linewidths=0.8, linestyles="dashed")
    if "boundaries" in parts:
        _draw_boundaries(ax, *pixels, finite, line_color)
    for k in range(n_classes if shown.size else 0):
        lines = ax.contour(
            *pixels,
            np.exp(posterior[..., k]),
            np.unique(shown),
            colors=[palette[k]],
            linewidths=0.8,
        )
        ax.clabel(lines, fontsize="x-small")
    if "classes" in parts:
        _draw_classes(ax, projection, radii, palette, principal_axes)
    else:
        radii = radii[:0]
        for label, colour in zip(projection.labels, palette, strict=True):  # for the legend
            ax.plot([], [], "o", color=colour, label=str(label))
    if "points" not in parts:
        points = None
    if points is not None:
        _draw_points(ax, points, palette, kwargs)
    # Without classes if these are named at their means.
    add_legend(
        ax, n_classes if n_classes <= MOST_INSIDE else sys.maxsize, _notes(ax, radii, points)
    )
    ax.set(xlabel=projection.names[0], ylabel=projection.names[1])
    return ax


def _pixels(
    ax: Axes, classes: Projection, points: Points | None, resolution: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return horizontal and vertical positions that cover all points and classes.

    On axes of equal aspect, they fill the box, so that panels side by side have one height.
    """
    reach = _REACH * np.sqrt(classes.covariances.diagonal(axis1=1, axis2=2))
    low, high = (classes.means - reach).min(axis=0), (classes.means + reach).max(axis=0)
    if points is not None and points.positions.size:
        margin = 0.03 * (high - low)
        low = np.minimum(low, points.positions.min(axis=0) - margin)
        high = np.maximum(high, points.positions.max(axis=0) + margin)
    flat = high == low  # nothing varies along this axis
    low, high = low - flat, high + flat
    aspect: Any = ax.get_aspect()
    if aspect != "auto":
        figure: Any = ax.figure
        width, height = ax.get_position().size * figure.get_size_inches()
        ratio = (ax.get_box_aspect() or height / width) / aspect  # of the spans, if nothing is lost
        span = high - low
        wanted = np.array([max(span[0], span[1] / ratio), max(span[1], span[0] * ratio)])
        low, high = low - (wanted - span) / 2, high + (wanted - span) / 2
    across, up = np.linspace(low, high, resolution).T
    return across, up


def _palette(colors: Sequence[Any] | None, n_classes: int) -> np.ndarray:
    """Return the colours of the classes, RGB, those that were given or ours."""
    from matplotlib.colors import to_rgb  # noqa: PLC0415

    if colors is None:
        return colours_of(n_classes)
    expected = f"a colour of matplotlib for each of the {n_classes} classes"
    try:
        palette = np.array([to_rgb(colour) for colour in colors])
    except (TypeError, ValueError):
        raise refuse("colors", colors, expected) from None
    if len(palette) != n_classes:
        raise refuse("colors", colors, expected)
    return palette


def _shade(
    ax: Axes, across: np.ndarray, up: np.ndarray, log_posterior: np.ndarray, palette: np.ndarray
) -> None:
    """Shade the plane by the posterior."""
    paper, _ = paper_and_ink(ax)
    pale = mixed(palette, paper, 0.5)
    half = [(line[1] - line[0]) / 2 for line in (across, up)]  # posteriors of pixel centres
    ax.imshow(
        np.clip(np.stack([np.exp(line) @ pale for line in log_posterior]), 0, 1),
        extent=(
            across[0] - half[0],
            across[-1] + half[0],
            up[0] - half[1],
            up[-1] + half[1],
        ),
        origin="lower",
        aspect=ax.get_aspect(),
        interpolation="bilinear",
    )
    ax.set(xlim=across[[0, -1]], ylim=up[[0, -1]])


def _draw_boundaries(
    ax: Axes, across: np.ndarray, up: np.ndarray, posterior: np.ndarray, line_color: Any
) -> None:
    """Draw a line where each class leads by nothing, unless an earlier one has drawn it."""
    if posterior.shape[-1] == 1:
        return
    second, first = np.moveaxis(np.argsort(posterior, axis=-1)[..., -2:], -1, 0)
    width = 1.2 if posterior.shape[-1] <= 10 else 0.8
    for k in np.unique(first):
        rival = np.where(first == k, second, first)
        lead = posterior[..., k] - np.take_along_axis(posterior, rival[..., None], -1)[..., 0]
        lead = np.ma.masked_where(rival < k, lead)
        _draw_line(ax, across, up, lead, line_color, linewidths=width)


def _draw_line(
    ax: Axes, across: np.ndarray, up: np.ndarray, lead: Any, line_color: Any, **style: Any
) -> None:
    """Draw a line where values are zero, if they are anywhere."""
    _, ink = paper_and_ink(ax)
    colour = tuple(ink) if line_color is None else line_color
    if np.ma.count(lead) and lead.min() < 0 < lead.max():
        ax.contour(across, up, lead, levels=[0], colors=[colour], **style)


def _draw_classes(
    ax: Axes, classes: Projection, deviations: np.ndarray, palette: np.ndarray, with_axes: bool
) -> None:
    """Draw ellipses, axes if wanted, and means of the classes, and labels if there are many."""
    from matplotlib.patches import Ellipse  # noqa: PLC0415

    n = classes.labels.size
    paper, ink = paper_and_ink(ax)
    for label, mean, covariance, colour in zip(
        classes.labels, classes.means, classes.covariances, palette, strict=True
    ):
        variances, axes = np.linalg.eigh(covariance)
        angle = math.degrees(math.atan2(axes[1, 1], axes[0, 1]))
        minor, major = 2 * np.sqrt(np.maximum(variances, 0))
        edge = mixed(colour, ink, 0.4)
        style: dict[str, Any] = {"fill": False, "edgecolor": edge}
        style["linewidth"] = 1.5 if n <= MOST_INSIDE else 0.8
        for deviation in deviations:
            ax.add_patch(Ellipse(mean, deviation * major, deviation * minor, angle=angle, **style))
        for i in (1, 2) if with_axes else ():
            tip = mean + axes[:, -i] * np.sqrt(max(variances[-i], 0))
            arrow = {"arrowstyle": "<-", "color": ink, "shrinkA": 0, "shrinkB": 0}
            ax.annotate(f"$u_{i}$", mean, tip, color=ink, arrowprops=arrow)
        ax.plot(
            *mean,
            "X",
            color=colour,
            markeredgecolor=ink,
            markersize=9 if n <= MOST_INSIDE else 5,
            label=str(label),
        )
        if MOST_INSIDE < n <= _MOST_LABELS:
            box = {"boxstyle": "round,pad=0.15", "linewidth": 0.6, "edgecolor": edge}
            box["facecolor"] = mixed(colour, paper, 0.7)
            place: dict[str, Any] = {"ha": "center", "va": "center", "color": ink}
            place |= {"size": "x-small", "bbox": box, "clip_on": True}
            ax.text(mean[0], mean[1], str(label), **place)


def _draw_points(ax: Axes, points: Points, palette: np.ndarray, style: dict[str, Any]) -> None:
    paper, ink = paper_and_ink(ax)
    n_classes = len(palette)
    few = len(points.positions) <= _FEW_POINTS and n_classes <= MOST_INSIDE
    defaults: dict[str, Any] = {"s": 14 if few else 7, "linewidths": 0.4 if few else 0.2}
    style = defaults | {"edgecolors": [ink], "alpha": 0.8} | style
    if points.codes is None:
        style = {"color": "grey"} | style
    else:
        # Unknown labels have the colour of the paper. One call draws all points, so that no class
        # covers the others.
        style = {"c": np.vstack([palette, paper])[points.codes]} | style
    ax.scatter(points.positions[:, 0], points.positions[:, 1], **style)


def _notes(ax: Axes, deviations: np.ndarray, points: Points | None) -> list[Any]:
    """Return entries of the legend that say what ellipses, lines and points are."""
    from matplotlib.lines import Line2D  # noqa: PLC0415

    paper, ink = paper_and_ink(ax)
    grey: Any = mixed(ink, paper, 0.4)
    notes: list[Any] = []
    if deviations.size:
        shares = ", ".join(f"{-100 * math.expm1(-(r**2) / 2):.2g}" for r in deviations)
        text = f"{shares} % of a class"
        style: dict[str, Any] = {"markerfacecolor": "none", "markeredgecolor": grey}
        notes.append(Line2D([], [], marker="o", linestyle="", markersize=9, label=text, **style))
    if points is not None and points.n_rows > len(points.positions):
        text = f"{len(points.positions):,} of {points.n_rows:,} rows"
        notes.append(Line2D([], [], marker=".", linestyle="", color=grey, label=text))
    return notes
