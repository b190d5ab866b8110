"""Drift: tests of windows beside a reference, and alarms."""

import dataclasses
import json

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import zarr
from grids import cases
from scipy import stats
from statsmodels.stats.multitest import multipletests
from stream_rows import REFERENCE, X, Y, some_rows

from streamgda import (
    ClassMoments,
    DriftMonitor,
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
    covariance_test,
    means_test,
    separability,
)
from streamgda.errors import FormatError, InvalidDataError, InvalidParameterError
from streamgda.models import drift
from streamgda.models.drift import WeightedMeans
from streamgda.storage.saved import restore, state_of

KINDS = ("full", "tied", "diag", "tied_diag", "spherical", "tied_spherical")


def as_dict(reports):
    """Reports as values that compare equal, NaN too."""
    return json.dumps([dataclasses.asdict(each) for each in reports], default=str)


def pair(a, b, label):
    """Moments in which the rows of one class in two moments are two classes."""
    first, second = (m.select_classes([label]).relabel({label: k}) for k, m in enumerate((a, b)))
    return first + second


# --- statistics -------------------------------------------------------------------------------


def test_means_and_covariances_are_those_of_a_test_of_two_classes():
    window = ClassMoments().update(X, Y)
    report = DriftMonitor(REFERENCE, window=700, calibration=0).update(X, Y)[0]
    assert [*report.classes] == ["ant", "bee", "cow"]
    for label, found in report.classes.items():
        both = pair(REFERENCE, window, label)
        expected = means_test(both).hotelling_t2
        assert found.n_rows == both.class_count[1]
        assert found.means.statistic == pytest.approx(expected.statistic)
        assert found.means.df == expected.df
        assert found.means.p_value == pytest.approx(expected.p_value)
        expected = covariance_test(both).chi_square
        assert found.covariances.statistic == pytest.approx(expected.statistic)
        assert found.covariances.p_value == pytest.approx(expected.p_value)
        divergence = separability(both, "divergence", ddof=1)[0, 1]
        assert found.divergence == pytest.approx(divergence)


@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_offsets_cost_no_digits(covariance_type):
    rows, reports = np.round(X * 2**8) / 2**8, []
    for offset in (0, 2.0**40):
        reference = ClassMoments(covariance_type).update(rows[:300] + offset, Y[:300])
        monitor = DriftMonitor(reference, window=100, calibration=0)
        found = monitor.update(rows[300:600] + offset, Y[300:600])
        tests = [each.overall.tests for each in found]
        reports.append([one[name].statistic for one in tests for name in ("means", "recent means")])
    np.testing.assert_allclose(*reports, rtol=1e-6)


def test_all_rows_are_compared_whatever_their_labels():
    window = ClassMoments().update(X, np.zeros(700, int))
    old, labels = some_rows(3000, seed=1)
    everything = ClassMoments().update(old, np.zeros(len(labels), int))
    both = pair(everything, window, 0)
    for labels in (Y, None, np.where(np.arange(700) < 300, Y, None)):
        (report,) = DriftMonitor(REFERENCE, window=700, calibration=0).update(X, labels)
        assert report.overall.n_rows == 700
        assert report.overall.means.p_value == pytest.approx(means_test(both).wilks.p_value)
        chi_square = covariance_test(both).chi_square
        assert report.overall.covariances.p_value == pytest.approx(chi_square.p_value)
        assert sum(each.n_rows for each in report.classes.values()) == (
            0 if labels is None else sum(label is not None for label in labels)
        )


