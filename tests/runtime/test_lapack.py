"""LAPACK in place: factors and inverses of lower triangles, the upper ones left alone."""

import numpy as np
import pytest

from streamgda.runtime import lapack

SIZES = [1, 2, 17, 64, 130]


def positive(d):
    root = np.random.default_rng(d).normal(size=(d, d))
    return root @ root.T + d * np.eye(d)


@pytest.mark.parametrize("d", SIZES)
def test_cholesky(d):
    matrix = positive(d)
    factor = matrix.copy()
    assert lapack.cholesky(factor)
    # Of two factors, small elements differ by rounding errors of the size of the large ones.
    expected = np.linalg.cholesky(matrix)
    difference = np.linalg.norm(np.tril(factor) - expected)
    assert difference <= d * np.finfo(float).eps * np.linalg.norm(expected)
    assert (np.triu(factor, 1) == np.triu(matrix, 1)).all()


def test_an_indefinite_matrix_has_no_factor():
    assert not lapack.cholesky(np.array([[1.0, 2.0], [2.0, 1.0]]))
    assert not lapack.cholesky(np.zeros((3, 3)))


@pytest.mark.parametrize("d", SIZES)
def test_invert_lower(d):
    factor = np.linalg.cholesky(positive(d)) + np.triu(np.full((d, d), 7.0), 1)
    inverse = factor.copy()
    lapack.invert_lower(inverse)
    np.testing.assert_allclose(np.tril(inverse) @ np.tril(factor), np.eye(d), atol=1e-12)
    assert (np.triu(inverse, 1) == np.triu(factor, 1)).all()
