"""Every path that rows can take gives the same moments, on any number of threads."""

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import naive
import numpy as np
import pytest
from grids import pairs
from moment_checks import (
    LARGE,
    PATHS,
    TYPES,
    assert_close,
    assert_moments,
    sample,
    snapshot,
    take_path,
    watch,
)

from streamgda.kernels.products import LEAST_ROWS
from streamgda.moments import ClassMoments
from streamgda.moments import centred as sums_module
from streamgda.runtime import threads


def assert_taken(taken, path, dtype, matrix):
    """Check that 1300 rows of 40 features and 2 threads took that path."""
    pieces = [LEAST_ROWS] * 5 + [20]
    small = {
        "whole": [(1300, 1638)],
        "blocks": [(1300, LEAST_ROWS)],
        "segments": [(n, LEAST_ROWS) for n in pieces],
        "segments of blocks": [(700, LEAST_ROWS), (600, LEAST_ROWS)],
    }
    assert sorted(taken["small"], reverse=True) == small.get(path, [])
    if path in small:
        assert set(taken) - {"squares"} == {"small"}  # integers are squared by the same kernel
        return
    assert taken["large"] == [1300]
    windows = pieces if path in ("large in windows", "large in pieces") else [1300]
    exact = dtype == "uint8"  # whose rows are read once
    assert taken["windows"] == (1 if exact else 2) * windows
    parts = pieces if path in ("large in windows", "large in parts", "large in pieces") else [1300]
    together = path in ("large in batches", "large in pieces")  # not in copies of a scatter
    one_call = exact and not (matrix and together)
    assert sorted(taken["sums"], reverse=True) == ([] if one_call else parts)
    if not matrix:
        assert sorted(taken["squares"], reverse=True) == parts
        assert not taken["packed"]
        return
    assert not taken["squares"]
    if exact:
        assert set(taken["packed"]) == ({1} if together else set())
        assert len(set(taken["tiles"])) == (8 if together else 0)  # four for each thread
        return
    if path == "large in ranges":  # block by block
        assert taken["packed"] == [1] * len(taken["tiles"])
        assert len(taken["packed"]) >= 12
    elif path in ("large in batches", "large in pieces"):
        assert max(taken["packed"]) <= 2
    elif path != "large in windows":  # one batch, of which each thread packs half
        assert len(taken["packed"]) == 2
        assert min(taken["packed"]) > 0
    tiled = path in ("large in tiles", "large in pieces")
    assert len(set(taken["tiles"])) == (4 * 5 // 2 if tiled else 1)
    assert set(taken["types"]) == {"float64" if dtype == "weighted" else dtype}


def accuracy(dtype, path, matrix=True):
    """The accuracy of covariances from float32 products; the bound itself is tested below."""
    return 1e-6 if dtype == "float32" and path in LARGE and matrix else 1e-12


@pairs(
    "path, dtype, covariance_type",
    PATHS,
    ["float64", "float32", "uint8", "weighted"],
    ["full", "tied", "diag", "tied_spherical"],
)
def test_all_paths_agree(covariance_type, dtype, path, monkeypatch, use_threads):
    use_threads(2)
    check_path(covariance_type, dtype, path, monkeypatch)


@pytest.mark.parametrize("path", LARGE)
def test_all_paths_of_integers_agree(path, monkeypatch, use_threads):
    use_threads(2)
    check_path("tied", "uint8", path, monkeypatch)


def check_path(covariance_type, dtype, path, monkeypatch):
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


@pairs(
    "path, dtype, covariance_type",
    PATHS,
    ["float64", "float32", "uint8", "weighted"],
    ["full", "tied"],
)
def test_constant_and_duplicate_features_on_all_paths(covariance_type, dtype, path, monkeypatch):
    """Constants have no scatter, and duplicates equal ones, also after merging.

    They are equal to the bit if they are sums of integers; BLAS may round differently.
    """
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
        rounding = 0 if dtype == "uint8" else accuracy(dtype, path) * np.abs(covariance).max()
        assert not covariance[..., [3, 39], :].any()
        assert (moments.means[:, [3, 39]] == X[0, [3, 39]]).all()
        for j in (7, 38):
            difference = covariance[..., j, :] - covariance[..., 25, :]
            assert (np.abs(difference) <= rounding).all()
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


@pytest.mark.parametrize("path", PATHS)
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
    """The pool threads that do work."""
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


@pytest.mark.parametrize("covariance_type", TYPES)
def test_large_states_add_more_rows_of_their_classes(covariance_type, monkeypatch):
    monkeypatch.setattr(sums_module, "_SMALL_STATE", 0)
    monkeypatch.setattr(sums_module, "_SMALL_WORK", 0)
    X, y = sample(400)
    X[200:] += 50
    moments = ClassMoments(covariance_type).update(X[:200], y[:200]).update(X[200:], y[200:])
    assert_moments(moments, X, y)
