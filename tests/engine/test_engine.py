"""One machine: the same moments and scores from any container, slab by slab; their progress."""

import io
import re
import sys
import threading

import naive
import numpy as np
import pytest
import zarr
from grids import in_turn, pairs
from samples import METHODS, assert_same_bits, blobs, bytes_of, held, make, results

from streamgda import ClassMoments, GaussianNB, accumulate, engine
from streamgda.engine import progress
from streamgda.storage.saved import state_of

N_ROWS = 500
FEW_ROWS = 200  # where zarr takes its time
NAMES = np.array(["ant", "bee", "a rather long name"])


@pytest.fixture
def small_slabs(slabs_of):
    """Slabs of 64 rows of six bytes, 8 of six float64, or of a chunk if that is larger."""
    slabs_of(64 * 6)


def assert_same_moments(found, expected):
    """Compare bit for bit if exact, up to rounding otherwise."""
    np.testing.assert_array_equal(found.classes, expected.classes, strict=True)
    (attributes, arrays), (wanted, values) = state_of(found), state_of(expected)
    assert attributes == wanted
    assert arrays.keys() == values.keys()
    for name, value in values.items():
        if expected.exact:
            np.testing.assert_array_equal(arrays[name], value, name, strict=True)
    np.testing.assert_allclose(found.class_count, expected.class_count, rtol=1e-12)
    for a, b in ((found.means, expected.means), (found.covariance(), expected.covariance())):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-12 * np.abs(b).max())


# --- moments from everywhere ------------------------------------------------------------------

CHUNKS = {
    "a row": {"chunks": (1, 6)},
    "some rows": {"chunks": (64, 6)},
    "all rows": {"chunks": (FEW_ROWS, 6)},
    "more than all rows": {"chunks": (2 * FEW_ROWS, 6)},
    "split features": {"chunks": (70, 4)},
    "a feature": {"chunks": (FEW_ROWS, 1)},
    "shards": {"chunks": (10, 6), "shards": (60, 6)},
    "shards and split features": {"chunks": (10, 2), "shards": (100, 4)},
    "not compressed": {"chunks": (64, 6), "compressors": None},
    "gzip": {"chunks": (64, 6), "compressors": zarr.codecs.GzipCodec()},
}


ROWS = [np.uint8, np.float64, np.float32], [False, True]


class TestMoments:
    @pytest.fixture
    def rows(self, dtype, weighted):
        X, y = blobs(FEW_ROWS, 6)
        X = bytes_of(X) if dtype == np.uint8 else X.astype(dtype)
        weights = np.random.default_rng(0).uniform(0, 2, FEW_ROWS) if weighted else None
        return X, y, weights

    @pairs("dtype, weighted, covariance_type", *ROWS, naive.COVARIANCE_TYPES)
    def test_numpy(self, small_slabs, rows, covariance_type):
        X, y, weights = rows
        expected = ClassMoments(covariance_type).update(X, y, weights)
        found = accumulate(X, y, sample_weight=weights, covariance_type=covariance_type)
        assert_same_moments(found, expected)
        found = accumulate(
            X.tolist() if X.dtype == np.float64 else X,
            y.tolist(),
            sample_weight=None if weights is None else weights.tolist(),
            covariance_type=covariance_type,
        )
        assert_same_moments(found, expected)

    @pairs("dtype, weighted, chunks", *ROWS, CHUNKS)
    def test_zarr(self, small_slabs, rows, chunks):
        X, y, weights = rows
        stored = zarr.create_array({}, shape=X.shape, dtype=X.dtype, **CHUNKS[chunks])
        stored[...] = X
        found = accumulate(stored, y, sample_weight=weights)
        assert_same_moments(found, ClassMoments().update(X, y, weights))

    @pairs(
        "dtype, weighted, kind, labels, names",
        *ROWS,
        ["numpy", "frame", "zarr"],
        ["numpy", "frame", "zarr"],
        [None, NAMES],
    )
    def test_labels_and_weights_held_otherwise(self, small_slabs, rows, kind, labels, names):
        X, y, weights = rows
        y = y if names is None else names[y]
        found = accumulate(
            held(X, kind, 64),
            held(y, labels, 70),
            sample_weight=None if weights is None else held(weights, labels, 33),
        )
        expected = ClassMoments().update(X, y, weights)
        if names is None or kind == "frame":
            assert_same_moments(found, expected)
        else:
            np.testing.assert_array_equal(found.classes, names[np.argsort(names)])
            assert_same_moments(found, expected)

    @pairs("dtype, weighted", *ROWS)
    def test_batches(self, rows):
        X, y, weights = rows
        parts = np.split(np.arange(FEW_ROWS), [1, 7, 7 + 64, 150])
        columns = (X, y) if weights is None else (X, y, weights)
        expected = ClassMoments().update(*columns)
        for container in (tuple, list):
            found = accumulate(container(column[p] for column in columns) for p in parts)
            assert_same_moments(found, expected)
        frames = [tuple(held(column[p], "frame") for column in columns) for p in parts]
        assert_same_moments(accumulate(frames), expected)


