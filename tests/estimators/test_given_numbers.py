"""Estimators of given numbers, and fitted attributes that cannot be changed."""

import json
import pickle

import numpy as np
import pytest
from samples import ESTIMATORS, EVERY_ESTIMATOR, assert_same_bits, blobs, make, results
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import streamgda
from streamgda import (
    BernoulliNB,
    ClassMoments,
    GaussianDiscriminantAnalysis,
    GaussianModel,
    GaussianNB,
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
)
from streamgda.errors import (
    FormatError,
    InvalidDataError,
    InvalidParameterError,
    SingularCovarianceError,
    UnsupportedError,
)

X, Y = blobs(150)
X[:, 3] = 7.0  # a constant feature
NAMES = np.array(["ant", "bee", "cat"])[Y]
STORING = {
    "QDA": QuadraticDiscriminantAnalysis(store_covariance=True),
    "LDA": LinearDiscriminantAnalysis(store_covariance=True),
    "shrunk QDA": QuadraticDiscriminantAnalysis(solver="eigen", shrinkage=0.3),
    "LDA by lsqr": LinearDiscriminantAnalysis("lsqr", shrinkage=0.3),
    "standardized": GaussianDiscriminantAnalysis("spherical", shrinkage=0.2, standardize=True),
}
EVERY = {**ESTIMATORS, **STORING}
STORING["shrunk QDA"].store_covariance = True


def numbers_of(fitted):
    """Return the arguments of `from_parameters` that describe a fitted estimator."""
    numbers = {"classes": fitted.classes_}
    if isinstance(fitted, BernoulliNB):
        names = {"feature_log_prob": "feature_log_prob_", "class_log_prior": "class_log_prior_"}
    elif isinstance(fitted, GaussianNB):
        names = {"theta": "theta_", "var": "var_", "priors": "class_prior_"}
    else:
        one = isinstance(fitted, LinearDiscriminantAnalysis)
        names = {"means": "means_", "priors": "priors_"}
        names["covariance" if one else "covariances"] = "covariance_"
    if not isinstance(fitted, BernoulliNB):
        names["constant_features"] = "constant_features_"
    return numbers | {name: getattr(fitted, own) for name, own in names.items()}


def through_json(numbers):
    return json.loads(json.dumps({name: values.tolist() for name, values in numbers.items()}))


def rebuilt(fitted, numbers, **params):
    """Return the estimator that the numbers, written as JSON and read again, make."""
    if isinstance(fitted, GaussianDiscriminantAnalysis):
        params["covariance_type"] = fitted.covariance_type
        params["standardize"] = fitted.standardize
    elif not isinstance(fitted, GaussianNB | BernoulliNB):
        params["solver"] = fitted.solver
    return type(fitted).from_parameters(**through_json(numbers), **params)


def assert_same_answers(found, expected, rows):
    for method in (
        *("predict_proba", "predict_joint_log_proba", "score_samples"),
        *("decision_function", "mahalanobis"),
    ):
        if hasattr(expected, method):
            answers = (getattr(one, method)(rows) for one in (found, expected))
            np.testing.assert_allclose(*answers, rtol=1e-9, atol=1e-9, err_msg=method)
    np.testing.assert_array_equal(found.predict(rows), expected.predict(rows))


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("labels", [Y, NAMES, Y > 0], ids=["numbers", "texts", "two"])
@pytest.mark.filterwarnings("ignore::streamgda.errors.ConstantFeatureWarning")
def test_numbers_make_an_estimator_that_predicts_the_same(name, labels, tmp_path):
    fitted = clone(EVERY[name]).fit(X, labels)
    if isinstance(fitted, QuadraticDiscriminantAnalysis | LinearDiscriminantAnalysis):
        fitted = clone(fitted).set_params(store_covariance=True).fit(X, labels)
    numbers = numbers_of(fitted)
    found = rebuilt(fitted, numbers)
    assert_same_answers(found, fitted, X)
    np.testing.assert_allclose(found.predict_proba(X.tolist()), fitted.predict_proba(X))
    for attribute, value in numbers_of(found).items():
        np.testing.assert_allclose(value, numbers[attribute]) if value.dtype.kind == "f" else (
            np.testing.assert_array_equal(value, numbers[attribute])
        )
    drawn, expected = (one.sample(5, random_state=0, y=labels[0])[0] for one in (found, fitted))
    np.testing.assert_allclose(drawn, expected, rtol=1e-6)
    found.save(tmp_path / "file")
    for other in (streamgda.load(tmp_path / "file"), pickle.loads(pickle.dumps(found))):
        assert type(other) is type(found)
        assert other.get_params() == found.get_params()
        np.testing.assert_array_equal(other.predict_proba(X), found.predict_proba(X))
        np.testing.assert_array_equal(other.sample(9, random_state=1)[0], found.sample(9, 1)[0])


