"""Suite `features`: RanDumb on MNIST, linear discriminants of random features in one pass.

Each line is a process of its own: seconds of `fit` and of `predict`, its peak memory above the
images, and the accuracy on the test images. Beside it are the products alone, without classes and
centring: `gemm` of the images and the matrix, and `syrk` of the result, block by block. Of
scikit-learn, the features of all images have to fit in memory.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench import data
from bench.measure import Plan

FEATURES = (1000, 3000, 5000, 10_000)
GAMMA = 0.02 / 255**2  # of Fourier features, for pixels from 0 to 255
SHRINKAGE = 1e-4
OURS = ("no map", "relu", "fourier")
PRODUCTS, THEIRS = "gemm + syrk", "scikit-learn RBFSampler + LDA"
THEIR_MOST = 1000  # features: more take several GB, and minutes

_CHILD = """
import json, sys, time, warnings
import numpy as np
from scipy.linalg import blas
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.kernel_approximation import RBFSampler
from sklearn.pipeline import make_pipeline
import streamgda

class Products:
    def fit(self, X, y):
        self.W = np.random.default_rng(0).normal(size=(X.shape[1], n)).astype("f4")
        total = np.zeros((n, n), "f4", order="F")
        for rows in np.array_split(X, max(1, len(X) // 4096)):
            lifted = rows.astype("f4") @ self.W
            blas.ssyrk(1.0, lifted.T, beta=1.0, c=total, overwrite_c=1)
        return self

    def predict(self, X):
        C = np.zeros((n, 10), "f4")
        return np.concatenate([
            ((rows.astype("f4") @ self.W) @ C).argmax(axis=1)
            for rows in np.array_split(X, max(1, len(X) // 4096))
        ])

def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))

def timed(call):
    start = time.perf_counter()
    return call(), time.perf_counter() - start

warnings.simplefilter("ignore")
folder, kind, n, gamma, shrinkage = sys.argv[1], sys.argv[2], *map(float, sys.argv[3:])
n = int(n)
X, y, test, truth = (np.load(f"{folder}/{name}.npy") for name in ("X", "y", "test", "truth"))

def model(n):
    if kind == "gemm + syrk":
        return Products()
    if kind.startswith("scikit-learn"):
        lifted = RBFSampler(gamma=gamma, n_components=n, random_state=0)
        return make_pipeline(lifted, LinearDiscriminantAnalysis("lsqr", shrinkage=shrinkage))
    given = {"gamma": gamma} if kind == "fourier" else {}
    feature_map = None if kind == "no map" else streamgda.RandomFeatures(n, kind, **given)
    return streamgda.LinearDiscriminantAnalysis("lsqr", shrinkage, feature_map=feature_map)

if not kind.startswith("scikit-learn"):
    all_n, n = n, 100  # compile kernels
    model(100).fit(X[:2000], y[:2000]).predict(test[:500])
    n = all_n
before = peak()
fitted, fit = timed(lambda: model(n).fit(X, y))
predicted, predict = timed(lambda: fitted.predict(test))
print(json.dumps([fit, predict, (peak() - before) / 1024, float((predicted == truth).mean())]))
"""


@dataclass
class Lifted:
    """Seconds, peak memory in MiB and accuracy of linear discriminants of random features."""

    data: str
    features: int
    kind: str
    fit: float | None = None
    predict: float | None = None
    memory: float | None = None
    accuracy: float | None = None
    missing: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self)


def run(plan: Plan) -> Iterator[Lifted]:
    name, *arrays = data.mnist(plan.quick)
    with tempfile.TemporaryDirectory() as folder:
        for title, values in zip(("X", "y", "test", "truth"), arrays, strict=True):
            np.save(Path(folder) / title, values)
        yield measured(folder, name, 784, "no map")
        for n in (50,) if plan.quick else FEATURES:
            for kind in (*OURS[1:], PRODUCTS, THEIRS):
                if kind == THEIRS and n > THEIR_MOST:
                    yield Lifted(name, n, kind, missing="all features in memory, several GB")
                else:
                    yield measured(folder, name, n, kind)


def measured(folder: str, name: str, n: int, kind: str) -> Lifted:
    command = [sys.executable, "-c", _CHILD, folder, kind, str(n), str(GAMMA), str(SHRINKAGE)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        return Lifted(name, n, kind, missing=done.stderr.strip().rpartition("\n")[2][:200])
    fit, predict, memory, accuracy = json.loads(done.stdout)
    row = Lifted(name, n, kind, fit, predict, memory, accuracy)
    if kind == PRODUCTS:  # which classify nothing
        row.accuracy = None
    return row
