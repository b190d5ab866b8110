"""Bernoulli naive Bayes: scikit-learn's numbers, and the same model from any container."""

import naive
import numpy as np
import pytest
import zarr
from samples import held
from sklearn import datasets, naive_bayes

import streamgda
from streamgda import BernoulliNB, ClassMoments, accumulate
from streamgda.engine import plan
from streamgda.errors import FormatError, InvalidDataError, InvalidParameterError
from streamgda.storage.saved import restore, state_of


def rows(n=200, d=7, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    y = np.append([0, 1, 2], rng.integers(0, 3, n - 3))
    return (rng.normal(rng.normal(size=(3, d))[y]) * 10).astype(dtype), y


PARAMETERS = [
    {},
    {"alpha": 0.01},
    {"alpha": 0.0, "force_alpha": False},
    {"fit_prior": False},
    {"class_prior": [0.2, 0.5, 0.3]},
    {"binarize": 3.5},
]


@pytest.mark.parametrize("params", PARAMETERS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.filterwarnings("ignore:alpha too small:UserWarning")
def test_agrees_with_scikit_learn(params, weighted):
    X, y = rows()
    weights = np.random.default_rng(1).uniform(0, 3, len(y)) if weighted else None
    theirs = naive_bayes.BernoulliNB(**params).fit(X, y, weights)
    ours = BernoulliNB(**params).fit(X, y, weights)
    for name in (
        "class_count_",
        "feature_count_",
        "class_log_prior_",
        "feature_log_prob_",
    ):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-12)
    for method in (
        "predict_joint_log_proba",
        "predict_log_proba",
        "predict_proba",
        "predict",
    ):
        np.testing.assert_allclose(getattr(ours, method)(X), getattr(theirs, method)(X), rtol=1e-10)
    assert ours.score(X, y, weights) == pytest.approx(theirs.score(X, y, weights))


def test_agrees_with_scikit_learn_on_digits():
    X, y = datasets.load_digits(return_X_y=True)
    theirs, ours = naive_bayes.BernoulliNB(binarize=7.0), BernoulliNB(binarize=7.0)
    for part in np.array_split(np.arange(len(y)), 5):
        theirs.partial_fit(X[part], y[part], classes=np.arange(10))
        ours.partial_fit(X[part].astype(np.uint8), y[part])
    np.testing.assert_array_equal(ours.feature_count_, theirs.feature_count_)
    np.testing.assert_allclose(
        ours.predict_joint_log_proba(X), theirs.predict_joint_log_proba(X), rtol=1e-11
    )
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))


@pytest.mark.parametrize("alpha", [1.0, 0.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_agrees_with_the_formula(alpha, weighted):
    X, y = rows(60)
    bits = (X > 0).astype(int)
    bits[y == 1, 2], bits[y == 2, 3] = 0, 1  # values that, without smoothing, a class cannot have
    weights = np.random.default_rng(1).uniform(0, 3, len(y)) if weighted else None
    fitted = BernoulliNB(alpha=alpha, binarize=None).fit(bits, y, weights)
    expected = naive.bernoulli_joint(bits, y, bits, alpha=alpha, weights=weights)
    assert (expected == -np.inf).any() == (alpha == 0)
    np.testing.assert_allclose(fitted.predict_joint_log_proba(bits), expected, rtol=1e-10)
    np.testing.assert_allclose(fitted.score_samples(bits), naive.log_density(expected), rtol=1e-10)
    np.testing.assert_allclose(fitted.predict_proba(bits), naive.posterior(expected), atol=1e-12)


@pytest.mark.parametrize("kind", ["frame", "zarr", "dask", "memmap", "batches"])
@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.bool_])
def test_rows_held_in_any_way(kind, dtype, tmp_path, monkeypatch):
    X, y = rows()
    X = np.abs(X).astype(np.uint8) % 4 if dtype == np.uint8 else (X + 2).astype(dtype)
    if dtype == np.bool_:
        X = np.random.default_rng(0).random(X.shape) < 0.4
    whole = BernoulliNB().fit(X, y)
    joint, labels = whole.predict_joint_log_proba(X), whole.predict(X)
    if kind == "memmap":
        monkeypatch.setattr(plan, "_SLAB_BYTES", 100)
        monkeypatch.setattr("streamgda.rows._COPIED_BYTES", 100)
        np.save(tmp_path / "X.npy", X)
        there = np.load(tmp_path / "X.npy", mmap_mode="r")
        fitted = BernoulliNB().fit(there[:90], y[:90]).partial_fit(there[90:], y[90:])
    elif kind == "batches":
        there = X
        batches = ((X[i : i + 33] > 0, y[i : i + 33]) for i in range(0, 200, 33))
        fitted = BernoulliNB.from_moments(accumulate(batches, covariance_type="diag"))
    else:
        there = held(X, kind)
        fitted = BernoulliNB().fit(there, held(y, kind))
    assert fitted.moments_.exact
    np.testing.assert_array_equal(fitted.feature_count_, whole.feature_count_, strict=True)
    np.testing.assert_array_equal(fitted.predict_joint_log_proba(there), joint)
    np.testing.assert_array_equal(fitted.predict(there), labels)


