"""Figures that others have computed or published: NIST's, those of R's MASS, and of a textbook."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from grids import in_turn
from sklearn.datasets import load_iris

from streamgda import (
    ClassMoments,
    GaussianDiscriminantAnalysis,
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
)

# --- NIST: analysis of variance -------------------------------------------------------------------

# Statistical Reference Datasets, http://www.itl.nist.gov/div898/strd/anova/anova.html. Certified
# are the sums of squares between and within treatments, and F. The last numbers are the digits that
# rounding the data to float64 leaves of these, and that the moments therefore have to have.
ANOVA = {
    "SmLs01": (1.68, 1.80, 21.0, 13),
    "SmLs02": (16.08, 18.0, 201.0, 13),
    "SmLs03": (160.08, 180.0, 2001.0, 13),
    "SmLs04": (1.68, 1.80, 21.0, 8),
    "SmLs05": (16.08, 18.0, 201.0, 8),
    "SmLs06": (160.08, 180.0, 2001.0, 8),
    "SmLs07": (1.68, 1.80, 21.0, 2),
    "SmLs08": (16.08, 18.0, 201.0, 2),
    "SmLs09": (160.08, 180.0, 2001.0, 2),
}


def treatments(name):
    """Treatments and responses of a set, the responses as exact decimal fractions."""
    # Simon and Lesage: 9 treatments with means of 0.4, 0.3, 0.5, 0.3, 0.5 ... beyond an offset, and
    # an odd number of replicates that are the mean, and by turns 0.1 less and more.
    number = int(name[-1]) - 1
    offset, n = (1, 10**6, 10**12)[number // 3], (21, 201, 2001)[number % 3]
    tenths = [4, *[3, 5] * 4]
    cell = [0, *[-1, 1] * (n // 2)]
    y = [offset + Fraction(mean + step, 10) for mean in tenths for step in cell]
    return np.repeat(range(1, 10), n), y


def sums_of_squares(labels, y):
    """Sums of squares between and within treatments, and F, in the arithmetic of the responses."""
    groups = [[v for v, k in zip(y, labels, strict=True) if k == label] for label in set(labels)]
    means = [sum(group) / len(group) for group in groups]
    mean, n = sum(y) / len(y), len(y)
    between = sum(len(g) * (m - mean) ** 2 for g, m in zip(groups, means, strict=True))
    within = sum((v - m) ** 2 for g, m in zip(groups, means, strict=True) for v in g)
    return between, within, between / (len(groups) - 1) / (within / (n - len(groups)))


def digits(found, expected):
    """Digits that agree, as NIST counts them."""
    return min(15.0, -np.log10(max(abs(found / expected - 1), 1e-15)))


@in_turn("name, covariance_type", ANOVA, ["full", "diag"])
def test_moments_give_the_sums_of_squares_that_nist_certifies(name, covariance_type):
    """They are exact for the rows as float64 rounds them, at any offset."""
    labels, exact = treatments(name)
    *certified, left = ANOVA[name]
    expected = [float(v) for v in sums_of_squares(labels.tolist(), exact)]
    np.testing.assert_allclose(expected, certified, rtol=1e-14)
    X = np.array([float(v) for v in exact])[:, None]
    moments = ClassMoments(covariance_type)
    for rows in np.array_split(np.random.default_rng(0).permutation(len(X)), 7):
        moments.update(X[rows], labels[rows])
    n, K = len(X), len(moments.classes)
    within = float(moments.covariance().ravel() @ moments.class_count)
    together = moments.relabel(dict.fromkeys(moments.classes, moments.classes[0]))
    between = float(together.covariance().item() * n) - within
    found = between, within, between / (K - 1) / (within / (n - K))
    rounded = sums_of_squares(labels.tolist(), [Fraction(v) for v in X[:, 0]])
    assert min(digits(a, float(b)) for a, b in zip(found, rounded, strict=True)) > 12
    assert min(digits(a, b) for a, b in zip(found, certified, strict=True)) > left


# --- R: lda and qda of MASS -----------------------------------------------------------------------

# R 4.2.2 with MASS 7.3.58.2 printed these by
#
#     x <- as.matrix(iris[, 1:4]); g <- iris[, 5]; predict(lda(x, g), x)$posterior
#     lda(x, g, CV=TRUE, prior=c(.2, .3, .5))$posterior
#
# and likewise by qda: the posteriors of iris 71, 78 and 107, and the sum of the logarithms of those
# of the true species.
IRIS = {
    ("lda", "fit"): (
        [7.4081175816248175e-28, 0.25322822473817858, 0.74677177526182148],
        [5.6394731774818308e-27, 0.68921311926509421, 0.31078688073490585],
        [3.7978371892018076e-33, 0.048620253756357888, 0.95137974624364208],
        -6.5604221739541,
    ),
    ("lda", "CV, prior"): (
        [5.6065383991486019e-29, 0.11448136950172186, 0.88551863049827828],
        [1.2947968622596716e-27, 0.53467024507842253, 0.46532975492157747],
        [4.9885828165730405e-33, 0.054692851330294931, 0.945307148669705],
        -8.4554611498912955,
    ),
    ("qda", "fit"): (
        [1.0527233001737947e-103, 0.33594418312414642, 0.66405581687585358],
        [1.2054827075235094e-112, 0.86099858798375639, 0.13900141201624358],
        [2.4759556300713637e-93, 0.0038782015701964, 0.99612179842980364],
        -5.451098892757468,
    ),
    ("qda", "CV"): (
        [1.3290430024002808e-103, 0.16164225064994869, 0.83835774935005125],
        [1.5524317881387365e-112, 0.82099269507275618, 0.1790073049272439],
        [5.7308586818618276e-93, 0.0089765038067056695, 0.99102349619329433],
        -8.5212536207710912,
    ),
}
MASS = {"lda": "tied", "qda": "full"}  # MASS divides by n - K and by n_k - 1.


@pytest.mark.parametrize(("function", "how"), IRIS, ids=", ".join)
def test_posteriors_of_iris_are_those_of_mass(function, how):
    X, y = load_iris(return_X_y=True)
    shown, priors = [70, 77, 106], None
    if how == "CV, prior":
        priors = [0.2, 0.3, 0.5]
    gda = GaussianDiscriminantAnalysis(MASS[function], ddof=1, priors=priors).fit(X, y)
    found = gda.predict_proba(X) if how == "fit" else gda.leave_one_out_proba(X, y, priors="fixed")
    *expected, logs = IRIS[function, how]
    np.testing.assert_allclose(found[shown], expected, rtol=1e-9)
    assert np.log(found[np.arange(len(y)), y]).sum() == pytest.approx(logs, rel=1e-11)


# --- vowels ---------------------------------------------------------------------------------------

# Deterding's vowels, in the UCI repository (Connectionist Bench; CC BY 4.0): ten features in
# thousandths, of 15 speakers who say each of 11 vowels six times.
VOWELS = np.load(Path(__file__).parents[1] / "golden/vowels.npz")["thousandths"]


@pytest.mark.parametrize(
    ("estimator", "function", "train", "test", "right", "logs"),
    [
        (LinearDiscriminantAnalysis, "lda", 0.32, 0.56, 334, -590.78109214434585),
        (QuadraticDiscriminantAnalysis, "qda", 0.01, 0.53, 496, -144.38019158602009),
    ],
)
def test_errors_of_vowels_are_the_published_ones(estimator, function, train, test, right, logs):
    """By T. Hastie, R. Tibshirani and J. Friedman, The Elements of Statistical Learning, table 4.1.

    The rows of speakers 1 to 8 that are right, each without it, and the sum of the logarithms of
    their posteriors are those of MASS, with ``CV=TRUE``.
    """
    X, y = VOWELS / 1000, np.arange(990) % 11
    new, X, truth, y = X[528:], X[:528], y[528:], y[:528]
    fitted = estimator().fit(X, y)
    errors = 1 - fitted.score(X, y), 1 - fitted.score(new, truth)
    assert [round(error, 2) for error in errors] == [train, test]
    gda = GaussianDiscriminantAnalysis(MASS[function], ddof=1).fit(X, y)
    posteriors = gda.leave_one_out_proba(X, y, priors="fixed")
    assert (posteriors.argmax(axis=1) == y).sum() == right
    assert gda.leave_one_out_score(X, y, priors="fixed") == right / 528
    assert np.log(posteriors[np.arange(528), y]).sum() == pytest.approx(logs, rel=1e-10)
