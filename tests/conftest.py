"""What tests share: helpers on the path, hypothesis settings, real threads, commands, clusters."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numba
import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from streamgda import QuadraticDiscriminantAnalysis, threads
from streamgda.cli import main
from streamgda.datasets import convert

sys.path.insert(0, str(Path(__file__).parent))  # for `import naive` and the other helpers
from commands import NAMES, Command, Ended, rows

# Kernels compile on first use, which no deadline allows for.
settings.register_profile(
    "streamgda",
    deadline=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("streamgda")


@pytest.fixture(scope="module")
def environment() -> Iterator[None]:
    """A nanny of distributed sets the threads of libraries in this process, too: set them back."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def use_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """A function that gives streamgda that many threads, whatever the machine has."""
    pools = []

    def use(n: int) -> None:
        monkeypatch.setattr(numba.config, "NUMBA_NUM_THREADS", n)
        monkeypatch.setattr(threads, "_cores", lambda: n)
        monkeypatch.setattr(threads, "_blas_threads", lambda: n)
        monkeypatch.setattr(threads, "_pool", None)
        pools.append(threads._executor())
        assert threads.n_threads() == n

    yield use
    for pool in pools:
        pool.shutdown()


# --- commands -----------------------------------------------------------------------------------


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command line in this process: the same entry point, a second less to start."""
    for name in ("FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: object) -> Ended:
        capfd.readouterr()
        with pytest.raises(SystemExit) as exit_:
            main([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return Ended(exit_.value.code if isinstance(exit_.value.code, int) else 0, out, err)

    return run


@pytest.fixture
def done(command: Command) -> Callable[..., str]:
    """What a command writes to stdout; it must succeed, and be silent on stderr."""

    def run(*arguments: object) -> str:
        ended = command(*arguments)
        assert (ended.code, ended.err) == (0, "")
        return ended.out

    return run


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with rows in a store of several chunks, and models of them."""
    folder = tmp_path_factory.mktemp("data")
    X, y = rows()
    convert(X, folder / "rows.zarr", labels=y, chunk_rows=50)
    convert(X, folder / "numbers.zarr", labels=np.searchsorted(NAMES, y), chunk_rows=50)
    convert(X, folder / "unlabelled.zarr")
    convert(X[:, :2], folder / "narrow.zarr", labels=y)
    QuadraticDiscriminantAnalysis().fit(X, y).save(folder / "qda.zip")
    (folder / "truncated.zip").write_bytes((folder / "qda.zip").read_bytes()[:500])
    return folder
