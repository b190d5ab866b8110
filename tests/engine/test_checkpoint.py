"""Interrupted passes and scores resume, only for the same data, and give the same bits."""

import dask.array as da
import numpy as np
import pytest
import zarr
from samples import bits, held, make
from sklearn.preprocessing import StandardScaler
from stops import N_ROWS, SLAB, Rows, X, Y, stop_after

from streamgda import (
    ClassMoments,
    GroupedMoments,
    RandomFeatures,
    Standardize,
    accumulate,
)
from streamgda.engine.checkpoint import Checkpoint
from streamgda.errors import (
    CheckpointError,
    InvalidDataError,
    InvalidParameterError,
    MemoryBudgetError,
    SourceError,
)
from streamgda.rows.counting import Slab
from streamgda.storage.opening import mark_of


@pytest.fixture(autouse=True)
def one_chunk_a_slab(slabs_of):
    slabs_of(SLAB * X[0].nbytes)


WEIGHTS = np.random.default_rng(1).uniform(0, 2, N_ROWS)
BYTES = (10 * (X - X.min())).astype(np.uint8)
GAPS = np.where(np.arange(N_ROWS)[:, None] % 7 == np.arange(4), np.nan, X)
SITES = np.array(["east", "north", "south"])[np.arange(N_ROWS) % 3]


def stopped(path, at=150, error=KeyboardInterrupt, X=X, y=Y, **options):
    """A checkpoint of the rows before the given one."""
    with pytest.raises(error):
        accumulate(Rows(X, at, error("stop")), y, checkpoint=path, **options)
    assert path.exists()


# --- passes over rows -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "options"),
    [
        (X, {"sample_weight": WEIGHTS}),
        (X, {"covariance_type": "tied", "sample_weight": WEIGHTS}),
        (BYTES, {}),
        (BYTES, {"covariance_type": "diag", "sample_weight": WEIGHTS}),
        (X, {"groups": SITES, "sample_weight": WEIGHTS}),
        (X, {"groups": SITES, "covariance_type": "tied"}),
        (GAPS, {"on_invalid": "pairwise"}),
        (X, {"feature_map": Standardize(ClassMoments().update(X, Y))}),
        (X, {"feature_map": StandardScaler().fit(X), "groups": SITES}),
        (X, {"feature_map": [RandomFeatures(5), StandardScaler().fit(np.eye(5))]}),
    ],
)
def test_a_resumed_pass_has_the_same_bits(tmp_path, slabs_of, rows, options):
    slabs_of(SLAB * rows[0].nbytes)
    undisturbed = accumulate(Rows(rows), Y, **options)
    path = tmp_path / "new" / "kept"
    for at in (90, 210):
        stopped(path, at, X=rows, **options)
    again = Rows(rows)
    found = accumulate(again, Y, checkpoint=path, **options)
    assert bits(found) == bits(undisturbed)
    assert again.read == [0, 180, 210, 240, 270]  # Two slabs are compared.
    complete = accumulate(again, Y, checkpoint=path, **options)
    assert bits(complete + found) == bits(undisturbed + undisturbed)
    assert [file.name for file in path.parent.iterdir()] == ["kept"]


def test_an_error_in_the_data_keeps_the_rows_before_it(tmp_path):
    bad = X.copy()
    bad[187, 2] = np.nan
    path = tmp_path / "kept"
    for _ in range(2):  # The second pass starts from the checkpoint.
        with pytest.raises(InvalidDataError, match="NaN: row 187, column 2") as caught:
            accumulate(bad, Y, checkpoint=path)
        (note,) = caught.value.__notes__
        assert note.startswith(f"The checkpoint {path} keeps what was done, the first 180 rows")
    before = path.read_bytes()
    skipped = accumulate(bad, Y, on_invalid="skip", checkpoint=path)
    assert bits(skipped) == bits(accumulate(bad, Y, on_invalid="skip"))
    with pytest.raises(CheckpointError, match="on_invalid: skip, and 1 rows were left out"):
        accumulate(bad, Y, checkpoint=path)
    path.write_bytes(before)
    bad[187] = X[187]  # The row is repaired in place.
    assert bits(accumulate(bad, Y, checkpoint=path)) == bits(accumulate(X, Y))


def test_an_error_before_anything_is_done_leaves_nothing(tmp_path):
    with pytest.raises(InvalidDataError, match="row 3") as caught:
        accumulate(
            np.where(np.arange(N_ROWS)[:, None] == 3, np.inf, X), Y, checkpoint=tmp_path / "k"
        )
    assert not hasattr(caught.value, "__notes__")
    assert not any(tmp_path.iterdir())


def test_moments_that_may_hold_part_of_a_slab_are_not_written(tmp_path):
    def interrupted(moments, slab):
        moments.update(slab.X[:10], slab.y[:10])
        raise KeyboardInterrupt

    kept = Checkpoint(tmp_path / "kept", 1e9, {}, ClassMoments(), "rows")
    kept.add(lambda moments, slab: moments.update(*slab[:2]), 0, 30, Slab(X[:30], Y[:30]))
    with pytest.raises(KeyboardInterrupt), kept:
        kept.add(interrupted, 30, 60, Slab(X[30:60], Y[30:60]))
    assert not any(tmp_path.iterdir())


