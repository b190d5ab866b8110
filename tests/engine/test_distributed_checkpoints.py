"""dask: checkpoints of parts, and partial scores."""

import re

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import zarr
from dask_rows import CHUNK_ROWS, N_ROWS, stop_after, store, use_parts_of
from samples import assert_same_bits, make

from streamgda import GaussianNB, accumulate, storage
from streamgda.engine import plan
from streamgda.engine.dask import parts as dask_parts
from streamgda.errors import CheckpointError, InvalidDataError, SourceError
from streamgda.storage.opening import mark_of
from streamgda.storage.saved import state_of

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
@pytest.mark.parametrize("data", HELD)
def test_an_interrupted_fit_is_resumed(scheduler, stored, tmp_path, data):
    group, _, y = stored
    group.create_array("w", data=np.unique(y, return_inverse=True)[1], chunks=(CHUNK_ROWS,))
    held = HELD[data](group)
    path = tmp_path / "kept"
    expected = state_of(accumulate(*held))[1]
    for n_rows in (100, 200):
        note = stop_after(n_rows, *held, checkpoint=path)
        kept = r"\d+ of \d+ parts" if scheduler == "cluster" or data != "store" else "the first"
        assert re.search(f"{path} keeps what was done, {kept}", note)
    assert_same_bits(state_of(accumulate(*held, checkpoint=path))[1], expected)
    told = []
    done = accumulate(*held, checkpoint=path, progress=lambda *rows: told.append(rows))
    assert_same_bits(state_of(done)[1], expected)
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
    "rows": (lambda X, y: (X + 1e-9, y), {}, r"other rows: those of rows \d+ to \d+ have"),
    "labels": (lambda X, y: (X, np.roll(y, 1)), {}, "other labels or weights: those of"),
    "fewer": (lambda X, y: (X[:280], y[:280]), {}, r"started with X: shape \(300, 4\)"),
    "type": (lambda X, y: (X.astype("f4"), y), {}, "float64; now it is shape"),
    "weights": (lambda X, y: (X, y), {"sample_weight": np.ones(N_ROWS)}, "labels or weights"),
    "no weights": (lambda X, y: (X, y), {"sample_weight": None}, "started with sample_weight"),
    "structure": (lambda X, y: (X, y), {"covariance_type": "tied"}, "covariance_type: full"),
}


@pytest.mark.parametrize("other", OTHERS)
def test_a_checkpoint_of_something_else_is_refused(stored, kept, tmp_path, other):
    _, X, y = stored
    change, options, message = OTHERS[other]
    X, y = change(X, y)
    rows = zarr.create_array(tmp_path / "other", data=X, chunks=(CHUNK_ROWS, 4))
    options = kept | options
    if len(X) < N_ROWS:
        options["sample_weight"] = kept["sample_weight"][: len(X)]
    before = kept["checkpoint"].read_bytes()
    with pytest.raises(CheckpointError, match=message):
        accumulate(rows, y, **options)
    assert kept["checkpoint"].read_bytes() == before


def test_a_checkpoint_of_other_parts_is_refused(stored, kept, monkeypatch):
    group, _, y = stored
    use_parts_of(monkeypatch, 1000)
    with pytest.raises(CheckpointError, match=r"with parts: 24, with .*; now it is 12, with"):
        accumulate(group["X"], y, **kept)
    with dask.config.set(scheduler="synchronous"):
        match = r"started with read by: workers; now it is this process"
        with pytest.raises(CheckpointError, match=match):
            accumulate(group["X"], y, **kept)


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
    _, attributes, arrays = storage.read(path, "checkpoint")
    storage.write(path, "checkpoint", attributes | DAMAGE[damage], arrays)
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
    assert_same_bits(
        state_of(accumulate(rows, y, checkpoint=path))[1], state_of(accumulate(rows, y))[1]
    )


@pytest.mark.usefixtures("client", "slabs_of_a_chunk")
def test_a_bad_row_keeps_the_parts_without_it(stored, tmp_path):
    group, X, y = stored
    path = tmp_path / "kept"
    expected = state_of(accumulate(group["X"], y))[1]
    group["X"][217, 1] = np.nan
    with pytest.raises(InvalidDataError, match="NaN: row 217, column 1") as refusal:
        accumulate(group["X"], y, checkpoint=path)
    assert re.search(r"keeps what was done, \d+ of 24 parts", refusal.value.__notes__[0])
    group["X"][217, 1] = X[217, 1]
    assert_same_bits(state_of(accumulate(group["X"], y, checkpoint=path))[1], expected)


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
