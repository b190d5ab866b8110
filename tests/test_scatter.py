"""Tiles, panels and their products against bare loops; runs with ``NUMBA_DISABLE_JIT=1`` too."""

from itertools import pairwise

import numba
import numpy as np
import pytest
from frozen import NO_WEIGHTS, frozen, no_weights

from streamgda.kernels import tiles
from streamgda.kernels.scatter import (
    DEPTH,
    add_product,
    add_products,
    add_rows,
    empty_panels,
    empty_scratch,
    pack_blocks,
    pack_centred,
    rows_of_entry,
)
from streamgda.kernels.tiles import ROWS, has_integer_dot, panel_width

PANELS = ["float64", "float32", "int16"]
# Types of panels and of the sums of their products.
SUMS = [("float64", "float64"), ("float64", "int64"), ("float32", "float64"), ("float32", "int64")]
SUMS += [("int16", "int64")]
# Types of rows, panels and the centre that is subtracted.
SOURCES = [(dtype, "float64", "float64") for dtype in ("float32", "float64")]
SOURCES += [("float32", "float32", "float64")]
SOURCES = [(*source, weighted) for source in SOURCES for weighted in (False, True)]
SOURCES += [("uint8", "float32", "float32", False), ("int8", "float32", "float32", False)]
SOURCES += [("uint8", "int16", "int16", False), ("int8", "int16", "int16", False)]
SOURCES += [("uint16", "float64", "float64", False)]
WIDTHS = [1, 2, 3, 7, 8, *range(11, 18), *range(23, 26), 48, 63, 64, 65]


@numba.njit
def tile(A, first, B, depth, T):
    """Call the intrinsic, which only compiled functions can do."""
    tiles.multiply_tile(A, first, B, depth, T)


def needs_integer_dot(panel):
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("STREAMGDA_PORTABLE", raising=False)
        if panel == "int16" and not numba.config.DISABLE_JIT and not has_integer_dot():
            pytest.skip("this processor has no integer dot product (AVX2): nothing uses int16")


def together(panel):
    return rows_of_entry(np.dtype(panel))


def quiet():
    """Silence NumPy's warnings, without the compiler, about values that float32 does not hold."""
    return np.errstate(over="ignore", invalid="ignore")


def garbage(dtype, total="float64"):
    """Content that must not matter: NaN for the types that have it and can sum it."""
    return np.nan if np.dtype(dtype).kind == "f" and total == "float64" else 77


def whole_numbers(rng, dtype, *shape, most=9):
    low = 0 if str(dtype).startswith("u") else -most
    return rng.integers(low, most, shape, endpoint=True).astype(dtype)


# --- tiles ------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [1, 2, 3, 256])
@pytest.mark.parametrize(("panel", "total"), SUMS)
def test_multiply_tile(panel, total, depth):
    needs_integer_dot(panel)
    rng = np.random.default_rng(depth)
    width, pair = panel_width(panel), (2,) if panel == "int16" else ()
    for left_width in (ROWS, width, width + ROWS, 5 * ROWS):
        # One entry more than is read, and bytes: the largest numbers whose sums float32 can hold.
        A = np.full((depth + 1, left_width, *pair), garbage(panel, total), panel)
        B = np.full((depth + 1, width, *pair), garbage(panel, total), panel)
        for M in (A, B):
            M[:depth] = rng.integers(-255, 256, M[:depth].shape)
        left = A[:depth].reshape(depth, left_width, -1).astype(np.int64)
        right = B[:depth].reshape(depth, width, -1).astype(np.int64)
        for first in range(0, left_width - ROWS + 1, ROWS):
            expected = np.einsum("kap,kbp->ab", left[:, first : first + ROWS], right)
            T, plain = np.full((2, ROWS, width), 99, total)
            tile(A, first, B, depth, T)
            tiles._multiply_tile(A, first, B, depth, plain)
            np.testing.assert_array_equal(T, expected)
            np.testing.assert_array_equal(plain, expected)


@pytest.mark.parametrize("panel", PANELS)
def test_full_tiles_of_extreme_values(panel):
    needs_integer_dot(panel)
    for low, high in ((255, 255), (-255, 255), (-128, 127), (-128, -128)):
        A = np.full((DEPTH, ROWS, together(panel)), low, panel)
        B = np.full((DEPTH, panel_width(panel), together(panel)), high, panel)
        T = np.zeros((ROWS, panel_width(panel)), np.int64)
        tile(A if panel == "int16" else A[..., 0].copy(), 0, B, DEPTH, T)
        np.testing.assert_array_equal(T, DEPTH * together(panel) * low * high)


