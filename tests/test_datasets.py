"""Data sets: IDX files, MNIST and digits, synthetic streams, conversion to zarr."""

import contextlib
import csv
import gzip
import io
import os
import pickle
import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from streamgda import datasets
from streamgda.datasets import GaussianStream, IdxFile, convert, load_digits, load_mnist, read_idx
from streamgda.errors import (
    InvalidDataError,
    InvalidParameterError,
    SourceError,
    SourceNotFoundError,
)

# The format, as it is described at http://yann.lecun.com/exdb/mnist.
IDX_TYPES = {
    0x08: ("uint8", "B"),
    0x09: ("int8", "b"),
    0x0B: ("int16", "h"),
    0x0C: ("int32", "i"),
    0x0D: ("float32", "f"),
    0x0E: ("float64", "d"),
}
IDX_CODES = {name: code for code, (name, _) in IDX_TYPES.items()}


@contextlib.contextmanager
def peak_memory():
    """A list that holds, afterwards, the peak of Python's and NumPy's memory."""
    peak = []
    tracemalloc.start()
    try:
        yield peak
    finally:
        peak.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()


def idx_bytes(array: np.ndarray) -> bytes:
    code = IDX_CODES[array.dtype.name]
    head = struct.pack(f">BBBB{array.ndim}I", 0, 0, code, array.ndim, *array.shape)
    return head + struct.pack(f">{array.size}{IDX_TYPES[code][1]}", *array.ravel().tolist())


def write_idx(path: Path, array: np.ndarray, zipped: bool = False) -> Path:
    path.write_bytes(gzip.compress(idx_bytes(array)) if zipped else idx_bytes(array))
    return path


def idx_arrays() -> st.SearchStrategy[np.ndarray]:
    shapes = hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=5)

    def of(name: str) -> st.SearchStrategy[np.ndarray]:
        kind = np.dtype(name)
        finite = {"allow_nan": False} if kind.kind == "f" else {}
        return hnp.arrays(kind, shapes, elements=hnp.from_dtype(kind, **finite))

    return st.sampled_from(sorted(IDX_CODES)).flatmap(of)


class TestIdx:
    @given(array=idx_arrays(), zipped=st.booleans(), rows=st.integers(1, 7))
    def test_round_trip(self, tmp_path, array, zipped, rows):
        path = write_idx(tmp_path / "any-name", array, zipped)
        read = read_idx(path)
        assert read.shape == array.shape
        assert read.dtype == array.dtype
        assert read.dtype.isnative
        assert read.flags.writeable
        np.testing.assert_array_equal(read, array)

        file = IdxFile(str(path))
        assert (file.shape, file.dtype) == (array.shape, array.dtype)
        for _ in range(2):  # each iteration starts anew
            blocks = list(file.blocks(rows))
            assert all(len(block) == rows for block in blocks[:-1])
            np.testing.assert_array_equal(np.concatenate([array[:0], *blocks]), array)

    @pytest.mark.parametrize(
        ("damage", "message"),
        [
            (lambda b: b"", "truncated"),
            (lambda b: b[:3], "truncated"),
            (lambda b: b[:7], "truncated"),
            (lambda b: b[:-1], "truncated"),
            (lambda b: b + b"\0", "goes on after"),
            (lambda b: b"\1" + b[1:], "not an IDX file: it starts with 01 00 0b 02"),
            (lambda b: b"\0\0\x0a" + b[3:], "not an IDX file"),
            (lambda b: b[:3] + b"\0" + b[4:], "not an IDX file"),
            (lambda b: b[:3] + b"\xff" + b[4:], "not an IDX file"),
        ],
    )
    @pytest.mark.parametrize("zipped", [False, True])
    def test_damage(self, tmp_path, damage, message, zipped):
        path = tmp_path / "damaged.idx"
        content = damage(idx_bytes(np.arange(6, dtype=np.int16).reshape(3, 2)))
        path.write_bytes(gzip.compress(content) if zipped else content)
        with pytest.raises(SourceError, match=message) as caught:
            read_idx(path)
        assert str(path) in str(caught.value)

    @pytest.mark.parametrize(
        "damage",
        [
            lambda b: b[:-9],  # within the data
            lambda b: b[:-4],  # within the checksum
            lambda b: b[:-8] + b"\1\2\3\4" + b[-4:],  # another checksum
            lambda b: b[:12] + b"\xff\xff" + b[14:],
            lambda b: b + b"more",
        ],
    )
    def test_damaged_gzip(self, tmp_path, damage):
        path = tmp_path / "damaged.idx.gz"
        path.write_bytes(damage(gzip.compress(idx_bytes(np.arange(99, dtype=np.int32)))))
        with pytest.raises(SourceError, match="damaged gzip"):
            read_idx(path)

    @pytest.mark.parametrize("zipped", [False, True])
    @pytest.mark.parametrize(
        "shape", [(1 << 31,), (2, 1 << 31), (1 << 31,) * 3, (0, 1 << 31, 1 << 31)]
    )
    def test_memory_is_not_taken_for_what_a_header_claims(self, tmp_path, shape, zipped):
        path = tmp_path / "huge.idx"
        content = struct.pack(f">BBBB{len(shape)}I", 0, 0, 0x0E, len(shape), *shape) + bytes(16)
        path.write_bytes(gzip.compress(content) if zipped else content)
        with peak_memory() as peak, pytest.raises(SourceError, match=r"truncated|impossible"):
            IdxFile(path)  # before anything is read
        assert peak[0] < 1 << 20

    def test_memory_grows_with_what_a_gzip_file_holds(self, tmp_path):
        # Well within what deflate could reach for the file's size, but not there.
        path = tmp_path / "short.idx.gz"
        content = struct.pack(">BBBBI", 0, 0, 0x08, 1, 100 << 20) + os.urandom(200_000)
        path.write_bytes(gzip.compress(content))
        with peak_memory() as peak, pytest.raises(SourceError, match="truncated"):
            read_idx(path)
        assert peak[0] < 4 << 20

    def test_missing(self, tmp_path):
        with pytest.raises(SourceNotFoundError, match=r"nothing\.idx does not exist"):
            read_idx(tmp_path / "nothing.idx")
        with pytest.raises(SourceError, match="not a regular file"):
            read_idx(tmp_path)

    def test_block_of_no_rows(self, tmp_path):
        file = IdxFile(write_idx(tmp_path / "a.idx", np.zeros(3, np.uint8)))
        with pytest.raises(InvalidParameterError, match="rows must be at least 1, not 0"):
            next(file.blocks(0))


