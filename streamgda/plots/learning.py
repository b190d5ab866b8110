"""Learning curves over a stream."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from streamgda.errors import ConstantFeatureWarning, InvalidDataError, SingularCovarianceError
from streamgda.estimators.moment_classifier import MomentClassifier
from streamgda.plots.figures import axes_of
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
