"""Work that is stopped is gone on with, by the same only, and gives the same bits."""

import functools
import json
import os
import subprocess
import sys
import zipfile

import lives
import numpy as np
import pandas as pd
import pytest
import zarr
from samples import KINDS, blobs, held, make

from streamgda import (
    Checkpoint,
    ClassMoments,
    GaussianNB,
    accumulate,
    checkpoint,
    engine,
    load,
    outputs,
    slabs,
    storage,
)
from streamgda.errors import (
    CheckpointError,
    InvalidDataError,
    InvalidParameterError,
    MemoryBudgetError,
    SourceError,
)
from streamgda.moments.inputs import Invalid

N_ROWS = 300
SLAB = 30
X, Y = blobs(N_ROWS, 4)
WEIGHTS = np.random.default_rng(1).uniform(0, 2, N_ROWS)


@pytest.fixture(autouse=True)
def small_slabs(monkeypatch):
    monkeypatch.setattr(slabs, "_SLAB_BYTES", SLAB * 8 * 4)


class Rows:
    """Rows that are read by slicing; at one row something happens."""

    def __init__(self, array=X, at=None, error=None):
        self.array, self.at, self.error = array, at, error
        self.shape, self.dtype, self.chunks = array.shape, array.dtype, (SLAB, *array.shape[1:])
        self.read = []

    def __getitem__(self, rows):
        self.read.append(rows.start)
        if rows.start == self.at:
            raise self.error
        return self.array[rows]


def bits(moments):
    attributes, arrays = moments.state()
    return attributes, {name: (a.dtype, a.tobytes()) for name, a in arrays.items()}


def stopped(path, at=150, error=KeyboardInterrupt, X=X, y=Y, **options):
    """A checkpoint of rows before that one."""
    with pytest.raises(error):
        accumulate(Rows(X, at, error("stop")), y, checkpoint=path, **options)
    assert path.exists()


def least_memory(rows, **options):
    """The least budget, to the byte, that accumulating takes."""
    too_little, enough = 0, 1 << 22
    while enough - too_little > 1:
        middle = (too_little + enough) // 2
        try:
            accumulate(rows, Y, max_memory=middle, **options)
            enough = middle
        except MemoryBudgetError:
            too_little = middle
    return enough


# --- kills ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """What became of work that was killed again and again."""
    if not hasattr(os, "fork"):
        pytest.skip("no fork on this platform")
    done = subprocess.run(
        [sys.executable, lives.__file__, tmp_path_factory.mktemp("lives"), "14", "0"],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("kind", ["rows", "iterable", "stream", "scores"])
def test_killed_work_ends_with_the_bits_of_undisturbed_work(ended, kind, tmp_path, monkeypatch):
    monkeypatch.setattr(slabs, "_SLAB_BYTES", lives.SLAB_BYTES)
    (tmp_path / "stream").mkdir()
    undisturbed = {
        "rows": lambda: accumulate(lives.X, lives.Y, sample_weight=lives.WEIGHTS),
        "iterable": lambda: accumulate(lives.batches(), covariance_type="diag"),
        "stream": lambda: lives.stream(tmp_path / "stream"),
        "scores": lambda: lives.scores(tmp_path),
    }[kind]()
    assert ended[kind]["kills"] >= 14
    assert set(ended[kind]["digests"]) == {lives.digest_of(undisturbed, tmp_path / "scores.zarr")}
    assert len(ended[kind]["digests"]) > 1


# --- passes over rows -------------------------------------------------------------------------


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag"])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("kind", ["float", "bytes"])
def test_a_pass_is_gone_on_with_to_the_bit(tmp_path, monkeypatch, covariance_type, weights, kind):
    rows = X if kind == "float" else (10 * (X - X.min())).astype(np.uint8)
    monkeypatch.setattr(slabs, "_SLAB_BYTES", SLAB * rows[0].nbytes)
    options = {"covariance_type": covariance_type, "sample_weight": weights}
    undisturbed = accumulate(Rows(rows), Y, **options)
    path = tmp_path / "new" / "kept"
    for at in (90, 210):
        stopped(path, at, X=rows, **options)
    again = Rows(rows)
    found = accumulate(again, Y, checkpoint=path, **options)
    assert bits(found) == bits(undisturbed)
    assert again.read[-3:] == [210, 240, 270]
    again.read.clear()
    assert bits(accumulate(again, Y, checkpoint=path, **options)) == bits(undisturbed)
    assert len(again.read) == 10  # each slab once, to be compared
    assert [file.name for file in path.parent.iterdir()] == ["kept"]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "dask"])
