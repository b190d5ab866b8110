"""Scores of Gaussian models against the textbook; sampling; saving."""

import itertools
import pickle
from dataclasses import replace

import naive
import numpy as np
import pytest
from grids import THOROUGH, in_turn, pairs
from moment_checks import sample
from samples import GAUSSIANS, blobs, bytes_of, make, results
from scipy import sparse

from streamgda import ClassMoments, GaussianModel, QuadraticDiscriminants
from streamgda.errors import (
    FormatError,
    InvalidDataError,
)
from streamgda.kernels.scoring import FLOAT64_FEATURES
from streamgda.models import model as scores_module
from streamgda.models.covariance import Regularisation
from streamgda.moments.covariance_types import structure_of
from streamgda.storage.saved import restore, state_of

EVERY_TYPE = pytest.mark.parametrize("covariance_type", naive.COVARIANCE_TYPES)
METHODS = [
    "predict",
    "posterior",
    "log_posterior",
    "joint_log_likelihood",
    "relative_scores",
    "log_density",
    "mahalanobis",
]


def fit(X, y, covariance_type, priors=None, **how):
    moments = ClassMoments(covariance_type).update(X, y)
    return GaussianModel.from_moments(moments, covariance_type, Regularisation(**how), priors)


def scores(fitted, X):
    return {method: getattr(fitted, method)(X) for method in METHODS}


def assert_same_bits(a, b):
    for method in METHODS:
        np.testing.assert_array_equal(a[method], b[method], err_msg=method, strict=True)


def assert_alike(a, b, dtype):
    """BLAS may sum a row of another block in another order; kernels for few features do not."""
    small = np.finfo(dtype).eps * 1e4
    np.testing.assert_array_equal(a["predict"], b["predict"])
    for method in METHODS[1:]:
        np.testing.assert_allclose(a[method], b[method], rtol=small, atol=small, err_msg=method)


# --- against the oracle -----------------------------------------------------------------------


@EVERY_TYPE
@pytest.mark.parametrize("n_features", [1, 2, 3, 4, 5, 8, 31, 45])
def test_scores_are_those_of_the_textbook(covariance_type, n_features):
    X, y = blobs(300, n_features)
    rows = X[:70] + np.random.default_rng(1).normal(size=(70, n_features))
    priors = [0.2, 0.5, 0.3]
    fitted = fit(X, y, covariance_type, priors)
    labels, joint = naive.gaussian_classifier(X, y, rows, covariance_type, priors=priors)
    S = naive.regularised_covariances(X, y, covariance_type)
    squares = naive.squared_mahalanobis(rows, naive.moments(X, y).means, S)
    close = {"rtol": 1e-9, "atol": 1e-9}
    np.testing.assert_allclose(fitted.joint_log_likelihood(rows), joint, **close)
    np.testing.assert_allclose(fitted.mahalanobis(rows), squares, **close)
    np.testing.assert_allclose(fitted.posterior(rows), naive.posterior(joint), **close)
    np.testing.assert_allclose(fitted.log_posterior(rows), naive.log_posterior(joint), **close)
    np.testing.assert_allclose(fitted.log_density(rows), naive.log_density(joint), **close)
    np.testing.assert_array_equal(fitted.predict(rows), labels)
    relative = fitted.relative_scores(rows)
    if naive.is_tied(covariance_type):  # the same up to a term of the row
        relative = relative - relative[:, :1]
        joint = joint - joint[:, :1]
    else:
        joint = joint + 0.5 * n_features * np.log(2 * np.pi)
    np.testing.assert_allclose(relative, joint, **close)


