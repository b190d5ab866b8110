"""Centred rows and their products against bare loops."""

from itertools import pairwise

import numpy as np
import pytest
from frozen import NO_WEIGHTS, frozen

from streamgda.kernels.products import (
    BLOCK_ROWS,
    FEW_ROWS,
    PRODUCT_ROWS,
    add_blocks,
    add_part,
    empty_rows,
    multiply_blocks,
    multiply_part,
)
from streamgda.moments.parallel import even_blocks
from streamgda.storage.format import pack_triangles, unpack_triangles

N_CLASSES = 3
# Types of rows, of their centres and of centred rows.
TYPES = [("float64", "float64", "float64"), ("float32", "float32", "float32")]


def centred(X, codes, order, weights, types, centre=None, low=0.25):
    """Rows as kernels read them, and as they must be centred."""
    d = X.shape[1]
    centre = np.zeros((N_CLASSES, d)) if centre is None else centre
    high, rest = centre.astype(types[1]), np.full((N_CLASSES, d), low, types[1])
    source = frozen(X.astype(types[0])), codes, order, frozen(weights), high, rest
    Z = (X - high[codes] - low)[order]
    return source, Z * np.sqrt(weights[order])[:, None] if weights.size else Z


def sample(rng, n, d):
    """Quarters, whose products are exact, and rows in any order."""
    X = rng.integers(-3, 4, (n, d)) + 0.25
    return X, rng.integers(0, N_CLASSES, n), rng.permutation(n)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("types", TYPES)
def test_features_that_are_zero_in_a_block_are_left_out(types, weighted):
    rng = np.random.default_rng(0)
    X, codes, order = sample(rng, 40, 9)
    centre = rng.integers(-3, 4, (N_CLASSES, 9))
    X[:, [0, 4, 8]] = 0.25 + centre[codes][:, [0, 4, 8]]
    weights = rng.integers(1, 5, 40) ** 2.0 if weighted else NO_WEIGHTS
    source, Z = centred(X, codes, order, weights, types, centre)
    rows, space = np.empty((40, 9), types[2]), np.empty((1, 9, 9), types[2])
    features, active, S = np.empty((1, 9), np.intp), np.empty(1, np.intp), np.empty((0, 45))
    for block in pairwise([0, 17, 18, 40]):
        first, last = (np.array([row]) for row in block)
        multiply_blocks(source, first, last, active, rows, features, active, space, S)
        own, chosen = Z[slice(*block)], features[0, : active[0]]
        assert chosen.tolist() == np.flatnonzero(own.any(axis=0)).tolist()
        assert (rows[: len(own), : active[0]] == own[:, chosen]).all()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("types", TYPES)
def test_parts_of_products(types, weighted):
    """Each part changes nothing else, and together they are the lower triangles."""
    rng = np.random.default_rng(2)
    d, cuts, groups = 11, [0, 300, 301, 600, 640], [1, 0, 1, 1]
    X, codes, order = sample(rng, cuts[-1], d)
    X[order[300:600], 3:6] = 0.25
    X[order[600:], 6:] = 0.25
    weights = rng.integers(1, 5, 640) ** 2.0 if weighted else NO_WEIGHTS
    source, Z = centred(X, codes, order, weights, types)
    assert cuts[1] > PRODUCT_ROWS
    S = np.tril(rng.integers(-9, 9, (2, d, d)).astype(np.float64))
    expected = S.copy()
    for g, (a, b) in zip(groups, pairwise(cuts), strict=True):
        expected[g] += np.tril(Z[a:b].T @ Z[a:b])
    ranges = [(0, 4), (4, 5), (5, 11)]
    space, features = np.empty((6, 6), types[2]), np.empty(12, np.intp)
    rows = np.full((2, PRODUCT_ROWS, 6), np.nan, types[2])
    for i, own in enumerate(ranges):
        for columns in ranges[: i + 1]:
            after, part = S.copy(), (slice(None), slice(*own), slice(*columns))
            after[part] = expected[part]
            S = pack_triangles(S)
            for g, block in zip(groups, pairwise(cuts), strict=True):
                n = multiply_part(source, *block, (*own, *columns), rows, features, space)
                add_part(space, features, *n, S[g])
            S = unpack_triangles(S)
            np.testing.assert_array_equal(S, after)
    np.testing.assert_array_equal(S, expected)