def test_without_covariances_each_feature_is_tested():
    reference, window = (m.reduce("diag") for m in (REFERENCE, ClassMoments().update(X, Y)))
    report = DriftMonitor(reference, window=700, calibration=0).update(X, Y)[0]
    old, labels = some_rows(3000, seed=1)
    for label, found in report.classes.items():
        a, b = old[labels == label], X[label == Y]
        t, p_value = stats.ttest_ind(a, b)
        assert found.means.statistic == pytest.approx((t**2).max())
        assert found.means.p_value == pytest.approx(min(1, 3 * p_value.min()))
        each = [stats.bartlett(a[:, j], b[:, j]) for j in range(3)]
        assert found.covariances.statistic == pytest.approx(max(test.statistic for test in each))
        p_value = min(1, 3 * min(test.pvalue for test in each))
        assert found.covariances.p_value == pytest.approx(p_value)
        divergence = separability(pair(reference, window, label), "divergence", ddof=1)[0, 1]
        assert found.divergence == pytest.approx(divergence)


def test_pooled_covariances_give_the_means_more_degrees_of_freedom():
    report = DriftMonitor(REFERENCE, window=700, covariance_type="tied").update(X, Y)[0]
    both = REFERENCE.reduce("tied"), ClassMoments("tied").update(X, Y)
    scatter = sum((sum(m.class_count) - 3) * m.covariance(ddof=1) for m in both)
    df = 3700 - 6
    for k, (label, found) in enumerate(report.classes.items()):
        n, m = (moments.class_count[k] for moments in both)
        gap = both[1].means[k] - both[0].means[k]
        t2 = n * m / (n + m) * gap @ np.linalg.solve(scatter / df, gap)
        assert found.means.statistic == pytest.approx(t2), label
        assert found.means.p_value == pytest.approx(stats.f.sf(t2 * (df - 2) / (3 * df), 3, df - 2))
        assert found.covariances is None
    report = DriftMonitor(REFERENCE, window=700, covariance_type="tied_diag").update(X, Y)[0]
    assert [each.covariances for each in report.classes.values()] == [None] * 3
    assert report.overall.covariances is not None


def test_class_shares_are_compared_by_a_g_test():
    for reference, window in (([50, 30, 20], [40, 40, 20]), ([900, 100], [20, 30])):
        g, _, df, _ = stats.chi2_contingency(
            [reference, window], correction=False, lambda_="log-likelihood"
        )
        found = drift.compare_shares(np.array(reference), np.array(window))
        n, sides = sum(reference) + sum(window), [sum(reference), sum(window)]
        columns = np.add(reference, window)
        q = 1 + (n * sum(1 / np.array(sides)) - 1) * (n * sum(1 / columns) - 1) / (6 * n * df)
        assert found.statistic == pytest.approx(g / q)
        assert found.df == (df,)
        assert found.p_value == pytest.approx(stats.chi2.sf(g / q, df))
    # Rare classes share a cell.
    together = drift.compare_shares(np.array([5000, 4000, 1000]), np.array([45, 40, 15]))
    found = drift.compare_shares(np.array([5000, 4000, 400, 300, 300]), np.array([45, 40, 5, 4, 6]))
    assert found == together
    few = drift.compare_shares(np.array([5000, 4000, 10]), np.array([45, 40, 1]))
    assert few == drift.compare_shares(np.array([5000, 4010]), np.array([45, 41]))
    assert drift.compare_shares(np.array([100, 1]), np.array([100, 0])) is None
    appeared = drift.compare_shares(np.array([5000, 0]), np.array([90, 10]))
    assert appeared.p_value < 1e-10


def test_alarms_are_the_tests_that_holm_s_correction_leaves():
    report = DriftMonitor(REFERENCE, window=700, level=0.05).update(X + np.array([0, 0, 0.5]), Y)[0]
    raw = {(None, "means"): report.overall.means.p_value, (None, "shares"): report.shares.p_value}
    raw |= {(label, "means"): each.means.p_value for label, each in report.classes.items()}
    rejected = multipletests([*raw.values()], 0.05, method="holm")[0]
    assert {*report.alarms} == {test for test, no in zip(raw, rejected, strict=True) if no}
    assert report.alarm
    for level in report.p_values.values():
        alarms = dataclasses.replace(report, level=level).alarms
        assert alarms == [test for test, p_value in report.p_values.items() if p_value <= level]
    assert report.p_values.keys() == raw.keys()
    assert "drift (" in repr(report)
    p_values = np.random.default_rng(0).uniform(size=20) ** 3
    np.testing.assert_allclose(drift.holm(p_values), multipletests(p_values, method="holm")[1])
    assert drift.holm([]).size == 0


