"""Suite `memory`: peak memory of a process that fits from a zarr store, above its imports."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bench import data
from bench.measure import Row
from streamgda.datasets import convert

# VmHWM is the process's own peak; ru_maxrss would begin at that of the process that starts it.
_CHILD = """
import sys, warnings
import numpy, numba, scipy.linalg, sklearn.base, zarr
import streamgda

def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))

warnings.simplefilter("ignore")
X, y = streamgda.open_store(sys.argv[1])
before = peak()
streamgda.GaussianDiscriminantAnalysis(var_smoothing=0.2).fit(X, y)
print(peak() - before)
"""


def run(repeats: int) -> Iterator[Row]:
    name, X, y, _, _ = data.mnist()
    for times in (1, 4):
        with tempfile.TemporaryDirectory() as folder:
            store = Path(folder) / "rows.zarr"
            convert(np.tile(X, (times, 1)), store, labels=np.tile(y, times))
            peaks = [_peak(store) for _ in range(max(1, repeats // 2))]
        size = times * X.nbytes / 2**20
        peak = float(np.median(peaks))
        yield Row(
            "memory",
            f"{name} x {times} from zarr, QDA fit: peak above imports",
            "the rows themselves (as uint8)",
            peak,
            size,
            size / peak,
            (size / max(peaks), size / min(peaks)),
            note="MiB",
        )


def _peak(store: Path) -> float:
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, str(store)], check=True, capture_output=True, text=True
    )
    return int(done.stdout) / 1024
