"""Gaussians of the classes along directions, and their densities along one.

Two Gaussians have two thresholds if their variances differ, and one if they do not; it is closer
to the mean of the less frequent class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.utils import resample
from sklearn.utils.validation import check_is_fitted

from streamgda import engine
from streamgda.errors import InvalidParameterError
from streamgda.estimators.gaussian import GaussianClassifier
from streamgda.estimators.row_estimator import validate_rows
from streamgda.models.discriminants import thresholds_between
from streamgda.models.gaussian import GaussianModel
from streamgda.plots.figures import add_legend, axes_of, colours_of, means_of, mixed, paper_and_ink
from streamgda.rows import Rows, as_source
from streamgda.rows.invalid_rows import as_matrix
from streamgda.rows.labels import as_labels, find
from streamgda.rows.names import feature_numbers
from streamgda.rows.sources import check_lengths
from streamgda.runtime.parameters import as_integer, as_numbers, check_type, refuse

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_REACH = 3.5  # standard deviations shown of each class
_RESOLUTION = 500
_MOST_ROWS = 100_000  # in histograms
_MOST_LISTED = 4  # thresholds in the legend
_SINGULAR = 1e-8  # of the largest variance: such directions do not vary
_WEAK = 1e-8  # of the largest ratio of variances: such directions do not separate classes
_TIE = 1e-10  # weight of the variance within classes, among directions that do not separate them


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


# --- projections ----------------------------------------------------------------------------------


class Points(NamedTuple):
    """Projected rows: all of `n_rows`, or a stratified sample.

    `codes` are the numbers of their labels among the classes, -1 for others; None without labels.
    """

    positions: np.ndarray
    codes: np.ndarray | None
    n_rows: int


@dataclass(frozen=True)
class Projection:
    """Gaussians of the classes that have rows, projected on directions.

    Attributes
    ----------
    estimator : GaussianClassifier
    vectors : ndarray, shape (n, n_features)
        Linearly independent directions; rows are projected by inner products.
    names : tuple of str
        Labels of the axes.
    labels : ndarray, shape (n_classes,)
        Labels of the classes.
    priors : ndarray, shape (n_classes,)
        Prior probabilities.
    means : ndarray, shape (n_classes, n)
        Projected class means.
    covariances : ndarray, shape (n_classes, n, n)
        Projected covariances.
    """

    estimator: GaussianClassifier
    vectors: np.ndarray
    names: tuple[str, ...]
    labels: np.ndarray
    priors: np.ndarray
    means: np.ndarray
    covariances: np.ndarray

    @classmethod
    def of(
        cls,
        estimator: GaussianClassifier,
        n: int,
        features: Sequence[int | str] | None,
        vectors: Any,
    ) -> Projection:
        """Return the projection on `n` features or vectors.

        Raises
        ------
        InvalidParameterError
            If both are given, there are not `n` of them, a feature does not exist, or vectors have
            another width or are linearly dependent.
        """
        check_gaussian(estimator)
        seen, means = means_of(estimator)
        D, names = _directions(estimator, n, features, vectors)
        values = estimator._covariances.values
        if values.ndim < 3:  # variances, one per feature or one for all
            values = np.broadcast_to(values.T, (D.shape[1], values.shape[0])).T
            projected = (D * values[:, None, :]) @ D.T
        else:
            projected = D @ values @ D.T
        return cls(
            estimator,
            D,
            names,
            estimator.classes_[seen],
            estimator.model_.priors[seen],
            means[seen] @ D.T,
            np.broadcast_to(projected, (seen.size, n, n))[seen],
        )

    def log_posterior(self, points: np.ndarray) -> np.ndarray:
        r"""Return the log-posterior of the projected model, shape (n_points, n_classes).

        Class k has the density :math:`N(z; D m_k, D \Sigma_k D^T)`. Directions along which no
        class varies are left out.
        """
        weights = self.priors / self.priors.sum()
        axes = _whitening(np.tensordot(weights, self.covariances, axes=1))
        centre = weights @ self.means  # products of large offsets would lose digits
        means, covariances = (self.means - centre) @ axes, axes.T @ self.covariances @ axes
        model = GaussianModel.from_parameters(means, covariances, weights, self.labels)
        return model.log_posterior((points - centre) @ axes)

    def points(self, X: Any, y: Any, most: int | None) -> Points:
        """Return projected rows: all, or `most` of them, with as large a share of each class.

        Raises
        ------
        InvalidDataError
            For rows or labels that cannot be used, or another number of labels than of rows.
        """
        if most is not None:
            most = as_integer("max_points", most, "at least 1 point, or None", 1)
        rows = validate_rows(self.estimator, Rows.of(X).X)
        positions = np.asarray(engine.score(self._project, rows, columns=len(self.vectors)))
        if y is None:
            codes = None
        else:
            labels = as_source(y, "y")
            check_lengths(as_source(positions), labels)
            codes = find(as_labels(labels.whole()), self.labels)
        n = len(positions)
        if most is None or n <= most:
            return Points(positions, codes, n)
        options: Any = {"replace": False, "n_samples": most, "random_state": 0, "stratify": codes}
        chosen = np.sort(resample(np.arange(n), **options))
        return Points(positions[chosen], None if codes is None else codes[chosen], n)

    def _project(self, rows: Any, first_row: int) -> np.ndarray:
        return as_matrix(rows, first_row) @ self.vectors.T


def check_gaussian(estimator: Any) -> None:
    """Raise `TypeError` or `NotFittedError` unless this is a fitted estimator with covariances."""
    check_type("estimator", estimator, GaussianClassifier, "a Gaussian estimator of this package")
    check_is_fitted(estimator)
    estimator._refuse_lifted(
        "Gaussians behind a feature map are not drawn; scikit-learn's DecisionBoundaryDisplay "
        "draws what an estimator predicts"
    )


def _directions(
    estimator: GaussianClassifier, n: int, features: Sequence[int | str] | None, vectors: Any
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the directions of features or vectors, and labels for the axes."""
    width, held = estimator.n_features_in_, estimator._held.feature_names
    if features is not None and vectors is not None:
        raise InvalidParameterError("features and directions were given; expected one of them")
    if vectors is not None:
        vectors = as_numbers("directions", vectors, f"{n} of {width} finite numbers", finite=True)
        if vectors.shape != (n, width):
            raise InvalidParameterError(
                f"directions of shape {vectors.shape}; expected {n} of {width} finite numbers"
            )
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not lengths.all() or np.linalg.matrix_rank(vectors / lengths) < n:
            raise InvalidParameterError(
                "directions are zero or linearly dependent; expected independent directions"
            )
        return vectors, ("direction",) if n == 1 else ("direction 1", "direction 2")
    if features is None and width > n > 1 and (plane := discriminant_plane(estimator)) is not None:
        return plane
    expected = f"{n} different indices from 0 to {width - 1}"
    chosen = feature_numbers(range(n) if features is None else features, held, width, "features")
    given = np.atleast_1d(np.asarray(chosen, object))
    numbers = [as_integer("features", f, expected, 0, width - 1) for f in given]
    if len(set(numbers)) != n or len(numbers) != n:
        raise refuse("features", numbers, expected)
    names = tuple(f"feature {f}" if held is None else held[f] for f in numbers)
    return np.eye(width)[numbers], names