def test_weights_count_and_constant_features_and_few_rows_are_left_out():
    weights = np.append(np.zeros(50), np.full(700, 3.0))  # as 700 rows without weights
    rows, labels = np.vstack([X[:50], X]), np.append(Y[:50], Y)
    (found,) = DriftMonitor(REFERENCE, window=700, calibration=0).update(rows, labels, weights)
    (expected,) = DriftMonitor(REFERENCE, window=700, calibration=0).update(X, Y)
    assert found.overall.n_rows == 700
    assert found.shares.p_value == pytest.approx(expected.shares.p_value)
    for label, each in expected.compared.items():
        assert found.compared[label].means.p_value == pytest.approx(each.means.p_value)
        assert found.compared[label].covariances.p_value == pytest.approx(each.covariances.p_value)
    old, labels = some_rows(3000, seed=1)
    old[:, 2] = 7
    monitor = DriftMonitor(ClassMoments().update(old, labels), window=700, least_rows=200)
    few = "cow"
    (found,) = monitor.update(X, Y)
    other = DriftMonitor(REFERENCE.select_features([0, 1]), window=700, least_rows=200)
    (expected,) = other.update(X[:, :2], Y)
    assert as_dict([found]) == as_dict([expected])
    assert found.classes[few].means is None
    assert (few, "means") not in found.p_values
    collinear = DriftMonitor(ClassMoments().update(old[:, [0, 1, 1]], labels), window=700)
    (found,) = collinear.update(X[:, [0, 1, 1]], Y)
    assert np.isnan(found.overall.divergence)
    assert found.overall.means.df[0] == 1  # each feature


def test_weighted_rows_without_drift_raise_few_alarms_of_recent_means():
    random = np.random.default_rng(8)
    rows = random.normal(size=(16_000, 2))
    weights = 3 * np.exp(rows[:, 0])  # so that the weighted mean is 1, not 0
    reference = ClassMoments().update(rows[:8000], np.zeros(8000), weights[:8000])
    options = {"window": 200, "calibration": 0}
    whole, cut = (DriftMonitor(reference, **options) for _ in range(2))
    reports = whole.update(rows[8000:], None, weights[8000:])
    assert sum(report.alarm for report in reports) <= 2
    shifted = DriftMonitor(reference, **options).update(rows[8000:] + 1, None, weights[8000:])
    assert sum(report.early for report in shifted) >= 20
    for start in range(8000, 9000, 7):
        cut.update(rows[start : start + 7], None, weights[start : start + 7])
    assert as_dict(cut.reports) == as_dict(reports[: len(cut.reports)])
    equal = DriftMonitor(REFERENCE, **options).update(X, Y, np.full(len(X), 3.0))
    plain = DriftMonitor(REFERENCE, **options).update(X, Y)
    for one, other in zip(equal, plain, strict=True):
        assert one.overall.recent == other.overall.recent


def test_covariances_are_tested_once_calibrated():
    rows, labels_of_rows = some_rows(12 * 300, seed=3)
    monitor = DriftMonitor(REFERENCE, window=300, calibration=10, level=1e-4)
    reports = monitor.update(rows, labels_of_rows)
    tested = [not np.isnan(report.overall.covariances.p_value) for report in reports]
    assert tested == [False] * 10 + [True] * 2
    roots = np.array([each.overall.covariances.statistic for each in reports]) ** (1 / 6)
    t = (roots[10] - roots[:10].mean()) / (roots[:10].std(ddof=1) * np.sqrt(1.1))
    assert reports[10].overall.covariances.p_value == pytest.approx(stats.t.sf(t, 9))
    fresh = DriftMonitor(REFERENCE, window=300, calibration=10, level=1e-4)
    wide, labels = some_rows(300, seed=4)
    far = wide + 5
    assert fresh.update(far, labels)[0].alarm
    later = fresh.update(rows, labels_of_rows)  # the window with the alarm does not count
    assert as_dict([later[10].overall]) == as_dict([reports[10].overall])
    *_, report = monitor.update(wide * 2 - wide.mean(axis=0), labels)
    assert (None, "covariances") in report.alarms


