"""Squared distances: p-values, and a label for rows of no class."""

import naive
import numpy as np
import pytest
from grids import in_turn
from samples import KINDS, blobs, bytes_of, held
from scipy.stats import f

from streamgda import GaussianDiscriminantAnalysis, GaussianNB, QuadraticDiscriminantAnalysis
from streamgda.errors import InvalidParameterError

X, Y = blobs()
ROWS = blobs(seed=0, n_rows=400)[0]
ROWS[::5] += 40  # Some rows are far from all classes.
LEVELS = np.array([0.05, 0.01])


@pytest.mark.parametrize("weight", [None, 0.1])
@pytest.mark.parametrize("ddof", [0, 1])
@pytest.mark.parametrize("covariance_type", ["full", "tied", "spherical", "tied_spherical"])
def test_p_values_are_the_tail_of_f(covariance_type, ddof, weight):
    """Squared distances of fresh rows are Hotelling's, whatever the divisor and equal weights."""
    A, rows = X.copy(), ROWS.copy()
    A[:, 1] = rows[:, 1] = 3  # It is left out, and is no degree of freedom.
    weights = None if weight is None else np.full(len(Y), weight)
    how = {"ddof": ddof * (weight or 1)}
    with pytest.warns(match="constant"):
        fitted = GaussianDiscriminantAnalysis(covariance_type, **how).fit(A, Y, weights)
    n, d, tied = np.bincount(Y), 3, covariance_type.startswith("tied")
    nu = np.full(3, n.sum() - 3) if tied else n - 1
    divisor = nu if ddof else np.full(3, n.sum()) if tied else n
    t2 = fitted.mahalanobis(rows) * n / (n + 1) * nu / divisor
    if covariance_type.endswith("spherical"):
        expected = f.sf(t2 / d, d, nu * d)
    else:
        expected = f.sf(t2 * (nu - d + 1) / (nu * d), d, nu - d + 1)
    np.testing.assert_allclose(fitted.p_values(rows), expected, rtol=1e-9)
    assert expected.max() > 0.5
    assert expected.min() < 1e-6


def share_rejected_of(covariance_type, n, d, fits, **params):
    """Shares of fresh rows that are rejected at each level, and their standard errors."""
    random, y, shares = np.random.default_rng(n), np.repeat([0, 1], n), []
    mixing = np.tril(random.normal(size=(d, d))) + 3 * np.eye(d)
    if not covariance_type.endswith(("full", "tied")):
        mixing = np.diag(mixing.diagonal()) if covariance_type.endswith("diag") else np.eye(d)
    for _ in range(fits):
        A = random.normal(size=(y.size, d)) @ mixing.T
        fitted = GaussianDiscriminantAnalysis(covariance_type, **params).fit(A, y)
        found = fitted.p_values(random.normal(size=(500, d)) @ mixing.T)
        shares.append((found[:, :, None] < LEVELS).mean(axis=(0, 1)))
    return np.mean(shares, axis=0), np.std(shares, axis=0, ddof=1) / np.sqrt(fits)


@pytest.mark.parametrize("n", [15, 60, 1000])
@pytest.mark.parametrize("covariance_type", naive.COVARIANCE_TYPES)
def test_as_many_fresh_rows_are_rejected_as_promised(covariance_type, n):
    """Within standard errors where F is exact, and within a fifth of the level for variances."""
    found, error = share_rejected_of(covariance_type, n, 5, 300 if n < 1000 else 40)
    within = 0.2 if covariance_type.endswith("diag") else 0.0
    assert (np.abs(found - LEVELS) < within * LEVELS + 3 * error).all(), (found, error)


@pytest.mark.parametrize("how", [{"reg_param": 0.1}, {"shrinkage": 0.3}, {"pooling": 0.5}], ids=str)
def test_regularised_covariances_are_conservative(how):
    found, error = share_rejected_of("full", 20, 5, 200, **how)
    assert (found < LEVELS + 2 * error).all(), found


@in_turn(
    "covariance_type, dtype, reject",
    naive.COVARIANCE_TYPES,
    [np.float64, np.float32, np.uint8],
    [1e-6, 0.05, 0.6],
)
def test_rows_are_rejected_for_the_class_they_would_get(covariance_type, dtype, reject):
    A, rows = np.split(np.vstack([X, ROWS]), [len(X)])
    if dtype == np.uint8:
        A, rows = np.split(bytes_of(np.vstack([X, ROWS])), [len(X)])
    A, rows = A.astype(dtype), rows.astype(dtype)
    fitted = GaussianDiscriminantAnalysis(covariance_type, priors=[0.6, 0.3, 0.1]).fit(A, Y)
    best, found = fitted.predict(rows), fitted.predict(rows, reject=reject)
    own = fitted.p_values(rows)[np.arange(len(rows)), best]
    sure = np.abs(own / reject - 1) > 1e-3  # Rounding decides the others.
    assert sure.mean() > 0.98
    np.testing.assert_array_equal(found[sure], np.where(own < reject, -1, best)[sure])
    assert 0 < (found == -1).sum() < found.size


@pytest.mark.parametrize("kind", KINDS)
def test_rejection_on_every_kind_of_array(kind, tmp_path):
    fitted = QuadraticDiscriminantAnalysis().fit(X, np.array(["a", "bb", "c"])[Y])
    options = {"reject": 0.01, "reject_label": "none of them"}
    expected = fitted.predict(ROWS, **options)
    assert (expected[::5] == "none of them").all()
    assert set(expected) == {"a", "bb", "c", "none of them"}
    found = fitted.predict(held(ROWS, kind), **options)
    np.testing.assert_array_equal(np.asarray(found), expected, strict=True)
    stored = fitted.predict(held(ROWS, kind), out=tmp_path / "y", **options)
    np.testing.assert_array_equal(stored[:], expected)


@pytest.mark.parametrize(
    ("reject", "label", "message"),
    [
        (1.0, -1, "reject=1.0; expected a number from 0 to below 1"),
        (np.nan, -1, "reject=nan"),
        ("0.1", -1, "reject='0.1'"),
        (0.1, 2, "reject_label=2 is a class"),
        (0.1, "none", "reject_label='none': labels of dtype <U4 .* do not mix"),
    ],
)
def test_unusable_reject_levels_and_labels(reject, label, message):
    with pytest.raises(InvalidParameterError, match=message):
        GaussianNB().fit(X, Y).predict(X, reject=reject, reject_label=label)
