"""Bad calls of the whole public API, each with one bad argument: ``python tests/badcalls.py``.

Every call must end soon, with one of the package's errors, or with a TypeError or ValueError, whose
message names the argument; and leave the object whose method it is as it was. Calls that succeed
are listed with ``--all``: some bad values are good ones elsewhere.
"""

import contextlib
import io
import os
import signal
import sys
import tempfile
import uuid
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
import zarr
from samples import blobs

import streamgda as gda
from streamgda import datasets, plots
from streamgda.errors import StreamGDAError
from streamgda.storage.saved import Saved, state_of

SECONDS = 20
X, Y = blobs(60, 3, 2)
FOLDER = tempfile.TemporaryDirectory()
STORE: dict[str, Any] = {}
datasets.convert(X, STORE, labels=Y)
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
    "dates": lambda: np.full(60, np.datetime64("NaT")),
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


def _estimators() -> Iterator[Call]:
    makes = {
        "GDA": lambda: gda.GaussianDiscriminantAnalysis(reg_param=0.1),
        "QDA": gda.QuadraticDiscriminantAnalysis,
        "LDA": gda.LinearDiscriminantAnalysis,
        "GaussianNB": gda.GaussianNB,
        "BernoulliNB": gda.BernoulliNB,
        "Threshold": gda.ThresholdClassifier,
        "CV": lambda: gda.GaussianDiscriminantCV({"covariance_type": ["diag"]}, cv=2),
    }
    rows = {"X": X, "y": Y, "sample_weight": None}
    for name, make in makes.items():

        def fitted(make: Callable[[], Any] = make) -> Any:
            return make().fit(X, Y)

        yield Call(name, fitted, "fit", rows)
        for param, good in make().get_params(deep=False).items():
            yield Call(name, make, f"fit after set_params({param})", {param: good})
        methods = {
            "predict": {
                "X": X,
                "out": None,
                "reject": 0.1,
                "reject_label": -1,
                "nodata": None,
                "on_invalid": "fill",
                "fill": -5,
            },
            "predict_proba": {"X": X, "out": None, "on_invalid": "fill", "fill": 0.0},
            "score": rows,
            "score_samples": {"X": X},
            "transform": {"X": X, "out": None},
            "sample": {"n_samples": 2, "random_state": 0, "y": None, "out": None},
            "partial_fit": {
                **rows,
                "classes": None,
                "half_life": None,
                "unlabelled": None,
                "nodata": None,
                "on_invalid": "skip",
            },
            "forget": rows,
            "retire": {"labels": [1]},
            "fit_threshold": rows,
            "save": {"store": None},
            "from_moments": {"moments": gda.ClassMoments().update(X, Y)},
        }
        for method, good in methods.items():
            function = getattr(fitted(), method, None)
            if function is not None:
                code = getattr(function, "__func__", function).__code__
                known = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
                yield Call(name, fitted, method, {n: v for n, v in good.items() if n in known})