@pytest.mark.parametrize("solver", ["svd", "lsqr", "eigen"])
@pytest.mark.parametrize("labels", [Y, NAMES, Y > 0], ids=["numbers", "texts", "two"])
def test_coefficients_make_an_estimator_that_predicts_the_same(solver, labels, tmp_path):
    rows = X[:, :3]
    fitted = LinearDiscriminantAnalysis(solver).fit(rows, labels)
    names = {"coef": fitted.coef_, "intercept": fitted.intercept_, "classes": fitted.classes_}
    found = LinearDiscriminantAnalysis.from_parameters(**through_json(names), solver=solver)
    found.save(tmp_path / "file")
    for one in (found, streamgda.load(tmp_path / "file"), pickle.loads(pickle.dumps(found))):
        for method in ("decision_function", "predict_proba", "predict_log_proba"):
            answers = (getattr(each, method)(rows) for each in (one, fitted))
            np.testing.assert_allclose(*answers, rtol=1e-9, atol=1e-9)
        np.testing.assert_array_equal(one.predict(rows), fitted.predict(rows))
        assert one.score(rows, labels) == fitted.score(rows, labels)
        np.testing.assert_array_equal(one.coef_, fitted.coef_)
        np.testing.assert_array_equal(one.intercept_, fitted.intercept_)
        for attribute in ("means_", "priors_", "covariance_", "xbar_", "moments_", "scalings_"):
            assert not hasattr(one, attribute)
        for method in ("mahalanobis", "score_samples", "predict_joint_log_proba"):
            with pytest.raises(UnsupportedError, match="coef and intercept determine no"):
                getattr(one, method)(rows)
        with pytest.raises(UnsupportedError):
            one.sample(3)
    with pytest.raises(InvalidDataError, match="NaN"):
        found.predict([[0, 1, np.nan]])
    with pytest.raises(ValueError, match="expecting 3 features"):
        found.predict(X)


@EVERY_ESTIMATOR
@pytest.mark.filterwarnings("ignore::streamgda.errors.ConstantFeatureWarning")
def test_an_estimator_of_numbers_has_no_moments(name):
    fitted = make(name).fit(X, Y)
    if name in STORING:
        fitted = clone(STORING[name]).fit(X, Y)
    found = rebuilt(fitted, numbers_of(fitted))
    before = found.predict_proba(X)
    for attribute in ("moments_", "class_count_", "epsilon_", "shrinkage_", "feature_count_"):
        assert not hasattr(found, attribute)
    calls = [
        lambda: found.partial_fit(X, Y),
        lambda: found.partial_fit(X[:3], Y[:3]),
        lambda: found.forget(X, Y),
        lambda: found.retire([0]),
        found.refit,
    ]
    if hasattr(found, "relative_mahalanobis"):
        calls.append(lambda: found.leave_one_out_score(X, Y))
        calls.append(lambda: found.relative_mahalanobis(X))
    for call in calls:
        with pytest.raises(UnsupportedError, match="made by from_parameters and has no moments_"):
            call()
    np.testing.assert_array_equal(found.predict_proba(X), before)
    assert not hasattr(found, "moments_")
    assert repr(found)
    assert found._repr_html_()
    with pytest.raises(NotFittedError):
        clone(found).predict(X)
    params = {k: v for k, v in fitted.get_params().items() if k in found.get_params()}
    assert_same_bits(results(found.set_params(**params).fit(X, Y), X), results(fitted, X))
    found.partial_fit(X, Y)


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"means": [[0.0, 1.0]]}, "means have shape"),
        ({"means": 1.0}, "means have shape"),
        ({"means": [["a", "b"], ["c", "d"]]}, "means="),
        ({"means": [[0.0, np.inf], [1.0, 1.0]]}, "finite"),
        ({"covariances": np.ones((2, 3, 3))}, "covariances have shape"),
        ({"covariances": [[[1, 0.5], [0, 1]]] * 2}, "symmetric"),
        ({"covariances": [[[-1, 0], [0, 1]]] * 2}, "negative"),
        ({"covariances": [[[np.nan, 0], [0, 1]]] * 2}, "finite"),
        ({"priors": [0.5, 0.3, 0.2]}, "priors"),
        ({"priors": [-0.5, 1.5]}, "non-negative"),
        ({"classes": [1, 0]}, "sorted"),
        ({"classes": [1, 1]}, "sorted"),
        ({"classes": []}, "sorted"),
        ({"constant_features": [2]}, "constant_features"),
        ({"reg_param": 3}, "reg_param"),
    ],
)
def test_numbers_that_do_not_fit(changed, match):
    given = {"means": [[0, 0], [1, 2]], "covariances": [[[1, 0], [0, 1]]] * 2}
    given |= {"priors": [0.5, 0.5], "classes": [0, 1]}
    assert QuadraticDiscriminantAnalysis.from_parameters(**given).predict([[1, 2]]) == 1
    with pytest.raises(InvalidParameterError, match=match):
        QuadraticDiscriminantAnalysis.from_parameters(**given | changed)


