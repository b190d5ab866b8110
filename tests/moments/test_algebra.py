"""Moments are added, subtracted and decayed, selected, renamed, projected and saved."""

import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from fractions import Fraction

import naive
import numpy as np
import pytest
from grids import in_turn, pairs
from hypothesis import given
from hypothesis import strategies as st
from moment_checks import (
    TYPES,
    assert_close,
    assert_moments,
    batches,
    fails,
    largest,
    of,
    sample,
    together,
)
from samples import bits, state_of
from scipy.sparse import csr_array
from sklearn import decomposition
from sklearn.datasets import load_digits

from streamgda import ClassMoments, GroupedMoments, PairwiseMoments
from streamgda.errors import InvalidDataError, InvalidParameterError, MergeError

EVERY_TYPE = pytest.mark.parametrize("covariance_type", TYPES)
EVERY_DTYPE = pytest.mark.parametrize("dtype", ["float64", "uint8"])

# --- sums and differences ---------------------------------------------------------------------


def assert_saved(moments):
    """Check that what is saved can be loaded, with the same bits."""
    loaded = type(moments).from_bytes(moments.to_bytes())
    assert bits(loaded) == bits(moments)


@given(batches(), st.randoms())
def test_any_split_and_any_order(drawn, random):
    covariance_type, parts = drawn
    whole = of(covariance_type, together(parts))
    assert_close(of(covariance_type, *parts), whole)
    trees = [of(covariance_type, part) for part in parts] + [ClassMoments(covariance_type)]
    while len(trees) > 1:  # Any two are merged, until one is left.
        random.shuffle(trees)
        trees.append(trees.pop() + trees.pop())
        assert_saved(trees[-1])
    assert_close(trees[0], whole)
    if whole.class_count.any():
        assert_moments(trees[0], *together(parts), rtol=1e-8)


@pytest.mark.parametrize("covariance_type", ["full", "tied_diag"])
def test_a_heavy_far_part_costs_no_digits_whichever_side_it_is_added_to(covariance_type):
    """Anchoring the mean at the lighter part would lose the ratio of the counts, here 200."""
    random = np.random.default_rng(0)
    light, heavy = random.normal(size=(40, 3)), 1e6 + random.normal(size=(8000, 3))
    a, b = (of(covariance_type, (X, np.zeros(len(X), int), None)) for X in (light, heavy))
    for both in (a + b, b + a):
        sums = (both - b).centred()
        for j, column in enumerate(light.T):
            mean = sum(map(Fraction, column)) / 40
            error = Fraction(sums.origin[0, j]) + Fraction(sums.offset[0, j]) - mean
            assert abs(error) < 4 * 1e6 * 2.0**-53


@given(batches(2))
def test_added_rows_can_be_subtracted(drawn):
    covariance_type, parts = drawn
    a, b = of(covariance_type, parts[0]), of(covariance_type, *parts[1:])
    both = a + b
    nothing = both - b - a
    assert nothing.classes.size == 0
    assert not any(array.any() for array in state_of(nothing)[1].values())
    for left, expected in ((both - b, a), (both - a, b)):
        assert left.classes.tolist() == expected.classes.tolist()
        if left.classes.size:
            was, is_, whole = expected.centred(), left.centred(), both.centred()
            offset = largest(both.means)
            np.testing.assert_allclose(is_.count, was.count, rtol=1e-9)
            np.testing.assert_allclose(is_.mean, was.mean, rtol=1e-9, atol=1e-9 * offset)
            # The remainder of a large scatter is as accurate as the scatter was.
            rounding = 1e-12 * largest(whole.scatter) + 1e-14 * offset**2
            np.testing.assert_allclose(is_.scatter, was.scatter, rtol=1e-9, atol=rounding)
            scatter = is_.scatter
            squares = scatter.diagonal(axis1=1, axis2=2) if scatter.ndim == 3 else scatter
            assert squares.min() >= 0


