"""The digits of documents 000 and 001, read once from a zarr store of bytes."""

import os

import numpy as np
import pytest
import zarr

from streamgda import (
    GaussianDiscriminantAnalysis,
    GaussianNB,
    LinearDiscriminantAnalysis,
    accumulate,
    open_store,
)
from streamgda.datasets import load_mnist
from streamgda.errors import ConstantFeatureWarning

FOLDER = os.environ.get("STREAMGDA_MNIST", "")
HELD_OUT = 10_000  # of the training images: what regularisation is chosen on

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
def store(images, tmp_path_factory):
    X, y, *_ = images
    path = tmp_path_factory.mktemp("mnist") / "train"
    group = zarr.create_group(path)
    group.create_array("X", data=X, chunks=(4096, 784))
    group.create_array("y", data=y, chunks=(4096,))
    return path


@pytest.fixture(scope="module")
def moments(store):
    """Moments of the training rows and of the held-out rows."""
    X, y = open_store(store)
    fitted_to = y.shape[0] - HELD_OUT
    batches = [(X[:fitted_to], y[:fitted_to]), (X[fitted_to:], y[fitted_to:])]
    return tuple(accumulate([batch]) for batch in batches)


def chosen(moments, images, make, candidates):
    """The best candidate on held-out rows, fitted to all without reading them again."""
    X, y, *_ = images
    first, second = moments
    scores = [
        make.from_moments(first, var_smoothing=candidate).score(X[-HELD_OUT:], y[-HELD_OUT:])
        for candidate in candidates
    ]
    return make.from_moments(first + second, var_smoothing=candidates[int(np.argmax(scores))])


def test_linear_discriminant_analysis(store, images):
    _, _, X, y = images
    assert (
        LinearDiscriminantAnalysis("lsqr", shrinkage=1e-3).fit(*open_store(store)).score(X, y)
        >= 0.872
    )


def test_quadratic_discriminant_analysis(moments, images):
    _, _, X, y = images
    qda = chosen(moments, images, GaussianDiscriminantAnalysis, [0.1, 0.3])
    assert qda.covariance_type == "full"
    assert qda.score(X, y) >= 0.955


def test_gaussian_naive_bayes(moments, images):
    _, _, X, y = images
    nb = chosen(moments, images, GaussianNB, [1e-2, 0.1, 0.3])
    assert nb.score(X, y) >= 0.81


@pytest.mark.soak
def test_black_margins_are_left_out_and_put_back(moments):
    with pytest.warns(ConstantFeatureWarning, match="67 of 784 features are constant"):
        gda = GaussianDiscriminantAnalysis.from_moments(moments[0] + moments[1], var_smoothing=0.1)
    drawn, labels = gda.sample(20, random_state=0)
    assert drawn.shape == (20, 784)
    assert not drawn[:, gda.constant_features_].any()
    assert gda.score(drawn, labels) > 0.9


@pytest.mark.soak
def test_fifty_principal_components(moments, images):
    """From moments in 784 dimensions: the images are read once."""
    X, y, X_test, y_test = images
    components = (moments[0] + moments[1]).pca(50)
    fewer = tuple(part.project(components) for part in moments)
    held_out = X[-HELD_OUT:] @ components.T, y
    qda = chosen(fewer, held_out, GaussianDiscriminantAnalysis, [0.0, 1e-3, 3e-3, 0.01, 0.03, 0.1])
    assert qda.covariance_type == "full"
    assert qda.score(X_test @ components.T, y_test) >= 0.965
