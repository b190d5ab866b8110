"""Class moments of rows of every kind and size against the naive oracle, and their digits."""

import naive
import numpy as np
import pytest
from grids import pairs
from moment_checks import DTYPES, SIZES, TYPES, assert_moments, sample
from samples import bits
from scipy.sparse import csr_array

from streamgda import ClassMoments
from streamgda.errors import InvalidParameterError, PrecisionWarning

# --- rows of every kind and size --------------------------------------------------------------


def strided(X):
    spaced = np.zeros((2 * X.shape[0], 3 * X.shape[1]), X.dtype)
    spaced[::2, 1::3] = X
    return spaced[::2, 1::3]


def memory_mapped(X, tmp_path):
    X.tofile(tmp_path / "rows")
    return np.memmap(tmp_path / "rows", X.dtype, "r", shape=X.shape)


LAYOUTS = {
    "C": lambda X, _: np.ascontiguousarray(X),
    "Fortran": lambda X, _: np.asfortranarray(X),
    "strided": lambda X, _: strided(X),
    "reversed": lambda X, _: np.ascontiguousarray(X[::-1, ::-1])[::-1, ::-1],
    "read-only": lambda X, _: np.broadcast_to(X, X.shape),
    "memmap": memory_mapped,
}


@pairs("size, layout, dtype, covariance_type", ["few", "by class"], LAYOUTS, DTYPES, TYPES)
def test_rows_of_any_kind(size, layout, dtype, covariance_type, tmp_path):
    X, y = sample(*SIZES[size], dtype=dtype)
    rows = LAYOUTS[layout](X, tmp_path)
    assert (rows == X).all()
    moments = ClassMoments(covariance_type).update(rows, y)
    assert_moments(moments, X, y)
    assert moments.exact == (np.dtype(dtype).kind in "biu" and np.dtype(dtype).itemsize <= 2)
    assert moments.n_features == X.shape[1]
    assert moments.class_count.dtype == np.int64
    # Twice, to cover the second batch.
    moments.update(rows, y)
    assert_moments(moments, np.vstack([X, X]), np.append(y, y))


SHAPES = [(70, d, 3) for d in (1, 2, 3, 7, 8, 12, 13, 15, 16, 17, 24, 25, 63, 64, 65, 121)]
SHAPES += [(n, 6, 4) for n in (1, 2, 15, 16, 17, 255, 256, 257, 511, 512, 513, 1024)]


@pairs(
    "shape, dtype, covariance_type, weighted",
    [*SHAPES, *SIZES.values()],
    ["uint8", "int16", "uint16", "int64", "float32", "float64"],
    TYPES,
    [False, True],
)
def test_any_width_number_of_rows_and_size(shape, dtype, covariance_type, weighted):
    """Some weights are zero; rows without weights are added before or after those with weights."""
    X, y = sample(*shape, dtype=dtype)
    rng = np.random.default_rng(1)
    weights = np.where(rng.random(len(y)) < 0.1, 0, rng.gamma(1, size=len(y))) if weighted else None
    moments = ClassMoments(covariance_type).update(X, y, weights)
    matrix = covariance_type in ("full", "tied")
    # Large sums of products of wide rows of single precision have the digits of these.
    rtol = 1e-6 if dtype == "float32" and matrix and moments.nbytes > 1 << 20 else 1e-12
    assert_moments(moments, X, y, weights, rtol)
    assert moments.exact == (not weighted and np.dtype(dtype).kind in "biu" and X.itemsize <= 2)
    both = np.append(np.ones(len(y)) if weights is None else weights, np.ones(len(y)))
    before = ClassMoments(covariance_type).update(X, y).update(X, y, weights)
    for found in (moments.update(X, y), before):
        assert_moments(found, np.vstack([X, X]), np.append(y, y), both, rtol)
        assert found.class_count.dtype == (np.float64 if weighted else np.int64)