@EVERY_TYPE
def test_a_row_that_is_left_alone_does_not_vary(covariance_type):
    rows = np.random.default_rng(5).normal(10, 1, (40, 3))
    whole, gone = (of(covariance_type, (A, np.zeros(len(A)), None)) for A in (rows, rows[1:]))
    left = whole - gone
    assert left.class_count.tolist() == [1]
    assert not left.centred().scatter.any()
    last = of(covariance_type, (rows[:1], np.zeros(1), None))  # The last bits of its mean differ.
    assert (left - last).classes.size == 0


@EVERY_DTYPE
@EVERY_TYPE
def test_empty_moments_change_nothing(covariance_type, dtype):
    X, y = sample(20, dtype=dtype)
    full = ClassMoments(covariance_type).update(X, y)
    new, emptied = ClassMoments(covariance_type), full - full
    assert new.classes.size == new.nbytes == 0
    assert new.means.shape == (0, 0)
    assert (new * 2).n_features is None
    assert emptied.n_features == (emptied + new).n_features == 5
    for empty in (new, emptied):
        assert bits(empty + full) == bits(full + empty) == bits(full - empty) == bits(full)
        assert bits(empty.copy().update(X, y)) == bits(full)
        for other in (new, emptied):
            assert (empty + other).classes.size == (empty - other).classes.size == 0
    assert_close(full * 0 + full, full)
    assert_close(full + full * 0, full)


@EVERY_DTYPE
@EVERY_TYPE
def test_decay(covariance_type, dtype):
    X, y = sample(dtype=dtype)
    moments = ClassMoments(covariance_type).update(X, y)
    for gamma in (0.25, 1, 3, np.float32(0.5), np.float64(0.1)):
        for decayed in (moments * gamma, gamma * moments):
            assert_moments(decayed, X, y, np.full(200, float(gamma)))
    fresh, labels = sample(seed=1, dtype=dtype)
    weights = np.repeat([0.5, 1], 200)
    faded = (moments * 0.5).update(fresh, labels)
    assert_moments(faded, np.vstack([X, fresh]), np.append(y, labels), weights)
    nothing = moments * 0
    assert nothing.classes.tolist() == [0, 1, 2]
    assert not nothing.class_count.any()
    assert np.isnan(nothing.means).all()
    with pytest.raises(InvalidDataError, match="hold no rows"):
        nothing.covariance()
    assert_moments(nothing.update(fresh, labels), fresh, labels)


@given(
    st.sampled_from(TYPES),
    st.sampled_from(["float64", "float32", "uint8"]),
    st.booleans(),
    st.lists(st.sampled_from(["add", "merge", "subtract", "decay"]), min_size=3, max_size=9),
    st.integers(0, 2**32),
)
def test_rows_that_were_added_can_be_subtracted_in_any_life(kind, dtype, weighted, life, seed):
    """Whatever was added, merged and decayed before, all of it can be taken out again."""
    rng = np.random.default_rng(seed)
    d, offset = rng.integers(1, 5), rng.choice([0.0, 0.1, 7.0, 1e4])
    held, parts = ClassMoments(kind), []
    for action in life:
        if action == "decay":
            held, parts = held * 0.9, [part * 0.9 for part in parts]
        elif action == "subtract" and parts:
            held = held - parts.pop(rng.integers(0, len(parts)))
        elif action != "subtract":
            X = (rng.normal(size=(12, d)) + offset).astype(dtype)
            rows = X, np.arange(12) % 3, rng.uniform(0.5, 2, 12) if weighted else None
            parts.append(ClassMoments(kind).update(*rows))
            held = held + parts[-1] if action == "merge" else held.update(*rows)
        assert_saved(held)
    for part in parts[:-1]:
        held = held - part
        assert_saved(held)
    if parts:
        assert_close(held, parts[-1], 1e-6)
        assert not (held - parts[-1]).classes.size


