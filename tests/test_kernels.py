"""Every kernel against bare loops; runs with ``NUMBA_DISABLE_JIT=1`` too."""

from fractions import Fraction
from itertools import pairwise

import naive
import numpy as np
import pytest

from streamgda.kernels import scoring
from streamgda.kernels.grouping import first_rows, group_rows
from streamgda.kernels.rounding import centre_scatter, centre_squares
from streamgda.kernels.scatter import DEPTH, LANES, add_outer, add_products, pack_rows
from streamgda.kernels.sums import add_squares, add_sums, count_rows

WIDTHS = [1, 2, 3, 4, 11, 12, 13, 16, 17]
NO_WEIGHTS = np.empty(0)
INTEGERS = ["uint8", "int8", "uint16", "int16"]
FLOATS = ["float32", "float64"]


def rows_of(rng, dtype, n, d):
    """Small whole numbers, so that sums are exact in any type and in any order."""
    low = 0 if dtype.startswith("u") else -9
    return rng.integers(low, 10, (n, d)).astype(dtype)


def centre_of(rng, dtype, n_classes, d, weighted=False):
    """Whole numbers for integers, unless they are weighted."""
    exact = dtype in INTEGERS and not weighted
    return rng.integers(-3, 4, (n_classes, d)).astype(np.int64 if exact else np.float64)


def centre_low_of(rng, centre):
    if centre.dtype == np.int64:
        return np.zeros_like(centre)
    return rng.integers(-3, 4, centre.shape) / 8


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


def test_group_rows_of_random_codes():
    codes = np.random.default_rng(0).integers(0, 7, 100)
    order, starts = np.empty(100, np.int64), np.empty(8, np.int64)
    group_rows(codes, order, starts)
    assert (order == np.argsort(codes, kind="stable")).all()
    assert (np.diff(starts) == np.bincount(codes, minlength=7)).all()


@pytest.mark.parametrize(
    ("codes", "first", "expected"),
    [
        ([1, 0, 1, 2], [-1, -1, -1], [1, 0, 3]),
        ([1, 1, 1], [-1, -1, -1], [-1, 0, -1]),
        ([1, 1, 2], [0, -1, 0], [0, 0, 0]),
        ([2, 2], [0, 0, 0], [0, 0, 0]),
        ([0, 1, 2], [7, -1, 8], [7, 1, 8]),
    ],
)
def test_first_rows(codes, first, expected):
    first = np.array(first, np.int64)
    first_rows(np.array(codes, np.int64), first)
    assert first.tolist() == expected


# --- sums -------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_count_rows(weighted):
    codes = np.array([0, 2, 2, 0, 2])
    weights = np.array([0.5, 1, 2, 0.25, 4]) if weighted else NO_WEIGHTS
    count = np.array([1, 0, 2], np.float64 if weighted else np.int64)
    count_rows(codes, weights, count)
    assert count.tolist() == ([1.75, 0, 9] if weighted else [3, 0, 5])


@pytest.mark.parametrize("d", WIDTHS)
@pytest.mark.parametrize("dtype", INTEGERS + FLOATS)
def test_add_sums(dtype, d):
    rng = np.random.default_rng(d)
    X, codes = rows_of(rng, dtype, 7, d), rng.integers(0, 3, 7)
    centre = centre_of(rng, dtype, 3, d)
    sums = centre_of(rng, dtype, 3, d)
    expected = sums.copy()
    start, stop = d // 3, d
    for r in range(7):
        for j in range(start, stop):
            expected[codes[r], j] += int(X[r, j]) - centre[codes[r], j]
    add_sums(X, codes, NO_WEIGHTS, centre, start, stop, sums)
    assert sums.dtype == expected.dtype
    assert (sums == expected).all()


@pytest.mark.parametrize("dtype", ["uint8", "float64"])
def test_add_sums_weighted(dtype):
    rng = np.random.default_rng(1)
    X, codes = rows_of(rng, dtype, 9, 4), rng.integers(0, 2, 9)
    weights = rng.integers(0, 5, 9) / 4
    centre = rng.integers(-3, 4, (2, 4)).astype(np.float64)
    sums = np.zeros((2, 4))
    add_sums(X, codes, weights, centre, 1, 4, sums)
    for k in range(2):
        for j in range(4):
            mine = [weights[r] * (float(X[r, j]) - centre[k, j]) for r in range(9) if codes[r] == k]
            assert sums[k, j] == (sum(mine) if j >= 1 else 0)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", INTEGERS + FLOATS)
