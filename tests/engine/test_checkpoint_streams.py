"""Checkpoints of batches and of streams, which resume at their offset."""

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
from stops import N_ROWS, SLAB, X, Y, bits, stopped

from streamgda import (
    Checkpoint,
    ClassMoments,
    GaussianNB,
    ThresholdClassifier,
    accumulate,
    load,
)
from streamgda.errors import CheckpointError, InvalidParameterError, ReadError
from streamgda.rows.forward import ForwardRows
from streamgda.runtime import retry

pytestmark = pytest.mark.usefixtures("small_slabs")


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch):
    monkeypatch.setattr(retry, "PAUSES", ())


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
    with pytest.raises(OSError, match="broke off") as broken:  # of a stream that goes on
        accumulate(itertools.chain(batches(), batches(fail=60)), checkpoint=path)
    assert "the first 12 batches" in broken.value.__notes__[0]
    more = accumulate(itertools.chain(batches(), batches()), checkpoint=path)
    assert bits(more) == bits(accumulate(itertools.chain(batches(), batches())))


@pytest.mark.parametrize("at", [40, 500, 1100, 1700])
def test_a_scan_resumes_at_its_row_across_blocks(tmp_path, at):
    """Rows that can only be read forwards, from the start of a file, in blocks of other sizes."""
    rows, y = np.tile(X, (6, 1)) + np.arange(6 * N_ROWS)[:, None], np.tile(Y, 6)

    @dataclass(frozen=True)
    class Scan(ForwardRows):
        fails: int = -1

        def _origin(self, row):
            return row - row % 110  # the first row of a file

        def _blocks(self, start):
            for first in range(start, len(rows), 70):
                if first <= self.fails < first + 70:
                    raise OSError("the stream broke off")
                yield self.values[first : first + 70]

    path, header = tmp_path / "kept", (rows.shape, rows.dtype)
    for fails in (at, at + 95):
        with pytest.raises(ReadError, match="broke off"):
            accumulate(Scan(rows, *header, fails=fails), y, checkpoint=path)
    found = accumulate(Scan(rows, *header), y, checkpoint=path)
    assert bits(found) == bits(accumulate(Scan(rows, *header), y))
    np.testing.assert_allclose(found.means, accumulate(rows, y).means)


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
    with pytest.raises(CheckpointError, match="started with X: batches"):
        accumulate(X, Y, checkpoint=tmp_path / "kept")


@pytest.mark.parametrize("state", ["estimator", "moments"])
def test_a_stream_resumes_at_its_offset(tmp_path, state):
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
    expected = ClassMoments("diag").update(X[:100], Y[:100])
    if state == "estimator":
        expected = GaussianNB().partial_fit(X[:100], Y[:100]).moments_
    assert bits(found) == bits(expected)
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
    with pytest.raises(CheckpointError, match="it is the checkpoint of a pass"):
        Checkpoint(tmp_path / "kept")
    (tmp_path / "text").write_text("notes")
    with pytest.raises(CheckpointError, match="not the checkpoint of a stream"):
        Checkpoint(tmp_path / "text")
    with pytest.raises(InvalidParameterError, match="every"):
        Checkpoint(tmp_path / "other", every=-1)


def test_a_threshold_is_kept_with_its_offset(tmp_path):
    rule = ThresholdClassifier(GaussianNB()).fit(X, Y > 0)
    Checkpoint(tmp_path / "stream").save(rule, 12)
    kept = Checkpoint(tmp_path / "stream")
    assert kept.offset == 12
    assert kept.state.threshold_ == rule.threshold_
    np.testing.assert_array_equal(kept.state.predict(X), rule.predict(X))
