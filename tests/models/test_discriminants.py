"""Discriminants as formulas, those of the textbooks; no direction is better than Fisher's."""

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import blobs
from scipy import linalg
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis as ScikitLDA

from streamgda import (
    FisherDiscriminant,
    GaussianDiscriminantAnalysis,
    GaussianDiscriminantCV,
    LinearDiscriminantAnalysis,
    LinearDiscriminants,
    QuadraticDiscriminantAnalysis,
    QuadraticDiscriminants,
    accumulate,
)
from streamgda.errors import InvalidParameterError, MergeError, SingularCovarianceError

TIED = [t for t in naive.COVARIANCE_TYPES if naive.is_tied(t)]
FORMULAS = [
    *((LinearDiscriminants, t) for t in TIED),
    *((QuadraticDiscriminants, t) for t in naive.COVARIANCE_TYPES),
]


# --- the textbooks' formulas --------------------------------------------------------------------


def test_linear_ones_are_those_of_documents_001_and_003():
    X, y = blobs()
    m, S = naive.moments(X, y), naive.covariance(X, y, "tied")
    P, priors = np.linalg.inv(S), m.count / m.count.sum()
    lda = LinearDiscriminantAnalysis().fit(X, y)
    from_zero, about_mean = LinearDiscriminants.of(lda, 0), LinearDiscriminants.of(lda)
    for i in range(3):
        w, w0 = from_zero.of_class(i)
        np.testing.assert_allclose(w, P @ m.means[i], rtol=1e-10)
        np.testing.assert_allclose(
            w0, -0.5 * m.means[i] @ P @ m.means[i] + np.log(priors[i]), rtol=1e-10
        )
        for j in range(3):
            gap, total = m.means[i] - m.means[j], m.means[i] + m.means[j]
            w0 = -0.5 * gap @ P @ total + np.log(priors[i] / priors[j])  # eq. 14 and 24
            for discriminants in (from_zero, about_mean):
                pair = discriminants.pair(i, j)
                np.testing.assert_allclose(pair.w, P @ gap, rtol=1e-9, atol=1e-12)
                np.testing.assert_allclose(pair.intercept, w0, rtol=1e-9, atol=1e-12)


def test_quadratic_ones_are_those_of_documents_000_and_001():
    X, y = blobs()
    m, S = naive.moments(X, y), naive.covariance(X, y, "full")
    P, priors = np.linalg.inv(S), m.count / m.count.sum()
    qda = QuadraticDiscriminantAnalysis().fit(X, y)
    A, b, c = QuadraticDiscriminants.of(qda, 0).pair(2, 0)
    np.testing.assert_allclose(A, -0.5 * (P[2] - P[0]), rtol=1e-9)
    np.testing.assert_allclose(b, P[2] @ m.means[2] - P[0] @ m.means[0], rtol=1e-9)
    inner = [m.means[k] @ P[k] @ m.means[k] for k in range(3)]
    ratio = np.linalg.slogdet(S[2])[1] - np.linalg.slogdet(S[0])[1]
    expected = -0.5 * (ratio + inner[2] - inner[0]) + np.log(priors[2] / priors[0])
    np.testing.assert_allclose(c, expected, rtol=1e-9)


def test_a_search_has_those_of_its_best_estimator():
    X, y = blobs()
    search = GaussianDiscriminantCV({"covariance_type": ["full"]}).fit(X, y)
    found, best = map(QuadraticDiscriminants.of, (search, search.best_estimator_))
    np.testing.assert_array_equal(found(X), best(X))


# --- what the estimators compute ----------------------------------------------------------------


@pytest.mark.parametrize(("kind", "covariance_type"), FORMULAS)
@pytest.mark.parametrize("origin", [None, 0, 1.5])
def test_they_reproduce_the_classifier(kind, covariance_type, origin):
    X, y = blobs()
    X[:, 2] = 7  # left out of the density
    with pytest.warns(match="constant"):
        fitted = GaussianDiscriminantAnalysis(covariance_type, priors=[0.5, 0.2, 0.3]).fit(X, y)
    discriminants = kind.of(fitted, origin)
    values = discriminants(X)
    np.testing.assert_array_equal(fitted.classes_[values.argmax(axis=1)], fitted.predict(X))
    np.testing.assert_allclose(discriminants.posterior(X), fitted.predict_proba(X), atol=1e-10)
    for a in range(3):
        np.testing.assert_allclose(discriminants.of_class(a)(X), values[:, a], rtol=1e-12)
        for b in range(3):
            found = discriminants.pair(a, b)(X)
            expected = fitted.predict_log_proba(X)[:, a] - fitted.predict_log_proba(X)[:, b]
            np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("kind", [LinearDiscriminants, QuadraticDiscriminants])
