"""Interrupted work resumes, only for the same data and options, and gives the same bits."""

import numpy as np
import pytest
from samples import KINDS, held
from stops import N_ROWS, SLAB, WEIGHTS, Rows, X, Y, bits, least_memory, stopped

from streamgda import ClassMoments, accumulate, storage
from streamgda.engine import journal as checkpoint
from streamgda.engine import plan
from streamgda.errors import (
    CheckpointError,
    InvalidDataError,
    InvalidParameterError,
    MemoryBudgetError,
)

pytestmark = pytest.mark.usefixtures("small_slabs")


# --- passes over rows -------------------------------------------------------------------------


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag"])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("kind", ["float", "bytes"])
def test_a_resumed_pass_has_the_same_bits(tmp_path, monkeypatch, covariance_type, weights, kind):
    rows = X if kind == "float" else (10 * (X - X.min())).astype(np.uint8)
    monkeypatch.setattr(plan, "_SLAB_BYTES", SLAB * rows[0].nbytes)
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
    for _ in range(2):  # the second time, from the checkpoint
        with pytest.raises(InvalidDataError, match="NaN: row 187, column 2") as refusal:
            accumulate(bad, Y, checkpoint=path)
        (note,) = refusal.value.__notes__
        assert note.startswith(f"The checkpoint {path} keeps what was done, the first 180 rows")
        assert storage.read(path, checkpoint.KIND)[1]["done"] == 180
    before = path.read_bytes()
    skipped = accumulate(bad, Y, on_invalid="skip", checkpoint=path)
    assert skipped.n_skipped == 1
    assert bits(skipped) == bits(accumulate(bad, Y, on_invalid="skip"))
    with pytest.raises(CheckpointError, match="on_invalid: skip, and 1 rows were left out"):
        accumulate(bad, Y, checkpoint=path)
    path.write_bytes(before)
    bad[187] = X[187]  # repaired in place
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
    assert storage.read(path, checkpoint.KIND)[1]["done"] == kept
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
        "started with X: shape (300, 4), float64; now it is shape (270, 4)",
    ),
    "another width": ({"X": X[:, :3]}, "now it is shape (300, 3), float64"),
    "another type": ({"X": X.astype(np.float32)}, "now it is shape (300, 4), float32"),
    "another label": ({"y": np.where(np.arange(N_ROWS) == 77, 9, Y)}, "other labels or weights"),
    "labels of another type": ({"y": Y.astype(np.int16)}, "started with y: shape (300,), int64"),
    "no weights": ({"sample_weight": None}, "started with sample_weight"),
    "other weights": ({"sample_weight": WEIGHTS[::-1]}, "other labels or weights"),
    "another structure": ({"covariance_type": "tied"}, "covariance_type: full; now it is tied"),
    "other classes": ({"classes": [0, 1, 2, 3]}, "classes: None; now it is [0, 1, 2, 3]"),
    "nodata": ({"nodata": 7}, "nodata: None; now it is 7"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_checkpoints_of_other_work_are_refused(tmp_path, change):
    same = {"X": X, "y": Y, "sample_weight": WEIGHTS}
    path = tmp_path / "kept"
    stopped(path, **same)
    before = path.read_bytes()
    changes, message = CHANGES[change]
    with pytest.raises(CheckpointError) as refusal:
        accumulate(**(same | changes), checkpoint=path)
    assert message in str(refusal.value)
    assert str(path) in str(refusal.value)
    assert "delete it to start again" in str(refusal.value)
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
def test_damaged_attributes_are_reported(tmp_path, damage):
    path = tmp_path / "kept.zip"
    stopped(path)
    _, attributes, arrays = storage.read(path, checkpoint.KIND)
    storage.write(path, checkpoint.KIND, attributes | DAMAGE[damage], arrays)
    with pytest.raises(CheckpointError, match=r"kept\.zip is"):
        accumulate(X, Y, checkpoint=path)


@pytest.mark.parametrize("content", ["text", "moments", "directory", "truncated"])
def test_files_that_are_no_checkpoints_are_refused(tmp_path, content):
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
def test_unusable_parameters(tmp_path, monkeypatch, options, message):
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
    monkeypatch.setattr(plan, "_SLAB_BYTES", 90 * 8 * 4)
    monkeypatch.setattr(plan, "_FEWEST_ROWS", 1)
    with pytest.raises(MemoryBudgetError, match="started in slabs of 30 rows"):
        accumulate(narrow, Y, checkpoint=path, max_memory=least_memory(narrow))
    accumulate(generous, Y, checkpoint=path)
    assert generous.read[-4:] == [180, 210, 240, 270]


def test_left_overs_of_killed_runs_are_removed(tmp_path):
    for name in (
        "kept.streamgda-0123abcd.partial.zip",
        "kept.streamgda-4567cdef.partial.zip.streamgda-89abcdef.partial",
        "kept.partially",
    ):
        (tmp_path / name).write_text("half")
    accumulate(X, Y, checkpoint=tmp_path / "kept")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["kept", "kept.partially"]


def test_only_a_sample_of_many_slabs_is_read_again(tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "_SLAB_BYTES", 32)
    rows = Rows()
    rows.chunks = (1, 4)
    accumulate(rows, Y, checkpoint=tmp_path / "kept")
    rows.read.clear()
    accumulate(rows, Y, checkpoint=tmp_path / "kept")
    assert len(rows.read) <= 17
    assert {0, N_ROWS - 1} <= set(rows.read)
