"""Remote stores: real servers on the loopback, slow and failing ones too."""

import contextlib
import contextvars
import gc
import os
import pickle
import shutil
import socket
import subprocess
import sys
import threading
import time
from itertools import product
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pytest
import zarr
from grids import cases, in_turn
from pyarrow import feather
from pyarrow import parquet as pq
from samples import assert_same_bits, blobs
from servers import Proxy, Server, serving

import streamgda
from streamgda import ClassMoments, GaussianNB, accumulate, open_store
from streamgda.cli import main
from streamgda.datasets import convert
from streamgda.engine import plan
from streamgda.errors import (
    FormatError,
    ReadError,
    SourceError,
    SourceNotFoundError,
    StreamGDAError,
    WriteError,
)
from streamgda.rows import Rows, remote_files
from streamgda.runtime import retry
from streamgda.storage.remote import METADATA
from streamgda.storage.saved import state_of

obstore = pytest.importorskip("obstore")
s3fs = pytest.importorskip("s3fs")

N_ROWS, D, CHUNK = 600, 5, 100


# zarr leaves the connections of file systems open.
pytestmark = pytest.mark.filterwarnings("ignore:[Uu]nclosed:ResourceWarning")


@pytest.fixture(autouse=True)
def no_pauses_and_no_connections_kept(monkeypatch):
    monkeypatch.setattr(retry, "FIRST", 0.001)
    monkeypatch.setattr(retry, "SECONDS", 0.006)  # three retries
    yield
    for kind in ("http", "s3"):
        fsspec.get_filesystem_class(kind).clear_instance_cache()


@pytest.fixture(autouse=True, scope="module")
def no_connections_left():
    yield
    for _ in range(2):  # requests that were cancelled end meanwhile
        gc.collect()  # which takes seconds
        time.sleep(0.1)


@pytest.fixture(scope="module")
def rows():
    return blobs(N_ROWS, D)


@pytest.fixture(scope="module")
def expected(rows):
    return ClassMoments().update(*rows)


def write(store, rows):
    group = zarr.create_group(store)
    for name, array in zip("Xy", rows, strict=True):
        group.create_array(name, data=array, chunks=(CHUNK, *array.shape[1:]))


# --- HTTP -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def running(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("served")
    write(folder / "rows", rows)
    GaussianNB().fit(*rows).save(folder / "nb")
    with serving(Server(folder)) as server:
        yield server


@pytest.fixture
def server(running):
    running.behave()
    return running


def same(found, expected):
    np.testing.assert_array_equal(found.class_count, expected.class_count)
    np.testing.assert_allclose(found.means, expected.means, rtol=1e-12)
    np.testing.assert_allclose(found.covariance(), expected.covariance(), rtol=1e-9, atol=1e-12)


def test_http(server, rows, expected):
    same(accumulate(*open_store(f"{server.url}/rows")), expected)
    same(accumulate(*open_store(f"{server.url}/rows", missing="fill")), expected)
    X, _ = open_store(f"{server.url}/rows/X", y=None)
    np.testing.assert_array_equal(GaussianNB().fit(*rows).predict(X).shape, (N_ROWS,))


def test_models_over_http(server, rows):
    loaded = streamgda.load(f"{server.url}/nb")
    np.testing.assert_array_equal(loaded.predict(rows[0]), GaussianNB().fit(*rows).predict(rows[0]))
    with pytest.raises(FormatError, match="is not a zarr group that can be read"):
        streamgda.load(f"{server.url}/nothing")
    with pytest.raises(FormatError, match="not one that streamgda saved"):
        streamgda.load(f"{server.url}/rows")


def test_missing_arrays_and_buckets(server):
    with pytest.raises(SourceNotFoundError, match="nothing holds no zarr group or array"):
        open_store(f"{server.url}/nothing")
    with pytest.raises(SourceError, match="lacks labels: it has no array 'z'"):
        open_store(f"{server.url}/rows", y="z")


@pytest.mark.parametrize("failing", ["/rows/zarr.json", "/rows/X/zarr.json", "/rows/X/c/3/0"])
@pytest.mark.parametrize("status", [500, 503, 429])
def test_failures_that_pass(server, expected, failing, status):
    server.failing, server.status, server.times = failing, status, 2
    same(accumulate(*open_store(f"{server.url}/rows")), expected)
    assert server.asked[failing] >= 3


