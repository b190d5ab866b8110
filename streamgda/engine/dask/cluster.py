"""Computing on dask's active scheduler, and the failures of a cluster."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import dask

from streamgda.errors import ClusterError, cause_of


def compute(*collections: Any) -> tuple[Any, ...]:
    """Return the values of collections, as `dask.compute` does, from the thread that calls it.

    Inside of a task, dask lets another task take the place of the one that waits. It can do so
    for the thread of the task only.

    Raises
    ------
    ClusterError
        If the cluster fails, rather than what is computed.
    """
    if "distributed" not in sys.modules:
        return tuple(dask.compute(*collections))
    # Labels in memory and models have to be sent.
    with _failures(), dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
        return tuple(dask.compute(*collections))


@contextlib.contextmanager
def at_most(n_tasks: int) -> Iterator[None]:
    """Run no more tasks at a time on the threads of this process."""
    n_threads = dask.config.get("num_workers", None) or dask.system.CPU_COUNT
    limit = contextlib.nullcontext()
    if n_threads > n_tasks:
        limit = dask.config.set(pool=None, num_workers=n_tasks)
    with limit:
        yield


@contextlib.contextmanager
def _failures() -> Iterator[None]:
    from distributed import CancelledError, KilledWorker  # noqa: PLC0415
    from distributed.client import ClosedClientError  # noqa: PLC0415
    from distributed.comm import CommClosedError  # noqa: PLC0415

    try:
        yield
    except KilledWorker as error:
        raise ClusterError(
            f"workers died repeatedly on the same rows: {error} Give them more memory, or "
            f"fewer threads each, or keep less (covariance_type='tied' or 'diag', smaller blocks)"
        ) from cause_of(error)
    except (CancelledError, ClosedClientError, CommClosedError) as error:
        raise ClusterError(
            f"the scheduler has cancelled this work, or is gone ({error!r}): connect a Client and "
            f"run this again"
        ) from cause_of(error)
