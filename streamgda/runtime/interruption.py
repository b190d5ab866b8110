"""Calls that exceptions from outside leave neither half done nor running.

Such exceptions are `KeyboardInterrupt`, those of signal handlers, and those that another thread
sends (``PyThreadState_SetAsyncExc``). Python raises them in the calling thread when a function
starts, when a call returns, and when a loop is repeated. A single kernel call is therefore complete
or has not started, and assignments without calls between them stay together. All other work that
must not be half done is called on another thread, which these exceptions do not reach. The calling
thread waits for it in a C function, which they do not reach either.
"""

from __future__ import annotations

import ctypes
import os
import threading
from _thread import RLock, start_new_thread
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextvars import ContextVar, copy_context
from typing import Any, Generic, TypeVar
from weakref import WeakSet

Result = TypeVar("Result")


def _function(name: str, *kinds: Any, result: Any = None) -> Callable[..., Any]:
    """Return a function of Python's C interface that is called without the GIL."""
    return ctypes.CFUNCTYPE(result, *kinds)((name, ctypes.pythonapi))


# Unlike the locks of `threading`, these are waited for without handling signals.
_allocate = _function("PyThread_allocate_lock", result=ctypes.c_void_p)
_acquire = _function("PyThread_acquire_lock", ctypes.c_void_p, ctypes.c_int, result=ctypes.c_int)
_acquire_timed = _function(
    "PyThread_acquire_lock_timed",
    *(ctypes.c_void_p, ctypes.c_longlong, ctypes.c_int),  # with a time in microseconds
    result=ctypes.c_int,
)
_release = _function("PyThread_release_lock", ctypes.c_void_p)
_free = _function("PyThread_free_lock", ctypes.c_void_p)

_PAUSE = 50_000  # microseconds between two looks at signals

# The gate of the call on another thread that the code is part of; None on the calling thread.
_within: ContextVar[_Gate | None] = ContextVar("within", default=None)


class Lock(RLock):  # type: ignore[misc]  # it can be subclassed
    """A reentrant lock that is left out of copies and pickles: they get another one.

    In a forked child it is free, as the thread that held it is not there. What it protects is
    replaced by single assignments, and so it is whole.
    """

    def __init__(self) -> None:
        super().__init__()
        _locks.add(self)

    def __reduce__(self) -> Any:
        return type(self), ()

    def free(self) -> None:
        """Release the lock in a forked child, unless this thread holds it."""
        if not self._is_owned():  # type: ignore[attr-defined]
            self._at_fork_reinit()  # type: ignore[attr-defined]


class ChangeLock(Lock):  # type: ignore[misc]  # as above
    """A lock of something that changes in place: a fork waits for it, so that a child has it whole.

    It is held for computations only, which never wait for a process, or for a thread that forks.
    """


_locks: WeakSet[Lock] = WeakSet()
_held: list[Lock] = []  # by the thread that forks


def _before_fork() -> None:
    """Acquire all change locks; none is waited for while others are held."""
    while wanted := {lock for lock in _locks if isinstance(lock, ChangeLock)} - {*_held}:
        for lock in wanted:
            if not lock.acquire(blocking=False):
                _after_fork()
                lock.acquire()
            _held.append(lock)


def _after_fork() -> None:
    while _held:
        _held.pop().release()


def _in_child() -> None:
    """Free the locks that threads held which are not in the child."""
    _after_fork()
    for lock in _locks:
        lock.free()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)


def uninterrupted(function: Callable[..., Result], *arguments: Any) -> Result:
    """Call a function on another thread, and wait for it whatever happens.

    An exception from outside is raised when the call is complete. If it comes early, the call does
    not start.

    Parameters
    ----------
    function : callable
        It sees the context variables of the calling thread. Calls within it are direct.
    *arguments
        Its arguments.
    """
    if _within.get():
        return function(*arguments)
    call = [(function, arguments)]
    [result] = results(lambda task: start_new_thread(task, ()), call)
    return result