@EVERY_TYPE
@pytest.mark.parametrize("offset", [np.float32(0), np.float32(1e4), 0.0, 1e4, 1e8, 1e12])
def test_no_digits_are_lost_far_from_zero(covariance_type, offset):
    X, y = sample(60, 3)
    X = (X + offset).astype(type(offset))
    squares, joint = naive.exact_scores(X.astype("f8"), y, X[:20].astype("f8"), covariance_type)
    fitted = fit(X, y, covariance_type)
    for model in (fitted, restore(GaussianModel, *state_of(fitted))):
        np.testing.assert_allclose(model.mahalanobis(X[:20]), squares, rtol=5e-14)
        np.testing.assert_allclose(model.joint_log_likelihood(X[:20]), joint, rtol=5e-14)
        formula = QuadraticDiscriminants.of(model)(X[:20]) - 1.5 * np.log(2 * np.pi)
        np.testing.assert_allclose(formula, joint, rtol=5e-14)


@in_turn("name, n_features", GAUSSIANS, [130, 3, 3])
def test_a_shift_without_rounding_changes_no_score(name, n_features):
    X, y = blobs(1200, n_features)
    X = np.round(X * 1024) / 1024
    near, far = (make(name).fit(rows, y) for rows in (X, X + 1e12))
    expected, found = results(near, X), results(far, X + 1e12)
    if name == "LDA":
        expected["coef_"], found["coef_"] = near.coef_, far.coef_
    for method in expected.keys() - {"predict"}:
        scale = np.abs(expected[method]).max()
        np.testing.assert_allclose(
            found[method], expected[method], rtol=1e-9, atol=1e-11 * scale, err_msg=method
        )
    np.testing.assert_array_equal(found["predict"], expected["predict"])


def test_a_shift_of_dense_columns_of_sparse_rows_changes_no_score():
    X, y = blobs(300, 3)
    X = np.round(X * 1024) / 1024
    wide = np.hstack([X + 1e12, np.where(X > 1, X, 0)])
    fitted = fit(wide, y, "diag")
    expected, found = scores(fitted, wide), scores(fitted, sparse.csr_array(wide))
    for method in METHODS[1:]:
        np.testing.assert_allclose(found[method], expected[method], rtol=1e-11, atol=1e-11)


def test_means_are_kept_in_two_parts_only_where_that_counts():
    X, y = blobs()
    assert fit(X + 30, y, "full").means_low is None
    assert "means_low" not in state_of(fit(X + 30, y, "full"))[1]
    fitted = fit(X + 1e8, y, "full")
    assert fitted.background(ClassMoments().update(X + 1e8, y), Regularisation()).means_low.any()
    attributes, arrays = state_of(fitted)
    for wrong in (arrays["means_low"] + 1, arrays["means_low"][:2], arrays["means_low"] * np.nan):
        with pytest.raises(FormatError, match=r"damaged: .*means_low"):
            restore(GaussianModel, attributes, arrays | {"means_low": wrong})


@EVERY_TYPE
def test_log_odds_of_two_classes(covariance_type):
    X, y = blobs(100, 3, n_classes=2)
    _, joint = naive.gaussian_classifier(X, y, X, covariance_type)
    odds = fit(X, y, covariance_type).log_odds(X)
    np.testing.assert_allclose(odds, joint[:, 1] - joint[:, 0], rtol=1e-9, atol=1e-9)


def layouts(X):
    yield "fortran", np.asfortranarray(X)
    yield "every second row", np.repeat(X, 2, axis=0)[::2]
    yield "every second column", np.repeat(X, 2, axis=1)[:, ::2]
    yield "reversed twice", X[::-1, ::-1].copy()[::-1, ::-1]
    yield "other byte order", X.astype(X.dtype.newbyteorder())
    read_only = X.copy()
    read_only.flags.writeable = False
    yield "read only", read_only
    yield "list", X.tolist()


@EVERY_TYPE
@pytest.mark.parametrize("n_features", [4, 40])
def test_layout_does_not_matter(covariance_type, n_features):
    X, y = blobs(400, n_features)
    fitted = fit(X, y, covariance_type)
    expected = scores(fitted, X)
    for name, rows in layouts(X):
        found = scores(fitted, rows)
        for method in METHODS:
            np.testing.assert_array_equal(found[method], expected[method], f"{name}: {method}")


