"""Windows of a stream beside a reference: statistics, false alarms, containers, saving."""

import pickle

import numpy as np
import pandas as pd
import pytest
from samples import held
from scipy import sparse, stats

from streamgda import (
    ClassMoments,
    DriftMonitor,
    QuadraticDiscriminantAnalysis,
    accumulate,
    covariance_test,
    load,
    means_test,
)
from streamgda.errors import InvalidDataError, InvalidParameterError


def rows(n, shift=0.0, scale=1.0):
    random = np.random.default_rng(n)
    y = random.integers(0, 2, n)
    return scale * random.normal(size=(n, 3)) + 3 * y[:, None] + [shift, 0, 0], y


REFERENCE = accumulate(*rows(4000))
X, Y = rows(300)


def report_of(X, y, reference=REFERENCE):
    (report,) = DriftMonitor(reference, window=len(X), calibration=0).update(X, y)
    return report


# --- statistics -----------------------------------------------------------------------------------


def test_means_and_covariances_are_those_of_a_test_of_two_classes():
    """The reference and the window are two classes of each class."""
    report, window = report_of(X, Y), ClassMoments().update(X, Y)
    for k, found in report.classes.items():
        a, b = REFERENCE.select_classes([k]), window.select_classes([k])
        both = a.relabel({k: "a"}) + b.relabel({k: "b"})
        assert found.means.p_value == pytest.approx(means_test(both).wilks.p_value)
        box = covariance_test(both)
        assert found.covariances.statistic == pytest.approx(box.statistic)
        assert found.covariances.p_value == pytest.approx(box.f.p_value)
        S, T = both.covariance(ddof=1)
        offset = np.diff(both.means, axis=0)[0]
        inverses = np.linalg.inv(S), np.linalg.inv(T)
        divergence = np.trace(inverses[0] @ T + inverses[1] @ S) / 2 - 3
        divergence += offset @ (inverses[0] + inverses[1]) @ offset / 2
        assert found.divergence == pytest.approx(divergence)
        assert found.n_rows == (k == Y).sum()


@pytest.mark.parametrize("kind", ["full", "diag"])
def test_few_rows_are_compared_feature_by_feature(kind):
    d = 30 if kind == "full" else 3
    random = np.random.default_rng(0)
    A, B = random.normal(size=(500, d)), random.normal(size=(40, d)) + 0.2
    reference = ClassMoments(kind).update(A, np.zeros(500, int))
    found = report_of(B, np.zeros(40, int), reference).classes[0]
    p = stats.ttest_ind(A, B).pvalue.min()
    assert found.means.p_value == pytest.approx(min(1, d * p))
    ratio = B.var(axis=0, ddof=1) / A.var(axis=0, ddof=1)
    tails = np.minimum(stats.f.cdf(ratio, 39, 499), stats.f.sf(ratio, 39, 499))
    assert found.covariances.p_value == pytest.approx(min(1, 2 * d * tails.min()))


def test_pooled_covariances_are_of_all_classes_and_are_not_tested():
    tied = REFERENCE.reduce("tied")
    report = report_of(X, Y, tied)
    scatter = 4000 * tied.covariance() + 300 * ClassMoments("tied").update(X, Y).covariance()
    common, n = scatter / (4000 - 2 + 300 - 2), (Y == 1).sum()
    n *= REFERENCE.class_count[1] / (REFERENCE.class_count[1] + n)
    offset = X[Y == 1].mean(axis=0) - REFERENCE.means[1]
    t2 = n * offset @ np.linalg.solve(common, offset)
    assert report.classes[1].means.statistic == pytest.approx(t2)
    assert report.classes[1].covariances is None


