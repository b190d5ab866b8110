"""Synthetic streams: rows by their numbers, with the distribution that the attributes say."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgda.datasets import GaussianStream
from streamgda.errors import InvalidParameterError


@given(
    n_rows=st.integers(0, 12),
    batch_rows=st.integers(1, 14),
    dtype=st.sampled_from(["float64", "float32", "uint8", "int16"]),
)
@settings(max_examples=25)
def test_rows_do_not_depend_on_batches(n_rows, batch_rows, dtype):
    stream = GaussianStream(20_000, 3, seed=5, dtype=dtype)  # A block has three rows.
    X, y = stream.rows(0, n_rows)
    assert (X.shape, X.dtype) == ((n_rows, 20_000), np.dtype(dtype))
    assert (y.shape, y.dtype) == ((n_rows,), np.int64)
    start = 0
    for X_batch, y_batch in stream.batches(n_rows, batch_rows):
        assert len(X_batch) == len(y_batch) == min(batch_rows, n_rows - start)
        np.testing.assert_array_equal(X_batch, X[start : start + batch_rows])
        np.testing.assert_array_equal(y_batch, y[start : start + batch_rows])
        start += batch_rows
        X_batch[:], y_batch[:] = 0, 0  # Callers may change the arrays that they get.
    assert start >= n_rows


def test_rows_anywhere_of_copies_and_seeds():
    stream = GaussianStream(3, 4, seed=2**70)
    X, y = stream.rows(0, 50_000)  # These are several blocks.
    for start, stop in [(0, 0), (7, 7), (21_840, 21_850), (1, 49_999), (43_690, 43_691)]:
        for other in (stream, pickle.loads(pickle.dumps(stream))):
            X_part, y_part = other.rows(start, stop)
            np.testing.assert_array_equal(X_part, X[start:stop])
            np.testing.assert_array_equal(y_part, y[start:stop])
    far, _ = stream.rows(10**15, 10**15 + 3)
    others, _ = GaussianStream(3, 4, seed=2**70 + 1).rows(0, 3)
    assert len(np.unique(np.concatenate([X, far, others]), axis=0)) == 50_006


def test_the_rows_follow_the_gaussians():
    priors = [0.5, 0.0, 0.2, 0.3]
    stream = GaussianStream(5, 4, priors=priors, loc=100.0, seed=3)
    X, y = stream.rows(0, 200_000)
    np.testing.assert_allclose(np.bincount(y, minlength=4) / len(y), priors, atol=0.005)
    for label in (0, 2, 3):  # Whitening makes the rows of a class standard normal.
        root = np.linalg.cholesky(stream.covariances[label])
        Z = np.linalg.solve(root, (X[y == label] - stream.means[label]).T).T
        error = 1 / np.sqrt(len(Z))
        np.testing.assert_allclose(Z.mean(axis=0), 0, atol=5 * error)
        np.testing.assert_allclose(Z.T @ Z / len(Z), np.eye(5), atol=5 * np.sqrt(2) * error)
        np.testing.assert_allclose((Z**4).mean(axis=0), 3, atol=5 * np.sqrt(96) * error)


def test_separation_location_and_period():
    stream = GaussianStream(30, 400, separation=4.0, loc=-7.0)
    distance = np.linalg.norm(stream.means[::2] - stream.means[1::2], axis=1)
    assert np.sqrt((distance**2).mean()) == pytest.approx(4.0, rel=0.05)
    assert stream.means.mean() == pytest.approx(-7, abs=0.02)
    variance = np.trace(stream.covariances, axis1=1, axis2=2).mean() / 30
    assert variance == pytest.approx(1, rel=0.05)
    still, moving = (GaussianStream(2, 3, period=period) for period in (None, 4e6))
    # A quarter of a period later, means are those of the next class.
    X, y = still.rows(10**6, 10**6 + 100)
    expected = X - still.means[y] + np.roll(still.means, -1, axis=0)[y]
    np.testing.assert_allclose(moving.rows(10**6, 10**6 + 100)[0], expected, atol=1e-3)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int32"])
def test_integers_are_rounded_and_clipped(dtype):
    info = np.iinfo(dtype)
    middle = (int(info.min) + int(info.max) + 1) / 2
    stream, real = GaussianStream(4, 3, dtype=dtype), GaussianStream(4, 3)
    expected = np.round(middle + 16 * real.rows(0, 2000)[0])
    found = stream.rows(0, 2000)[0]
    np.testing.assert_allclose(found, np.clip(expected, info.min, info.max), atol=1)
    outside = GaussianStream(4, 3, dtype=dtype, loc=float(info.max) + 100).rows(0, 100)[0]
    assert outside.max() == info.max


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"n_features": 0}, "n_features=0; expected an integer >= 1"),
        ({"n_classes": 2.0}, "n_classes=2.0; expected an integer >= 1"),
        ({"seed": -1}, "seed=-1; expected an integer >= 0"),
        ({"dtype": "complex128"}, "dtype"),
        ({"dtype": "int64"}, "an integer type of at most 32 bits"),
        ({"priors": [1.0]}, r"priors=\[1.0\]; expected 2 non-negative numbers"),
        ({"priors": [0.5, 0.6]}, "priors"),
        ({"priors": [1.5, -0.5]}, "priors"),
        ({"priors": [10**400, 1]}, "priors"),
        ({"separation": -1.0}, "separation"),
        ({"loc": np.inf}, "loc"),
        ({"period": 0.0}, "period"),
    ],
)
def test_parameters_out_of_range(changed, message):
    with pytest.raises(InvalidParameterError, match=message):
        GaussianStream(**({"n_features": 2, "n_classes": 2} | changed))


def test_numbers_of_rows_out_of_range():
    stream = GaussianStream(2, 2)
    for method, numbers in (("rows", (-1, 2)), ("rows", (3, 2)), ("batches", (3, 0))):
        with pytest.raises(InvalidParameterError, match="expected an integer >= "):
            getattr(stream, method)(*numbers)
    assert repr(stream) == "GaussianStream(2, 2, seed=0, dtype='float64')"
