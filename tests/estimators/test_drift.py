"""Windows of a stream beside a reference: statistics, false alarms, containers, saving."""

import pickle

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import zarr
from samples import blobs
from scipy import stats

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

RANDOM = np.random.default_rng(0)


def rows(n, d=3, n_classes=2, shift=0.0, scale=1.0, seed=None):
    random = RANDOM if seed is None else np.random.default_rng(seed)
    y = random.integers(0, n_classes, n)
    X = scale * random.normal(size=(n, d)) + 3 * y[:, None]
    X[:, 0] += shift
    return X, y


REFERENCE = accumulate(*rows(4000))


def report_of(X, y, **params):
    (report,) = DriftMonitor(REFERENCE, window=len(X), **{"calibration": 0} | params).update(X, y)
    return report


# --- statistics -----------------------------------------------------------------------------------


def test_means_and_covariances_are_those_of_a_test_of_two_classes():
    """The reference and the window are two classes of each class."""
    X, y = rows(300)
    report = report_of(X, y)
    window = ClassMoments().update(X, y)
    for k, found in report.classes.items():
        both = REFERENCE.select_classes([k]).relabel({k: "a"}) + window.select_classes([k]).relabel(
            {k: "b"}
        )
        assert found.means.p_value == pytest.approx(means_test(both).wilks.p_value)
        box = covariance_test(both)
        assert found.covariances.statistic == pytest.approx(box.statistic)
        assert found.covariances.p_value == pytest.approx(box.f.p_value)
        a, b = both.covariance(ddof=1)
        offset = np.diff(both.means, axis=0)[0]
        inverses = np.linalg.inv(a), np.linalg.inv(b)
        divergence = np.trace(inverses[0] @ b + inverses[1] @ a) / 2 - 3
        divergence += offset @ (inverses[0] + inverses[1]) @ offset / 2
        assert found.divergence == pytest.approx(divergence)
        assert found.n_rows == (y == k).sum()


@pytest.mark.parametrize("kind", ["full", "diag"])
def test_few_rows_are_compared_feature_by_feature(kind):
    random = np.random.default_rng(1)
    d = 30 if kind == "full" else 3
    A, B = random.normal(size=(500, d)), random.normal(size=(40, d)) + 0.2
    reference = ClassMoments(kind).update(A, np.zeros(500, int))
    monitor = DriftMonitor(reference, window=40, calibration=0)
    (report,) = monitor.update(B, np.zeros(40, int))
    found = report.classes[0]
    p = stats.ttest_ind(A, B).pvalue.min()
    assert found.means.p_value == pytest.approx(min(1, d * p))
    ratio = B.var(axis=0, ddof=1) / A.var(axis=0, ddof=1)
    tails = np.minimum(stats.f.cdf(ratio, 39, 499), stats.f.sf(ratio, 39, 499))
    assert found.covariances.p_value == pytest.approx(min(1, 2 * d * tails.min()))


def test_pooled_covariances_are_of_all_classes_and_are_not_tested():
    X, y = rows(300)
    tied = DriftMonitor(REFERENCE.reduce("tied"), window=300, calibration=0)
    (report,) = tied.update(X, y)
    scatter = 4000 * REFERENCE.reduce("tied").covariance()
    scatter += 300 * ClassMoments("tied").update(X, y).covariance()
    common = scatter / (4000 - 2 + 300 - 2)
    n = REFERENCE.class_count[1] * (y == 1).sum() / (REFERENCE.class_count[1] + (y == 1).sum())
    offset = X[y == 1].mean(axis=0) - REFERENCE.means[1]
    t2 = n * offset @ np.linalg.solve(common, offset)
    assert report.classes[1].means.statistic == pytest.approx(t2)
    assert report.classes[1].covariances is None


