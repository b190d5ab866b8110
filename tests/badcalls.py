"""Bad calls of the whole public API, each with one bad argument.

Every call must end soon, with one of the package's errors, or with a TypeError or ValueError, whose
message names the argument; and leave the object whose method it is as it was. Some calls succeed,
as some bad values are good ones elsewhere.
"""

import contextlib
import inspect
import io
import signal
import tempfile
import uuid
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import zarr
from samples import blobs
from states import bits

import streamgda as gda
from streamgda import datasets, plots
from streamgda.errors import StreamGDAError
from streamgda.storage.saved import Saved

SECONDS = 20
X, Y = blobs(60, 3, 2)
FOLDER = tempfile.TemporaryDirectory()
STORE: dict[str, Any] = {}
datasets.convert(X, Y, STORE)
SAVED = f"{FOLDER.name}/saved.npz"
gda.GaussianNB().fit(X, Y).save(SAVED)
X.flags.writeable = Y.flags.writeable = False
HUGE = 10**400


def _closed() -> Any:
    store = zarr.storage.ZipStore(Path(FOLDER.name) / f"{uuid.uuid4()}.zip", mode="w")
    array = zarr.create_array(store, data=X)
    store.close()
    return array


# Bad values, made again for each call: a stream is used up.
VALUES: dict[str, Callable[[], Any]] = {
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
    "masked labels": lambda: np.ma.MaskedArray(Y, np.arange(60) == 8),
    "complex rows": lambda: X * 1j,
    "strings": lambda: np.full((60, 3), "a"),
    "objects": lambda: np.full(60, object()),
    "huge numbers": lambda: [HUGE] * 60,
    "a structured array": lambda: np.zeros(60, "i4,f4"),
    "dates": lambda: np.full(60, np.datetime64("NaT", "D")),
    "nested": lambda: [[1, 2], [3]],
    "a zarr group": lambda: zarr.create_group({}),
    "a closed store": _closed,
    "other moments": lambda: gda.PairwiseMoments().update(X, Y),
    "narrow moments": lambda: gda.ClassMoments("diag").update(X[:, :2], Y),
    "no moments": gda.ClassMoments,
}


class Call(NamedTuple):
    """A good call: the function of a new object, and good arguments, each of them to be spoilt."""

    name: str
    make: Callable[[], Any]
    method: str
    good: dict[str, Any]


def _moments() -> gda.ClassMoments:
    return gda.ClassMoments().update(X, Y)


HELD = _moments()
WHERE = Path(FOLDER.name) / "stream.zip"
ESTIMATORS = {
    "GDA": lambda: gda.GaussianDiscriminantAnalysis(reg_param=0.1),
    "QDA": gda.QuadraticDiscriminantAnalysis,
    "LDA": gda.LinearDiscriminantAnalysis,
    "GaussianNB": gda.GaussianNB,
    "BernoulliNB": gda.BernoulliNB,
    "CV": lambda: gda.GaussianDiscriminantCV({"covariance_type": ["diag"]}, cv=2),
}
OBJECTS: dict[str, Callable[[], Any]] = {
    "ClassMoments": _moments,
    "Pairwise": lambda: gda.PairwiseMoments().update(X, Y),
    "Window": lambda: gda.SlidingWindow(3).update(X, Y),
    "Drift": lambda: gda.DriftMonitor(HELD, window=20),
}
METHODS = """fit predict predict_proba score score_samples transform sample partial_fit forget
    retire save from_moments update declare covariance reduce pca select_features
    select_classes drop_classes relabel project __add__ __sub__ __mul__ append to_moments reset
    criterion of of_class pair __call__ posterior"""
FUNCTIONS = {
    gda: """accumulate load open_store covariance_test means_test ClassMoments SlidingWindow
        DriftMonitor separability""",
    plots: " ".join(plots.__all__),
    datasets: "GaussianStream convert",
}
# Good values of arguments, by name; None for those that are left out unless they are spoilt.
GOOD: dict[str, Any] = {
    "X": X, "y": Y, "sample_weight": None, "classes": None, "out": None, "nodata": None,
    "fill": -5, "reject": 0.1, "reject_label": -1, "half_life": None, "unlabelled": None,
    "n_samples": 2, "random_state": 0, "labels": [1], "store": None, "moments": HELD,
    "max_memory": None, "checkpoint": None, "checkpoint_every": 1.0,
    "path": STORE, "tol": 1e-4, "covariance_type": "diag", "n_blocks": 2, "every": 1.0, "ddof": 0,
    "n_components": 1, "index": [0], "mapping": {0: 3}, "components": np.eye(3), "offset": None,
    "other": HELD, "gamma": 0.5, "least_eigenvalue": 1e-4, "block": HELD, "reference": HELD,
    "window": 20, "level": 0.1, "calibration": 5, "least_rows": 3, "keep": 3, "batches": [(X, Y)],
    "model": gda.GaussianNB(), "w": np.eye(3), "priors": None,
    "shrinkage": None, "fitted": gda.LinearDiscriminantAnalysis().fit(X, Y), "origin": None,
    "label": 0, "a": 0, "b": 1, "model_or_moments": HELD, "method": "bhattacharyya", "pooling": 0.1,
    "reg_param": 0.1, "var_smoothing": 0.1, "n": 2, "over": "mean",
    "direction": None, "estimator": gda.LinearDiscriminantAnalysis().fit(X, Y), "shape": (1, 3),
    "feature": None, "bins": 5, "directions": None, "deviations": (1,), "resolution": 5,
    "max_points": 100, "n_features": 2, "n_classes": 2, "seed": 0, "dtype": None,
    "separation": 1.0, "loc": None, "scale": None, "period": None, "source": X, "n_rows": None,
    "chunk_rows": None, "overwrite": True, "state": HELD,
}  # fmt: skip
SPECIAL = {
    "convert": {"path": {}},
    "load": {"path": SAVED},
    "open_store": {"X": "X", "y": "y", "label": None},
    "save": {"path": f"{FOLDER.name}/saved", "offset": 1},
    "sample": {"y": None},
}


