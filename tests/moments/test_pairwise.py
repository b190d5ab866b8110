"""Missing values: pairwise complete moments against pandas, and models fitted to them."""

import dask
import naive
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from moment_checks import assert_moments
from samples import KINDS, bits, blobs, held

from streamgda import (
    PairwiseMoments,
    QuadraticDiscriminantAnalysis,
    accumulate,
)
from streamgda.errors import (
    InvalidDataError,
    InvalidParameterError,
    MemoryBudgetError,
    MergeError,
)
from streamgda.runtime.memory import readable


def gappy(n=300, d=4, share=0.3, seed=0, offset=0.0):
    X, y = blobs(n, d, seed=seed)
    X = X + offset
    X[np.random.default_rng(seed + 100).random(X.shape) < share] = np.nan
    return X, y


def assert_as_pandas_says(moments, X, y, rtol=1e-12):
    frame = pd.DataFrame(X)
    for k, label in enumerate(moments.classes):
        rows = frame[y == label]
        there = rows.notna().to_numpy(float)
        n = there.T @ there
        expected = rows.cov().to_numpy()  # It ignores ddof if values are missing.
        scale = np.nanmax(np.abs(expected))
        with np.errstate(divide="ignore", invalid="ignore"):
            biased = np.where(n > 1, expected * (n - 1) / n, np.where(n == 1, 0, np.nan))
        for found, wanted in (
            (moments.covariance(1)[k], expected),
            (moments.covariance()[k], biased),
        ):
            np.testing.assert_allclose(found, wanted, rtol=0, atol=rtol * scale)
        np.testing.assert_allclose(moments.means[k], rows.mean(), rtol=1e-12)
        np.testing.assert_array_equal(moments.pair_count[k], n)
        assert moments.class_count[k] == len(rows)


@given(
    cuts=st.sets(st.integers(1, 299), max_size=6),
    seed=st.integers(0, 3),
    share=st.sampled_from([0.0, 0.3, 0.7]),
)
def test_any_chunks_give_the_result_of_pandas(cuts, seed, share):
    X, y = gappy(seed=seed, share=share)
    whole, parts = PairwiseMoments(), []
    for rows in np.split(np.arange(300), sorted(cuts)):
        whole.update(X[rows], y[rows])
        parts.append(PairwiseMoments().update(X[rows], y[rows]))
    assert_as_pandas_says(whole, X, y)
    assert_as_pandas_says(sum(parts[1:], parts[0]), X, y)
    assert_as_pandas_says(parts[0] + PairwiseMoments() if not cuts else whole, X, y)


@pytest.mark.parametrize("n", [300, 300_000])  # Rows make one block, or several.
def test_far_from_zero(n):
    X, y = gappy(n, offset=2.0**27)
    near = PairwiseMoments().update(X - 2.0**27, y)
    far = PairwiseMoments().update(X[:100], y[:100]).update(X[100:], y[100:])
    np.testing.assert_allclose(far.covariance(), near.covariance(), rtol=0, atol=1e-11)
    moments = far.to_moments()
    np.testing.assert_allclose(moments.means, near.means + 2.0**27, rtol=1e-15)
    moved = moments.project(np.eye(4), np.full(4, 2.0**27))  # Means have two parts.
    np.testing.assert_allclose(moved.means, near.means, rtol=0, atol=1e-12)


def test_sums_that_are_not_there_at_first():
    X, y = gappy()
    X[:120, 2] = np.nan  # No row has it at first.
    X[(y == 0) & ~np.isnan(X[:, 1]), 3] = np.nan
    moments = PairwiseMoments()
    for start in range(0, 300, 30):
        moments.update(X[start : start + 30], y[start : start + 30])
    assert_as_pandas_says(moments, X, y)
    assert np.isnan(moments.covariance()[0, 1, 3])
    assert moments.to_moments().covariance()[0, 1, 3] == pytest.approx(0, abs=0.1)


