"""Every path that rows can take gives the same moments, as accurate as they can be."""

from bisect import bisect
from itertools import pairwise

import naive
import numpy as np
import pytest
from grids import in_turn, pairs
from moment_checks import (
    EVERY_PATH,
    LARGE,
    PATHS,
    TYPES,
    WIDE,
    assert_close,
    assert_moments,
    count_steps,
    sample,
    set_sizes,
    take_path,
    variances,
)
from states import bits

from streamgda.kernels.narrow import BUCKET_FEATURES
from streamgda.kernels.products import LEAST_ROWS
from streamgda.moments import ClassMoments, cost, covariance_types
from streamgda.moments.centred import CentredSums
from streamgda.moments.covariance_types import structure_of
from streamgda.moments.exact import ExactSums
from streamgda.runtime import threads


def accuracy(dtype, path, matrix=True):
    """The accuracy of covariances from float32 products; the bound itself is tested below."""
    return 1e-6 if dtype == "float32" and path in LARGE and matrix else 1e-12


@pairs(
    "path, dtype, covariance_type",
    PATHS,
    ["float64", "float32", "uint8", "weighted"],
    ["full", "tied", "diag", "tied_spherical"],
)
def test_all_paths_agree(covariance_type, dtype, path, monkeypatch, use_threads):
    use_threads(2)
    weighted = dtype == "weighted"
    matrix, tied = naive.is_matrix(covariance_type), naive.is_tied(covariance_type)
    X, y = sample(1300, 32, dtype="float64" if weighted else dtype)
    weights = np.random.default_rng(4).gamma(1, size=1300) if weighted else None
    take_path(path, monkeypatch)
    steps = count_steps(monkeypatch)
    moments = ClassMoments(covariance_type).update(X, y, weights)
    few = {"whole": 1, "segments": 2}
    if path in few or (matrix and path in LARGE):
        assert steps["_add_few"] == few.get(path, 0)
        assert not steps["_add_by_ranges"]
    else:  # of a single group, that is one range: in segments
        assert bool(steps["_add_by_ranges"]) == (not tied or path == "ranges of classes")
    assert steps["_add_many"] == (matrix and path in LARGE)
    assert bool(steps["_tasks"] or steps["_add_in_parts"]) == (matrix and path in LARGE)
    rtol = accuracy(dtype, path, matrix)
    assert_moments(moments, X, y, weights, rtol)
    monkeypatch.undo()
    plain = ClassMoments(covariance_type).update(X, y, weights)
    assert_close(moments, plain, rtol)
    if dtype == "uint8":
        assert bits(moments) == bits(plain)


@EVERY_PATH
def test_labels_by_codes_are_summed_as_numbers(path, monkeypatch, use_threads):
    use_threads(2)
    X, y = sample(1300, 32)
    words = np.array([f"class {k}" for k in range(y.max() + 1)])
    take_path(path, monkeypatch)
    for covariance_type in ("full", "diag"):
        numbers = ClassMoments(covariance_type).update(X, y)
        moments = ClassMoments(covariance_type).update(X, words[y])
        assert moments.classes.tolist() == words.tolist()
        assert np.array_equal(moments.class_count, numbers.class_count)
        assert np.array_equal(moments.means, numbers.means)
        assert np.array_equal(moments.covariance(), numbers.covariance())


@pytest.mark.parametrize("dtype", ["float64", "float32", "uint8"])
def test_a_state_too_large_for_each_segment(dtype):
    """Without any constants changed: 8 bytes x 14 classes x 300 x 301 / 2 is more than 4 MiB."""
    X, y = sample(6000, 300, 14, dtype=dtype)
    moments = ClassMoments().update(X, y)
    assert moments._structure.state_bytes(14, 300) > cost.SEGMENT_STATE
    assert len(X) > moments._sums._most_few
    assert_moments(moments, X, y, rtol=accuracy(dtype, "large"))


