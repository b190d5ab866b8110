"""Exact leave-one-out: the same posteriors as of a fit without each row."""

import warnings
from itertools import pairwise

import dask.array as da
import naive
import numpy as np
import pandas as pd
import pytest
import zarr
from grids import THOROUGH, pairs
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import blobs
from sklearn.base import clone
from sklearn.covariance import OAS

from streamgda import (
    GaussianDiscriminantAnalysis,
    GaussianNB,
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
)
from streamgda.errors import (
    InvalidDataError,
    InvalidParameterError,
    SingularCovarianceError,
    StreamGDAError,
    UnsupportedError,
)
from streamgda.kernels import scoring
from streamgda.models import leave_one_out
from streamgda.models import model as scores

TYPES = naive.COVARIANCE_TYPES
EVERY_TYPE = pytest.mark.parametrize("covariance_type", TYPES)
REGULARISATIONS = [
    {},
    {"ddof": 1},
    {"reg_param": 0.1},
    {"shrinkage": 0.2},
    {"var_smoothing": 1e-3},
    {"ddof": 1, "reg_param": 0.1, "shrinkage": 0.2, "var_smoothing": 1e-3},
]
CLOSE = {"rtol": 0, "atol": 1e-9}


def refitted(estimator, X, y, rows, weights=None):
    """Posteriors of rows by fits without them; NaN where there is none."""
    return refitted_and_error(estimator, X, y, rows, weights)[0]


def refitted_and_error(estimator, X, y, rows, weights=None):
    """The same, and the rounding errors of refits: linear scores are as large as any distance."""
    classes = np.unique(y if weights is None else y[weights > 0])
    out, errors = np.zeros((len(rows), classes.size)), np.full((len(rows), 1), 1e-8)
    for i, row in enumerate(rows):
        kept = np.arange(len(y)) != row
        w = () if weights is None else (weights[kept],)
        try:
            fitted = clone(estimator).fit(X[kept], y[kept], *w)
        except StreamGDAError:
            out[i] = np.nan
            continue
        out[i, np.isin(classes, fitted.classes_)] = fitted.predict_proba(X[row : row + 1])[0]
        if fitted.moments_.covariance_type.startswith("tied"):
            errors[i] += 1e-14 * fitted.mahalanobis(X[row : row + 1]).max()
    return out, errors


# --- against fits without each row ----------------------------------------------------------------


@pairs(
    "covariance_type, regularisation, priors, weighted",
    TYPES,
    REGULARISATIONS,
    [None, [0.2, 0.3, 0.5]],
    [False, True],
)
def test_posteriors_are_those_of_the_oracle(covariance_type, regularisation, priors, weighted):
    X, y = blobs(120)
    rows, parameters = np.arange(0, 120, 12), {**regularisation, "priors": priors}
    weights = np.random.default_rng(1).integers(0, 4, len(y)) / 2 if weighted else None
    gda = GaussianDiscriminantAnalysis(covariance_type, **parameters).fit(X, y, weights)
    parameters["weights"] = weights
    expected = naive.leave_one_out(X, y, rows, covariance_type, **parameters)
    found = gda.leave_one_out_proba(X, y, weights)
    np.testing.assert_allclose(found[rows], expected, **CLOSE)
    if weighted:
        without = np.flatnonzero(weights == 0)
        plain = gda.predict_proba(X[without])
        np.testing.assert_allclose(found[without], plain, rtol=1e-9, atol=1e-12)


@pairs("covariance_type, var_smoothing", ["full", "diag", "spherical"], [1e-12, 1e-9, 1e-7, 1e-4])
def test_small_changes_of_what_smoothing_adds_are_few_terms(
    monkeypatch, covariance_type, var_smoothing
):
    X, y = blobs(120)
    X = X * np.logspace(-1, 1, X.shape[1])
    gda = GaussianDiscriminantAnalysis(covariance_type, var_smoothing=var_smoothing).fit(X, y)
    found = gda.leave_one_out_proba(X, y)
    monkeypatch.setattr(leave_one_out, "ROUNDING", 0.0)
    np.testing.assert_allclose(found, gda.leave_one_out_proba(X, y), rtol=1e-11)


