"""Class moments against the naive oracle, their algebra, and what they refuse."""

import re
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from streamgda import threads
from streamgda.errors import InvalidDataError, InvalidParameterError, MergeError
from streamgda.kernels.scatter import DEPTH
from streamgda.kernels.tiles import has_integer_dot
from streamgda.moments import ClassMoments
from streamgda.moments import sums as sums_module
from streamgda.moments.centred import CentredSums
from streamgda.moments.exact import ExactSums

TYPES = naive.COVARIANCE_TYPES
DTYPES = ["uint8", "int8", "uint16", "int16", "int32", "int64", "bool"]
DTYPES += ["float16", "float32", "float64", ">f8", ">u2", ">f4", "longdouble"]
NATIVE = ["uint8", "int8", "uint16", "int16", "float32", "float64"]


def sample(n=200, d=5, n_classes=3, seed=0, dtype="float64"):
    """Rows of classes of their own mean and spread, and their labels."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, n)
    y[:n_classes] = np.arange(n_classes)[:n]
    X = rng.normal(size=(n, d)) * (1 + y[:, None]) + rng.normal(size=(n_classes, d))[y] * 3
    X[:, 1:] += X[:, :1] / 2
    kind = np.dtype(dtype).kind
    if kind == "b":
        X = X > 0
    elif kind in "iu":
        X = np.clip(np.round(20 * X) + (100 if kind == "u" else 0), *limits(dtype))
    return X.astype(dtype), y


def limits(dtype):
    return np.iinfo(dtype).min, np.iinfo(dtype).max


def largest(array):
    """The largest size of a value that is one."""
    return np.abs(array)[~np.isnan(array)].max(initial=0)


def variances(scatter):
    return scatter.diagonal(axis1=1, axis2=2) if scatter.ndim == 3 else scatter


def snapshot(moments):
    """All that is held, as bytes that no later change can reach."""
    attributes, arrays = moments.state()
    return repr(attributes), {
        name: (array.dtype.str, array.shape, array.tobytes()) for name, array in arrays.items()
    }


def assert_moments(moments, X, y, weights=None, rtol=1e-12):
    """They are those of the rows, as far as float64 goes."""
    expected = naive.moments(X, y, weights)
    assert moments.classes.tolist() == expected.classes.tolist()
    np.testing.assert_allclose(moments.class_count, expected.count, rtol=1e-14)
    spread = np.abs(np.asarray(X, np.float64)).max() + 1e-300
    np.testing.assert_allclose(moments.means, expected.means, rtol=1e-14, atol=1e-14 * spread)
    for ddof in (0, 1):
        covariance = naive.covariance(X, y, moments.covariance_type, weights, ddof)
        got = moments.covariance(ddof)
        assert got.shape == covariance.shape
        rounding = rtol * largest(covariance) + 1e-30 * spread**2
        np.testing.assert_allclose(got, covariance, rtol=rtol, atol=rounding)


def assert_close(a, b, rtol=1e-10):
    """Both hold the same moments, as far as float64 goes."""
    assert a.covariance_type == b.covariance_type
    assert a.classes.tolist() == b.classes.tolist()
    np.testing.assert_allclose(a.class_count, b.class_count, rtol=rtol)
    if a.n_features is None or not a.class_count.any():
        return
    scale = largest(a.means)
    np.testing.assert_allclose(a.means, b.means, rtol=rtol, atol=rtol * scale)
    scale = largest(a.covariance()) + 1e-14 * scale**2
    np.testing.assert_allclose(a.covariance(), b.covariance(), rtol=rtol, atol=rtol * scale)


# --- rows of every kind -----------------------------------------------------------------------


def strided(X):
    spaced = np.zeros((2 * X.shape[0], 3 * X.shape[1]), X.dtype)
    spaced[::2, 1::3] = X
    return spaced[::2, 1::3]


def memory_mapped(X, tmp_path):
    X.tofile(tmp_path / "rows")
    return np.memmap(tmp_path / "rows", X.dtype, "r", shape=X.shape)


LAYOUTS = {
    "C": lambda X, _: np.ascontiguousarray(X),
    "Fortran": lambda X, _: np.asfortranarray(X),
    "strided": lambda X, _: strided(X),
    "reversed": lambda X, _: np.ascontiguousarray(X[::-1, ::-1])[::-1, ::-1],
    "read-only": lambda X, _: np.broadcast_to(X, X.shape),
    "memmap": memory_mapped,
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("covariance_type", TYPES)
def test_rows_of_any_kind(covariance_type, dtype, layout, tmp_path):
    X, y = sample(dtype=dtype)
    rows = LAYOUTS[layout](X, tmp_path)
    assert (rows == X).all()
    moments = ClassMoments(covariance_type).update(rows, y)
    assert_moments(moments, X, y)
    assert moments.exact == (np.dtype(dtype).itemsize <= 2 and dtype != "float16")
    assert moments.n_features == 5
    assert moments.class_count.dtype == np.int64
    # Once more, for what happens in the second batch.
    moments.update(rows, y)
    assert_moments(moments, np.vstack([X, X]), np.append(y, y))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_rows_of_any_kind_in_large_states(covariance_type, dtype, tmp_path, monkeypatch):
    take_path("large", monkeypatch)
    X, y = sample(300, 30, dtype=dtype)
    rtol = 1e-6 if np.dtype(dtype).newbyteorder("=") == np.float32 else 1e-12
    for layout in LAYOUTS.values():
        moments = ClassMoments(covariance_type)
        for _ in range(2):
            moments.update(layout(X, tmp_path), y)
        assert_moments(moments, np.vstack([X, X]), np.append(y, y), rtol=rtol)
        assert moments.exact == (np.dtype(dtype).itemsize <= 2 and dtype != "float16")
        assert moments.class_count.dtype == np.int64


@pytest.mark.parametrize("path", ["whole", "large"])
@pytest.mark.parametrize("dtype", NATIVE)
@pytest.mark.parametrize("covariance_type", TYPES)
def test_big_endian_rows_give_the_same_bits(covariance_type, dtype, path, monkeypatch):
    take_path(path, monkeypatch)
    X, y = sample(dtype=dtype)
    swapped = X.astype(X.dtype.newbyteorder(">"))
    a = ClassMoments(covariance_type).update(X, y)
    b = ClassMoments(covariance_type).update(swapped, y)
    assert snapshot(a) == snapshot(b)


@pytest.mark.parametrize("d", [1, 2, 3, 7, 8, 12, 13, 15, 16, 17, 24, 25, 63, 64, 65])
@pytest.mark.parametrize("dtype", NATIVE)
@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag"])
def test_any_width(covariance_type, dtype, d, monkeypatch):
    X, y = sample(70, d, dtype=dtype)
    assert_moments(ClassMoments(covariance_type).update(X, y), X, y)
    take_path("large", monkeypatch)
    rtol = 1e-6 if dtype == "float32" else 1e-12
    assert_moments(ClassMoments(covariance_type).update(X, y), X, y, rtol=rtol)


@pytest.mark.parametrize("d", [784, 785])
@pytest.mark.parametrize("dtype", NATIVE)
@pytest.mark.parametrize("covariance_type", ["full", "tied"])
def test_any_large_width(covariance_type, dtype, d):
    X, y = sample(13, d, 2, dtype=dtype)
    moments = ClassMoments(covariance_type).update(X, y)
    assert_moments(moments, X, y, rtol=1e-6 if dtype == "float32" else 1e-12)


@pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 255, 256, 257, 511, 512, 513, 1024, 2000])
@pytest.mark.parametrize("dtype", ["float64", "uint8"])
@pytest.mark.parametrize("covariance_type", ["full", "tied", "tied_diag"])
def test_any_number_of_rows(covariance_type, dtype, n, monkeypatch):
    X, y = sample(n, 6, 4, dtype=dtype)
    assert_moments(ClassMoments(covariance_type).update(X, y), X, y)
    take_path("large", monkeypatch)
    assert_moments(ClassMoments(covariance_type).update(X, y), X, y)


def test_more_classes_than_rows_in_a_block(monkeypatch):
    X, y = sample(3000, 3, 700)
    taken = watch(monkeypatch)
    monkeypatch.setattr(sums_module, "_BLOCK_ELEMENTS", 1)
    assert_moments(ClassMoments().update(X, y), X, y)
    assert_moments(ClassMoments("tied").update(X, y), X, y)
    assert taken["small"] == [(3000, 64 * 700)] * 2


@pytest.mark.parametrize("dtype", ["float64", "float32", "uint8"])
def test_a_large_state_of_many_classes_and_few_features(dtype):
    X, y = sample(3000, 20, 330, dtype=dtype)
    moments = ClassMoments().update(X, y)
    assert moments.nbytes > sums_module._SMALL_STATE
    assert_moments(moments, X, y, rtol=1e-6 if dtype == "float32" else 1e-12)


def test_lists_and_frames():
    pd = pytest.importorskip("pandas")
    X, y = sample(30)
    expected = snapshot(ClassMoments().update(X, y))
    assert snapshot(ClassMoments().update(X.tolist(), y.tolist())) == expected
    assert snapshot(ClassMoments().update(pd.DataFrame(X), pd.Series(y))) == expected
    assert snapshot(ClassMoments().update(X.astype(object), y)) == expected


# --- weights ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "bool", "float32", "float64", ">f8"])
@pytest.mark.parametrize("covariance_type", TYPES)
def test_weights(covariance_type, dtype):
    X, y = sample(dtype=dtype)
    weights = np.random.default_rng(1).gamma(1, size=200)
    weights[::7] = 0
    moments = ClassMoments(covariance_type).update(X, y, weights)
    assert moments.class_count.dtype == np.float64
    assert not moments.exact
    assert_moments(moments, X, y, weights)
    moments.update(X, y)  # and unweighted rows on top
    both = np.append(weights, np.ones(200))
    assert_moments(moments, np.vstack([X, X]), np.append(y, y), both)


@pytest.mark.parametrize("covariance_type", TYPES)
def test_whole_weights_are_repeated_rows(covariance_type):
    X, y = sample()
    weights = np.random.default_rng(2).integers(0, 4, 200)
    weighted = ClassMoments(covariance_type).update(X, y, weights)
    repeated = ClassMoments(covariance_type).update(X.repeat(weights, 0), y.repeat(weights))
    assert_close(weighted, repeated, 1e-12)


@pytest.mark.parametrize("dtype", ["float64", "uint8"])
def test_rows_of_weight_zero_are_not_there(dtype):
    X, y = sample(dtype=dtype)
    y[::3] = 99
    weights = np.random.default_rng(3).gamma(1, size=200)
    weights[::3] = 0
    moments = ClassMoments().update(X, y, weights)
    assert 99 not in moments.classes
    kept = weights > 0
    assert snapshot(moments) == snapshot(ClassMoments().update(X[kept], y[kept], weights[kept]))
    before = snapshot(moments)
    moments.update(X, y, np.zeros(200))
    moments.update(X, y, 0)
    assert snapshot(moments) == before


def test_not_even_nan_matters_at_weight_zero():
    X, y = sample()
    X[5] = np.nan
    weights = np.ones(200)
    weights[5] = 0
    assert_moments(ClassMoments().update(X, y, weights), np.delete(X, 5, 0), np.delete(y, 5))


@pytest.mark.parametrize(
    "weights", [np.full(200, 2, np.int8), np.full(200, True), [0.5] * 200, 3, np.float32(0.25)]
)
def test_weights_of_any_kind(weights):
    X, y = sample()
    moments = ClassMoments().update(X, y, weights)
    assert_moments(moments, X, y, np.broadcast_to(weights, 200))


# --- paths ------------------------------------------------------------------------------------

# In blocks, which come in segments; or in place, pass by pass, in windows that are grouped by
# class, parts that one thread sums, batches that are packed, and tiles of what they are added to.
PIECES = {
    "_SMALL_STATE": 0,
    "_SMALL_WORK": 0,
    "_WINDOW_BYTES": 1,
    "_PART_ELEMENTS": 1,
    "_PANEL_BYTES": 1,
}
PATHS = {
    "whole": {},
    "blocks": {"_BLOCK_ELEMENTS": 1},
    "segments": {"_BLOCK_ELEMENTS": 1, "_SEGMENT_ELEMENTS": 1},
    "segments of blocks": {"_BLOCK_ELEMENTS": 1, "_SEGMENT_ELEMENTS": 700 * 40},
    "large": {"_SMALL_STATE": 0, "_SMALL_WORK": 0},
    "large in windows": {"_SMALL_STATE": 0, "_SMALL_WORK": 0, "_WINDOW_BYTES": 1},
    "large in parts": {"_SMALL_STATE": 0, "_SMALL_WORK": 0, "_PART_ELEMENTS": 1},
    "large in batches": {"_SMALL_STATE": 0, "_SMALL_WORK": 0, "_PANEL_BYTES": 1},
    "large in tiles": {"_SMALL_STATE": 0, "_SMALL_WORK": 0, "_TILE_FEATURES": 7},
    "large in pieces": PIECES | {"_TILE_FEATURES": 7},
}
EVERY_PATH = pytest.mark.parametrize("path", PATHS)
LARGE = [path for path in PATHS if "large" in path]


def take_path(path, monkeypatch):
    for name, value in PATHS[path].items():
        assert hasattr(sums_module, name)
        monkeypatch.setattr(sums_module, name, value)


def watch(patch):
    """What is done from now on: lists of the rows, or blocks, of each step."""
    taken = defaultdict(list)

    def note(what, owner, name, of):
        function = getattr(owner, name)

        def watching(*arguments):
            taken[what].append(of(*arguments))
            return function(*arguments)

        patch.setattr(owner, name, watching)

    for kind in (CentredSums, ExactSums):
        note("small", kind, "_take_small", lambda _, X, codes, weights, size: (len(X), size))
        note("large", kind, "_take_large", lambda _, X, *rest: len(X))
    note("sums", sums_module, "add_sums", lambda X, *rest: len(X))
    note("squares", sums_module, "add_squares", lambda X, *rest: len(X))
    note("packed", sums_module, "pack_blocks", lambda source, first, *rest: first.size)
    note("types", sums_module, "add_products", lambda panels, *rest: panels.dtype.name)
    note("tiles", sums_module, "add_products", lambda *arguments: arguments[5:7])
    windows = sums_module.blocks

    def watching(X, dtype):
        for rows, block in windows(X, dtype):
            taken["windows"].append(len(block))
            yield rows, block

    patch.setattr(sums_module, "blocks", watching)
    return taken


def assert_taken(taken, path, dtype, matrix):
    """That path, by 1300 rows of 40 features and 2 threads."""
    pieces = [DEPTH] * 5 + [20]
    small = {
        "whole": [(1300, 1638)],
        "blocks": [(1300, DEPTH)],
        "segments": [(n, DEPTH) for n in pieces],
        "segments of blocks": [(700, DEPTH), (600, DEPTH)],
    }
    assert sorted(taken["small"], reverse=True) == small.get(path, [])
    if path in small:
        assert set(taken) == {"small"}
        return
    assert taken["large"] == [1300]
    windows = pieces if path in ("large in windows", "large in pieces") else [1300]
    assert taken["windows"] == 2 * windows
    parts = pieces if path in ("large in windows", "large in parts", "large in pieces") else [1300]
    assert sorted(taken["sums"], reverse=True) == parts
    if not matrix:
        assert sorted(taken["squares"], reverse=True) == parts
        assert not taken["packed"]
        return
    assert not taken["squares"]
    if path in ("large in batches", "large in pieces"):
        assert max(taken["packed"]) == 1
    elif path != "large in windows":  # one batch, of which each thread packs half
        assert len(taken["packed"]) == 2
        assert min(taken["packed"]) > 0
    tiled = path in ("large in tiles", "large in pieces")
    assert len(set(taken["tiles"])) == (6 * 7 // 2 if tiled else 1)
    exact = "int16" if has_integer_dot() else "float32"
    assert set(taken["types"]) == {{"uint8": exact, "weighted": "float64"}.get(dtype, dtype)}


def accuracy(dtype, path, matrix=True):
    """What float32 products leave of covariances; how much that is at most is tested below."""
    return 1e-6 if dtype == "float32" and path in LARGE and matrix else 1e-12


@EVERY_PATH
@pytest.mark.parametrize("dtype", ["float64", "float32", "uint8", "weighted"])
@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "tied_spherical"])
def test_all_paths_agree(covariance_type, dtype, path, monkeypatch, use_threads):
    use_threads(2)
    weighted = dtype == "weighted"
    matrix = naive.is_matrix(covariance_type)
    X, y = sample(1300, 40, dtype="float64" if weighted else dtype)
    weights = np.random.default_rng(4).gamma(1, size=1300) if weighted else None
    take_path(path, monkeypatch)
    taken = watch(monkeypatch)
    moments = ClassMoments(covariance_type).update(X, y, weights)
    assert_taken(taken, path, dtype, matrix)
    rtol = accuracy(dtype, path, matrix)
    assert_moments(moments, X, y, weights, rtol)
    monkeypatch.undo()
    plain = ClassMoments(covariance_type).update(X, y, weights)
    assert_close(moments, plain, rtol)
    if dtype == "uint8":
        assert snapshot(moments) == snapshot(plain)


@EVERY_PATH
@pytest.mark.parametrize("dtype", ["float64", "float32", "uint8", "weighted"])
@pytest.mark.parametrize("covariance_type", ["full", "tied"])
def test_constant_and_duplicate_features_on_all_paths(covariance_type, dtype, path, monkeypatch):
    """Constants have no scatter, duplicates have the same to the bit, also of merged moments."""
    weighted = dtype == "weighted"
    X, y = sample(1300, 40, dtype="float64" if weighted else dtype)
    weights = np.random.default_rng(4).gamma(1, size=1300) if weighted else np.ones(1300)
    X[:, [3, 39]] = np.array([0.1, 77.3]).astype(X.dtype)
    X[:, [7, 38]] = X[:, [25]]
    take_path(path, monkeypatch)
    parts = [
        ClassMoments(covariance_type).update(X[a:b], y[a:b], weights[a:b] if weighted else None)
        for a, b in pairwise([0, 500, 501, 1300])
    ]
    streamed = parts[0].copy().update(X[500:], y[500:], weights[500:] if weighted else None)
    for moments in (parts[0], parts[0] + parts[1] + parts[2], streamed):
        covariance = moments.covariance()
        assert not covariance[..., [3, 39], :].any()
        assert (moments.means[:, [3, 39]] == X[0, [3, 39]]).all()
        for j in (7, 38):
            assert (covariance[..., j, :] == covariance[..., 25, :]).all()
            assert (moments.means[:, j] == moments.means[:, 25]).all()


@pytest.mark.parametrize("dtype", ["float64", "float32", "uint8"])
def test_a_state_too_large_for_each_segment(dtype):
    """Without any constants changed: 8 bytes x 4 classes x 200 x 200 is more than 1 MiB."""
    X, y = sample(6000, 200, 4, dtype=dtype)
    moments = ClassMoments().update(X, y)
    assert moments._structure.state_bytes(4, 200) > sums_module._SMALL_STATE
    assert X.size > sums_module._SEGMENT_ELEMENTS
    assert_moments(moments, X, y, rtol=accuracy(dtype, "large"))


@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_many_segments(covariance_type):
    """Without any constants changed: 200,000 x 8 is more than three segments."""
    X, y = sample(200_000, 8)
    assert X.size > 3 * sums_module._SEGMENT_ELEMENTS
    assert_moments(ClassMoments(covariance_type).update(X, y), X, y)


@EVERY_PATH
@pytest.mark.parametrize("dtype", ["float64", "float32", "float32 and more", "uint8", "weighted"])
def test_same_bits_for_any_number_of_threads(dtype, path, monkeypatch, use_threads):
    weighted = dtype == "weighted"
    X, y = sample(3003, 40, 4, dtype={"uint8": "uint8"}.get(dtype, "float64"))
    if dtype.startswith("float32"):
        if dtype != "float32":  # some blocks are beyond its range, others are not
            X[y == 1, 7] *= 1e-25
        X = X.astype(np.float32)
    weights = np.random.default_rng(5).gamma(1, size=3003) if weighted else None
    for covariance_type in ("full", "tied", "diag"):
        states, workers = [], []
        for n in (1, 2, 7):
            with monkeypatch.context() as patch:
                take_path(path, patch)
                use_threads(n)
                seen = watch_workers(patch)
                states.append(snapshot(ClassMoments(covariance_type).update(X, y, weights)))
                with threads.limit(1):
                    states.append(snapshot(ClassMoments(covariance_type).update(X, y, weights)))
            workers.append(len(seen))
        assert all(state == states[0] for state in states)
        assert workers[0] == 0
        assert min(workers[1:]) > 0


def watch_workers(patch):
    """The pool threads that do any work."""
    import threading

    seen, alone = set(), threads._alone

    def watching(*arguments):
        seen.add(threading.get_ident())
        return alone(*arguments)

    patch.setattr(threads, "_alone", watching)
    return seen


def test_two_threads_update_two_moments_at_once(use_threads):
    use_threads(2)
    X, y = sample(30_000, 20)
    parts = [(X[::2], y[::2]), (X[1::2], y[1::2])]
    expected = [snapshot(ClassMoments().update(*part)) for part in parts]

    def update(part):
        rows, labels = part
        return snapshot(ClassMoments().update(rows, labels))

    with ThreadPoolExecutor(2) as pool:
        for _ in range(5):
            assert list(pool.map(update, parts)) == expected


# --- merging ----------------------------------------------------------------------------------


@st.composite
def batches(draw, max_batches=6):
    """A covariance type, and batches of rows, labels and maybe weights: some empty, some alike."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n = draw(st.integers(1, 40))
    d = draw(st.integers(1, 5))
    offset = draw(st.sampled_from([0.0, 1.0, 1e4]))
    X = rng.normal(size=(n, d)) * draw(st.sampled_from([1.0, 1e-3, 1e3])) + offset
    y = rng.integers(0, draw(st.integers(1, 4)), n)
    weights = rng.gamma(1, size=n) * (rng.random(n) < 0.9) if draw(st.booleans()) else None
    owner = rng.integers(0, draw(st.integers(1, max_batches)), n)
    some = [
        (X[owner == b], y[owner == b], None if weights is None else weights[owner == b])
        for b in np.unique(owner)
    ]
    return draw(st.sampled_from(TYPES)), some


