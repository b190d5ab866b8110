"""Kill saves, conversions and passes, and check what they leave; in forks of one process.

Each work is killed (SIGKILL) and interrupted (Ctrl-C) before steps of the file system, and killed
at random moments. An interrupt arrives as such, and not as another error. Afterwards
the old or the new contents are whole, and the same call gives the same bits as without a kill. An
interrupt leaves no temporary file.

``python tests/kills.py ADDRESS FOLDER`` kills clients of a cluster at random moments and
restarts their work until it is done, and prints as JSON, for each kind of work, how often it was
killed and a digest of each result.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import zarr
from distributed import Client
from states import contents

from streamgda import ClassMoments, GaussianNB, accumulate, load
from streamgda.datasets import convert
from streamgda.engine import outputs, plan
from streamgda.runtime import threads
from streamgda.storage.opening import open_node
from streamgda.storage.saved import state_of

STEPS = {"open", "shutil.rmtree"}  # and everything that begins with "os."
ENOUGH = 3  # kills of a client
N_ROWS, N_FEATURES, SLAB = 1000, 5, 100
PART = 20  # rows of a task on a cluster
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


def of_batches(folder):
    kept = folder / "kept.npz"
    return accumulate(batches(), covariance_type="diag", checkpoint=kept, checkpoint_every=0)


def stream(folder):
    path = folder / "kept"
    learner = load(path) if path.exists() else GaussianNB()
    for start in range(learner.offset_ or 0, N_ROWS, SLAB):
        time.sleep(0.002)
        part = slice(start, start + SLAB)
        learner.partial_fit(X[part], Y[part])
        learner.save(path, offset=start + SLAB)
    return learner.moments_


def scores(folder):
    GaussianNB().fit(X, Y).predict_proba(Slow(), out=folder / "scores.zarr")


@dataclass(frozen=True)
class Work:
    """Something that is killed.

    Attributes
    ----------
    run : callable
        Does the work in a folder.
    path : str
        What it writes there.
    read : callable
        Returns the contents of that path, from which a digest is computed.
    before : callable, optional
        Writes the old contents in the folder. Without it, there is nothing at first.
    resumed : bool
        Whether it writes parts, from which the next run resumes.
    """

    run: Callable[[Path], Any]
    path: str
    read: Callable[[Path], Any]
    before: Callable[[Path], Any] | None = None
    resumed: bool = False


# --- works ----------------------------------------------------------------------------------------


def moments_of(rows: slice) -> ClassMoments:
    return ClassMoments("diag").update(X[rows], Y[rows])


def saving(name: str) -> dict[str, Any]:
    return {
        "run": lambda folder: moments_of(slice(None)).save(folder / name),
        "path": name,
        "read": ClassMoments.load,
        "before": lambda folder: moments_of(slice(100)).save(folder / name),
    }


def read_rows(path: Path) -> np.ndarray:
    group = open_node(path)
    return np.column_stack([group["X"][:], group["y"][:]])


def resuming(run: Callable[[Path], Any], name: str, read: Callable[[Path], Any]) -> Work:
    return Work(run, name, read, resumed=True)


def recipe(folder: Path) -> np.ndarray:
    """Learn a file of text by the loop that the documentation shows; return what was learnt."""
    page = (Path(__file__).parents[1] / "docs/guide/streams.md").read_text()
    block = next(part for part in page.split("```python")[1:] if "def learn(" in part)
    code = block[: block.index("\n\n\nnp.savetxt")].replace("every=60", "every=0")
    names = {"GaussianNB": GaussianNB, "load": load}
    exec(code, names)
    source = folder.parent / "rows.csv"
    if not source.exists():
        np.savetxt(source, np.column_stack([X, Y])[::9], "%.8g", ",")
    return np.frombuffer(names["learn"](source, folder / "kept.npz", 100).to_bytes(), np.uint8)


WORKS = {
    "save": Work(**saving("m.npz")),
    "save to a new file": Work(**saving("m.npz") | {"before": None}),
    "convert": Work(lambda folder: convert(X, Y, folder / "rows"), "rows", read_rows),
    "accumulate with a checkpoint": resuming(rows, "kept", contents),
    "accumulate batches with a checkpoint": resuming(of_batches, "kept.npz", contents),
    "learn from a stream": resuming(stream, "kept", contents),
    "learn a text from an offset": resuming(recipe, "kept.npz", lambda path: None),
    "scores to an output": resuming(scores, "scores.zarr", lambda path: None),
}


# --- on a cluster -------------------------------------------------------------------------------


def store(folder):
    """Rows and labels whose chunks are the parts."""
    plan._SLAB_BYTES = 1
    group = zarr.create_group(folder.parent / "store", overwrite=True)
    group.create_array("X", data=X, chunks=(PART, N_FEATURES))
    group.create_array("y", data=Y, chunks=(2 * PART,))


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


# --- kills ----------------------------------------------------------------------------------------


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


def count_steps(last: int | None, interrupted: bool) -> list[int]:
    """Count the steps of the file system from now on; stop this process before one of them."""
    steps = [0]

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal last
        if not event.startswith("os.") and event not in STEPS:
            return
        steps[0] += 1
        if last is None or steps[0] < last:
            return
        if not interrupted:
            last = None  # for this kill is a step too
            os.kill(os.getpid(), signal.SIGKILL)
        if threading.current_thread() is threading.main_thread():
            last = None
            raise KeyboardInterrupt

    sys.addaudithook(hook)
    return steps


def life(
    run: Callable[[Path], Any],
    folder: Path,
    step: int | None = None,
    seconds: float | None = None,
    interrupted: bool = False,
) -> int:
    """Run a work in a fork, until it ends or is stopped.

    Parameters
    ----------
    run, folder
    step : int, optional
        Step of the file system before which it is stopped.
    seconds : float, optional
        Time after which it is killed.
    interrupted : bool
        Whether it is interrupted at that step, as by Ctrl-C, rather than killed.

    Returns
    -------
    int
        Steps that it took, 0 if it was stopped.
    """
    reader, writer = os.pipe()
    child = fork()
    if child == 0:
        code = 1
        try:
            steps = count_steps(step, interrupted)
            run(folder)
            os.write(writer, str(steps[0]).encode())
            code = 0
        except KeyboardInterrupt:
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writer)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with os.fdopen(reader, "rb") as told:
        steps = told.read()
    if code not in (0, -signal.SIGKILL):
        raise AssertionError(f"the work failed with {code}")
    return int(steps or 0)


def digest(work: Work, folder: Path) -> str:
    path = folder / work.path
    if work.resumed:  # the result of the call that resumes
        return digest_of(work.run(folder), path)
    return digest_of(work.read(path), path)


class Killer:
    """Kills a work in new folders, and checks what is left each time.

    Attributes
    ----------
    steps : int
        Steps of the file system that the work takes.
    old, new : str or None
        Digests of the contents before and after.
    """

    def __init__(self, work: Work, folder: Path) -> None:
        self.work, self.folder, self.lives = work, folder, 0
        first = self.new_folder()
        self.old = None if work.before is None else digest(work, first)
        self.steps = life(work.run, first)
        self.new = digest(work, first)
        assert self.left(first) == [work.path], self.left(first)

    def seconds(self) -> float:
        """Return the time that the work takes."""
        folder, started = self.new_folder(), time.monotonic()
        life(self.work.run, folder)
        return time.monotonic() - started

    def new_folder(self) -> Path:
        self.lives += 1
        folder = self.folder / str(self.lives)
        folder.mkdir()
        if self.work.before is not None:
            self.work.before(folder)
        return folder

    def left(self, folder: Path) -> list[str]:
        """Return the names in a folder."""
        return sorted(file.name for file in folder.iterdir())

    def kill(self, **moment: Any) -> bool:
        """Stop the work once, see `life`; return whether it was stopped before it ended.

        Raises
        ------
        AssertionError
            If the contents are neither old nor new, or temporary files stay.
        """
        work, folder = self.work, self.new_folder()
        stopped = not life(work.run, folder, **moment)
        path, left = folder / work.path, self.left(folder)
        where = f"{moment}, which left {left}"
        if not path.exists():
            assert self.old is None, f"nothing at {where}"
        elif work.resumed:
            work.read(path)
        else:
            assert digest(work, folder) in (self.old, self.new), f"neither at {where}"
        killed = [name for name in left if name.endswith(".partial")]
        assert len(killed) <= (not moment.get("interrupted")), f"{left} after {where}"
        if not (work.resumed or (path.exists() and self.old is None)):
            work.run(folder)
        assert digest(work, folder) == self.new, f"other bits at {where}"
        assert self.left(folder) == sorted([work.path, *killed]), self.left(folder)
        return stopped


def moments(steps: int, seconds: float, n: int, chance: random.Random) -> Iterator[dict[str, Any]]:
    """Yield when to stop: before `n` evenly spaced steps, then as often at random.

    With no seconds, there are no random moments.
    """
    for step in sorted({1 + round(i * (steps - 1) / max(1, n - 1)) for i in range(n)}):
        yield {"step": step}
        yield {"step": step, "interrupted": True}
    for _ in range(n) if seconds else ():
        yield {"seconds": chance.uniform(0, seconds)}


def write_often() -> None:
    """Let works read small slabs, and write as often as they can."""
    plan._SLAB_BYTES = SLAB_BYTES
    outputs._EVERY = 0


def kill_clients(address: str, folder: Path) -> dict[str, dict[str, Any]]:
    """Kill the clients of works on a cluster until each has been killed often enough."""
    chance, ended = random.Random(0), {}
    store(folder / "life")
    for work in (fit, blocks, predict):
        name, kills, resumed, digests = work.__name__, 0, False, []

        def run(place: Path, work: Callable[[Path], Any] = work) -> None:
            with Client(address):
                (place / "digest").write_text(digest_of(work(place), None))

        while kills < ENOUGH:
            place, longest = folder / "life", 1.0
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            while not life(run, place, seconds=chance.uniform(0, longest) if digests else None):
                kills += 1
                resumed |= any(place.iterdir())
                longest *= 1.3  # ends on the slowest machine too
            digests.append((place / "digest").read_text())
        ended[name] = {"kills": kills, "resumed": resumed, "digests": digests}
    return ended


if __name__ == "__main__":
    with threads.limit(1):  # pools of threads do not survive a fork
        print(json.dumps(kill_clients(sys.argv[1], Path(sys.argv[2]))))
