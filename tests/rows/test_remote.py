"""Remote stores: real servers on the loopback, which are slow or fail."""

import gc
import socket
import subprocess
import sys
import time

import fsspec
import numpy as np
import pyarrow as pa
import pytest
import zarr
from pyarrow import parquet as pq
from samples import assert_same_bits, blobs, state_of
from servers import Server, serving

import streamgda
from streamgda import ClassMoments, GaussianNB, accumulate, open_store
from streamgda.errors import SourceError, SourceNotFoundError, WriteError

obstore = pytest.importorskip("obstore")
s3fs = pytest.importorskip("s3fs")

N_ROWS, D, CHUNK = 1200, 5, 10

# zarr leaves the connections of file systems open.
pytestmark = pytest.mark.filterwarnings("ignore:[Uu]nclosed:ResourceWarning")


@pytest.fixture(autouse=True, scope="module")
def no_connections_left():
    yield
    for kind in ("http", "s3"):
        fsspec.get_filesystem_class(kind).clear_instance_cache()
    for _ in range(2):  # Cancelled requests end meanwhile.
        gc.collect()
        time.sleep(0.1)


@pytest.fixture(scope="module")
def rows():
    return blobs(N_ROWS, D)


def write(store, rows):
    group = zarr.create_group(store)
    for name, array in zip("Xy", rows, strict=True):
        group.create_array(name, data=array, chunks=(CHUNK, *array.shape[1:]))


