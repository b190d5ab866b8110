"""The active cluster, if there is one: finding it, computing on it, and its failures."""

from __future__ import annotations

import contextlib
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import dask
from dask.callbacks import Callback
from dask.system import CPU_COUNT

from streamgda.errors import ClusterError, cause_of

_LARGE_BYTES = 10_000_000  # distributed warns of larger graphs
_EXPECTED_THREADS = 8
_PATIENCE = 30.0  # seconds without a result, after which somebody looks after the workers

Ended = Callable[[int, Any], object]  # called with the number of a task, and its result


def active_client() -> Any:
    """Return the `distributed.Client` on which dask would compute, or None.

    There is none inside of a task: a task that waits for others could wait for itself.
    """
    if "distributed" not in sys.modules:
        return None
    from distributed import Client, get_worker  # noqa: PLC0415

    try:
        get_worker()
    except ValueError:  # not inside of a task
        owner = getattr(dask.base.get_scheduler(), "__self__", None)
        return owner if isinstance(owner, Client) else None
    return None


def n_threads() -> int:
    """Return the threads of the active scheduler, or of all workers of the active client.

    Some are expected of any cluster, as workers may join.
    """
    client = active_client()
    if client is not None:
        with _failures():
            return max(_EXPECTED_THREADS, sum(client.nthreads().values()))
    if dask.base.get_scheduler() is dask.get:
        return 1
    pool = dask.config.get("pool", None)
    n_pool = getattr(pool, "_max_workers", None) or getattr(pool, "_processes", None)
    return n_pool or dask.config.get("num_workers", None) or CPU_COUNT


@contextlib.contextmanager
def at_most(n_tasks: int) -> Iterator[None]:
    """Run no more tasks at a time, if this process runs them."""
    if active_client() is not None or n_threads() <= n_tasks:
        yield
        return
    with dask.config.set(pool=None, num_workers=n_tasks):
        yield


# --- stores and functions that are sent ---------------------------------------------------------


def check_opens(X: Any) -> None:
    """Raise `ClusterError` if this process cannot open a zarr array.

    Missing chunks are read as fill values: on a machine without the store, all rows would be
    zeros.
    """
    path = getattr(X, "store_path", None)
    if path is None:
        return
    import zarr  # noqa: PLC0415

    try:
        zarr.open_array(path, mode="r")
    except Exception as error:  # each store has its own exceptions
        raise ClusterError(
            f"a worker cannot open {path}: {error!r}. Workers read stores themselves: put it where "
            f"all of them find it under the same path or URL"
        ) from cause_of(error)


def hold(value: Any, n_bytes: int) -> Any:
    """Return a value of that size as one node of a graph, however many tasks use it.

    A large one is sent to the scheduler of the active client at once, from which workers that
    join later get it, too; results that depend on it belong to that client.
    """
    client = active_client()
    if client is None or n_bytes < _LARGE_BYTES:
        return dask.delayed(value, pure=False)
    with _large_graphs(), _failures():
        return client.submit(_same, value, pure=False)


def _same(value: Any) -> Any:
    return value


@contextlib.contextmanager
def _large_graphs() -> Iterator[None]:
    """Suppress warnings of large objects that must be sent: labels of a store, or a model."""
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
        yield


# --- computing ----------------------------------------------------------------------------------


def compute(tasks: Sequence[Any], ended: Ended | None = None) -> list[Any]:
    """Return the results of tasks on the active scheduler or client.

    Parameters
    ----------
    tasks : list of Delayed, or of other collections
    ended : callable, optional
        Called as ``ended(number, result)`` for each of the tasks when it has ended. Results are
        then not held here, and none are returned. After an error or an interruption, it gets those
        that are complete.

    Raises
    ------
    ClusterError
        If the cluster fails, rather than what is computed.
    """
    results: dict[int, Any] = {}
    client = active_client()
    if client is None:
        with _Watching(tasks, ended) if ended else contextlib.nullcontext():
            found = dask.compute(*tasks)
        return [] if ended else [*found]
    take = ended or results.__setitem__
    with _failures(), _large_graphs(), _held(client, tasks) as futures:
        numbers = {key: number for number, key in enumerate(futures)}
        done = future = None
        try:
            done = _Arrivals(client, futures)
            while futures:
                future = done.next()
                # Released at once: results that are not held are not recomputed when a worker
                # dies.
                del futures[future.key]
                take(numbers[future.key], future.result())
                future = None
        finally:
            done = future = None  # or the traceback of an error would hold results
            with contextlib.suppress(ClusterError), _failures():
                for key in [key for key, held in futures.items() if held.status == "finished"]:
                    take(numbers[key], futures.pop(key).result())
    return [results[number] for number in range(len(results))]


