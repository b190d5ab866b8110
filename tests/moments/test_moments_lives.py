"""Lives of moments: what may be subtracted, sums that overflow, and what is saved of them."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from moment_checks import TYPES, set_sizes, snapshot

from streamgda import ClassMoments, GaussianNB, GroupedMoments, PairwiseMoments
from streamgda.errors import InvalidDataError, InvalidParameterError, MergeError

OFFSETS = [0.0, 1.0, 1e4, 1e8]
SCALES = [1e-3, 1.0, 1e6]


@st.composite
def rows(draw, d, dtype, weighted):
    """A few rows of up to three classes, some of them constant, far away or of other scales."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n = draw(st.integers(1, 12))
    X = rng.normal(size=(n, d)) * draw(st.sampled_from(SCALES)) + draw(st.sampled_from(OFFSETS))
    X[:, : draw(st.integers(0, d))] = draw(st.sampled_from([0.0, 0.1, 7.0]))
    if np.dtype(dtype).kind == "u":
        X = np.abs(X) % 256
    weights = rng.gamma(1, size=n) * draw(st.sampled_from([0.1, 1.0, 10.0])) if weighted else None
    return X.astype(dtype), rng.integers(0, 3, n), weights


@given(st.data())
def test_rows_that_were_added_can_be_subtracted_in_any_life(data):
    """Whatever was added, merged and decayed before, all of it can be taken out again."""
    covariance_type = data.draw(st.sampled_from(TYPES))
    fourth = covariance_type == "full" and data.draw(st.booleans())
    d, weighted = data.draw(st.integers(1, 4)), data.draw(st.booleans())
    dtypes = data.draw(st.sampled_from([["float64"], ["float32", "float64"], ["uint8"]]))
    held, parts = ClassMoments(covariance_type, fourth_moments=fourth), []
    with pytest.MonkeyPatch.context() as patch:
        if data.draw(st.booleans()):
            set_sizes({"_SMALL_STATE": 0, "_SMALL_WORK": 0}, patch)
        for _ in range(data.draw(st.integers(1, 12))):
            action = data.draw(st.sampled_from(["add", "merge", "subtract", "decay"]))
            if action == "decay":
                gamma = data.draw(st.sampled_from([0.5, 0.9]))
                held = held * gamma
                parts = [part * gamma for part in parts]
            elif action == "subtract" and parts:
                held = held - parts.pop(data.draw(st.integers(0, len(parts) - 1)))
            elif action != "subtract":
                X, y, w = data.draw(rows(d, data.draw(st.sampled_from(dtypes)), weighted))
                parts.append(ClassMoments(covariance_type, fourth_moments=fourth).update(X, y, w))
                held = held + parts[-1] if action == "merge" else held.update(X, y, w)
            assert_saved(held)
        for part in data.draw(st.permutations(parts)):
            held = held - part
            assert_saved(held)


def assert_saved(moments):
    """Check that what is saved can be loaded, with the same bits."""
    loaded = type(moments).from_bytes(moments.to_bytes())
    assert snapshot(loaded) == snapshot(moments)


def refuses(moments, change, error=MergeError, match="that no rows have"):
    before = snapshot(moments)
    with pytest.raises(error, match=match):
        change(moments)
    assert snapshot(moments) == before


def taken(dtype, weighted):
    X = np.array([[0, 7], [1, 7], [2, 7], [5, 7]], dtype)
    return X, [0, 0, 0, 1], [1.0, 2.0, 0.5, 1.0] if weighted else None


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "float32", "uint8"])
@pytest.mark.parametrize("covariance_type", TYPES)
def test_rows_that_were_never_there_cannot_be_subtracted(covariance_type, dtype, weighted):
    X, y, w = taken(dtype, weighted)
    moments = ClassMoments(covariance_type).update(X, y, w)
    never = np.array([[200, 7], [250, 7], [200, 7]], dtype), np.array([[0, 8]], dtype)
    for Z in (*never, never[0][:1], never[0][:2]):
        refuses(
            moments,
            lambda held, Z=Z: (
                held
                - ClassMoments(covariance_type).update(
                    Z, [0] * len(Z), w and [1.0, 1.0, 1.5][: len(Z)]
                )
            ),
        )
    grouped = GroupedMoments(covariance_type).update(X, y, ["a"] * 4, w)
    other = GroupedMoments(covariance_type).update(never[0][:2], [0, 0], ["a", "a"], w and w[1:3])
    refuses(grouped, lambda held: held - other)


def test_fourth_powers_that_were_never_there_cannot_be_subtracted():
    """One far row has no more square than many near ones, but more of a fourth power."""
    near = np.tile([[1.0], [-1.0]], (200, 1))
    far = ClassMoments(fourth_moments=True).update([[15.0]], [0])
    moments = ClassMoments(fourth_moments=True).update(near, np.zeros(400, int))
    refuses(moments, lambda held: held - far, match="fourth moments that no rows have")


