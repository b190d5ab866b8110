"""The one door to threads: order, limits, nesting, failure, forks."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numba
import pytest
from processes import output
from threadpoolctl import threadpool_info, threadpool_limits

from streamgda.runtime import threads


@pytest.fixture(scope="module", autouse=True)
def blas_of_one_thread():
    """Leave BLAS its threads, which these tests look at."""


def slowly(number):
    """Return faster for later calls, so that results arrive out of order."""
    time.sleep(0.002 * (7 - number % 8))
    return number


# --- order ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 4])
def test_results_come_in_order(use_threads, n):
    use_threads(n)
    expected = list(range(20))
    assert threads.run(slowly, [(i,) for i in expected]) == expected
    for ahead in (0, 1, 5, None):
        assert list(threads.imap(slowly, ((i,) for i in expected), ahead=ahead)) == expected


def test_several_threads_really_run(use_threads):
    use_threads(3)
    together = threading.Barrier(3, timeout=30)
    names = threads.run(lambda: (together.wait(), threading.current_thread().name)[1], [()] * 3)
    assert len(set(names)) == 3
    assert all(name.startswith("streamgda") for name in names)


def test_a_single_call_starts_no_thread(use_threads):
    use_threads(2)
    before = threading.active_count()
    assert threads.run(threading.get_ident, [()]) == [threading.get_ident()]
    assert threading.active_count() == before


@pytest.mark.parametrize("ahead", [0, 3])
def test_no_more_is_under_way_than_asked_for(use_threads, ahead):
    use_threads(2)
    taken, done = 0, 0
    most = 0

    def calls():
        nonlocal taken, most
        for i in range(30):
            taken += 1
            most = max(most, taken - done)
            yield (i,)

    for _ in threads.imap(slowly, calls(), ahead=ahead):
        done += 1
    assert most == 2 + ahead


# --- limit ------------------------------------------------------------------------------------


def test_limit(use_threads):
    use_threads(4)
    with threads.limit(2):
        assert threads.n_threads() == 2
        with threads.limit(3):  # an inner limit does not lift an outer one
            assert threads.n_threads() == 2
        with threads.limit(1):
            assert threads.n_threads() == 1
        assert threads.n_threads() == 2
    assert threads.n_threads() == 4
    with threads.limit(100):
        assert threads.n_threads() == 4
    with threads.limit(0):
        assert threads.n_threads() == 1


def test_no_more_threads_run_than_are_allowed(use_threads):
    use_threads(6)
    running, most, together = [], [], threading.Barrier(2, timeout=30)

    def call(i):
        running.append(i)
        most.append(len(running))
        if i < 2:
            together.wait()
        time.sleep(0.002)
        running.remove(i)

    with threads.limit(2):
        threads.run(call, [(i,) for i in range(20)])
    assert max(most) == 2


# --- nesting ----------------------------------------------------------------------------------


def in_time(function, seconds=60):
    """Call in another thread, so that a deadlock does not block the test."""
    results = []
    thread = threading.Thread(target=lambda: results.append(function()), daemon=True)
    thread.start()
    thread.join(seconds)
    assert results, f"no result in {seconds} s"
    return results[0]


def test_nested_runs_do_not_wait_for_themselves(use_threads):
    use_threads(2)

    def outer(i):
        assert threads.n_threads() == 1
        return threads.run(lambda j: 10 * i + j, [(j,) for j in range(5)])

    results = in_time(lambda: threads.run(outer, [(i,) for i in range(20)]))
    assert results == [[10 * i + j for j in range(5)] for i in range(20)]


def test_many_callers_share_the_pool(use_threads):
    use_threads(2)

    def caller(_):
        return threads.run(slowly, [(i,) for i in range(10)])

    def all_callers():
        with ThreadPoolExecutor(8) as others:
            return list(others.map(caller, range(8)))

    assert in_time(all_callers) == [list(range(10))] * 8


# --- failure ----------------------------------------------------------------------------------


class CallError(Exception):
    pass


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("ahead", [0, 2, None])
def test_errors_reach_the_caller_and_stop_the_rest(use_threads, n, ahead):
    use_threads(n)
    started = []

    def fail_at_three(i):
        started.append(i)
        if i == 3:
            raise CallError(i)
        time.sleep(0.001 if i < 3 else 0.1)  # all of them would take 25 seconds
        return i

    results = []
    with pytest.raises(CallError, match="3"):
        results.extend(threads.imap(fail_at_three, ((i,) for i in range(500)), ahead=ahead))
    assert results == list(range(min(3, len(results))))
    assert threads.run(slowly, [(0,)] * 4) == [0] * 4  # the pool still works
    assert len(started) < 400


def test_an_error_in_the_calls_themselves(use_threads):
    use_threads(2)

    def calls():
        yield (1,)
        raise CallError

    with pytest.raises(CallError):
        threads.run(slowly, calls())


def test_an_abandoned_iteration_cancels_waiting_calls(use_threads):
    use_threads(2)
    started = []
    results = threads.imap(lambda i: (started.append(i), slowly(i)), ((i,) for i in range(500)))
    next(results)
    results.close()
    before = len(started)
    threads.run(slowly, [(0,)] * 4)  # which comes after what waited, had it not been cancelled
    assert len(started) == before < 500


# --- forks ------------------------------------------------------------------------------------

FORK = """
import os, sys, warnings
from streamgda.runtime import lapack, threads
threads._cores = threads._blas_threads = lambda: 2  # whatever the environment says
threads.numba.config.NUMBA_NUM_THREADS = 2
assert threads.run(abs, [(-i,) for i in range(9)]) == list(range(9))
assert threads._executors
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Python 3.12 warns of every fork beside threads
    child = os.fork()
