"""Scoring kernels against bare loops; runs with ``NUMBA_DISABLE_JIT=1`` too."""

import naive
import numpy as np
import pytest
from frozen import frozen

from streamgda.kernels import scoring
from streamgda.kernels.narrow_distances import MAX_FEATURES, ROW_STEP
from streamgda.kernels.tiles import ROWS, panel_width
from streamgda.models import scores
from streamgda.moments.structures.packing import PackedVectors

FLOATS = ["float32", "float64"]
EVERY_FLOAT = pytest.mark.parametrize("dtype", FLOATS)
EVERY_TYPE = pytest.mark.parametrize("dtype", ["uint8", *FLOATS])
# Less than a strip, whole strips, one more; less than a panel, whole panels, more than a block.
FEATURES = [1, 2, 3, 4, 5, 8, 9]
ROW_COUNTS = [1, 11, 12, 13, 24, 49]


def packed(X, width, dtype):
    panels = np.full((-(-len(X) // width), X.shape[1], width), np.nan, dtype)
    scoring.pack_panels(frozen(X), np.arange(X.shape[1]), panels)
    return panels


def whole_numbers(rng, *shape, dtype="float64"):
    """So that sums are exact in any type and in any order."""
    return rng.integers(-3 if dtype != "uint8" else 0, 4, shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16", *FLOATS])
@pytest.mark.parametrize(("n", "width"), [(1, 4), (4, 4), (5, 4), (12, 12), (30, 12), (25, 24)])
def test_pack_panels(n, width, dtype):
    rng = np.random.default_rng(0)
    X, features = frozen(rng.integers(0, 100, (n, 5)).astype(dtype)), np.array([3, 0, 4])
    panels = np.full((-(-n // width), 3, width), np.nan)
    scoring.pack_panels(X, features, panels)
    for b in range(len(panels)):
        for r in range(width):
            row = X[min(b * width + r, n - 1)]  # the last row is repeated beyond the end
            assert (panels[b, :, r] == row[features]).all()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", [1, 3, 4, 7, 8])
@pytest.mark.parametrize("groups", [(), (2,)])
def test_strips(groups, n, dtype):
    vectors = np.random.default_rng(0).normal(size=(*groups, n, 3))
    strips = PackedVectors(vectors)[np.dtype(dtype)]
    assert strips.shape == (*groups, -(-n // ROWS), 3, ROWS)
    assert strips.dtype == dtype
    for s in range(strips.shape[-3]):
        for a in range(ROWS):
            i = ROWS * s + a
            expected = vectors[..., i, :].astype(dtype) if i < n else 0
            assert (strips[..., s, :, a] == expected).all()


@EVERY_FLOAT
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("d", FEATURES)
def test_matrix_distances(d, tied, dtype):
    rng = np.random.default_rng(d)
    centres, roots = whole_numbers(rng, 3, d), np.tril(whole_numbers(rng, 1 if tied else 3, d, d))
    offsets = np.array([0.5, -np.inf, 2.0])
    strips = PackedVectors(roots)[np.dtype(dtype)]
    for n in ROW_COUNTS:
        X = whole_numbers(rng, n, d)
        out = np.full((3, n), np.nan)
        panels = packed(X, panel_width(dtype), dtype)
        scoring.matrix_distances(panels, centres, strips, -0.5, offsets, out)
        for k in range(3):
            for r in range(n):
                z = roots[0 if tied else k] @ (X[r] - centres[k])
                assert out[k, r] == offsets[k] - 0.5 * (z @ z)


@pytest.fixture
def small_panels(monkeypatch):
    """Effective only without the compiler."""
    monkeypatch.setattr(scoring, "_PANEL_ROWS", 2 * ROW_STEP)


FEW_ROWS = [1, ROW_STEP - 1, ROW_STEP, ROW_STEP + 1, 97, 200]  # up to several panels


def assert_labels(kernel, source, scores):
    """Check that labels alone are those of the largest scores, the first one of equals."""
    labels = np.full(scores.shape[1], -1)
    kernel(*source, labels)
    assert (labels == scores.argmax(axis=0)).all()


@EVERY_TYPE
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("d", range(1, MAX_FEATURES + 1))
def test_narrow_matrix_distances(d, tied, dtype, small_panels):
    rng = np.random.default_rng(d)
    centres, roots = whole_numbers(rng, 3, d), np.tril(whole_numbers(rng, 1 if tied else 3, d, d))
    offsets, features = np.array([0.5, -np.inf, 2.0]), rng.permutation(d + 2)[:d]
    strips = PackedVectors(roots)[np.dtype("float64")]
    for n in FEW_ROWS:
        X = frozen(whole_numbers(rng, n, d + 2, dtype=dtype))
        out = np.full((3, n), np.nan)
        source = X, features, centres, strips, -0.5, offsets
        scoring.narrow_matrix_distances(*source, out)
        z = np.einsum("kij,knj->kni", roots, X[:, features] - centres[:, None])
        assert (out == offsets[:, None] - 0.5 * (z * z).sum(axis=2)).all()
        assert_labels(scoring.narrow_matrix_distances, source, out)
        plain = np.full((3, n), np.nan)
        panels = packed(X[:, features], panel_width("float64"), "float64")
        scoring.matrix_distances(panels, centres, strips, -0.5, offsets, plain)
        assert (out == plain).all()


@EVERY_FLOAT
@pytest.mark.parametrize("n_vectors", [1, 2, 4, 5])
@pytest.mark.parametrize("d", FEATURES)
def test_linear_scores(d, n_vectors, dtype):
    rng = np.random.default_rng(d)
    centre, vectors = whole_numbers(rng, d), whole_numbers(rng, n_vectors, d)
    offsets = whole_numbers(rng, n_vectors) / 2
    for n in ROW_COUNTS:
        X = whole_numbers(rng, n, d)
        out = np.full((n_vectors, n), np.nan)
        strips = PackedVectors(vectors)[np.dtype(dtype)]
        panels = packed(X, panel_width(dtype), dtype)
        scoring.linear_scores(panels, centre, strips, 2.0, offsets, out)
        for k in range(n_vectors):
            for r in range(n):
                assert out[k, r] == offsets[k] + 2 * vectors[k] @ (X[r] - centre)


@EVERY_TYPE
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("d", [1, 3, 5000])
def test_diagonal_distances(d, tied, dtype, small_panels):
    rng = np.random.default_rng(10)
    centres, precisions = whole_numbers(rng, 3, d), whole_numbers(rng, 1 if tied else 3, d) ** 2
    offsets, features = np.array([0.5, -np.inf, 2.0]), rng.permutation(d + 2)[:d]
    for n in FEW_ROWS if d < 100 else (1, 9):
        X = frozen(whole_numbers(rng, n, d + 2, dtype=dtype))
        out = np.full((3, n), np.nan)
        source = X, features, centres, precisions, -0.5, offsets
        scoring.diagonal_distances(*source, out)
        gaps = X[:, features] - centres[:, None]
        assert (
            out == offsets[:, None] - 0.5 * np.einsum("knj,kj->kn", gaps**2, spread(precisions))
        ).all()
        assert_labels(scoring.diagonal_distances, source, out)


def spread(precisions):
    """One row for each of three classes."""
    return np.broadcast_to(precisions, (3, precisions.shape[1]))


def test_more_panels_than_a_block(monkeypatch):
    rng = np.random.default_rng(1)
    d, n = 3, 12 * 9
    X, centres, roots = (whole_numbers(rng, *shape) for shape in ((n, d), (2, d), (2, d, d)))
    panels, offsets = packed(X, 12, "float64"), np.zeros(2)
    monkeypatch.setattr(scoring, "_BLOCK_BYTES", 0)  # effective only without the compiler
    out = np.full((2, n), np.nan)
    strips = PackedVectors(np.tril(roots))[np.dtype("float64")]
    scoring.matrix_distances(panels, centres, strips, 1.0, offsets, out)
    for k in range(2):
        z = (X - centres[k]) @ np.tril(roots[k]).T
        assert (out[k] == (z**2).sum(axis=1)).all()
    vectors = PackedVectors(roots[0])[np.dtype("float64")]
    out = np.full((3, n), np.nan)
    scoring.linear_scores(panels, centres[0], vectors, 1.0, np.zeros(3), out)
    assert (out == roots[0] @ (X - centres[0]).T).all()


@EVERY_FLOAT
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", [(0, 0), (2, 1), (6, 4)])
def test_all_finite(where, value, dtype):
    X = np.full((7, 5), np.finfo(dtype).max, dtype)
    X[3] = -X[3]
    assert scoring.all_finite(frozen(X))
    X[where] = value
    with np.errstate(invalid="ignore"):
        assert not scoring.all_finite(frozen(X))


# Far apart, equal, beyond the range of exp(), impossible for one class, impossible for all.
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
    scoring.largest(np.ascontiguousarray(SCORES.T), out)
    assert out.tolist() == [2, 0, 0, 2, 1, 0]


def test_exponentials():
    grid = np.concatenate([-np.geomspace(1e-300, 800, 1200), [0, -0.0, -np.inf, -1e300]])
    scores = np.stack([grid, grid[::-1] / 3])
    expected = np.where(scores >= -708, np.exp(scores), 0)
    total = np.full(grid.size, np.nan)
    scoring.exponentials(scores, total)
    np.testing.assert_allclose(scores, expected, rtol=2 * np.finfo(float).eps, atol=0)
    assert (scores[:, expected[0] == 1] == 1)[0].all()
    assert (total == scores[0] + scores[1]).all()


def by_row(finish, *shape):
    out = np.full(shape, np.nan)
    finish(np.ascontiguousarray(SCORES.T), out)
    return out


def test_log_sum_exp():
    out = by_row(scores.log_sum_exp, 6)
    np.testing.assert_allclose(out[:5], naive.log_density(SCORES[:5]), rtol=1e-14)
    assert out[5] == -np.inf


def test_log_posterior():
    out = by_row(scores.log_posterior, 6, 3)
    np.testing.assert_allclose(out[:5], naive.log_posterior(SCORES[:5]), rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(out[5], -np.log(3))


def test_posterior():
    out = by_row(scores.posterior, 6, 3)
    np.testing.assert_allclose(out[:5], naive.posterior(SCORES[:5]), rtol=1e-9, atol=1e-300)
    np.testing.assert_allclose(out[5], 1 / 3)
    np.testing.assert_allclose(out.sum(axis=1), 1, rtol=1e-14)


def test_posteriors_of_more_rows_than_a_block():
    """Each like a single row."""
    rng = np.random.default_rng(2)
    joint = rng.normal(scale=9, size=(4, 2 * scoring._EXP_BLOCK + 3))
    out, alone = np.full(joint.T.shape, np.nan), np.full((1, 4), np.nan)
    scoring.posteriors(joint.copy(), out)
    np.testing.assert_allclose(out, naive.posterior(joint.T), rtol=1e-9, atol=1e-300)
    for r in range(0, len(out), 50):
        scoring.posteriors(np.ascontiguousarray(joint[:, r : r + 1]), alone)
        assert (alone[0] == out[r]).all()
