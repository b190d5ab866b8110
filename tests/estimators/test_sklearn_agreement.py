"""Discriminant analysis and naive Bayes give the numbers of scikit-learn's own estimators."""

import numpy as np
import pytest
from grids import in_turn, pairs
from samples import DIVIDES_BY_N, NEEDS_1_9, assert_close, blobs, held
from sklearn import covariance, datasets, discriminant_analysis, naive_bayes
from sklearn.decomposition import PCA

from streamgda import (
    GaussianDiscriminantAnalysis,
    GaussianNB,
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
)
from streamgda.errors import CollinearityWarning, InvalidParameterError, SingularCovarianceError

# The digits have three pixels that are always black. scikit-learn divides by their deviations.
pytestmark = pytest.mark.filterwarnings("ignore::streamgda.errors.ConstantFeatureWarning")

X, Y = blobs(200, 5)


def drawn(n, d, seed):
    return np.random.default_rng(seed).normal(size=(n, d)), np.arange(n) % 3


def iris_and(*columns):
    rows, y = datasets.load_iris(return_X_y=True)
    return np.column_stack([rows, *(column(rows) for column in columns)]), y


def one_hot(rows):
    return np.eye(4)[np.random.default_rng(0).integers(0, 4, len(rows))]


def scaled(rows, y, low, high):
    return rows * np.logspace(low, high, rows.shape[1]), y


DATA = {
    "blobs": lambda: (X, Y),
    "two classes": lambda: (X[Y < 2], Y[Y < 2]),
    "iris": iris_and,
    "wine": lambda: datasets.load_wine(return_X_y=True),
    "breast_cancer": lambda: datasets.load_breast_cancer(return_X_y=True),
    "digits": lambda: datasets.load_digits(return_X_y=True),
    "classified": lambda: datasets.make_classification(random_state=0),
    "doubled": lambda: iris_and(lambda rows: 3 * rows[:, 0]),
    "one hot": lambda: iris_and(one_hot),
    "few rows": lambda: drawn(30, 50, 0),
    "fewer rows": lambda: scaled(*drawn(20, 90, 1), -3, 3),
    "scales": lambda: scaled(*iris_and(one_hot), -6, 6),
}
REGULAR = ["blobs", "two classes", "iris", "wine", "breast_cancer", "digits"]


def priors_of(y, given):
    return np.random.default_rng(1).dirichlet(np.full(np.unique(y).size, 9)) if given else None


def assert_same_columns(a, b, rtol=1e-9):
    """Check that they are the same up to the sign of each column."""
    assert a.shape == b.shape
    assert_close(a * np.sign((a * b).sum(axis=0)), b, rtol)


def assert_same_predictions(ours, theirs, X, atol=1e-10):
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), rtol=0, atol=atol)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X), strict=True)
    np.testing.assert_array_equal(ours.classes_, theirs.classes_, strict=True)


# --- linear discriminant analysis -------------------------------------------------------------

SHRINKAGE = [{}, {"shrinkage": 0.1}, {"shrinkage": "auto"}]
SHRINKAGE += [{"covariance_estimator": covariance.OAS()}]
SOLVERS = [("svd", {}), *((solver, how) for solver in ("lsqr", "eigen") for how in SHRINKAGE)]


@pairs("name, solved, with_priors", REGULAR, SOLVERS, [False, True])
def test_solvers_of_lda(name, solved, with_priors):
    (X, y), (solver, how) = DATA[name](), solved
    if name == "digits" and solver != "svd":
        X = X[:, X.std(axis=0) > 0]  # These solvers need an invertible covariance.
    options = {"priors": priors_of(y, with_priors), "store_covariance": True, **how}
    theirs = discriminant_analysis.LinearDiscriminantAnalysis(solver, **options).fit(X, y)
    # Normal equations of breast cancer cost scikit-learn digits: its coefficients have 10 of them.
    atol = 1e-10
    if (name, solver) == ("breast_cancer", "lsqr") and how in ({}, {"shrinkage": "auto"}):
        atol = 1e-7 if how else 1e-8
    if solver == "svd" and not DIVIDES_BY_N:
        ours = GaussianDiscriminantAnalysis("tied", ddof=1, priors=options["priors"])
        assert_same_predictions(ours.fit(X, y), theirs, X)
        return
    ours = LinearDiscriminantAnalysis(solver, **options).fit(X, y)
    assert_same_predictions(ours, theirs, X, atol)
    rtol = 1e-10 if name in ("blobs", "two classes") else 1e-7
    assert_close(ours.decision_function(X), theirs.decision_function(X), rtol)
    # What rows vary between classes by is not shrunk here, nor weighted by priors.
    alike = solver == "svd" or not (how or with_priors)
    for attribute in ("coef_", "intercept_", "covariance_", "xbar_", "explained_variance_ratio_"):
        if hasattr(theirs, attribute) and (alike or attribute != "explained_variance_ratio_"):
            if name == "digits" and attribute in ("coef_", "intercept_", "covariance_"):
                continue  # Features are constant there.
            assert_close(getattr(ours, attribute), getattr(theirs, attribute), rtol)
    if solver != "lsqr" and alike:
        assert_same_columns(ours.transform(X), theirs.transform(X), max(rtol, 1e-9))