def _good(function: Callable[..., Any], name: str) -> dict[str, Any]:
    """Return good arguments of a function, as far as there are values for their names."""
    values = GOOD | SPECIAL.get(name, {})
    scores = name.startswith(("predict", "score_", "transform"))
    values["on_invalid"] = "fill" if scores else "skip"
    known = inspect.signature(function).parameters
    return {argument: values[argument] for argument in known if argument in values}


def calls() -> Iterator[Call]:
    made = dict(OBJECTS)
    for name, make in ESTIMATORS.items():
        made[name] = lambda make=make: make().fit(X, Y)
        for param, good in make().get_params(deep=False).items():
            yield Call(name, make, f"fit after set_params({param})", {param: good})
    for name, make in made.items():
        thing = make()
        for method in METHODS.split():
            if (function := getattr(thing, method, None)) is not None:
                yield Call(name, make, method, _good(function, method))
    for module, names in FUNCTIONS.items():
        for name in names.split():
            function = getattr(module, name)
            yield Call(module.__name__, lambda m=module: m, name, _good(function, name))


def state(thing: Any) -> str:
    """Return all that a call may not change."""
    if not isinstance(thing, Saved):
        return ""
    try:
        return repr(bits(thing))
    except Exception:  # not fitted
        return repr(thing)


def outcome(call: Call, argument: str, value: Any) -> str:
    """Return what is wrong with a bad call, "accepted", or an empty string."""
    thing = call.make()
    before = state(thing)
    try:
        if call.method.startswith("fit after"):
            thing.set_params(**{argument: value})
            before = state(thing)
            thing.fit(X, Y)
        else:
            given = {k: v for k, v in call.good.items() if v is not None} | {argument: value}
            if call.method.startswith("__") and call.method != "__call__":
                found = getattr(thing, call.method)(value)
                return "" if found is NotImplemented else "accepted"
            getattr(thing, call.method)(**given)
    except (StreamGDAError, TypeError, ValueError) as error:
        text = str(error)
        names = {argument, *SYNONYMS.get(argument, ())}
        if not isinstance(error, MemoryError) and not any(name in text for name in names):
            return f"does not name it: {type(error).__name__}: {text[:160]}"
        return "" if state(thing) == before else "changed the object"
    except TimeoutError:
        return "HANGS"
    except BaseException as error:
        return f"{type(error).__name__}: {str(error)[:160]}"
    return "accepted"


# Other words by which messages name an argument; those of scikit-learn and numpy name none.
SCIKIT_LEARN = ("Found ", "Complex data not", "float() argument", "array element", "Expected 2D")
SYNONYMS = {
    "X": ("rows", "row ", "features", "dtype='numeric'", *SCIKIT_LEARN),
    "y": ("label", "class", *SCIKIT_LEARN),
    "a": ("classes",),
    "b": ("classes",),
    "batches": ("batch", "iteration", "Expected 2D", "path", "zarr group"),
    "block": ("moments",),
    "class_prior": ("priors",),
    "classes": ("labels",),
    "covariance_estimator": ("covariance estimator",),
    "direction": ("directions",),
    "estimator": ("fitted",),
    "feature": ("features",),
    "fitted": ("origin",),
    "index": ("features",),
    "label": ("class",),
    "labels": ("label", "moments", "y ", "Group", "strings"),
    "mapping": ("labels",),
    "moments": ("classes", "covariance", "no class has rows", "every row"),
    "model_or_moments": ("class", "covariance"),
    "other": ("moments",),
    "out": ("in store",),
    "path": ("checkpoint", "zarr", "lacks rows"),
    "reference": ("moments",),
    "refit": ("__init__",),  # a class is called, as any function
    "sample_weight": ("weight", "rows"),
    "source": ("rows", "batch", "features", "array"),
    "store": ("path", "zarr", "exists"),
    "unlabelled": ("class",),
}


def _stop(*_: object) -> None:
    raise TimeoutError


def wrong(limit: int) -> Iterator[str]:
    """Yield a line for each bad call that does not do what it must; check at most `limit`."""
    every = [(call, arg, kind) for call in calls() for arg in call.good for kind in VALUES]
    for call, argument, kind in every[:: max(1, len(every) // limit)]:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stderr(io.StringIO()),
            np.errstate(all="ignore"),
        ):
            warnings.simplefilter("ignore")
            signal.signal(signal.SIGALRM, _stop)
            signal.alarm(SECONDS)
            found = outcome(call, argument, VALUES[kind]())
            signal.alarm(0)
        if found not in ("", "accepted"):
            yield f"{call.name}.{call.method}({argument}={kind}): {found}"
