"""Conversion to zarr: sources, errors and destinations."""

import gzip
import io
import itertools
import struct

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pytest
import zarr
from allocations import assert_peak_below
from dataset_files import (
    NAMES,
    X_IMAGES,
    X,
    Y,
    check,
    write_idx,
    zarr_group,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from streamgda.datasets import GaussianStream, conversion, convert
from streamgda.errors import (
    InvalidDataError,
    InvalidParameterError,
    SourceError,
    SourceNotFoundError,
)

PICKLE = io.BytesIO()
np.save(PICKLE, np.array([[1, 2], [3, 4]], object), allow_pickle=True)
PICKLE = PICKLE.getvalue()


class TestSources:
    """Every kind of source gives the same group."""

    @pytest.mark.parametrize("zipped", [False, True])
    @pytest.mark.parametrize(
        "names", [("a.idx", "b.idx"), ("train-images-idx3-ubyte", "train-labels.idx1-ubyte")]
    )
    def test_idx(self, tmp_path, names, zipped):
        images, labels = (tmp_path / (name + ".gz" * zipped) for name in names)
        write_idx(images, X_IMAGES, zipped)
        write_idx(labels, Y, zipped)
        group = convert(images, tmp_path / "out", labels=str(labels), chunk_rows=4)
        check(group, X, Y, 4)
        check(convert(images, tmp_path / "unlabelled"), X)

    @pytest.mark.parametrize("labels", [Y, NAMES, Y.astype(">i4"), Y / 2, Y > 0])
    @pytest.mark.parametrize("values", [X, X_IMAGES, np.asfortranarray(X / 3), X.astype(">i2")])
    def test_npy(self, tmp_path, values, labels):
        np.save(tmp_path / "X.npy", values)
        np.save(tmp_path / "y.npy", labels)
        group = convert(tmp_path / "X.npy", tmp_path / "out", labels=tmp_path / "y.npy")
        native = values.reshape(11, 6).astype(values.dtype.newbyteorder("="))
        check(group, native, labels.astype(labels.dtype.newbyteorder("=")), 11)

    @pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
    def test_npz(self, tmp_path, save):
        path = tmp_path / "data.npz"
        save(path, X=X, y=Y, rows=X[:4], other=NAMES[:4])
        check(convert(path, tmp_path / "a", chunk_rows=3), X, Y, 3)
        check(convert(path, tmp_path / "b", names=("rows", "other")), X[:4], NAMES[:4])
        check(convert(path, tmp_path / "c", names=("X", "none")), X)
        check(convert(path, tmp_path / "d", labels=False), X)
        check(convert(path, tmp_path / "e", labels=NAMES), X, NAMES)
        check(convert(X, tmp_path / "f", labels=path), X, Y)
        with pytest.raises(SourceError, match=r"no array 'Z'.*'X', 'other', 'rows', 'y'"):
            convert(path, tmp_path / "g", names=("Z", "y"))

    @pytest.mark.parametrize("chunks", [{}, {"X": (11, 6), "y": (11,)}, {"X": (2, 1), "y": (1,)}])
    def test_zarr(self, tmp_path, chunks):
        path, memory = tmp_path / "in.zarr", zarr.storage.MemoryStore()
        group = zarr_group(path, **chunks)
        zarr_group(memory, **chunks)
        for number, source in enumerate([path, str(path), group, group.store, memory]):
            check(convert(source, tmp_path / f"{number}", chunk_rows=2), X, Y, 2)
        check(convert(group["X"], tmp_path / "array"), X)
        check(convert(path / "X", tmp_path / "labels", labels=path / "y"), X, Y)
        check(convert(group["X"], tmp_path / "node", labels=group["y"]), X, Y)
        check(convert(group, tmp_path / "false", labels=False), X)

    def test_zarr_of_strings(self, tmp_path):
        check(convert(X, tmp_path / "first", labels=NAMES), X, NAMES)
        check(convert(tmp_path / "first", tmp_path / "second", chunk_rows=5), X, NAMES, 5)
        check(convert(X, zarr.storage.MemoryStore(), labels=NAMES, chunk_rows=2), X, NAMES, 2)
        check(convert(X[:2], tmp_path / "b", labels=np.array([b"a", b"bc"])), X[:2], ["a", "bc"])

    @pytest.mark.parametrize(
        ("source", "labels", "expected"),
        [
            (X, NAMES.astype(object), X),
            (X, NAMES.astype(np.dtypes.StringDType()), X),
            (X, NAMES.tolist(), X),
            (pd.DataFrame(X / 2), pd.Series(NAMES), X / 2),
            (dd.from_pandas(pd.DataFrame(X), npartitions=2), NAMES, X),
            (pl.LazyFrame(X), pl.Series(NAMES), X),
            (da.from_array(X, chunks=(3, 2)), da.from_array(NAMES), X),
            (GaussianStream(6, 2, dtype="uint8").batches(11, 4), None, None),
        ],
    )
    def test_arrays(self, tmp_path, source, labels, expected):
        group = convert(source, tmp_path / "out", labels=labels, chunk_rows=4)
        if expected is None:
            expected, names = GaussianStream(6, 2, dtype="uint8").rows(0, 11)
        else:
            names = NAMES
        check(group, expected, names, 4)

    @given(
        cuts=st.lists(st.integers(0, 11), max_size=6).map(sorted),
        chunk_rows=st.integers(1, 13),
        known=st.booleans(),
        labels=st.sampled_from([None, Y.astype(np.int64), NAMES]),
    )
    @settings(max_examples=25)
    def test_batches(self, cuts, chunk_rows, known, labels):
        def batches():
            for start, stop in zip([0, *cuts], [*cuts, 11], strict=True):
                part = slice(start, stop)
                yield X[part] if labels is None else (X[part], labels[part])

        reports = []
        group = convert(
            batches(),
            zarr.storage.MemoryStore(),
            n_rows=11 if known else None,
            chunk_rows=chunk_rows,
            progress=lambda *report: reports.append(report),
        )
        check(group, X, labels, min(chunk_rows, 11))
        total = 11 if known else None
        assert reports == [
            (min(done, 11), total) for done in range(chunk_rows, 11 + chunk_rows, chunk_rows)
        ]

    def test_batches_may_drop_labels_and_widen_them(self, tmp_path):
        batches = [(X[:5], Y[:5]), [X[5:], np.full(6, 1000)]]
        expected = np.concatenate([Y[:5], np.full(6, 1000)])
        check(convert(batches, tmp_path / "a"), X, expected)
        check(convert(batches, tmp_path / "b", chunk_rows=2), X, expected, 2)
        check(convert(batches, tmp_path / "c", labels=False), X)
        check(convert([(X, None)], tmp_path / "d"), X)
        floats = [(X[:5], Y[:5].astype("f4")), (X[5:], np.full(6, 0.1))]
        check(convert(floats, tmp_path / "e"), X, np.concatenate([Y[:5], np.full(6, 0.1)]))

    def test_no_rows(self, tmp_path):
        check(convert(X[:0], tmp_path / "a", labels=Y[:0]), X[:0], Y[:0])
        check(convert([(X[:0], NAMES[:0])], tmp_path / "b"), X[:0], NAMES[:0])
        write_idx(tmp_path / "c.idx", X_IMAGES[:0])
        check(convert(tmp_path / "c.idx", tmp_path / "c"), X[:0])


class TestErrors:
    @pytest.mark.parametrize(
        "name", ["no.idx", "no.npy", "no.npz", "no.csv", "no.zarr", "no.zip", "no.such", "no"]
    )
    def test_missing(self, tmp_path, name):
        with pytest.raises(SourceNotFoundError, match=name):
            convert(tmp_path / name, tmp_path / "out")
        with pytest.raises(SourceNotFoundError, match=name):
            convert(X, tmp_path / "out", labels=tmp_path / name)

        (tmp_path / "data.xml").touch()
        with pytest.raises(SourceError, match=r"data\.xml.*expected.*\.npy.*zarr"):
            convert(tmp_path / "data.xml", tmp_path / "out")

    @pytest.mark.parametrize("name", ["a.npy", "a.npz", "a.idx", "a.zip"])
    @pytest.mark.parametrize(
        "content", [PICKLE, b"", b"\x93NUMPY\1\0", b"PK\3\4 broken", b"other things"]
    )
    def test_damaged_files(self, tmp_path, name, content):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(SourceError, match=name):
            convert(tmp_path / name, tmp_path / "out")

    def test_directories_that_are_not_zarr(self, tmp_path):
        (tmp_path / "folder").mkdir()
        with pytest.raises(SourceError, match="folder holds no zarr group or array"):
            convert(tmp_path / "folder", tmp_path / "out")
        zarr.create_group(tmp_path / "group").create_group("X")
        with pytest.raises(SourceError, match="cannot read the array 'X'"):
            convert(tmp_path / "group", tmp_path / "out")

    @pytest.mark.parametrize(
        ("source", "labels", "message"),
        [
            (X, Y[:7], "X has 11 rows but there are 7 labels"),
            (Y, None, r"features of shape \(11,\)"),
            (X, X, r"labels have shape \(11, 6\)"),
            (X[:, :0], Y, "no features"),
            (X.astype(complex), Y, "features of dtype complex128"),
            (X.astype(object), Y, "features of dtype object"),
            (NAMES[:, None], Y, "features of dtype <U11"),
            (X, Y.astype("datetime64[D]"), "labels of dtype datetime64"),
            (X, np.array([*NAMES[:10], 1], object), "rows 0 to 10 .* not strings"),
            (sparse.csr_matrix(X), Y, r"X is sparse.*batches of dense rows"),
            ([], None, "no batches"),
            ([(X, Y), (X[:, 1:], Y)], None, r"shapes .*\(11, 5\), .* after one of .*\(11, 6\)"),
            ([(X, Y), X], None, r"\[\(11, 6\)\] after one of \[\(11, 6\), \(11,\)\]"),
            ([X, (X, Y)], None, r"\(11,\)\] after one of \[\(11, 6\)\]"),
            ([(X, Y[:3])], None, r"\(3,\).*y of shape \(rows,\)"),
            ([(Y, X)], None, r"expected \(X, y\) or X"),
            ([(X, Y, Y)], None, r"expected \(X, y\) or X"),
            ([(X, Y), (X, NAMES)], None, "rows 11 to 21 .* int64 without loss"),
            ([(X, NAMES), (X, Y)], None, "rows 11 to 21 .* not strings"),
            ([(X, Y), (X, Y + 0.5)], None, "rows 11 to 21 .* int64 without loss"),
            ([(X, Y), (X + 0.5, Y)], None, "rows 11 to 21 .* uint8 without loss"),
        ],
    )
    def test_data(self, tmp_path, source, labels, message):
        with pytest.raises(InvalidDataError, match=message):
            convert(source, tmp_path / "out", labels=labels)
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize("n_rows", [10, 12, 0])
    def test_other_number_of_rows(self, tmp_path, n_rows):
        with pytest.raises(InvalidDataError, match=f"expected {n_rows} rows, but .*11"):
            convert([(X, Y)], tmp_path / "out", n_rows=n_rows)
        with pytest.raises(InvalidDataError, match=f"n_rows is {n_rows}, but the source has 11"):
            convert(X, tmp_path / "out", n_rows=n_rows)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"label": 1}, "label given; expected only for tables"),
            ({"header": False}, "header given"),
            ({"delimiter": ","}, "delimiter given"),
            ({"chunk_rows": 0}, "chunk_rows=0; expected an integer >= 1"),
            ({"chunk_rows": 1.5}, "chunk_rows=1.5; expected an integer >= 1"),
            ({"n_rows": -1}, "n_rows=-1; expected an integer >= 0"),
            ({"dtype": "complex64"}, "dtype must be"),
            ({"dtype": "nothing"}, "unknown dtype 'nothing'"),
            ({"source": [X], "labels": Y}, "labels cannot be given with batches"),
        ],
    )
    def test_parameters(self, tmp_path, options, message):
        with pytest.raises(InvalidParameterError, match=message):
            convert(**{"source": X, "store": tmp_path / "out"} | options)

    def test_casts(self, tmp_path):
        reals = np.array([[0.1, 1.0], [np.nan, np.inf]])
        check(convert(reals, tmp_path / "a", dtype="float32"), reals.astype(np.float32))
        check(convert(X, tmp_path / "b", dtype="int16"), X.astype(np.int16))
        for values, dtype in [
            (reals, "int64"),
            (np.array([[1e300]]), "float32"),
            (np.array([[2.0**63]]), "int64"),
            (np.array([[300]]), "uint8"),
            (np.array([[-1]]), "uint64"),
            (np.array([[2]]), "bool"),
        ]:
            with pytest.raises(InvalidDataError, match=f"not {dtype} without loss"):
                convert(values, tmp_path / "c", dtype=dtype)


