"""Distances: p-values, a label for rows of no class, and distances relative to all rows."""

from dataclasses import replace

import naive
import numpy as np
import pytest
import zarr
from grids import THOROUGH, in_turn
from samples import KINDS, blobs, bytes_of, held
from scipy.stats import chi2, f
from sklearn import datasets
from sklearn.covariance import EmpiricalCovariance, LedoitWolf

from streamgda import (
    ClassMoments,
    GaussianDiscriminantAnalysis,
    GaussianModel,
    GaussianNB,
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
)
from streamgda.errors import InvalidParameterError, SingularCovarianceError
from streamgda.models.covariance import Regularisation
from streamgda.models.distance_tails import SumOfF, tail_of
from streamgda.moments.covariance_types import structure_of

EVERY_TYPE = pytest.mark.parametrize("covariance_type", naive.COVARIANCE_TYPES)
CLOSE = {"rtol": 1e-9, "atol": 1e-9}


def with_outliers():
    """Rows to fit to, and others of which every fifth is far from all classes."""
    X, y = blobs()
    rows = blobs(seed=0, n_rows=400)[0]
    rows[::5] += 40
    return X, y, rows


def unbiased_distances(fitted, rows, y, factor=1.0):
    """Squared distances in units of the covariance of a fresh row's distance from the mean."""
    n = np.bincount(y)
    return fitted.mahalanobis(rows) * n / (n + 1) * factor


@pytest.mark.parametrize("ddof", [0, 1])
@pytest.mark.parametrize("covariance_type", ["full", "tied", "spherical", "tied_spherical"])
def test_p_values_are_the_tail_of_f(covariance_type, ddof):
    """The squared distances of fresh rows are Hotelling's, whatever the divisor of covariances."""
    X, y, rows = with_outliers()
    X[:, 1] = rows[:, 1] = 3  # left out of the density, so no degree of freedom
    with pytest.warns(match="constant"):
        fitted = GaussianDiscriminantAnalysis(covariance_type, ddof=ddof).fit(X, y)
    n, d, tied = np.bincount(y), 3, covariance_type.startswith("tied")
    nu = np.full(3, n.sum() - 3) if tied else n - 1
    divisor = nu if ddof else np.full(3, n.sum()) if tied else n
    t2 = unbiased_distances(fitted, rows, y, nu / divisor)
    if covariance_type.endswith("spherical"):
        expected = f.sf(t2 / d, d, nu * d)
    else:
        expected = f.sf(t2 * (nu - d + 1) / (nu * d), d, nu - d + 1)
    np.testing.assert_allclose(fitted.p_values(rows), expected, rtol=1e-10)
    assert expected.max() > 0.5
    assert expected.min() < 1e-6


def share_rejected(covariance_type, sizes, d, fits, seed):
    """Shares of fresh rows rejected at .05, .01 and .001, less these, in standard errors."""
    random, levels = np.random.default_rng(seed), np.array([0.05, 0.01, 0.001])
    y, shares = np.repeat(np.arange(len(sizes)), sizes), []
    mixing = np.tril(random.normal(size=(d, d))) + 3 * np.eye(d)
    if not covariance_type.endswith(("full", "tied")):
        mixing = np.diag(mixing.diagonal()) if covariance_type.endswith("diag") else np.eye(d)
    for _ in range(fits):
        X = random.normal(size=(y.size, d)) @ mixing.T
        fitted = GaussianDiscriminantAnalysis(covariance_type).fit(X, y)
        found = fitted.p_values(random.normal(size=(500, d)) @ mixing.T)
        shares.append((found[:, :, None] < levels).mean(axis=(0, 1)))
    shares = np.array(shares)
    return (shares.mean(axis=0) - levels) / (shares.std(axis=0, ddof=1) / np.sqrt(fits))