MNIST_FILES = [
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
]


class TestMnist:
    def arrays(self):
        rng = np.random.default_rng(0)
        return [
            rng.integers(0, 256, shape, np.uint8) for shape in [(7, 4, 5), (7,), (3, 4, 5), (3,)]
        ]

    def test_four_files(self, tmp_path):
        arrays = self.arrays()
        for name, array, zipped in zip(MNIST_FILES, arrays, [0, 1, 1, 0], strict=True):
            write_idx(tmp_path / (name + ".gz" * zipped), array, bool(zipped))
        loaded = load_mnist(tmp_path)
        for read, array in zip(loaded, arrays, strict=True):
            assert read.dtype == np.uint8
            np.testing.assert_array_equal(read, array.reshape(len(array), -1).squeeze())
        assert loaded[0].shape == (7, 20)

    def test_no_images(self, tmp_path):
        for name, array in zip(MNIST_FILES, self.arrays(), strict=True):
            write_idx(tmp_path / name, array[:0])
        assert [array.shape for array in load_mnist(tmp_path)] == [(0, 20), (0,), (0, 20), (0,)]

    def test_missing_files_are_named(self, tmp_path):
        write_idx(tmp_path / MNIST_FILES[0], np.zeros((1, 2, 2), np.uint8))
        with pytest.raises(SourceNotFoundError) as caught:
            load_mnist(tmp_path)
        assert [name in str(caught.value) for name in MNIST_FILES] == [False, True, True, True]

    @pytest.mark.parametrize(
        ("index", "array", "error", "message"),
        [
            (0, np.zeros((7, 20), np.uint8), SourceError, "3 dimensions"),
            (1, np.zeros(7, np.int32), SourceError, "int32"),
            (3, np.zeros(4, np.uint8), InvalidDataError, "3 images, .* 4 labels"),
        ],
    )
    def test_other_files(self, tmp_path, index, array, error, message):
        arrays = self.arrays()
        arrays[index] = array
        for name, content in zip(MNIST_FILES, arrays, strict=True):
            write_idx(tmp_path / name, content)
        with pytest.raises(error, match=message):
            load_mnist(tmp_path)

    @pytest.mark.mnist
    def test_mnist_itself(self):
        folder = os.environ.get("STREAMGDA_MNIST")
        if not folder:
            pytest.skip("STREAMGDA_MNIST is not set: it names the folder with the four MNIST files")
        X_train, y_train, X_test, y_test = load_mnist(folder)
        assert (X_train.shape, X_test.shape) == ((60000, 784), (10000, 784))
        assert X_train.dtype == X_test.dtype == y_train.dtype == y_test.dtype == np.uint8
        assert np.bincount(y_train).tolist() == [
            5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949
        ]  # fmt: skip
        assert np.bincount(y_test).tolist() == [
            980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009
        ]  # fmt: skip
        # The mean and standard deviation that everybody normalises MNIST with.
        assert round(float(X_train.mean()) / 255, 4) == 0.1307
        assert round(float(X_train.std()) / 255, 4) == 0.3081


def test_digits():
    from sklearn.datasets import load_digits as original

    X, y = load_digits()
    expected_X, expected_y = original(return_X_y=True)
    assert (X.dtype, y.dtype, X.shape) == (np.uint8, np.int64, (1797, 64))
    np.testing.assert_array_equal(X, expected_X)
    np.testing.assert_array_equal(y, expected_y)