def of(covariance_type, *parts):
    moments = ClassMoments(covariance_type)
    for X, y, weights in parts:
        moments.update(X, y, weights)
    return moments


def together(parts):
    X, y, weights = zip(*parts, strict=True)
    return np.vstack(X), np.concatenate(y), None if weights[0] is None else np.concatenate(weights)


@given(batches(), st.randoms())
def test_any_split_and_any_order(drawn, random):
    covariance_type, parts = drawn
    whole = of(covariance_type, together(parts))
    assert_close(of(covariance_type, *parts), whole)
    trees = [of(covariance_type, part) for part in parts] + [ClassMoments(covariance_type)]
    while len(trees) > 1:  # merge any two, until one is left
        random.shuffle(trees)
        trees.append(trees.pop() + trees.pop())
    assert_close(trees[0], whole)
    if whole.class_count.any():
        assert_moments(trees[0], *together(parts), rtol=1e-8)


@given(batches(2))
def test_what_was_added_can_be_taken_out(drawn):
    covariance_type, parts = drawn
    a, b = of(covariance_type, parts[0]), of(covariance_type, *parts[1:])
    both = a + b
    assert (both - b - a).classes.size == 0
    for left, expected in ((both - b, a), (both - a, b)):
        assert left.classes.tolist() == expected.classes.tolist()
        if left.classes.size:
            was, is_, whole = expected.centred(), left.centred(), both.centred()
            offset = largest(both.means)
            np.testing.assert_allclose(is_.count, was.count, rtol=1e-9)
            np.testing.assert_allclose(is_.mean, was.mean, rtol=1e-9, atol=1e-9 * offset)
            # What is left of a large scatter is as good as that one was.
            rounding = 1e-12 * largest(whole.scatter) + 1e-14 * offset**2
            np.testing.assert_allclose(is_.scatter, was.scatter, rtol=1e-9, atol=rounding)
            assert variances(is_.scatter).min() >= 0


