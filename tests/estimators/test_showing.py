"""Showing an estimator computes nothing and never raises; what is computed is kept."""

import inspect
import pickle

import numpy as np
import pytest
from samples import EVERY_ESTIMATOR, EVERY_GAUSSIAN, blobs, make

from streamgda import (
    GaussianDiscriminantCV,
    GaussianNB,
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
)
from streamgda.errors import InvalidParameterError, SingularCovarianceError
from streamgda.estimators import discriminant, gaussian
from streamgda.models import gaussian as models

X, Y = blobs(90)
STATES = {
    "unfitted": lambda estimator: estimator,
    "fitted": lambda estimator: estimator.fit(X, Y),
    "one class": lambda estimator: estimator.partial_fit(X[Y == 1], Y[Y == 1]),
    "declared": lambda estimator: estimator.partial_fit(X, Y, classes=[0, 1, 2, 3]),
    "singular": lambda estimator: estimator.partial_fit(X[[0, 0, 1, 1]], [0, 0, 1, 1]),
    "constant": lambda estimator: estimator.partial_fit(X[:1], Y[:1]),
    "wrong priors": lambda estimator: estimator.set_params(
        **{name: [0.5, 0.5] for name in {"priors", "class_prior"} & estimator.get_params().keys()}
    ).partial_fit(X, Y),
    "set since": lambda estimator: estimator.fit(X, Y).set_params(
        **dict.fromkeys(estimator.get_params(), "wrong")
    ),
}
EVERY_STATE = pytest.mark.parametrize("state", STATES)


@EVERY_STATE
@EVERY_ESTIMATOR
def test_no_way_of_showing_raises(name, state):
    estimator = STATES[state](make(name))
    if name == "LDA" and state != "set since":
        estimator.set_params(n_components=2)
    assert type(estimator).__name__ in repr(estimator)
    assert type(estimator).__name__ in estimator._repr_html_()
    assert estimator._repr_mimebundle_()["text/html"]
    assert {attribute: hasattr(estimator, attribute) for attribute in dir(estimator)}
    assert inspect.getmembers(estimator)


@EVERY_GAUSSIAN
def test_showing_computes_no_model_and_no_covariances(name, monkeypatch):
    started, fitted = make(name).partial_fit(X, Y), make(name).fit(X, Y)

    def forbidden(*arguments, **options):
        raise AssertionError("computed")

    for module, function in (
        (gaussian, "estimate"),
        (models, "estimate"),
        (models, "factorise"),
        (discriminant.linalg, "eigh"),
    ):
        monkeypatch.setattr(module, function, forbidden)
    for estimator in (started, fitted):
        assert repr(estimator)
        assert "model_" in dir(estimator)
        assert "class_count_" in estimator._repr_html_()
    shown = fitted._repr_html_()
    assert ("theta_" if name == "GaussianNB" else "means_") in shown


def test_what_was_computed_is_shown_and_kept_until_rows_are_learnt():
    qda = QuadraticDiscriminantAnalysis().fit(X, Y)
    before = len(pickle.dumps(qda))
    assert "rotations_" not in qda._repr_html_().partition("Fitted attributes")[2]
    first = qda.rotations_[0]
    assert "rotations_" in qda._repr_html_().partition("Fitted attributes")[2]
    assert np.shares_memory(qda.rotations_[0], first)
    assert len(pickle.dumps(qda)) < before + 200
    assert not np.allclose(qda.partial_fit(X[:20], Y[:20]).rotations_[0], first)


def test_a_search_is_shown():
    estimator = GaussianDiscriminantCV({"covariance_type": ["diag"]}, cv=2)
    for fitted in (False, True):
        if fitted:
            estimator.fit(X, Y > 0)
        assert estimator._repr_html_()
        assert inspect.getmembers(estimator)
        assert hasattr(estimator, "classes_") == fitted


def test_attributes_that_cannot_be_computed_are_missing():
    qda = QuadraticDiscriminantAnalysis().partial_fit(X[:5], [0, 0, 1, 1, 1])
    for attribute in ("model_", "priors_"):
        assert not hasattr(qda, attribute)
        with pytest.raises(AttributeError, match="singular") as caught:
            getattr(qda, attribute)
        assert isinstance(caught.value, SingularCovarianceError)
        assert type(pickle.loads(pickle.dumps(caught.value))) is SingularCovarianceError
    with pytest.raises(SingularCovarianceError, match="class 0"):
        qda.predict(X)
    nb = GaussianNB(priors=[0.5, 0.5]).partial_fit(X, Y)
    with pytest.raises(AttributeError, match="one for each of the 3 classes"):
        nb.theta_  # noqa: B018
    lda = LinearDiscriminantAnalysis(n_components=2).partial_fit(X[Y > 0], Y[Y > 0])
    assert not hasattr(lda, "explained_variance_ratio_")
    with pytest.raises(InvalidParameterError, match="n_components cannot be larger"):
        lda.explained_variance_ratio_  # noqa: B018