DATA = r"started with other rows, labels or weights: (rows|blocks) {} to \d+ have changed"
LATER = np.isin(np.arange(N_ROWS), [100, 190])  # These are in the last slab and the last block.
CHANGES = {
    "other rows": ({"X": X + 1e-9}, DATA.format(0)),
    "rows changed later": ({"X": np.where(LATER[:, None], 2 * X, X)}, DATA.format(r"[1-9]\d")),
    "fewer rows": (
        {"X": X[:270], "y": Y[:270], "sample_weight": WEIGHTS[:270], "groups": SITES[:270]},
        r"started with X: shape \(300, 4\), float64; now it is shape \(270, 4\)",
    ),
    "another type": ({"X": X.astype(np.float32)}, r"now it is shape \(300, 4\), float32"),
    "another label": ({"y": np.where(np.arange(N_ROWS) == 1, 9, Y)}, DATA.format(0)),
    "labels of another type": ({"y": Y.astype("i2")}, r"started with y: shape \(300,\), int64"),
    "no weights": ({"sample_weight": None}, "started with sample_weight"),
    "other weights": ({"sample_weight": WEIGHTS[::-1]}, DATA.format(0)),
    "another structure": ({"covariance_type": "tied"}, "covariance_type: full; now it is tied"),
    "other classes": ({"classes": [0, 1, 2, 3]}, r"classes: None; now it is \[0, 1, 2, 3\]"),
    "nodata": ({"nodata": 7}, "nodata: None; now it is 7"),
    "no groups": ({"groups": None}, "moments: GroupedMoments; now it is ClassMoments"),
    "other groups": ({"groups": np.roll(SITES, 1)}, DATA.format(0)),
    "a map": ({"feature_map": StandardScaler().fit(X)}, "feature_map: "),
    "gaps": ({"groups": None, "on_invalid": "pairwise"}, "now it is PairwiseMoments"),
}


@pytest.mark.usefixtures("in_this_thread")
@pytest.mark.parametrize("kind", ["numpy", "dask"])
@pytest.mark.parametrize("change", CHANGES)
def test_checkpoints_of_other_work_raise(tmp_path, change, kind):
    def arguments(**changes):
        given = {"X": X, "y": Y, "sample_weight": WEIGHTS, "groups": SITES} | changes
        arrays = given.items()
        return {n: held(a, kind, 3) if isinstance(a, np.ndarray) else a for n, a in arrays}

    path = tmp_path / "kept"
    same = arguments()
    stop_after(100, same.pop("X"), same.pop("y"), **same, checkpoint=path)
    before = path.read_bytes()
    changes, message = CHANGES[change]
    with pytest.raises(CheckpointError, match=message) as caught:
        accumulate(**arguments(**changes), checkpoint=path)
    assert str(path) in str(caught.value)
    assert "delete it to start again" in str(caught.value)
    assert path.read_bytes() == before
    accumulate(**arguments(), checkpoint=path)


def test_another_transformer_raises(tmp_path):
    """Though it is described alike: a transformer is not saved."""
    stopped(tmp_path / "kept", feature_map=StandardScaler().fit(X[:200]))
    with pytest.raises(CheckpointError, match="was started with other features"):
        accumulate(X, Y, feature_map=StandardScaler().fit(X[:100]), checkpoint=tmp_path / "kept")


@pytest.mark.parametrize("content", ["text", "moments", "truncated"])
def test_files_that_are_no_checkpoints_raise(tmp_path, content):
    path = tmp_path / "kept.npz"
    if content == "text":
        path.write_text("notes")
    elif content == "moments":
        accumulate(X, Y).save(path)
    else:
        stopped(path)
        path.write_bytes(path.read_bytes()[:-500])
    before = path.read_bytes()
    with pytest.raises((CheckpointError, InvalidParameterError, SourceError), match=r"kept\.npz"):
        accumulate(X, Y, checkpoint=path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"checkpoint": "s3://bucket/kept"}, "expected a path on this machine"),
        ({"checkpoint": 7}, "expected a path on this machine"),
        ({"checkpoint": "."}, "is a directory"),
        ({"checkpoint": "kept", "checkpoint_every": -1}, "expected a number of seconds"),
        ({"checkpoint": "kept", "checkpoint_every": "often"}, "expected a number of seconds"),
    ],
)
def test_checkpoints_that_cannot_be_kept(tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    for data in ((X, Y), ([(X, Y)],)):
        with pytest.raises(InvalidParameterError, match=message):
            accumulate(*data, **options)
    assert not any(tmp_path.iterdir())


def test_slabs_stay_as_they_were(tmp_path, slabs_of):
    path = tmp_path / "kept"
    stopped(path)
    narrow, generous = Rows(), Rows()
    narrow.chunks = (10, 4)
    slabs_of(10 * 8 * 4)
    with pytest.raises(MemoryBudgetError, match="started in slabs of 30 rows"):
        accumulate(narrow, Y, checkpoint=path)
    slabs_of(90 * 8 * 4)
    accumulate(generous, Y, checkpoint=path)
    assert generous.read[-4:] == [180, 210, 240, 270]


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
    twice = [*batches(), *batches()]
    assert bits(accumulate(twice, checkpoint=path)) == bits(accumulate(twice))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (batches(y=Y + 1), "batches 0 to 0 have changed"),
        (batches(X=X + 1), "batches 0 to 0 have changed"),
        ([(X[:30], Y[:30])], "it holds the first 5 batches"),
    ],
)
def test_other_batches_raise(tmp_path, given, message):
    with pytest.raises(OSError, match="broke off"):
        accumulate(batches(fail=150), checkpoint=tmp_path / "kept")
    with pytest.raises(CheckpointError, match=message):
        accumulate(given, checkpoint=tmp_path / "kept")
    with pytest.raises(CheckpointError, match="started with X: batches"):
        accumulate(X, Y, checkpoint=tmp_path / "kept")


