"""Gaussian discriminant analysis for data larger than memory, on streams, on many machines."""

from importlib.metadata import version

from streamgda.engine import accumulate
from streamgda.estimators import (
    BernoulliNB,
    GaussianDiscriminantAnalysis,
    GaussianNB,
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
)
from streamgda.model import GaussianModel
from streamgda.moments import ClassMoments, PairwiseMoments, SlidingWindow
from streamgda.saved import load
from streamgda.sources import open_store

__version__ = version("streamgda")

__all__ = [
    "BernoulliNB",
    "ClassMoments",
    "GaussianDiscriminantAnalysis",
    "GaussianModel",
    "GaussianNB",
    "LinearDiscriminantAnalysis",
    "PairwiseMoments",
    "QuadraticDiscriminantAnalysis",
    "SlidingWindow",
    "accumulate",
    "load",
    "open_store",
]
