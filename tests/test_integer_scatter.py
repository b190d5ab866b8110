"""Products of bytes against bare loops, with the tiles of every kind of processor."""

import os
import re
import subprocess
import sys

import numba
import numpy as np
import pytest
from frozen import frozen
from llvmlite import binding, ir

from streamgda.kernels import integer_tiles, processors
from streamgda.kernels.integer_scatter import (
    BLOCK_ROWS,
    add_byte_product,
    add_byte_products,
    add_integers,
    empty_panels,
    pack_bytes,
)
from streamgda.kernels.integer_tiles import MOST_ROWS, TOGETHER, WIDTH, plain_tile
from streamgda.kernels.processors import SHAPES, tile_shape
from streamgda.moments import ClassMoments
from streamgda.rows.blocks import byte_rows

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
        monkeypatch.setattr(processors.binding, "get_host_cpu_features", lambda has=has: has)
        assert tile_shape().name == expected
        # Code may be compiled for another processor than this one.
        monkeypatch.setattr(processors.binding, "get_host_cpu_features", dict)
        monkeypatch.setattr(numba.config, "CPU_FEATURES", features)
        assert tile_shape().name == expected
    monkeypatch.setenv("STREAMGDA_VECTORS", "avx512")
    assert tile_shape().vector_bytes == 64
    monkeypatch.setenv("STREAMGDA_VECTORS", "mmx")
    with pytest.raises(ValueError, match="'mmx' is not known; use one of avx512vnni, avx512, avx"):
        tile_shape()


@EVERY_SHAPE
def test_panels_are_whole_tiles(shape):
    assert WIDTH % shape.rows == WIDTH % shape.columns == 0
    assert BLOCK_ROWS <= MOST_ROWS


@pytest.mark.parametrize(
    ("shape", "processor", "instruction"),
    [
        ("avx512vnni", "cascadelake", "vpdpbusd .*zmm"),
        ("avx512vnni", "znver4", "vpdpbusd .*zmm"),
        ("avx512", "skylake-avx512", "vpmaddwd .*zmm"),
        ("avx512", "znver4", "vpdpwssd .*zmm"),
        ("avxvnni", "alderlake", "vpdpbusd .*ymm"),
        ("avx2", "znver3", "vpmaddwd .*ymm"),
        ("sse2", "x86-64", "pmaddwd .*xmm"),
    ],
)
def test_instructions(shape, processor, instruction, monkeypatch):
    """LLVM finds the instructions that the table names, and keeps the sums in registers."""
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    monkeypatch.setattr(numba.config, "CPU_FEATURES", "+avx512vnni,+avxvnni,+avx512bw,+avx2")
    shape = next(row for row in SHAPES if row.name == shape)
    module = ir.Module()
    function = integer_tiles._tile_function(module, shape)
    function.linkage = "external"
    target = binding.Target.from_triple("x86_64-unknown-linux-gnu")
    machine = target.create_target_machine(cpu=processor, opt=3)
    assembly = machine.emit_assembly(binding.parse_assembly(str(module)))
    used = re.compile(instruction.replace(" ", r"\s+"))
    loop = max(re.split(r"\n\.L\w+:", assembly), key=lambda part: len(used.findall(part)))
    loop = loop[: loop.index("\tj")]
    assert len(used.findall(loop)) == shape.rows * shape.vectors
    assert "rsp" not in loop


# --- tiles ------------------------------------------------------------------------------------


@EVERY_SHAPE
def test_multiply_tile(shape):
    """Also with the extreme sums of as many rows as a block has."""
    compiled = integer_tiles.tile_in_registers(shape)
    plain = plain_tile(shape)

    @numba.njit
    def tile(A, B, entry, depth, row, column, T):
        compiled(A, B, entry, depth, row, column, T)

    if numba.config.DISABLE_JIT:
        tile = plain
    rng = np.random.default_rng(0)
    entries = BLOCK_ROWS // shape.together
    most = np.full((entries, WIDTH), 0xFFFFFFFF if shape.together == 4 else 0x00FF00FF, np.uint32)
    some = rng.integers(0, 2**32, (entries, WIDTH), np.uint32) & most
    for pair in ((some, some[::-1]), (most, most), (most, 0 * most), (some, most)):
        A, B = (np.ascontiguousarray(panel).view(np.int32) for panel in pair)
        for entry, depth in ((0, entries), (1, 1), (3, 2)):
            start = rng.integers(-9, 9, (WIDTH, WIDTH)).astype(np.int32)
            for row, column in ((0, 0), (WIDTH - shape.rows, WIDTH - shape.columns)):
                T, expected = start.copy(), start.copy()
                tile(A, B, entry, depth, row, column, T)
                plain(A, B, entry, depth, row, column, expected)
                np.testing.assert_array_equal(T, expected)
                for a in (row, row + shape.rows - 1):
                    u = A[entry : entry + depth, a].copy().view(np.uint8).astype(int)
                    v = B[entry : entry + depth, column].copy().view(np.uint8).astype(int)
                    lowered = 128 if shape.together == 4 else 0
                    assert T[a, column] - start[a, column] == (u * (v - lowered)).sum()


# --- packing and products ---------------------------------------------------------------------


