"""Ridge regression and least squares: scikit-learn's answers, and NIST's certified results."""

import dask.array as da
import dask.dataframe as dask_frames
import naive
import numpy as np
import pandas as pd
import pytest
from samples import assert_close, held
from sklearn import linear_model
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.exceptions import UndefinedMetricWarning
from statsmodels.datasets import longley

from streamgda import ClassMoments, Ridge, RidgeClassifier, accumulate
from streamgda.errors import (
    CollinearityWarning,
    InvalidDataError,
)

X, Y = load_diabetes(return_X_y=True)
RANDOM = np.random.default_rng(0)
WEIGHTS = RANDOM.uniform(0, 2, len(Y))
BOTH = np.column_stack([Y, X[:, 0] + RANDOM.normal(size=len(Y))])
FOLDS = RANDOM.integers(0, 5, len(Y))
ALPHAS = [1e-3, 1e-2, 0.1, 1.0, 10.0]
MOMENTS = accumulate(X, FOLDS)


# --- scikit-learn ---------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["", "weights"])
@pytest.mark.parametrize("y", [Y, BOTH, BOTH[:, :1]], ids=["one", "two", "a column"])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("alpha", [0.0, 1e-3, 10.0])
def test_answers_are_those_of_scikit_learn(alpha, intercept, y, weights):
    mine = Ridge(alpha, fit_intercept=intercept).fit(X, y, weights)
    theirs = linear_model.Ridge(alpha, fit_intercept=intercept, solver="svd").fit(X, y, weights)
    assert_close(mine.coef_, theirs.coef_)
    for ridge in (mine, Ridge.from_bytes(mine.to_bytes())):
        np.testing.assert_allclose(ridge.intercept_, theirs.intercept_, rtol=1e-10, strict=True)
    assert_close(mine.predict(X), theirs.predict(X))
    assert mine.score(X, y, weights) == pytest.approx(theirs.score(X, y, weights), abs=1e-10)
    every = np.ones(len(y)) if weights is None else weights
    wanted = naive.ridge(X, y, alpha, every, intercept)
    assert_close(mine.coef_.reshape(wanted.shape), wanted)


def test_each_target_may_have_a_penalty_and_one_row_has_no_score():
    mine = Ridge([1.0, 30.0]).fit(X, BOTH)
    theirs = linear_model.Ridge(np.array([1.0, 30.0])).fit(X, BOTH)
    assert_close(mine.coef_, theirs.coef_)
    with pytest.warns(UndefinedMetricWarning, match="less than two samples"):
        assert np.isnan(mine.score(X[:1], BOTH[:1]))


@pytest.mark.parametrize("class_weight", [None, "balanced", {0: 2.0, 1: 0.5}])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("rows", [load_iris, load_breast_cancer])
def test_classifier_answers_are_those_of_scikit_learn(rows, intercept, class_weight):
    A, labels = rows(return_X_y=True)
    given = {"fit_intercept": intercept, "class_weight": class_weight}
    mine = RidgeClassifier(2.0, **given).fit(A, labels)
    theirs = linear_model.RidgeClassifier(2.0, **given, solver="svd").fit(A, labels)
    assert_close(mine.coef_.ravel(), theirs.coef_.ravel())
    np.testing.assert_allclose(mine.intercept_, theirs.intercept_, rtol=1e-9)
    assert_close(mine.decision_function(A), theirs.decision_function(A))
    np.testing.assert_array_equal(mine.predict(A), theirs.predict(A), strict=True)
    assert mine.score(A, labels) == theirs.score(A, labels)


# --- numbers --------------------------------------------------------------------------------------

