"""Workers that are killed, a scheduler that is killed: the same bits, or an error that says why."""

import os
import signal
import subprocess
import sys
import threading
import time

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from distributed import Client, LocalCluster, Status
from distributed.utils import get_mp_context
from samples import assert_same_bits, blobs, bytes_of, make

from streamgda import accumulate, slabs
from streamgda import distributed as streamgda_on_dask
from streamgda.errors import ClusterError

N_ROWS = 4000
N_WORKERS = 3


@pytest.fixture(scope="module")
def cluster(environment):
    """Workers that are forked off a process which has imported all: they are soon back."""
    settings = {
        "distributed.worker.multiprocessing-method": "forkserver",
        "distributed.scheduler.allowed-failures": 100,
        # The cluster gives a worker up that is down so long after it was first seen to be.
        "distributed.deploy.lost-worker-timeout": "1 hour",
    }
    with dask.config.set(settings):
        get_mp_context().set_forkserver_preload(["distributed", "streamgda.distributed", "zarr"])
        with LocalCluster(
            n_workers=N_WORKERS, threads_per_worker=1, dashboard_address=":0"
        ) as workers:
            yield workers


@pytest.fixture
def client(cluster):
    cluster.scheduler.allowed_failures = 100
    with Client(cluster) as client:
        yield client


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(streamgda_on_dask, "_PART_BYTES", 1)
    monkeypatch.setattr(streamgda_on_dask, "_PART_STATES", (0, 0))
    monkeypatch.setattr(streamgda_on_dask, "_SCORED_BYTES", 1)
    monkeypatch.setattr(slabs, "_SLAB_BYTES", 60 * 32)


class Killer:
    """Kills workers at random moments while a block runs: up to `most`, one after the other."""

    def __init__(self, cluster, seed, most=3):
        self.cluster, self.most, self.killed = cluster, most, 0
        self.random = np.random.default_rng(seed)
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def __enter__(self):
        self.thread.start()
        return self

    def run(self):
        while self.killed < self.most and not self.over.wait(self.random.uniform(0, 0.3)):
            # A nanny whose worker dies while it starts gives up.
            running = [
                nanny.pid
                for nanny in list(self.cluster.workers.values())
                if nanny.status == Status.running
                and nanny.worker_address in self.cluster.scheduler.workers
            ]
            if running:
                os.kill(int(self.random.choice(running)), signal.SIGKILL)
                self.killed += 1

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    X, y = blobs(N_ROWS)
    group = zarr.create_group(tmp_path_factory.mktemp("rows"))
    group.create_array("X", data=X, chunks=(20, 4))
    group.create_array("bytes", data=bytes_of(X), chunks=(20, 4))
    group.create_array("y", data=y, chunks=(300,))
    return group


def bits(moments):
    return moments.state()[1]


@pytest.mark.parametrize("name", ["X", "bytes"])
@pytest.mark.usefixtures("client", "small_parts")
def test_a_fit_goes_on_where_workers_are_killed(cluster, stored, name):
    undisturbed = accumulate(stored[name], stored["y"])
    assert undisturbed.class_count.sum() == N_ROWS
    killed = 0
    for seed in range(2):
        with Killer(cluster, seed) as killer:
            found = accumulate(stored[name], stored["y"])
        killed += killer.killed
        assert_same_bits(bits(found), bits(undisturbed))
    assert killed


@pytest.mark.usefixtures("client", "small_parts")
def test_a_fit_to_dask_blocks_goes_on_where_workers_are_killed(cluster, stored):
    X = da.from_zarr(stored["X"]).rechunk((80, 4))
    y = da.from_zarr(stored["y"])
    undisturbed = accumulate(X, y)
    with Killer(cluster, 7) as killer:
        found = accumulate(X, y)
    assert killer.killed
    assert_same_bits(bits(found), bits(undisturbed))


@pytest.mark.usefixtures("client", "small_parts")
def test_scores_are_written_where_workers_are_killed(cluster, stored, tmp_path):
    fitted = make("full").fit(stored["X"][...], stored["y"][...])
    expected = fitted.predict_proba(stored["X"][...])
    for seed in range(2):
        out = zarr.create_array(
            tmp_path / f"{seed}", shape=expected.shape, dtype="f8", chunks=(20, 3), shards=(60, 3)
        )
        with Killer(cluster, seed) as killer:
            assert fitted.predict_proba(stored["X"], out=out) is out
        assert killer.killed
        np.testing.assert_array_equal(out[...], expected)


@pytest.mark.usefixtures("client")
def test_rows_that_kill_their_workers(cluster):
    def die(block):
        os._exit(1)

    cluster.scheduler.allowed_failures = 0
    rows = da.ones((4, 2), chunks=(4, 2)).map_blocks(die, meta=np.empty((0, 2)))
    with pytest.raises(ClusterError, match=r"workers died again.*too little memory.*allowed-fail"):
        accumulate(rows, [0, 1, 0, 1])


@pytest.mark.usefixtures("client")
def test_a_store_that_workers_do_not_see(cluster, stored, tmp_path):
    rows = zarr.create_array(tmp_path / "rows", data=np.ones((40, 2)), chunks=(10, 2))
    (tmp_path / "rows" / "zarr.json").unlink()
    with pytest.raises(ClusterError, match=r"a worker cannot open .*rows.*all of them see it"):
        accumulate(rows, np.arange(40) % 2)


def test_a_scheduler_that_is_killed(environment, tmp_path):
    def start(what, *arguments):
        command = [sys.executable, "-m", f"distributed.cli.dask_{what}", *arguments]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def wait(block):
        time.sleep(60)
        return block

    file = ["--scheduler-file", str(tmp_path / "scheduler.json")]
    scheduler = start("scheduler", "--no-dashboard", "--port", "0", *file)
    worker = start("worker", "--no-dashboard", "--no-nanny", "--death-timeout", "20", *file)
    try:
        with Client(scheduler_file=file[1], timeout=5) as client:
            client.wait_for_workers(1)
            rows = da.ones((4, 2), chunks=(4, 2)).map_blocks(wait, meta=np.empty((0, 2)))
            threading.Timer(0.5, scheduler.kill).start()
            with pytest.raises(ClusterError, match=r"the scheduler is gone.*run this again"):
                accumulate(rows, [0, 1, 0, 1])
    finally:
        for process in (worker, scheduler):
            process.kill()
            process.wait()
