"""Moments of fewer features or classes, of other labels, and of projected rows."""

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from moment_checks import (
    TYPES,
    assert_close,
    assert_moments,
    batches,
    largest,
    of,
    sample,
    snapshot,
)

from streamgda.errors import MergeError
from streamgda.moments import ClassMoments

# --- views commute with merging ---------------------------------------------------------------


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

    index = data.draw(st.lists(st.integers(-d, d - 1), min_size=1, max_size=2 * d))
    check(lambda m: m.select_features(index), lambda m: m.n_features == len(index))
    mapping = data.draw(st.dictionaries(st.integers(0, 3), st.integers(-2, 5)))
    check(lambda m: m.relabel({k: v for k, v in mapping.items() if k in m.classes}))
    check(lambda m: m * 0.75)
    for simpler in TYPES:
        if ClassMoments(covariance_type)._structure.covers(ClassMoments(simpler)._structure):
            check(lambda m, t=simpler: m.reduce(t), lambda m, t=simpler: m.covariance_type == t)
    if covariance_type in ("full", "tied"):
        components = np.random.default_rng(d).normal(size=(2, d))
        spread = largest(both.means - both.means[0]) + np.sqrt(largest(both.covariance()))
        offset = both.means[0] + spread + 1e-9  # close, relative to the spread of the data
        check(lambda m: m.project(components, offset))
    if not covariance_type.startswith("tied"):
        kept = data.draw(st.sets(st.sampled_from(both.classes.tolist())))
        check(lambda m: m.select_classes([k for k in kept if k in m.classes]))


@pytest.mark.parametrize("covariance_type", TYPES)
def test_reduce(covariance_type):
    X, y = sample()
    for dtype in ("float64", "int16"):
        rows = X.astype(dtype)
        full = ClassMoments().update(rows, y)
        reduced = full.reduce(covariance_type)
        assert reduced.exact == full.exact
        assert_close(reduced, ClassMoments(covariance_type).update(rows, y), 1e-12)
        assert_moments(reduced, rows, y)
        before = snapshot(full)
        reduced.update(rows, y)
        assert snapshot(full) == before


@pytest.mark.parametrize(
    ("held", "becomes"),
    [
        ("full", TYPES),
        ("tied", ["tied", "tied_diag", "tied_spherical"]),
        ("diag", ["diag", "tied_diag", "spherical", "tied_spherical"]),
        ("tied_diag", ["tied_diag", "tied_spherical"]),
        ("spherical", ["spherical", "tied_spherical"]),
        ("tied_spherical", ["tied_spherical"]),
    ],
)
def test_reductions_that_are_possible(held, becomes):
    X, y = sample()
    moments = ClassMoments(held).update(X, y)
    for covariance_type in TYPES:
        if covariance_type in becomes:
            assert_moments(moments.reduce(covariance_type), X, y)
            assert ClassMoments(held).reduce(covariance_type).n_features is None
        else:
            message = f"{held!r} do not hold what {covariance_type!r} needs; they can become"
            with pytest.raises(MergeError, match=message):
                moments.reduce(covariance_type)


@pytest.mark.parametrize("dtype", ["float64", "uint8"])
@pytest.mark.parametrize("covariance_type", TYPES)
@pytest.mark.parametrize(
    "index", [[3, 0], [1], slice(1, 4), slice(None, None, -1), [True, False, True, True, False], 2]
)
def test_select_features(covariance_type, index, dtype):
    X, y = sample(dtype=dtype)
    moments = ClassMoments(covariance_type).update(X, y)
    selected = moments.select_features(index)
    columns = np.atleast_2d(X.T[index]).T if isinstance(index, int) else X[:, index]
    assert selected.exact == moments.exact
    assert_moments(selected, columns, y)
    selected.update(columns, y)
    assert_moments(moments, X, y)


@pytest.mark.parametrize("dtype", ["float64", "uint8"])
@pytest.mark.parametrize("covariance_type", ["full", "diag", "spherical"])
def test_select_classes(covariance_type, dtype):
    X, y = sample(n_classes=5, dtype=dtype)
    moments = ClassMoments(covariance_type).update(X, y)
    kept = (y == 3) | (y == 1)
    assert_moments(moments.select_classes([3, 1]), X[kept], y[kept])
    assert moments.select_classes([]).classes.size == 0
    assert_close(moments.select_classes(np.arange(5)), moments)


