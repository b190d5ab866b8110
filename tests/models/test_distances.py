"""Distances: p-values, a label for rows of no class, and distances relative to all rows."""

import naive
import numpy as np
import pytest
import zarr
from grids import in_turn
from samples import KINDS, blobs, bytes_of, held
from scipy.stats import f

from streamgda import (
    GaussianDiscriminantAnalysis,
    GaussianNB,
    QuadraticDiscriminantAnalysis,
)
from streamgda.errors import InvalidParameterError

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


def share_rejected_of(covariance_type, n, d, fits, **params):
    """Shares of fresh rows that are rejected at .05 and .01, and their standard errors."""
    random, levels = np.random.default_rng(n), np.array([0.05, 0.01])
    y, shares = np.repeat([0, 1], n), []
    mixing = np.tril(random.normal(size=(d, d))) + 3 * np.eye(d)
    if not covariance_type.endswith(("full", "tied")):
        mixing = np.diag(mixing.diagonal()) if covariance_type.endswith("diag") else np.eye(d)
    for _ in range(fits):
        X = random.normal(size=(y.size, d)) @ mixing.T
        fitted = GaussianDiscriminantAnalysis(covariance_type, **params).fit(X, y)
        found = fitted.p_values(random.normal(size=(500, d)) @ mixing.T)
        shares.append((found[:, :, None] < levels).mean(axis=(0, 1)))
    shares = np.array(shares)
    return shares.mean(axis=0), shares.std(axis=0, ddof=1) / np.sqrt(fits)


@pytest.mark.parametrize("n", [15, 60, 1000])
@pytest.mark.parametrize("covariance_type", naive.COVARIANCE_TYPES)
def test_as_many_fresh_rows_are_rejected_as_promised(covariance_type, n):
    """Within standard errors where F is exact, and within a fifth of the level for variances."""
    fits = 300 if n < 1000 else 40
    found, error = share_rejected_of(covariance_type, n, 5, fits)
    within = 0.2 if covariance_type.endswith("diag") else 0.0
    levels = np.array([0.05, 0.01])
    assert (np.abs(found - levels) < within * levels + 3 * error).all(), (found, error)


@pytest.mark.parametrize("how", [{"reg_param": 0.1}, {"shrinkage": 0.3}, {"pooling": 0.5}], ids=str)
def test_regularised_covariances_are_conservative(how):
    found, error = share_rejected_of("full", 20, 5, 200, **how)
    assert (found < np.array([0.05, 0.01]) + 2 * error).all(), found


@pytest.mark.parametrize("covariance_type", naive.COVARIANCE_TYPES)
def test_equal_weights_give_the_same_p_values(covariance_type):
    X, y, rows = with_outliers()
    plain = GaussianDiscriminantAnalysis(covariance_type).fit(X, y)
    weighted = GaussianDiscriminantAnalysis(covariance_type).fit(X, y, np.full(len(y), 0.1))
    np.testing.assert_allclose(weighted.p_values(rows), plain.p_values(rows), **CLOSE)


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