@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_many_segments(covariance_type, monkeypatch):
    """Without any constants changed: five times as many rows as one thread adds.

    There are twice as many segments as of two times as many, or as many pairs as are needed for
    2^21 values in each.
    """
    X, y = sample(5 * most_few(covariance_type, 32, 3), 32)
    steps = count_steps(monkeypatch)
    assert_moments(ClassMoments(covariance_type).update(X, y), X, y)
    assert steps["_add_few"] == max(4, 2 * -(-X.size // (2 << 21)))


_DTYPE = np.dtype("float64")  # or any other, unless rows are wide


def most_classes(covariance_type, d, n_rows=None):
    """The most classes of which each segment of rows has sums of its own, of so many rows."""
    structure = structure_of(covariance_type)

    def apart(n_classes):
        sums = CentredSums.zeros(structure, n_classes, d)
        return sums.way(n_rows or sums._most_few + 1, _DTYPE) != "segments"

    return bisect(range(1, 10_000), False, key=apart)


def most_few(covariance_type, d, n_classes):
    return CentredSums.zeros(structure_of(covariance_type), n_classes, d)._most_few


def assert_way(covariance_type, d, n_classes, n, **expected):
    """Check that rows are added by as many calls of each step, and to the right sums."""
    X, y = sample(n, d, n_classes)
    with pytest.MonkeyPatch.context() as patch:
        steps = count_steps(patch)
        moments = ClassMoments(covariance_type).update(X, y)
    assert {step: steps[step] for step in expected} == expected
    assert_moments(moments, X, y)


@pytest.mark.parametrize(("covariance_type", "d"), [("full", 8), ("full", 60), ("diag", 64)])
def test_most_rows_of_one_thread(covariance_type, d, use_threads):
    use_threads(2)
    most = most_few(covariance_type, d, 5)
    assert_way(covariance_type, d, 5, most, _add_few=1)
    assert_way(covariance_type, d, 5, most + 1, _add_few=2)


def test_most_rows_of_many_classes(use_threads):
    use_threads(2)
    n_classes = most_classes("full", 64) + 1
    most = most_few("full", 64, n_classes)
    assert_way("full", 64, n_classes, most, _add_few=1, _add_by_ranges=0)
    assert_way("full", 64, n_classes, most + 1, _add_by_ranges=1)


LARGER = [("tied", 60, 60_000), ("diag", 200, 40_000)]


@pytest.mark.parametrize(
    ("covariance_type", "d", "n"),
    [("full", 64, 30_000), *(pytest.param(*case, marks=pytest.mark.slow) for case in LARGER)],
)
def test_most_classes_of_segments(covariance_type, d, n, use_threads):
    use_threads(2)
    n_classes = most_classes(covariance_type, d, n)
    assert_way(covariance_type, d, n_classes, n, _add_by_ranges=0)
    assert_way(covariance_type, d, n_classes + 1, n, _add_by_ranges=1)


@pytest.mark.parametrize("dtype", ["float64", "float32", "uint8"])
@pytest.mark.parametrize("covariance_type", ["full", "tied"])
def test_most_features_of_buckets(covariance_type, dtype):
    for most in (*covariance_types._BUCKET_INTEGERS.values(), BUCKET_FEATURES):
        for d in (most, most + 1):
            X, y = sample(2500, d, dtype=dtype)
            rtol = 1e-6 if dtype == "float32" else 1e-12  # some are multiplied in float32
            assert_moments(ClassMoments(covariance_type).update(X, y), X, y, rtol=rtol)


@pytest.mark.parametrize("covariance_type", ["full", "tied"])
@pytest.mark.parametrize("d", [1, 8, 40])
def test_fewest_rows_for_buckets(covariance_type, d):
    n_classes = 12
    load = structure_of(covariance_type).load(n_classes, d)
    chosen = [cost.in_buckets(load, n) for n in range(200)]
    assert chosen == sorted(chosen)
    least = chosen.index(True)
    for n in (least - 1, least):
        assert_way(covariance_type, d, n_classes, n, _add_few=1)


STEP = 1.3  # the most that the model of the cost predicts where the way changes


def predicted(sums, n_rows):
    """The time that the model of the cost predicts, in the way that is chosen."""
    ways, way = sums._ways, sums.way(n_rows, _DTYPE)
    if way == "alone":
        return ways.load.alone(n_rows)
    return ways.times(_DTYPE, -(-n_rows // ways.segment(n_rows)))[way](n_rows)


@pytest.mark.parametrize("kind", [CentredSums, ExactSums])
@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag"])
@pytest.mark.parametrize("d", [8, 16, 32, 64])
def test_no_way_begins_with_a_step(covariance_type, d, kind):
    """One class or row more takes little longer, and no less time than before."""
    structure = structure_of(covariance_type)
    for n_rows in (5000, 100_000):
        some = (kind.zeros(structure, k, d) for k in (*range(1, 300), *range(300, 3000, 30)))
        found = ((sums.way(n_rows, _DTYPE), predicted(sums, n_rows)) for sums in some)
        for (way, before), (other, after) in pairwise(found):
            assert way == other or 1 / STEP < after / before < STEP
    for n_classes in (1, 10, 100, 1000):
        sums = kind.zeros(structure, n_classes, d)
        most = sums._most_few
        if most < (1 << 22) // d:  # the most that are copied at a time
            assert 1 / STEP < predicted(sums, most + 1) / predicted(sums, most) < STEP


@pytest.mark.parametrize("covariance_type", ["full", "diag"])
@pytest.mark.parametrize("dtype", ["float64", "uint8"])
def test_rows_added_at_once(dtype, covariance_type):
    """Rows of known classes have the same bits whether their labels must be encoded or not."""
    X, y = sample(1 + (1 << 19), 8, dtype=dtype)  # more than one thread adds
    moments = [ClassMoments(covariance_type).update(X[:300], y[:300]) for _ in range(2)]
    most = moments[0]._sums.most_at_once
    for n in (1, LEAST_ROWS + 1, most, most + 1):
        at_once = moments[0]._add_at_once(X[:n], y[:n])
        assert at_once == (n <= most)
        if not at_once:
            moments[0].update(X[:n], y[:n])
        moments[1].update(X[:n], y[:n].tolist())
        assert bits(moments[0]) == bits(moments[1])


@in_turn("path, dtype", PATHS, ["float64", "float32", "float32 and more", "uint8", "weighted"])
def test_same_bits_for_any_number_of_threads(dtype, path, monkeypatch, use_threads):
    weighted = dtype == "weighted"
    X, y = sample(3003, 40, 4, dtype={"uint8": "uint8"}.get(dtype, "float64"))
    if dtype.startswith("float32"):
        if dtype != "float32":  # some blocks are beyond its range, others are not
            X[y == 1, 7] *= 1e-25
        X = X.astype(np.float32)
    weights = np.random.default_rng(5).gamma(1, size=3003) if weighted else None
    for covariance_type in ("full", "tied", "diag"):
        states = []
        for n in (1, 2, 7):
            with monkeypatch.context() as patch:
                take_path(path, patch)
                use_threads(n)
                states.append(bits(ClassMoments(covariance_type).update(X, y, weights)))
                with threads.limit(1):
                    states.append(bits(ClassMoments(covariance_type).update(X, y, weights)))
        assert all(state == states[0] for state in states)


@pytest.fixture(scope="module")
def far_away():
    """Rows of unit variance at an offset of 1e8, and their exact moments."""
    rng = np.random.default_rng(8)
    y = rng.integers(0, 3, 300)
    X = 1e8 + rng.normal(size=(300, 3)) + 2 * y[:, None]
    return X, y, {t: naive.rounded(naive.exact_covariance(X, y, t)) for t in TYPES}


def assert_accurate(moments, expected, rtol=1e-12):
    got = moments.covariance()
    scale = np.abs(expected)
    if moments.covariance_type in ("full", "tied"):  # a covariance, relative to its variances
        deviations = np.sqrt(expected.diagonal(axis1=-2, axis2=-1))
        scale = deviations[..., :, None] * deviations[..., None, :]
    assert (np.abs(got - expected) / scale).max() < rtol


@pytest.mark.parametrize("chunk", [300, 100, 7, 1])
@pytest.mark.parametrize("covariance_type", TYPES)
def test_large_offset(far_away, covariance_type, chunk):
    X, y, expected = far_away
    starts = range(0, 300, chunk)
    parts = [
        ClassMoments(covariance_type).update(X[i : i + chunk], y[i : i + chunk]) for i in starts
    ]
    streamed = ClassMoments(covariance_type)
    for i in starts:
        streamed.update(X[i : i + chunk], y[i : i + chunk])
    assert_accurate(streamed, expected[covariance_type])
    while len(parts) > 1:  # as a tree
        parts = [sum(parts[i + 1 : i + 2], parts[i]) for i in range(0, len(parts), 2)]
    assert_accurate(parts[0], expected[covariance_type])


@EVERY_PATH
def test_large_offset_on_all_paths(far_away, path, monkeypatch):
    X, y, expected = far_away
    X = X.copy()
    take_path(path, monkeypatch)
    assert_accurate(ClassMoments().update(X, y), expected["full"])
    half = ClassMoments().update(X, y, np.full(300, 0.3)) + ClassMoments().update(X, y) * 0.7
    assert_accurate(half, expected["full"])
    X[200:] += [3.0, -1e3, 1e5]  # the means move, to where they are far from both parts
    moved = ClassMoments().update(X[:200], y[:200]).update(X[200:], y[200:])
    assert_accurate(moved, naive.rounded(naive.exact_covariance(X, y, "full")))


def test_classes_far_from_each_other():
    """Distances between classes must not leak into the scatter within them."""
    X, y = sample(500, 3)
    far = X + 1e9 * y[:, None]
    expected = naive.rounded(naive.exact_covariance(far, y, "tied"))
    assert_accurate(ClassMoments("tied").update(far, y), expected)


@pairs(
    "path, kind, value, covariance_type",
    PATHS,
    ["float64", "float32", "weighted"],
    [0.1, 1e8 + 0.3, -7.7e-9, 1e100],
    TYPES,
)
def test_constant_features_have_no_scatter_at_all(covariance_type, value, kind, path, monkeypatch):
    take_path(path, monkeypatch)
    weighted = kind == "weighted"
    X, y = sample(300, 40)
    if kind == "float32":
        X, value = X.astype(np.float32), np.float32(min(value, 1e30))
    X[:, 1] = value
    weights = np.random.default_rng(10).gamma(1, size=300) if weighted else None
    cuts = [0, 1, 2, 50, 117, 300]
    moments, merged = ClassMoments(covariance_type), ClassMoments(covariance_type)
    for a, b in pairwise(cuts):
        part = X[a:b], y[a:b], None if weights is None else weights[a:b]
        moments.update(*part)
        merged += ClassMoments(covariance_type).update(*part)
    taken = merged - ClassMoments(covariance_type).update(*part)
    for m in (moments, merged, taken, merged * 0.3, ClassMoments(covariance_type).update(X, y)):
        assert not variances(m.centred().scatter)[:, 1].any()
        assert (m.means[:, 1] == value).all()
        if covariance_type in ("full", "tied"):
            assert not m.covariance()[..., 1, :].any()


@pytest.mark.parametrize("path", ["large", "large in tiles"])
def test_features_that_stop_varying_are_not_multiplied_in_float64(path, monkeypatch):
    """Differences from a mean that was only rounded would be beyond the range of float32."""
    take_path(path, monkeypatch)
    X, y = sample(1300, 40, dtype="float32")
    X[:650, 3:] *= np.float32(1e-6)
    X[650:, 3:] = 0
    moments = ClassMoments("tied").update(X[:650], y[:650])
    steps = count_steps(monkeypatch)
    moments.update(X[650:], y[650:])
    assert steps["_add_blocks"] + steps["_add_in_parts"] == 1
    assert_moments(moments, X, y, rtol=accuracy("float32", path, True))


def scatter_of(moments):
    """Whole matrices, by group."""
    lower = np.tril(moments.centred().scatter)
    return lower + np.swapaxes(np.tril(lower, -1), 1, 2)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("offset", [0, 1e4])
@pytest.mark.parametrize("covariance_type", ["full", "tied"])
def test_float32_of_large_states_has_a_bound(covariance_type, offset, weighted, monkeypatch):
    """(LEAST_ROWS + 4) / 2^24 of the summed magnitudes, element by element, at any offset."""
    take_path("large", monkeypatch)
    rng = np.random.default_rng(13)
    y = rng.integers(0, 3, 3000)
    X = rng.normal(size=(3000, 40)) @ rng.normal(size=(40, 40)) * 10.0 ** rng.uniform(-3, 0, 40)
    X = (X / 5 + offset + y[:, None]).astype(np.float32)
    weights = rng.gamma(1, size=3000) if weighted else np.ones(3000)
    expected = naive.moments(X, y, weights)
    bound = np.zeros((3, 40, 40))
    for k in range(3):
        distance = np.abs(X[y == k] - expected.means[k])
        bound[k] = (weights[y == k, None] * distance).T @ distance
    share = (LEAST_ROWS + 4) * 2.0**-24
    bound *= share
    S = expected.scatter
    if covariance_type == "tied":
        S, bound = S.sum(axis=0, keepdims=True), bound.sum(axis=0, keepdims=True)
    for cuts in ([0, 3000], [0, 1, 700, 3000]):
        moments = ClassMoments(covariance_type)
        for a, b in pairwise(cuts):
            moments.update(X[a:b], y[a:b], weights[a:b] if weighted else None)
        error = np.abs(scatter_of(moments) - S)
        assert (error <= bound).all()
        scale = np.sqrt(variances(S)[:, :, None] * variances(S)[:, None])
        assert (bound <= share * scale * (1 + 1e-9)).all()
        assert 1e-9 < (error / scale).max() < 1e-5  # float32 it was, and better than that
        assert (np.linalg.eigvalsh(moments.covariance()) > 0).all()


SCALES = {
    "tiny": 1e-25,
    "small": 1e-20,
    "large": 1e15,
    "huge": 1e25,
    "all": [1e-25, 1, 1e-20, 1e15, 1e25],
    "one too small": [1, 1e-20, 1, 1, 1],
}


@pairs("d, scales, covariance_type", [3, 20, 40], SCALES, ["full", "tied"])
def test_float32_beyond_its_range_is_multiplied_in_float64(covariance_type, scales, d, monkeypatch):
    """Whole blocks of 256 rows, so that none is small enough for float32."""
    set_sizes(WIDE, monkeypatch)
    rng = np.random.default_rng(14)
    y = rng.permutation(np.repeat(np.arange(3), 2 * LEAST_ROWS))
    X = rng.normal(size=(y.size, d))
    X[:, 1:] += X[:, :1]
    X = (X * np.resize(SCALES[scales], d)).astype(np.float32)
    expected = naive.covariance(X, y, covariance_type)
    assert_accurate(ClassMoments(covariance_type).update(X, y), expected)
    weights = rng.gamma(1, size=y.size)
    expected = naive.covariance(X, y, covariance_type, weights)
    streamed = ClassMoments(covariance_type).update(X[:700], y[:700], weights[:700])
    streamed.update(X[700:], y[700:], weights[700:])
    rtol = 1e-6 if scales == "large" else 1e-12  # of which fewer rows are not too large
    assert_accurate(streamed, expected, rtol)


@pytest.mark.parametrize("weight", [1e-149, 1e-100, 1e-60, 1e60, 1e100, 1e150])
def test_float32_of_any_weight(weight, monkeypatch):
    """Roots of weights beyond the range of float32 must not turn rows into zeros or infinities."""
    take_path("large", monkeypatch)
    X, y = sample(300, 30, dtype="float32")
    moments = ClassMoments().update(X, y, np.full(300, weight))
    assert_accurate(moments, naive.covariance(X, y))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("d", [5, 14])
@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "tied_diag"])
def test_means_that_jump_cost_few_digits(covariance_type, d, weighted, monkeypatch):
    """Pivots may be a million standard deviations off, and weigh nothing."""
    take_path("segments", monkeypatch)
    rng = np.random.default_rng(7)
    y = np.tile([0, 1], 400)
    X = rng.normal(size=(800, d)) + y[:, None]
    X[:2] += 1e6  # the first rows are outliers
    X[100:200] -= 1e6  # and then the classes move
    X[200:] += np.linspace(0, 1e6, 600)[:, None]
    weights = rng.integers(1, 9, 800) / 4 if weighted else np.ones(800)
    if weighted:
        weights[:2] = 1e-9
    moments = ClassMoments(covariance_type)
    for rows in (slice(0, 100), slice(100, 200), slice(200, 800)):
        moments.update(X[rows], y[rows], weights[rows] if weighted else None)
        known = slice(0, rows.stop)
        expected = naive.covariance(X[known], y[known], covariance_type, weights[known])
        assert_accurate(moments, expected, 1e-10)
