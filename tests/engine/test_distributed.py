"""dask: every scheduler, any blocks and any number of workers give the same moments and scores."""

import re
import time

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import zarr
from dask_rows import (
    CHUNK_ROWS,
    CHUNKS,
    EVERY_CHUNKING,
    N_ROWS,
    NAMES,
    in_blocks,
    in_partitions,
    stop_after,
    store,
    use_parts_of,
)
from distributed import Client, LocalCluster
from grids import in_turn
from samples import (
    ESTIMATORS,
    METHODS,
    assert_equal_to_rounding,
    assert_same_bits,
    blobs,
    bytes_of,
    make,
    results,
)
from states import bits

from streamgda import ClassMoments, GaussianNB, accumulate, engine
from streamgda.engine import accumulation, plan, progress, scoring
from streamgda.engine import dask as streamgda_on_dask
from streamgda.engine.dask import cluster as streamgda_cluster
from streamgda.engine.dask import parts as dask_parts
from streamgda.engine.dask.blocks import LayeredBlocks, blocks_of
from streamgda.engine.dask.parts import PartMoments, merge
from streamgda.errors import CheckpointError, InvalidDataError, MemoryBudgetError, SourceError
from streamgda.storage import format as storage_format
from streamgda.storage.opening import mark_of

# --- on every scheduler -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("full", np.float64), pytest.param("LDA", np.uint8, marks=pytest.mark.slow)],
)
def test_every_scheduler_fits_and_scores(scheduler, a_task_for_each_block, name, dtype):
    X, y = blobs(N_ROWS)
    X = bytes_of(X) if dtype == np.uint8 else X
    expected = make(name).fit(X, y)
    blocks, labels = in_blocks("thirty", X, y)
    found = make(name).fit(blocks, labels)
    assert_equal_to_rounding(found, expected, X)
    scores = results(found, blocks)
    computed = dict(zip(scores, dask.compute(*scores.values()), strict=True))
    assert_same_bits(computed, results(found, X))
    with dask.config.set(scheduler="synchronous"):
        alone = make(name).fit(blocks, labels)
    assert_same_bits(results(alone, X), results(found, X))


def test_every_scheduler_names_the_row_that_is_not_finite(scheduler):
    X, y = blobs(N_ROWS)
    fitted = make("full").fit(X, y)
    X[217, 1] = np.nan
    blocks, labels = in_blocks("uneven", X, y)
    with pytest.raises(InvalidDataError, match="NaN: row 217, column 1"):
        accumulate(blocks, labels)
    with pytest.raises(InvalidDataError, match="NaN: row 217, column 1"):
        fitted.predict(blocks).compute()


def test_data_frames(scheduler):
    X, y = blobs(N_ROWS)
    frame = pd.DataFrame(X, columns=[*"abcd"]).assign(label=NAMES[y], weight=np.linspace(0, 1, 300))
    lazy = dd.from_pandas(frame, npartitions=4)
    features = [*"abcd"]
    found = GaussianNB().fit(lazy[features], lazy["label"], lazy["weight"])
    expected = GaussianNB().fit(frame[features], frame["label"], frame["weight"])
    assert_equal_to_rounding(found, expected, frame[features])
    assert found.feature_names_in_.tolist() == features
    predicted = found.predict(lazy[features])
    assert isinstance(predicted, da.Array)
    np.testing.assert_array_equal(predicted.compute(), expected.predict(frame[features]))
    assert found.score(lazy[features], lazy["label"]) == expected.score(frame[features], NAMES[y])
    with pytest.raises(ValueError, match="feature names should match"):
        found.predict(lazy[features[::-1]])


def test_columns_of_a_partition_are_those_of_its_frame(scheduler):
    X, y = blobs(N_ROWS)
    first, second = (pd.DataFrame(rows, columns=[*"abcd"]) for rows in (X[:200], X[200:]))
    labels = dd.from_map(pd.Series, [y[:200], y[200:]])
    lazy = dd.from_map(lambda part: part, [first, second[[*"dbca"]]], meta=first[:0])
    found, expected = GaussianNB().fit(lazy, labels), GaussianNB().fit(X, y)
    np.testing.assert_allclose(found.theta_, expected.theta_, rtol=1e-12)
    np.testing.assert_array_equal(found.predict(lazy).compute(), expected.predict(X))


