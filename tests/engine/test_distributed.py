"""dask: every scheduler gives the same moments and scores; workers read and write stores."""

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import zarr
from dask_rows import CHUNK_ROWS, N_ROWS, NAMES, in_blocks, in_partitions, stop_after, use_parts_of
from distributed import Client, LocalCluster
from samples import assert_equal_to_rounding, assert_same_bits, blobs, bytes_of, make, results

from streamgda import ClassMoments, GaussianNB, accumulate, engine
from streamgda.engine import accumulation, scoring
from streamgda.engine import dask as streamgda_on_dask
from streamgda.engine.dask import cluster as streamgda_cluster
from streamgda.engine.dask import parts as dask_parts
from streamgda.errors import InvalidDataError
from streamgda.storage.saved import state_of

# --- on every scheduler -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["full", "LDA", "GaussianNB"])
@pytest.mark.parametrize("dtype", [np.float64, np.uint8])
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


def test_every_scheduler_reads_stores(scheduler, tmp_path):
    X, y = blobs(N_ROWS)
    group = zarr.create_group(tmp_path / "store")
    group.create_array("X", data=X, chunks=(64, 2))
    group.create_array("y", data=NAMES[y].astype(np.dtypes.StringDType()), chunks=(50,))
    rows = da.from_zarr(tmp_path / "store" / "X")
    found = GaussianNB().fit(rows, group["y"])
    assert_equal_to_rounding(found, GaussianNB().fit(X, NAMES[y]), X)
    da.to_zarr(found.predict_proba(rows), tmp_path / "scores")
    stored = zarr.open_array(tmp_path / "scores", mode="r")
    np.testing.assert_array_equal(stored[...], found.predict_proba(X))


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


@pytest.mark.usefixtures("client")
def test_workers_write_where_a_path_says(stored, tmp_path):
    group, X, y = stored
    fitted = GaussianNB().fit(X, y)
    for number, rows in enumerate((group["X"], da.from_zarr(group["X"], chunks=(90, 4)))):
        out = fitted.predict(rows, out=tmp_path / str(number))
        np.testing.assert_array_equal(out[...], fitted.predict(X))
    for rows in (group["X"], da.from_zarr(group["X"])):
        kept = np.empty(N_ROWS, y.dtype)
        assert fitted.predict(rows, out=kept) is kept
        np.testing.assert_array_equal(kept, fitted.predict(X))


@pytest.mark.parametrize(
    "n_workers", [1, 3, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 7))]
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
        assert_same_bits(state_of(accumulate(group["X"], y))[1], state_of(parts[0])[1])
        assert_same_bits(state_of(accumulate(da.from_zarr(group["X"]), y))[1], state_of(blocks)[1])
        stop_after(100, group["X"], y, checkpoint=tmp_path / "kept", checkpoint_every=0)
        workers.scale(n_workers % 7 + 1)
        found = accumulate(group["X"], y, checkpoint=tmp_path / "kept")
        assert_same_bits(state_of(found)[1], state_of(parts[0])[1])


@pytest.mark.usefixtures("environment", "slabs_of_a_chunk")
def test_workers_that_come_and_go_change_no_bit(stored):
    group, _, y = stored
    with (
        LocalCluster(1, processes=False, dashboard_address=":0") as workers,
        Client(workers),
    ):
        expected = state_of(accumulate(group["X"], y))[1]
        workers.adapt(minimum=1, maximum=3, interval="20ms")
        for _ in range(3):
            assert_same_bits(state_of(accumulate(group["X"], y))[1], expected)


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
