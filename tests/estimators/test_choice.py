"""The default candidates choose models as good as the best of scikit-learn's searches."""

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_iris, load_wine
from sklearn.exceptions import FitFailedWarning

from streamgda import GaussianDiscriminantCV
from streamgda.estimators.candidates import GRID


@pytest.fixture
def choice(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    return import_module("bench.choice")


def test_accuracy_is_that_of_the_best_of_scikit_learn(choice):
    found = choice.compare("wine", *load_wine(return_X_y=True), n_splits=2)
    assert found.candidates == 37
    assert found.ours >= found.theirs - 0.005


def test_every_set_of_the_benchmark_has_rows_of_all_classes(choice):
    for make in choice.SETS.values():
        X, y = make()
        assert X.shape == (len(y), X.shape[1])
        assert np.isfinite(X).all()
        assert np.bincount(y).min() >= 10


@pytest.mark.parametrize("scale", [1e-4, 1e4])
def test_units_make_no_difference_to_standardised_candidates(scale):
    X, y = load_wine(return_X_y=True)
    units = scale ** np.linspace(-1, 1, X.shape[1])
    grid = [part for part in GRID if "standardize" in part]
    scores = [
        GaussianDiscriminantCV(grid).fit(rows, y).cv_results_["mean_test_neg_log_loss"]
        for rows in (X, X * units)
    ]
    np.testing.assert_allclose(*scores, rtol=1e-6)


def test_singular_candidates_of_the_default_are_named_once():
    X, y = load_iris(return_X_y=True)
    X = np.column_stack([X, X[:, 0] + X[:, 1]])
    with pytest.warns(FitFailedWarning) as caught:
        search = GaussianDiscriminantCV().fit(X, y)
    assert len(caught) == 1
    assert "of 37 candidates score nan in some split" in str(caught[0].message)
    assert search.best_score_ > 0.96
