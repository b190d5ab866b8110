"""Files whose checksums are right and whose contents are not: loading says what is wrong."""

import copy
import os
import re

import numpy as np
import pytest
from damage import LOADERS, as_store, subjects

from streamgda import ClassMoments, storage
from streamgda.errors import FormatError, InvalidParameterError, SourceError

SUBJECTS = subjects()
NAN, INF = np.nan, np.inf


def changed(values, **entries):
    """Return a copy of an array in which some entries are others, by their numbers."""
    values = values.copy()
    for at, value in entries.items():
        values.reshape(-1)[int(at[1:])] = value
    return values


def refuse(name, message, attributes=(), **arrays):
    """Check that a file is refused after changes of attributes, by their path, or of arrays."""
    subject = SUBJECTS[name]
    others = copy.deepcopy(subject.attributes)
    for path, value in dict(attributes).items():
        *parents, last = path.split("/")
        holder = others
        for parent in parents:
            holder = holder[int(parent) if isinstance(holder, list) else parent]
        holder[last] = value
    held = dict(subject.arrays)
    for path, change in arrays.items():
        array = path.replace("__", "/")
        held[array] = change(held[array]) if callable(change) else change
    store = as_store(subject.written(others, held))
    with pytest.raises(FormatError, match=message) as caught:
        LOADERS[subject.kind](store)
    assert re.match(r"<MemoryStore|memory://", str(caught.value)), "the message names the file"


@pytest.mark.parametrize(
    ("name", "array", "change", "message"),
    [
        ("moments-full", "count", lambda a: changed(a, _0=-1), "count holds impossible values"),
        ("moments-full", "count", lambda a: 0 * a + 1e308, "counts of the classes sum to inf"),
        ("moments-exact-tied", "count", lambda a: changed(a, _0=1 << 60), "counts of the classes"),
        ("moments-exact-tied", "count", lambda a: changed(a, _0=1 << 40), "rows are never summed"),
        ("moments-exact-tied", "total", lambda a: changed(a, _0=1 << 60), "total holds impossible"),
        ("moments-spherical", "count", lambda a: a.astype("u8"), "count has shape"),
        ("moments-full", "mean", lambda a: changed(a, _1=INF), "mean holds impossible values"),
        ("moments-full", "mean_low", lambda a: a + 1, "more than the rounding error"),
        ("moments-full", "scatter", lambda a: -a, "negative sum of squares"),
        ("moments-norms", "norms", lambda a: -a, "norms has the negative sum of squares"),
        ("pairwise", "pairs", lambda a: -a, "pairs holds impossible values"),
        ("pairwise", "pairs", lambda a: 2 * a, "more pairs than rows"),
        ("pairwise", "products", lambda a: -a, "products has the negative sum of squares"),
        ("pairwise", "means", lambda a: a[:, :2], "means has shape"),
        ("window", "2/count", lambda a: a + 1, "other counts than its blocks"),
        ("model", "features", lambda a: changed(a, _0=-1), "features holds impossible values"),
        ("model", "features", lambda a: changed(a, _0=2), "not in ascending order"),
        ("model", "means", lambda a: changed(a, _0=INF), "means holds impossible values"),
        ("model", "means", lambda a: changed(a, _0=NAN), "means holds impossible values"),
        ("model", "roots", lambda a: -a, "roots are not positive"),
        ("model", "log_determinants", lambda a: a + 1, "not those of its roots"),
        ("model", "priors", lambda a: -a, "priors must be non-negative"),
        ("model", "priors", lambda a: changed(a, _0=-1), "must be non-negative"),
        ("bernoulli", "log_one", lambda a: -a, "above one"),
        ("bernoulli", "log_one", lambda a: a - 1, "do not sum to one"),
        ("bernoulli", "log_zero", lambda a: changed(a, _0=NAN), "log_zero holds impossible"),
        ("bernoulli", "log_one", lambda a: a.astype("f4"), "log_one has shape"),
        ("threshold", "threshold", lambda a: changed(a, _1=INF), "no threshold"),
        ("threshold", "threshold", lambda a: a.astype("i8"), "no threshold"),
        ("gda", "model/means", lambda a: a[:, :2], "its arrays do not fit|features"),
    ],
)
def test_arrays_that_cannot_be(name, array, change, message):
    refuse(name, message, **{array.replace("/", "__"): change})


LABELS = {"dtype": "<i8", "values": [0, 1, 2]}


