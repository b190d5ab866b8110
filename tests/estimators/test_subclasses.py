"""Subclasses of the estimators, in the styles in which people write them."""

from typing import Any

import dask.array as da
import numpy as np
import pytest
from samples import assert_same_bits, blobs, results
from sklearn import naive_bayes

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


class Counted:
    """A mixin in front, which counts the calls of its constructor and passes on what it gets."""

    made = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        type(self).made += 1


def added(kind, name, value):
    class Added(Counted, kind):
        def __init__(self, *, verbose=0, given=value):
            super().__init__(**{name: given})
            self.verbose = verbose

    return Added(verbose=2)


def passed_on(kind, name, value):
    class PassedOn(Counted, kind):
        def __init__(self, verbose=0, **kwargs):
            super().__init__(**kwargs)
            self.verbose = verbose

    return PassedOn(**{name: value})


def mixed_in(kind, name, value):
    return type("MixedIn", (Counted, kind), {})(**{name: value})


def overridden(kind, name, value):
    class Overridden(Counted, kind):
        def fit(self, X, y, sample_weight=None):
            self.seen_ = len(X)
            return super().fit(np.asarray(X), y, sample_weight)

    return Overridden(**{name: value})


def set_later(kind, name, value):
    class SetLater(Counted, kind):
        def __init__(self):
            super().__init__()
            setattr(self, name, value)

    return SetLater()


def held_elsewhere(kind, name, value):
    class Held(Counted, kind):
        """The parameter is a property of something else."""

    setattr(Held, name, property(lambda self: value, lambda self, given: None))
    return Held()


STYLES = [
    added,
    passed_on,
    mixed_in,
    overridden,
    set_later,
    held_elsewhere,
]


@pytest.mark.parametrize("style", STYLES, ids=lambda style: style.__name__)
@pytest.mark.parametrize("kind", ESTIMATORS, ids=lambda kind: kind.__name__)
def test_subclasses_learn_with_their_parameters_and_are_constructed_once(kind, style):
    name, value = ESTIMATORS[kind]
    expected = results(kind(**{name: value}).fit(X, Y), X)
    estimator = style(kind, name, value)
    assert_same_bits(results(estimator.fit(X, Y), X), expected)
    estimator.partial_fit(X[:9], Y[:9]).partial_fit(X[:50], Y[:50]).forget(X[:9], Y[:9])
    twice = kind(**{name: value}).fit(X, Y).partial_fit(X[:50], Y[:50])
    np.testing.assert_allclose(estimator.predict_proba(X), twice.predict_proba(X), atol=1e-9)
    assert estimator.to_sklearn().get_params()[name] == value
    assert type(estimator).made == 1


@pytest.mark.parametrize("kind", ESTIMATORS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_the_error_for_missing_labels_names_the_class_that_was_called(kind, method):
    mine = type("Mine", (kind,), {})()
    for error in (TypeError, ValueError):
        for arguments in ([X], [X, None], [da.from_array(X)]):
            with pytest.raises(error, match="Mine requires y to be passed"):
                getattr(mine, method)(*arguments)


def test_errors_for_parameters_are_type_errors_as_in_scikit_learn():
    for error in (TypeError, ValueError):
        with pytest.raises(error, match="var_smoothing"):
            GaussianNB(var_smoothing="much").fit(X, Y)
        with pytest.raises(error, match="n_components"):
            LinearDiscriminantAnalysis(n_components=1.5).fit(X, Y)


@pytest.mark.parametrize("binarize", [False, True])
def test_a_boolean_threshold_is_a_number(binarize):
    ours = BernoulliNB(binarize=binarize).fit(X, Y)
    theirs = naive_bayes.BernoulliNB(binarize=binarize).fit(X, Y)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X))
    assert_same_bits(results(ours, X), results(BernoulliNB(binarize=float(binarize)).fit(X, Y), X))
