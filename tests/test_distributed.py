"""dask: the same moments from any blocks on any scheduler; scores that stay lazy."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from distributed import Client, LocalCluster
from samples import (
    EVERY_ESTIMATOR,
    METHODS,
    assert_equal_to_rounding,
    assert_same_bits,
    blobs,
    bytes_of,
    make,
    results,
)

from streamgda import ClassMoments, GaussianNB, QuadraticDiscriminantAnalysis, accumulate
from streamgda import distributed as streamgda_on_dask
from streamgda.distributed import tasks
from streamgda.errors import InvalidDataError

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
EVERY_CHUNKING = pytest.mark.parametrize("chunks", CHUNKS)


@pytest.fixture(scope="module")
def processes():
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=spawn) as pool:
        yield {"scheduler": "processes", "pool": pool}


@pytest.fixture(scope="module")
def cluster():
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as workers,
        Client(workers, set_as_default=False) as client,
    ):
        yield {"scheduler": client}


@pytest.fixture(params=["threads", "processes", "cluster"])
def scheduler(request):
    """The schedulers, one after the other."""
    if request.param == "threads":
        config = {"scheduler": "threads"}
    else:
        config = request.getfixturevalue(request.param)
    with dask.config.set(config):
        yield request.param


@pytest.fixture
def a_task_for_each_block(monkeypatch):
    use_parts_of(monkeypatch, 1)


def use_parts_of(monkeypatch, n_bytes):
    monkeypatch.setattr(streamgda_on_dask, "_PART_BYTES", n_bytes)
    monkeypatch.setattr(streamgda_on_dask, "_PART_STATES", (0, 0))


def in_blocks(chunks, *arrays):
    return [da.from_array(array, (CHUNKS[chunks], *array.shape[1:])) for array in arrays]


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


# --- any blocks -------------------------------------------------------------------------------


@pytest.fixture
def in_this_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.mark.usefixtures("in_this_thread", "a_task_for_each_block")
class TestBlocks:
    @EVERY_ESTIMATOR
    @EVERY_CHUNKING
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
        _, found = accumulate(*in_blocks(chunks, X, y)).state()
        for array, expected in ClassMoments().update(X, y).state()[1].items():
            np.testing.assert_array_equal(found[array], expected, strict=True)

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

    def test_rows_in_memory_beside_labels_in_dask(self):
        X, y = blobs(N_ROWS)
        (labels,) = in_blocks("three", y)
        for rows in (X, zarr.create_array({}, data=X, chunks=(70, 4))):
            moments = accumulate(rows, labels)
            np.testing.assert_allclose(moments.means, ClassMoments().update(X, y).means)
            assert make("full").fit(rows, labels).score(X, y) == make("full").fit(X, y).score(X, y)

    def test_partial_fit(self):
        X, y = blobs(N_ROWS)
        found = make("LDA").partial_fit(*in_blocks("three", X, y))
        more, labels = blobs(N_ROWS, seed=1)
        found.partial_fit(*in_blocks("uneven", more, labels)).partial_fit(X, y, classes=[0, 9])
        found.fit(X, y).partial_fit(*in_blocks("uneven", more, labels))
        expected = make("LDA").fit(np.vstack([X, more]), np.append(y, labels))
        assert_equal_to_rounding(found, expected, X)

    def test_halves_add_up(self):
        X, y = blobs(N_ROWS)
        blocks, labels = in_blocks("thirty", X, y)
        halves = accumulate(blocks[:130], labels[:130]) + accumulate(blocks[130:], labels[130:])
        found = QuadraticDiscriminantAnalysis.from_moments(halves)
        assert_equal_to_rounding(found, make("QDA").fit(X, y), X)
        X = bytes_of(X)
        (blocks,) = in_blocks("thirty", X)
        halves = accumulate(blocks[:130], labels[:130]) + accumulate(blocks[130:], labels[130:])
        np.testing.assert_array_equal(
            halves.covariance(), ClassMoments().update(X, y).covariance(), strict=True
        )

    def test_score(self):
        X, y = blobs(N_ROWS)
        blocks, labels = in_blocks("uneven", X, y)
        fitted = make("full").fit(X, y)
        weights = np.linspace(0, 1, N_ROWS)
        assert fitted.score(blocks, labels) == fitted.score(X, y)
        assert fitted.score(blocks, y, da.from_array(weights)) == fitted.score(X, y, weights)


def test_parts_are_not_changed_when_they_are_merged():
    parts = [ClassMoments().update(*blobs(seed=seed)) for seed in range(2)]
    before = [part.state()[1] for part in parts]
    copies = [{name: array.copy() for name, array in arrays.items()} for arrays in before]
    first, second = tasks.merge(*parts), tasks.merge(*parts)
    for arrays, copied in zip(before, copies, strict=True):
        assert_same_bits(arrays, copied)
    assert_same_bits(first.state()[1], second.state()[1])


# --- blocks of unknown size -------------------------------------------------------------------


@pytest.mark.usefixtures("in_this_thread", "a_task_for_each_block")
class TestUnknownSizes:
    @pytest.fixture
    def some(self):
        """Rows of which dask does not know how many a block has, and the rows themselves."""
        X, y = blobs(N_ROWS)
        kept = X[:, 0] > np.median(X[:, 0])
        blocks, labels, mask = in_blocks("thirty", X, y, kept)
        return blocks[mask], labels[mask], X[kept], y[kept]

    @EVERY_ESTIMATOR
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
        match = r"X has 30 row blocks of unknown size and y has 1; .*compute_chunk_sizes\(\)"
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


def test_learning_later_does_not_change_scores_that_are_lazy(in_this_thread):
    X, y = blobs(N_ROWS)
    fitted = make("full").fit(X, y)
    lazy, expected = fitted.predict_proba(in_blocks("three", X)[0]), fitted.predict_proba(X)
    fitted.partial_fit(*blobs(seed=1))
    np.testing.assert_array_equal(lazy.compute(), expected)


def test_errors_of_what_does_not_fit():
    X, y = blobs(N_ROWS)
    blocks, labels = in_blocks("three", X, y)
    with pytest.raises(InvalidDataError, match=r"X has 300 rows but y has 299 .* one a row"):
        accumulate(blocks, labels[:-1])
    with pytest.raises(InvalidDataError, match="X has 300 rows but sample_weight has 299"):
        accumulate(blocks, labels, sample_weight=np.ones(299))
    with pytest.raises(InvalidDataError, match=r"y has shape \(300, 2\); expected one entry a row"):
        accumulate(blocks, da.stack([labels, labels], axis=1))
    with pytest.raises(InvalidDataError, match=r"unknown number of features.*compute_chunk_sizes"):
        accumulate(blocks.T[da.from_array(np.ones(4, bool))].T, labels)
