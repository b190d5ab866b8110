"""Rows to moments, and their merging, against bare loops."""

from fractions import Fraction

import naive
import numba
import numpy as np
import pytest
from frozen import NO_WEIGHTS, frozen

from streamgda.kernels.centred import (
    add_centred,
    add_centred_squares,
    first_rows,
    group_of_class,
    means_of_sums,
    rows_by_group,
)
from streamgda.kernels.integers import add_integer_squares
from streamgda.kernels.narrow import BUCKET_FEATURES, add_centred_narrow, add_exact_narrow
from streamgda.kernels.products import FEW_ROWS
from streamgda.kernels.sums import LARGE, add_outer, merge_means, scalar_two_sum, two_sum
from streamgda.moments.parallel import add_integers
from streamgda.rows.arrays import byte_rows

# Forms of scatter: one per class or one for all, matrix or variances. Narrow rows have a separate
# kernel.
STRUCTURES = {
    "full": (True, True),
    "tied": (False, True),
    "full, narrow": (True, True),
    "tied, narrow": (False, True),
    "diag": (True, False),
    "tied_diag": (False, False),
}
EVERY_STRUCTURE = pytest.mark.parametrize("structure", STRUCTURES)


def zeros(structure, n_classes, d, dtype=np.float64):
    per_class, matrix = STRUCTURES[structure]
    return np.zeros(
        ((n_classes if per_class else 1), d, d) if matrix else ((n_classes if per_class else 1), d),
        dtype,
    )


def kept(structure, scatter):
    """Scatters of each class (K, d, d), lower or whole, as a structure keeps them."""
    per_class, matrix = STRUCTURES[structure]
    scatter = np.tril(scatter) if matrix else scatter.diagonal(axis1=1, axis2=2).copy()
    return scatter if per_class else scatter.sum(axis=0, keepdims=True)


def quiet():
    """Silence NumPy's warnings, without the compiler, about values that are ignored or refused."""
    return np.errstate(over="ignore", invalid="ignore")


# --- numbers ----------------------------------------------------------------------------------


@numba.njit
def of_numbers(a, b):
    return scalar_two_sum(a, b)


def test_two_sum():
    rng = np.random.default_rng(0)
    a = rng.normal(size=300) * 10.0 ** rng.integers(-20, 20, 300)
    b = rng.normal(size=300) * 10.0 ** rng.integers(-20, 20, 300)
    total, rest = two_sum(a, b)
    assert (total == a + b).all()
    for i in range(300):
        assert Fraction(total[i]) + Fraction(rest[i]) == Fraction(a[i]) + Fraction(b[i])
        assert of_numbers(a[i], b[i]) == (total[i], rest[i])


@pytest.mark.parametrize("d", [1, 2, 3, 8, 17])
def test_add_outer(d):
    rng = np.random.default_rng(d)
    vector = rng.integers(-5, 6, d).astype(np.float64)
    for coefficient in (2.0, -0.5, 0.0):
        S, squares = rng.integers(-9, 9, (d, d)).astype(float), rng.integers(0, 9, d).astype(float)
        expected = S + np.tril(coefficient * np.outer(vector, vector))
        diagonal = squares + coefficient * vector**2
        add_outer(vector, coefficient, S)
        add_outer(vector, coefficient, squares)
        np.testing.assert_array_equal(S, expected)
        np.testing.assert_array_equal(squares, diagonal)


def test_add_outer_keeps_duplicates_of_features_alike():
    """To the bit, and independent of the features between them."""
    rng = np.random.default_rng(1)
    vector = rng.normal(size=9)
    vector[7] = vector[2]
    S = np.zeros((9, 9))
    add_outer(vector, 1 / 3, S)
    S += np.tril(S, -1).T
    assert (S[7] == S[2]).all()
    squares = np.zeros(9)
    add_outer(vector, 1 / 3, squares)
    assert (squares == S.diagonal()).all()


# --- merging ----------------------------------------------------------------------------------