def test_singular_covariances_are_refused_by_quadratic_discriminants_only():
    one = np.ones((2, 2))
    with pytest.raises(SingularCovarianceError, match="rank 1 of 2"):
        QuadraticDiscriminantAnalysis.from_parameters(np.eye(2), [one, one], [0.5, 0.5], [0, 1])
    given = {"means": np.eye(2), "priors": [0.5, 0.5], "classes": [0, 1]}
    lda = LinearDiscriminantAnalysis.from_parameters(covariance=one, **given)
    np.testing.assert_allclose(lda.decision_function([[1.0, 5.0]]), 0, atol=1e-15)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"coef": [[1.0]], "intercept": [0.0]},
        {"coef": [[1.0]], "classes": [0, 1]},
        {"coef": [[1.0]], "intercept": [0.0], "classes": [0, 1], "priors": [0.5, 0.5]},
        {"means": [[0.0], [1.0]], "classes": [0, 1], "priors": [0.5, 0.5]},
        {"coef": [[1.0]] * 4, "intercept": [0.0], "classes": [0, 1]},
        {"coef": [1.0], "intercept": [0.0], "classes": [0, 1]},
        {"coef": [[np.nan]], "intercept": [0.0], "classes": [0, 1]},
    ],
)
def test_discriminants_that_do_not_fit(given):
    with pytest.raises(InvalidParameterError, match="coef"):
        LinearDiscriminantAnalysis.from_parameters(**given)


def test_logarithms_that_are_none():
    for logs, priors in (
        ([[0.5], [-1.0]], [-0.7, -0.7]),
        ([-1.0, -1.0], [-0.7, -0.7]),
        ([[-1.0], [-1.0]], [-np.inf, -np.inf]),
        ([[-1.0]], [-0.7, -0.7]),
    ):
        with pytest.raises(InvalidParameterError, match="no logarithms of probabilities"):
            BernoulliNB.from_parameters(logs, priors, [0, 1])


def test_forged_numbers_are_damage(tmp_path):
    nb = GaussianNB.from_parameters([[0.0], [1.0]], [[1.0], [1.0]], [0.5, 0.5], [0, 1])
    vars(nb)["_numbers"] = {**nb._numbers, "covariances": np.array([[-1.0], [1.0]])}
    nb.save(tmp_path / "file")
    with pytest.raises(FormatError, match="negative variances"):
        streamgda.load(tmp_path / "file")


# --- parameters that are set after the fit ------------------------------------------------------