def test_panels_are_whole_vectors_and_whole_tiles():
    assert [panel_width(panel) for panel in PANELS] == [12, 24, 16]
    assert all(panel_width(panel) % ROWS == 0 for panel in PANELS)


def test_where_there_is_an_integer_dot_product(monkeypatch):
    monkeypatch.delenv("STREAMGDA_PORTABLE", raising=False)
    for host in (True, False):
        monkeypatch.setattr(numba.config, "CPU_FEATURES", None)
        monkeypatch.setattr(tiles, "_host_has", lambda feature, host=host: host)
        assert has_integer_dot() == host
        monkeypatch.setenv("STREAMGDA_PORTABLE", "0")
        assert has_integer_dot() == host
        for features in ("+avx2,+fma", "+sse2,-avx2", ""):  # what code is made for goes first
            monkeypatch.setattr(numba.config, "CPU_FEATURES", features)
            assert has_integer_dot() == ("+avx2" in features)
    monkeypatch.setattr(numba.config, "CPU_FEATURES", "+avx2")
    monkeypatch.setenv("STREAMGDA_PORTABLE", "1")
    assert not has_integer_dot()


# --- packing ----------------------------------------------------------------------------------


def source_of(rng, dtype, centre_dtype, n, d, weighted=False, n_classes=3):
    """Arguments of `pack_centred`: small whole numbers, and halves for types that have them."""
    centre = rng.integers(-3, 4, (n_classes, d)).astype(centre_dtype)
    low = rng.integers(-3, 4, centre.shape) / 8 if centre_dtype == "float64" else 0 * centre
    return (
        frozen(whole_numbers(rng, dtype, n, d)),
        rng.integers(0, n_classes, n),
        rng.permutation(n),
        frozen((rng.integers(1, 5, n) / 4) ** 2) if weighted else no_weights(dtype),
        centre,
        low.astype(centre_dtype),
    )


def centred_rows(X, codes, order, weights, centre, low):
    """The rows as `pack_centred` must centre them."""
    Z = np.empty((len(order), X.shape[1]))
    for q, r in enumerate(order):
        k = codes[r]
        for j in range(X.shape[1]):
            Z[q, j] = float(X[r, j]) - float(centre[k, j]) - float(low[k, j])
        if weights.size:
            Z[q] *= np.sqrt(weights[r])
    return Z


def room_for(n_blocks, n, d, panel, dirt):
    """Panels and the features of each, with arbitrary content."""
    panels = empty_panels(n_blocks, n, d, np.dtype(panel))
    panels[...] = dirt
    return panels, np.full((n_blocks, panels.shape[1] * panels.shape[3]), -1, np.intp)


def dirty(n, d, panel):
    """Outputs and scratch space of `pack_centred`, with arbitrary content."""
    dirt = garbage(panel)
    panels, features = room_for(1, n, d, panel, dirt)
    rows = np.full((n + n % together(panel), d + panel_width(panel)), dirt, panel)
    return rows, np.full(d, np.nan), panels[0], features[0]


def dirty_scratch(d, panels):
    """Scratch space of `add_rows`, with arbitrary content."""
    scratch = empty_scratch(d, panels)
    for array in scratch:
        array[...] = garbage(array.dtype)
    return scratch