def begun(
    keys: Sequence[Any], task: Callable[[Any], Any], n: int, ended: Callable[[int], object]
) -> dict[Any, Any]:
    """Begin `n` tasks, and return them or all tasks, depending on whether the first was costly.

    Parameters
    ----------
    keys : sequence
    task : callable
        Returns the delayed task of a key, whose result has attributes `costly` and `n_rows`.
    n : int
    ended : callable
        Called with the rows of each task that ended here; on a cluster, with those of the first.

    Returns
    -------
    dict
        Results or futures of tasks that were begun, and delayed ones of others, by their keys.
    """
    tasks, client = [task(key) for key in keys[:n]], active_client()
    if not tasks:
        return {}
    if client is None:
        found: dict[int, Any] = {}

        def take(number: int, result: Any) -> None:
            found[number] = result
            ended(result.n_rows)

        compute(tasks, take)
        costly = found[0].costly
        tasks = [dask.delayed(found[number], traverse=False) for number in range(len(tasks))]
    else:
        tasks, costly, n_rows = _begun_there(client, tasks)
        ended(n_rows)
    if costly:
        tasks += map(task, keys[n:])
    return dict(zip(keys, tasks, strict=False))


def _begun_there(client: Any, tasks: list[Any]) -> tuple[list[Any], bool, int]:
    """Return futures of the tasks; whether the first to end was costly, and its rows."""
    with _failures(), _large_graphs(), _held(client, tasks) as futures:
        done, about = _Arrivals(client, futures).next(), (False, 0)
        if done.status != "error":
            about = client.submit(_costly, done, pure=False).result()
        begun = [*futures.values()]
        futures.clear()  # so that they are not cancelled
        return begun, *about


class _Arrivals:
    """Futures in the order in which they end.

    While there are none, a warning says if no worker is there to compute them.
    """

    def __init__(self, client: Any, futures: Mapping[str, Any]) -> None:
        from distributed import as_completed  # noqa: PLC0415

        self._client = client
        self._done = as_completed([*futures.values()], loop=client.loop)

    def next(self) -> Any:
        """Wait for the next future."""
        since = time.monotonic()
        while not (self._done.has_ready() or self._done.is_empty()):
            with self._done.thread_condition:
                self._done.thread_condition.wait(0.1)
            if time.monotonic() - since > _PATIENCE:
                since = time.monotonic()
                self._warn()
        return next(self._done)

    def _warn(self) -> None:
        scheduler = self._client.scheduler_info(n_workers=-1)
        workers = [worker["status"] for worker in scheduler["workers"].values()]
        if "running" in workers:
            return
        what = (
            f"all {len(workers)} workers are paused, as their memory is full"
            if workers
            else ("no worker is connected")
        )
        warnings.warn(
            f"nothing has been computed for {_PATIENCE:.0f} s: {what} to {scheduler['address']}. "
            f"The work goes on once a worker can take it: start workers with that address, or stop "
            f"with Ctrl-C, which keeps what a checkpoint holds",
            RuntimeWarning,
            stacklevel=2,
        )


def _costly(result: Any) -> tuple[bool, int]:
    return result.costly, result.n_rows


@contextlib.contextmanager
def _held(client: Any, tasks: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """Compute tasks; provide their futures by their keys, in order.

    Tasks that are left in the dictionary at the end are cancelled.
    """
    futures = {future.key: future for future in client.compute(tasks)}
    try:
        yield futures
    except BaseException as error:
        _clear_frames(error)
        raise
    finally:
        if client.status == "running":
            client.cancel([*futures.values()])
        futures.clear()


def _clear_frames(error: BaseException) -> None:
    """Clear the variables of a traceback that somebody may keep, as they hold results.

    `distributed` cuts frames out of it, which the frames that they called still refer to.
    """
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    for outer, inner in pairwise(frames):
        cut, frame = [], inner.f_back
        while frame is not None and frame is not outer:
            cut.append(frame)
            frame = frame.f_back
        for each in cut if frame is outer else []:  # not those of other threads
            with contextlib.suppress(RuntimeError):  # it is running
                each.clear()
    traceback.clear_frames(error.__traceback__)


class _Watching(Callback):
    """Calls `ended` for tasks that end on the schedulers of dask itself."""

    def __init__(self, tasks: Sequence[Any], ended: Ended) -> None:
        super().__init__()
        self.numbers = {task.key: number for number, task in enumerate(tasks)}
        self.ended = ended

    def _posttask(self, key: str, value: Any, graph: Any, state: Any, worker: Any) -> None:
        if key in self.numbers:
            state["cache"][key] = None  # no other task needs it
            self.ended(self.numbers[key], value)


@contextlib.contextmanager
def _failures() -> Iterator[None]:
    from distributed import CancelledError, KilledWorker  # noqa: PLC0415
    from distributed.client import ClosedClientError  # noqa: PLC0415
    from distributed.comm import CommClosedError  # noqa: PLC0415
    from distributed.scheduler import NoValidWorkerError, NoWorkerError  # noqa: PLC0415

    try:
        yield
    except KilledWorker as error:
        raise ClusterError(
            f"workers died again and again over the same part of the rows: {error} Most often "
            f"they had too little memory: give them more, or fewer threads each, or keep less "
            f"(covariance_type='tied' or 'diag', fewer features, smaller blocks). If they were "
            f"removed on purpose, raise distributed.scheduler.allowed-failures in the "
            f"configuration of dask"
        ) from cause_of(error)
    except (NoWorkerError, NoValidWorkerError) as error:
        raise ClusterError(f"no worker is left to continue: {error}") from cause_of(error)
    except (CancelledError, ClosedClientError, CommClosedError) as error:
        raise ClusterError(
            f"the scheduler is gone, or has cancelled this work, or the client was restarted or "
            f"closed ({error!r}): start a cluster, connect a Client to it and run this again"
        ) from cause_of(error)
