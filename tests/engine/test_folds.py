"""Folds and groups go by the number of the row, whatever order it is read in."""

import dask.array as da
import numpy as np
import pytest
import xarray
from sklearn.model_selection import GroupKFold

from streamgda import GaussianDiscriminantCV

rng = np.random.default_rng(0)
CUBE = rng.normal(size=(3, 40, 60))
LABELS = (CUBE[0] + rng.normal(size=(40, 60)) > 0).astype(int)
BLOCKS = np.repeat(np.arange(40) // 8, 60).reshape(40, 60)


def tiled(values, *chunks):
    """A DataArray of pixels in tiles."""
    dims = ("band", "y", "x")[3 - values.ndim :]
    return xarray.DataArray(da.from_array(values, chunks), dims=dims)


@pytest.mark.parametrize("cv", [5, GroupKFold(3), BLOCKS % 4], ids=["5", "groups", "given"])
def test_pixels_in_tiles_have_the_folds_of_pixels_in_rows(cv):
    grouped = isinstance(cv, GroupKFold)
    given = cv.ravel() if isinstance(cv, np.ndarray) else cv
    expected = GaussianDiscriminantCV(cv=given).fit(
        CUBE.reshape(3, -1).T, LABELS.ravel(), groups=BLOCKS.ravel() if grouped else None
    )
    for labels, groups in (
        (tiled(LABELS, 9, 60), tiled(BLOCKS, 10, 10)),
        (xarray.DataArray(LABELS, dims=("y", "x")), xarray.DataArray(BLOCKS, dims=("y", "x"))),
    ):
        found = GaussianDiscriminantCV(cv=given).fit(
            tiled(CUBE, 2, 13, 17), labels, groups=groups if grouped else None, features="band"
        )
        assert found.best_score_ == pytest.approx(expected.best_score_, rel=1e-12)