def test_failures_that_stay(server):
    server.failing, server.times = "/rows/X/c/3/0", 10**6
    with pytest.raises(
        ReadError, match=r"^X \(.*/rows.*/X\): chunk \(3, 0\), rows 300 to 399, .*500"
    ):
        accumulate(*open_store(f"{server.url}/rows"))
    assert server.asked["/rows/X/c/3/0"] == 4
    server.failing = "/rows/zarr.json"
    with pytest.raises(SourceError, match=r"rows cannot be opened as zarr: .*500"):
        open_store(f"{server.url}/rows")
    server.failing = "/rows/y/zarr.json"
    with pytest.raises(SourceError, match=r"'y' cannot be opened: .*500"):
        open_store(f"{server.url}/rows")


def test_models_behind_failures(server, rows):
    server.failing, server.times = "/nb/moments/mean/c/0/0", 2
    assert streamgda.load(f"{server.url}/nb").classes_.size == 3
    for failing in ("/nb/moments/mean/c/0/0", "/nb/zarr.json"):
        server.behave()
        server.failing, server.times = failing, 10**6
        with pytest.raises(ReadError, match=r"cannot be read: .*500"):
            streamgda.load(f"{server.url}/nb")


def impatient(seconds):
    """A file system with short timeouts."""
    import aiohttp

    return {"client_kwargs": {"timeout": aiohttp.ClientTimeout(total=seconds)}}


@pytest.mark.slow
def test_slow_responses(server, expected, monkeypatch):
    server.failing, server.status, server.times, server.seconds = "/rows/X/c/2/0", 0, 1, 0.2
    same(accumulate(*open_store(f"{server.url}/rows")), expected)  # waits
    assert server.asked["/rows/X/c/2/0"] == 1
    server.asked.clear()
    server.seconds = 300.0
    options = impatient(5.0)  # a busy machine answers the other requests in this time
    same(accumulate(*open_store(f"{server.url}/rows", storage_options=options)), expected)
    assert server.asked["/rows/X/c/2/0"] >= 2
    server.asked.clear()
    server.times = 10**6
    monkeypatch.setattr(retry, "SECONDS", 0)
    with pytest.raises(ReadError, match=r"chunk \(2, 0\), rows 200 to 299, .*Timeout"):
        accumulate(*open_store(f"{server.url}/rows", storage_options=options))
    server.go_on.set()


def test_obstore(server, expected):
    options = {"retry_config": {"max_retries": 0}, "client_options": {"allow_http": True}}
    store = zarr.storage.ObjectStore(
        obstore.store.HTTPStore.from_url(f"{server.url}/rows", **options), read_only=True
    )
    same(accumulate(*open_store(store)), expected)
    server.failing, server.times = "/rows/X/c/1/0", 1
    same(accumulate(*open_store(store)), expected)
    server.asked.clear()
    server.times = 10**6
    with pytest.raises(ReadError, match=r"chunk \(1, 0\), rows 100 to 199, cannot be read"):
        accumulate(*open_store(store))


# --- many requests ----------------------------------------------------------------------------


def by_s3fs(address, path):
    options = {"key": "k", "secret": "s", "endpoint_url": address, "asynchronous": True}
    files = s3fs.S3FileSystem(**options, skip_instance_cache=True)
    return zarr.storage.FsspecStore(files, path=path, read_only=True)


def by_obstore(address, path):
    options = {"retry_config": {"max_retries": 0}, "client_options": {"allow_http": True}}
    return obstore.store.HTTPStore.from_url(f"{address}/{path}", **options)


CLIENTS = {"fsspec": lambda address, path: f"{address}/{path}", "s3fs": by_s3fs}
CLIENTS["obstore"] = by_obstore
by_s3 = pytest.param("s3fs", marks=pytest.mark.slow)


@pytest.fixture(scope="module")
def many(running):
    """Rows in 120 chunks on the server."""
    X, y = blobs(1200)
    zarr.create_array(f"{running.folder}/many", data=X, chunks=(10, X.shape[1]))
    return X, y


