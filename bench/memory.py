"""Suite `memory`: peak memory of a process that fits from a zarr store, against its imports."""

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

_CHILD = """
import resource, sys, warnings
import numpy, numba, dask.array, scipy.linalg, sklearn.base, zarr
import streamgda
warnings.simplefilter("ignore")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
if len(sys.argv) > 1:
    X, y = streamgda.open_store(sys.argv[1])
    streamgda.GaussianDiscriminantAnalysis(var_smoothing=0.2).fit(X, y)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def run(repeats: int) -> Iterator[Row]:
    name, X, y, _, _ = data.mnist()
    for times in (1, 4):
        with tempfile.TemporaryDirectory() as folder:
            store = Path(folder) / "rows.zarr"
            convert((np.tile(X, (times, 1)), np.tile(y, times)), store)
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
