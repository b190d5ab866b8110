"""Heat maps of pairs of classes: how often they are confused, and how separable they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from streamgda.models.separability import measure_of, separability
from streamgda.plots.figures import axes_of
from streamgda.rows import as_source
from streamgda.rows.invalid_rows import as_weights
from streamgda.rows.labels import as_labels, join_labels
from streamgda.rows.sources import check_lengths

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_VALUES = 25  # classes up to which numbers are shown in the cells
_INCHES = 0.42  # of a cell with a number, in a new figure


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
    if isinstance(estimator, type) or not hasattr(estimator, "predict"):
        raise TypeError(
            f"estimator is of type {type(estimator).__name__}; expected a fitted classifier"
        )
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
    form = ".2f" if normalize else ".10g" if "sample_weight" in kwargs else "d"
    options = {"values_format": form, "colorbar": not few, **_style(labels)}
    display = ConfusionMatrixDisplay.from_predictions(
        true, predicted, labels=labels, normalize=normalize, cmap=cmap, ax=ax, **options | kwargs
    )
    if not few:
        _thin_ticks(ax, labels)
    return display.ax_


def plot_separability(
    model_or_moments: Any,
    method: str = "jeffries_matusita",
    ax: Axes | None = None,
    *,
    cmap: Any = "Blues",
    **kwargs: Any,
) -> Axes:
    """Plot the separability of all pairs of classes.

    Parameters
    ----------
    model_or_moments : estimator, GaussianModel or ClassMoments
        Fitted Gaussian estimator, model, or moments.
    method : str
        Measure of separability; see `streamgda.separability`.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; those of a new figure by default.
    cmap : str or matplotlib.colors.Colormap
        Colour map.
    **kwargs
        Passed to `matplotlib.axes.Axes.imshow`.

    Returns
    -------
    matplotlib.axes.Axes
        The axes, with a row and a column for each class. Up to 25 classes, the cells show numbers.

    Raises
    ------
    TypeError
        For anything but an estimator, a model or moments.
    InvalidParameterError
        For an unknown measure.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from sklearn.datasets import load_iris
    >>> from streamgda import QuadraticDiscriminantAnalysis
    >>> from streamgda.plots import plot_separability
    >>> qda = QuadraticDiscriminantAnalysis().fit(*load_iris(return_X_y=True))
    >>> ax = plot_separability(qda, ax=Figure().subplots())
    >>> [text.get_text() for text in ax.texts]
    ['2.00', '2.00', '2.00', '1.73', '2.00', '1.73']
    """
    values, most = separability(model_or_moments, method), measure_of(method).most
    classes = getattr(model_or_moments, "classes_", None)
    classes = model_or_moments.classes if classes is None else classes
    new, bounded = ax is None, np.isfinite(most)
    ax = axes_of(ax)
    from sklearn.metrics import ConfusionMatrixDisplay  # noqa: PLC0415  (needs matplotlib)

    few = classes.size <= _MOST_VALUES
    if new and few:
        figure: Any = ax.figure
        side = _INCHES * classes.size + 1.5
        figure.set_size_inches(np.maximum(figure.get_size_inches(), (side + 1, side)))
    shown = np.where(np.eye(classes.size, dtype=bool), np.nan, values)
    display = ConfusionMatrixDisplay(shown, display_labels=classes)
    display.plot(
        ax=ax,
        cmap=cmap,
        values_format=".2f" if bounded else ".3g",
        im_kw={"vmin": 0.0, "vmax": most if bounded else None, **kwargs},
        text_kw={"size": "medium" if classes.size <= 12 else "x-small"},
        **_style(classes),
    )
    if few:
        for text in display.text_[np.isnan(shown)]:
            text.remove()
    else:
        _thin_ticks(ax, classes)
    ax.set(xlabel="", ylabel="", title=method.replace("_", " "))
    return ax


def _style(labels: np.ndarray) -> dict[str, Any]:
    """Return options of the display, for few or many classes and short or long labels."""
    upright = max(map(len, map(str, labels))) > 3
    few = labels.size <= _MOST_VALUES
    return {"include_values": few, "xticks_rotation": "vertical" if upright else "horizontal"}


def _thin_ticks(ax: Axes, labels: np.ndarray) -> None:
    ticks = np.linspace(0, labels.size - 1, _MOST_VALUES // 2).astype(int)
    ax.set_xticks(ticks, labels[ticks])
    ax.set_yticks(ticks, labels[ticks])