@NEEDS_1_9
@pytest.mark.filterwarnings("ignore::UserWarning")
@in_turn("name, with_priors, n_components", list(DATA)[2:], [False, True, True], [None, 1])
def test_directions_of_lda(name, with_priors, n_components):
    X, y = DATA[name]()
    options = {"n_components": n_components, "priors": priors_of(y, with_priors)}
    ours = LinearDiscriminantAnalysis(**options).fit(X, y)
    theirs = discriminant_analysis.LinearDiscriminantAnalysis(**options).fit(X, y)
    assert_close(ours.decision_function(X), theirs.decision_function(X))
    assert_same_predictions(ours, theirs, X)
    assert_same_columns(ours.scalings_, theirs.scalings_)
    assert_same_columns(ours.transform(X), theirs.transform(X), 1e-8)
    assert ours.get_feature_names_out().tolist() == theirs.get_feature_names_out().tolist()


@pytest.mark.filterwarnings("ignore::streamgda.errors.CollinearityWarning")
@in_turn("name, solver", ["doubled", "few rows", "fewer rows", "one hot"], ["svd", "lsqr"])
def test_features_that_are_constant_within_classes_are_left_out_exactly(name, solver):
    X, y = DATA[name]()
    beside = np.insert(X, 1, 1e18 * y, axis=1)  # This may be a time in nanoseconds.
    found, expected = (LinearDiscriminantAnalysis(solver).fit(each, y) for each in (beside, X))
    assert (found.coef_[:, 1] == 0).all()
    assert_close(found.mahalanobis(beside), expected.mahalanobis(X), 1e-9)
    np.testing.assert_allclose(found.predict_proba(beside), expected.predict_proba(X), atol=1e-9)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", ["doubled", "few rows", "one hot"])
def test_the_density_is_that_of_the_directions_that_are_kept(name):
    X, y = DATA[name]()
    lda = LinearDiscriminantAnalysis(store_covariance=True).fit(X, y)
    varying = np.setdiff1d(np.arange(X.shape[1]), lda.constant_features_)
    S = lda.covariance_[np.ix_(varying, varying)]
    scale = np.sqrt(np.where(S.diagonal() > 0, S.diagonal(), 1))
    values, axes = np.linalg.eigh(S / scale / scale[:, None])
    kept = values > max(1e-8, len(S) * np.finfo(float).eps)
    root = (axes[:, kept] / np.sqrt(values[kept])).T / scale
    t = (X[:, None, varying] - lda.means_[:, varying]) @ root.T
    log_det = -2 * np.log(np.linalg.svd(root, compute_uv=False)).sum()
    expected = np.log(lda.priors_) - 0.5 * (
        (t**2).sum(axis=2) + log_det + kept.sum() * np.log(2 * np.pi)
    )
    found = lda.predict_joint_log_proba(X)
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-6)
    again = type(lda).from_bytes(lda.to_bytes())
    np.testing.assert_array_equal(again.predict_joint_log_proba(X), found)


def test_warnings_are_given_once_where_fit_is_called():
    with pytest.warns(UserWarning, match="priors do not sum to 1") as caught:
        lda = LinearDiscriminantAnalysis(priors=[1, 1, 2]).fit(X, Y)
    assert lda.priors_.tolist() == [0.25, 0.25, 0.5]
    wide = np.column_stack([X, X[:, :2]])
    with pytest.warns(CollinearityWarning, match=r"^2 of 7 directions") as dropped:
        lda = LinearDiscriminantAnalysis().fit(wide, Y)
    lda.predict(wide)  # Another warning would be an error.
    assert [each.filename for each in (*caught, *dropped)] == [__file__] * 2
    with pytest.raises(SingularCovarianceError, match="solver='svd', which drops") as caught:
        LinearDiscriminantAnalysis("eigen").fit(wide, Y)
    assert "reg_param" not in str(caught.value)


# --- quadratic discriminant analysis ----------------------------------------------------------

SHRUNK = {"solver": "eigen", "shrinkage": 0.1}