def rows_of(rng, dtype, n, d, origin, share=0.5):
    """Rows of the whole range, in which some features equal the origin, and those differences."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    X = rng.integers(low, high, (n, d), endpoint=True).astype(dtype)
    if low <= origin <= high:
        X[:, rng.random(d) > share] = origin
    return frozen(X), X.astype(np.int64) - origin


def packed(rng, dtype, n, d, origin):
    X, Z = rows_of(rng, dtype, n, d, origin)
    rows, form = byte_rows(X, origin)
    panels, features, sums = (array[0] for array in empty_panels(1, n, rows.shape[1]))
    panels[...] = -1
    active = pack_bytes(rows, np.arange(n), *form, panels, features, sums)
    return Z, form, panels, features, sums, active


CASES = [("uint8", 0), ("int8", 0), ("uint16", 1 << 15), ("int16", 0)]
CASES += [("uint8", 1 << 15), ("int8", 1 << 15), ("uint16", 0), ("int16", 1 << 15)]


@pytest.mark.parametrize(("dtype", "origin"), CASES)
def test_pack_bytes(dtype, origin):
    rng = np.random.default_rng(1)
    for n, d in ((1, 1), (5, 60), (8, 3)):
        Z, (size, _, offset), panels, features, sums, active = packed(rng, dtype, n, d, origin)
        places = np.flatnonzero(Z.any(axis=0))
        expected = (size * places[:, None] + np.arange(size)).ravel()
        assert features[:active].tolist() == expected.tolist()
        values = Z[:, places] + offset
        digits = np.stack([values >> 8 * part & 255 for part in range(size)], 2).reshape(n, -1)
        part = np.uint8 if TOGETHER == 4 else np.uint16
        for c in range(-(-active // WIDTH) * WIDTH):
            words = panels[c // WIDTH, : -(-n // TOGETHER), c % WIDTH].copy().view(part)
            column = digits[:, c] if c < active else np.zeros(n)
            assert words[:n].tolist() == column.tolist()
            assert not words[n:].any()
            assert sums[c] == column.sum()


@pytest.mark.parametrize(("dtype", "origin"), CASES)
def test_add_byte_product(dtype, origin):
    """At once and in ranges of rows: each changes nothing else."""
    rng = np.random.default_rng(2)
    for n, d in ((1, 1), (3, 70), (130, 5)):
        Z, (size, _, offset), *block = packed(rng, dtype, n, d, origin)
        S = rng.integers(-9, 9, (d, d))
        expected, parts = S + np.tril(Z.T @ Z), S.copy()
        add_byte_product(*block, n, size, offset, 0, d, S)
        np.testing.assert_array_equal(S, expected)
        for first, last in ((d // 3, d), (0, d // 3)):
            add_byte_product(*block, n, size, offset, first, last, parts)
            np.testing.assert_array_equal(parts[first:last], expected[first:last])
        np.testing.assert_array_equal(parts, expected)


def test_blocks_of_groups():
    rng = np.random.default_rng(3)
    X, Z = rows_of(rng, "int8", 40, 9, 0)
    rows, form = byte_rows(X, 0)
    first, last, groups = np.array([0, 17, 20]), np.array([17, 20, 40]), np.array([1, 0, 1])
    panels, features, sums = empty_panels(3, 20, 9)
    active, order = np.empty(3, np.intp), rng.permutation(40)
    for b in range(3):
        own = order[first[b] : last[b]]
        active[b] = pack_bytes(rows, own, *form, panels[b], features[b], sums[b])
    S = np.zeros((2, 9, 9), np.int64)
    size, _, offset = form
    blocks = panels, features, sums, active, last - first
    for i, j in ((0, 4), (4, 9)):
        add_byte_products(blocks, groups, size, offset, i, j, S)
    for g, own in ((1, [*range(17), *range(20, 40)]), (0, range(17, 20))):
        some = Z[order[list(own)]]
        np.testing.assert_array_equal(S[g], np.tril(some.T @ some))


def test_more_rows_than_go_into_a_block():
    n = 2 * BLOCK_ROWS + 3
    X = np.full((n, 2), 255, np.uint8)
    X[::2, 1] = 0
    rows, form = byte_rows(frozen(X), 0)
    count, total, S = np.zeros(1, int), np.zeros((1, 2), int), np.zeros((1, 2, 2), int)
    add_integers(rows, np.zeros(n, int), *form, count, total, S)
    Z = X.astype(int)
    assert (count == n).all()
    assert (total == Z.sum(axis=0)).all()
    assert (S[0] == np.tril(Z.T @ Z)).all()


@pytest.mark.parametrize("name", ["avx512vnni", "sse2"])
def test_all_processors_give_the_same_bits(name):
    """Words of four bytes and of two, in a process of their own, without the compiler."""
    program = (
        "import numpy as np; from streamgda import ClassMoments; from streamgda.kernels.processors "
        "import SHAPE; r = np.random.default_rng(0); m = ClassMoments().update(r.integers(-128, "
        "128, (23, 18)).astype('i1'), np.arange(23) % 2); m.update(r.integers(0, 1 << 16, (9, 18))"
        ".astype('u2'), np.arange(9) % 2); print(SHAPE.name, m.covariance().tobytes().hex())"
    )
    rng = np.random.default_rng(0)
    moments = ClassMoments()
    X = rng.integers(-128, 128, (23, 18)).astype("i1")
    moments.update(X, np.arange(23) % 2)
    moments.update(rng.integers(0, 1 << 16, (9, 18)).astype("u2"), np.arange(9) % 2)
    child = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"STREAMGDA_VECTORS": name, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert child.stdout.split() == [name, moments.covariance().tobytes().hex()]
