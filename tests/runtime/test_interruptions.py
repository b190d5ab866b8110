"""Ctrl-C leaves states as they were or complete, and no thread that writes to them."""

import copy
import pickle
import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from samples import blobs
from sklearn.base import clone
from states import bits
from threadpoolctl import threadpool_info, threadpool_limits

from streamgda import (
    BernoulliNB,
    ClassMoments,
    GaussianNB,
    GroupedMoments,
    LinearDiscriminantAnalysis,
    PairwiseMoments,
    QuadraticDiscriminantAnalysis,
    SlidingWindow,
    accumulate,
    load,
)
from streamgda.runtime import threads
from streamgda.runtime.interruption import deferred_interrupts

X, Y = blobs(60, 4)
WEIGHTS = np.random.default_rng(0).uniform(0.1, 2, 60)


@pytest.fixture(scope="module", autouse=True)
def blas_of_one_thread():
    """Leave BLAS its threads, which these tests look at."""


def interrupt(*_):
    signal.raise_signal(signal.SIGINT)


def interrupted(function, moment):
    """Call a function, with Ctrl-C after so many seconds; return whether it was interrupted."""
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, moment)
            function()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        return True
    finally:
        signal.signal(signal.SIGALRM, before)
    return False


# --- operations that are interrupted ------------------------------------------------------------


def operations():
    """Pairs of a state and its change, of small states and of large ones that change in place."""
    rng = np.random.default_rng(0)
    n, d = 1500, 200
    y = np.arange(2 * n) % 6
    A = rng.normal(size=(2 * n, d)) + y[:, None]
    whole = np.clip(20 * A + 100, 0, 255).astype(np.uint8)
    old, new = (A[:n], y[:n]), (A[n:], y[n:])
    moments = ClassMoments().update(*old)
    other = ClassMoments().update(*new)
    gaps = A[:, :20].copy()
    gaps[::7, 1] = np.nan
    sites = np.arange(2 * n) % 2
    few = A[:, :4]
    window = SlidingWindow(3)
    for start in range(0, n, 300):
        window.update(few[start : start + 300], y[start : start + 300])
    nb, qda = GaussianNB().fit(few, y), QuadraticDiscriminantAnalysis().fit(*old)
    return {
        "update": (moments, lambda m: m.update(*new)),
        "update with weights": (moments, lambda m: m.update(*new, np.linspace(0.5, 2, n))),
        "update of integers": (
            ClassMoments().update(whole[:n], y[:n]),
            lambda m: m.update(whole[n:], y[n:]),
        ),
        "new classes": (moments, lambda m: m.update(A[n:], y[n:] + 3)),
        "declare": (moments, lambda m: m.declare([7, 8, 9])),
        "+=": (moments, lambda m: m.__iadd__(other)),
        "*=": (moments, lambda m: m.__imul__(0.5)),
        "pairs": (PairwiseMoments().update(gaps[:n], y[:n]), lambda m: m.update(gaps[n:], y[n:])),
        "groups": (
            GroupedMoments().update(few[:n], y[:n], sites[:n]),
            lambda m: m.update(few[n:], y[n:], sites[n:] + 1),
        ),
        "window": (window, lambda w: w.update(few[n:], y[n:])),
        "partial_fit": (nb, lambda e: e.partial_fit(few, y)),
        "half-life": (nb, lambda e: e.partial_fit(few, y, half_life=500)),
        "forget": (nb, lambda e: e.forget(few[:n], y[:n])),
        "fit": (qda, lambda e: e.fit(*new)),
        "fit LDA": (LinearDiscriminantAnalysis().fit(*old), lambda e: e.fit(*new)),
    }


OPERATIONS = operations()


def held(state):
    """All that a state holds, and what an estimator answers."""
    moments = getattr(state, "moments_", state)
    answer = state.predict_proba(X[:, :4]).tobytes() if isinstance(state, GaussianNB) else b""
    return bits(moments), answer


