"""Fixtures that several folders use: threads, slabs, schedulers of dask, the command line."""

import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import dask
import numba
import pytest
from distributed import Client, LocalCluster
from distributed.utils import get_mp_context
from hypothesis import HealthCheck, settings
from threadpoolctl import threadpool_limits

from streamgda.cli import main
from streamgda.engine import plan, reading
from streamgda.runtime import threads

# Kernels compile on first use, so there is no deadline. Examples are the same in every run;
# `--hypothesis-profile=thorough` tries more of them.
for profile, max_examples in (("quick", 10), ("thorough", 40)):
    settings.register_profile(
        profile,
        deadline=None,
        max_examples=max_examples,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )
settings.load_profile("quick")


@pytest.fixture(scope="session", autouse=True)
def blas_of_one_thread() -> Iterator[None]:
    """Let BLAS use one thread, because several test processes share the cores."""
    with threadpool_limits(1, "blas"):
        yield


@pytest.fixture
def use_threads(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """A function that sets the number of threads, independent of the machine."""

    def use(n: int) -> None:
        monkeypatch.setattr(numba.config, "NUMBA_NUM_THREADS", n)
        monkeypatch.setattr(threads, "_cores", lambda: n)
        monkeypatch.setattr(threads, "_blas_threads", lambda: n)

    return use


@pytest.fixture
def slabs_of() -> Iterator[Callable[[int], None]]:
    """A function that sets the bytes of slabs."""
    before = plan.SLAB_BYTES.get()
    yield plan.SLAB_BYTES.set
    plan.SLAB_BYTES.set(before)


class Ended(NamedTuple):
    """The exit code and output of a command."""

    code: int
    out: str
    err: str


@pytest.fixture
def command(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Ended]:
    """The command line in this process: the same entry point, but a second faster to start."""
    for name in ("FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    # However long kernels compile and the machine is busy, no line of progress is written.
    monkeypatch.setattr(reading, "_LINE_EVERY", math.inf)

    def run(*arguments: object) -> Ended:
        capfd.readouterr()
        with pytest.raises(SystemExit) as exit_:
            main([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return Ended(exit_.value.code if isinstance(exit_.value.code, int) else 0, out, err)

    return run


# --- schedulers of dask, which are started once ---------------------------------------------------


@pytest.fixture(scope="session")
def forks() -> Iterator[Any]:
    """Fork processes from one that has imported everything, so that they start fast."""
    config = {
        "distributed.worker.multiprocessing-method": "forkserver"
        if hasattr(os, "fork")
        else "spawn",
        "distributed.nanny.pre-spawn-environ": {},  # Nannies would set it here, too.
    }
    with dask.config.set(config):
        context = get_mp_context()
        context.set_forkserver_preload(["distributed", "streamgda.engine.dask.accumulate", "zarr"])
        yield context


@pytest.fixture(scope="session")
def processes(forks: Any) -> Iterator[dict[str, Any]]:
    with ProcessPoolExecutor(2, mp_context=forks) as pool:
        yield {"scheduler": "processes", "pool": pool}


@pytest.fixture(scope="session")
def cluster(forks: Any) -> Iterator[dict[str, Any]]:
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as workers,
        Client(workers, set_as_default=False) as client,
    ):
        yield {"scheduler": client}


@pytest.fixture(params=["threads", "processes", "cluster"])
def scheduler(request: pytest.FixtureRequest) -> Iterator[str]:
    """The schedulers, one after the other."""
    threaded = {"scheduler": "threads"}
    chosen = threaded if request.param == "threads" else request.getfixturevalue(request.param)
    with dask.config.set(chosen):
        yield request.param


@pytest.fixture
def client(cluster: dict[str, Any]) -> Iterator[Client]:
    with cluster["scheduler"].as_current():
        yield cluster["scheduler"]


@pytest.fixture
def in_this_thread() -> Iterator[None]:
    with dask.config.set(scheduler="synchronous"):
        yield
