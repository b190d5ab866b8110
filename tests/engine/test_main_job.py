"""The main job: rows in any container, of several parts and chunks, give what an array gives."""

import subprocess
import sys

import pytest

DASK_OVER_ZARR = """
import dask.array as da, numpy as np, zarr
from streamgda import LinearDiscriminantAnalysis, accumulate

rng = np.random.default_rng(0)
n, block = 2_000_000, 80_000
X = zarr.create_array("rows.zarr/X", shape=(n, 64), chunks=(8_000, 64), dtype="f4")
y = zarr.create_array("rows.zarr/y", shape=(n,), chunks=(8_000,), dtype="i8")
for start in range(0, n, block):
    labels = rng.integers(0, 10, block)
    rows = rng.standard_normal((block, 64), dtype="f4") + labels[:, None]
    X[start : start + block], y[start : start + block] = rows, labels

X_lazy, y_lazy = da.from_zarr("rows.zarr/X"), da.from_zarr("rows.zarr/y")
assert accumulate(X_lazy, y_lazy).class_count.sum() == n
lda = LinearDiscriminantAnalysis("lsqr").fit(X_lazy, y_lazy)
assert (lda.predict(X_lazy) == y_lazy).mean().compute() > 0.99
"""


@pytest.mark.slow
def test_the_lines_of_the_readme_at_a_size_of_several_parts(tmp_path):
    subprocess.run([sys.executable, "-c", DASK_OVER_ZARR], cwd=tmp_path, check=True)
