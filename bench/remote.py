"""Suite `remote`: a store behind a link of 2 Gbit/s and 50 ms, or whose requests fail.

The server is another process: ``python -m bench.remote FOLDER PORT-FILE``. It answers as late as
the link would, and lets some of the requests for chunks fail: status 503, a reset, or half of the
bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import zarr

import streamgda
from bench.measure import OURS, Plan, Row, Target, in_turn, rows_of
from streamgda.storage.saved import state_of

DELAY = 0.05  # seconds
BANDWIDTH = 250e6  # bytes a second
OF_GATHER = 0.8
CHUNKS = {"128 kB": (1 << 9, 2000), "1 MB": (1 << 12, 300), "16 MB": (1 << 16, 20)}  # rows, number
GROUPS = {"4 MB": (1 << 14, 75), "16 MB": (1 << 16, 20)}  # rows, number
WIDTH = 64  # float32 values of a row
AT_ONCE = (32, 128)  # requests of `gather`, of which the best counts
BUDGET = "800MB"
SHARE = 1 / 20  # of requests that fail
PASSES = 20
REPEATS = 3  # of a pass that takes seconds, at most
FAULTY = {"fsspec": 1000, "s3fs": 300, "obstore": 1000}  # chunks; s3fs takes several times as long
REQUESTS = 1.15  # at most, for each one of a pass without failures


def run(plan: Plan) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as name, serving(Path(name)) as server:
        for size, (n_rows, n_chunks) in CHUNKS.items():
            chunks = 8 if plan.quick else n_chunks
            data = np.random.default_rng(0).random((n_rows * chunks, WIDTH), np.float32)
            layout: Any = {"chunks": (n_rows, WIDTH), "compressors": None}
            zarr.create_array(f"{name}/{n_rows}", data=data, **layout)
            yield from speed(plan, server, size, f"{n_rows}")
        for size, (n_rows, n_groups) in GROUPS.items():
            for kind in ("parquet", "feather"):
                groups = 4 if plan.quick else n_groups
                yield from speed_of_table(plan, server, kind, size, n_rows, groups)
        for client, n_chunks in FAULTY.items():
            chunks, passes = (20, 3) if plan.quick else (n_chunks, PASSES)
            data = np.random.default_rng(0).random((chunks * 16, 8))
            zarr.create_array(f"{name}/{client}", data=data, chunks=(16, 8))
            yield from faults(plan, server, client, chunks, passes)


def speed(plan: Plan, server: Server, size: str, name: str) -> Iterator[Row]:
    """Compare a pass with plain `gather` of the same chunks by the same client."""
    import obstore

    store = CLIENTS["obstore"](server, name)
    X, _ = streamgda.open_store(store, y=None)
    labels = np.zeros(X.shape[0], np.uint8)
    keys = [f"c/{n}/0" for n in range(X.nchunks)]

    async def gather(most: int) -> None:
        slots = asyncio.Semaphore(most)

        async def get(key: str) -> int:
            async with slots:
                answer = await obstore.get_async(store, key)
                return len(await answer.bytes_async())

        found = sum(await asyncio.gather(*map(get, keys)))
        assert found == X.nbytes

    def ours() -> None:
        streamgda.accumulate(X, labels, covariance_type="diag", max_memory=BUDGET)

    server.behave(DELAY, 0)
    calls = {f"gather {n}": lambda n=n: asyncio.run(gather(n)) for n in AT_ONCE}
    times, missing = in_turn({OURS: ours, **calls}, min(plan.repeats, REPEATS))
    best = [min(each) for each in zip(*(times[name] for name in calls), strict=True)]
    yield from rows_of(
        f"{X.nbytes / 1e6:,.0f} MB in chunks of {size}, {DELAY * 1000:g} ms away, variances",
        (None, ""),
        {OURS: times[OURS], "asyncio.gather at its best": best},
        missing,
        targets={"": Target(OF_GATHER, f">= {OF_GATHER:g} of its speed")},
    )


def speed_of_table(
    plan: Plan, server: Server, kind: str, size: str, n_rows: int, n_groups: int
) -> Iterator[Row]:
    """Compare a pass over a table with plain requests for its pieces by the same client."""
    import fsspec
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow import feather

    data = np.random.default_rng(0).random((n_rows * n_groups, WIDTH), np.float32)
    columns = {f"x{n}": column for n, column in enumerate(data.T)}
    table = pa.table(columns | {"label": np.arange(len(data)) % 3})
    path = server.folder / f"{n_rows}.{kind}"
    if kind == "parquet":
        pq.write_table(table, path, row_group_size=n_rows, compression="none", use_dictionary=False)
    else:
        feather.write_feather(table, path, "uncompressed", chunksize=n_rows)
    # Pieces of equal size are requested, beside which the ends of files are small.
    each = path.stat().st_size // n_groups
    starts, stops = zip(*((each * n, each * (n + 1)) for n in range(n_groups)), strict=True)
    url = f"{server.url}/{path.name}"
    X, labels = streamgda.open_store(url, label="label")

    def gather(most: int) -> None:
        files = fsspec.filesystem("http")
        files.cat_ranges([url] * n_groups, [*starts], [*stops], batch_size=most)

    def ours() -> None:
        streamgda.accumulate(X, labels, covariance_type="diag", max_memory=BUDGET)

    server.behave(DELAY, 0)
    calls = {f"gather {n}": lambda n=n: gather(n) for n in AT_ONCE}
    times, missing = in_turn({OURS: ours, **calls}, min(plan.repeats, REPEATS))
    best = [min(both) for both in zip(*(times[name] for name in calls), strict=True)]
    yield from rows_of(
        f"{path.stat().st_size / 1e6:,.0f} MB of {kind.title()} in pieces of {size}, "
        f"{DELAY * 1000:g} ms away, variances",
        (None, ""),
        {OURS: times[OURS], "fsspec's ranges at their best": best},
        missing,
        targets={"": Target(OF_GATHER, f">= {OF_GATHER:g} of its speed")},
    )


def faults(plan: Plan, server: Server, client: str, n_chunks: int, n_passes: int) -> Iterator[Row]:
    """Count the passes that end, with the right bits, and their requests."""
    work = f"{n_chunks:,} chunks by {client}, one request in {1 / SHARE:g} failing: "
    X, _ = streamgda.open_store(CLIENTS[client](server, client), y=None)
    labels = np.arange(X.shape[0]) % 3
    server.behave(0, 0)
    expected = state_of(streamgda.accumulate(X, labels))[1]
    alone, most, ended = server.asked(), 0, 0
    for number in range(n_passes):
        server.behave(0, SHARE, number)
        with contextlib.suppress(streamgda.errors.StreamGDAError):
            found = state_of(streamgda.accumulate(X, labels))[1]
            ended += all(np.array_equal(found[name], expected[name]) for name in expected)
        most = max(most, server.asked())
    for what, peer, unit, ours, theirs, ratio, least in (
        ("passes with the same bits", "all passes", "passes", ended, n_passes, ended / n_passes, 1),
        ("most requests", "without failures", "requests", most, alone, alone / most, 1 / REQUESTS),
    ):
        target = "all" if least == 1 else f"<= {REQUESTS:g} times as many"
        yield Row(
            f"{work}{what}",
            peer,
            ours,
            theirs,
            ratio,
            target=target,
            reached=ratio >= least,
            unit=unit,
        )


# --- clients ----------------------------------------------------------------------------------


def _by_obstore(server: Server, name: str) -> Any:
    import obstore

    # Its own retries are off in `faults`, so that ours are measured.
    options: Any = {"retry_config": {"max_retries": 0}}
    options["client_options"] = {"allow_http": True, "timeout": "5 minutes"}
    return obstore.store.HTTPStore.from_url(f"{server.url}/{name}", **options)


def _by_s3fs(server: Server, name: str) -> Any:
    import s3fs

    files = s3fs.S3FileSystem(
        key="k", secret="s", endpoint_url=server.url, asynchronous=True, skip_instance_cache=True
    )
    return zarr.storage.FsspecStore(files, path=name, read_only=True)


CLIENTS: dict[str, Any] = {
    "fsspec": lambda server, name: f"{server.url}/{name}",
    "s3fs": _by_s3fs,
    "obstore": _by_obstore,
}


# --- the server -------------------------------------------------------------------------------


class Server:
    """The address of a server in a separate process, and the folder that it serves."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder

    def _told(self, what: str) -> Any:
        with urllib.request.urlopen(f"{self.url}/-/{what}") as answer:
            return json.loads(answer.read())

    def behave(self, delay: float, share: float, seed: int = 0) -> None:
        """Wait before each answer, and let a share of the requests for chunks fail."""
        self._told(f"{delay}/{share}/{seed}")

    def asked(self) -> int:
        """Return the number of requests for chunks since."""
        return int(self._told("asked"))


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[Server]:
    """Serve the files of a folder."""
    port = folder / "port"
    command = [sys.executable, "-m", "bench.remote", str(folder), str(port)]
    process = subprocess.Popen(command)
    try:
        while not port.exists() or not port.read_text():
            time.sleep(0.05)
        yield Server(f"http://127.0.0.1:{port.read_text()}", folder)
    finally:
        process.terminate()
        process.wait()


