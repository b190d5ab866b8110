"""One machine: passes slab by slab, rows in groups, scores of stores, and progress."""

import io
import re
import sys
import threading

import naive
import numpy as np
import pytest
import zarr
from grids import in_turn
from moment_checks import assert_close, assert_moments
from samples import METHODS, assert_same_bits, bits, blobs, bytes_of, held, make, results

from streamgda import ClassMoments, GaussianNB, accumulate, engine
from streamgda.engine import reading
from streamgda.errors import InvalidDataError, InvalidParameterError

N_ROWS = 200
X, y = blobs(N_ROWS, 6)
NAMES = np.array(["ant", "bee", "a rather long name"])
WEIGHTS = np.random.default_rng(0).uniform(0, 2, N_ROWS)


@pytest.fixture
def small_slabs(slabs_of):
    """Slabs of 64 rows of six bytes, 8 of six float64, or of a chunk if that is larger."""
    slabs_of(64 * 6)


# --- how stores are read ----------------------------------------------------------------------

CHUNKS = {
    "few rows": {"chunks": (3, 6)},
    "some rows": {"chunks": (64, 6)},
    "all rows": {"chunks": (N_ROWS, 6)},
    "more than all rows": {"chunks": (2 * N_ROWS, 6)},
    "split features": {"chunks": (70, 4)},
    "a feature": {"chunks": (N_ROWS, 1)},
    "shards": {"chunks": (10, 6), "shards": (60, 6)},
    "shards and split features": {"chunks": (10, 2), "shards": (100, 4)},
    "not compressed": {"chunks": (64, 6), "compressors": None},
    "gzip": {"chunks": (64, 6), "compressors": zarr.codecs.GzipCodec()},
}


@in_turn("chunks, covariance_type, name", CHUNKS, naive.COVARIANCE_TYPES, ["full", "LDA", "QDA"])
def test_rows_in_any_chunks(small_slabs, chunks, covariance_type, name):
    for rows in (X, X.astype("f4"), bytes_of(X)):
        stored = zarr.create_array({}, shape=rows.shape, dtype=rows.dtype, **CHUNKS[chunks])
        stored[...] = rows
        for weights in (None, WEIGHTS):
            options = {"covariance_type": covariance_type, "sample_weight": weights}
            assert_moments(accumulate(stored, y, **options), rows, y, weights)
    fitted = make(name).fit(rows, y)
    expected = ClassMoments(covariance_type).update(rows, y)
    assert bits(accumulate(stored, y, covariance_type=covariance_type)) == bits(expected)
    assert_same_bits(results(fitted, stored), results(fitted, rows))
    assert fitted.score(stored, held(y, "zarr")) == fitted.score(rows, y)


class Recorder:
    """An array that records the slices that are read."""

    def __init__(self, array, chunk_rows):
        self.array = array
        self.shape, self.dtype = array.shape, array.dtype
        self.chunks = (chunk_rows, *array.shape[1:])
        self.reads, self.read = [], threading.Condition()

    def __getitem__(self, rows):
        assert isinstance(rows, slice)
        with self.read:
            self.reads.append((rows.start, rows.stop))
            self.read.notify()
        return self.array[rows]

    def __array__(self, dtype=None, copy=None):
        raise AssertionError("read as a whole")


@pytest.mark.parametrize(
    ("chunk", "slab_bytes", "slab"),
    [
        (30, 1, 30),
        (30, 100 * 48, 90),
        (30, 1 << 25, 500),
        (1, 7 * 48, 7),
        (1000, 1, 500),
    ],
)
def test_slabs_are_whole_chunks_read_once(slabs_of, chunk, slab_bytes, slab):
    slabs_of(slab_bytes)
    rows, labels = blobs(500, 6)
    recorder, nb = Recorder(rows, chunk), GaussianNB()
    for use in (accumulate, nb.fit, lambda rows, _: nb.predict(rows)):
        recorder.reads.clear()
        use(recorder, labels)
        assert recorder.reads == [(at, min(at + slab, 500)) for at in range(0, 500, slab)]


def test_one_slab_is_read_ahead(small_slabs):
    recorder, done = Recorder(X, 20), []

    def told(*_):
        done.append(1)
        ahead = min(len(done) + 1, 10)
        with recorder.read:
            assert recorder.read.wait_for(lambda: len(recorder.reads) >= ahead, timeout=60)
            assert len(recorder.reads) == ahead

    accumulate(recorder, y, progress=told)
    assert len(done) == 10


# --- groups -----------------------------------------------------------------------------------

TEXTS = NAMES[y]
GROUPS = np.array(["east", "north", "south"])[np.random.default_rng(0).integers(0, 3, N_ROWS)]


