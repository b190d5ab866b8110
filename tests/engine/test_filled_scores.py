"""Invalid rows get a fill value as their result, in every container and by every method."""

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from samples import ESTIMATORS, METHODS, blobs, held, make
from stops import Rows

from streamgda import (
    BernoulliNB,
    GaussianNB,
    LinearDiscriminantAnalysis,
)
from streamgda.errors import CheckpointError, InvalidDataError, InvalidParameterError

NODATA = -9999
CLEAN, y = blobs(n_features=3)
X = CLEAN.copy()
X[[0, 40, 41], [1, 0, 2]] = np.nan
X[90:130] = NODATA  # Whole slabs are invalid.
X[299, 2] = np.inf
BAD = np.array([not all(np.isfinite(row)) or NODATA in row for row in X])
FILLING = {"on_invalid": "fill", "nodata": NODATA}
LDA = LinearDiscriminantAnalysis().fit(CLEAN, y)


def filled(scores, value):
    """The scores of the valid rows among `value` for the others, in a plain loop."""
    rows = iter(scores)
    return np.array([np.full(scores.shape[1:], value) if bad else next(rows) for bad in BAD])


@pytest.mark.parametrize("name", [*ESTIMATORS])
def test_every_method_fills_invalid_rows(name):
    estimator = make(name).fit(CLEAN, y)
    for method in METHODS:
        if hasattr(estimator, method):
            score = getattr(estimator, method)
            value = -1 if method == "predict" else np.nan
            expected = filled(score(X[~BAD]), value)
            found = score(X, **FILLING)
            assert found.dtype == score(CLEAN).dtype
            np.testing.assert_allclose(found, expected, rtol=1e-12, err_msg=method)
            one = score(X[:1], on_invalid="fill", fill=-7)
            assert (one == -7).all()
            assert one.shape == expected[:1].shape
            with pytest.raises(InvalidDataError, match="on_invalid='fill' when predicting"):
                score(X)
            with pytest.raises(InvalidDataError, match="contains nodata: row 90, column"):
                score(np.nan_to_num(X), nodata=NODATA)


@pytest.mark.parametrize("kind", ["numpy", "zarr", "dask"])
def test_every_container_fills_invalid_rows(kind, slabs_of):
    slabs_of(1)
    rows = held(X, kind, 32)
    one = np.where(np.arange(300)[:, None] == 128, NODATA, CLEAN)
    with pytest.raises(InvalidDataError, match="contains nodata: row 128, column 0"):
        np.asarray(LDA.predict(held(one, kind, 30), nodata=NODATA))
    for method, value in (("predict", -1), ("predict_proba", np.nan), ("transform", np.nan)):
        expected = filled(getattr(LDA, method)(CLEAN)[~BAD], value)
        found = getattr(LDA, method)(rows, **FILLING)
        assert hasattr(found, "dask") == (kind == "dask")
        np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-12)
        for out in (np.empty_like(expected), zarr.storage.MemoryStore()):
            written = getattr(LDA, method)(rows, out=out, **FILLING)
            np.testing.assert_allclose(written[...], np.asarray(found), rtol=1e-12)
            assert written.dtype == found.dtype


def test_rows_of_zeros_and_ones():
    bits = (CLEAN > 0) * 1.0
    bernoulli = BernoulliNB(binarize=None).fit(bits, y)
    rows = np.where(BAD[:, None], np.nan, bits)
    found = bernoulli.predict(rows, on_invalid="fill")
    np.testing.assert_array_equal(found, filled(bernoulli.predict(bits)[~BAD], -1))
    rows[3] = 2
    with pytest.raises(InvalidDataError, match="row 3"):
        bernoulli.predict(rows, on_invalid="fill")


def test_blocks_without_rows_and_blocks_of_masked_values():
    chosen = np.arange(300) < 200
    rows = da.from_array(X, chunks=(50, 3))[da.from_array(chosen, chunks=50)]
    finite = da.from_array(np.where(np.isfinite(X), X, 0), chunks=(50, 3))
    with dask.config.set(scheduler="sync"):
        found = LDA.predict(rows, **FILLING).compute()
        np.testing.assert_array_equal(found, LDA.predict(X[:200], **FILLING))
        masked = da.ma.masked_equal(finite, NODATA)
        found = LDA.predict_proba(masked, on_invalid="fill").compute()
    np.testing.assert_array_equal(np.isnan(found).all(axis=1), (X == NODATA).any(axis=1))


@pytest.mark.parametrize(
    ("classes", "fill", "expected"),
    [
        (np.array([0, 1, 2]), None, -1),
        (np.array([1, 2, 3], np.uint8), 0, 0),
        (np.array([1, 2, 3], np.uint8), None, -1),
        (np.array([1.0, 2.0, 3.0]), 255, 255),
        (np.array(["a", "b", "c"]), None, ""),
        (np.array(["a", "b", "c"]), "no data", "no data"),
        (np.array(["2020", "2021", "2022"], "M8[Y]"), None, np.datetime64("NaT", "D")),
        (np.array(["2020", "2021", "2022"], "M8[Y]"), np.datetime64("1999"), np.datetime64("1999")),
    ],
)
def test_fill_labels_are_of_the_kind_of_the_classes(classes, fill, expected):
    nb = GaussianNB().fit(CLEAN, classes[y])
    found = nb.predict(X, fill=fill, **FILLING)
    assert found.dtype == nb.predict(CLEAN[:1], fill=fill, **FILLING).dtype
    assert found.dtype.kind in (classes.dtype.kind, "i")
    np.testing.assert_array_equal(found[~BAD], nb.predict(CLEAN)[~BAD])
    np.testing.assert_array_equal(found[BAD], np.full(BAD.sum(), expected, found.dtype))


@pytest.mark.parametrize(
    ("method", "options", "match"),
    [
        ("predict", {"on_invalid": "fill", "fill": 1}, "fill=1 is a class"),
        ("predict", {"on_invalid": "fill", "fill": "no"}, "fill='no': labels of dtype <U2"),
        ("predict", {"on_invalid": "fill", "fill": [0, 1]}, "fill="),
        ("predict", {"fill": 9}, "fill=9, and on_invalid='raise'"),
        ("predict", {"on_invalid": "skip"}, "on_invalid='skip'; expected 'raise' or 'fill'"),
        ("predict", {"nodata": "none"}, "nodata='none'; expected one number"),
        ("predict", {"features": "band"}, "features='band' names the dimension of a DataArray"),
        ("predict", FILLING | {"out": np.empty(300, "u1")}, "such as -1"),
        ("predict_proba", {"on_invalid": "fill", "fill": "no"}, "fill='no'; expected one number"),
    ],
)
def test_other_values_raise(method, options, match):
    with pytest.raises((InvalidParameterError, InvalidDataError), match=match):
        getattr(LDA, method)(X, **options)


def test_the_fill_value_is_part_of_what_resumes(tmp_path, slabs_of):
    slabs_of(1)
    path = tmp_path / "out.zarr"
    with pytest.raises(KeyboardInterrupt):
        LDA.predict(Rows(X, 150, KeyboardInterrupt()), out=path, fill=9, **FILLING)
    for other in ({"fill": 8}, {"fill": 9, "nodata": None}):
        with pytest.raises(CheckpointError, match="was started with model"):
            LDA.predict(Rows(X), out=path, **FILLING | other)
    found = LDA.predict(Rows(X), out=path, fill=9, **FILLING)
    np.testing.assert_array_equal(found[:], LDA.predict(X, fill=9, **FILLING))