@in_turn("covariance_type, dtype, weighted", TYPES, ["float64", "float32", "uint8"], [False, True])
def test_rows_that_were_never_there_cannot_be_subtracted(covariance_type, dtype, weighted):
    X, y = np.array([[0, 7], [1, 7], [2, 7], [5, 7]], dtype), [0, 0, 0, 1]
    w = [1.0, 2.0, 0.5, 1.0] if weighted else None
    moments = ClassMoments(covariance_type).update(X, y, w)
    never = np.array([[200, 7], [250, 7], [200, 7]], dtype), np.array([[0, 8]], dtype)
    for Z in (*never, never[0][:1], never[0][:2]):
        weights = w and [1.0, 1.0, 1.5][: len(Z)]
        other = ClassMoments(covariance_type).update(Z, [0] * len(Z), weights)
        fails(MergeError, "these rows were never added", lambda a, b: a - b, moments, other)
    grouped = GroupedMoments(covariance_type).update(X, y, ["a"] * 4, w)
    other = GroupedMoments(covariance_type).update(never[0][:2], [0, 0], ["a", "a"], w and w[1:3])
    fails(MergeError, "these rows were never added", lambda a, b: a - b, grouped, other)


# --- views ------------------------------------------------------------------------------------


@given(batches(2), st.data())
def test_views_commute_with_merging(drawn, data):
    covariance_type, parts = drawn
    a, b = of(covariance_type, parts[0]), of(covariance_type, *parts[1:])
    both = a + b
    if not (a.class_count.any() and b.class_count.any()):
        return
    d = both.n_features

    def check(view, wanted=lambda moments: True):
        assert_close(view(both), view(a) + view(b))
        assert wanted(view(both))
        assert_saved(view(both))

    index = data.draw(st.lists(st.integers(-d, d - 1), min_size=1, max_size=2 * d))
    check(lambda m: m.select_features(index), lambda m: m.n_features == len(index))
    mapping = data.draw(st.dictionaries(st.integers(0, 3), st.integers(-2, 5)))
    check(lambda m: m.relabel({k: v for k, v in mapping.items() if k in m.classes}))
    check(lambda m: m * 0.75)
    for simpler in REDUCTIONS[covariance_type]:
        check(lambda m, t=simpler: m.reduce(t), lambda m, t=simpler: m.covariance_type == t)
    if covariance_type in ("full", "tied"):
        components = np.random.default_rng(d).normal(size=(2, d))
        assert_saved(both.project(both.pca(min(d, 2))))
        spread = largest(both.means - both.means[0]) + np.sqrt(largest(both.covariance()))
        offset = both.means[0] + spread + 1e-9  # Means are close, relative to the spread.
        check(lambda m: m.project(components, offset))
    if not covariance_type.startswith("tied"):
        kept = data.draw(st.sets(st.sampled_from(both.classes.tolist())))
        check(lambda m: m.select_classes([k for k in kept if k in m.classes]))


REDUCTIONS = {
    "full": TYPES,
    "tied": ["tied", "tied_diag", "tied_spherical"],
    "diag": ["diag", "tied_diag", "spherical", "tied_spherical"],
    "tied_diag": ["tied_diag", "tied_spherical"],
    "spherical": ["spherical", "tied_spherical"],
    "tied_spherical": ["tied_spherical"],
}


@EVERY_TYPE
@pytest.mark.parametrize("held", TYPES)
def test_reductions(held, covariance_type):
    X, y = sample()
    moments = ClassMoments(held).update(X, y)
    if covariance_type in REDUCTIONS[held]:
        assert_moments(moments.reduce(covariance_type), X, y)
        assert ClassMoments(held).reduce(covariance_type).n_features is None
    else:
        message = f"{held!r} do not hold what {covariance_type!r} needs; they can become"
        fails(MergeError, message, lambda m: m.reduce(covariance_type), moments)