# --- the monitor ------------------------------------------------------------------------------


@cases("kind", KINDS, range(0, len(KINDS), 2))
def test_windows_and_early_alarms_do_not_depend_on_the_batches(kind):
    parts = quiet_and_shifted(1.0, n=900)
    rows, labels = (np.concatenate(both) for both in zip(*parts, strict=True))
    labels = np.where(np.arange(1600) % 7 == 0, None, labels)
    options = {"window": 100, "calibration": 5, "covariance_type": kind, "keep": 90}
    whole, cut = (DriftMonitor(REFERENCE, **options) for _ in range(2))
    whole.update(rows, labels)
    start = 0
    for size in (1, 99, 350, 0, 7, 500, 200, 1600):
        cut.update(rows[start : start + size], labels[start : start + size])
        start += size
        cut = DriftMonitor.from_bytes(cut.to_bytes())
    assert any(each.early for each in whole.reports)
    assert as_dict(cut.reports) == as_dict(whole.reports)
    assert cut.to_bytes() == whole.to_bytes()
    assert [each.start for each in whole.reports if not each.early] == [*range(0, 1600, 100)]
    assert cut.n_rows == 1600


def test_rows_come_from_any_container():
    for labels in (Y, None):
        expected = DriftMonitor(REFERENCE, window=300).update(X, labels)
        for rows in (
            pd.DataFrame(X, columns=["a", "b", "c"]),
            zarr.create_array({}, data=X),
            da.from_array(X, chunks=(200, 3)),
            scipy.sparse.csr_array(X),
            X.tolist(),
        ):
            found = DriftMonitor(REFERENCE, window=300).update(rows, labels)
            assert as_dict(found) == as_dict(expected)
    given = X.copy()
    monitor = DriftMonitor(REFERENCE, window=701)
    monitor.update(given, Y)
    given[:] = 0  # the monitor has its own copy
    (found,) = monitor.update(X[:1], Y[:1])
    (expected,) = DriftMonitor(REFERENCE, window=701).update(np.vstack([X, X[:1]]), [*Y, Y[0]])
    assert as_dict([found]) == as_dict([expected])


def test_reference_is_a_model_or_moments():
    old, labels = some_rows(3000, seed=1)
    expected = as_dict(DriftMonitor(REFERENCE, window=300).update(X, Y))
    qda = QuadraticDiscriminantAnalysis().fit(old, labels)
    monitor = DriftMonitor(qda, window=300)
    qda.partial_fit(old + 9, labels)
    assert as_dict(monitor.update(X, Y)) == expected
    lda = DriftMonitor(LinearDiscriminantAnalysis().fit(old, labels), window=300)
    assert lda.reference.covariance_type == "tied"
    for bad in (QuadraticDiscriminantAnalysis(), qda.model_, QuadraticDiscriminantAnalysis, None):
        with pytest.raises(TypeError, match=r"reference is .* expected ClassMoments"):
            DriftMonitor(bad, window=300)
    with pytest.raises(InvalidDataError, match="no rows"):
        DriftMonitor(ClassMoments(), window=300)