def check(name, n, seed=0):
    """Interrupt an operation so often; return the number of times that it was."""
    start, change = OPERATIONS[name]
    chance, struck, limits = random.Random(seed), 0, blas_threads()
    done = copy.deepcopy(start)
    change(done)  # compiles
    before, after = held(start), held(done)
    state = copy.deepcopy(start)
    began = time.perf_counter()
    change(state)
    took = time.perf_counter() - began
    for _ in range(20 * n):
        state = copy.deepcopy(start)
        if interrupted(lambda state=state: change(state), max(1e-6, chance.uniform(0, took))):
            struck += 1
            found = held(state)
            assert found in (before, after), f"torn at {struck}"
            time.sleep(0.001)
            assert held(state) == found, "a thread writes to it afterwards"
            if found == before:
                change(state)
                assert held(state) == after
        else:
            took *= 0.9
        if struck == n:
            break
    assert blas_threads() == limits
    return struck


def blas_threads():
    return {i["num_threads"] for i in threadpool_info() if i["user_api"] == "blas"}


@pytest.mark.parametrize("name", OPERATIONS)
def test_no_change_is_half_made(name):
    assert check(name, 4) > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATIONS)
def test_no_change_is_half_made_in_many_interruptions(name):
    assert check(name, 40, 1) > 20


def test_large_states_change_completely_once_they_have_begun(monkeypatch):
    """A merge in place is complete before the interrupt is raised."""
    start, change = OPERATIONS["+="]
    state, done = copy.deepcopy(start), copy.deepcopy(start)
    change(done)
    sums = type(state._sums)
    add = sums.add

    def interrupting(*given):
        interrupt()
        return add(*given)

    monkeypatch.setattr(sums, "add", interrupting)
    with pytest.raises(KeyboardInterrupt):
        change(state)
    assert held(state) in (held(start), held(done))


# An exception may arrive in `tempfile`, before it returns the file that it has opened.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_saving_and_checkpoints(tmp_path):
    moments, path = OPERATIONS["update"][0], tmp_path / "moments.npz"
    GaussianNB().fit(X, Y).save(path)
    for number in range(20):
        if interrupted(lambda: moments.save(path), 0.0005 * number):
            assert len(list(tmp_path.iterdir())) == 1
        load(path)
    kept, struck = tmp_path / "kept", 0
    batches = lambda: ((X[n : n + 5], Y[n : n + 5]) for n in range(0, 60, 5))  # noqa: E731
    expected = accumulate(batches())
    for number in range(20):
        struck += interrupted(
            lambda: accumulate(batches(), checkpoint=kept, checkpoint_every=0), 0.001 * number
        )
    assert struck
    assert bits(accumulate(batches(), checkpoint=kept)) == bits(expected)


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


def test_calls_see_the_settings_of_their_caller(use_threads):
    use_threads(3)
    with np.errstate(over="raise"):
        assert threads.run(lambda: np.geterr()["over"], [()] * 3) == ["raise"] * 3


@pytest.mark.parametrize("moment", [0.0001, 0.01])
def test_an_interrupt_leaves_no_limit_of_the_blas_behind(use_threads, moment):
    use_threads(2)
    with threadpool_limits(2):
        calls = [(0.02,) for _ in range(50)]
        assert interrupted(lambda: threads.run_serial_blas(time.sleep, calls), moment)
        assert blas_threads() == {2}


# --- several threads --------------------------------------------------------------------------

SHARED = [
    ClassMoments("diag"),
    ClassMoments("full"),
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


@pytest.mark.parametrize("options", [{}, {"half_life": 1e12}], ids=["in place", "aside"])
def test_rows_are_scored_while_others_are_added(options):
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
                nb.partial_fit(X, Y + i % 5, **options)  # classes appear, too
        finally:
            done.set()
        assert scored.result(60)
    assert nb.class_count_.sum() == pytest.approx(61 * 60)


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
