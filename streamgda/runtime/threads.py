"""Threads: every parallel loop of the package goes through `run` or `imap`; BLAS and LAPACK.

Kernels are serial and release the GIL, so plain Python threads scale, and nothing here can
meet Numba's ``workqueue`` layer, which aborts the process when two threads enter it at once.

Executors are used while interrupts are deferred: one that is raised within a condition of
`concurrent.futures` would leave it locked.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar, copy_context
from functools import cache
from itertools import islice
from typing import Any, TypeVar

import numba
import numpy as np
from numba.extending import get_cython_function_address
from threadpoolctl import ThreadpoolController

from streamgda.runtime.interruption import deferred_interrupts

Result = TypeVar("Result")

_PAUSE = 0.05  # Seconds between two looks at signals, while calls are running.
_NO_GAIN = range(65, 513)  # Threads of BLAS gain nothing on matrices of so many features.

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


@contextmanager
def limit(n: int) -> Iterator[None]:
    """Let the calling thread use at most `n` threads inside the ``with`` block."""
    before = _limit.get()
    token = _limit.set(n if before is None else min(n, before))
    try:
        yield
    finally:
        _limit.reset(token)


def _cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)  # Some platforms lack it.
    return len(affinity(0)) if affinity else os.cpu_count() or 1


# --- calls on several threads -----------------------------------------------------------------


def run(function: Callable[..., Result], calls: Iterable[tuple[Any, ...]]) -> list[Result]:
    """Call ``function(*arguments)`` on all allowed threads; return the results in order.

    A single call is made at once. After an error or an interrupt, no call is running.
    """
    calls = list(calls)
    if len(calls) == 1:
        return [function(*calls[0])]
    return list(imap(function, calls, ahead=len(calls)))


def imap(
    function: Callable[..., Result], calls: Iterable[tuple[Any, ...]], *, ahead: int
) -> Generator[Result]:
    """Yield the results in order, with at most ``n_threads() + ahead`` calls in progress.

    Because of the order, what is computed from the results does not depend on which thread was
    first. When the iterator ends or is closed, no call is running, so close it with
    `contextlib.closing` or exhaust it.
    """
    n = n_threads()
    if n == 1:
        yield from (function(*arguments) for arguments in calls)
        return
    alone = ((function, arguments) for arguments in calls)
    waiting: deque[Future[Result]] = deque()
    try:
        yield from _results(_executor(n), _alone, alone, n + ahead, waiting)
    finally:
        with deferred_interrupts():
            wait([future for future in waiting if not future.cancel()])


def _alone(function: Callable[..., Result], arguments: tuple[Any, ...]) -> Result:
    # A call never submits to the executor: that could wait for itself.
    _limit.set(1)
    return function(*arguments)


def in_background(function: Callable[..., Any], calls: Iterable[tuple[Any, ...]]) -> None:
    """Call ``function(*arguments)`` one after another on one thread, which is one call behind.

    Meanwhile the calling thread computes the next arguments. If that fails or is interrupted, the
    calls before it are complete afterwards; no call is running in any case.
    """
    executor = ThreadPoolExecutor(1, "streamgda")
    running: deque[Future[Any]] = deque()
    try:
        for arguments in calls:
            if running:
                _finished(running)
            running += _submitted(executor, function, [arguments])
        if running:
            _finished(running)
    finally:
        with deferred_interrupts():
            executor.shutdown()


def one_ahead(
    function: Callable[..., Result], calls: Iterable[tuple[Any, ...]]
) -> Generator[Result]:
    """Yield the results of calls on one thread, which is one call ahead; they only read.

    When the iterator is closed, it waits for a running call, unless that is interrupted, too.
    """
    executor = ThreadPoolExecutor(1, "streamgda")
    waiting: deque[Future[Result]] = deque()
    try:
        yield from _results(executor, function, calls, 2, waiting)
    finally:
        with deferred_interrupts():
            executor.shutdown(wait=False, cancel_futures=True)
        while waiting:
            with suppress(Exception):
                _finished(waiting)


def _results(
    executor: ThreadPoolExecutor,
    function: Callable[..., Result],
    calls: Iterable[tuple[Any, ...]],
    most: int,
    waiting: deque[Future[Result]],
) -> Generator[Result]:
    """Yield results in order, with at most so many calls in progress, which are `waiting`."""
    calls = iter(calls)
    while some := [*islice(calls, most - len(waiting))]:
        waiting += _submitted(executor, function, some)
        yield from _finished(waiting)
    while waiting:
        yield from _finished(waiting)


def _submitted(
    executor: ThreadPoolExecutor,
    function: Callable[..., Result],
    calls: Iterable[tuple[Any, ...]],
) -> list[Future[Result]]:
    """Submit calls, which see the context variables of the calling thread."""
    with deferred_interrupts():
        return [executor.submit(copy_context().run, function, *c) for c in calls]


def _finished(waiting: deque[Future[Result]]) -> list[Result]:
    """Wait for the first call, remove those that are complete, and return their results.

    The error of a call is raised after the results of earlier ones were returned. An interrupt is
    raised after a pause.
    """
    found: list[Result] = []
    while not found:
        with deferred_interrupts():
            wait([waiting[0]], _PAUSE)
            while waiting and waiting[0].done() and not (found and waiting[0].exception()):
                found.append(waiting.popleft().result())
    return found


_executors: dict[int, ThreadPoolExecutor] = {}  # The keys are numbers of threads.
_lock = threading.Lock()


def _executor(n: int) -> ThreadPoolExecutor:
    """Return the executor of so many threads: if fewer are allowed than before, no more run."""
    with deferred_interrupts(), _lock:
        if n not in _executors:
            _executors[n] = ThreadPoolExecutor(n, "streamgda")
        return _executors[n]


def _forget_threads() -> None:
    """Start again in a forked child, as threads do not survive a fork."""
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()
    _executors.clear()
    _blas_users.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)


# --- threads of BLAS and LAPACK -----------------------------------------------------------------


_blas_users: set[object] = set()  # Users need BLAS to use one thread per call.
_blas_before: list[int | None] | None = None  # Threads of each library; None without a limit.


@contextmanager
def serial_blas() -> Iterator[None]:
    """Limit BLAS and LAPACK to one thread per call inside the ``with`` block; `run` is not limited.

    The number of the libraries' threads is a setting of the whole process. It is restored when no
    block, on any thread, needs the limit any more.
    """
    user = object()
    try:
        _settle_blas(_blas_users.add, user)
        yield
    finally:
        try:
            _settle_blas(_blas_users.discard, user)
        except BaseException:  # An interrupt may come before it begins.
            _settle_blas(_blas_users.discard, user)
            raise


def _settle_blas(change: Callable[[object], None], user: object) -> None:
    """Limit BLAS to one thread if a caller needs that after a change; otherwise undo the limit."""
    global _blas_before  # noqa: PLW0603
    with deferred_interrupts(), _lock:
        change(user)
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
    # threadpoolctl lets only the first thread that asked change OpenBLAS's number of threads.
    release = getattr(library, "clear_controlling_thread", lambda **_: None)
    release(force=True)
    library.set_num_threads(n)
    release(force=True)


@cache
def _blas() -> ThreadpoolController:
    import scipy.linalg.cython_blas  # noqa: F401, PLC0415  (only loaded libraries are found)

    return ThreadpoolController().select(user_api="blas")


def _blas_threads() -> int:
    # Those of the libraries without our limit.
    numbers = _blas_before or [library.num_threads for library in _blas().lib_controllers]
    return min((n for n in numbers if n), default=_cores())


def run_serial_blas(
    function: Callable[..., Result], calls: Iterable[tuple[Any, ...]]
) -> list[Result]:
    """Call `run` within `serial_blas`."""
    with serial_blas():
        return run(function, calls)


def call_blas(d: int, function: Callable[..., Result], *arguments: Any) -> Result:
    """Call a function of matrices of `d` features, on one thread where more would gain nothing.

    The threads of BLAS spin while they wait for each other. Where other processes use the cores,
    that takes many times as long as the work; matrices that are smaller have one thread anyway.
    """
    with serial_blas() if d in _NO_GAIN else nullcontext():
        return function(*arguments)


# --- LAPACK on C-contiguous float64 matrices, in place --------------------------------------------

# `scipy.linalg.lapack` has these routines, too, but holds the GIL, so that threads would wait for
# each other. LAPACK stores matrices by columns: it sees the lower triangle of a C-contiguous matrix
# as an upper one.

_Number = ctypes.POINTER(ctypes.c_int)


def _routine(name: str, *kinds: Any) -> Callable[..., Any]:
    address = get_cython_function_address("scipy.linalg.cython_lapack", name)
    return ctypes.CFUNCTYPE(None, *kinds)(address)


_matrix = ctypes.c_void_p
_dpotrf = _routine("dpotrf", ctypes.c_char_p, _Number, _matrix, _Number, _Number)
_dtrtri = _routine("dtrtri", ctypes.c_char_p, ctypes.c_char_p, _Number, _matrix, _Number, _Number)


def cholesky(matrix: np.ndarray) -> bool:
    """Replace the lower triangle of a symmetric matrix by its Cholesky factor.

    The upper triangle does not change.

    Returns
    -------
    bool
        Whether the matrix is positive definite. If it is not, its lower triangle is destroyed.
    """
    n, info = ctypes.c_int(len(matrix)), ctypes.c_int()
    _dpotrf(b"U", n, matrix.ctypes.data, n, info)
    return info.value == 0


def invert_lower(matrix: np.ndarray) -> None:
    """Replace a lower triangle by its inverse; the upper triangle does not change."""
    n, info = ctypes.c_int(len(matrix)), ctypes.c_int()
    _dtrtri(b"U", b"N", n, matrix.ctypes.data, n, info)
