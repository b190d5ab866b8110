"""Heat map of the separability of classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from streamgda.models.separability import measure_of, separability
from streamgda.plots.figures import BRIGHTNESS, axes_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_VALUES = 25  # classes up to which numbers are shown in the cells
_INCHES = 0.42  # of a cell with a number, in a new figure


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
    n, new = classes.size, ax is None
    few = n <= _MOST_VALUES
    ax = axes_of(ax)
    figure: Any = ax.figure
    if new and few:
        width, height = figure.get_size_inches()
        side = _INCHES * n + 1.5
        figure.set_size_inches(max(width, side + 1), max(height, side))
    shown = np.where(np.eye(n, dtype=bool), np.nan, values)
    limits = {"vmin": 0.0, "vmax": most if np.isfinite(most) else None}
    image = ax.imshow(shown, cmap=cmap, **{**limits, **kwargs})
    ticks = np.arange(n) if few else np.linspace(0, n - 1, _MOST_VALUES // 2).astype(int)
    names = [str(label) for label in classes[ticks]]
    upright = max(map(len, names)) > 3
    ax.set_xticks(ticks, names, rotation="vertical" if upright else "horizontal")
    ax.set_yticks(ticks, names)
    ax.set_title(method.replace("_", " "))
    figure.colorbar(image, ax=ax)
    if few:
        _write_values(ax, image, shown, ".2f" if np.isfinite(most) else ".3g")
    return ax


def _write_values(ax: Axes, image: Any, values: np.ndarray, form: str) -> None:
    """Write numbers into cells, in black or white, whichever differs more from the colour."""
    size = "medium" if len(values) <= 12 else "x-small"
    for i, j in np.argwhere(np.isfinite(values)):
        brightness = BRIGHTNESS @ image.cmap(image.norm(values[i, j]))[:3]
        colour = "black" if brightness > 0.5 else "white"
        style: dict[str, Any] = {"ha": "center", "va": "center", "color": colour, "size": size}
        ax.text(j, i, f"{values[i, j]:{form}}", **style)
