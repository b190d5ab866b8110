"""Threads: order, limits, nesting, failure, forks, the threads of BLAS, and states they share."""

import copy
import os
import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import pytest
from processes import output
from samples import blobs
from soak.driver import blas_threads
from threadpoolctl import threadpool_limits

from streamgda import BernoulliNB, ClassMoments, GaussianNB, PairwiseMoments, SlidingWindow
from streamgda.runtime import threads


@pytest.fixture(scope="module", autouse=True)
def blas_of_one_thread():
    """Leave BLAS its threads, which these tests look at."""


def slowly(number):
    """Return faster for later calls, so that results arrive out of order."""
    time.sleep(0.002 * (7 - number % 8))
    return number


@pytest.mark.parametrize("n", [1, 2, 4])
@pytest.mark.parametrize("ahead", [0, 1, 5])
def test_results_come_in_order_and_no_more_is_under_way_than_allowed(use_threads, n, ahead):
    use_threads(n)
    taken, found, most = [], [], []

    def calls():
        for i in range(20):
            taken.append(i)
            most.append(len(taken) - len(found))
            yield (i,)

    for number in threads.imap(slowly, calls(), ahead=ahead):
        found.append(number)
    assert found == taken == list(range(20))
    assert max(most) <= n + ahead


def test_as_many_threads_run_as_are_allowed(use_threads):
    use_threads(6)
    running, most, together = [], [], threading.Barrier(2, timeout=30)

    def call(i):
        running.append(i)
        most.append(len(running))
        if i < 2:
            together.wait()
        time.sleep(0.002)
        running.remove(i)

    with threads.limit(2), threads.limit(3):  # An inner limit does not lift an outer one.
        threads.run(call, [(i,) for i in range(20)])
    assert max(most) == 2
    with np.errstate(over="raise"):  # Calls see it, too.
        assert threads.run(lambda: np.geterr()["over"], [()] * 3) == ["raise"] * 3
    # One call gets no thread.
    assert threads.run(threading.get_ident, [()]) == [threading.get_ident()]


def test_many_callers_of_nested_runs_do_not_wait_for_each_other(use_threads):
    use_threads(2)

    def outer(i):
        assert threads.n_threads() == 1
        return sum(threads.run(slowly, [(j,) for j in range(i)]))

    with ThreadPoolExecutor(8) as others:
        runs = [others.submit(threads.run, outer, [(i,) for i in range(9)]) for _ in range(8)]
        assert [run.result(60) for run in runs] == [[i * (i - 1) // 2 for i in range(9)]] * 8


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("ahead", [0, 2, 500])
def test_errors_reach_the_caller_and_stop_the_rest(use_threads, n, ahead):
    use_threads(n)
    started = []

    def fail_at_three(i):
        started.append(i)
        time.sleep(0.001 if i < 3 else 0.1)  # All of them would take 25 seconds.
        return 1 // (3 - i)

    with pytest.raises(ZeroDivisionError):
        list(threads.imap(fail_at_three, ((i,) for i in range(500)), ahead=ahead))
    before = len(started)
    assert threads.run(slowly, [(0,)] * 4) == [0] * 4  # It comes after the cancelled calls.
    assert len(started) == before < 400


FORK = """
import os, sys, warnings
from streamgda.runtime import threads
threads._cores = threads._blas_threads = lambda: 2  # The environment does not matter.
threads.numba.config.NUMBA_NUM_THREADS = 2
assert threads.run(abs, [(-i,) for i in range(9)]) == list(range(9))
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Python 3.12 warns of every fork beside threads
    child = os.fork()
if child == 0:
    os._exit(0 if threads.run(abs, [(-i,) for i in range(9)]) == list(range(9)) else 1)
_, status = os.waitpid(child, 0)
assert threads.run(abs, [(-1,)] * 3) == [1] * 3
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_works_after_a_fork():
    output("-c", FORK)


# --- BLAS -------------------------------------------------------------------------------------


def test_threadpoolctl_limits_hold(monkeypatch):
    monkeypatch.setattr(numba.config, "NUMBA_NUM_THREADS", 4)
    monkeypatch.setattr(threads, "_cores", lambda: 4)
    for n in (2, 1):
        with threadpool_limits(n):
            assert threads.n_threads() == n


def test_serial_blas_lasts_as_long_as_any_thread_needs_it():
    inside, leave, before = threading.Event(), threading.Event(), blas_threads()

    def other():
        with threads.serial_blas():
            inside.set()
            leave.wait(30)

    with threadpool_limits(2):  # This thread sets it, and the other one undoes ours.
        allowed = threads.n_threads()
        thread = threading.Thread(target=other)
        with threads.serial_blas():
            thread.start()
            assert inside.wait(30)
            assert {*blas_threads()} == {1}
        assert {*blas_threads()} == {1}
        assert threads.n_threads() == allowed
        leave.set()
        thread.join()
        assert {*blas_threads()} == {2}
    assert blas_threads() == before


# --- states -----------------------------------------------------------------------------------

X, Y = blobs(60, 4)
WEIGHTS = np.random.default_rng(0).uniform(0.1, 2, 60)
STATES = {
    "diag": (ClassMoments("diag"), "update", {"sample_weight": WEIGHTS}),
    "full": (ClassMoments("full"), "update", {}),
    "PairwiseMoments": (PairwiseMoments(), "update", {"sample_weight": WEIGHTS}),
    "SlidingWindow": (SlidingWindow(100_000, "diag"), "update", {}),
    "GaussianNB": (GaussianNB(), "partial_fit", {"sample_weight": WEIGHTS}),
    "BernoulliNB": (BernoulliNB(), "partial_fit", {}),
}


@pytest.mark.parametrize("name", STATES)
def test_threads_that_share_a_state_lose_no_rows_and_copies_have_their_own_lock(name):
    state, method, options = STATES[name]
    state, together = copy.deepcopy(state), threading.Barrier(4)

    def learn(state, times):
        for _ in range(times):
            getattr(state, method)(X, Y, **options)

    def count_of(state):
        moments = getattr(state, "moments_", None) or getattr(state, "moments", state)
        return moments.class_count.sum()

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(lambda: (together.wait(30), learn(state, 15))) for _ in range(4)]:
            done.result(60)
    total = WEIGHTS.sum() if options else 60
    assert count_of(state) == pytest.approx(60 * total)
    for other in (copy.deepcopy(state), pickle.loads(pickle.dumps(state))):
        with other._lock:
            learn(state, 1)
        learn(other, 1)
        assert count_of(other) == pytest.approx(61 * total)


@pytest.mark.parametrize("options", [{}, {"half_life": 1e12}], ids=["in place", "aside"])
def test_rows_are_scored_while_others_are_added(options):
    nb, done = GaussianNB().partial_fit(X, Y), threading.Event()

    def score():
        while not done.is_set():
            assert np.isfinite(nb.predict_proba(X)).all()

    with ThreadPoolExecutor(1) as other:
        scored = other.submit(score)
        try:
            for i in range(60):
                nb.partial_fit(X, Y + i % 5, **options)  # Classes appear, too.
        finally:
            done.set()
        scored.result(60)
    assert nb.class_count_.sum() == pytest.approx(61 * 60)
