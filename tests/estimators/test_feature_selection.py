"""Selection of features from moments: the same as with each subset's own covariances."""

from itertools import combinations

import dask.array as da
import naive
import numpy as np
import pandas as pd
import pytest
import zarr
from samples import KINDS, blobs, held
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import streamgda
from streamgda import (
    ClassMoments,
    GaussianDiscriminantAnalysis,
    SeparabilitySelector,
    accumulate,
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

HELD_OUT = "held_out_likelihood"
EVERY_TYPE = pytest.mark.parametrize("covariance_type", naive.COVARIANCE_TYPES)
EVERY_DIRECTION = pytest.mark.parametrize("direction", ["forward", "backward"])


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


@EVERY_DIRECTION
@pytest.mark.parametrize(
    ("covariance_type", "criterion"),
    [(kind, "bhattacharyya") for kind in naive.COVARIANCE_TYPES]
    + [(kind, criterion) for kind in ("full", "tied", "diag") for criterion in MEASURES],
)
def test_the_same_choice_as_by_brute_force(covariance_type, direction, criterion):
    """Whatever the units, and classes without rows."""
    X, y = blobs(300, 7, 3, seed=3)
    X[:, 6] += X[:, :3].sum(axis=1)
    X[:, 5] = 0.3 * X[:, 5] + X[:, 0]
    if covariance_type not in ("spherical", "tied_spherical"):
        X *= 10.0 ** np.arange(-3, 4)
    moments = ClassMoments().update(X, 2 * y).declare([1])
    for over in ("least", "mean"):
        brute = BruteForce(X, y, covariance_type, criterion, over)
        among = range(7) if direction == "forward" else brute.backward(4, 7)
        expected = brute.forward(4, among)
        options = {"covariance_type": covariance_type, "direction": direction, "over": over}
        features, values = select_features(moments, 4, criterion, **options)
        steps = [brute.value(expected[: k + 1]) for k in range(4)]
        np.testing.assert_allclose(values, steps, rtol=1e-8)
        if criterion not in ("jeffries_matusita", "matusita", "transformed_divergence"):
            assert features.tolist() == expected  # those that end at 2 have ties


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
    for direction in ("forward", "backward"):
        with pytest.raises(SingularCovarianceError, match="singular"):
            select_features(moments, 4, direction=direction)
    assert len(select_features(moments, 4, reg_param=0.1)[0]) == 4
    with pytest.raises(InvalidParameterError, match=r"n=5; expected 1 to 4, .* that vary"):
        select_features(moments, 5)


def test_features_that_are_constant_within_classes_are_not_added():
    X, y = blobs()
    moments = ClassMoments().update(np.column_stack([y, X]), y)
    found, values = select_features(moments, 2)
    expected, others = select_features(ClassMoments().update(X, y), 2)
    assert found.tolist() == (expected + 1).tolist()
    np.testing.assert_allclose(values, others)
    with pytest.raises(SingularCovarianceError, match="beside the 0 that were selected, no other"):
        select_features(moments.select_features([0]), 1)


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
    with pytest.raises(InvalidParameterError, match=r"^n_features_to_select=4"):
        SeparabilitySelector(4).fit(X, y)
    with pytest.raises(InvalidDataError, match="greater than one"):
        SeparabilitySelector().fit(X[y == 0], y[y == 0])
    monkeypatch.setattr("streamgda.models.feature_selection.allowed_bytes", lambda _: 100)
    with pytest.raises(MemoryBudgetError, match="use covariance_type='tied'"):
        select_features(moments, 2)


# --- held-out likelihood ----------------------------------------------------------------------


def folded(X, y, covariance_type="full", n=3):
    folds = np.arange(len(y)) % n
    parts = [folds == f for f in range(n)]
    return folds, [accumulate(X[p], y[p], covariance_type=covariance_type) for p in parts]


@pytest.mark.parametrize("covariance_type", naive.COVARIANCE_TYPES[:4])
@EVERY_DIRECTION
@pytest.mark.parametrize("how", [{}, {"ddof": 1, "reg_param": 0.1}], ids=str)
def test_values_are_those_of_the_rows(covariance_type, direction, how):
    X, y = blobs(200, 5)
    folds, parts = folded(X, y, covariance_type)
    features, values = select_features(parts, 4, HELD_OUT, direction=direction, **how)
    expected = [
        naive.held_out_ratio(X[:, features[: n + 1]], y, folds, covariance_type, **how)
        for n in range(4)
    ]
    np.testing.assert_allclose(values, expected, rtol=1e-9)


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag"])
def test_each_step_is_the_best(covariance_type):
    X, y = blobs(200, 5)
    folds, parts = folded(X, y, covariance_type)

    def ratio(chosen):
        return naive.held_out_ratio(X[:, list(chosen)], y, folds, covariance_type)

    first, second = select_features(parts, 2, HELD_OUT)[0]
    assert first == max(range(5), key=lambda j: ratio([j]))
    assert second == max(set(range(5)) - {first}, key=lambda j: ratio([first, j]))
    backward = select_features(parts, 4, HELD_OUT, direction="backward")[0]
    assert {*backward} == {*max(combinations(range(5), 4), key=ratio)}


def test_scales_and_types_of_moments_make_no_difference():
    X, y = blobs(200, 5)
    features, values = select_features(folded(X, y)[1], 3, HELD_OUT)
    scaled = select_features(folded(X * 10.0 ** np.arange(-2, 3), y)[1], 3, HELD_OUT)
    np.testing.assert_array_equal(scaled[0], features)
    np.testing.assert_allclose(scaled[1], values, rtol=1e-9)
    tied = select_features(folded(X, y, "tied")[1], 3, HELD_OUT)
    from_full = select_features(folded(X, y)[1], 3, HELD_OUT, covariance_type="tied")
    np.testing.assert_allclose(tied[1], from_full[1], rtol=1e-9)
    named = accumulate(X, y, groups=folded(X, y)[0])
    np.testing.assert_array_equal(select_features(named, 3, HELD_OUT)[0], features)


def test_noise_makes_the_likelihood_smaller_and_separability_larger():
    rng = np.random.default_rng(0)
    X, y = blobs(300, 3)
    X = np.hstack([rng.normal(size=(300, 12)), X])
    features, values = select_features(folded(X, y)[1], 15, HELD_OUT)
    assert {*features[:2]} < {12, 13, 14}
    assert values[-1] < values.max()
    separable = select_features(accumulate(X, y), 15, "bhattacharyya")[1]
    assert (np.diff(separable) > 0).all()


def test_classes_that_one_fold_alone_has():
    X, y = blobs(200, 4)
    folds, parts = folded(X, y)
    other = accumulate(X[:10] + 5, np.full(10, 7))
    values = select_features([parts[0] + other, *parts[1:]], 2, HELD_OUT)[1]
    assert np.isfinite(values).all()
    tied = [part.reduce("tied") for part in (parts[0] + other, *parts[1:])]
    with pytest.raises(InvalidDataError, match="class 7, which no other fold has"):
        select_features(tied, 2, HELD_OUT)
    assert folds.max() == 2


def test_folds_that_cannot_be_compared_are_refused():
    X, y = blobs(100, 4)
    with pytest.raises(InvalidParameterError, match="ClassMoments with 0 of them"):
        select_features(accumulate(X, y), 2, HELD_OUT)
    with pytest.raises(InvalidParameterError, match="list with 1 of them"):
        select_features([accumulate(X, y)], 2, HELD_OUT)
    with pytest.raises(InvalidParameterError, match="of them"):
        SeparabilitySelector(2, criterion=HELD_OUT).fit(X, y)
    with pytest.raises(TypeError, match="fold of moments"):
        select_features([accumulate(X, y), X], 2, HELD_OUT)
    with pytest.raises(TypeError):
        select_features(folded(X, y)[1], 2)
    with pytest.raises(InvalidParameterError, match="1 to 4"):
        select_features(folded(X, y)[1], 5, HELD_OUT)
    apart = [ClassMoments().update(X[y == k], y[y == k]) for k in (0, 1)]
    with pytest.raises(InvalidDataError):
        select_features(apart, 2, HELD_OUT)
    X[:, 3] = X[:, 0]
    with pytest.raises(SingularCovarianceError):
        select_features(folded(X, y)[1], 2, HELD_OUT, direction="backward")
    with pytest.raises(SingularCovarianceError):
        select_features(folded(X, y)[1], 4, HELD_OUT)


# --- the estimator --------------------------------------------------------------------------------


# The checks' rows are constant within classes, or fewer than features.
@parametrize_with_checks([SeparabilitySelector(var_smoothing=1e-3)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("kind", KINDS)
def test_selector_reads_any_container_and_keeps_the_moments(kind):
    X, y = blobs(200, 5, 3)
    selector = SeparabilitySelector(2, direction="backward").fit(held(X, kind), held(y, kind))
    features, values = select_features(ClassMoments().update(X, y), 2, direction="backward")
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


def test_selected_columns_of_every_container(tmp_path):
    X, y = blobs(100, 5)
    X = (X - X.min()).astype(np.uint8)
    selector = SeparabilitySelector(2).fit(X, y)
    expected = X[:, np.sort(selector.ranking_)]
    stored = zarr.create_array(tmp_path / "X.zarr", data=X, chunks=(30, 2))
    lazy = selector.transform(da.from_array(X, chunks=(30, 3)))
    assert isinstance(lazy, da.Array)
    out = selector.transform(stored, out=tmp_path / "out.zarr")
    assert isinstance(out, zarr.Array)
    for found in (selector.transform(X), lazy.compute(), selector.transform(stored), out[:]):
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == np.uint8
    frame = pd.DataFrame(X, columns=list("abcde"))
    framed = SeparabilitySelector(2).fit(frame, y).set_output(transform="pandas")
    assert framed.transform(frame).columns.tolist() == framed.get_feature_names_out().tolist()
    with pytest.raises(InvalidDataError, match="4 features"):
        selector.transform(da.from_array(X[:, :4]))