@in_turn(
    "name, options, with_priors",
    ["iris", "digits", "breast_cancer", "wine", "digits", "blobs"],
    [{}, {"reg_param": 0.1}, {}, SHRUNK, SHRUNK, {"solver": "eigen", **SHRINKAGE[3]}],
    [False, True, True, False, True],
)
def test_qda(name, options, with_priors):
    X, y = DATA[name]()
    if "solver" in options:
        if not DIVIDES_BY_N:
            pytest.skip("scikit-learn divides by n from 1.9 on")
        # scikit-learn gives constant features a variance in each class and keeps them in the
        # density, which then prefers some classes for what all rows have in common.
        X = X[:, X.std(axis=0) > 0]
    options = {**options, "priors": priors_of(y, with_priors), "store_covariance": True}
    theirs = discriminant_analysis.QuadraticDiscriminantAnalysis(**options, tol=1e-12).fit(X, y)
    ours = QuadraticDiscriminantAnalysis(**options)
    if not DIVIDES_BY_N:
        options.pop("store_covariance")
        ours = GaussianDiscriminantAnalysis("full", ddof=1, **options)
    assert_same_predictions(ours.fit(X, y), theirs, X, 1e-8)
    assert_close(ours.means_, theirs.means_, 1e-12)
    assert_close(ours.priors_, theirs.priors_, 1e-12)
    assert_close(ours.covariance_, np.array(theirs.covariance_), 1e-12)
    # Constant features of theirs add to the decisions of all classes alike.
    found, expected = ours.predict_log_proba(X), theirs.predict_log_proba(X)
    assert_close(np.maximum(found, -1e3), np.maximum(expected, -1e3), 1e-8)
    if DIVIDES_BY_N:
        assert_close(np.array(ours.scalings_), np.array(theirs.scalings_), 1e-12)
        for rotation, scaling, S in zip(
            ours.rotations_, ours.scalings_, ours.covariance_, strict=True
        ):
            assert_close(rotation * scaling @ rotation.T, S, 1e-12)


@NEEDS_1_9
def test_priors_of_qda_stay_as_they_are():
    theirs = discriminant_analysis.QuadraticDiscriminantAnalysis(priors=[1, 1, 2]).fit(X, Y)
    ours = QuadraticDiscriminantAnalysis(priors=[1, 1, 2]).fit(X, Y)
    assert ours.priors_.tolist() == [1, 1, 2]
    assert_close(ours.predict_proba(X), theirs.predict_proba(X))
    assert set(ours.sample(50, random_state=0)[1]) == {0, 1, 2}


@pytest.mark.parametrize("make", [LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis])
def test_covariance_estimators_need_all_rows_without_weights(make, tmp_path):
    for options, error, match in (
        ({"shrinkage": 0.1}, NotImplementedError, "shrinkage is not supported with"),
        ({"solver": "other"}, InvalidParameterError, "solver='other'; expected one of 'svd'"),
        ({"solver": "eigen", "covariance_estimator": 3}, InvalidParameterError, "a method fit"),
        (
            {"solver": "eigen", "covariance_estimator": PCA(2)},
            InvalidParameterError,
            "does not have a covariance_ attribute",
        ),
    ):
        with pytest.raises(error, match=match):
            make(**options).fit(X, Y)
    given = make(solver="eigen", covariance_estimator=covariance.OAS())
    stored = make(solver="eigen", covariance_estimator=covariance.OAS())
    stored.fit(held(X, "zarr"), held(Y, "zarr"))
    np.testing.assert_allclose(stored.predict_proba(X), given.fit(X, Y).predict_proba(X))
    for call, match in (
        (lambda: given.partial_fit(X, Y), "needs all rows at once"),
        (lambda: given.fit(X, Y, np.ones(len(Y))), "takes no sample_weight"),
        (lambda: given.fit(X, Y).save(tmp_path / "estimator"), "cannot be saved"),
    ):
        with pytest.raises(InvalidParameterError, match=match):
            call()


# --- Gaussian naive Bayes ---------------------------------------------------------------------


@in_turn("name, var_smoothing, with_priors", REGULAR, [1e-9, 1e-3], [False, True, True])
def test_gaussian_nb(name, var_smoothing, with_priors):
    X, y = DATA[name]()
    priors = priors_of(y, with_priors)
    theirs = naive_bayes.GaussianNB(priors=priors, var_smoothing=var_smoothing).fit(X, y)
    ours = GaussianNB(priors=priors, var_smoothing=var_smoothing).fit(X, y)
    assert_same_predictions(ours, theirs, X, 1e-8)
    for attribute in ("theta_", "var_", "class_prior_", "class_count_"):
        np.testing.assert_allclose(
            getattr(ours, attribute), getattr(theirs, attribute), rtol=1e-12, atol=1e-12
        )
    assert ours.epsilon_ == pytest.approx(theirs.epsilon_, rel=1e-12)
    if name != "digits":  # Their density includes constant pixels.
        assert_close(ours.predict_joint_log_proba(X), theirs.predict_joint_log_proba(X), 1e-9)
