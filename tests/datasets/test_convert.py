"""Conversion to zarr: every source gives the same group, and nothing is replaced."""

import dask.array as da
import numpy as np
import pandas as pd
import polars as pl
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import assert_peak_below
from scipy import sparse

from streamgda import open_store
from streamgda.datasets import convert
from streamgda.errors import InvalidDataError, SourceError

X = np.random.default_rng(1).integers(0, 256, (11, 6), np.uint8)
Y = np.arange(11) % 3
NAMES = np.array(["ant", "bee", "Ω, the last"])[Y]


def check(group, X, y=None, chunk_rows=None):
    """Check that the group holds these arrays, in chunks of whole rows."""
    assert group.metadata.zarr_format == 3
    assert sorted(group) == (["X"] if y is None else ["X", "y"])
    assert group["X"].dtype == X.dtype
    np.testing.assert_array_equal(group["X"][...], X)
    assert group["X"].chunks == (chunk_rows or len(X), X.shape[1])
    if y is not None:
        assert group["y"].chunks == group["X"].chunks[:1]
        assert (group["y"].dtype.kind == "T") == (y.dtype.kind == "U")
        assert group["y"][...].tolist() == y.tolist()


def stored(values):
    return zarr.create_array(zarr.storage.MemoryStore(), data=values, chunks=(3, *values.shape[1:]))


SOURCES = {
    "array": lambda X, y: (X, y),
    "zarr": lambda X, y: (stored(X), y),
    "pandas": lambda X, y: (pd.DataFrame(X), pd.Series(y)),
    "polars": lambda X, y: (pl.DataFrame(X), pl.Series(y)),
    "dask": lambda X, y: (da.from_array(X, chunks=(3, 6)), da.from_array(y, chunks=3)),
    "batches": lambda X, y: (iter([(X[:5], y[:5]), (X[5:], y[5:])]), None),
}


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("labels", [Y, NAMES, Y > 0, Y / 3], ids=["int", "text", "bool", "float"])
def test_every_source_gives_the_same_group(tmp_path, kind, labels):
    source, y = SOURCES[kind](X, labels)
    group = convert(source, y, tmp_path / "out.zarr", chunk_rows=4)
    check(group, X, labels, 4)
    assert [path.name for path in tmp_path.iterdir()] == ["out.zarr"]
    rows, found = open_store(tmp_path / "out.zarr")
    np.testing.assert_array_equal(rows, X)
    assert found[:].tolist() == labels.tolist()


def test_rows_without_labels_and_stores(tmp_path):
    check(convert(X, None, tmp_path / "a"), X)
    check(convert(X / 3, None, zarr.storage.MemoryStore()), X / 3)
    check(convert(X, Y, "memory://streamgda-tests/group"), X, Y)
    frame = pd.DataFrame(X, columns=[*"abcdef"])
    assert convert(frame, Y, tmp_path / "b")["X"].attrs["feature_names"] == [*"abcdef"]


@given(
    cuts=st.lists(st.integers(0, 11), max_size=6).map(sorted),
    chunk_rows=st.integers(1, 13),
    labels=st.sampled_from([Y, NAMES]),
)
@settings(max_examples=25)
def test_batches_of_any_size_fill_chunks(cuts, chunk_rows, labels):
    parts = [slice(*each) for each in zip([0, *cuts], [*cuts, 11], strict=True)]
    batches = ((X[part], labels[part]) for part in parts if part.start < part.stop)
    reports = []
    group = convert(
        batches,
        None,
        zarr.storage.MemoryStore(),
        chunk_rows=chunk_rows,
        progress=lambda *report: reports.append(report),
    )
    check(group, X, labels, min(chunk_rows, 11))
    assert reports[-1] == (11, None)
    assert len(reports) == -(-11 // chunk_rows)


@pytest.mark.parametrize(
    ("source", "labels", "message"),
    [
        (X, Y[:7], "X has 11 rows but there are 7 labels"),
        (Y, Y, r"X has shape \(11,\)"),
        (X[:, :0], Y, r"X holds uint8 of shape \(11, 0\)"),
        (X[:0], Y[:0], "X has 0 rows"),
        (X.astype(complex), Y, "[Cc]omplex"),
        (NAMES[:, None], Y, "X holds <U11|not (real )?numbers|strings"),
        (X, Y.astype("datetime64[D]"), r"y holds datetime64\[D\]"),
        (X, [*NAMES[:10], None], "missing"),
        (sparse.csr_matrix(X), Y, "expected dense rows|sparse"),
        ([], None, "X holds no rows"),
        ([(X, Y), (X[:, 1:], Y)], None, "dimension"),
        ([(X, Y), (X / 3, Y)], None, "X of type float64 after one of uint8"),
        ([(X, Y), (X, NAMES)], None, "y of type <U11 after one of int64"),
    ],
)
def test_wrong_data_leaves_nothing(tmp_path, source, labels, message):
    with pytest.raises((InvalidDataError, ValueError), match=message):
        convert(source, labels, tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_nothing_is_replaced(tmp_path):
    file, folder, store = tmp_path / "file", tmp_path / "folder", zarr.storage.MemoryStore()
    file.write_text("precious")
    (folder / "precious").mkdir(parents=True)
    convert(X, Y, tmp_path / "group")
    for path in (file, folder, tmp_path / "group"):
        with pytest.raises(SourceError, match=f"{path.name} exists already"):
            convert(X, Y, path)
    assert file.read_text() == "precious"
    convert(X, Y, store)
    with pytest.raises(ValueError, match="exists"):
        convert(X, Y, store)


def test_chunks_are_of_four_mebibytes_and_memory_does_not_grow(tmp_path):
    batch = np.ones((1000, 20), np.uint8), np.zeros(1000, int)
    n_rows = (9 << 20) // 20
    batches = [batch] * (n_rows // 1000)
    group = convert(batches, None, tmp_path / "out")
    assert group["X"].chunks == ((4 << 20) // 20, 20)
    many = (batch for _ in range(10 * len(batches)))
    assert_peak_below(40 << 20, lambda: convert(many, None, tmp_path / "more"))