class TestGaussianStream:
    @given(
        n_rows=st.integers(0, 12),
        batch_rows=st.integers(1, 14),
        dtype=st.sampled_from(["float64", "float32", "uint8", "int16"]),
    )
    @settings(max_examples=25)
    def test_rows_do_not_depend_on_batches(self, n_rows, batch_rows, dtype):
        stream = GaussianStream(20_000, 3, seed=5, dtype=dtype)  # blocks of three rows
        X, y = stream.rows(0, n_rows)
        assert (X.shape, X.dtype) == ((n_rows, 20_000), np.dtype(dtype))
        assert (y.shape, y.dtype) == ((n_rows,), np.int64)
        start = 0
        for X_batch, y_batch in stream.batches(n_rows, batch_rows):
            assert len(X_batch) == len(y_batch) == min(batch_rows, n_rows - start)
            np.testing.assert_array_equal(X_batch, X[start : start + batch_rows])
            np.testing.assert_array_equal(y_batch, y[start : start + batch_rows])
            start += batch_rows
        assert start >= n_rows

    def test_rows_anywhere(self):
        stream = GaussianStream(3, 4, seed=2**70)
        X, y = stream.rows(0, 50_000)  # some blocks
        for start, stop in [(0, 0), (7, 7), (21_840, 21_850), (1, 49_999), (43_690, 43_691)]:
            X_part, y_part = stream.rows(start, stop)
            np.testing.assert_array_equal(X_part, X[start:stop])
            np.testing.assert_array_equal(y_part, y[start:stop])
        far, _ = stream.rows(10**15, 10**15 + 3)
        assert len(np.unique(np.concatenate([X, far]), axis=0)) == 50_003

    def test_the_same_from_a_copy_and_other_from_another_seed(self):
        stream = GaussianStream(3, 4, seed=1)
        X, y = stream.rows(5, 500)
        X_copy, y_copy = pickle.loads(pickle.dumps(stream)).rows(5, 500)
        np.testing.assert_array_equal(X, X_copy)
        np.testing.assert_array_equal(y, y_copy)
        other = GaussianStream(3, 4, seed=2)
        assert not np.isin(other.rows(5, 500)[0], X).any()
        assert not np.isin(other.means, stream.means).any()

    def test_callers_may_change_what_they_get(self):
        stream = GaussianStream(2, 2)
        expected = stream.rows(0, 40)[0]
        got = []
        for X, y in stream.batches(40, 7):
            got.append(X.copy())
            X[:], y[:] = 0, 0
        np.testing.assert_array_equal(np.concatenate(got), expected)

    @pytest.mark.parametrize("tied", [False, True])
    def test_the_rows_follow_the_gaussians(self, tied):
        priors = [0.5, 0.0, 0.2, 0.3]
        stream = GaussianStream(5, 4, priors=priors, tied=tied, loc=100.0, scale=3.0, seed=3)
        X, y = stream.rows(0, 200_000)
        assert stream.priors.tolist() == priors
        np.testing.assert_allclose(np.bincount(y, minlength=4) / len(y), priors, atol=0.005)
        for label in (0, 2, 3):
            # What whitens the class makes its rows standard normal.
            root = np.linalg.cholesky(stream.covariances[label])
            Z = np.linalg.solve(root, (X[y == label] - stream.means[label]).T).T
            error = 1 / np.sqrt(len(Z))
            np.testing.assert_allclose(Z.mean(axis=0), 0, atol=5 * error)
            np.testing.assert_allclose(Z.T @ Z / len(Z), np.eye(5), atol=5 * np.sqrt(2) * error)
            np.testing.assert_allclose((Z**4).mean(axis=0), 3, atol=5 * np.sqrt(96) * error)
        assert (np.ptp(stream.covariances, axis=0) == 0).all() == tied

    def test_separation_and_scale(self):
        stream = GaussianStream(30, 400, separation=4.0, scale=0.5, loc=-7.0)
        difference = stream.means[::2] - stream.means[1::2]
        distance = np.sqrt((difference**2).sum(axis=1).mean())
        assert distance == pytest.approx(4.0 * 0.5, rel=0.05)
        assert stream.means.mean() == pytest.approx(-7, abs=0.01)
        variance = np.trace(stream.covariances, axis1=1, axis2=2).mean() / 30
        assert variance == pytest.approx(0.5**2, rel=0.05)

    @pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int32"])
    def test_integers_are_rounded_and_clipped(self, dtype):
        info = np.iinfo(dtype)
        middle = (int(info.min) + int(info.max) + 1) / 2
        stream = GaussianStream(4, 3, dtype=dtype)
        real = GaussianStream(4, 3, loc=middle, scale=16.0)
        np.testing.assert_array_equal(stream.means, real.means)
        expected = np.clip(np.round(real.rows(0, 2000)[0]), info.min, info.max)
        np.testing.assert_array_equal(stream.rows(0, 2000)[0], expected)

    @pytest.mark.parametrize("dtype", ["uint8", "int64", "uint64"])
    def test_values_beyond_the_type(self, dtype):
        info = np.iinfo(dtype)
        X = GaussianStream(2, 2, dtype=dtype, loc=0.0, scale=1e30).rows(0, 100)[0]
        negative = GaussianStream(2, 2, loc=0.0, scale=1e30).rows(0, 100)[0] < 0
        assert (X[negative] == info.min).all()
        assert (X[~negative] >= info.max - info.max // 2**50).all()

    @pytest.mark.parametrize(
        ("changed", "message"),
        [
            ({"n_features": 0}, "n_features must be at least 1, not 0"),
            ({"n_classes": 0}, "n_classes must be at least 1"),
            ({"n_classes": 2.0}, "n_classes must be an integer"),
            ({"seed": -1}, "seed must be at least 0"),
            ({"dtype": "complex128"}, "dtype"),
            ({"dtype": "bool"}, "dtype"),
            ({"priors": [1.0]}, "priors must be 2 numbers"),
            ({"priors": [0.5, 0.6]}, "priors"),
            ({"priors": [1.5, -0.5]}, "priors"),
            ({"priors": [np.nan, 1]}, "priors"),
            ({"scale": 0.0}, "scale"),
            ({"separation": -1.0}, "separation"),
            ({"loc": np.inf}, "loc"),
        ],
    )
    def test_parameters(self, changed, message):
        with pytest.raises(InvalidParameterError, match=message):
            GaussianStream(**({"n_features": 2, "n_classes": 2} | changed))

    def test_ranges(self):
        stream = GaussianStream(2, 2)
        for call in (
            lambda: stream.rows(-1, 2),
            lambda: stream.rows(3, 2),
            lambda: stream.batches(-1, 2),
            lambda: stream.batches(3, 0),
        ):
            with pytest.raises(InvalidParameterError, match="must be at least"):
                call()
        assert repr(stream) == "GaussianStream(2, 2, seed=0, dtype='float64')"


def write_csv(path, rows, delimiter=",", encoding="utf-8"):
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=delimiter).writerows(rows)
    content = text.getvalue().encode(encoding)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def check(group, X, y=None, chunk_rows=None):
    """The group holds these arrays, chunked as promised."""
    assert group.metadata.zarr_format == 3
    assert sorted(group) == (["X"] if y is None else ["X", "y"])
    assert group["X"].dtype == X.dtype
    np.testing.assert_array_equal(group["X"][...], X)
    assert group["X"].chunks[1:] == X.shape[1:]
    if chunk_rows is not None:
        assert group["X"].chunks[0] == chunk_rows
    if y is not None:
        y = np.asarray(y)
        read = group["y"]
        assert read.chunks == group["X"].chunks[:1]
        assert read.dtype.kind == "T" if y.dtype.kind in "UOT" else read.dtype == y.dtype
        assert read[...].tolist() == y.tolist()