class _Connection(asyncio.Protocol):
    delay, share, asked, chance = 0.0, 0.0, 0, random.Random(0)
    free = 0.0  # when the link is
    folder = Path()
    held: dict[str, bytes | None] = {}  # noqa: RUF012  (of all connections)

    def connection_made(self, transport: Any) -> None:
        self.transport, self.buffer = transport, b""

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while b"\r\n\r\n" in self.buffer:
            head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
            method, path, _ = head.partition(b"\r\n")[0].decode().split(" ")
            part = re.search(rb"(?i)\r\nrange: bytes=(\d+)-(\d*)", head)
            span = slice(int(part[1]), int(part[2] or -2) + 1 or None) if part else None
            if path.startswith("/-/"):
                self.told(path[3:])
                continue
            path = path.partition("?")[0]
            loop = asyncio.get_running_loop()
            loop.call_at(self.arrival(loop.time(), path, span), self.answer, method, path, span)

    def told(self, what: str) -> None:
        if what != "asked":
            delay, share, seed = what.split("/")
            _Connection.delay, _Connection.share = float(delay), float(share)
            _Connection.chance, _Connection.asked = random.Random(int(seed)), 0
        self.respond("GET", 200, str(_Connection.asked).encode())

    def arrival(self, now: float, path: str, span: slice | None) -> float:
        """Return the time at which the answer is through the link."""
        if not _Connection.delay:
            return now
        taken = len((self.body(path) or b"")[span or slice(None)]) / BANDWIDTH
        _Connection.free = max(_Connection.free, now + _Connection.delay) + taken
        return _Connection.free

    def body(self, path: str) -> bytes | None:
        if path not in self.held:
            file = self.folder / path.lstrip("/")
            self.held[path] = file.read_bytes() if file.is_file() else None
        return self.held[path]

    def answer(self, method: str, path: str, span: slice | None) -> None:
        body = self.body(path)
        if body is None:
            self.respond(method, 404, b"")
            return
        if span is not None:
            first, stop, _ = span.indices(len(body))
            self.respond(method, 206, body[span], range=f"{first}-{stop - 1}/{len(body)}")
            return
        if "/c/" in path:
            _Connection.asked += 1
            if self.chance.random() < _Connection.share:
                self.fail(method, body)
                return
        self.respond(method, 200, body)

    def fail(self, method: str, body: bytes) -> None:
        way = self.chance.choice(("503", "reset", "cut"))
        if way == "503":
            self.respond(method, 503, b"")
        elif way == "reset":
            self.transport.abort()
        else:
            self.respond(method, 200, body, body[: len(body) // 2])
            self.transport.close()

    def respond(
        self, method: str, status: int, body: bytes, sent: bytes | None = None, range: str = ""
    ) -> None:
        head = f'HTTP/1.1 {status} -\r\nContent-Length: {len(body)}\r\nETag: "e"\r\n'
        head += "Accept-Ranges: bytes\r\n" + (f"Content-Range: bytes {range}\r\n" * bool(range))
        head += "Last-Modified: Mon, 01 Jan 2024 00:00:00 GMT\r\n\r\n"
        self.transport.write(head.encode())
        if method != "HEAD":
            self.transport.write(body if sent is None else sent)


async def _serve(folder: str, port: str) -> None:
    _Connection.folder = Path(folder)
    server = await asyncio.get_running_loop().create_server(_Connection, "127.0.0.1", 0)
    Path(port).write_text(str(server.sockets[0].getsockname()[1]))
    await server.serve_forever()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(*sys.argv[1:]))
