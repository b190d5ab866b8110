"""Gaussian discriminant analysis for data larger than memory, on streams, on many machines."""

from importlib.metadata import version

from streamgda.discriminants import LinearDiscriminants, QuadraticDiscriminants
from streamgda.engine import accumulate
from streamgda.estimators import (
    BernoulliNB,
    GaussianDiscriminantAnalysis,
    GaussianDiscriminantCV,
    GaussianNB,
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
    ThresholdClassifier,
)
from streamgda.fisher import FisherDiscriminant
from streamgda.model import GaussianModel
from streamgda.moments import ClassMoments, PairwiseMoments, SlidingWindow
from streamgda.saved import load
from streamgda.sources import open_store
from streamgda.streams import Checkpoint

__version__ = version("streamgda")

__all__ = [
    "BernoulliNB",
    "Checkpoint",
    "ClassMoments",
    "FisherDiscriminant",
    "GaussianDiscriminantAnalysis",
    "GaussianDiscriminantCV",
    "GaussianModel",
    "GaussianNB",
    "LinearDiscriminantAnalysis",
    "LinearDiscriminants",
    "PairwiseMoments",
    "QuadraticDiscriminantAnalysis",
    "QuadraticDiscriminants",
    "SlidingWindow",
    "ThresholdClassifier",
    "accumulate",
    "load",
    "open_store",
]