@pytest.mark.thorough
@in_turn("covariance_type, sizes", naive.COVARIANCE_TYPES, [(15, 1), (1000, 3 if THOROUGH else 2)])
def test_as_many_fresh_rows_are_rejected_as_promised(covariance_type, sizes):
    """Within two standard errors, for any number of rows; a few rows are learnt many times.

    With other seeds, one case in twenty is outside by chance.
    """
    (n, seed), (fits, d) = sizes, (1000, 8) if THOROUGH else (100, 5)
    n_classes = 2 if "tied" in covariance_type else max(2, 1000 // n)
    found = share_rejected(covariance_type, [n] * n_classes, d, fits, seed)
    assert (np.abs(found) < 2).all(), found


@pytest.mark.parametrize("d", [1, 7, 150])
def test_sums_of_f(d):
    """They are F itself for one term, chi-square in the limit, and in between as simulated."""
    x = chi2.isf([0.99, 0.5, 0.1, 1e-3, 1e-6], d)
    tail = SumOfF(d, 1e9)
    np.testing.assert_allclose(tail.beyond(x), chi2.sf(x, d), rtol=1e-4)
    np.testing.assert_allclose([tail.limit(p) for p in chi2.sf(x, d)], x, rtol=1e-5)
    if d == 1:
        for nu in (1, 2.5, 14):
            x = f.isf([0.9, 0.1, 1e-3, 1e-8], 1, nu)
            np.testing.assert_allclose(SumOfF(1, nu).beyond(x), f.sf(x, 1, nu), rtol=0.05)
    for nu in (1, 4, 14):
        drawn = np.random.default_rng(0).standard_t(nu, size=(20_000, d)) ** 2
        p = np.sort(SumOfF(d, nu).beyond(drawn.sum(axis=1)))
        np.testing.assert_allclose(p, np.linspace(0, 1, p.size), atol=0.012)  # Kolmogorov, 0.5 %


@pytest.mark.parametrize("d", [3000, 100_000])
def test_sums_of_many_f(d):
    x = chi2.isf([0.99, 0.5, 0.1, 1e-3, 1e-6], d)
    np.testing.assert_allclose(SumOfF(d, 1e9).beyond(x), chi2.sf(x, d), rtol=1e-5)
    # The inverse of the characteristic function, a mean over denominators, along the real axis.
    logs, step = np.linspace(-24, 4, 500), 1e-3 / np.sqrt(d)
    weights = np.exp(2.5 * (logs - np.exp(logs)))
    t = step * (np.arange(3000) + 0.5)
    transform = (1 - 2j * t[:, None] * np.exp(-logs)) ** -0.5 @ (weights / weights.sum())
    x = 5 / 3 * d + np.sqrt(200 / 9 * d) * np.linspace(-3, 3, 20)
    parts = (np.exp(-1j * np.outer(x, t)) @ (transform**d / t)).imag
    np.testing.assert_allclose(SumOfF(d, 5.0).beyond(x), 0.5 + parts * step / np.pi, atol=1e-3)


def test_classes_of_equal_size_share_a_distribution():
    variances = structure_of("diag")
    assert tail_of(variances, 7, 19.0) is tail_of(variances, 7, 19.00000001)
    assert tail_of(variances, 7, 19.0) is not tail_of(variances, 7, 19.001)


def test_p_values_of_regularised_covariances():
    """They go from those of the rows alone to those of a covariance that is known."""
    X, y, rows = with_outliers()

    def p_values(**params):
        return GaussianDiscriminantAnalysis(**params).fit(X, y).p_values(rows)

    n = np.bincount(y)
    for options in ({"reg_param": 1e-9}, {"shrinkage": 1e-9}, {"pooling": 1e-9}):
        np.testing.assert_allclose(p_values(**options), p_values(), rtol=1e-5, atol=1e-30)
    np.testing.assert_allclose(p_values(pooling=1), p_values(covariance_type="tied"), rtol=1e-9)
    fitted = GaussianDiscriminantAnalysis(reg_param=1).fit(X, y)
    expected = chi2.sf(fitted.mahalanobis(rows) * n / (n + 1), 4)
    np.testing.assert_allclose(fitted.p_values(rows), expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("covariance_type", "options"),
    [
        ("diag", {"shrinkage": 0.5}),
        ("diag", {"shrinkage": 0.9}),
        ("diag", {"shrinkage": 0.9, "standardize": True}),
        ("full", {"shrinkage": 0.9}),
        ("full", {"shrinkage": 0.9, "standardize": True}),
        ("full", {"shrinkage": "oas"}),
        ("full", {"shrinkage": "auto"}),
    ],
)
def test_shrunk_covariances_reject_as_many_fresh_rows_as_promised(covariance_type, options):
    """Where the mean variance counted as known, two to ten times as many were, and more."""
    random = np.random.default_rng(0)
    rejected = []
    for n in (8, 50):
        y = np.repeat(np.arange(2), n)
        for _ in range(100):
            fitted = GaussianDiscriminantAnalysis(covariance_type, **options)
            fitted.fit(random.normal(size=(2 * n, 5)), y)
            p = fitted.p_values(random.normal(size=(300, 5)))
            rejected.append([(p < 0.01).mean(), (p < 0.001).mean()])
    few, many = np.reshape(rejected, (2, 100, 2)).mean(axis=1)
    assert (few < [0.02, 0.004]).all()
    assert (many > [0.008, 0.0004]).all()
    assert (many < [0.0125, 0.002]).all()


def test_shrinking_the_variance_of_one_feature_changes_no_p_value():
    X, y, rows = with_outliers()
    plain, shrunk = (
        GaussianDiscriminantAnalysis(shrinkage=a).fit(X[:, :1], y).p_values(rows[:, :1])
        for a in (None, 0.7)
    )
    np.testing.assert_allclose(shrunk, plain, rtol=1e-9)


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag"])
def test_equal_weights_give_the_same_p_values(covariance_type):
    X, y, rows = with_outliers()
    plain, weighted = (
        GaussianDiscriminantAnalysis(covariance_type).fit(X, y, w) for w in (None, np.full(300, 3))
    )
    np.testing.assert_allclose(weighted.p_values(rows), plain.p_values(rows), rtol=1e-6, atol=1e-99)


def test_covariance_estimators_count_as_known():
    X, y, rows = with_outliers()
    estimator = EmpiricalCovariance()
    fitted = QuadraticDiscriminantAnalysis(solver="eigen", covariance_estimator=estimator)
    fitted.fit(X, y)
    expected = chi2.sf(fitted.mahalanobis(rows), 4)
    np.testing.assert_allclose(fitted.p_values(rows), expected, rtol=1e-9)


def test_too_few_rows_have_no_p_values():
    """A covariance that is regularised may have fewer degrees of freedom than features."""
    X, y, rows = with_outliers()
    some = np.append(np.flatnonzero(y == 0)[:4], np.flatnonzero(y > 0))
    fitted = QuadraticDiscriminantAnalysis(reg_param=1e-6).fit(X[some], y[some])
    p_values = fitted.p_values(rows)
    assert np.isnan(p_values[:, 0]).all()
    assert np.isfinite(p_values[:, 1:]).all()
    with pytest.raises(
        InvalidParameterError, match=r"class 0 .* 3 degrees of freedom, too few for 4"
    ):
        fitted.predict(rows, reject=0.01)


def test_files_without_degrees_of_freedom_give_the_same_p_values(tmp_path):
    """The moments beside the model tell; a model alone counts as known."""
    X, y, rows = with_outliers()
    fitted = GaussianDiscriminantAnalysis("tied", shrinkage=0.1).fit(X, y)
    expected = fitted.p_values(rows), fitted.predict(rows, reject=0.01)
    fitted._derived["model"] = replace(fitted.model_, degrees=None, unbiased=None)
    fitted.save(tmp_path / "old.zip")
    loaded = GaussianDiscriminantAnalysis.load(tmp_path / "old.zip")
    np.testing.assert_array_equal(loaded.p_values(rows), expected[0])
    np.testing.assert_array_equal(loaded.predict(rows, reject=0.01), expected[1])
    known = loaded.model_.p_values(rows)
    np.testing.assert_allclose(known, chi2.sf(loaded.mahalanobis(rows), 4), rtol=1e-9)


@in_turn(
    "covariance_type, dtype, reject",
    naive.COVARIANCE_TYPES,
    [np.float64, np.float32, np.uint8],
    [1e-6, 0.05, 0.6],
)
def test_rows_are_rejected_for_the_class_they_would_get(covariance_type, dtype, reject):
    X, y, rows = with_outliers()
    if dtype == np.uint8:
        X, rows = np.split(bytes_of(np.vstack([X, rows])), [len(X)])
    fitted = GaussianDiscriminantAnalysis(covariance_type, priors=[0.6, 0.3, 0.1])
    fitted.fit(X.astype(dtype), y)
    rows = rows.astype(dtype)
    best, found = fitted.predict(rows), fitted.predict(rows, reject=reject)
    own = fitted.p_values(rows)[np.arange(len(rows)), best]
    sure = np.abs(own / reject - 1) > 1e-3  # otherwise rounding decides
    assert sure.mean() > 0.98
    np.testing.assert_array_equal(found[sure], np.where(own < reject, -1, best)[sure])
    assert 0 < (found == -1).sum() < found.size


@pytest.mark.parametrize("kind", KINDS)
def test_rejection_on_every_kind_of_array(kind, tmp_path):
    X, y, rows = with_outliers()
    names = np.array(["a", "bb", "c"])[y]
    fitted = QuadraticDiscriminantAnalysis().fit(X, names)
    expected = fitted.predict(rows, reject=0.01, reject_label="none of them")
    assert (expected[::5] == "none of them").all()
    assert set(expected) == {"a", "bb", "c", "none of them"}
    found = fitted.predict(held(rows, kind), reject=0.01, reject_label="none of them")
    np.testing.assert_array_equal(np.asarray(found), expected)
    assert found.dtype == expected.dtype
    if kind == "zarr":
        options = {"reject": 0.01, "reject_label": "none of them"}
        fitted.predict(held(rows, kind), out=tmp_path / "y", **options)
        np.testing.assert_array_equal(zarr.open_array(tmp_path / "y")[:], expected)


@pytest.mark.parametrize(
    ("reject", "label", "message"),
    [
        (1.0, -1, "reject=1.0; expected a number from 0 to below 1"),
        (-0.1, -1, "reject=-0.1"),
        (np.nan, -1, "reject=nan"),
        ("0.1", -1, "reject='0.1'"),
        (0.1, 2, "reject_label=2 is a class"),
        (0.1, "none", "reject_label='none': labels of dtype <U4 .* do not mix"),
        (0.1, 0.5, "reject_label=0.5"),
    ],
)
def test_unusable_reject_levels_and_labels(reject, label, message):
    X, y = blobs()
    with pytest.raises(InvalidParameterError, match=message):
        GaussianNB().fit(X, y).predict(X, reject=reject, reject_label=label)


# --- relative distances ---------------------------------------------------------------------------


def fit(covariance_type, X, y, **params):
    return GaussianDiscriminantAnalysis(covariance_type, **params).fit(X, y)


# --- against the oracle ---------------------------------------------------------------------------


@EVERY_TYPE
@pytest.mark.parametrize(
    "regularisation",
    [
        {},
        {"shrinkage": 0.2, "reg_param": 0.1, "ddof": 1},
        {"standardize": True, "reg_param": 0.3, "var_smoothing": 0.1},
    ],
    ids=str,
)
def test_differences_are_those_of_the_oracle(covariance_type, regularisation):
    X, y = blobs()
    rows = X[:20] + 1
    for weights in (None, np.random.default_rng(1).integers(0, 4, len(y)).astype(float)):
        fitted = GaussianDiscriminantAnalysis(covariance_type, **regularisation).fit(X, y, weights)
        found, how = fitted.relative_mahalanobis(rows), regularisation | {"weights": weights}
        expected = naive.relative_mahalanobis(X, y, rows, covariance_type, **how)
        np.testing.assert_allclose(found, expected, **CLOSE)
        assert (expected < 0).any()


@pytest.mark.parametrize("rule", ["oas"])
@pytest.mark.parametrize("covariance_type", ["full", "tied"])
def test_rules_of_shrinkage_apply_to_all_rows_together(rule, covariance_type):
    X, y = blobs()
    fitted = fit(covariance_type, X, y, shrinkage=rule)
    rows, zeros = X[:20], np.zeros(len(y))
    centred = X - X.mean(axis=0)
    amount = naive.oas(centred)
    S = naive.regularised_covariances(X, zeros, shrinkage=amount)
    expected = naive.squared_mahalanobis(rows, naive.moments(X, zeros).means, S)
    found = fitted.mahalanobis(rows) - fitted.relative_mahalanobis(rows)
    np.testing.assert_allclose(found, np.repeat(expected, 3, axis=1), **CLOSE)


@pytest.mark.parametrize(("rule", "standardize"), [("auto", False)])
@pytest.mark.parametrize("covariance_type", ["full", "tied"])
def test_amounts_of_second_passes_are_averaged(rule, standardize, covariance_type):
    X, y = blobs()
    params = {"shrinkage": rule, "standardize": standardize, "reg_param": 0.1}
    fitted = fit(covariance_type, X, y, **params)
    weights = fitted.class_count_ if fitted.shrinkage_.size > 1 else None
    amount = np.average(fitted.shrinkage_, weights=weights)
    rows, zeros, scale = X[:20], np.zeros(len(y)), X.std(axis=0)
    unit = scale if standardize else np.ones(4)  # of what reg_param adds
    S = naive.regularised_covariances(X / scale, zeros, shrinkage=amount)[0]
    S = 0.9 * S * np.outer(scale, scale) + 0.1 * np.diag(unit**2)
    expected = naive.squared_mahalanobis(rows, naive.moments(X, zeros).means, S[None])
    found = fitted.mahalanobis(rows) - fitted.relative_mahalanobis(rows)
    np.testing.assert_allclose(found, np.repeat(expected, 3, axis=1), **CLOSE)


@pytest.mark.parametrize(
    ("kind", "solver"),
    [
        (LinearDiscriminantAnalysis, "lsqr"),
        (LinearDiscriminantAnalysis, "eigen"),
        (QuadraticDiscriminantAnalysis, "eigen"),
    ],
)
def test_covariance_estimators_see_all_rows_together(kind, solver):
    X, y = blobs()
    fitted = kind(solver=solver, covariance_estimator=LedoitWolf()).fit(X, y)
    other = LedoitWolf().fit(X)
    found = fitted.mahalanobis(X) - fitted.relative_mahalanobis(X)
    expected = np.repeat(other.mahalanobis(X)[:, None], 3, axis=1)
    np.testing.assert_allclose(found, expected, **CLOSE)


# --- directions and classes that are left out -----------------------------------------------------


def test_directions_that_lda_drops_are_left_out_of_both_distances():
    X, y = datasets.load_iris(return_X_y=True)
    wide = np.column_stack([X, 3 * X[:, 0], y])  # a copy, and one that varies only between classes
    with pytest.warns(match="2 of 6 directions"):
        fitted = LinearDiscriminantAnalysis().fit(wide, y)
    plain = LinearDiscriminantAnalysis().fit(X, y)
    rows = wide[::5] + np.eye(6)[5]
    found, expected = fitted.relative_mahalanobis(rows), plain.relative_mahalanobis(X[::5])
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-7)