def _others() -> Iterator[Call]:
    def moments() -> gda.ClassMoments:
        return gda.ClassMoments().update(X, Y)

    def lda() -> Any:
        return gda.LinearDiscriminantAnalysis().fit(X, Y)

    rows = {"X": X, "y": Y, "sample_weight": None}
    held = moments()
    yield Call("module", lambda: gda, "accumulate", {
        **rows, "covariance_type": "full", "fourth_moments": False, "classes": None,
        "max_memory": None, "on_invalid": "raise", "nodata": None, "unlabelled": None,
        "checkpoint": None, "checkpoint_every": 1.0,
    })  # fmt: skip
    yield Call("module", lambda: gda, "load", {"store": STORE})
    yield Call("module", lambda: gda, "open_store", {"path": STORE, "X": "X", "y": "y"})
    yield Call("module", lambda: gda, "covariance_test", {"moments": held, "tol": 1e-4})
    yield Call("module", lambda: gda, "means_test", {"moments": held, "tol": 1e-4})
    yield Call("module", lambda: gda, "ClassMoments", {"covariance_type": "full"})
    yield Call("module", lambda: gda, "SlidingWindow", {"n_blocks": 2, "covariance_type": "full"})
    yield Call("module", lambda: gda, "Checkpoint", {"path": "stream.zip", "every": 1.0})
    for method, good in {
        "update": rows, "declare": {"classes": [5]}, "covariance": {"ddof": 0},
        "reduce": {"covariance_type": "diag"}, "pca": {"n_components": 1},
        "select_features": {"index": [0]}, "select_classes": {"labels": [0]},
        "drop_classes": {"labels": [0]}, "relabel": {"mapping": {0: 3}},
        "project": {"components": np.eye(3), "offset": None}, "__add__": {"other": held},
        "__sub__": {"other": held}, "__mul__": {"gamma": 0.5}, "save": {"store": None},
    }.items():  # fmt: skip
        yield Call("ClassMoments", moments, method, good)
    for method, good in {
        "update": rows, "declare": {"classes": [5]}, "covariance": {"ddof": 0},
        "to_moments": {"covariance_type": "full", "least_eigenvalue": 1e-4},
    }.items():  # fmt: skip
        yield Call("Pairwise", lambda: gda.PairwiseMoments().update(X, Y), method, good)
    window = {"update": rows, "append": {"block": held}}
    for method, good in window.items():
        yield Call("Window", lambda: gda.SlidingWindow(3).update(X, Y), method, good)
    watched = {"reference": held, "window": 20, "level": 0.1, "calibration": 5, "least_rows": 3,
               "covariance_type": "diag", "keep": 3}  # fmt: skip
    yield Call("module", lambda: gda, "DriftMonitor", watched)
    for method, good in {"update": rows, "reset": {"reference": held}}.items():
        yield Call("Drift", lambda: gda.DriftMonitor(held, window=20), method, good)
    yield Call("module", lambda: gda, "prequential", {
        "model": gda.GaussianNB(), "batches": [(X, Y)], "drift": 9, "half_life": 9.0,
        "faded_half_life": 9.0, "columns": None,
    })  # fmt: skip
    fisher = {"criterion": {"w": np.eye(3)}, "transform": {"X": X}, "project": {"moments": held},
              "from_moments": {"moments": held, "n_components": 1, "priors": None,
                               "shrinkage": None, "tol": 1e-4}}  # fmt: skip
    for method, good in fisher.items():
        yield Call("Fisher", lambda: gda.FisherDiscriminant.from_moments(moments()), method, good)
    functions = {"of": {"fitted": lda(), "origin": None}, "of_class": {"label": 0},
                 "pair": {"a": 0, "b": 1}, "__call__": {"X": X}, "posterior": {"X": X}}  # fmt: skip
    for method, good in functions.items():
        yield Call("Linear", lambda: gda.LinearDiscriminants.of(lda()), method, good)
    yield Call("module", lambda: gda, "separability", {
        "model_or_moments": held, "method": "divergence", "covariance_type": "diag", "ddof": 1,
        "pooling": 0.1, "shrinkage": 0.1, "reg_param": 0.1, "var_smoothing": 0.1,
    })  # fmt: skip
    yield Call("module", lambda: gda, "select_features", {
        "moments": held, "n": 2, "criterion": "divergence", "over": "mean", "direction": "backward",
        "covariance_type": "diag", "reg_param": 0.1, "tol": 0.0,
    })  # fmt: skip
    where = Path(FOLDER.name) / "stream.zip"
    yield Call("Checkpoint", lambda: gda.Checkpoint(where), "save", {"state": held, "offset": 1})
    shown = {"estimator": lda(), "X": X, "y": Y}
    for name, more in {
        "plot_confusion_matrix": shown, "plot_spectra": {"estimator": lda(), "n": 2},
        "plot_separability": {"model_or_moments": lda(), "method": "divergence"},
        "plot_means": {"estimator": lda(), "shape": (1, 3)},
        "plot_samples": {"estimator": lda(), "shape": (1, 3), "n": 1, "random_state": 0},
        "plot_densities": {**shown, "feature": 0, "direction": None, "bins": 5},
        "plot_learning_curve": {**shown, "batches": [(X, Y)], "n": 2},
        "plot_decision_boundary": {**shown, "features": None, "directions": None,
                                   "deviations": (1,), "resolution": 5, "max_points": 100},
    }.items():  # fmt: skip
        yield Call("plots", lambda: plots, name, more)
    stream = {"n_features": 2, "n_classes": 2, "seed": 0, "dtype": "f8", "separation": 1.0,
              "priors": None, "loc": None, "scale": None, "period": None}  # fmt: skip
    yield Call("datasets", lambda: datasets, "GaussianStream", stream)
    source = {"source": X, "store": {}, "labels": Y, "n_rows": None, "dtype": None}
    source |= {"chunk_rows": None, "overwrite": True}
    yield Call("datasets", lambda: datasets, "convert", source)


def calls() -> Iterator[Call]:
    yield from _estimators()
    yield from _others()


def state(thing: Any) -> str:
    """Return all that a call may not change."""
    if not isinstance(thing, Saved):
        return ""
    try:
        attributes, arrays = state_of(thing)
    except Exception:  # not fitted
        return repr(thing)
    return repr(attributes) + repr({name: a.tobytes() for name, a in arrays.items()})


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
    "batches": ("batch", "iteration", "Expected 2D"),
    "block": ("moments",),
    "classes": ("labels",),
    "direction": ("directions",),
    "estimator": ("fitted",),
    "feature": ("features",),
    "fitted": ("origin",),
    "index": ("features",),
    "label": ("class",),
    "labels": ("label", "moments", "y ", "Group", "strings"),
    "mapping": ("labels",),
    "moments": ("classes", "covariance", "no class has rows"),
    "model_or_moments": ("class", "covariance"),
    "other": ("moments",),
    "out": ("in store",),
    "path": ("checkpoint", "zarr", "lacks rows"),
    "reference": ("moments",),
    "sample_weight": ("weight", "rows"),
    "source": ("rows", "batch", "features", "array"),
    "store": ("path", "zarr", "exists"),
}


def _stop(*_: object) -> None:
    raise TimeoutError


def wrong(limit: int | None = None, accepted: bool = False) -> Iterator[str]:
    """Yield a line for each bad call that does not do what it must; check at most `limit`."""
    every = [(call, arg, kind) for call in calls() for arg in call.good for kind in VALUES]
    step = 1 if limit is None else max(1, len(every) // limit)
    for call, argument, kind in every[::step]:
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
        if found and (accepted or found != "accepted"):
            yield f"{call.name}.{call.method}({argument}={kind}): {found}"


if __name__ == "__main__":
    mpl.use("Agg")
    os.chdir(FOLDER.name)  # strings are paths
    found = 0
    for line in wrong(accepted="--all" in sys.argv):
        print(line, flush=True)
        found += 1
    print(f"{found} of {sum(len(call.good) for call in calls()) * len(VALUES)} bad calls")
    sys.exit(bool(found))
