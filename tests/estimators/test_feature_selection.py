"""Selection of features from moments: the same as with each subset's covariances factored."""

from itertools import combinations

import naive
import numpy as np
import pandas as pd
import pytest
from samples import KINDS, blobs, held
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import streamgda
from streamgda import (
    ClassMoments,
    GaussianDiscriminantAnalysis,
    SeparabilitySelector,
    select_features,
    separability,
)
from streamgda.errors import (
    FormatError,
    InvalidDataError,
    InvalidParameterError,
    MemoryBudgetError,
    SingularCovarianceError,
)
from streamgda.models.separability import MEASURES
from streamgda.storage.saved import restore, state_of

EVERY_TYPE = pytest.mark.parametrize("covariance_type", naive.COVARIANCE_TYPES)
EVERY_DIRECTION = pytest.mark.parametrize("direction", ["forward", "backward", "floating"])


class BruteForce:
    """The textbook's searches, with each subset's criterion computed from its own covariances."""

    def __init__(self, X, y, covariance_type, method, over):
        self.means = naive.moments(X, y).means
        self.S = naive.regularised_covariances(X, y, covariance_type)
        self.method, self.over = method, over

    def value(self, features):
        pick = list(features)
        S = self.S[:, pick][:, :, pick]
        values = naive.separability(self.means[:, pick], S, self.method)
        values = values[~np.eye(len(values), dtype=bool)]
        return values.min() if self.over == "least" else values.mean()

    def best(self, subsets):
        return max(subsets, key=self.value)

    def forward(self, n, among):
        chosen = []
        while len(chosen) < n:
            chosen = self.best([[*chosen, f] for f in among if f not in chosen])
        return chosen

    def backward(self, n, d):
        chosen = list(range(d))
        while len(chosen) > n:
            chosen = self.best([[f for f in chosen if f != out] for out in chosen])
        return chosen

    def floating(self, n, d):
        chosen, best = [], {}
        while len(chosen) < n:
            chosen = self.best([[*chosen, f] for f in range(d) if f not in chosen])
            best[len(chosen)] = max(best.get(len(chosen), -1), self.value(chosen))
            while len(chosen) > 2:
                fewer = self.best([[f for f in chosen if f != out] for out in chosen])
                if self.value(fewer) <= best[len(fewer)] + 1e-9:
                    break
                best[len(fewer)], chosen = self.value(fewer), fewer
        return chosen


@EVERY_DIRECTION
@EVERY_TYPE
@pytest.mark.parametrize("criterion", ["bhattacharyya", "transformed_divergence"])
def test_the_same_choice_as_by_brute_force(covariance_type, direction, criterion):
    X, y = blobs(300, 7, 3, seed=3)
    X[:, 6] += X[:, :3].sum(axis=1)
    X[:, 5] = 0.3 * X[:, 5] + X[:, 0]
    moments = ClassMoments().update(X, y)
    for over in ("least", "mean"):
        brute = BruteForce(X, y, covariance_type, criterion, over)
        expected = {
            "forward": lambda b: b.forward(4, range(7)),
            "backward": lambda b: b.forward(4, b.backward(4, 7)),
            "floating": lambda b: b.forward(4, b.floating(4, 7)),
        }[direction](brute)
        options = {"covariance_type": covariance_type, "direction": direction, "over": over}
        features, values = select_features(moments, 4, criterion, **options)
        assert features.tolist() == expected
        steps = [brute.value(expected[: k + 1]) for k in range(4)]
        np.testing.assert_allclose(values, steps, rtol=1e-9)


@pytest.mark.parametrize("criterion", MEASURES)
@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag"])
def test_values_are_those_of_the_moments_of_the_features(criterion, covariance_type):
    X, y = blobs(200, 6, 3)
    moments = ClassMoments().update(X * 10.0 ** np.arange(-3, 3), y)
    how = {"covariance_type": covariance_type, "ddof": 1}
    features, values = select_features(moments, 3, criterion, over="mean", **how)
    found = separability(moments.select_features(features), criterion, **how)
    mean = found[~np.eye(3, dtype=bool)].mean()
    assert values[-1] == pytest.approx(mean, rel=1e-9)


