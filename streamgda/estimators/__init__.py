"""The scikit-learn face of class moments and of the models that they make."""

from streamgda.estimators.discriminant import (
    GaussianDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
)
from streamgda.estimators.linear import LinearDiscriminantAnalysis
from streamgda.estimators.naive_bayes import BernoulliNB, GaussianNB
from streamgda.estimators.ridge import Ridge, RidgeClassifier
from streamgda.estimators.selection import GaussianDiscriminantCV
from streamgda.estimators.threshold import ThresholdClassifier

__all__ = [
    "BernoulliNB",
    "GaussianDiscriminantAnalysis",
    "GaussianDiscriminantCV",
    "GaussianNB",
    "LinearDiscriminantAnalysis",
    "QuadraticDiscriminantAnalysis",
    "Ridge",
    "RidgeClassifier",
    "ThresholdClassifier",
]
