"""Relative Mahalanobis distances: those to the classes, less that to one Gaussian of all rows."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import naive
import numpy as np
import pytest
from damage import GOLDEN
from samples import blobs, bytes_of
from sklearn import datasets
from sklearn.covariance import LedoitWolf

import streamgda
from streamgda import (
    ClassMoments,
    GaussianDiscriminantAnalysis,
    GaussianModel,
    GaussianNB,
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
)
from streamgda.errors import InvalidParameterError, SingularCovarianceError
from streamgda.models.covariance import Regularisation

EVERY_TYPE = pytest.mark.parametrize("covariance_type", naive.COVARIANCE_TYPES)
CLOSE = {"rtol": 1e-9, "atol": 1e-9}


def fit(covariance_type, X, y, **params):
    return GaussianDiscriminantAnalysis(covariance_type, **params).fit(X, y)


# --- against the oracle ---------------------------------------------------------------------------


@EVERY_TYPE
@pytest.mark.parametrize(
    "regularisation",
    [
        {},
        {"shrinkage": 0.2, "reg_param": 0.1, "ddof": 1},
        {"standardize": True, "reg_param": 0.3, "var_smoothing": 0.1},
    ],
    ids=str,
)
def test_differences_are_those_of_the_oracle(covariance_type, regularisation):
    X, y = blobs()
    rows = X[:20] + 1
    found = fit(covariance_type, X, y, **regularisation).relative_mahalanobis(rows)
    expected = naive.relative_mahalanobis(X, y, rows, covariance_type, **regularisation)
    np.testing.assert_allclose(found, expected, **CLOSE)
    assert (expected < 0).any()


def test_weights_count_in_the_gaussian_of_all_rows():
    X, y = blobs()
    weights = np.random.default_rng(1).integers(0, 4, len(y)).astype(float)
    fitted = QuadraticDiscriminantAnalysis().fit(X, y, weights)
    expected = naive.relative_mahalanobis(X, y, X[:20], weights=weights)
    np.testing.assert_allclose(fitted.relative_mahalanobis(X[:20]), expected, **CLOSE)


@EVERY_TYPE
def test_exact_sums_and_streams_find_the_same(covariance_type):
    X, y = blobs()
    X = bytes_of(X)
    fitted = fit(covariance_type, X, y)
    moments = ClassMoments(covariance_type)
    for rows in np.array_split(np.arange(len(y)), 7):
        moments.update(X[rows], y[rows])
    streamed = GaussianDiscriminantAnalysis.from_moments(moments, covariance_type=covariance_type)
    expected = naive.relative_mahalanobis(X.astype(float), y, X[:20], covariance_type)
    np.testing.assert_allclose(fitted.relative_mahalanobis(X[:20]), expected, **CLOSE)
    found = streamed.relative_mahalanobis(X)
    np.testing.assert_array_equal(found, fitted.relative_mahalanobis(X))


@pytest.mark.parametrize("rule", ["ledoit_wolf", "oas"])
@pytest.mark.parametrize("covariance_type", ["full", "tied"])
def test_rules_of_shrinkage_apply_to_all_rows_together(rule, covariance_type):
    X, y = blobs()
    fitted = fit(covariance_type, X, y, shrinkage=rule)
    rows, zeros = X[:20], np.zeros(len(y))
    centred = X - X.mean(axis=0)
    amount = naive.ledoit_wolf(centred) if rule == "ledoit_wolf" else naive.oas(centred)
    S = naive.regularised_covariances(X, zeros, shrinkage=amount)
    expected = naive.squared_mahalanobis(rows, naive.moments(X, zeros).means, S)
    found = fitted.mahalanobis(rows) - fitted.relative_mahalanobis(rows)
    np.testing.assert_allclose(found, np.repeat(expected, 3, axis=1), **CLOSE)


@pytest.mark.parametrize(("rule", "standardize"), [("auto", False), ("ledoit_wolf", True)])
@pytest.mark.parametrize("covariance_type", ["full", "tied"])
def test_amounts_of_second_passes_are_averaged(rule, standardize, covariance_type):
    X, y = blobs()
    params = {"shrinkage": rule, "standardize": standardize, "reg_param": 0.1}
    fitted = fit(covariance_type, X, y, **params)
    weights = fitted.class_count_ if fitted.shrinkage_.size > 1 else None
    amount = np.average(fitted.shrinkage_, weights=weights)
    rows, zeros, scale = X[:20], np.zeros(len(y)), X.std(axis=0)
    unit = scale if standardize else np.ones(4)  # of what reg_param adds
    S = naive.regularised_covariances(X / scale, zeros, shrinkage=amount)[0]
    S = 0.9 * S * np.outer(scale, scale) + 0.1 * np.diag(unit**2)
    expected = naive.squared_mahalanobis(rows, naive.moments(X, zeros).means, S[None])
    found = fitted.mahalanobis(rows) - fitted.relative_mahalanobis(rows)
    np.testing.assert_allclose(found, np.repeat(expected, 3, axis=1), **CLOSE)


@pytest.mark.parametrize(
    ("kind", "solver"),
    [
        (LinearDiscriminantAnalysis, "lsqr"),
        (LinearDiscriminantAnalysis, "eigen"),
        (QuadraticDiscriminantAnalysis, "eigen"),
    ],
)
def test_covariance_estimators_see_all_rows_together(kind, solver):
    X, y = blobs()
    fitted = kind(solver=solver, covariance_estimator=LedoitWolf()).fit(X, y)
    other = LedoitWolf().fit(X)
    found = fitted.mahalanobis(X) - fitted.relative_mahalanobis(X)
    expected = np.repeat(other.mahalanobis(X)[:, None], 3, axis=1)
    np.testing.assert_allclose(found, expected, **CLOSE)


# --- directions and classes that are left out -----------------------------------------------------


def test_directions_that_lda_drops_are_left_out_of_both_distances():
    X, y = datasets.load_iris(return_X_y=True)
    wide = np.column_stack([X, 3 * X[:, 0], y])  # a copy, and one that varies only between classes
    with pytest.warns(match="2 of 6 directions"):
        fitted = LinearDiscriminantAnalysis().fit(wide, y)
    plain = LinearDiscriminantAnalysis().fit(X, y)
    rows = wide[::5] + np.eye(6)[5]
    found, expected = fitted.relative_mahalanobis(rows), plain.relative_mahalanobis(X[::5])
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-7)


def test_constant_features_are_left_out():
    X, y = blobs()
    expected = QuadraticDiscriminantAnalysis().fit(X, y).relative_mahalanobis(X)
    wide = np.insert(X, 2, 5.0, axis=1)
    with pytest.warns(match="constant"):
        fitted = QuadraticDiscriminantAnalysis().fit(wide, y)
    np.testing.assert_array_equal(fitted.relative_mahalanobis(wide), expected)


@EVERY_TYPE
def test_classes_without_rows_have_no_distance(covariance_type):
    X, y = blobs()
    expected = fit(covariance_type, X, y).relative_mahalanobis(X)
    moments = ClassMoments(covariance_type).update(X, y).declare([-1, 5])
    fitted = GaussianDiscriminantAnalysis.from_moments(moments, covariance_type=covariance_type)
    found = fitted.relative_mahalanobis(X)
    assert np.isnan(found[:, [0, 4]]).all()
    np.testing.assert_allclose(found[:, 1:4], expected, rtol=1e-12, atol=1e-10)


@pytest.mark.parametrize("covariance_type", ["full", "tied"])
def test_classes_may_be_far_apart(covariance_type):
    X, y = blobs()
    X += np.array([0, 1e5, -2e5])[y][:, None]  # their correlations are within 1e-8 of one
    fitted = fit(covariance_type, X, y)
    expected = naive.relative_mahalanobis(X, y, X[:20], covariance_type)
    np.testing.assert_allclose(fitted.relative_mahalanobis(X[:20]), expected, rtol=1e-5, atol=1e-3)
    X += np.array([0, 1e12, -2e12])[y][:, None]
    with pytest.raises(SingularCovarianceError, match="all rows is singular to rounding"):
        fit(covariance_type, X, y).relative_mahalanobis(X)


# --- models ---------------------------------------------------------------------------------------


def test_the_gaussian_of_all_rows_is_a_model_that_can_be_saved(tmp_path):
    X, y = blobs()
    moments, how = ClassMoments().update(X, y), Regularisation()
    model = GaussianModel.from_moments(moments, "full", how)
    model.background(moments, how).save(tmp_path / "all.zip")
    loaded = GaussianModel.load(tmp_path / "all.zip")
    expected = QuadraticDiscriminantAnalysis().fit(X, y).relative_mahalanobis(X)
    found = model.relative_mahalanobis(X, background=loaded)
    np.testing.assert_allclose(found, expected, **CLOSE)


def test_other_backgrounds_are_refused():
    X, y = blobs()
    moments, how = ClassMoments().update(X, y), Regularisation()
    model = GaussianModel.from_moments(moments, "full", how)
    with pytest.raises(TypeError, match="background is None; expected a GaussianModel"):
        model.relative_mahalanobis(X, background=None)
    whole = model.background(moments, how)
    narrower = replace(whole, features=whole.features[:2], roots=whole.roots[:, :2, :2])
    for other, what in (model, "3 class"), (narrower, "1 class.* and 2 features"):
        with pytest.raises(InvalidParameterError, match=f"the background has {what}"):
            model.relative_mahalanobis(X, background=other)


def test_learning_more_rows_changes_both_gaussians():
    X, y = blobs()
    fitted = GaussianNB().partial_fit(X[:100], y[:100], classes=[0, 1, 2])
    first = fitted.relative_mahalanobis(X)
    fitted.partial_fit(X[100:], y[100:])
    expected = GaussianNB().fit(X, y).relative_mahalanobis(X)
    np.testing.assert_allclose(fitted.relative_mahalanobis(X), expected, **CLOSE)
    assert not np.allclose(first, expected)


@pytest.mark.parametrize("folder", sorted(GOLDEN.glob("version*")), ids=lambda folder: folder.name)
@pytest.mark.parametrize("name", ["qda", "lda", "gda"])
def test_estimators_from_older_files_have_it(folder, name):
    fitted = streamgda.load(folder / f"{name}.zip")
    found = fitted.relative_mahalanobis(fitted.means_)
    solver = {"solver": "lsqr"} if name == "lda" else {}  # svd takes no shrinkage any more
    again = type(fitted).from_moments(fitted.moments_, **(fitted.get_params() | solver))
    np.testing.assert_allclose(found, again.relative_mahalanobis(fitted.means_), **CLOSE)


# --- many classes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_one_root_serves_many_wide_classes(dtype):
    X, y = blobs(600, 100, n_classes=5)
    X = (X + 1e3).astype(dtype)
    fitted = fit("tied", X.astype(float), y)
    rows = X[:20]
    S = naive.regularised_covariances(X.astype(float), y, "tied")
    expected = naive.squared_mahalanobis(rows.astype(float), fitted.means_, S)
    rtol = 1e-9 if dtype == np.float64 else 1e-5
    np.testing.assert_allclose(fitted.mahalanobis(rows), expected, rtol=rtol)


def test_the_example_finds_rows_of_unknown_classes(capsys):
    path = Path(__file__).parents[2] / "examples" / "unknown_classes.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    plain, relative = example.main(n_classes=60, n_features=64, n_rows=50)
    assert 0.5 < plain < relative - 0.05
    assert f"{plain:.3f}, of the relative one: {relative:.3f}" in capsys.readouterr().out
