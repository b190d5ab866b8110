"""Write one small file of every kind, and what is expected of each: ``python make.py FOLDER``.

``python make.py FOLDER names`` writes files of objects that know names of features, which format
version 4 holds as an attribute that older files lack, and ``python make.py FOLDER groups`` moments
of groups, which came later than the other kinds of version 4.

Run this once for each new version of the format, with the release that introduces it. Never run it
again for a version that has a folder: those files prove that older files stay readable.
"""

import sys
from pathlib import Path

import dask
import numpy as np

from streamgda import (
    BernoulliNB,
    Checkpoint,
    ClassMoments,
    GaussianDiscriminantAnalysis,
    GaussianNB,
    GroupedMoments,
    LinearDiscriminantAnalysis,
    PairwiseMoments,
    QuadraticDiscriminantAnalysis,
    SlidingWindow,
    ThresholdClassifier,
    accumulate,
)

BATCH = 6  # rows


def rows():
    """Return rows as floats, bytes, zeros and ones, and with missing values; labels and weights."""
    random = np.random.default_rng(3)
    labels = np.arange(48) % 3
    X = random.normal(size=(48, 3)) + labels[:, None] * [1.0, -0.5, 2.0]
    names = np.array(["ant", "bee", "wasp"])[labels]
    missing = np.where(random.random(X.shape) < 0.1, np.nan, X)
    return {
        "X": X,
        "bytes": np.clip(np.rint(16 * X + 100), 0, 255).astype(np.uint8),
        "ones": (X > 0.5).astype(np.float64),
        "missing": missing,
        "labels": labels,
        "names": names,
        "weights": np.linspace(0.5, 2.0, 48),
    }


def moments_of(data):
    """Return moments of every kind by the name of their file."""
    X, y, names, weights = (data[name] for name in ("X", "labels", "names", "weights"))
    window = SlidingWindow(3, "diag")
    for start in range(0, 30, BATCH):
        window.update(X[start : start + BATCH], y[start : start + BATCH])
    return {
        "moments-full": ClassMoments().update(X, names, weights),
        "moments-exact-tied": ClassMoments("tied").update(data["bytes"], y),
        "moments-exact-diag": ClassMoments("diag").update(data["bytes"].astype("i2"), y),
        "moments-norms": ClassMoments("full", fourth_moments=True).update(X, y),
        "moments-spherical": ClassMoments("spherical").update(X.astype("f4"), y * 2.0),
        "moments-dates": ClassMoments("tied").update(X, np.datetime64("2020-01-01", "D") + y),
        "moments-empty": ClassMoments("diag"),
        "pairwise": PairwiseMoments().update(data["missing"], names),
        "window": window,
    }


def estimators_of(data):
    """Return fitted estimators by the name of their file, and rows that they score."""
    X, y, names, integers = (data[name] for name in ("X", "labels", "names", "bytes"))
    frame = frame_of(X)
    two = y < 2
    rule = ThresholdClassifier(
        GaussianNB(var_smoothing=0.01), cost=[[0, 2], [1, 0]], class_weight={"ant": 2.0, "bee": 1.0}
    )
    return {
        "qda": (QuadraticDiscriminantAnalysis(reg_param=0.1).fit(X, names), X),
        "lda": (LinearDiscriminantAnalysis("lsqr", "ledoit_wolf").fit(X, y), X),
        "nb": (GaussianNB(priors=[0.2, 0.3, 0.5]).fit(frame, names), frame),
        "gda": (GaussianDiscriminantAnalysis("tied").fit(integers, y), integers),
        "bernoulli-nb": (BernoulliNB(alpha=0.5).fit(data["ones"], y.astype("S1")), data["ones"]),
        "threshold": (rule.fit(X[two], names[two]), X),
    }


def frame_of(X):
    """Return rows as a data frame, whose columns have names."""
    import pandas as pd

    return pd.DataFrame(X, columns=["length", "width", "height"])


