"""Calls of the whole public API with one bad argument each.

Every call ends soon, with one of the package's errors, a TypeError or a ValueError, and leaves the
object whose method it is as it was. Some calls succeed, as some bad values are good elsewhere.
"""

import inspect
import signal
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import zarr
from samples import bits, blobs
from sklearn.base import BaseEstimator

import streamgda as gda
from streamgda import datasets, plots
from streamgda.errors import StreamGDAError
from streamgda.storage.saved import Saved

SECONDS = 20
X, Y = blobs(60, 3, 2)
X.flags.writeable = Y.flags.writeable = False
HUGE = 10**400


def closed_store():
    store = zarr.storage.ZipStore("closed.zip", mode="w")
    array = zarr.create_array(store, data=X)
    store.close()
    Path("closed.zip").unlink()
    return array


BAD = {  # Each call gets a new one, because a stream is used up.
    "none": lambda: None,
    "a string": lambda: "abc",
    "bytes": lambda: b"\xff",
    "an object": object,
    "a class": lambda: gda.GaussianNB,
    "a dict": lambda: {"a": object()},
    "a generator": lambda: (n for n in "abc"),
    "true": lambda: True,
    "nan": lambda: float("nan"),
    "infinity": lambda: float("inf"),
    "negative": lambda: -3,
    "half": lambda: -0.5,
    "huge": lambda: HUGE,
    "complex": lambda: 1 + 2j,
    "masked": lambda: np.ma.masked,
    "zero-d": lambda: np.array(7.5),
    "empty": lambda: np.empty(0),
    "no rows": lambda: np.empty((0, 3)),
    "no columns": lambda: np.empty((60, 0)),
    "three dimensions": lambda: np.zeros((60, 3, 2)),
    "one row too few": lambda: X[:-1],
    "too wide": lambda: np.hstack([X, X]),
    "one label too few": lambda: Y[:-1],
    "negative numbers": lambda: -np.ones(60),
    "not a number": lambda: np.where(np.arange(60) == 7, np.nan, 1.0),
    "masked values": lambda: np.ma.MaskedArray(X, np.arange(180).reshape(60, 3) == 8),
    "complex rows": lambda: X * 1j,
    "strings": lambda: np.full((60, 3), "a"),
    "objects": lambda: np.full(60, object()),
    "huge numbers": lambda: [HUGE] * 60,
    "a structured array": lambda: np.zeros(60, "i4,f4"),
    "dates": lambda: np.full(60, np.datetime64("NaT", "D")),
    "nested": lambda: [[1, 2], [3]],
    "a zarr group": lambda: zarr.create_group({}),
    "a closed store": closed_store,
    "other moments": lambda: gda.PairwiseMoments().update(X, Y),
    "narrow moments": lambda: gda.ClassMoments("diag").update(X[:, :2], Y),
    "no moments": gda.ClassMoments,
}


class Call(NamedTuple):
    """A method of a new object, or a function of a module, and good arguments to be spoilt."""

    name: str
    make: object
    method: str
    good: dict


HELD = gda.ClassMoments().update(X, Y)
FITTED = gda.LinearDiscriminantAnalysis().fit(X, Y)
ESTIMATORS = {
    "GDA": lambda: gda.GaussianDiscriminantAnalysis(reg_param=0.1),
    "QDA": gda.QuadraticDiscriminantAnalysis,
    "LDA": gda.LinearDiscriminantAnalysis,
    "GaussianNB": gda.GaussianNB,
    "BernoulliNB": gda.BernoulliNB,
    "Ridge": gda.Ridge,
    "PCA": lambda: gda.PCA(2),
    "CV": lambda: gda.GaussianDiscriminantCV({"covariance_type": ["diag"]}, cv=2),
}
OBJECTS = ESTIMATORS | {
    "ClassMoments": lambda: gda.ClassMoments().update(X, Y),
    "Pairwise": lambda: gda.PairwiseMoments().update(X, Y),
    "Window": lambda: gda.SlidingWindow(3).update(X, Y),
    "Drift": lambda: gda.DriftMonitor(HELD, window=20),
}
MODULES = {
    gda: [
        *("accumulate", "load", "open_store", "covariance_test", "means_test", "separability"),
        *("ClassMoments", "SlidingWindow", "DriftMonitor"),
    ],
    plots: plots.__all__,
    datasets: ["GaussianStream", "convert"],
}
# Arguments of these names are spoilt. Those that are None are left out of other calls.
GOOD = {
    "X": X, "y": Y, "sample_weight": None, "classes": None, "out": None, "nodata": None,
    "fill": -5, "reject": 0.1, "reject_label": -1, "half_life": None, "unlabelled": None,
    "n_samples": 2, "random_state": 0, "labels": [1], "moments": HELD, "max_memory": None,
    "checkpoint": None, "checkpoint_every": 1.0, "path": None, "covariance_type": "diag",
    "ddof": 0, "n_components": 1, "index": [0], "mapping": {0: 3}, "components": np.eye(3),
    "offset": None, "other": HELD, "gamma": 0.5, "least_eigenvalue": 1e-4, "block": HELD,
    "reference": HELD, "window": 20, "level": 0.1, "calibration": 5, "least_rows": 3, "keep": 3,
    "batches": [(X, Y)], "model": FITTED, "priors": None, "shrinkage": None, "fitted": FITTED,
    "label": 0, "a": 0, "b": 1, "method": "bhattacharyya", "pooling": 0.1, "reg_param": 0.1,
    "var_smoothing": 0.1, "n": 2, "estimator": FITTED, "feature": None,
    "resolution": 5, "n_features": 2, "n_classes": 2, "seed": 0, "dtype": None,
    "separation": 1.0, "period": None, "source": X, "n_rows": None, "chunk_rows": None,
    "overwrite": True,
}  # fmt: skip
SPECIAL = {
    "convert": {"path": "made.zarr"},
    "load": {"path": "saved.npz"},
    "open_store": {"path": "rows.zarr", "X": "X", "y": "y", "label": None},
    "save": {"path": "saved again.npz", "offset": 1},
    "sample": {"y": None},
}