def test_class_shares_are_compared_by_a_g_test():
    X, y = rows(300)
    kept = np.append(np.flatnonzero(y == 0)[:100], np.flatnonzero(y == 1)[:60])
    report = report_of(X[kept], y[kept])
    table = np.array([REFERENCE.class_count, [100, 60]])
    g, _, df, _ = stats.chi2_contingency(table, correction=False, lambda_="log-likelihood")
    n, (r, c) = table.sum(), (table.sum(axis=1), table.sum(axis=0))
    q = 1 + (n * (1 / r).sum() - 1) * (n * (1 / c).sum() - 1) / (6 * n * df)
    assert report.shares.statistic == pytest.approx(g / q)
    new = report_of(X, np.where(np.arange(300) % 5 == 0, 9, y))  # a class without a reference
    assert new.alarms == ["shares"]
    assert 9 not in new.classes


def test_alarms_are_what_holm_s_correction_leaves():
    X, y = rows(400)
    X[y == 1, 2] += 1
    report = report_of(X, y)
    assert report.alarms == [(1, "means")]
    assert report.alarm
    plain = {"shares": report.shares.p_value}
    for k, each in report.classes.items():
        plain |= {(k, "means"): each.means.p_value, (k, "covariances"): each.covariances.p_value}
    ordered = sorted(plain, key=plain.get)
    least = 0.0
    for left, key in zip(range(len(plain), 0, -1), ordered, strict=True):
        least = max(least, min(1, left * plain[key]))
        assert report.p_values[key] == pytest.approx(least)


def test_constant_features_and_small_classes_are_left_out():
    X, y = rows(300)
    constant = accumulate(np.insert(rows(1000)[0], 1, 7.0, axis=1), rows(1000)[1])
    (report,) = DriftMonitor(constant, window=300, calibration=0).update(
        np.insert(X, 1, RANDOM.normal(size=300), axis=1), y
    )
    assert report.classes[0].means.df[0] == 3
    few = np.append(np.flatnonzero(y == 0)[:100], np.flatnonzero(y == 1)[:20])
    small = report_of(X[few], y[few]).classes[1]
    assert (small.n_rows, small.means) == (20, None)


def test_rows_without_labels_are_compared_with_all_classes():
    X, y = rows(300)
    (report,) = DriftMonitor(REFERENCE, window=300, calibration=0).update(X)
    assert report.shares is None
    one = REFERENCE.relabel({1: 0})
    (expected,) = DriftMonitor(one, window=300, calibration=0).update(X, np.zeros(300, int))
    assert report.p_values == expected.p_values
    monitor = DriftMonitor(REFERENCE, window=300)
    monitor.update(X[:10], y[:10])
    with pytest.raises(InvalidDataError, match="with labels and rows without"):
        monitor.update(X)


# --- false alarms ---------------------------------------------------------------------------------


