"""Prequential scores: each batch is predicted before it is learnt."""

import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import accuracy_score, log_loss
from stream_rows import REFERENCE, X, Y, some_rows

import streamgda
from streamgda import (
    DriftMonitor,
    GaussianNB,
    QuadraticDiscriminantAnalysis,
    prequential,
)
from streamgda.errors import InvalidDataError, InvalidParameterError


def cut(X, y, size):
    return ((X[at : at + size], y[at : at + size]) for at in range(0, len(X), size))


def test_scores_are_those_of_predicting_before_learning():
    model, hits, losses = GaussianNB(), [], []
    results = [*prequential(model, cut(X, Y, 50), faded_half_life=80)]
    other = GaussianNB().partial_fit(X[:50], Y[:50])
    for result, (rows, labels) in zip(results[1:], [*cut(X, Y, 50)][1:], strict=True):
        expected = other.predict(rows)
        np.testing.assert_array_equal(result.predictions, expected)
        loss = -other.predict_log_proba(rows)[
            np.arange(len(rows)), np.searchsorted(other.classes_, labels)
        ]
        hits, losses = [*hits, *(expected == labels)], [*losses, *loss]
        assert result.batch_accuracy == accuracy_score(labels, expected)
        assert result.batch_log_loss == pytest.approx(
            log_loss(labels, other.predict_proba(rows), labels=other.classes_)
        )
        assert result.accuracy == pytest.approx(np.mean(hits))
        assert result.log_loss == pytest.approx(np.mean(losses))
        weights = 0.5 ** (np.arange(len(hits))[::-1] / 80)
        assert result.faded_accuracy == pytest.approx(np.average(hits, weights=weights))
        assert result.faded_log_loss == pytest.approx(np.average(losses, weights=weights))
        other.partial_fit(rows, labels)
    first = results[0]
    assert first.predictions is None
    assert np.isnan([first.accuracy, first.log_loss, first.batch_accuracy]).all()
    assert [first.n_rows, first.n_scored] == [50, 0]
    assert [results[-1].n_rows, results[-1].n_scored] == [700, 650]
    np.testing.assert_array_equal(model.theta_, other.theta_)
    assert results[-1].rows_per_second > 0
    assert "accuracy 0." in repr(results[-1])


def test_unknown_classes_count_as_wrong_and_rows_with_their_weights():
    model = GaussianNB().fit(X, Y)
    labels = np.append(Y[:9], "eel")
    (result,) = prequential(model, [(X[:10], labels)])
    known = GaussianNB().fit(X, Y)
    expected = known.predict(X[:9]) == Y[:9]
    assert result.accuracy == expected.sum() / 10
    loss = -np.log(np.finfo(float).eps)
    assert result.log_loss * 10 == pytest.approx(
        loss + 9 * log_loss(Y[:9], known.predict_proba(X[:9]), labels=known.classes_)
    )
    assert "eel" in model.classes_
    weights, model = np.arange(20) % 3, GaussianNB().fit(X, Y)
    expected = model.predict(X[:20]) == Y[:20]
    (result,) = prequential(model, [(X[:20], Y[:20], weights)], faded_half_life=3)
    assert result.accuracy == pytest.approx(np.average(expected, weights=weights))
    faded = weights * 0.5 ** (np.arange(20)[::-1] / 3)
    assert result.faded_accuracy == pytest.approx(np.average(expected, weights=faded))
    assert model.class_count_.sum() == 700 + weights.sum()


def test_rows_without_labels_are_only_predicted():
    model = GaussianNB().fit(X, Y)
    before = model.moments_.to_bytes()
    (result,) = prequential(model, [(X[:20], None)])
    assert model.moments_.to_bytes() == before
    assert result.predictions.tolist() == GaussianNB().fit(X, Y).predict(X[:20]).tolist()
    assert [result.n_rows, result.n_scored] == [20, 0]
    some = np.where(np.arange(20) % 2, None, Y[:20])
    (result,) = prequential(model, [(X[:20], some)])
    assert [result.n_rows, result.n_scored] == [20, 10]
    assert result.batch_accuracy == np.mean(result.predictions[::2] == Y[:20:2])
    assert model.class_count_.sum() == 710
    (result,) = prequential(GaussianNB(), [(X[:20], None)])
    assert result.predictions is None
    gaps = np.where(np.arange(20)[:, None] == 3, np.nan, X[:20])  # also where none is predicted yet
    with pytest.raises(InvalidDataError, match="batch 0: Input X contains NaN: row 3"):
        next(prequential(GaussianNB(), [(gaps, some)]))


