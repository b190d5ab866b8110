"""Regularised covariances from moments; singular covariances and constant features."""

import naive
import numpy as np
import pytest
from moment_checks import matrices
from samples import blobs
from sklearn import covariance
from sklearn.preprocessing import StandardScaler

from streamgda import (
    ClassMoments,
    GaussianDiscriminantAnalysis,
    GaussianNB,
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
)
from streamgda.errors import (
    ConstantFeatureWarning,
    InvalidDataError,
    InvalidParameterError,
    SingularCovarianceError,
)

EVERY_TYPE = pytest.mark.parametrize("covariance_type", naive.COVARIANCE_TYPES)

REGULARISATIONS = [
    {},
    {"ddof": 1},
    {"pooling": 0.3},
    {"pooling": 1.0},
    {"shrinkage": 0.2},
    {"shrinkage": 1.0},
    {"reg_param": 0.1},
    {"reg_param": 1.0},
    {"var_smoothing": 0.5},
    {"ddof": 1, "pooling": 0.4, "shrinkage": 0.3, "reg_param": 0.2, "var_smoothing": 0.1},
]


# --- values -----------------------------------------------------------------------------------


@EVERY_TYPE
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("how", REGULARISATIONS, ids=lambda how: "+".join(how) or "none")
def test_regularised_covariances(covariance_type, how, weighted):
    X, y = blobs(200, 5)
    X *= np.array([1, 3, 0.2, 10, 1])
    weights = np.random.default_rng(1).uniform(1, 3, len(X)) if weighted else None
    expected = naive.regularised_covariances(X, y, covariance_type, weights=weights, **how)
    moments = ClassMoments(covariance_type).update(X, y, weights)
    kind = GaussianDiscriminantAnalysis
    fitted = kind.from_moments(moments, covariance_type=covariance_type, **how)
    # The moments have a matrix for each class.
    changed = kind().partial_fit(X, y, sample_weight=weights)
    changed.set_params(covariance_type=covariance_type, **how)
    for estimator in (fitted, changed):
        found = matrices(estimator.covariance_, covariance_type, 5)
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@EVERY_TYPE
@pytest.mark.parametrize("offset", [0.0, 1e9])
def test_scores_are_those_of_the_formula(covariance_type, offset):
    X, y = blobs(150, 4)
    X = np.round(X * 64) / 64 + offset  # These values are exact at the offset.
    gda = GaussianDiscriminantAnalysis(covariance_type, priors=[0.2, 0.5, 0.3]).fit(X, y)
    _, expected = naive.gaussian_classifier(
        *(X - offset, y, X[:30] - offset, covariance_type), priors=[0.2, 0.5, 0.3]
    )
    np.testing.assert_allclose(gda.predict_joint_log_proba(X[:30]), expected, rtol=1e-10)
    np.testing.assert_allclose(
        gda.predict_proba(X[:30]), naive.posterior(expected), rtol=1e-9, atol=1e-12
    )
    np.testing.assert_allclose(gda.score_samples(X[:30]), naive.log_density(expected), rtol=1e-10)


@pytest.mark.parametrize("d", [3, 8, 13, 40])
@pytest.mark.parametrize("dtype", ["f8", "f4", "u1", "i2", "f2", ">f8"])
def test_rows_of_any_type_and_width(d, dtype):
    X, y = blobs(2000, d)
    X = (np.round(20 * X / np.abs(X).max() * 5) + 120).astype(dtype)
    for estimator in (QuadraticDiscriminantAnalysis(), LinearDiscriminantAnalysis()):
        fitted = estimator.fit(X.astype(float), y)
        expected = fitted.predict_log_proba(X.astype(float))
        atol = 1e-9 if dtype in ("f8", ">f8") or d <= 12 else 1e-3
        np.testing.assert_allclose(fitted.predict_log_proba(X), expected, atol=atol, rtol=1e-4)


# --- shrinkage by rules -----------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("covariance_type", ["full", "tied"])
def test_oas_is_that_of_rows_less_their_class_means(covariance_type, weighted):
    X, y = blobs(90, 5)
    weights = np.random.default_rng(0).uniform(0.5, 2, len(X)) if weighted else None
    gda = GaussianDiscriminantAnalysis(covariance_type, shrinkage="oas").fit(X, y, weights)
    rows = X - naive.moments(X, y, weights).means[y]
    parts = [np.ones(len(y), bool)] if covariance_type == "tied" else [y == k for k in range(3)]
    expected = [naive.oas(rows[p], None if weights is None else weights[p]) for p in parts]
    np.testing.assert_allclose(gda.shrinkage_, expected, rtol=1e-10)
    stream = GaussianDiscriminantAnalysis(covariance_type, shrinkage="oas")
    for part in (slice(0, 40), slice(40, 90)):
        w = None if weights is None else weights[part]
        stream.partial_fit(X[part], y[part], sample_weight=w)
    np.testing.assert_allclose(stream.predict_proba(X), gda.predict_proba(X), atol=1e-12)
    if not weighted:
        theirs = [covariance.oas(rows[p], assume_centered=True)[1] for p in parts]
        np.testing.assert_allclose(gda.shrinkage_, theirs, rtol=1e-10)


