"""Checks of numeric parameters: all of them by name, however large the number."""

import numpy as np
import pytest
from samples import blobs

from streamgda import (
    BernoulliNB,
    ClassMoments,
    FisherDiscriminant,
    GaussianDiscriminantAnalysis,
    GaussianDiscriminantCV,
    GaussianNB,
    LinearDiscriminantAnalysis,
    PairwiseMoments,
    SlidingWindow,
    ThresholdClassifier,
    accumulate,
)
from streamgda.datasets import GaussianStream
from streamgda.errors import InvalidParameterError
from streamgda.runtime.parameters import as_flag, as_integer, as_number, as_numbers, shown

X, y = blobs(60, 3, 2)
HUGE = 10**400
ESTIMATORS = [
    (GaussianDiscriminantAnalysis, ["shrinkage", "pooling", "reg_param", "var_smoothing", "tol"]),
    (GaussianDiscriminantAnalysis, ["ddof", "priors"]),
    (LinearDiscriminantAnalysis, ["n_components"]),
    (BernoulliNB, ["alpha", "binarize", "class_prior", "force_alpha", "fit_prior"]),
    (GaussianDiscriminantCV, ["cv", "random_state", "max_memory", "verbose"]),
    (ThresholdClassifier, ["cost", "max_memory"]),
]


def refuses(name):
    return pytest.raises(InvalidParameterError, match=f"{name}=(1000.*|int .*); expected")


@pytest.mark.parametrize("value", [HUGE, 10**5000], ids=["400 digits", "more than Python shows"])
@pytest.mark.parametrize(
    ("make", "name"), [(make, name) for make, names in ESTIMATORS for name in names]
)
def test_parameters_of_estimators(make, name, value):
    with refuses(name):
        make(**{name: value}).fit(X, y)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("half_life", lambda: GaussianNB().partial_fit(X, y, half_life=HUGE)),
        ("reject", lambda: GaussianNB().fit(X, y).predict(X, reject=HUGE)),
        ("n_samples", lambda: GaussianNB().fit(X, y).sample(HUGE)),
        ("random_state", lambda: GaussianNB().fit(X, y).sample(1, HUGE)),
        ("max_memory", lambda: accumulate(X, y, max_memory=HUGE)),
        ("nodata", lambda: accumulate(X, y, nodata=HUGE)),
        ("checkpoint_every", lambda: accumulate(X, y, checkpoint_every=HUGE)),
        ("gamma", lambda: ClassMoments().update(X, y) * HUGE),
        ("ddof", lambda: ClassMoments().update(X, y).covariance(HUGE)),
        ("ddof", lambda: PairwiseMoments().update(X, y).covariance(HUGE)),
        ("n_components", lambda: ClassMoments().update(X, y).pca(HUGE)),
        ("components", lambda: ClassMoments().update(X, y).project(HUGE)),
        (
            "least_eigenvalue",
            lambda: PairwiseMoments().update(X, y).to_moments(least_eigenvalue=HUGE),
        ),
        ("n_blocks", lambda: SlidingWindow(HUGE)),
        ("n_components", lambda: FisherDiscriminant.from_moments(accumulate(X, y), HUGE)),
        ("seed", lambda: GaussianStream(2, 2, seed=HUGE)),
        ("scale", lambda: GaussianStream(2, 2, scale=HUGE)),
    ],
)
def test_parameters_of_functions(name, call):
    with refuses(name):
        call()


@pytest.mark.parametrize("given", ["9" * 400, "1.5" * 20, 10**30])
def test_budgets_that_no_machine_has(given):
    with pytest.raises(InvalidParameterError, match="max_memory="):
        accumulate(X, y, max_memory=given)


def test_arrays_are_no_operands():
    moments = ClassMoments().update(X, y)
    for operand in (np.empty(0), np.ones(2), np.array(3)):
        with pytest.raises(TypeError, match="operand"):
            moments + operand
        with pytest.raises(TypeError):
            operand + moments
    assert (np.float64(0.5) * moments).class_count.sum() == 30


def test_checks():
    assert as_number("a", np.float32(0.5), "a number") == 0.5
    assert as_integer("a", np.uint8(3), "an integer") == 3
    assert as_flag("a", np.bool_(True)) is True
    assert as_numbers("a", [1, 2], "numbers").dtype == np.float64
    for wrong in (True, "1", None, 1j, np.nan, np.inf, [1.0], np.ma.masked):
        with pytest.raises(InvalidParameterError, match=r"a=.*; expected a number"):
            as_number("a", wrong, "a number")
    for wrong in (True, 1.0, "1", None, -1, 2**63):
        with pytest.raises(InvalidParameterError, match=r"a=.*; expected an integer"):
            as_integer("a", wrong, "an integer")
    for wrong in (2, "yes", None, np.ones(2)):
        with pytest.raises(InvalidParameterError, match=r"a=.*; expected True or False"):
            as_flag("a", wrong)
    for wrong in ([HUGE], [1j], ["1"], [[1], [2, 3]], np.ma.masked, np.ma.masked_equal([1, 2], 2)):
        with pytest.raises(InvalidParameterError, match=r"a=.*; expected numbers"):
            as_numbers("a", wrong, "numbers")
    assert len(shown(list(range(10_000)))) < 250