def test_bad_input_leaves_the_monitor_as_it_was():
    monitor = DriftMonitor(REFERENCE, window=300)
    monitor.update(X[:290], Y[:290])
    before = monitor.to_bytes()
    spoilt = X.copy()
    spoilt[650, 1] = np.nan
    lazy = da.from_array(X, chunks=(100, 3))
    unknown = lazy[lazy[:, 0] < np.inf]
    cases = [
        ((spoilt, Y), r"row 650, column 1 is nan"),
        ((X[:, :2], Y), "X has 2 features, but the reference has 3"),
        ((X, Y[:5]), "X has 700 rows but y has shape"),
        ((X, np.arange(700)), "do not mix"),
        ((X, Y, -np.ones(700)), r"sample_weight\[0\] is -1"),
        ((scipy.sparse.csr_array(spoilt), Y), "NaN"),
        ((pd.DataFrame(spoilt), Y), "row 650"),
        ((unknown,), r"X has row chunks of unknown size; call X.compute_chunk_sizes\(\)"),
        ((unknown, Y), "X has row chunks of unknown size, so y must be"),
    ]
    for arguments, message in cases:
        with pytest.raises(InvalidDataError, match=message):
            monitor.update(*arguments)
        assert monitor.to_bytes() == before
        assert not monitor.reports
    with pytest.raises(InvalidDataError, match="2 features"):
        monitor.reset(REFERENCE.select_features([0, 1]))
    with pytest.raises(InvalidDataError, match="do not mix"):
        monitor.reset(REFERENCE.relabel({"ant": 0, "bee": 1, "cow": 2}))
    assert monitor.to_bytes() == before
    assert len(monitor.update(X, Y)) == 3


def test_interrupted_windows_are_not_torn(monkeypatch):
    monitor = DriftMonitor(REFERENCE, window=100)
    monitor.update(X[:30], Y[:30])
    before, calls = monitor.to_bytes(), []
    real = drift.compare

    def compare(*parts):
        calls.append(parts)
        if len(calls) == 10:
            raise KeyboardInterrupt
        return real(*parts)

    monkeypatch.setattr("streamgda.estimators.drift.compare", compare)
    with pytest.raises(KeyboardInterrupt):
        monitor.update(X[30:], Y[30:])
    assert monitor.to_bytes() == before


def test_windows_that_are_being_added_are_not_seen(monkeypatch):
    """As a child does that is forked from another thread meanwhile."""
    monitor = DriftMonitor(REFERENCE, window=100)
    monitor.update(X[:30], Y[:30])
    seen, real = [], drift.compare

    def compare(*parts):
        seen.append((monitor.n_rows, len(monitor.reports), monitor.last_window))
        return real(*parts)

    monkeypatch.setattr("streamgda.estimators.drift.compare", compare)
    monitor.update(X[30:330], Y[30:330])
    assert len(monitor.reports) == 3
    assert {*seen} == {(30, 0, None)}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("window", 1), ("window", 2.5), ("window", None), ("level", 0), ("level", 1)),
        *(("calibration", 4), ("calibration", -1), ("least_rows", 1), ("keep", 0)),
        *(("recent", (0.1, 1.0)), ("covariance_type", "round")),
    ],
)
def test_parameters_out_of_range(name, value):
    with pytest.raises(InvalidParameterError, match=name):
        DriftMonitor(REFERENCE, **{"window": 10, name: value})


def test_a_reset_starts_again(tmp_path):
    monitor = DriftMonitor(REFERENCE, window=300, keep=3)
    assert monitor.last_window is None
    monitor.update(X, Y)
    assert monitor.last_window.means == pytest.approx(
        ClassMoments().update(X[300:600], Y[300:600]).means
    )
    monitor.reset(monitor.reference + monitor.last_window)
    assert monitor.reference.class_count.sum() == 3300
    assert monitor.n_rows == 700
    (first, second) = monitor.update(X, Y)
    assert [first.start, second.start] == [700, 1000]
    fresh = DriftMonitor(monitor.reference, window=300)
    assert first.overall == fresh.update(X[:300], Y[:300])[0].overall or np.isnan(
        first.overall.covariances.p_value
    )
    assert [each.start for each in monitor.reports] == [300, 700, 1000]
    assert not monitor.reset().alarm


