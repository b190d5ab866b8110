"""Interrupted changes are complete or not made, and no thread goes on; see `interruptions.py`."""

import copy
import pickle
import signal
import threading
import time
from _thread import get_ident
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import interruptions
import numpy as np
import pytest
from interruptions import signalled
from moment_checks import LARGE_STATE, set_sizes
from numba.core.compiler_lock import global_compiler_lock
from processes import output
from samples import blobs
from sklearn.base import clone
from states import bits
from threadpoolctl import threadpool_info, threadpool_limits

from streamgda import BernoulliNB, ClassMoments, GaussianNB, PairwiseMoments, SlidingWindow, kernels
from streamgda.moments.centred import CentredSums
from streamgda.runtime import threads
from streamgda.runtime.interruption import uninterrupted

X, Y = blobs(60, 4)
WEIGHTS = np.random.default_rng(0).uniform(0.1, 2, 60)


@pytest.fixture(scope="module", autouse=True)
def blas_of_one_thread():
    """Leave BLAS its threads, which these tests look at."""


# --- every place where an exception may strike ------------------------------------------------

KINDS = ["full", "tied_spherical", "new", "declare", "norms", "pairs +=", "window", "groups"]
ESTIMATORS = ["GaussianNB", "LinearDiscriminantAnalysis half-life", "BernoulliNB partial_fit"]


@pytest.mark.parametrize("size", ["small", "large"])
def test_no_change_is_half_made(size, monkeypatch):
    if size == "large":  # as if the states were: they change in place, on another thread
        set_sizes(LARGE_STATE, monkeypatch)
    wrong, places = {}, 0
    cases = list(interruptions.cases(large=False))
    chosen = [c for c in cases if any(word in c.name for word in KINDS + ESTIMATORS)]
    for number, case in enumerate(chosen):
        for place, verdict in interruptions.boundaries(case, number % 23, 23):
            places += 1
            if verdict:
                wrong[case.name, place] = verdict
    assert not wrong
    assert places > 100


# --- signals ----------------------------------------------------------------------------------


@pytest.mark.parametrize("again", [0, 0.005])
def test_a_large_update_is_completed_before_the_exception_is_raised(monkeypatch, again):
    set_sizes(LARGE_STATE, monkeypatch)
    add, ended = CentredSums._add_by_ranges, []

    def slowly(*given):
        signal.setitimer(signal.ITIMER_REAL, 0.02, again)
        time.sleep(0.08)
        add(*given)
        ended.append(get_ident())

    expected = ClassMoments().update(X, Y).update(X, Y, WEIGHTS)
    moments = ClassMoments().update(X, Y)
    monkeypatch.setattr(CentredSums, "_add_by_ranges", slowly)
    assert signalled(lambda: moments.update(X, Y, WEIGHTS))
    assert len(ended) == 1
    assert ended[0] != get_ident()
    assert bits(moments) == bits(expected)


@pytest.mark.slow
def test_exceptions_from_other_threads_wait_for_the_update():
    # In another process, because Python 3.11 hangs if such an exception is sent beside coverage.
    output("-c", "import interruptions; interruptions.sent()")


@pytest.mark.parametrize("again", [0, 0.005])
@pytest.mark.parametrize("n", [1, 3])
def test_an_interrupted_caller_waits_for_running_calls(use_threads, n, again):
    use_threads(n)
    running, started = set(), []

    def call(i):
        if not started:
            signal.setitimer(signal.ITIMER_REAL, 0.02, again)
        started.append(i)
        running.add((i, get_ident()))
        time.sleep(0.04)
        running.discard((i, get_ident()))

    assert signalled(lambda: threads.run(call, [(i,) for i in range(50)]))
    assert all(thread == get_ident() for _, thread in running)  # that is interrupted half-way
    before = len(started)
    assert threads.run(abs, [(-1,)] * 9) == [1] * 9  # which comes after what was cancelled
    assert len(started) == before < 50


def test_a_background_thread_has_ended():
    written = []

    def write(i):
        if i == 0:
            signal.setitimer(signal.ITIMER_REAL, 0.02)
        time.sleep(0.04)
        written.append(i)

    numbers = ((i,) for i in range(50))
    assert signalled(lambda: threads.in_background(write, numbers))
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