@pairs(
    "covariance_type, n_features, dtype",
    naive.COVARIANCE_TYPES,
    [4, 40],
    # Kernels are compiled for each type of integers of 8 and 16 bits: two stand for four.
    [np.float16, np.uint8, np.int16, np.int64, np.bool_, *([np.int8, np.uint16] * THOROUGH)],
)
def test_other_types_score_as_wider_ones(covariance_type, n_features, dtype):
    """Those of float16 in float32, others in float64."""
    X, y = blobs(200, n_features)
    kind = np.dtype(dtype).kind
    rows = {"b": X > 0, "f": X}.get(kind, bytes_of(X) // 2).astype(dtype)
    in_float64 = rows.astype(np.float64)
    fitted = fit(in_float64, y, covariance_type, shrinkage=0.1)
    wide = rows.astype(np.float32) if kind == "f" else in_float64
    found, expected = scores(fitted, rows), scores(fitted, wide)
    for method in METHODS:
        np.testing.assert_allclose(found[method], expected[method], rtol=1e-12, atol=1e-12)


# --- float32 ----------------------------------------------------------------------------------


def made_up(covariance_type, d, offset=0.0, scale=1.0):
    """A model of three classes, and float32 rows to score."""
    rng = np.random.default_rng(d)
    structure = structure_of(covariance_type)
    means = offset + scale * rng.normal(size=(3, d))
    roots = rng.normal(size=(structure.n_groups(3), *structure.shape(d))) / scale
    roots = np.tril(roots) if structure.matrix else roots**2
    model = GaussianModel(
        structure=structure,
        classes=np.arange(3),
        priors=np.array([0.2, 0.3, 0.5]),
        means=means,
        features=np.arange(d),
        roots=roots,
        log_determinants=np.zeros(len(roots)),
    )
    rows = means[rng.integers(0, 3, 30)] + scale * rng.normal(size=(30, d))
    return model, rows.astype(np.float32)


@pytest.mark.parametrize("offset", [0.0, 1e4])
@pytest.mark.parametrize("d", [1, 2, 3, 7, 8, 15, 16, 17, 63, 64, 65, 784])
def test_scores_of_float32_are_within_the_documented_bound(d, offset):
    unit = (d + 3) * 2.0**-24
    fitted, rows = made_up("full", d, offset)
    exact = fitted.mahalanobis(rows.astype(np.float64))
    found = fitted.mahalanobis(rows)
    joint = fitted.joint_log_likelihood(rows)
    for k in range(3):
        gaps = rows - fitted.means[k]
        z, error = gaps @ fitted.roots[k].T, unit * np.abs(gaps) @ np.abs(fitted.roots[k].T)
        bound = ((2 * np.abs(z) + error) * error).sum(axis=1) + 2.0**-21 * exact[:, k]
        assert (np.abs(found[:, k] - exact[:, k]) <= bound).all()
        constant = np.log(fitted.priors[k]) - 0.5 * d * np.log(2 * np.pi)
        np.testing.assert_allclose(joint[:, k], constant - 0.5 * found[:, k], rtol=1e-13)
    assert (found != exact).any() == (d > FLOAT64_FEATURES)  # for many features, it is float32

    fitted, rows = made_up("tied", d, offset)
    exact, found = (fitted.relative_scores(r) for r in (rows.astype(np.float64), rows))
    bound = unit * np.abs(rows - fitted.xbar) @ np.abs(fitted.linear[0].T) + 1e-12
    assert (np.abs(found - exact) <= bound).all()


@EVERY_TYPE
def test_few_features_and_variances_score_float32_as_float64(covariance_type):
    fitted, rows = made_up(covariance_type, 5, 1e4)
    assert_same_bits(scores(fitted, rows), scores(fitted, rows.astype(np.float64)))


@EVERY_TYPE
@pytest.mark.parametrize("scale", [1e-39, 1e-30, 1.0])
def test_values_beyond_float32_are_scored_in_float64(covariance_type, scale):
    fitted, rows = made_up(covariance_type, 15, scale=scale)
    usual = scores(fitted, rows[:20])
    rows[20:] = np.linspace(-3e38, 3e38, 150).reshape(10, 15)
    found, in_float64 = scores(fitted, rows), scores(fitted, rows.astype(np.float64))
    for method in METHODS:
        np.testing.assert_array_equal(found[method][:20], usual[method])
        np.testing.assert_allclose(found[method][20:], in_float64[method][20:], rtol=1e-5)


def test_float32_stays_so_with_a_prior_of_zero():
    fitted, rows = made_up("full", 15)
    without = replace(fitted, priors=np.array([0.5, 0.5, 0.0]))
    expected = without.joint_log_likelihood(rows)
    rows[7] = 3e38
    found = without.joint_log_likelihood(rows)
    assert np.isfinite(found[:, :2]).all()
    assert (found[:, 2] == -np.inf).all()
    assert set(without.predict(rows)) == {0, 1}
    others = np.arange(30) != 7
    np.testing.assert_array_equal(found[others], expected[others])
    np.testing.assert_allclose(found[7], without.joint_log_likelihood(rows.astype(float))[7])


# --- extremes ---------------------------------------------------------------------------------


@EVERY_TYPE
@pytest.mark.parametrize("away", [40, 1e3, 1e6])
def test_rows_far_away_have_probabilities(covariance_type, away):
    X, y = blobs(300, 3)
    rows = X.mean(axis=0) + away * X.std(axis=0) * np.array([[1, 1, 1], [-1, 0, 0], [0, -1, 1]])
    fitted = fit(X, y, covariance_type)
    assert np.isfinite(fitted.log_posterior(rows)).all()
    assert np.isfinite(fitted.log_density(rows)).all()
    np.testing.assert_allclose(fitted.posterior(rows).sum(axis=1), 1, rtol=1e-14)


@EVERY_TYPE
@pytest.mark.parametrize("n_features", [1, 3, 40])
def test_the_nearest_class_wins_where_squared_distances_overflow(covariance_type, n_features):
    """Far away, scores grow as the distance, or as its square."""
    X, y = blobs(200, n_features, n_classes=2)
    model = fit(X * (1 + y[:, None]), y, covariance_type)
    degree = 1 if covariance_type.startswith("tied") else 2
    rows = np.random.default_rng(0).normal(size=(200, n_features)) * 2.0**400
    for bits, n_rows in ((500, 200), (620, 5)):
        near = (np.arange(200) % 2 == 0)[:n_rows]
        distant, expected = np.ldexp(rows[:n_rows], bits), model.predict(rows[:n_rows])
        with np.errstate(over="ignore"):
            logs = np.ldexp(model.log_posterior(rows[:n_rows]), degree * bits)
        distant[near], expected[near], logs[near] = (
            values[:n_rows][near] for values in (X, model.predict(X), model.log_posterior(X))
        )
        np.testing.assert_array_equal(model.predict(distant), expected)
        np.testing.assert_allclose(model.posterior(distant), np.exp(logs), rtol=1e-9, atol=1e-300)
        np.testing.assert_allclose(model.log_posterior(distant), logs, rtol=1e-7)
        np.testing.assert_allclose(model.log_odds(distant), logs[:, 1] - logs[:, 0], rtol=1e-7)
        assert (model.predict_or_reject(distant[~near], reject=1e-9, label=7) == 7).all()


def test_log_probabilities_are_exact_where_probabilities_underflow():
    # Unit variances about 0 and 100: the log-odds at x are 100 x - 5000.
    X = np.array([[-1.0], [1.0], [99.0], [101.0]])
    fitted = fit(X, [0, 0, 1, 1], "full")
    assert fitted.posterior([[0.0]]).tolist() == [[1.0, 0.0]]
    assert fitted.log_posterior([[0.0]]).tolist() == [[0.0, -5000.0]]
    assert fitted.log_posterior([[100.0]]).tolist() == [[-5000.0, 0.0]]
    assert fitted.log_odds([[0.0], [50.0]]).tolist() == [-5000.0, 0.0]


@EVERY_TYPE
def test_a_class_without_rows_is_never_predicted(covariance_type):
    X, y = blobs(200, 3)
    moments = ClassMoments(covariance_type).update(X, y).declare([-1, 9])
    fitted = GaussianModel.from_moments(moments, covariance_type, Regularisation())
    seen = slice(1, 4)
    assert fitted.classes.tolist() == [-1, 0, 1, 2, 9]
    assert set(fitted.predict(X)) <= {0, 1, 2}
    without = fit(X, y, covariance_type)
    for method, missing in {
        "posterior": 0.0,
        "log_posterior": -np.inf,
        "joint_log_likelihood": -np.inf,
        "mahalanobis": np.nan,
    }.items():
        found = getattr(fitted, method)(X)
        np.testing.assert_array_equal(found[:, [0, 4]], np.full((len(X), 2), missing))
        np.testing.assert_array_equal(found[:, seen], getattr(without, method)(X))
    np.testing.assert_array_equal(fitted.log_density(X), without.log_density(X))


# --- the same bits ----------------------------------------------------------------------------


FLOATS = [np.float32, np.float64]


@pairs("covariance_type, n_features, dtype", naive.COVARIANCE_TYPES, [3, 37], FLOATS)
def test_the_place_of_a_row_does_not_matter(covariance_type, n_features, dtype):
    X, y = blobs(400, n_features)
    fitted = fit(X, y, covariance_type)
    X = X.astype(dtype)
    expected = scores(fitted, X)
    for rows in (
        *(slice(i, i + n) for i, n in itertools.product([0, 1, 47, 129], [1, 2, 3, 49, 130])),
        slice(None, None, -1),
        np.random.default_rng(0).permutation(len(X)),
    ):
        part = {method: values[rows] for method, values in expected.items()}
        assert_alike(scores(fitted, X[rows]), part, dtype)


@pairs("covariance_type, n_features, dtype", naive.COVARIANCE_TYPES, [3, 37], FLOATS)
def test_the_number_of_threads_does_not_matter(
    monkeypatch, use_threads, covariance_type, n_features, dtype
):
    X, y = blobs(3000, n_features)
    fitted = fit(X, y, covariance_type)
    X = X.astype(dtype)
    use_threads(1)
    expected = scores(fitted, X)
    monkeypatch.setattr(scores_module, "_CHUNK_ELEMENTS", 1)
    monkeypatch.setattr(scores_module, "_CHUNK_ROWS", 1)  # the least chunks that there are
    for n in (1, 2, 5):
        use_threads(n)
        assert_alike(scores(fitted, X), expected, dtype)


# --- errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_named(monkeypatch, method, value):
    X, y = blobs(900, 3)
    fitted = fit(X, y, "full")
    X[700, 2] = value
    name = "NaN" if np.isnan(value) else "infinity"
    for chunk in (1, 1 << 19):
        monkeypatch.setattr(scores_module, "_CHUNK_ELEMENTS", chunk)
        monkeypatch.setattr(scores_module, "_CHUNK_ROWS", 1)
        with pytest.raises(InvalidDataError, match=f"contains {name}: row 1700, column 2"):
            getattr(fitted, method)(X, 1000)


def test_rows_of_another_width_are_refused():
    X, y = blobs(100, 3)
    fitted = fit(X, y, "full")
    for method in METHODS:
        with pytest.raises(InvalidDataError, match=r"X has 2 features, but .* 3 features"):
            getattr(fitted, method)(X[:, :2])


# --- saving -----------------------------------------------------------------------------------


@EVERY_TYPE
@pytest.mark.parametrize("n_features", [3, 37])
def test_saved_and_pickled_models_score_the_same(covariance_type, n_features, tmp_path):
    X, y = blobs(300, n_features)
    fitted = fit(X, y, covariance_type)
    before = pickle.dumps(fitted)
    expected = scores(fitted, X)
    assert pickle.dumps(fitted) == before
    assert_same_bits(scores(pickle.loads(before), X), expected)
    fitted.save(tmp_path / "model.zip")
    assert_same_bits(scores(GaussianModel.load(tmp_path / "model.zip"), X), expected)