def test_labels_of_two_types_and_of_new_classes():
    big = 2**60
    y = np.where(np.arange(400) % 2, big + 1, big)
    rows = np.random.default_rng(0).normal(size=(400, 2))
    monitor = DriftMonitor(ClassMoments().update(rows, y), window=100, calibration=None)
    for labels in (y, y.astype(np.uint64), y.astype(object)):
        for report in monitor.update(rows, labels):
            assert [*report.classes] == [big, big + 1]
    labels = np.where(np.arange(700) % 5 == 0, "eel", Y)  # one that the reference lacks
    (report,) = DriftMonitor(REFERENCE, window=700).update(X, labels)
    assert (None, "shares") in report.alarms
    assert "eel" not in report.classes


@pytest.mark.parametrize(("first", "then"), [("D", "h"), ("h", "D"), ("D", "ns"), ("ns", "D")])
def test_dates_of_two_units_are_the_same_classes(tmp_path, first, then):
    days = np.array(["2024-05-01T00", "2024-05-02T00", "2024-05-02T12"], "M8[h]")
    y = np.random.default_rng(0).integers(0, 2, len(X))
    plain = DriftMonitor(ClassMoments().update(X, y), window=90, calibration=5)
    dated = DriftMonitor(
        ClassMoments().update(X, days[y].astype(f"M8[{first}]")), window=90, calibration=5
    )
    for unit, third in ((first, False), (then, False), (then, then != "D"), (first, False)):
        y[::5] = 2 * third  # that class is not in the reference
        expected, found = plain.update(X, y), dated.update(X, days[y].astype(f"M8[{unit}]"))
        for a, b in zip(expected, found, strict=True):
            numbered = dict(zip(a.classes, b.classes.values(), strict=True))
            assert as_dict([a]) == as_dict([dataclasses.replace(b, classes=numbered)])
    assert len({*map(tuple, (each.classes for each in dated.reports))}) == 1
    dated.save(tmp_path / "it.zip")
    loaded = DriftMonitor.load(tmp_path / "it.zip")
    assert loaded.to_bytes() == dated.to_bytes()
    for monitor in (dated, loaded):
        monitor.reset(ClassMoments().update(X, days[y].astype("M8[D]")))
        (report, *_) = monitor.update(X, days[y].astype(f"M8[{then}]"))
        assert len(report.classes) == 2


def test_history_is_a_table():
    monitor = DriftMonitor(REFERENCE, window=300)
    reports = monitor.update(X, Y)
    table = pd.DataFrame(monitor.history)
    assert len(table) == 2 * 4
    whole = table[table["class"].isna()]
    assert whole["start"].tolist() == [0, 300]
    assert whole["p_shares"].tolist() == [each.shares.p_value for each in reports]
    bees = table[table["class"] == "bee"]
    assert bees["divergence"].tolist() == [each.classes["bee"].divergence for each in reports]
    assert bees["p_means"].tolist() == [each.classes["bee"].means.p_value for each in reports]
    assert "DriftReport" not in repr(monitor)
    assert "700 rows in windows of 300" in repr(monitor)


