"""Ctrl-C leaves a state as it was or changed completely, and no thread that writes to it."""

import copy
import random
import signal
import time
from functools import partial

import numpy as np
import pytest
from samples import bits
from soak.driver import blas_threads, interrupted

from streamgda import (
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

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timers of signals")
N, D = 1500, 200
RANDOM = np.random.default_rng(0)
Y = np.arange(2 * N) % 6
X = RANDOM.normal(size=(2 * N, D)) + Y[:, None]
BYTES = np.clip(20 * X + 100, 0, 255).astype(np.uint8)
GAPS = np.where(np.arange(2 * N)[:, None] % 7 == np.arange(20), np.nan, X[:, :20])
FEW = X[:, :4]
SITES = np.arange(2 * N) % 2
OLD, NEW = (X[:N], Y[:N]), (X[N:], Y[N:])


def moments():
    return ClassMoments().update(*OLD)


# A state, and a change of it: of small states and of large ones that change in place.
CHANGES = {
    "update": (moments, lambda m: m.update(*NEW)),
    "weights": (moments, lambda m: m.update(*NEW, np.linspace(0.5, 2, N))),
    "integers": (
        lambda: ClassMoments().update(BYTES[:N], Y[:N]),
        lambda m: m.update(BYTES[N:], Y[N:]),
    ),
    "new classes": (moments, lambda m: m.update(X[N:], Y[N:] + 3)),
    "declare": (moments, lambda m: m.declare([7, 8, 9])),
    "+=": (moments, lambda m: m.__iadd__(ClassMoments().update(*NEW))),
    "*=": (moments, lambda m: m.__imul__(0.5)),
    "pairs": (
        lambda: PairwiseMoments().update(GAPS[:N], Y[:N]),
        lambda m: m.update(GAPS[N:], Y[N:]),
    ),
    "groups": (
        lambda: GroupedMoments().update(FEW[:N], Y[:N], SITES[:N]),
        lambda m: m.update(FEW[N:], Y[N:], SITES[N:] + 1),
    ),
    "window": (
        lambda: SlidingWindow(2).update(*OLD).update(*NEW),
        lambda w: w.update(*OLD),
    ),
    "partial_fit": (lambda: GaussianNB().fit(FEW, Y), lambda e: e.partial_fit(FEW, Y)),
    "half-life": (
        lambda: GaussianNB().fit(FEW, Y),
        lambda e: e.partial_fit(FEW, Y, half_life=500),
    ),
    "forget": (lambda: GaussianNB().fit(FEW, Y), lambda e: e.forget(FEW[:N], Y[:N])),
    "fit": (lambda: QuadraticDiscriminantAnalysis().fit(*OLD), lambda e: e.fit(*NEW)),
    "fit LDA": (lambda: LinearDiscriminantAnalysis().fit(*OLD), lambda e: e.fit(*NEW)),
}
SMOKE = ["update", "+=", "partial_fit"]


@pytest.fixture(scope="module", autouse=True)
def blas_of_one_thread():
    """Leave BLAS its threads, which these tests look at."""


def held(state):
    """All that a state holds, and what an estimator answers."""
    answers = state.predict_proba(FEW[:9]).tobytes() if isinstance(state, GaussianNB) else b""
    return bits(getattr(state, "moments_", state)), answers


@pytest.mark.parametrize(
    ("name", "n"),
    [
        *((name, 4) for name in SMOKE),
        *(pytest.param(c, 40, marks=pytest.mark.soak) for c in CHANGES),
    ],
)
def test_no_change_is_half_made(name, n):
    make, change = CHANGES[name]
    start, chance, struck, limits = make(), random.Random(n), 0, blas_threads()
    done = copy.deepcopy(start)
    change(done)  # The first call compiles.
    before, after = held(start), held(done)
    state = copy.deepcopy(start)
    began = time.perf_counter()
    change(state)
    seconds = time.perf_counter() - began
    for _ in range(20 * n):
        state = copy.deepcopy(start)
        if not interrupted(
            lambda state=state: change(state), max(1e-6, chance.uniform(0, seconds))
        ):
            seconds *= 0.9
            continue
        found = held(state)
        assert found in (before, after)
        time.sleep(0.001)
        assert held(state) == found, "a thread writes to it afterwards"
        if found == before:
            change(state)
            assert held(state) == after
        struck += 1
        if struck == n:
            break
    assert struck > n // 2
    assert blas_threads() == limits


# An exception may arrive in `tempfile`, before it returns the file that it has opened.
@pytest.mark.soak
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_saves_and_checkpoints_are_whole(tmp_path):
    path, kept = tmp_path / "moments.npz", tmp_path / "kept"
    GaussianNB().fit(FEW, Y).save(path)
    for number in range(20):
        if interrupted(lambda: moments().save(path), 0.0005 * number):
            assert [*tmp_path.iterdir()] == [path]
        load(path)
    batches = [(FEW[start : start + 50], Y[start : start + 50]) for start in range(0, N, 50)]
    struck = 0
    work = partial(accumulate, batches, checkpoint=kept, checkpoint_every=0)
    for number in range(20):
        struck += interrupted(work, 0.001 * number)
    assert struck
    assert bits(accumulate(batches, checkpoint=kept)) == bits(accumulate(batches))