@EVERY_DTYPE
@EVERY_TYPE
def test_selections_are_moments_of_selected_rows(covariance_type, dtype):
    X, y = sample(n_classes=4, dtype=dtype)
    moments = ClassMoments(covariance_type).update(X, y)
    before = bits(moments)
    indices = [3, 0], [1], slice(1, 4), slice(None, None, -1), [True, False, True, True, False], 2
    for index in indices:
        selected = moments.select_features(index)
        columns = X[:, [index] if isinstance(index, int) else index]
        assert selected.exact == moments.exact
        assert_moments(selected, columns, y)
        selected.update(columns, y)
    if not covariance_type.startswith("tied"):
        kept = (y == 3) | (y == 1)
        for selected in (moments.select_classes([3, 1]), moments.drop_classes([0, 2])):
            assert_moments(selected, X[kept], y[kept])
        assert moments.select_classes([]).classes.size == 0
    assert bits(moments) == before


@EVERY_DTYPE
@EVERY_TYPE
def test_relabel(covariance_type, dtype):
    X, y = sample(n_classes=4, dtype=dtype)
    moments = ClassMoments(covariance_type).update(X, y)
    before = bits(moments)
    for mapping in ({}, {0: 9}, {0: 1, 1: 0}, {1: 0, 2: 0, 3: 0}, {2: 3}, {0: -1, 3: -1, 1: 2}):
        labels = np.array([mapping.get(label, label) for label in y.tolist()])
        # Pooled, too: rows that change class add the scatter between the classes.
        expected = ClassMoments("full").update(X, labels).reduce(covariance_type)
        assert_close(moments.relabel(mapping), expected)
    dates = np.array(["2020-01-02", "2020-01-01", "2020-01-02", "2021-01-01"], "M8[D]")
    for names in (np.array(["b", "a", "b", "c"]), dates, np.array([True, False, True, True])):
        assert_moments(moments.relabel(dict(enumerate(names))), X, names[y])
    assert bits(moments) == before


def test_classes_declared_ahead():
    X, y = sample()
    moments = ClassMoments().update(X, y).declare([7, 1, -1])
    assert moments.classes.tolist() == [-1, 0, 1, 2, 7]
    assert moments.class_count.tolist()[::4] == [0, 0]
    assert np.isnan(moments.means[[0, 4]]).all()
    assert np.isnan(moments.covariance()[[0, 4]]).all()
    assert not np.isnan(moments.covariance()[1:4]).any()
    for covariance_type in ("tied", "tied_diag"):
        pooled = moments.reduce(covariance_type).covariance(1)
        np.testing.assert_allclose(pooled, naive.covariance(X, y, covariance_type, ddof=1))
    assert_close(moments.select_classes([0, 1, 2]), ClassMoments().update(X, y))
    assert_close(
        moments - ClassMoments().update(X, y).declare([8]), moments.select_classes([-1, 7])
    )
    moments.update(X, np.full(200, 7))
    assert moments.class_count.tolist()[-1] == 200


@pytest.mark.parametrize("n_components", [1, 3, 6])
@pytest.mark.parametrize("covariance_type", ["full", "tied"])
@EVERY_DTYPE
def test_pca_is_scikit_learn_s(covariance_type, n_components, dtype):
    X, y = sample(500, 6, dtype=dtype)
    components = ClassMoments(covariance_type).update(X, y).pca(n_components)
    expected = decomposition.PCA(n_components).fit(X.astype(np.float64)).components_
    assert components.shape == (n_components, 6)
    expected *= np.sign((components * expected).sum(axis=1))[:, None]
    np.testing.assert_allclose(components, expected, atol=1e-10)
    np.testing.assert_allclose(components @ components.T, np.eye(n_components), atol=1e-13)
    largest = np.abs(components).argmax(axis=1)
    assert (components[np.arange(n_components), largest] > 0).all()


@pytest.mark.parametrize("covariance_type", ["full", "tied"])
@pytest.mark.parametrize("dtype", ["float64", "uint8", "weighted"])
def test_project(covariance_type, dtype):
    weights = np.random.default_rng(6).gamma(1, size=200) if dtype == "weighted" else None
    X, y = sample(dtype="float64" if weights is not None else dtype)
    rng = np.random.default_rng(7)
    components, offset = rng.normal(size=(3, 5)), rng.normal(size=5)
    moments = ClassMoments(covariance_type).update(X, y, weights)
    assert_moments(moments.project(components, offset), (X - offset) @ components.T, y, weights)
    assert_moments(moments.project(components.tolist()), X @ components.T, y, weights)
    assert_moments(moments, X, y, weights)