@pytest.mark.parametrize("scale", [1e-25, 1e-12, 1e25, 1e37])
def test_wide_rows_of_float32_whose_squares_leave_float32(scale):
    """They are multiplied in float64, block by block."""
    X, y = sample(60, 700, 1, dtype="float32")
    X *= np.float32(scale / 100)
    assert_moments(ClassMoments().update(X, y), X, y, rtol=1e-6)


def test_rows_that_are_copied_in_several_windows():
    """Arrays of another layout are copied a part at a time, of at most 8 million values."""
    X, y = sample(70_000, 130, dtype="uint8")
    found = ClassMoments().update(np.asfortranarray(X), y)
    assert bits(found) == bits(ClassMoments().update(X, y))


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "tied_diag"])
@pytest.mark.parametrize("size", ["segments", "by class", "many classes"])
def test_bits_do_not_depend_on_threads(size, covariance_type, use_threads):
    X, y = sample(*SIZES[size])
    weights = np.random.default_rng(0).uniform(0.5, 2, len(y))
    for labels in (y, np.sort(y), (y == 2).astype(int)):
        found = set()
        for n in (1, 2, 5):
            use_threads(n)
            found.add(ClassMoments(covariance_type).update(X, labels, weights).to_bytes())
        assert len(found) == 1


# --- weights ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "uint8"])
def test_rows_of_weight_zero_are_not_there(dtype):
    X, y = sample(dtype=dtype)
    y[::3] = 99
    weights = np.random.default_rng(3).gamma(1, size=200)
    weights[::3] = 0
    moments = ClassMoments().update(X, y, weights)
    assert 99 not in moments.classes
    kept = weights > 0
    assert bits(moments) == bits(ClassMoments().update(X[kept], y[kept], weights[kept]))
    before = bits(moments)
    moments.update(X, y, np.zeros(200)).update(X, y, 0)
    assert bits(moments) == before


@pytest.mark.parametrize(
    "weights", [np.full(200, 2, np.int8), np.full(200, True), [0.5] * 200, 3, np.float32(0.25)]
)
def test_weights_of_any_kind(weights):
    X, y = sample()
    assert_moments(ClassMoments().update(X, y, weights), X, y, np.broadcast_to(weights, 200))


@pytest.mark.parametrize("covariance_type", ["full", "diag"])
@pytest.mark.parametrize("weight", [5e-324, 1e-310, 1e-260])
def test_rows_of_almost_no_weight_are_ignored(covariance_type, weight):
    """Their squares would be rounded to anything, even below zero."""
    X = np.random.default_rng(9).normal(size=(40, 2))
    weights = np.full(40, weight)
    moments = ClassMoments(covariance_type).update(X[:2], [0, 0], [1.0, 2.0])
    before = moments.to_bytes()
    moments.update(X[:20], np.zeros(20, int), weights[:20]).update(X[20:], [0] * 20, weights[20:])
    assert moments.to_bytes() == before
    assert not ClassMoments(covariance_type).update(X, [0] * 40, weights).classes.size


# --- digits -----------------------------------------------------------------------------------


def variances(moments):
    values = moments.covariance()
    return values if moments.covariance_type == "diag" else np.diagonal(values, axis1=1, axis2=2)


def in_long_double(X, y):
    """Variances of each class, about a row."""
    found = []
    for k in np.unique(y):
        Z = (X[y == k] - X[y == k][:1]).astype(np.longdouble)
        found.append(((Z - Z.mean(axis=0)) ** 2).mean(axis=0))
    return np.array(found)


KINDS = {
    "random": lambda X: X,
    "sorted": lambda X: np.sort(X, axis=0),
    "edge": lambda X: np.vstack([X[:2] * 0 + 40, X[2:]]),
    "two values": lambda X: np.where(X > 0.3, 0.1, 0.7),
    "offset": lambda X: (X + 1e12).round(3),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(300_000, 1), (100_000, 4), (20_000, 20), (3_000, 90)])