def test_what_is_not_interrupted_sees_the_settings_of_its_caller(use_threads):
    use_threads(3)

    def seen():
        return threads.n_threads(), np.geterr()["over"], uninterrupted(get_ident) == get_ident()

    with threads.limit(2), np.errstate(over="raise"):
        assert uninterrupted(seen) == (2, "raise", True)
    with pytest.raises(ZeroDivisionError):
        uninterrupted(divmod, 1, 0)
    assert uninterrupted(get_ident) != get_ident()


@pytest.mark.parametrize("again", [0, 0.005])
def test_an_interruption_leaves_no_limit_of_the_blas_behind(use_threads, again):
    use_threads(2)
    started = []

    def blas_threads():
        return {i["num_threads"] for i in threadpool_info() if i["user_api"] == "blas"}

    def call(i):
        if not started:
            signal.setitimer(signal.ITIMER_REAL, 0.01, again)
        started.append(i)
        time.sleep(0.02)

    calls = [(i,) for i in range(50)]
    with threadpool_limits(2):
        assert signalled(lambda: threads.run_serial_blas(call, calls))
        assert blas_threads() == {2}
    assert 0 < len(started) < 50
    # Part of a call that must not stop, it does not stop either.
    started.clear()
    whole = lambda: uninterrupted(threads.run_serial_blas, call, calls[:4])  # noqa: E731
    assert signalled(whole)
    assert len(started) == 4


def test_kernels_are_compiled_on_a_thread_that_is_not_interrupted():
    kernel = SimpleNamespace(overloads={})

    def compile_(signature):
        kernel.overloads[signature] = SimpleNamespace(entry_point=get_ident())

    assert kernels._compile(kernel, compile_, ()) != get_ident()
    with global_compiler_lock:  # another thread would wait for it
        assert kernels._compile(kernel, compile_, ()) == get_ident()


# --- several threads --------------------------------------------------------------------------

SHARED = [
    ClassMoments("diag"),
    ClassMoments("full", fourth_moments=True),
    PairwiseMoments(),
    SlidingWindow(1000, "diag"),
    GaussianNB(),
    BernoulliNB(),
]


def count_of(state):
    moments = getattr(state, "moments_", None) or getattr(state, "moments", state)
    return moments.class_count.sum()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("state", SHARED, ids=lambda state: type(state).__name__)
def test_threads_that_share_a_state_lose_no_rows(state, weighted):
    state = copy.deepcopy(state)
    learn = getattr(state, "partial_fit", None) or state.update
    together = threading.Barrier(4)
    batch = (X[:9], Y[:9], *([WEIGHTS[:9]] if weighted else []))
    if weighted and hasattr(state, "partial_fit"):
        batch = (*batch[:2], [0, 1, 2, 3, 4], batch[2])  # and classes

    def many():
        together.wait(30)
        for _ in range(15):
            learn(*batch)

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(many) for _ in range(4)]:
            done.result(60)
    assert count_of(state) == pytest.approx(60 * (WEIGHTS[:9].sum() if weighted else 9))


def test_rows_are_scored_while_others_are_added():
    nb = GaussianNB().partial_fit(X, Y)
    done = threading.Event()

    def score():
        n = 0
        while not done.is_set():
            assert np.isfinite(nb.predict_proba(X)).all()
            n += 1
        return n

    with ThreadPoolExecutor(1) as other:
        scored = other.submit(score)
        try:
            for i in range(60):
                nb.partial_fit(X, Y + i % 5)  # classes appear, too
        finally:
            done.set()
        assert scored.result(60)
    assert nb.class_count_.sum() == 61 * 60


@pytest.mark.parametrize("state", SHARED, ids=lambda state: type(state).__name__)
def test_locks_are_not_copied(state):
    learn = getattr(state, "partial_fit", None) or state.update
    learn = getattr(state := copy.deepcopy(state), learn.__name__)
    learn(X, Y)
    for other in (copy.deepcopy(state), pickle.loads(pickle.dumps(state))):
        assert other._lock is not state._lock
        with other._lock:
            learn(X, Y)
    assert count_of(state) == 3 * 60
    if isinstance(state, GaussianNB):
        assert "_lock" not in vars(clone(state))