@pytest.mark.parametrize("labels", [Y, np.array(["ant", "bee", "a long name"])[Y], Y * 1.0])
def test_whatever_rows_and_labels_are_held_in(tmp_path, monkeypatch, kind, labels):
    rows, y = held(X, kind, SLAB), held(labels, kind, 70)
    undisturbed = accumulate(rows, y)
    update, calls = ClassMoments._update, []

    def fail(*arguments, **options):
        calls.append(1)
        if len(calls) == 5:
            raise OSError("the disk is gone")
        return update(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(ClassMoments, "_update", fail)
        with pytest.raises(OSError, match="gone"):
            accumulate(rows, y, checkpoint=tmp_path / "kept", checkpoint_every=0)
    assert bits(accumulate(rows, y, checkpoint=tmp_path / "kept")) == bits(undisturbed)


def test_lists_of_labels(tmp_path):
    names = [f"class {k}" for k in Y]
    stopped(tmp_path / "kept", y=names)
    found = accumulate(X, names, checkpoint=tmp_path / "kept")
    assert bits(found) == bits(accumulate(X, names))


def test_an_error_in_the_data_keeps_the_rows_before_it(tmp_path):
    bad = X.copy()
    bad[187, 2] = np.nan
    path = tmp_path / "kept"
    for _ in range(2):  # the second time from the checkpoint on
        with pytest.raises(InvalidDataError, match="NaN: row 187, column 2") as refusal:
            accumulate(bad, Y, checkpoint=path)
        (note,) = refusal.value.__notes__
        assert note.startswith(f"The checkpoint {path} keeps what was done, the first 180 rows")
        assert storage.read(path, checkpoint.KIND)[0]["done"] == 180
    before = path.read_bytes()
    skipped = accumulate(bad, Y, on_invalid="skip", checkpoint=path)
    assert skipped.n_skipped == 1
    assert bits(skipped) == bits(accumulate(bad, Y, on_invalid="skip"))
    with pytest.raises(CheckpointError, match="on_invalid: skip, and 1 rows were left out"):
        accumulate(bad, Y, checkpoint=path)
    path.write_bytes(before)
    bad[187] = X[187]  # mended where it is
    assert bits(accumulate(bad, Y, checkpoint=path)) == bits(accumulate(X, Y))


def test_an_error_before_anything_is_done_leaves_nothing(tmp_path):
    bad = X.copy()
    bad[3, 0] = np.inf
    with pytest.raises(InvalidDataError, match="row 3") as refusal:
        accumulate(bad, Y, checkpoint=tmp_path / "kept")
    assert not hasattr(refusal.value, "__notes__")
    assert not any(tmp_path.iterdir())


def test_an_interrupted_update_is_not_kept(tmp_path, monkeypatch):
    update, calls = ClassMoments._update, []

    def half(moments, rows, *arguments, **options):
        calls.append(1)
        if len(calls) < 5:
            return update(moments, rows, *arguments, **options)
        update(moments, rows[:7], arguments[0][:7])
        raise KeyboardInterrupt

    path = tmp_path / "kept"
    for every, kept in ((60, 0), (0, 120)):
        calls.clear()
        with monkeypatch.context() as patch:
            patch.setattr(ClassMoments, "_update", half)
            with pytest.raises(KeyboardInterrupt):
                accumulate(X, Y, checkpoint=path, checkpoint_every=every)
        assert path.exists() == bool(kept)
    assert storage.read(path, checkpoint.KIND)[0]["done"] == kept
    assert bits(accumulate(X, Y, checkpoint=path)) == bits(accumulate(X, Y))


def test_it_is_written_at_intervals(tmp_path, monkeypatch):
    now, written = [0.0], []
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: now[0])
    write = storage.write

    def counted(store, kind, attributes, arrays):
        written.append(attributes["done"])
        write(store, kind, attributes, arrays)

    def tick(done, total):
        now[0] += 10

    monkeypatch.setattr(storage, "write", counted)
    accumulate(X, Y, checkpoint=tmp_path / "kept", checkpoint_every=35, progress=tick)
    assert written == [150, 270, 300]