@pairs("covariance_type, regularisation", ["full", "tied", "diag"], [{"reg_param": 0.2}, {}])
def test_many_features(covariance_type, regularisation):
    rng = np.random.default_rng(0)
    d = scoring.PANEL_FEATURES + 5
    X, y = rng.normal(size=(480, d)), np.repeat([0, 1, 2], 160)
    X += rng.normal(size=(3, d))[y] * 0.2
    rows = np.arange(0, 480, 160)
    gda = GaussianDiscriminantAnalysis(covariance_type, **regularisation).fit(X, y)
    expected = naive.leave_one_out(X, y, rows, covariance_type, **regularisation)
    np.testing.assert_allclose(gda.leave_one_out_proba(X, y)[rows], expected, **CLOSE)
    single = gda.leave_one_out_proba(X.astype(np.float32), y)[rows]
    np.testing.assert_allclose(single, expected, atol=1e-3)
    right = gda.leave_one_out_proba(X, y).argmax(axis=1) == y
    assert gda.leave_one_out_score(X, y) == right.mean() < gda.score(X, y)


@EVERY_TYPE
@pytest.mark.parametrize("regularisation", [{}, {"reg_param": 0.2}])
def test_a_shift_without_rounding_changes_nothing(covariance_type, regularisation):
    X, y = blobs(120)
    X = np.round(X * 1024) / 1024
    gda = GaussianDiscriminantAnalysis(covariance_type, **regularisation)
    near, far = (clone(gda).fit(rows, y).leave_one_out_proba(rows, y) for rows in (X, X + 1e9))
    np.testing.assert_allclose(far, near, rtol=1e-9, atol=1e-12)


@pairs("covariance_type, regularisation", TYPES, [*REGULARISATIONS[2:], {"var_smoothing": 1e-12}])
def test_posteriors_do_not_depend_on_other_rows(covariance_type, regularisation):
    """Nor on chunks, and so on the number of threads."""
    X, y = blobs(300)
    gda = GaussianDiscriminantAnalysis(covariance_type, **regularisation).fit(X, y)
    bounds = pairwise([*range(40), 140, 300])
    parts = [gda.leave_one_out_proba(X[i:j], y[i:j]) for i, j in bounds]
    np.testing.assert_array_equal(np.vstack(parts), gda.leave_one_out_proba(X, y))


# --- rows that the fit cannot do without ----------------------------------------------------------


@pytest.mark.parametrize("covariance_type", ["tied", "tied_diag", "tied_spherical", "full"])
def test_the_only_row_of_a_class_has_probability_zero_of_it(covariance_type):
    X, y = blobs(60)
    X, y = np.vstack([X, X[:1] + 2]), np.append(y, 3)
    how = {"reg_param": 0.1} if covariance_type == "full" else {"ddof": 1}
    gda = GaussianDiscriminantAnalysis(covariance_type, **how).fit(X, y)
    found = gda.leave_one_out_proba(X, y)
    rows = np.array([0, 30, 60])
    expected = naive.leave_one_out(X, y, rows, covariance_type, **how)
    np.testing.assert_allclose(found[rows], expected, **CLOSE)
    assert found[60, 3] == 0
    fixed = GaussianDiscriminantAnalysis(covariance_type, priors=[0.25] * 4, **how).fit(X, y)
    with pytest.raises(InvalidDataError, match="row 60 is the only one of class 3"):
        fixed.leave_one_out_proba(X, y)


def test_too_few_classes_without_a_row():
    X, y = np.array([[0.0], [1.0], [3.0], [9.0]]), [0, 0, 0, 1]
    with pytest.raises(InvalidDataError, match="without row 3: The number of classes"):
        GaussianDiscriminantAnalysis("tied").fit(X, y).leave_one_out_proba(X, y)
    assert GaussianNB(var_smoothing=0.1).fit(X, y).leave_one_out_proba(X, y)[3].tolist() == [1, 0]


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
def test_covariances_that_are_singular_without_a_row(covariance_type):
    X, y = blobs(60, 2)
    X[y == 0] = X[y == 0][0]
    at = np.flatnonzero(y == 0)
    if covariance_type == "spherical":
        X[at[1], 0] += 1
    elif covariance_type == "diag":
        X[at[1]] += 1
    else:
        X[at, 0] += np.arange(at.size)
        X[at[1], 1] += 1
        if covariance_type == "tied":
            X, y = X[at], np.arange(at.size) % 2
            X[:, 1] += y
            at = np.arange(at.size)
    gda = GaussianDiscriminantAnalysis(covariance_type).fit(X, y)
    with pytest.raises(SingularCovarianceError, match=f"without row {at[1]}: .* is singular"):
        gda.leave_one_out_proba(X, y)


