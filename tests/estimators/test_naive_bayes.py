"""The naive Bayes classifiers answer as scikit-learn's do, for rows from any container."""

import naive
import numpy as np
import pandas as pd
import pytest
from grids import in_turn, pairs
from samples import blobs
from scipy import sparse
from sklearn import naive_bayes

import streamgda
from streamgda import (
    BernoulliNB,
    ClassMoments,
    GaussianNB,
    QuadraticDiscriminantAnalysis,
)
from streamgda.errors import InvalidDataError, InvalidParameterError


@pairs(
    "alpha, force_alpha, priors, weighted",
    [0, 1.5, 1e-12, [0.01, 1e-12, 0.5, 1, 2, 30], (1,) * 6],
    [True, False],
    [(True, None), (False, None), (True, [0.2, 0.3, 0.5]), (True, [2.0, 0.5, 3.0])],
    [True, False],
)
@pytest.mark.filterwarnings("ignore:alpha too small")
def test_bernoulli_agrees_with_the_formula_and_with_scikit_learn(
    alpha, force_alpha, priors, weighted
):
    (X, y), (fit_prior, prior) = blobs(150, 6), priors
    X[y == 1, 2], X[y == 2, 3] = -9, 9  # Without smoothing, these values are impossible.
    weights = np.random.default_rng(1).uniform(0.1, 2, y.size) if weighted else None
    params = {"alpha": alpha, "force_alpha": force_alpha, "fit_prior": fit_prior}
    params |= {"class_prior": prior, "binarize": 0.3}
    ours = BernoulliNB(**params).fit(X, y, weights)
    bits = (X > 0.3).astype(int)
    given = {"weights": weights, "priors": prior if fit_prior else np.full(3, 1 / 3)}
    given["alpha"] = np.asarray(alpha) if force_alpha else np.maximum(alpha, 1e-10)
    expected = naive.bernoulli_joint(bits, y, bits, **given)
    assert (expected == -np.inf).any() == (force_alpha and alpha == 0)
    np.testing.assert_allclose(ours.predict_joint_log_proba(X), expected, rtol=1e-9)
    np.testing.assert_allclose(ours.score_samples(X), naive.log_density(expected), rtol=1e-9)
    np.testing.assert_allclose(ours.predict_proba(X), naive.posterior(expected), atol=1e-12)
    if np.ndim(alpha) == 0:
        with np.errstate(divide="ignore"):
            theirs = naive_bayes.BernoulliNB(**params).fit(X, y, weights)
        for name in ("class_count_", "feature_count_", "class_log_prior_", "feature_log_prob_"):
            np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-12)


@pytest.mark.parametrize("sum_of", [0.0, np.inf])
@pytest.mark.parametrize("kind", [BernoulliNB, QuadraticDiscriminantAnalysis])
def test_priors_without_a_sum_raise(kind, sum_of):
    X, y = blobs(150, 6)
    name = "class_prior" if kind is BernoulliNB else "priors"
    with pytest.raises(InvalidParameterError, match=f"the sum of {name} is {sum_of:g}; expected"):
        kind(**{name: [sum_of, 0.0, 0.0]}).fit(X, y)


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        ({"alpha": [1.0, 2.0]}, InvalidParameterError, r"`n_features`.*\(2,\).* the 6"),
        ({"alpha": [[1.0] * 6]}, InvalidParameterError, r"should contains `n_features`"),
        ({"alpha": [1, 1, 1, 1, 1, -0.1]}, InvalidParameterError, "alpha must be greater than 0"),
        ({"alpha": [1, 1, 1, 1, 1, np.nan]}, InvalidParameterError, "all finite"),
        ({"alpha": ["a"] * 6}, InvalidParameterError, "a number >= 0, or one for each feature"),
        ({"alpha": None}, InvalidParameterError, "alpha=None; expected a number"),
        ({"binarize": np.nan}, InvalidParameterError, "expected a number"),
        ({"binarize": None}, InvalidDataError, r"row 0 of X holds .*binarize=None"),
    ],
    ids=str,
)
def test_parameters_of_bernoulli_that_do_not_fit(params, error, message):
    X, y = blobs(150, 6)
    for method in ("fit", "partial_fit"):
        estimator = BernoulliNB(**params)
        with pytest.raises(error, match=message):
            getattr(estimator, method)(X, y)
        assert not hasattr(estimator, "moments_")


def test_moments_that_are_not_of_zeros_and_ones():
    X, y = blobs(150, 6)
    with pytest.raises(InvalidDataError, match="not of zeros and ones; binarise"):
        BernoulliNB.from_moments(ClassMoments("diag").update(X, y))
    nb = BernoulliNB().fit(X, y).set_params(binarize=2)
    with pytest.raises(InvalidParameterError, match="binarize"):
        nb.predict(X)
    assert np.array_equal(
        nb.fit(X, y).feature_count_, BernoulliNB(binarize=2).fit(X, y).feature_count_
    )


@in_turn(
    "form, kind",
    [np.asarray, sparse.csr_array, sparse.coo_matrix, pd.DataFrame] * 2,
    [GaussianNB, BernoulliNB, BernoulliNB, GaussianNB, BernoulliNB],
)
def test_rows_of_weight_zero_are_not_looked_at(kind, form):
    X, y = blobs(150, 6)
    weights = (np.arange(y.size) % 3 > 0) * 1.0
    expected = kind().fit(X[weights > 0], y[weights > 0])
    X[60, 2], X[90] = np.nan, np.inf
    for fitted in (kind().fit(form(X), y, weights), kind().partial_fit(form(X), y, None, weights)):
        np.testing.assert_allclose(
            fitted.predict_proba(np.zeros((1, 6))), expected.predict_proba(np.zeros((1, 6)))
        )
    weights[60] = 1
    with pytest.raises(InvalidDataError, match="row 60, column 2"):
        kind().fit(form(X), y, weights)


@pytest.mark.parametrize("binarize", [2.5, np.float32(2.5), True, False])
def test_saved_with_its_threshold(tmp_path, binarize):
    X, y = blobs(150, 6)
    BernoulliNB(binarize=binarize).fit(X, y).save(tmp_path / "nb.zip")
    loaded = streamgda.load(tmp_path / "nb.zip")
    theirs = naive_bayes.BernoulliNB(binarize=float(binarize)).fit(X, y)
    np.testing.assert_allclose(loaded.predict_proba(X), theirs.predict_proba(X), atol=1e-12)
