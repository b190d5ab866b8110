"""Secrets of locations: no error, output, file or attribute of a result holds one."""

import gc
import pickle
import traceback
from functools import partial
from itertools import product

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from distributed.comm import CommClosedError
from samples import blobs
from servers import Server, serving

import streamgda
from streamgda import GaussianNB, accumulate, open_store
from streamgda.datasets import convert
from streamgda.engine import reading
from streamgda.engine.dask import collections
from streamgda.errors import printable

# These are warnings of zarr.
pytestmark = pytest.mark.filterwarnings("ignore:[Uu]nclosed:ResourceWarning")

SECRET = "pl4nted"
QUERIES = (f"?X-Amz-Signature={SECRET}", f"?sv=1&sig={SECRET}%2B&se=2", f"?token={SECRET}", "")
OPTIONS = {"key": "k", "secret": SECRET, "token": SECRET, "sas_token": f"sig={SECRET}"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    X, y = blobs(300)
    group = zarr.create_group(folder / "rows")
    for name, array in zip("Xy", (X, y), strict=True):
        group.create_array(name, data=array, chunks=(100, *array.shape[1:]))
    GaussianNB().fit(X, y).save(folder / "nb")
    columns = {f"x{number}": column for number, column in enumerate(X.T)} | {"y": y}
    pq.write_table(pa.table(columns), folder / "rows.parquet")
    (folder / "bad.parquet").write_bytes(b"PAR1 and nothing else")
    with serving(Server(folder)) as server:
        yield server
    fsspec.get_filesystem_class("http").clear_instance_cache()
    gc.collect()


@pytest.fixture(autouse=True)
def quick_and_talkative(server, monkeypatch, slabs_of):
    server.behave()
    monkeypatch.setattr(reading, "_LINE_EVERY", 0)
    slabs_of(1)


def forbid(server, path):
    server.failing, server.status, server.times = path, 403, 10**6


def lose(scheduler):
    with collections._failures():
        raise CommClosedError(f"in <TLS>: {scheduler} is closed")


def failures(server, url, query):
    """Calls that fail, each for another reason; those with a path that the server forbids first."""
    rows = blobs(300)
    model = GaussianNB().fit(*rows)
    yield "/rows/zarr.json", lambda: open_store(f"{url}/rows")
    yield "/rows/X/zarr.json", lambda: open_store(f"{url}/rows")
    yield "/rows/X/c/1/0", lambda: accumulate(*open_store(f"{url}/rows"))
    yield "/rows/X/c/1/0", lambda: model.predict(open_store(f"{url}/rows", y=None)[0])
    yield "/rows.parquet", lambda: accumulate(*open_store(f"{url}/rows.parquet", label="y"))
    yield "/nb", lambda: streamgda.load(f"{url}/nb")
    yield "", lambda: lose(f"tls://user:{SECRET}@scheduler:8786")
    yield "", lambda: open_store(f"{url}/absent{query}")
    yield "", lambda: open_store(f"{url}/rows/X{query}")
    yield "", lambda: open_store(f"{url}/rows", y="z")
    yield "", lambda: open_store(f"{url}/absent.parquet{query}")
    yield "", lambda: open_store(f"{url}/bad.parquet{query}")
    yield "", lambda: open_store(f"{url}/rows.parquet", label="z")
    yield "", lambda: open_store(f"{url}/rows", label="z", storage_options=OPTIONS)
    yield "", lambda: open_store("rows.tif", storage_options=OPTIONS)
    yield "", lambda: open_store("rows.zarr", storage_options=OPTIONS)
    yield "", lambda: open_store(f"s3://k:{SECRET}@bucket/rows{query}", storage_options=OPTIONS)
    for scheme, call in product(("s3", "memory"), (open_store, streamgda.load)):
        yield "", partial(call, f"{scheme}://k:{SECRET}@bucket/rows{query}")
    yield "", partial(open_store, f"s3://k:{SECRET}@bucket/rows.parquet")
    yield "", lambda: streamgda.load(f"{url}/rows{query}")
    yield "", lambda: streamgda.load(f"nothing://k:{SECRET}@rows{query}")
    yield "", lambda: model.save(f"{url}/other{query}")
    yield "", lambda: model.predict(rows[0], out=f"{url}/other{query}")
    yield "", lambda: convert(rows[0], None, f"{url}/other{query}")
    yield "", lambda: accumulate(*rows, checkpoint=f"{url}/other{query}")
    yield "", lambda: accumulate(f"{url}/rows{query}", rows[1])


@pytest.mark.parametrize("query", QUERIES)
def test_errors_hold_no_secret(server, query):
    url = server.url.replace("://", f"://user:{SECRET}@")
    for forbidden, call in failures(server, url, query):
        server.behave()
        forbid(server, forbidden)
        with pytest.raises(Exception) as failed:  # noqa: PT011  (of any kind)
            call()
        shown = [*traceback.format_exception(failed.value), repr(failed.value), failed.value.args]
        shown += [*getattr(failed.value, "__notes__", ())]
        assert SECRET not in "".join(map(str, shown)).replace(__file__, "")
        failed.value.__cause__ = failed.value.__context__ = None  # Tasks of dask send it so.
        assert SECRET not in str(pickle.loads(pickle.dumps(failed.value)))


@pytest.mark.parametrize("name", ["rows", "rows.parquet"])
def test_results_and_outputs_hold_no_secret(server, tmp_path, capsys, name):
    url = server.url.replace("://", f"://user:{SECRET}@")
    labels = {} if name == "rows" else {"label": "y"}
    X, y = open_store(f"{url}/{name}{f'?sig={SECRET}' * (name != 'rows')}", **labels)
    moments = accumulate(X, y, checkpoint=tmp_path / "kept", progress=True)
    model = GaussianNB().fit(X, y)
    model.save(tmp_path / "model")
    out = model.predict(X, out=tmp_path / "out")
    output = capsys.readouterr()
    assert "rows" in output.err
    found = [*output, moments.to_bytes(), repr(moments), repr(model), vars(model), out.attrs]
    found += [] if isinstance(X, zarr.Array) else [repr(X), repr(y), X.place(), y.place()]
    found += [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(SECRET in str(part) for part in found)


def test_commands_show_no_secret(server, command, tmp_path):
    url = server.url.replace("://", f"://user:{SECRET}@")
    for arguments in (
        ["fit", f"{url}/rows", "--out", tmp_path / "nb", "--kind", "gnb"],
        ["info", f"{url}/nb"],
        ["info", f"{url}/rows", "--json"],
        ["evaluate", f"{url}/rows", "--model", f"{url}/nb", "--json"],
        ["evaluate", f"{url}/absent?sig={SECRET}", "--model", f"{url}/nb"],
        ["fit", f"{url}/rows", "--out", f"{url}/elsewhere"],
    ):
        ended = command(*arguments)
        assert ended.code == ("/absent" in str(arguments) or "/elsewhere" in str(arguments))
        assert SECRET not in ended.out + ended.err, arguments


def test_text_around_a_location_stays():
    rest = "is no folder (it holds 3 files: a, b); y=[1, 2], label='token'"
    assert printable(f"/a/b?c=d {rest}") == f"/a/b?c=d {rest}"
    assert printable(f"X (http://u:p@h/a?b): {rest}") == f"X (http://***@h/a?***): {rest}"
