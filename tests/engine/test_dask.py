"""dask: any blocks, schedulers and number of workers give the same moments and scores."""

import re
import threading

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import zarr
from distributed import Client, LocalCluster
from grids import in_turn
from samples import (
    ESTIMATORS,
    METHODS,
    assert_equal_to_rounding,
    bits,
    blobs,
    bytes_of,
    held,
    make,
)
from stops import stop_after

from streamgda import ClassMoments, GaussianNB, accumulate
from streamgda.errors import (
    CheckpointError,
    ClusterError,
    InvalidDataError,
    MemoryBudgetError,
)
from streamgda.storage.opening import mark_of

N_ROWS = 300
NAMES = np.array(["ant", "bee", "a rather long name"])
CHUNKS = {
    "one": (300,),
    "three": (100, 100, 100),
    "uneven": (7, 1, 192, 100),
    "thirty": (10,) * 30,
    "a hundred": (3,) * 100,
    "empty ones": (0, 150, 0, 0, 150, 0),
}


def in_blocks(chunks, *arrays):
    return [da.from_array(array, (CHUNKS[chunks], *array.shape[1:])) for array in arrays]


def in_partitions(*batches):
    """Delayed objects that give the batches."""
    make = dask.delayed(lambda batch: batch, pure=False)
    return [make(batch) for batch in batches]


@pytest.fixture
def rows():
    """Rows and labels in a hundred blocks, and as arrays."""
    X, y = blobs(N_ROWS)
    return *in_blocks("a hundred", X, y), X, y


# --- any blocks -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("in_this_thread")
class TestBlocks:
    @in_turn("name, chunks", ESTIMATORS, CHUNKS)
    def test_any_blocks_of_rows(self, name, chunks):
        X, y = blobs(N_ROWS)
        weights = np.random.default_rng(0).uniform(0, 2, N_ROWS)
        stored = held(y, "zarr", 70), held(weights, "zarr", 33)
        found = make(name).fit(*in_blocks(chunks, X), *stored)
        assert_equal_to_rounding(found, make(name).fit(X, y, weights), X)
        rows = bytes_of(X)  # Sums of bytes are exact.
        assert bits(accumulate(*in_blocks(chunks, rows, y))) == bits(ClassMoments().update(rows, y))

    def test_errors_of_blocks_that_do_not_fit(self):
        X, y = blobs(N_ROWS)
        blocks, labels = in_blocks("three", X, y)
        narrow = blocks.map_blocks(lambda rows: rows[:, 1:], dtype=blocks.dtype)
        unknown = blocks.T[da.from_array(np.ones(4, bool))].T
        for arguments, match in (
            ((blocks, labels[:-1]), r"X has 300 rows but .* 299 labels"),
            ((blocks, da.stack([labels, labels], 1)), r"labels have shape \(300, 2\)"),
            ((unknown, labels), "unknown number of features.*compute_chunk_sizes"),
            ((narrow, labels), r"X has 4 columns .*, and its blocks have 3"),
        ):
            with pytest.raises(InvalidDataError, match=match):
                accumulate(*arguments)
        with pytest.raises(InvalidDataError, match="X has 300 rows but there are 299 weights"):
            accumulate(blocks, labels, sample_weight=np.ones(299))


@pytest.mark.usefixtures("in_this_thread")
def test_blocks_of_unknown_size():
    """Labels that cannot be matched raise an error that names the remedy."""
    X, y = blobs(N_ROWS)
    kept = X[:, 0] > np.median(X[:, 0])
    blocks, labels, mask = in_blocks("thirty", X, y, kept)
    blocks, labels, X, y = blocks[mask], labels[mask], X[kept], y[kept]
    weights = da.ones_like(labels, dtype=float)
    found = GaussianNB().fit(blocks, labels, weights)
    assert_equal_to_rounding(found, GaussianNB().fit(X, y), X)
    match = r"row chunks of unknown size, so y must be a dask array.*compute_chunk_sizes\(\)"
    with pytest.raises(InvalidDataError, match=match):
        accumulate(blocks, y)
    match = r"X has 30 row blocks and y has 1, .*: call X.compute_chunk_sizes\(\)"
    with pytest.raises(InvalidDataError, match=match):
        accumulate(blocks, da.from_array(y))
    blocks.compute_chunk_sizes()
    assert_equal_to_rounding(GaussianNB().fit(blocks, y), GaussianNB().fit(X, y), X)


def test_columns_of_a_partition_are_those_of_its_frame(scheduler):
    X, y = blobs(N_ROWS)
    first, second = (pd.DataFrame(part, columns=[*"abcd"]) for part in (X[:200], X[200:]))
    labels = dd.from_map(pd.Series, [y[:200], y[200:]])
    lazy = dd.from_map(lambda part: part, [first, second[[*"dbca"]]], meta=first[:0])
    found, expected = GaussianNB().fit(lazy, labels), GaussianNB().fit(X, y)
    np.testing.assert_allclose(found.theta_, expected.theta_, rtol=1e-12)
    np.testing.assert_array_equal(found.predict(lazy).compute(), expected.predict(X))


