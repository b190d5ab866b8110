"""Arrays in stores: whole chunks, damaged ones, bad rows in them; HDF5."""

import re
import shutil

import dask.array as da
import h5py
import numpy as np
import pytest
import zarr
from samples import blobs

from streamgda import ClassMoments, GaussianNB, accumulate, open_store
from streamgda.errors import (
    InvalidDataError,
    MemoryBudgetError,
    ReadError,
    SourceError,
    SourceNotFoundError,
)

N_ROWS, D = 1000, 6
WAYS = {
    "checksums": {"chunks": (100, D), "compressors": zarr.codecs.Crc32cCodec()},
    "zstd": {"chunks": (100, D)},
    "blosc": {"chunks": (100, D), "compressors": zarr.codecs.BloscCodec()},
    "gzip": {"chunks": (100, D), "compressors": zarr.codecs.GzipCodec()},
    "split features": {"chunks": (100, 2)},
    "shards": {"chunks": (50, D), "shards": (100, D)},
}


@pytest.fixture(autouse=True)
def small_slabs(slabs_of):
    slabs_of(300 * D * 8)


def write(path, way="zstd", fill_value=0):
    random = np.random.default_rng(0)
    group = zarr.create_group(path)
    X = random.normal(size=(N_ROWS, D))
    options = {"shape": X.shape, "dtype": X.dtype, "fill_value": fill_value, **WAYS[way]}
    group.create_array("X", **options)[...] = X
    y = group.create_array("y", shape=(N_ROWS,), chunks=(200,), dtype=np.int64)
    y[...] = random.integers(0, 3, N_ROWS)
    return X, y[...]


def truncate(path):
    path.write_bytes(path.read_bytes()[:-7])


def replace(path):
    path.write_bytes(b"these are no numbers")


@pytest.mark.parametrize(("way", "damage"), [(w, d) for w in WAYS for d in (truncate, replace)])
def test_the_chunk_is_named(tmp_path, way, damage):
    write(tmp_path / "rows", way)
    column = 1 if way == "split features" else 0
    damage(tmp_path / "rows" / "X" / "c" / "7" / str(column))
    X, y = open_store(tmp_path / "rows")
    chunk, last = ((14, 0), 749) if way == "shards" else ((7, column), 799)
    message = rf"X \(file://.*rows/X\): chunk {re.escape(str(chunk))}, rows 700 to {last}, cannot"
    model = GaussianNB().fit(X[:700], y[:700])
    for work in (lambda: accumulate(X, y), lambda: model.fit(X, y), lambda: model.predict(X)):
        with pytest.raises(ReadError, match=message):
            work()


@pytest.mark.parametrize("way", ["zstd", "shards", "split features"])
def test_missing_chunks_hold_the_fill_value(tmp_path, way):
    X, y = write(tmp_path / "rows", way, fill_value=0.5)
    (tmp_path / "rows" / "X" / "c" / "4" / "0").unlink()
    filled = X.copy()
    filled[400:500, : 2 if way == "split features" else D] = 0.5
    found = accumulate(*open_store(tmp_path / "rows"))
    np.testing.assert_allclose(found.means, ClassMoments().update(filled, y).means, rtol=1e-12)
    shutil.make_archive(tmp_path / "packed", "zip", tmp_path / "rows")
    np.testing.assert_array_equal(open_store(tmp_path / "packed.zip")[0][...], filled)


class Broken:
    """Rows of which one chunk cannot be read a number of times."""

    shape, dtype, chunks = (N_ROWS, D), np.dtype(np.float64), (100, D)

    def __init__(self, error, times=100):
        self.error, self.times = error, times

    def __getitem__(self, index):
        rows = index[0] if isinstance(index, tuple) else index
        if rows.start <= 500 < rows.stop and self.times:
            self.times -= 1
            raise self.error
        return np.full((min(rows.stop, N_ROWS) - rows.start, D), 2.0)


@pytest.mark.parametrize("error", [ValueError("checksum"), TimeoutError("slow"), KeyError("c/0")])
def test_errors_of_any_kind_name_the_chunk(error):
    where = rf"^X \(Broken\): chunk \(5, 0\), rows 500 to 599, .*: {type(error).__name__}"
    with pytest.raises(ReadError, match=where):
        accumulate(Broken(error), np.arange(N_ROWS) % 2)
    # An error that has passed when the chunks are tried one by one names the rows.
    with pytest.raises(ReadError, match=r"^X \(Broken\): rows 300 to 599 cannot be read: OSError"):
        accumulate(Broken(OSError("reset"), 1), np.arange(N_ROWS) % 2)
    with pytest.raises(MemoryError, match="too much"):  # The store is not at fault.
        accumulate(Broken(MemoryError("too much")), np.arange(N_ROWS) % 2)