@pytest.mark.parametrize("covariance_type", TYPES)
def test_variances_that_are_left_are_never_negative(covariance_type):
    rng = np.random.default_rng(12)
    for _ in range(50):
        X = rng.normal(size=(9, 3)) + 10
        b = ClassMoments(covariance_type).update(X[1:], np.zeros(8))
        one_row = ClassMoments(covariance_type).update(X, np.zeros(9)) - b
        assert variances(one_row.centred().scatter).min() >= 0


@given(batches(3))
def test_operands_do_not_change(drawn):
    covariance_type, parts = drawn
    a, b = of(covariance_type, parts[0]), of(covariance_type, *parts[1:])
    before = snapshot(a), snapshot(b)
    both = a + b
    _ = both - b
    _ = a * 0.5
    both.update(np.ones((3, both.n_features or 1)), [0, 1, 2])
    both += a
    both += both
    assert (snapshot(a), snapshot(b)) == before


@pytest.mark.parametrize("dtype", ["float64", "uint8"])
@pytest.mark.parametrize("covariance_type", TYPES)
def test_empty_plus_empty(covariance_type, dtype):
    nothing = ClassMoments(covariance_type)
    both = nothing + ClassMoments(covariance_type)
    assert both.classes.size == both.class_count.size == both.nbytes == 0
    assert both.n_features is None
    assert both.means.shape == (0, 0)
    assert (nothing - nothing).classes.size == 0
    assert (nothing * 2).n_features is None
    # Emptied: no classes, but a width.
    X, y = sample(5, dtype=dtype)
    moments = ClassMoments(covariance_type).update(X, y)
    emptied = moments - moments
    assert emptied.n_features == 5
    assert (emptied + emptied).classes.size == 0
    assert (emptied + nothing).classes.size == (nothing + emptied).classes.size == 0
    assert (nothing - emptied).classes.size == (emptied - nothing).classes.size == 0