def test_variances_have_all_digits(shape, kind):
    """Errors depend neither on the number of rows, nor their order, nor the first of them."""
    rng = np.random.default_rng(0)
    X, y = KINDS[kind](rng.normal(size=shape)), rng.integers(0, 2, shape[0])
    for name, rows in (("full", X), ("diag", X), ("diag", csr_array(X))):
        error = variances(ClassMoments(name).update(rows, y)) / in_long_double(X, y) - 1
        assert np.abs(error).max() < 5e-15


@pytest.mark.parametrize("name", ["full", "diag"])
def test_variances_of_streams_of_small_batches(name):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60_000, 3)) + 1e6, rng.integers(0, 2, 60_000)
    moments = ClassMoments(name)
    for start in range(0, len(X), 20):
        moments.update(X[start : start + 20], y[start : start + 20])
    assert np.abs(variances(moments) / in_long_double(X, y) - 1).max() < 1e-13


@pytest.mark.parametrize("name", ["full", "diag"])
@pytest.mark.parametrize("d", [3, 90])
def test_a_light_row_far_away_costs_no_digits(name, d):
    X, y = np.random.default_rng(0).normal(size=(900, d)), np.zeros(900, int)
    moments = ClassMoments(name).update(np.full((1, d), 1e9), [0], [1e-100])
    for rows in np.split(X, 3):
        moments.update(rows, y[:300], np.ones(300))
    np.testing.assert_allclose(moments.means[0], X.mean(axis=0), rtol=0, atol=1e-15)
    assert np.abs(variances(moments) / in_long_double(X, y) - 1).max() < 5e-15


def test_origin_and_offset_centre_rows_exactly():
    X, y = np.array([[1e15 + 1, 3.0], [1e15 + 2, 5.0], [7.0, 7.0]]), [0, 0, 1]
    sums = ClassMoments().update(X, y).centred()
    rows = (X[:2] - sums.origin[0]) - sums.offset[0]
    assert rows.tolist() == [[-0.5, -1.0], [0.5, 1.0]]


def test_integers_that_float64_rounds_are_told():
    X = np.array([[2**62 + i] for i in range(6)])
    for covariance_type, dtype in (("full", np.int64), ("diag", np.uint64)):
        with pytest.warns(PrecisionWarning, match=r"integers beyond 2\*\*53"):
            ClassMoments(covariance_type).update(X.astype(dtype), np.zeros(6, int))
    moments = ClassMoments().update(X - 2**62, np.zeros(6, int))
    assert moments.covariance()[0, 0, 0] == pytest.approx(35 / 12)


# --- what is held -----------------------------------------------------------------------------


def test_the_total_of_all_classes():
    X, y = sample()
    moments = ClassMoments("tied").update(X, y)
    assert np.array_equal(moments.covariance(), moments.covariance().T)
    weight, mean, scatter = moments.total()
    assert weight == 200
    np.testing.assert_allclose(mean, X.mean(axis=0), rtol=1e-14)
    np.testing.assert_allclose(scatter / 200, np.cov(X.T, ddof=0), rtol=1e-12)


@pytest.mark.parametrize("covariance_type", TYPES)
def test_ddof(covariance_type):
    X, y = sample(40, n_classes=4)
    y[y == 3] = 2
    y[0] = 3  # A class has one row.
    moments = ClassMoments(covariance_type).update(X, y)
    for ddof in (0, 1, 2, 30):
        expected = naive.covariance(X, y, covariance_type, ddof=ddof)
        np.testing.assert_allclose(moments.covariance(ddof), expected, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("covariance_type", ["", "Full", "ledoit", None, 3, ["full"]])
def test_unknown_covariance_type(covariance_type):
    for make in (ClassMoments, ClassMoments().reduce):
        with pytest.raises(InvalidParameterError, match="is not known; use one of full, tied"):
            make(covariance_type)
