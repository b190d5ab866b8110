"""Sums of integers that meet other types or outgrow int64: exact as long as they can be."""

import naive
import numpy as np
import pytest
from exact_sums import DTYPES, assert_exact, bits, held, sample
from grids import pairs
from hypothesis import given
from hypothesis import strategies as st

from streamgda.moments import ClassMoments
from streamgda.moments import exact as exact_module
from streamgda.storage.saved import state_of

TYPES = naive.COVARIANCE_TYPES


# --- mixtures ---------------------------------------------------------------------------------


@pytest.mark.parametrize("covariance_type", TYPES)
def test_integers_of_different_types_stay_exact(covariance_type):
    batches = [sample(50, 3, dtype, seed=i) for i, dtype in enumerate(["uint8", "int16", "uint16"])]
    X = np.vstack([rows.astype(np.int64) for rows, _ in batches])
    y = np.concatenate([labels for _, labels in batches])
    orders = [(0, 1, 2), (2, 1, 0), (1, 2, 0)]
    states = []
    for order in orders:
        streamed, merged = ClassMoments(covariance_type), ClassMoments(covariance_type)
        for i in order:
            streamed.update(*batches[i])
            merged += ClassMoments(covariance_type).update(*batches[i])
        assert_exact(streamed, X, y)
        assert_exact(merged, X, y)
        states += [bits(streamed), bits(merged)]
    assert all(state == states[0] for state in states)


@given(
    st.lists(st.tuples(st.sampled_from(DTYPES), st.integers(1, 9)), min_size=2, max_size=4),
    st.sampled_from(TYPES),
    st.integers(0, 2**32),
)
def test_any_mixture_adds_and_subtracts_to_the_bit(batches, covariance_type, seed):
    data = [sample(n, 2, dtype, seed=seed + i) for i, (dtype, n) in enumerate(batches)]
    parts = [ClassMoments(covariance_type).update(*batch) for batch in data]
    total = sum(parts[1:], parts[0])
    assert_exact(
        total, np.vstack([X.astype(int) for X, _ in data]), np.concatenate([y for _, y in data])
    )
    back = total
    for part in reversed(parts[1:]):
        back = back - part
    assert held(back) == held(parts[0])


@pytest.mark.parametrize("covariance_type", TYPES)
def test_large_sums_of_big_endian_rows(covariance_type):
    """Beyond 2**53, where float64 no longer holds every integer."""
    X, y = sample(9, 2, "uint16", n_classes=2)
    moments = ClassMoments(covariance_type).update(X, y)
    for _ in range(24):
        moments += moments
    assert state_of(moments)[1]["scatter"].max() > 2**53
    expected = held(moments.copy().update(X, y))
    assert held(moments.update(X.astype(">u2"), y)) == expected


def to_be_centred(name):
    X, y = sample(50, 3, "uint8", seed=1)
    return {
        "weights": (X, y, np.full(50, 0.5)),
        "weights of one": (X, y, np.ones(50)),
        "float64": (X / 3, y, None),
        "whole floats": (X.astype(np.float32), y, None),
        "int32": (X.astype(np.int32), y, None),
    }[name]


@pytest.mark.parametrize("name", ["weights", "weights of one", "float64", "whole floats", "int32"])
@pytest.mark.parametrize("covariance_type", TYPES)
def test_integers_and_others_become_centred(covariance_type, name):
    X, y = sample(60, 3, "uint8")
    other = to_be_centred(name)
    weights = np.append(np.ones(60), np.ones(50) if other[2] is None else other[2])
    rows, labels = np.vstack([X, other[0]]).astype(float), np.append(y, other[1])
    exact, centred = (ClassMoments(covariance_type) for _ in range(2))
    exact.update(X, y)
    centred.update(*other)
    before = held(exact)
    expected = naive.covariance(rows, labels, covariance_type, weights)
    added = exact + centred
    assert held(exact) == before
    for moments in (added, centred + exact, centred.copy().update(X, y), exact.update(*other)):
        assert not moments.exact
        np.testing.assert_allclose(moments.covariance(), expected, rtol=1e-11, atol=1e-9)
        np.testing.assert_allclose(moments.class_count.sum(), weights.sum())


def test_exact_less_centred():
    X, y = sample(60, 3, "uint8")
    exact = ClassMoments().update(X, y)
    some = ClassMoments().update(X[:20].astype(float), y[:20])
    left = exact - some
    assert not left.exact
    assert exact.exact
    expected = naive.covariance(X[20:], y[20:])
    np.testing.assert_allclose(left.covariance(), expected, rtol=1e-11, atol=1e-9)
    assert not (exact * 1).exact
    assert not exact.project(np.eye(3)).exact


# --- overflow ---------------------------------------------------------------------------------


@pairs("rows_before, limit, covariance_type", [0, 10, 40], ["_EXACT_LIMIT", "_EXACT_ROWS"], TYPES)
def test_no_room_left_becomes_centred(covariance_type, limit, rows_before, monkeypatch):
    """The limit admits 45 rows; further rows are summed in float64, and just as accurate."""
    monkeypatch.setattr(exact_module, limit, 45 * 255**2 if limit == "_EXACT_LIMIT" else 46)
    X, y = sample(100, 3, "uint8")
    expected = naive.covariance(X, y, covariance_type)

    def check(moments, exact):
        assert moments.exact == exact
        if len(X) == moments.class_count.sum():
            np.testing.assert_allclose(moments.covariance(), expected, rtol=1e-12)

    moments = ClassMoments(covariance_type)
    if rows_before:
        check(moments.update(X[:rows_before], y[:rows_before]), exact=True)
    check(moments.update(X[rows_before:], y[rows_before:]), exact=False)

    parts = [
        ClassMoments(covariance_type).update(X[i : i + 20], y[i : i + 20])
        for i in range(0, 100, 20)
    ]
    assert all(part.exact for part in parts)
    total = parts[0] + parts[1]
    assert total.exact
    total = total + parts[2]
    assert not total.exact
    check(total + parts[3] + parts[4], exact=False)


def test_room_depends_on_the_values_reach(monkeypatch):
    monkeypatch.setattr(exact_module, "_EXACT_LIMIT", 10 * (1 << 15) ** 2)
    X, y = sample(100, 3, "uint8")
    bytes_only = ClassMoments().update(X, y)
    assert bytes_only.exact
    wide = X[:11].astype(np.int16)
    assert ClassMoments().update(wide[:10], y[:10]).exact
    assert not ClassMoments().update(wide, y[:11]).exact
    assert not bytes_only.copy().update(wide[:1], y[:1]).exact
    assert not (bytes_only + ClassMoments().update(wide[:1], y[:1])).exact


def test_the_limits_of_exact_sums():
    """Sums of squares, and products of remainders, at the very limit."""
    for reach in (128, 255, 1 << 15, (1 << 16) + 255, 3 << 15):
        rows = min(exact_module._EXACT_LIMIT // reach**2, exact_module._EXACT_ROWS - 1)
        assert rows * reach**2 < 2**63
        assert (rows - 1) ** 2 < 2**63