def parts_of(exact):
    """Fractions as sums of two float64 numbers each."""
    high = naive.rounded(exact)
    low = [
        [m - Fraction(h) for m, h in zip(*rows, strict=True)]
        for rows in zip(exact, high.tolist(), strict=True)
    ]
    return high, naive.rounded(low)


def state_of(X, y, n_classes, structure):
    """Count, mean and scatter as a kernel would leave them, each rounded once."""
    d = X.shape[1]
    exact = naive.exact_moments(X, y)
    count, scatter = np.zeros(n_classes, np.int64), np.zeros((n_classes, d, d))
    mean, mean_low = np.zeros((2, n_classes, d))
    count[exact.classes] = exact.count
    mean[exact.classes], mean_low[exact.classes] = parts_of(exact.means)
    scatter[exact.classes] = naive.rounded(exact.scatter)
    return count, mean, mean_low, kept(structure, scatter)


def assert_state(state, X, y, structure, rtol=1e-13):
    """Check that they are the moments of the rows, in all classes that have any."""
    count, mean, mean_low, scatter = state
    n_classes = count.size
    expected_count, *_, expected = state_of(X, y, n_classes, structure)
    assert (count == expected_count).all()
    exact = naive.exact_moments(X, y)
    size = np.abs(X).max()
    for k, means in zip(exact.classes, exact.means, strict=True):
        both = [Fraction(a) + Fraction(b) for a, b in zip(mean[k], mean_low[k], strict=True)]
        assert max(abs(b - m) for b, m in zip(both, means, strict=True)) < 1e-28 * size + 1e-15
    np.testing.assert_allclose(scatter, expected, rtol=rtol, atol=rtol * np.abs(expected).max())


def merge(count, mean, mean_low, at, group, *state):
    *means, scatter = state
    gap, weight = np.full(mean.shape, np.nan), np.full(count.shape, np.nan)
    merge_means(count, mean, mean_low, at, *means, gap, weight)
    for k in np.flatnonzero(weight):
        add_outer(gap[k], weight[k], scatter[group[at[k]]])


@pytest.mark.parametrize("offset", [0, 1e8])
@EVERY_STRUCTURE
def test_merge(structure, offset):
    """Classes of both, one or neither; two that become one; an offset that leaves 8 digits."""
    rng = np.random.default_rng(2)
    y, other_y = rng.choice([0, 1, 4], 30), rng.choice([0, 1, 3], 20)
    X = offset + rng.normal(size=(30, 3)) + y[:, None]
    other_X = offset + rng.normal(size=(20, 3)) - other_y[:, None]
    at = np.array([4, 1, 5, 1])  # class 0 is class 4 here, 2 has no rows, 1 and 3 both are 1
    state, other = state_of(X, y, 6, structure), state_of(other_X, other_y, 4, structure)
    count, mean, mean_low, scatter = state
    # The entries of classes without rows are never read.
    other[1][2], other[2][2] = np.nan, np.nan
    mean[3], mean_low[3] = np.nan, np.nan
    before = mean.copy()
    for k, g in enumerate(at) if STRUCTURES[structure][0] else [(0, 0)]:
        scatter[g] += other[3][k]
    group = group_of_class(6, len(scatter))
    merge(*other[:3], at, group, count, mean, mean_low, scatter)
    rows, labels = np.vstack([X, other_X]), np.append(y, at[other_y])
    assert_state(state, rows, labels, structure, 1e-14 if not offset else 1e-12)
    assert (mean[0] == before[0]).all()
    assert np.isnan(mean[3]).all()
    assert (mean[5] == 0).all()


def test_merge_into_nothing_copies():
    mean, low = np.array([[0.1, 1e9]]), np.array([[1e-18, -3e-9]])
    count, high, rest, scatter = np.zeros(2), np.ones((2, 2)), np.ones((2, 2)), np.full((2, 2), 7.0)
    at, group = np.array([1]), np.arange(2)
    merge(np.array([2.5]), mean, low, at, group, count, high, rest, scatter)
    assert count.tolist() == [0, 2.5]
    assert high.tolist() == [[1, 1], mean[0].tolist()]
    assert rest.tolist() == [[1, 1], low[0].tolist()]
    assert (scatter == 7).all()