@EVERY_ESTIMATOR
@pytest.mark.filterwarnings("ignore::streamgda.errors.ConstantFeatureWarning")
def test_refit_applies_the_present_parameters_without_rows(name):
    fitted = make(name).fit(X, Y)
    priors = {"class_prior" if name == "BernoulliNB" else "priors": [0.5, 0.3, 0.2]}
    before = results(fitted, X)
    fitted.set_params(**priors)
    assert_same_bits(results(fitted, X), before)
    moments = fitted.moments_
    assert fitted.refit() is fitted
    assert fitted.moments_ is moments
    assert_same_bits(results(fitted, X), results(make(name).set_params(**priors).fit(X, Y), X))
    fitted.set_params(**{key: [0.5, 0.5] for key in priors})
    held = results(fitted, X)
    with pytest.raises(InvalidParameterError):
        fitted.refit()
    assert_same_bits(results(fitted, X), held)
    with pytest.raises(NotFittedError):
        make(name).refit()


def test_refit_refuses_parameters_that_the_moments_do_not_have():
    nb = BernoulliNB(binarize=0.0).fit(X, Y)
    for call in (nb.refit, lambda: nb.partial_fit(X, Y), lambda: nb.forget(X, Y)):
        nb.set_params(binarize=1.0)
        with pytest.raises(InvalidParameterError, match=r"binarize=1.0, .* binarize=0.0; call fit"):
            call()
    with pytest.raises(InvalidParameterError, match=r"from_moments with moments_\.reduce"):
        GaussianDiscriminantAnalysis().fit(X[:, :3], Y).set_params(covariance_type="tied").refit()


# --- fitted attributes ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.filterwarnings("ignore::streamgda.errors.ConstantFeatureWarning")
def test_fitted_attributes_cannot_be_changed(name):
    fitted = clone(EVERY[name]).fit(X, Y)
    single = clone(EVERY[name]).fit(X.astype(np.float32), Y)
    names = [n for n in dir(fitted) if n.endswith("_") and not n.startswith("_")]
    learnt = [n for n in names if hasattr(fitted, n)]
    assert {"classes_", "class_count_", "moments_", "model_"} < set(learnt)
    assert fitted.class_count_.dtype == np.float64
    for attribute in learnt:
        if attribute in ("n_features_in_",):
            continue
        with pytest.raises(AttributeError, match=r"cannot be set.*refit\(\).*from_parameters"):
            setattr(fitted, attribute, getattr(fitted, attribute))
        for one in (fitted, single):
            value = getattr(one, attribute)
            for array in value if isinstance(value, tuple) else [value]:
                if isinstance(array, np.ndarray):
                    with pytest.raises(ValueError, match="read-only"):
                        array[...] = 0


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
def test_models_of_given_numbers(covariance_type):
    """They score as estimators of these numbers, and are compared as models of moments are."""
    gda = GaussianDiscriminantAnalysis(covariance_type).fit(X[:, :3], Y)
    numbers = gda.means_, gda.covariance_, gda.priors_, gda.classes_
    model = streamgda.GaussianModel.from_parameters(*numbers, covariance_type=covariance_type)
    given = GaussianDiscriminantAnalysis.from_parameters(*numbers, covariance_type=covariance_type)
    for one in (model, given.model_):
        np.testing.assert_allclose(one.log_density(X[:, :3]), gda.score_samples(X[:, :3]))
        np.testing.assert_array_equal(one.predict(X[:, :3]), gda.predict(X[:, :3]))
    expected = streamgda.separability(gda)
    np.testing.assert_allclose(streamgda.separability(model), expected)
    with pytest.raises(InvalidParameterError, match="each label once, sorted"):
        streamgda.GaussianModel.from_parameters(numbers[0], numbers[1], numbers[2], [2, 1, 0])


def test_given_arrays_can_be_written_to_afterwards():
    """Labels, means and covariances are copied, of models and of moments."""
    labels, shares = np.array(["a", "b"]), np.array([0.5, 0.5])
    given = np.eye(2), np.array([np.eye(2), 2 * np.eye(2)]), shares, labels
    qda = QuadraticDiscriminantAnalysis.from_parameters(*given)
    model = GaussianModel.from_parameters(*given)
    moments = ClassMoments.from_statistics(labels, [5, 6], given[0], covariances=given[1])
    kept = [held.to_bytes() for held in (qda, model, moments)]
    for array in given:
        array[:] = array[::-1].copy()
    given[1][:] = 9
    assert [held.to_bytes() for held in (qda, model, moments)] == kept
    assert qda.predict([[1.0, 0.0], [0.0, 1.0]]).tolist() == ["a", "b"]
