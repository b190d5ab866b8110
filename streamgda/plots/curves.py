"""Curves: accuracies over a stream, and variances along the principal axes of covariances."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from streamgda.errors import ConstantFeatureWarning, InvalidDataError, SingularCovarianceError
from streamgda.estimators.gaussian import GaussianClassifier
from streamgda.estimators.moment_classifier import MomentClassifier
from streamgda.plots.densities import check_gaussian
from streamgda.plots.figures import add_legend, axes_of, colours_of, means_of
from streamgda.rows import as_batches
from streamgda.runtime.parameters import as_integer, check_type

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_learning_curve(
    estimator: MomentClassifier,
    batches: Iterable[Any],
    X: Any,
    y: Any,
    ax: Axes | None = None,
    *,
    n: int = 20,
    **kwargs: Any,
) -> Axes:
    """Plot the accuracy on held-out rows while an estimator learns from a stream.

    The rows are read once: after some of the batches, a model is computed from the moments so far.

    Parameters
    ----------
    estimator : estimator of this package
        Estimator to update with `partial_fit`; it keeps what it has learned before.
    batches : iterable of (X, y) or (X, y, sample_weight)
        Training rows and labels.
    X, y : array-like
        Held-out rows and their labels.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on, which may have other curves; those of a new figure by default.
    n : int
        Approximate number of points per factor of ten in the number of rows.
    **kwargs
        Passed to `matplotlib.axes.Axes.plot`; `label` is the estimator's name by default.

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the plot.

    Raises
    ------
    InvalidDataError
        If no model can be computed from the batches.
    InvalidParameterError
        If `n` is below one.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from sklearn.datasets import load_iris
    >>> from streamgda import GaussianNB
    >>> from streamgda.plots import plot_learning_curve
    >>> X, y = load_iris(return_X_y=True)
    >>> stream = ((X[i::10], y[i::10]) for i in range(1, 10))
    >>> ax = plot_learning_curve(GaussianNB(), stream, X[::10], y[::10], Figure().subplots())
    >>> ax.lines[0].get_xdata()
    array([ 15.,  30.,  45.,  60.,  75.,  90., 105., 120., 135.])
    """
    check_type("estimator", estimator, MomentClassifier, "an estimator of this package")
    check_type("batches", batches, Iterable, "an iterable of (X, y)")
    n = as_integer("n", n, "at least 1 point", 1)
    with warnings.catch_warnings():
        # With few rows, many features are constant that vary later.
        warnings.simplefilter("ignore", ConstantFeatureWarning)
        rows, accuracy = _curve(estimator, batches, X, y, 10 ** (1 / n))
    ax = axes_of(ax)
    ax.plot(rows, accuracy, **{"marker": ".", "label": type(estimator).__name__} | kwargs)
    ax.set(xscale="log", xlabel="rows seen", ylabel="accuracy on held-out rows")
    ax.legend(loc="lower right")
    ax.grid(alpha=0.3)
    return ax


def _curve(
    estimator: MomentClassifier, batches: Iterable[Any], X: Any, y: Any, step: float
) -> tuple[list[float], list[float]]:
    """Update the estimator, and return numbers of rows and the accuracies after them."""
    rows, accuracy, seen = [0.0], [0.0], 0.0
    reason = "there were no batches"
    for learned, labels, *weight in as_batches(batches):
        estimator.partial_fit(learned, labels, sample_weight=weight[0] if weight else None)
        seen = float(estimator.class_count_.sum())
        if seen >= rows[-1] * step:
            try:
                accuracy.append(estimator.score(X, y))
                rows.append(seen)
            except (SingularCovarianceError, InvalidDataError) as error:  # too few rows so far
                reason = str(error)
    if not rows[1:]:
        raise InvalidDataError(f"no model can be computed from the batches: {reason}")
    if seen > rows[-1]:
        rows.append(seen)
        accuracy.append(estimator.score(X, y))
    return rows[1:], accuracy[1:]


def plot_spectra(
    estimator: GaussianClassifier, ax: Axes | None = None, *, n: int | None = None, **kwargs: Any
) -> Axes:
    """Plot the variances along the principal axes of each covariance.

    Parameters
    ----------
    estimator : GaussianClassifier
        Fitted estimator; its covariances include the regularisation.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; those of a new figure by default.
    n : int, optional
        Number of axes, from the largest variance; all by default.
    **kwargs
        Passed to `matplotlib.axes.Axes.plot`.

    Returns
    -------
    matplotlib.axes.Axes
        The axes, with one line per covariance on a logarithmic scale, without zero variances.

    Raises
    ------
    InvalidParameterError
        If `n` is below one.
    TypeError
        If the estimator has no covariances.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from sklearn.datasets import load_iris
    >>> from streamgda import QuadraticDiscriminantAnalysis
    >>> from streamgda.plots import plot_spectra
    >>> qda = QuadraticDiscriminantAnalysis().fit(*load_iris(return_X_y=True))
    >>> ax = plot_spectra(qda, Figure().subplots())
    >>> ax.lines[0].get_ydata().round(3)  # of the first class
    array([0.232, 0.036, 0.026, 0.009])
    """
    if n is not None:
        n = as_integer("n", n, "at least 1 axis, or None", 1)
    check_gaussian(estimator)
    covariances = estimator._covariances
    values, structure = covariances.values, covariances.structure
    seen, _ = means_of(estimator)
    values = values[seen] if structure.per_class else values
    labels = [str(k) for k in estimator.classes_[seen]] if structure.per_class else ["all"]
    ax = axes_of(ax)
    for covariance, label, colour in zip(values, labels, colours_of(len(labels)), strict=True):
        if structure.matrix:
            variances = np.linalg.eigvalsh(covariance)
        else:
            variances = np.sort(np.broadcast_to(covariance, estimator.n_features_in_))
        variances = variances[::-1][:n]
        # Values below rounding error are shown as gaps.
        shown = np.where(variances > variances[0] * 1e-15, variances, np.nan)
        style = {"marker": "." if shown.size <= 50 else "", "color": colour, "label": label}
        ax.plot(np.arange(1, shown.size + 1), shown, **style | kwargs)
    ax.set(yscale="log", xlabel="principal axis", ylabel="variance")
    add_legend(ax, len(labels))
    return ax
