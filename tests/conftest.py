"""Shared fixtures: hypothesis settings, real threads, the command line, schedulers of dask."""

import contextlib
import math
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any

import dask
import numba
import numpy as np
import pytest
import zarr
from distributed import Client, LocalCluster
from distributed.utils import get_mp_context
from hypothesis import HealthCheck, settings
from threadpoolctl import threadpool_limits

from streamgda import PCA, QuadraticDiscriminantAnalysis
from streamgda.cli import main
from streamgda.datasets import convert
from streamgda.engine import plan, progress
from streamgda.runtime import threads

sys.path.insert(0, str(Path(__file__).parent))  # for `import naive` and the other helpers
import commands
import dask_rows
import stops
from commands import Command, Ended

# Kernels compile on first use, so there is no deadline. Examples are the same in every run;
# STREAMGDA_TESTS=thorough tries more of them.
for profile, max_examples in (("quick", 10), ("thorough", 40)):
    settings.register_profile(
        profile,
        deadline=None,
        max_examples=max_examples,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )
settings.load_profile(os.environ.get("STREAMGDA_TESTS", "quick"))


@pytest.fixture(scope="session", autouse=True)
def blas_of_one_thread() -> Iterator[None]:
    """Let BLAS use one thread, because several test processes share the cores."""
    with threadpool_limits(1, "blas"):
        yield


@pytest.fixture(scope="module")
def environment() -> Iterator[None]:
    """Restore the libraries' numbers of threads, which a nanny sets in this process too."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def use_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """A function that sets the number of threads, independent of the machine."""
    pools: dict[int, Any] = {}
    monkeypatch.setattr(threads, "_executors", pools)

    def use(n: int) -> None:
        monkeypatch.setattr(numba.config, "NUMBA_NUM_THREADS", n)
        monkeypatch.setattr(threads, "_cores", lambda: n)
        monkeypatch.setattr(threads, "_blas_threads", lambda: n)
        assert threads.n_threads() == n

    yield use
    for pool in pools.values():
        pool.shutdown()


# --- commands -----------------------------------------------------------------------------------


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command line in this process: the same entry point, but a second faster to start."""
    for name in ("FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    # However long kernels compile and the machine is busy, no line of progress is written.
    monkeypatch.setattr(progress, "_LINE_EVERY", math.inf)

    def run(*arguments: object) -> Ended:
        capfd.readouterr()
        with pytest.raises(SystemExit) as exit_:
            main([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return Ended(exit_.value.code if isinstance(exit_.value.code, int) else 0, out, err)

    return run


@pytest.fixture
def done(command: Command) -> Callable[..., str]:
    """Return the output of a command, which must succeed and write nothing to stderr."""

    def run(*arguments: object) -> str:
        ended = command(*arguments)
        assert (ended.code, ended.err) == (0, "")
        return ended.out

    return run


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with rows in a store of several chunks, and models of them."""
    folder = tmp_path_factory.mktemp("data")
    X, y = commands.rows()
    convert(X, y, folder / "rows.zarr", chunk_rows=50)
    convert(X, np.searchsorted(commands.NAMES, y), folder / "numbers.zarr", chunk_rows=50)
    convert(X, None, folder / "unlabelled.zarr")
    convert(X[:, :2], y, folder / "narrow.zarr")
    QuadraticDiscriminantAnalysis().fit(X, y).save(folder / "qda.zip")
    PCA(2).fit(X).save(folder / "pca.zip")
    (folder / "truncated.zip").write_bytes((folder / "qda.zip").read_bytes()[:500])
    return folder


# --- passes that are stopped --------------------------------------------------------------------


@pytest.fixture
def slabs_of() -> Iterator[Callable[[int], None]]:
    """A function that sets the bytes of slabs."""
    with contextlib.ExitStack() as stack:
        yield lambda n_bytes: stack.enter_context(plan.slabs_of(n_bytes))


@pytest.fixture
def small_slabs(slabs_of: Callable[[int], None]) -> None:
    """Read rows of `stops` one chunk at a time."""
    slabs_of(stops.SLAB * stops.X[0].nbytes)


# --- dask ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def forks(environment: None) -> Iterator[BaseContext]:
    """Fork processes from one that has imported everything, so that they start fast."""
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        context = get_mp_context()
        context.set_forkserver_preload(["distributed", "streamgda.engine.dask", "zarr"])
        yield context


@pytest.fixture(scope="module")
def processes(forks: BaseContext) -> Iterator[dict[str, Any]]:
    with ProcessPoolExecutor(2, mp_context=forks) as pool:
        yield {"scheduler": "processes", "pool": pool}


@pytest.fixture(scope="module")
def cluster(forks: BaseContext) -> Iterator[dict[str, Any]]:
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as workers,
        Client(workers, set_as_default=False) as client,
    ):
        yield {"scheduler": client}


@pytest.fixture(params=["threads", "processes", "cluster"])
def scheduler(request: pytest.FixtureRequest) -> Iterator[str]:
    """The schedulers, one after the other."""
    if request.param == "threads":
        config = {"scheduler": "threads"}
    else:
        config = request.getfixturevalue(request.param)
    with dask.config.set(config):
        yield request.param


@pytest.fixture
def client(cluster: dict[str, Any]) -> Iterator[Client]:
    with cluster["scheduler"].as_current():
        yield cluster["scheduler"]


@pytest.fixture
def in_this_thread() -> Iterator[None]:
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture
def stored(tmp_path: Path) -> tuple[zarr.Group, np.ndarray, np.ndarray]:
    return dask_rows.store(tmp_path / "rows")
