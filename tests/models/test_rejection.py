"""Outliers: p-values of distances, and a label for rows of no class."""

import os
from dataclasses import replace

import naive
import numpy as np
import pytest
import zarr
from samples import KINDS, blobs, bytes_of, held
from scipy.stats import chi2, f
from sklearn.covariance import EmpiricalCovariance

from streamgda import (
    GaussianDiscriminantAnalysis,
    GaussianNB,
    QuadraticDiscriminantAnalysis,
)
from streamgda.errors import InvalidParameterError
from streamgda.models.distance_tails import SumOfF

THOROUGH = os.environ.get("STREAMGDA_TESTS") == "thorough"


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


@pytest.mark.parametrize("covariance_type", naive.COVARIANCE_TYPES)
@pytest.mark.parametrize(("n", "seed"), [(15, 1), (100, 2), (1000, 2)])
def test_as_many_fresh_rows_are_rejected_as_promised(covariance_type, n, seed):
    """Within two standard errors, for any number of rows; a few rows are learnt many times.

    With other seeds, one case in twenty is outside by chance.
    """
    fits, d = (1000, 8) if THOROUGH else (100, 5)
    n_classes = 2 if "tied" in covariance_type else max(2, 3000 // n)
    found = share_rejected(covariance_type, [n] * n_classes, d, fits, seed)
    assert (np.abs(found) < 2).all(), found


def test_thirty_features_and_a_hundred_rows_a_class():
    found = share_rejected("full", [100] * 30, 30, 30, seed=1)
    assert (np.abs(found) < 2).all(), found


@pytest.mark.parametrize("d", [1, 2, 7, 150])
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


def test_a_class_without_rows_has_no_p_value():
    X, y = blobs()
    fitted = GaussianNB().partial_fit(X, y, classes=[0, 1, 2, 5])
    assert np.isnan(fitted.p_values(X)[:, 3]).all()
    assert set(fitted.predict(X, reject=0.05)) <= {-1, 0, 1, 2}


@pytest.mark.parametrize("covariance_type", naive.COVARIANCE_TYPES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.uint8])
@pytest.mark.parametrize("reject", [1e-6, 0.05, 0.6])
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
def test_rejection_on_every_kind_of_array(kind):
    X, y, rows = with_outliers()
    names = np.array(["a", "bb", "c"])[y]
    fitted = QuadraticDiscriminantAnalysis().fit(X, names)
    expected = fitted.predict(rows, reject=0.01, reject_label="none of them")
    assert (expected[::5] == "none of them").all()
    assert set(expected) == {"a", "bb", "c", "none of them"}
    found = fitted.predict(held(rows, kind), reject=0.01, reject_label="none of them")
    np.testing.assert_array_equal(np.asarray(found), expected)
    assert found.dtype == expected.dtype


@pytest.mark.parametrize("labels", [np.uint8, np.int64, np.float64, str, bool])
def test_rejected_rows_in_zarr(labels, tmp_path):
    X, y, rows = with_outliers()
    y = (y > 1) if labels is bool else y
    fitted = QuadraticDiscriminantAnalysis().fit(X, y.astype(labels))
    label = "-1" if labels is str else -1
    expected = fitted.predict(rows, reject=0.01, reject_label=label)
    assert (expected[::5] == label).all()
    fitted.predict(held(rows, "zarr"), out=tmp_path / "y", reject=0.01, reject_label=label)
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "y")[:], expected)


def test_the_type_is_no_wider_than_it_must_be():
    X, y, rows = with_outliers()
    for labels, label, expected in (
        (np.uint8, -1, np.int16),
        (np.uint8, 255, np.uint8),
        (np.int64, -1, np.int64),
        (np.float32, -1, np.float32),
    ):
        fitted = GaussianNB().fit(X, y.astype(labels))
        assert fitted.predict(rows, reject=0.1, reject_label=label).dtype == expected
        assert fitted.predict(rows, reject=0).dtype == labels


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