@pytest.mark.parametrize("dtype", ["float64", "uint8"])
@pytest.mark.parametrize("covariance_type", TYPES)
def test_empty_plus_full(covariance_type, dtype):
    X, y = sample(20, dtype=dtype)
    full = ClassMoments(covariance_type).update(X, y)
    for empty in (ClassMoments(covariance_type), full - full):
        assert snapshot(empty + full) == snapshot(full)
        assert snapshot(full + empty) == snapshot(full)
        assert snapshot(full - empty) == snapshot(full)
        assert snapshot(empty.copy().update(X, y)) == snapshot(full)
    assert_close(full * 0 + full, full)
    assert_close(full + full * 0, full)


@pytest.mark.parametrize("dtype", ["float64", "uint8"])
@pytest.mark.parametrize("labels", [("a", "a"), ("a", "b")])
@pytest.mark.parametrize("covariance_type", TYPES)
def test_one_row_plus_one_row(covariance_type, labels, dtype):
    X = np.array([[1, 2, 7], [4, 2, 3]], dtype)
    a, b = (ClassMoments(covariance_type).update(X[i : i + 1], [labels[i]]) for i in (0, 1))
    assert not a.covariance().any()
    assert np.isnan(a.covariance(ddof=1)).all()
    assert_moments(a + b, X, np.array(labels))
    assert_moments(a.copy().update(X[1:], [labels[1]]), X, np.array(labels))
    assert_close((a + b) - b, a)


def test_three_batches_of_one_row_each():
    X, y = sample(12)
    parts = [ClassMoments().update(X[i : i + 1], y[i : i + 1]) for i in range(12)]
    assert_moments(sum(parts[1:], parts[0]), X, y)


def test_in_place_addition():
    X, y = sample()
    moments = total = ClassMoments().update(X[:50], y[:50])
    total += ClassMoments().update(X[50:], y[50:])
    assert total is moments
    assert_moments(total, X, y)
    total += total
    assert_moments(total, np.vstack([X, X]), np.append(y, y))


def test_classes_that_only_one_side_has():
    X, y = sample(300, n_classes=6)
    low, high = y <= 3, y >= 2  # classes 2 and 3 on both sides
    a, b = ClassMoments().update(X[low], y[low]), ClassMoments().update(X[high], y[high])
    rows = np.vstack([X[low], X[high]])
    labels = np.append(y[low], y[high])
    assert_moments(a + b, rows, labels)
    assert_moments(b + a, rows, labels)
    left = (a + b) - b
    assert left.classes.tolist() == [0, 1, 2, 3]  # 4 and 5 are gone
    assert_close(left, a)


def test_subtracting_part_of_one_class():
    X, y = sample()
    some = np.flatnonzero(y == 1)[:10]
    left = ClassMoments().update(X, y) - ClassMoments().update(X[some], y[some])
    assert_moments(left, np.delete(X, some, 0), np.delete(y, some))


def test_sliding_window():
    X, y = sample(2000)
    window = ClassMoments()
    parts = [ClassMoments().update(X[i : i + 50], y[i : i + 50]) for i in range(0, 2000, 50)]
    for i, part in enumerate(parts):
        window += part
        if i >= 10:
            window = window - parts[i - 10]
    assert_moments(window, X[-500:], y[-500:], rtol=1e-11)


# --- views commute with merging ---------------------------------------------------------------


@given(batches(2), st.data())
def test_views_commute_with_merging(drawn, data):
    covariance_type, parts = drawn
    a, b = of(covariance_type, parts[0]), of(covariance_type, *parts[1:])
    both = a + b
    if not (a.class_count.any() and b.class_count.any()):
        return
    d = both.n_features

    def check(view, wanted=lambda moments: True):
        assert_close(view(both), view(a) + view(b))
        assert wanted(view(both))

    index = data.draw(st.lists(st.integers(-d, d - 1), min_size=1, max_size=2 * d))
    check(lambda m: m.select_features(index), lambda m: m.n_features == len(index))
    mapping = data.draw(st.dictionaries(st.integers(0, 3), st.integers(-2, 5)))
    check(lambda m: m.relabel({k: v for k, v in mapping.items() if k in m.classes}))
    check(lambda m: m * 0.75)
    for simpler in TYPES:
        if ClassMoments(covariance_type)._structure.covers(ClassMoments(simpler)._structure):
            check(lambda m, t=simpler: m.reduce(t), lambda m, t=simpler: m.covariance_type == t)
    if covariance_type in ("full", "tied"):
        components = np.random.default_rng(d).normal(size=(2, d))
        spread = largest(both.means - both.means[0]) + np.sqrt(largest(both.covariance()))
        offset = both.means[0] + spread + 1e-9  # close, as far as the data's spread goes
        check(lambda m: m.project(components, offset))
    if not covariance_type.startswith("tied"):
        kept = data.draw(st.sets(st.sampled_from(both.classes.tolist())))
        check(lambda m: m.select_classes([k for k in kept if k in m.classes]))


@pytest.mark.parametrize("covariance_type", TYPES)
def test_reduce(covariance_type):
    X, y = sample()
    for dtype in ("float64", "int16"):
        rows = X.astype(dtype)
        full = ClassMoments().update(rows, y)
        reduced = full.reduce(covariance_type)
        assert reduced.exact == full.exact
        assert_close(reduced, ClassMoments(covariance_type).update(rows, y), 1e-12)
        assert_moments(reduced, rows, y)
        before = snapshot(full)
        reduced.update(rows, y)
        assert snapshot(full) == before


@pytest.mark.parametrize(
    ("held", "becomes"),
    [
        ("full", TYPES),
        ("tied", ["tied", "tied_diag", "tied_spherical"]),
        ("diag", ["diag", "tied_diag", "spherical", "tied_spherical"]),
        ("tied_diag", ["tied_diag", "tied_spherical"]),
        ("spherical", ["spherical", "tied_spherical"]),
        ("tied_spherical", ["tied_spherical"]),
    ],
)
def test_what_can_be_reduced_to_what(held, becomes):
    X, y = sample()
    moments = ClassMoments(held).update(X, y)
    for covariance_type in TYPES:
        if covariance_type in becomes:
            assert_moments(moments.reduce(covariance_type), X, y)
            assert ClassMoments(held).reduce(covariance_type).n_features is None
        else:
            message = f"{held!r} do not hold what {covariance_type!r} needs; they can become"
            with pytest.raises(MergeError, match=message):
                moments.reduce(covariance_type)


