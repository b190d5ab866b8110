"""Outliers: p-values of distances, and a label for rows of no class."""

import naive
import numpy as np
import pytest
import zarr
from samples import KINDS, blobs, bytes_of, held
from scipy.stats import chi2

from streamgda import (
    GaussianDiscriminantAnalysis,
    GaussianNB,
    QuadraticDiscriminantAnalysis,
)
from streamgda.errors import InvalidParameterError


def with_outliers():
    """Rows to fit to, and others of which every fifth is far from all classes."""
    X, y = blobs()
    rows = blobs(seed=0, n_rows=400)[0]
    rows[::5] += 40
    return X, y, rows


@pytest.mark.parametrize("covariance_type", naive.COVARIANCE_TYPES)
def test_p_values_are_the_tail_of_chi_square(covariance_type):
    X, y, rows = with_outliers()
    X[:, 1] = rows[:, 1] = 3  # left out of the density, so no degree of freedom
    with pytest.warns(match="constant"):
        fitted = GaussianDiscriminantAnalysis(covariance_type).fit(X, y)
    expected = chi2.sf(fitted.mahalanobis(rows), 3)
    np.testing.assert_allclose(fitted.p_values(rows), expected, rtol=1e-12)
    assert expected.max() > 0.5
    assert expected.min() < 1e-6


def test_p_values_of_samples_are_uniform():
    fitted = QuadraticDiscriminantAnalysis().fit(*blobs())
    drawn, labels = fitted.sample(20_000, random_state=0)
    own = np.sort(fitted.p_values(drawn)[np.arange(labels.size), labels])
    np.testing.assert_allclose(own, np.linspace(0, 1, own.size), atol=0.012)  # Kolmogorov, 0.5 %


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
