"""Stores that are damaged: errors name array, chunk and rows, and nothing is half done."""

import re
import shutil

import numpy as np
import pytest
import zarr

from streamgda import ClassMoments, GaussianNB, accumulate, open_store, patience, slabs
from streamgda.errors import InvalidDataError, InvalidParameterError, ReadError, SourceError

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
def small_slabs_and_no_pauses(monkeypatch):
    monkeypatch.setattr(slabs, "_SLAB_BYTES", 300 * D * 8)
    monkeypatch.setattr(patience, "PAUSES", (0, 0))


def write(path, way="zstd", fill_value=0):
    random = np.random.default_rng(0)
    group = zarr.create_group(path)
    X = random.normal(size=(N_ROWS, D))
    options = {"shape": X.shape, "dtype": X.dtype, "fill_value": fill_value, **WAYS[way]}
    group.create_array("X", **options)[...] = X
    y = group.create_array("y", shape=(N_ROWS,), chunks=(200,), dtype=np.int64)
    y[...] = random.integers(0, 3, N_ROWS)
    return X, y[...]


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


def truncate(path):
    path.write_bytes(path.read_bytes()[:-7])


def empty(path):
    path.write_bytes(b"")


def replace(path):
    path.write_bytes(b"these are no numbers")


@pytest.mark.parametrize(
    ("way", "damage"),
    [(w, d) for w in WAYS for d in (truncate, empty, replace) if (w, d) != ("shards", empty)],
)
def test_the_chunk_is_named(tmp_path, way, damage):
    write(tmp_path / "rows", way)
    column = 1 if way == "split features" else 0
    damage(tmp_path / "rows" / "X" / "c" / "7" / str(column))
    X, y = open_store(tmp_path / "rows")
    chunk, last = ((14, 0), 749) if way == "shards" else ((7, column), 799)
    message = rf"X \(file://.*rows/X\): chunk {re.escape(str(chunk))}, rows 700 to {last}, cannot"
    for work in (accumulate, GaussianNB().fit):
        with pytest.raises(ReadError, match=message):
            work(X, y)
    with pytest.raises(ReadError, match=message):
        GaussianNB().fit(X[:700], y[:700]).predict(X)
    assert issubclass(ReadError, SourceError)
    assert issubclass(ReadError, OSError)


def test_an_empty_shard_is_a_missing_one_to_zarr(tmp_path):
    write(tmp_path / "rows", "shards")
    empty(tmp_path / "rows" / "X" / "c" / "7" / "0")
    assert accumulate(*open_store(tmp_path / "rows")).class_count.sum() == N_ROWS
    with pytest.raises(ReadError, match=r"rows 700 to 749, .*X/c/7/0 is missing"):
        accumulate(*open_store(tmp_path / "rows", missing="error"))


def test_checksums_find_a_wrong_bit(tmp_path):
    write(tmp_path / "rows", "checksums")
    flip(tmp_path / "rows" / "X" / "c" / "3" / "0")
    with pytest.raises(ReadError, match=r"chunk \(3, 0\), rows 300 to 399, .*[Cc]hecksum"):
        accumulate(*open_store(tmp_path / "rows"))


def test_labels_and_weights_too(tmp_path):
    X, _ = write(tmp_path / "rows")
    truncate(tmp_path / "rows" / "y" / "c" / "2")
    rows, y = open_store(tmp_path / "rows")
    with pytest.raises(ReadError, match=r"^y \(.*rows/y\): chunk \(2,\), rows 400 to 599, cannot"):
        accumulate(rows, y)
    with pytest.raises(ReadError, match=r"^sample_weight \(.*chunk \(2,\), rows 400 to 599"):
        accumulate(X, np.arange(N_ROWS) % 2, sample_weight=y)


# --- chunks that are not there ----------------------------------------------------------------


@pytest.mark.parametrize("way", ["zstd", "shards", "split features"])
def test_missing_chunks(tmp_path, way):
    X, y = write(tmp_path / "rows", way, fill_value=0.5)
    (tmp_path / "rows" / "X" / "c" / "4" / "0").unlink()
    filled = X.copy()
    filled[400:500, : 2 if way == "split features" else D] = 0.5
    for options in ({}, {"missing": "fill"}):
        found = accumulate(*open_store(tmp_path / "rows", **options))
        np.testing.assert_allclose(found.means, ClassMoments().update(filled, y).means, rtol=1e-12)
    chunk = r"\(8, 0\), rows 400 to 449" if way == "shards" else r"\(4, 0\), rows 400 to 499"
    with pytest.raises(ReadError, match=rf"chunk {chunk}, cannot be read: .*X/c/4/0 is missing"):
        accumulate(*open_store(tmp_path / "rows", missing="error"))