@pytest.mark.parametrize("dtype", ["float64", "uint8"])
@pytest.mark.parametrize("covariance_type", TYPES)
@pytest.mark.parametrize(
    "index", [[3, 0], [1], slice(1, 4), slice(None, None, -1), [True, False, True, True, False], 2]
)
def test_select_features(covariance_type, index, dtype):
    X, y = sample(dtype=dtype)
    moments = ClassMoments(covariance_type).update(X, y)
    selected = moments.select_features(index)
    columns = np.atleast_2d(X.T[index]).T if isinstance(index, int) else X[:, index]
    assert selected.exact == moments.exact
    assert_moments(selected, columns, y)
    selected.update(columns, y)
    assert_moments(moments, X, y)


@pytest.mark.parametrize("dtype", ["float64", "uint8"])
@pytest.mark.parametrize("covariance_type", ["full", "diag", "spherical"])
def test_select_classes(covariance_type, dtype):
    X, y = sample(n_classes=5, dtype=dtype)
    moments = ClassMoments(covariance_type).update(X, y)
    kept = (y == 3) | (y == 1)
    assert_moments(moments.select_classes([3, 1]), X[kept], y[kept])
    assert moments.select_classes([]).classes.size == 0
    assert_close(moments.select_classes(np.arange(5)), moments)


@pytest.mark.parametrize("dtype", ["float64", "uint8"])
@pytest.mark.parametrize("covariance_type", TYPES)
def test_relabel(covariance_type, dtype):
    X, y = sample(n_classes=4, dtype=dtype)
    moments = ClassMoments(covariance_type).update(X, y)
    before = snapshot(moments)
    for mapping in ({}, {0: 9}, {0: 1, 1: 0}, {1: 0, 2: 0, 3: 0}, {2: 3}, {0: -1, 3: -1, 1: 2}):
        labels = np.array([mapping.get(label, label) for label in y.tolist()])
        expected = ClassMoments(covariance_type).update(X, labels)
        if covariance_type.startswith("tied") and len(set(labels)) < 4:
            # Pooled: of rows that change class, the scatter between the classes is added.
            expected = ClassMoments("full").update(X, labels).reduce(covariance_type)
        assert_close(moments.relabel(mapping), expected)
    names = moments.relabel({0: "b", 1: "a", 2: "b", 3: "c"})
    assert_moments(names, X, np.array(["b", "a", "b", "c"])[y])
    assert snapshot(moments) == before


def test_relabel_other_kinds():
    X, _ = sample(4)
    dates = np.array(["2020-01-01", "2020-01-02"] * 2, "M8[ns]")
    moments = ClassMoments().update(X, dates)
    other = moments.relabel({dates[0]: np.datetime64("2021-01-01", "ns")})
    assert other.classes.tolist() == np.array(["2020-01-02", "2021-01-01"], "M8[ns]").tolist()
    text = ClassMoments().update(X, np.array([b"a", b"b"] * 2)).relabel({b"a": b"ccc"})
    assert text.classes.tolist() == [b"b", b"ccc"]
    flags = ClassMoments().update(X, [True, False] * 2).relabel({True: "yes", False: "no"})
    assert flags.classes.tolist() == ["no", "yes"]


def test_classes_declared_ahead():
    X, y = sample()
    moments = ClassMoments().update(X, y).declare([7, 1, -1])
    assert moments.classes.tolist() == [-1, 0, 1, 2, 7]
    assert moments.class_count.tolist()[::4] == [0, 0]
    assert np.isnan(moments.means[[0, 4]]).all()
    assert np.isnan(moments.covariance()[[0, 4]]).all()
    assert not np.isnan(moments.covariance()[1:4]).any()
    for covariance_type in ("tied", "tied_diag"):
        pooled = moments.reduce(covariance_type).covariance(1)
        np.testing.assert_allclose(pooled, naive.covariance(X, y, covariance_type, ddof=1))
    assert_close(moments.select_classes([0, 1, 2]), ClassMoments().update(X, y))
    assert_close(
        moments - ClassMoments().update(X, y).declare([8]), moments.select_classes([-1, 7])
    )
    moments.update(X, np.full(200, 7))
    assert moments.class_count.tolist()[-1] == 200


# --- PCA and projection -----------------------------------------------------------------------


def aligned(components, others):
    return others * np.sign((components * others).sum(axis=1))[:, None]


@pytest.mark.parametrize("n_components", [1, 3, 6])
@pytest.mark.parametrize("covariance_type", ["full", "tied"])
@pytest.mark.parametrize("dtype", ["float64", "uint8"])
def test_pca_is_scikit_learn_s(covariance_type, n_components, dtype):
    decomposition = pytest.importorskip("sklearn.decomposition")
    X, y = sample(500, 6, dtype=dtype)
    components = ClassMoments(covariance_type).update(X, y).pca(n_components)
    expected = decomposition.PCA(n_components).fit(X.astype(np.float64)).components_
    assert components.shape == (n_components, 6)
    np.testing.assert_allclose(components, aligned(components, expected), atol=1e-10)
    np.testing.assert_allclose(components @ components.T, np.eye(n_components), atol=1e-13)
    largest = np.abs(components).argmax(axis=1)
    assert (components[np.arange(n_components), largest] > 0).all()


def test_pca_commutes_with_merging_and_knows_no_classes():
    X, y = sample(300, 4)
    whole = ClassMoments().update(X, y)
    merged = ClassMoments().update(X[:100], y[:100]) + ClassMoments().update(X[100:], y[100:])
    one_class = ClassMoments().update(X, np.zeros(300))
    for moments in (merged, one_class, whole.declare([99])):
        np.testing.assert_allclose(moments.pca(3), whole.pca(3), atol=1e-12)
    offset = ClassMoments().update(X + 1e6, y)
    np.testing.assert_allclose(offset.pca(3), whole.pca(3), atol=1e-8)


@pytest.mark.parametrize("covariance_type", ["full", "tied"])
@pytest.mark.parametrize("dtype", ["float64", "uint8", "weighted"])
def test_project(covariance_type, dtype):
    weights = np.random.default_rng(6).gamma(1, size=200) if dtype == "weighted" else None
    X, y = sample(dtype="float64" if weights is not None else dtype)
    rng = np.random.default_rng(7)
    components, offset = rng.normal(size=(3, 5)), rng.normal(size=5)
    moments = ClassMoments(covariance_type).update(X, y, weights)
    assert_moments(moments.project(components, offset), (X - offset) @ components.T, y, weights)
    assert_moments(moments.project(components), X @ components.T, y, weights)
    assert_moments(moments.project(components.tolist()), X @ components.T, y, weights)
    assert_moments(moments, X, y, weights)


def test_project_on_principal_components_decorrelates():
    X, y = sample(500, 5)
    moments = ClassMoments().update(X, y)
    projected = moments.project(moments.pca(5), X.mean(axis=0)).relabel({1: 0, 2: 0})
    covariance = projected.covariance()[0]
    assert np.abs(covariance - np.diag(np.diag(covariance))).max() < 1e-12 * covariance.max()
    np.testing.assert_allclose(projected.means, 0, atol=1e-13)


# --- decay ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "uint8"])
@pytest.mark.parametrize("covariance_type", TYPES)
def test_decay(covariance_type, dtype):
    X, y = sample(dtype=dtype)
    moments = ClassMoments(covariance_type).update(X, y)
    before = snapshot(moments)
    for gamma in (0.25, 1, 3, np.float32(0.5), np.float64(0.1)):
        for decayed in (moments * gamma, gamma * moments):
            assert_moments(decayed, X, y, np.full(200, float(gamma)))
    assert snapshot(moments) == before
    fresh, labels = sample(seed=1, dtype=dtype)
    weights = np.repeat([0.5, 1], 200)
    faded = (moments * 0.5).update(fresh, labels)
    assert_moments(faded, np.vstack([X, fresh]), np.append(y, labels), weights)