CHANGES = {
    "other rows": ({"X": X + 1e-9}, "other rows: rows 0 to 29"),
    "rows changed later": ({"X": np.vstack([X[:120], X[120:150] * 2, X[150:]])}, "120 to 149"),
    "fewer rows": (
        {"X": X[:270], "y": Y[:270], "sample_weight": WEIGHTS[:270]},
        "begun with X: shape (300, 4), float64; now it is shape (270, 4)",
    ),
    "another width": ({"X": X[:, :3]}, "now it is shape (300, 3), float64"),
    "another type": ({"X": X.astype(np.float32)}, "now it is shape (300, 4), float32"),
    "another label": ({"y": np.where(np.arange(N_ROWS) == 77, 9, Y)}, "other labels or weights"),
    "labels of another type": ({"y": Y.astype(np.int16)}, "begun with y: shape (300,), int64"),
    "no weights": ({"sample_weight": None}, "begun with sample_weight"),
    "other weights": ({"sample_weight": WEIGHTS[::-1]}, "other labels or weights"),
    "another structure": ({"covariance_type": "tied"}, "covariance_type: full; now it is tied"),
    "other classes": ({"classes": [0, 1, 2, 3]}, "classes: None; now it is [0, 1, 2, 3]"),
    "nodata": ({"nodata": 7}, "nodata: None; now it is 7"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_of_something_else_is_refused(tmp_path, change):
    same = {"X": X, "y": Y, "sample_weight": WEIGHTS}
    path = tmp_path / "kept"
    stopped(path, **same)
    before = path.read_bytes()
    changes, message = CHANGES[change]
    with pytest.raises(CheckpointError) as refusal:
        accumulate(**(same | changes), checkpoint=path)
    assert message in str(refusal.value)
    assert str(path) in str(refusal.value)
    assert "delete it to begin anew" in str(refusal.value)
    assert path.read_bytes() == before
    accumulate(**same, checkpoint=path)


DAMAGE = {
    "nothing seen": {"seen": {}},
    "no samples": {"seen": {"slab_rows": SLAB, "columns": [0]}},
    "no slabs": {"seen": {"slab_rows": 0, "columns": [0], "samples": []}},
    "seen is a text": {"seen": "much"},
    "done is a text": {"done": "all"},
    "done is too much": {"done": N_ROWS + 1},
    "no moments": {"moments": None},
    "made of nothing": {"made_of": None},
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_attributes_are_told(tmp_path, damage):
    path = tmp_path / "kept.zip"
    stopped(path)
    attributes, arrays = storage.read(path, checkpoint.KIND)
    storage.write(path, checkpoint.KIND, attributes | DAMAGE[damage], arrays)
    with pytest.raises(CheckpointError, match=r"kept\.zip is"):
        accumulate(X, Y, checkpoint=path)


@pytest.mark.parametrize("content", ["text", "moments", "directory", "truncated"])
def test_what_is_no_checkpoint_is_refused(tmp_path, content):
    path = tmp_path / "kept.zip"
    if content == "text":
        path.write_text("notes")
    elif content == "moments":
        accumulate(X, Y).save(path)
    elif content == "directory":
        path.mkdir()
    else:
        stopped(path)
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
    before = None if content == "directory" else path.read_bytes()
    with pytest.raises((CheckpointError, InvalidParameterError), match=r"kept\.zip"):
        accumulate(X, Y, checkpoint=path)
    assert before is None or path.read_bytes() == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"checkpoint": "s3://bucket/kept"}, "expected a path on this machine"),
        ({"checkpoint": 7}, "expected a path on this machine"),
        ({"checkpoint": "kept", "checkpoint_every": -1}, "expected a number of seconds"),
        ({"checkpoint": "kept", "checkpoint_every": "often"}, "expected a number of seconds"),
        ({"on_invalid": "ignore"}, "expected 'raise' or 'skip'"),
        ({"nodata": "none"}, "expected one number"),
        ({"nodata": [1, 2]}, "expected one number"),
    ],
)
def test_parameters_that_cannot_be_meant(tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidParameterError, match=message):
        accumulate(X, Y, **options)
    with pytest.raises(InvalidParameterError, match=message):
        accumulate([(X, Y)], **options)
    assert not any(tmp_path.iterdir())


