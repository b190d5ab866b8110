"""Estimators converted to those of scikit-learn, and further to ONNX, make the same predictions."""

import pickle

import numpy as np
import pandas as pd
import pytest
from grids import in_turn
from samples import NEEDS_1_9, blobs
from sklearn import datasets, discriminant_analysis, naive_bayes
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from streamgda import (
    BernoulliNB,
    GaussianDiscriminantAnalysis,
    GaussianNB,
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
    accumulate,
)
from streamgda.errors import ConstantFeatureWarning, UnsupportedError

LETTERS = np.array(list("abcdefghij"))
LDA, QDA = LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
THEIR_LDA = discriminant_analysis.LinearDiscriminantAnalysis
THEIR_QDA = discriminant_analysis.QuadraticDiscriminantAnalysis

CONVERTED = [
    (LDA(), THEIR_LDA),
    (LDA("eigen", 0.1, n_components=1), THEIR_LDA),
    (LDA("lsqr", "oas"), THEIR_LDA),
    (QDA(reg_param=0.1, store_covariance=True), THEIR_QDA),
    (QDA(solver="eigen", shrinkage="auto"), THEIR_QDA),
    (GaussianNB(), naive_bayes.GaussianNB),
    (BernoulliNB(binarize=3.0), naive_bayes.BernoulliNB),
]
METHODS = ("predict_proba", "predict_log_proba", "decision_function", "transform")


def assert_same(ours, theirs, X):
    """Check all predictions to 1e-12, relative to values above one."""
    np.testing.assert_array_equal(theirs.predict(X), ours.predict(X), strict=True)
    for method in METHODS:
        if not (hasattr(ours, method) and hasattr(theirs, method)):
            continue
        if method == "transform" and ours.solver == "lsqr":
            continue
        found, expected = getattr(theirs, method)(X), getattr(ours, method)(X)
        if method == "predict_log_proba" and isinstance(theirs, THEIR_LDA):
            found, expected = np.exp(found), np.exp(expected)  # Logarithms have lost digits.
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12, strict=True)


@pytest.mark.filterwarnings("ignore::streamgda.errors.ConstantFeatureWarning")
@pytest.mark.filterwarnings("ignore::streamgda.errors.CollinearityWarning")
@in_turn("converted, name", CONVERTED, ["iris", "breast_cancer", "digits"])
def test_same_predictions(converted, name):
    ours, kind = converted
    X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    X, y = X[::3], LETTERS[y[::3]]
    weight = None if getattr(ours, "shrinkage", None) == "auto" else 1 + X[:, 0] % 2
    ours = clone(ours).fit(X, y, weight)
    theirs = ours.to_sklearn()
    assert type(theirs) is kind
    assert_same(ours, theirs, X)
    assert_same(ours, pickle.loads(pickle.dumps(theirs)), X[:5])


@NEEDS_1_9
@pytest.mark.parametrize(
    "ours",
    [
        LDA(priors=[0.2, 0.3, 0.5], store_covariance=True),
        LDA("lsqr", "oas"),
        LDA("eigen", "auto", n_components=1),
        QDA(reg_param=0.2, priors=[0.2, 0.3, 0.5]),
        QDA(solver="eigen", shrinkage="oas"),
        GaussianNB(priors=[0.2, 0.3, 0.5], var_smoothing=1e-3),
        BernoulliNB(alpha=0.5, fit_prior=False),
    ],
    ids=repr,
)
def test_parameters_are_those_that_fit_the_same_model(ours):
    X, y = blobs()
    theirs = ours.fit(X, y).to_sklearn()
    again = clone(theirs).fit(X, y)
    np.testing.assert_allclose(again.predict_proba(X), ours.predict_proba(X), atol=1e-9)
    learned = {name for name in vars(again) if name.endswith("_") and not name.startswith("_")}
    assert learned <= vars(theirs).keys()
    learned -= {"rotations_", "scalings_"}  # Axes or signs may differ.
    if getattr(ours, "solver", None) == "eigen":  # There, they come from shrunk sums of all rows.
        learned.discard("explained_variance_ratio_")
    for name in learned:
        np.testing.assert_allclose(
            getattr(theirs, name), getattr(again, name), atol=1e-9, err_msg=name
        )