def test_delayed_partitions(scheduler):
    X, y = blobs(N_ROWS)
    weights = np.linspace(0, 1, N_ROWS)
    cuts = [slice(0, 7), slice(7, 150), slice(150, 300)]
    found = accumulate(in_partitions(*((X[cut], y[cut], weights[cut]) for cut in cuts)))
    expected = accumulate((X[cut], y[cut], weights[cut]) for cut in cuts)
    np.testing.assert_allclose(found.covariance(), expected.covariance(), rtol=1e-12)


@pytest.mark.usefixtures("client")
def test_rows_that_are_persisted(a_task_for_each_block):
    X, y = blobs(N_ROWS)
    blocks, labels = (array.persist() for array in in_blocks("three", X, y))
    for rows, expected in ((blocks, X), (blocks + 1, X + 1)):
        found = accumulate(rows, labels)
        np.testing.assert_allclose(found.means, ClassMoments().update(expected, y).means)
    fitted = make("full").fit(X, y)
    persisted = fitted.predict(blocks).persist()
    np.testing.assert_array_equal(persisted.compute(), fitted.predict(X))


@pytest.mark.usefixtures("client")
def test_a_large_model_is_sent_once(monkeypatch):
    monkeypatch.setattr(streamgda_cluster, "_LARGE_BYTES", 100)
    X, y = blobs(N_ROWS)
    fitted = make("full").fit(X, y)
    (blocks,) = in_blocks("three", X)
    lazy = fitted.predict_proba(blocks)
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "100kB"}):
        np.testing.assert_array_equal(lazy.compute(), fitted.predict_proba(X))
        np.testing.assert_array_equal(lazy.persist().compute(), fitted.predict_proba(X))


# --- stores that workers read and write themselves ----------------------------------------------


@pytest.mark.usefixtures("client", "slabs_of_a_chunk")
def test_workers_read_stores(stored, monkeypatch):
    group, X, y = stored
    weights = np.linspace(0.5, 1, N_ROWS)
    expected = GaussianNB().fit(X, y, weights)
    for module in (accumulation, scoring):  # not in this process
        monkeypatch.setattr(module, "reading", None)
    found = [GaussianNB().fit(group["X"], labels, weights) for labels in (group["y"], y)]
    np.testing.assert_array_equal(found[0].predict(group["X"]), expected.predict(X))
    assert found[0].score(group["X"], group["y"]) == expected.score(X, y)
    monkeypatch.undo()
    for fitted in found:
        assert_equal_to_rounding(fitted, expected, X)


@pytest.mark.usefixtures("client")
def test_rows_in_this_process_are_not_sent(stored, monkeypatch):
    _, X, y = stored
    monkeypatch.setattr(streamgda_on_dask, "accumulate_store", None)
    kept = zarr.create_array({}, data=X, chunks=(7, 4))
    assert_equal_to_rounding(GaussianNB().fit(kept, y), GaussianNB().fit(X, y), X)


@pytest.mark.usefixtures("client", "slabs_of_a_chunk")
@pytest.mark.parametrize("out_chunks", [{"chunks": (10, 3)}, {"chunks": (4, 1), "shards": (16, 2)}])
def test_workers_write_each_chunk_once(stored, tmp_path, monkeypatch, out_chunks):
    group, X, y = stored
    fitted = GaussianNB().fit(X, y)
    expected = fitted.predict_proba(X)
    unit = out_chunks.get("shards", out_chunks["chunks"])[0]
    ranges = []
    windows = dask_parts.windows
    monkeypatch.setattr(dask_parts, "windows", lambda *w: ranges.append(w[1:]) or windows(*w))
    for rows in (group["X"], da.from_zarr(group["X"])):
        out = zarr.create_array(
            tmp_path / type(rows).__module__, shape=expected.shape, dtype="f8", **out_chunks
        )
        assert fitted.predict_proba(rows, out=out) is out
        np.testing.assert_array_equal(out[...], expected)
    assert len(ranges) > 2
    assert all(start % unit == 0 for start, _ in ranges)