def test_decay_to_nothing():
    X, y = sample()
    nothing = ClassMoments().update(X, y) * 0
    assert nothing.classes.tolist() == [0, 1, 2]
    assert not nothing.class_count.any()
    assert np.isnan(nothing.means).all()
    with pytest.raises(InvalidDataError, match="hold no rows"):
        nothing.covariance()
    assert_moments(nothing.update(X + 5, y), X + 5, y)


# --- accuracy ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def far_away():
    """Unit variance at an offset of 1e8, and what is exactly true of it."""
    rng = np.random.default_rng(8)
    y = rng.integers(0, 3, 300)
    X = 1e8 + rng.normal(size=(300, 3)) + 2 * y[:, None]
    return X, y, {t: naive.rounded(naive.exact_covariance(X, y, t)) for t in TYPES}


def assert_accurate(moments, expected, rtol=1e-12):
    got = moments.covariance()
    scale = np.abs(expected)
    if moments.covariance_type in ("full", "tied"):  # a covariance, relative to its variances
        deviations = np.sqrt(expected.diagonal(axis1=-2, axis2=-1))
        scale = deviations[..., :, None] * deviations[..., None, :]
    assert (np.abs(got - expected) / scale).max() < rtol


@pytest.mark.parametrize("chunk", [300, 100, 7, 1])
@pytest.mark.parametrize("covariance_type", TYPES)
def test_large_offset(far_away, covariance_type, chunk):
    X, y, expected = far_away
    starts = range(0, 300, chunk)
    parts = [
        ClassMoments(covariance_type).update(X[i : i + chunk], y[i : i + chunk]) for i in starts
    ]
    streamed = ClassMoments(covariance_type)
    for i in starts:
        streamed.update(X[i : i + chunk], y[i : i + chunk])
    assert_accurate(streamed, expected[covariance_type])
    while len(parts) > 1:  # as a tree
        parts = [sum(parts[i + 1 : i + 2], parts[i]) for i in range(0, len(parts), 2)]
    assert_accurate(parts[0], expected[covariance_type])


@EVERY_PATH
def test_large_offset_on_all_paths(far_away, path, monkeypatch):
    X, y, expected = far_away
    take_path(path, monkeypatch)
    assert_accurate(ClassMoments().update(X, y), expected["full"])
    half = ClassMoments().update(X, y, np.full(300, 0.3)) + ClassMoments().update(X, y) * 0.7
    assert_accurate(half, expected["full"])


def test_large_offset_after_subtraction(far_away):
    X, y, expected = far_away
    rng = np.random.default_rng(9)
    more = 1e8 + rng.normal(size=(300, 3))
    both = ClassMoments().update(more, y).update(X, y)
    assert_accurate(both - ClassMoments().update(more, y), expected["full"])


def test_classes_far_from_each_other():
    """Between-class distances must not leak into the scatter within."""
    X, y = sample(500, 3)
    far = X + 1e9 * y[:, None]
    expected = naive.rounded(naive.exact_covariance(far, y, "tied"))
    assert_accurate(ClassMoments("tied").update(far, y), expected)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("value", [0.1, 1e8 + 0.3, -7.7e-9, 1e100])
@pytest.mark.parametrize("covariance_type", TYPES)
def test_constant_features_have_no_scatter_at_all(covariance_type, value, weighted):
    X, y = sample(300, 4)
    X[:, 1] = value
    weights = np.random.default_rng(10).gamma(1, size=300) if weighted else None
    cuts = [0, 1, 2, 50, 117, 300]
    moments, merged = ClassMoments(covariance_type), ClassMoments(covariance_type)
    for a, b in pairwise(cuts):
        part = X[a:b], y[a:b], None if weights is None else weights[a:b]
        moments.update(*part)
        merged += ClassMoments(covariance_type).update(*part)
    taken = merged - ClassMoments(covariance_type).update(*part)
    for m in (moments, merged, taken, merged * 0.3, ClassMoments(covariance_type).update(X, y)):
        assert not variances(m.centred().scatter)[:, 1].any()
        assert (m.means[:, 1] == value).all()
        if covariance_type in ("full", "tied"):
            assert not m.covariance()[..., 1, :].any()


def test_float32_of_small_states_is_summed_in_float64():
    rng = np.random.default_rng(11)
    X = (1000 + rng.normal(size=(5000, 3))).astype(np.float32)
    y = np.zeros(5000, int)
    assert_moments(ClassMoments().update(X, y), X, y)


def scatter_of(moments):
    """Whole matrices, by group."""
    lower = np.tril(moments.centred().scatter)
    return lower + np.swapaxes(np.tril(lower, -1), 1, 2)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("offset", [0, 1e4])
@pytest.mark.parametrize("covariance_type", ["full", "tied"])
def test_float32_of_large_states_has_a_bound(covariance_type, offset, weighted, monkeypatch):
    """(DEPTH + 4) / 2^24 of what is added up, element by element, whatever the offset."""
    take_path("large", monkeypatch)
    taken = watch(monkeypatch)
    rng = np.random.default_rng(13)
    y = rng.integers(0, 3, 3000)
    X = rng.normal(size=(3000, 40)) @ rng.normal(size=(40, 40)) * 10.0 ** rng.uniform(-3, 0, 40)
    X = (X / 5 + offset + y[:, None]).astype(np.float32)
    weights = rng.gamma(1, size=3000) if weighted else np.ones(3000)
    expected = naive.moments(X, y, weights)
    bound = np.zeros((3, 40, 40))
    for k in range(3):
        distance = np.abs(X[y == k] - expected.means[k])
        bound[k] = (weights[y == k, None] * distance).T @ distance
    share = (DEPTH + 4) * 2.0**-24
    bound *= share
    S = expected.scatter
    if covariance_type == "tied":
        S, bound = S.sum(axis=0, keepdims=True), bound.sum(axis=0, keepdims=True)
    for cuts in ([0, 3000], [0, 1, 700, 3000]):
        moments = ClassMoments(covariance_type)
        for a, b in pairwise(cuts):
            moments.update(X[a:b], y[a:b], weights[a:b] if weighted else None)
        error = np.abs(scatter_of(moments) - S)
        assert (error <= bound).all()
        scale = np.sqrt(variances(S)[:, :, None] * variances(S)[:, None])
        assert (bound <= share * scale * (1 + 1e-9)).all()
        assert 1e-9 < (error / scale).max() < 1e-5  # float32 it was, and better than that
        assert (np.linalg.eigvalsh(moments.covariance()) > 0).all()
    assert "float32" in taken["types"]  # distances of means are multiplied in float64


SCALES = {
    "tiny": 1e-25,
    "small": 1e-20,
    "large": 1e15,
    "huge": 1e25,
    "all": [1e-25, 1, 1e-20, 1e15, 1e25],
    "one too small": [1, 1e-20, 1, 1, 1],
}


@pytest.mark.parametrize("d", [3, 20, 40])
@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("covariance_type", ["full", "tied"])
def test_float32_beyond_its_range_is_multiplied_in_float64(covariance_type, scales, d, monkeypatch):
    """Whole blocks of 256 rows, so that none of them is small enough for float32."""
    monkeypatch.setattr(sums_module, "_SMALL_STATE", 0)
    monkeypatch.setattr(sums_module, "_SMALL_WORK", 0)
    rng = np.random.default_rng(14)
    y = rng.permutation(np.repeat(np.arange(3), 2 * DEPTH))
    X = rng.normal(size=(y.size, d))
    X[:, 1:] += X[:, :1]
    X = (X * np.resize(SCALES[scales], d)).astype(np.float32)
    expected = naive.covariance(X, y, covariance_type)
    assert_accurate(ClassMoments(covariance_type).update(X, y), expected)
    weights = rng.gamma(1, size=y.size)
    expected = naive.covariance(X, y, covariance_type, weights)
    streamed = ClassMoments(covariance_type).update(X[:700], y[:700], weights[:700])
    streamed.update(X[700:], y[700:], weights[700:])
    rtol = 1e-6 if scales == "large" else 1e-12  # of which fewer rows are not too large
    assert_accurate(streamed, expected, rtol)