def discriminant_plane(
    estimator: GaussianClassifier,
) -> tuple[np.ndarray, tuple[str, ...]] | None:
    r"""Return the two directions that separate the classes best, and their names.

    They are Fisher's: the largest :math:`w^T B w / w^T W w`, with the mean W of the estimator's
    covariances, and uncorrelated within classes. Beside the one direction of two classes is the
    axis of most variance within them, in units of the standard deviations of the features.

    Returns
    -------
    tuple or None
        None if fewer than two directions vary.
    """
    seen, means = means_of(estimator)
    priors = estimator.model_.priors[seen]
    values = estimator._covariances.values
    own = values[seen] if len(values) == seen.size else values
    within = np.average(own, axis=0, weights=priors if len(own) == seen.sum() else None)
    width = estimator.n_features_in_
    if within.ndim < 2:
        within = np.diag(np.broadcast_to(within, width))
    root = _whitening(within)
    if root.shape[1] < 2:
        return None
    means = means[seen]
    white = np.sqrt(priors)[:, None] * ((means - priors @ means) @ root)
    between = white.T @ white
    scale = between.trace() or 1.0
    scales = np.sqrt(within.diagonal())
    scaled = (within @ root) / np.where(scales > 0, scales, np.inf)[:, None]
    spread = scaled.T @ scaled
    _, axes = np.linalg.eigh(between + _TIE * scale / spread.trace() * spread)
    vectors = (root @ axes[:, :-3:-1]).T
    largest = np.abs(vectors * scales).argmax(axis=1)  # it is positive, whatever LAPACK returns
    vectors *= np.sign(vectors[[0, 1], largest])[:, None]
    strengths = np.einsum("ij,jk,ik->i", axes.T[:-3:-1], between, axes.T[:-3:-1])
    names = [
        f"Fisher's direction {i}" if strength > _WEAK * scale else "principal axis within classes"
        for i, strength in enumerate(strengths, start=1)
    ]
    return vectors, tuple(names)


def _whitening(covariance: np.ndarray) -> np.ndarray:
    """Return directions of variance 1, shape (n, rank), scaled so that units make no difference."""
    scales = np.sqrt(covariance.diagonal())
    scales = np.where(scales > 0, scales, np.inf)  # directions may have very different units
    variances, axes = np.linalg.eigh(covariance / np.outer(scales, scales))
    kept = variances > _SINGULAR * variances[-1]
    return axes[:, kept] / np.sqrt(variances[kept]) / scales[:, None]
