"""Synthetic streams."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgda.datasets import GaussianStream
from streamgda.errors import (
    InvalidParameterError,
)


class TestGaussianStream:
    @given(
        n_rows=st.integers(0, 12),
        batch_rows=st.integers(1, 14),
        dtype=st.sampled_from(["float64", "float32", "uint8", "int16"]),
    )
    @settings(max_examples=25)
    def test_rows_do_not_depend_on_batches(self, n_rows, batch_rows, dtype):
        stream = GaussianStream(20_000, 3, seed=5, dtype=dtype)  # blocks of three rows
        X, y = stream.rows(0, n_rows)
        assert (X.shape, X.dtype) == ((n_rows, 20_000), np.dtype(dtype))
        assert (y.shape, y.dtype) == ((n_rows,), np.int64)
        start = 0
        for X_batch, y_batch in stream.batches(n_rows, batch_rows):
            assert len(X_batch) == len(y_batch) == min(batch_rows, n_rows - start)
            np.testing.assert_array_equal(X_batch, X[start : start + batch_rows])
            np.testing.assert_array_equal(y_batch, y[start : start + batch_rows])
            start += batch_rows
        assert start >= n_rows

    def test_rows_anywhere(self):
        stream = GaussianStream(3, 4, seed=2**70)
        X, y = stream.rows(0, 50_000)  # some blocks
        for start, stop in [(0, 0), (7, 7), (21_840, 21_850), (1, 49_999), (43_690, 43_691)]:
            X_part, y_part = stream.rows(start, stop)
            np.testing.assert_array_equal(X_part, X[start:stop])
            np.testing.assert_array_equal(y_part, y[start:stop])
        far, _ = stream.rows(10**15, 10**15 + 3)
        assert len(np.unique(np.concatenate([X, far]), axis=0)) == 50_003

    def test_separation_and_scale(self):
        stream = GaussianStream(30, 400, separation=4.0, loc=-7.0)
        distance = np.linalg.norm(stream.means[::2] - stream.means[1::2], axis=1)
        assert np.sqrt((distance**2).mean()) == pytest.approx(4.0, rel=0.05)
        assert stream.means.mean() == pytest.approx(-7, abs=0.02)
        variance = np.trace(stream.covariances, axis1=1, axis2=2).mean() / 30
        assert variance == pytest.approx(1, rel=0.05)

    def test_the_same_from_a_copy_and_other_from_another_seed(self):
        stream = GaussianStream(3, 4, seed=1)
        X, y = stream.rows(5, 500)
        X_copy, y_copy = pickle.loads(pickle.dumps(stream)).rows(5, 500)
        np.testing.assert_array_equal(X, X_copy)
        np.testing.assert_array_equal(y, y_copy)
        other = GaussianStream(3, 4, seed=2)
        assert not np.isin(other.rows(5, 500)[0], X).any()
        assert not np.isin(other.means, stream.means).any()

    def test_callers_may_change_the_arrays_they_get(self):
        stream = GaussianStream(2, 2)
        expected = stream.rows(0, 40)[0]
        got = []
        for X, y in stream.batches(40, 7):
            got.append(X.copy())
            X[:], y[:] = 0, 0
        np.testing.assert_array_equal(np.concatenate(got), expected)

    def test_the_rows_follow_the_gaussians(self):
        priors = [0.5, 0.0, 0.2, 0.3]
        stream = GaussianStream(5, 4, priors=priors, loc=100.0, seed=3)
        X, y = stream.rows(0, 200_000)
        assert stream.priors.tolist() == priors
        np.testing.assert_allclose(np.bincount(y, minlength=4) / len(y), priors, atol=0.005)
        for label in (0, 2, 3):
            # Whitening makes the rows of a class standard normal.
            root = np.linalg.cholesky(stream.covariances[label])
            Z = np.linalg.solve(root, (X[y == label] - stream.means[label]).T).T
            error = 1 / np.sqrt(len(Z))
            np.testing.assert_allclose(Z.mean(axis=0), 0, atol=5 * error)
            np.testing.assert_allclose(Z.T @ Z / len(Z), np.eye(5), atol=5 * np.sqrt(2) * error)
            np.testing.assert_allclose((Z**4).mean(axis=0), 3, atol=5 * np.sqrt(96) * error)

    @pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int32"])
    def test_integers_are_rounded_and_clipped(self, dtype):
        info = np.iinfo(dtype)
        middle = (int(info.min) + int(info.max) + 1) / 2
        stream = GaussianStream(4, 3, dtype=dtype)
        real = GaussianStream(4, 3)
        np.testing.assert_allclose(stream.means, middle + 16 * real.means)
        expected = np.round(middle + 16 * real.rows(0, 2000)[0])
        found = stream.rows(0, 2000)[0]
        np.testing.assert_allclose(found, np.clip(expected, info.min, info.max), atol=1)
        outside = GaussianStream(4, 3, dtype=dtype, loc=float(info.max) + 100).rows(0, 100)[0]
        assert outside.max() == info.max

    @pytest.mark.parametrize(
        ("changed", "message"),
        [
            ({"n_features": 0}, "n_features=0; expected an integer >= 1"),
            ({"n_classes": 0}, "n_classes=0; expected an integer >= 1"),
            ({"n_classes": 2.0}, "n_classes=2.0; expected an integer >= 1"),
            ({"seed": -1}, "seed=-1; expected an integer >= 0"),
            ({"dtype": "complex128"}, "dtype"),
            ({"dtype": "bool"}, "dtype"),
            ({"priors": [1.0]}, r"priors=\[1.0\]; expected 2 non-negative numbers"),
            ({"priors": [0.5, 0.6]}, "priors"),
            ({"priors": [1.5, -0.5]}, "priors"),
            ({"priors": [np.nan, 1]}, "priors"),
            ({"dtype": "int64"}, "an integer type of at most 32 bits"),
            ({"separation": -1.0}, "separation"),
            ({"loc": np.inf}, "loc"),
        ],
    )
    def test_parameters(self, changed, message):
        with pytest.raises(InvalidParameterError, match=message):
            GaussianStream(**({"n_features": 2, "n_classes": 2} | changed))

    def test_ranges(self):
        stream = GaussianStream(2, 2)
        for method, range in (("rows", (-1, 2)), ("rows", (3, 2)), ("batches", (3, 0))):
            with pytest.raises(InvalidParameterError, match="expected an integer >= "):
                getattr(stream, method)(*range)
        assert repr(stream) == "GaussianStream(2, 2, seed=0, dtype='float64')"