# --- how stores are read ----------------------------------------------------------------------


class Recorder:
    """An array that records the slices that are read."""

    def __init__(self, array, chunk_rows, shard_rows=None):
        self.array = array
        self.shape, self.dtype = array.shape, array.dtype
        self.chunks = (chunk_rows, *array.shape[1:])
        self.shards = None if shard_rows is None else (shard_rows, *array.shape[1:])
        self.reads = []
        self.on_read = lambda: None

    def __getitem__(self, rows):
        assert isinstance(rows, slice)
        self.on_read()
        self.reads.append((rows.start, rows.stop))
        return self.array[rows]

    def __array__(self, dtype=None, copy=None):
        raise AssertionError("read as a whole")


@pytest.mark.parametrize(
    ("chunk", "shard", "slab_bytes", "slab"),
    [
        (30, None, 1, 30),
        (30, None, 100 * 48, 90),
        (30, None, 1 << 25, 480),
        (10, 60, 1, 10),
        (10, 60, 60 * 48, 60),
        (10, 60, 130 * 48, 130),
        (1, None, 7 * 48, 7),
        (1000, None, 1, 500),
    ],
)
def test_slabs_are_whole_chunks_read_once(slabs_of, chunk, shard, slab_bytes, slab):
    slabs_of(slab_bytes)
    X, y = blobs(N_ROWS, 6)
    recorder = Recorder(X, chunk, shard)
    expected = [(i, min(i + slab, N_ROWS)) for i in range(0, N_ROWS, slab)]
    if slab_bytes == 1 << 25:
        expected = [(0, N_ROWS)]
    accumulate(recorder, y)
    assert recorder.reads == expected
    recorder.reads.clear()
    fitted = GaussianNB().fit(recorder, y)
    assert recorder.reads == expected
    recorder.reads.clear()
    fitted.predict(recorder)
    assert recorder.reads == expected


def test_one_slab_is_read_ahead(monkeypatch, small_slabs):
    X, y = blobs(N_ROWS, 6)
    recorder = Recorder(X, 20)
    done, ahead, read = [], [], threading.Semaphore(0)
    update = ClassMoments._update

    def counted(moments, *arguments, **keywords):
        for _ in range(2 if not done else len(done) < 24):  # until the next slab is being read
            assert read.acquire(timeout=300)
        update(moments, *arguments, **keywords)
        done.append(1)

    def note():
        ahead.append(len(recorder.reads) - len(done))
        read.release()

    monkeypatch.setattr(ClassMoments, "_update", counted)
    recorder.on_read = note
    accumulate(recorder, y)
    assert len(done) == 25
    assert max(ahead) == 1


# --- scores -----------------------------------------------------------------------------------


@in_turn("chunks, name", CHUNKS, ["full", "LDA", "GaussianNB"])
def test_scores_from_zarr(small_slabs, name, chunks):
    dtype = np.float64 if name == "full" else np.uint8
    X, y = blobs(FEW_ROWS, 6)
    X = bytes_of(X) if dtype == np.uint8 else X
    fitted = make(name).fit(X, y)
    stored = zarr.create_array({}, shape=X.shape, dtype=X.dtype, **CHUNKS[chunks])
    stored[...] = X
    assert_same_bits(results(fitted, stored), results(fitted, X))
    assert fitted.score(stored, held(y, "zarr")) == fitted.score(X, y)


