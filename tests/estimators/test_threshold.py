"""Thresholds: none costs less, for any costs, kind of array and memory budget."""

import naive
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from samples import KINDS, blobs, held
from sklearn.utils.estimator_checks import parametrize_with_checks

from streamgda import (
    GaussianNB,
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
    RidgeClassifier,
    ThresholdClassifier,
)
from streamgda.errors import InvalidDataError, InvalidParameterError, MemoryBudgetError
from streamgda.estimators import threshold as estimator_module
from streamgda.models.thresholds import best_threshold


@parametrize_with_checks([ThresholdClassifier(LinearDiscriminantAnalysis("lsqr", shrinkage=0.1))])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


# --- the search ---------------------------------------------------------------------------------


def cost_of(threshold, scores, second, weights, costs):
    above = scores > threshold
    return costs[0] * weights[above & ~second].sum() + costs[1] * weights[~above & second].sum()


def naive_least_cost(scores, second, weights, costs):
    """Return the least cost over all midpoints and both ends."""
    values = np.unique(scores)
    middle = (values[:-1] + values[1:]) / 2
    tried = [-np.inf, *middle, np.inf]
    return min(cost_of(t, scores, second, weights, costs) for t in tried)


class Blocks:
    """Blocks of scores, with a count of reads."""

    def __init__(self, *arrays, rows=64):
        self.parts = [
            tuple(a[i : i + rows] for a in arrays) for i in range(0, len(arrays[0]), rows)
        ]
        self.passes = 0

    def __call__(self):
        self.passes += 1
        return iter(self.parts)


ROOMS = st.sampled_from([None, 4, 7, 64])


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 300),
    st.sampled_from([0.0, 0.5, 3.0]),
    st.sampled_from([1, 7, 1e-3, 1e300]),
    st.tuples(st.integers(0, 9), st.integers(1, 9)),
    st.booleans(),
    ROOMS,
)
def test_no_threshold_costs_less(seed, n, gap, scale, costs, weighted, room):
    random = np.random.default_rng(seed)
    second = random.random(n) < random.random()
    scores = random.normal(size=n) + gap * second - random.choice([0, 1])
    scores = (np.round(scores, 1) if seed % 2 else scores) * scale  # with ties, and without
    weights = random.integers(1, 5, n) * 1.0 if weighted else np.ones(n)
    blocks = Blocks(scores, second, weights)
    threshold, cost = best_threshold(blocks, costs, room)
    expected = naive_least_cost(scores, second, weights, costs)
    assert cost == pytest.approx(expected, abs=1e-9)
    assert cost_of(threshold, scores, second, weights, costs) == pytest.approx(expected, abs=1e-9)
    if cost_of(0.0, scores, second, weights, costs) == expected:
        assert threshold == 0
    elif np.isfinite(threshold):
        assert not (scores == threshold).any() or scale != 1
    if room is None:
        assert blocks.passes == 1
    assert best_threshold(blocks, costs, None)[0] == threshold


def test_scores_that_floats_hardly_tell_apart_and_infinite_ones():
    below = np.nextafter(1.0, 0)
    for values, second in (
        ([below, 1.0], [False, True]),
        ([-5e-324, 0.0, 5e-324], [False, True, True]),
        ([-np.inf, -1e308, 1e308, np.inf], [False, False, True, True]),
        ([-np.inf, np.inf], [False, True]),
        ([-np.inf, -1.0], [False, True]),
        ([1.0, np.inf], [False, True]),
    ):
        for room in (None, 4):
            blocks = Blocks(np.array(values), np.array(second), np.ones(len(values)))
            threshold, cost = best_threshold(blocks, (1, 1), room)
            assert cost == 0
            assert ((np.array(values) > threshold) == second).all()
    scores, second = np.array([-0.0, 0.0, -0.0, 0.0]), np.array([True, True, False, True])
    for room in (None, 4):  # zero and minus zero are one score
        assert best_threshold(Blocks(scores, second, np.ones(4)), (1, 1), room)[1] == 1