def test_slabs_stay_as_they_were(tmp_path, monkeypatch):
    path = tmp_path / "kept"
    stopped(path)
    narrow, generous = Rows(), Rows()
    narrow.chunks = (10, 4)
    monkeypatch.setattr(slabs, "_SLAB_BYTES", 90 * 8 * 4)
    monkeypatch.setattr(slabs, "_FEWEST_ROWS", 1)
    with pytest.raises(MemoryBudgetError, match="begun in slabs of 30 rows"):
        accumulate(narrow, Y, checkpoint=path, max_memory=least_memory(narrow))
    accumulate(generous, Y, checkpoint=path)
    assert generous.read[-4:] == [180, 210, 240, 270]


def test_what_killed_runs_left_is_removed(tmp_path):
    for name in ("kept.123.partial.zip", "kept.7.partial.zip.7.partial", "kept.partially"):
        (tmp_path / name).write_text("half")
    accumulate(X, Y, checkpoint=tmp_path / "kept")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["kept", "kept.partially"]


def test_only_a_sample_of_many_slabs_is_read_again(tmp_path, monkeypatch):
    monkeypatch.setattr(slabs, "_SLAB_BYTES", 32)
    rows = Rows()
    rows.chunks = (1, 4)
    accumulate(rows, Y, checkpoint=tmp_path / "kept")
    rows.read.clear()
    accumulate(rows, Y, checkpoint=tmp_path / "kept")
    assert len(rows.read) <= 17
    assert {0, N_ROWS - 1} <= set(rows.read)


# --- batches and streams ----------------------------------------------------------------------


def batches(X=X, y=Y, fail=None):
    for start in range(0, N_ROWS, SLAB):
        if start == fail:
            raise OSError("the stream broke off")
        yield X[start : start + SLAB], y[start : start + SLAB]


def test_batches_that_are_held_are_not_added_again(tmp_path):
    path = tmp_path / "kept"
    with pytest.raises(OSError, match="broke off") as broken:
        accumulate(batches(fail=150), checkpoint=path)
    assert "the first 5 batches" in broken.value.__notes__[0]
    calls = []
    found = accumulate(batches(), checkpoint=path, progress=lambda *call: calls.append(call))
    assert bits(found) == bits(accumulate(batches()))
    assert calls == [(done, None) for done in (180, 210, 240, 270, 300)]
    again = accumulate(batches(), checkpoint=path)
    assert bits(again) == bits(found)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (batches(y=Y + 1), "other batches: the first 5"),
        (batches(X=X + 1), "other batches: the first 5"),
        ([(X[:30], Y[:30])], "holds 5 batches; now there are 1"),
    ],
)
def test_other_batches_are_refused(tmp_path, given, message):
    with pytest.raises(OSError, match="broke off"):
        accumulate(batches(fail=150), checkpoint=tmp_path / "kept")
    with pytest.raises(CheckpointError, match=message):
        accumulate(given, checkpoint=tmp_path / "kept")
    with pytest.raises(CheckpointError, match="begun with X: batches"):
        accumulate(X, Y, checkpoint=tmp_path / "kept")


@pytest.mark.parametrize("state", ["estimator", "moments"])
def test_a_stream_is_gone_on_with_at_its_offset(tmp_path, state):
    path = tmp_path / "stream"
    kept = Checkpoint(path, every=0)
    assert (kept.state, kept.offset, kept.due) == (None, None, True)
    assert not Checkpoint(path).due
    learner = GaussianNB() if state == "estimator" else ClassMoments("diag")
    learn = learner.partial_fit if state == "estimator" else learner.update
    learn(X[:100], Y[:100])
    kept.save(learner, {"partition": 3, "position": [7, 100]})
    learn(X[100:], Y[100:])  # is lost

    kept = Checkpoint(path)
    assert kept.offset == {"partition": 3, "position": [7, 100]}
    found = kept.state.moments_ if state == "estimator" else kept.state
    assert bits(found) == bits(ClassMoments("diag").update(X[:100], Y[:100]))
    loaded = load(path).moments_ if state == "estimator" else ClassMoments.load(path)
    assert bits(loaded) == bits(found)
    assert [file.name for file in tmp_path.iterdir()] == ["stream"]


def test_offsets_that_cannot_be_kept(tmp_path):
    kept = Checkpoint(tmp_path / "stream")
    nb = GaussianNB().fit(X, Y)
    kept.save(nb, 1)
    for offset in (object(), np.int64(3), float("nan")):
        with pytest.raises(InvalidParameterError, match="cannot be kept"):
            kept.save(nb, offset)
    assert Checkpoint(tmp_path / "stream").offset == 1