@pytest.mark.parametrize("covariance_type", naive.COVARIANCE_TYPES)
@pytest.mark.parametrize("weighted", [False, True])
def test_complete_rows_are_as_class_moments(covariance_type, weighted):
    X, y = blobs()
    weights = np.random.default_rng(0).uniform(0, 2, 300) if weighted else None
    moments = PairwiseMoments().update(X, y, weights).to_moments(covariance_type)
    assert_moments(moments, X, y, weights, rtol=1e-11)


def test_integer_weights_are_repetitions():
    X, y = gappy()
    weights = np.random.default_rng(0).integers(0, 4, 300)
    weighted = PairwiseMoments().update(X, y, weights)
    assert_as_pandas_says(weighted, np.repeat(X, weights, axis=0), np.repeat(y, weights))
    assert "300 rows x 4 features in 3 classes" in repr(PairwiseMoments().update(X, y))
    assert repr(PairwiseMoments().update(X, y, np.zeros(300))) == "PairwiseMoments: empty"


# --- a pass over rows -------------------------------------------------------------------------


def assert_same_moments(found, expected, rtol=1e-12):
    assert isinstance(found, PairwiseMoments)
    assert found.classes.tolist() == expected.classes.tolist()
    np.testing.assert_allclose(found.class_count, expected.class_count, rtol=rtol)
    np.testing.assert_allclose(found.pair_count, expected.pair_count, rtol=rtol)
    np.testing.assert_allclose(found.means, expected.means, rtol=rtol)
    np.testing.assert_allclose(found.covariance(), expected.covariance(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", [*KINDS, "batches", "delayed"])
def test_one_pass_over_rows_of_any_kind(kind, weighted, slabs_of):
    slabs_of(1)
    X, y = gappy()
    weights = np.random.default_rng(1).integers(0, 3, 300) * 0.5 if weighted else None
    expected = PairwiseMoments().update(X, y, weights)
    arrays = [array for array in (X, y, weights) if array is not None]
    if kind in ("batches", "delayed"):
        batches = [tuple(array[at : at + 70] for array in arrays) for at in range(0, 300, 70)]
        rows = map(dask.delayed, batches) if kind == "delayed" else batches
        found = accumulate(list(rows), on_invalid="pairwise")
    else:
        rows, labels, *w = (held(array, kind) for array in arrays)
        found = accumulate(rows, labels, sample_weight=w[0] if w else None, on_invalid="pairwise")
    assert_same_moments(found, expected)


@pytest.mark.parametrize("dtype", ["int16", "uint8", "float32", "float64"])
def test_the_value_of_a_pair_without_rows_is_missing(dtype):
    X, y = gappy()
    X = np.round(8 * X + 60)
    given_rows = np.nan_to_num(X, nan=255).astype(dtype)
    X[given_rows == 255] = np.nan
    found = accumulate(given_rows, y, on_invalid="pairwise", nodata=255)
    assert_same_moments(found, PairwiseMoments().update(X, y))


def test_a_pass_is_planned():
    X, y = gappy(d=40)
    y = y % 2
    state, taking = PairwiseMoments()._bytes(2, 40)
    assert state == PairwiseMoments().update(X, y).nbytes
    rows = held(X, "zarr"), held(y, "zarr")
    with pytest.raises(MemoryBudgetError, match=r"for the moments .* for rows in flight") as few:
        accumulate(*rows, on_invalid="pairwise", max_memory=taking)
    assert readable(taking) in str(few.value)
    accumulate(*rows, on_invalid="pairwise", max_memory="50MB")
    with pytest.raises(InvalidParameterError, match="'pairwise' keeps matrices for each class"):
        accumulate(X, y, on_invalid="pairwise", covariance_type="tied")


def test_rows_of_weight_zero_are_not_there():
    X, y = gappy()
    weights = np.ones(300)
    weights[[3, 40]] = 0
    expected = PairwiseMoments().update(np.delete(X, [3, 40], 0), np.delete(y, [3, 40]))
    X[3], X[40] = np.inf, 1e300
    assert_same_moments(PairwiseMoments().update(X, y, weights), expected)


# --- mending ----------------------------------------------------------------------------------


def test_a_covariance_that_is_not_positive_definite_is_repaired():
    # Three features, each pair from separate rows: correlations 1, 1 and -1.
    base = np.random.default_rng(0).normal(size=(40, 1))
    X = np.full((120, 3), np.nan)
    X[:40, [0, 1]] = base * [1, 1]
    X[40:80, [1, 2]] = base * [1, 1]
    X[80:, [0, 2]] = base * [1, -1]
    X, y = np.vstack([X, X * 2 + 1]), np.repeat([0, 1], 120)
    pairs = PairwiseMoments().update(X, y)
    assert np.linalg.eigvalsh(pairs.covariance()[0])[0] < -0.1
    moments = pairs.to_moments()
    mended, variances = moments.covariance()[0], pairs.covariance()[0].diagonal()
    np.testing.assert_allclose(mended.diagonal(), variances, rtol=1e-12)
    deviations = np.sqrt(np.outer(variances, variances))
    least = -np.linalg.eigvalsh(pairs.covariance()[0] / deviations)[0]
    assert least / 3 < np.linalg.eigvalsh(mended / deviations)[0] <= least
    model = QuadraticDiscriminantAnalysis.from_moments(moments)
    assert np.isfinite(model.predict_proba(np.zeros((1, 3)))).all()


@pytest.mark.parametrize("least", [1e-4, 0.05])
def test_only_small_eigenvalues_are_raised(least):
    X, y = gappy(share=0)
    pairs = PairwiseMoments().update(X, y)
    np.testing.assert_allclose(pairs.to_moments().covariance(), pairs.covariance(), rtol=1e-14)
    X[:, 3] = X[:, 2] + 1e-4 * X[:, 3]
    mended = PairwiseMoments().update(X, y).to_moments(least_eigenvalue=least).covariance()
    for S in mended:
        values = np.linalg.eigvalsh(S / np.sqrt(np.outer(S.diagonal(), S.diagonal())))
        assert least / 2 < values[0] <= least


def test_constant_features_stay_constant():
    X, y = gappy()
    X[:, 1] = np.where(np.isnan(X[:, 1]), np.nan, 3.0)
    moments = PairwiseMoments().update(X, y).to_moments()
    assert (moments.covariance()[:, 1] == 0).all()
    with pytest.warns(UserWarning, match="1 of 4 features are constant"):
        QuadraticDiscriminantAnalysis.from_moments(moments)


# --- failing, saving --------------------------------------------------------------------------


def test_invalid_rows_change_nothing(tmp_path):
    X, y = gappy()
    moments = PairwiseMoments().update(X[:200], y[:200])
    before = bits(moments)
    bad = X.copy()
    bad[130, 2] = np.inf
    failures = [
        ((bad, y), InvalidDataError, "infinity: row 130, column 2"),
        ((np.where(np.isnan(X), X, X * 1e200), y), InvalidDataError, "overflow"),
        ((X, y[:-1]), InvalidDataError, "one label a row"),
        ((X[:, :2], y), InvalidDataError, "2 features, but these moments have 4"),
        ((X, y.astype(str)), InvalidDataError, "do not mix"),
        ((X, y, np.full(300, -1.0)), InvalidDataError, "finite and >= 0"),
    ]
    for arguments, error, message in failures:
        with pytest.raises(error, match=message):
            moments.update(*arguments)
    moments.update(X[:0], y[:0])  # An update of no rows is no error.
    with pytest.raises(MergeError, match="4 features and of 2 features"):
        moments += PairwiseMoments().update(X[:, :2], y)
    assert bits(moments) == before
    for least in (0, 1, -1, "small"):
        with pytest.raises(InvalidParameterError, match="between 0 and 1"):
            moments.to_moments(least_eigenvalue=least)
    with pytest.raises(InvalidDataError, match="hold no rows"):
        PairwiseMoments().to_moments()
    X[y == 2, 3] = np.nan
    with pytest.raises(InvalidDataError, match="class 2 has no value of feature 3"):
        PairwiseMoments().update(X, y).to_moments()
