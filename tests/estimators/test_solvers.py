"""Solvers, covariance estimators and priors of LDA and QDA, beside scikit-learn's."""

import numpy as np
import pytest
from grids import pairs
from samples import DIVIDES_BY_N, NEEDS_1_9, blobs, held
from sklearn import covariance, discriminant_analysis

from streamgda import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from streamgda.errors import CollinearityWarning, InvalidParameterError, SingularCovarianceError

X, Y = blobs(200, 5)
PRIORS = [0.2, 0.5, 0.3]
SETTINGS = [
    *([("svd", {})] if DIVIDES_BY_N else []),
    *(
        (solver, how)
        for solver in ("lsqr", "eigen")
        for how in (
            {},
            {"shrinkage": 0.3},
            {"shrinkage": "auto"},
            {"covariance_estimator": covariance.OAS()},
        )
    ),
]
ATTRIBUTES = "coef_", "intercept_", "covariance_", "xbar_", "explained_variance_ratio_"


def assert_close(found, expected, rtol=1e-10):
    np.testing.assert_allclose(found, expected, rtol=0, atol=rtol * np.abs(expected).max())


@pairs("setting, priors, n_classes", SETTINGS, [None, PRIORS], [2, 3])
def test_lda_agrees_with_scikit_learn(setting, priors, n_classes):
    (solver, how), rows, y = setting, X[n_classes > Y], Y[n_classes > Y]
    priors = None if priors is None else np.array(priors[:n_classes]) / sum(priors[:n_classes])
    options = {"priors": priors, "store_covariance": True, **how}
    theirs = discriminant_analysis.LinearDiscriminantAnalysis(solver, **options).fit(rows, y)
    ours = LinearDiscriminantAnalysis(solver, **options).fit(rows, y)
    for method in ("decision_function", "predict_proba"):
        assert_close(getattr(ours, method)(rows), getattr(theirs, method)(rows))
    # What rows vary between classes by is not shrunk here, nor weighted by priors.
    alike = solver == "svd" or not (how or priors is not None)
    for name in ATTRIBUTES:
        assert hasattr(ours, name) == hasattr(theirs, name), name
        if hasattr(theirs, name) and (alike or name != "explained_variance_ratio_"):
            assert_close(getattr(ours, name), getattr(theirs, name))
    if solver != "lsqr" and alike:
        found, expected = ours.transform(rows), theirs.transform(rows)
        assert_close(found * np.sign((found * expected).sum(axis=0)), expected, 1e-9)


@NEEDS_1_9
@pytest.mark.parametrize("how", [{"shrinkage": 0.3}, {"covariance_estimator": covariance.OAS()}])
def test_qda_agrees_with_scikit_learn(how):
    theirs = discriminant_analysis.QuadraticDiscriminantAnalysis(solver="eigen", **how).fit(X, Y)
    ours = QuadraticDiscriminantAnalysis(solver="eigen", **how).fit(X, Y)
    assert_close(ours.decision_function(X), theirs.decision_function(X))


@NEEDS_1_9
def test_priors_of_qda_stay_as_they_are():
    theirs = discriminant_analysis.QuadraticDiscriminantAnalysis(priors=[1, 1, 2]).fit(X, Y)
    ours = QuadraticDiscriminantAnalysis(priors=[1, 1, 2]).fit(X, Y)
    assert ours.priors_.tolist() == [1, 1, 2]
    assert_close(ours.predict_proba(X), theirs.predict_proba(X))
    assert set(ours.sample(50, random_state=0)[1]) == {0, 1, 2}


def test_priors_of_lda_are_divided_by_their_sum():
    with pytest.warns(UserWarning, match="priors do not sum to 1") as caught:
        lda = LinearDiscriminantAnalysis(priors=[1, 1, 2]).fit(X, Y)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert lda.priors_.tolist() == [0.25, 0.25, 0.5]


def test_dropped_directions_are_reported_once():
    wide = np.column_stack([X, X[:, :2]])
    with pytest.warns(CollinearityWarning, match=r"^2 of 7 directions") as caught:
        lda = LinearDiscriminantAnalysis().fit(wide, Y)
    lda.predict(wide)  # without another warning, which would be an error
    assert len(caught) == 1
    assert caught[0].filename == __file__
    theirs = discriminant_analysis.LinearDiscriminantAnalysis().fit(wide, Y)
    if DIVIDES_BY_N:
        assert_close(lda.decision_function(wide), theirs.decision_function(wide))
    with pytest.raises(SingularCovarianceError, match="solver='svd', which drops") as refusal:
        LinearDiscriminantAnalysis("eigen").fit(wide, Y)
    assert "reg_param" not in str(refusal.value)


@pytest.mark.parametrize("make", [LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis])
def test_refusals(make, tmp_path):
    with pytest.raises(NotImplementedError, match="shrinkage is not supported with"):
        make(shrinkage=0.1).fit(X, Y)
    with pytest.raises(InvalidParameterError, match="solver='other'; expected one of 'svd'"):
        make(solver="other").fit(X, Y)
    with pytest.raises(InvalidParameterError, match="an object with a method fit"):
        make(solver="eigen", covariance_estimator=3).fit(X, Y)
    given = make(solver="eigen", covariance_estimator=covariance.OAS())
    with pytest.raises(InvalidParameterError, match="needs all rows at once"):
        given.partial_fit(X, Y)
    stored = make(solver="eigen", covariance_estimator=covariance.OAS())
    stored.fit(held(X, "zarr"), held(Y, "zarr"))
    np.testing.assert_allclose(stored.predict_proba(X), given.fit(X, Y).predict_proba(X))
    with pytest.raises(InvalidParameterError, match="takes no sample_weight"):
        given.fit(X, Y, np.ones(len(Y)))
    with pytest.raises(InvalidParameterError, match="cannot be saved"):
        given.fit(X, Y).save(tmp_path / "estimator")
