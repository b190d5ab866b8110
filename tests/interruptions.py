"""Interrupt the package at any moment: states stay as they were or become complete.

Each case is a change of a state. Exceptions strike it wherever Python may raise those of signals:
when a function starts, when a call returns, and when a loop is repeated. Signals strike it at
random moments, once or several times in a row. Then the state must be the one before or the one
after the change, bit for bit; it must not change any more; and it must work.

    python tests/interruptions.py             1,000 signals over all cases
    python tests/interruptions.py -n 50 half  50 signals, cases whose name contains a word
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import ctypes
import dis
import faulthandler
import inspect
import itertools
import random
import signal
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from moment_checks import LARGE_STATE, set_sizes
from states import bits

import streamgda
from streamgda import (
    BernoulliNB,
    ClassMoments,
    GaussianDiscriminantCV,
    GaussianNB,
    GroupedMoments,
    LinearDiscriminantAnalysis,
    PairwiseMoments,
    QuadraticDiscriminantAnalysis,
    SlidingWindow,
)
from streamgda.moments.centred import CentredSums
from streamgda.moments.covariance_types import STRUCTURES

PACKAGE = str(Path(streamgda.__file__).parent)
LONGEST = 120  # seconds; a case that takes longer hangs


class Stop(BaseException):
    """The exception from outside."""


@dataclass
class Case:
    """A change of a state, for rows of some size.

    Attributes
    ----------
    name : str
    start : object
        What is changed, or copied and changed.
    change : callable
        Called with a copy of `start`.
    probe : ndarray or None
        Rows that an estimator scores, to show its model.
    """

    name: str
    start: Any
    change: Callable[[Any], Any]
    probe: np.ndarray | None = None

    def bits(self, state: Any) -> Any:
        """Return all that the state holds, as bytes."""
        if isinstance(state, np.ndarray):
            return state.tobytes()
        if self.probe is not None:
            if not hasattr(state, "n_features_in_"):
                return "unfitted"
            fitted = getattr(state, "best_estimator_", state)
            scores = getattr(state, "predict_proba", state.predict)(self.probe)
            own = ["threshold_", "n_features_in_", "best_index_"]
            return (
                bits(fitted.moments_),
                scores.tobytes(),
                [getattr(state, name, None) for name in own],
            )
        return bits(state)

    def complete(self) -> Any:
        state = copy.deepcopy(self.start)
        self.change(state)
        return state

    def judge(self, state: Any, before: Any, after: Any) -> str:
        """Return what is wrong with the state after an interruption, "" if nothing is."""
        found = self.bits(state)
        whole = not isinstance(state, np.ndarray)  # scores are written slab by slab
        if whole and found not in (before, after):
            return "torn"
        time.sleep(0.001)
        if self.bits(state) != found:
            return "written to afterwards"
        if found == before and before != after:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.change(state)
            if self.bits(state) != after:
                return "does not go on"
        return ""


# --- cases --------------------------------------------------------------------------------------


def cases(large: bool) -> Iterator[Case]:
    """Yield all cases, with states that are copied or that change in place."""
    rng = np.random.default_rng(0)
    n, d, k = (1200, 190, 6) if large else (40, 4, 3)
    y = np.arange(2 * n) % k
    X = rng.normal(size=(2 * n, d)) + y[:, None]
    w = rng.uniform(0.1, 2, 2 * n)
    wide = rng.normal(size=(900, 9000)) if large else X  # in parts, which several threads sum
    size = "large" if large else "small"
    first, second = slice(None, n), slice(n, None)

    def rows(name: str) -> tuple[np.ndarray, np.ndarray]:
        A = X if STRUCTURES[name].matrix or not large else wide
        return A, y[: len(A)]

    for name in STRUCTURES:
        A, b = rows(name)
        half = len(A) // 2
        start = ClassMoments(name).update(A[:half], b[:half])
        more = A[half:], b[half:]
        v = w[half : len(A)]
        yield Case(f"{size} {name} update", start, lambda m, r=more: m.update(*r))
        yield Case(f"{size} {name} weights", start, lambda m, r=more, v=v: m.update(*r, v))
        weighted = copy.deepcopy(start).update(*more, v)
        yield Case(f"{size} {name} *=", start, lambda m: m.__imul__(0.5))
        yield Case(f"{size} {name} +=", start, lambda m, o=weighted: m.__iadd__(o))
        yield Case(f"{size} {name} more weights", weighted, lambda m, r=more, v=v: m.update(*r, v))
        whole = np.clip(20 * A + 100, 0, 255).astype(np.uint8)
        start = ClassMoments(name).update(whole[:half], b[:half])
        yield Case(
            f"{size} {name} exact update", start, lambda m, r=(whole[half:], b[half:]): m.update(*r)
        )
        wider = whole[half:].astype(np.uint16), b[half:]
        yield Case(f"{size} {name} exact, wider", start, lambda m, r=wider: m.update(*r))
        other = ClassMoments(name).update(*wider)
        yield Case(f"{size} {name} exact +=", start, lambda m, o=other: m.__iadd__(o))
    start = ClassMoments("full", fourth_moments=True).update(X[first], y[first])
    yield Case(f"{size} norms update", start, lambda m: m.update(X[second], y[second]))
    yield Case(f"{size} norms *=", start, lambda m: m.__imul__(0.5))
    start = ClassMoments("full").update(X[first], y[first])
    yield Case(f"{size} new classes", start, lambda m: m.update(X[second], y[second] + 1))
    yield Case(f"{size} declare", start, lambda m: m.declare([7, 8, 9]))
    gaps = X.copy()
    gaps[::7, 1] = np.nan
    start = PairwiseMoments().update(gaps[first], y[first])
    yield Case(f"{size} pairs update", start, lambda m: m.update(gaps[second], y[second]))
    yield Case(f"{size} pairs new class", start, lambda m: m.update(gaps[second], y[second] + 1))
    other = PairwiseMoments().update(gaps[second], y[second])
    yield Case(f"{size} pairs +=", start, lambda m: m.__iadd__(other))
    window = SlidingWindow(3)
    for i in range(4):
        window.update(X[i * 9 : i * 9 + 9], y[i * 9 : i * 9 + 9])
    for name in ("full", "tied"):
        sites = np.arange(len(y)) % 2
        start = GroupedMoments(name).update(X[first], y[first], sites[first])
        more = X[second], y[second], sites[second]
        yield Case(f"{size} {name} groups", start, lambda m, r=more: m.update(*r))
        later = *more[:2], sites[second] + 1
        yield Case(f"{size} {name} new group", start, lambda m, r=later: m.update(*r))
        other = GroupedMoments(name).update(*later)
        yield Case(f"{size} {name} groups +=", start, lambda m, o=other: m.__iadd__(o))
    yield Case(f"{size} window", window, lambda s: s.update(X[second], y[second]))
    yield from estimator_cases(size, X, y, w, wide)


def estimator_cases(
    size: str, X: np.ndarray, y: np.ndarray, w: np.ndarray, wide: np.ndarray
) -> Iterator[Case]:
    kinds = {
        GaussianNB(): wide,
        QuadraticDiscriminantAnalysis(reg_param=0.1): X,
        LinearDiscriminantAnalysis(): X,
        BernoulliNB(): wide,
    }
    for kind, A in kinds.items():
        half = len(A) // 2
        b, v = y[: len(A)], w[half : len(A)]
        old, new = (A[:half], b[:half]), (A[half:], b[half:])
        name, probe = f"{size} {type(kind).__name__}", A[:20]
        fitted = copy.deepcopy(kind).fit(*old)
        faded = copy.deepcopy(fitted).partial_fit(*new, half_life=half)
        both, unfitted = copy.deepcopy(kind).fit(A, b), copy.deepcopy(kind)
        fade = {"half_life": half}
        changes = {
            "partial_fit": (fitted, lambda e, r=new: e.partial_fit(*r)),
            "partial_fit, weights": (
                fitted,
                lambda e, r=new, v=v: e.partial_fit(*r, sample_weight=v),
            ),
            "half-life": (fitted, lambda e, r=new, f=fade: e.partial_fit(*r, **f)),
            "more half-life": (faded, lambda e, r=new, f=fade: e.partial_fit(*r, **f)),
            "first partial_fit": (unfitted, lambda e, r=new: e.partial_fit(*r, classes=range(9))),
            "forget": (both, lambda e, r=new: e.forget(*r)),
            "fit": (fitted, lambda e, r=(A[:, ::-1], b): e.fit(*r)),
        }
        if type(kind) is not LinearDiscriminantAnalysis:
            changes["retire"] = fitted, lambda e: e.retire([1])
        for what, (start, change) in changes.items():
            yield Case(f"{name} {what}", start, change, probe)
        out = np.zeros((len(A), fitted.classes_.size))
        yield Case(f"{name} out", out, lambda o, e=fitted, r=A: e.predict_proba(r, out=o))
    half = len(X) // 2
    grid = {"covariance_type": ["diag", "tied_diag"]}
    search = GaussianDiscriminantCV(grid, cv=2).fit(X[:half], y[:half])
    yield Case(f"{size} search", search, lambda e: e.fit(X[:, ::-1], y), X[:20])


# --- interruptions ------------------------------------------------------------------------------

_ENDS = ("CALL", "JUMP_BACKWARD", "POP_JUMP_BACKWARD")  # instructions
_TRACED = (PACKAGE, contextlib.__file__)


def interrupted_at(number: int, function: Callable[[], Any]) -> bool:
    """Call a function with an exception at one of the places where signals are handled.

    Returns
    -------
    bool
        True if it was raised; False if the function has fewer such places.
    """
    left = number

    def pass_boundary() -> None:
        nonlocal left
        if left == 0:
            raise Stop
        left -= 1

    def traced(frame: Any, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(_TRACED):
            return None
        if not frame.f_code.co_flags & inspect.CO_GENERATOR:  # it may be about to be closed
            pass_boundary()
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        ended = False  # the call or the loop of the last instruction

        def local(frame: Any, event: str, _: Any) -> Any:
            nonlocal ended
            if event == "opcode":
                if ended:
                    pass_boundary()
                name = dis.opname[frame.f_code.co_code[frame.f_lasti]]
                ended = name.startswith(_ENDS)
            return local

        return local

    before = sys.gettrace()
    sys.settrace(traced)
    try:
        function()
    except Stop:
        return True
    finally:
        sys.settrace(before)
    return False


def boundaries(case: Case, first: int = 0, step: int = 1) -> Iterator[tuple[int, str]]:
    """Interrupt a change at every place, or at every `step`-th; yield place and verdict."""
    before, after = case.bits(copy.deepcopy(case.start)), case.bits(case.complete())
    for number in itertools.count(first, step):
        state = copy.deepcopy(case.start)
        if not interrupted_at(number, lambda s=state: case.change(s)):
            return
        yield number, case.judge(state, before, after)


def signalled(function: Callable[[], Any], moment: float = 60.0, again: float = 0.0) -> bool:
    """Call a function that a signal interrupts at a moment, and again and again until it ends.

    The function may set another moment by `signal.setitimer`.

    Returns
    -------
    bool
        True if it did not return.
    """
    over = struck = False

    def stop(*_: Any) -> None:
        if not over:
            raise Stop

    signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, moment, again)
        function()
        over = True
    except Stop:
        over = struck = True
    signal.setitimer(signal.ITIMER_REAL, 0)
    return struck  # and keep the handler, for signals that another thread has yet to pass on


def signals(case: Case, n: int, seed: int) -> Counter[str]:
    """Interrupt a change by `n` signals; count what was wrong."""
    random_ = random.Random(seed)
    before, after = case.bits(copy.deepcopy(case.start)), case.bits(case.complete())
    state = copy.deepcopy(case.start)
    started = time.perf_counter()
    case.change(state)
    took = time.perf_counter() - started
    counted: Counter[str] = Counter()
    while counted.total() < n:
        moment = max(1e-6, random_.uniform(0, took))
        state = copy.deepcopy(case.start)
        again = random_.choice([0, 1e-4, 1e-3])
        if signalled(lambda s=state: case.change(s), moment, again):
            counted[case.judge(state, before, after) or "sound"] += 1
        else:
            took = max(took * 0.9, 2e-5)
    return counted


def sent() -> None:
    """Check that an update is completed before an exception that another thread sends is raised."""
    X, y = np.random.default_rng(0).normal(size=(60, 4)), np.arange(60) % 3
    moments, expected = ClassMoments().update(X, y), ClassMoments().update(X, y)
    started, add, struck = threading.Event(), CentredSums._add_by_ranges, []

    def slowly(*given: Any) -> None:
        started.set()
        time.sleep(0.05)
        add(*given)

    def update() -> None:
        try:
            moments.update(X, y)
        except Stop:
            struck.append(bits(moments))

    thread = threading.Thread(target=update)
    with pytest.MonkeyPatch.context() as patch:
        set_sizes(LARGE_STATE, patch)
        expected.update(X, y)
        patch.setattr(CentredSums, "_add_by_ranges", slowly)
        thread.start()
        assert started.wait(30)
        send = ctypes.pythonapi.PyThreadState_SetAsyncExc
        assert send(ctypes.c_ulong(thread.ident), ctypes.py_object(Stop)) == 1
        thread.join(30)
    assert struck == [bits(expected)]


# --- the program --------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("words", nargs="*", help="cases whose name contains one of them")
    parser.add_argument("-n", type=int, default=1000, help="signals over all cases")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    every = [*cases(large=False), *cases(large=True)]
    chosen = [c for c in every if not given.words or any(word in c.name for word in given.words)]
    each, sound = -(-given.n // len(chosen)), 0
    for number, case in enumerate(chosen):
        faulthandler.dump_traceback_later(LONGEST, exit=True)
        print(f"{case.name}: ", end="", flush=True)
        counted = signals(case, each, number)
        print(", ".join(f"{count} {verdict}" for verdict, count in counted.items()), flush=True)
        sound += counted["sound"]
    faulthandler.cancel_dump_traceback_later()
    print(f"{sound} of {each * len(chosen)} interruptions are sound")
    return int(sound < each * len(chosen))


if __name__ == "__main__":
    sys.exit(main())
