"""The cluster, if one is active: what it is, computing on it, and what it says when it fails."""

from __future__ import annotations

import contextlib
import pickle
import queue
import sys
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import dask
from dask.callbacks import Callback

from streamgda.errors import ClusterError
from streamgda.rows.sources import is_store

_LARGE_BYTES = 10_000_000  # of a graph that holds more, distributed warns
_REFERENCE_BYTES = 1_000_000  # a store that is larger as a pickle holds rows itself


def active_client() -> Any:
    """The `distributed.Client` that dask would compute on, or None.

    There is none inside of a task: one that waits for others could wait for itself.
    """
    if "distributed" not in sys.modules:
        return None
    from distributed import Client  # noqa: PLC0415

    if _worker() is not None:
        return None
    owner = getattr(dask.base.get_scheduler(), "__self__", None)
    return owner if isinstance(owner, Client) else None


def _worker() -> Any:
    """The worker whose task this is, or None."""
    if "distributed" not in sys.modules:
        return None
    from distributed import get_worker  # noqa: PLC0415

    try:
        return get_worker()
    except ValueError:
        return None


# --- stores and functions that are sent ---------------------------------------------------------


def travels(X: Any) -> bool:
    """Whether workers can open this store themselves: it is sent as where it is."""
    if not is_store(X) or type(getattr(X, "store", None)).__name__ == "MemoryStore":
        return False
    try:
        return len(pickle.dumps(X)) < _REFERENCE_BYTES
    except Exception:  # whatever is raised by a store that cannot be sent, such as HDF5's
        return False


def check_seen(X: Any) -> None:
    """Raise `ClusterError` where this process does not see a zarr array.

    Chunks that are not there are read as fill values: on a machine without the store, all rows
    would be zeros.
    """
    path = getattr(X, "store_path", None)
    if path is None:
        return
    import zarr  # noqa: PLC0415

    try:
        zarr.open_array(path, mode="r")
    except Exception as error:  # as many kinds as there are stores
        raise ClusterError(
            f"a worker cannot open {path}: {error!r}. Workers read stores themselves: put it where "
            f"all of them see it, under the same path or URL"
        ) from error


def hold(value: Any, n_bytes: int) -> Any:
    """A value of that size as something that stands in a graph once, however many tasks take it.

    A large one is sent to the active client's scheduler at once, from where workers get it that
    come later, too; what is made with it belongs to that client.
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
    """No warning of what has to be sent: the labels beside a store, or a model."""
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
        yield


# --- computing ----------------------------------------------------------------------------------


def new_topic() -> str:
    """A name under which the tasks of one computation `tell` of their progress."""
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
    """Compute on whatever scheduler or client is active.

    Parameters
    ----------
    delayed : list of Delayed
    rows : dict of str to int
        The tasks that rows go through, by their keys, and how many go through each.
    topic : str
        What these tasks `tell` of their progress under; empty where they do not.
    report : callable
        Given the rows done so far.
    inner : list of Delayed
        Tasks that lead to these, the ends of which are told too, and which are held until then.
    ended : callable
        Given the key of each of the tasks when it has ended, and what fetches its result. Gives the
        keys of those that are not to be held any longer.

    Raises
    ------
    ClusterError
        Where the cluster fails, rather than what is computed.
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
    with _failures(), _told(client, topic, events), _large_graphs():
        futures = dict(enumerate(client.compute(tasks)))
        numbers = {future.key: number for number, future in futures.items()}
        try:
            for number, future in futures.items():
                future.add_done_callback(lambda _, number=number: events.put((number, None)))
            while pending:
                number, n_rows = events.get()
                if n_rows is not None:
                    # A part whose worker has died begins again.
                    done[number] = max(n_rows, done.get(number, 0))
                    if report:
                        report(sum(done.values()))
                elif number in futures:
                    # Let go of at once: what is not held is not made again where a worker dies.
                    future = futures.pop(number)
                    fetch = partial(_fetched, future)
                    if number in pending or future.status == "error":
                        fetch = partial(_same, future.result())
                    if number in pending:
                        pending.remove(number)
                        results[number] = fetch()
                    for key in ended(future.key, fetch) if ended else ():
                        futures.pop(numbers[key], None)
                    del future, fetch  # which the traceback of an error would hold
        finally:
            if ended and pending:  # what has ended and was not heard of
                for number in [n for n in futures if futures[n].status == "finished"]:
                    ended(futures[number].key, partial(_fetched, futures.pop(number)))
            client.cancel([*futures.values()])
            futures.clear()
    return results


def _fetched(future: Any) -> Any:
    with _failures():
        return future.result()


@contextlib.contextmanager
def _told(client: Any, topic: str, events: queue.SimpleQueue[Any]) -> Iterator[None]:
    """What tasks tell of goes into a queue."""
    if not topic:
        yield
        return
    client.subscribe_topic(topic, lambda event: events.put(event[1]))
    try:
        yield
    finally:
        if client.status == "running":
            client.unsubscribe_topic(topic)


def tell(topic: str, part: int, n_rows: int) -> None:
    """Say, inside of a task, how many rows of a part are done."""
    worker = _worker()
    if worker is not None:
        worker.log_event(topic, (part, n_rows))


class _Counting(Callback):
    """Reports the rows of parts that are done, and tasks that have ended, on dask's schedulers."""

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
            # Of blocks of unknown size, those that were counted.
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
            f"(covariance_type='tied' or 'diag', fewer features). If they were taken away, raise "
            f"distributed.scheduler.allowed-failures in dask's configuration"
        ) from error
    except (NoWorkerError, NoValidWorkerError) as error:
        raise ClusterError(f"no worker is left that could go on: {error}") from error
    except (CancelledError, CommClosedError) as error:
        raise ClusterError(
            f"the scheduler is gone, or has cancelled this work ({error!r}): start a cluster, "
            f"connect a Client to it and run this again"
        ) from error