@cases("client, way", list(product(CLIENTS, ["reset", "cut", 503])), few=[0, 2, 7])
def test_a_pass_ends_where_some_requests_fail(server, many, monkeypatch, client, way):
    monkeypatch.setattr(retry, "SECONDS", 10.0)  # on a busy machine, a request may fail repeatedly
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setattr(s3fs.S3FileSystem, "retries", 1)
    _, y = many
    with serving(Proxy(server.url.removeprefix("http://"), 0.0, 1, only="/c/")) as proxy:
        proxy.ways = [way]
        address = f"http://127.0.0.1:{proxy.server_port}"
        rows, _ = open_store(CLIENTS[client](address, "many"), y=None)
        expected, alone = accumulate(rows, y), proxy.asked
        assert alone <= 120 * (2 if client == "s3fs" else 1)
        proxy.share = 1 / 20
        found = accumulate(rows, y)
        assert proxy.failures
        assert proxy.asked - 2 * alone <= proxy.failures * (2 if client == "s3fs" else 1)
    assert_same_bits(state_of(found)[1], state_of(expected)[1])


@pytest.mark.parametrize("client", ["fsspec", "obstore", by_s3])
def test_what_no_waiting_mends_is_not_retried(server, many, client):
    shutil.copytree(f"{server.folder}/many", f"{server.folder}/{client}")
    server.failing, server.status, server.times = f"/{client}/c/", 403, 10**6
    with pytest.raises(ReadError, match=r"chunk \(\d+, 0\), rows \d+ to \d+, cannot be"):
        accumulate(open_store(CLIENTS[client](server.url, client), y=None)[0], many[1])
    asked = [n for path, n in server.asked.items() if path.startswith(f"/{client}/c")]
    assert max(asked) == 1


@pytest.mark.parametrize(("given", "expected"), [(10, 40), (3, 3)])
def test_many_requests_are_made_at_once_unless_zarr_is_told_otherwise(
    server, many, given, expected
):
    rows, _ = open_store(f"{server.url}/many", y=None)
    server.together = expected  # each waits for as many others
    with zarr.config.set({"async.concurrency": given}):
        accumulate(rows, many[1])
    assert server.most_at_once >= expected
    assert given == 10 or server.most_at_once == expected
    assert max(server.asked.values()) == 1


@pytest.mark.parametrize("layout", ["plain", "v2", "shards", "columns", "cube"])
def test_each_chunk_is_requested_once(server, many, monkeypatch, layout):
    X, y = many
    monkeypatch.setattr(plan, "_SLAB_BYTES", 100 * X[0].nbytes)  # those of a shard
    options = {
        "plain": {"chunks": (70, 4)},
        "v2": {"chunks": (70, 4), "zarr_format": 2},
        "shards": {"chunks": (10, 4), "shards": (100, 4)},
        "columns": {"chunks": (50, 3)},
        "cube": {"chunks": (100, 4)},
    }[layout]
    zarr.create_array(f"{server.folder}/{layout}", data=X, overwrite=True, **options)
    features = "1" if layout == "cube" else None
    rows, _ = open_store(f"{server.url}/{layout}", y=None, features=features)
    found = accumulate(rows, y)
    same(found, ClassMoments().update(X, y))
    chunks = {path: n for path, n in server.asked.items() if not path.endswith(METADATA)}
    assert set(chunks.values()) == {1}


class Refusing(zarr.storage.ObjectStore):
    """A store that cannot be written at first, or never."""

    errors: list[Exception] = []  # noqa: RUF012

    async def set(self, key, value):
        if self.errors:
            raise self.errors.pop()
        await super().set(key, value)


@pytest.mark.parametrize("name", ["save", "predict", "array"])
def test_writing_is_retried_unless_it_is_refused(rows, name):
    model = GaussianNB().fit(*rows)
    store = Refusing(obstore.store.MemoryStore())
    array = zarr.create_array(store, name="out", shape=(N_ROWS,), chunks=(100,), dtype="i8")
    write = {
        "save": lambda: model.save(zarr.storage.StorePath(store, "model")),
        "predict": lambda: model.predict(rows[0], out=zarr.storage.StorePath(store, "new")),
        "array": lambda: model.predict(rows[0], out=array),
    }[name]
    refused = PermissionError("The provided token has expired.")
    store.errors[:] = [refused] * 100
    with pytest.raises(
        WriteError, match=r"MemoryStore.* cannot be written: .*token has expired\..*"
    ):
        write()
    assert len(store.errors) > 90
    store.errors[:] = [ConnectionResetError("reset")] * 3
    write()