def results(
    submit: Callable[[Callable[[], None]], Any],
    calls: Iterable[tuple[Callable[..., Result], tuple[Any, ...]]],
    most: int | None = None,
    *,
    patient: bool = True,
    helping: bool = False,
) -> Generator[Result]:
    """Yield the results of calls on other threads, in order.

    When the iterator ends or is closed, no call is running, and none will start. Exhaust it in a
    single call, such as ``list``, or close it with `contextlib.closing`: an exception would keep
    it alive otherwise.

    Parameters
    ----------
    submit : callable
        Called with functions that another thread runs.
    calls : iterable of (callable, tuple)
        Functions and their arguments.
    most : int, optional
        Number of calls in progress at a time.
    patient : bool
        False lets a second exception end the wait for running calls, which must not matter.
    helping : bool
        True lets this thread make calls that no other thread has begun instead of waiting.
        Exceptions from outside end them half-way.
    """
    gate = _Gate()
    waiting: deque[_Call[Result]] = deque()

    def first() -> Result:
        for call in waiting if helping else ():
            if waiting[0].done:
                break
            call.help()
        return waiting.popleft().result()

    try:
        for function, arguments in calls:
            waiting.append(_Call(gate, function, arguments))
            if len(waiting) > 1 or not helping:  # the first one is soonest begun by this thread
                submit(waiting[-1].run)
            if most is not None and len(waiting) >= most:
                yield first()
        while waiting:
            yield first()
    finally:  # without another call, before which a second exception could be raised
        gate.closed = True
        if patient:
            _acquire(gate.vacant, 1)
        else:
            while not _acquire_timed(gate.vacant, _PAUSE, 0):
                pass
    # A gate that is closed early keeps its lock, because calls that have not started refer to it.
    _free(gate.vacant)


class _Gate:
    """Counts the calls inside, so that one C call waits until there are none.

    Attributes
    ----------
    closed : bool
        If it is set, no more calls enter.
    vacant : int
        Address of a lock, which is held while calls are inside.
    """

    def __init__(self) -> None:
        self.closed = False
        self.vacant: int = _allocate()
        self._inside = 0
        self._lock = threading.Lock()

    def enter(self) -> bool:
        """Enter unless the gate is closed; return True if it is not."""
        with self._lock:
            if self.closed or not (self._inside or _acquire(self.vacant, 0)):
                return False
            self._inside += 1
            return True

    def leave(self) -> None:
        """Leave, after `enter` has returned True."""
        with self._lock:
            self._inside -= 1
            if not self._inside:
                _release(self.vacant)


class _Call(Generic[Result]):
    """A call on another thread.

    Unlike `concurrent.futures.Future`, it can be waited for by a thread that is interrupted: that
    may leave the condition of a future locked for good, and the thread that completes it waiting.
    """

    def __init__(
        self, gate: _Gate, function: Callable[..., Result], arguments: tuple[Any, ...]
    ) -> None:
        self._gate, self._function, self._arguments = gate, function, arguments
        self._context = copy_context()
        self._begun, self._done = threading.Lock(), threading.Lock()
        self._done.acquire()
        self._value: Any = None
        self._error: BaseException | None = None

    @property
    def done(self) -> bool:
        """True once the call is complete."""
        return not self._done.locked()

    def help(self) -> None:
        """Call the function on the calling thread, unless another one has begun."""
        if self._begun.acquire(blocking=False):
            try:
                self._value = self._context.run(self._function, *self._arguments)
            except Exception as error:
                self._error = error
            self._done.release()

    def run(self) -> None:
        """Call the function, on another thread, unless the gate is closed or one has begun."""
        if not self._begun.acquire(blocking=False):
            return
        if self._gate.enter():
            try:
                self._value = self._context.run(self._call)
            except BaseException as error:  # raised again by `result`
                self._error = error
            self._gate.leave()
        self._done.release()

    def _call(self) -> Result:
        _within.set(self._gate)
        return self._function(*self._arguments)

    def result(self) -> Result:
        """Return the result, or raise the error, once the call is complete."""
        self._done.acquire()
        if self._error is not None:
            error, self._error = self._error, None
            try:
                raise error
            finally:
                del error  # whose traceback would refer to it
        return self._value
