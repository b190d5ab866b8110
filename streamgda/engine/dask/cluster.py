"""The active cluster, if there is one: finding it, computing on it, and its failures."""

from __future__ import annotations

import contextlib
import queue
import sys
import traceback
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import dask
from dask.callbacks import Callback

from streamgda.errors import ClusterError

_LARGE_BYTES = 10_000_000  # distributed warns of larger graphs


def active_client() -> Any:
    """Return the `distributed.Client` on which dask would compute, or None.

    There is none inside of a task: a task that waits for others could wait for itself.
    """
    if "distributed" not in sys.modules:
        return None
    from distributed import Client  # noqa: PLC0415

    if _worker() is not None:
        return None
    owner = getattr(dask.base.get_scheduler(), "__self__", None)
    return owner if isinstance(owner, Client) else None


def _worker() -> Any:
    """Return the worker that runs this task, or None."""
    if "distributed" not in sys.modules:
        return None
    from distributed import get_worker  # noqa: PLC0415

    try:
        return get_worker()
    except ValueError:
        return None


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
        ) from error


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


def new_topic() -> str:
    """Return a topic on which the tasks of one computation report progress."""
    return f"streamgda-{uuid.uuid4().hex}"


def compute(
    delayed: Sequence[Any],
    rows: Mapping[str, int] | None = None,
    topic: str = "",
    report: Callable[[int], None] | None = None,
    *,
    inner: Sequence[Any] = (),
    ended: Callable[[str, Callable[[], Any]], Iterable[str]] | None = None,
) -> list[Any]:
    """Compute on the active scheduler or client.

    Parameters
    ----------
    delayed : list of Delayed
    rows : dict of str to int
        Keys of the tasks that process rows, and the number of rows of each.
    topic : str
        Topic on which these tasks report progress; empty if they do not.
    report : callable
        Called with the rows done so far.
    inner : list of Delayed
        Tasks that lead to these and are held until they have ended, too.
    ended : callable
        Called with the key of each task that has ended and a function that fetches its result;
        returns the keys of tasks that need not be held any longer.

    Raises
    ------
    ClusterError
        If the cluster fails, rather than what is computed.
    """
    client = active_client()
    if client is None:
        keys = {task.key for task in (*delayed, *inner)} if ended else ()
        with _Counting(rows or {}, report, keys, ended):
            return list(dask.compute(*delayed))
    events: queue.SimpleQueue[Any] = queue.SimpleQueue()
    tasks = [*delayed, *inner]
    results: list[Any] = [None] * len(delayed)
    pending = set(range(len(delayed)))
    done: dict[int, int] = {}
    with (
        _failures(),
        _reported(client, topic, events),
        _large_graphs(),
        _held(client, tasks) as futures,
    ):
        numbers = {future.key: number for number, future in futures.items()}
        future = fetch = None
        try:
            for number, future in futures.items():
                future.add_done_callback(lambda _, number=number: events.put((number, None)))
            while pending:
                number, n_rows = events.get()
                if n_rows is not None:
                    # A part whose worker has died starts again.
                    done[number] = max(n_rows, done.get(number, 0))
                    if report:
                        report(sum(done.values()))
                elif number in futures:
                    # Released at once: results that are not held are not recomputed when a worker
                    # dies.
                    future = futures.pop(number)
                    fetch = partial(_fetched, future)
                    if number in pending or future.status == "error":
                        fetch = partial(_same, future.result())
                    if number in pending:
                        pending.remove(number)
                        results[number] = fetch()
                    for key in ended(future.key, fetch) if ended else ():
                        futures.pop(numbers[key], None)
                    future = fetch = None
        finally:
            future = fetch = None  # or the traceback of an error would hold them
            if ended and pending:  # tasks whose end has not been processed
                for number in [n for n in futures if futures[n].status == "finished"]:
                    ended(futures[number].key, partial(_fetched, futures.pop(number)))
    return results


@contextlib.contextmanager
def _held(client: Any, tasks: Sequence[Any]) -> Iterator[dict[int, Any]]:
    """Compute tasks; cancel those that are left in the dictionary of their futures at the end."""
    futures = dict(enumerate(client.compute(tasks)))
    try:
        yield futures
    except BaseException as error:
        # Results would be held by the variables of a traceback that somebody keeps.
        traceback.clear_frames(error.__traceback__)
        raise
    finally:
        client.cancel([*futures.values()])
        futures.clear()


def _fetched(future: Any) -> Any:
    with _failures():
        return future.result()


@contextlib.contextmanager
def _reported(client: Any, topic: str, events: queue.SimpleQueue[Any]) -> Iterator[None]:
    """Put the reports of tasks on a topic into a queue."""
    if not topic:
        yield
        return
    client.subscribe_topic(topic, lambda event: events.put(event[1]))
    try:
        yield
    finally:
        if client.status == "running":
            client.unsubscribe_topic(topic)


def report(topic: str, part: int, n_rows: int) -> None:
    """Report, inside of a task, how many rows of a part are done."""
    worker = _worker()
    if worker is not None:
        worker.log_event(topic, (part, n_rows))


class _Counting(Callback):
    """Reports rows that are done, and tasks that have ended, on the schedulers of dask itself."""

    def __init__(
        self,
        rows: Mapping[str, int],
        report: Callable[[int], None] | None,
        keys: Collection[str],
        ended: Callable[[str, Callable[[], Any]], Any] | None,
    ) -> None:
        super().__init__()
        self.rows, self.report, self.done = rows, report, 0
        self.keys, self.ended = keys, ended

    def _posttask(self, key: str, value: Any, *_: Any) -> None:
        if self.report and key in self.rows:
            # Blocks of unknown size report the rows that were counted.
            self.done += self.rows[key] or int(value.moments.class_count.sum())
            self.report(self.done)
        if self.ended and key in self.keys:
            self.ended(key, partial(_same, value))


@contextlib.contextmanager
def _failures() -> Iterator[None]:
    from distributed import CancelledError, KilledWorker  # noqa: PLC0415
    from distributed.comm import CommClosedError  # noqa: PLC0415
    from distributed.scheduler import NoValidWorkerError, NoWorkerError  # noqa: PLC0415

    try:
        yield
    except KilledWorker as error:
        raise ClusterError(
            f"workers died again and again over the same part of the rows: {error} Most often "
            f"they had too little memory: give them more, or fewer threads each, or keep less "
            f"(covariance_type='tied' or 'diag', fewer features). If they were removed on purpose, "
            f"raise distributed.scheduler.allowed-failures in the configuration of dask"
        ) from error
    except (NoWorkerError, NoValidWorkerError) as error:
        raise ClusterError(f"no worker is left to continue: {error}") from error
    except (CancelledError, CommClosedError) as error:
        raise ClusterError(
            f"the scheduler is gone, or has cancelled this work ({error!r}): start a cluster, "
            f"connect a Client to it and run this again"
        ) from error
