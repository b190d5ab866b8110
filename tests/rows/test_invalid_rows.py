"""Rows without measurements are left out and counted, or refused."""

import functools

import numpy as np
import pytest
from samples import KINDS, held
from stops import N_ROWS, SLAB, WEIGHTS, Rows, X, Y, bits, least_memory

from streamgda import ClassMoments, accumulate
from streamgda.errors import InvalidDataError
from streamgda.rows.invalid_rows import RowRule
from streamgda.storage.saved import restore, state_of

pytestmark = pytest.mark.usefixtures("small_slabs")

NODATA = -7


def rasters(dtype):
    """Rows of that type, some with `NODATA` or (floats) NaN, and a mask of the valid ones."""
    rows = np.round(10 * X).astype(dtype)
    rows[rows == NODATA] = 1
    bad = [0, 31, 32, 60, *range(90, 120), 299]  # a whole slab among them
    rows[bad, np.arange(len(bad)) % 4] = NODATA
    if np.dtype(dtype).kind == "f":
        rows[31, 2], rows[60, 0] = np.nan, np.inf
    return rows, np.delete(np.arange(N_ROWS), bad)


@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.float32, np.float64])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "dask"])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_invalid_rows_are_left_out_and_counted(dtype, kind, weights):
    rows, good = rasters(dtype)
    found = accumulate(
        held(rows, kind, SLAB), Y, sample_weight=weights, on_invalid="skip", nodata=NODATA
    )
    assert found.n_skipped == N_ROWS - good.size
    expected = accumulate(
        rows[good], Y[good], sample_weight=None if weights is None else weights[good]
    )
    np.testing.assert_allclose(found.class_count, expected.class_count, rtol=1e-12)
    np.testing.assert_allclose(found.means, expected.means, rtol=1e-12)
    np.testing.assert_allclose(found.covariance(), expected.covariance(), rtol=1e-5)


def test_bits_of_integers_are_those_of_the_good_rows():
    rows, good = rasters(np.int16)
    found = accumulate(rows, Y, on_invalid="skip", nodata=NODATA)
    expected = bits(accumulate(rows[good], Y[good]))
    assert bits(found)[1] == expected[1]


def test_nodata_is_an_error_where_it_is_not_skipped():
    rows, _ = rasters(np.int16)
    with pytest.raises(InvalidDataError, match=r"row 0 holds NaN, infinity or nodata=-7"):
        accumulate(rows, Y, nodata=NODATA)
    weights = np.ones(N_ROWS)
    weights[0] = 0  # a row that does not exist
    with pytest.raises(InvalidDataError, match=r"row 31 holds"):
        accumulate(rows, Y, nodata=NODATA, sample_weight=weights)
    skipped = accumulate(rows, Y, nodata=NODATA, sample_weight=weights, on_invalid="skip")
    assert skipped.n_skipped == accumulate(rows, Y, nodata=NODATA, on_invalid="skip").n_skipped - 1


@pytest.mark.parametrize("nodata", [-9999, 1e300, 300, float("nan"), np.float64(0.5)])
def test_nodata_that_the_type_cannot_hold(nodata):
    rows = np.arange(12, dtype=np.uint8).reshape(6, 2)
    for dtype in (np.uint8, np.float32):
        found = accumulate(rows.astype(dtype), [0, 1] * 3, on_invalid="skip", nodata=nodata)
        assert found.n_skipped == 0


@pytest.mark.parametrize("n_features", [1, 7, 64, 65, 200])
@pytest.mark.parametrize("order", ["C", "F"])
def test_invalid_rows_are_found_at_any_width(n_features, order):
    random = np.random.default_rng(0)
    rows = np.asarray(random.normal(size=(500, n_features)), order=order)
    rows[random.random(rows.shape) < 0.3 / n_features] = np.nan
    rows[random.random(rows.shape) < 0.3 / n_features] = NODATA
    bad = (np.isnan(rows) | (rows == NODATA)).any(axis=1)
    assert 100 < bad.sum() < 400
    found = RowRule("skip", NODATA).rows(rows)
    np.testing.assert_array_equal(found, np.flatnonzero(bad))


def test_nodata_is_compared_in_the_type_of_the_rows():
    rows = np.array([[0.1], [0.2], [0.3]], np.float32)
    assert accumulate(rows, [0, 0, 0], on_invalid="skip", nodata=0.1).n_skipped == 1


def test_nothing_is_left():
    rows = np.full((100, 3), np.nan)
    found = accumulate(rows, np.zeros(100), on_invalid="skip")
    assert (found.n_skipped, found.n_features) == (100, None)
    added = found + accumulate(np.zeros((2, 3)), [0, 1])
    assert added.n_skipped == 100
    assert "100 invalid rows left out" in repr(added)


def test_the_count_goes_where_the_rows_go(tmp_path):
    rows, good = rasters(np.int16)
    skip = functools.partial(accumulate, on_invalid="skip", nodata=NODATA)
    whole = skip(rows, Y)
    first, second = skip(rows[:100], Y[:100]), skip(rows[100:], Y[100:])
    assert (first + second).n_skipped == whole.n_skipped == N_ROWS - good.size
    assert (whole - first).n_skipped == second.n_skipped
    for derived in (
        whole.copy(),
        whole.reduce("diag"),
        whole.select_features([0, 1]),
        whole * 0.5,
        restore(ClassMoments, *state_of(whole)),
    ):
        assert derived.n_skipped == whole.n_skipped
    whole.save(tmp_path / "moments")
    assert ClassMoments.load(tmp_path / "moments").n_skipped == whole.n_skipped
    attributes, arrays = state_of(whole)
    del attributes["n_skipped"]  # as in older files
    assert restore(ClassMoments, attributes, arrays).n_skipped == 0
    assert whole.update(rows[good[:5]], Y[good[:5]]).n_skipped == N_ROWS - good.size


def test_a_failing_slab_is_not_counted_in_part(tmp_path):
    rows, _ = rasters(np.float64)
    path = tmp_path / "kept"
    labels = Y.astype(float)
    labels[100] = 0.5  # in a slab all of whose rows are invalid
    with pytest.raises(InvalidDataError):
        accumulate(rows, labels, on_invalid="skip", nodata=NODATA, checkpoint=path)
    found = accumulate(rows, Y * 1.0, on_invalid="skip", nodata=NODATA, checkpoint=path)
    assert bits(found) == bits(accumulate(rows, Y * 1.0, on_invalid="skip", nodata=NODATA))


def test_skipping_takes_memory_for_a_copy():
    assert least_memory(Rows(), on_invalid="skip") == least_memory(Rows()) + SLAB * 32