@pytest.mark.parametrize(
    "n_workers", [3, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 7))]
)
def test_any_number_of_workers_gives_the_same_bits(
    environment, stored, slabs_of_a_chunk, tmp_path, n_workers
):
    group, X, y = stored
    with dask.config.set(scheduler="synchronous"):
        blocks = accumulate(da.from_zarr(group["X"]), y)
    parts = [
        ClassMoments().update(X[start : start + CHUNK_ROWS], y[start : start + CHUNK_ROWS])
        for start in range(0, N_ROWS, CHUNK_ROWS)
    ]
    while len(parts) > 1:
        parts = [sum(parts[i + 1 : i + 2], parts[i]) for i in range(0, len(parts), 2)]
    with (
        LocalCluster(n_workers, processes=False, dashboard_address=":0") as workers,
        Client(workers),
    ):
        assert bits(accumulate(group["X"], y)) == bits(parts[0])
        assert bits(accumulate(da.from_zarr(group["X"]), y)) == bits(blocks)
        stop_after(100, group["X"], y, checkpoint=tmp_path / "kept", checkpoint_every=0)
        workers.scale(n_workers % 7 + 1)
        found = accumulate(group["X"], y, checkpoint=tmp_path / "kept")
        assert bits(found) == bits(parts[0])


def test_missing_values_on_a_cluster(cluster, tmp_path, monkeypatch):
    use_parts_of(monkeypatch, 1)
    X, y = blobs(N_ROWS, 4)
    X[np.random.default_rng(0).random(X.shape) < 0.3] = np.nan
    X[7, 1] = -9999
    options = {"on_invalid": "pairwise", "nodata": -9999}
    expected = accumulate(X, y, **options)
    group = zarr.create_group(tmp_path / "rows")
    rows = group.create_array("X", data=X, chunks=(64, 4))
    labels = group.create_array("y", data=y, chunks=(64,))
    lazy = da.from_array(X, chunks=(64, 2)), da.from_array(y, chunks=64)
    with cluster["scheduler"].as_current():
        of_store = accumulate(rows, labels, **options)  # which the workers read themselves
        of_blocks = accumulate(*lazy, **options)
    for found in (of_store, of_blocks):
        np.testing.assert_array_equal(found.pair_count, expected.pair_count)
        np.testing.assert_allclose(found.covariance(), expected.covariance(), rtol=0, atol=1e-12)


# --- progress -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["blocks", "store", "scores"])
def test_progress(scheduler, stored, slabs_of_a_chunk, kind):
    group, X, y = stored
    told = []

    def tell(done, total):
        told.append((done, total))

    if kind == "blocks":
        accumulate(da.from_zarr(group["X"]), y, progress=tell)
    elif kind == "store":
        accumulate(group["X"], group["y"], progress=tell)
    else:
        engine.score(GaussianNB().fit(X, y).model_.predict, group["X"], progress=tell)
    done = [rows for rows, _ in told]
    assert {total for _, total in told} == {N_ROWS}
    assert done == sorted(done)
    assert done[-1] == N_ROWS
    assert len(done) > 10


def test_progress_while_the_first_blocks_are_evaluated(monkeypatch, capsys):
    monkeypatch.setattr(progress, "_LINE_EVERY", 0)
    monkeypatch.setattr(streamgda_cluster, "n_threads", lambda: 3)
    X, y = blobs(N_ROWS)
    blocks, labels = in_blocks("thirty", X, y)
    accumulate(blocks + 1, labels, progress=True)
    lines = capsys.readouterr().err.splitlines()
    found = [line.split(": ", 2)[1] for line in lines]
    assert [*dict.fromkeys(found)] == ["preparing", "evaluating the first blocks", "accumulating"]
    last = lines[len(found) - 1 - found[::-1].index("evaluating the first blocks")]
    assert re.search(rf": [1-9]\d* of {N_ROWS} rows", last)


def test_functions_are_told_of_the_first_blocks(scheduler, monkeypatch):
    monkeypatch.setattr(streamgda_cluster, "n_threads", lambda: 3)
    X, y = blobs(N_ROWS)
    told = []
    blocks, labels = in_blocks("thirty", X, y)
    accumulate(blocks + 1, labels, progress=lambda done, total: told.append(done))
    assert 0 < told[0] < N_ROWS
    assert told == sorted(told)
    assert told[-1] == N_ROWS


# --- any blocks -------------------------------------------------------------------------------