# --- any scheduler --------------------------------------------------------------------------------


def test_every_scheduler_gives_the_same_bits(scheduler, rows):
    """Though a block takes the longer, the earlier it comes."""
    blocks, labels, _, _ = rows
    slow = blocks.map_blocks(_slower_first, dtype=blocks.dtype, meta=np.empty((0, 4)))
    with dask.config.set(scheduler="synchronous"):
        expected = bits(accumulate(blocks, labels))
    assert bits(accumulate(slow, labels)) == expected


def _slower_first(block, block_info):
    threading.Event().wait(0.001 * (15 - block_info[0]["chunk-location"][0] % 16))
    return block


def test_every_scheduler_names_the_row_that_is_not_finite(scheduler, rows):
    blocks, labels, X, y = rows
    fitted = make("full").fit(X, y)
    X[217, 1] = np.nan
    (blocks,) = in_blocks("uneven", X)
    with pytest.raises(InvalidDataError, match=r"block 3: .*NaN: row 217, column 1"):
        accumulate(blocks, labels)
    with pytest.raises(InvalidDataError, match=r"block 3: .*NaN: row 217, column 1"):
        fitted.predict(blocks).compute()


def test_delayed_partitions(scheduler):
    X, y = blobs(N_ROWS)
    weights = np.linspace(0, 1, N_ROWS)
    cuts = [slice(0, 7), slice(7, 150), slice(150, 300)]
    found = accumulate(in_partitions(*((X[cut], y[cut], weights[cut]) for cut in cuts)))
    expected = accumulate((X[cut], y[cut], weights[cut]) for cut in cuts)
    np.testing.assert_allclose(found.covariance(), expected.covariance(), rtol=1e-12)
    with pytest.raises(InvalidDataError, match=r"partition 1 is a ndarray; expected a tuple"):
        accumulate(in_partitions((X, y), X))
    with pytest.raises(InvalidDataError, match=r"partition 1 .*NaN: row 0, column 0"):
        accumulate(in_partitions((X, y), (np.full_like(X, np.nan), y)))
    with pytest.raises(InvalidDataError, match="hold their own weights"):
        accumulate(in_partitions((X, y)), sample_weight=y)


@pytest.mark.soak
def test_workers_that_join_and_leave_give_the_same_bits(rows):
    blocks, labels, _, _ = rows
    with dask.config.set(scheduler="synchronous"):
        expected = bits(accumulate(blocks, labels))
    slow = blocks.map_blocks(_slowly, dtype=blocks.dtype, meta=np.empty((0, 4)))
    with (
        LocalCluster(1, processes=False, dashboard_address=":0") as workers,
        Client(workers),
    ):
        for n_workers in (3, 1):
            timer = threading.Timer(0.2, workers.scale, [n_workers])
            timer.start()
            assert bits(accumulate(slow, labels)) == expected
            timer.join()


def _slowly(block):
    threading.Event().wait(0.01)
    return block


def _fatal(block):
    import os

    os._exit(1)


@pytest.mark.soak
def test_workers_that_die_over_a_block_are_an_error(client, rows):
    blocks, labels, _, _ = rows
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        pytest.raises(ClusterError, match="workers died repeatedly"),
    ):
        accumulate(blocks.map_blocks(_fatal, dtype="f8", meta=np.empty((0, 4))), labels)


def test_tiny_blocks_are_warned_of_before_anything_is_computed():
    X = da.from_array(np.zeros((1001, 2)), chunks=(1, 2))
    X = X.map_blocks(_fatal, dtype="f8", meta=np.empty((0, 2)))
    with pytest.raises(da.PerformanceWarning, match=r"1,001 blocks .*: rechunk"):
        accumulate(X, np.zeros(1001))


# --- memory and progress --------------------------------------------------------------------------


def test_a_budget_is_shared_by_the_moments_of_the_blocks():
    X, y = np.zeros((N_ROWS, 64)), np.arange(N_ROWS)
    blocks, labels = in_blocks("three", X, y)
    with pytest.raises(MemoryBudgetError, match=r"moments of 100 classes need"):
        accumulate(blocks, labels, max_memory="6MB")
    accumulate(blocks, labels % 10, max_memory="6MB")


@pytest.mark.parametrize("sizes", ["known", "unknown"])
def test_progress(scheduler, rows, sizes):
    blocks, labels, _, _ = rows
    if sizes == "unknown":
        mask = in_blocks("a hundred", np.ones(N_ROWS, bool))[0]
        blocks, labels = blocks[mask], labels[mask]
    told = []
    accumulate(blocks, labels, progress=lambda *rows: told.append(rows))
    total = N_ROWS if sizes == "known" else None
    assert told == [(64 * 3, total), (N_ROWS, total)]