def good_arguments(function, name):
    values = GOOD | SPECIAL.get(name, {})
    scores = name.startswith(("predict", "score_", "transform"))
    values["on_invalid"] = "fill" if scores else "skip"
    return {name: values[name] for name in inspect.signature(function).parameters if name in values}


def calls():
    for name, make in ESTIMATORS.items():
        for param, good in make().get_params(deep=False).items():
            yield Call(name, make, "set_params", {param: good})
    for name, make in OBJECTS.items():
        thing = make()
        for method in dir(type(thing)):
            function = getattr(type(thing), method)
            if callable(function) and not method.startswith(("_", "set_", "get_")):
                yield Call(name, make, method, good_arguments(function, method))
        for operator in ("__add__", "__sub__", "__mul__"):
            if hasattr(thing, operator):
                yield Call(name, make, operator, {"other": HELD})
    for module, names in MODULES.items():
        for name in names:
            good = good_arguments(getattr(module, name), name)
            yield Call(module.__name__, lambda module=module: module, name, good)


def state(thing):
    """All that a call may not change."""
    held = getattr(thing, "__dict__", {}).get("moments_", thing)
    return bits(held) if isinstance(held, Saved) and not isinstance(held, BaseEstimator) else None


def spoilt(call, argument, value):
    """Make a call with a bad value; return what is wrong about how it ends."""
    thing = call.make()
    before = state(thing)
    try:
        if call.method == "set_params":
            thing.set_params(**{argument: value}).fit(X, Y)
        elif call.method.startswith("__"):
            getattr(thing, call.method)(value)
        else:
            given = {name: v for name, v in call.good.items() if v is not None}
            getattr(thing, call.method)(**given | {argument: value})
    except (StreamGDAError, TypeError, ValueError):
        return "it changed the object" if state(thing) != before else ""
    except BaseException as error:
        return f"{type(error).__name__}: {error!s:.160}"
    return ""


def stop(*_):
    raise TimeoutError


@pytest.mark.skipif(not hasattr(signal, "alarm"), reason="calls are stopped by signals")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("n", [100, pytest.param(10_000, marks=pytest.mark.soak)])
def test_bad_calls_end_in_errors_and_change_nothing(tmp_path, monkeypatch, n):
    monkeypatch.chdir(tmp_path)  # Strings are paths of files.
    datasets.convert(X, Y, "rows.zarr")
    gda.GaussianNB().fit(X, Y).save("saved.npz")
    every = [(call, name, kind) for call in calls() for name in call.good for kind in BAD]
    before, wrong = signal.signal(signal.SIGALRM, stop), []
    for call, argument, kind in every[:: max(1, len(every) // n)]:
        signal.alarm(SECONDS)
        with np.errstate(all="ignore"):
            found = spoilt(call, argument, BAD[kind]())
        signal.alarm(0)
        if found:
            wrong.append(f"{call.name}.{call.method}({argument}={kind}): {found}")
    signal.signal(signal.SIGALRM, before)
    assert not wrong, "\n".join(wrong)