@pytest.mark.usefixtures("in_this_thread", "a_task_for_each_block")
class TestBlocks:
    @in_turn("name, chunks", ESTIMATORS, CHUNKS)
    def test_any_blocks_of_rows(self, name, chunks):
        X, y = blobs(N_ROWS)
        found = make(name).fit(*in_blocks(chunks, X, y))
        assert_equal_to_rounding(found, make(name).fit(X, y), X)

    @EVERY_CHUNKING
    @pytest.mark.parametrize("part_bytes", [1, 40 * 4, 1 << 27])
    def test_bytes_are_exact_in_any_blocks_and_parts(self, monkeypatch, chunks, part_bytes):
        use_parts_of(monkeypatch, part_bytes)
        X, y = blobs(N_ROWS)
        X = bytes_of(X)
        assert bits(accumulate(*in_blocks(chunks, X, y))) == bits(ClassMoments().update(X, y))

    @pytest.mark.parametrize("labels", ["numpy", "list", "zarr", "dask", "other blocks"])
    @pytest.mark.parametrize("names", [None, NAMES])
    def test_labels_and_weights_held_otherwise(self, labels, names):
        X, y = blobs(N_ROWS)
        y = y if names is None else names[y]
        weights = np.random.default_rng(0).uniform(0, 2, N_ROWS)

        def hold(array):
            if labels == "zarr":
                dtype = np.dtypes.StringDType() if array.dtype.kind == "U" else array.dtype
                return zarr.create_array({}, data=array.astype(dtype), chunks=(70,))
            if labels == "list":
                return array.tolist()
            chunks = {"dask": "uneven", "other blocks": "three"}.get(labels)
            return in_blocks(chunks, array)[0] if chunks else array

        (blocks,) = in_blocks("uneven", X)
        for sample_weight in (None, weights):
            held = None if sample_weight is None else hold(weights)
            found = GaussianNB().fit(blocks, hold(y), held)
            assert_equal_to_rounding(found, GaussianNB().fit(X, y, sample_weight), X)

    def test_features_split_over_blocks(self):
        X, y = blobs(N_ROWS)
        blocks = da.from_array(X, (CHUNKS["uneven"], (1, 3)))
        found = make("full").fit(blocks, y)
        assert_equal_to_rounding(found, make("full").fit(X, y), X)
        assert_same_bits(
            {method: scores.compute() for method, scores in results(found, blocks).items()},
            results(found, X),
        )


def test_parts_are_not_changed_when_they_are_merged():
    parts = [ClassMoments().update(*blobs(seed=seed)) for seed in range(2)]
    before = [bits(part) for part in parts]
    first, second = (merge(*map(PartMoments, parts)).moments for _ in range(2))
    assert [bits(part) for part in parts] == before
    assert bits(first) == bits(second)


@pytest.mark.parametrize("costly", [True, False])
def test_costly_blocks_are_evaluated_by_enough_tasks_for_all_threads(
    scheduler, monkeypatch, costly
):
    def slow(block, block_id):
        time.sleep(0.03 if costly and block_id[0] < 3 else 0)
        return block + 1

    def evaluation(parts, piece, of=dask_parts.Parts.evaluation):
        pieces.append(piece)
        return of(parts, piece)

    pieces = []
    monkeypatch.setattr(dask_parts.Parts, "evaluation", evaluation)
    monkeypatch.setattr(streamgda_cluster, "n_threads", lambda: 3)
    X, y = blobs(N_ROWS)
    blocks, labels = in_blocks("thirty", X, y)
    slowly = blocks.map_blocks(slow, dtype="f8", meta=np.empty((0, 4)))
    found = accumulate(slowly, labels)
    if costly:  # others are now and then, where threads are busy
        assert len(pieces) == 24
        assert pieces[-1][1] == 30
    with dask.config.set(scheduler="synchronous"):
        monkeypatch.setattr(streamgda_cluster, "n_threads", lambda: 1)
        assert bits(found) == bits(accumulate(blocks + 1, labels))


def test_parts_of_the_size_that_dask_is_configured_for(in_this_thread):
    X, y = blobs(N_ROWS)
    told = []
    with dask.config.set({"streamgda.part-bytes": "1 kB"}):
        accumulate(*in_blocks("thirty", X, y), progress=lambda *rows: told.append(rows))
    assert len(told) == 10  # of 30 blocks of 320 bytes