# NIST's Statistical Reference Datasets (https://www.itl.nist.gov/div898/strd/lls/lls.shtml).
NORRIS = """
0.2 337.4 118.2 884.6 10.1 226.5 666.3 996.3 448.6 777 558.2 0.4 0.6 775.5 666.9 338 447.5
11.6 556 228.1 995.8 887.6 120.2 0.3 0.3 556.8 339.1 887.2 999 779 11.1 118.3 229.2 669.1
448.9 0.5
0.1 338.8 118.1 888 9.2 228.1 668.5 998.5 449.1 778.9 559.2 0.3 0.1 778.1 668.8 339.3 448.9
10.8 557.7 228.3 998 888.8 119.6 0.3 0.6 557.6 339.3 888 998.5 778.9 10.2 117.6 228.9 668.4
449.2 0.2
"""
PONTIUS = """
.11019 .21956 .32949 .43899 .54803 .65694 .76562 .87487 .98292 1.09146 1.20001 1.30822 1.41599
1.52399 1.63194 1.73947 1.84646 1.95392 2.06128 2.16844 .11052 .22018 .32939 .43886 .54798
.65739 .76596 .87474 .983 1.0915 1.20004 1.30818 1.41613 1.52408 1.63159 1.73965 1.84696 1.95445
2.06177 2.16829
"""
WAMPLER_NOISE = """
759 -2048 2048 -2048 2523 -2048 2048 -2048 1838 -2048 2048 -2048 1838 -2048 2048 -2048 2523 -2048
2048 -2048 759
"""
WAMPLER = np.arange(21.0)[:, None] ** np.arange(1, 6)
LONGLEY = longley.load_pandas()


def numbers(text):
    return np.array(text.split(), float)


def wampler(noise, ratio=1.0):
    """Rows whose coefficients are powers of the ratio."""
    powers = ratio ** np.arange(6)
    return WAMPLER, 1 + WAMPLER @ powers[1:] + noise * numbers(WAMPLER_NOISE), powers


# Rows, targets and coefficients, whose digits are right at least: conditions are squared.
CERTIFIED = {
    "Norris": (
        *(numbers(NORRIS)[:36, None], numbers(NORRIS)[36:]),
        *([-0.262323073774029, 1.00211681802045], 11),
    ),
    "Pontius": (
        np.tile(np.arange(1, 21) * 150_000.0, 2)[:, None] ** [1, 2],
        numbers(PONTIUS),
        *([0.673565789473684e-03, 0.732059160401003e-06, -0.316081871345029e-14], 11),
    ),
    "Longley": (
        *(LONGLEY.exog.to_numpy(), LONGLEY.endog.to_numpy()),
        [
            *(-3482258.63459582, 15.0618722713733, -0.358191792925910e-01, -2.02022980381683),
            *(-1.03322686717359, -0.511041056535807e-01, 1829.15146461355),
        ],
        10,
    ),
    "Wampler1": (*wampler(0), 5.5),
    "Wampler2": (*wampler(0, 0.1), 9),
    "Wampler3": (*wampler(1), 5.5),
    "Wampler4": (*wampler(100), 5.5),
    "Wampler5": (*wampler(10_000), 4.5),
}


@pytest.mark.parametrize("name", CERTIFIED)
def test_certified_results(name):
    rows, targets, coefficients, digits = CERTIFIED[name]
    mine = Ridge(0.0).fit(rows, targets)
    found = [mine.intercept_, *mine.coef_]
    np.testing.assert_allclose(found, coefficients, rtol=10.0**-digits)


def test_offsets_cost_no_digits():
    A = np.round(X * 2**30) / 2**30  # 1e7 more is exact
    mine, moved = Ridge(0.0).fit(A, Y), Ridge(0.0).fit(A * 2**10 + 1e7, Y)
    assert_close(moved.coef_ * 2**10, mine.coef_, 1e-11)
    assert_close(moved.predict(A * 2**10 + 1e7), mine.predict(A), 1e-9)


def test_collinear_features_have_the_smallest_coefficients():
    A = np.column_stack([X, 3 * X[:, 0], np.ones(len(X))])
    with pytest.warns(CollinearityWarning, match="1 of 12 directions"):
        mine = Ridge(0.0).fit(A, Y)
    assert_close(mine.coef_, linear_model.Ridge(0.0, solver="svd").fit(A, Y).coef_)


# --- rows and moments ----------------------------------------------------------------------------