GRID = [
    *(GaussianDiscriminantAnalysis(t, **r) for t in TYPES for r in REGULARISATIONS),
    *(GaussianNB(var_smoothing=v) for v in (1e-9, 1e-3, 0)),
    GaussianNB(priors=[0.2, 0.3, 0.5]),
    LinearDiscriminantAnalysis(),
    LinearDiscriminantAnalysis(priors=[0.2, 0.3, 0.5]),
    *(LinearDiscriminantAnalysis(s, shrinkage=a) for s in ("lsqr", "eigen") for a in (None, 0.2)),
    QuadraticDiscriminantAnalysis(),
    QuadraticDiscriminantAnalysis(reg_param=0.01),
    QuadraticDiscriminantAnalysis(priors=[0.2, 0.3, 0.5], reg_param=0.1),
    QuadraticDiscriminantAnalysis(solver="eigen", shrinkage=0.3),
]
PECULIAR = ["rare", "outlier", "collinear", "large", "small", "binary", "constant"]
WEIGHTS = {
    "none": lambda random, n: None,
    "counts": lambda random, n: random.integers(0, 4, n).astype(float),
    "real": lambda random, n: random.exponential(size=n),
    "wide": lambda random, n: 10 ** random.uniform(-6, 3, n),
}


@given(
    estimator=st.sampled_from(GRID),
    seed=st.integers(0, 2**32 - 1),
    sizes=st.tuples(*[st.integers(1, 9)] * 3),
    d=st.integers(1, 4),
    apart=st.sampled_from([0, 1, 5]),
    rounded=st.booleans(),
    peculiar=st.lists(st.sampled_from(PECULIAR), max_size=3, unique=True),
    weighted=st.sampled_from(sorted(WEIGHTS)),
)
@settings(max_examples=300 if THOROUGH else 60)
def test_any_rows_and_weights(estimator, seed, sizes, d, apart, rounded, peculiar, weighted):
    """Posteriors are those of refits, and fail where a refit does."""
    random = np.random.default_rng(seed)
    y = random.permutation(np.repeat([0, 1, 2], sizes))
    X = random.normal(size=(y.size, d)) + apart * random.normal(size=(3, d))[y]
    X = X.round() if rounded else X
    for kind in peculiar:
        row, j = random.integers(y.size), random.integers(d)
        match kind:
            case "rare":
                X[:, j], X[row, j] = 0, random.normal()
            case "outlier":
                X[row, j] += 10.0 ** random.integers(2, 7)
            case "collinear":
                X[:, j] = X[:, j - 1] * random.normal()
            case "large" | "small":
                X[:, j] *= {"large": 1e4, "small": 1e-5}[kind]
            case "binary":
                X[:, j] = random.random(y.size) < 0.2
            case "constant":
                X[y == y[row], j] = X[row, j]
    weights = WEIGHTS[weighted](random, y.size)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        try:
            fitted = clone(estimator).fit(X, y, weights)
        except StreamGDAError:
            return
        expected, errors = refitted_and_error(estimator, X, y, range(y.size), weights)
    try:
        found = fitted.leave_one_out_proba(X, y, weights)
    except UnsupportedError:
        assert isinstance(estimator, LinearDiscriminantAnalysis)
    except StreamGDAError:
        assert np.isnan(expected).any()
    else:
        assert (np.abs(found - expected) <= errors).all()


def test_only_rows_of_which_nearly_nothing_would_be_left_are_refitted(monkeypatch):
    X, y = blobs(300)
    X[:, 3] = 0
    at = [5, 69]
    assert y[5] != y[69]
    X[at, 3] = 1, 2
    refits = []
    whole = GaussianNB._refitted
    monkeypatch.setattr(
        GaussianNB, "_refitted", lambda *given: refits.append(given[-1]) or whole(*given)
    )
    nb = GaussianNB().fit(X, y)
    found = nb.leave_one_out_proba(X, y)
    np.testing.assert_allclose(found[::7], refitted(nb, X, y, range(0, 300, 7)), **CLOSE)
    assert refits == at
    lazy = nb.leave_one_out_proba(da.from_array(X, chunks=(70, 4)), y)
    np.testing.assert_allclose(lazy.compute(), found, **CLOSE)
    assert nb.leave_one_out_score(X, y) == (found.argmax(axis=1) == y).mean()
    np.testing.assert_allclose(nb.leave_one_out_proba(X[200:], y[200:]), found[200:], **CLOSE)
    with pytest.raises(InvalidDataError, match=r"without row 5, .* give all of them"):
        nb.leave_one_out_proba(X[:90], y[:90])