def unpacked(panels, features, active, n):
    """The rows that the panels hold, with the packed features only."""
    width, parts = panels.shape[2:]
    return np.array(
        [
            [panels[c // width, q // parts, c % width, q % parts] for c in range(active)]
            for q in range(n)
        ]
    ).reshape(n, active)


@pytest.mark.parametrize("n", [1, 7, 8])
@pytest.mark.parametrize(("dtype", "panel", "centre", "weighted"), SOURCES)
def test_pack_centred(dtype, panel, centre, weighted, n):
    rng = np.random.default_rng(n)
    width = panel_width(panel)
    for d in (1, 5, width, width + 1, 2 * width + 3):
        source = source_of(rng, dtype, centre, n + 3, d, weighted)
        source = *source[:2], source[2][:n], *source[3:]  # not all rows
        Z = centred_rows(*source)
        rows, magnitude, panels, features = dirty(n, d, panel)
        active = pack_centred(*source, rows, magnitude, panels, features)
        chosen = features[:active]
        assert (np.diff(chosen) > 0).all()
        assert not np.delete(Z, chosen, axis=1).any()
        assert (unpacked(panels, features, active, n) == Z[:, chosen]).all()
        if n % together(panel):  # the missing row
            used = panels[: -(-active // width)]
            assert not used[:, n // 2, : min(width, active), 1].any()


@pytest.mark.parametrize("panel", PANELS)
def test_features_that_are_zero_in_all_rows_are_left_out(panel):
    """Also if each class has a different constant, and with any values in other rows."""
    rng = np.random.default_rng(1)
    width = panel_width(panel)
    d, n = 3 * width, 9
    dtype = "uint16" if panel == "float64" else "uint8"
    X, codes, order, weights, centre, _ = source_of(rng, dtype, panel, n + 1, d)
    centre = np.abs(centre)
    X = X + X.dtype.type(10)  # none is zero by chance
    order = order[:n]
    zero = rng.permutation(d)[: width + 5]
    X[:, zero] = centre[codes][:, zero]
    for left_out in (zero, np.append(zero, d - 1), np.arange(d), np.arange(d - 1), np.arange(1, d)):
        X[:, left_out] = centre[codes][:, left_out]
        alone = np.delete(np.arange(10), order)
        X[alone] = 99
        rows, magnitude, panels, features = dirty(n, d, panel)
        source = frozen(X), codes, order, weights, centre, 0 * centre
        active = pack_centred(*source, rows, magnitude, panels, features)
        chosen = np.flatnonzero(centred_rows(*source).any(axis=0))
        assert features[:active].tolist() == chosen.tolist()
        assert (unpacked(panels, features, active, n) == centred_rows(*source)[:, chosen]).all()


@pytest.mark.parametrize("d", [3, 24, 25, 60])
def test_float32_panels_refuse_values_beyond_float32(d):
    rng = np.random.default_rng(2)
    n = 40
    zeros = np.zeros((1, d))
    codes, order = np.zeros(n, np.int64), np.arange(n)

    def packs(X, weights=NO_WEIGHTS, panel="float32"):
        room = dirty(n, d, panel)
        with quiet():
            rows, weights = frozen(X.astype(np.float32)), frozen(weights)
            return pack_centred(rows, codes, order, weights, zeros, zeros, *room) >= 0

    X = rng.choice([-1, 1], (n, d)) * rng.uniform(1, 2, (n, d))
    for scale in (1, 1e-10, 1e10, 1e-12, 1e14):
        assert packs(X * scale)
    for scale in (1e-20, 1e20, 1e-30, 1e30):
        assert not packs(X * scale)
        assert packs(X * scale, panel="float64")
        mixed = X.copy()
        mixed[:, d // 2] *= scale
        assert not packs(mixed)
        assert packs(mixed, np.full(n, 1e200), panel="float64")
    # Weights count even if the products vanish in float32.
    for weight in (1e-40, 1e-100, 1e-300, 1e40, 1e100):
        assert not packs(X, np.full(n, weight))
        assert packs(X, np.full(n, weight), panel="float64")
    assert packs(X * 1e-10, np.full(n, 1e20))


def test_pack_blocks():
    rng = np.random.default_rng(3)
    source = source_of(rng, "float64", "float64", 50, 15)
    first, last = np.array([0, 17, 18]), np.array([17, 18, 50])
    panels, features = room_for(3, 32, 15, "float64", np.nan)
    active = np.empty(3, np.intp)
    pack_blocks(source, first, last, panels, features, active)
    Z = centred_rows(*source)
    for b in range(3):
        block = Z[first[b] : last[b]]
        chosen = features[b, : active[b]]
        assert (chosen == np.flatnonzero(block.any(axis=0))).all()
        assert (unpacked(panels[b], features[b], active[b], len(block)) == block[:, chosen]).all()


# --- products ---------------------------------------------------------------------------------


def packed(rng, size, d, panel, total, share=1.0):
    """Panels of some of `d` features, with arbitrary content in unused columns, and their rows."""
    width, parts = panel_width(panel), together(panel)
    chosen = np.flatnonzero(rng.random(d) < share)
    panels = np.full((-(-d // width), DEPTH, width, parts), garbage(panel, total), panel)
    features = np.full(len(panels) * width, -1)
    features[: chosen.size] = chosen
    Z = np.zeros((size + size % parts, d), np.int64)
    Z[:size, chosen] = rng.integers(-5, 6, (size, chosen.size))
    for c, j in enumerate(chosen):
        panels[c // width, : len(Z) // parts, c % width] = Z[:, j].reshape(-1, parts)
    return panels, features, chosen.size, Z


def stale(rng, shape, dtype):
    """Matrices whose upper triangles must not be touched."""
    return rng.integers(-9, 10, shape).astype(dtype)


def ranges_of(rng, d):
    """Ranges from 0 to `d`, cut anywhere, some of them empty, in any order."""
    cuts = np.sort(rng.integers(0, d + 1, 3)).tolist()
    return [(int(a), int(b)) for a, b in rng.permutation([*pairwise([0, *cuts, d])])]


@pytest.mark.parametrize("d", WIDTHS)
@pytest.mark.parametrize(("panel", "total"), SUMS)
def test_add_product(panel, total, d):
    """At once and in parts: each part changes nothing else, and together they are the whole."""
    needs_integer_dot(panel)
    rng = np.random.default_rng(d)
    for size, share in ((1, 1), (5, 1), (6, 0.5), (4, 0.9), (3, 0)):
        panels, features, active, Z = packed(rng, size, d, panel, total, share)
        entries = -(-size // together(panel))
        S = stale(rng, (d, d), total)
        expected = S + np.tril(Z.T @ Z).astype(total)
        parts = S.copy()
        add_product(panels, features, active, entries, (0, d), (0, d), S)
        np.testing.assert_array_equal(S, expected)
        all_columns = ranges_of(rng, d)
        for rows in ranges_of(rng, d):
            for columns in all_columns:
                after = parts.copy()
                part = slice(*rows), slice(*columns)
                after[part] = expected[part]
                add_product(panels, features, active, entries, rows, columns, parts)
                np.testing.assert_array_equal(parts, after)


@pytest.mark.parametrize(("panel", "total"), SUMS)
def test_add_products(panel, total):
    needs_integer_dot(panel)
    rng = np.random.default_rng(4)
    d, sizes, groups = 17, np.array([5, 1, 6, 2]), np.array([0, 2, 0, 1])
    blocks = [packed(rng, size, d, panel, total, 0.8) for size in sizes]
    panels, features, active = (np.array([block[i] for block in blocks]) for i in range(3))
    S = stale(rng, (3, d, d), total)
    expected = S.copy()
    for g, (*_, Z) in zip(groups, blocks, strict=True):
        expected[g] += np.tril(Z.T @ Z).astype(total)
    for rows in ranges_of(rng, d):
        for columns in ((0, 5), (5, 6), (6, d)):
            add_products(panels, features, active, sizes, groups, rows, columns, S)
    np.testing.assert_array_equal(S, expected)


# Compiled, one of each sort of panels: the others are compiled, and tested, in their callers.
SOME_SOURCES = [
    source
    for source in SOURCES
    if source[:2] in (("float64", "float64"), ("float32", "float32"), ("uint8", "int16"))
]


@pytest.mark.parametrize(
    ("dtype", "panel", "centre", "weighted"),
    SOURCES if numba.config.DISABLE_JIT else SOME_SOURCES,
)
def test_add_rows(dtype, panel, centre, weighted):
    """More rows than go into one block, narrow; and wide ones, and no rows."""
    total = "float64" if centre == "float64" else "int64"
    needs_integer_dot(panel)
    rng = np.random.default_rng(5)
    width = panel_width(panel)
    for n, d in ((2 * DEPTH * together(panel) + 5, 1), (9, width), (11, width + 1), (7, 65)):
        source = source_of(rng, dtype, centre, n, d, weighted)
        Z = centred_rows(*source)
        X, codes, order, *others = source
        panels, _ = room_for(1, n, d, panel, garbage(panel, total))
        for a, b in ((0, 0), (0, n - 3), (n - 3, n)):
            S = stale(rng, (d, d), total)
            expected = S + np.tril(Z[a:b].T @ Z[a:b]).astype(total)
            scratch = dirty_scratch(d, panels[0])
            add_rows(X, codes, order[a:b], *others, scratch, panels[0], S)
            np.testing.assert_array_equal(S, expected)


@pytest.mark.parametrize("panel", PANELS)
def test_add_rows_of_full_range(panel):
    """Bytes at both ends, as many as go into a block, and one more."""
    needs_integer_dot(panel)
    n = DEPTH * together(panel) + 1
    X = np.zeros((n, 2), np.uint16 if panel == "float64" else np.uint8)
    X[:, 0], X[::2, 1] = 255, 255
    S = np.zeros((2, 2), np.int64)
    panels, _ = room_for(1, n, 2, panel, 77)
    zeros = np.zeros((1, 2), panel)
    codes, order = np.zeros(n, np.int64), np.arange(n)
    scratch = dirty_scratch(2, panels[0])
    add_rows(frozen(X), codes, order, no_weights(X.dtype), zeros, zeros, scratch, panels[0], S)
    half = 255**2 * (n // 2 + 1)
    assert S.tolist() == [[255**2 * n, 0], [half, half]]