@pytest.fixture(scope="module")
def running(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("served")
    write(folder / "rows", rows)
    GaussianNB().fit(*rows).save(folder / "nb")
    columns = {f"x{n}": column for n, column in enumerate(rows[0].T)} | {"y": rows[1]}
    pq.write_table(pa.table(columns), folder / "rows.parquet", row_group_size=100)
    with serving(Server(folder)) as server:
        yield server


@pytest.fixture
def server(running):
    running.behave()
    return running


@pytest.fixture(scope="module")
def bucket():
    """The address of an S3 server in a separate process, with a bucket ``rows``."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        late = time.monotonic() + 60
        while time.monotonic() < late and process.poll() is None:
            with socket.socket() as client:
                if not client.connect_ex(("127.0.0.1", port)):
                    break
            time.sleep(0.05)
        s3fs.S3FileSystem(**s3_options(address), skip_instance_cache=True).mkdir("rows")
        yield address
    finally:
        process.terminate()
        process.wait()


def s3_options(address):
    return {"endpoint_url": address, "key": "k", "secret": "s"}


def by_obstore(address):
    options = {"retry_config": {"max_retries": 0}, "client_options": {"allow_http": True}}
    store = obstore.store.from_url(f"{address}/rows", **options)
    return zarr.storage.ObjectStore(store, read_only=True)


@pytest.mark.parametrize("client", ["local", "fsspec", "obstore"])
def test_moments_and_scores_are_those_of_arrays(server, rows, tmp_path, client):
    store = {
        "local": f"{server.folder}/rows",
        "fsspec": f"{server.url}/rows",
        "obstore": by_obstore(server.url),
    }[client]
    X, y = open_store(store)
    expected = accumulate(zarr.open(f"{server.folder}/rows")["X"], rows[1])
    assert_same_bits(state_of(accumulate(X, y))[1], state_of(expected)[1])
    model = GaussianNB().fit(X, y)
    np.testing.assert_array_equal(model.predict(X, out=tmp_path / "out")[:], model.predict(rows[0]))
    asked = {path: n for path, n in server.asked.items() if "/X/c/" in path}
    assert len(asked) == (0 if client == "local" else N_ROWS // CHUNK)
    assert set(asked.values()) <= {3}  # There are three passes.


@pytest.mark.soak
@pytest.mark.parametrize("client", ["fsspec", "obstore"])
def test_s3(bucket, rows, client, command, monkeypatch):
    address, options = f"s3://rows/{client}", s3_options(bucket)
    write(zarr.storage.FsspecStore.from_url(address, storage_options=options), rows)
    if client == "fsspec":
        model = GaussianNB().fit(*open_store(address, storage_options=options))
        model.save("s3://rows/nb.npz", storage_options=options)
        model = streamgda.load("s3://rows/nb.npz", storage_options=options)
        out = zarr.storage.FsspecStore.from_url("s3://rows/out", storage_options=options)
        out = model.predict(rows[0], out=out)
        np.testing.assert_array_equal(out[:], model.predict(rows[0]))
        for name, value in (("ENDPOINT_URL", bucket), ("ACCESS_KEY_ID", "k")):
            monkeypatch.setenv(f"AWS_{name}", value)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
        assert command("fit", address, "--kind", "gnb", "--out", "s3://rows/m.npz").code == 0
        predict = "predict", address, "--model", "s3://rows/m.npz", "--out", "s3://rows/labels"
        assert command(*predict).code == 0
        assert "GaussianNB" in command("info", "s3://rows/m.npz").out
        assert command("info", "s3://rows/labels").out.split()[:2] == ["path", "s3://rows/labels"]
    else:
        own = {"endpoint": bucket, "access_key_id": "k", "secret_access_key": "s"}
        own |= {"region": "us-east-1", "client_options": {"allow_http": True}}
        store = zarr.storage.ObjectStore(obstore.store.from_url(address, **own))
        X, y = open_store(store)
        model = GaussianNB().fit(X, y)
        out = model.predict(X, out=zarr.storage.StorePath(store, "predicted"))
        np.testing.assert_array_equal(out[:], model.predict(rows[0]))
    np.testing.assert_allclose(model.theta_, GaussianNB().fit(*rows).theta_, rtol=1e-12)


@pytest.mark.parametrize("status", [403, 500])
@pytest.mark.parametrize("client", ["fsspec", "obstore"])
def test_the_chunk_that_fails_is_named(server, client, status):
    for failing, message in (
        ("/rows/X/c/73/0", rf"^X \(.*/X\): chunk \(73, 0\), rows 730 to 739, .*: .*{status}"),
        ("/rows/zarr.json", rf"cannot be opened as zarr: .*{status}"),
        ("/rows/y/zarr.json", rf"'y' cannot be opened: .*{status}"),
    ):
        server.behave()
        server.failing, server.status, server.times = failing, status, 10**6
        with pytest.raises(SourceError, match=message):
            accumulate(
                *open_store(f"{server.url}/rows" if client == "fsspec" else by_obstore(server.url))
            )
    with pytest.raises(SourceNotFoundError, match="nothing cannot be opened as zarr"):
        open_store(f"{server.url}/nothing")


@pytest.mark.parametrize(("given", "expected"), [(10, 40), (3, 3)])
def test_many_chunks_are_requested_at_a_time_unless_zarr_is_told_otherwise(
    server, rows, given, expected
):
    X, _ = open_store(f"{server.url}/rows")
    server.together = expected  # Each waits for as many others.
    with zarr.config.set({"async.concurrency": given}):
        accumulate(X, rows[1])
        assert zarr.config.get("async.concurrency") == given
    assert server.most_at_once >= expected
    assert given == 10 or server.most_at_once == expected


def test_models_and_tables_are_read_over_http(server, rows):
    loaded = streamgda.load(f"{server.url}/nb")
    np.testing.assert_array_equal(loaded.predict(rows[0]), GaussianNB().fit(*rows).predict(rows[0]))
    X, y = open_store(f"{server.url}/rows.parquet", label="y")
    np.testing.assert_allclose(accumulate(X, y).means, ClassMoments().update(*rows).means)


class ReadOnly(zarr.storage.ObjectStore):
    """A store that cannot be written."""

    async def set(self, key, value):
        if "out/c/" in key:
            raise PermissionError("The provided token has expired.")
        await super().set(key, value)


def test_a_store_that_cannot_be_written_is_named(rows):
    model = GaussianNB().fit(*rows)
    store = ReadOnly(obstore.store.MemoryStore())
    array = zarr.create_array(store, name="out", shape=(N_ROWS,), chunks=(100,), dtype="i8")
    for out in (array, zarr.storage.StorePath(store, "new_out")):
        with pytest.raises(WriteError, match=r"MemoryStore.* cannot be written: .*token has exp"):
            model.predict(rows[0], out=out)
