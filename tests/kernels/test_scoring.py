"""Scoring kernels against bare loops."""

import naive
import numpy as np
import pytest
from frozen import frozen

from streamgda import GaussianDiscriminantAnalysis
from streamgda.kernels import scoring
from streamgda.kernels.scoring import FLOAT64_FEATURES, PANEL_FEATURES
from streamgda.models import model as scores
from streamgda.moments.roots import (
    NO_LABELS,
    NO_SCORES,
    DiagonalDistances,
    DirectDistances,
    LinearFunctions,
    MatrixDistances,
    PooledDistances,
    halves,
)
from streamgda.rows.counting import all_finite

BLOCK = scoring.BLOCK
FLOATS = ["float32", "float64"]
EVERY_FLOAT = pytest.mark.parametrize("dtype", FLOATS)
EVERY_TYPE = pytest.mark.parametrize("dtype", ["uint8", *FLOATS])
ROW_COUNTS = [1, 12, 49]


def whole_numbers(rng, *shape, dtype="float64"):
    """So that sums are exact in any type and in any order."""
    return rng.integers(-3 if dtype != "uint8" else 0, 4, shape).astype(dtype)


def matrix_scores(X, features, centres, roots, offsets, margin=np.inf, dtype="float64"):
    kind = PooledDistances if len(roots) < len(centres) else MatrixDistances
    distances, X = kind(roots, features, centres), frozen(np.asarray(X, dtype))
    with np.errstate(invalid="ignore", over="ignore"):
        return distances.scores(X, -0.5, offsets, margin)


def expected_scores(X, centres, roots, offsets):
    gaps = np.asarray(X, float) - centres[:, None]
    z = np.einsum("kij,knj->kni", np.broadcast_to(roots, (len(centres), *roots.shape[1:])), gaps)
    return offsets[:, None] - 0.5 * (z * z).sum(axis=2)


@EVERY_FLOAT
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("d", [1, 5, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 3])
def test_matrix_scores(d, tied, dtype):
    rng = np.random.default_rng(d)
    centres, roots = whole_numbers(rng, 3, d), np.tril(whole_numbers(rng, 1 if tied else 3, d, d))
    offsets, features = np.array([0.5, -np.inf, 2.0]), np.sort(rng.permutation(d + 2)[:d])
    for n in ROW_COUNTS if d < 50 else [9]:
        X = whole_numbers(rng, n, d + 2)
        out = matrix_scores(X, features, centres, roots, offsets, dtype=dtype)
        expected = expected_scores(X[:, features], centres, roots, offsets)
        # Rows are centred once for all classes of a pooled covariance, at a rounded mean of theirs.
        rtol = (1e-5 if dtype == "float32" else 1e-13) if tied else 0
        np.testing.assert_allclose(out, expected, rtol=rtol, atol=rtol * d)


@EVERY_FLOAT
@pytest.mark.parametrize("alone", ["none", "some", "all"])
def test_features_without_covariances_are_not_multiplied(alone, dtype):
    rng = np.random.default_rng(3)
    d, n = 7, 30
    centres, roots = whole_numbers(rng, 2, d), np.tril(whole_numbers(rng, 2, d, d))
    roots[:, np.arange(d), np.arange(d)] = 2  # no feature is without all entries
    some = {"none": [[], []], "some": [[0, 3, 4, 6], [2]], "all": [range(d)] * 2}[alone]
    for root, features in zip(roots, some, strict=True):
        for j in features:
            root[j, np.arange(d) != j] = root[np.arange(d) != j, j] = 0
    packed = MatrixDistances(roots, np.arange(d), centres)
    assert packed.n_coupled.tolist() == [d - len(features) for features in some]
    X = whole_numbers(rng, n, d)
    out = matrix_scores(X, np.arange(d), centres, roots, np.zeros(2), dtype=dtype)
    assert (out == expected_scores(X, centres, roots, np.zeros(2))).all()


@EVERY_TYPE
@pytest.mark.parametrize("d", [PANEL_FEATURES - 1, PANEL_FEATURES, PANEL_FEATURES + 1, 300])
@pytest.mark.parametrize("spread", [0.01, 1.0, 30.0])
def test_labels_and_posteriors_of_many_features(spread, d, dtype):
    """Of classes among which none, some or almost all are left out."""
    rng = np.random.default_rng(d)
    means = 100 + spread * rng.normal(size=(4, d))
    roots = np.tril(rng.normal(size=(4, d, d))) / d + np.eye(d) / 3
    X = means[rng.integers(0, 4, 50)] + rng.normal(size=(50, d)) * 3
    X = np.clip(X.round(), 0, 255).astype(dtype)
    covariances = np.linalg.inv(roots.transpose(0, 2, 1) @ roots)
    model = GaussianDiscriminantAnalysis.from_parameters(
        classes=range(4), means=means, covariances=covariances, priors=[0.25] * 4
    )
    joint = naive.joint_log_likelihood(X, means, covariances, np.full(4, 0.25))
    gaps = joint.max(axis=1, keepdims=True) - joint
    assert (gaps[np.arange(50), model.predict(X)] < 1e-3).all()
    np.testing.assert_allclose(
        model.predict_proba(X),
        naive.posterior(joint),
        rtol=0,
        atol=1e-8 if dtype != "float32" else 1e-3,
    )