def test_priors_of_all_rows_or_of_the_others():
    X, y = blobs(31)
    shares = np.bincount(y) / y.size
    for estimator in (GaussianNB(), GaussianDiscriminantAnalysis("tied")):
        fitted = clone(estimator).fit(X, y)
        counted = fitted.leave_one_out_proba(X, y, priors="counted")
        np.testing.assert_allclose(counted, refitted(estimator, X, y, range(31)), **CLOSE)
        fixed = clone(estimator).set_params(priors=shares)
        expected = refitted(fixed, X, y, range(31))
        np.testing.assert_allclose(
            fitted.leave_one_out_proba(X, y, priors="fixed"), expected, **CLOSE
        )
        assert np.abs(expected - counted).max() > 1e-4
        with pytest.raises(InvalidParameterError, match=r"priors='given'.*'counted' or 'fixed'"):
            fitted.leave_one_out_proba(X, y, priors="given")


def test_rows_without_weight_may_have_any_label():
    X, y = blobs(40)
    X, y = np.vstack([X, X[:1]]), np.append(y, 7)
    weights = np.append(np.ones(40), 0)
    qda = QuadraticDiscriminantAnalysis().fit(X, y, weights)
    found = qda.leave_one_out_proba(X, y, weights)
    np.testing.assert_allclose(found[40], qda.predict_proba(X[:1])[0], **CLOSE)
    np.testing.assert_allclose(found[:40], qda.leave_one_out_proba(X[:40], y[:40]), **CLOSE)


# --- rows, labels and models ----------------------------------------------------------------------


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag"])
def test_the_smallest_weights_that_count_are_those_of_whole_rows(covariance_type):
    X, y = blobs(60, 3)
    estimator = GaussianDiscriminantAnalysis(covariance_type)
    expected = estimator.fit(X, y).leave_one_out_proba(X, y), estimator.p_values(X)
    weights = np.full(60, 1.1e-150)
    estimator.fit(X, y, weights)
    found = estimator.leave_one_out_proba(X, y, weights), estimator.p_values(X)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-12)
    assert not (estimator.moments_ * 0.01).class_count.any()
    with pytest.raises(InvalidDataError, match="every sample_weight is zero"):
        estimator.fit(X, y, weights * 0.9)


def test_containers(tmp_path):
    X, y = blobs(200)
    names = np.array(["ant", "bee", "cow"])[y]
    qda = QuadraticDiscriminantAnalysis().fit(X, names)
    expected = qda.leave_one_out_proba(X, names)
    stored = zarr.create_array(tmp_path / "X.zarr", data=X, chunks=(30, 2))
    mapped = np.memmap(tmp_path / "X.bin", X.dtype, "w+", shape=X.shape)
    mapped[...] = X
    for rows in (X.tolist(), stored, mapped, np.asfortranarray(X)):
        np.testing.assert_array_equal(qda.leave_one_out_proba(rows, names), expected)
    framed = QuadraticDiscriminantAnalysis().fit(pd.DataFrame(X, columns=list("abcd")), names)
    frame = pd.DataFrame(X, columns=list("abcd"))
    found = framed.leave_one_out_proba(frame, pd.Series(names))
    np.testing.assert_array_equal(found, expected)
    lazy = qda.leave_one_out_proba(da.from_array(X, chunks=(70, 4)), names)
    assert isinstance(lazy, da.Array)
    np.testing.assert_allclose(lazy.compute(), expected, rtol=1e-12)
    out = qda.leave_one_out_proba(stored, names, out=tmp_path / "out.zarr")
    np.testing.assert_array_equal(out[:], expected)
    share = (expected.argmax(axis=1) == y).mean()
    labels = da.from_array(names, chunks=50)
    for rows in (X, stored, da.from_array(X, chunks=(70, 4))):
        assert qda.leave_one_out_score(rows, labels) == share
    assert qda.leave_one_out_score(X, names, np.ones(200)) == share