@pytest.mark.parametrize("weight", [1e-200, 1e-100, 1e-60, 1e60, 1e100])
def test_float32_of_any_weight(weight, monkeypatch):
    """Roots of weights that float32 does not hold must not make zeros or infinities of rows."""
    take_path("large", monkeypatch)
    X, y = sample(300, 30, dtype="float32")
    moments = ClassMoments().update(X, y, np.full(300, weight))
    assert_accurate(moments, naive.covariance(X, y))


def test_a_large_state_of_float32_beyond_its_range():
    """Without any constants changed: 300 classes of few features."""
    X, y = sample(3000, 20, 300)
    for scale in (1e-25, 1e25):
        rows = (X * scale).astype(np.float32)
        moments = ClassMoments().update(rows, y)
        assert moments.nbytes > sums_module._SMALL_STATE
        assert_moments(moments, rows, y)


# --- what is held -----------------------------------------------------------------------------


def test_properties():
    X, y = sample()
    moments = ClassMoments("tied").update(X, y)
    assert moments.nbytes == 8 * (3 + 2 * 3 * 5 + 5 * 5)
    assert repr(moments).startswith("ClassMoments('tied'): 200 rows x 5 features in 3 classes")
    assert repr(ClassMoments()) == "ClassMoments('full'): empty"
    assert "exact" in repr(ClassMoments().update(X.astype(np.uint8), y))
    moments.class_count[:] = 0  # a copy
    assert moments.class_count.sum() == 200
    assert np.array_equal(moments.covariance(), moments.covariance().T)


def test_copy_is_independent():
    X, y = sample()
    for rows in (X, X.astype(np.int8)):
        moments = ClassMoments().update(rows, y)
        before = snapshot(moments)
        copy = moments.copy()
        assert snapshot(copy) == before
        copy.update(rows, y)
        assert snapshot(moments) == before


@pytest.mark.parametrize("covariance_type", TYPES)
def test_ddof(covariance_type):
    X, y = sample(40, n_classes=4)
    y[y == 3] = 2
    y[0] = 3  # a class of one row
    moments = ClassMoments(covariance_type).update(X, y)
    for ddof in (0, 1, 2, 30):
        expected = naive.covariance(X, y, covariance_type, ddof=ddof)
        np.testing.assert_allclose(moments.covariance(ddof), expected, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("covariance_type", ["", "Full", "ledoit", None, 3, ["full"]])
def test_unknown_covariance_type(covariance_type):
    message = rf"covariance_type={re.escape(repr(covariance_type))} is not known; use one of full"
    with pytest.raises(InvalidParameterError, match=message):
        ClassMoments(covariance_type)
    with pytest.raises(InvalidParameterError, match="use one of full, tied, diag"):
        ClassMoments().reduce(covariance_type)


# --- bad input --------------------------------------------------------------------------------


@pytest.fixture(params=["centred", "exact", "weighted", "empty"])
def moments(request):
    X, y = sample(50, 3)
    return {
        "centred": lambda: ClassMoments().update(X, y),
        "exact": lambda: ClassMoments().update(X.astype(np.int8), y),
        "weighted": lambda: ClassMoments().update(X, y, np.full(50, 0.3)),
        "empty": ClassMoments,
    }[request.param]()


def refuses(moments, message, X, y, weights=None, error=InvalidDataError):
    before = snapshot(moments)
    with pytest.raises(error, match=message) as caught:
        moments.update(X, y, weights)
    assert snapshot(moments) == before
    assert isinstance(caught.value, ValueError)


def with_value(value, row=2, column=1, dtype="float64", shape=(4, 3)):
    X = np.ones(shape, dtype)
    X[row, column] = value
    return X


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", ">f8", "object"])
@pytest.mark.parametrize(
    ("value", "name"), [(np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")]
)
def test_values_that_are_not_finite(moments, value, name, dtype):
    message = (
        rf"Input X contains {name}: row 2, column 1 is {value}. Every value must be finite; "
        rf"leave such rows out or fill them in"
    )
    X = with_value(value, dtype=dtype)
    refuses(moments, message, X, [0, 1, 0, 7])  # a label not seen before, too
    refuses(moments, message, X, [0, 1, 0, 7], np.ones(4))
    refuses(moments, message, X, [0, 1, 5, 0])  # the only row of its class
    refuses(moments, message, np.asfortranarray(X), [0, 1, 0, 7])
    refuses(moments, "row 0, column 1", with_value(value, 0, dtype=dtype), [0, 1, 0, 7])


@EVERY_PATH
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag"])
def test_values_that_are_not_finite_late_in_a_large_array(
    covariance_type, value, path, monkeypatch, use_threads
):
    use_threads(2)
    take_path(path, monkeypatch)
    X, y = sample(3000, 40)
    moments = ClassMoments(covariance_type).update(X[:100], y[:100])
    bad = X.copy()
    bad[2765, 39] = value
    bad[2999, 0] = value
    refuses(moments, r"row 2765, column 39", bad, y)
    refuses(moments, r"row 2765, column 39", bad, y, np.ones(3000))
    moments.update(X[100:], y[100:])
    assert_moments(moments, X, y)


def test_rows_are_numbered_as_they_came():
    """Rows of weight zero are left out of the sums, not out of the numbers in messages."""
    X = with_value(np.nan, row=3)
    refuses(ClassMoments(), "row 3, column 1", X, [0, 1, 0, 1], [0, 1, 0, 1])
    before = ClassMoments()
    with pytest.raises(InvalidDataError, match="row 1003, column 1"):
        before._update(X, [0, 1, 0, 1], [0, 1, 0, 1], first_row=1000)
    with pytest.raises(InvalidDataError, match="row 1003, column 1"):
        before._update(X, [0, 1, 0, 1], first_row=1000)


@pytest.mark.parametrize("value", [1e308, -1.7e308, 1e200])
def test_values_whose_sums_overflow(moments, value):
    X = np.array([[1, value, 1], [2, -value, 3], [1, value, 5]])
    message = "values whose sums or squares overflow float64 .*; scale the data down"
    refuses(moments, message, X, [0, 0, 0])
    refuses(moments, message, X, [0, 0, 9])
    refuses(moments, message, X[:1], [0])  # alone it would do; beside others it would not
    refuses(moments, message, X, [0, 0, 0], np.ones(3))


@pytest.mark.parametrize("width", [1, 2, 4])
def test_wrong_width(width):
    X, y = sample(50, 3)
    for rows in (X, X.astype(np.int8)):
        message = f"X has {width} features, but these moments have 3 features"
        refuses(ClassMoments().update(rows, y), message, np.ones((4, width)), [0, 1, 0, 1])


def test_no_features(moments):
    refuses(moments, "X has 0 features", np.ones((4, 0)), [0, 1, 0, 1])


@pytest.mark.parametrize("n", [0, 3, 5])
def test_different_lengths(moments, n):
    message = rf"X has 4 rows but y has {n} labels .*; give one label a row"
    refuses(moments, message, np.ones((4, 3)), np.zeros(n, int))


def test_empty_batch(moments):
    message = r"X has 0 rows .*; a batch needs at least one"
    refuses(moments, message, np.empty((0, 3)), [])
    refuses(moments, message, np.empty((0, 3), np.int8), np.empty(0, int), np.empty(0))


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.ones((4, 3), complex), "Complex data not supported: X has dtype complex128; real"),
        (np.full((4, 3), "a"), r"X has dtype <U1; real numbers are expected"),
        (np.full((4, 3), "a", object), "X holds objects that are not numbers: could not convert"),
        (np.full((4, 3), 1j, object), "X holds objects that are not numbers"),
        (np.full((4, 3), 10**400, object), "X holds objects that are not numbers: int too large"),
        (np.full((4, 3), {}, object), "X holds objects that are not numbers"),
        (np.full((4, 3), None, object), "Input X contains NaN: row 0, column 0|are not numbers"),
        (np.ones((4, 3), "M8[D]"), r"X has dtype datetime64\[D\]; real numbers are expected"),
        (sparse.csr_matrix(np.eye(4, 3)), "X is a sparse csr matrix; dense rows are needed"),
        (sparse.coo_array(np.eye(4, 3)), "X is a sparse coo matrix; dense rows are needed"),
        (np.ones(4), r"X has shape \(4,\); expected a 2D array of rows x features"),
        (np.ones((4, 3, 1)), r"X has shape \(4, 3, 1\); expected a 2D array"),
        (5.0, r"X has shape \(\); expected a 2D array"),
    ],
)
def test_rows_of_the_wrong_kind(moments, X, message):
    refuses(moments, message, X, [0, 1, 0, 1])


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, -1, 1, 1], r"sample_weight\[1\] is -1.0; weights are finite and >= 0"),
        ([1, 1, np.nan, 1], r"sample_weight\[2\] is nan; weights are finite and >= 0"),
        ([1, 1, 1, np.inf], r"sample_weight\[3\] is inf; weights are finite and >= 0"),
        (-2, r"sample_weight\[0\] is -2"),
        ([1, 1, 1], r"sample_weight has shape \(3,\), expected one weight a row: \(4,\)"),
        (np.ones((4, 1)), r"sample_weight has shape \(4, 1\), expected"),
        ([], r"sample_weight has shape \(0,\), expected"),
        (["a"] * 4, r"sample_weight has dtype <U1; numbers are expected"),
        ([1j] * 4, r"sample_weight has dtype complex128; numbers are expected"),
        ([1e308] * 4, "sample_weight sums to infinity; scale the weights down"),
    ],
)
def test_wrong_weights(moments, weights, message):
    refuses(moments, message, np.ones((4, 3)), [0, 1, 0, 1], weights)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (["a", "b", "a", "b"], r"labels of dtype <U1 \(such as .*'a'.*\) do not mix with classes"),
        (np.array([0, "a", 0, 1], object), "y holds objects of type int, str; class labels of one"),
        ([0.5, 1, 2, 3], r"continuous. y\[0\] is 0.5"),
        ([0, np.nan, 2, 3], r"y\[1\] is nan"),
        (np.zeros((4, 1), int), r"y has shape \(4, 1\), expected one label a row"),
        (np.array(["2020"] * 4, "M8[D]"), r"labels of dtype datetime64\[D\] .* do not mix with"),
    ],
)
def test_wrong_labels(moments, y, message):
    if not moments.classes.size and "do not mix" in message:
        moments = ClassMoments().update(np.ones((2, 3)), [0, 1])
    refuses(moments, message, np.ones((4, 3)), y)
    refuses(moments, message, np.ones((4, 3), np.int8), y)