def test_forgetting_goes_through_the_same_check():
    nb = GaussianNB().fit([[0.0], [1.0], [2.0], [5.0], [6.0]], [0, 0, 0, 1, 1])
    with pytest.raises(MergeError, match="class 0 that no rows have in feature 0"):
        nb.forget([[500.0], [900.0]], [0, 0])
    np.testing.assert_array_equal(nb.theta_, [[1.0], [5.5]])


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("n", [1, 300])
@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("covariance_type", TYPES)
def test_sums_that_overflow_are_refused(covariance_type, large, n, sparse, monkeypatch):
    """Squares, weights and squares of weights; in sums so far, too, and in all that is derived."""
    if sparse and covariance_type in ("full", "tied"):
        pytest.skip("dense rows only")
    if large:
        set_sizes({"_SMALL_STATE": 0, "_SMALL_WORK": 0}, monkeypatch)
    moments = ClassMoments(covariance_type).update([[0.0, 1.0], [1.0, 3.0]], [0, 1])
    near = np.tile([[1.0, 2.0]], (n, 1))

    def container(X):
        from scipy.sparse import csr_array

        return csr_array(X) if sparse else X

    def overflows(X, weights=None, of=moments):
        X = np.vstack([near, X])
        w = None if weights is None else np.append(np.ones(n), weights)
        y = np.zeros(len(X), int)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            refuses(of, lambda m: m.update(container(X), y, w), InvalidDataError, "overflow")

    overflows([[0.0, 0], [1e200, 0], [-1e200, 0]])
    overflows([[0.0, 1e155]])
    overflows([[0.0, 1e80]], [1e160])
    for weight in (1e308, 1e160):
        overflows([[0.0, 0.0]], [weight])
    heavy = ClassMoments(covariance_type).update([[0.0, 1.0]], [0], [1e154])
    refuses(heavy, lambda m: m.update([[0.0, 1]], [0], [1e154]), InvalidDataError, "overflow")
    wide = ClassMoments(covariance_type).update([[-1.2e154, 0.0], [0, 0]], [0, 0])
    for change in (
        lambda m: m.update([[1.2e154, 0.0], [0, 0]], [0, 0]),
        lambda m: m + ClassMoments(covariance_type).update([[1.2e154, 0.0], [0, 0]], [0, 0]),
        lambda m: m * 100,
        lambda m: m * 1e200,
    ):
        refuses(wide, change, (InvalidDataError, MergeError, InvalidParameterError), "overflow")
    apart = ClassMoments(covariance_type).update([[-1e200, 0.0], [1e200, 0]], [0, 1])
    refuses(apart, lambda m: m.relabel({1: 0}), match="overflow")
    if covariance_type in ("full", "tied"):
        refuses(apart, lambda m: m.pca(1), match="overflow")
        refuses(wide, lambda m: m.project([[1e10, 0.0]]), match="overflow")


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("covariance_type", TYPES)
def test_large_values_whose_squares_do_not_overflow(covariance_type, large, monkeypatch):
    """They are summed as others: the distance from the mean is what is squared."""
    if large:
        set_sizes({"_SMALL_STATE": 0, "_SMALL_WORK": 0}, monkeypatch)
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
    assert_saved(moments)
    assert_saved(moments + moments * 0.5)


def test_pairwise_sums_that_overflow_are_refused():
    moments = PairwiseMoments().update([[-1.2e154, 0.0], [0.0, 0.0]], [0, 0])
    refuses(
        moments, lambda m: m.update([[1.2e154, 0], [0, 0]], [0, 0]), InvalidDataError, "overflow"
    )
    other = PairwiseMoments().update([[1.2e154, 0.0], [0.0, 0.0]], [0, 0])
    refuses(moments, lambda m: m + other, match="overflow")
    refuses(moments, lambda m: m.__iadd__(other), match="overflow")


LABELS = [[0, 1, 2], ["ant", "bee", "ä\0"], [b"a", b"b", b"c"], [True, False, True], [2**63, 1, 2]]


@given(st.data())
def test_whatever_the_algebra_makes_can_be_saved(data):
    """Projections along directions without variance and heavy weights too."""
    labels = data.draw(st.sampled_from(LABELS))
    covariance_type = data.draw(st.sampled_from(TYPES))
    fourth = covariance_type == "full" and data.draw(st.booleans())
    dtype = data.draw(st.sampled_from(["float64", "float32", "uint8"]))
    d = data.draw(st.integers(1, 5))
    heavy = data.draw(st.sampled_from([None, 1.0, 3e100, 1e-100]))

    def part(groups=False):
        X, y, w = data.draw(rows(d, dtype, heavy is not None))
        kind = GroupedMoments if groups else ClassMoments
        more = [np.arange(len(y)) % 2] if groups else []
        w = None if w is None else w * heavy
        held = kind(covariance_type, fourth_moments=fourth)
        return held.update(X, np.array([labels[k] for k in y]), *more, w)

    grouped = part(groups=True)
    grouped += part(groups=True)
    assert_saved(grouped)
    assert_saved(grouped - grouped)
    assert_saved(grouped.roll_up(lambda group: "all"))
    moments = data.draw(st.sampled_from([part(), grouped.total(), grouped[0]]))
    for _ in range(data.draw(st.integers(1, 6))):
        action = data.draw(st.sampled_from(ACTIONS))
        with np.errstate(all="ignore"):
            try:
                moments = action(moments, data, part)
            except (MergeError, InvalidDataError):  # of another type or width, or empty
                continue
        assert_saved(moments)


def projected(moments, data, part):
    d = moments.n_features
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    components = rng.normal(size=(data.draw(st.integers(1, 4)), d))
    if data.draw(st.booleans()):
        components = moments.pca(min(d, 2))
    return moments.project(components)


ACTIONS = [
    lambda moments, data, part: moments + part(),
    lambda moments, data, part: moments + moments - moments,
    lambda moments, data, part: moments - part(),
    lambda moments, data, part: moments * data.draw(st.sampled_from([0.1, 3.0, 0.0])),
    lambda moments, data, part: moments.select_features([0, 0]),
    lambda moments, data, part: moments.select_classes(moments.classes[:1]),
    lambda moments, data, part: moments.reduce(data.draw(st.sampled_from(TYPES))),
    lambda moments, data, part: moments.relabel({moments.classes[-1]: moments.classes[0]}),
    lambda moments, data, part: moments.declare(moments.classes),
    projected,
]
