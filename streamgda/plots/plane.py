r"""Decision boundaries in a plane, with the Gaussians of the classes.

With two directions as the rows of :math:`D`, a row x is shown at :math:`z = D x`. For two features,
the directions are unit vectors.

Colours mix as the posterior mixes the classes, and lines mark where the predicted class changes.
Both are those of a slice of the space: the plane :math:`x(z) = a + D^+ (z - D a)`, where
:math:`D^+` is the pseudo-inverse and a is a point of the plane.

Points and ellipses are projections, whatever the rows are in the other directions: class k has
mean :math:`D m_k` and covariance :math:`D \Sigma_k D^T`, and its ellipses are
:math:`(z - D m_k)^T (D \Sigma_k D^T)^{-1} (z - D m_k) = r^2` for r standard deviations.

Slice and projection agree where the discriminants depend on z only: for two features in two
dimensions, or for LDA along Fisher's directions of its classes.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from streamgda.errors import InvalidParameterError
from streamgda.estimators.gaussian import GaussianClassifier
from streamgda.plots.figures import add_legend, axes_of, codes_of, colours_of
from streamgda.plots.projection import Directions, ProjectedClasses
from streamgda.runtime.parameters import as_integer, as_numbers, refuse

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DEVIATIONS = "numbers of standard deviations above 0"
_REACH = 3  # standard deviations shown of each class
_MOST_NUMBERS = 1 << 22  # rows x features that are scored at a time


def plot_decision_boundary(
    estimator: GaussianClassifier,
    X: Any = None,
    y: Any = None,
    ax: Axes | None = None,
    *,
    features: Sequence[int | str] | None = None,
    directions: Any = None,
    at: Any = None,
    deviations: Sequence[float] = (1, 2),
    resolution: int = 300,
    **kwargs: Any,
) -> Axes:
    """Plot how an estimator divides a plane: posteriors, boundaries, and Gaussians as ellipses.

    The colours and boundaries are those in the plane through `at`; points and ellipses are
    projections. They agree where the discriminants depend on the projected rows only; for a
    picture of the projected rows alone, fit an estimator to ``moments.project(directions)``.

    Parameters
    ----------
    estimator : GaussianClassifier
        Fitted estimator.
    X : array-like, shape (n_rows, n_features), optional
        Rows to show as points.
    y : array-like, shape (n_rows,), optional
        Labels, for the colours of the points.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; those of a new figure by default.
    features : (int, int) or (str, str), optional
        Numbers or names of the features along the horizontal and the vertical axis; the first two
        by default.
    directions : array-like, shape (2, n_features), optional
        Directions instead, such as ``moments.pca(2)`` or Fisher's.
    at : array-like, shape (n_features,), optional
        Point of the plane; the mean of all training rows by default.
    deviations : sequence of float
        Sizes of the ellipses in standard deviations.
    resolution : int
        Number of points along each axis at which posteriors are evaluated.
    **kwargs
        Passed to `matplotlib.axes.Axes.scatter` for the points.

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the plot.

    Raises
    ------
    InvalidParameterError
        If features or directions do not span a plane, or `at` has another width.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from streamgda import LinearDiscriminantAnalysis
    >>> from streamgda.plots import plot_decision_boundary
    >>> lda = LinearDiscriminantAnalysis().fit([[0.0, 0], [0, 1], [3, 0], [4, 1]], [0, 0, 1, 1])
    >>> len(plot_decision_boundary(lda, ax=Figure().subplots()).patches)  # ellipses
    4
    """
    plane = Directions.of(estimator, features, directions, (0, 1))
    resolution = as_integer("resolution", resolution, "an integer from 2 to 10000", 2, 10_000)
    radii = as_numbers("deviations", deviations, _DEVIATIONS)
    if radii.ndim != 1 or not (np.isfinite(radii) & (radii > 0)).all():
        raise refuse("deviations", deviations, _DEVIATIONS)
    origin = _point(at, estimator)
    points = None if X is None else plane.project(X)
    classes = ProjectedClasses.of(estimator, plane)
    codes = None if points is None or y is None else codes_of(y, points, classes.labels)
    ax = axes_of(ax)
    pixels = _pixels(classes, points, resolution)
    _draw_posterior(ax, estimator, plane, origin, classes, pixels)
    _draw_classes(ax, classes, radii)
    if points is not None:
        _draw_points(ax, points, codes, classes.labels.size, kwargs)
    add_legend(ax, classes.labels.size)
    ax.set(xlabel=plane.names[0], ylabel=plane.names[1])
    return ax


def _point(at: Any, estimator: GaussianClassifier) -> np.ndarray:
    if at is None:
        seen = estimator.class_count_ > 0
        weights = estimator.class_count_[seen]
        return np.average(estimator.moments_.means[seen], axis=0, weights=weights)
    expected = f"{estimator.n_features_in_} finite numbers"
    point = as_numbers("at", at, expected)
    if point.shape != (estimator.n_features_in_,) or not np.isfinite(point).all():
        raise InvalidParameterError(f"at has shape {point.shape}, expected {expected}")
    return point


def _pixels(
    classes: ProjectedClasses, points: np.ndarray | None, resolution: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return horizontal and vertical positions that cover all points and classes."""
    reach = _REACH * np.sqrt(classes.covariances.diagonal(axis1=1, axis2=2))
    low, high = (classes.means - reach).min(axis=0), (classes.means + reach).max(axis=0)
    if points is not None and points.size:
        margin = 0.03 * (high - low)
        low = np.minimum(low, points.min(axis=0) - margin)
        high = np.maximum(high, points.max(axis=0) + margin)
    flat = high == low  # nothing varies along this axis
    across, up = np.linspace(low - flat, high + flat, resolution).T
    return across, up


