"""Saved estimators score as before, bit for bit, and continue to learn."""

import numpy as np
import pandas as pd
import pytest
from grids import in_turn
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
    QuadraticDiscriminantAnalysis,
    SeparabilitySelector,
    SlidingWindow,
    ThresholdClassifier,
)
from streamgda.errors import FormatError, InvalidParameterError


@in_turn(
    "name, file, dtype", ESTIMATORS, ["estimator", "estimator.zip"], [np.float64, np.uint8, "i2"]
)
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


@pytest.mark.slow
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
        SeparabilitySelector(2).fit(X, y),
        DriftMonitor(moments, window=100),
        ThresholdClassifier().fit(X[y < 2], y[y < 2]),
        *(each.model_ for each in made if hasattr(each, "model_")),
    ]
    paths = [str(tmp_path / f"{i}.zip") for i in range(len(made))]
    for each, path in zip(made, paths, strict=True):
        each.save(path)
    models = {"LinearModel": "GaussianModel"}
    assert output("-c", FRESH, *paths).split() == [
        models.get(type(each).__name__, type(each).__name__) for each in made
    ]


# --- thresholds -------------------------------------------------------------------------------


def two_classes(labels=("no", "yes")):
    X, y = blobs(n_classes=2)
    return X, np.array(labels)[y]


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"estimator": QuadraticDiscriminantAnalysis(reg_param=0.1), "cost": [[0, 3], [1, 0]]},
        {"estimator": GaussianNB(priors=[0.5, 0.5]), "cost": np.array([[0.0, 1.0], [0.0, 0.0]])},
        {"class_weight": {"yes": 2, "no": 0.5}, "max_memory": "64MB"},
        {"class_weight": "balanced"},
    ],
    ids=["default", "estimator", "infinite", "class_weight", "balanced"],
)
@pytest.mark.parametrize("frame", [False, True])
def test_thresholds_are_saved(tmp_path, params, frame):
    X, y = two_classes()
    X = pd.DataFrame(X, columns=list("abcd")) if frame else X
    fitted = ThresholdClassifier(**params).fit(X, y)
    fitted.save(tmp_path / "it.zip")
    loaded = streamgda.load(tmp_path / "it.zip")
    assert type(loaded) is ThresholdClassifier
    assert_same_bits(results(loaded, X), results(fitted, X))
    assert_same_bits(results(loaded.estimator_, X), results(fitted.estimator_, X))
    assert (loaded.threshold_, loaded.total_cost_) == (fitted.threshold_, fitted.total_cost_)
    assert repr(loaded.estimator) == repr(fitted.estimator)
    assert np.array_equal(loaded.cost, fitted.cost)
    for name in ("class_weight", "max_memory"):
        assert getattr(loaded, name) == getattr(fitted, name)
    assert loaded.n_features_in_ == 4
    assert list(getattr(loaded, "feature_names_in_", [])) == (list("abcd") if frame else [])
    half = slice(0, 150)
    again = loaded.fit_threshold(X[half], y[half]), fitted.fit_threshold(X[half], y[half])
    assert again[0].threshold_ == again[1].threshold_
    assert_same_bits(results(loaded.fit(X, y), X), results(fitted.fit(X, y), X))


def test_thresholds_for_labels_of_other_kinds(tmp_path):
    for labels in ((3, 7), (False, True), (b"n", b"y"), np.array(["2020", "2021"], "M8[Y]")):
        X, y = two_classes(labels)
        weight = dict.fromkeys(np.unique(y).tolist(), 2.0)
        fitted = ThresholdClassifier(class_weight=weight).fit(X, y)
        fitted.save(tmp_path / "it")
        loaded = streamgda.load(tmp_path / "it")
        assert loaded.class_weight == weight
        assert_same_bits(results(loaded, X), results(fitted, X))


@pytest.mark.parametrize("offset", [{0: 1}, {10: 1, 9: 2}, {"a": [{None: 1}]}, {1, 2}, np.nan])
def test_offsets_that_json_does_not_give_back_are_refused(offset):
    store = {}
    with pytest.raises(InvalidParameterError, match="cannot be kept"):
        GaussianNB().fit([[1.0], [2.0], [3.0], [5.0]], [0, 0, 1, 1]).save(store, offset=offset)
    assert not store


def test_a_dict_that_is_no_store():
    store = {0: 1}
    nb = GaussianNB().fit([[1.0], [2.0], [3.0], [5.0]], [0, 0, 1, 1])
    for use in (nb.save, GaussianNB.load):
        with pytest.raises((InvalidParameterError, FormatError), match="a dict with the key 0"):
            use(store)
    assert store == {0: 1}
