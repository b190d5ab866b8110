"""Products of bytes against bare loops, with the tiles of every kind of processor.

They run with ``NUMBA_DISABLE_JIT=1`` too.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest
from frozen import frozen
from llvmlite import binding, ir

from streamgda.kernels import integers, processors
from streamgda.kernels.integers import (
    DEPTH,
    LINE,
    MOST_ROWS,
    PACKED_ROWS,
    PART,
    TOGETHER,
    WIDTH,
    add_packed,
    pack_block,
    plain_tile,
    tile_function,
)
from streamgda.kernels.processors import SHAPES, tile_shape
from streamgda.moments import parallel
from streamgda.moments.parallel import add_integers
from streamgda.rows.arrays import byte_rows

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
    assert shape.panel_width % shape.rows == shape.panel_width % shape.columns == 0
    assert PACKED_ROWS * 3 // 2 <= MOST_ROWS


@pytest.mark.parametrize(
    ("shape", "processor", "instruction"),
    [
        ("avx512vnni", "cascadelake", "vpdpbusd .*zmm"),
        ("avx512vnni", "icelake-server", "vpdpbusd .*zmm"),
        ("avx512", "skylake-avx512", "vpmaddwd .*zmm"),
        ("avx512", "icelake-server", "vpdpwssd .*zmm"),
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
    function = integers._generated_tile(module, shape)
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
    compiled = tile_function(shape)

    @numba.njit
    def tile(panels, left, right, depth, row, column, T):
        compiled(panels, left, right, depth, row, column, T)

    rng = np.random.default_rng(0)
    width, entries = shape.panel_width, PACKED_ROWS // shape.together
    line = width * shape.together
    some = rng.integers(0, 256, entries * line).astype(shape.part)
    most, zeros = np.full_like(some, 255), np.zeros_like(some)
    for pair in ((some, some[::-1]), (most, most), (most, zeros), (some, most)):
        panels = np.concatenate(pair)
        for first, depth in ((0, entries), (1, 1), (3, 2)):
            start = rng.integers(-9, 9, width * width).astype(np.int32)
            left, right = first * line, (entries + first) * line
            for row, column in ((0, 0), (width - shape.rows, width - shape.columns)):
                T, expected = start.copy(), start.copy()
                tile(panels, left, right, depth, row, column, T)
                plain_tile(shape, panels, left, right, depth, row, column, expected)
                np.testing.assert_array_equal(T, expected)
                u, v = (
                    panel.reshape(entries, width, -1)[first : first + depth].astype(int)
                    for panel in pair
                )
                lowered = 128 if shape.together == 4 else 0
                for a in (row, row + shape.rows - 1):
                    added = (u[:, a] * (v[:, column] - lowered)).sum()
                    assert T[a * width + column] - start[a * width + column] == added


# --- packing and products ---------------------------------------------------------------------


def rows_of(rng, dtype, n, d, origin, share=0.5):
    """Rows of the whole range, in which some features equal the origin, and those differences."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    X = rng.integers(low, high, (n, d), endpoint=True).astype(dtype)
    if low <= origin <= high:
        X[:, rng.random(d) > share] = origin
    return frozen(X), X.astype(np.int64) - origin


