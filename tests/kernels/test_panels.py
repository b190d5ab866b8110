"""Scores by panels equal NumPy's, for rows of any number, type and distance from zero."""

import numpy as np
import pytest

from streamgda.kernels import panels


def rows_and_model(n, d, K, dtype, offset=0.0):
    rng = np.random.default_rng(n + d)
    X = (rng.normal(size=(n, d + 2)) + offset).astype(dtype)
    features = rng.permutation(d + 2)[:d]
    origin, centres = np.full(d, np.float64(offset)), rng.normal(size=(K, d))
    roots = np.tril(rng.normal(size=(K, d, d)) / d)
    roots[:, range(d), range(d)] = 1.0
    return X, features, origin, centres, roots


@pytest.mark.parametrize("n", [0, 1, 23, 24, 100, 1000])
@pytest.mark.parametrize("d", [1, 2, 7, 8, 9, 40])
def test_scores_by_triangles(n, d):
    X, features, origin, centres, roots = rows_and_model(n, d, 3, np.float64, 1e6)
    constants, out = np.array([0.5, -1.0, 2.0]), np.empty((3, n))
    panels.triangle_scores(X, features, origin, centres, roots, -0.5, constants, out)
    t = (X[:, features] - origin) - centres[:, None]
    expected = constants[:, None] - 0.5 * ((t @ roots.transpose(0, 2, 1)) ** 2).sum(axis=2)
    np.testing.assert_allclose(out, expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.int16])
def test_roots_of_float32_round_rows_after_they_were_centred(dtype):
    X, features, origin, centres, roots = rows_and_model(70, 20, 2, dtype, 100)
    out, exact = np.empty((2, 70)), np.empty((2, 70))
    given = X, features, origin, centres
    panels.triangle_scores(*given, roots, -0.5, np.zeros(2), exact)
    panels.triangle_scores(*given, roots.astype(np.float32), -0.5, np.zeros(2), out)
    np.testing.assert_allclose(out, exact, rtol=1e-5)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("n", "d"), [(1, 1), (15, 3), (16, 700), (2000, 5)])
def test_scores_by_variances(n, d, shared):
    X, features, origin, centres, roots = rows_and_model(n, d, 4, np.float32, 50)
    precisions = np.abs(roots[: 1 if shared else 4, :, 0]) + 0.5
    constants, out = np.arange(4.0), np.empty((4, n))
    panels.diagonal_scores(X, features, origin, centres, precisions, -0.5, constants, out)
    t = (X[:, features].astype(float) - origin) - centres[:, None]
    expected = constants[:, None] - 0.5 * (precisions[:, None] * t**2).sum(axis=2)
    np.testing.assert_allclose(out, expected, rtol=1e-12, atol=1e-12)


def test_the_first_of_equal_scores_is_the_largest():
    scores = np.array(
        [[0.0, 1.0, -np.inf, 2.0], [0.0, 2.0, -np.inf, 1.0], [-1.0, 2.0, -np.inf, 2.0]]
    )
    codes = np.empty(4, np.int64)
    panels.largest(scores, codes)
    assert codes.tolist() == scores.argmax(axis=0).tolist()
    panels.largest(np.empty((2, 0)), codes[:0])
