"""Kernels against bare loops."""

import numpy as np
import pytest

from streamgda.kernels.integers import centre_scatter
from streamgda.kernels.sums import (
    all_below,
    copy_symmetric,
    encode_labels,
    group_rows,
)
from streamgda.moments.covariance_types import symmetric
from streamgda.storage.format import pack_triangles

# --- grouping ---------------------------------------------------------------------------------


@pytest.mark.parametrize("codes", [[], [0], [2, 2, 2], [2, 0, 1, 0, 2, 0], [3, 3, 0, 3]])
def test_group_rows(codes):
    codes = np.array(codes, np.int64)
    order, starts = np.full(codes.size, -1), np.full(5, -1)
    group_rows(codes, order, starts)
    assert starts[0] == 0
    assert starts[-1] == codes.size
    for k in range(4):
        mine = [r for r in range(codes.size) if codes[r] == k]
        assert order[starts[k] : starts[k + 1]].tolist() == mine


def test_encode_labels():
    """Labels from 5 on, without 6."""
    table = np.array([1, -1, 0])
    for labels, known in (([5, 7, 7, 5], True), ([], True), ([5, 6], False), ([4], False)):
        codes = np.full(len(labels), 9)
        assert encode_labels(np.array(labels, np.int64), 5, table, codes) == known
        if known:
            assert codes.tolist() == [{5: 1, 7: 0}[label] for label in labels]
    assert not encode_labels(np.array([5, 8]), 5, table, np.zeros(2, np.int64))


@pytest.mark.parametrize("features", [[0], [4], [0, 1, 2, 3, 4], [1, 2, 4]])
def test_copy_symmetric(features):
    matrices = np.random.default_rng(3).normal(size=(3, 5, 5))
    whole = np.tril(matrices) + np.tril(matrices, -1).transpose(0, 2, 1)
    out = np.full((3, len(features), len(features)), np.nan)
    copy_symmetric(pack_triangles(matrices), np.array(features), out)
    assert (out == whole[:, features][:, :, features]).all()


@pytest.mark.parametrize("d", [1, 2, 31, 32, 33, 65])
def test_triangles(d):
    matrix = np.random.default_rng(d).normal(size=(d, d))
    expected = np.tril(matrix) + np.tril(matrix, -1).T
    assert (symmetric(pack_triangles(matrix[None])[0]) == expected).all()


# --- sums -------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e60, -2e60])
def test_all_below(value):
    values = np.array([0.0, -9e59, 3.0])
    assert all_below(values, 1e60)
    for place in range(3):
        assert not all_below(np.insert(values, place, value), 1e60)


# --- rounding ---------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1000, (1 << 26) - 1, (1 << 26) + 1])
def test_centre_scatter_of_nearly_uncorrelated_features(n):
    """1 - (n - 1)/n is small, and must be as accurate as a large number."""
    count = np.array([n])
    total = rest = np.array([[n - 1, 1]])
    scatter = np.zeros((1, 3))
    square = np.array([[n - 1, 1, 1]])
    features = np.arange(2)
    centre_scatter(count, total, np.zeros((1, 2), int), rest, square, features, 0, 2, scatter)
    assert scatter[0, 1] == 1 / n