def test_a_pooled_covariance_averages_those_that_auto_shrinks():
    X, y = blobs(90, 5)
    X *= np.logspace(-3, 3, 5)
    X[y == 1, 2] = 7.0  # It is constant within a class.
    qda = QuadraticDiscriminantAnalysis(solver="eigen", shrinkage="auto", store_covariance=True)
    qda.fit(X, y)
    for k in range(3):
        rows = StandardScaler().fit_transform(X[y == k])
        scale = np.where(X[y == k].std(axis=0) > 0, X[y == k].std(axis=0), 1.0)
        S, amount = covariance.ledoit_wolf(rows)
        assert qda.shrinkage_[k] == pytest.approx(amount, rel=1e-10)
        np.testing.assert_allclose(qda.covariance_[k], S * np.outer(scale, scale), rtol=1e-10)
    priors = np.array([0.5, 0.2, 0.3])
    tied = GaussianDiscriminantAnalysis("tied", shrinkage="auto", priors=priors).fit(X, y)
    average = np.tensordot(priors, qda.covariance_, 1)
    np.testing.assert_allclose(tied.covariance_, average, rtol=1e-10)
    with pytest.raises(InvalidParameterError, match="takes no sample_weight"):
        tied.fit(X, y, np.ones(90))


def test_rules_that_do_not_apply():
    X, y = blobs()
    for params, message in (
        ({"covariance_type": "diag", "shrinkage": "oas"}, "got covariance_type='diag'"),
        ({"pooling": 0.5, "shrinkage": "oas"}, "pooling=0.5"),
        ({"shrinkage": "ledoit_wolf"}, "'auto' or 'oas'"),
    ):
        with pytest.raises(InvalidParameterError, match=message):
            GaussianDiscriminantAnalysis(**params).fit(X, y)


# --- singular covariances ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("covariance_type", "message"),
    [
        ("full", r"class 0 \(rank 3 of 4.*class 1 \(rank 3 of 4.*class 2 \(rank 3 of 4"),
        ("tied", r"class 0 \(rank 3 of 4"),
    ],
)
@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_collinear_features_raise_in_any_unit(covariance_type, message, scale):
    X, y = blobs(200, 3)
    X = scale * np.column_stack([X, 2 * X[:, 0] - X[:, 1]]) * np.array([1, 1, 1, 1e-5])
    with pytest.raises(SingularCovarianceError, match=message) as caught:
        GaussianDiscriminantAnalysis(covariance_type).fit(X, y)
    assert isinstance(caught.value, np.linalg.LinAlgError)
    GaussianDiscriminantAnalysis("diag").fit(X, y)


@pytest.mark.parametrize("covariance_type", ["diag", "tied_diag", "spherical", "tied_spherical"])
def test_variances_of_zero_raise(covariance_type):
    # Each class has its own constant value, so no feature is constant over all rows.
    X, y = np.repeat([[0.0, 0.0], [1.0, 2.0]], 5, axis=0), np.repeat([0, 1], 5)
    if covariance_type.endswith("diag"):
        X[:, 1] = np.arange(10)
    with pytest.raises(SingularCovarianceError, match=r"rank [01] of 2"):
        GaussianDiscriminantAnalysis(covariance_type).fit(X, y)


@EVERY_TYPE
def test_variances_without_a_finite_inverse_raise(covariance_type):
    X, y = blobs(200, 3)
    expected = GaussianDiscriminantAnalysis(covariance_type).fit(X, y).predict(X)
    found = GaussianDiscriminantAnalysis(covariance_type).fit(X * 1e-150, y).predict(X * 1e-150)
    np.testing.assert_array_equal(found, expected)
    with pytest.raises(SingularCovarianceError, match="rank 0 of 3"):
        GaussianDiscriminantAnalysis(covariance_type).fit(X * 1e-156, y)


