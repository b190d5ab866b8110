"""Gaussian discriminant analysis for data larger than memory, on streams, on many machines."""

from importlib.metadata import version

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
from streamgda.estimators.checkpoint import Checkpoint
from streamgda.estimators.load import load
from streamgda.models.discriminants import LinearDiscriminants, QuadraticDiscriminants
from streamgda.models.fisher import FisherDiscriminant
from streamgda.models.gaussian import GaussianModel
from streamgda.moments import ClassMoments, PairwiseMoments, SlidingWindow
from streamgda.rows.opening import open_store

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