@pytest.mark.parametrize("value", [1e30, 1e-30])
@pytest.mark.parametrize("part", [(0, 3, 0, 3), (3, 6, 0, 3), (6, 9, 3, 6)])
def test_parts_that_float32_cannot_hold_are_refused(part, value):
    X, codes, order = sample(np.random.default_rng(5), 300, 9)
    X -= 0.25
    X[:, 1], X[:, 4] = 0, 0
    X[order[70], [1, 4]] = value
    source, _ = centred(X, codes, order, NO_WEIGHTS, TYPES[1], low=0)
    rows, space = np.empty((2, 100, 3), np.float32), np.empty((3, 3), np.float32)
    S, features = np.zeros(45), np.empty(6, np.intp)
    with np.errstate(over="ignore"):
        n = multiply_part(source, 0, 300, part, rows, features, space)
    assert n[1] < 0
    add_part(space, features, *n, S)
    assert not S.any()
    assert min(multiply_part(source, 71, 300, part, rows, features, space)) >= 0


def test_documented_bound_of_float32_products():
    """A rounding for each row of a product, each product of a block, and four of centring."""
    largest = 4 * BLOCK_ROWS + 4 * BLOCK_ROWS // 2  # of `even_blocks`
    assert PRODUCT_ROWS + largest // PRODUCT_ROWS + 4 < 260


@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("later", [False, True])
def test_products_of_blocks(types, later):
    """They are added at once or afterwards, but for blocks that float32 cannot hold."""
    rng = np.random.default_rng(3)
    d, first, groups = 7, np.array([0, 300, 301, 600]), np.array([1, 0, 1, 1])
    last = np.append(first[1:], 640)
    X, codes, order = sample(rng, 640, d)
    X[order[300:600], 2:4] = 0.25  # zero once the centre is subtracted
    X[order[600], 0] = 1e30
    held = [b for b in range(4) if types[0] == "float64" or b < 3]
    centre, low = np.zeros((N_CLASSES, d), types[1]), np.full((N_CLASSES, d), 0.25, types[1])
    source = frozen(X.astype(types[0])), codes, order, NO_WEIGHTS, centre, low
    S = rng.integers(-9, 9, (2, d * (d + 1) // 2)).astype(np.float64)
    expected, Z = S.copy(), (source[0] - low[0])[order].astype(np.float64)
    for b in held:
        rows = Z[first[b] : last[b]]
        expected[groups[b]] += pack_triangles((rows.T @ rows)[None])[0]
    features, active = np.empty((4, d), np.intp), np.empty(4, np.intp)
    rows, space = np.empty((300, d), types[2]), np.empty((4 if later else 1, d, d), types[2])
    blocks = first, last, groups, rows, features, active, space
    multiply_blocks(source, *blocks, S[:0] if later else S)
    if later:
        for first, stop in ((0, 4), (4, 5), (5, d)):
            add_blocks(space, features, active, groups, first, stop, S)
    assert np.flatnonzero(active >= 0).tolist() == held
    assert active[2] == d - 2
    np.testing.assert_allclose(S, expected, rtol=1e-15)


def test_even_blocks():
    rng = np.random.default_rng(0)
    for most in (5, 3000, 2_000_000):
        sizes = rng.integers(0, most, 9)
        starts, groups = np.append(0, np.cumsum(sizes)), np.array([0, 2, 3, 5, 6, 8])
        first, last, owner = even_blocks(starts, groups, 992)
        rows = last - first
        assert rows.min() > 0
        assert rows.max() <= 992 + 496
        for g in groups:
            own = owner == g
            assert rows[own].sum() == sizes[g]
            assert np.ptp(rows[own], axis=None) <= 1 if sizes[g] else not own.any()
            assert (first[own] == starts[g] + np.cumsum(rows[own]) - rows[own]).all()


def test_small_products_of_few_features_leave_blas_on_one_thread():
    for d in (17, 20, 50):
        rows, width = empty_rows(10_000, d, 3).shape
        assert rows * width**2 <= 1 << 18
    assert len(empty_rows(10_000, 60, 3)) == BLOCK_ROWS
    assert len(empty_rows(20, 60, 3)) == 23
    assert len(empty_rows(1, 60, 3)) == FEW_ROWS
