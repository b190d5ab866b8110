"""Passes over rows that have groups: containers, memory, checkpoints, dask, and rows left out."""

import dask.array as da
import naive
import numpy as np
import pandas as pd
import polars as pl
import pytest
import zarr
from allocations import assert_peak_below
from moment_checks import assert_close, sample
from states import bits

from streamgda import GroupedMoments, accumulate
from streamgda.errors import (
    InvalidDataError,
    InvalidParameterError,
)

N = 300
X, CODES = sample(N, 3, 3)
Y = np.array(["ant", "bee", "wasp"])[CODES]
SITES = np.array(["east", "north", "south"])
NUMBERS = np.random.default_rng(0).integers(0, 3, N)
GROUPS = SITES[NUMBERS]
WEIGHTS = np.random.default_rng(1).gamma(1, size=N)
FRAME = pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=Y, site=GROUPS, w=WEIGHTS)
POLARS = pl.DataFrame(FRAME.to_dict("list"))
FEATURES = ["a", "b", "c"]


def stored(values, rows=40):
    return zarr.array(values, chunks=(rows, *values.shape[1:]))


def blocks(values, rows=50):
    return da.from_array(values, chunks=(rows, *values.shape[1:]))


CONTAINERS = {
    "numpy": (X, Y, GROUPS, WEIGHTS),
    "lists": (X.tolist(), Y.tolist(), GROUPS.tolist(), WEIGHTS.tolist()),
    "pandas": (FRAME[FEATURES], FRAME["y"], FRAME["site"], FRAME["w"]),
    "categories": (FRAME[FEATURES], FRAME["y"], FRAME["site"].astype("category"), FRAME["w"]),
    "polars": (POLARS[FEATURES], POLARS["y"], POLARS["site"], POLARS["w"]),
    "zarr": (stored(X), Y, stored(GROUPS.astype(np.dtypes.StringDType())), stored(WEIGHTS)),
    "dask": (blocks(X), blocks(Y), blocks(GROUPS), blocks(WEIGHTS)),
    "dask, other blocks": (blocks(X), Y, blocks(GROUPS, 70), WEIGHTS),
    "dask, lists": (blocks(X), Y.tolist(), GROUPS.tolist(), WEIGHTS),
}


def assert_same(found, expected, rtol=1e-10):
    assert list(found) == list(expected)
    assert found.classes.tolist() == expected.classes.tolist()
    for group in expected:
        assert_close(found[group], expected[group], rtol)


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag"])
@pytest.mark.parametrize("container", CONTAINERS)
def test_any_container_holds_groups(container, covariance_type):
    rows, y, groups, weights = CONTAINERS[container]
    for sample_weight in (None, weights):
        given = None if sample_weight is None else WEIGHTS
        expected = GroupedMoments(covariance_type).update(X, Y, GROUPS, given)
        options = {"covariance_type": covariance_type, "sample_weight": sample_weight}
        found = accumulate(rows, y, groups=groups, **options)
        assert_same(found, expected)
        if container in ("pandas", "polars"):
            assert found.feature_names == found["north"].feature_names == tuple(FEATURES)
            assert found.total().feature_names == found.without("east").feature_names


@pytest.mark.parametrize("covariance_type", ["full", "tied_diag"])
def test_blocks_on_dask_give_the_same_bits(covariance_type):
    rows = (50 + 10 * X).astype(np.uint8)
    expected = GroupedMoments(covariance_type).update(rows, Y, GROUPS)
    for chunk in (3, 110):
        given = (blocks(values, chunk) for values in (rows, Y, GROUPS))
        a, b, c = given
        found = accumulate(a, b, groups=c, covariance_type=covariance_type)
        assert bits(found) == bits(expected)


# --- rows that do not count -------------------------------------------------------------------


@pytest.mark.parametrize("covariance_type", ["full", "tied"])
def test_invalid_and_unlabelled_rows_are_left_out(covariance_type):
    rows, y = X.copy(), Y.astype(object)
    rows[::7, 1] = np.nan
    y[::5] = None
    groups = GROUPS.copy().astype("U9")
    groups[70] = "gone"  # whose only row is invalid
    options = {"covariance_type": covariance_type}
    found = accumulate(rows, y, groups=groups, on_invalid="skip", **options)
    kept = (np.arange(N) % 7 > 0) & (np.arange(N) % 5 > 0)
    assert_same(found, accumulate(X[kept], Y[kept], groups=GROUPS[kept], **options))
    assert found.n_skipped == found.total().n_skipped == N - kept.sum()
    found = accumulate(X, Y, groups=GROUPS, unlabelled="bee", **options)
    kept = Y != "bee"
    assert_same(found, accumulate(X[kept], Y[kept], groups=GROUPS[kept], **options))
    found = accumulate(X, Y, groups=GROUPS, unlabelled=["ant", "bee", "wasp"], **options)
    assert list(found) == []
    assert found.n_features is None


def test_refusals_say_what_to_do():
    missing = GROUPS.astype(object)
    missing[9] = None
    for rows in (X, stored(X), blocks(X)):
        with pytest.raises(InvalidDataError, match=r"groups\[9\] is missing .*'unknown'"):
            accumulate(rows, Y, groups=missing)
        with pytest.raises(InvalidDataError, match=r"300 rows but .* 299"):
            accumulate(rows, Y, groups=GROUPS[1:])
    with pytest.raises(InvalidParameterError, match=r"GroupedMoments\(\)\.update\(X, y, groups\)"):
        accumulate([(X, Y)], groups=GROUPS)
    with pytest.raises(
        InvalidParameterError, match="keeps matrices for each class, without groups"
    ):
        accumulate(X, Y, groups=GROUPS, on_invalid="pairwise")
    bad = X.copy()
    bad[250, 1] = np.inf
    with pytest.raises(InvalidDataError, match="row 250, column 1"):
        accumulate(stored(bad), Y, groups=GROUPS)


# --- memory -----------------------------------------------------------------------------------


@pytest.mark.parametrize("covariance_type", naive.COVARIANCE_TYPES)
def test_planned_bytes_hold(covariance_type):
    rows, y = sample(4000, 60, 4)
    groups = np.arange(4000) // 4 % 20
    grouped = GroupedMoments(covariance_type).update(rows, y, groups)
    state, adding = grouped._bytes(4, 60, 20)
    assert grouped.nbytes == state
    assert_peak_below(
        adding + 2 * rows.nbytes,
        lambda: GroupedMoments(covariance_type).update(rows, y, groups),
    )