def test_few_passes_are_enough_for_classes_that_overlap():
    random = np.random.default_rng(0)
    second = random.random(200_000) < 0.3
    scores = random.normal(size=second.size) + 1.5 * second
    blocks = Blocks(scores, second, np.ones(second.size), rows=10_000)
    bounded = best_threshold(blocks, (1, 2), 1 << 12)
    assert blocks.passes <= 3
    assert bounded == best_threshold(blocks, (1, 2))


# --- the classifier -----------------------------------------------------------------------------


def two_classes(seed=0):
    """Classes that are not Gaussian, for which the model's threshold is not the best."""
    X, y = blobs(400, 3, 2, seed)
    X[y == 1] = np.exp(X[y == 1] / 2)
    return X, np.array(["no", "yes"])[y]


@pytest.mark.parametrize(
    "estimator", [LinearDiscriminantAnalysis(), QuadraticDiscriminantAnalysis(), GaussianNB()]
)
@pytest.mark.parametrize("cost", [None, [[0, 1], [20, 0]], [[-1, 3], [0.5, 0.25]]])
def test_fitted_classifiers_cost_least(estimator, cost):
    X, y = two_classes()
    fitted = ThresholdClassifier(estimator, cost=cost).fit(X, y)
    base = estimator.fit(X, y)
    costs = (1, 1) if cost is None else (cost[0][1] - cost[0][0], cost[1][0] - cost[1][1])
    scores, second = base.model_.log_odds(X), y == "yes"
    expected = naive_least_cost(scores, second, np.ones(len(X)), costs)
    predicted = fitted.predict(X)
    lost = costs[0] * ((predicted == "yes") & ~second).sum()
    lost += costs[1] * ((predicted == "no") & second).sum()
    assert lost == pytest.approx(expected)
    assert fitted.total_cost_ == pytest.approx(expected)
    own = cost_of(0.0, scores, second, np.ones(len(X)), costs)
    assert expected < own or (expected == own and fitted.threshold_ == 0)
    np.testing.assert_array_equal(fitted.decision_function(X), scores - fitted.threshold_)
    assert fitted.score(X, y) == (predicted == y).mean()
    if cost is None:  # the direction of the linear one is Fisher's
        m, S = naive.moments(X, y), naive.covariance(X, y, "tied")
        linear = ThresholdClassifier().fit(X, y)
        theta = linear.threshold_ - linear.estimator_.intercept_[0]
        above = X @ np.linalg.solve(S, m.means[1] - m.means[0]) > theta
        np.testing.assert_array_equal(linear.predict(X), np.where(above, "yes", "no"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("weighted", "bounded"), [(False, False), (False, True), (True, True)])
def test_all_kinds_of_arrays_give_the_same(kind, weighted, bounded, monkeypatch, tmp_path):
    X, y = two_classes()
    weights = np.random.default_rng(1).integers(0, 4, len(y)) * 1.0 if weighted else None
    expected = ThresholdClassifier(cost=[[0, 1], [3, 0]]).fit(X, y, weights)
    monkeypatch.setattr(estimator_module, "_LEAST_ROOM", 16)
    monkeypatch.setattr(estimator_module, "_CELL_BYTES", 1 << 26)
    memory = "2GB" if bounded else None
    fitted = ThresholdClassifier(cost=[[0, 1], [3, 0]], max_memory=memory)
    rows = held(X, kind)
    fitted.fit(rows, held(y, kind), None if weights is None else held(weights, kind))
    assert fitted.threshold_ == pytest.approx(expected.threshold_, rel=1e-9)
    assert fitted.total_cost_ == expected.total_cost_
    predicted = fitted.predict(rows)
    assert type(predicted).__module__.split(".")[0] == ("dask" if kind == "dask" else "numpy")
    np.testing.assert_array_equal(np.asarray(predicted), expected.predict(X))
    if kind == "zarr":
        fitted.predict(rows, out=tmp_path / "y")
        np.testing.assert_array_equal(zarr.open_array(tmp_path / "y")[:], expected.predict(X))
    if kind == "dask" and not weighted:  # chunks of unknown size
        kept = np.arange(len(X)) % 3 > 0
        some, expected = held(kept, "dask"), ThresholdClassifier().fit(X[kept], y[kept])
        found = ThresholdClassifier(max_memory=memory).fit(rows[some], held(y, kind)[some])
        assert found.threshold_ == pytest.approx(expected.threshold_, rel=1e-9)


def test_a_threshold_fitted_to_other_rows():
    X, y = two_classes()
    train, validation = slice(None, None, 2), slice(1, None, 2)
    fitted = ThresholdClassifier().fit(X[train], y[train])
    held_out = fitted.fit_threshold(X[validation], y[validation])
    assert held_out is fitted
    base = LinearDiscriminantAnalysis().fit(X[train], y[train])
    scores, second = base.decision_function(X[validation]), y[validation] == "yes"
    expected = naive_least_cost(scores, second, np.ones(scores.size), (1, 1))
    assert fitted.total_cost_ == expected


def test_weights_of_classes_multiply_costs():
    X, y = two_classes()
    n = np.array([(y == "no").sum(), (y == "yes").sum()])
    for weights, cost in (
        ({"yes": 5.0}, [[0, 1], [5, 0]]),
        ("balanced", [[0, 1 / n[0]], [1 / n[1], 0]]),
    ):
        found = ThresholdClassifier(class_weight=weights).fit(X, y)
        assert found.threshold_ == ThresholdClassifier(cost=cost).fit(X, y).threshold_


@pytest.mark.parametrize("rare", [0, 1])
def test_one_answer_for_all_rows_can_be_the_cheapest(rare):
    y = np.where(np.arange(60) % 6 == 0, rare, 1 - rare)
    X = np.random.default_rng(0).normal(size=(60, 1)) + 0.1 * y[:, None]
    X[y == rare] *= 0.1  # among the others
    X[[1, 2]] = [[-9], [9]]  # the first and the last
    fitted = ThresholdClassifier(GaussianNB(), cost=[[0, 1], [1, 0]]).fit(X, y)
    linear = ThresholdClassifier().fit(X, y)
    assert (linear.predict(X) == 1 - rare).all()
    assert linear.threshold_ in (0, np.inf if rare else -np.inf)
    assert fitted.total_cost_ <= linear.total_cost_ == 10


# --- what is refused ----------------------------------------------------------------------------


COSTS, WEIGHTS = r"expected \[\[0, a\], \[b, 0\]\]", "expected 'balanced', or a dict"


@pytest.mark.parametrize(
    ("params", "match"),
    [
        *(
            ({"cost": cost}, COSTS)
            for cost in (
                1,
                "x",
                [[0, 1]],
                [[0, -1], [1, 0]],
                [[0, np.nan], [1, 0]],
                [[1, 1], [0, 0]],
            )
        ),
        *(({"class_weight": w}, WEIGHTS) for w in ("other", {"no": -1}, {"yes": np.nan}, 3)),
        ({"class_weight": {"Yes": 5.0}}, "weight for 'Yes', which is not one of the classes"),
    ],
)
def test_costs_and_weights_of_classes_that_cannot_be_meant(params, match):
    with pytest.raises(InvalidParameterError, match=match):
        ThresholdClassifier(**params).fit(*two_classes())


@pytest.mark.parametrize("estimator", [RidgeClassifier(), GaussianNB, "lda"])
def test_estimators_that_have_no_log_odds(estimator):
    with pytest.raises(TypeError, match=r"estimator is .*; expected a Gaussian or Bernoulli cl"):
        ThresholdClassifier(estimator).fit(*two_classes())


def test_rows_that_cannot_be_used_change_nothing():
    X, y = two_classes()
    fitted = ThresholdClassifier().fit(X, y)
    before = fitted.threshold_
    with pytest.raises(InvalidDataError, match="is perhaps, which is not one of the classes"):
        fitted.fit_threshold(X, np.where(np.arange(len(y)) == 3, "perhaps", y))
    with pytest.raises(InvalidDataError, match=r"400 rows but there are 5 labels"):
        fitted.fit_threshold(X, y[:5])
    with pytest.raises(InvalidDataError, match="Only binary classification is supported"):
        fitted.fit(*blobs())
    with pytest.raises(MemoryBudgetError):
        ThresholdClassifier(max_memory="1MB").fit(held(X, "zarr"), held(y, "zarr"))
    assert fitted.threshold_ == before
    assert fitted.n_features_in_ == 3