def test_columns_of_moments_are_targets():
    names = [*"abcdefghij"]
    frame = pd.DataFrame(X, columns=names).assign(t=Y)
    moments = accumulate(frame, (Y > 100).astype(int))
    mine = Ridge.from_moments(moments, target="t", alpha=0.1)
    assert_close(mine.coef_, Ridge(0.1).fit(X, Y).coef_, 1e-11)
    other = Ridge.from_moments(moments.reduce("tied"), target=["c", "t"], alpha=0.1)
    wanted = Ridge(0.1).fit(np.delete(X, 2, 1), np.column_stack([X[:, 2], Y]))
    assert_close(other.coef_, wanted.coef_)
    assert other.feature_names_in_.tolist() == [*"abdefghij"]
    more = Ridge.from_bytes(mine.to_bytes()).partial_fit(frame[names], Y)
    assert more.moments_.feature_names == (*names, "t")
    assert_close(more.coef_, Ridge(0.1).fit(X, Y, np.full(len(Y), 2)).coef_)
    with pytest.raises(InvalidDataError, match="feature names"):
        more.predict(frame[names[::-1]])


def test_rows_without_a_target_are_an_error_or_left_out():
    y = np.where(np.arange(len(Y)) == 7, np.nan, Y)
    for rows, targets in ((X, y), (held(X, "zarr"), held(y, "zarr")), (da.from_array(X), y)):
        with pytest.raises(InvalidDataError, match=r"y\[7\].*on_invalid='skip'"):
            Ridge().fit(rows, targets)
        mine = Ridge().fit(rows, targets, on_invalid="skip")
        assert mine.moments_.n_skipped == 1
        assert_close(mine.coef_, Ridge().fit(np.delete(X, 7, 0), np.delete(Y, 7)).coef_, 1e-12)


def test_partitions_without_rows_hold_no_targets():
    frame = dask_frames.from_pandas(pd.DataFrame(X[:, :3], columns=[*"abc"]), npartitions=3)
    frame = dask_frames.concat([frame.partitions[:1], frame[frame.a > 9], frame.partitions[1:]])
    found = Ridge().fit(frame[["a", "b"]], frame["c"])
    np.testing.assert_allclose(found.coef_, Ridge().fit(X[:, :2], X[:, 2]).coef_)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Ridge(-1.0).fit(X, Y), "alpha=-1.0; expected a number >= 0"),
        (lambda: Ridge(alphas=[1.0, -1.0]).fit(X, Y), "alphas=.*a list of numbers >= 0"),
        (lambda: Ridge([1.0] * 3).fit(X, BOTH), "3 penalties for 2 targets"),
        (lambda: Ridge(positive=True).fit(X, Y), "coefficients of one sign"),
        (lambda: Ridge().fit(X, Y, groups=FOLDS), "no alphas to choose from"),
        (lambda: Ridge().fit(X), "target y is None"),
        (lambda: Ridge().fit(X, Y.astype(str)), "no real numbers.*RidgeClassifier"),
        (lambda: Ridge().fit(X, Y[:-1]), "442 rows but there are 441 targets"),
        (lambda: Ridge().fit(X, BOTH[..., None]), "expected a column of targets"),
        (lambda: Ridge().fit(X, Y, unlabelled=0.0), "targets are not labels"),
        (lambda: Ridge().fit(X, BOTH).partial_fit(X, Y), "1 targets, but there were 2"),
        (lambda: Ridge(alphas=[1.0], cv=np.zeros(442, int)).fit(X, Y), "1 fold has rows"),
        (lambda: Ridge.from_moments(MOMENTS, target="t"), "have no names"),
        (lambda: Ridge.from_moments(MOMENTS, target=10), "number of a column, 0 to 9"),
        (lambda: Ridge.from_moments(MOMENTS, target=[*range(10)]), "fewer than all"),
        (lambda: Ridge.from_moments(MOMENTS, target=0, alphas=ALPHAS), "without any: call fit"),
        (lambda: Ridge.from_moments(ClassMoments(), target=0), "no row is left"),
        (lambda: Ridge.from_moments(MOMENTS.reduce("diag"), target=0), "covariance"),
        (lambda: RidgeClassifier().fit(X, FOLDS).predict(X, on_missing="marginal"), "densities"),
        (lambda: RidgeClassifier(class_weight="even").fit(X, FOLDS), "'class_weight' parameter"),
        (lambda: RidgeClassifier(class_weight={9: 1.0}).fit(X, FOLDS), "are not in class_weight"),
        (lambda: RidgeClassifier(class_weight={0: -1.0}).fit(X, FOLDS), "numbers >= 0"),
        (lambda: RidgeClassifier().fit(X, np.zeros(442)), "number of classes has to be greater"),
    ],
)
def test_failures(call, message):
    with pytest.raises(ValueError, match=message):
        call()