def test_class_shares_are_compared_by_a_g_test():
    kept = np.append(np.flatnonzero(Y == 0)[:100], np.flatnonzero(Y == 1)[:60])
    report = report_of(X[kept], Y[kept])
    table = np.array([REFERENCE.class_count, [100, 60]])
    g, _, df, _ = stats.chi2_contingency(table, correction=False, lambda_="log-likelihood")
    n, (r, c) = table.sum(), (table.sum(axis=1), table.sum(axis=0))
    q = 1 + (n * (1 / r).sum() - 1) * (n * (1 / c).sum() - 1) / (6 * n * df)
    assert report.shares.statistic == pytest.approx(g / q)
    new = report_of(X, np.where(np.arange(300) % 5 == 0, 9, Y))  # Class 9 has no reference.
    assert new.alarms == ["shares"]
    assert 9 not in new.classes


def test_alarms_are_what_holm_s_correction_leaves():
    report = report_of(X + (Y == 1)[:, None] * [0, 0, 1.0], Y)
    assert report.alarms == [(1, "means")]
    assert report.alarm
    plain = {"shares": report.shares.p_value}
    for k, each in report.classes.items():
        plain |= {(k, "means"): each.means.p_value, (k, "covariances"): each.covariances.p_value}
    least = 0.0
    for left, key in zip(range(len(plain), 0, -1), sorted(plain, key=plain.get), strict=True):
        least = max(least, min(1, left * plain[key]))
        assert report.p_values[key] == pytest.approx(least)


def test_constant_features_small_classes_and_missing_labels_are_left_out():
    A, y = rows(1000)
    constant = accumulate(np.insert(A, 1, 7.0, axis=1), y)
    report = report_of(np.insert(X, 1, X[::-1, 0], axis=1), Y, constant)
    assert report.classes[0].means.df[0] == 3
    few = np.append(np.flatnonzero(Y == 0)[:100], np.flatnonzero(Y == 1)[:20])
    small = report_of(X[few], Y[few]).classes[1]
    assert (small.n_rows, small.means) == (20, None)
    report, expected = report_of(X, None), report_of(X, 0 * Y, REFERENCE.relabel({1: 0}))
    assert report.shares is None
    assert report.p_values == expected.p_values


# --- false alarms ---------------------------------------------------------------------------------


@pytest.mark.soak
@pytest.mark.parametrize(
    ("d", "window", "shares", "tails"),
    [
        (5, 100, [0.5, 0.5], None),
        (5, 400, [0.8, 0.15, 0.05], None),
        (20, 150, [0.5, 0.5], None),
        (50, 300, [0.7, 0.3], None),  # Covariances are tested feature by feature.
        (50, 900, [0.65, 0.35], None),
        (50, 80, [0.5, 0.5], None),  # Means are tested so, too.
        (5, 200, [0.7, 0.3], 5),  # Student's t: covariances by calibration
    ],
)
def test_false_alarms_are_as_rare_as_stated(d, window, shares, tails):
    random, alarms, calibration = np.random.default_rng(0), [], 20 if tails else 0
    for _ in range(10):
        mix, means = random.normal(size=(len(shares), d, d)), random.normal(size=(len(shares), d))

        def drawn(n, mix=mix, means=means):
            y = random.choice(len(shares), n, p=shares)
            Z = random.standard_t(tails, (n, d)) if tails else random.normal(size=(n, d))
            return np.einsum("ni,nij->nj", Z, mix[y]) + means[y], y

        reference = ClassMoments().update(*drawn(30 * window))
        options = {"window": window, "level": 0.05, "calibration": calibration}
        reports = DriftMonitor(reference, **options).update(*drawn(window * (60 + calibration)))
        alarms += [report.alarm for report in reports[calibration:]]
    most = 0.05 + 2.5 * np.sqrt(0.05 * 0.95 / len(alarms)) + (0.02 if tails else 0)
    assert np.mean(alarms) < most


def test_covariances_are_tested_once_calibrated():
    monitor = DriftMonitor(REFERENCE, window=200, calibration=5)
    early = monitor.update(*rows(1000))
    assert all(np.isnan(each.covariances.p_value) for r in early for each in r.classes.values())
    assert [report.alarm for report in early] == [False] * 5
    (found,) = monitor.update(*rows(200, scale=2))
    assert (0, "covariances") in found.alarms
    alarmed = DriftMonitor(REFERENCE, window=200, calibration=5)
    assert all(report.alarm for report in alarmed.update(*rows(1000, shift=2)))
    (report,) = alarmed.update(*rows(200))  # Windows that alarm calibrate nothing.
    assert np.isnan(report.classes[0].covariances.p_value)
    never = DriftMonitor(REFERENCE, window=200, calibration=None)
    (report,) = never.update(*rows(200, scale=1.5))
    assert report.classes[0].covariances is None


