"""The naive Bayes classifiers answer as scikit-learn's do, for rows from any container."""

import warnings

import naive
import numpy as np
import pandas as pd
import pytest
from grids import in_turn, pairs
from samples import held
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


def rows(n=150, d=6, n_classes=3, seed=0):
    random = np.random.default_rng(seed)
    y = random.integers(0, n_classes, n)
    return random.normal(size=(n, d)) + y[:, None] * np.linspace(-1, 1, d), y


# --- parameters of BernoulliNB --------------------------------------------------------------------


class EachAlpha:
    """scikit-learn's BernoulliNB with an alpha for each feature, fitted once for each.

    An array of them, which it accepts, is added to the counts of the classes as if it had an entry
    for each class: it fails unless there are as many classes as features.
    """

    def __init__(self, alpha, **params):
        self.alpha, self.params = np.asarray(alpha), params

    def fit(self, X, y, weights):
        each = [naive_bayes.BernoulliNB(alpha=float(a), **self.params) for a in self.alpha]
        self.__dict__ |= vars(each[0].fit(X, y, weights))
        logs = [nb.fit(X, y, weights).feature_log_prob_[:, j] for j, nb in enumerate(each)]
        self.feature_log_prob_ = np.stack(logs, axis=1)
        return self

    def predict_joint_log_proba(self, X):
        bits, one = np.greater(X, self.params["binarize"]), self.feature_log_prob_[:, None]
        with np.errstate(divide="ignore"):
            terms = np.where(bits, one, np.log1p(-np.exp(one)))
        return terms.sum(axis=2).T + self.class_log_prior_


@pairs(
    "alpha, force_alpha, priors, weighted",
    [0, 1.5, 1e-12, [0.01, 1e-12, 0.5, 1, 2, 30], (1,) * 6],
    [True, False],
    [(True, None), (False, None), (True, [0.2, 0.3, 0.5]), (True, [2.0, 0.5, 3.0])],
    [True, False],
)
@pytest.mark.filterwarnings("ignore:alpha too small")
def test_all_parameters_of_bernoulli(alpha, force_alpha, priors, weighted):
    (X, y), (fit_prior, prior) = rows(), priors
    weights = np.random.default_rng(1).uniform(0.1, 2, y.size) if weighted else None
    params = {"alpha": alpha, "force_alpha": force_alpha, "fit_prior": fit_prior}
    params |= {"class_prior": prior, "binarize": 0.3}
    kind = naive_bayes.BernoulliNB if isinstance(alpha, float | int) else EachAlpha
    theirs, ours = kind(**params).fit(X, y, weights), BernoulliNB(**params).fit(X, y, weights)
    for name in ("class_count_", "feature_count_", "class_log_prior_", "feature_log_prob_"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-12)
    np.testing.assert_allclose(
        ours.predict_joint_log_proba(X), theirs.predict_joint_log_proba(X), rtol=1e-9
    )


@pytest.mark.parametrize("sum_of", [0.0, np.inf])
@pytest.mark.parametrize("kind", [BernoulliNB, QuadraticDiscriminantAnalysis])
def test_priors_without_a_sum_are_refused(kind, sum_of):
    X, y = rows()
    name = "class_prior" if kind is BernoulliNB else "priors"
    with pytest.raises(InvalidParameterError, match=f"the sum of {name} is {sum_of:g}; expected"):
        kind(**{name: [sum_of, 0.0, 0.0]}).fit(X, y)


@pytest.mark.parametrize("alpha", [0, 1e-12, 1.0, [0, 1, 1, 1, 1, 1], [1.0] * 6])
@pytest.mark.parametrize("force_alpha", [True, False])
def test_warnings_are_those_of_scikit_learn(alpha, force_alpha):
    X, y = rows()
    X, y = X[y < 2, :2], y[y < 2]
    alpha = alpha[:2] if isinstance(alpha, list) else alpha
    found = []
    for kind in (naive_bayes.BernoulliNB, BernoulliNB):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            kind(alpha=alpha, force_alpha=force_alpha).fit(X, y)
            kind(alpha=alpha, force_alpha=force_alpha).partial_fit(X, y, [0, 1]).partial_fit(X, y)
        found.append([(w.category, str(w.message).replace("= ", "=")) for w in caught])
    assert found[0] == found[1]
    assert len(found[1]) == (0 if force_alpha or np.min(alpha) == 1 else 3)