def test_far_from_zero_they_are_as_good_as_near(kind):
    X, y = blobs()
    X = np.round(X * 2**20) / 2**20  # so that moving the rows rounds nothing
    offset = 2.0**23
    near = kind.of(LinearDiscriminantAnalysis().fit(X, y))
    far = kind.of(LinearDiscriminantAnalysis().fit(X + offset, y))
    np.testing.assert_allclose(far.pair(0, 1)(X + offset), near.pair(0, 1)(X), rtol=1e-8, atol=1e-7)


# --- where boundaries meet (document 001, figure 2 and below) ------------------------------------


@given(st.integers(0, 2**32 - 1), st.sampled_from(TIED))
def test_three_boundaries_in_a_plane_meet_in_one_point(seed, covariance_type):
    X, y = blobs(60, 2, 3, seed)
    fitted = GaussianDiscriminantAnalysis(covariance_type).fit(X, y)
    discriminants = LinearDiscriminants.of(fitted)
    pairs = [discriminants.pair(*labels) for labels in ((0, 1), (1, 2), (2, 0))]
    point = discriminants.meeting(0, 1, 2)
    # The point may be far from all rows: scores are large there, and so is their rounding.
    scale = max(np.abs(pair.w) @ np.abs(point - pair.origin) + abs(pair.w0) for pair in pairs)
    for pair in pairs:
        assert abs(pair(point[None])[0]) < 1e-9 * scale
    # Any two boundaries determine it: the third goes through it because log-odds add up.
    crossing = np.linalg.solve([pairs[0].w, pairs[1].w], [-pairs[0].w0, -pairs[1].w0])
    np.testing.assert_allclose(point - discriminants.origin, crossing, rtol=1e-6, atol=1e-9)
    if scale < 1e3:
        np.testing.assert_allclose(fitted.predict_proba(point[None]), 1 / 3, rtol=1e-6)


def test_boundaries_in_space_meet_next_to_the_mean():
    X, y = blobs(n_features=5)
    lda = LinearDiscriminantAnalysis().fit(X, y)
    discriminants = LinearDiscriminants.of(lda)
    point = discriminants.meeting(0, 1, 2)
    np.testing.assert_allclose(lda.predict_proba(point[None]), 1 / 3, rtol=1e-9)
    w = np.array([discriminants.pair(0, k).w for k in (1, 2)])
    along = np.linalg.svd(w)[2][2:]  # their intersection has three dimensions
    np.testing.assert_allclose(along @ (point - lda.xbar_), 0, atol=1e-9)
    np.testing.assert_allclose(lda.predict_proba((point + 5 * along[0])[None]), 1 / 3, rtol=1e-9)


def test_parallel_boundaries_do_not_meet():
    X = np.array([[0.0], [2.0], [4.0], [6.0], [8.0], [11.0]])
    lda = LinearDiscriminantAnalysis().fit(X, [0, 0, 1, 1, 2, 2])
    with pytest.raises(InvalidParameterError, match="do not meet"):
        LinearDiscriminants.of(lda).meeting(0, 1, 2)
    with pytest.raises(InvalidParameterError, match="two classes or more"):
        LinearDiscriminants.of(lda).meeting(0)


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize("covariance_type", naive.COVARIANCE_TYPES)
def test_thresholds_are_where_the_prediction_changes(covariance_type):
    random = np.random.default_rng(1)
    y = random.integers(0, 4, 400)
    X = (random.normal(size=400) * (1 + y) + 1e3 + 2.5 * y)[:, None]
    gda = GaussianDiscriminantAnalysis(covariance_type, priors=[0.5, 0.3, 0.2, 0]).fit(X, y)
    found = QuadraticDiscriminants.of(gda).thresholds()
    z = np.linspace(X.min() - 50, X.max() + 50, 100_001)
    changed = np.flatnonzero(np.diff(gda.predict(z[:, None])))
    assert found.size
    np.testing.assert_allclose(found, (z[changed] + z[changed + 1]) / 2, atol=z[1] - z[0])
    if covariance_type.startswith("tied"):
        np.testing.assert_allclose(found, LinearDiscriminants.of(gda).thresholds())
    with pytest.raises(InvalidParameterError, match="select_features"):
        QuadraticDiscriminants.of(GaussianDiscriminantAnalysis().fit(*blobs())).thresholds()