def test_a_budget_of_memory_limits_the_tasks_that_run_at_a_time(a_task_for_each_block):
    X, y = np.random.default_rng(0).normal(size=(N_ROWS, 4)), np.arange(N_ROWS)
    running, most = [], []

    def seen(block):
        running.append(1)
        most.append(len(running))
        time.sleep(0.005)
        running.pop()
        return block

    (blocks,) = in_blocks("thirty", X)
    rows = blocks.map_blocks(seen, dtype="f8", meta=np.empty((0, 4)))
    expected = accumulate(blocks, y)
    state = expected.nbytes
    with dask.config.set(scheduler="threads", num_workers=4):
        with pytest.raises(MemoryBudgetError, match="moments of 300 classes that a task holds"):
            accumulate(rows, y, max_memory=state)
        assert not most
        task = 3 * state + ClassMoments()._scratch_bytes(4)
        found = accumulate(rows, y, max_memory=2 * task + 8 * state)
    assert max(most) <= 2
    assert bits(found) == bits(expected)


# --- blocks of unknown size -------------------------------------------------------------------


@pytest.mark.usefixtures("in_this_thread", "a_task_for_each_block")
class TestUnknownSizes:
    @pytest.fixture
    def some(self):
        """Rows in blocks whose sizes dask does not know, and the rows themselves."""
        X, y = blobs(N_ROWS)
        kept = X[:, 0] > np.median(X[:, 0])
        blocks, labels, mask = in_blocks("thirty", X, y, kept)
        return blocks[mask], labels[mask], X[kept], y[kept]

    @pytest.mark.parametrize("name", ["full", "LDA", "BernoulliNB"])
    def test_fit_and_score(self, name, some):
        blocks, labels, X, y = some
        assert np.isnan(blocks.shape[0])
        found = make(name).fit(blocks, labels, da.ones_like(labels, dtype=float))
        assert_equal_to_rounding(found, make(name).fit(X, y), X)
        scores = results(found, blocks)
        assert all(np.isnan(lazy.shape[0]) for lazy in scores.values())
        assert_same_bits({m: lazy.compute() for m, lazy in scores.items()}, results(found, X))
        assert found.score(blocks, labels) == found.score(X, y)

    def test_labels_that_cannot_be_matched(self, some):
        blocks, labels, _, y = some
        match = r"row chunks of unknown size, so y must be a dask array.*compute_chunk_sizes\(\)"
        with pytest.raises(InvalidDataError, match=match):
            accumulate(blocks, y)
        match = r"X has 30 row blocks and y has 1, .*: call X.compute_chunk_sizes\(\)"
        with pytest.raises(InvalidDataError, match=match):
            accumulate(blocks, da.from_array(y))
        with pytest.raises(InvalidDataError, match=r"X has \d+ rows but y has \d+ labels"):
            accumulate(blocks, da.from_array(np.zeros(N_ROWS), 10))
        blocks.compute_chunk_sizes()
        assert_equal_to_rounding(
            GaussianNB().fit(blocks, y),
            GaussianNB().fit(blocks, labels.compute_chunk_sizes()),
            some[2],
        )


# --- lazy -------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("names", [None, NAMES])
def test_scores_are_lazy(in_this_thread, method, names):
    X, y = blobs(N_ROWS)
    y = y if names is None else names[y]
    fitted = make("LDA").fit(X, y)
    computed = []

    def touch(block):
        computed.append(len(block))
        return block

    (blocks,) = in_blocks("uneven", X)
    blocks = blocks.map_blocks(touch, dtype=X.dtype, meta=np.empty((0, 4)))
    lazy = getattr(fitted, method)(blocks)
    expected = getattr(fitted, method)(X)
    assert isinstance(lazy, da.Array)
    assert lazy.shape == expected.shape
    assert lazy.dtype == expected.dtype
    assert lazy.chunks == (CHUNKS["uneven"], *((n,) for n in expected.shape[1:]))
    meta = da.utils.meta_from_array(lazy)
    assert (type(meta), meta.dtype, meta.ndim) == (np.ndarray, expected.dtype, expected.ndim)
    assert not computed
    np.testing.assert_array_equal(lazy.compute(), expected, strict=True)
    assert sorted(computed) == sorted(CHUNKS["uneven"])
    computed.clear()
    np.testing.assert_array_equal(lazy[:7].compute(), expected[:7], strict=True)
    assert computed == [7]


def test_delayed_partitions_that_cannot_be_used(in_this_thread):
    X, y = blobs(N_ROWS)
    match = r"partition 1 is a ndarray; expected a tuple \(X, y\) or \(X, y, weight\)"
    with pytest.raises(InvalidDataError, match=match):
        accumulate(in_partitions((X, y), X))
    with pytest.raises(InvalidDataError, match=r"partition 1 .*NaN: row 0, column 0"):
        accumulate(in_partitions((X, y), (np.full_like(X, np.nan), y)))
    with pytest.raises(InvalidDataError, match="hold their own weights"):
        accumulate(in_partitions((X, y)), sample_weight=y)


