"""The one door to threads: every parallel loop of the package goes through `run` or `imap`.

Kernels are serial and release the GIL, so plain Python threads scale, and nothing here can
meet Numba's ``workqueue`` layer, which aborts the process when two threads enter it at once.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

import numba
from threadpoolctl import ThreadpoolController

Result = TypeVar("Result")

_local = threading.local()
_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None


def n_threads() -> int:
    """Return the number of threads that the calling thread may use.

    This is the smallest of the number of cores, Numba's number of threads, that of the BLAS (so
    that ``threadpoolctl`` limits hold), and the number given to `limit`.
    """
    allowed: int = min(numba.config.NUMBA_NUM_THREADS, _cores(), _blas_threads())
    return max(1, min(allowed, getattr(_local, "limit", allowed)))


@contextmanager
def serial_blas() -> Iterator[None]:
    """Limit BLAS and LAPACK to one thread per call inside the ``with`` block; `run` is not limited.

    The number of the libraries' threads is a setting of the whole process. If blocks of several
    threads overlap, ``threadpoolctl`` lets the first of them set and restore it.
    """
    allowed = _blas_threads()
    with _blas().limit(limits=1):
        _local.blas = allowed
        try:
            yield
        finally:
            del _local.blas


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


def _blas_threads() -> int:
    if hasattr(_local, "blas"):  # set aside by `serial_blas`
        return int(_local.blas)
    numbers = [library.num_threads for library in _blas().lib_controllers]
    return min((n for n in numbers if n), default=_cores())


@contextmanager
def limit(n: int) -> Iterator[None]:
    """Let the calling thread use at most `n` threads inside the ``with`` block."""
    before = getattr(_local, "limit", None)
    _local.limit = n if before is None else min(n, before)
    try:
        yield
    finally:
        if before is None:
            del _local.limit
        else:
            _local.limit = before


def run(function: Callable[..., Result], calls: Iterable[tuple[Any, ...]]) -> list[Result]:
    """Call ``function(*arguments)`` on all allowed threads; return the results in order."""
    calls = list(calls)
    if len(calls) == 1:  # not worth waking up a thread
        return [function(*calls[0])]
    return list(imap(function, calls, ahead=None))


def imap(
    function: Callable[..., Result],
    calls: Iterable[tuple[Any, ...]],
    *,
    ahead: int | None = 0,
) -> Iterator[Result]:
    """Yield the results in order, with at most ``n_threads() + ahead`` calls in progress.

    Because of the order, what is computed from the results does not depend on which thread was
    first. ``ahead=None`` submits all calls at once.
    """
    n = n_threads()
    if n == 1:
        for arguments in calls:
            yield function(*arguments)
        return
    pool = _executor()
    waiting: deque[Future[Result]] = deque()
    try:
        for arguments in calls:
            waiting.append(pool.submit(_alone, function, arguments))
            if ahead is not None and len(waiting) >= n + ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


def _alone(function: Callable[..., Result], arguments: tuple[Any, ...]) -> Result:
    # A pool thread never submits to the pool: that could wait for itself.
    with limit(1):
        return function(*arguments)


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every platform
        return os.cpu_count() or 1


def _executor() -> ThreadPoolExecutor:
    global _pool  # noqa: PLW0603
    with _lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(_cores(), thread_name_prefix="streamgda")
        return _pool


def _forget_pool() -> None:
    global _pool, _lock
    _pool, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):  # threads do not survive a fork
    os.register_at_fork(after_in_child=_forget_pool)
