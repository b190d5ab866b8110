"""What all tests share: the oracle's folder on the path, hypothesis settings, real threads."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numba
import pytest
from hypothesis import HealthCheck, settings

from streamgda import threads

sys.path.insert(0, str(Path(__file__).parent))  # for `import naive`

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