# --- overflow ---------------------------------------------------------------------------------


@pairs("covariance_type, n, sparse", TYPES, [1, 300, 70_000], [False, True])
def test_sums_that_overflow_raise(covariance_type, n, sparse):
    """Squares, weights and squares of weights; in sums so far, too, and in all that is derived."""

    def overflows(call, *operands):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            error = (InvalidDataError, MergeError, InvalidParameterError)
            fails(error, "overflow", call, *operands)

    def of_rows(*X):
        return ClassMoments(covariance_type).update(X, range(len(X)))

    moments = of_rows([0.0, 1.0], [1.0, 3.0])
    for X, weights in (
        ([[0.0, 0], [1e200, 0], [-1e200, 0]], [1, 1, 1]),
        ([[0.0, 1e155]], [1]),
        ([[0.0, 1e80]], [1e160]),
        ([[0.0, 0.0]], [1e308]),
        ([[0.0, 0.0]], [1e160]),
    ):
        rows, w = np.vstack([np.tile([[1.0, 2.0]], (n, 1)), X]), np.append(np.ones(n), weights)
        rows = csr_array(rows) if sparse and covariance_type not in ("full", "tied") else rows
        y = np.zeros(len(w), int)
        overflows(lambda m, rows=rows, y=y, w=w: m.update(rows, y, w), moments)
    heavy = ClassMoments(covariance_type).update([[0.0, 1.0]], [0], [1e154])
    overflows(lambda m: m.update([[0.0, 1]], [0], [1e154]), heavy)
    wide = of_rows([-1.2e154, 0.0], [0, 0]).relabel({1: 0})
    other = [[1.2e154, 0.0], [0, 0]]
    overflows(lambda m: m.update(other, [0, 0]), wide)
    overflows(lambda m, n: m + n, wide, of_rows(*other).relabel({1: 0}))
    overflows(lambda m: m * 100, wide)
    overflows(lambda m: m * 1e200, wide)
    apart = of_rows([-1e200, 0.0], [1e200, 0])
    overflows(lambda m: m.relabel({1: 0}), apart)
    if covariance_type in ("full", "tied"):
        overflows(lambda m: m.pca(1), apart)
        overflows(lambda m: m.project([[1e10, 0.0]]), wide)


def test_pairwise_sums_that_overflow_raise():
    moments = PairwiseMoments().update([[-1.2e154, 0.0], [0.0, 0.0]], [0, 0])
    rows = [[1.2e154, 0.0], [0.0, 0.0]], [0, 0]
    fails(InvalidDataError, "overflow", lambda m: m.update(*rows), moments)
    other = PairwiseMoments().update(*rows)
    fails(MergeError, "overflow", lambda a, b: a + b, moments, other)
    fails(MergeError, "overflow", lambda a, b: a.__iadd__(b), moments, other)


