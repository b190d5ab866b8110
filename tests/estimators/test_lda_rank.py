"""LDA of rank-deficient rows: directions are dropped as in scikit-learn."""

import naive
import numpy as np
import pytest
from grids import in_turn
from sklearn import datasets, discriminant_analysis

from streamgda import ClassMoments, LinearDiscriminantAnalysis
from streamgda.errors import FormatError
from streamgda.models.covariance import Regularisation, estimate
from streamgda.models.discriminants import LinearModel
from streamgda.models.gaussian import joint_log_likelihood
from streamgda.models.model import check_priors

# scikit-learn divides by the deviations of its constant pixels.
pytestmark = pytest.mark.filterwarnings("ignore::streamgda.errors.ConstantFeatureWarning")


def doubled():
    X, y = datasets.load_iris(return_X_y=True)
    return np.column_stack([X, 3 * X[:, 0]]), y


def one_hot():
    X, y = datasets.load_iris(return_X_y=True)
    return np.column_stack([X, np.eye(4)[np.random.default_rng(0).integers(0, 4, len(y))]]), y


def few_rows():
    return np.random.default_rng(0).normal(size=(30, 50)), np.arange(30) % 3


def classified(seed=0):
    return datasets.make_classification(random_state=seed)


def digits():
    return datasets.load_digits(return_X_y=True)


def one_scale_each():
    X, y = one_hot()
    return X * np.logspace(-6, 6, X.shape[1]), y


def fewer_rows():
    X = np.random.default_rng(1).normal(size=(20, 90))
    return X * np.logspace(-3, 3, 90), np.arange(20) % 3


SETS = [doubled, one_hot, few_rows, fewer_rows, classified, digits, one_scale_each]


def model_of(X, y, priors=None, tol=1e-4):
    moments = ClassMoments("tied").update(X, y)
    how = Regularisation(singular="scaled", tol=tol)
    shares = check_priors(priors, moments.classes, moments.class_count)
    return LinearModel.of(estimate(moments, "tied", how), moments.means, shares, how, tol=tol)


def assert_close(found, expected, rtol=1e-10):
    np.testing.assert_allclose(found, expected, rtol=0, atol=rtol * np.abs(expected).max())


@in_turn("rows, with_priors", SETS, [False, True, True, False])
def test_models_agree_with_scikit_learn(rows, with_priors):
    X, y = rows()
    priors = (
        np.random.default_rng(1).dirichlet(np.full(np.unique(y).size, 9)) if with_priors else None
    )
    theirs = discriminant_analysis.LinearDiscriminantAnalysis(priors=priors).fit(X, y)
    model = model_of(X, y, priors)
    scores = model.log_odds(X) if model.classes.size == 2 else model.relative_scores(X)
    assert_close(scores, theirs.decision_function(X))
    np.testing.assert_allclose(model.posterior(X), theirs.predict_proba(X), atol=1e-10)
    scalings = model.directions[0]
    assert scalings.shape == theirs.scalings_.shape
    assert_close(
        scalings * np.sign((scalings * theirs.scalings_).sum(axis=0)), theirs.scalings_, 1e-9
    )


@pytest.mark.filterwarnings("ignore::streamgda.errors.CollinearityWarning")
@in_turn("rows, solver", [doubled, few_rows, fewer_rows, one_hot], ["svd", "lsqr"])
def test_features_that_are_constant_within_classes_are_left_out_exactly(rows, solver):
    X, y = rows()
    beside = np.insert(X, 1, 1e18 * y, axis=1)  # times in nanoseconds, say
    found, expected = (LinearDiscriminantAnalysis(solver).fit(each, y) for each in (beside, X))
    assert (found.coef_[:, 1] == 0).all()
    assert_close(found.mahalanobis(beside), expected.mahalanobis(X), 1e-9)
    np.testing.assert_allclose(found.predict_proba(beside), expected.predict_proba(X), atol=1e-9)


def test_discriminant_directions_along_which_means_agree_are_left_out():
    X = np.random.default_rng(0).normal(size=(300, 4))
    y = np.arange(300) % 3
    X -= np.array([X[y == k].mean(axis=0) for k in range(3)])[y]
    X[:, 0] += y  # means on a line
    X[:, 1] += 1e-6 * (y == 1)
    theirs = discriminant_analysis.LinearDiscriminantAnalysis().fit(X, y)
    model = model_of(X, y)
    assert theirs.scalings_.shape == model.directions[0].shape == (4, 1)
    assert_close(model.relative_scores(X), theirs.decision_function(X), 1e-12)


def test_the_density_is_that_of_the_directions_that_are_kept():
    """A copy of a feature in another unit changes neither distances nor p-values."""
    X, y = datasets.load_iris(return_X_y=True)
    plain, model = model_of(X, y), model_of(*doubled())
    assert plain.rank == model.rank == 4
    wide = doubled()[0]
    for method in ("mahalanobis", "p_values"):
        found, expected = getattr(model, method)(wide), getattr(plain, method)(X)
        np.testing.assert_allclose(found, expected, rtol=1e-9)
    rejected = model.predict_or_reject(wide, reject=0.1)
    np.testing.assert_array_equal(rejected, plain.predict_or_reject(X, reject=0.1))
    structure, root = model.structure, model.roots[0]
    inverse = structure.solve(root, np.eye(root.shape[-1]))
    W = naive.covariance(wide, y, "tied")
    np.testing.assert_allclose(W @ inverse @ W, W, atol=1e-12)


def test_log_densities_and_likelihoods_have_the_rank_as_their_dimension():
    wide, y = doubled()
    model = model_of(wide, y)
    log_det = np.linalg.slogdet(
        model.structure.whitening(model.roots[0])
        @ naive.covariance(wide, y, "tied")
        @ model.structure.whitening(model.roots[0]).T
    )[1]
    assert log_det == pytest.approx(0, abs=1e-10)
    constant = -0.5 * (4 * np.log(2 * np.pi) + model.log_determinants[0])
    expected = constant - 0.5 * model.mahalanobis(wide) + np.log(model.priors)
    np.testing.assert_allclose(model.joint_log_likelihood(wide), expected, rtol=1e-10)
    total, weight = joint_log_likelihood(model, ClassMoments("full").update(wide, y))
    assert total / weight == pytest.approx(expected[np.arange(150), y].mean(), rel=1e-10)


def test_models_are_saved(tmp_path):
    X, y = one_hot()
    model = model_of(X, y, tol=1e-3)
    model.save(tmp_path / "model")
    loaded = LinearModel.load(tmp_path / "model")
    assert (loaded.rank, loaded.tol, loaded.solver) == (7, 1e-3, "svd")
    assert np.array_equal(loaded.relative_scores(X), model.relative_scores(X))
    assert np.array_equal(loaded.log_density(X), model.log_density(X))


@pytest.mark.parametrize("change", ["no rank", "a row too few", "another determinant"])
def test_damaged_roots_are_refused(change, tmp_path):
    model = model_of(*one_hot())
    if change == "no rank":
        model.roots[...] = 0
    elif change == "a row too few":
        model.roots[0, -1] = 0
    else:
        model.log_determinants[0] += 1
    model.save(tmp_path / "model")
    with pytest.raises(FormatError, match="damaged"):
        LinearModel.load(tmp_path / "model")
