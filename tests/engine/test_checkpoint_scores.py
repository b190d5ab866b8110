"""Partial scores resume, only for the same data and options, and nothing reads them before."""

import zipfile

import dask.array as da
import numpy as np
import pytest
import zarr
from samples import make
from stops import N_ROWS, Rows, X, Y

from streamgda import ClassMoments, GroupedMoments, PairwiseMoments, accumulate, engine
from streamgda.errors import CheckpointError, InvalidDataError, SourceError
from streamgda.storage.opening import mark_of

pytestmark = pytest.mark.usefixtures("small_slabs")


@pytest.fixture
def fitted():
    return make("QDA").fit(X, Y)


def half_written(fitted, out, method="predict", at=150, error=KeyboardInterrupt):
    with pytest.raises(error) as stop:
        getattr(fitted, method)(Rows(at=at, error=error("stop")), out=out)
    return stop.value


@pytest.mark.parametrize("method", ["predict", "predict_proba", "score_samples"])
@pytest.mark.parametrize("chunks", [None, 30, 45, 300])
def test_scores_are_resumed(tmp_path, fitted, method, chunks):
    path = tmp_path / "scores.zarr"
    expected = getattr(fitted, method)(X)
    out = path
    if chunks is not None:
        shape = (chunks, *expected.shape[1:])
        out = zarr.create_array(path, shape=expected.shape, dtype=expected.dtype, chunks=shape)
    note = half_written(fitted, out, method).__notes__[0]
    assert "the scores of the first 150 rows" in note
    mark = mark_of(zarr.open_array(path, mode="r"))
    assert (mark["complete"], mark["done"]) == (False, 150)
    again = Rows()
    getattr(fitted, method)(again, out=path if chunks is None else zarr.open_array(path))
    assert again.read[-5:] == [150, 180, 210, 240, 270]
    written = zarr.open_array(path, mode="r")
    np.testing.assert_array_equal(written[...], expected, strict=True)
    assert mark_of(written)["complete"]


def test_half_written_scores_are_not_read(tmp_path, fitted):
    out = tmp_path / "scores.zarr"
    fitted = make("GaussianNB").fit(X[:, :3], Y)  # reads as many features as there are classes
    with pytest.raises(OSError, match="gone"):
        fitted.predict_proba(Rows(X[:, :3], 150, OSError("gone")), out=out)
    half = zarr.open_array(out, mode="r")
    labels = zarr.create_array({}, data=Y, attributes=dict(half.attrs))
    for work, name in (
        (lambda: accumulate(half, Y), "X"),
        (lambda: accumulate(X, labels), "y"),
        (lambda: accumulate(X, Y, sample_weight=labels), "sample_weight"),
        (lambda: fitted.predict(half), "X"),
        (lambda: ClassMoments("diag").update(half, Y), "X"),
        (lambda: ClassMoments("diag").update(X, labels), "y"),
        (lambda: ClassMoments("diag").update(X, Y, labels), "sample_weight"),
        (lambda: PairwiseMoments().update(half, Y), "X"),
        (lambda: GroupedMoments().update(X, Y, labels), "groups"),
        (lambda: make("GaussianNB").partial_fit(half, Y), "X"),
        (lambda: make("GaussianNB").partial_fit(X, labels), "y"),
        (lambda: make("GaussianNB").partial_fit(X, Y, sample_weight=labels), "sample_weight"),
        (lambda: fitted.score(X[:, :3], labels), "y"),
        (lambda: accumulate(da.from_zarr(half), Y), "X"),
    ):
        with pytest.raises(SourceError, match=f"{name} holds scores that are half-written: 150 of"):
            work()
    fitted.predict_proba(X[:, :3], out=out)
    accumulate(zarr.open_array(out), Y)


def test_scores_that_are_complete_are_given_back_by_the_same_call(tmp_path, fitted):
    out = tmp_path / "scores.zarr"
    fitted.predict(Rows(), out=out)
    again = Rows()
    same = fitted.predict(again, out=out)
    np.testing.assert_array_equal(same[:], fitted.predict(X))
    assert len(again.read) <= 10
    array = zarr.open_array(out)
    array[:] = 7
    assert fitted.predict(Rows(), out=array) is array  # the caller's own array is filled again
    np.testing.assert_array_equal(array[:], fitted.predict(X))


def test_half_written_scores_of_something_else_are_refused(tmp_path, fitted):
    out = tmp_path / "scores.zarr"
    half_written(fitted, out)
    other = Rows(np.where(np.arange(N_ROWS)[:, None] == 0, 0.0, X))
    for work, message in (
        (lambda: make("LDA").fit(X, Y).predict(X, out=out), "started with model: checksum"),
        (lambda: fitted.score_samples(X, out=out), "method: predict; now it is log_density"),
        (lambda: fitted.predict(X[:200], out=out), r"X: shape \(300, 4\)"),
        (lambda: fitted.predict(other, out=out), "other rows: rows 0 to 29"),
    ):
        with pytest.raises(CheckpointError, match=message):
            work()
    array = zarr.open_array(out)
    with pytest.raises(CheckpointError, match="out was started with model"):
        make("LDA").fit(X, Y).predict(X, out=array)
    fitted.predict(X, out=array)
    np.testing.assert_array_equal(array[:], fitted.predict(X))


def test_scores_before_an_invalid_row_are_kept(tmp_path, fitted):
    bad = X.copy()
    bad[200, 1] = np.nan
    with pytest.raises(InvalidDataError, match="row 200, column 1") as refusal:
        fitted.predict(Rows(bad), out=tmp_path / "scores.zarr")
    assert "the first 180 rows" in refusal.value.__notes__[0]
    written = zarr.open_array(tmp_path / "scores.zarr", mode="r")
    np.testing.assert_array_equal(written[:180], fitted.predict(X[:180]))


def test_outputs_that_do_not_fit_are_not_marked(fitted):
    out = zarr.create_array({}, shape=7, dtype=np.int64)
    with pytest.raises(InvalidDataError, match="out has shape"):
        fitted.predict(X, out=out)
    assert dict(out.attrs) == {}


def test_scores_go_to_a_zip_file_unmarked(tmp_path, fitted):
    with zarr.storage.ZipStore(tmp_path / "scores.zip", mode="w") as store:
        fitted.predict(X, out=store)
    assert len(zipfile.ZipFile(tmp_path / "scores.zip").namelist()) == 11
    with zarr.storage.ZipStore(tmp_path / "scores.zip", mode="r") as store:
        labels = zarr.open_array(store)
        assert mark_of(labels) is None  # it could not be made complete
        np.testing.assert_array_equal(labels[:], fitted.predict(X))


def test_scores_of_plain_functions_are_not_marked(tmp_path, fitted):
    out = engine.score(fitted.model_.predict, X, tmp_path / "scores.zarr")
    assert mark_of(out) is None