@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1e6, 1e12])
@pytest.mark.parametrize("make", [QuadraticDiscriminantAnalysis, LinearDiscriminantAnalysis])
def test_the_unit_of_a_feature_does_not_make_it_singular(make, scale):
    X, y = blobs(200, 4)
    one_small = X * np.array([1, scale, 1, 1])
    expected = make().fit(X, y).predict_proba(X)
    for scaled in (X * scale, one_small):
        np.testing.assert_allclose(make().fit(scaled, y).predict_proba(scaled), expected, atol=1e-9)


def test_tol_moves_the_limit():
    X, y = blobs(4000, 2)
    noise = np.random.default_rng(1).normal(size=len(X))
    X = np.column_stack([X, X[:, 0] + 1e-3 * noise])
    QuadraticDiscriminantAnalysis(tol=1e-4).fit(X, y)
    with pytest.raises(SingularCovarianceError):
        QuadraticDiscriminantAnalysis(tol=1e-2).fit(X, y)


# --- constant features ------------------------------------------------------------------------

ESTIMATORS = [
    *(
        pytest.param(lambda t=t: GaussianDiscriminantAnalysis(t), id=t)
        for t in naive.COVARIANCE_TYPES
    ),
    pytest.param(QuadraticDiscriminantAnalysis, id="QDA"),
    pytest.param(LinearDiscriminantAnalysis, id="LDA"),
    pytest.param(lambda: GaussianNB(var_smoothing=0), id="GaussianNB"),
]


@pytest.mark.parametrize("make", ESTIMATORS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.uint8])
def test_constant_features_are_left_out_and_put_back_when_sampling(make, dtype):
    X, y = blobs(200, 4)
    X = (np.round(10 * X) + 128).astype(dtype)
    with_constant = np.insert(X, [1, 4], [[7, 0.1 if dtype != np.uint8 else 200]], axis=1)
    plain = make().fit(X, y)
    with pytest.warns(ConstantFeatureWarning, match=r"2 of 6 features .*: 1, 5$") as caught:
        fitted = make().fit(with_constant, y)
    assert len(caught) == 1
    assert fitted.constant_features_.tolist() == [1, 5]
    # The values of rows there change nothing.
    scored = with_constant.copy()
    scored[:, 1] = 0
    for method in ("predict", "predict_proba", "score_samples", "mahalanobis"):
        found, expected = getattr(fitted, method)(scored), getattr(plain, method)(X)
        np.testing.assert_allclose(found, expected, rtol=1e-12)  # Sums are in another order.
    drawn, _ = fitted.sample(20, random_state=0)
    assert (drawn[:, [1, 5]] == with_constant[0, [1, 5]]).all()
    np.testing.assert_array_equal(np.delete(drawn, [1, 5], 1), plain.sample(20, random_state=0)[0])


def test_fit_reports_constant_features_and_streams_do_not():
    X, y = blobs(200, 3)
    X[:, 1:] = 3.0, -1.0
    gda = GaussianDiscriminantAnalysis().partial_fit(X, y)
    assert gda.predict(X).size == 200
    assert gda.constant_features_.tolist() == [1, 2]
    with pytest.warns(ConstantFeatureWarning, match=r"2 of 3 features .*: 1, 2$") as caught:
        gda.fit(X, y)
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_a_feature_that_starts_to_vary_is_taken_in():
    X, y = blobs(200, 3)
    X[:100, 1] = 3.0
    with pytest.warns(ConstantFeatureWarning):
        gda = GaussianDiscriminantAnalysis("full").fit(X[:100], y[:100])
    gda.partial_fit(X[100:], y[100:])
    assert gda.constant_features_.size == 0
    expected = GaussianDiscriminantAnalysis("full").fit(X, y).predict_proba(X)
    np.testing.assert_allclose(gda.predict_proba(X), expected, atol=1e-12)


def test_all_features_constant_is_an_error():
    with pytest.raises(InvalidDataError, match="all 2 features are constant"):
        GaussianDiscriminantAnalysis().fit(np.ones((6, 2)), [0, 1, 0, 1, 0, 1])


@EVERY_TYPE
def test_covariance_attributes_are_those_of_the_density(covariance_type):
    X, y = blobs(200, 4)
    X[:, 1] = 3.0
    gda = GaussianDiscriminantAnalysis(covariance_type, shrinkage=0.3, var_smoothing=0.1)
    with pytest.warns(ConstantFeatureWarning):
        gda.fit(X, y)
    rows, varying = X[:20], [0, 2, 3]
    S = matrices(gda.covariance_, covariance_type, 4)[:, varying][:, :, varying]
    expected = naive.squared_mahalanobis(rows[:, varying], gda.means_[:, varying], S)
    np.testing.assert_allclose(gda.mahalanobis(rows), expected, rtol=1e-9)
