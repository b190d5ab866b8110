"""Decision boundaries in a plane, with the classes' spread."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from streamgda.errors import InvalidParameterError
from streamgda.estimators.gaussian import GaussianClassifier
from streamgda.plots.figures import add_legend, axes_of, colours_of
from streamgda.plots.projection import Directions
from streamgda.rows.labels import as_labels, find

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_REACH = 3  # standard deviations of each class that are shown
_MOST_NUMBERS = 1 << 22  # of rows that are scored at a time


def plot_decision_boundary(
    estimator: GaussianClassifier,
    X: Any = None,
    y: Any = None,
    ax: Axes | None = None,
    *,
    features: Sequence[int] | None = None,
    directions: Any = None,
    at: Any = None,
    deviations: Sequence[float] = (1, 2),
    resolution: int = 300,
    **kwargs: Any,
) -> Axes:
    r"""Show how an estimator divides a plane: posteriors, boundaries, and the classes' spread.

    With two directions as the rows of :math:`D`, a row x is shown at :math:`z = D x`. Two features
    are the case where the directions are unit vectors.

    Colours are mixed as the posterior mixes the classes, and lines are where the predicted class
    changes, in the plane through `at` that the directions span, :math:`x(z) = a + D^+ (z - D a)`,
    where :math:`D^+` is the pseudo-inverse: a slice of the space.

    Points and ellipses are projections, wherever the rows lie in the other directions: class k has
    mean :math:`D m_k` and covariance :math:`D \Sigma_k D^T`, and its ellipses are
    :math:`(z - D m_k)^T (D \Sigma_k D^T)^{-1} (z - D m_k) = r^2` for r in `deviations`.

    Slice and projection agree where the discriminants depend on z only: of two features of two, or
    for LDA along Fisher's directions of its classes. For a picture of what can be told from the
    projected rows alone, in any case, make the estimator of ``moments.project(directions)``.

    Parameters
    ----------
    estimator : GaussianClassifier
        Fitted.
    X : array-like, shape (n_rows, n_features), optional
        Rows to show as points.
    y : array-like, shape (n_rows,), optional
        Their labels, which colour them.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.
    features : (int, int), optional
        Features along the horizontal and the vertical axis; the first two by default.
    directions : array-like, shape (2, n_features), optional
        Directions in their place, of any length and angle: ``moments.pca(2)``,
        ``FisherDiscriminant.from_moments(moments, 2).components``, the differences of three means.
    at : array-like, shape (n_features,), optional
        A point of the plane; by default the mean of all rows the estimator has seen.
    deviations : sequence of float
        Of the ellipses.
    resolution : int
        Points along each axis at which posteriors are evaluated.
    **kwargs
        For `matplotlib.axes.Axes.scatter`, which draws the points.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InvalidParameterError
        For features or directions that make no plane, or an `at` of another width.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from sklearn.datasets import load_iris
    >>> from streamgda import FisherDiscriminant, LinearDiscriminantAnalysis
    >>> from streamgda.plots import plot_decision_boundary
    >>> X, y = load_iris(return_X_y=True)
    >>> lda = LinearDiscriminantAnalysis().fit(X, y)
    >>> fisher = FisherDiscriminant.from_moments(lda.moments_, 2)
    >>> axes = Figure().subplots(2)
    >>> ax = plot_decision_boundary(lda, X, y, axes[0], directions=fisher.components)
    >>> len(ax.patches)  # ellipses
    6
    >>> plot_decision_boundary(lda, ax=axes[1], features=(2, 3)).get_xlabel()
    'feature 2'
    """
    plane = Directions.of(estimator, features, directions, (0, 1))
    origin = _point(at, estimator)
    points = None if X is None else plane.project(np.asarray(X))
    moments = estimator.moments_
    seen = moments.class_count > 0
    labels = moments.classes[seen]
    means = plane.project(moments.means[seen])
    covariances = plane.covariances(estimator)[seen]
    ax = axes_of(ax)
    colours = colours_of(labels.size)

    low, high = _limits(means, covariances, points)
    across, up = np.linspace(low, high, resolution).T
    pixels = np.stack(np.meshgrid(across, up), axis=-1).reshape(-1, 2)
    step = max(1, _MOST_NUMBERS // estimator.n_features_in_)
    parts = (plane.lift(pixels[i : i + step], origin) for i in range(0, len(pixels), step))
    log_posterior = np.concatenate([_log_posterior(estimator, rows)[:, seen] for rows in parts])
    log_posterior = log_posterior.reshape(resolution, resolution, -1)

    _shade(ax, np.exp(log_posterior), colours, across, up)
    _draw_boundaries(ax, across, up, log_posterior)
    _draw_ellipses(ax, means, covariances, colours, deviations)
    if points is not None:
        _draw_points(ax, points, y, labels, colours, kwargs)
    for label, mean, colour in zip(labels, means, colours, strict=True):
        ax.plot(*mean, "X", color=colour, markeredgecolor="black", markersize=9, label=str(label))
    add_legend(ax, labels.size)
    ax.set(
        xlim=(low[0], high[0]),
        ylim=(low[1], high[1]),
        xlabel=plane.names[0],
        ylabel=plane.names[1],
    )
    return ax


def _point(at: Any, estimator: GaussianClassifier) -> np.ndarray:
    if at is None:
        seen = estimator.class_count_ > 0
        weights = estimator.class_count_[seen]
        return np.average(estimator.moments_.means[seen], axis=0, weights=weights)
    point = np.asarray(at, np.float64)
    if point.shape != (estimator.n_features_in_,):
        raise InvalidParameterError(
            f"at has shape {point.shape}, expected ({estimator.n_features_in_},)"
        )
    return point


def _limits(
    means: np.ndarray, covariances: np.ndarray, points: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Lower left and upper right corner: all points, and the reach of each class."""
    reach = _REACH * np.sqrt(covariances.diagonal(axis1=1, axis2=2))
    low, high = (means - reach).min(axis=0), (means + reach).max(axis=0)
    if points is not None and points.size:
        margin = 0.03 * (high - low)
        low = np.minimum(low, points.min(axis=0) - margin)
        high = np.maximum(high, points.max(axis=0) + margin)
    flat = high == low  # nothing varies along it
    return low - flat, high + flat


