"""Suite `device`: embeddings on a GPU, in many classes, summed and scored there.

Beside it they are copied to the host, and summed or scored there; and scikit-learn's linear
discriminants get them through the array API, which needs an environment variable: the calls run in
a process of their own. There are fewer rows if the memory of the GPU asks for it. Without a GPU,
PyTorch's tensors in memory are a check of the calls, and no measurement.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import sklearn
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis as SklearnLDA

from bench.measure import OURS, Call, Plan, Row, faster, in_turn, reason, rows_of
from streamgda import LinearDiscriminantAnalysis, accumulate

N, D, K = 1_000_000, 1024, 1000
CHECK = 4000, 32, 10  # the same on tensors in memory
COPIES = 6  # of the rows that the GPU has to hold, for scikit-learn's decomposition
COPIED, SKLEARN = "copied to the host", "scikit-learn LDA (svd, array API)"
TARGETS = {COPIED: faster(20)}


def run(plan: Plan) -> Iterator[Row]:
    command = [sys.executable, "-m", "bench.device", str(plan.repeats), str(int(plan.quick))]
    variables = {**os.environ, "SCIPY_ARRAY_API": "1"}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=variables)
    if done.returncode:
        why = done.stderr.strip().rpartition("\n")[2][:200]
        yield Row("embeddings on a GPU", COPIED, missing=why)
        return
    for line in done.stdout.splitlines():
        title, times, missing, there = json.loads(line)
        if not there:
            why = "no GPU: the calls were tried with tensors in memory"
            missing = dict.fromkeys(times.keys() - {OURS}, why)
        yield from rows_of(title, (None, ""), times if there else {}, missing, TARGETS)


def main(repeats: int, quick: bool) -> None:
    """Time all calls, and print a line of JSON for each task."""
    try:
        import torch
    except ImportError as error:
        sys.exit(f"no GPU: {reason(error)}")
    there = torch.cuda.is_available()
    n, d, k = CHECK if quick or not there else (N, D, K)
    if there:
        n = min(n, torch.cuda.mem_get_info()[0] // (4 * d * COPIES))
    place = torch.cuda.get_device_name() if there else "the host"
    random = torch.Generator("cuda" if there else "cpu").manual_seed(0)
    options: dict[str, Any] = {"generator": random, "device": random.device}
    y = torch.randint(k, (n,), **options)
    X = torch.randn(n, d, **options).add_(torch.randn(k, d, **options)[y])
    for name, calls in tasks(X, y).items():
        times, missing = in_turn(calls, repeats)
        title = f"{n:,} x {d:,} float32 in {k:,} classes, {name}, on {place}"
        print(json.dumps([title, times, missing, there]), flush=True)


def tasks(X: Any, y: Any) -> dict[str, dict[str, Call]]:
    """Return the calls of each task, ours and those of peers."""
    ours, theirs = LinearDiscriminantAnalysis("lsqr").fit(X, y), SklearnLDA()

    def dispatched(method: str, *arguments: Any) -> Call:
        def call() -> None:
            with sklearn.config_context(array_api_dispatch=True):
                found = getattr(theirs, method)(*arguments)
            if method == "predict":
                found.sum().item()  # waits for the device

        return call

    return {
        "tied, moments": {
            "ours": lambda: accumulate(X, y, covariance_type="tied"),
            COPIED: lambda: accumulate(X.cpu(), y.cpu(), covariance_type="tied"),
        },
        "LDA fit": {
            "ours": lambda: LinearDiscriminantAnalysis("lsqr").fit(X, y),
            COPIED: lambda: LinearDiscriminantAnalysis("lsqr").fit(X.cpu(), y.cpu()),
            SKLEARN: dispatched("fit", X, y),
        },
        "LDA predict": {
            "ours": lambda: ours.predict(X).sum().item(),
            COPIED: lambda: ours.predict(X.cpu()),
            SKLEARN: dispatched("predict", X),
        },
    }


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2] == "1")
