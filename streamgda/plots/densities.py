"""The classes' densities along one direction, and where the class changes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from streamgda.errors import InvalidParameterError
from streamgda.estimators.gaussian import GaussianClassifier
from streamgda.plots.figures import add_legend, axes_of, colours_of
from streamgda.plots.projection import Directions
from streamgda.rows.labels import as_labels, find

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_REACH = 3.5  # standard deviations of each class that are shown
_RESOLUTION = 500


def plot_densities(
    estimator: GaussianClassifier,
    X: Any = None,
    y: Any = None,
    ax: Axes | None = None,
    *,
    feature: int | None = None,
    direction: Any = None,
    bins: int = 40,
    **kwargs: Any,
) -> Axes:
    r"""Show the classes' densities along a direction, and the thresholds between them.

    Along w, class k has the density :math:`\pi_k N(z; w^T m_k, w^T \Sigma_k w)` at :math:`z =
    w^T x`. Dashed lines are where another of these is the largest: two Gaussians have two such
    thresholds where their variances differ, one where they do not, and it moves away from the
    class that is more frequent.

    Parameters
    ----------
    estimator : GaussianClassifier
        Fitted.
    X : array-like, shape (n_rows, n_features), optional
        Rows of which histograms are shown.
    y : array-like, shape (n_rows,), optional
        Their labels; needed with `X`.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.
    feature : int, optional
        The direction is that of a feature; of the first by default.
    direction : array-like, shape (n_features,), optional
        Any direction in its place, as ``FisherDiscriminant.from_moments(moments).components[0]``.
    bins : int
        Of the histograms.
    **kwargs
        For `matplotlib.axes.Axes.plot`, which draws the densities.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InvalidParameterError
        For a feature or direction that is not there, rows without labels, or a class that does not
        vary along the direction.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from sklearn.datasets import load_iris
    >>> from streamgda import GaussianNB
    >>> from streamgda.plots import plot_densities
    >>> X, y = load_iris(return_X_y=True)
    >>> ax = plot_densities(GaussianNB().fit(X, y), X, y, Figure().subplots(), feature=2)
    >>> thresholds = [line.get_xdata()[0] for line in ax.lines if line.get_linestyle() == "--"]
    >>> [round(float(z), 2) for z in thresholds]
    [2.25, 4.89]
    """
    if X is not None and y is None:
        raise InvalidParameterError("X without y; histograms are of the rows of each class")
    features: Sequence[int] | None = None if feature is None else (feature,)
    line = Directions.of(
        estimator, features, None if direction is None else np.atleast_2d(direction), (0,)
    )
    moments = estimator.moments_
    seen = moments.class_count > 0
    labels, priors = moments.classes[seen], estimator.model_.priors[seen]
    means = line.project(moments.means[seen])[:, 0]
    variances = line.covariances(estimator)[seen, 0, 0]
    if not (variances > 0).all():
        raise InvalidParameterError("a class does not vary along the direction")
    ax = axes_of(ax)
    colours = colours_of(labels.size)

    reach = _REACH * np.sqrt(variances)
    low, high = (means - reach).min(), (means + reach).max()
    if X is not None:
        _draw_histograms(ax, line.project(np.asarray(X))[:, 0], y, labels, colours, bins)
    z = np.linspace(low, high, _RESOLUTION)
    for label, prior, mean, variance, colour in zip(
        labels, priors, means, variances, colours, strict=True
    ):
        density = prior * np.exp(-0.5 * (z - mean) ** 2 / variance) / np.sqrt(2 * np.pi * variance)
        ax.plot(z, density, **{"color": 0.8 * colour, "label": str(label)} | kwargs)
    for threshold in _thresholds(priors, means, variances):
        if low <= threshold <= high:
            ax.axvline(threshold, color="black", linestyle="--", linewidth=1)
    add_legend(ax, labels.size)
    ax.set(xlim=(low, high), xlabel=line.names[0], ylabel="density x prior")
    ax.set_ylim(bottom=0)
    return ax


def _thresholds(priors: np.ndarray, means: np.ndarray, variances: np.ndarray) -> list[float]:
    """Where the largest density changes, sorted: roots of differences of two quadratics."""
    origin, scale = means.mean(), np.sqrt(variances.max())
    m, v = (means - origin) / scale, variances / scale**2
    with np.errstate(divide="ignore"):  # of a prior of zero
        constant = np.log(priors) - 0.5 * (m**2 / v + np.log(v))
    quadratics = np.stack([-0.5 / v, m / v, constant], axis=1)[priors > 0]
    found = []
    for a, b in combinations(range(len(quadratics)), 2):
        roots = np.roots(quadratics[a] - quadratics[b])
        for root in roots[np.isreal(roots)].real:
            values = [np.polyval(quadratic, root) for quadratic in quadratics]
            if max(values) <= max(values[a], values[b]):
                found.append(float(origin + scale * root))
    return sorted(found)


def _draw_histograms(
    ax: Axes, values: np.ndarray, y: Any, labels: np.ndarray, colours: np.ndarray, bins: int
) -> None:
    """Of each class, on common bins: areas are the classes' shares of the rows."""
    codes = find(as_labels(np.asarray(y)), labels)
    edges = np.histogram_bin_edges(values, bins).tolist()
    weight = 1 / (values.size * (edges[1] - edges[0]))
    for code, colour in enumerate(colours):
        own = values[codes == code]
        ax.hist(own, edges, weights=np.full(own.size, weight), color=colour, alpha=0.35)