class TestTarget:
    @pytest.mark.parametrize("name", ["out", "out.zarr", "new/folder/out"])
    def test_a_path_appears_when_it_is_complete(self, tmp_path, name):
        path, seen = tmp_path / name, []
        group = convert(
            *(X, str(path)), labels=Y, chunk_rows=4, progress=lambda *_: seen.append(path.exists())
        )
        assert seen == [False] * 3
        check(group, X, Y)
        with pytest.raises(SourceError, match="exists already"):
            convert(X / 2, path)
        check(zarr.open_group(path, mode="r"), X, Y)
        assert list(path.parent.iterdir()) == [path]

    def test_a_failure_leaves_nothing(self, tmp_path):
        def batches():
            yield X, Y
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            convert(batches(), tmp_path / "out", chunk_rows=2)
        assert not list(tmp_path.iterdir())

    def test_other_files_are_never_replaced(self, tmp_path):
        folder, file = tmp_path / "home", tmp_path / "letter"
        (folder / "precious").mkdir(parents=True)
        file.write_text("precious")
        for place in (folder, file, zarr.storage.LocalStore(folder)):
            with pytest.raises(SourceError, match="exists already"):
                convert(X, place)
        assert (folder / "precious").is_dir()
        assert file.read_text() == "precious"
        (tmp_path / "empty").mkdir()
        check(convert(X, tmp_path / "empty"), X)
        with pytest.raises(InvalidParameterError, match="is no directory"):
            convert(X, tmp_path / "out.zip")

    def test_stores(self, tmp_path):
        for store in (zarr.storage.LocalStore(tmp_path / "a"), zarr.storage.MemoryStore()):
            check(convert(X, store), X)
            with pytest.raises(SourceError, match="exists already"):
                convert(X, store)
            inner = zarr.open_group(store).create_group("inner")
            check(convert(X, inner.store_path / "more", labels=Y), X, Y)
            np.testing.assert_array_equal(zarr.open_group(store)["X"][...], X)

    def test_addresses(self):
        pytest.importorskip("fsspec")
        address = "memory://streamgda-test-datasets/out"
        check(convert(X, address, labels=Y), X, Y)
        check(convert(address, zarr.storage.MemoryStore()), X, Y)
        with pytest.raises(SourceError, match=r"memory://.* exists already"):
            convert(X, address)
        for nothing in ("memory://streamgda-test-datasets/other", zarr.storage.MemoryStore()):
            with pytest.raises(SourceNotFoundError, match="holds no zarr group or array"):
                convert(nothing, zarr.storage.MemoryStore())

    def test_default_chunks_are_of_four_mebibytes(self, tmp_path):
        values = np.zeros((600_000, 8), np.uint8)
        group = convert(values, tmp_path / "out")
        assert group["X"].chunks == ((4 << 20) // 8, 8)
        group = convert(iter([values]), tmp_path / "two")
        assert group["X"].chunks == ((4 << 20) // 8, 8)
        group = convert([values[:10]], tmp_path / "three")
        assert group["X"].chunks == (10, 8)


@pytest.mark.parametrize("kind", ["batches", "idx", "csv", "npy", "zarr", "dask"])
def test_memory_does_not_grow_with_the_rows(tmp_path, kind, monkeypatch):
    rows = 200_000
    monkeypatch.setattr(conversion, "_WRITTEN_BYTES", 200_000)
    if kind == "batches":
        source = [np.ones((1000, 20), np.uint8)] * (rows // 1000)
    elif kind == "csv":
        source = tmp_path / "X.csv"
        source.write_bytes((b"1," * 19 + b"1\n") * rows)
    elif kind == "idx":
        source = tmp_path / "X.idx.gz"
        head = struct.pack(">BBBBII", 0, 0, 0x08, 2, rows, 20)
        source.write_bytes(gzip.compress(head + bytes(rows * 20)))
    elif kind == "npy":
        source = tmp_path / "X.npy"
        np.save(source, np.zeros((rows, 20), np.uint8))
    elif kind == "dask":
        source = da.ones((rows, 20), dtype="u1", chunks=(5000, 20))
    else:
        source = tmp_path / "X.zarr"
        zarr.create_group(source).create_array(
            "X", data=np.ones((rows, 20), "u1"), chunks=(7000, 20)
        )
    group, numbers = convert(source, tmp_path / "first"), itertools.count()
    assert group["X"].shape == (rows, 20 - (kind == "csv"))
    assert_peak_below(
        group["X"].nbytes / 2,
        lambda: convert(source, tmp_path / str(next(numbers)), chunk_rows=rows // 40),
    )
