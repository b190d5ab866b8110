"""Rows in one container, and labels and weights in others."""

from itertools import product
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import naive
import numpy as np
import pytest
import zarr
from grids import cases
from scipy import sparse

from streamgda import GaussianNB, Ridge, accumulate, open_store
from streamgda.errors import InvalidDataError

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
dd = pytest.importorskip("dask.dataframe")
xr = pytest.importorskip("xarray")
import pyarrow.parquet as pq  # noqa: E402

N = 60
RANDOM = np.random.default_rng(0)
X = RANDOM.integers(0, 200, (N, 3)).astype(np.uint8)
Y = np.array(["ant", "bee", "cat"])[RANDOM.integers(0, 3, N)]
WEIGHT = RANDOM.integers(0, 3, N) / 2
COLUMNS = {name: X[:, n] for n, name in enumerate("abc")}


def parquet(path: Path) -> Any:
    pq.write_table(pa.table(COLUMNS), path / "rows.parquet", row_group_size=7)
    return open_store(path / "rows.parquet", y=None)[0]


def texts(path: Path) -> Any:
    array = zarr.create_array(path / "labels", shape=N, chunks=9, dtype=str)
    array[:] = Y
    return array


ROWS = {
    "array": lambda path: X,
    "booleans": lambda path: X > 90,
    "objects": lambda path: X.astype(object),
    "zarr": lambda path: zarr.create_array(path / "rows", data=X, chunks=(13, 2)),
    "sparse": lambda path: sparse.coo_array(X),
    "pandas": lambda path: pd.DataFrame(COLUMNS),
    "polars": lambda path: pl.DataFrame(COLUMNS),
    "lazy": lambda path: pl.DataFrame(COLUMNS).lazy(),
    "parquet": parquet,
    "dask": lambda path: da.from_array(X, chunks=(17, 3)),
    "sparse dask": lambda path: da.from_array(X, chunks=(17, 3)).map_blocks(sparse.csr_array),
    "labelled": lambda path: xr.DataArray(X, dims=("row", "band")),
    "labelled dask": lambda path: xr.DataArray(X, dims=("row", "band")).chunk(row=13),
}
LABELS = {
    "list": lambda path: Y.tolist(),
    "objects": lambda path: Y.astype(object),
    "zarr": texts,
    "categories": lambda path: pd.Series(Y, np.arange(N)[::-1], dtype="category"),
    "polars": lambda path: pl.Series(Y.tolist(), dtype=pl.Categorical),
    "arrow": lambda path: pa.chunked_array([Y[:9].tolist(), [], Y[9:].tolist()]),
    "dask": lambda path: da.from_array(Y, chunks=11),
    "dask series": lambda path: dd.from_pandas(pd.Series(Y), npartitions=3),
    "dask frame": lambda path: dd.from_pandas(pd.DataFrame({"y": Y}), npartitions=3),
}
WEIGHTS = {
    "array": lambda path: WEIGHT,
    "polars": lambda path: pl.Series(WEIGHT),
    "zarr": lambda path: zarr.create_array(path / "weight", data=WEIGHT, chunks=11),
    "dask": lambda path: da.from_array(WEIGHT, chunks=11),
}
IN_BLOCKS = {
    "zarr",
    "dask",
    "sparse dask",
    "labelled",
    "labelled dask",
}  # of rows, which dask reads


# Every fifth case has all kinds of rows and of labels, as neither has a multiple of five.
@cases("rows, labels", list(product(ROWS, LABELS)), few=range(0, len(ROWS) * len(LABELS), 5))
def test_rows_and_labels_of_every_kind(tmp_path: Path, rows: str, labels: str) -> None:
    kinds = [*WEIGHTS]
    weights = kinds[([*ROWS].index(rows) + [*LABELS].index(labels)) % len(kinds)]
    given = ROWS[rows](tmp_path), LABELS[labels](tmp_path), WEIGHTS[weights](tmp_path)
    if labels in ("dask series", "dask frame") and rows in IN_BLOCKS:
        with pytest.raises(InvalidDataError, match=r"without their sizes: call y.*lengths=True"):
            accumulate(*given[:2])
        return
    dense = X > 90 if rows == "booleans" else X
    expected = naive.moments(dense, Y, WEIGHT)
    moments = accumulate(*given[:2], covariance_type="diag", sample_weight=given[2])
    assert moments.classes.tolist() == expected.classes.tolist()
    np.testing.assert_array_equal(moments.class_count, expected.count)
    np.testing.assert_allclose(moments.means, expected.means, rtol=1e-13)
    variances = naive.covariance(dense, Y, "diag", WEIGHT)
    np.testing.assert_allclose(moments.covariance(), variances, rtol=1e-11)
    fitted = GaussianNB().fit(*given)
    np.testing.assert_allclose(fitted.theta_, expected.means, rtol=1e-13)
    predicted = GaussianNB().fit(dense, Y, WEIGHT).predict(dense)
    right = np.average(predicted == Y, weights=WEIGHT)
    assert fitted.score(*given) == pytest.approx(right, rel=1e-13)


TARGETS = {
    "objects": lambda path: WEIGHT.astype(object),
    "parquet": lambda path: open_store(path / "targets.parquet", label="t", features=["a"])[1],
    "dask series": lambda path: dd.from_pandas(pd.Series(WEIGHT), npartitions=3),
    "dask columns": lambda path: da.from_array(np.c_[WEIGHT, X[:, 0]], chunks=(9, 1)),
    **{name: WEIGHTS[name] for name in ("array", "polars", "zarr", "dask")},
}


@pytest.mark.parametrize("targets", TARGETS)
@pytest.mark.parametrize("rows", ["array", "lazy", "parquet", "zarr", "dask"])
def test_rows_and_targets_of_every_kind(tmp_path: Path, rows: str, targets: str) -> None:
    pq.write_table(pa.table({"a": X[:, 0], "t": WEIGHT}), tmp_path / "targets.parquet")
    given = ROWS[rows](tmp_path), TARGETS[targets](tmp_path)
    if targets == "dask series" and rows in IN_BLOCKS:
        with pytest.raises(InvalidDataError, match=r"without their sizes: call y.*lengths"):
            Ridge().fit(*given)
        return
    expected = np.c_[WEIGHT, X[:, 0]] if targets == "dask columns" else WEIGHT
    np.testing.assert_allclose(
        Ridge().fit(*given).coef_, Ridge().fit(X, expected).coef_, atol=1e-12
    )


def test_a_column_of_a_frame_of_dask() -> None:
    """Labels and weights may be frames of one column, as those of pandas are."""
    given = pd.DataFrame(COLUMNS).assign(y=Y, w=WEIGHT)
    frame = dd.from_pandas(given, npartitions=3)
    rows = list(COLUMNS)
    found = accumulate(frame[rows], frame[["y"]], sample_weight=frame[["w"]])
    assert found.to_bytes() == accumulate(frame[rows], frame.y, sample_weight=frame.w).to_bytes()
    with pytest.raises(InvalidDataError, match="y"):
        accumulate(frame[rows], frame[["y", "w"]])


def test_delayed_batches_of_sparse_rows() -> None:
    parts = [slice(start, start + 13) for start in range(0, N, 13)]
    batches = [(sparse.csr_array(X[part]), Y[part], WEIGHT[part]) for part in parts]
    found = accumulate([*map(dask.delayed, batches)], covariance_type="diag")
    expected = accumulate(batches, covariance_type="diag")
    np.testing.assert_array_equal(found.class_count, expected.class_count)
    np.testing.assert_allclose(found.means, expected.means, rtol=1e-13)