def write_named(folder):
    """Write files of objects that know the names of the features."""
    folder.mkdir(parents=True)
    data = rows()
    frame, missing, y = frame_of(data["X"]), frame_of(data["missing"]), data["names"]
    objects = {
        "moments": ClassMoments().update(frame, y),
        "pairwise": PairwiseMoments().update(missing, y),
        "window": SlidingWindow(2, "diag").update(frame[:20], y[:20]).update(frame[20:], y[20:]),
        "lda": LinearDiscriminantAnalysis().fit(frame, y),
        "model": LinearDiscriminantAnalysis().fit(frame, y).model_,
        "bernoulli": BernoulliNB().fit(frame_of(data["ones"]), y).model_,
    }
    for name, saved in objects.items():
        saved.save(folder / f"{name}.zip")
    accumulate(frame, y, checkpoint=folder / "pass.zip", checkpoint_every=0)


def write_groups(folder):
    """Write files of moments of groups, and what is expected of them."""
    folder.mkdir(parents=True)
    data = rows()
    frame, names, weights = frame_of(data["X"]), data["names"], data["weights"]
    sites = np.where(data["labels"] == 2, "north", np.array(["east", "south"])[np.arange(48) % 2])
    objects = {
        "grouped-full": GroupedMoments().update(frame, names, sites, weights),
        "grouped-exact-tied": GroupedMoments("tied").update(data["bytes"], names, sites),
        "grouped-empty": GroupedMoments("diag"),
    }
    expected = {}
    for name, grouped in objects.items():
        grouped.save(folder / f"{name}.zip")
        parts = {group: grouped[group] for group in grouped} | {"total": grouped.total()}
        for part, moments in parts.items():
            expected |= {f"{name}/{part}/{key}": a for key, a in described(moments).items()}
    np.savez(folder / "expected.npz", **expected)


def described(moments):
    """Return what moments hold, as plain arrays by name."""
    held = {"classes": moments.classes, "class_count": moments.class_count}
    if moments.n_features is not None:
        held["means"] = moments.means
        held["covariance"] = moments.covariance()
    return held


def stop(options, *arrays):
    """Run a pass that stops when half of the rows are done, and keeps a checkpoint."""

    def progress(done, total):
        if done > 24:
            raise KeyboardInterrupt

    try:
        accumulate(*arrays, progress=progress, checkpoint_every=0, **options)
    except KeyboardInterrupt:
        assert options["checkpoint"].exists()
        return
    raise AssertionError("the pass was not stopped")


def batches(data):
    """Yield the rows and their names a batch at a time."""
    for start in range(0, 48, BATCH):
        yield data["X"][start : start + BATCH], data["names"][start : start + BATCH]


def delayed(data):
    """Return the batches as dask would compute them."""
    return [
        dask.delayed(batch, name=f"batch-{number}", traverse=False)
        for number, batch in enumerate(batches(data))
    ]


def main(folder):
    """Write all files to a new folder."""
    folder.mkdir(parents=True)
    data = rows()
    expected = {f"data/{name}": array for name, array in data.items()}

    def keep(name, arrays):
        expected.update({f"{name}/{key}": array for key, array in arrays.items()})

    for name, moments in moments_of(data).items():
        moments.save(folder / f"{name}.zip")
        keep(name, described(moments.moments if name == "window" else moments))
    for name, (estimator, X) in estimators_of(data).items():
        method = "decision_function" if name == "threshold" else "predict_log_proba"
        scores = {"predict": estimator.predict(X), method: getattr(estimator, method)(X)}
        estimator.save(folder / f"{name}.zip")
        keep(name, scores | described(estimator.moments_))
        if name == "qda":
            estimator.model_.save(folder / "model.zip")
            keep("model", {"log_density": estimator.model_.log_density(X)})
        if name == "bernoulli-nb":
            estimator.model_.save(folder / "bernoulli.zip")
            keep("bernoulli", {"log_density": estimator.model_.log_density(X)})
    stream = Checkpoint(folder / "stream.zip")
    stream.save(GaussianNB().fit(data["X"], data["labels"]), {"offset": 17})
    keep("stream", described(stream.state.moments_))
    stop({"checkpoint": folder / "pass.zip"}, batches(data))
    keep("pass", described(accumulate(batches(data))))
    stop({"checkpoint": folder / "dask.zip"}, delayed(data))
    keep("dask", described(accumulate(delayed(data))))
    np.savez(folder / "expected.npz", **expected)


if __name__ == "__main__":
    writers = {"names": write_named, "groups": write_groups}
    writers.get("".join(sys.argv[2:]), main)(Path(sys.argv[1]))