@pytest.mark.parametrize(
    ("name", "attribute", "value", "message"),
    [
        *(("bernoulli", "threshold", value, "threshold is") for value in ({}, "high", [], True)),
        *(("bernoulli", "threshold", value, "threshold is|too large") for value in (NAN, 10**400)),
        ("moments-full", "n_skipped", 1.0, "n_skipped is 1.0, expected a whole number"),
        ("moments-full", "norms", "yes", "norms is 'yes', expected true or false"),
        ("moments-exact-tied", "origin", 7, "rows are never summed about 7"),
        ("moments-exact-tied", "reach", -1, "reach is -1"),
        ("moments-full", "classes", LABELS | {"values": [0, 1, 1]}, "not the sorted labels"),
        ("moments-full", "classes", LABELS | {"values": [0, 1, 2.5]}, "labels are damaged"),
        ("moments-full", "classes", LABELS | {"dtype": "<f8", "values": [0.0, 0.5, 1.0]}, "sorted"),
        ("moments-empty", "classes", LABELS, "it lacks 'scatter'"),
        ("window", "n_blocks", 2, "blocks of 2"),
        ("window", "older", 99, "older is 99"),
        ("window", "covariance_type", "tied_diag", "blocks are moments of kinds"),
        ("gda", "params/tol", -1, "tol=-1; expected"),
        ("gda", "params/priors", [0.5, 0.4], "sum of the priors"),
        ("gda", "params/ddof", 10**400, "the parameter ddof"),
        ("gda", "params/reg_param", {}, "the parameter reg_param"),
        ("gda", "model/classes", LABELS | {"values": [0, 1, 3]}, "different classes"),
        ("bernoulli-nb", "params/alpha", "x", "alpha='x'; expected"),
        ("bernoulli-nb", "params/class_prior", [2.0], "sum of the priors"),
        ("nb", "feature_names", ["a", "b"], "expected a list of 3 strings"),
        ("nb", "feature_names", ["a", "b", 3], "not all strings"),
        ("threshold", "params/cost", [[0, INF], [1, 0]], "cost="),
        ("pass", "done", -1, "done is -1"),
        ("pass", "done", True, "done is True"),
        ("pass", "seen", {}, "its fingerprints are"),
        ("pass", "seen", {"checksum": NAN}, "seen is nan"),
        ("pass", "made_of/nodata", 3, "made_of are not all strings"),
        ("pass", "made_of/covariance_type", "diag", "its moments are of covariance_type"),
        ("slabs", "seen/samples", [[0, 0, 5]], "samples is 0"),
        ("slabs", "seen/slab_rows", 0, "slab_rows is 0"),
        ("dask", "seen/parts", {"0-1": [[INF, 0]]}, "seen is inf"),
    ],
)
def test_attributes_that_cannot_be(name, attribute, value, message):
    refuse(name, message, {attribute: value})


@pytest.mark.parametrize("name", SUBJECTS)
def test_arrays_that_are_missing_or_unknown(name):
    subject = SUBJECTS[name]
    for array in subject.arrays.keys() - {"moments/squares"}:  # which earlier versions lack
        others = {key: value for key, value in subject.arrays.items() if key != array}
        with pytest.raises(FormatError):
            LOADERS[subject.kind](as_store(subject.written(None, others)))
    others = subject.arrays | {"more": np.zeros(2)}
    if subject.kind not in ("estimator", "checkpoint", "window"):
        with pytest.raises(FormatError):
            LOADERS[subject.kind](as_store(subject.written(None, others)))


def test_what_could_not_be_read_again_is_not_saved(tmp_path, monkeypatch):
    moments = ClassMoments.load(as_store(SUBJECTS["moments-full"].files))
    moments.save(tmp_path / "it.zip")
    monkeypatch.setattr("streamgda.storage.format.MOST_METADATA", 1 << 14)
    with pytest.raises(InvalidParameterError, match=r"labels, names and offset take \d+ bytes"):
        moments.save(tmp_path / "it.zip", offset="x" * (1 << 14))
    assert ClassMoments.load(tmp_path / "it.zip").n_features == 3


def test_metadata_that_is_too_long_is_not_described(tmp_path, monkeypatch):
    moments = ClassMoments.load(as_store(SUBJECTS["moments-full"].files))
    for path in (tmp_path / "it", tmp_path / "it.zip"):
        moments.save(path)
    os.truncate(tmp_path / "it" / "zarr.json", 3 << 30)
    with (
        pytest.raises(SourceError, match=r"zarr\.json has 3221225472 bytes, expected at most"),
        storage.described(tmp_path / "it"),
    ):
        pass
    monkeypatch.setattr("streamgda.storage.guards.MOST_METADATA", 1000)
    with (
        pytest.raises(SourceError, match="expected at most 1000"),
        storage.described(tmp_path / "it.zip"),
    ):
        pass
