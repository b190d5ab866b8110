"""Use saved objects of every kind in every way that should work, or raise errors of streamgda."""

from __future__ import annotations

import contextlib
import tempfile
import warnings
from collections.abc import Callable, Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from streamgda import ClassMoments, GaussianModel, GroupedMoments, SlidingWindow, accumulate
from streamgda.engine.accumulate_checkpoint import CheckpointContents
from streamgda.errors import StreamGDAError
from streamgda.models.model import Model
from streamgda.moments import Moments

GOLDEN = Path(__file__).with_name("golden")
Uses = Iterator[Callable[[], Any]]


def use(loaded: Any) -> None:
    """Save and use an object, and let pass errors that are not of streamgda."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded.save(zarr.storage.MemoryStore())
        for call in list(uses_of(loaded)):
            with contextlib.suppress(StreamGDAError):
                call()


def uses_of(loaded: Any) -> Uses:
    if isinstance(loaded, CheckpointContents):
        yield lambda: resume(loaded)
        for moments in loaded.moments.values():
            yield from uses_of_moments(moments)
    elif isinstance(loaded, GroupedMoments):
        yield from uses_of_groups(loaded)
    elif isinstance(loaded, SlidingWindow):
        yield from uses_of_window(loaded)
    elif isinstance(loaded, Moments):
        yield from uses_of_moments(loaded)
    elif isinstance(loaded, Model):
        yield from uses_of_model(loaded)
    else:
        yield from uses_of_estimator(loaded)


def resume(contents: CheckpointContents) -> None:
    """Resume the pass of `golden/make.py` that has left these contents."""
    spec = spec_from_file_location("make", GOLDEN / "make.py")
    make = module_from_spec(spec)
    spec.loader.exec_module(make)
    data = make.rows()
    on_dask = contents.description.get("read by") == "dask"
    with tempfile.TemporaryDirectory() as folder:
        contents.save(f"{folder}/it.zip")
        batches = make.delayed(data) if on_dask else make.batches(data)
        accumulate(batches, checkpoint=f"{folder}/it.zip")


def rows_and_labels(n_features: int | None, classes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return six rows of zeros and ones, and labels for them."""
    rows = np.arange(6 * min(64, n_features or 1)).reshape(6, -1) % 3 == 0
    return rows * 1.0, np.resize(classes, 6) if classes.size else np.arange(6)


def uses_of_moments(moments: Any) -> Uses:
    rows = rows_and_labels(moments.n_features, moments.classes)
    yield lambda: moments + moments
    if isinstance(moments, ClassMoments):
        yield lambda: moments + moments * 0.5
        yield lambda: moments + moments - moments
        yield lambda: moments.reduce("tied_spherical")
    else:
        yield moments.to_moments
    yield moments.covariance
    yield lambda: (moments.means, moments.class_count, repr(moments))
    yield lambda: moments.copy().update(*rows)
    yield lambda: (moments + moments).save(zarr.storage.MemoryStore())


def uses_of_groups(grouped: GroupedMoments) -> Uses:
    rows, y = rows_and_labels(grouped.n_features, grouped.classes)
    for group in grouped:
        yield lambda group=group: grouped.without(group)
        yield from uses_of_moments(grouped[group])
    yield lambda: (grouped.counts, repr(grouped), grouped + grouped - grouped)
    yield lambda: grouped.roll_up(str)
    yield lambda: grouped.copy().update(rows, y, np.arange(6) // 2)
    yield from uses_of_moments(grouped.total())


def uses_of_window(window: SlidingWindow) -> Uses:
    yield from uses_of_moments(window.moments)
    for _ in range(4):
        yield lambda: window.append(window.moments)
    yield lambda: window.save(zarr.storage.MemoryStore())


def uses_of_model(model: Any) -> Uses:
    rows, _ = rows_and_labels(model.n_features, model.classes)
    methods = "predict posterior log_posterior joint_log_likelihood log_density relative_scores"
    for method in methods.split():
        yield lambda method=method: getattr(model, method)(rows)
    if isinstance(model, GaussianModel):
        yield lambda: (model.mahalanobis(rows), model.p_values(rows))
    if model.classes.size == 2:
        yield lambda: model.log_odds(rows)


def uses_of_estimator(estimator: Any) -> Uses:
    rows, labels = rows_and_labels(estimator.n_features_in_, estimator.classes_)
    methods = "predict predict_proba predict_log_proba decision_function score_samples transform"
    for method in methods.split():
        if hasattr(estimator, method):
            yield lambda method=method: getattr(estimator, method)(rows)
    if hasattr(estimator, "sample"):
        yield lambda: estimator.sample(3, 0)
    if hasattr(estimator, "moments_"):
        yield from uses_of_moments(estimator.moments_)
    if hasattr(estimator, "partial_fit"):
        yield lambda: estimator.partial_fit(rows, labels)
    yield lambda: (estimator.predict(rows), repr(estimator))
    yield lambda: estimator.fit(rows, labels)
