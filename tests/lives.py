"""Work that is killed at random moments and restarted until it is done, in forks of one process.

``python lives.py FOLDER KILLS SEED`` prints as JSON, for each kind of work, how often it was killed
and a digest of each result; the first is that of undisturbed work. Forks are cheap because one
thread has imported and compiled everything before. With the address of a scheduler as a further
argument, the work runs on its cluster, and its client is killed.
"""

import hashlib
import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
import warnings
from functools import wraps
from pathlib import Path

import dask.array as da
import numpy as np
import zarr
from distributed import Client

from streamgda import Checkpoint, GaussianNB, accumulate
from streamgda.engine import outputs, plan
from streamgda.engine.dask import cuts
from streamgda.runtime import threads
from streamgda.storage.saved import state_of

N_ROWS, N_FEATURES, SLAB = 1000, 5, 40
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(N_ROWS, N_FEATURES))
Y = np.sort(RANDOM.integers(0, 4, N_ROWS))  # so that classes appear during the pass
WEIGHTS = RANDOM.uniform(0, 2, N_ROWS)
SLAB_BYTES = SLAB * 8 * N_FEATURES


class Slow:
    """Rows that take some time to read by slicing."""

    shape, dtype, chunks = X.shape, X.dtype, (SLAB, N_FEATURES)

    def __getitem__(self, rows):
        time.sleep(0.002)
        return X[rows]


def batches():
    for start in range(0, N_ROWS, SLAB):
        time.sleep(0.002)
        yield X[start : start + SLAB], Y[start : start + SLAB]


def rows(folder):
    kept = folder / "kept"
    return accumulate(Slow(), Y, sample_weight=WEIGHTS, checkpoint=kept, checkpoint_every=0)


def iterable(folder):
    kept = folder / "kept.zip"
    return accumulate(batches(), covariance_type="diag", checkpoint=kept, checkpoint_every=0)


def stream(folder):
    checkpoint = Checkpoint(folder / "kept")
    learner = checkpoint.state or GaussianNB()
    for start in range(checkpoint.offset or 0, N_ROWS, SLAB):
        time.sleep(0.002)
        part = slice(start, start + SLAB)
        learner.partial_fit(X[part], Y[part])
        checkpoint.save(learner, start + SLAB)
    return learner.moments_


def scores(folder):
    GaussianNB().fit(X, Y).predict_proba(Slow(), out=folder / "scores.zarr")


# --- on a cluster -------------------------------------------------------------------------------


def store(folder):
    """Rows and labels whose chunks are the parts."""
    cuts.PART_BYTES = cuts.SCORED_BYTES = 1
    cuts.PART_STATES = (0, 0)
    plan._SLAB_BYTES = 1
    group = zarr.create_group(folder.parent / "store", overwrite=True)
    group.create_array("X", data=X, chunks=(SLAB // 2, N_FEATURES))
    group.create_array("y", data=Y, chunks=(SLAB,))


def fit(folder):
    group = zarr.open_group(folder.parent / "store", mode="r")
    kept = folder / "kept"
    return accumulate(group["X"], group["y"], checkpoint=kept, checkpoint_every=0.1)


def blocks(folder):
    rows, labels = (da.from_zarr(folder.parent / "store" / name) for name in "Xy")
    kept = folder / "kept"
    return accumulate(
        2 * rows, labels, sample_weight=WEIGHTS, checkpoint=kept, checkpoint_every=0.1
    )


def predict(folder):
    group = zarr.open_group(folder.parent / "store", mode="r")
    return GaussianNB().fit(X, Y).predict_proba(group["X"], out=folder / "scores.zarr")[...]


def on(address, work):
    """Return the work as done on the cluster at an address."""

    @wraps(work)
    def done(folder):
        with Client(address):
            return work(folder)

    return done


# --- lives --------------------------------------------------------------------------------------


def digest_of(result, folder):
    digest = hashlib.sha256()
    if isinstance(result, np.ndarray):
        digest.update(result.tobytes())
    elif result is not None:
        attributes, arrays = state_of(result)
        digest.update(json.dumps(attributes, sort_keys=True).encode())
        for name in sorted(arrays):
            digest.update(arrays[name].tobytes())
    else:
        for file in sorted(folder.rglob("*")):
            if file.is_file() and file.suffix != ".partial":
                digest.update(str(file.relative_to(folder)).encode() + file.read_bytes())
    return digest.hexdigest()


def fork():
    """Fork this process, and return what `os.fork` does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python 3.12 warns of every fork beside threads
        return os.fork()


def life(work, folder, seconds=None):
    """Return True if the work was done in that time; its process has ended afterwards."""
    child = fork()
    if child == 0:
        code = 1
        try:
            (folder / "digest").write_text(digest_of(work(folder), folder / "scores.zarr"))
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL), "the work failed"
    return code == 0


def lives(work, folder, wanted, chance, shortest, growth):
    """Repeat the work until it has been killed that often."""
    digests, kills, resumed, seconds = [], 0, 0, None
    while kills < wanted:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        longest = shortest
        while not life(work, folder, seconds):
            kills += 1
            resumed += any(folder.iterdir())
            longest *= growth  # ends on the slowest machine too
            seconds = chance.uniform(0, longest)
        digests.append((folder / "digest").read_text())
        seconds = chance.uniform(0, longest)
    return {"kills": kills, "resumed": resumed, "digests": digests}


def main(folder, wanted, seed, address=None):
    plan._SLAB_BYTES = SLAB_BYTES
    outputs._EVERY = 0
    with threads.limit(1):  # compiles kernels, also for adding to existing sums and classes
        for _ in range(2):
            GaussianNB().partial_fit(X, Y).partial_fit(X, Y).predict_proba(X)
            accumulate(batches(), covariance_type="diag")
            accumulate(X, Y, sample_weight=WEIGHTS)
    chance = random.Random(seed)
    works, times = [rows, iterable, stream, scores], (0.05, 1.1 if wanted > 2 else 1.4)
    if address is not None:
        store(Path(folder) / "life")
        works, times = [on(address, work) for work in (fit, blocks, predict)], (1.0, 1.3)
    ended = {
        work.__name__: lives(work, Path(folder) / "life", wanted, chance, *times) for work in works
    }
    print(json.dumps(ended))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
