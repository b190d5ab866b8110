"""Eigenvalue spectra of covariances."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from streamgda.estimators.gaussian import GaussianClassifier
from streamgda.plots.figures import add_legend, axes_of, colours_of, means_of
from streamgda.plots.projection import check_gaussian
from streamgda.runtime.parameters import as_integer

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