def test_numbers_of_rows_do_not_matter(use_threads, monkeypatch):
    X, y = blobs(2000)
    gda = GaussianDiscriminantAnalysis("tied", reg_param=0.1).fit(X, y)
    expected = gda.leave_one_out_proba(X, y)
    use_threads(3)
    monkeypatch.setattr(scores, "_CHUNK_ELEMENTS", 1)
    np.testing.assert_allclose(gda.leave_one_out_proba(X, y), expected, rtol=1e-9, atol=1e-15)


def test_estimators_from_files_and_moments(tmp_path):
    X, y = blobs(100)
    qda = QuadraticDiscriminantAnalysis(reg_param=0.1).fit(X, y)
    expected = qda.leave_one_out_proba(X, y)
    qda.save(tmp_path / "qda.zip")
    loaded = QuadraticDiscriminantAnalysis.load(tmp_path / "qda.zip")
    np.testing.assert_allclose(loaded.leave_one_out_proba(X, y), expected, rtol=1e-12)
    gda = GaussianDiscriminantAnalysis.from_moments(qda.moments_, reg_param=0.1)
    np.testing.assert_allclose(gda.leave_one_out_proba(X, y), expected, rtol=1e-12)
    tied = GaussianDiscriminantAnalysis("tied_diag").fit(X, y)
    again = GaussianDiscriminantAnalysis.from_moments(qda.moments_, covariance_type="tied_diag")
    expected = tied.leave_one_out_proba(X, y)
    np.testing.assert_allclose(again.leave_one_out_proba(X, y), expected, rtol=1e-9, atol=1e-15)


def test_rows_that_are_not_those_of_the_fit():
    X, y = blobs(50)
    qda = QuadraticDiscriminantAnalysis().fit(X, y)
    with pytest.raises(InvalidDataError, match=r"y\[0\] is 7, which is not a class"):
        qda.leave_one_out_proba(X, y + 7)
    with pytest.raises(InvalidDataError, match="class 0 has a weight of"):
        qda.leave_one_out_proba(X, np.zeros(50, int))
    with pytest.raises(InvalidDataError, match="50"):
        qda.leave_one_out_proba(X[:20], y)
    unknown = da.from_array(X, chunks=(25, 4))
    unknown = unknown[unknown[:, 0] > -np.inf]
    with pytest.raises(InvalidDataError, match="compute_chunk_sizes"):
        qda.leave_one_out_proba(unknown, y)


@pytest.mark.parametrize(
    ("estimator", "named"),
    [
        (GaussianDiscriminantAnalysis(shrinkage="oas"), "shrinkage='oas'"),
        (GaussianDiscriminantAnalysis(shrinkage="auto"), "shrinkage='auto'"),
        (GaussianDiscriminantAnalysis(pooling=0.5), "pooling=0.5"),
        (GaussianDiscriminantAnalysis(standardize=True, reg_param=0.1), "standardize"),
        (LinearDiscriminantAnalysis("lsqr", priors=[0.2, 0.3, 0.5]), "priors"),
        (LinearDiscriminantAnalysis("lsqr", covariance_estimator=OAS()), "covariance_estimator"),
    ],
    ids=str,
)
def test_models_without_a_formula(estimator, named):
    X, y = blobs(100)
    with pytest.raises(UnsupportedError, match=named):
        estimator.fit(X, y).leave_one_out_proba(X, y)


def test_dropped_directions_have_no_formula():
    X, y = blobs(100)
    lda = LinearDiscriminantAnalysis()
    with pytest.warns(UserWarning, match="dropped"):
        lda.fit(np.column_stack([X, X[:, 0]]), y)
    with pytest.raises(UnsupportedError, match="rank 4 of 5"):
        lda.leave_one_out_proba(np.column_stack([X, X[:, 0]]), y)
    means = np.array([[0.0, 0], [1, 0], [2, 0]])[y]
    X = X[:, :2] - np.array([X[y == k, :2].mean(axis=0) for k in range(3)])[y] + means
    with pytest.raises(UnsupportedError, match="fewer directions"):
        lda.fit(X, y).leave_one_out_proba(X, y)
    lsqr = LinearDiscriminantAnalysis("lsqr")
    found = clone(lsqr).fit(X, y).leave_one_out_proba(X, y)
    np.testing.assert_allclose(found[::9], refitted(lsqr, X, y, range(0, 100, 9)), **CLOSE)
