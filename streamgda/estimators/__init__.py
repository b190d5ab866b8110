"""The scikit-learn face of class moments and Gaussian models."""

from streamgda.estimators.discriminant import (
    GaussianDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
)
from streamgda.estimators.linear import LinearDiscriminantAnalysis
from streamgda.estimators.naive_bayes import GaussianNB
from streamgda.estimators.threshold import ThresholdClassifier

__all__ = [
    "GaussianDiscriminantAnalysis",
    "GaussianNB",
    "LinearDiscriminantAnalysis",
    "QuadraticDiscriminantAnalysis",
    "ThresholdClassifier",
]
