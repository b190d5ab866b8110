"""Suite `scale`: time and memory of passes over a zarr store of 20 GB, on request only."""

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
from bench.measure import Row

BYTES = 20 * 10**9
CHUNK_ROWS = 4096
# A fresh process makes each pass. VmHWM is its own peak; ru_maxrss starts at that of the parent.
_PASS = """
import json, sys, time, zarr, streamgda

def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024

X, y = streamgda.open_store(sys.argv[1])
streamgda.accumulate(X[:100], y[:100])  # loads the kernels
before, start = peak(), time.perf_counter()
{}
print(json.dumps([time.perf_counter() - start, peak() - before]))
"""
_FIT = "streamgda.accumulate(X, y)"
_READ = "for i in range(0, X.shape[0], {0}): X[i : i + {0}]".format(16 * CHUNK_ROWS)


def rows() -> Iterator[Row]:
    n = BYTES // 784
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.zarr"
        write(path, n)
        title = f"{n:,} x 784 uint8 in zarr ({n * 784 / 1e9:.3g} GB), full, moments"
        (ours, peak), (reading, other) = (one_pass(code, path) for code in (_FIT, _READ))
        yield Row(title, "reading alone", ours, reading)
        yield Row(f"{title}: peak memory", "reading alone", peak, other, unit="MiB")


def sentence(rows: list[Row]) -> str:
    """Return the figure of the README."""
    took, peak = rows
    return (
        f"**{took.task.partition(' in zarr')[0]}, {BYTES / 1e9:.0f} GB of zarr: one pass takes "
        f"{took.ours:.3g} s and {peak.ours:.3g} MiB of memory.** Reading alone takes "
        f"{took.theirs:.3g} s."
    )


def write(path: Path, n: int) -> None:
    """Write images of MNIST, or of its stand-in, drawn at random with replacement."""
    _, images, digits, _, _ = data.mnist()
    group, random = zarr.create_group(path), np.random.default_rng(0)
    X = group.create_array("X", shape=(n, 784), chunks=(CHUNK_ROWS, 784), dtype="u1")
    y = group.create_array("y", shape=(n,), chunks=(1 << 20,), dtype="u1")
    for start in range(0, n, 1 << 20):
        drawn = random.integers(0, len(images), min(1 << 20, n - start))
        X[start : start + drawn.size] = images[drawn]
        y[start : start + drawn.size] = digits[drawn]


def one_pass(code: str, path: Path) -> tuple[float, float]:
    """Return the seconds of a pass in a fresh process, and its peak above imports in MiB."""
    command = [sys.executable, "-c", _PASS.format(code), str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds, peak = json.loads(done.stdout)
    return seconds, peak