@pytest.mark.parametrize("kind", ["numpy", "zarr", "dask"])
def test_rows_of_groups_that_do_not_count(small_slabs, kind):
    rows, labels, groups = X.copy(), TEXTS.copy(), GROUPS.astype("U9")
    rows[::7, 1] = np.nan  # Every slab has such rows.
    groups[70] = "gone"  # The only row of this group is invalid.
    kept = (np.arange(N_ROWS) % 7 > 0) & (labels != "bee")
    found = accumulate(
        held(rows, kind, 40), labels, groups=groups, on_invalid="skip", unlabelled="bee"
    )
    for group, expected in accumulate(X[kept], labels[kept], groups=groups[kept]).items():
        assert_close(found[group], expected)
    invalid = (np.arange(N_ROWS) % 7 == 0) & (labels != "bee")
    assert found.n_skipped == found.total().n_skipped == invalid.sum()
    rows = held(X, kind, 40)
    found = accumulate(rows, TEXTS, groups=GROUPS, unlabelled=NAMES.tolist())
    assert list(found) == []
    missing = GROUPS.astype(object)
    missing[9] = None
    with pytest.raises(InvalidDataError, match=r"groups\[9\] is missing .*'unknown'"):
        accumulate(rows, TEXTS, groups=missing)
    with pytest.raises(InvalidDataError, match=r"200 rows but .* 199"):
        accumulate(rows, TEXTS, groups=GROUPS[1:])
    with pytest.raises(InvalidParameterError, match="matrices for each class, without groups"):
        accumulate(rows, TEXTS, groups=GROUPS, on_invalid="pairwise")


def test_batches_have_no_groups():
    with pytest.raises(InvalidParameterError, match=r"GroupedMoments\(\)\.update\(X, y, groups\)"):
        accumulate([(X, TEXTS)], groups=GROUPS)
    with pytest.raises(InvalidParameterError, match="columns="):
        accumulate(X, TEXTS, columns=("a", "b"))


# --- scores -----------------------------------------------------------------------------------


@in_turn("method, kind", METHODS, ["zarr", "numpy", "frame", "dask"])
def test_scores_go_where_they_are_sent(small_slabs, tmp_path, kind, method):
    """Labels are texts, of which zarr keeps any length."""
    score = getattr(make("LDA").fit(X, TEXTS), method)
    expected, rows = score(X), held(X, kind)
    n, *width = expected.shape
    stored = {"shape": expected.shape, "dtype": str if method == "predict" else expected.dtype}
    for out in (
        np.empty_like(expected),
        np.empty_like(expected, order="F"),
        np.empty((2 * n, *width), expected.dtype)[::2],
        np.empty((n, *width), expected.dtype.newbyteorder(">")),
        zarr.create_array({}, **stored),
        zarr.create_array({}, **stored, chunks=expected.shape),
        zarr.storage.MemoryStore(),
        tmp_path / "scores.zarr",
    ):
        written = score(rows, out=out)
        assert written is out or not hasattr(out, "shape")
        if method == "predict":
            assert written[...].tolist() == expected.tolist()
        else:
            np.testing.assert_allclose(written[...], expected, 1e-12, 1e-12)
            assert (written.shape, written.dtype.kind) == (expected.shape, "f")
    assert zarr.open_array(tmp_path / "scores.zarr", mode="r").chunks[1:] == expected.shape[1:]


# --- progress ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["numpy", "frame", "zarr"])
def test_progress_counts_rows(slabs_of, kind):
    slabs_of(50 * 48)
    calls, rows = [], held(X, kind, 50)
    model = GaussianNB().fit(X, y).model_
    for work in (
        lambda report: accumulate(rows, y, progress=report),
        lambda report: engine.score(model.predict, rows, progress=report),
    ):
        calls.clear()
        work(lambda *call: calls.append(call))
        assert calls == [(done, N_ROWS) for done in (50, 100, 150, 200)]


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test advances."""
    now = [100.0]
    monkeypatch.setattr(reading.time, "monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize("total", [1_000_000, None])
def test_lines_in_a_log_are_of_this_run_alone(clock, capsys, total):
    with reading.reporter(True, total, "scoring", first=500_000) as report:
        clock[0] += 9  # Nothing is reported of quick work.
        report(500_000)
        clock[0] += 1
        report(600_000)
        clock[0] += 10
        report(700_000)
    first, second = capsys.readouterr().err.splitlines()
    more = ", 60 % of 1,000,000, 0:00:40 left" if total else ""
    assert first == f"streamgda: scoring: 600,000 rows, 10,000 rows/s{more}"
    assert second.startswith("streamgda: scoring: 700,000 rows, 10,000 rows/s")


def test_a_bar_with_figures(monkeypatch, clock):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal)
    with reading.reporter(True, 240, "accumulating", first=40) as report:
        clock[0] += 10
        report(140)
    shown = " ".join(re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", terminal.getvalue()).split())
    assert "accumulating" in shown
    assert "140/240" in shown