ROW = 737
GOOD = {
    "X": np.random.default_rng(0).normal(size=(N_ROWS, D)),
    "y": np.random.default_rng(1).integers(0, 3, N_ROWS),
    "sample_weight": np.ones(N_ROWS),
}
DATES = np.full(N_ROWS, "2020-01-01", "M8[D]")


def bad(name, value, values=None):
    """Usable arrays but for one row of one of them."""
    values = GOOD[name] if values is None else values
    values = values.astype(np.result_type(values, np.asarray(value)))
    values[ROW] = value
    return name, GOOD | {name: values}


BAD = {
    "NaN": (bad("X", [0, 1, 2, 3, np.nan, 5]), {}, "NaN: row 737, column 4 is nan"),
    "NaN as a label": (bad("y", np.nan), {}, r"y\[737\] is missing"),
    "half a label": (bad("y", 0.5), {}, r"y\[737\] is 0\.5"),
    "no date": (bad("y", np.datetime64("NaT", "D"), DATES), {}, r"y\[737\] is missing"),
    "another label": (bad("y", 9), {"classes": [2, 1, 0]}, r"y\[737\] is 9, which .*\[0, 1, 2\]"),
    "a negative weight": (bad("sample_weight", -1.0), {}, r"sample_weight\[737\] is -1"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_rows_in_stores(tmp_path, name):
    (which, given), options, message = BAD[name]
    chunks = {"X": (100, 2), "y": (200,), "sample_weight": (50,)}
    held = {
        n: zarr.create_array(tmp_path / n, data=values, chunks=chunks[n])
        for n, values in given.items()
    }
    chunk = {"X": r"\(7, 2\)", "y": r"\(3,\)", "sample_weight": r"\(14,\)"}[which]
    where = rf"^{which} \(file://.*{which}\): chunk {chunk}: .*{message}"
    with pytest.raises(InvalidDataError, match=where) as caught:
        accumulate(**held, **options)
    assert (caught.value.array, caught.value.row) == (which, ROW)


@pytest.mark.parametrize("name", ["NaN", "NaN as a label", "a negative weight"])
def test_bad_rows_in_batches_and_in_dask(name, in_this_thread):
    (_, given), options, message = BAD[name]
    parts = [tuple(array[i : i + 100] for array in given.values()) for i in range(0, 1000, 100)]
    own = message.replace("737", "37")
    with pytest.raises(InvalidDataError, match=rf"^batch 7: .*{own}"):
        accumulate(parts, **options)
    lazy = [da.from_array(a, chunks=(100, *a.shape[1:])) for a in given.values()]
    with pytest.raises(InvalidDataError, match=rf"^block 7: .*{message}"):
        accumulate(*lazy[:2], sample_weight=lazy[2], **options)
    for array in lazy:
        array._chunks = ((np.nan,) * 10, *array.chunks[1:])
    with pytest.raises(InvalidDataError, match=rf"^block 7 \(rows counted from its .*{own}"):
        accumulate(*lazy[:2], sample_weight=lazy[2], **options)


def test_open_store(tmp_path):
    X, y = blobs()
    group = zarr.create_group(tmp_path / "store")
    group.create_array("X", data=X)
    group.create_array("labels", data=y)
    group.create_group("deeper")
    rows, labels = open_store(tmp_path / "store", y="labels")
    assert np.array_equal(rows[...], X)
    assert np.array_equal(labels[...], y)
    assert open_store(tmp_path / "store", y=None)[1] is None
    (tmp_path / "text").write_text("hello")
    for place, options, message in (
        ("nowhere", {}, "nowhere does not exist"),
        ("store", {}, "lacks labels: it has no array 'y', but X, labels"),
        ("store", {"X": "rows"}, "lacks rows: it has no array 'rows'"),
        ("store", {"X": "deeper"}, "'deeper' is a group; expected an array of rows"),
        ("store/X", {}, "is a zarr array without labels"),
        ("text", {}, "text is neither zarr nor a table"),
    ):
        with pytest.raises((SourceError, SourceNotFoundError), match=message):
            open_store(tmp_path / place, **options)


def test_an_array_without_chunks_is_read_in_slabs_of_any_size(tmp_path):
    """One that was chunked as a whole could not be read within the budget."""
    n_rows = 40_000
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file.create_dataset("X", data=np.random.default_rng(0).random((n_rows, 100)))  # 32 MB
    with h5py.File(tmp_path / "rows.h5") as file:
        X, y = file["X"], np.arange(n_rows) % 2
        assert X.chunks is None
        found = accumulate(X, y, covariance_type="diag", max_memory="16MB")
        assert found.class_count.tolist() == [n_rows / 2] * 2
        whole = zarr.create_array(tmp_path / "rows", data=X[:], chunks=X.shape)
        with pytest.raises(MemoryBudgetError):
            accumulate(whole, y, covariance_type="diag", max_memory="16MB")