def test_ties_are_broken_at_random():
    lda = LinearDiscriminantAnalysis().fit([[1.0], [3.0], [6.0], [8.0]], ["a", "a", "b", "b"])
    discriminants = LinearDiscriminants.of(lda)
    rows = np.repeat([[2.0], [4.5], [8.0]], 1000, axis=0)
    first, tied, last = np.split(discriminants.predict(rows, random_state=0), 3)
    assert (first == "a").all()
    assert (last == "b").all()
    assert abs((tied == "a").mean() - 0.5) < 0.05
    assert (discriminants.predict(rows, 0) == discriminants.predict(rows, 0)).all()
    assert (lda.predict(rows[1000:2000]) == "a").all()


def test_classes_without_rows_and_priors_of_zero():
    X, y = blobs()
    fitted = GaussianDiscriminantAnalysis("tied").partial_fit(X, y, classes=[0, 1, 2, 3])
    discriminants = LinearDiscriminants.of(fitted)
    assert (discriminants(X)[:, 3] == -np.inf).all()
    np.testing.assert_allclose(discriminants.posterior(X), fitted.predict_proba(X), atol=1e-12)
    for label in (3, 9, "a"):
        with pytest.raises(InvalidParameterError, match=r"not one of the classes .* \[0, 1, 2\]"):
            discriminants.pair(0, label)
    unlikely = GaussianDiscriminantAnalysis("tied", priors=[0.5, 0.5, 0]).fit(X, y)
    never = LinearDiscriminants.of(unlikely)
    assert (never.pair(0, 2)(X) == np.inf).all()


def test_no_linear_discriminants_or_no_such_origin():
    X, y = blobs()
    qda = QuadraticDiscriminantAnalysis().fit(X, y)
    with pytest.raises(InvalidParameterError, match="use QuadraticDiscriminants"):
        LinearDiscriminants.of(qda)
    for origin in ([1.0, 2.0], np.nan, np.zeros((1, 4))):
        with pytest.raises(InvalidParameterError, match="origin has shape"):
            QuadraticDiscriminants.of(qda, origin)


# --- Fisher's discriminant ---------------------------------------------------------------------


def between_and_within(X, y):
    """Covariance of the class means, and that within classes."""
    m = naive.moments(X, y)
    priors = m.count / m.count.sum()
    gaps = m.means - priors @ m.means
    return (priors * gaps.T) @ gaps, naive.covariance(X, y, "tied")


def up_to_sign(found, expected):
    signs = np.sign((found * expected).sum(axis=0))
    return found * signs


@pytest.mark.parametrize("n_classes", [2, 3, 4])
def test_directions_solve_the_generalised_eigenproblem(n_classes):
    X, y = blobs(n_features=5, n_classes=n_classes)
    B, W = between_and_within(X, y)
    values, vectors = linalg.eigh(B, W)
    fisher = FisherDiscriminant.from_moments(accumulate(X, y))
    k = n_classes - 1
    assert fisher.components.shape == (k, 5)
    np.testing.assert_allclose(fisher.criteria, values[::-1][:k], rtol=1e-9)
    expected = vectors[:, ::-1][:, :k]
    np.testing.assert_allclose(up_to_sign(fisher.components.T, expected), expected, rtol=1e-7)
    np.testing.assert_allclose(fisher.components @ W @ fisher.components.T, np.eye(k), atol=1e-10)


def test_of_two_classes_it_is_the_direction_of_document_004():
    X, y = blobs(n_classes=2)
    m, S = naive.moments(X, y), naive.covariance(X, y, "tied")
    fisher = FisherDiscriminant.from_moments(accumulate(X, y))
    expected = np.linalg.solve(S, m.means[0] - m.means[1])
    found = fisher.components[0]
    cosine = found @ expected / np.linalg.norm(found) / np.linalg.norm(expected)
    np.testing.assert_allclose(abs(cosine), 1, rtol=1e-12)
    w = np.random.default_rng(0).normal(size=4)
    j = (w @ m.means[0] - w @ m.means[1]) ** 2 / (w @ S @ w)
    shares = m.count / m.count.sum()
    np.testing.assert_allclose(fisher.criterion(w), shares[0] * shares[1] * j, rtol=1e-10)