# --- graphs -------------------------------------------------------------------------------------


def test_blocks_are_made_in_the_task_that_takes_them_in():
    X, y = blobs(N_ROWS)
    rows = da.from_zarr(zarr.create_array({}, data=X, chunks=(100, 2))).rechunk((100, 4))
    labels = da.from_array(y, 50).rechunk(100)
    blocks, elsewhere = blocks_of({"X": rows * 2, "y": labels})
    assert len(blocks) == 3
    assert all(len(block.graph) >= 3 for block in blocks)  # two reads, and their results
    assert len(elsewhere) == 1  # the zarr array
    values = dask.compute(elsewhere)[0]
    for number in range(3):
        (block,) = blocks[number : number + 1]
        np.testing.assert_array_equal(block.slab(values, "", 0).X, 2 * X[100 * number :][:100])
    blocks, elsewhere = blocks_of({"X": rows - rows.mean(axis=0), "y": labels})
    made = dask.compute(elsewhere)[0]
    values = np.vstack([block.slab(made, "", 0).X for block in blocks])
    np.testing.assert_allclose(values, X - X.mean(axis=0), atol=1e-12)
    assert any("mean" in str(key) for key in elsewhere)


COMPUTED = []


def seen(block):
    COMPUTED.append(len(block))
    return block


def first(block):
    return block[:, 0]


LAYERED = {
    "maps of a store": (lambda X, y: {"X": X + 1, "y": da.from_array(y, 100)}, True),
    "labels of the rows": (lambda X, y: {"X": X, "y": X.map_blocks(first, drop_axis=1)}, True),
    "numbers of blocks": (
        lambda X, y: {"X": da.map_blocks(lambda b, block_id: b + block_id[0], X, dtype="f8")},
        True,
    ),
    "one table for all": (lambda X, y: {"X": X + da.from_array(y[:4], chunks=4)}, True),
    "rows that are mixed": (lambda X, y: {"X": X[::-1]}, False),
    "a mean of all": (lambda X, y: {"X": X - X.mean(axis=0)}, False),
}


@pytest.mark.parametrize("name", LAYERED)
def test_blocks_of_layers_are_cut_without_listing_all_tasks(name):
    columns, layered = LAYERED[name]
    X, y = blobs(N_ROWS)
    COMPUTED.clear()
    rows = da.from_zarr(zarr.create_array({}, data=X, chunks=(100, 4)))
    rows = rows.map_blocks(seen, dtype="f8", meta=np.empty((0, 4)))
    columns = columns(rows, y)
    blocks, elsewhere = blocks_of(columns)
    assert isinstance(blocks, LayeredBlocks) == layered
    values = dask.compute(elsewhere)[0]
    parts = [block for cut in (blocks[:1], blocks[1:]) for block in cut]
    found = [block.slab(values, "", 0) for block in parts]
    assert COMPUTED == [100] * 3
    for field, column in columns.items():
        made = np.concatenate([getattr(slab, field) for slab in found])
        np.testing.assert_array_equal(made, column.compute())


def test_progress_of_blocks_of_unknown_size(in_this_thread, a_task_for_each_block):
    X, y = blobs(N_ROWS)
    blocks, labels, mask = in_blocks("three", X, y, y > 0)
    told = []
    accumulate(blocks[mask], labels[mask], progress=lambda *rows: told.append(rows))
    assert told[-1] == ((y > 0).sum(), None)
    assert len(told) == 3


def test_errors_of_blocks_that_do_not_fit():
    X, y = blobs(N_ROWS)
    blocks, labels = in_blocks("three", X, y)
    with pytest.raises(InvalidDataError, match=r"X has 300 rows but .* 299 labels .* for each row"):
        accumulate(blocks, labels[:-1])
    with pytest.raises(InvalidDataError, match="X has 300 rows but there are 299 weights"):
        accumulate(blocks, labels, sample_weight=np.ones(299))
    with pytest.raises(
        InvalidDataError, match=r"labels have shape \(300, 2\); expected one entry for each row"
    ):
        accumulate(blocks, da.stack([labels, labels], axis=1))
    with pytest.raises(InvalidDataError, match=r"unknown number of features.*compute_chunk_sizes"):
        accumulate(blocks.T[da.from_array(np.ones(4, bool))].T, labels)
    narrow = blocks.map_blocks(lambda rows: rows[:, 1:], dtype=blocks.dtype)
    for fit in (accumulate, GaussianNB().fit):
        with pytest.raises(InvalidDataError, match=r"X has 4 columns .*, and its blocks have 3"):
            fit(narrow, labels)