@pytest.mark.soak
@pytest.mark.parametrize(
    ("d", "window", "shares", "tails"),
    [
        (5, 100, [0.5, 0.5], None),
        (5, 400, [0.8, 0.15, 0.05], None),
        (20, 150, [0.5, 0.5], None),
        (50, 300, [0.7, 0.3], None),  # covariances feature by feature
        (50, 900, [0.65, 0.35], None),
        (50, 80, [0.5, 0.5], None),  # means, too
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
            X = np.empty((n, d))
            for k in range(len(shares)):
                X[y == k] = Z[y == k] @ mix[k] + means[k]
            return X, y

        monitor = DriftMonitor(
            ClassMoments().update(*drawn(30 * window)),
            window=window,
            level=0.05,
            calibration=calibration,
        )
        reports = monitor.update(*drawn(window * (60 + calibration)))
        alarms += [report.alarm for report in reports[calibration:]]
    assert np.mean(alarms) < 0.05 + 2.5 * np.sqrt(0.05 * 0.95 / len(alarms)) + (
        0.02 if tails else 0
    )


def test_covariances_are_tested_once_calibrated():
    monitor = DriftMonitor(REFERENCE, window=200, calibration=5)
    early = monitor.update(*rows(1000))
    assert all(np.isnan(each.covariances.p_value) for r in early for each in r.classes.values())
    assert [report.alarm for report in early] == [False] * 5
    (found,) = monitor.update(*rows(200, scale=1.5))
    assert (0, "covariances") in found.alarms
    never = DriftMonitor(REFERENCE, window=200, calibration=None)
    (report,) = never.update(*rows(200, scale=1.5))
    assert report.classes[0].covariances is None


# --- rows -----------------------------------------------------------------------------------------


def test_windows_do_not_depend_on_batches_and_containers(tmp_path):
    X, y = rows(650, shift=0.5)
    whole = DriftMonitor(REFERENCE, window=100)
    expected = whole.update(X, y)
    assert [(r.start, r.stop) for r in expected] == [(k, k + 100) for k in range(0, 600, 100)]
    cut = DriftMonitor(REFERENCE, window=100)
    parts = np.split(np.arange(650), [1, 30, 250, 251, 640])
    found = [report for part in parts for report in cut.update(X[part], y[part])]
    stored = zarr.create_array(tmp_path / "X", data=X, chunks=(70, 3))
    containers = [
        (stored, y),
        (da.from_array(X, chunks=(90, 2)), da.from_array(y, chunks=90)),
        (pd.DataFrame(X), pd.Series(y)),
        (X.tolist(), y.tolist()),
    ]
    results = [DriftMonitor(REFERENCE, window=100).update(*given) for given in containers]
    for reports in (found, *results):
        assert len(reports) == 6
        for one, other in zip(reports, expected, strict=True):
            assert one.p_values == pytest.approx(other.p_values, rel=1e-6)
    assert whole.n_rows == cut.n_rows == 650
    np.testing.assert_allclose(whole.last_window.means, cut.last_window.means)
    names = pd.DataFrame(X, columns=list("abc"))
    qda = QuadraticDiscriminantAnalysis().fit(names, y)
    with pytest.raises(InvalidDataError, match="feature names"):
        DriftMonitor(qda, window=9).update(names[list("bca")], y)


def test_bad_input_leaves_the_monitor_as_it_was():
    X, y = rows(150)
    monitor = DriftMonitor(REFERENCE, window=100)
    monitor.update(X[:50], y[:50])
    before = repr(monitor), monitor._open.means
    bad = X.copy()
    bad[140, 1] = np.nan
    for given, match in [
        ((bad, y), r"NaN|row"),
        ((X[:, :2], y), "2 features, the reference has 3"),
        ((X, y[:9]), "rows"),
    ]:
        with pytest.raises(InvalidDataError, match=match):
            monitor.update(*given)
        assert repr(monitor) == before[0]
        np.testing.assert_array_equal(monitor._open.means, before[1])
    skipped = monitor.update(bad, y, on_invalid="skip")
    assert [report.stop for report in skipped] == [100, 200]


@pytest.mark.parametrize(
    ("name", "value"),
    [("window", None), ("window", 1), ("level", 1.0), ("calibration", 3), ("least_rows", 1)],
)
def test_parameters_out_of_range(name, value):
    with pytest.raises(InvalidParameterError, match=name):
        DriftMonitor(REFERENCE, **{"window": 100} | {name: value})


def test_references_that_are_none():
    with pytest.raises(TypeError, match="reference"):
        DriftMonitor(rows(9)[0], window=9)
    with pytest.raises(InvalidDataError, match="no row is left"):
        DriftMonitor(ClassMoments(), window=9)


def test_a_monitor_that_was_saved_goes_on(tmp_path):
    X, y = rows(1450)
    labels = np.array(["ant", "bee"])[y]
    reference = accumulate(X, labels)
    monitor = DriftMonitor(reference, window=100, calibration=5)
    monitor.update(X[:750], labels[:750])
    monitor.save(tmp_path / "monitor.npz")
    expected = None
    for other in (monitor, load(tmp_path / "monitor.npz"), pickle.loads(pickle.dumps(monitor))):
        reports = [report.p_values for report in other.update(X[750:], labels[750:])]
        expected = expected or reports
        assert len(reports) == 7
        assert ("bee", "covariances") in reports[0]
        assert reports == expected
    again = DriftMonitor(monitor.last_window, window=100)
    assert again.reference.class_count.sum() == 100


def test_moments_of_a_stream_are_exact_for_integers():
    X, y = blobs(500, 3, 2)
    X = np.round(X * 20).astype(np.int16)
    monitor = DriftMonitor(accumulate(X, y), window=250)
    monitor.update(X[:500], y[:500])
    np.testing.assert_array_equal(monitor.last_window.means, accumulate(X[250:], y[250:]).means)