def _draw_posterior(
    ax: Axes,
    estimator: GaussianClassifier,
    plane: Directions,
    origin: np.ndarray,
    classes: ProjectedClasses,
    pixels: tuple[np.ndarray, np.ndarray],
) -> None:
    """Shade the plane by the posterior, and draw the boundaries."""
    across, up = pixels
    positions = np.stack(np.meshgrid(across, up), axis=-1).reshape(-1, 2)
    step = max(1, _MOST_NUMBERS // estimator.n_features_in_)
    parts = (plane.lift(positions[i : i + step], origin) for i in range(0, len(positions), step))
    log_posterior = np.concatenate(
        [_log_posterior(estimator, rows)[:, classes.seen] for rows in parts]
    ).reshape(up.size, across.size, -1)
    pale = 1 - 0.5 * (1 - colours_of(classes.labels.size))
    half = [(line[1] - line[0]) / 2 for line in pixels]  # posteriors are those of pixel centres
    ax.imshow(
        np.clip(np.exp(log_posterior) @ pale, 0, 1),
        extent=(
            across[0] - half[0],
            across[-1] + half[0],
            up[0] - half[1],
            up[-1] + half[1],
        ),
        origin="lower",
        aspect="auto",
        interpolation="bilinear",
    )
    _draw_boundaries(ax, across, up, log_posterior)
    ax.set(xlim=across[[0, -1]], ylim=up[[0, -1]])


def _log_posterior(estimator: GaussianClassifier, rows: np.ndarray) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        return estimator.predict_log_proba(rows)


def _draw_boundaries(
    ax: Axes, across: np.ndarray, up: np.ndarray, log_posterior: np.ndarray
) -> None:
    """Draw a contour around the region of each class, unless an earlier class has drawn it."""
    for k in range(log_posterior.shape[-1] - 1):
        others = np.delete(log_posterior, k, axis=-1)
        # Bounded, because the log-posterior of a class with prior zero is minus infinity.
        lead = np.clip(log_posterior[..., k], -1e6, 0) - np.clip(others.max(axis=-1), -1e6, 0)
        if lead.min() < 0 < lead.max():
            lead = np.ma.masked_where(others.argmax(axis=-1) < k, lead)
            ax.contour(across, up, lead, levels=[0], colors="black", linewidths=1.2)


def _draw_classes(ax: Axes, classes: ProjectedClasses, deviations: np.ndarray) -> None:
    """Draw the ellipses and the mean of each class."""
    from matplotlib.patches import Ellipse  # noqa: PLC0415

    for label, mean, covariance, colour in zip(
        classes.labels,
        classes.means,
        classes.covariances,
        colours_of(classes.labels.size),
        strict=True,
    ):
        variances, axes = np.linalg.eigh(covariance)
        angle = math.degrees(math.atan2(axes[1, 1], axes[0, 1]))
        minor, major = 2 * np.sqrt(np.maximum(variances, 0))
        style: dict[str, Any] = {"fill": False, "edgecolor": 0.6 * colour, "linewidth": 1.5}
        for deviation in deviations:
            ax.add_patch(Ellipse(mean, deviation * major, deviation * minor, angle=angle, **style))
        ax.plot(*mean, "X", color=colour, markeredgecolor="black", markersize=9, label=str(label))


def _draw_points(
    ax: Axes,
    points: np.ndarray,
    codes: np.ndarray | None,
    n_classes: int,
    style: dict[str, Any],
) -> None:
    style = {"s": 14, "linewidths": 0.4, "edgecolors": "black", "alpha": 0.8} | style
    if codes is None:
        style = {"color": "grey"} | style
    else:
        # Unknown labels are white. One call draws all points, so that no class covers the others.
        style = {"c": np.vstack([colours_of(n_classes), [1, 1, 1]])[codes]} | style
    ax.scatter(points[:, 0], points[:, 1], **style)
