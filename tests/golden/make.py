"""Write one small file of every kind, and what is expected of each: ``python make.py FOLDER``.

Run this once for each new version of the format, with the release that introduces it. Never run it
again for a version that has a folder: those files prove that older files stay readable. Those in
``names``, ``groups`` and ``heads`` were written apart, as version 4 got names of features, moments
of groups, and objects beside classifiers after it was introduced.
"""

import sys
from pathlib import Path

import dask
import numpy as np

from streamgda import (
    PCA,
    BernoulliNB,
    Checkpoint,
    ClassMoments,
    DriftMonitor,
    GaussianDiscriminantAnalysis,
    GaussianNB,
    GroupedMoments,
    LinearDiscriminantAnalysis,
    Normalize,
    PairwiseMoments,
    Power,
    QuadraticDiscriminantAnalysis,
    RandomFeatures,
    Ridge,
    RidgeClassifier,
    SeparabilitySelector,
    SlidingWindow,
    Standardize,
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
    sites = np.where(y == 2, "north", np.array(["east", "south"])[np.arange(48) % 2])
    window = SlidingWindow(3, "diag")
    for start in range(0, 30, BATCH):
        window.update(X[start : start + BATCH], y[start : start + BATCH])
    return {
        "moments-full": ClassMoments().update(X, names, weights),
        "moments-named": ClassMoments().update(frame_of(X), names),
        "moments-exact-tied": ClassMoments("tied").update(data["bytes"], y),
        "moments-exact-diag": ClassMoments("diag").update(data["bytes"].astype("i2"), y),
        "moments-norms": ClassMoments("full", fourth_moments=True).update(X, y),
        "moments-spherical": ClassMoments("spherical").update(X.astype("f4"), y * 2.0),
        "moments-dates": ClassMoments("tied").update(X, np.datetime64("2020-01-01", "D") + y),
        "moments-empty": ClassMoments("diag"),
        "pairwise": PairwiseMoments().update(data["missing"], names),
        "window": window,
        "grouped-full": GroupedMoments().update(frame_of(X), names, sites, weights),
        "grouped-exact-tied": GroupedMoments("tied").update(data["bytes"], names, sites),
        "grouped-empty": GroupedMoments("diag"),
    }


def estimators_of(data):
    """Return fitted estimators by the name of their file, and rows that they score."""
    X, y, names, integers = (data[name] for name in ("X", "labels", "names", "bytes"))
    frame, two = frame_of(X), y < 2
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


def heads_of(data):
    """Return objects beside classifiers by the name of their file, and the methods to compare."""
    X, y, names, weights = (data[name] for name in ("X", "labels", "names", "weights"))
    moments = ClassMoments().update(X, names)
    fourier = RandomFeatures(5, "fourier", gamma=0.5, random_state=7)
    lift = [Standardize(moments), Normalize("l2"), Power(0.5), fourier]
    relu = RandomFeatures(4, random_state=3)
    gda = GaussianDiscriminantAnalysis(standardize=True, reg_param=0.1).fit(X, names)
    given = LinearDiscriminantAnalysis.from_parameters([[1.0, 2.0, 0.5]], [0.5], [0, 1])
    targets = np.column_stack([y, X[:, 0] ** 2])
    ridge = Ridge([0.5, 2.0]).fit(X, targets, weights)
    pca = PCA(2, whiten=True).fit(X)
    monitor = DriftMonitor(moments, window=12)
    monitor.update(X[:18], names[:18])
    return {
        "calibrated": (gda.calibrate(X, names), ["predict", "predict_log_proba"]),
        "lifted-lda": (
            LinearDiscriminantAnalysis("lsqr", feature_map=lift).fit(X, names),
            ["predict", "predict_log_proba"],
        ),
        "lifted-ridge": (Ridge(feature_map=relu).fit(X, y), ["predict"]),
        "lifted-moments": (ClassMoments("tied", feature_map=relu).update(X, names), []),
        "given-scores": (given, ["predict", "decision_function"]),
        "linear-scores": (given.model_, ["log_posterior"]),
        "ridge": (ridge, ["predict"]),
        "ridge-model": (ridge.model_, ["targets"]),
        "ridge-classifier": (RidgeClassifier(0.5).fit(X, names), ["predict", "decision_function"]),
        "pca": (pca, ["transform", "score_samples", "residual"]),
        "pca-model": (pca.model_, ["transform"]),
        "selector": (SeparabilitySelector(2).fit(X, names), ["transform"]),
        "monitor": (monitor, []),
    }


def described_head(head, methods, data):
    """Return what a head makes of the rows, as plain arrays by name."""
    if isinstance(head, DriftMonitor):
        reports = head.update(data["X"][18:], data["names"][18:])
        return {"p_values": np.array([report.overall.means.p_value for report in reports])}
    if isinstance(head, ClassMoments):
        return described(head)
    return {method: getattr(head, method)(data["X"]) for method in methods}


def frame_of(X):
    """Return rows as a data frame, whose columns have names."""
    import pandas as pd

    return pd.DataFrame(X, columns=["length", "width", "height"])


def described(moments):
    """Return what moments hold, as plain arrays by name."""
    if isinstance(moments, GroupedMoments):
        parts = {group: moments[group] for group in moments} | {"total": moments.total()}
        held = {part: described(of_part) for part, of_part in parts.items()}
        return {f"{part}/{name}": array for part in held for name, array in held[part].items()}
    held = {"classes": moments.classes, "class_count": moments.class_count}
    if moments.n_features is not None:
        held |= {"means": moments.means, "covariance": moments.covariance()}
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
    expected = {"data": data}
    for name, moments in moments_of(data).items():
        moments.save(folder / f"{name}.zip")
        expected[name] = described(moments.moments if name == "window" else moments)
    for name, (estimator, X) in estimators_of(data).items():
        method = "decision_function" if name == "threshold" else "predict_log_proba"
        scores = {"predict": estimator.predict(X), method: getattr(estimator, method)(X)}
        estimator.save(folder / f"{name}.zip")
        expected[name] = scores | described(estimator.moments_)
        model = {"qda": "model", "bernoulli-nb": "bernoulli"}.get(name)
        if model is not None:
            estimator.model_.save(folder / f"{model}.zip")
            expected[model] = {"log_density": estimator.model_.log_density(X)}
    for name, (head, methods) in heads_of(data).items():
        head.save(folder / f"{name}.zip")
        expected[name] = described_head(head, methods, data)
    stream = Checkpoint(folder / "stream.zip")
    stream.save(GaussianNB().fit(data["X"], data["labels"]), {"offset": 17})
    expected["stream"] = described(stream.state.moments_)
    for name, parts in (("pass", lambda: batches(data)), ("dask", lambda: delayed(data))):
        stop({"checkpoint": folder / f"{name}.zip"}, parts())
        expected[name] = described(accumulate(parts()))
    arrays = {f"{name}/{key}": held[key] for name, held in expected.items() for key in held}
    np.savez(folder / "expected.npz", **arrays)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