def test_predictions_go_to_zarr(tmp_path):
    X, y = rows()
    fitted = BernoulliNB().fit(X, y)
    fitted.predict_proba(held(X, "zarr"), out=tmp_path / "out")
    out = zarr.open_array(tmp_path / "out", mode="r")
    np.testing.assert_array_equal(out[...], fitted.predict_proba(X))


@pytest.mark.parametrize("n", [1, 2, 12, 13, 200])
def test_a_row_scores_alike_wherever_it_stands(n, use_threads):
    X, y = rows(d=50)
    fitted = BernoulliNB().fit(X, y)
    expected = fitted.predict_joint_log_proba(X)
    some = fitted.predict_joint_log_proba(X[200 - n :])
    np.testing.assert_allclose(some, expected[200 - n :], rtol=1e-13)
    use_threads(4)
    many = fitted.predict_joint_log_proba(np.tile(X, (60, 1)))
    np.testing.assert_allclose(many, np.tile(expected, (60, 1)), rtol=1e-13)


def test_moments_merge_and_come_apart():
    X, y = rows()
    a, b = (
        ClassMoments("diag").update(X[part] > 0, y[part]) for part in (slice(0, 90), slice(90, 200))
    )
    both, left = BernoulliNB.from_moments(a + b), BernoulliNB.from_moments((a + b) - b)
    np.testing.assert_array_equal(both.feature_count_, BernoulliNB().fit(X, y).feature_count_)
    expected = BernoulliNB().fit(X[:90], y[:90])
    np.testing.assert_array_equal(left.predict_proba(X), expected.predict_proba(X))


def test_samples_are_zeros_and_ones_with_the_probabilities_of_their_class():
    X, y = rows()
    fitted = BernoulliNB().fit(X, y)
    drawn, labels = fitted.sample(20_000, random_state=0)
    assert set(np.unique(drawn)) == {0, 1}
    for k in range(3):
        mean = drawn[labels == k].mean(axis=0)
        np.testing.assert_allclose(mean, np.exp(fitted.feature_log_prob_[k]), atol=0.03)
    with pytest.raises(InvalidParameterError, match="cannot sample class 7"):
        fitted.sample(y=7)


@pytest.mark.parametrize("kind", ["numpy", "zarr"])
def test_values_that_are_not_finite_are_named(monkeypatch, kind):
    monkeypatch.setattr(plan, "_SLAB_BYTES", 1)  # so that the row is in a later slab
    X, y = rows()
    X[130, 4] = np.nan
    with pytest.raises(InvalidDataError, match="row 130, column 4 is nan"):
        BernoulliNB().fit(held(X, kind), held(y, kind))
    fitted = BernoulliNB().fit(X[:100], y[:100])
    X[130, 4] = np.inf
    with pytest.raises(InvalidDataError, match="row 130, column 4 is inf"):
        fitted.predict(held(X, kind))
    with pytest.raises(InvalidDataError, match="row 130, column 4 is inf"):
        fitted.partial_fit(held(X, kind), held(y, kind))
    assert fitted.class_count_.sum() == 100


def test_invalid_arguments_are_refused(tmp_path):
    X, y = rows()
    with pytest.raises(InvalidDataError, match=r"row 0, column 0 of X is .*binarize=None"):
        BernoulliNB(binarize=None).fit(X, y)
    with pytest.raises(InvalidDataError, match="not of zeros and ones; binarise"):
        BernoulliNB.from_moments(ClassMoments("diag").update(X, y))
    for params in ({"alpha": -1}, {"alpha": "some"}, {"binarize": np.nan}):
        with pytest.raises(InvalidParameterError, match="expected a number"):
            BernoulliNB(**params).fit(X, y)
    with pytest.raises(InvalidParameterError, match="expected one for each of the 3 classes"):
        BernoulliNB(class_prior=[0.5, 0.5]).fit(X, y)
    fitted = BernoulliNB().fit(X, y)
    with pytest.raises(InvalidDataError, match="X has 3 features, but this model is expecting 7"):
        fitted.model_.predict(X[:, :3])
    attributes, arrays = state_of(fitted.model_)
    arrays["priors"] = arrays["priors"][:2]
    with pytest.raises(FormatError, match="arrays do not fit"):
        restore(type(fitted.model_), attributes, arrays)
    with pytest.raises(FormatError, match="damaged"):
        restore(type(fitted.model_), {}, arrays)


@pytest.mark.parametrize("binarize", [2.5, np.float32(2.5), np.float64(2.5)])
def test_saved_with_its_threshold(tmp_path, binarize):
    X, y = rows()
    BernoulliNB(binarize=binarize).fit(X, y).save(tmp_path / "nb.zip")
    loaded = streamgda.load(tmp_path / "nb.zip")
    expected = BernoulliNB(binarize=2.5).fit(X, y).predict_proba(X)
    np.testing.assert_array_equal(loaded.predict_proba(X), expected)