def test_the_command_line_takes_addresses(server, tmp_path):
    work = (
        ["fit", f"{server.url}/rows", "--out", str(tmp_path / "nb"), "--kind", "gnb"],
        ["evaluate", f"{server.url}/rows", "--model", f"{server.url}/nb"],
        [
            "predict",
            f"{server.url}/rows",
            "--model",
            f"{server.url}/nb",
            "--out",
            str(tmp_path / "out"),
        ],
    )
    for arguments in work:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 0


# --- tables -----------------------------------------------------------------------------------

GROUP = 50  # rows


@pytest.fixture(scope="module")
def tables(running, rows):
    """Folder with the same rows in Parquet and Arrow."""
    folder = Path(running.folder)
    X, y = rows
    columns = {"other": np.arange(N_ROWS), **{f"x{n}": X[:, n] for n in range(D)}, "y": y}
    table = pa.table(columns)
    pq.write_table(table, folder / "rows.parquet", row_group_size=GROUP, compression="zstd")
    for name, packing in (("raw", "uncompressed"), ("rows", "zstd")):
        feather.write_feather(table, folder / f"{name}.feather", packing, chunksize=GROUP)
    return folder


TABLES = ["rows.parquet", "raw.feather", "rows.feather"]


@in_turn("name, largest", TABLES, [None, 1000, 100])
def test_tables_over_http_are_those_of_files(server, tables, monkeypatch, name, largest):
    """Also in ranges that cut columns, and with threads that read several columns at a time."""
    if largest:
        monkeypatch.setattr(remote_files, "_MOST_BYTES", largest)
        monkeypatch.setattr(remote_files, "_HOLE_BYTES", 0)
    names = [f"x{n}" for n in range(D)]
    here, there = (
        open_store(path, features=names) for path in (tables / name, f"{server.url}/{name}")
    )
    assert_same_bits(state_of(accumulate(*there))[1], state_of(accumulate(*here))[1])
    np.testing.assert_array_equal(there[0][:], here[0][:])
    for start, stop in ((70, 130), (599, 600), (0, 1), (40, 260)):
        np.testing.assert_array_equal(there[0][start:stop], here[0][start:stop])
    again = pickle.loads(pickle.dumps(there[0]))
    np.testing.assert_array_equal(again[333:444], here[0][333:444])


@pytest.mark.parametrize("name", TABLES)
def test_columns_of_a_piece_are_one_request(server, tables, name):
    X, y = open_store(f"{server.url}/{name}", features=[f"x{n}" for n in range(D)])
    server.asked.clear()
    accumulate(X, y, max_memory="1GB")
    assert server.asked[f"/{name}"] <= 2 * N_ROWS // GROUP  # of rows, and of labels