def test_floating_search_undoes_a_greedy_choice():
    """Two features that are useful only together, and one that is better than each of them."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 2000)
    noise = rng.normal(size=4000) * 3
    signs = 2.0 * y
    X = np.column_stack([noise + signs, noise, signs + 1.2 * rng.normal(size=4000)])
    X[:, :2] += 0.3 * rng.normal(size=(4000, 2))
    X = np.hstack([X, X[:, 2:] + 0.3 * rng.normal(size=(4000, 1))])
    moments = ClassMoments().update(X, y)
    best = max(
        combinations(range(4), 2),
        key=lambda f: separability(moments.select_features(f), "bhattacharyya")[0, 1],
    )
    assert select_features(moments, 2)[0][0] == 2
    assert best == (0, 1)
    floating, values = select_features(moments, 3, direction="floating")
    assert {0, 1} < set(floating.tolist())
    assert values[-1] >= select_features(moments, 3)[1][-1]


@EVERY_DIRECTION
def test_long_searches_stay_accurate(direction):
    """Hundreds of changes of rank one leave no more than rounding, for wide-ranging variances."""
    rng = np.random.default_rng(0)
    d = 40
    X = (
        rng.normal(size=(600, d))
        @ (np.eye(d) + rng.normal(size=(d, d)) / d**0.5)
        * 10.0 ** rng.uniform(-3, 3, d)
    )
    y = rng.integers(0, 3, 600)
    X += 0.3 * X.std(axis=0) * rng.normal(size=(3, d))[y]
    moments = ClassMoments().update(X, y)
    features, values = select_features(moments, 10, "bhattacharyya", direction=direction)
    found = separability(moments.select_features(features), "bhattacharyya")
    assert values[-1] == pytest.approx(found[np.triu_indices(3, 1)].min(), rel=1e-8)
    assert (np.diff(values) > 0).all()


def test_features_that_depend_on_others_are_not_added():
    X, y = blobs(200, 3, 2)
    twice = np.hstack([X, X @ [[1.0], [2.0], [3.0]], np.full((200, 1), 5.0)])
    moments = ClassMoments().update(twice, y)
    for n in (1, 2, 3):
        features, _ = select_features(moments, n)
        assert len(set(features.tolist())) == n
    for direction in ("forward", "floating", "backward"):
        with pytest.raises(SingularCovarianceError, match="singular"):
            select_features(moments, 4, direction=direction)
    assert len(select_features(moments, 4, reg_param=0.1)[0]) == 4
    with pytest.raises(InvalidParameterError, match=r"n=5; expected 1 to 4, .* that vary"):
        select_features(moments, 5)


def test_a_shift_without_rounding_changes_no_value():
    X, y = blobs()
    X = np.round(X * 1024) / 1024
    (near, values), (far, found) = (
        streamgda.select_features(streamgda.accumulate(rows, y), 4) for rows in (X, X + 1e12)
    )
    np.testing.assert_array_equal(far, near)
    np.testing.assert_allclose(found, values, rtol=1e-12)


def test_classes_without_rows_do_not_count():
    X, y = blobs(200, 4, 2)
    expected = select_features(ClassMoments().update(X, y), 2)
    found = select_features(ClassMoments().update(X, 2 * y).declare([1]), 2)
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_allclose(found[1], expected[1])


def test_what_cannot_be_selected_is_refused(monkeypatch):
    X, y = blobs(60, 3, 2)
    moments = ClassMoments().update(X, y)
    with pytest.raises(TypeError, match="moments is of type ndarray; expected ClassMoments"):
        select_features(X, 2)
    for name, value in (("over", "most"), ("direction", "up"), ("n", 0), ("n", 2.5)):
        with pytest.raises(InvalidParameterError, match=f"^{name}="):
            select_features(moments, **{"n": 2, name: value})
    with pytest.raises(InvalidParameterError, match=r"^criterion='most'"):
        select_features(moments, 2, "most")
    with pytest.raises(InvalidDataError, match="number of classes has to be greater than one"):
        select_features(moments.select_classes([0]), 2)
    monkeypatch.setattr("streamgda.models.feature_selection.allowed_bytes", lambda _: 100)
    with pytest.raises(MemoryBudgetError, match="use covariance_type='tied'"):
        select_features(moments, 2)


# --- the estimator --------------------------------------------------------------------------------


@parametrize_with_checks(
    [
        # The checks' rows are constant within classes, or fewer than features.
        SeparabilitySelector(var_smoothing=1e-3),
        SeparabilitySelector(1, covariance_type="tied", var_smoothing=1e-3, direction="backward"),
    ]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("kind", KINDS)
def test_selector_reads_any_container_and_keeps_the_moments(kind):
    X, y = blobs(200, 5, 3)
    selector = SeparabilitySelector(2, direction="floating").fit(held(X, kind), held(y, kind))
    features, values = select_features(ClassMoments().update(X, y), 2, direction="floating")
    assert selector.ranking_.tolist() == features.tolist()
    np.testing.assert_allclose(selector.criterion_, values, rtol=1e-9)
    assert selector.get_support(indices=True).tolist() == sorted(features.tolist())
    np.testing.assert_array_equal(selector.transform(X), X[:, np.sort(features)])
    again = SeparabilitySelector.from_moments(selector.moments_, n_features_to_select=3)
    assert again.get_support().sum() == 3
    np.testing.assert_array_equal(again.transform(X), X[:, again.get_support()])


def test_selector_in_a_pipeline_keeps_names():
    X, y = blobs(200, 4, 3)
    frame = pd.DataFrame(X, columns=list("abcd"))
    pipeline = make_pipeline(SeparabilitySelector(2), GaussianDiscriminantAnalysis())
    pipeline.fit(frame, y)
    selector = pipeline[0]
    expected = np.array(list("abcd"))[selector.get_support()]
    assert selector.get_feature_names_out().tolist() == expected.tolist()
    direct = GaussianDiscriminantAnalysis().fit(X[:, selector.get_support()], y)
    np.testing.assert_array_equal(
        pipeline.predict(frame), direct.predict(X[:, selector.get_support()])
    )
    again = SeparabilitySelector.from_moments(selector.moments_)
    assert again.get_feature_names_out().tolist() == expected.tolist()


def test_a_saved_selector_selects_the_same(tmp_path):
    X, y = blobs(60, 4, 3)
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    selector = SeparabilitySelector(3, var_smoothing=1e-3, direction="backward").fit(frame, y)
    selector.save(tmp_path / "selector.zip")
    again = streamgda.load(tmp_path / "selector.zip", SeparabilitySelector)
    assert again.get_params() == selector.get_params()
    assert again.get_feature_names_out().tolist() == selector.get_feature_names_out().tolist()
    np.testing.assert_array_equal(again.ranking_, selector.ranking_)
    np.testing.assert_array_equal(again.transform(frame), selector.transform(frame))
    (attributes, arrays), twice = state_of(selector), np.array([1, 2, 1])
    for ranking in (twice, twice + 2, np.arange(5), np.arange(3.0)):
        with pytest.raises(FormatError, match="is damaged"):
            restore(SeparabilitySelector, attributes, {**arrays, "ranking": ranking})


def test_selector_refuses_bad_parameters():
    X, y = blobs(60, 3, 2)
    with pytest.raises(InvalidParameterError, match=r"^n_features_to_select=4"):
        SeparabilitySelector(4).fit(X, y)
    with pytest.raises(InvalidParameterError, match="criterion='none'"):
        SeparabilitySelector(criterion="none").fit(X, y)
    with pytest.raises(InvalidDataError, match="greater than one"):
        SeparabilitySelector().fit(X[y == 0], y[y == 0])