@EVERY_TYPE
def test_classes_without_rows_have_no_distance(covariance_type):
    X, y = blobs()
    expected = fit(covariance_type, X, y).relative_mahalanobis(X)
    moments = ClassMoments(covariance_type).update(X, y).declare([-1, 5])
    fitted = GaussianDiscriminantAnalysis.from_moments(moments, covariance_type=covariance_type)
    found = fitted.relative_mahalanobis(X)
    for values in (found, fitted.p_values(X)):
        assert np.isnan(values[:, [0, 4]]).all()
    assert set(fitted.predict(X, reject=0.05, reject_label=-7)) <= {-7, 0, 1, 2}
    np.testing.assert_allclose(found[:, 1:4], expected, rtol=1e-12, atol=1e-10)


@pytest.mark.parametrize("covariance_type", ["full", "tied"])
def test_classes_may_be_far_apart(covariance_type):
    X, y = blobs()
    X += np.array([0, 1e5, -2e5])[y][:, None]  # their correlations are within 1e-8 of one
    fitted = fit(covariance_type, X, y)
    expected = naive.relative_mahalanobis(X, y, X[:20], covariance_type)
    np.testing.assert_allclose(fitted.relative_mahalanobis(X[:20]), expected, rtol=1e-5, atol=1e-3)
    X += np.array([0, 1e12, -2e12])[y][:, None]
    with pytest.raises(SingularCovarianceError, match="all rows is singular to rounding"):
        fit(covariance_type, X, y).relative_mahalanobis(X)


