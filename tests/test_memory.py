"""Peak memory of processes of their own: bounded, and the same however many rows there are."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import zarr

from streamgda.datasets import load_mnist

STATUS = Path("/proc/self/status")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not STATUS.exists(), reason="peaks are read from Linux's /proc"),
]

MB = 10**6
ALLOWED = 400 * MB  # above the imports
N_ROWS, N_FEATURES = 60_000, 784
# What four times the rows may add: with 60,000, not all three slabs of 32 MiB are ever full, and
# the allocator's share varies. Their own size would add 141 MB.
MORE = 130 * MB

# `ru_maxrss` would begin at the peak of the process that starts the child; VmHWM does not.
CHILD = """
import sys, warnings
import numpy, scipy.linalg, sklearn.base, zarr
import streamgda
from streamgda import *

warnings.simplefilter("ignore")
X, y = open_store(sys.argv[1])
{work}
with open("/proc/self/status") as status:
    print(next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM")))
"""
FULL = "GaussianDiscriminantAnalysis('full', var_smoothing=0.1)"
LDA = "LinearDiscriminantAnalysis(shrinkage=0.01)"


def peak(work, store):
    """Bytes of a process that does that to a store, at most."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD.format(work=work), str(store)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr
    return int(done.stdout)


def write(path, n_rows):
    """A store of MNIST again and again, or of rows like it, written chunk by chunk."""
    group = zarr.create_group(path)
    shape = n_rows, N_FEATURES
    X = group.create_array("X", shape=shape, dtype=np.uint8, chunks=(4096, N_FEATURES))
    y = group.create_array("y", shape=shape[:1], dtype=np.uint8, chunks=(4096,))
    folder = os.environ.get("STREAMGDA_MNIST")
    images, digits = load_mnist(folder)[:2] if folder else (None, None)
    random = np.random.default_rng(0)
    for start in range(0, shape[0], 4096):
        rows = np.arange(start, min(start + 4096, shape[0]))
        if folder:
            X[rows[0] : rows[-1] + 1] = images[rows % N_ROWS]
            y[rows[0] : rows[-1] + 1] = digits[rows % N_ROWS]
        else:
            labels = random.integers(0, 10, rows.size)
            noise = random.integers(0, 100, (rows.size, N_FEATURES), np.uint8)
            X[rows[0] : rows[-1] + 1] = noise + (15 * labels[:, None]).astype(np.uint8)
            y[rows[0] : rows[-1] + 1] = labels
    return path


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    return {n: write(folder / str(n), n) for n in (N_ROWS // 3, N_ROWS, 4 * N_ROWS)}


@pytest.fixture(scope="module")
def lda(stores, tmp_path_factory):
    """A saved estimator; and all kernels compiled and cached, whose memory is not ours."""
    path = tmp_path_factory.mktemp("model") / "lda"
    few = f"X, y = X[:2000], y[:2000]; e = {FULL}.fit(X, y); e.predict(X)"
    peak(f"{LDA}.fit(X, y).save({str(path)!r}); {few}", stores[N_ROWS // 3])
    peak(f"load({str(path)!r}).predict_proba(X[:1000])", stores[N_ROWS])
    return path


@pytest.fixture(scope="module")
def above_imports(stores, lda):
    """What work on so many rows takes above a process that only imports and opens the store."""
    imports = peak("", stores[N_ROWS])

    def measure(work, n_rows):
        above = peak(work, stores[n_rows]) - imports
        print(f"{above / MB:.0f} MB above the imports for {n_rows} rows: {work}")
        return above

    return measure


def test_fit(above_imports):
    once, four_times = (above_imports(f"{FULL}.fit(X, y)", n * N_ROWS) for n in (1, 4))
    assert max(once, four_times) <= ALLOWED
    assert four_times - once <= MORE


def test_probabilities_go_from_store_to_store(above_imports, lda, tmp_path):
    above = []
    for n_rows in (N_ROWS, 4 * N_ROWS):
        out = tmp_path / str(n_rows)
        work = f"load({str(lda)!r}).predict_proba(X, out={str(out)!r})"
        above.append(above_imports(work, n_rows))
        assert zarr.open_array(out, mode="r").shape == (n_rows, 10)
    assert max(above) <= ALLOWED
    assert above[1] - above[0] <= MORE


def test_fit_and_predict_with_a_covariance_for_each_class(above_imports, tmp_path):
    work = f"{FULL}.fit(X, y).predict(X, out={str(tmp_path / 'labels')!r})"
    assert above_imports(work, N_ROWS // 3) <= ALLOWED