X_IMAGES = np.random.default_rng(1).integers(0, 256, (11, 3, 2), np.uint8)
X = X_IMAGES.reshape(11, 6)
Y = np.arange(11, dtype=np.uint8) % 3
NAMES = np.array(["ant", "bee", "Ω, the last"])[Y]


def zarr_group(store, **chunks):
    group = zarr.create_group(store, overwrite=True)
    group.create_array("X", data=X, chunks=chunks.get("X", (4, 5)))
    group.create_array("y", data=Y, chunks=chunks.get("y", (3,)))
    return group


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
        first = convert(X, tmp_path / "first.zip", labels=NAMES)
        check(first, X, NAMES)
        check(convert(tmp_path / "first.zip", tmp_path / "second", chunk_rows=5), X, NAMES, 5)

    def test_zarr_of_strings_in_memory(self):
        check(convert(X, zarr.storage.MemoryStore(), labels=NAMES, chunk_rows=2), X, NAMES, 2)

    @pytest.mark.parametrize(
        "labels",
        [NAMES, NAMES.astype(object), NAMES.astype(np.dtypes.StringDType()), NAMES.tolist()],
    )
    def test_arrays(self, tmp_path, labels):
        check(convert(X, tmp_path / "out", labels=labels, chunk_rows=10), X, NAMES, 10)

    def test_bytes_become_strings(self, tmp_path):
        check(convert(X[:2], tmp_path / "out", labels=np.array([b"a", b"bc"])), X[:2], ["a", "bc"])

    def test_data_frame_and_dask(self, tmp_path):
        import dask.array as da
        import pandas as pd

        frame = pd.DataFrame(X / 2)
        check(convert(frame, tmp_path / "a", labels=pd.Series(NAMES)), X / 2, NAMES)
        lazy = da.from_array(X, chunks=(3, 2))
        check(convert(lazy, tmp_path / "b", labels=da.from_array(Y), chunk_rows=4), X, Y, 4)

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
        check(group, X, labels, min(chunk_rows, 11) if known else chunk_rows)
        total = 11 if known else None
        assert reports == [
            (min(done, 11), total) for done in range(chunk_rows, 11 + chunk_rows, chunk_rows)
        ]

    def test_batches_may_drop_labels_and_widen_them(self, tmp_path):
        batches = [(X[:5], Y[:5]), [X[5:], np.full(6, 1000)]]
        expected = np.concatenate([Y[:5], np.full(6, 1000)])
        check(convert(batches, tmp_path / "a"), X, expected)
        check(convert(batches, tmp_path / "b.zip", chunk_rows=2), X, expected, 2)
        check(convert(batches, tmp_path / "c", labels=False), X)
        check(convert([(X, None)], tmp_path / "d"), X)
        floats = [(X[:5], Y[:5].astype("f4")), (X[5:], np.full(6, 0.1))]
        check(convert(floats, tmp_path / "e"), X, np.concatenate([Y[:5], np.full(6, 0.1)]))

    def test_stream(self, tmp_path):
        stream = GaussianStream(3, 2, dtype="uint8")
        group = convert(stream.batches(1000, 77), tmp_path / "out", chunk_rows=100)
        check(group, *stream.rows(0, 1000), 100)

    def test_no_rows(self, tmp_path):
        check(convert(X[:0], tmp_path / "a", labels=Y[:0]), X[:0], Y[:0])
        check(convert([(X[:0], NAMES[:0])], tmp_path / "b"), X[:0], NAMES[:0])
        write_idx(tmp_path / "c.idx", X_IMAGES[:0])
        check(convert(tmp_path / "c.idx", tmp_path / "c"), X[:0])


