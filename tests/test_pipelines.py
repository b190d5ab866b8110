"""Local zarr arrays that zarrs reads: the same bits, chunks read once, and none missing unseen."""

import os
import pickle

import numcodecs
import numpy as np
import pytest
import zarr
from zarr.codecs import BloscCodec, BytesCodec, GzipCodec, TransposeCodec

from streamgda import accumulate, open_store
from streamgda.errors import ReadError
from streamgda.rows import as_source
from streamgda.storage import pipelines
from streamgda.storage.pipelines import Reader

pytest.importorskip("zarrs")

N_ROWS = 100
INDICES = (slice(None), slice(9, 27), (slice(3, 50), slice(1, 2)), 5)
DELTA = numcodecs.Delta("<i8")
SCALED = numcodecs.FixedScaleOffset(1000.3, 3, "<f8", "<i4")


def array(path, dtype="f4", shape=(N_ROWS, 7), chunks=(9, 3), **options):
    found = zarr.create_array(path, shape=shape, chunks=chunks, dtype=dtype, **options)
    values = np.random.default_rng(0).integers(0, 100, shape).astype(found.dtype)
    values[50:70] = np.zeros((), found.dtype)
    found[:] = values
    return zarr.open_array(found.store_path, mode="r")


def read_by_zarrs(found):
    """Compare all that is read, and return whether zarrs has read it."""
    reader = Reader(found)
    for index in INDICES:
        read, expected = reader[index], found[index]
        np.testing.assert_array_equal(read, expected, strict=True)
    return reader._by_zarrs is not None


@pytest.mark.parametrize(
    ("dtype", "options", "by_zarrs"),
    [
        ("f4", {}, True),
        ("f8", {"shards": (27, 6)}, True),
        ("u1", {"compressors": BloscCodec()}, True),
        ("f2", {"compressors": GzipCodec()}, True),
        ("?", {"compressors": None}, True),
        ("i8", {"filters": TransposeCodec(order=(1, 0))}, True),
        ("f4", {"serializer": BytesCodec(endian="big")}, True),
        ("f8", {"fill_value": np.nan}, True),
        ("i2", {"zarr_format": 2}, True),
        ("f4", {"zarr_format": 2, "fill_value": None}, True),
        (">f4", {"zarr_format": 2}, False),
        ("i8", {"zarr_format": 2, "filters": [DELTA]}, False),
        ("f8", {"zarr_format": 2, "filters": [SCALED]}, False),  # zarrs rounds otherwise
        ("f4", {"zarr_format": 2, "order": "F"}, False),
        ("U3", {"zarr_format": 2}, False),
    ],
)
def test_zarrs_reads_the_same_bits(tmp_path, dtype, options, by_zarrs):
    assert read_by_zarrs(array(tmp_path / "a", dtype, **options)) == by_zarrs


def test_other_stores_are_read_by_zarr(tmp_path):
    class Other(zarr.storage.LocalStore):
        pass

    array(tmp_path / "a")
    for store in ({}, Other(tmp_path / "other"), zarr.storage.ZipStore(tmp_path / "z", mode="w")):
        assert not read_by_zarrs(array(store))
    held = np.arange(12)
    assert Reader(held)[2:4].base is held


def test_the_configuration_of_zarr_is_left_alone(tmp_path):
    found = array(tmp_path / "a")
    before = zarr.config.get("codec_pipeline")
    pipeline = type(found.async_array.codec_pipeline)
    assert read_by_zarrs(found)
    assert zarr.config.get("codec_pipeline") == before
    assert type(found.async_array.codec_pipeline) is pipeline

    with zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"}):
        chosen = zarr.open_array(tmp_path / "a", mode="r")
    assert Reader(chosen)._by_zarrs is None
    np.testing.assert_array_equal(Reader(chosen)[:], found[:])


def test_after_a_fork_zarr_reads(tmp_path, monkeypatch):
    """The threads of zarrs are lost, and waiting for them would take for ever."""
    reader = Reader(array(tmp_path / "a"))
    monkeypatch.setattr(pipelines, "_PROCESS", os.getpid() + 1)
    monkeypatch.setattr(Reader, "_by_zarrs", [])  # an index out of its range
    np.testing.assert_array_equal(reader[3:5], pickle.loads(pickle.dumps(reader))[3:5])


@pytest.fixture
def requests(monkeypatch):
    """Keys of the chunks that zarrs was asked for."""
    from streamgda.storage.zarrs_pipeline import Pipeline

    keys = []
    read = Pipeline.read

    async def noted(self, batch_info, *arguments, **options):
        keys.extend(getter.path for getter, *_ in batch_info)
        await read(self, batch_info, *arguments, **options)

    monkeypatch.setattr(Pipeline, "read", noted)
    return keys


@pytest.mark.usefixtures("small_slabs")
@pytest.mark.parametrize("shards", [None, (20, 6)])
@pytest.mark.parametrize("missing", ["fill", "error"])
def test_a_pass_reads_each_chunk_once(tmp_path, requests, monkeypatch, shards, missing):
    group = zarr.create_group(tmp_path / "rows")
    X = group.create_array("X", shape=(N_ROWS, 6), chunks=(10, 6), shards=shards, dtype="f4")
    X[:] = np.random.default_rng(0).normal(size=X.shape)
    group.create_array("y", data=np.arange(N_ROWS) % 3, chunks=(50,))
    rows, labels = open_store(tmp_path / "rows", missing=missing)
    moments = accumulate(rows, labels)
    n_files = 5 if shards else 10
    of_rows = [key for key in requests if key.startswith("X/")]
    assert sorted(of_rows) == sorted(f"X/c/{i}/0" for i in range(n_files))
    monkeypatch.setattr(Reader, "_by_zarrs", None)
    again = accumulate(rows, labels)  # by zarr
    np.testing.assert_array_equal(moments.covariance(), again.covariance(), strict=True)


@pytest.mark.parametrize("damage", ["removed", "emptied", "cut"])
def test_missing_and_damaged_chunks(tmp_path, requests, damage):
    found = array(tmp_path / "rows", compressors=None)
    chunk = tmp_path / "rows" / "c" / "3" / "1"
    if damage == "removed":
        chunk.unlink()
    else:
        chunk.write_bytes(chunk.read_bytes()[: 10 * (damage == "cut")])
    rows, _ = open_store(tmp_path / "rows", y=None, missing="error")
    with pytest.raises(ReadError, match=r"chunk \(3, 1\), rows 27 to 35, cannot be read: "):
        as_source(rows).read(20, 40)
    assert "c/3/1" in requests
    if damage == "removed":
        assert not Reader(found)[27:36, 3:6].any()


def test_zarrs_reads_cubes(tmp_path, requests):
    cube = array(tmp_path / "cube", "u1", shape=(4, 20, 30), chunks=(4, 5, 30))
    rows, _ = open_store(tmp_path / "cube", y=None, features="0")
    np.testing.assert_array_equal(rows.read(0, 600), cube[:].reshape(4, 600).T)
    assert requests == [f"c/0/{i}/0" for i in range(4)]