@pytest.mark.parametrize("name", TABLES)
def test_pieces_are_requested_ahead_within_the_budget(server, tables, name):
    X, y = open_store(f"{server.url}/{name}", features=[f"x{n}" for n in range(D)])
    for read in (
        lambda: accumulate(X, y, max_memory="1GB"),
        lambda: X[:],
        lambda: np.asarray(y),
    ):
        server.behave()
        server.together = 4
        read()  # waits until four requests are made at a time
        assert server.most_at_once >= 4
    server.behave()
    np.testing.assert_array_equal(X[: GROUP // 2], X[:][: GROUP // 2])
    server.behave()
    assert [len(X[start : start + GROUP]) for start in range(0, N_ROWS, GROUP)]
    assert server.most_at_once == 1


@pytest.mark.parametrize("name", TABLES)
def test_labels_that_are_read_first_are_requested_ahead(server, tables, rows, name):
    _, y = open_store(f"{server.url}/{name}", features="x0")
    server.behave()
    server.together = 4
    labels = plan.decoded_once(Rows(None, y), 10**9)[0].y
    assert server.most_at_once >= 4
    np.testing.assert_array_equal(labels.read(0, N_ROWS), rows[1])


@pytest.mark.parametrize(
    ("name", "piece"), [("rows.parquet", "row group"), ("rows.feather", "record batch")]
)
def test_requests_for_tables_that_fail(server, tables, expected, name, piece):
    X, y = open_store(f"{server.url}/{name}", features=[f"x{n}" for n in range(D)])
    server.behave()
    server.failing, server.status, server.times = f"/{name}", 503, 2
    same(accumulate(X, y), expected)
    server.behave()
    server.failing, server.times = f"/{name}", 10**6
    with pytest.raises(ReadError, match=rf"{name}: {piece} 0 cannot be read: "):
        accumulate(X, y)


def test_file_systems_with_a_cache_of_the_user_read_by_themselves(server, tables, expected):
    options = {"block_size": 1 << 20, "cache_type": "all"}
    found = open_store(f"{server.url}/rows.parquet", storage_options=options, features="x0")
    assert found[0].values.remote is None
    np.testing.assert_array_equal(
        found[0][:], open_store(tables / "rows.parquet", features="x0")[0][:]
    )


class Synchronous(fsspec.AbstractFileSystem):
    """Files of a folder behind a client that makes one request a thread, as that of hf:// does."""

    protocol = "synchronous"
    together = threading.Barrier(4)  # requests at a time that are waited for
    met = False

    def info(self, path, **options):
        size = Path(self._strip_protocol(path)).stat().st_size
        return {"name": path, "size": size, "type": "file"}

    def _open(self, path, mode="rb", **options):
        return open(self._strip_protocol(path), mode)

    def cat_file(self, path, start=None, end=None, **options):
        if not self.together.broken:
            with contextlib.suppress(threading.BrokenBarrierError):
                self.together.wait(60)
                Synchronous.met = True
            self.together.abort()
        return Path(path).read_bytes()[start:end]


def test_row_groups_of_synchronous_file_systems_are_requested_ahead(tables):
    fsspec.register_implementation("synchronous", Synchronous, clobber=True)
    Synchronous.together.reset()
    names = [f"x{n}" for n in range(D)]
    here = open_store(tables / "rows.parquet", features=names)
    there = open_store(f"synchronous://{tables}/rows.parquet", features=names)
    expected = state_of(accumulate(*here))[1]
    assert_same_bits(state_of(accumulate(*there, max_memory="1GB"))[1], expected)
    assert Synchronous.met
    again = pickle.loads(pickle.dumps(there[0]))
    np.testing.assert_array_equal(again[333:444], here[0][333:444])


# --- S3 ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def s3():
    """The address of an S3 server in a separate process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        late = time.monotonic() + 60
        while time.monotonic() < late and process.poll() is None:
            with socket.socket() as client:
                if not client.connect_ex(("127.0.0.1", port)):
                    break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


@pytest.fixture
def environment(s3, monkeypatch):
    """A bucket, with credentials and the server's address in the usual environment variables."""
    for name, value in {
        "AWS_ENDPOINT_URL": s3,
        "AWS_ACCESS_KEY_ID": "k",
        "AWS_SECRET_ACCESS_KEY": "s",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    bucket = f"b{os.urandom(4).hex()}"
    s3fs.S3FileSystem(skip_instance_cache=True).mkdir(bucket)
    return bucket


@pytest.mark.slow
def test_s3(s3, environment, rows, expected, monkeypatch):
    write(f"s3://{environment}/rows", rows)
    same(accumulate(*open_store(f"s3://{environment}/rows")), expected)
    with monkeypatch.context() as elsewhere:
        elsewhere.delenv("AWS_ENDPOINT_URL")
        options = {"endpoint_url": s3, "key": "k", "secret": "s"}
        same(accumulate(*open_store(f"s3://{environment}/rows", storage_options=options)), expected)
    fitted = GaussianNB().fit(*rows)
    for _ in range(2):  # over the first
        fitted.save(f"s3://{environment}/models/nb")
    loaded = streamgda.load(f"s3://{environment}/models/nb")
    np.testing.assert_array_equal(loaded.predict(rows[0]), fitted.predict(rows[0]))
    with pytest.raises(SourceError, match="rows holds something else"):
        fitted.save(f"s3://{environment}/rows")
    fitted.predict(open_store(f"s3://{environment}/rows")[0], out=f"s3://{environment}/labels")
    np.testing.assert_array_equal(
        zarr.open_array(f"s3://{environment}/labels", mode="r")[...], fitted.predict(rows[0])
    )


@pytest.mark.slow
def test_parquet_on_s3(s3, environment, tables, proxy, monkeypatch):
    """Also with credentials in options, and through a proxy that lets requests fail."""
    names = [f"x{n}" for n in range(D)]
    expected = state_of(accumulate(*open_store(tables / "rows.parquet", features=names)))[1]
    address = f"s3://{environment}/rows.parquet"
    s3fs.S3FileSystem(skip_instance_cache=True).put(str(tables / "rows.parquet"), address)
    for options in (None, {"endpoint_url": s3, "key": "k", "secret": "s"}):
        there = open_store(address, features=names, storage_options=options)
        assert there[0].values.remote is not None
        assert_same_bits(state_of(accumulate(*there, max_memory="1GB"))[1], expected)
        assert_same_bits(state_of(accumulate(*pickle.loads(pickle.dumps(there))))[1], expected)
    monkeypatch.setattr(s3fs.S3FileSystem, "retries", 1)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.server_port}")
    s3fs.S3FileSystem.clear_instance_cache()
    there = open_store(address, features=names)
    proxy.share, proxy.ways = 0.2, ["reset", 503]
    assert_same_bits(state_of(accumulate(*there, max_memory="1GB"))[1], expected)
    assert proxy.failures


def test_clients_that_break_down_may_recover():
    context = pytest.importorskip("botocore.context")
    token = contextvars.copy_context().run(context.set_context, context.ClientContext())
    with pytest.raises(ValueError, match="was created in a different Context") as broken:
        context.reset_context(token)
    assert retry.is_temporary(broken.value)
    assert not retry.is_temporary(ValueError("ours"))


@pytest.fixture
def proxy(s3):
    with serving(Proxy(s3.removeprefix("http://"), 0.0, 0)) as running:
        yield running


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")  # zarr's
@pytest.mark.slow
@pytest.mark.parametrize("name", ["accumulate", "save", "scores", "convert"])
def test_s3_with_failing_requests(proxy, environment, rows, expected, monkeypatch, name):
    """Many requests are made at once; each call has a result, or raises an error of ours."""
    write(f"s3://{environment}/rows", rows)
    fitted = GaussianNB().fit(*rows)
    fitted.save(f"s3://{environment}/nb")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.server_port}")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setattr(s3fs.S3FileSystem, "retries", 1)
    address = f"s3://{environment}"
    calls = {
        "accumulate": lambda n: same(accumulate(*open_store(f"{address}/rows")), expected),
        "save": lambda n: fitted.save(f"{address}/nb"),
        "scores": lambda n: fitted.predict(rows[0], out=f"{address}/scores {n}"),
        "convert": lambda n: convert(rows[0], f"{address}/converted", overwrite=True),
    }
    for n in range(3):
        s3fs.S3FileSystem.clear_instance_cache()
        proxy.share = (0.2, 0.5)[n % 2]
        with contextlib.suppress(StreamGDAError):
            calls[name](n)
    assert proxy.failures
    gc.collect()  # abandoned requests must not raise anything later


@pytest.mark.slow
def test_s3_chunks_that_are_gone_or_cut(environment, rows):
    write(f"s3://{environment}/rows", rows)
    files = s3fs.S3FileSystem(skip_instance_cache=True)
    chunk = files.cat_file(f"{environment}/rows/X/c/4/0")
    files.rm(f"{environment}/rows/X/c/4/0")
    with pytest.raises(ReadError, match=r"chunk \(4, 0\), rows 400 to 499, .*c/4/0 is missing"):
        accumulate(*open_store(f"s3://{environment}/rows"))
    files.pipe_file(f"{environment}/rows/X/c/4/0", chunk)
    files.pipe_file(f"{environment}/rows/X/c/2/0", b"cut")
    with pytest.raises(ReadError, match=r"chunk \(2, 0\), rows 200 to 299, cannot be read"):
        accumulate(*open_store(f"s3://{environment}/rows"))