def _log_posterior(estimator: GaussianClassifier, rows: np.ndarray) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        return estimator.predict_log_proba(rows)


def _shade(
    ax: Axes, posterior: np.ndarray, colours: np.ndarray, across: np.ndarray, up: np.ndarray
) -> None:
    pale = 1 - 0.5 * (1 - colours)
    half = [(line[1] - line[0]) / 2 for line in (across, up)]  # posteriors are of pixels' middles
    ax.imshow(
        np.clip(posterior @ pale, 0, 1),
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


def _draw_boundaries(
    ax: Axes, across: np.ndarray, up: np.ndarray, log_posterior: np.ndarray
) -> None:
    """A contour about each class's region, where no earlier class has drawn it."""
    for k in range(log_posterior.shape[-1] - 1):
        others = np.delete(log_posterior, k, axis=-1)
        # Bounded, for a class of prior zero is infinitely far from the others.
        lead = np.clip(log_posterior[..., k], -1e6, 0) - np.clip(others.max(axis=-1), -1e6, 0)
        if lead.min() < 0 < lead.max():
            lead = np.ma.masked_where(others.argmax(axis=-1) < k, lead)
            ax.contour(across, up, lead, levels=[0], colors="black", linewidths=1.2)


def _draw_ellipses(
    ax: Axes,
    means: np.ndarray,
    covariances: np.ndarray,
    colours: np.ndarray,
    deviations: Sequence[float],
) -> None:
    from matplotlib.patches import Ellipse  # noqa: PLC0415

    for mean, covariance, colour in zip(means, covariances, colours, strict=True):
        variances, axes = np.linalg.eigh(covariance)
        angle = math.degrees(math.atan2(axes[1, 1], axes[0, 1]))
        minor, major = 2 * np.sqrt(np.maximum(variances, 0))
        for deviation in deviations:
            ax.add_patch(
                Ellipse(
                    mean,
                    deviation * major,
                    deviation * minor,
                    angle=angle,
                    fill=False,
                    edgecolor=0.6 * colour,
                    linewidth=1.5,
                )
            )


def _draw_points(
    ax: Axes,
    points: np.ndarray,
    y: Any,
    labels: np.ndarray,
    colours: np.ndarray,
    style: dict[str, Any],
) -> None:
    style = {"s": 14, "linewidths": 0.4, "edgecolors": "black", "alpha": 0.8} | style
    if y is None:
        style = {"color": "grey"} | style
    else:
        # White for labels that the estimator does not know. All in one go, so that no class lies
        # on top of all others.
        codes = find(as_labels(np.asarray(y)), labels)
        style = {"c": np.vstack([colours, [1, 1, 1]])[codes]} | style
    ax.scatter(points[:, 0], points[:, 1], **style)
