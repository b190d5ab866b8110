"""Class densities along a direction, with the thresholds between them.

Two Gaussians have two thresholds if their variances differ, and one if they do not; it is closer
to the mean of the less frequent class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from streamgda.errors import InvalidParameterError
from streamgda.estimators.gaussian import GaussianClassifier
from streamgda.models.discriminants import thresholds_between
from streamgda.plots.figures import add_legend, axes_of, colours_of, mixed, paper_and_ink
from streamgda.plots.projection import Projection
from streamgda.runtime.parameters import as_integer, as_numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_REACH = 3.5  # standard deviations shown of each class
_RESOLUTION = 500
_MOST_ROWS = 100_000  # in histograms
_MOST_LISTED = 4  # thresholds in the legend


def plot_densities(
    estimator: GaussianClassifier,
    X: Any = None,
    y: Any = None,
    ax: Axes | None = None,
    *,
    feature: int | str | None = None,
    direction: Any = None,
    bins: int = 40,
    **kwargs: Any,
) -> Axes:
    r"""Plot the class densities along a direction, and the thresholds between them.

    Along w, class k has the density :math:`\pi_k N(z; w^T m_k, w^T \Sigma_k w)` at :math:`z =
    w^T x`. Dashed lines mark where the class of the largest density changes; the legend lists
    these thresholds, which `Discriminants.thresholds` returns for a model of one feature.

    Parameters
    ----------
    estimator : GaussianClassifier
        Fitted estimator.
    X : array-like, shape (n_rows, n_features), optional
        Rows to show as histograms; of more than 100,000 rows, a stratified sample.
    y : array-like, shape (n_rows,), optional
        Labels of the rows; required with `X`.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; those of a new figure by default.
    feature : int or str, optional
        Number or name of the feature to show; the first by default.
    direction : array-like, shape (n_features,), optional
        Direction instead, such as ``FisherDiscriminant.from_moments(moments).components[0]``.
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
        If the feature or direction is invalid, rows have no labels, or a class does not vary
        along the direction.

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
    >>> ax.get_legend().get_texts()[-1].get_text()
    'thresholds 2.25, 4.89'
    """
    if X is not None and y is None:
        raise InvalidParameterError("X without y; histograms need the labels of the rows")
    features = None if feature is None else (feature,)
    vectors = None
    if direction is not None:
        vectors = np.atleast_2d(as_numbers("direction", direction, "one number a feature"))
    line = Projection.of(estimator, 1, features, vectors)
    if not (line.covariances > 0).all():
        raise InvalidParameterError("a class does not vary along the direction; choose another")
    bins = as_integer("bins", bins, "an integer from 1 to 100000", 1, 100_000)
    points = None if X is None else line.points(X, y, _MOST_ROWS)
    ax = axes_of(ax)
    colours = colours_of(line.labels.size)
    if points is not None:
        _draw_histograms(ax, points.positions[:, 0], points.codes, colours, bins)
    _draw_densities(ax, line, colours, kwargs)
    add_legend(ax, line.labels.size)
    ax.set(xlabel=line.names[0], ylabel="density x prior")
    ax.set_ylim(bottom=0)
    return ax


def _draw_densities(ax: Axes, line: Projection, colours: np.ndarray, style: dict[str, Any]) -> None:
    """Draw the densities, and lines where the class of the largest density changes."""
    means, variances = line.means[:, 0], line.covariances[:, 0, 0]
    _, ink = paper_and_ink(ax)
    reach = _REACH * np.sqrt(variances)
    z = np.linspace((means - reach).min(), (means + reach).max(), _RESOLUTION)
    densities = line.priors * np.exp(-0.5 * (z[:, None] - means) ** 2 / variances)
    densities /= np.sqrt(2 * np.pi * variances)
    for label, density, colour in zip(line.labels, densities.T, colours, strict=True):
        own: dict[str, Any] = {"color": mixed(colour, ink, 0.2), "label": str(label)}
        ax.plot(z, density, **own | style)
    found = thresholds_between(means, variances, line.priors)
    found = found[(found > z[0]) & (found < z[-1])]
    lines = [ax.axvline(at, color=ink, linestyle="--", linewidth=1) for at in found]
    ax.set_xlim(z[0], z[-1])
    if 1 <= found.size <= _MOST_LISTED:
        name = "threshold" if found.size == 1 else "thresholds"
        lines[0].set_label(f"{name} {', '.join(f'{at:.3g}' for at in found)}")


def _draw_histograms(
    ax: Axes, values: np.ndarray, codes: Any, colours: np.ndarray, bins: int
) -> None:
    """Draw a histogram of each class on common bins, with areas equal to the class frequencies."""
    edges = np.histogram_bin_edges(values, bins).tolist()
    weight = 1 / (values.size * (edges[1] - edges[0]))
    for code, colour in enumerate(colours):
        own = values[codes == code]
        ax.hist(own, edges, weights=np.full(own.size, weight), color=colour, alpha=0.35)
