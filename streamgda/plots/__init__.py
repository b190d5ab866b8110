"""Plots of Gaussian estimators, with matplotlib (``pip install streamgda[plot]``).

Like scikit-learn's displays, the functions take a fitted estimator, rows and labels. They draw on
the given axes or on a new figure, pass further keyword arguments to matplotlib, and return the
axes.
"""

from streamgda.plots.boundary import plot_decision_boundary
from streamgda.plots.densities import plot_densities

__all__ = ["plot_decision_boundary", "plot_densities"]