def test_constant_features_change_no_prediction():
    X, y = blobs()
    X = np.column_stack([X, np.full(len(X), 7.0)])[:, [0, 4, 1, 2, 3]]
    for ours in (LDA(), LDA("eigen", 0.1), QDA(), GaussianNB()):
        with pytest.warns(ConstantFeatureWarning):
            theirs = ours.fit(X, y).to_sklearn()
        assert_same(ours, theirs, X)
        elsewhere = X + np.array([0, 100.0, 0, 0, 0])  # This value was never learned.
        np.testing.assert_allclose(
            theirs.predict_proba(elsewhere), ours.predict_proba(X), atol=1e-10
        )


KINDS = pytest.mark.parametrize(
    "ours", [LDA(), LDA("lsqr"), QDA(), GaussianNB(), BernoulliNB()], ids=repr
)


@KINDS
# A prior of zero has no logarithm in scikit-learn.
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_numbers_of_classes_and_classes_without_rows(ours):
    X, y = blobs()
    two = clone(ours).fit(X[y > 0], y[y > 0] == 1)
    assert_same(two, two.to_sklearn(), X)
    one = clone(ours).partial_fit(X, np.full(len(X), "a"))
    theirs = one.to_sklearn()
    np.testing.assert_array_equal(theirs.predict(X), one.predict(X))
    method = "decision_function" if isinstance(ours, LDA) else "predict_proba"
    np.testing.assert_array_equal(getattr(theirs, method)(X), getattr(one, method)(X))
    declared = clone(ours).partial_fit(X, y, classes=range(-1, 5))
    theirs = declared.to_sklearn()
    np.testing.assert_array_equal(theirs.predict(X), declared.predict(X))
    np.testing.assert_allclose(theirs.predict_proba(X), declared.predict_proba(X), atol=1e-12)


def test_feature_names_and_moments():
    X, y = blobs()
    frame = pd.DataFrame(X, columns=list("abcd"))
    theirs = QDA().fit(frame, y).to_sklearn()
    assert theirs.feature_names_in_.tolist() == list("abcd")
    assert theirs.predict(frame).shape == y.shape  # A warning would be an error.
    with pytest.raises(ValueError, match="feature names"):
        theirs.predict(frame[list("dcba")])
    moments = accumulate(X, y)
    assert_same(QDA.from_moments(moments), QDA.from_moments(moments).to_sklearn(), X)


def test_what_scikit_learn_does_not_have_raises():
    X, y = blobs()
    with pytest.raises(UnsupportedError, match="scikit-learn has no Gaussian"):
        GaussianDiscriminantAnalysis().fit(X, y).to_sklearn()
    with pytest.raises(UnsupportedError, match="set alpha above 0"):
        BernoulliNB(alpha=0.0).fit(np.eye(3), [0, 0, 1]).to_sklearn()
    with pytest.raises(NotFittedError):
        LDA().to_sklearn()


# --- ONNX -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("ours", [LDA(), QDA(), GaussianNB(), BernoulliNB()], ids=repr)
def test_onnx(ours, dtype):
    onnxruntime = pytest.importorskip("onnxruntime")
    skl2onnx = pytest.importorskip("skl2onnx")
    X, y = blobs()
    X, y = X.astype(dtype), LETTERS[y]
    theirs = ours.fit(X, y).to_sklearn()
    model = skl2onnx.to_onnx(theirs, X[:1], options={"zipmap": False})
    session = onnxruntime.InferenceSession(model.SerializeToString())
    labels, probabilities = session.run(None, {"X": X})
    np.testing.assert_array_equal(np.ravel(labels), ours.predict(X))
    exact = dtype is np.float64 and not isinstance(ours, BernoulliNB)  # Others are rounded.
    np.testing.assert_allclose(probabilities, ours.predict_proba(X), atol=1e-12 if exact else 1e-5)
