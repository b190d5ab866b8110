"""Ctrl-C is raised where nothing is half-done, and leaves no thread that still works."""

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


@pytest.mark.parametrize("error", [None, ZeroDivisionError])
def test_deferred_interrupts_are_raised_on_leaving(error):
    done = []

    def work():
        with deferred_interrupts():
            with deferred_interrupts():
                interrupt()
                done.append(1)
            done.append(2)
            if error:
                raise error

    with pytest.raises(KeyboardInterrupt) as raised:
        work()
    assert done == [1, 2]
    assert isinstance(raised.value.__context__, error or type(None))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_handlers_and_threads_stay_as_they_are():
    seen = []
    for handler in (lambda *_: seen.append(1), signal.SIG_IGN, signal.SIG_DFL):
        before = signal.signal(signal.SIGINT, handler)
        try:
            with deferred_interrupts():
                if handler is not signal.SIG_DFL:  # The default handler ends this process.
                    interrupt()
                assert not seen
            assert signal.getsignal(signal.SIGINT) is handler
        finally:
            signal.signal(signal.SIGINT, before)
        seen.clear()

    def elsewhere():
        with deferred_interrupts():
            return signal.getsignal(signal.SIGINT)

    with ThreadPoolExecutor(1) as other:
        assert other.submit(elsewhere).result() is signal.default_int_handler


WAYS = {
    "run": threads.run,
    "in background": threads.in_background,
    "one ahead": lambda *of: list(threads.one_ahead(*of)),
}


@pytest.mark.parametrize(
    ("way", "again"),
    [("run", 0), ("run", 0.005), ("in background", 0), ("in background", 0.005), ("one ahead", 0)],
)
def test_an_interrupted_caller_waits_for_running_calls(use_threads, way, again):
    use_threads(3)
    running, started = set(), []

    def call(i):
        started.append(i)
        running.add(i)
        time.sleep(0.04)
        running.discard(i)

    def calls():
        signal.setitimer(signal.ITIMER_REAL, 0.02, again)
        WAYS[way](call, ((i,) for i in range(50)))

    assert interrupted(calls, 10)
    assert not running
    before = len(started)
    assert threads.run(abs, [(-1,)] * 9) == [1] * 9  # It comes after the cancelled calls.
    assert len(started) == before < 50


@pytest.mark.parametrize("way", ["in background", "one ahead"])
def test_calls_on_one_other_thread_are_made_in_order(way):
    made = []
    WAYS[way](lambda *both: made.append(both), ((i, -i) for i in range(9)))
    assert made == [(i, -i) for i in range(9)]
    with pytest.raises(ZeroDivisionError):
        WAYS[way](lambda i: 1 // i, [(1,), (0,), (1,)])


@pytest.mark.parametrize("moment", [0.0001, 0.01])
def test_an_interrupt_leaves_no_limit_of_the_blas_behind(use_threads, moment):
    use_threads(2)
    with threadpool_limits(2):
        calls = [(0.02,) for _ in range(50)]
        assert interrupted(lambda: threads.run_serial_blas(time.sleep, calls), moment)
        assert set(blas_threads()) == {2}
