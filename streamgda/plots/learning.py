"""Learning curve over a stream."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from streamgda.errors import (
    ConstantFeatureWarning,
    InvalidDataError,
    InvalidParameterError,
    SingularCovarianceError,
)
from streamgda.estimators.base import MomentClassifier
from streamgda.plots.figures import axes_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_learning_curve(
    estimator: MomentClassifier,
    batches: Iterable[tuple[Any, Any]],
    X: Any,
    y: Any,
    ax: Axes | None = None,
    *,
    n: int = 20,
    **kwargs: Any,
) -> Axes:
    """Show how the accuracy on held-out rows grows while an estimator learns from a stream.

    The rows are read once: after some of the batches the model is made of the moments so far.

    Parameters
    ----------
    estimator : estimator of this package
        It learns on with `partial_fit`, from where it is.
    batches : iterable of (X, y)
    X, y
        Held-out rows and their labels.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default. Further curves go on the same axes.
    n : int
        About so many points for each tenfold number of rows.
    **kwargs
        For `matplotlib.axes.Axes.plot`; `label` is the estimator's name by default.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InvalidDataError
        Where no model could be made of the batches.
    InvalidParameterError
        Where `n` is below one.

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
    if n < 1:
        raise InvalidParameterError(f"n={n}; expected at least 1")
    rows, accuracy, due = [], [], 0.0
    reason = "there were no batches"
    for batch in batches:
        estimator.partial_fit(*batch)
        seen = float(estimator.class_count_.sum())
        if seen < due:
            continue
        try:
            accuracy.append(_score(estimator, X, y))
        except (SingularCovarianceError, InvalidDataError) as error:  # too few rows so far
            reason = str(error)
            continue
        rows.append(seen)
        due = seen * 10 ** (1 / n)
    if not rows:
        raise InvalidDataError(f"no model could be made of the batches: {reason}")
    if seen > rows[-1]:
        rows.append(seen)
        accuracy.append(_score(estimator, X, y))
    ax = axes_of(ax)
    ax.plot(rows, accuracy, **{"marker": ".", "label": type(estimator).__name__} | kwargs)
    ax.set(xscale="log", xlabel="rows seen", ylabel="accuracy on held-out rows")
    ax.legend(loc="lower right")
    ax.grid(alpha=0.3)
    return ax


def _score(estimator: MomentClassifier, X: Any, y: Any) -> float:
    with warnings.catch_warnings():
        # In few rows many a feature is constant that will not remain so.
        warnings.simplefilter("ignore", ConstantFeatureWarning)
        return estimator.score(X, y)