def packed(rng, dtype, n, d, origin):
    """Distances of rows from the origin, their form, and the rows as one packed block."""
    X, Z = rows_of(rng, dtype, n, d, origin)
    rows, form = byte_rows(X, origin)
    n_bytes = rows.shape[1]
    n_panels = -(-n_bytes // WIDTH)
    panels = np.full(n_panels * -(-n // TOGETHER) * LINE, 99, PART)
    places = np.empty((1, n_panels * WIDTH), np.intp)
    totals = np.empty(places.shape, np.int32)
    ends = np.empty(3 * n_bytes, np.uint8)
    active = pack_block(rows, np.arange(n), *form, ends, panels, places[0], totals[0])
    return Z, form, (panels, np.array([0]), places, totals, np.array([active]), np.array([n]))


CASES = [("uint8", 0), ("int8", 0), ("uint16", 1 << 15), ("int16", 0)]
CASES += [("uint8", 1 << 15), ("int8", 1 << 15), ("uint16", 0), ("int16", 1 << 15)]


@pytest.mark.parametrize(("dtype", "origin"), CASES)
def test_add_products(dtype, origin):
    """At once and in ranges of rows: each changes nothing else."""
    rng = np.random.default_rng(2)
    T = np.empty(WIDTH * WIDTH, np.int32)
    for n, d in ((1, 1), (3, 70), (2 * TOGETHER * DEPTH + 3, 5)):
        Z, (size, _, offset), blocks = packed(rng, dtype, n, d, origin)
        blocks = *blocks, np.array([1]), size, offset
        S = rng.integers(-9, 9, (2, d, d))
        parts, expected = S.copy(), S.copy()
        expected[1] += np.tril(Z.T @ Z)
        add_packed(*blocks, (0, d), T, S)
        np.testing.assert_array_equal(S, expected)
        for first, last in ((d // 3, d), (0, d // 3)):
            add_packed(*blocks, (first, last), T, parts)
            np.testing.assert_array_equal(parts[:, first:last], expected[:, first:last])
        np.testing.assert_array_equal(parts, expected)


@pytest.mark.parametrize(("n_threads", "copies"), [(1, 0), (2, 0), (2, 1 << 20), (5, 1 << 20)])
def test_groups_of_all_sizes(n_threads, copies, monkeypatch):
    """More rows than go into a block, none, and few, each class a group or all of them one."""
    monkeypatch.setattr(parallel, "_COPIES_BYTES", copies)
    n = 2 * PACKED_ROWS + 40
    rng = np.random.default_rng(3)
    X, Z = rows_of(rng, "int8", n, 9, 0)
    rows, form = byte_rows(X, 0)
    codes = np.where(np.arange(n) < 40, np.arange(n) % 5, 6)
    rng.shuffle(codes)
    for n_groups in (1, 7):
        count, total, S = np.ones(7, int), np.ones((7, 9), int), np.ones((n_groups, 9, 9), int)
        add_integers(rows, codes, form, count, total, S, n_threads)
        assert (count == 1 + np.bincount(codes)).all()
        products = np.zeros((7, 9, 9), int)
        for k in range(7):
            assert (total[k] == 1 + Z[codes == k].sum(axis=0)).all()
            products[k] = np.tril(Z[codes == k].T @ Z[codes == k])
        assert (1 + (products if n_groups > 1 else products.sum(axis=0)) == S).all()


PROGRAM = """
import numpy as np
from streamgda import ClassMoments
from streamgda.kernels.processors import SHAPE

rng = np.random.default_rng(0)
print(SHAPE.name)
for d in (9, 21, 140):  # in vectors of float64, and in tiles
    X, Y = rng.integers(-128, 128, (23, d)), rng.integers(0, 1 << 16, (9, d))
    moments = ClassMoments().update(X.astype("i1"), np.arange(23) % 2)
    moments.update(Y.astype("u2"), np.arange(9) % 2)
    print(moments.covariance().tobytes().hex())
"""


SLOW = [("avx512vnni", "1"), ("avx2", "1"), ("sse2", "0")]


@pytest.mark.parametrize(
    ("name", "plain"),
    [("sse2", "1"), *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW)],
)
def test_all_processors_give_the_same_bits(name, plain, capsys):
    """Words of four bytes and of two, in a process of their own, without the compiler and with."""
    child = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | {"STREAMGDA_VECTORS": name, "NUMBA_DISABLE_JIT": plain},
        capture_output=True,
        text=True,
        check=True,
    )
    exec(PROGRAM, {})
    ours = capsys.readouterr().out.split()
    assert child.stdout.split() == [name, *ours[1:]]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["avx512", "avx2"])
def test_other_vectors_are_tested(name):
    """Compiled code for any processor runs on all of them; it is tested in a process of its own."""
    narrow = Path(__file__).with_name("test_narrow.py")
    child = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", narrow],
        env=os.environ | {"STREAMGDA_VECTORS": name},
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == 0, child.stdout
    assert " passed" in child.stdout
