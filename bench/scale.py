"""Suite `scale`: a store much larger than the memory budget.

The store is generated once and deleted afterwards: 20 GB of uint8 rows with 784 features, in
zarr's default compression. Each pass runs in a separate process, so that its memory and time can
be measured.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import zarr

from bench import data
from bench.measure import OURS, Plan, Row, Target, rows_of

BYTES = 20 * 10**9
CHUNK_ROWS = 4096
MAX_MEMORY = 512 * 10**6

# Code of each pass; slab() returns the rows of a slab under the budget.
_PASSES = {
    "full moments": "moments = streamgda.accumulate(X, y, max_memory=allowed)\nmoments.save(kept)",
    "reading": "rows = slab()\nfor i in range(0, X.shape[0], rows):\n    X[i : i + rows]",
    "LDA predict into zarr": (
        "moments = streamgda.ClassMoments.load(kept)\n"
        "kind, how = streamgda.LinearDiscriminantAnalysis, dict(solver='lsqr', shrinkage=1e-3)\n"
        "lda = kind.from_moments(moments, **how)\n"
        "streamgda.engine.score(lda.model_.predict, X, out, max_memory=allowed)"
    ),
}
# VmHWM is the peak of this process; ru_maxrss would start at that of the parent process.
_CHILD = """
import json, sys, time, warnings
import numpy, numba, scipy.linalg, sklearn.base, zarr
import streamgda, streamgda.engine
from streamgda.engine.plan import plan_rows
from streamgda.rows import Rows, as_source

def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1024

def slab():
    return plan_rows(Rows(as_source(X)), allowed)[0]

warnings.simplefilter("ignore")
folder, allowed = sys.argv[1], int(sys.argv[2])
kept, out = folder + "/moments.zip", folder + "/labels.zarr"
X, y = streamgda.open_store(folder + "/rows.zarr")
streamgda.accumulate(X[:100], y[:100])  # compiles or loads the kernels
before, start = peak(), time.perf_counter()
{work}
print(json.dumps([time.perf_counter() - start, peak() - before]))
"""


def run(plan: Plan) -> Iterator[Row]:
    n_rows = plan.rows(-(-BYTES // 784))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder / "rows.zarr", n_rows, plan.quick)
        title = f"{n_rows:,} x 784 uint8 in zarr ({n_rows * 784 / 10**9:.3g} GB)"
        found = {what: _pass(work, folder) for what, work in _PASSES.items()}
        reading = found.pop("reading")[0]
        for what, (seconds, peak) in found.items():
            yield from rows_of(
                f"{title}, {what}",
                (None, ""),
                {OURS: [seconds], "reading alone": [reading]},
            )
            yield from rows_of(
                f"{title}, {what}: peak memory above imports",
                (None, ""),
                {OURS: [peak / 2**20], "max_memory": [MAX_MEMORY / 2**20]},
                targets={"": Target(1.0, "<= max_memory")},
                unit="MiB",
            )


def make(path: Path, n_rows: int, quick: bool) -> None:
    """Write images of MNIST, or of its stand-in, drawn at random with replacement."""
    _, images, digits, _, _ = data.mnist(quick)
    group = zarr.create_group(path)
    X = group.create_array("X", shape=(n_rows, 784), chunks=(CHUNK_ROWS, 784), dtype="u1")
    y = group.create_array("y", shape=(n_rows,), chunks=(1 << 20,), dtype="u1")
    labels = np.empty(n_rows, np.uint8)
    for start in range(0, n_rows, 8 * CHUNK_ROWS):
        stop = min(start + 8 * CHUNK_ROWS, n_rows)
        drawn = np.random.default_rng([0, start]).integers(0, len(images), stop - start)
        X[start:stop] = images[drawn]
        labels[start:stop] = digits[drawn]
    y[:] = labels


def _pass(work: str, folder: Path) -> tuple[float, float]:
    """Run a process; return its seconds and its peak memory above imports in bytes."""
    done = subprocess.run(
        [sys.executable, "-c", _CHILD.format(work=work), str(folder), str(MAX_MEMORY)],
        check=True,
        capture_output=True,
        text=True,
    )
    seconds, peak = json.loads(done.stdout.splitlines()[-1])
    return seconds, peak