HELD = {
    "arrays": lambda group: (da.from_zarr(group["X"]) * 2, da.from_zarr(group["y"])),
    "unknown sizes": lambda group: [
        da.from_zarr(group[name])[da.from_zarr(group["X"])[:, 0] > -9] for name in "Xw"
    ],
    "frames": lambda group: [
        dd.from_pandas(pd.DataFrame(group[name][...]), npartitions=20)[of]
        for name, of in (("X", [0, 1]), ("w", 0))
    ],
    "partitions": lambda group: (
        [
            dask.delayed(lambda a, b: (a, b))(group["X"][n : n + 30], group["w"][n : n + 30])
            for n in range(0, 300, 30)
        ],
    ),
    "store": lambda group: (group["X"], group["y"]),
}


@pytest.mark.usefixtures("slabs_of_a_chunk")
@in_turn("data, scheduler", HELD, ["threads", "cluster", "processes"], indirect=["scheduler"])
def test_an_interrupted_fit_is_resumed(scheduler, stored, tmp_path, data):
    group, _, y = stored
    group.create_array("w", data=np.unique(y, return_inverse=True)[1], chunks=(CHUNK_ROWS,))
    held = HELD[data](group)
    path = tmp_path / "kept"
    expected = bits(accumulate(*held))
    for n_rows in (100, 200):
        note = stop_after(n_rows, *held, checkpoint=path)
        kept = r"\d+ of \d+ parts" if scheduler == "cluster" or data != "store" else "the first"
        assert re.search(f"{path} keeps what was done, {kept}", note)
    assert bits(accumulate(*held, checkpoint=path)) == expected
    told = []
    done = accumulate(*held, checkpoint=path, progress=lambda *rows: told.append(rows))
    assert bits(done) == expected
    assert not told


WEIGHTS = np.linspace(0.5, 1, N_ROWS)


@pytest.fixture(scope="module")
def half_way(cluster, tmp_path_factory):
    """The content of a checkpoint of the `stored` rows after half of them have been read."""
    folder = tmp_path_factory.mktemp("half way")
    group, _, y = store(folder / "rows")
    with pytest.MonkeyPatch.context() as patch, cluster["scheduler"].as_current():
        use_parts_of(patch, 1)
        patch.setattr(plan, "_SLAB_BYTES", 1)
        options = {"sample_weight": WEIGHTS, "checkpoint": folder / "kept"}
        stop_after(150, group["X"], y, checkpoint_every=0, **options)
    return (folder / "kept").read_bytes()


@pytest.fixture
def kept(half_way, tmp_path, client, slabs_of_a_chunk):
    """The arguments that resume from that checkpoint."""
    path = tmp_path / "kept"
    path.write_bytes(half_way)
    return {"sample_weight": WEIGHTS, "checkpoint": path}


OTHERS = {
    "rows": (lambda X, y: (X + 1e-9, y), {}, r"other rows: those of blocks \d+ to \d+ have"),
    "labels": (lambda X, y: (X, np.roll(y, 1)), {}, "other labels or weights: those of"),
    "weights": (lambda X, y: (X, y), {"sample_weight": np.ones(N_ROWS)}, "labels or weights"),
    "structure": (lambda X, y: (X, y), {"covariance_type": "tied"}, "covariance_type: full"),
}


@pytest.mark.parametrize("other", OTHERS)
def test_a_checkpoint_of_something_else_is_refused(stored, kept, tmp_path, other):
    _, X, y = stored
    change, options, message = OTHERS[other]
    X, y = change(X, y)
    rows = zarr.create_array(tmp_path / "other", data=X, chunks=(CHUNK_ROWS, 4))
    options = kept | options
    before = kept["checkpoint"].read_bytes()
    with pytest.raises(CheckpointError, match=message):
        accumulate(rows, y, **options)
    assert kept["checkpoint"].read_bytes() == before


