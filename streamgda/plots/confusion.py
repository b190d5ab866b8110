"""Confusion matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from streamgda.plots.figures import axes_of
from streamgda.rows import as_source
from streamgda.rows.invalid_rows import as_weights
from streamgda.rows.labels import as_labels, join_labels
from streamgda.rows.sources import check_lengths
from streamgda.runtime.parameters import check_type

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_VALUES = 25  # classes up to which numbers are shown in the cells


@runtime_checkable
class Predictor(Protocol):
    """An object that predicts labels."""

    def predict(self, X: Any) -> Any:
        """Return the predicted class of each row."""


def plot_confusion_matrix(
    estimator: Any,
    X: Any,
    y: Any,
    ax: Axes | None = None,
    *,
    normalize: str | None = None,
    cmap: Any = "Blues",
    **kwargs: Any,
) -> Axes:
    """Plot the confusion matrix of an estimator.

    Parameters
    ----------
    estimator : classifier
        Fitted classifier, of this package or another.
    X : array-like, zarr.Array, dask.array.Array or data frame, shape (n_rows, n_features)
        Rows.
    y : array-like, zarr.Array or dask.array.Array, shape (n_rows,)
        True labels.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; those of a new figure by default.
    normalize : {"true", "pred", "all"}, optional
        Show fractions of the true class, of the predicted class, or of all rows, instead of
        counts.
    cmap : str or matplotlib.colors.Colormap
        Colour map.
    **kwargs
        Passed to `sklearn.metrics.ConfusionMatrixDisplay.from_predictions`.

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the plot.

    Raises
    ------
    TypeError
        For anything but a classifier.
    ValueError
        For rows and labels that do not fit each other, and an unknown `normalize`.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from sklearn.datasets import load_iris
    >>> from streamgda import LinearDiscriminantAnalysis
    >>> from streamgda.plots import plot_confusion_matrix
    >>> X, y = load_iris(return_X_y=True)
    >>> lda = LinearDiscriminantAnalysis().fit(X, y)
    >>> ax = plot_confusion_matrix(lda, X, y, Figure().subplots())
    >>> [text.get_text() for text in ax.texts]
    ['50', '0', '0', '0', '48', '2', '0', '1', '49']
    """
    check_type("estimator", estimator, Predictor, "a fitted classifier")
    source = as_source(y, "y")
    predicted = np.asarray(estimator.predict(X))
    check_lengths(as_source(predicted), source)
    true = as_labels(source.whole())
    labels = join_labels(estimator.classes_, np.unique(true))
    if "sample_weight" in kwargs:
        kwargs["sample_weight"] = as_weights(kwargs["sample_weight"], true.size)
    ax = axes_of(ax)
    from sklearn.metrics import ConfusionMatrixDisplay  # noqa: PLC0415  (needs matplotlib)

    few = labels.size <= _MOST_VALUES
    options = {
        "include_values": few,
        "values_format": ".2f" if normalize else ".10g" if "sample_weight" in kwargs else "d",
        "xticks_rotation": "vertical" if max(map(len, map(str, labels))) > 3 else "horizontal",
        "colorbar": not few,
    }
    display = ConfusionMatrixDisplay.from_predictions(
        true, predicted, labels=labels, normalize=normalize, cmap=cmap, ax=ax, **options | kwargs
    )
    if not few:
        ticks = np.linspace(0, labels.size - 1, _MOST_VALUES // 2).astype(int)
        display.ax_.set_xticks(ticks, labels[ticks])
        display.ax_.set_yticks(ticks, labels[ticks])
    return display.ax_