def test_a_checkpoint_of_a_pass_is_none_of_a_stream(tmp_path):
    stopped(tmp_path / "kept")
    with pytest.raises(CheckpointError, match="it holds 'checkpoint'"):
        Checkpoint(tmp_path / "kept")
    (tmp_path / "text").write_text("notes")
    with pytest.raises(CheckpointError, match="not the checkpoint of a stream"):
        Checkpoint(tmp_path / "text")
    with pytest.raises(InvalidParameterError, match="every"):
        Checkpoint(tmp_path / "other", every=-1)


# --- scores -----------------------------------------------------------------------------------


@pytest.fixture
def fitted():
    return make("QDA").fit(X, Y)


def half_written(fitted, out, method="predict", at=150, error=KeyboardInterrupt):
    with pytest.raises(error) as stop:
        getattr(fitted, method)(Rows(at=at, error=error("stop")), out=out)
    return stop.value


@pytest.mark.parametrize("method", ["predict", "predict_proba", "score_samples"])
@pytest.mark.parametrize("chunks", [None, 30, 45, 300])
def test_scores_are_gone_on_with(tmp_path, fitted, method, chunks):
    path = tmp_path / "scores.zarr"
    expected = getattr(fitted, method)(X)
    out = path
    if chunks is not None:
        shape = (chunks, *expected.shape[1:])
        out = zarr.create_array(path, shape=expected.shape, dtype=expected.dtype, chunks=shape)
    note = half_written(fitted, out, method).__notes__[0]
    assert "the scores of the first 150 rows" in note
    mark = outputs.mark_of(zarr.open_array(path, mode="r"))
    assert (mark["complete"], mark["done"]) == (False, 150)
    again = Rows()
    getattr(fitted, method)(again, out=path if chunks is None else zarr.open_array(path))
    assert again.read[-5:] == [150, 180, 210, 240, 270]
    written = zarr.open_array(path, mode="r")
    np.testing.assert_array_equal(written[...], expected, strict=True)
    assert outputs.mark_of(written)["complete"]


def test_half_written_scores_are_not_read(tmp_path, fitted):
    out = tmp_path / "scores.zarr"
    fitted = make("GaussianNB").fit(X[:, :3], Y)  # reads as many features as there are classes
    with pytest.raises(OSError, match="gone"):
        fitted.predict_proba(Rows(X[:, :3], 150, OSError("gone")), out=out)
    half = zarr.open_array(out, mode="r")
    labels = zarr.create_array({}, data=Y, attributes=dict(half.attrs))
    for work, name in (
        (lambda: accumulate(half, Y), "X"),
        (lambda: accumulate(X, labels), "y"),
        (lambda: accumulate(X, Y, sample_weight=labels), "sample_weight"),
        (lambda: fitted.predict(half), "X"),
    ):
        with pytest.raises(SourceError, match=f"{name} holds scores that are half-written: 150 of"):
            work()
    fitted.predict_proba(X[:, :3], out=out)
    accumulate(zarr.open_array(out), Y)


def test_scores_that_are_complete_are_given_back_by_the_same_call(tmp_path, fitted):
    out = tmp_path / "scores.zarr"
    fitted.predict(Rows(), out=out)
    again = Rows()
    same = fitted.predict(again, out=out)
    np.testing.assert_array_equal(same[:], fitted.predict(X))
    assert len(again.read) <= 10
    array = zarr.open_array(out)
    array[:] = 7
    assert fitted.predict(Rows(), out=array) is array  # the caller's own is filled anew
    np.testing.assert_array_equal(array[:], fitted.predict(X))


def test_half_written_scores_of_something_else_are_refused(tmp_path, fitted):
    out = tmp_path / "scores.zarr"
    half_written(fitted, out)
    other = Rows(np.where(np.arange(N_ROWS)[:, None] == 0, 0.0, X))
    for work, message in (
        (lambda: make("LDA").fit(X, Y).predict(X, out=out), "begun with model: checksum"),
        (lambda: fitted.score_samples(X, out=out), "method: predict; now it is log_density"),
        (lambda: fitted.predict(X[:200], out=out), r"X: shape \(300, 4\)"),
        (lambda: fitted.predict(other, out=out), "other rows: rows 0 to 29"),
    ):
        with pytest.raises(CheckpointError, match=message):
            work()
    array = zarr.open_array(out)
    with pytest.raises(CheckpointError, match="out was begun with model"):
        make("LDA").fit(X, Y).predict(X, out=array)
    fitted.predict(X, out=array)
    np.testing.assert_array_equal(array[:], fitted.predict(X))


