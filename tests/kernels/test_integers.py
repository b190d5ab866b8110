"""Products of bytes against bare loops, with the tiles of every kind of processor."""

import numba
import numpy as np
import pytest
from processes import output

from streamgda.kernels import vectors
from streamgda.kernels.integers import (
    PACKED_ROWS,
    centre_scatter,
    tile_function,
)
from streamgda.kernels.vectors import SHAPES, tile_shape

EVERY_SHAPE = pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)


# --- processors -------------------------------------------------------------------------------


def test_the_shape_follows_the_processor(monkeypatch):
    monkeypatch.delenv("STREAMGDA_VECTORS", raising=False)
    for features, expected in (
        ("+avx512vnni,+avx512bw,+avx2", "avx512vnni"),
        ("+avx512bw,+avx2,+fma", "avx512"),
        ("+avxvnni,+avx2,-avx512bw", "avxvnni"),
        ("+avx2,+fma", "avx2"),
        ("+sse2,-avx2,-avx512bw", "sse2"),
        ("", "sse2"),
    ):
        has = {feature[1:]: feature[0] == "+" for feature in features.split(",") if feature}
        monkeypatch.setattr(numba.config, "CPU_FEATURES", None)
        monkeypatch.setattr(vectors.binding, "get_host_cpu_features", lambda has=has: has)
        assert tile_shape().name == expected
        # Code may be compiled for another processor than this one.
        monkeypatch.setattr(vectors.binding, "get_host_cpu_features", dict)
        monkeypatch.setattr(numba.config, "CPU_FEATURES", features)
        assert tile_shape().name == expected
    monkeypatch.setenv("STREAMGDA_VECTORS", "avx512")
    assert tile_shape().vector_bytes == 64
    monkeypatch.setenv("STREAMGDA_VECTORS", "mmx")
    with pytest.raises(ValueError, match="'mmx' is not known; use one of avx512vnni, avx512, avx"):
        tile_shape()


# --- tiles ------------------------------------------------------------------------------------


@EVERY_SHAPE
def test_multiply_tile(shape):
    """Also with the extreme sums of as many rows as a block has."""
    compiled = tile_function(shape)

    @numba.njit
    def tile(lowered, left, panels, right, depth, row, column, T):
        compiled(lowered, left, panels, right, depth, row, column, T)

    rng = np.random.default_rng(0)
    width, entries = shape.panel_width, PACKED_ROWS // shape.together
    line = width * shape.together
    some = rng.integers(0, 256, entries * line).astype(shape.part)
    most, zeros = np.full_like(some, 255), np.zeros_like(some)
    for pair in ((some, some[::-1].copy()), (most, most), (most, zeros), (some, most)):
        signed = pair[0] ^ shape.part.type(128 if shape.together == 4 else 0)
        for first, depth in ((0, entries), (1, 1), (3, 2)):
            start = rng.integers(-9, 9, width * width).astype(np.int32)
            at = first * line
            for row, column in ((0, 0), (width - shape.rows, width - shape.columns)):
                T, expected = start.copy(), start.reshape(width, width).copy()
                tile(signed, at, pair[1], at, depth, row, column, T)
                u, v = (
                    panel.reshape(entries, width, -1)[first : first + depth].astype(int)
                    for panel in pair
                )
                u -= 128 if shape.together == 4 else 0
                rows, columns = slice(row, row + shape.rows), slice(column, column + shape.columns)
                products = np.einsum("kat,kbt->ab", u[:, rows], v[:, columns])
                expected[rows, columns] += products.astype(np.int32)
                np.testing.assert_array_equal(T.reshape(width, width), expected)


# --- whole sums -------------------------------------------------------------------------------

PROGRAM = """
import numpy as np
from streamgda import ClassMoments
from streamgda.kernels.vectors import SHAPE

rng = np.random.default_rng(0)
print(SHAPE.name)
for d in (9, 21, 140):  # in vectors of float64, and in tiles
    X, Y = rng.integers(-128, 128, (23, d)), rng.integers(0, 1 << 16, (9, d))
    moments = ClassMoments().update(X.astype("i1"), np.arange(23) % 2)
    moments.update(Y.astype("u2"), np.arange(9) % 2)
    print(moments.covariance().tobytes().hex())
"""


@pytest.mark.soak
@pytest.mark.parametrize("name", ["avx512", "avxvnni", "avx2", "sse2"])
def test_all_processors_give_the_same_bits(name, capsys):
    """Words of four bytes and of two, in a process of their own."""
    theirs = output("-c", PROGRAM, STREAMGDA_VECTORS=name)
    exec(PROGRAM, {})
    ours = capsys.readouterr().out.split()
    assert theirs.split() == [name, *ours[1:]]


# --- rounding -------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1000, (1 << 26) - 1, (1 << 26) + 1])
def test_centre_scatter_of_nearly_uncorrelated_features(n):
    """1 - (n - 1)/n is small, and must be as accurate as a large number."""
    count = np.array([n])
    total = rest = np.array([[n - 1, 1]])
    scatter = np.zeros((1, 3))
    square = np.array([[n - 1, 1, 1]])
    centre_scatter(count, total, np.zeros((1, 2), int), rest, square, 0, 2, scatter)
    assert scatter[0, 1] == 1 / n
