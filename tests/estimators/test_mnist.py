"""The digits of documents 000 and 001, read once from a zarr store of bytes."""

import os

import pytest
import zarr

from streamgda import (
    PCA,
    GaussianDiscriminantAnalysis,
    GaussianNB,
    LinearDiscriminantAnalysis,
    MixtureDiscriminantAnalysis,
    accumulate,
    open_store,
)
from streamgda.datasets import load_mnist

FOLDER = os.environ.get("STREAMGDA_MNIST", "")
HELD_OUT = 10_000  # So many training images choose the regularisation.

pytestmark = [
    pytest.mark.mnist,
    pytest.mark.skipif(not os.path.isdir(FOLDER), reason="STREAMGDA_MNIST names no folder"),
    # Pixels that are black in all images; the tests of what is constant are elsewhere.
    pytest.mark.filterwarnings("ignore::streamgda.errors.ConstantFeatureWarning"),
]


@pytest.fixture(scope="module")
def images():
    return load_mnist(FOLDER)


@pytest.fixture(scope="module")
def moments(images):
    """Moments of the training rows and of the held-out rows, read once from a store."""
    X, y, *_ = images
    group = zarr.create_group({})
    group.create_array("X", data=X, chunks=(4096, 784))
    group.create_array("y", data=y, chunks=(4096,))
    X, y = open_store(group)
    fitted_to = y.shape[0] - HELD_OUT
    batches = [(X[:fitted_to], y[:fitted_to]), (X[fitted_to:], y[fitted_to:])]
    return tuple(accumulate([batch]) for batch in batches)


@pytest.mark.parametrize(
    ("kind", "params", "candidates", "accuracy"),
    [
        (LinearDiscriminantAnalysis, {"solver": "lsqr"}, {"shrinkage": [1e-3]}, 0.872),
        (GaussianDiscriminantAnalysis, {}, {"var_smoothing": [0.1, 0.3]}, 0.955),
        (GaussianNB, {}, {"var_smoothing": [1e-2, 0.1, 0.3]}, 0.81),
    ],
)
def test_accuracies(moments, images, kind, params, candidates, accuracy):
    """The best candidate on held-out rows is fitted to all without reading them again."""
    X, y, X_test, y_test = images
    ((name, values),) = candidates.items()

    def score(value):
        fitted = kind.from_moments(moments[0], **params, **{name: value})
        return fitted.score(X[-HELD_OUT:], y[-HELD_OUT:])

    best = max(values, key=score) if len(values) > 1 else values[0]
    chosen = kind.from_moments(moments[0] + moments[1], **params, **{name: best})
    assert chosen.score(X_test, y_test) >= accuracy


def test_mixtures_of_principal_components(images):
    """Parameters were chosen on the last 10,000 training images, as examples/mixtures.py does."""
    X, y, X_test, y_test = images
    pca = PCA(60).fit(X)
    mda = MixtureDiscriminantAnalysis(40, pooling=0.01, var_smoothing=0.005)
    mda.fit(pca.transform(X), y)
    assert mda.score(pca.transform(X_test), y_test) > 0.983