# --- groups, pivots and means ------------------------------------------------------------------


def test_groups():
    assert group_of_class(3, 3).tolist() == [0, 1, 2]
    assert group_of_class(3, 1).tolist() == [0, 0, 0]
    assert group_of_class(1, 1).tolist() == [0]


def test_ordered():
    codes = np.array([2, 0, 2, 3, 0])
    order, starts = rows_by_group(codes, 4, 4)
    assert order.tolist() == [1, 4, 0, 2, 3]
    assert starts.tolist() == [0, 2, 2, 4, 5]
    order, starts = rows_by_group(codes, 4, 1)
    assert order.tolist() == [1, 4, 0, 2, 3]
    assert starts.tolist() == [0, 5]


@pytest.mark.parametrize(
    ("codes", "count", "rows"),
    [
        ([2, 0, 2, 0], [0, 0, 0, 0], {2: 0, 0: 1}),
        ([2, 0, 2, 0], [0, 3, 0.5, 0], {0: 1}),
        ([1, 2, 2], [0, 3, 0, 0], {2: 1}),
        ([1, 1, 1], [1, 1, 1, 1], {}),
        ([3, 3, 1, 3, 0, 2], [0, 0, 0, 0], {3: 0, 1: 2, 0: 4, 2: 5}),
    ],
)
def test_first_rows(codes, count, rows):
    first = np.full(4, 9)
    number = np.bincount(codes, minlength=4).astype(float)
    first_rows(np.array(codes), number, np.array(count, float), first)
    assert first.tolist() == [rows.get(k, -1) for k in range(4)]


def test_means_of_sums():
    number = np.array([3, 0, 0.5])
    pivot, sums = np.array([[1e9, -1, 0], [0, 0, 0], [5, 6, 7]]), np.zeros((3, 3))
    sums[0], sums[2] = [1, 0, 9], [1, 2, 0]
    means = [
        [Fraction(p) + Fraction(s) / Fraction(n or 1) for p, s in zip(*row, strict=True)]
        for n, row in zip(number, zip(pivot, sums, strict=True), strict=True)
    ]
    assert means_of_sums(LARGE, number, pivot, sums)
    high, low = parts_of(means)
    assert (pivot == high).all()
    np.testing.assert_allclose(sums, low, rtol=1e-8)  # of 1/3 with nine digits before it
    assert sums[2].tolist() == [0, 0, 0]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, LARGE, -LARGE, 1e300])
def test_means_of_sums_that_are_not_finite(value):
    for place in ((0, 0), (1, 2)):
        pivot, sums = np.zeros((2, 2, 3))
        sums[place] = value
        assert not means_of_sums(LARGE, np.ones(2), pivot, sums)
        pivot, sums = np.zeros((2, 2, 3))
        pivot[place] = value
        assert not means_of_sums(LARGE, np.ones(2), pivot, sums)
        sums[place] = pivot[place] = LARGE * 0.49
        assert means_of_sums(LARGE, np.ones(2), pivot, sums)


# --- rows to centred moments ------------------------------------------------------------------


def fresh(structure, n_classes, d, weighted=False):
    count = np.zeros(n_classes, np.float64 if weighted else np.int64)
    mean = np.zeros((n_classes, d))
    return count, mean, mean.copy(), zeros(structure, n_classes, d)


def take(state, X, y, structure, block_rows, weights=NO_WEIGHTS):
    count, *state, scatter = state
    read = frozen(X), y, frozen(weights), block_rows, LARGE, count, np.empty(0), *state
    panels = np.full((FEW_ROWS + 2, X.shape[1]), np.nan)  # fewer rows than some blocks have
    with quiet():
        if scatter.ndim == 2:
            return add_centred_squares(*read, scatter)
        if "narrow" in structure:
            return add_centred_narrow(*read, scatter)
        return add_centred(*read, panels, scatter)


