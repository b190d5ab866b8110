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
from distributed import Client, LocalCluster
from distributed.utils import get_mp_context
from samples import assert_same_bits, blobs, bytes_of, make

import streamgda
from streamgda import accumulate, slabs
from streamgda import distributed as streamgda_on_dask
from streamgda.errors import ClusterError

N_ROWS = 4000


@pytest.fixture(scope="module")
def environment():
    """A nanny sets the threads of libraries in this process, too."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="module")
def cluster(environment):
    """Workers that are forked off a process which has imported all: they are soon back."""
    settings = {
        "distributed.worker.multiprocessing-method": "forkserver",
        "distributed.scheduler.allowed-failures": 100,
    }
    with dask.config.set(settings):
        get_mp_context().set_forkserver_preload(["distributed", "streamgda.distributed", "zarr"])
        with LocalCluster(n_workers=3, threads_per_worker=1, dashboard_address=None) as workers:
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
    monkeypatch.setattr(slabs, "_SLAB_BYTES", 640)


class Killer:
    """Kills workers at random moments while a block runs: up to `most`, one after the other."""

    def __init__(self, cluster, seed, most=3):
        self.nannies = cluster.workers.values()
        self.alive = cluster.scheduler.workers
        self.random = np.random.default_rng(seed)
        self.most, self.killed = most, 0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def __enter__(self):
        self.thread.start()
        return self

    def run(self):
        while self.killed < self.most and not self.over.wait(self.random.uniform(0, 0.3)):
            up = [nanny.pid for nanny in self.nannies if nanny.worker_address in self.alive]
            up = [pid for pid in up if pid is not None]
            if up:
                os.kill(int(self.random.choice(up)), signal.SIGKILL)
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


def test_kills(client, cluster, small_parts, stored):
    t=time.time()
    ref=accumulate(stored["X"], stored["y"])
    print(time.time()-t, flush=True)
    for seed in range(12):
        t=time.time()
        with Killer(cluster, seed) as k:
            m=accumulate(stored["X"], stored["y"])
        print(seed, time.time()-t, k.killed, flush=True)
        assert_same_bits(m.state()[1], ref.state()[1])
