"""Suite `memory`: peak memory of a process that fits from a zarr store, above its imports."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bench import data
from bench.measure import OURS, Plan, Row, rows_of
from streamgda.datasets import convert

# VmHWM is the peak of this process; ru_maxrss would start at that of the parent process.
_CHILD = """
import sys, warnings
import numpy, numba, scipy.linalg, sklearn.base, zarr
import streamgda
from streamgda import *

def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))

warnings.simplefilter("ignore")
X, y = streamgda.open_store(sys.argv[1])
before = peak()
model = streamgda.GaussianDiscriminantAnalysis(var_smoothing=0.2).fit(X, y)
print(peak() - before, model.moments_.nbytes / 1024)
"""


def run(plan: Plan) -> Iterator[Row]:
    name, X, y, _, _ = data.mnist(plan.quick)
    for times in (1, 4):
        with tempfile.TemporaryDirectory() as folder:
            store = Path(folder) / "rows.zarr"
            convert(np.tile(X, (times, 1)), store, labels=np.tile(y, times))
            found = [_peak(store) for _ in range(min(plan.repeats, 2))]
        peaks = [peak for peak, _ in found]
        yield from rows_of(
            f"{name} x {times} from zarr, QDA fit: peak memory above imports",
            (found[0][1], "the moments"),
            {
                OURS: peaks,
                "size of the rows (uint8)": [times * X.nbytes / 2**20] * len(peaks),
            },
            unit="MiB",
        )


def _peak(store: Path) -> tuple[float, float]:
    """Return the peak memory and the size of the moments, in MiB."""
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, str(store)], check=True, capture_output=True, text=True
    )
    peak, kept = (float(number) / 1024 for number in done.stdout.split())
    return peak, kept