# --- models ---------------------------------------------------------------------------------------


def test_the_gaussian_of_all_rows_is_a_model_that_can_be_saved(tmp_path):
    X, y = blobs()
    moments, how = ClassMoments().update(X, y), Regularisation()
    model = GaussianModel.from_moments(moments, "full", how)
    model.background(moments, how).save(tmp_path / "all.zip")
    loaded = GaussianModel.load(tmp_path / "all.zip")
    expected = QuadraticDiscriminantAnalysis().fit(X, y).relative_mahalanobis(X)
    found = model.relative_mahalanobis(X, background=loaded)
    np.testing.assert_allclose(found, expected, **CLOSE)


def test_other_backgrounds_are_refused():
    X, y = blobs()
    moments, how = ClassMoments().update(X, y), Regularisation()
    model = GaussianModel.from_moments(moments, "full", how)
    with pytest.raises(TypeError, match="background is None; expected a GaussianModel"):
        model.relative_mahalanobis(X, background=None)
    whole = model.background(moments, how)
    narrower = replace(whole, features=whole.features[:2], roots=whole.roots[:, :2, :2])
    for other, what in (model, "3 class"), (narrower, "1 class.* and 2 features"):
        with pytest.raises(InvalidParameterError, match=f"the background has {what}"):
            model.relative_mahalanobis(X, background=other)


# --- many classes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_one_root_serves_many_wide_classes(dtype):
    X, y = blobs(600, 100, n_classes=5)
    X = (X + 1e3).astype(dtype)
    fitted = fit("tied", X.astype(float), y)
    rows = X[:20]
    S = naive.regularised_covariances(X.astype(float), y, "tied")
    expected = naive.squared_mahalanobis(rows.astype(float), fitted.means_, S)
    rtol = 1e-9 if dtype == np.float64 else 1e-5
    np.testing.assert_allclose(fitted.mahalanobis(rows), expected, rtol=rtol)