def rows_of(rng, dtype, n, d, n_classes):
    y = rng.integers(0, n_classes, n)
    X = rng.normal(size=(n, d)) * 20 + 60 + 9 * y[:, None]
    return (np.round(X) if np.dtype(dtype).kind in "iu" else X).astype(dtype), y


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@EVERY_STRUCTURE
def test_add_centred(structure, dtype, weighted):
    """In one block or several, of fewer rows than classes too, narrow and wide, and once more."""
    rng = np.random.default_rng(4)
    for d, n, block_rows in ((1, 1, 9), (3, 25, 100), (3, 25, 10), (5, 9, 2), (14, 20, 7)):
        X, y = rows_of(rng, dtype, n, d, 4)
        weights = rng.integers(1, 9, n) / 4 if weighted else NO_WEIGHTS
        expected = naive.moments(X, y, weights if weighted else None)
        state = fresh(structure, 5, d, weighted)
        for times in (1, 2):
            assert take(state, X, y, structure, block_rows, weights)
            count, mean, mean_low, scatter = state
            held = np.zeros(5), np.zeros((5, d)), np.zeros((5, d, d))
            held[0][expected.classes] = times * expected.count
            held[1][expected.classes] = expected.means
            held[2][expected.classes] = times * expected.scatter
            assert (count == held[0]).all()
            np.testing.assert_allclose(mean, held[1], rtol=1e-14)
            assert (np.abs(mean_low) <= np.spacing(np.abs(mean))).all()
            S = kept(structure, held[2])
            np.testing.assert_allclose(scatter, S, rtol=1e-12, atol=1e-12 * np.abs(S).max())


def test_add_centred_far_away():
    """Means in two parts: rows 1e8 away lose no accuracy."""
    rng = np.random.default_rng(5)
    y = rng.integers(0, 2, 60)
    X = 1e8 + rng.normal(size=(60, 3)) + y[:, None]
    for structure in STRUCTURES:
        state = fresh(structure, 2, 3)
        assert take(state, X[:20], y[:20], structure, 100)
        assert take(state, X[20:], y[20:], structure, 7)
        assert_state(state, X, y, structure, 1e-12)


@pytest.mark.parametrize("weighted", [False, True])
@EVERY_STRUCTURE
def test_add_centred_of_means_that_jump(structure, weighted):
    """Pivots that are a million standard deviations off, and weigh nothing, cost few digits."""
    rng = np.random.default_rng(7)
    y = np.tile([0, 1], 200)
    X = rng.normal(size=(400, 5)) + y[:, None]
    X[:2] += 1e6  # the first rows are outliers
    X[100:200] -= 1e6  # and then the classes move
    X[200:] += np.linspace(0, 1e6, 200)[:, None]
    weights = rng.integers(1, 9, 400) / 4 if weighted else np.empty(0)
    weights[:2] = 1e-9
    state = fresh(structure, 2, 5, weighted)
    for rows in (slice(0, 100), slice(100, 200), slice(200, 400)):
        assert take(state, X[rows], y[rows], structure, 80, weights[rows])
        known = slice(0, rows.stop)
        expected = naive.moments(X[known], y[known], weights[known] if weighted else None)
        S = kept(structure, expected.scatter)
        for k, found in enumerate(state[3]):
            scale = np.sqrt(np.outer(*2 * [np.diag(S[k])])) if S[k].ndim == 2 else S[k]
            assert (np.abs(found - S[k]) <= 1e-10 * scale).all()