@EVERY_TYPE
def test_large_values_whose_squares_do_not_overflow(covariance_type):
    """They are summed as others: the distance from the mean is what is squared."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 3)), np.arange(400) % 2
    plain = ClassMoments(covariance_type).update(np.tile(X, (2, 1)), np.tile(y, 2))
    X[:, 1] = 1e280
    moments = ClassMoments(covariance_type)
    for part in (slice(0, 3), slice(3, 400), slice(0, 3), slice(3, 400)):
        moments.update(X[part], y[part])
    assert (moments.means[:, 1] == 1e280).all()
    scatter, expected = moments.select_features([0, 2]), plain.select_features([0, 2])
    np.testing.assert_allclose(scatter.covariance(), expected.covariance(), rtol=1e-12)
    assert_saved(moments + moments * 0.5)


# --- states that are changed ------------------------------------------------------------------


@given(batches(3))
def test_operands_do_not_change(drawn):
    covariance_type, parts = drawn
    a, b = of(covariance_type, parts[0]), of(covariance_type, *parts[1:])
    before = bits(a), bits(b)
    both = a + b
    _ = both - b
    _ = a * 0.5
    both.update(np.ones((3, both.n_features or 1)), [0, 1, 2])
    both += a
    both += both
    assert (bits(a), bits(b)) == before


LABELS_OF_ROWS = np.array([0, 0, 1]), np.array([0, 1, 1])
STATES = {
    "moments": (ClassMoments, np.eye(3), LABELS_OF_ROWS[:1]),
    "exact": (lambda: ClassMoments("tied"), np.eye(3, dtype=np.uint8), LABELS_OF_ROWS[:1]),
    "large": (ClassMoments, np.eye(600)[:3], LABELS_OF_ROWS[:1]),  # Large states change in place.
    "grouped": (GroupedMoments, np.eye(3), LABELS_OF_ROWS),
    "large groups": (GroupedMoments, np.eye(600)[:3], LABELS_OF_ROWS),
    "pairwise": (PairwiseMoments, np.eye(3), LABELS_OF_ROWS[:1]),
}


@pytest.mark.parametrize("name", STATES)
def test_nothing_that_moments_return_is_their_own_state(name):
    make, X, labels = STATES[name]
    moments = make()
    for _ in range(3):
        moments.update(X, *labels)
    before, copied = bits(moments), copy(moments)
    pickled = pickle.loads(pickle.dumps(moments))
    for values in (moments.classes, getattr(moments, "groups", moments.classes)):
        with pytest.raises(ValueError, match="read-only"):
            values[0] = 7
    moments.class_count[:] = 0
    if make is not GroupedMoments:
        moments.means[:] = moments.covariance()[:] = 9
    if isinstance(moments, ClassMoments):
        held = moments.centred()
        kept = held.copy()
        held.count[:] = held.packed[:] = 9
        assert bits(moments) == before
        held = moments.centred()
        moments.update(X, *labels)
        assert all(np.array_equal(a, held.arrays()[k]) for k, a in kept.arrays().items())
    else:
        moments.update(X, *labels)
    assert bits(copied) == bits(pickled) == before != bits(moments)
    assert bits(copied.update(X, *labels)) == bits(pickled.update(X, *labels)) == bits(moments)


@pytest.mark.parametrize("name", STATES)
def test_threads_that_read_see_batches_whole(name):
    """A result never has half of the rows of a batch, though they are added in place."""
    make, X, labels = STATES[name]
    moments = make().update(X, *labels)
    first = moments.copy()

    def read(_):
        copies = moments.copy(), type(moments).from_bytes(moments.to_bytes()), moments + moments
        for found in copies:
            times = found.class_count.sum() / len(X)
            assert (found.class_count == times * first.class_count).all()
            if make is not GroupedMoments:
                np.testing.assert_allclose(found.covariance(), first.covariance(), atol=1e-12)

    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(moments.update, X, *labels) for _ in range(100)]
        jobs += [pool.submit(read, n) for n in range(20)]
        for job in jobs:
            job.result()
    assert moments.class_count.sum() == 101 * len(X)


def test_weighted_rows_of_constant_features_are_subtracted_one_part_after_the_other():
    X, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    order, w = rng.permutation(600), rng.uniform(0.5, 2, 600)
    parts = [ClassMoments("diag").update(X[at], y[at], w[at]) for at in np.split(order, 12)]
    held = sum(parts[1:], parts[0])
    for part in parts[:-1]:
        held = held - part
    assert_close(held, parts[-1], 1e-6)


def test_constants_whose_squares_overflow_are_subtracted():
    X, y, w = np.full((6, 1), 1e200), [0, 0, 1, 1, 0, 1], [0.5, 0.7, 0.3, 0.9, 1.1, 0.2]
    held = ClassMoments("diag").update(X, y, w).declare([0, 1, 2])
    left = held - ClassMoments("diag").update(X[:2], y[:2], w[:2])
    np.testing.assert_allclose(left.class_count, [1.1, 1.4, 0])
    assert np.array_equal(left.means[:2], X[:2])