# --- scores ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("in_this_thread")
@pytest.mark.parametrize("method", METHODS)
def test_scores_are_lazy(method):
    X, y = blobs(N_ROWS)
    fitted = make("LDA").fit(X, NAMES[y])
    computed = []

    def touch(block):
        computed.append(len(block))
        return block

    (blocks,) = in_blocks("uneven", X)
    blocks = blocks.map_blocks(touch, dtype=X.dtype, meta=np.empty((0, 4)))
    lazy = getattr(fitted, method)(blocks)
    expected = getattr(fitted, method)(X)
    assert isinstance(lazy, da.Array)
    assert (lazy.shape, lazy.dtype) == (expected.shape, expected.dtype)
    assert lazy.chunks == (CHUNKS["uneven"], *((n,) for n in expected.shape[1:]))
    assert da.utils.meta_from_array(lazy).dtype == expected.dtype
    assert not computed
    assert_same(lazy.compute(), expected)
    assert sorted(computed) == sorted(CHUNKS["uneven"])
    computed.clear()
    assert_same(lazy[:7].compute(), expected[:7])
    assert computed == [7]


def assert_same(found, expected):
    """Labels are equal; scores of rows in other blocks may differ in the last bits."""
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12, strict=True)
    else:
        np.testing.assert_array_equal(found, expected, strict=True)


OUT = {
    "a new array": None,
    "other chunks": {"chunks": (10, 3)},
    "shards": {"chunks": (4, 1), "shards": (16, 2)},
}


@pytest.mark.parametrize("out", OUT)
def test_scores_are_resumed_to_the_same_values(scheduler, tmp_path, out):
    X, y = blobs(N_ROWS)
    fitted, path = GaussianNB().fit(X, y), tmp_path / "scores.zarr"
    expected = fitted.predict_proba(X)
    if OUT[out] is not None:
        zarr.create_array(path, shape=expected.shape, dtype="f8", **OUT[out])
    place = path if out == "a new array" else zarr.open_array(path)
    bad = X.copy()
    bad[217, 1] = np.nan  # The row is in the second round.
    with pytest.raises(InvalidDataError, match="row 217, column 1") as caught:
        fitted.predict_proba(da.from_array(bad, (3, 4)), out=place)
    assert "keeps what was done, the first 192 rows" in caught.value.__notes__[0]
    half = zarr.open_array(path)
    assert mark_of(half)["done"] == 192
    assert_same(half[:192], expected[:192])
    with pytest.raises(CheckpointError, match="other rows, labels or weights: rows 0 to 2"):
        fitted.predict_proba(da.from_array(X + 9, (3, 4)), out=half)
    touched = []

    def touch(block, block_info):
        touched.append(block_info[0]["chunk-location"][0])
        return block

    blocks = da.from_array(X, (3, 4))
    if scheduler == "threads":
        blocks = blocks.map_blocks(touch, dtype=X.dtype, meta=np.empty((0, 4)))
    written = fitted.predict_proba(blocks, out=place if out == "a new array" else half)
    assert_same(written[...], expected)
    # Compared blocks, and the rest, are read.
    assert not touched or {*touched} == {0, *range(63, 100)}
    assert mark_of(zarr.open_array(path, mode="r"))["complete"]


# --- checkpoints ----------------------------------------------------------------------------------

HELD = {
    "arrays": lambda X, y: in_blocks("a hundred", X, y),
    "unknown sizes": lambda X, y: [
        each[da.from_array(X, (3, 4))[:, 0] > -9] for each in in_blocks("a hundred", X, y)
    ],
    "frames": lambda X, y: [
        dd.from_pandas(pd.DataFrame(each), npartitions=100)[column]
        for each, column in ((X, [0, 1]), (y, 0))
    ],
    "partitions": lambda X, y: [
        in_partitions(*((X[at : at + 3], y[at : at + 3]) for at in range(0, N_ROWS, 3)))
    ],
}


@in_turn("data, scheduler", HELD, ["threads", "cluster", "processes"], indirect=["scheduler"])
def test_an_interrupted_fit_is_resumed_to_the_same_bits(scheduler, tmp_path, data):
    given = HELD[data](*blobs(N_ROWS))
    path = tmp_path / "kept.npz"
    expected = bits(accumulate(*given))
    note = stop_after(100, *given, checkpoint=path)
    assert re.search(f"{path} keeps what was done, the first 64 blocks", note)
    assert bits(accumulate(*given, checkpoint=path)) == expected
    told = []
    done = accumulate(*given, checkpoint=path, progress=lambda *rows: told.append(rows))
    assert bits(done) == expected
    assert not told
