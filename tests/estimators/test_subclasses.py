"""Subclasses of the estimators, in the styles in which people write them."""

import dask.array as da
import numpy as np
import pytest
from samples import assert_same_bits, blobs, results

from streamgda import (
    BernoulliNB,
    GaussianDiscriminantAnalysis,
    GaussianNB,
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
)

X, Y = blobs(120)
PRIORS = [0.7, 0.2, 0.1]
# Each with a parameter that changes its answers.
ESTIMATORS = {
    GaussianDiscriminantAnalysis: ("priors", PRIORS),
    QuadraticDiscriminantAnalysis: ("priors", PRIORS),
    LinearDiscriminantAnalysis: ("priors", PRIORS),
    GaussianNB: ("priors", PRIORS),
    BernoulliNB: ("class_prior", PRIORS),
}


def added(kind, name, value):
    class Added(kind):
        def __init__(self, *, verbose=0, given=value, **kwargs):
            super().__init__(**{name: given}, **kwargs)
            self.verbose = verbose

    return Added(verbose=2)


def overridden(kind, name, value):
    class Overridden(kind):
        def fit(self, X, y, sample_weight=None):
            self.seen_ = len(X)
            return super().fit(np.asarray(X), y, sample_weight)

    return Overridden(**{name: value})


STYLES = [added, overridden]


@pytest.mark.parametrize("style", STYLES, ids=lambda style: style.__name__)
@pytest.mark.parametrize("kind", ESTIMATORS, ids=lambda kind: kind.__name__)
def test_subclasses_learn_with_their_parameters(kind, style):
    name, value = ESTIMATORS[kind]
    expected = results(kind(**{name: value}).fit(X, Y), X)
    estimator = style(kind, name, value)
    assert_same_bits(results(estimator.fit(X, Y), X), expected)
    estimator.partial_fit(X[:9], Y[:9]).partial_fit(X[:50], Y[:50]).forget(X[:9], Y[:9])
    twice = kind(**{name: value}).fit(X, Y).partial_fit(X[:50], Y[:50])
    np.testing.assert_allclose(estimator.predict_proba(X), twice.predict_proba(X), atol=1e-9)
    if kind is not GaussianDiscriminantAnalysis:
        assert estimator.to_sklearn().get_params()[name] == value


@pytest.mark.parametrize("kind", ESTIMATORS, ids=lambda kind: kind.__name__)
def test_the_error_for_missing_labels_names_the_class_that_was_called(kind):
    mine = type("Mine", (kind,), {})()
    for method in (mine.fit, mine.partial_fit):
        for arguments in ([X], [X, None], [da.from_array(X)]):
            with pytest.raises(ValueError, match="Mine requires y to be passed") as caught:
                method(*arguments)
            assert isinstance(caught.value, TypeError)