def test_scores_before_an_invalid_row_are_kept(tmp_path, fitted):
    bad = X.copy()
    bad[200, 1] = np.nan
    with pytest.raises(InvalidDataError, match="row 200, column 1") as refusal:
        fitted.predict(Rows(bad), out=tmp_path / "scores.zarr")
    assert "the first 180 rows" in refusal.value.__notes__[0]
    written = zarr.open_array(tmp_path / "scores.zarr", mode="r")
    np.testing.assert_array_equal(written[:180], fitted.predict(X[:180]))


def test_what_does_not_fit_is_not_marked(fitted):
    out = zarr.create_array({}, shape=7, dtype=np.int64)
    with pytest.raises(InvalidDataError, match="out has shape"):
        fitted.predict(X, out=out)
    assert dict(out.attrs) == {}


def test_scores_go_to_a_zip_file_unmarked(tmp_path, fitted):
    with zarr.storage.ZipStore(tmp_path / "scores.zip", mode="w") as store:
        fitted.predict(X, out=store)
    assert len(zipfile.ZipFile(tmp_path / "scores.zip").namelist()) == 11
    with zarr.storage.ZipStore(tmp_path / "scores.zip", mode="r") as store:
        labels = zarr.open_array(store)
        assert outputs.mark_of(labels) is None  # it could not be made complete
        np.testing.assert_array_equal(labels[:], fitted.predict(X))


def test_scores_of_plain_functions_are_not_marked(tmp_path, fitted):
    out = engine.score(fitted.model_.predict, X, tmp_path / "scores.zarr")
    assert outputs.mark_of(out) is None


# --- invalid rows -----------------------------------------------------------------------------

NODATA = -7


def rasters(dtype):
    """Rows of that type in which some hold `NODATA` or, of floats, NaN; and which are good."""
    rows = np.round(10 * X).astype(dtype)
    rows[rows == NODATA] = 1
    bad = [0, 31, 32, 60, *range(90, 120), 299]  # a whole slab among them
    rows[bad, np.arange(len(bad)) % 4] = NODATA
    if np.dtype(dtype).kind == "f":
        rows[31, 2], rows[60, 0] = np.nan, np.inf
    return rows, np.delete(np.arange(N_ROWS), bad)


@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.float32, np.float64])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "dask"])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_invalid_rows_are_left_out_and_counted(dtype, kind, weights):
    rows, good = rasters(dtype)
    found = accumulate(
        held(rows, kind, SLAB), Y, sample_weight=weights, on_invalid="skip", nodata=NODATA
    )
    assert found.n_skipped == N_ROWS - good.size
    expected = accumulate(
        rows[good], Y[good], sample_weight=None if weights is None else weights[good]
    )
    np.testing.assert_allclose(found.class_count, expected.class_count, rtol=1e-12)
    np.testing.assert_allclose(found.means, expected.means, rtol=1e-12)
    np.testing.assert_allclose(found.covariance(), expected.covariance(), rtol=1e-5)


def test_bits_of_integers_are_those_of_the_good_rows():
    rows, good = rasters(np.int16)
    found = accumulate(rows, Y, on_invalid="skip", nodata=NODATA)
    expected = bits(accumulate(rows[good], Y[good]))
    assert bits(found)[1] == expected[1]


def test_good_rows_give_the_same_bits_whether_looked_at_or_not():
    skipping = accumulate(X, Y, on_invalid="skip", nodata=123)
    assert bits(skipping) == bits(accumulate(X, Y))


def test_nodata_is_an_error_where_it_is_not_skipped():
    rows, _ = rasters(np.int16)
    with pytest.raises(InvalidDataError, match=r"row 0 holds NaN, infinity or nodata=-7"):
        accumulate(rows, Y, nodata=NODATA)
    weights = np.ones(N_ROWS)
    weights[0] = 0  # a row that is not there
    with pytest.raises(InvalidDataError, match=r"row 31 holds"):
        accumulate(rows, Y, nodata=NODATA, sample_weight=weights)
    skipped = accumulate(rows, Y, nodata=NODATA, sample_weight=weights, on_invalid="skip")
    assert skipped.n_skipped == accumulate(rows, Y, nodata=NODATA, on_invalid="skip").n_skipped - 1


