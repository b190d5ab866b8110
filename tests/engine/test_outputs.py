"""Rows in memory are scored in slabs of MiB, into chunks of MiB that are written once."""

import collections
import itertools

import numpy as np
import pandas as pd
import pytest
import zarr
from stops import N_ROWS, Rows
from stops import X as STOPPED

from streamgda import GaussianNB, engine
from streamgda.engine import plan
from streamgda.errors import InvalidDataError
from streamgda.rows import as_source, grids
from streamgda.rows.grids import Grid
from streamgda.rows.rasters import RasterRows

MIB = 1 << 20


class Counting(zarr.storage.MemoryStore):
    """A store that counts how often each chunk is written."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.writes = collections.Counter()

    async def set(self, key, value, *arguments):
        self.writes.update([key] * (not key.endswith(".json")))
        await super().set(key, value, *arguments)


def in_xarray(X):
    return pytest.importorskip("xarray").DataArray(X.reshape(1000, -1, 6))


def in_arrow(X):
    return pytest.importorskip("pyarrow").table({str(j): X[:, j] for j in range(6)})


@pytest.mark.parametrize(
    "kind", [np.asarray, pd.DataFrame, np.ma.masked_invalid, in_xarray, in_arrow]
)
@pytest.mark.parametrize("out_row_bytes", [0, 8, 80])
def test_slabs_of_rows_in_memory_have_mebibytes(kind, out_row_bytes):
    rows = as_source(kind(np.ones((800_000, 6))))
    n_rows = plan.plan_rows(rows, 10**12, out_row_bytes=out_row_bytes)
    assert 30 * MIB < n_rows * max(48, out_row_bytes) < 40 * MIB


@pytest.mark.parametrize(
    ("shape", "row_bytes"),
    [((5_000_000,), 8), ((5_000_000,), 800), ((3000, 3000), 80), ((50, 1000, 1000), 8)],
)
def test_chunks_of_scores_have_mebibytes(shape, row_bytes):
    n_rows = (1 << 25) // max(48, row_bytes) // 4096 * 4096
    chunks = Grid.of(shape).in_slabs(n_rows, row_bytes).chunks
    assert 1 * MIB < np.prod(chunks) * row_bytes <= 4 * MIB


@pytest.mark.parametrize(
    ("shape", "chunks"),
    [
        ((500,), None),
        ((500,), (45,)),  # of an array that exists
        ((500, 3), None),
        ((500, 3), (45, 2)),
        ((30, 17), None),
        ((6, 7, 11), None),
        ((6, 7, 11), (1, 3, 4)),
        ((6, 8, 11), (1, 4, 4)),
    ],
)
def test_each_chunk_of_scores_is_written_once(monkeypatch, shape, chunks):
    monkeypatch.setattr(plan, "_SLAB_BYTES", 100 * 48)
    monkeypatch.setattr(grids, "_CHUNK_BYTES", 400)
    columns = 3 if shape[-1] == 3 else None
    grid = shape[:1] if columns else shape
    X = np.random.default_rng(0).normal(size=(*grid, 6))
    out = store = Counting()
    if chunks is not None:
        out = zarr.create_array(store, shape=shape, chunks=chunks, dtype=float)

    def scores(rows, first_row):
        return rows[:, :3] if columns else rows.sum(axis=1)

    rows = as_source(X) if len(grid) == 1 else RasterRows.along(X, "X", len(grid))
    written = engine.score(scores, rows, out, columns=columns)
    np.testing.assert_array_equal(written[:], scores(X.reshape(-1, 6), 0).reshape(shape))
    assert len(store.writes) > 4
    assert set(store.writes.values()) == {1}


@pytest.mark.parametrize("shape", [(7,), (6, 5), (3, 4, 5), (2, 5, 3, 4)])
def test_multiples_of_the_unit_of_a_grid_are_whole_chunks(shape):
    numbers = np.arange(np.prod(shape)).reshape(shape)
    for chunks in itertools.product(*(range(1, n + 1) for n in shape)):
        unit, held = Grid(shape, chunks).unit, np.empty(shape, int)
        for number, start in enumerate(itertools.product(*map(range, [0] * 4, shape, chunks))):
            box = tuple(slice(a, a + n) for a, n in zip(start, chunks, strict=True))
            held[box] = number
        for stop in range(unit, numbers.size, unit):
            assert not set(held.flat[:stop]) & set(held.flat[stop:])


def test_scores_that_were_started_in_small_slabs_are_resumed(tmp_path, monkeypatch):
    model = GaussianNB().fit(STOPPED, np.arange(N_ROWS) % 2)
    with monkeypatch.context() as patch:
        patch.setattr(plan, "_SLAB_BYTES", 30 * 48)
        with pytest.raises(OSError, match="stop"):
            model.predict(Rows(at=150, error=OSError("stop")), out=tmp_path / "labels")
    written = model.predict(Rows(), out=tmp_path / "labels")
    np.testing.assert_array_equal(written[:], model.predict(STOPPED))


@pytest.mark.parametrize("stored", [False, True])
def test_scores_that_the_type_of_out_cannot_hold_are_refused(stored):
    X = np.arange(40.0)[:, None]
    nb = GaussianNB().fit(X, np.arange(40) % 2)
    out = zarr.create_array({}, shape=(40, 2), dtype="f2") if stored else np.empty((40, 2), "f2")
    with pytest.raises(InvalidDataError, match="out has dtype float16"):
        nb.predict_joint_log_proba(X * 1e4, out=out)
    nb.predict_joint_log_proba(X, out=out)
