"""Leave-one-out gives what refits without each row give."""

import naive
import numpy as np
import pytest
from samples import KINDS, blobs, held
from sklearn.base import clone
from sklearn.covariance import OAS

import streamgda
from streamgda import (
    GaussianDiscriminantAnalysis,
    GaussianNB,
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
)
from streamgda.errors import InvalidDataError, SingularCovarianceError, UnsupportedError

REGULARISATIONS = [
    {},
    {"ddof": 1},
    {"shrinkage": 0.3},
    {"reg_param": 0.2},
    {"var_smoothing": 0.3},
    {"ddof": 1, "shrinkage": 0.2, "reg_param": 0.1, "var_smoothing": 0.05},
]
PRIORS = [0.2, 0.5, 0.3]


def refitted(estimator, X, y, rows):
    """Probabilities of rows by fits without them."""
    found = np.zeros((len(rows), np.unique(y).size))
    for i, row in enumerate(rows):
        other = np.arange(len(X)) != row
        fitted = clone(estimator).fit(X[other], y[other])
        found[i, np.searchsorted(np.unique(y), fitted.classes_)] = fitted.predict_proba(X[[row]])
    return found


@pytest.mark.parametrize("priors", [None, PRIORS], ids=["counted", "given"])
@pytest.mark.parametrize("how", REGULARISATIONS, ids=lambda how: "+".join(how) or "none")
@pytest.mark.parametrize("covariance_type", naive.COVARIANCE_TYPES)
def test_probabilities_are_those_of_refits(covariance_type, how, priors):
    X, y = blobs(70, 4)
    X = X * [1, 5, 0.1, 1] + [0, 100, 0, -3]
    estimator = GaussianDiscriminantAnalysis(covariance_type, priors=priors, **how)
    found = estimator.fit(X, y).leave_one_out_proba(X, y)
    rows = np.arange(0, 70, 5)
    np.testing.assert_allclose(found[rows], refitted(estimator, X, y, rows), atol=1e-10)
    some = estimator.leave_one_out_proba(X[rows], y[rows])
    np.testing.assert_allclose(some, found[rows], atol=1e-12)
    score = estimator.leave_one_out_score(X, y)
    assert score == pytest.approx((found.argmax(axis=1) == y).mean())


@pytest.mark.parametrize(
    "estimator",
    [
        QuadraticDiscriminantAnalysis(reg_param=0.1),
        LinearDiscriminantAnalysis(),
        LinearDiscriminantAnalysis("lsqr", shrinkage=0.2),
        GaussianNB(var_smoothing=0.2, temperature=2.0),
    ],
)
def test_every_estimator(estimator, tmp_path):
    X, y = blobs(60, 3)
    labels = np.array(["ant", "bee", "cat"])[y]
    fitted = clone(estimator).fit(X, labels)
    expected = refitted(estimator, X, labels, np.arange(60))
    for kind in KINDS:
        found = fitted.leave_one_out_proba(held(X, kind), held(labels, kind))
        np.testing.assert_allclose(found, expected, atol=1e-10)
    fitted.save(tmp_path / "e.npz")
    for other in (streamgda.load(tmp_path / "e.npz"), clone(estimator).partial_fit(X, labels)):
        np.testing.assert_allclose(other.leave_one_out_proba(X, labels), expected, atol=1e-10)


def test_priors_of_all_rows_or_of_the_others():
    X, y = blobs(60, 3)
    qda = QuadraticDiscriminantAnalysis().fit(X, y)
    fixed = qda.leave_one_out_proba(X, y, priors="fixed")
    given = QuadraticDiscriminantAnalysis(priors=qda.priors_).fit(X, y)
    np.testing.assert_allclose(fixed, given.leave_one_out_proba(X, y), rtol=1e-12)
    assert not np.allclose(fixed, qda.leave_one_out_proba(X, y), rtol=1e-6)
    with pytest.raises(ValueError, match="'counted' or 'fixed'"):
        qda.leave_one_out_proba(X, y, priors="other")


def test_the_only_row_of_a_class_has_probability_zero_of_it():
    X, y = blobs(60, 3)
    y[0] = 9
    tied = GaussianDiscriminantAnalysis("tied").fit(X, y)
    found = tied.leave_one_out_proba(X, y)
    assert found[0, 3] == 0
    np.testing.assert_allclose(found[:1], refitted(clone(tied), X, y, [0]), atol=1e-10)


def test_rows_that_cannot_be_left_out():
    X, y = blobs(60, 3)
    qda = QuadraticDiscriminantAnalysis().fit(X, y)
    for rows, labels, match in (
        (np.vstack([X, X]), np.tile(y, 2), "rows here, and"),
        (X[:1], [7], "is 7, which is not one of the classes"),
        (np.full((1, 3), np.nan), y[:1], "contains NaN"),
    ):
        with pytest.raises(InvalidDataError, match=match):
            qda.leave_one_out_proba(rows, labels)
    X[y == 1, 2] = 0.5
    last = np.flatnonzero(y == 1)[-1]
    X[last, 2] = 1.5
    qda.fit(X, y)
    with pytest.raises(SingularCovarianceError, match=f"without row {last}, .* of class 1"):
        qda.leave_one_out_proba(X, y)


WEIGHTED = GaussianNB().fit(*blobs(60, 3), np.full(60, 0.5))


@pytest.mark.filterwarnings("ignore::streamgda.errors.CollinearityWarning")
@pytest.mark.parametrize(
    "estimator",
    [
        GaussianDiscriminantAnalysis(pooling=0.5),
        GaussianDiscriminantAnalysis("tied", shrinkage="oas"),
        LinearDiscriminantAnalysis("lsqr", shrinkage="auto"),
        LinearDiscriminantAnalysis("eigen", covariance_estimator=OAS()),
        LinearDiscriminantAnalysis("lsqr", shrinkage=0.1, priors=PRIORS),
        LinearDiscriminantAnalysis(),
        WEIGHTED,
    ],
    ids=str,
)
def test_models_without_a_formula(estimator):
    X, y = blobs(60, 3)
    X = np.column_stack([X, X[:, 0]]) if estimator.get_params().get("solver") == "svd" else X
    fitted = estimator if estimator is WEIGHTED else estimator.fit(X, y)
    with pytest.raises(UnsupportedError, match="has no formula for"):
        fitted.leave_one_out_proba(X, y)