@pytest.mark.parametrize("nodata", [-9999, 1e300, 300, float("nan"), np.float64(0.5)])
def test_nodata_that_the_type_cannot_hold(nodata):
    rows = np.arange(12, dtype=np.uint8).reshape(6, 2)
    for dtype in (np.uint8, np.float32):
        found = accumulate(rows.astype(dtype), [0, 1] * 3, on_invalid="skip", nodata=nodata)
        assert found.n_skipped == 0


@pytest.mark.parametrize("n_features", [1, 7, 64, 65, 200])
@pytest.mark.parametrize("order", ["C", "F"])
def test_invalid_rows_are_found_at_any_width(n_features, order):
    random = np.random.default_rng(0)
    rows = np.asarray(random.normal(size=(500, n_features)), order=order)
    rows[random.random(rows.shape) < 0.3 / n_features] = np.nan
    rows[random.random(rows.shape) < 0.3 / n_features] = NODATA
    bad = (np.isnan(rows) | (rows == NODATA)).any(axis=1)
    assert 100 < bad.sum() < 400
    found = Invalid("skip", NODATA).rows(rows)
    np.testing.assert_array_equal(found, np.flatnonzero(bad))


def test_nodata_is_compared_in_the_type_of_the_rows():
    rows = np.array([[0.1], [0.2], [0.3]], np.float32)
    assert accumulate(rows, [0, 0, 0], on_invalid="skip", nodata=0.1).n_skipped == 1


def test_labels_that_are_missing_are_an_error_all_the_same():
    rows, _ = rasters(np.float64)
    labels = Y.astype(float)
    labels[31] = np.nan
    with pytest.raises(InvalidDataError, match="nan"):
        accumulate(rows, labels, on_invalid="skip")


def test_nothing_is_left():
    rows = np.full((100, 3), np.nan)
    found = accumulate(rows, np.zeros(100), on_invalid="skip")
    assert (found.n_skipped, found.n_features) == (100, None)
    added = found + accumulate(np.zeros((2, 3)), [0, 1])
    assert added.n_skipped == 100
    assert "100 invalid rows left out" in repr(added)


def test_the_count_goes_where_the_rows_go(tmp_path):
    rows, good = rasters(np.int16)
    skip = functools.partial(accumulate, on_invalid="skip", nodata=NODATA)
    whole = skip(rows, Y)
    first, second = skip(rows[:100], Y[:100]), skip(rows[100:], Y[100:])
    assert (first + second).n_skipped == whole.n_skipped == N_ROWS - good.size
    assert (whole - first).n_skipped == second.n_skipped
    for derived in (
        whole.copy(),
        whole.reduce("diag"),
        whole.select_features([0, 1]),
        whole * 0.5,
        ClassMoments.from_state(*whole.state()),
    ):
        assert derived.n_skipped == whole.n_skipped
    whole.save(tmp_path / "moments")
    assert ClassMoments.load(tmp_path / "moments").n_skipped == whole.n_skipped
    attributes, arrays = whole.state()
    del attributes["n_skipped"]  # as files of before have it
    assert ClassMoments.from_state(attributes, arrays).n_skipped == 0
    assert whole.update(rows[good[:5]], Y[good[:5]]).n_skipped == N_ROWS - good.size


def test_a_failing_slab_is_not_counted_in_part(tmp_path):
    rows, _ = rasters(np.float64)
    path = tmp_path / "kept"
    labels = Y.astype(float)
    labels[100] = np.nan  # in a slab all of whose rows are invalid
    with pytest.raises(InvalidDataError):
        accumulate(rows, labels, on_invalid="skip", nodata=NODATA, checkpoint=path)
    found = accumulate(rows, Y * 1.0, on_invalid="skip", nodata=NODATA, checkpoint=path)
    assert bits(found) == bits(accumulate(rows, Y * 1.0, on_invalid="skip", nodata=NODATA))


def test_frames_of_several_types():
    frame = pd.DataFrame({"a": [1, -7, 3, 4], "b": [0.5, 1.5, np.nan, 2.5]})
    found = accumulate(frame, [0, 0, 1, 1], on_invalid="skip", nodata=NODATA)
    assert (found.n_skipped, found.class_count.tolist()) == (2, [1, 1])


def test_skipping_takes_memory_for_a_copy():
    assert least_memory(Rows(), on_invalid="skip") == least_memory(Rows()) + SLAB * 32
