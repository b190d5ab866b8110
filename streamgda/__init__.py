"""Gaussian discriminant analysis for data larger than memory, on streams, on many machines."""

from importlib.metadata import version

from streamgda.discriminants import LinearDiscriminants, QuadraticDiscriminants
from streamgda.engine import accumulate
from streamgda.estimators import (
    GaussianDiscriminantAnalysis,
    GaussianNB,
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
    ThresholdClassifier,
)
from streamgda.fisher import FisherDiscriminant
from streamgda.model import GaussianModel
from streamgda.moments import ClassMoments
from streamgda.saved import load
from streamgda.sources import open_store

__version__ = version("streamgda")

__all__ = [
    "ClassMoments",
    "FisherDiscriminant",
    "GaussianDiscriminantAnalysis",
    "GaussianModel",
    "GaussianNB",
    "LinearDiscriminantAnalysis",
    "LinearDiscriminants",
    "QuadraticDiscriminantAnalysis",
    "QuadraticDiscriminants",
    "ThresholdClassifier",
    "accumulate",
    "load",
    "open_store",
]