class TestCsv:
    HEADER = ("length", "width", "kind")
    ROWS = ((1.5, "-2e3", "ant"), (0, " 7 ", "bee"), ("nan", "inf", "Ω, the last"))
    FEATURES = np.array([[1.5, -2000], [0, 7], [np.nan, np.inf]])
    LABELS = ("ant", "bee", "Ω, the last")

    @pytest.mark.parametrize("header", [None, True])
    @pytest.mark.parametrize("column", [None, 2, -1, "kind"])
    def test_label_column(self, tmp_path, header, column):
        path = write_csv(tmp_path / "data.csv", [self.HEADER, *self.ROWS])
        group = convert(path, tmp_path / "out", label_column=column, header=header)
        check(group, self.FEATURES, self.LABELS)

    @pytest.mark.parametrize("column", [0, "kind", -3])
    def test_label_first(self, tmp_path, column):
        rows = [row[-1:] + row[:-1] for row in (self.HEADER, *self.ROWS)]
        path = write_csv(tmp_path / "data.csv", rows)
        check(convert(path, tmp_path / "out", label_column=column), self.FEATURES, self.LABELS)

    @pytest.mark.parametrize("header", [None, False])
    def test_without_header(self, tmp_path, header):
        path = write_csv(tmp_path / "data.csv", self.ROWS)
        check(convert(path, tmp_path / "out", header=header), self.FEATURES, self.LABELS)

    def test_header_of_numbers(self, tmp_path):
        path = write_csv(tmp_path / "data.csv", [(0, 1, "kind"), *self.ROWS])
        check(convert(path, tmp_path / "a", header=True), self.FEATURES, self.LABELS)
        check(convert(path, tmp_path / "b", label_column="kind"), self.FEATURES, self.LABELS)
        check(
            convert(path, tmp_path / "c"),
            np.vstack([[0, 1], self.FEATURES]),
            ["kind", *self.LABELS],
        )

    @pytest.mark.parametrize(
        ("texts", "values"),
        [
            (["1", "-2", "+03"], np.array([1, -2, 3])),
            (["1", "2.5", "1e3"], np.array([1, 2.5, 1000])),
            (["1", "2.5", "x"], np.array(["1", "2.5", "x"])),
            (["1", "2", "1_0"], np.array(["1", "2", "1_0"])),
            (["1", "2", "nan"], np.array(["1", "2", "nan"])),
            (["0", "0", "12345678901234567890"], np.array([0, 0, 12345678901234567890.0])),
        ],
    )
    def test_kinds_of_labels(self, tmp_path, texts, values):
        path = write_csv(tmp_path / "data.csv", [[0.5, text] for text in texts])
        check(convert(path, tmp_path / "out", chunk_rows=1), np.full((3, 1), 0.5), values, 1)

    def test_external_labels_and_none(self, tmp_path):
        path = write_csv(tmp_path / "data.csv", self.FEATURES)
        check(convert(path, tmp_path / "a", labels=False), self.FEATURES)
        group = convert(path, tmp_path / "b", labels=Y[:3], chunk_rows=2)
        check(group, self.FEATURES, Y[:3], 2)

    def test_dialects(self, tmp_path):
        rows = [self.HEADER, *self.ROWS]
        for name, options, delimiter in [
            ("a.csv.gz", {}, ","),
            ("b.tsv", {}, "\t"),
            ("c.CSV", {"delimiter": ";"}, ";"),
            ("d.tsv.gz", {"delimiter": ","}, ","),
        ]:
            path = write_csv(tmp_path / name, rows, delimiter, encoding="utf-8-sig")
            group = convert(path, tmp_path / f"{name}.zarr", label_column="kind", **options)
            check(group, self.FEATURES, self.LABELS)

    def test_blank_lines_quotes_and_spaces(self, tmp_path):
        path = tmp_path / "data.csv"
        path.write_text('\n"a", "b", "c"\r\n\n1, "2", "two\nlines"\n\n3,4, "a ""quoted"" one"')
        group = convert(path, tmp_path / "out", label_column="c")
        check(group, np.array([[1.0, 2], [3, 4]]), ["two\nlines", 'a "quoted" one'])

    def test_pixels(self, tmp_path):
        path = write_csv(tmp_path / "data.csv", np.column_stack([X, Y]).tolist())
        check(convert(path, tmp_path / "out", dtype="uint8"), X, Y.astype(np.int64))
        with pytest.raises(InvalidDataError, match=r"rows 0 to 10 .*\(float64\).* int8"):
            convert(path, tmp_path / "other", dtype="int8")

    @given(
        values=hnp.arrays(float, hnp.array_shapes(min_dims=2, max_dims=2, max_side=6)),
        data=st.data(),
        chunk_rows=st.integers(1, 4),
    )
    @settings(max_examples=25)
    def test_round_trip(self, tmp_path, values, data, chunk_rows):
        text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)
        text = text.filter(lambda t: t == t.lstrip(" ") and t[0] != "\ufeff")
        names = data.draw(st.lists(text, min_size=len(values), max_size=len(values)))
        names[0] = "a name"
        column = data.draw(st.integers(0, values.shape[1]))
        rows = [
            [*row[:column], name, *row[column:]]
            for row, name in zip(values.tolist(), names, strict=True)
        ]
        path = write_csv(tmp_path / "data.csv", rows)
        store = zarr.storage.MemoryStore()
        group = convert(path, store, label_column=column, chunk_rows=chunk_rows)
        check(group, values, names)

    @pytest.mark.parametrize(
        ("text", "options", "message"),
        [
            ("a,b,c\n1,2,x\n1,2,3,x\n", {}, "line 3: 4 fields, the first line has 3"),
            ("1,2,x\n\n\n1,x\n", {}, "line 4: 2 fields, the first line has 3"),
            ("a,b,c\n1,2,x\n1,two,x\n", {}, "line 3: field 2 is not a number: 'two'"),
            ("c,a,b\nx,1,2\nx,1,\n", {"label_column": 0}, "line 3: field 3 is not a number: ''"),
            ("1,2,x\n1,2_0,x\n", {}, "line 2: field 2 is not a number: '2_0'"),
            ("a,2,x\n1,2,x\n", {}, "line 1: field 1 is not a number: 'a'"),
            ("a,b,c\n1,2,x\n", {"header": False}, "line 1: field 1 is not a number: 'a'"),
            ("1,2,x\n1,2,\n", {}, "line 2: the label is empty"),
            ('1,2,x\n1,2,"x\n1,2,x\n', {}, "after line 3: unexpected end of data"),
            ("a,b\n1,x\n", {"label_column": "c"}, "0 columns named 'c'.*a, b"),
            ("a,a\n1,x\n", {"label_column": "a"}, "2 columns named 'a'"),
            ("a,b\n", {}, "no rows, only a header"),
            ("x\ny\n", {}, "no columns of features"),
            ("", {}, "no columns of features"),
        ],
    )
    def test_errors_name_the_line(self, tmp_path, text, options, message):
        path = tmp_path / "data.csv"
        path.write_text(text)
        with pytest.raises(SourceError, match=message) as caught:
            convert(path, tmp_path / "out", chunk_rows=1, **options)
        assert str(path) in str(caught.value)
        assert list(tmp_path.iterdir()) == [path]

    def test_other_encoding(self, tmp_path):
        path = tmp_path / "data.csv"
        path.write_bytes("1,é\n".encode("latin-1"))
        with pytest.raises(SourceError, match="line 0: 'utf-8' codec"):
            convert(path, tmp_path / "out")

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"label_column": 3}, "one of 3 columns, not 3"),
            ({"label_column": -4}, "one of 3 columns, not -4"),
            ({"label_column": 0.5}, "one of 3 columns, not 0.5"),
            ({"delimiter": ""}, "delimiter must be one character"),
            ({"label_column": 0, "labels": Y[:3]}, "exclude each other"),
        ],
    )
    def test_parameters(self, tmp_path, options, message):
        path = write_csv(tmp_path / "data.csv", self.ROWS)
        with pytest.raises(InvalidParameterError, match=message):
            convert(path, tmp_path / "out", **options)


