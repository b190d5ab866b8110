"""Folds go by the number of the row, whatever order it is read in."""

import dask.array as da
import numpy as np
import pytest
import xarray
from grids import in_turn
from sklearn.model_selection import GroupKFold

from streamgda import GaussianDiscriminantCV
from streamgda.engine.folds import fold_of, with_folds
from streamgda.rows import Rows
from streamgda.rows.source import as_source

rng = np.random.default_rng(0)
CUBE = rng.normal(size=(3, 40, 60))
LABELS = (CUBE[0] + rng.normal(size=(40, 60)) > 0).astype(int)
BLOCKS = np.repeat(np.arange(40) // 8, 60).reshape(40, 60)


@in_turn("n_folds, seed", [2, 5, 10], [0, 1, 2**40])
def test_folds_follow_from_the_numbers_of_rows(n_folds, seed):
    folds = fold_of(0, 40_000, n_folds, seed)
    assert fold_of(1234, 5678, n_folds, seed).tolist() == folds[1234:5678].tolist()
    blocks = folds.reshape(-1, n_folds)  # Each block has another order.
    np.testing.assert_array_equal(np.sort(blocks), np.tile(np.arange(n_folds), (len(blocks), 1)))
    for step in (n_folds, 3 * n_folds):
        assert (folds[step:] == folds[:-step]).mean() == pytest.approx(1 / n_folds, abs=0.015)
    other = fold_of(0, 40_000, n_folds, seed + 1)
    assert (folds == other).mean() == pytest.approx(1 / n_folds, abs=0.015)


def folds_of(cv, labels, seed=0):
    rows = Rows(as_source(np.zeros((*labels.shape, 1))), as_source(labels, "y"))
    return with_folds(cv, seed, rows).groups.whole()


def test_folds_of_rows_sorted_by_class_have_equal_shares_of_each():
    y = np.repeat(["a", "b", "c"], [400, 97, 13])
    for n_folds in (2, 5, 7):
        folds = folds_of(n_folds, y)
        for label in "abc":
            assert np.ptp(np.bincount(folds[y == label], minlength=n_folds)) <= 2
        assert np.ptp(np.bincount(folds)) <= 1


def pixels(values, *chunks):
    """A DataArray of pixels, in memory or in tiles."""
    dims = ("band", "y", "x")[3 - values.ndim :]
    return xarray.DataArray(da.from_array(values, chunks) if chunks else values, dims=dims)


@pytest.mark.parametrize("cv", [5, GroupKFold(3), BLOCKS % 4], ids=["5", "groups", "given"])
def test_pixels_in_tiles_have_the_folds_of_pixels_in_rows(cv, slabs_of):
    grouped = isinstance(cv, GroupKFold)
    given = cv.ravel() if isinstance(cv, np.ndarray) else cv
    expected = GaussianDiscriminantCV(cv=given).fit(
        CUBE.reshape(3, -1).T, LABELS.ravel(), groups=BLOCKS.ravel() if grouped else None
    )
    slabs_of(1 << 12)
    for labels, groups, cube in (
        (pixels(LABELS, 9, 60), pixels(BLOCKS, 10, 10), pixels(CUBE, 2, 13, 17)),
        (pixels(LABELS), pixels(BLOCKS), pixels(CUBE)),
    ):
        found = GaussianDiscriminantCV(cv=given).fit(
            cube, labels, groups=groups if grouped else None, features="band"
        )
        assert found.best_score_ == pytest.approx(expected.best_score_, rel=1e-12)