def test_rows_without_labels_age_those_before_them_however_batches_are_cut():
    labels = Y.astype(object)
    labels[:20] = labels[100:150] = None
    whole = GaussianNB().partial_fit(X, labels, half_life=30, on_invalid="skip")
    for size in (1, 50, 70):
        model = GaussianNB()
        batches = [(rows, y if any(y) else None) for rows, y in cut(X, labels, size)]
        *_, last = prequential(model, batches, half_life=30)
        assert last.n_rows == len(X)
        np.testing.assert_allclose(model.class_count_, whole.class_count_)
        np.testing.assert_allclose(model.theta_, whole.theta_)


@pytest.mark.parametrize("kind", ["GaussianNB", "BernoulliNB", "GaussianDiscriminantAnalysis"])
def test_one_row_at_a_time(kind):
    model = getattr(streamgda, kind)()
    results = [*prequential(model, cut(X[:60], Y[:60], 1))]
    assert results[-1].n_rows == 60
    assert results[-1].n_scored > 30
    expected = getattr(streamgda, kind)().fit(X[:60], Y[:60])
    np.testing.assert_allclose(model.predict_proba(X), expected.predict_proba(X), rtol=1e-9)


def test_batches_of_frames_and_tables():
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = GaussianNB()
    *_, last = prequential(model, [(frame[:350], Y[:350]), (frame[350:], Y[350:])], drift=100)
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    *_, expected = prequential(GaussianNB(), cut(X, Y, 350))
    assert last.accuracy == expected.accuracy
    frame["label"] = Y
    columns = ["a", "b", "c"], "label"
    *_, found = prequential(GaussianNB(), [frame[:350], frame[350:]], columns=columns)
    assert found.accuracy == expected.accuracy


def test_drift_is_reported_by_a_given_monitor_or_a_new_one():
    results = [*prequential(GaussianNB(), cut(X, Y, 50), drift=40)]
    assert {each.can_alarm_from for each in results} == {440}  # after ten windows of a reference
    shown = ["not watched before row 440" in repr(each) for each in results]
    assert shown == [each.n_rows < 440 for each in results]
    assert next(prequential(GaussianNB(), cut(X, Y, 50))).can_alarm_from is None
    monitor = DriftMonitor(REFERENCE, window=100)
    monitor.update(X[:30], Y[:30])
    assert next(prequential(GaussianNB(), cut(X, Y, 50), drift=monitor)).can_alarm_from == 70
    monitor = DriftMonitor(REFERENCE, window=100)
    results = [*prequential(GaussianNB(), cut(X, Y, 70), drift=monitor)]
    assert [each.start for result in results for each in result.drift] == [*range(0, 700, 100)]
    assert monitor.n_rows == 700
    rows, labels = some_rows(1000, seed=6)
    rows[800:] += 3
    results = [*prequential(GaussianNB(), cut(rows, labels, 50), drift=50)]
    found = {r.batch: each.alarm for r in results for each in r.drift}
    assert [*found] == [*range(10, 20)]
    assert {batch for batch, alarm in found.items() if alarm} >= {16, 17, 18, 19}
    assert "drift" in repr(results[-1])
    (first,) = prequential(
        QuadraticDiscriminantAnalysis().fit(rows, labels), [(rows, labels)], drift=500
    )
    assert len(first.drift) == 2


def test_bad_batches_and_parameters():
    model = GaussianNB()
    results = prequential(model, [(X[:50], Y[:50]), (X[:9, :2], Y[:9])])
    next(results)
    with pytest.raises(ValueError, match="2 features"):
        next(results)
    assert model.class_count_.sum() == 50
    results = prequential(model, [(X[:50], Y[:49])])
    with pytest.raises(InvalidDataError, match="batch 0: X has 50 rows but y has shape"):
        next(results)
    for bad, error, message in (
        ({"model": object()}, TypeError, "model is"),
        ({"drift": "often"}, InvalidParameterError, "drift="),
        ({"half_life": 0}, InvalidParameterError, "half_life"),
        ({"faded_half_life": -1}, InvalidParameterError, "faded_half_life"),
        ({"batches": X}, InvalidDataError, "y is missing"),
    ):
        with pytest.raises(error, match=message):
            prequential(**{"model": GaussianNB(), "batches": [], **bad})


def test_a_row_costs_little_more_than_predicting_and_learning():
    monitor, counts = DriftMonitor(REFERENCE, window=1000), []

    def count(frame, event, _):
        counts[-1] += event == "call" and "streamgda" in frame.f_code.co_filename

    def calls(steps):
        counts.append(0)
        next(steps)
        sys.setprofile(count)
        next(steps)
        sys.setprofile(None)
        return counts[-1]

    def apart(model):
        for rows, labels in cut(X, Y, 1):
            yield model.predict_log_proba(rows), model.partial_fit(rows, labels)

    models = [GaussianNB().fit(X, Y) for _ in range(3)]
    least = calls(apart(models[0]))
    alone = calls(prequential(models[1], cut(X, Y, 1)))
    watched = calls(prequential(models[2], cut(X, Y, 1), drift=monitor))
    assert alone <= least + 50
    assert watched <= alone + 65
