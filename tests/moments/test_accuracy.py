"""Digits, refusals and bits of sums: what must hold for rows of any order, number and offset."""

import numpy as np
import pytest
from moment_checks import BY_CLASS, PATHS, take_path
from states import bits

from streamgda import ClassMoments, GroupedMoments
from streamgda.errors import InvalidDataError, MergeError, PrecisionWarning

TYPES = ["full", "tied", "diag", "tied_diag"]


def variances(moments):
    values = moments.covariance()
    return (
        np.diagonal(values, axis1=-2, axis2=-1) if "diag" not in moments.covariance_type else values
    )


def expected(X, y):
    """Variances of each class in long double, about a row."""
    found = []
    for k in np.unique(y):
        Z = (X[y == k] - X[y == k][:1]).astype(np.longdouble)
        found.append(((Z - Z.mean(axis=0)) ** 2).mean(axis=0))
    return np.array(found)


@pytest.mark.parametrize("kind", ["random", "sorted", "edge", "two values", "offset"])
@pytest.mark.parametrize("shape", [(300_000, 1), (100_000, 4), (20_000, 20), (3_000, 90)])
def test_variances_have_all_digits(shape, kind):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=shape), rng.integers(0, 2, shape[0])
    if kind == "sorted":
        X.sort(axis=0)
    elif kind == "edge":
        X[:2] = 40
    elif kind == "two values":
        X = np.where(X > 0.3, 0.1, 0.7)
    elif kind == "offset":
        X = (X + 1e12).round(3)
    wanted = expected(X, y)
    for name in ("full", "diag"):
        error = np.abs(variances(ClassMoments(name).update(X, y)) / wanted - 1).max()
        assert error < 5e-15


def test_variances_of_streams_of_small_batches():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60_000, 3)) + 1e6, rng.integers(0, 2, 60_000)
    for name in ("full", "diag"):
        moments = ClassMoments(name)
        for start in range(0, len(X), 20):
            moments.update(X[start : start + 20], y[start : start + 20])
        assert np.abs(variances(moments) / expected(X, y) - 1).max() < 1e-13


def test_origin_and_offset_centre_rows_exactly():
    X, y = np.array([[1e15 + 1, 3.0], [1e15 + 2, 5.0], [7.0, 7.0]]), [0, 0, 1]
    moments = ClassMoments().update(X, y)
    rows = (X[:2] - moments.origin[0]) - moments.offset[0]
    assert rows.tolist() == [[-0.5, -1.0], [0.5, 1.0]]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("covariance_type", TYPES)
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e200])
def test_refused_rows_leave_the_state(value, covariance_type, path, monkeypatch):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 5)), np.arange(300) % 3
    moments = ClassMoments(covariance_type).update(X, y)
    bad = X.copy()
    bad[200, 3] = value
    before = bits(moments)
    take_path(path, monkeypatch)
    with pytest.raises(InvalidDataError):
        moments.update(bad, y)
    assert bits(moments) == before
    moments.update(X, y)
    assert moments.class_count.sum() == 600


@pytest.mark.parametrize("covariance_type", TYPES)
@pytest.mark.parametrize("d", [3, 90])
def test_bits_do_not_depend_on_threads(d, covariance_type, use_threads):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60_000 // d, d)), np.arange(60_000 // d) % 5
    weights = rng.uniform(0.5, 2, len(y))
    for labels in (y, np.sort(y), (y == 3).astype(int)):
        found = set()
        for n in (1, 2, 5):
            use_threads(n)
            with pytest.MonkeyPatch.context() as patch:
                for name, size in BY_CLASS.items():
                    patch.setattr(f"streamgda.moments.adding.{name}", size)
                moments = ClassMoments(covariance_type).update(X, labels, weights)
            found.add(moments.to_bytes())
        assert len(found) == 1


def test_integers_that_float64_rounds_are_told():
    X = np.array([[2**62 + i] for i in range(6)])
    with pytest.warns(PrecisionWarning, match=r"integers beyond 2\*\*53"):
        ClassMoments().update(X, np.zeros(6, int))
    with pytest.warns(PrecisionWarning):
        ClassMoments("diag").update(X.astype(np.uint64), np.zeros(6, int))
    moments = ClassMoments().update(X - 2**62, np.zeros(6, int))
    assert moments.covariance()[0, 0, 0] == pytest.approx(35 / 12)


@pytest.mark.parametrize("dtype", ["float64", "uint8"])
@pytest.mark.parametrize("covariance_type", TYPES)
def test_rows_that_were_never_there_are_refused(covariance_type, dtype):
    X = np.array([[0, 7], [1, 7], [2, 7], [5, 7]], dtype)
    moments = ClassMoments(covariance_type).update(X, [0, 0, 0, 1])
    other = ClassMoments(covariance_type).update(np.array([[200, 7], [250, 7]], dtype), [0, 0])
    with pytest.raises(
        MergeError, match="would have a negative sum of squares, so these rows were"
    ):
        moments - other
    with pytest.raises(MergeError, match="subtracting 2 rows of class 1 from moments that hold 1"):
        moments - ClassMoments(covariance_type).update(X[:2], [1, 1])


def test_what_the_algebra_makes_can_be_loaded():
    """Heavy weights, of which some are taken out again, and fading ones."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 3)), np.arange(40) % 2
    for scale in (3e100, 1e-100):
        a = ClassMoments().update(X, y, rng.uniform(0.5, 2, 40) * scale)
        b = ClassMoments().update(X[:10], y[:10], np.full(10, scale))
        for moments in (
            a,
            a + b,
            (a + b) - b,
            a * 1e-20,
            a.relabel({0: 1}),
            a.select_features([2]),
        ):
            assert bits(ClassMoments.from_bytes(moments.to_bytes())) == bits(moments)
    grouped = GroupedMoments("tied").update(X, y, np.arange(40) % 3)
    assert bits(GroupedMoments.from_bytes(grouped.to_bytes())) == bits(grouped)
    frozen = ClassMoments().update(X, y)
    for array in frozen._sums.arrays().values():
        array.flags.writeable = False
    loaded = ClassMoments.from_bytes(frozen.to_bytes())
    assert loaded.update(X, y).class_count.tolist() == [40, 40]
