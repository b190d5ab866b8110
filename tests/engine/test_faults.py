"""Killed workers, a killed scheduler: the same bits, or an error that says why."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import dask
import dask.array as da
import kills
import numpy as np
import pytest
import zarr
from dask_rows import use_parts_of
from distributed import Client, LocalCluster, Status
from samples import blobs, bytes_of, make
from states import bits

from streamgda import accumulate
from streamgda.engine import plan
from streamgda.engine.dask import cluster as streamgda_cluster
from streamgda.engine.dask import merge_tree, parts
from streamgda.errors import ClusterError

pytestmark = pytest.mark.slow

N_ROWS = 4000
N_WORKERS = 3


@pytest.fixture(scope="module")
def cluster(forks):
    """A cluster whose workers restart quickly."""
    settings = {
        "distributed.scheduler.allowed-failures": 100,
        # The cluster gives up on a worker that stays down for this long.
        "distributed.deploy.lost-worker-timeout": "1 hour",
    }
    with (
        dask.config.set(settings),
        LocalCluster(n_workers=N_WORKERS, threads_per_worker=1, dashboard_address=":0") as workers,
    ):
        yield workers


@pytest.fixture
def client(cluster):
    cluster.scheduler.allowed_failures = 100
    with Client(cluster) as client:
        yield client


@pytest.fixture
def small_parts(monkeypatch):
    use_parts_of(monkeypatch, 1)
    monkeypatch.setattr(plan, "_SLAB_BYTES", 60 * 32)


class Killer:
    """Kills workers at random moments while a block runs: up to `most`, one after the other."""

    def __init__(self, cluster, seed, most=3):
        self.cluster, self.most, self.killed = cluster, most, 0
        self.random = np.random.default_rng(seed)
        self.over, self.gone = threading.Event(), set()
        self.thread = threading.Thread(target=self.run)

    def __enter__(self):
        self.thread.start()
        return self

    def run(self):
        while self.killed < self.most and not self.over.wait(self.random.uniform(0, 0.3)):
            # A nanny gives up if its worker dies during the start. A killed worker may be taken
            # for running a while longer; the next has another address.
            running = [
                nanny
                for nanny in list(self.cluster.workers.values())
                if nanny.status == Status.running
                and nanny.worker_address in self.cluster.scheduler.workers
                and nanny.worker_address not in self.gone
            ]
            if running:
                nanny = running[self.random.integers(len(running))]
                self.gone.add(nanny.worker_address)
                with contextlib.suppress(ProcessLookupError):  # it went by itself
                    os.kill(nanny.pid, signal.SIGKILL)
                    self.killed += 1

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def disturbed(cluster, seed, work):
    """Do the work again until workers were killed while it ran; return its result."""
    for attempt in range(100):
        with Killer(cluster, 1000 * attempt + seed) as killer:
            result = work()
        if killer.killed:
            return result
    raise AssertionError("work was always done before a worker was killed")


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    X, y = blobs(N_ROWS)
    group = zarr.create_group(tmp_path_factory.mktemp("rows"))
    group.create_array("X", data=X, chunks=(20, 4))
    group.create_array("bytes", data=bytes_of(X), chunks=(20, 4))
    group.create_array("y", data=y, chunks=(300,))
    return group


@pytest.mark.parametrize("name", ["X", "bytes"])
@pytest.mark.usefixtures("client", "small_parts")
def test_a_fit_goes_on_where_workers_are_killed(cluster, stored, name):
    undisturbed = accumulate(stored[name], stored["y"])
    assert undisturbed.class_count.sum() == N_ROWS
    found = disturbed(cluster, 1, lambda: accumulate(stored[name], stored["y"]))
    assert bits(found) == bits(undisturbed)


@pytest.mark.usefixtures("client", "small_parts")
def test_scores_are_written_where_workers_are_killed(cluster, stored, tmp_path):
    fitted = make("full").fit(stored["X"][...], stored["y"][...])
    expected = fitted.predict_proba(stored["X"][...])
    for seed in range(2):
        layout = {"dtype": "f8", "chunks": (20, 3), "shards": (60, 3), "overwrite": True}

        def score(path=tmp_path / f"{seed}", layout=layout):
            out = zarr.create_array(path, shape=expected.shape, **layout)
            assert fitted.predict_proba(stored["X"], out=out) is out
            return out[...]

        np.testing.assert_array_equal(disturbed(cluster, seed, score), expected)


@pytest.mark.usefixtures("client")
def test_rows_that_kill_their_workers(cluster):
    def die(block):
        os._exit(1)

    cluster.scheduler.allowed_failures = 0
    rows = da.ones((4, 2), chunks=(4, 2)).map_blocks(die, meta=np.empty((0, 2)))
    with pytest.raises(ClusterError, match=r"workers died again.*too little memory.*allowed-fail"):
        accumulate(rows, [0, 1, 0, 1])


@pytest.mark.slow
@pytest.mark.usefixtures("environment")
def test_blocks_that_are_too_large_for_the_memory_of_their_worker():
    def grow(block):
        kept = [np.ones(2_500_000)]
        while True:  # until the nanny ends this worker
            time.sleep(0.05)
            kept.append(kept[0] + 1)

    rows = da.ones((4, 2), chunks=(4, 2)).map_blocks(grow, meta=np.empty((0, 2)))
    options = {"threads_per_worker": 1, "memory_limit": "600MB", "dashboard_address": ":0"}
    failures = {"distributed.scheduler.allowed-failures": 0}
    with (
        dask.config.set(failures),
        LocalCluster(1, **options) as cluster,
        Client(cluster),
        pytest.raises(ClusterError, match=r"too little memory: give them.*smaller blocks"),
    ):
        accumulate(rows, [0, 1, 0, 1])


@pytest.mark.usefixtures("client")
def test_a_store_that_workers_do_not_see(cluster, stored, tmp_path):
    rows = zarr.create_array(tmp_path / "rows", data=np.ones((40, 2)), chunks=(10, 2))
    (tmp_path / "rows" / "zarr.json").unlink()
    with pytest.raises(ClusterError, match=r"a worker cannot open .*rows.*all of them find it"):
        accumulate(rows, np.arange(40) % 2)


@pytest.fixture
def waiting(stored, tmp_path):
    """Rows and labels whose last blocks wait for a file to appear; and the path of that file."""
    go_on = tmp_path / "go on"

    def wait(block, block_id):
        while block_id[0] >= 150 and not go_on.exists():
            time.sleep(0.01)
        return block

    rows = da.from_zarr(stored["X"])
    rows = rows.map_blocks(wait, name="rows-that-wait", dtype=rows.dtype, meta=np.empty((0, 4)))
    yield rows, da.from_zarr(stored["y"]), go_on
    go_on.touch()


def once_there(path, call):
    """Call a function as soon as a file exists."""

    def wait():
        while not path.exists():
            time.sleep(0.01)
        call()

    threading.Thread(target=wait, daemon=True).start()


def interrupt(number, frame):
    """Raise KeyboardInterrupt, but later within ``__del__``, where Python would ignore it."""
    while frame is not None:
        if frame.f_code.co_name == "__del__":
            threading.Timer(0.01, os.kill, (os.getpid(), number)).start()
            return
        frame = frame.f_back
    raise KeyboardInterrupt


@pytest.mark.usefixtures("small_parts")
def test_ctrl_c_cancels_the_work_and_keeps_the_results_so_far(cluster, client, waiting, tmp_path):
    X, y, go_on = waiting
    path = tmp_path / "kept"
    handler = signal.signal(signal.SIGINT, interrupt)
    try:
        once_there(path, lambda: os.kill(os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt) as stopped:
            accumulate(X, y, checkpoint=path, checkpoint_every=0.1)
    finally:
        signal.signal(signal.SIGINT, handler)
    note = (
        r"kept keeps what was done, \d+ of 200 parts: run the same call again to resume after them"
    )
    assert re.search(note, stopped.value.__notes__[0])
    go_on.touch()
    while cluster.scheduler.tasks:  # nothing is left of it
        time.sleep(0.01)
    assert bits(accumulate(X, y, checkpoint=path)) == bits(accumulate(X, y))


@pytest.mark.usefixtures("client")
def test_no_result_is_held_by_the_traceback_of_an_interruption(
    cluster, stored, tmp_path, monkeypatch
):
    monkeypatch.setattr(parts, "PART_BYTES", 1)

    def stop(*_):
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(merge_tree, "joined", stop)
    with pytest.raises(KeyboardInterrupt) as stopped:
        accumulate(stored["X"], stored["y"], checkpoint=tmp_path / "kept", checkpoint_every=0)
    end = time.monotonic() + 60
    while cluster.scheduler.tasks and time.monotonic() < end:
        time.sleep(0.01)
    assert not cluster.scheduler.tasks
    assert stopped.tb is not None


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("end", ["close", "restart"])
def test_a_client_that_another_thread_ends(cluster, waiting, tmp_path, end):
    X, y, go_on = waiting
    path, over = tmp_path / "kept", threading.Event()

    def end_client():
        with contextlib.suppress(OSError):  # a restart that the cancelled tasks disturb
            getattr(client, end)()
        over.set()

    with Client(cluster) as client:
        once_there(path, end_client)
        with pytest.raises(ClusterError, match=r"restarted or closed.*run this again") as ended:
            accumulate(X, y, checkpoint=path, checkpoint_every=0.1)
        assert over.wait(60)
    assert re.search(r"keeps what was done, \d+ of 200 parts", ended.value.__notes__[0])
    go_on.touch()
    while cluster.scheduler.tasks:  # nothing is left of it
        time.sleep(0.01)


@pytest.mark.usefixtures("environment")
def test_workers_that_join_late_are_waited_for_and_used(stored, monkeypatch):
    monkeypatch.setattr(streamgda_cluster, "_PATIENCE", 0.1)
    with LocalCluster(1, processes=False, dashboard_address=":0") as workers, Client(workers):
        workers.scale(0)
        while workers.scheduler.workers:
            time.sleep(0.01)
        rows = da.from_zarr(stored["X"]).map_blocks(np.copy, dtype="f8", meta=np.empty((0, 4)))
        match = r"no worker is connected to inproc://.*start workers .*Ctrl-C"
        warned = pytest.warns(RuntimeWarning, match=match)
        once_there(SimpleNamespace(exists=lambda: len(warned)), lambda: workers.scale(2))
        with warned:
            found = accumulate(rows, stored["y"])
    with dask.config.set(scheduler="synchronous"):
        assert bits(found) == bits(accumulate(rows, stored["y"]))


def test_clients_that_are_killed(cluster, tmp_path, monkeypatch):
    """A dozen clients and more, at random moments; the workers survive."""
    if not hasattr(os, "fork"):
        pytest.skip("no fork on this platform")
    done = subprocess.run(
        [sys.executable, kills.__file__, cluster.scheduler_address, tmp_path],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    assert done.returncode == 0, done.stderr
    ended = json.loads(done.stdout)
    for name in ("PART_BYTES", "SCORED_BYTES", "PART_STATES"):
        monkeypatch.setattr(parts, name, getattr(parts, name))
    monkeypatch.setattr(plan, "_SLAB_BYTES", 1)
    kills.store(tmp_path / "life")
    group = zarr.open_group(tmp_path / "store", mode="r")
    rows, labels = (da.from_zarr(group[name]) for name in "Xy")
    with Client(cluster):
        undisturbed = {
            "fit": accumulate(group["X"], group["y"]),
            "blocks": accumulate(2 * rows, labels, sample_weight=kills.WEIGHTS),
            "predict": make("GaussianNB").fit(kills.X, kills.Y).predict_proba(kills.X),
        }
    for kind, result in undisturbed.items():
        assert ended[kind]["kills"] >= kills.ENOUGH
        assert ended[kind]["resumed"]
        assert set(ended[kind]["digests"]) == {kills.digest_of(result, None)}


@pytest.mark.usefixtures("environment", "small_parts")
def test_a_scheduler_that_is_killed(waiting, tmp_path):
    def start(what, *arguments):
        command = [sys.executable, "-m", f"distributed.cli.dask_{what}", *arguments]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    X, y, go_on = waiting
    kept = tmp_path / "kept"
    file = ["--scheduler-file", str(tmp_path / "scheduler.json")]
    scheduler = start("scheduler", "--no-dashboard", "--port", "0", *file)
    worker = start("worker", "--no-dashboard", "--no-nanny", "--death-timeout", "120", *file)
    try:
        with Client(scheduler_file=file[1], timeout=300) as client:
            client.wait_for_workers(1)
            once_there(kept, scheduler.kill)
            with pytest.raises(ClusterError, match=r"the scheduler is gone.*run this again") as end:
                accumulate(X, y, checkpoint=kept, checkpoint_every=0.1)
            assert re.search(r"keeps what was done, \d+ of 200 parts", end.value.__notes__[0])
    finally:
        for process in (worker, scheduler):
            process.kill()
            process.wait()
    go_on.touch()
    with dask.config.set(scheduler="synchronous"):  # as good as another cluster
        assert bits(accumulate(X, y, checkpoint=kept)) == bits(accumulate(X, y))
