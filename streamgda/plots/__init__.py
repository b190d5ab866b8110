"""Plots of estimators and their classes, with matplotlib (``pip install streamgda[plot]``).

Like scikit-learn's displays, the functions take a fitted estimator, rows and labels. They draw on
the given axes or on a new figure, pass further keyword arguments to matplotlib, and return the
axes.
"""

from streamgda.plots.boundary import plot_decision_boundary
from streamgda.plots.curves import plot_learning_curve, plot_spectra
from streamgda.plots.densities import plot_densities
from streamgda.plots.heat_maps import plot_confusion_matrix, plot_separability
from streamgda.plots.images import plot_means, plot_samples

__all__ = [
    "plot_confusion_matrix",
    "plot_decision_boundary",
    "plot_densities",
    "plot_learning_curve",
    "plot_means",
    "plot_samples",
    "plot_separability",
    "plot_spectra",
]