def test_add_squares(dtype, weighted, tied):
    rng = np.random.default_rng(2)
    X, codes = rows_of(rng, dtype, 8, 5), rng.integers(0, 3, 8)
    weights = rng.integers(0, 5, 8) / 4 if weighted else NO_WEIGHTS
    centre = centre_of(rng, dtype, 3, 5, weighted)
    low = centre_low_of(rng, centre)
    group = np.zeros(3, np.int64) if tied else np.arange(3)
    squares = np.ones((1 if tied else 3, 5), centre.dtype)
    expected = squares.copy()
    for r in range(8):
        k = codes[r]
        for j in range(1, 4):
            t = float(X[r, j]) - centre[k, j] - low[k, j]
            expected[group[k], j] += (weights[r] if weighted else 1) * t * t
    add_squares(X, codes, weights, centre, low, group, 1, 4, squares)
    assert squares.dtype == centre.dtype
    assert (squares == expected).all()


# --- scatter ----------------------------------------------------------------------------------


def padded(n, to):
    return -(-n // to) * to


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("dtype", "panel_dtype"),
    [("uint8", "float32"), ("int16", "float64"), ("float32", "float64"), ("float64", "float64")],
)
def test_pack_rows(dtype, panel_dtype, weighted):
    rng = np.random.default_rng(3)
    n, d = 45, 5
    X, codes = rows_of(rng, dtype, n, d), rng.integers(0, 3, n)
    roots = rng.integers(0, 5, n) / 4 if weighted else NO_WEIGHTS
    centre = centre_of(rng, dtype, 3, d, weighted)
    low = centre_low_of(rng, centre)
    order = rng.permutation(n)
    starts, stops = np.array([0, 17, 18, 34]), np.array([17, 18, 34, 45])  # ragged: 17, 1, 16, 11
    width = padded(17, LANES)
    panels = np.full((4, DEPTH, width), 99, panel_dtype)
    pack_rows(X, codes, order, roots, centre, low, starts, stops, 1, 4, panels)
    assert (panels[:, [0, *range(4, DEPTH)]] == 99).all()  # other features are not touched
    for p in range(4):
        size = stops[p] - starts[p]
        for j in range(1, 4):
            for q in range(size):
                r = order[starts[p] + q]
                value = float(X[r, j]) - centre[codes[r], j] - low[codes[r], j]
                assert panels[p, j, q] == value * (roots[r] if weighted else 1)
            assert (panels[p, j, size : padded(size, LANES)] == 0).all()


def panels_of(rng, sizes, d, dtype):
    """Panels as `pack_rows` leaves them: zeros up to the next whole vector, then anything."""
    panels = np.full((len(sizes), padded(d, DEPTH), padded(max(sizes), LANES)), 77, dtype)
    panels[:, d:] = 0
    for p, size in enumerate(sizes):
        panels[p, :d, :size] = rng.integers(-5, 6, (d, size))
        panels[p, :d, size : padded(size, LANES)] = 0
    return panels


@pytest.mark.parametrize("d", WIDTHS)
@pytest.mark.parametrize(
    ("panel_dtype", "dtype"),
    [("float32", "int64"), ("float64", "int64"), ("float32", "float64"), ("float64", "float64")],
)
def test_add_products(panel_dtype, dtype, d):
    rng = np.random.default_rng(d)
    sizes = np.array([5, 1, 19])
    groups = np.array([0, 2, 0])
    panels = panels_of(rng, sizes, d, panel_dtype)
    S = rng.integers(-9, 9, (3, d, d)).astype(dtype)
    expected = S.copy()
    for p, size in enumerate(sizes):
        rows = panels[p, :d, :size].astype(np.int64)
        expected[groups[p]] += np.tril(rows @ rows.T).astype(dtype)
    add_products(panels, sizes, groups, 0, padded(d, 4), S)
    np.testing.assert_array_equal(S, expected)


@pytest.mark.parametrize("cuts", [[0, 4, 20], [0, 8, 12, 20], [0, 4, 8, 12, 16, 20]])
def test_add_products_in_strips(cuts):
    rng = np.random.default_rng(4)
    sizes, groups, d = np.array([3]), np.array([0]), 17
    panels = panels_of(rng, sizes, d, "float64")
    S = np.zeros((1, d, d))
    for first, last in pairwise(cuts):
        add_products(panels, sizes, groups, first, last, S)
    rows = panels[0, :d, :3]
    assert (S[0] == np.tril(rows @ rows.T)).all()