def test_a_saved_monitor_goes_on_and_a_damaged_one_is_refused(tmp_path):
    for labels in (None, Y):
        monitor = DriftMonitor(REFERENCE, window=60, calibration=5)
        monitor.update(X[:650], None if labels is None else labels[:650])
        monitor.save(tmp_path / "it.zip", offset=650)
        loaded = DriftMonitor.load(tmp_path / "it.zip")
        assert as_dict(loaded.reports) == as_dict(monitor.reports)
        assert loaded.alarm == monitor.alarm
        rest = X[650:], None if labels is None else labels[650:]
        assert as_dict(loaded.update(*rest)) == as_dict(monitor.update(*rest))
        assert loaded.to_bytes() == monitor.to_bytes()
    attributes, arrays = state_of(DriftMonitor.load(tmp_path / "it.zip"))
    for name, value in (
        ("X", arrays["X"][:, :2]),
        ("y", arrays["y"] + 5),
        ("weights", arrays["weights"] * 0),
        ("reports", arrays["reports"][:-1]),
        ("comparisons", arrays["comparisons"] * 2),
        ("sample", -arrays["sample"]),
        ("extra", arrays["X"]),
    ):
        with pytest.raises(FormatError, match="damaged"):
            restore(DriftMonitor, attributes, {**arrays, name: value})
    for name, value in (("window", 3), ("start", -1), ("level", 2), ("classes", None)):
        with pytest.raises(FormatError, match="damaged"):
            restore(DriftMonitor, {**attributes, name: value}, arrays)