@pytest.mark.parametrize(
    ("alpha", "message"),
    [
        ([1.0, 2.0], r"When alpha is an array, it should contains `n_features`.*\(2,\).* the 6"),
        ([[1.0] * 6], r"should contains `n_features`"),
        ([1, 1, 1, 1, 1, -0.1], "All values in alpha must be greater than 0"),
        ([1, 1, 1, 1, 1, np.nan], "all finite"),
        (["a"] * 6, "alpha=.*expected a number >= 0, or one for each feature"),
        (None, "alpha=None; expected a number"),
    ],
)
def test_an_alpha_that_does_not_fit(alpha, message):
    X, y = rows()
    for method in ("fit", "partial_fit"):
        estimator = BernoulliNB(alpha=alpha)
        with pytest.raises(InvalidParameterError, match=message):
            getattr(estimator, method)(X, y)
        assert not hasattr(estimator, "moments_")


@in_turn(
    "form, kind",
    [np.asarray, sparse.csr_array, sparse.coo_matrix, pd.DataFrame] * 2,
    [GaussianNB, BernoulliNB, BernoulliNB, GaussianNB, BernoulliNB],
)
def test_rows_of_weight_zero_are_not_looked_at(kind, form):
    X, y = rows()
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


# --- bernoulli naive Bayes: scikit-learn's numbers, and the same model from any conta -------------


def bernoulli_rows(n=200, d=7, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    y = np.append([0, 1, 2], rng.integers(0, 3, n - 3))
    return (rng.normal(rng.normal(size=(3, d))[y]) * 10).astype(dtype), y


@pytest.mark.parametrize("alpha", [1.0, 0.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_agrees_with_the_formula(alpha, weighted):
    X, y = bernoulli_rows(60)
    bits = (X > 0).astype(int)
    bits[y == 1, 2], bits[y == 2, 3] = 0, 1  # values that, without smoothing, a class cannot have
    weights = np.random.default_rng(1).uniform(0, 3, len(y)) if weighted else None
    fitted = BernoulliNB(alpha=alpha, binarize=None).fit(bits, y, weights)
    expected = naive.bernoulli_joint(bits, y, bits, alpha=alpha, weights=weights)
    assert (expected == -np.inf).any() == (alpha == 0)
    np.testing.assert_allclose(fitted.predict_joint_log_proba(bits), expected, rtol=1e-10)
    np.testing.assert_allclose(fitted.score_samples(bits), naive.log_density(expected), rtol=1e-10)
    np.testing.assert_allclose(fitted.predict_proba(bits), naive.posterior(expected), atol=1e-12)


@pytest.mark.parametrize("kind", ["numpy", "zarr"])
def test_values_that_are_not_finite_are_named(kind, slabs_of):
    slabs_of(1)  # so that the row is in a later slab
    X, y = bernoulli_rows()
    X[130, 4] = np.nan
    with pytest.raises(InvalidDataError, match="row 130, column 4 is nan"):
        BernoulliNB().fit(held(X, kind), held(y, kind))
    fitted = BernoulliNB().fit(X[:100], y[:100])
    X[130, 4] = np.inf
    with pytest.raises(InvalidDataError, match="row 130, column 4 is inf"):
        fitted.predict(held(X, kind))
    with pytest.raises(InvalidDataError, match="row 130, column 4 is inf"):
        fitted.partial_fit(held(X, kind), held(y, kind))
    assert fitted.class_count_.sum() == 100


def test_invalid_arguments_are_refused(tmp_path):
    X, y = bernoulli_rows()
    with pytest.raises(InvalidDataError, match=r"row 0 of X holds .*binarize=None"):
        BernoulliNB(binarize=None).fit(X, y)
    with pytest.raises(InvalidDataError, match="not of zeros and ones; binarise"):
        BernoulliNB.from_moments(ClassMoments("diag").update(X, y))
    for params in ({"alpha": -1}, {"alpha": "some"}, {"binarize": np.nan}):
        with pytest.raises(InvalidParameterError, match="expected a number"):
            BernoulliNB(**params).fit(X, y)
    with pytest.raises(InvalidParameterError, match="expected one for each of the 3 classes"):
        BernoulliNB(class_prior=[0.5, 0.5]).fit(X, y)
    fitted = BernoulliNB().fit(X, y)
    with pytest.raises(InvalidDataError, match="X has 3 features, but this model is expecting 7"):
        fitted.model_.predict(X[:, :3])


@pytest.mark.parametrize("binarize", [2.5, np.float32(2.5), np.float64(2.5)])
def test_saved_with_its_threshold(tmp_path, binarize):
    X, y = bernoulli_rows()
    BernoulliNB(binarize=binarize).fit(X, y).save(tmp_path / "nb.zip")
    loaded = streamgda.load(tmp_path / "nb.zip")
    expected = BernoulliNB(binarize=2.5).fit(X, y).predict_proba(X)
    np.testing.assert_array_equal(loaded.predict_proba(X), expected)
