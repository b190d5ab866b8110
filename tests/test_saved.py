"""Estimators that were saved score as before, bit for bit, and go on learning."""

import numpy as np
import pandas as pd
import pytest
from samples import (
    EVERY_ESTIMATOR,
    assert_equal_to_rounding,
    assert_same_bits,
    blobs,
    bytes_of,
    make,
    results,
)

import streamgda
from streamgda import GaussianNB, QuadraticDiscriminantAnalysis
from streamgda.errors import FormatError


@EVERY_ESTIMATOR
@pytest.mark.parametrize("file", ["estimator", "estimator.zip"])
@pytest.mark.parametrize("dtype", [np.float64, np.uint8])
def test_loaded_estimators_score_and_learn_on(name, tmp_path, file, dtype):
    X, y = blobs()
    more, labels = blobs(seed=1)
    if dtype == np.uint8:
        X, more = bytes_of(X), bytes_of(more)
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


def test_saving_what_cannot_predict_yet(tmp_path):
    X, y = blobs()
    QuadraticDiscriminantAnalysis().partial_fit(X[:2], y[:2]).save(tmp_path / "begun")
    loaded = streamgda.load(tmp_path / "begun").partial_fit(X[2:], y[2:])
    assert_equal_to_rounding(loaded, QuadraticDiscriminantAnalysis().fit(X, y), X)


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
    with pytest.raises(FormatError, match="an estimator 'Other', which is not known here"):
        streamgda.load(tmp_path / "other")
    fitted.moments_.save(tmp_path / "moments")
    with pytest.raises(FormatError, match="holds 'moments', expected 'estimator'"):
        streamgda.load(tmp_path / "moments")
