"""Files that several test modules write, and checks of the converted data."""

import csv
import gzip
import io
import struct
from pathlib import Path

import numpy as np
import zarr

# The format is described at http://yann.lecun.com/exdb/mnist.
IDX_TYPES = {
    0x08: ("uint8", "B"),
    0x09: ("int8", "b"),
    0x0B: ("int16", "h"),
    0x0C: ("int32", "i"),
    0x0D: ("float32", "f"),
    0x0E: ("float64", "d"),
}
IDX_CODES = {name: code for code, (name, _) in IDX_TYPES.items()}


def idx_bytes(array: np.ndarray) -> bytes:
    code = IDX_CODES[array.dtype.name]
    head = struct.pack(f">BBBB{array.ndim}I", 0, 0, code, array.ndim, *array.shape)
    return head + struct.pack(f">{array.size}{IDX_TYPES[code][1]}", *array.ravel().tolist())


def write_idx(path: Path, array: np.ndarray, zipped: bool = False) -> Path:
    path.write_bytes(gzip.compress(idx_bytes(array)) if zipped else idx_bytes(array))
    return path


def write_csv(path, rows, delimiter=",", encoding="utf-8"):
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=delimiter).writerows(rows)
    content = text.getvalue().encode(encoding)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def check(group, X, y=None, chunk_rows=None):
    """Check that the group holds these arrays, in chunks as documented."""
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
    for name, data, size in (("X", X, (4, 5)), ("y", Y, (3,))):
        layout = {"chunks": chunks.get(name, size), "config": {"write_empty_chunks": True}}
        group.create_array(name, data=data, **layout)
    return group
