"""Suite `startup`: import, the command line, and first use with and without cached kernels.

Each is measured in a process of its own.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import streamgda
from bench.measure import OURS, Plan, Row, Target, of_its_time, rows_of

IMPORTS = "numpy, numba, scipy.linalg, sklearn.base"
COMPILING, COMPILING_ALL, LOADING = 4.0, 18.0, 0.5  # seconds of a first use above a later one
HELP, DEMO = 0.6, 15.0  # seconds of processor time, and of wall time with nothing compiled

OWN_MODULES = (
    "streamgda's modules, and modules of scipy and scikit-learn that the dependencies alone do not "
    "load"
)
COMPILER = (
    "time of Numba and LLVM: Numba holds a lock while it compiles, so that threads gain nothing, "
    "and each type of rows needs separate kernels"
)

_KINDS = ["QuadraticDiscriminantAnalysis", "LinearDiscriminantAnalysis", "GaussianNB"]

_IMPORT = """
import time
start = time.perf_counter()
import {}
print(time.perf_counter() - start)
"""

_ESTIMATOR = "streamgda; streamgda.QuadraticDiscriminantAnalysis"
_SKLEARN = "sklearn.discriminant_analysis"

_COMMAND = """
import resource, subprocess, sys, time
start = time.perf_counter()
code = "import sys; from streamgda.cli import main; main(sys.argv[1:])"
subprocess.run([sys.executable, "-c", code, {!r}], check=True, capture_output=True)
spent = resource.getrusage(resource.RUSAGE_CHILDREN)
print({})
"""

_FIRST_USE = """
import time
import numpy as np
import streamgda

random = np.random.default_rng(0)
X = random.integers(0, 256, (300, 20)).astype(np.uint8)
y = random.integers(0, 3, 300)
kinds = [getattr(streamgda, name) for name in {kinds}]  # which imports the dependencies

def use():
    start = time.perf_counter()
    for rows in (X.astype(np.float64), X)[:{types}]:
        for kind in kinds:
            estimator = kind().fit(rows, y)
            estimator.predict(rows)
            estimator.predict_proba(rows)
            estimator.partial_fit(rows, y)
    return time.perf_counter() - start

first = use()
print(first - use())
"""


def run(plan: Plan) -> Iterator[Row]:
    yield from imports(plan)
    yield from commands(plan)
    yield from first_use(plan)


def imports(plan: Plan) -> list[Row]:
    """Compare the import of an estimator with that of its dependencies, and scikit-learn's own."""
    names = {OURS: _ESTIMATOR, f"importing {IMPORTS}": IMPORTS, "scikit-learn QDA": _SKLEARN}
    times: dict[str, list[float]] = {name: [] for name in names}
    for repeat in range(plan.repeats + 1):
        for name, modules in names.items():
            took = child(_IMPORT.format(modules))
            if repeat:  # the first repeat reads the files from disk
                times[name].append(took)
    least = statistics.median(times[f"importing {IMPORTS}"])
    return rows_of(
        "import of an estimator",
        (least, "dependencies"),
        times,
        targets={"importing": of_its_time(1.1, OWN_MODULES)},
    )


def commands(plan: Plan) -> Iterator[Row]:
    """Measure the processor time of ``--help``, and a demo with nothing compiled."""
    spent = _COMMAND.format("--help", "spent.ru_utime + spent.ru_stime")
    child(spent)  # reads the files from disk
    yield from bounded("streamgda --help", [child(spent) for _ in range(plan.repeats)], HELP)
    with uncompiled() as package:
        took = child(_COMMAND.format("demo", "time.perf_counter() - start"), package)
    yield from bounded("streamgda demo, empty kernel cache", [took], DEMO)


def bounded(work: str, times: list[float], bound: float) -> list[Row]:
    """Return the row of times that must be below a number of seconds."""
    return rows_of(
        work,
        (None, ""),
        {OURS: times, "allowed time": [bound] * len(times)},
        targets={"": Target(1.0, f"< {bound:g} s", COMPILER)},
    )


def first_use(plan: Plan) -> Iterator[Row]:
    """Measure the time of the first calls of all methods minus that of the second ones."""
    for title, kinds, types, most in (
        ("first use of QDA on float64", _KINDS[:1], 1, COMPILING),
        ("first use of QDA, LDA and GaussianNB on float64 and uint8", _KINDS, 2, COMPILING_ALL),
    ):
        code = _FIRST_USE.format(kinds=kinds, types=types)
        compiling, loading = [], []
        for _ in range(min(plan.repeats, 2)):
            with uncompiled() as package:
                compiling.append(child(code, package))
                loading += [child(code, package) for _ in range(2)]
        for state, times, bound in (
            ("empty kernel cache", compiling, most),
            ("cached kernels", loading, LOADING),
        ):
            yield from bounded(f"{title} minus second use, {state}", times, bound)


@contextmanager
def uncompiled() -> Iterator[str]:
    """Provide a folder with a copy of the package that has no compiled kernels."""
    package = Path(streamgda.__file__).parent
    with tempfile.TemporaryDirectory() as folder:
        kernels = shutil.ignore_patterns("*.nbi", "*.nbc")
        shutil.copytree(package, Path(folder, package.name), ignore=kernels)
        yield folder


def child(code: str, path: str | None = None) -> float:
    """Run code in a new process, which finds packages in a folder first; return what it prints."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}  # as pip installs a package
    if path:
        environment.pop("NUMBA_CACHE_DIR", None)
        environment["PYTHONPATH"] = path
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
        cwd=path,
    )
    return float(done.stdout)
