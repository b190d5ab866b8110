"""Suite `memory`: peaks of processes that fit from a zarr store, or read a table as planned."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bench import data
from bench.measure import OURS, Plan, Row, Target, rows_of
from streamgda.datasets import convert

WIDTHS = {8: 400_000, 64: 200_000}  # float64 columns, rows
GROUPS = (20_000, 100_000, None)  # rows of a row group or record batch; None for all
FORMATS = ("parquet", "lz4.feather", "uncompressed.feather", "csv")

# VmHWM is the peak of this process; ru_maxrss would start at that of the parent process.
_CHILD = """
import ctypes, gc, sys, warnings
import numpy, numba, pyarrow.parquet, scipy.linalg, sklearn.base, zarr
import streamgda
from streamgda import *

def now(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(name))

warnings.simplefilter("ignore")
"""
_FIT = f"""{_CHILD}
X, y = streamgda.open_store(sys.argv[1])
before = now("VmHWM")
model = streamgda.GaussianDiscriminantAnalysis(var_smoothing=0.2).fit(X, y)
print(now("VmHWM") - before, model.moments_.nbytes / 1024)
"""
# The least budget that is accepted is the plan; few rows load what reads such a file.
_READ = f"""{_CHILD}
from streamgda.runtime.memory import as_bytes

accumulate(*open_store(sys.argv[2]), covariance_type="diag")
X, y = open_store(sys.argv[1])
try:
    accumulate(X, y, covariance_type="diag", max_memory=1)
except MemoryError as refusal:
    number, unit = str(refusal).split()[2:4]
    plan = int((float(number) + 0.1) * as_bytes("1" + unit))
gc.collect()
pyarrow.default_memory_pool().release_unused()
ctypes.CDLL(None).malloc_trim(0)
open("/proc/self/clear_refs", "w").write("5")
before = now("VmRSS")
accumulate(X, y, covariance_type="diag", max_memory=plan)
print(now("VmHWM") - before, plan / 1024)
"""


def run(plan: Plan) -> Iterator[Row]:
    name, X, y, _, _ = data.mnist(plan.quick)
    for times in (1, 4):
        with tempfile.TemporaryDirectory() as folder:
            store = Path(folder) / "rows.zarr"
            convert(np.tile(X, (times, 1)), store, labels=np.tile(y, times))
            found = [_peaks(_FIT, store) for _ in range(min(plan.repeats, 2))]
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

    for width, n_rows in WIDTHS.items():
        for name in FORMATS:
            for size in GROUPS if name != "csv" else GROUPS[-1:]:
                yield from _of_table(plan, name, width, n_rows, size or n_rows)


def _of_table(plan: Plan, name: str, width: int, n_rows: int, size: int) -> Iterator[Row]:
    """Compare the peak of a process that sums a table with the least budget it accepts."""
    rows = plan.rows(n_rows)
    with tempfile.TemporaryDirectory() as folder:
        many, few = Path(folder) / f"rows.{name}", Path(folder) / f"few.{name}"
        _write(many, rows, width, size)
        _write(few, 100, width, size)
        found = [_peaks(_READ, many, few) for _ in range(min(plan.repeats, 2))]
    cut = "" if name == "csv" else f" in pieces of {size:,}"
    yield from rows_of(
        f"{rows:,} x {width} float64 in {name}{cut}, variances: peak memory",
        (None, ""),
        {OURS: [peak for peak, _ in found], "the plan": [planned for _, planned in found]},
        unit="MiB",
        targets={"": Target(1, "<= the plan")},
    )


def _write(path: Path, n_rows: int, width: int, size: int) -> None:
    """Write rows and labels to a table in row groups or record batches of a size."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.feather
    import pyarrow.parquet as pq

    X, y = data.rows(n_rows, width, 3, "f8")
    table = pa.table({f"x{number}": column for number, column in enumerate(X.T)} | {"y": y})
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=size)
    elif path.suffix == ".csv":
        pa.csv.write_csv(table, path)
    else:
        pa.feather.write_feather(table, path, path.name.split(".")[1], chunksize=size)


def _peaks(code: str, *paths: Path) -> tuple[float, float]:
    """Return the two numbers of KiB that a process prints, in MiB: its peak, and another."""
    command = [sys.executable, "-c", code, *map(str, paths)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    peak, other = (float(number) / 1024 for number in done.stdout.split())
    return peak, other
