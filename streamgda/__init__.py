"""Gaussian discriminant analysis for data larger than memory, on streams, on many machines."""

from importlib.metadata import version

from streamgda.engine import accumulate
from streamgda.estimators import (
    GaussianDiscriminantAnalysis,
    GaussianDiscriminantCV,
    GaussianNB,
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
)
from streamgda.model import GaussianModel
from streamgda.moments import ClassMoments
from streamgda.saved import load
from streamgda.sources import open_store
from streamgda.streams import Checkpoint

__version__ = version("streamgda")

__all__ = [
    "Checkpoint",
    "ClassMoments",
    "GaussianDiscriminantAnalysis",
    "GaussianDiscriminantCV",
    "GaussianModel",
    "GaussianNB",
    "LinearDiscriminantAnalysis",
    "QuadraticDiscriminantAnalysis",
    "accumulate",
    "load",
    "open_store",
]