# --- scores ---------------------------------------------------------------------------------------


@pytest.fixture
def fitted():
    return make("QDA").fit(X, Y)


def half_written(fitted, out, method="predict", at=150, error=KeyboardInterrupt):
    with pytest.raises(error) as stop:
        getattr(fitted, method)(Rows(at=at, error=error("stop")), out=out)
    return stop.value


@pytest.mark.parametrize("method", ["predict", "predict_proba", "score_samples"])
@pytest.mark.parametrize("chunks", [None, 30, 45, 300])
def test_scores_are_resumed(tmp_path, fitted, method, chunks):
    path = tmp_path / "scores.zarr"
    expected = getattr(fitted, method)(X)
    out = path
    if chunks is not None:
        shape = (chunks, *expected.shape[1:])
        out = zarr.create_array(path, shape=expected.shape, dtype=expected.dtype, chunks=shape)
    assert "the first 150 rows" in half_written(fitted, out, method).__notes__[0]
    mark = mark_of(zarr.open_array(path, mode="r"))
    assert (mark["complete"], mark["done"]) == (False, 150)
    again = Rows()
    getattr(fitted, method)(again, out=path if chunks is None else zarr.open_array(path))
    assert again.read == [0, 120, 150, 180, 210, 240, 270]
    written = zarr.open_array(path, mode="r")
    np.testing.assert_array_equal(written[...], expected, strict=True)
    assert mark_of(written)["complete"]


def test_half_written_scores_are_not_read(tmp_path):
    fitted = make("GaussianNB").fit(X[:, :3], Y)  # There are as many features as classes.
    with pytest.raises(OSError, match="gone"):
        fitted.predict_proba(Rows(X[:, :3], 270, OSError("gone")), out=tmp_path / "scores.zarr")
    half = zarr.open_array(tmp_path / "scores.zarr", mode="r")
    labels = zarr.create_array({}, data=Y, attributes=dict(half.attrs))
    for work, name in (
        (lambda: accumulate(half, Y), "X"),
        (lambda: accumulate(X, labels), "y"),
        (lambda: accumulate(da.from_array(X, 30), labels), "y"),
        (lambda: accumulate(X, Y, sample_weight=labels), "sample_weight"),
        (lambda: fitted.predict(half), "X"),
        (lambda: ClassMoments("diag").update(half, Y), "X"),
        (lambda: GroupedMoments().update(X, Y, labels), "groups"),
        (lambda: make("GaussianNB").partial_fit(X, labels), "y"),
        (lambda: fitted.score(X[:, :3], labels), "y"),
    ):
        with pytest.raises(SourceError, match=f"{name} holds scores that are half-written: 270 of"):
            work()


def test_complete_scores_are_given_back_by_the_same_call(tmp_path, fitted):
    out = tmp_path / "scores.zarr"
    fitted.predict(Rows(), out=out)
    again = Rows()
    same = fitted.predict(again, out=out)
    np.testing.assert_array_equal(same[:], fitted.predict(X))
    assert len(again.read) <= 2
    array = zarr.open_array(out)
    array[:] = 7
    assert fitted.predict(Rows(), out=array) is array  # The caller's array is filled again.
    np.testing.assert_array_equal(array[:], fitted.predict(X))


def test_half_written_scores_of_something_else_raise(tmp_path, fitted):
    out = tmp_path / "scores.zarr"
    half_written(fitted, out)
    other = Rows(np.roll(X, 30, axis=0))
    for work, message in (
        (lambda: make("LDA").fit(X, Y).predict(X, out=out), "started with model: checksum"),
        (lambda: fitted.score_samples(X, out=out), "method: predict; now it is score_samples"),
        (lambda: fitted.predict(X[:200], out=out), r"X: shape \(300, 4\)"),
        (lambda: fitted.predict(other, out=out), "rows 0 to 29 have changed"),
    ):
        with pytest.raises(CheckpointError, match=message):
            work()
    array = zarr.open_array(out)
    fitted.predict(X, out=array)
    np.testing.assert_array_equal(array[:], fitted.predict(X))