@pytest.mark.parametrize("d", WIDTHS)
def test_add_outer(d):
    rng = np.random.default_rng(5)
    vectors = rng.integers(-5, 6, (4, d)).astype(np.float64)
    coefficients = np.array([2.0, 0.0, -0.5, 1.0])
    vectors[1] = np.nan  # of no weight: never looked at
    group = np.array([0, 0, 1, 0])
    S = np.zeros((2, d, d))
    add_outer(vectors, coefficients, group, S)
    outer = [c * np.tril(np.outer(v, v)) for c, v in zip(coefficients, vectors, strict=True)]
    assert (S[0] == outer[0] + outer[3]).all()
    assert (S[1] == outer[2]).all()


# --- rounding ---------------------------------------------------------------------------------


def integer_sums(rng, sizes, d, tied):
    """Rows of each class, and their sums as `centre_scatter` takes them."""
    rows = [rng.integers(-20, 21, (n, d)) for n in sizes]
    count = np.array(sizes, np.int64)
    total = np.array([r.sum(axis=0) for r in rows], np.int64)
    quotient, rest = np.divmod(total, np.maximum(count, 1)[:, None])
    square = np.array([r.T @ r for r in rows], np.int64)
    return rows, count, total, quotient, rest, square.sum(axis=0, keepdims=True) if tied else square


def exact_scatter(rows):
    d = rows.shape[1]
    S = np.full((d, d), Fraction(0), object)
    if len(rows):
        total = [int(t) for t in rows.sum(axis=0)]
        for i in range(d):
            for j in range(d):
                product = int((rows[:, i] * rows[:, j]).sum())
                S[i, j] = product - Fraction(total[i] * total[j], len(rows))
    return S


@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.parametrize("tied", [False, True])
def test_centre_scatter(tied, d):
    rng = np.random.default_rng(6)
    rows, *sums, square = integer_sums(rng, [7, 0, 1, 11], d, tied)
    scatter = np.zeros(square.shape)
    centre_scatter(*sums, square, scatter)
    exact = [exact_scatter(r) for r in rows]
    for g, S in enumerate([sum(exact[1:], exact[0])] if tied else exact):
        for i in range(d):
            for j in range(i + 1):
                # Rounded once: half a unit in the last place, and a little for the fraction.
                error = abs(Fraction(scatter[g, i, j]) - S[i, j])
                unit = np.spacing(max(abs(float(S[i, j])), 0.25 if tied else 0))
                assert error <= Fraction(float(unit)), (g, i, j)


def test_centre_scatter_of_nearly_uncorrelated_features():
    """1 - (n - 1)/n is small: what is left of it must be as good as a large number."""
    n = 1000
    count = np.array([n])
    total = rest = np.array([[n - 1, 1]])
    scatter = np.zeros((1, 2, 2))
    square = np.array([[[n - 1, 0], [1, 1]]])
    centre_scatter(count, total, np.zeros((1, 2), int), rest, square, scatter)
    assert scatter[0, 1, 0] == 1 / n


@pytest.mark.parametrize("tied", [False, True])
def test_centre_squares(tied):
    rng = np.random.default_rng(7)
    rows, *sums, square = integer_sums(rng, [7, 0, 1, 11], 4, tied)
    squares = np.ascontiguousarray(square.diagonal(axis1=1, axis2=2))
    scatter = np.zeros(squares.shape)
    centre_squares(*sums, squares, scatter)
    exact = [np.diag(exact_scatter(r)) for r in rows]
    for g, variances in enumerate([sum(exact[1:], exact[0])] if tied else exact):
        for j in range(4):
            error = abs(Fraction(scatter[g, j]) - variances[j])
            assert error <= Fraction(float(np.spacing(float(variances[j]))))


# --- scoring ----------------------------------------------------------------------------------


def scored_rows(rng, n, d, dtype="float64"):
    """Rows wider than what is scored, and the columns that are."""
    return rows_of(rng, dtype, n, d + 2), rng.permutation(d + 2)[:d]


def lower_roots(rng, groups, d):
    return np.tril(rng.integers(-2, 3, (groups, d, d))).astype(np.float64)


