"""Ten million rows, with kills
============================

Long passes over large data are interrupted: machines restart, batch systems kill what takes too
long, workers run out of memory. Here a process is killed by SIGKILL in the middle of a pass, again
and again, and a worker of a cluster too. The result has the same bits as without any kill.

The rows are synthetic: 16 features in five Gaussian classes, in a zarr store on the disk.
"""

import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from distributed import Client, LocalCluster

from streamgda import ClassMoments, QuadraticDiscriminantAnalysis, accumulate, open_store
from streamgda.datasets import GaussianStream, convert
from streamgda.plots import plot_decision_boundary

SMALL = os.environ.get("STREAMGDA_EXAMPLES") == "small"
N_ROWS = 400_000 if SMALL else 10_000_000
CHUNK = N_ROWS // 200
KILLS, MEMORY = (1, "20MB") if SMALL else (3, "100MB")
temporary = tempfile.TemporaryDirectory()
folder = Path(temporary.name)

# %%
# The store
# ---------

stream = GaussianStream(16, 5, seed=0, dtype="float32")
store = folder / "rows.zarr"
convert(stream.batches(N_ROWS, CHUNK), None, store, chunk_rows=CHUNK)
rows, labels = open_store(store)
print(f"{rows.shape[0]:,} x {rows.shape[1]} {rows.dtype}, {rows.nbytes / 1e6:,.0f} MB")

# %%
# A process that is killed
# ------------------------
#
# The program is three lines. With ``checkpoint``, the pass writes its moments to a small file from
# time to time, between two slabs of rows and in one step. The same call resumes after these rows.

PROGRAM = """
import sys
from streamgda import accumulate, open_store
rows, labels = open_store(sys.argv[1])
options = {"checkpoint": sys.argv[2], "checkpoint_every": 0.05, "max_memory": sys.argv[4]}
accumulate(rows, labels, **options).save(sys.argv[3])
"""
checkpoint, result = folder / "moments.checkpoint", folder / "moments.npz"
command = [sys.executable, "-c", PROGRAM, str(store), str(checkpoint), str(result), MEMORY]

# %%
# A checkpoint is an npz file, so that NumPy shows how far it is.


def rows_in(path: Path) -> int:
    """Return the number of rows whose moments are in a checkpoint."""
    if not path.exists():
        return 0
    with np.load(path) as arrays:
        return int(arrays["count"].sum())


history, killed = [(0.0, 0)], []
started = time.perf_counter()
while not result.exists():
    before = rows_in(checkpoint)
    process = subprocess.Popen(command)
    while process.poll() is None:
        time.sleep(0.01)
        done = rows_in(checkpoint)
        if done > history[-1][1]:
            history.append((time.perf_counter() - started, done))
        if len(killed) < KILLS and done - before > N_ROWS / (KILLS + 3):
            process.kill()  # SIGKILL: nothing can be saved after it
            process.wait()
            killed.append((time.perf_counter() - started, rows_in(checkpoint)))
            print(f"killed after {killed[-1][1]:,} rows")
    history.append((time.perf_counter() - started, rows_in(checkpoint)))
resumed = ClassMoments.load(result)

# %%
# The same pass in this process, without a kill:

undisturbed = accumulate(rows, labels, max_memory=MEMORY)
assert (resumed.means == undisturbed.means).all()
assert (resumed.covariance() == undisturbed.covariance()).all()
print(f"{resumed.class_count.sum():,.0f} rows, each counted once, and the same bits")

# %%

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
left.plot(*np.array(history).T, ".-", label="rows in the checkpoint")
if killed:
    left.plot(*np.array(killed).T, "X", color="C3", markersize=11, label="SIGKILL")
left.set(xlabel="seconds, with the starts of the processes", ylabel="rows")
left.legend()
model = QuadraticDiscriminantAnalysis.from_moments(resumed)
plot_decision_boundary(model, rows, labels, right)

# %%
# A worker that is killed
# -----------------------
#
# With an active client, the workers read the chunks themselves, and a fixed tree merges the
# moments. If a worker dies, its parts are read again by others. The last bits do not depend on the
# number of workers; those of one process, which merges in another order, may differ.


def start_worker(address: str) -> subprocess.Popen:
    """Start a worker of one thread as a process of its own, which is not restarted."""
    options = ["--nthreads", "1", "--no-nanny", "--no-dashboard", "--local-directory", str(folder)]
    command = [sys.executable, "-m", "distributed.cli.dask_worker", address, *options]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL)


for part in ("client", "scheduler"):  # Both report each lost worker at length.
    logging.getLogger(f"distributed.{part}").setLevel(logging.CRITICAL)
cluster = LocalCluster(n_workers=0, dashboard_address=None, silence_logs=logging.CRITICAL)
client = Client(cluster)
workers = [start_worker(cluster.scheduler_address) for _ in range(2)]
client.wait_for_workers(2)
whole = accumulate(rows, labels)

parts = folder / "parts.checkpoint"


def kill_one() -> None:
    """Kill a worker as soon as there are results, and start another one."""
    while not parts.exists():
        time.sleep(0.01)
    workers[0].kill()
    print("killed a worker")
    workers.append(start_worker(cluster.scheduler_address))


killer = threading.Thread(target=kill_one)
killer.start()
disturbed = accumulate(rows, labels, checkpoint=parts, checkpoint_every=0.05)
killer.join()
assert (disturbed.means == whole.means).all()
assert (disturbed.covariance() == whole.covariance()).all()
gap = np.abs(disturbed.covariance() - resumed.covariance()).max()
print(f"the same bits as with two workers that live; {gap:.0e} from those of one process")

# %%
# The client may die, too: the same call resumes, on any cluster.

client.close()
cluster.close()
for worker in workers:
    worker.kill()
    worker.wait()
temporary.cleanup()
