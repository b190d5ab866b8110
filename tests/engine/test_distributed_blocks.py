"""dask: the same moments from any blocks; scores that stay lazy."""

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from dask_rows import CHUNKS, EVERY_CHUNKING, N_ROWS, NAMES, in_blocks, in_partitions, use_parts_of
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
from streamgda.engine.dask.parts import (
    PartMoments,
    blocks_of,
    cut_blocks,
    cut_rows,
    merge,
    part_bytes,
)
from streamgda.errors import InvalidDataError
from streamgda.storage.saved import state_of

# --- any blocks -------------------------------------------------------------------------------


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
        _, found = state_of(accumulate(*in_blocks(chunks, X, y)))
        for array, expected in state_of(ClassMoments().update(X, y))[1].items():
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
        found.partial_fit(*in_blocks("uneven", more, labels)).partial_fit(
            X, y, classes=[0, 1, 2, 9]
        )
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
    before = [state_of(part)[1] for part in parts]
    copies = [{name: array.copy() for name, array in arrays.items()} for arrays in before]
    first, second = (merge(*map(PartMoments, parts)).moments for _ in range(2))
    for arrays, copied in zip(before, copies, strict=True):
        assert_same_bits(arrays, copied)
    assert_same_bits(state_of(first)[1], state_of(second)[1])


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
    blocks, elsewhere = blocks_of({"X": rows - rows.mean(axis=0), "y": labels})
    made = dask.compute(elsewhere)[0]
    values = np.vstack([block.slab(made, "", 0).X for block in blocks])
    np.testing.assert_allclose(values, X - X.mean(axis=0), atol=1e-12)
    assert any("mean" in str(key) for key in elsewhere)


def test_small_blocks_are_put_together_and_large_ones_are_not():
    mib = 1 << 20
    assert cut_blocks([mib] * 100, 0) == [(0, 64), (64, 100)]
    assert cut_blocks([100 * mib] * 3, 0) == [(0, 1), (1, 2), (2, 3)]
    assert part_bytes(mib, 49 * mib) == 2 * 49 * mib
    assert part_bytes(1 << 40, 49 * mib) == 8 * 49 * mib
    assert part_bytes(1 << 50, 49 * mib) == 1 << 37
    assert cut_rows(95, 10, 35) == [(0, 20), (20, 50), (50, 70), (70, 95)]
    assert cut_rows(95, 10, 5) == [(n, min(n + 10, 95)) for n in range(0, 95, 10)]


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
    with pytest.raises(InvalidDataError, match=r"X has 300 rows but y has 299 .* one for each row"):
        accumulate(blocks, labels[:-1])
    with pytest.raises(InvalidDataError, match="X has 300 rows but sample_weight has 299"):
        accumulate(blocks, labels, sample_weight=np.ones(299))
    with pytest.raises(
        InvalidDataError, match=r"y has shape \(300, 2\); expected one entry for each row"
    ):
        accumulate(blocks, da.stack([labels, labels], axis=1))
    with pytest.raises(InvalidDataError, match=r"unknown number of features.*compute_chunk_sizes"):
        accumulate(blocks.T[da.from_array(np.ones(4, bool))].T, labels)


def test_invalid_rows_are_left_out_and_counted():
    X, y = blobs(N_ROWS, 4)
    X[[5, 130, 299], [0, 1, 2]] = np.nan, np.inf, -9999
    options = {"on_invalid": "skip", "nodata": -9999}
    lazy = da.from_array(X, chunks=(64, 2)), da.from_array(y, chunks=64)
    found, expected = accumulate(*lazy, **options), accumulate(X, y, **options)
    assert found.n_skipped == expected.n_skipped == 3
    assert found.class_count.tolist() == expected.class_count.tolist()
    np.testing.assert_allclose(found.covariance(), expected.covariance(), rtol=1e-12)
    with pytest.raises(InvalidDataError, match="row 5"):
        accumulate(*lazy)