def assert_distances(out, X, features, centres, roots):
    for k in range(len(centres)):
        W = roots[min(k, len(roots) - 1)]
        for r in range(len(X)):
            z = W @ (X[r, features].astype(np.float64) - centres[k])
            assert out[r, k] == z @ z


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize(
    ("n", "d", "dtype"),
    [(1, 1, "uint8"), (3, 4, "float32"), (127, 2, "int16"), (128, 1, "float64"), (130, 3, "uint8")],
)
def test_matrix_distances(n, d, dtype, tied):
    rng = np.random.default_rng(8)
    X, features = scored_rows(rng, n, d, dtype)
    centres = rng.integers(-3, 4, (3, d)).astype(np.float64)
    roots = lower_roots(rng, 1 if tied else 3, d)
    out = np.full((n, 3), np.nan)
    scoring.matrix_distances(X, features, centres, roots, out)
    assert_distances(out, X, features, centres, roots)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize(
    ("n", "d"), [(1, 1), (4, 2), (5, 3), (47, 13), (48, 14), (49, 15), (50, 16), (3, 17), (2, 33)]
)
def test_wide_matrix_distances(n, d, tied):
    rng = np.random.default_rng(9)
    X, features = scored_rows(rng, n, d)
    centres = rng.integers(-3, 4, (2, d)).astype(np.float64)
    roots = lower_roots(rng, 1 if tied else 2, d)
    shape = padded(d, scoring.TILE_COLUMNS), padded(d, scoring.LANES)
    whole_tiles = np.zeros((len(roots), *shape))
    whole_tiles[:, :d, :d] = roots
    out = np.full((n, 2), np.nan)
    scoring.wide_matrix_distances(X, features, centres, whole_tiles, out)
    assert_distances(out, X, features, centres, roots)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize(("n", "d", "dtype"), [(1, 1, "uint8"), (129, 3, "float32")])
def test_diagonal_distances(n, d, dtype, tied):
    rng = np.random.default_rng(10)
    X, features = scored_rows(rng, n, d, dtype)
    centres = rng.integers(-3, 4, (3, d)).astype(np.float64)
    roots = rng.integers(0, 4, (1 if tied else 3, d)).astype(np.float64)
    out = np.full((n, 3), np.nan)
    scoring.diagonal_distances(X, features, centres, roots**2, out)
    assert_distances(out, X, features, centres, [np.diag(root) for root in roots])


@pytest.mark.parametrize(("n", "d", "dtype"), [(1, 1, "uint8"), (129, 3, "float64")])
def test_linear_scores(n, d, dtype):
    rng = np.random.default_rng(11)
    X, features = scored_rows(rng, n, d, dtype)
    centre = rng.integers(-3, 4, d).astype(np.float64)
    coefficients = rng.integers(-3, 4, (2, d)).astype(np.float64)
    intercepts = np.array([0.5, -2.0])
    out = np.full((n, 2), np.nan)
    scoring.linear_scores(X, features, centre, coefficients, intercepts, out)
    for r in range(n):
        for k in range(2):
            t = X[r, features].astype(np.float64) - centre
            assert out[r, k] == coefficients[k] @ t + intercepts[k]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", [(0, 0), (2, 1), (6, 4)])
def test_all_finite(where, value, dtype):
    X = np.full((7, 5), np.finfo(dtype).max, dtype)
    X[3] = -X[3]
    assert scoring.all_finite(X)
    X[where] = value
    with np.errstate(invalid="ignore"):
        assert not scoring.all_finite(X)


def test_distances_to_scores():
    scores = np.array([[2.0, 4.0], [0.0, np.inf]])
    scoring.distances_to_scores(np.array([1.0, -1.0]), scores)
    assert scores.tolist() == [[0.0, -3.0], [1.0, -np.inf]]


# Far apart, equal, beyond what exp() can hold, impossible for one class, impossible for all.
SCORES = np.array(
    [
        [0.0, -1.0, 2.0],
        [3.0, 3.0, 3.0],
        [-1e5, -1e5 - 1, -2e5],
        [800.0, 0.0, 801.0],
        [-np.inf, 0.0, -1.0],
        [-np.inf, -np.inf, -np.inf],
    ]
)


def test_largest():
    out = np.empty(6, np.int64)
    scoring.largest(SCORES, out)
    assert out.tolist() == [2, 0, 0, 2, 1, 0]


def test_log_sum_exp():
    out = np.empty(6)
    scoring.log_sum_exp(SCORES, out)
    np.testing.assert_allclose(out[:5], naive.log_density(SCORES[:5]), rtol=1e-15)
    assert out[5] == -np.inf


def test_log_posterior():
    out = np.empty((6, 3))
    scoring.log_posterior(SCORES, out)
    np.testing.assert_allclose(out[:5], naive.log_posterior(SCORES[:5]), rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(out[5], -np.log(3))


def test_posterior():
    out = np.empty((6, 3))
    scoring.posterior(SCORES, out)
    np.testing.assert_allclose(out[:5], naive.posterior(SCORES[:5]), rtol=1e-9, atol=1e-300)
    np.testing.assert_allclose(out[5], 1 / 3)
    np.testing.assert_allclose(out.sum(axis=1), 1, rtol=1e-15)
