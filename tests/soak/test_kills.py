"""Saves, conversions and passes that are stopped leave the old or the new contents, whole.

Each is killed (SIGKILL) and interrupted (Ctrl-C) before steps of the file system, and killed at
random moments. The same call gives the same bits afterwards as without a stop.
"""

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import dask
import dask.array as da
import numpy as np
import pytest
from samples import bits
from soak.driver import in_a_fork
from stops import slabs_of

from streamgda import ClassMoments, GaussianNB, accumulate, load
from streamgda.datasets import convert
from streamgda.runtime import threads

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="work is stopped in forks")

N_ROWS, N_FEATURES, SLAB = 1000, 5, 100
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(N_ROWS, N_FEATURES))
Y = np.sort(RANDOM.integers(0, 4, N_ROWS))  # Classes appear during the pass.
WEIGHTS = RANDOM.uniform(0, 2, N_ROWS)
BATCHES = [slice(start, start + SLAB) for start in range(0, N_ROWS, SLAB)]


class Slow:
    """Rows that take some time to read by slicing."""

    shape, dtype, chunks = X.shape, X.dtype, (SLAB, N_FEATURES)

    def __getitem__(self, rows):
        time.sleep(0.002)
        return X[rows]


def save(path, rows=slice(None)):
    ClassMoments("diag").update(X[rows], Y[rows]).save(path)


def rows(path):
    return accumulate(Slow(), Y, sample_weight=WEIGHTS, checkpoint=path, checkpoint_every=0)


def batches(path):
    given = ((Slow()[part], Y[part]) for part in BATCHES)
    return accumulate(given, covariance_type="diag", checkpoint=path, checkpoint_every=0)


def blocks(path):
    lazy = da.from_array(X, (20, N_FEATURES)), da.from_array(Y, 20)
    return accumulate(*lazy, checkpoint=path, checkpoint_every=0)


def stream(path):
    learner = load(path) if path.exists() else GaussianNB()
    for part in BATCHES[(learner.offset_ or 0) // SLAB :]:
        learner.partial_fit(Slow()[part], Y[part])
        learner.save(path, offset=part.stop)
    return learner.moments_


class Work(NamedTuple):
    """A name in a folder, and what is done to it: `before`, if anything is there, and `run`.

    What returns moments resumes from what an earlier run has left.
    """

    name: str
    run: Callable[[Path], Any]
    before: Callable[[Path], Any] | None = None
    resumes: bool = False


WORKS = {
    "save": Work("m.npz", save, partial(save, rows=slice(100))),
    "save to a new file": Work("m.npz", save),
    "convert": Work("rows.zarr", lambda path: convert(X, Y, path)),
    "rows with a checkpoint": Work("kept", rows, resumes=True),
    "batches with a checkpoint": Work("kept", batches, resumes=True),
    "blocks with a checkpoint": Work("kept", blocks, resumes=True),
    "a stream": Work("kept", stream, resumes=True),
    "scores": Work("scores.zarr", lambda path: SCORER.predict_proba(Slow(), out=path)),
}
SCORER = GaussianNB().fit(X, Y)


@pytest.fixture(autouse=True)
def serial():
    """Read small slabs on one thread: pools of threads do not survive a fork."""
    with threads.limit(1), slabs_of(SLAB * X[0].nbytes), dask.config.set(scheduler="synchronous"):
        yield


def contents(path):
    """Bytes of a file, or of the files of a folder; a kill may leave a part of one aside."""
    files = path.rglob("*") if path.is_dir() else [path] * path.exists()
    whole = [file for file in files if file.is_file() and file.suffix != ".partial"]
    return {str(file.relative_to(path)): file.read_bytes() for file in whole}


def with_steps(run, stop=None, interrupt=False):
    """Run work, and stop it before a step of the file system; return the steps that it took."""
    steps = 0

    def count(event, _):
        nonlocal steps, stop
        if event.startswith(("os.", "shutil.")) or event == "open":
            steps += 1
            if stop is not None and steps >= stop:
                if not interrupt:
                    stop = None  # The kill is a step, too.
                    os.kill(os.getpid(), signal.SIGKILL)
                elif threading.current_thread() is threading.main_thread():
                    stop = None
                    raise KeyboardInterrupt

    sys.addaudithook(count)
    try:
        run()
    except KeyboardInterrupt:
        assert interrupt
    return steps


class Folders:
    """Folders in which a work is stopped, each compared with one in which it was not."""

    def __init__(self, work, top):
        self.work, self.top, self.number = work, top, 0
        path = self.new()
        self.old = contents(path)
        began = time.perf_counter()
        self.steps = in_a_fork(lambda: with_steps(lambda: work.run(path)))
        self.seconds = time.perf_counter() - began
        self.new_contents = self.result(path)

    def new(self):
        self.number += 1
        path = self.top / str(self.number) / self.work.name
        path.parent.mkdir()
        if self.work.before:
            self.work.before(path)
        return path

    def result(self, path):
        return bits(self.work.run(path)) if self.work.resumes else contents(path)

    def check(self, step=None, interrupt=False, kill_after=None):
        """Stop the work once, and look at what it has left; then run it again."""
        work, path = self.work, self.new()
        in_a_fork(lambda: with_steps(lambda: work.run(path), step, interrupt), kill_after)
        partial_ = {file.name for file in path.parent.iterdir()} - {work.name}
        assert all(name.endswith(".partial") for name in partial_)
        assert len(partial_) <= (not interrupt)
        if not work.resumes and work.name != "scores.zarr":  # Half-written scores have a mark.
            assert contents(path) in (self.old, self.new_contents)
        if not work.resumes and contents(path) != self.new_contents:
            work.run(path)
        assert self.result(path) == self.new_contents
        assert {file.name for file in path.parent.iterdir()} == {work.name} | partial_


SMOKE = ["save", "rows with a checkpoint"]


@pytest.mark.parametrize(
    ("name", "n"),
    [*((name, 2) for name in SMOKE), *(pytest.param(w, 6, marks=pytest.mark.soak) for w in WORKS)],
)
def test_stopped_work_leaves_the_old_or_the_new_and_is_done_again(tmp_path, name, n):
    folders, chance = Folders(WORKS[name], tmp_path), random.Random(0)
    for step in np.linspace(1, folders.steps, n).astype(int):
        folders.check(step)
        folders.check(step, interrupt=True)
        folders.check(kill_after=chance.uniform(0, folders.seconds))
