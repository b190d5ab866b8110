"""Ctrl-C leaves states as they were or complete, and no thread that writes to them."""

import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from soak.driver import blas_threads, interrupted
from threadpoolctl import threadpool_limits

from streamgda.runtime import threads
from streamgda.runtime.interruption import deferred_interrupts

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timers of signals")


@pytest.fixture(scope="module", autouse=True)
def blas_of_one_thread():
    """Leave BLAS its threads, which these tests look at."""


def interrupt(*_):
    signal.raise_signal(signal.SIGINT)


# --- deferred interrupts ----------------------------------------------------------------------


def test_deferred_interrupts_are_raised_on_leaving():
    done = []

    def work():
        with deferred_interrupts():
            with deferred_interrupts():
                interrupt()
                done.append(1)
            done.append(2)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == [1, 2]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_errors_and_other_handlers():
    def fails():
        with deferred_interrupts():
            interrupt()
            raise ZeroDivisionError

    with pytest.raises(KeyboardInterrupt) as raised:
        fails()
    assert isinstance(raised.value.__context__, ZeroDivisionError)
    seen = []
    for handler in (lambda *_: seen.append(1), signal.SIG_IGN, signal.SIG_DFL):
        before = signal.signal(signal.SIGINT, handler)
        try:
            with deferred_interrupts():
                if handler is not signal.SIG_DFL:  # which would end this process
                    interrupt()
                assert not seen
            assert signal.getsignal(signal.SIGINT) is handler
            seen.clear()
        finally:
            signal.signal(signal.SIGINT, before)


def test_other_threads_leave_signals_alone():
    def seen():
        with deferred_interrupts():
            return signal.getsignal(signal.SIGINT)

    with ThreadPoolExecutor(1) as other:
        assert other.submit(seen).result() is signal.default_int_handler


# --- threads ----------------------------------------------------------------------------------


@pytest.mark.parametrize("again", [0, 0.005])
def test_an_interrupted_caller_waits_for_running_calls(use_threads, again):
    use_threads(3)
    running, started = set(), []

    def call(i):
        started.append(i)
        running.add(i)
        time.sleep(0.04)
        running.discard(i)

    def calls():
        signal.setitimer(signal.ITIMER_REAL, 0.02, again)
        threads.run(call, [(i,) for i in range(50)])

    assert interrupted(calls, 10)
    assert not running
    before = len(started)
    assert threads.run(abs, [(-1,)] * 9) == [1] * 9  # which comes after what was cancelled
    assert len(started) == before < 50


def test_a_background_thread_has_ended():
    written = []

    def write(i):
        time.sleep(0.04)
        written.append(i)

    assert interrupted(lambda: threads.in_background(write, ((i,) for i in range(50))), 0.06)
    before = len(written)
    assert before < 50
    time.sleep(0.06)
    assert len(written) == before


def test_background_calls_are_made_in_order():
    written = []
    threads.in_background(lambda *both: written.append(both), ((i, -i) for i in range(5)))
    assert written == [(i, -i) for i in range(5)]
    with pytest.raises(ZeroDivisionError):
        threads.in_background(lambda i: 1 // i, [(1,), (0,), (1,)])


def test_what_is_read_ahead():
    calls = threads.one_ahead(lambda i: i * i, ((i,) for i in range(10)))
    assert [next(calls), next(calls)] == [0, 1]
    calls.close()
    assert list(threads.one_ahead(lambda i: i * i, ((i,) for i in range(10))))[-1] == 81
    ended = []

    def read(i):
        time.sleep(0.03 * i)
        ended.append(i)

    assert interrupted(lambda: list(threads.one_ahead(read, ((i,) for i in range(9)))), 0.05)
    assert ended in ([0, 1], [0, 1, 2])


@pytest.mark.parametrize("moment", [0.0001, 0.01])
def test_an_interrupt_leaves_no_limit_of_the_blas_behind(use_threads, moment):
    use_threads(2)
    with threadpool_limits(2):
        calls = [(0.02,) for _ in range(50)]
        assert interrupted(lambda: threads.run_serial_blas(time.sleep, calls), moment)
        assert set(blas_threads()) == {2}