@pytest.mark.parametrize("weighted", [False, True])
@EVERY_STRUCTURE
def test_add_centred_keeps_constant_features(structure, weighted):
    """Their values to the bit, and no scatter, also if each class has a different constant."""
    rng = np.random.default_rng(6)
    X, y = rows_of(rng, "float64", 40, 15, 3)
    X[:, 1], X[:, 14] = 0.1, 1e8 + 0.3
    X[:, 7] = np.array([0.1, -7.7e-9, 1e100])[y]
    weights = rng.gamma(1, size=40) if weighted else NO_WEIGHTS
    state = fresh(structure, 3, 15, weighted)
    assert take(state, X[:9], y[:9], structure, 100, weights[:9])
    assert take(state, X[9:], y[9:], structure, 4, weights[9:])
    _, mean, mean_low, scatter = state
    for j in (1, 7, 14):
        assert (mean[y, j] == X[:, j]).all()
        assert not mean_low[:, j].any()
        assert not scatter[..., j].any()
        assert not scatter[:, j].any()
    assert scatter[:, 0].any()


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e200])
@EVERY_STRUCTURE
def test_add_centred_of_values_that_are_not_finite(structure, value):
    """The block is not added, whether or not others came before it."""
    rng = np.random.default_rng(7)
    X, y = rows_of(rng, "float64", 30, 3, 3)
    held, clean = fresh(structure, 3, 3), fresh(structure, 3, 3)
    for state in (held, clean):
        assert take(state, X, y, structure, 10)
    more, labels = rows_of(rng, "float64", 30, 3, 3)
    for row, added in ((0, 0), (9, 0), (10, 10), (29, 20)):
        bad = more.copy()
        bad[row, 2] = value
        assert not take(held, bad, labels, structure, 10)
        if added:
            assert take(clean, more[:added], labels[:added], structure, 10)
        assert all((a == b).all() for a, b in zip(held, clean, strict=True))
        weighted = fresh(structure, 3, 3, True)
        assert not take(weighted, bad, labels, structure, 30, np.ones(30))
        assert not any(array.any() for array in weighted)


def test_add_centred_of_overflowing_weights():
    state = fresh("full", 1, 2, True)
    X, y = np.array([[1.0, 2.0], [3.0, 5.0]]), np.zeros(2, np.int64)
    assert not take(state, X, y, "full", 9, np.full(2, 1e307))
    assert not any(array.any() for array in state)


# --- rows to exact sums -----------------------------------------------------------------------


EXACT = ["uint8", "int8", "uint16", "int16"]


@pytest.mark.parametrize("dtype", EXACT)
@EVERY_STRUCTURE
def test_add_exact(structure, dtype):
    """Values of the whole range, added to existing sums about origins of any type."""
    rng = np.random.default_rng(8)
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    narrow, matrix = "narrow" in structure, STRUCTURES[structure][1]
    for d, n, origin in ((1, 1, 0), (3, 25, 1 << 15), (3, 25, 0), (5, 6, 1 << 15), (26, 9, 0)):
        X = rng.integers(low, high, (n, d), endpoint=True).astype(dtype)
        X[rng.random((n, d)) < 0.3] = low
        X[rng.random((n, d)) < 0.3] = high
        if low <= origin <= high:
            X[:, ::2] = origin
        y = rng.integers(0, 3, n)
        count, total = np.array([0, 5, 0, 0]), rng.integers(-9, 9, (4, d))
        scatter = zeros(structure, 4, d, np.int64) + 3
        expected = count.copy(), total.copy(), scatter.copy()
        products = np.zeros((4, d, d), np.int64)
        for row, k in zip(X.astype(np.int64) - origin, y, strict=True):
            expected[0][k] += 1
            expected[1][k] += row
            products[k] += np.outer(row, row)
        rows, form = byte_rows(frozen(X), origin)
        if narrow and d <= BUCKET_FEATURES:
            add_exact_narrow(frozen(X), y, origin, count, total, scatter)
        elif matrix:
            add_integers(rows, y, form, count, total, scatter, 1)
        else:
            add_integer_squares(rows, y, *form, count, total, scatter)
        assert (count == expected[0]).all()
        assert (total == expected[1]).all()
        assert (scatter == expected[2] + kept(structure, products)).all()
