"""Searches are saved and loaded with all their scores."""

import numpy as np
import pytest
from samples import blobs
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import KFold

from streamgda import GaussianDiscriminantCV, GaussianNB, load
from streamgda.errors import FormatError, InvalidParameterError
from streamgda.storage.saved import restore, state_of

GRID = [
    {"covariance_type": ["tied"], "priors": [None, np.array([0.2, 0.3, 0.5])]},
    {"covariance_type": ["diag"], "var_smoothing": np.array([1e-3, 0.1])},
]
X, y = blobs(90)


@pytest.fixture(scope="module")
def search():
    return GaussianDiscriminantCV(GRID, cv=3, random_state=np.int64(7)).fit(X, y)


def test_everything_is_kept(search, tmp_path):
    search.save(tmp_path / "search.zip")
    for loaded in (
        load(tmp_path / "search.zip"),
        GaussianDiscriminantCV.load(tmp_path / "search.zip"),
    ):
        assert type(loaded) is GaussianDiscriminantCV
        np.testing.assert_array_equal(loaded.predict_proba(X), search.predict_proba(X))
        assert loaded.cv_results_.keys() == search.cv_results_.keys()
        for name in set(search.cv_results_) - {"params", "param_priors"}:
            np.testing.assert_array_equal(loaded.cv_results_[name], search.cv_results_[name])
        assert loaded.best_index_ == search.best_index_
        assert loaded.best_score_ == search.best_score_
        assert loaded.n_splits_ == 3
        assert loaded.random_state == 7
        again = loaded.fit(X, y)
        np.testing.assert_array_equal(again.predict_proba(X), search.predict_proba(X))


def test_searches_that_cannot_be_saved_are_refused(search, tmp_path):
    with pytest.raises(NotFittedError):
        GaussianDiscriminantCV().save(tmp_path / "search")
    split = GaussianDiscriminantCV(GRID, cv=KFold(2)).fit(X, y)
    with pytest.raises(InvalidParameterError, match=r"cv=KFold.*save best_estimator_, or use pick"):
        split.save(tmp_path / "search")
    assert not (tmp_path / "search").exists()
    GaussianNB().fit(X, y).save(tmp_path / "nb")
    with pytest.raises(FormatError, match="GaussianDiscriminantCV"):
        GaussianDiscriminantCV.load(tmp_path / "nb")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("best_index", 99),
        ("best_index", 3),
        ("candidates", [{"covariance_type": "none"}] * 4),
        ("candidates", [{"tol": "0"}]),
        ("scores", []),
        ("scores", ["accuracy", "other"]),
        ("params", {"cv": 0}),
        ("params", {"max_memory": "much"}),
        ("params", {"param_grid": [1]}),
        ("params", {"other": 1}),
        ("best_estimator", None),
    ],
)
def test_damage_is_reported(search, name, value):
    attributes, arrays = state_of(search)
    with pytest.raises(FormatError, match="is damaged"):
        restore(GaussianDiscriminantCV, {**attributes, name: value}, arrays)
    changed = {**arrays, "scores/accuracy": arrays["scores/accuracy"][:2]}
    with pytest.raises(FormatError, match="is damaged"):
        restore(GaussianDiscriminantCV, attributes, changed)