@given(st.integers(0, 2**32 - 1), st.integers(2, 4), st.sampled_from(["full", "tied", "diag"]))
def test_no_direction_is_better(seed, n_classes, covariance_type):
    X, y = blobs(80, 3, n_classes, seed)
    fisher = FisherDiscriminant.from_moments(accumulate(X, y, covariance_type=covariance_type))
    best = fisher.criteria[0]
    np.testing.assert_allclose(fisher.criterion(fisher.components[0]), best, rtol=1e-9)
    random = np.random.default_rng(seed)
    wide = random.normal(size=(200, 3))
    near = fisher.components[0] + 1e-3 * random.normal(size=(200, 3))
    for w in (wide, near, 1e9 * wide):
        assert (fisher.criterion(w) <= best * (1 + 1e-9)).all()


def test_agrees_with_scikit_learn_and_with_our_transformer():
    X, y = blobs(n_features=6, n_classes=4)
    fisher = FisherDiscriminant.from_moments(accumulate(X, y), 2)
    found = fisher.transform(X)
    ours = LinearDiscriminantAnalysis(n_components=2).fit(X, y).transform(X)
    np.testing.assert_allclose(found, ours, rtol=1e-9, atol=1e-9)
    theirs = ScikitLDA(solver="eigen", n_components=2).fit(X, y).transform(X)
    theirs = theirs - theirs.mean(axis=0)
    theirs *= found.std(axis=0) / theirs.std(axis=0)
    np.testing.assert_allclose(up_to_sign(found, theirs), theirs, rtol=1e-7, atol=1e-8)


def test_projected_moments_are_those_of_the_transformed_rows():
    X, y = blobs(n_features=6)
    moments = accumulate(X + 1e6, y)
    fisher = FisherDiscriminant.from_moments(moments)
    rows = fisher.transform(X + 1e6)
    projected, again = fisher.project(moments), accumulate(rows, y)
    np.testing.assert_allclose(projected.means, again.means, rtol=0, atol=1e-8)
    np.testing.assert_allclose(projected.covariance(), again.covariance(), rtol=0, atol=1e-8)
    plane = QuadraticDiscriminantAnalysis.from_moments(projected)
    expected = QuadraticDiscriminantAnalysis().fit(rows, y).predict(rows)
    np.testing.assert_array_equal(plane.predict(rows), expected)


def test_constant_features_have_no_weight():
    X, y = blobs()
    plain = FisherDiscriminant.from_moments(accumulate(X, y))
    wider = FisherDiscriminant.from_moments(accumulate(np.insert(X, 2, 5.0, axis=1), y))
    assert (wider.components[:, 2] == 0).all()
    np.testing.assert_allclose(np.delete(wider.components, 2, 1), plain.components, rtol=1e-12)
    assert np.isnan(wider.criterion([0, 0, 1, 0, 0]))


def test_shrinkage_makes_singular_covariances_regular():
    X, y = blobs()
    X = np.hstack([X, X[:, :1]])
    moments = accumulate(X, y)
    with pytest.raises(SingularCovarianceError):
        FisherDiscriminant.from_moments(moments)
    fisher = FisherDiscriminant.from_moments(moments, shrinkage=0.1)
    B, W = between_and_within(X, y)
    shrunk = 0.9 * W + 0.1 * np.trace(W) / 5 * np.eye(5)
    expected = linalg.eigh(B, shrunk)[1][:, :2:-1]
    found = up_to_sign(fisher.components.T, expected)
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("wanted", [0, 3, 1.5])
def test_more_components_than_there_are(wanted):
    with pytest.raises(InvalidParameterError, match="expected 1 to 2, the number of directions"):
        FisherDiscriminant.from_moments(accumulate(*blobs()), wanted)


def test_other_bad_input():
    fisher = FisherDiscriminant.from_moments(accumulate(*blobs()))
    for w in (np.zeros(3), np.zeros((1, 1, 4)), 1.0):
        with pytest.raises(InvalidParameterError, match="expected 4 numbers a direction"):
            fisher.criterion(w)
    with pytest.raises(MergeError, match="needs covariances between features"):
        fisher.project(accumulate(*blobs(), covariance_type="diag"))