class TestErrors:
    @pytest.mark.parametrize(
        "name", ["no.idx", "no.npy", "no.npz", "no.csv", "no.zarr", "no.zip", "no.such", "no"]
    )
    def test_missing(self, tmp_path, name):
        with pytest.raises(SourceNotFoundError, match=name):
            convert(tmp_path / name, tmp_path / "out")
        with pytest.raises(SourceNotFoundError, match=name):
            convert(X, tmp_path / "out", labels=tmp_path / name)

    def test_unknown_suffix(self, tmp_path):
        (tmp_path / "data.parquet").touch()
        with pytest.raises(SourceError, match=r"data\.parquet.*accepted.*\.npy.*zarr"):
            convert(tmp_path / "data.parquet", tmp_path / "out")

    @pytest.mark.parametrize("name", ["a.npy", "a.npz", "a.idx", "a.zip"])
    @pytest.mark.parametrize("content", [b"", b"\x93NUMPY\1\0", b"PK\3\4 broken", b"other things"])
    def test_damaged_files(self, tmp_path, name, content):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(SourceError, match=name):
            convert(tmp_path / name, tmp_path / "out")

    def test_pickles_are_not_read(self, tmp_path):
        values = np.array([[1, 2], [3, 4]], object)
        np.save(tmp_path / "a.npy", values, allow_pickle=True)
        np.savez(tmp_path / "a.npz", X=values)
        for name in ("a.npy", "a.npz"):
            with pytest.raises(SourceError, match=name):
                convert(tmp_path / name, tmp_path / "out")

    def test_directories_that_are_not_zarr(self, tmp_path):
        (tmp_path / "folder").mkdir()
        with pytest.raises(SourceError, match="folder is no zarr"):
            convert(tmp_path / "folder", tmp_path / "out")
        zarr.create_group(tmp_path / "group").create_group("X")
        with pytest.raises(SourceError, match="'X' is no array"):
            convert(tmp_path / "group", tmp_path / "out")

    @pytest.mark.parametrize(
        ("source", "labels", "message"),
        [
            (X, Y[:7], "11 rows, but 7 labels"),
            (Y, None, r"features of shape \(11,\)"),
            (X, X, r"labels of shape \(11, 6\)"),
            (X[:, :0], Y, "no features"),
            (X.astype(complex), Y, "features of dtype complex128"),
            (X.astype(object), Y, "features of dtype object"),
            (NAMES[:, None], Y, "features of dtype <U11"),
            (X, Y.astype("datetime64[D]"), "labels of dtype datetime64"),
            (X, np.array([*NAMES[:10], 1], object), "rows 0 to 10 .* not strings"),
            ([], None, "no batches"),
            ([(X, Y), (X[:, 1:], Y)], None, r"X of shape \(11, 5\) and y .* after .*\(11, 6\)"),
            ([(X, Y), X], None, r"and no y after one with .* y of shape \(11,\)"),
            ([X, (X, Y)], None, "no y"),
            ([(X, Y[:3])], None, "11 rows, but 3 labels"),
            ([(Y, X)], None, r"X of shape \(11,\)"),
            ([(X, Y, Y)], None, "a batch of 3 parts"),
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
        with pytest.raises(InvalidDataError, match=f"{n_rows} rows were due, but .*11"):
            convert([(X, Y)], tmp_path / "out", n_rows=n_rows)
        with pytest.raises(InvalidDataError, match=f"n_rows is {n_rows}, but there are 11"):
            convert(X, tmp_path / "out", n_rows=n_rows)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"label_column": 1}, "label_column can be given for .csv and .tsv"),
            ({"header": False}, "header can be given"),
            ({"delimiter": ","}, "delimiter can be given"),
            ({"chunk_rows": 0}, "chunk_rows must be at least 1"),
            ({"chunk_rows": 1.5}, "chunk_rows must be an integer"),
            ({"n_rows": -1}, "n_rows must be at least 0"),
            ({"dtype": "complex64"}, "dtype must be"),
            ({"dtype": "nothing"}, "'nothing' is not known"),
        ],
    )
    def test_parameters(self, tmp_path, options, message):
        with pytest.raises(InvalidParameterError, match=message):
            convert(X, tmp_path / "out", **options)

    def test_labels_beside_batches(self, tmp_path):
        with pytest.raises(InvalidParameterError, match="batches bring their labels"):
            convert([X], tmp_path / "out", labels=Y)

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
    @pytest.mark.parametrize("name", ["out", "out.zarr", "out.zip", "new/folder/out.zip"])
    def test_existing_is_replaced_when_asked_only(self, tmp_path, name):
        path = tmp_path / name
        check(convert(X, str(path), labels=Y), X, Y)
        with pytest.raises(InvalidParameterError, match="exists: overwrite=True"):
            convert(X / 2, path)
        check(
            zarr.open_group(zarr.storage.ZipStore(path) if ".zip" in name else path, mode="r"), X, Y
        )
        check(convert(X / 2, path, overwrite=True), X / 2)
        assert list(path.parent.iterdir()) == [path]
        assert path.is_file() == (path.suffix == ".zip")

    @pytest.mark.parametrize("name", ["out", "out.zip"])
    def test_failure_leaves_everything_as_it_was(self, tmp_path, name):
        def batches():
            yield X, Y
            raise KeyboardInterrupt

        path = tmp_path / name
        with pytest.raises(KeyboardInterrupt):
            convert(batches(), path, chunk_rows=2)
        assert not list(tmp_path.iterdir())
        convert(X, path, labels=Y)
        with pytest.raises(KeyboardInterrupt):
            convert(batches(), path, chunk_rows=2, overwrite=True)
        assert list(tmp_path.iterdir()) == [path]
        check(convert(path, tmp_path / "copy"), X, Y)

    def test_nothing_stands_there_before_the_end(self, tmp_path):
        seen = []
        path = tmp_path / "out"
        convert(X, path, chunk_rows=4, progress=lambda *_: seen.append(path.exists()))
        assert seen == [False] * 3

    def test_what_is_not_zarr_is_never_replaced(self, tmp_path):
        folder, file, zipped = tmp_path / "home", tmp_path / "letter", tmp_path / "a.zip"
        (folder / "precious").mkdir(parents=True)
        (zipped / "precious").mkdir(parents=True)
        file.write_text("precious")
        for path in (folder, file, zipped):
            with pytest.raises(InvalidParameterError, match="is not zarr"):
                convert(X, path, overwrite=True)
        assert (folder / "precious").is_dir()
        assert file.read_text() == "precious"

    def test_empty_directory(self, tmp_path):
        check(convert(X, tmp_path), X)

    @pytest.mark.parametrize("name", ["data", "data.zip"])
    def test_onto_itself(self, tmp_path, name):
        path = tmp_path / name
        convert(X, path, labels=Y, chunk_rows=2)
        check(convert(path, path, chunk_rows=5, overwrite=True), X, Y, 5)

    def test_local_stores_are_paths(self, tmp_path):
        store = zarr.storage.LocalStore(tmp_path / "a")
        check(convert(X, store), X)
        check(convert(store, store, dtype=float, overwrite=True), X.astype(float))
        group = zarr.create_group(tmp_path / "b")
        inner = group.create_group("inner")
        with pytest.raises(InvalidParameterError, match="inner exists"):
            convert(X, inner)
        check(convert(X, inner, overwrite=True), X)
        assert list(group) == ["inner"]

    def test_other_stores(self):
        store = zarr.storage.MemoryStore()
        check(convert(X, store), X)
        with pytest.raises(InvalidParameterError, match="overwrite=True"):
            convert(X, store)
        check(convert(X / 2, store, labels=Y, overwrite=True), X / 2, Y)
        group = zarr.open_group(store)
        for source, labels in [(store, None), (group, None), (group["X"], None), (X, group["y"])]:
            with pytest.raises(InvalidParameterError, match="lies in the store"):
                convert(source, store, labels=labels, overwrite=True)
        inner = group.create_group("inner")
        check(convert(X, inner, labels=Y, overwrite=True), X, Y)
        np.testing.assert_array_equal(group["X"][...], X / 2)

    def test_addresses(self):
        pytest.importorskip("fsspec")
        address = "memory://streamgda-test-datasets/out"
        check(convert(X, address, labels=Y, overwrite=True), X, Y)
        check(convert(address, zarr.storage.MemoryStore()), X, Y)
        for options in ({}, {"overwrite": True}):
            with pytest.raises(InvalidParameterError, match="memory://"):
                convert(address, address, **options)
        for nothing in ("memory://streamgda-test-datasets/other", zarr.storage.MemoryStore()):
            with pytest.raises(SourceNotFoundError, match="is no zarr"):
                convert(nothing, zarr.storage.MemoryStore())

    def test_default_chunks_are_of_four_mebibytes(self, tmp_path):
        values = np.zeros((600_000, 8), np.uint8)
        group = convert(values, tmp_path / "out")
        assert group["X"].chunks == ((4 << 20) // 8, 8)
        group = convert([values[:10]], tmp_path / "out", overwrite=True)
        assert group["X"].chunks == ((4 << 20) // 8, 8)


@pytest.mark.parametrize("kind", ["batches", "idx", "csv", "npy", "zarr", "dask"])
def test_memory_does_not_grow_with_the_rows(tmp_path, kind):
    rows = 200_000
    if kind == "batches":
        source = (np.ones((1000, 20), np.uint8) for _ in range(rows // 1000))
    elif kind == "csv":
        rows //= 40
        source = write_csv(tmp_path / "X.csv", np.ones((rows, 20), int).tolist())
    elif kind == "idx":
        source = tmp_path / "X.idx.gz"
        head = struct.pack(">BBBBII", 0, 0, 0x08, 2, rows, 20)
        source.write_bytes(gzip.compress(head + bytes(rows * 20)))
    elif kind == "npy":
        source = tmp_path / "X.npy"
        np.save(source, np.zeros((rows, 20), np.uint8))
    elif kind == "dask":
        import dask.array as da

        source = da.ones((rows, 20), dtype="u1", chunks=(5000, 20))
    else:
        source = tmp_path / "X.zarr"
        zarr.create_group(source).create_array(
            "X", data=np.ones((rows, 20), "u1"), chunks=(7000, 20)
        )
    convert(X, tmp_path / "first")  # what is imported and started on first use
    with peak_memory() as peak:
        group = convert(source, tmp_path / "out", chunk_rows=rows // 40)
    assert group["X"].shape == (rows, 20 - (kind == "csv"))
    assert peak[0] < group["X"].nbytes / 2


def test_import_is_light():
    program = (
        "import sys, types\n"
        "package = types.ModuleType('streamgda')\n"  # whose own imports are another matter
        f"package.__path__ = [{str(Path(datasets.__file__).parents[1])!r}]\n"
        "sys.modules['streamgda'] = package\n"
        "import streamgda.datasets\n"
        "print(sorted({'zarr', 'dask', 'pandas', 'sklearn', 'scipy', 'numba'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