def refused(error, message, function, *operands):
    before = [snapshot(m) for m in operands]
    with pytest.raises(error, match=message):
        function(*operands)
    assert [snapshot(m) for m in operands] == before


@pytest.mark.parametrize("dtype", ["float64", "uint8"])
def test_subtracting_more_than_was_added(dtype):
    X, y = sample(dtype=dtype)
    part = ClassMoments().update(X[:100], y[:100])
    whole = ClassMoments().update(X, y)
    n, m = part.class_count[0], whole.class_count[0]
    message = f"subtracting {m} rows of class 0 from moments that hold {n} of them"
    refused(MergeError, message, lambda a, b: a - b, part, whole)
    other = ClassMoments().update(X[:3], [0, 0, 9])
    message = "subtracting 1 rows of class 9 from moments that hold 0 of them: only what was"
    refused(MergeError, message, lambda a, b: a - b, part, other)
    refused(MergeError, "that hold 0 of them", lambda a, b: a - b, ClassMoments(), part)
    strings = part.relabel({0: "a", 1: "b", 2: "c"})
    refused(MergeError, "of class 'a' .* that hold 0 of them", lambda a, b: a - b, part, strings)


@pytest.mark.parametrize("dtype", ["float64", "uint8"])
def test_merging_what_does_not_fit(dtype):
    X, y = sample(dtype=dtype)
    a = ClassMoments().update(X, y)
    narrow = ClassMoments().update(X[:, :2], y)
    names = ClassMoments().update(X, np.array(["a", "b", "c"])[y])

    def add_in_place(a, b):
        a += b

    for function in (lambda a, b: a + b, lambda a, b: a - b, add_in_place):
        message = "moments of 5 features and of 2 features do not combine"
        refused(MergeError, message, function, a, narrow)
        for covariance_type in TYPES[1:]:
            message = f"covariance_type='full' and {covariance_type!r} do not combine; .* reduce"
            refused(MergeError, message, function, a, a.reduce(covariance_type))
            refused(MergeError, message, function, a, ClassMoments(covariance_type))
    for function in (lambda a, b: a + b, add_in_place):
        refused(InvalidDataError, "do not mix with classes of dtype int64", function, a, names)
    emptied = a - a
    refused(MergeError, "5 features and of 2 features", lambda a, b: a + b, emptied, narrow)
    for other in (5, "moments", None, X):
        with pytest.raises(TypeError):
            a + other
        with pytest.raises(TypeError):
            a - other


@pytest.mark.parametrize("gamma", [-1, -1e-300, np.nan, np.inf, -np.inf])
def test_wrong_decay(moments, gamma):
    message = rf"gamma={gamma!r}; expected a finite number >= 0".replace("(", r"\(")
    refused(InvalidParameterError, message.replace(")", r"\)"), lambda m: m * gamma, moments)
    refused(InvalidParameterError, "expected a finite number", lambda m: gamma * m, moments)


def test_decay_by_what_is_no_number(moments):
    for gamma in ("a", None, 1j):
        refused(TypeError, "unsupported operand|can't multiply", lambda m, g=gamma: m * g, moments)


def test_wrong_views():
    X, y = sample()
    a = ClassMoments().update(X, y)
    for index in ([5], [-6], [True, False], [0.5], "a", [[0, 1]], [], slice(0, 0)):
        message = "index does not fit 5 features|index has shape .*; expected one feature or more"
        refused(InvalidParameterError, message, lambda m, i=index: m.select_features(i), a)
    for labels in ([0, 7], ["a"], [0.0, -1.0]):
        message = r"labels \[.*\] are not among the classes \[0, 1, 2\]"
        refused(InvalidParameterError, message, lambda m, k=labels: m.select_classes(k), a)
        refused(InvalidParameterError, message, lambda m, k=labels: m.relabel({k[-1]: 0}), a)
    refused(InvalidParameterError, "not among", lambda m: m.relabel({1: 0}), ClassMoments())
    refused(InvalidDataError, "do not mix", lambda m: m.relabel({0: "a"}), a)
    refused(InvalidDataError, r"new labels\[0\] is nan", lambda m: m.relabel({0: np.nan}), a)
    message = "have one scatter for all classes, from which no class can be left out"
    for covariance_type in ("tied", "tied_diag", "tied_spherical"):
        pooled = a.reduce(covariance_type)
        refused(MergeError, message, lambda m: m.select_classes([0]), pooled)
    for n_components in (0, 6, -1):
        message = f"n_components={n_components}; expected 1 to 5"
        refused(InvalidParameterError, message, lambda m, n=n_components: m.pca(n), a)
    for components in (np.ones((2, 4)), np.ones(5), np.ones((5, 2))):
        message = r"components has shape .*, expected \(n_components, 5\)"
        refused(InvalidParameterError, message, lambda m, c=components: m.project(c), a)
    for offset in (3.0, np.ones(1), np.ones(4), np.ones((1, 5))):
        message = r"offset has shape .*, expected \(5,\)"
        refused(InvalidParameterError, message, lambda m, o=offset: m.project(np.eye(5), o), a)
    for covariance_type in ("diag", "spherical", "tied_diag"):
        thin = a.reduce(covariance_type)
        message = r"needs covariances between features, which .* does not keep; use 'full'"
        refused(MergeError, message, lambda m: m.pca(2), thin)
        refused(MergeError, message, lambda m: m.project(np.eye(5)), thin)


@pytest.mark.parametrize(
    "function",
    [
        lambda m: m.covariance(),
        lambda m: m.centred(),
        lambda m: m.pca(1),
        lambda m: m.project([[1.0]]),
        lambda m: m.declare([1]),
        lambda m: m.select_features([0]),
    ],
)
def test_nothing_seen_yet(function):
    refused(InvalidDataError, r"hold no rows; call update\(X, y\) first", function, ClassMoments())