@pytest.mark.parametrize("dtype", ["float64", "uint8"])
@pytest.mark.parametrize("covariance_type", TYPES)
def test_relabel(covariance_type, dtype):
    X, y = sample(n_classes=4, dtype=dtype)
    moments = ClassMoments(covariance_type).update(X, y)
    before = snapshot(moments)
    for mapping in ({}, {0: 9}, {0: 1, 1: 0}, {1: 0, 2: 0, 3: 0}, {2: 3}, {0: -1, 3: -1, 1: 2}):
        labels = np.array([mapping.get(label, label) for label in y.tolist()])
        expected = ClassMoments(covariance_type).update(X, labels)
        if covariance_type.startswith("tied") and len(set(labels)) < 4:
            # Pooled: rows that change class add the scatter between the classes.
            expected = ClassMoments("full").update(X, labels).reduce(covariance_type)
        assert_close(moments.relabel(mapping), expected)
    names = moments.relabel({0: "b", 1: "a", 2: "b", 3: "c"})
    assert_moments(names, X, np.array(["b", "a", "b", "c"])[y])
    assert snapshot(moments) == before


def test_relabel_other_kinds():
    X, _ = sample(4)
    dates = np.array(["2020-01-01", "2020-01-02"] * 2, "M8[ns]")
    moments = ClassMoments().update(X, dates)
    other = moments.relabel({dates[0]: np.datetime64("2021-01-01", "ns")})
    assert other.classes.tolist() == np.array(["2020-01-02", "2021-01-01"], "M8[ns]").tolist()
    text = ClassMoments().update(X, np.array([b"a", b"b"] * 2)).relabel({b"a": b"ccc"})
    assert text.classes.tolist() == [b"b", b"ccc"]
    flags = ClassMoments().update(X, [True, False] * 2).relabel({True: "yes", False: "no"})
    assert flags.classes.tolist() == ["no", "yes"]


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


# --- PCA and projection -----------------------------------------------------------------------


def aligned(components, others):
    return others * np.sign((components * others).sum(axis=1))[:, None]


@pytest.mark.parametrize("n_components", [1, 3, 6])
@pytest.mark.parametrize("covariance_type", ["full", "tied"])
@pytest.mark.parametrize("dtype", ["float64", "uint8"])
def test_pca_is_scikit_learn_s(covariance_type, n_components, dtype):
    decomposition = pytest.importorskip("sklearn.decomposition")
    X, y = sample(500, 6, dtype=dtype)
    components = ClassMoments(covariance_type).update(X, y).pca(n_components)
    expected = decomposition.PCA(n_components).fit(X.astype(np.float64)).components_
    assert components.shape == (n_components, 6)
    np.testing.assert_allclose(components, aligned(components, expected), atol=1e-10)
    np.testing.assert_allclose(components @ components.T, np.eye(n_components), atol=1e-13)
    largest = np.abs(components).argmax(axis=1)
    assert (components[np.arange(n_components), largest] > 0).all()


def test_pca_commutes_with_merging_and_knows_no_classes():
    X, y = sample(300, 4)
    whole = ClassMoments().update(X, y)
    merged = ClassMoments().update(X[:100], y[:100]) + ClassMoments().update(X[100:], y[100:])
    one_class = ClassMoments().update(X, np.zeros(300))
    for moments in (merged, one_class, whole.declare([99])):
        np.testing.assert_allclose(moments.pca(3), whole.pca(3), atol=1e-12)
    offset = ClassMoments().update(X + 1e6, y)
    np.testing.assert_allclose(offset.pca(3), whole.pca(3), atol=1e-8)


@pytest.mark.parametrize("covariance_type", ["full", "tied"])
@pytest.mark.parametrize("dtype", ["float64", "uint8", "weighted"])
def test_project(covariance_type, dtype):
    weights = np.random.default_rng(6).gamma(1, size=200) if dtype == "weighted" else None
    X, y = sample(dtype="float64" if weights is not None else dtype)
    rng = np.random.default_rng(7)
    components, offset = rng.normal(size=(3, 5)), rng.normal(size=5)
    moments = ClassMoments(covariance_type).update(X, y, weights)
    assert_moments(moments.project(components, offset), (X - offset) @ components.T, y, weights)
    assert_moments(moments.project(components), X @ components.T, y, weights)
    assert_moments(moments.project(components.tolist()), X @ components.T, y, weights)
    assert_moments(moments, X, y, weights)


def test_project_on_principal_components_decorrelates():
    X, y = sample(500, 5)
    moments = ClassMoments().update(X, y)
    projected = moments.project(moments.pca(5), X.mean(axis=0)).relabel({1: 0, 2: 0})
    covariance = projected.covariance()[0]
    assert np.abs(covariance - np.diag(np.diag(covariance))).max() < 1e-12 * covariance.max()
    np.testing.assert_allclose(projected.means, 0, atol=1e-13)