@pytest.mark.slow
@pytest.mark.parametrize("draw", ["normal", "exponential"])
def test_false_alarms_are_as_rare_as_stated(draw):
    """Alarms without drift, of windows before and after the calibration."""
    random, level, streams, calibration, windows = np.random.default_rng(0), 0.05, 12, 20, 8
    alarms = np.zeros(calibration + windows)
    for _ in range(streams):
        rows = getattr(random, draw)(size=(3000 + 100 * alarms.size, 2))
        labels = random.integers(0, 2, len(rows))
        reference = ClassMoments("full").update(rows[:3000], labels[:3000])
        monitor = DriftMonitor(reference, window=100, level=level, calibration=calibration)
        reports = monitor.update(rows[3000:], labels[3000:])
        # An early report is one of the window that its rows are in.
        alarmed = {each.start // 100 for each in reports if each.alarm}
        alarms += [window in alarmed for window in range(alarms.size)]
    for found in (alarms[:calibration], alarms[calibration:]):
        n = found.size * streams
        assert stats.binomtest(int(found.sum()), n, level, alternative="greater").pvalue > 1e-3
        assert found.sum() > 0.1 * level * n


# --- recent means -----------------------------------------------------------------------------


def quiet_and_shifted(shift, n=3000, seed=7):
    """Rows like those of the reference, and a batch whose first feature is shifted."""
    rows, labels = some_rows(n + 700, seed=seed)
    rows[n:, 0] += shift
    return (rows[:n], labels[:n]), (rows[n:], labels[n:])


def test_recent_means_raise_an_alarm_before_the_window_is_full():
    quiet, shifted = quiet_and_shifted(3.0)
    monitor = DriftMonitor(REFERENCE, window=300, calibration=10, level=1e-3)
    assert not any(each.alarm for each in monitor.update(*quiet))
    early, *_ = monitor.update(*shifted)
    assert early.early
    assert early.alarm
    assert 3000 < early.stop < 3030
    assert early.alarms[0][1] == "recent means"
    assert "(not full), drift (" in repr(early)
    full = [each for each in monitor.reports if not each.early]
    assert [each.stop - each.start for each in full] == [300] * 12
    assert (None, "recent means") in full[10].alarms
    never = DriftMonitor(REFERENCE, window=300, recent=(), calibration=10)
    assert not any(each.early for each in [*never.update(*quiet), *never.update(*shifted)])


def test_a_monitor_says_from_which_row_on_it_can_alarm():
    monitor = DriftMonitor(REFERENCE, window=300, calibration=10, level=1e-3)
    expected = {"means": 300, "shares": 300, "covariances": 3300, "recent means": 3000}
    assert monitor.can_alarm_from == expected
    assert "can alarm from row 300 (means, shares), 3,000 (recent means), 3,300" in repr(monitor)
    quiet, _ = quiet_and_shifted(3.0)
    monitor.update(*quiet)
    assert monitor.can_alarm_from == dict.fromkeys(expected, 3300) | {"recent means": 3000}
    reset = monitor.reset().can_alarm_from
    assert reset == {"means": 3300, "shares": 3300, "covariances": 6300, "recent means": 6000}
    gaussian = DriftMonitor(REFERENCE, window=300, calibration=0, recent=())
    assert gaussian.can_alarm_from == dict.fromkeys(("means", "shares", "covariances"), 300)
    untested = DriftMonitor(REFERENCE, window=60, calibration=None)
    assert untested.can_alarm_from.keys() == {"means", "shares"}
    untested.update(3 * X, Y)
    assert all(np.isnan(each.overall.covariances.p_value) for each in untested.reports)
    assert DriftMonitor.from_bytes(untested.to_bytes()).to_bytes() == untested.to_bytes()


def test_monitors_saved_without_recent_means_go_on_without():
    quiet, shifted = quiet_and_shifted(1.0)
    older = DriftMonitor(REFERENCE, window=60, calibration=5, recent=())
    older.update(*quiet)
    attributes, arrays = state_of(older)
    attributes.pop("recent")
    arrays["reports"], arrays["comparisons"] = (
        arrays["reports"][:, :6],
        arrays["comparisons"][:, :12],
    )
    loaded = restore(DriftMonitor, attributes, arrays)
    assert as_dict(loaded.reports) == as_dict(older.reports)
    assert as_dict(loaded.update(*shifted)) == as_dict(older.update(*shifted))
    assert loaded.to_bytes() == older.to_bytes()


@pytest.mark.parametrize(("d", "weight"), [(1, 0.05), (5, 0.018)])
def test_limits_of_recent_means_are_exceeded_as_often_as_stated(d, weight):
    """Peaks of windows of Gaussian rows have the p-values of their distribution."""
    part = drift.Part(1e12, np.zeros(d), np.zeros(d), np.eye(d), 1e12)
    chart, random = WeightedMeans(part, (weight,), 250, 1), np.random.default_rng(0)
    course, peaks = chart.start(), []
    for _ in range(2000):
        course, _ = chart.add(
            course._replace(peaks=np.zeros(1)), random.normal(size=(250, d)), [9e9]
        )
        peaks.append(course.peaks)
    p_values = np.array([chart.p_values(peak, [()])[0] for peak in peaks])
    for level in (0.2, 0.05, 0.02):
        assert (p_values < level).mean() == pytest.approx(level, rel=0.35)
        assert chart.p_values(chart.limits(level, [()]), [()])[0] == pytest.approx(level, rel=1e-4)


def test_features_that_covary_perfectly_have_recent_means_of_each():
    quiet, shifted = quiet_and_shifted(3.0)
    copies = [0, 1, 1]
    reference = REFERENCE.project(np.eye(3)[copies])
    monitor = DriftMonitor(reference, window=300, calibration=10, level=1e-3)
    monitor.update(quiet[0][:, copies], quiet[1])
    early, *_ = monitor.update(shifted[0][:, copies], shifted[1])
    assert early.early
    assert early.compared[early.alarms[0][0]].recent.df == (1.0,)


def test_a_monitor_keeps_the_names_of_its_features():
    frame = pd.DataFrame(X, columns=[f"f{j}" for j in range(X.shape[1])])
    other = frame[frame.columns[::-1]]
    monitor = DriftMonitor(REFERENCE, window=50)
    assert REFERENCE.feature_names is None
    monitor.update(frame[:60], Y[:60])
    assert monitor.last_window.feature_names == monitor.reference.feature_names == (*frame,)
    monitor.reset(monitor.last_window).reset(REFERENCE)  # which has no names
    for each in (monitor, DriftMonitor.from_bytes(monitor.to_bytes())):
        with pytest.raises(InvalidDataError, match="Reorder the columns"):
            each.update(other, Y)
        with pytest.raises(InvalidDataError, match="Reorder the columns"):
            each.reset(ClassMoments().update(other, Y))
