"""Gaussian discriminant analysis for data larger than memory, on streams, on many machines.

Names and submodules are imported when they are first used: scikit-learn, SciPy and Numba take
seconds, which ``streamgda --help`` does not need.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamgda.engine import accumulate
    from streamgda.estimators.checkpoint import Checkpoint
    from streamgda.estimators.discriminant import (
        GaussianDiscriminantAnalysis,
        QuadraticDiscriminantAnalysis,
    )
    from streamgda.estimators.drift import DriftMonitor
    from streamgda.estimators.linear import LinearDiscriminantAnalysis
    from streamgda.estimators.naive_bayes import BernoulliNB, GaussianNB
    from streamgda.estimators.pca import PCA
    from streamgda.estimators.ridge import Ridge, RidgeClassifier
    from streamgda.estimators.selection import GaussianDiscriminantCV
    from streamgda.models.discriminants import (
        FisherDiscriminant,
        LinearDiscriminants,
        QuadraticDiscriminants,
    )
    from streamgda.models.drift import DriftReport
    from streamgda.models.gaussian import GaussianModel
    from streamgda.models.hypothesis_tests import (
        CovarianceTest,
        MeansTest,
        covariance_test,
        means_test,
    )
    from streamgda.models.separability import distance, separability
    from streamgda.moments import ClassMoments, GroupedMoments, PairwiseMoments, SlidingWindow
    from streamgda.moments.feature_maps import RandomFeatures, Standardize
    from streamgda.rows.opening import open_store
    from streamgda.storage.saved import load
    from streamgda.versions import show_versions

    __version__: str

__all__ = [
    "PCA",
    "BernoulliNB",
    "Checkpoint",
    "ClassMoments",
    "CovarianceTest",
    "DriftMonitor",
    "DriftReport",
    "FisherDiscriminant",
    "GaussianDiscriminantAnalysis",
    "GaussianDiscriminantCV",
    "GaussianModel",
    "GaussianNB",
    "GroupedMoments",
    "LinearDiscriminantAnalysis",
    "LinearDiscriminants",
    "MeansTest",
    "PairwiseMoments",
    "QuadraticDiscriminantAnalysis",
    "QuadraticDiscriminants",
    "RandomFeatures",
    "Ridge",
    "RidgeClassifier",
    "SlidingWindow",
    "Standardize",
    "accumulate",
    "covariance_test",
    "distance",
    "load",
    "means_test",
    "open_store",
    "separability",
    "show_versions",
]

# The modules of the names.
_MODULES = {
    "BernoulliNB": "estimators.naive_bayes",
    "Checkpoint": "estimators.checkpoint",
    "ClassMoments": "moments",
    "CovarianceTest": "models.hypothesis_tests",
    "DriftMonitor": "estimators.drift",
    "DriftReport": "models.drift",
    "FisherDiscriminant": "models.discriminants",
    "GaussianDiscriminantAnalysis": "estimators.discriminant",
    "GaussianDiscriminantCV": "estimators.selection",
    "GaussianModel": "models.gaussian",
    "GaussianNB": "estimators.naive_bayes",
    "GroupedMoments": "moments",
    "LinearDiscriminantAnalysis": "estimators.linear",
    "LinearDiscriminants": "models.discriminants",
    "MeansTest": "models.hypothesis_tests",
    "PCA": "estimators.pca",
    "PairwiseMoments": "moments",
    "QuadraticDiscriminantAnalysis": "estimators.discriminant",
    "QuadraticDiscriminants": "models.discriminants",
    "RandomFeatures": "moments.feature_maps",
    "Ridge": "estimators.ridge",
    "RidgeClassifier": "estimators.ridge",
    "SlidingWindow": "moments",
    "Standardize": "moments.feature_maps",
    "accumulate": "engine",
    "covariance_test": "models.hypothesis_tests",
    "distance": "models.separability",
    "load": "storage.saved",
    "means_test": "models.hypothesis_tests",
    "open_store": "rows.opening",
    "separability": "models.separability",
    "show_versions": "versions",
}


def __getattr__(name: str) -> Any:
    """Import a public name, or a submodule, when it is first used."""
    if name in __all__:
        module = import_module(f"streamgda.{_MODULES[name]}")
        value = globals()[name] = getattr(module, name)
        return value
    if name == "__version__":
        return import_module("streamgda.versions").__version__
    if not name.startswith("_"):
        try:
            return import_module(f"streamgda.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"streamgda.{name}":
                raise
    raise AttributeError(f"module 'streamgda' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__", "datasets", "errors", "plots"]
