"""Threads: every parallel loop of the package goes through `run` or `imap`.

Kernels are serial and release the GIL, so plain Python threads scale, and nothing here can
meet Numba's ``workqueue`` layer, which aborts the process when two threads enter it at once.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from queue import SimpleQueue
from typing import Any, TypeVar

import numba
import numpy as np
from threadpoolctl import ThreadpoolController

from streamgda.runtime.interruption import Lock, results, uninterrupted

Result = TypeVar("Result")

# A context variable, because calls on other threads get that of the caller.
_limit: ContextVar[int | None] = ContextVar("limit", default=None)


def n_threads() -> int:
    """Return the number of threads that the calling thread may use.

    This is the smallest of the number of cores, Numba's number of threads, that of the BLAS (so
    that ``threadpoolctl`` limits hold), and the number given to `limit`.
    """
    allowed: int = min(numba.config.NUMBA_NUM_THREADS, _cores(), _blas_threads())
    limit = _limit.get()
    return max(1, allowed if limit is None else min(allowed, limit))


class _BlasUser:
    """A user of BLAS who needs it to use one thread per call, until it is done."""

    done = False


_blas_lock = Lock()
_blas_users: list[_BlasUser] = []
_blas_before: list[int | None] | None = None  # threads of the libraries; None without a limit


@contextmanager
def serial_blas() -> Iterator[None]:
    """Limit BLAS and LAPACK to one thread per call inside the ``with`` block; `run` is not limited.

    The number of the libraries' threads is a setting of the whole process. It is restored when no
    block, on any thread, needs the limit any more. This is for code that exceptions from outside do
    not reach (see `runtime.interruption`): one that arrives on the way into the block or out of it
    would leave the limit until the next block ends. Other code calls `call_serial_blas`.
    """
    user = _BlasUser()
    try:
        _settle_blas(user)
        yield
    finally:
        user.done = True
        _settle_blas()


def call_serial_blas(function: Callable[..., Result], *arguments: Any) -> Result:
    """Call a function within `serial_blas`; no interruption leaves the limit behind."""
    user = _BlasUser()
    try:
        _settle_blas(user)
        result = function(*arguments)
    finally:
        user.done = True  # without a call, before which another exception could be raised
        try:
            _settle_blas()
        except BaseException:
            _settle_blas()
            raise
    return result


_NO_GAIN = range(65, 513)  # features of matrices that BLAS shares among threads to no advantage


def call_blas(d: int, function: Callable[..., Result], *arguments: Any) -> Result:
    """Call a function of matrices of `d` features, on one thread where more would gain nothing.

    The threads of BLAS spin while they wait for each other. Where other processes use the cores,
    that takes many times as long as the work; matrices that are smaller have one thread anyway.
    """
    if d in _NO_GAIN:
        return call_serial_blas(function, *arguments)
    return function(*arguments)


def _settle_blas(*users: _BlasUser) -> None:
    """Limit BLAS to one thread if these or other users need that; otherwise undo the limit.

    Interrupted half-way, it is complete after another call.
    """
    global _blas_users, _blas_before  # noqa: PLW0603
    with _blas_lock:
        _blas_users = [user for user in (*_blas_users, *users) if not user.done]
        libraries = _blas().lib_controllers
        if _blas_before is None and _blas_users:
            _blas_before = [library.num_threads for library in libraries]
        for library, before in zip(libraries, _blas_before or (), strict=False):
            wanted = 1 if _blas_users else before
            if wanted and library.num_threads != wanted:
                _set_blas_threads(library, wanted)
        if not _blas_users:
            _blas_before = None


def _set_blas_threads(library: Any, n: int) -> None:
    # Of OpenBLAS, threadpoolctl lets only the first thread that asked change the number.
    release = getattr(library, "clear_controlling_thread", lambda **_: None)
    release(force=True)
    library.set_num_threads(n)
    release(force=True)


@cache
def _blas() -> ThreadpoolController:
    import scipy.linalg.cython_blas  # noqa: F401, PLC0415  (only loaded libraries are found)

    return ThreadpoolController().select(user_api="blas")


def _blas_threads() -> int:
    numbers = _blas_before  # of the libraries without our limit
    if numbers is None:
        numbers = [library.num_threads for library in _blas().lib_controllers]
    return min((n for n in numbers if n), default=_cores())


@contextmanager
def limit(n: int) -> Iterator[None]:
    """Let the calling thread use at most `n` threads inside the ``with`` block."""
    before = _limit.get()
    token = _limit.set(n if before is None else min(n, before))
    try:
        yield
    finally:
        _limit.reset(token)


def run_serial_blas(
    function: Callable[..., Result], calls: Iterable[tuple[Any, ...]]
) -> list[Result]:
    """Call `run` within `serial_blas`; no interruption leaves the limit behind."""
    return call_serial_blas(run, function, calls)


def run(function: Callable[..., Result], calls: Iterable[tuple[Any, ...]]) -> list[Result]:
    """Call ``function(*arguments)`` on all allowed threads; return the results in order."""
    calls = list(calls)
    if len(calls) == 1:  # not worth waking up a thread
        return [function(*calls[0])]
    return list(imap(function, calls, ahead=None))


class Turns:
    """Turns of the calls of `run_in_turns`, in which they change what they share."""

    def __init__(self) -> None:
        self._taken: Counter[Hashable] = Counter()
        self._failed = False
        self._changed = threading.Condition()

    @contextmanager
    def turn(self, place: Hashable, number: int) -> Iterator[None]:
        """Wait until as many turns have been taken at a place, and take the next one."""
        with self._changed:
            self._changed.wait_for(lambda: self._failed or self._taken[place] == number)
        yield
        with self._changed:
            self._taken[place] += 1
            self._changed.notify_all()

    def fail(self) -> None:
        """Let no call wait any more, because one has failed, whose turns will not be taken."""
        with self._changed:
            self._failed = True
            self._changed.notify_all()


def run_in_turns(function: Callable[..., Result], calls: Iterable[tuple[Any, ...]]) -> list[Result]:
    """Call ``function(turns, *arguments)`` as `run` does; calls wait for turns of others.

    Those before a call have started, so no call waits for ever. This is for code that exceptions
    from outside do not reach (see `runtime.interruption`): they would keep calls from starting.
    """
    turns = Turns()

    def call(*arguments: Any) -> Result:
        try:
            return function(turns, *arguments)
        except BaseException:
            turns.fail()
            raise

    return run(call, calls)


def imap(
    function: Callable[..., Result],
    calls: Iterable[tuple[Any, ...]],
    *,
    ahead: int | None = 0,
) -> Generator[Result]:
    """Yield the results in order, with at most ``n_threads() + ahead`` calls in progress.

    Because of the order, what is computed from the results does not depend on which thread was
    first. ``ahead=None`` submits all calls at once. The calling thread takes part while it waits.
    When the iterator ends or is closed, no call is running, even if the calling thread was
    interrupted; see `results`.
    """
    n = n_threads()
    if n == 1:
        for arguments in calls:
            yield function(*arguments)
        return
    most = None if ahead is None else n + ahead
    alone = ((_alone, (function, arguments)) for arguments in calls)
    yield from results(_executor(n - 1).submit, alone, most, helping=True)


def in_background(function: Callable[..., Any], calls: Iterable[tuple[Any, ...]]) -> None:
    """Call ``function(*arguments)`` one after another on one thread, which is one call behind.

    Meanwhile the calling thread computes the next arguments. If that fails or is interrupted, the
    calls before it are complete afterwards; no call is running in any case.
    """
    failures: list[BaseException] = []

    def pairs() -> Iterator[tuple[Callable[..., Any], tuple[Any, ...]]]:
        try:
            for arguments in calls:
                yield function, arguments
        except BaseException as error:
            failures.append(error)

    thread = _Pool(1)
    try:
        list(results(thread.submit, pairs(), 2))
    finally:
        thread.shutdown()
    if failures:
        raise failures.pop()


def one_ahead(
    function: Callable[..., Result], calls: Iterable[tuple[Any, ...]]
) -> Generator[Result]:
    """Yield the results of calls on one thread, which is one call ahead; they only read.

    When the iterator is closed, it waits for a running call; a second interruption ends that.
    """
    thread = _Pool(1)
    try:
        ahead = ((function, arguments) for arguments in calls)
        yield from results(thread.submit, ahead, 2, patient=False)
    finally:
        thread.shutdown()


def _alone(function: Callable[..., Result], arguments: tuple[Any, ...]) -> Result:
    # A call never submits to the pool: that could wait for itself. It has a context of its own.
    _limit.set(1)
    return function(*arguments)


class _Pool:
    """Threads that run tasks, first come, first served.

    The executors of `concurrent.futures` would not survive interruptions: their locks may stay
    locked.
    """

    def __init__(self, n: int) -> None:
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._n = n
        for i in range(n):
            name = f"streamgda-{i}"
            uninterrupted(threading.Thread(target=self._work, name=name, daemon=True).start)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()
            del task  # and its result

    def submit(self, task: Callable[[], None]) -> None:
        """Run a task when a thread is free."""
        self._tasks.put(task)

    def shutdown(self) -> None:
        """End the threads, after all tasks."""
        for _ in range(self._n):
            self._tasks.put(None)


_ALMOST_32_MIB = (1 << 25) - (1 << 13)  # a larger array is none that the C library learns from

_lock = Lock()
_pools: dict[int, _Pool] = {}  # by the number of their threads


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every platform
        return os.cpu_count() or 1


def _executor(n: int) -> _Pool:
    """Return the pool of so many threads: with fewer allowed than there are cores, no more run."""
    with _lock:
        if n not in _pools:
            _keep_freed_memory()
            _pools[n] = _Pool(n)
        return _pools[n]


def _keep_freed_memory() -> None:
    """Have the C library keep up to 64 MiB that are freed, as it does for larger programs.

    Linux's returns to the system what a call frees, unless an array of up to 32 MiB was freed
    before. The next call then waits for each page again: sums of many classes, of which each thread
    makes its own, take up to four times as long. This frees such an array, without touching it.
    """
    np.empty(_ALMOST_32_MIB, np.uint8)


def _forget_threads() -> None:
    _pools.clear()
    _blas_users.clear()


if hasattr(os, "register_at_fork"):  # threads do not survive a fork
    os.register_at_fork(after_in_child=_forget_threads)
