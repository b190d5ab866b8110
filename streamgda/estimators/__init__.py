"""The scikit-learn face of class moments and Gaussian models."""

from streamgda.estimators.discriminant import (
    GaussianDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
)
from streamgda.estimators.linear import LinearDiscriminantAnalysis
from streamgda.estimators.naive_bayes import GaussianNB
from streamgda.estimators.selection import GaussianDiscriminantCV

__all__ = [
    "GaussianDiscriminantAnalysis",
    "GaussianDiscriminantCV",
    "GaussianNB",
    "LinearDiscriminantAnalysis",
    "QuadraticDiscriminantAnalysis",
]
