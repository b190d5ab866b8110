"""Outputs: chunks that are written once; those that do not fit are refused."""

import collections
import contextlib
import gc
import re

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import zarr
from grids import in_turn
from samples import KINDS, blobs, held, refuses
from stops import N_ROWS, Rows
from stops import X as STOPPED
from zarr.storage import LocalStore

from streamgda import (
    ClassMoments,
    GaussianNB,
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
    accumulate,
    engine,
    open_store,
)
from streamgda import rows as containers
from streamgda.datasets import convert
from streamgda.engine import plan
from streamgda.errors import InvalidDataError, InvalidParameterError, SourceError, StreamGDAError
from streamgda.rows.source import as_source

MIB = 1 << 20


class Counting(zarr.storage.MemoryStore):
    """A store that counts how often each chunk is written."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.writes = collections.Counter()

    async def set(self, key, value, *arguments):
        self.writes.update([key] * (not key.endswith(".json")))
        await super().set(key, value, *arguments)


def in_xarray(X):
    return pytest.importorskip("xarray").DataArray(X)


def in_arrow(X):
    return pytest.importorskip("pyarrow").table({str(j): X[:, j] for j in range(6)})


@pytest.mark.parametrize(
    "kind", [np.asarray, pd.DataFrame, np.ma.masked_invalid, in_xarray, in_arrow]
)
@pytest.mark.parametrize("out_row_bytes", [0, 8, 80])
def test_slabs_of_rows_in_memory_have_mebibytes(kind, out_row_bytes):
    rows = as_source(kind(np.ones((800_000, 6))))
    n_rows = plan.plan_rows(containers.Rows(rows), 10**12, out_row_bytes=out_row_bytes)
    assert 30 * MIB < n_rows * max(48, out_row_bytes) < 40 * MIB


@pytest.mark.parametrize(
    ("shape", "chunks"),
    [
        ((500,), None),
        ((500,), (45,)),  # of an array that exists
        ((500, 3), None),
        ((500, 3), (45, 2)),
    ],
)
def test_each_chunk_of_scores_is_written_once(monkeypatch, shape, chunks, slabs_of):
    slabs_of(100 * 48)
    monkeypatch.setattr("streamgda.engine.outputs._CHUNK_BYTES", 400)
    columns = 3 if len(shape) > 1 else None
    X = np.random.default_rng(0).normal(size=(500, 6))
    out = store = Counting()
    if chunks is not None:
        out = zarr.create_array(store, shape=shape, chunks=chunks, dtype=float)

    def scores(rows, first_row):
        return rows[:, :3] if columns else rows.sum(axis=1)

    written = engine.score(scores, as_source(X), out, columns=columns)
    np.testing.assert_array_equal(written[:], scores(X, 0))
    assert len(store.writes) > 4
    assert set(store.writes.values()) == {1}


def test_scores_that_were_started_in_small_slabs_are_resumed(tmp_path):
    model = GaussianNB().fit(STOPPED, np.arange(N_ROWS) % 2)
    with plan.slabs_of(30 * 48), pytest.raises(KeyboardInterrupt):
        model.predict(Rows(at=150, error=KeyboardInterrupt()), out=tmp_path / "labels")
    written = model.predict(Rows(), out=tmp_path / "labels")
    np.testing.assert_array_equal(written[:], model.predict(STOPPED))


@pytest.mark.parametrize("stored", [False, True])
def test_scores_that_the_type_of_out_cannot_hold_are_refused(stored):
    X = np.arange(40.0)[:, None]
    nb = GaussianNB().fit(X, np.arange(40) % 2)
    out = zarr.create_array({}, shape=(40, 2), dtype="f2") if stored else np.empty((40, 2), "f2")
    with pytest.raises(InvalidDataError, match="out has dtype float16"):
        nb.predict_joint_log_proba(X * 1e4, out=out)
    nb.predict_joint_log_proba(X, out=out)


EVERY_KIND = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def fitted():
    return LinearDiscriminantAnalysis().fit(*blobs())


def test_out_that_does_not_fit(fitted):
    X, _ = blobs()
    match = r"out has shape \(9,\) and dtype int64, expected shape \(300,\)"
    for kind in ("numpy", "zarr"):
        refuses(InvalidDataError, match, fitted, "predict", X, out=held(np.arange(9), kind))
    match = r"dtype int64, expected .* a dtype that holds float64"
    out = np.empty((300, 3), np.int64)
    refuses(InvalidDataError, match, fitted, "predict_proba", X, out=out)
    match = r"out has shape \(300, 3\) and dtype int64, expected shape \(300,\)"
    refuses(InvalidDataError, match, fitted, "predict", held(X, "dask"), out=out)


@pytest.mark.parametrize("kind", KINDS)
def test_out_that_is_no_array_of_numpy_or_in_a_store(fitted, kind):
    X, y = blobs()
    for out in (
        pd.Series(y),
        pd.Index(y),
        pd.Categorical(y),
        pd.arrays.SparseArray(y),
        da.from_array(y, chunks=100),
        np.float64(1),
        y.tolist(),
    ):
        match = f"out is of type {type(out).__name__}; expected an array of numpy or zarr, or a"
        refuses(TypeError, match, fitted, "predict", held(X, kind), out=out)
    out = da.zeros((300, 3), chunks=(100, 1))
    refuses(TypeError, "out is of type Array", fitted, "predict_proba", held(X, kind), out=out)


def test_keys_that_are_no_names(fitted, tmp_path):
    X, y = blobs()
    for keys in (pd.Series(y), pd.DataFrame({"id": y}), 3, [1], np.array(["id", "day"])):
        for out in (None, tmp_path / "labels.csv"):
            match = "keys=.* expected names of columns of X, such as keys='id'"
            refuses(InvalidParameterError, match, fitted, "predict", X, out=out, keys=keys)
    assert not (tmp_path / "labels.csv").exists()


def outputs(shape, dtype):
    out = np.empty(shape, dtype)
    # Strings of fixed width have no specification in zarr v3.
    return [out] if out.dtype.kind in "US" else [out, zarr.create_array({}, data=out)]


@EVERY_KIND
@pytest.mark.parametrize(
    ("labels", "dtype", "lost"),
    [
        ([0, 200, 400], "i1", "200"),
        ([0, 200, 400], "u1", "400"),
        ([0, 200, 400], "U2", "200"),
        ([0, 2**53 + 1, 2], "f8", "9007199254740993"),
        (["setosa", "b", "c"], "U2", "setosa"),
        (["a", "b", "c"], "i8", "a"),
    ],
)
def test_outputs_that_cannot_hold_every_class(kind, labels, dtype, lost):
    X, y = blobs()
    fitted = GaussianNB().fit(X, np.array(labels)[y])
    for out in outputs(300, dtype):
        kept = np.array(out[...])
        match = re.escape(f"dtype {out.dtype}, expected shape (300,) and a dtype that holds ")
        match += f".* labels such as {re.escape(lost)}"
        refuses(InvalidDataError, match, fitted, "predict", held(X, kind), out=out)
        np.testing.assert_array_equal(out[...], kept)


@EVERY_KIND
def test_outputs_that_hold_every_class(kind):
    X, y = blobs()
    fitted = GaussianNB().fit(X, np.array([0, 100, 200])[y])
    expected = fitted.predict(X)
    for dtype in ("u1", "i2", "f4"):
        for out in outputs(300, dtype):
            np.testing.assert_array_equal(fitted.predict(held(X, kind), out=out)[...], expected)


@EVERY_KIND
def test_outputs_that_cannot_hold_probabilities(fitted, kind):
    X, _ = blobs()
    for dtype in ("i8", "U9", "M8[s]"):
        match = r"expected shape \(300, 3\) and a dtype that holds float64"
        out = np.empty((300, 3), dtype)
        refuses(InvalidDataError, match, fitted, "predict_proba", held(X, kind), out=out)
    out = fitted.predict_proba(held(X, kind), out=np.empty((300, 3), "f4"))
    np.testing.assert_allclose(out, fitted.predict_proba(X), atol=1e-7)


OF_ROWS = ("predict", "predict_proba", "predict_log_proba", "predict_joint_log_proba")
OF_ROWS += ("decision_function", "score_samples", "mahalanobis", "p_values")


@pytest.mark.parametrize("method", OF_ROWS)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_arrays_get_the_scores_whatever_their_layout(method, n_classes):
    X, y = blobs()
    X, y = X[y < n_classes], y[y < n_classes]
    fitted = QuadraticDiscriminantAnalysis().fit(X, np.array(["ant", "bee", "cat"])[y])
    score = getattr(fitted, method)
    expected = score(X)
    n, *width = expected.shape
    for make in (
        lambda: np.empty_like(expected),
        lambda: np.empty_like(expected, order="F"),
        lambda: np.empty((2 * n, *width), expected.dtype)[::2],
        lambda: np.empty((n, *width), expected.dtype.newbyteorder(">")),
    ):
        out = make()
        assert score(X, out=out) is out
        np.testing.assert_array_equal(out, expected)
    filled = score(X, out=make(), on_invalid="fill")
    np.testing.assert_array_equal(filled, expected)


def test_arrays_that_share_memory_with_rows():
    """The first scores are written where rows are that are scored later."""
    X, y = blobs(200_000)
    fitted = QuadraticDiscriminantAnalysis().fit(X, y)
    expected, rows = fitted.predict_proba(X), X.copy()
    out = rows.reshape(-1)[-expected.size :].reshape(expected.shape)
    np.testing.assert_array_equal(fitted.predict_proba(rows, out=out), expected)


def test_outputs_that_are_read_only(fitted, tmp_path):
    X, _ = blobs()
    zarr.create_array(tmp_path / "out", shape=300, dtype="i8")
    for out in (np.broadcast_to(0, 300), zarr.open_array(tmp_path / "out", mode="r")):
        refuses(InvalidDataError, "out is read-only", fitted, "predict", X, out=out)


# --- what belongs to others -----------------------------------------------------------------------

X, Y = blobs(40)
NB = GaussianNB().fit(X, Y)
HEX = "0123456789abcdef" * 2
STRANGERS = [
    *("notes.txt", ".hidden", "x.partial", "x.lock", "c/0", "empty/folder/", "zarr.json"),
    *(f"zarr.{HEX}.partial", f"c/0.{HEX}.partial", f"deep/c/0.{HEX}.partial"),
    *("deep/.git/index.lock", "deep/m.01234567.old", "X/zarr.json", "X/c/notes"),
]
BESIDE = [
    "lock",
    "partial/notes",
    "partial.lock",
    "20240101.old",
    "01234567.partial",
    "01234567.lock",
    "partial~",
]
ENDINGS = ["", ".zarr", ".csv", ".parquet", ".tif", ".zip", ".png"]

DOORS = {
    "predict": lambda path: NB.predict(X, out=path),
    "probabilities": lambda path: NB.predict_proba(held(X, "zarr"), out=str(path)),
    "predict dask": lambda path: NB.predict(da.from_array(X), out=path),
    "predict to a store": lambda path: NB.predict(X, out=LocalStore(path)),
    "save": NB.save,
    "save moments": ClassMoments().update(X, Y).save,
    "convert": lambda path: convert(X, Y, path),
    "convert to a store": lambda path: convert(X, None, LocalStore(path)),
    "a checkpoint": lambda path: accumulate(X, Y, checkpoint=path),
}


def contents(folder):
    """Everything below a folder: the bytes of files, None for folders."""
    return {
        path.relative_to(folder): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


def put(folder, names):
    for name in names:
        path = folder / name
        if not path.exists():
            (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
            if not name.endswith("/"):
                path.write_text("of somebody else")


def leaves_strangers(call, path, names):
    """Check that a call changes nothing that was there, and writes to a path if it was free."""
    put(path.parent, [f"{path.name}.{name}" for name in BESIDE])
    before = contents(path.parent)
    with contextlib.suppress(StreamGDAError, OSError):
        call(path)
    gc.collect()  # a checkpoint in the traceback
    after = contents(path.parent)
    assert {name: after.get(name) for name in before} == before
    free = set() if names else {path.name}
    assert {name.parts[0] for name in after.keys() - before.keys()} <= free


@in_turn("door, endings", DOORS, zip(ENDINGS, ENDINGS[1:] + ENDINGS[:1], strict=True))
def test_files_of_others_stay_as_they_are(door, endings, tmp_path):
    """In a folder, as a file, and inside a folder that was written here."""
    call = DOORS[door]
    there = [], STRANGERS, [f"zarr.{HEX}.partial"], ["empty/folder/"]
    for number, names in enumerate(there):
        path = tmp_path / str(number) / f"m{endings[number % 2]}"
        path.parent.mkdir()
        put(path, names)
        leaves_strangers(call, path, names)
        if path.is_dir() and not names:  # of ours
            put(path, ["notes.txt"])
            leaves_strangers(call, path, ["notes.txt"])
    if "store" not in door:
        file = tmp_path / f"file{endings[0]}"
        file.write_text("of somebody else")
        leaves_strangers(call, file, ["file"])


@pytest.mark.parametrize("door", [door for door in DOORS if "store" not in door])
@pytest.mark.parametrize("path", ["", "a\0b.csv"])
def test_texts_that_are_no_paths(door, path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidParameterError, match=re.escape(f"{path!r} is not a path")):
        DOORS[door](path)
    assert not any(tmp_path.iterdir())


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [".png", ".xlsx", ".npy", ".h5", ".PNG", ".5"])
def test_unknown_endings_are_refused_with_those_that_are_known(ending, tmp_path):
    path = tmp_path / f"c{ending}"
    known = r"ends in \S+; expected \.parquet.*a table.*\.zarr or no ending"
    for rows in (X, da.from_array(X)):
        with pytest.raises(InvalidParameterError, match=known):
            NB.predict(rows, out=path)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["o", "o.zarr", "o.csv"])
def test_the_folder_of_an_output_must_exist(name, tmp_path):
    path = tmp_path / "none" / name
    with pytest.raises(FileNotFoundError, match="none is not a folder"):
        NB.predict(X, out=path)
    assert not any(tmp_path.iterdir())


def test_a_file_that_exists_is_no_output(tmp_path):
    """Not even a table of scores, which has no mark."""
    for name in ("t.csv", "t.parquet", "_t.csv"):
        NB.predict_proba(X, out=tmp_path / name)
        before = (tmp_path / name).read_bytes()
        with pytest.raises(SourceError, match="exists already"):
            NB.predict(X, out=tmp_path / name)
        assert (tmp_path / name).read_bytes() == before
        assert open_store(tmp_path / name, y=None)[0].shape == (40, 3)
    scores = NB.predict_proba(X, out=tmp_path / "s.zarr")[:]
    for other in (NB.predict, LinearDiscriminantAnalysis().fit(X, Y).predict_proba):
        with pytest.raises(SourceError, match="exists already"):
            other(X, out=tmp_path / "s.zarr")
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "s.zarr")[:], scores)