@in_turn("method, kind", METHODS, ["zarr", "numpy", "frame", "zarr"])
def test_scores_go_where_they_are_sent(small_slabs, tmp_path, kind, method):
    X, y = blobs(FEW_ROWS, 6)
    fitted = make("LDA").fit(X, y)
    score = getattr(fitted, method)
    expected = score(X)
    rows = held(X, kind)
    for out in (
        np.empty_like(expected),
        zarr.create_array({}, shape=expected.shape, dtype=expected.dtype),
        zarr.create_array({}, shape=expected.shape, dtype=expected.dtype, chunks=expected.shape),
    ):
        assert score(rows, out=out) is out
        np.testing.assert_array_equal(out[...], expected, strict=True)
    score(rows, out=tmp_path / "scores.zarr")
    stored = zarr.open_array(tmp_path / "scores.zarr", mode="r")
    np.testing.assert_array_equal(stored[...], expected, strict=True)
    assert stored.chunks[1:] == stored.shape[1:]
    score(rows, out=zarr.storage.MemoryStore())


@pytest.mark.parametrize("kind", ["numpy", "zarr"])
def test_labels_of_strings_are_stored(small_slabs, tmp_path, kind):
    X, y = blobs(FEW_ROWS, 6)
    fitted = make("QDA").fit(X, NAMES[y])
    expected = fitted.predict(X)
    assert set(expected) == set(NAMES)
    existing = zarr.create_array({}, shape=FEW_ROWS, dtype=str)
    for out in (tmp_path / "labels.zarr", existing, np.empty(FEW_ROWS, "U30")):
        stored = fitted.predict(held(X, kind), out=out)
        assert stored[...].tolist() == expected.tolist()
    assert zarr.open_array(tmp_path / "labels.zarr", mode="r")[:5].tolist() == expected[:5].tolist()
    assert fitted.score(held(X, kind), zarr.open_array(tmp_path / "labels.zarr")) == 1


# --- progress ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["numpy", "frame", "zarr"])
def test_progress_counts_rows(slabs_of, kind):
    slabs_of(100 * 48)
    X, y = blobs(N_ROWS, 6)
    calls = []
    report = lambda *call: calls.append(call)  # noqa: E731
    accumulate(held(X, kind, 50), y, progress=report)
    assert calls == [(done, N_ROWS) for done in (100, 200, 300, 400, 500)]
    calls.clear()
    engine.score(GaussianNB().fit(X, y).model_.predict, held(X, kind, 50), progress=report)
    assert calls == [(done, N_ROWS) for done in (100, 200, 300, 400, 500)]


TOTAL = 1_000_000


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test advances."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def log(capsys):
    def lines():
        return capsys.readouterr().err.splitlines()

    return lines


def test_lines_in_a_log(clock, log):
    with progress.reporter(True, TOTAL, "accumulating") as report:
        for second in range(1, 26):
            clock[0] += 1
            report(10_000 * second)
    first, second = log()
    assert re.fullmatch(
        r"streamgda: accumulating: 100,000 rows, 10,000 rows/s, 10 % of 1,000,000, 0:01:30 left",
        first,
    )
    assert second.startswith("streamgda: accumulating: 200,000 rows, 10,000 rows/s, 20 %")
    assert not re.search(r"[\r\x1b]", first)


@pytest.mark.parametrize(
    ("total", "first", "done", "line"),
    [
        (
            TOTAL,
            500_000,
            600_000,
            "600,000 rows, 10,000 rows/s, 60 % of 1,000,000, 0:00:40 left",
        ),
        (None, 0, 5_000, "5,000 rows, 500 rows/s"),
    ],
)
def test_rates_are_of_this_run_alone_and_quick_work_reports_none(
    clock, log, total, first, done, line
):
    with progress.reporter(True, total, "scoring", first=first) as report:
        clock[0] += 9
        report(first)
        assert log() == []
        clock[0] += 1
        report(done)
    (shown,) = log()
    assert re.fullmatch(rf"streamgda: scoring: {line}", shown)


@pytest.mark.parametrize("columns", ["100", "200"])
def test_a_bar_with_figures(monkeypatch, clock, columns):
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress.reporter(True, 240, "accumulating", first=40) as report:
        clock[0] += 10
        report(140)
    shown = " ".join(re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", sys.stderr.getvalue()).split())
    assert "accumulating" in shown
    assert "140/240" in shown