DAMAGE = {
    "no cut": {"seen": {}},
    "no parts": {"seen": {"cut": {"slab_rows": CHUNK_ROWS}}},
    "done otherwise": {"done": 3},
    "no moments": {"moments": {}},
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_is_reported(stored, kept, damage):
    group, _, y = stored
    path = kept["checkpoint"].rename(kept["checkpoint"].with_suffix(".zip"))
    _, attributes, arrays = storage_format.read(path, "checkpoint")
    storage_format.write(path, "checkpoint", attributes | DAMAGE[damage], arrays)
    with pytest.raises(CheckpointError, match=r"kept\.zip.* is damaged"):
        accumulate(group["X"], y, **(kept | {"checkpoint": path}))


@pytest.mark.usefixtures("in_this_thread", "slabs_of_a_chunk")
def test_collections_are_identified_by_their_names_and_some_blocks(stored, tmp_path):
    group, X, y = stored
    path, rows = tmp_path / "kept", da.from_zarr(group["X"])
    stop_after(150, rows, y, checkpoint=path)
    for other in (da.from_array(X, chunks=(CHUNK_ROWS, 4)), rows.rechunk((70, 4))):
        match = r"X, by the name that dask gives it: from-zarr-\w+; now it is"
        with pytest.raises(CheckpointError, match=match):
            accumulate(other, y, checkpoint=path)
    with pytest.raises(CheckpointError, match=r"y, by the name that dask gives it"):
        accumulate(rows, y[::-1], checkpoint=path)
    group["X"][...] = X + 1
    with pytest.raises(CheckpointError, match=r"other rows: those of blocks \d+ to \d+ have"):
        accumulate(rows, y, checkpoint=path)
    group["X"][...] = X
    assert bits(accumulate(rows, y, checkpoint=path)) == bits(accumulate(rows, y))


@pytest.mark.usefixtures("client", "slabs_of_a_chunk")
def test_a_bad_row_keeps_the_parts_without_it(stored, tmp_path):
    group, X, y = stored
    path = tmp_path / "kept"
    expected = bits(accumulate(group["X"], y))
    group["X"][217, 1] = np.nan
    with pytest.raises(InvalidDataError, match="NaN: row 217, column 1") as refusal:
        accumulate(group["X"], y, checkpoint=path)
    assert re.search(r"keeps what was done, \d+ of 24 parts", refusal.value.__notes__[0])
    group["X"][217, 1] = X[217, 1]
    assert bits(accumulate(group["X"], y, checkpoint=path)) == expected


@pytest.mark.usefixtures("client", "slabs_of_a_chunk")
@pytest.mark.parametrize("chunks", [None, (10, 3), (64, 2)])
def test_scores_on_a_cluster_are_resumed(stored, tmp_path, monkeypatch, chunks):
    group, X, y = stored
    fitted, path = GaussianNB().fit(X, y), tmp_path / "scores"
    expected = fitted.predict_proba(X)
    if chunks is not None:
        zarr.create_array(path, shape=expected.shape, dtype="f8", chunks=chunks)
    begun = path if chunks is None else zarr.open_array(path)
    group["X"][217, 1] = np.nan
    done, attempts = 0, 0
    while not done and attempts < 20:  # the part with this row may be the first that ends
        with pytest.raises(InvalidDataError, match="row 217, column 1") as refusal:
            fitted.predict_proba(group["X"], out=begun)
        half = zarr.open_array(path)
        done, attempts = mark_of(half)["done"], attempts + 1
    assert 0 < done <= 217
    assert f"the scores of the first {done} rows" in refusal.value.__notes__[0]
    np.testing.assert_array_equal(half[:done], expected[:done])
    with pytest.raises(SourceError, match="half-written"):
        accumulate(half, y)
    group["X"][217, 1] = X[217, 1]
    with pytest.raises(CheckpointError, match="started with model"):
        make("LDA").fit(X, y).predict_proba(group["X"], out=half)
    group["X"][0] = 0
    with pytest.raises(CheckpointError, match="other rows: rows 0 to"):
        fitted.predict_proba(group["X"], out=half)
    group["X"][0] = X[0]
    starts = []
    windows = dask_parts.windows
    monkeypatch.setattr(dask_parts, "windows", lambda *w: starts.append(w[1]) or windows(*w))
    with dask.config.set(scheduler="synchronous" if chunks == (64, 2) else None):
        written = fitted.predict_proba(group["X"], out=path if chunks is None else half)
    assert not starts or min(starts) > done - 64
    np.testing.assert_array_equal(written[...], expected)
    assert mark_of(zarr.open_array(path, mode="r"))["complete"]