def test_nothing_missing(tmp_path):
    X, y = write(tmp_path / "rows")
    found = accumulate(*open_store(tmp_path / "rows", missing="error"))
    assert found.class_count.tolist() == np.bincount(y).tolist()
    shutil.make_archive(tmp_path / "packed", "zip", tmp_path / "rows")
    again = open_store(tmp_path / "packed.zip", missing="error")
    np.testing.assert_array_equal(again[0][...], X)
    with pytest.raises(InvalidParameterError, match="missing='ignore'"):
        open_store(tmp_path / "rows", missing="ignore")


# --- what may pass ----------------------------------------------------------------------------


class Flaky:
    """Rows whose reading fails a number of times in a chunk."""

    shape, dtype, chunks = (N_ROWS, D), np.dtype(np.float64), (100, D)

    def __init__(self, error, times):
        self.error, self.times = error, times
        self.asked = 0

    def __getitem__(self, rows):
        if rows.start <= 500 < rows.stop:
            self.asked += 1
            if self.asked <= self.times:
                raise self.error
        return np.full((min(rows.stop, N_ROWS) - rows.start, D), 2.0)


def test_what_may_pass_is_tried_again():
    y = np.arange(N_ROWS) % 2
    for error in (OSError("reset"), TimeoutError("slow"), ConnectionError("lost")):
        X = Flaky(error, 2)
        assert accumulate(X, y).class_count.tolist() == [500, 500]
        assert X.asked == 3
        with pytest.raises(ReadError, match=r"X \(Flaky\): chunk \(5, 0\), rows 500 to 599, .*"):
            accumulate(Flaky(error, 10), y)


@pytest.mark.parametrize("error", [ValueError("checksum"), PermissionError("no"), KeyError("c/0")])
def test_what_will_not_pass_is_not(error):
    X = Flaky(error, 10)
    with pytest.raises(ReadError, match=rf"cannot be read: {type(error).__name__}: "):
        accumulate(X, np.arange(N_ROWS) % 2)
    assert X.asked == 2  # and to find the chunk


def test_an_error_that_does_not_come_back():
    with pytest.raises(ReadError, match=r"rows 300 to 599 cannot be read: ValueError: once"):
        accumulate(Flaky(ValueError("once"), 1), np.arange(N_ROWS) % 2)


def test_too_little_memory_is_not_the_store_s_fault():
    with pytest.raises(MemoryError, match="too much"):
        accumulate(Flaky(MemoryError("too much"), 10), np.arange(N_ROWS) % 2)


# --- rows are counted from the start of the store ----------------------------------------------


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite(tmp_path, value):
    write(tmp_path / "rows")
    zarr.open_array(tmp_path / "rows" / "X")[737, 2] = value
    X, y = open_store(tmp_path / "rows")
    for work in (accumulate, GaussianNB().fit):
        with pytest.raises(InvalidDataError, match="row 737, column 2 is"):
            work(X, y)
    with pytest.raises(InvalidDataError, match="row 737, column 2 is"):
        GaussianNB().fit(X[:700], y[:700]).predict(X)


@pytest.mark.parametrize(
    ("bad", "match"),
    [
        (np.where(np.arange(N_ROWS) == 737, np.nan, 1.0), r"y\[737\] is nan"),
        (np.where(np.arange(N_ROWS) == 737, 0.5, 1.0), r"y\[737\] is 0\.5"),
        (np.array(["NaT" if i == 737 else "2020" for i in range(N_ROWS)], "M8[D]"), r"y\[737\]"),
    ],
)
def test_labels_that_are_none(bad, match):
    X = np.random.default_rng(0).normal(size=(N_ROWS, D))
    with pytest.raises(InvalidDataError, match=match):
        accumulate(X, bad)
    with pytest.raises(InvalidDataError, match=match):
        accumulate(X, zarr.create_array({}, data=bad, chunks=(100,)))


def test_weights_that_are_none():
    X = np.random.default_rng(0).normal(size=(N_ROWS, D))
    weights = np.ones(N_ROWS)
    weights[737] = -1
    with pytest.raises(InvalidDataError, match=r"sample_weight\[737\] is -1"):
        accumulate(X, np.arange(N_ROWS) % 2, sample_weight=weights)


@pytest.mark.parametrize("n_labels", [N_ROWS - 1, N_ROWS + 1])
def test_labels_that_are_too_few_or_too_many(tmp_path, n_labels):
    write(tmp_path / "rows")
    X, _ = open_store(tmp_path / "rows")
    with pytest.raises(InvalidDataError, match=f"X has {N_ROWS} rows but there are {n_labels}"):
        accumulate(X, zarr.create_array({}, data=np.zeros(n_labels), chunks=(100,)))