# --- rows -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["batches", "list", "sparse", "zarr", "dask", "frame"])
def test_windows_do_not_depend_on_batches_and_containers(kind):
    A, y = rows(650, shift=0.5)
    whole, monitor = (DriftMonitor(REFERENCE, window=100) for _ in range(2))
    expected = whole.update(A, y)
    assert [(r.start, r.stop) for r in expected] == [(k, k + 100) for k in range(0, 600, 100)]
    if kind == "batches":
        parts = np.split(np.arange(650), [1, 30, 250, 251, 640])
        found = [report for part in parts for report in monitor.update(A[part], y[part])]
    elif kind == "list":
        found = monitor.update(A.tolist(), y.tolist())
    elif kind == "sparse":
        found = monitor.update(sparse.csr_array(A), y)
    else:
        found = monitor.update(held(A, kind), held(y, kind))
    for one, other in zip(found, expected, strict=True):
        assert one.p_values == pytest.approx(other.p_values, rel=1e-6)
    assert whole.n_rows == monitor.n_rows == 650
    np.testing.assert_allclose(whole.last_window.means, monitor.last_window.means)


def test_bad_input_leaves_the_monitor_as_it_was():
    bad, frame = X.copy(), pd.DataFrame(X, columns=[*"abc"])
    bad[140] = np.nan
    monitor = DriftMonitor(QuadraticDiscriminantAnalysis().fit(frame, Y), window=100)
    monitor.update(X[:50], Y[:50])
    before = repr(monitor), monitor.to_bytes()
    for match, given in {
        "row 140": (bad, Y),
        "2 features, the": (X[:, :2], Y),
        "300 rows": (X, Y[:9]),
        "with labels and rows without": (X,),
        "feature names": (frame[[*"bca"]], Y),
    }.items():
        with pytest.raises(InvalidDataError, match=match):
            monitor.update(*given)
        assert (repr(monitor), monitor.to_bytes()) == before
    skipped = monitor.update(bad, Y, on_invalid="skip")
    assert [report.stop for report in skipped] == [100, 200, 300]


@pytest.mark.parametrize(
    ("reference", "given", "error", "match"),
    [
        (X, {}, TypeError, "reference"),
        (ClassMoments(), {}, InvalidDataError, "no row is left"),
        (REFERENCE, {"window": None}, InvalidParameterError, "window"),
        (REFERENCE, {"window": 1}, InvalidParameterError, "window"),
        (REFERENCE, {"level": 1.0}, InvalidParameterError, "level"),
        (REFERENCE, {"calibration": 3}, InvalidParameterError, "at least 5"),
        (REFERENCE, {"least_rows": 1}, InvalidParameterError, "least_rows"),
    ],
)
def test_parameters_out_of_range(reference, given, error, match):
    with pytest.raises(error, match=match):
        DriftMonitor(reference, **{"window": 100} | given)


def test_a_monitor_that_was_saved_goes_on(tmp_path):
    A, y = rows(1450)
    labels = np.array(["ant", "bee"])[y]
    monitor = DriftMonitor(accumulate(A, labels), window=100, calibration=5)
    monitor.update(A[:750], labels[:750])
    monitor.save(tmp_path / "monitor.npz")
    copies = load(tmp_path / "monitor.npz"), pickle.loads(pickle.dumps(monitor))
    expected = [report.p_values for report in monitor.update(A[750:], labels[750:])]
    assert len(expected) == 7
    assert ("bee", "covariances") in expected[0]
    for other in copies:
        reports = other.update(A[750:], labels[750:])
        assert [report.p_values for report in reports] == expected
    again = DriftMonitor(monitor.last_window, window=100)
    assert again.reference.class_count.sum() == 100