@EVERY_FLOAT
@pytest.mark.parametrize("margin", [0.0, 50.0])
def test_scores_far_below_the_largest_are_bounds(margin, dtype):
    """Others are the same, so that labels are; ties, -inf and infinite scores included."""
    rng = np.random.default_rng(5)
    d, n, n_classes = BLOCK + 9, 30, 5
    centres, roots = whole_numbers(rng, n_classes, d), np.tril(whole_numbers(rng, 1, d, d))
    roots = np.repeat(roots, n_classes, axis=0)
    roots[2] = np.eye(d)
    centres[4], offsets = centres[1], np.array([0.0, 1.0, -900.0, -np.inf, 1.0])
    X = centres[rng.integers(0, n_classes, n)]
    X[: n // 2] += rng.integers(-1, 2, (n // 2, d))
    full = matrix_scores(X, np.arange(d), centres, roots, offsets, dtype=dtype)
    part = matrix_scores(X, np.arange(d), centres, roots, offsets, margin, dtype)
    assert (part.argmax(axis=0) == full.argmax(axis=0)).all()
    exact = full >= full.max(axis=0) - margin
    assert (part[exact] == full[exact]).all()
    assert (part >= full).all()
    assert ((part < part.max(axis=0) - margin) | exact).all()
    assert (part != full).any()  # some work is left out
    largest = np.full(n, -1)
    scoring.largest(part, largest)
    assert (largest == full.argmax(axis=0)).all()


def test_scores_beyond_float32_are_computed_in_float64():
    d = 3
    roots, centres = np.eye(d)[None] * 1e30 + np.tril(np.ones((d, d))), np.zeros((2, d))
    centres[1] = 1e10
    X = np.array([[1e10, 0, 0], [1, 2, 3]])
    out = matrix_scores(X, np.arange(d), centres, roots, np.zeros(2), 0.0, "float32")
    X = X.astype("float32")
    np.testing.assert_allclose(out, expected_scores(X, centres, roots, np.zeros(2)), rtol=1e-6)


STEP = scoring.row_step("float64")
FEW_ROWS = [1, STEP - 1, STEP, 2 * STEP + 1, 97, 200]  # up to several panels


def panel_scores(*source):
    """Return scores, and check that what is written in their place follows from them."""
    out = np.full((source[-1].size, len(source[0])), np.nan)
    scoring.panel_scores(*source, out, NO_LABELS, NO_SCORES, False)
    labels, rows, shares = np.full(len(source[0]), -1), *np.full((2, *out.T.shape), np.nan)
    scoring.panel_scores(*source, NO_SCORES, labels, NO_SCORES, False)
    assert (labels == out.argmax(axis=0)).all()
    scoring.panel_scores(*source, NO_SCORES, NO_LABELS, rows, False)
    assert (rows == out.T).all()
    scoring.panel_scores(*source, NO_SCORES, NO_LABELS, rows, True)
    scores.posterior(out, shares)
    assert (rows == shares).all()
    return out


@EVERY_TYPE
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("d", [1, 2, 3, 4, 5, 8, 11, 14, PANEL_FEATURES])
def test_panel_scores_of_matrices(d, tied, dtype):
    rng = np.random.default_rng(d)
    centres, roots = whole_numbers(rng, 3, d), np.tril(whole_numbers(rng, 1 if tied else 3, d, d))
    offsets, features = np.array([0.5, -np.inf, 2.0]), rng.permutation(d + 2)[:d]
    for n in FEW_ROWS if d < 50 else FEW_ROWS[:4]:
        X = frozen(whole_numbers(rng, n, d + 2, dtype=dtype))
        typed = roots.astype(
            "float32" if dtype == "float32" and d > FLOAT64_FEATURES else "float64"
        )
        out = panel_scores(X, features, halves(centres, typed.dtype), typed, -0.5, offsets)
        assert (out == expected_scores(X[:, features], centres, roots, offsets)).all()


@EVERY_FLOAT
@pytest.mark.parametrize("d", [13, 20, 24])
def test_scores_do_not_depend_on_the_rows_beside(d, dtype):
    rng = np.random.default_rng(d)
    X, centres = frozen(rng.normal(size=(130, d)).astype(dtype)), rng.normal(size=(2, d))
    roots = np.tril(rng.normal(size=(2, d, d))).astype(dtype)
    model = np.arange(d), halves(centres, dtype), roots
    together = panel_scores(X, *model, -0.5, np.zeros(2))
    for n in (1, 3 * STEP - 1, 60):
        parts = [panel_scores(X[i : i + n], *model, -0.5, np.zeros(2)) for i in range(0, 130, n)]
        assert (np.concatenate(parts, axis=1) == together).all()


@pytest.mark.parametrize("dtype", ["uint8", "int16", *FLOATS])
@pytest.mark.parametrize("n_vectors", [1, 5, 33])
@pytest.mark.parametrize("d", [1, 4, FLOAT64_FEATURES, FLOAT64_FEATURES + 1, 16, 17, 70])
def test_linear_scores(d, n_vectors, dtype):
    """In one pass over the features or several, and for more functions than at a time."""
    rng = np.random.default_rng(d)
    centre, vectors = whole_numbers(rng, d), whole_numbers(rng, n_vectors, d)
    offsets, features = whole_numbers(rng, n_vectors) / 2, np.sort(rng.permutation(d + 2)[:d])
    for n in ROW_COUNTS:
        X = whole_numbers(rng, n, d + 2, dtype=dtype)
        functions, labels = LinearFunctions(vectors, offsets, features, centre), np.full(n, -1)
        gaps = X[:, features].astype(float) - centre
        expected = offsets[:, None] + vectors @ gaps.T
        assert (functions(frozen(X)) == expected).all()
        functions.write(frozen(X), (labels, NO_SCORES, False))
        assert (labels == expected.argmax(axis=0)).all()
        for shares in (False, True):
            rows, of_scores = np.full((2, n, n_vectors), np.nan)
            functions.write(frozen(X), (NO_LABELS, rows, shares), 2.0)
            (scores.posterior if shares else scores.copied)(expected / 2, of_scores)
            np.testing.assert_array_equal(rows, of_scores)


@EVERY_FLOAT
@pytest.mark.parametrize("d", [3, 20])
def test_finite_scores_show_that_values_are_finite(d, dtype):
    rng = np.random.default_rng(d)
    vectors, offsets = whole_numbers(rng, 3, d), np.array([0.0, -np.inf, 1.0])
    X, labels = whole_numbers(rng, 50, d, dtype=dtype), (np.empty(50, int), NO_SCORES, False)
    vectors[:, 1] = 0
    functions = LinearFunctions(vectors, offsets, np.arange(d))
    others = np.delete(np.arange(d), 1)
    beside = LinearFunctions(vectors[:, others], offsets, others)  # but not of the feature
    distances = DiagonalDistances(np.ones((1, d)), np.arange(d), vectors)
    assert functions.write(X, labels)
    assert beside.write(X, labels)
    assert distances.write(X, -0.5, offsets, labels)
    for value in (np.nan, np.inf, -np.inf):
        rows = X.copy()
        rows[47, 1] = value
        with np.errstate(invalid="ignore"):
            assert not functions.write(rows, labels)
            assert not beside.write(rows, labels)
            assert not distances.write(rows, -0.5, offsets, labels)


def test_few_features_do_not_show_that_others_are_finite():
    X, labels = np.ones((9, 5)), (np.empty(9, int), NO_SCORES, False)
    functions = LinearFunctions(np.ones((2, 2)), np.zeros(2), np.arange(2))
    distances = DiagonalDistances(np.ones((1, 2)), np.arange(2), np.zeros((2, 2)))
    assert functions.write(X, labels) is distances.write(X, -0.5, np.zeros(2), labels) is False


def test_rows_beyond_float32_have_the_functions_of_float64():
    rng = np.random.default_rng(0)
    vectors, X = rng.normal(size=(3, 20)), rng.normal(size=(50, 20)).astype("float32")
    functions, usual = LinearFunctions(vectors, np.zeros(3), np.arange(20)), X.copy()
    X[7] = 3e38 * np.sign(X[7])
    with np.errstate(invalid="ignore", over="ignore"):
        found, labels = functions(X), (np.empty(50, int), NO_SCORES, False)
        assert functions.write(X, labels) is None
    np.testing.assert_allclose(found[:, 7], vectors @ X[7].astype(float), rtol=1e-12)
    others = np.arange(50) != 7
    assert (found[:, others] == functions(usual)[:, others]).all()


@EVERY_TYPE
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize(("d", "n_classes"), [(1, 1), (3, 3), (8, 5), (17, 6), (5000, 3)])
def test_panel_scores_of_variances(d, n_classes, tied, dtype):
    rng = np.random.default_rng(10)
    centres = whole_numbers(rng, n_classes, d)
    precisions = whole_numbers(rng, 1 if tied else n_classes, d) ** 2
    offsets, features = rng.integers(0, 4, n_classes) / 2, rng.permutation(d + 2)[:d]
    offsets[n_classes // 2] = -np.inf
    for n in FEW_ROWS if d < 100 else (1, 9):
        X = frozen(whole_numbers(rng, n, d + 2, dtype=dtype))
        out = panel_scores(X, features, centres, precisions, -0.5, offsets)
        squares = (X[:, features] - centres[:, None]) ** 2
        assert (out == offsets[:, None] - 0.5 * (squares * precisions[:, None]).sum(axis=2)).all()


@EVERY_TYPE
@pytest.mark.parametrize("kind", [DiagonalDistances, DirectDistances])
def test_few_of_many_features(kind, dtype):
    """Most columns are left out before rows are packed."""
    rng = np.random.default_rng(11)
    X, features = whole_numbers(rng, 20, 9, dtype=dtype), np.array([7, 2])
    centres, roots = whole_numbers(rng, 3, 2), np.tril(whole_numbers(rng, 3, 2, 2))
    roots = roots if kind is DirectDistances else np.ones((3, 2))
    out, labels = kind(roots, features, centres).scores(X, -0.5, np.zeros(3)), np.full(20, -1)
    matrices = roots if roots.ndim == 3 else np.stack([np.eye(2)] * 3)
    assert (out == expected_scores(X[:, features], centres, matrices, np.zeros(3))).all()
    kind(roots, features, centres).write(X, -0.5, np.zeros(3), (labels, NO_SCORES, False))
    assert (labels == out.argmax(axis=0)).all()


@EVERY_FLOAT
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", [(0, 0), (2, 1), (6, 4)])
def test_all_finite(where, value, dtype):
    X = np.full((7, 5), np.finfo(dtype).max, dtype)
    X[3] = -X[3]
    assert all_finite(frozen(X))
    X[where] = value
    with np.errstate(invalid="ignore"):
        assert not all_finite(frozen(X))


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
    scoring.largest(np.empty((3, 0)), out[:0])


def test_exponentials():
    """Of the second class: the first has the largest score."""
    grid = np.concatenate([-np.geomspace(1e-300, 800, 1200), [0, -0.0, -np.inf, -1e300]])
    expected = np.where(grid >= -708, np.exp(grid), 0)
    out = np.full((grid.size, 2), np.nan)
    scores.posterior(np.stack([np.zeros(grid.size), grid]), out)
    np.testing.assert_allclose(
        out[:, 1] / out[:, 0], expected, rtol=3 * np.finfo(float).eps, atol=0
    )
    assert (out[expected == 1] == 0.5).all()


def by_row(finish, *shape):
    out = np.full(shape, np.nan)
    finish(np.ascontiguousarray(SCORES.T), out)
    return out


def test_posteriors():
    """Also where a class, or every class, is impossible."""
    out = by_row(scores.log_sum_exp, 6)
    np.testing.assert_allclose(out[:5], naive.log_density(SCORES[:5]), rtol=1e-14)
    assert out[5] == -np.inf
    out = by_row(scores.log_posterior, 6, 3)
    np.testing.assert_allclose(out[:5], naive.log_posterior(SCORES[:5]), rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(out[5], -np.log(3))
    out = by_row(scores.posterior, 6, 3)
    np.testing.assert_allclose(out[:5], naive.posterior(SCORES[:5]), rtol=1e-9, atol=1e-300)
    np.testing.assert_allclose(out[5], 1 / 3)


@pytest.mark.parametrize("n_classes", [1, 4, 8, 11])
def test_posteriors_of_more_rows_than_a_block(n_classes):
    """Each like a single row; classes are whole vectors or not."""
    rng = np.random.default_rng(2)
    joint = rng.normal(scale=9, size=(n_classes, 2 * scoring._EXP_ROWS + 3))
    out, alone = np.full(joint.T.shape, np.nan), np.full((1, n_classes), np.nan)
    scores.posterior(joint.copy(), out)
    np.testing.assert_allclose(out, naive.posterior(joint.T), rtol=1e-9, atol=1e-300)
    for r in range(0, len(out), 50):
        scores.posterior(np.ascontiguousarray(joint[:, r : r + 1]), alone)
        assert (alone[0] == out[r]).all()
