"""Outputs: chunks that are written once; those that do not fit raise errors."""

import collections
import contextlib
import re

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import zarr
from grids import in_turn
from samples import KINDS, blobs, fails, held
from zarr.storage import LocalStore

from streamgda import (
    ClassMoments,
    GaussianNB,
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
    accumulate,
    engine,
)
from streamgda.datasets import convert
from streamgda.errors import InvalidDataError, InvalidParameterError, SourceError, StreamGDAError
from streamgda.rows.source import as_source

X, Y = blobs()


class Counting(zarr.storage.MemoryStore):
    """A store that counts how often each chunk is written."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.writes = collections.Counter()

    async def set(self, key, value, *arguments):
        self.writes.update([key] * (not key.endswith(".json")))
        await super().set(key, value, *arguments)


@pytest.mark.parametrize(
    ("shape", "chunks", "slab_rows"),
    [
        ((500,), None, 100),
        ((500,), (45,), 100),  # This array exists.
        ((500, 3), None, 100),
        ((500, 3), (45, 2), 100),
        ((200_000, 3), None, 200_000),  # Chunks have a few MiB.
    ],
)
def test_each_chunk_of_scores_is_written_once(shape, chunks, slab_rows, slabs_of):
    slabs_of(slab_rows * 48)
    columns = 3 if len(shape) > 1 else None
    rows = np.random.default_rng(0).normal(size=(shape[0], 6))
    out = store = Counting()
    if chunks is not None:
        out = zarr.create_array(store, shape=shape, chunks=chunks, dtype=float)

    def scores(rows, first_row):
        return rows[:, :3] if columns else rows.sum(axis=1)

    written = engine.score(scores, as_source(rows), out, columns=columns)
    np.testing.assert_array_equal(written[:], scores(rows, 0))
    assert len(store.writes) > 1
    assert set(store.writes.values()) == {1}


# --- what does not fit ----------------------------------------------------------------------------

FITTED = LinearDiscriminantAnalysis().fit(X, Y)


def read_only(out):
    out.flags.writeable = False
    return out


UNFIT = {
    "short": ("predict", np.arange(9), r"shape \(9,\) and dtype int64, expected shape \(300,\)"),
    "wide": ("predict", np.empty((300, 3), int), r"shape \(300, 3\) .*, expected shape \(300,\)"),
    "integers": ("predict_proba", np.empty((300, 3), int), r"\(300, 3\) and a dtype .* float64"),
    "texts": ("predict_proba", np.empty((300, 3), "U9"), r"\(300, 3\) and a dtype .* float64"),
    "dates": ("predict_proba", np.empty((300, 3), "M8[s]"), r"\(300, 3\) and a dtype .* float64"),
    "read-only": ("predict", read_only(np.empty(300, int)), "out is read-only"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", UNFIT)
def test_arrays_that_do_not_fit(name, kind):
    method, out, match = UNFIT[name]
    outs = [out]
    if out.dtype.kind == "i":  # Texts and dates have no specification in zarr v3.
        store = zarr.storage.MemoryStore()
        zarr.create_array(store, data=out)
        outs.append(zarr.open_array(store, mode="r" if name == "read-only" else "r+"))
    for out in outs:
        fails(InvalidDataError, match, FITTED, method, held(X, kind), out=out)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("labels", "dtype", "lost"),
    [
        ([0, 200, 400], "i1", "200"),
        ([0, 200, 400], "u1", "400"),
        ([0, 200, 400], "U2", "200"),
        ([0, 2**53 + 1, 2], "f8", "9007199254740993"),
        (["setosa", "b", "c"], "U2", "setosa"),
        (["a", "b", "c"], "i8", "a"),
        ([0, 100, 200], "u1", None),
        ([0, 100, 200], "f4", None),
    ],
)
def test_arrays_hold_every_label_or_raise(kind, labels, dtype, lost):
    fitted = GaussianNB().fit(X, np.array(labels)[Y])
    zeros = np.zeros(300, dtype)
    for out in [zeros] if dtype == "U2" else [zeros, zarr.create_array({}, data=zeros)]:
        if lost is None:
            found = fitted.predict(held(X, kind), out=out)
            np.testing.assert_array_equal(found[...], fitted.predict(X))
        else:
            match = f"a dtype that holds .* labels such as {lost}"
            fails(InvalidDataError, match, fitted, "predict", held(X, kind), out=out)
            np.testing.assert_array_equal(out[...], np.zeros(300, dtype))


@pytest.mark.parametrize("stored", [False, True])
def test_numbers_that_the_type_of_out_cannot_hold_raise(stored):
    rows = np.arange(40.0)[:, None]
    nb = GaussianNB().fit(rows, np.arange(40) % 2)
    out = zarr.create_array({}, shape=(40, 2), dtype="f2") if stored else np.empty((40, 2), "f2")
    with pytest.raises(InvalidDataError, match="out has dtype float16"):
        nb.predict_joint_log_proba(rows * 1e4, out=out)
    found = nb.predict_joint_log_proba(rows, out=out)[...]
    np.testing.assert_allclose(found, nb.predict_joint_log_proba(rows), rtol=2e-3)


@pytest.mark.parametrize(
    "out", [pd.Series(Y), pd.Categorical(Y), da.from_array(Y), np.float64(1), Y.tolist()]
)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_array_of_numpy_or_in_a_store(out, kind):
    match = f"out is of type {type(out).__name__}; expected an array of numpy or zarr, or a"
    fails(TypeError, match, FITTED, "predict", held(X, kind), out=out)


@pytest.mark.parametrize("keys", [pd.Series(Y), 3, [1], np.array(["id", "day"]), "id"])
@pytest.mark.parametrize("out", [None, "labels.csv", "labels.zarr"])
def test_keys_are_names_of_columns_of_a_table(tmp_path, keys, out):
    out = None if out is None else tmp_path / out
    with pytest.raises(StreamGDAError, match=r"keys|columns"):
        FITTED.predict(X, out=out, keys=keys)
    assert not any(tmp_path.iterdir())


def test_arrays_that_share_memory_with_rows():
    """The first scores are written where rows are that are scored later."""
    X, y = blobs(200_000)
    fitted = QuadraticDiscriminantAnalysis().fit(X, y)
    expected, rows = fitted.predict_proba(X), X.copy()
    out = rows.reshape(-1)[-expected.size :].reshape(expected.shape)
    np.testing.assert_array_equal(fitted.predict_proba(rows, out=out), expected)


# --- what belongs to others -----------------------------------------------------------------------

FEW, LABELS = blobs(40)
NB = GaussianNB().fit(FEW, LABELS)
HEX = "0123456789abcdef" * 2
STRANGERS = ["notes.txt", ".hidden", "x.lock", "c/0", "empty/folder/", "zarr.json"]
STRANGERS += [f"c/0.{HEX}.partial", "deep/.git/index.lock", "X/zarr.json", "X/c/notes"]
BESIDE = ["lock", "partial/notes", "20240101.old", "01234567.partial", "partial~"]
DOORS = {
    "predict": lambda path: NB.predict(FEW, out=path),
    "probabilities": lambda path: NB.predict_proba(held(FEW, "zarr"), out=str(path)),
    "predict dask": lambda path: NB.predict(da.from_array(FEW), out=path),
    "predict to a store": lambda path: NB.predict(FEW, out=LocalStore(path)),
    "save": NB.save,
    "save moments": ClassMoments().update(FEW, LABELS).save,
    "convert": lambda path: convert(FEW, LABELS, path),
    "a checkpoint": lambda path: accumulate(FEW, LABELS, checkpoint=path),
}


def contents(folder):
    """Everything below a folder: the bytes of files, None for folders."""
    return {
        path.relative_to(folder): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


def put(folder, names):
    for path in (folder / name for name in names):
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("of somebody else")


@in_turn("door, ending", DOORS, ["", ".zarr", ".csv", ".parquet", ".tif", ".zip", ".png"])
def test_files_of_others_stay_as_they_are(door, ending, tmp_path):
    """In a folder, as a file, and inside a folder that was written here."""

    def leaves_all(path, free):
        put(path.parent, [f"{path.name}.{name}" for name in BESIDE])
        before = contents(path.parent)
        with contextlib.suppress(StreamGDAError, OSError):
            DOORS[door](path)
        after = contents(path.parent)
        assert {name: after.get(name) for name in before} == before
        assert {name.parts[0] for name in after.keys() - before.keys()} <= free

    for number, names in enumerate([STRANGERS, STRANGERS[:1], []]):
        path = tmp_path / str(number) / f"m{ending}"
        path.parent.mkdir()
        put(path, names)
        leaves_all(path, set() if names else {path.name})
    if path.is_dir():  # The array is ours.
        put(path, ["notes.txt"])
        leaves_all(path, set())
    if "store" not in door:
        (tmp_path / f"file{ending}").write_text("of somebody else")
        leaves_all(tmp_path / f"file{ending}", set())


@pytest.mark.parametrize("door", [door for door in DOORS if "store" not in door])
@pytest.mark.parametrize("path", ["", "a\0b.csv"])
def test_texts_that_are_no_paths(door, path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidParameterError, match=re.escape(f"{path!r} is not a path")):
        DOORS[door](path)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["c.png", "c.PNG", "c.5"])
def test_places_of_no_output(name, tmp_path):
    match = r"expected \.parquet.*a table.*\.zarr or no ending"
    for rows in (FEW, da.from_array(FEW)):
        with pytest.raises(InvalidParameterError, match=match):
            NB.predict(rows, out=tmp_path / name)
    assert not any(tmp_path.iterdir())


def test_folders_of_outputs_are_made(tmp_path):
    for path in ("a/b/o", "c/d/o.zarr", "e/f/o.csv"):
        NB.predict(FEW, out=tmp_path / path)
        assert (tmp_path / path).exists()


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "_t.csv", "s.zarr"])
def test_what_exists_is_no_output(name, tmp_path):
    """Not even a table of scores, which has no mark."""
    path = tmp_path / name
    NB.predict_proba(FEW, out=path)
    before = contents(tmp_path)
    for other in (NB.predict, LinearDiscriminantAnalysis().fit(FEW, LABELS).predict_proba):
        with pytest.raises(SourceError, match="exists already"):
            other(FEW, out=path)
    assert contents(tmp_path) == before