if child == 0:
    assert not threads._executors
    os._exit(0 if threads.run(abs, [(-i,) for i in range(9)]) == list(range(9)) else 1)
_, status = os.waitpid(child, 0)
assert threads.run(abs, [(-1,)] * 3) == [1] * 3
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_works_after_a_fork():
    output("-c", FORK)


# --- BLAS -------------------------------------------------------------------------------------


def blas_threads():
    return {
        library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"
    }


def test_threadpoolctl_limits_hold(monkeypatch):
    monkeypatch.setattr(numba.config, "NUMBA_NUM_THREADS", 4)
    monkeypatch.setattr(threads, "_cores", lambda: 4)
    with threadpool_limits(2):
        assert threads.n_threads() == 2
        with threads.limit(1):
            assert threads.n_threads() == 1
    with threadpool_limits(1):
        assert threads.n_threads() == 1


def test_serial_blas_leaves_our_own_threads_alone():
    before = blas_threads()
    with threadpool_limits(2):
        with threads.serial_blas():
            assert blas_threads() == {1}
            assert threads.n_threads() == min(2, threads._cores(), numba.config.NUMBA_NUM_THREADS)
        assert blas_threads() == {2}
    assert blas_threads() == before


EARLY = """
from streamgda.runtime import lapack, threads
threads.n_threads()
from threadpoolctl import threadpool_info, threadpool_limits
import scipy.linalg.blas
with threadpool_limits(2), threads.serial_blas():
    assert {i["num_threads"] for i in threadpool_info() if i["user_api"] == "blas"} == {1}
"""


def test_serial_blas_holds_for_kernels_though_the_threads_were_counted_before_they_were_loaded():
    output("-c", EARLY)


def test_serial_blas_lasts_as_long_as_any_thread_needs_it():
    inside, leave = threading.Event(), threading.Event()

    def other():
        with threads.serial_blas():
            inside.set()
            leave.wait(30)

    with threadpool_limits(2):  # by this thread, and the other one undoes ours
        allowed = threads.n_threads()
        thread = threading.Thread(target=other)
        with threads.serial_blas():
            thread.start()
            assert inside.wait(30)
            assert blas_threads() == {1}
        assert blas_threads() == {1}
        assert threads.n_threads() == allowed
        leave.set()
        thread.join()
        assert blas_threads() == {2}


def test_another_thread_limits_blas_though_the_first_has_set_its_threads():
    with threadpool_limits(2), ThreadPoolExecutor(1) as other:
        assert other.submit(threads.run_serial_blas, blas_threads, [()]).result() == [{1}]
        assert blas_threads() == {2}
