"""Saved estimators score as before, bit for bit, and continue to learn."""

import numpy as np
import pandas as pd
import pytest
from grids import in_turn
from moment_checks import assert_same, some_moments
from processes import output
from samples import (
    ESTIMATORS,
    assert_same_bits,
    blobs,
    bytes_of,
    make,
    results,
)

import streamgda
from streamgda import (
    PCA,
    ClassMoments,
    DriftMonitor,
    GaussianNB,
    GroupedMoments,
    PairwiseMoments,
    Ridge,
    SlidingWindow,
    accumulate,
)
from streamgda.errors import FormatError


@in_turn("name, file, dtype", ESTIMATORS, ["estimator.npz"], [np.float64, np.uint8, "i2"])
def test_loaded_estimators_score_and_learn_on(name, tmp_path, file, dtype):
    X, y = blobs()
    more, labels = blobs(seed=1)
    if dtype != np.float64:
        X, more = bytes_of(X).astype(dtype), bytes_of(more).astype(dtype)
    labels = labels + 1  # a class that is new
    fitted = make(name).fit(X, y)
    fitted.save(tmp_path / file)
    loaded = streamgda.load(tmp_path / file)
    assert type(loaded) is type(fitted)
    assert loaded.get_params() == fitted.get_params()
    assert loaded.n_features_in_ == 4
    assert_same_bits(results(loaded, X), results(fitted, X))
    loaded.partial_fit(more, labels)
    assert_same_bits(results(loaded, X), results(fitted.partial_fit(more, labels), X))


@pytest.mark.parametrize("as_given", [list, tuple, np.array, np.float32, pd.Series])
def test_priors_of_any_kind_are_saved(tmp_path, as_given):
    X, y = blobs()
    fitted = GaussianNB(priors=as_given([0.25, 0.25, 0.5])).fit(X, y)
    fitted.save(tmp_path / "nb")
    loaded = streamgda.load(tmp_path / "nb")
    assert loaded.priors == [0.25, 0.25, 0.5]
    assert_same_bits(results(loaded, X), results(fitted, X))


def test_estimators_that_are_not_known_are_refused(tmp_path):
    fitted = GaussianNB().fit(*blobs())

    class Other(GaussianNB):
        pass

    Other().fit(*blobs()).save(tmp_path / "other")
    with pytest.raises(FormatError, match="is of class 'Other', which is not in this version"):
        streamgda.load(tmp_path / "other")
    fitted.moments_.save(tmp_path / "moments")
    with pytest.raises(FormatError, match="holds 'moments', expected 'estimator'"):
        streamgda.load(tmp_path / "moments", GaussianNB)
    fitted.save(tmp_path / "nb")
    assert type(streamgda.load(tmp_path / "nb", GaussianNB)) is GaussianNB
    with pytest.raises(FormatError, match=r"not BernoulliNB .*: GaussianNB\.load and"):
        streamgda.load(tmp_path / "nb", streamgda.BernoulliNB)


FRESH = """
import sys
import streamgda
for path in sys.argv[1:]:
    print(type(streamgda.load(path)).__name__)
"""


@pytest.mark.soak
def test_every_class_is_found_in_a_fresh_process(tmp_path):
    X, y = blobs()
    moments = ClassMoments().update(X, y)
    made = [make(name).fit(X, y) for name in ESTIMATORS]
    made += [
        moments,
        GroupedMoments().update(X, y, y),
        PairwiseMoments().update(X, y),
        SlidingWindow(50).update(X, y),
        PCA(2).fit(X),
        DriftMonitor(moments, window=100),
        Ridge().fit(X, y),
    ]
    paths = [str(tmp_path / f"{i}.npz") for i in range(len(made))]
    for each, path in zip(made, paths, strict=True):
        each.save(path)
    assert output("-c", FRESH, *paths).split() == [type(each).__name__ for each in made]


BYTES = some_moments().to_bytes()


# --- bytes ------------------------------------------------------------------------------------


def test_equal_objects_give_equal_bytes():
    assert some_moments().to_bytes() == some_moments().to_bytes() == BYTES


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, np.frombuffer])
def test_bytes_of_any_kind(kind):
    data = kind(BYTES, np.uint8) if kind is np.frombuffer else kind(BYTES)
    assert_same(ClassMoments.from_bytes(data), some_moments())


@pytest.mark.parametrize("given", ["moments.zip", None, 3, [1, 2], some_moments()])
def test_other_things_are_no_bytes(given):
    with pytest.raises(TypeError, match="bytes-like object is required"):
        ClassMoments.from_bytes(given)


# --- several machines -------------------------------------------------------------------------


def integers(n=200, d=3):
    random = np.random.default_rng(5)
    X = random.integers(-300, 300, (n, d)).astype(np.int16)
    return X, random.choice(["a", "bee", "cat", "dog"], n)


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
def test_parts_of_integers_give_the_bytes_of_all_rows(covariance_type):
    """In any order; some parts lack classes, and one has no rows."""
    X, y = integers()
    cuts = np.array_split(np.argsort(y, kind="stable"), 6)
    parts = [accumulate(X[at], y[at], covariance_type=covariance_type) for at in cuts]
    parts.append(ClassMoments(covariance_type))
    sent = [part.to_bytes() for part in parts]
    whole = accumulate(X, y, covariance_type=covariance_type).to_bytes()
    for order in (sent, sent[::-1], sent[3:] + sent[:3]):
        received = [ClassMoments.from_bytes(data) for data in order]
        assert sum(received, ClassMoments(covariance_type)).to_bytes() == whole
        pairs = [a + b for a, b in zip(received[:-1:2], received[1::2], strict=True)]
        assert (sum(pairs) + received[-1]).to_bytes() == whole
