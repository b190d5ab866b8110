"""Reports of drift, and the statistics they are calibrated by, as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from streamgda.models.covariance_test import Approximation
from streamgda.models.drift import ALL, Comparison, DriftReport
from streamgda.storage.checks import MOST_ROWS

# Statistics by class, and degrees of freedom of Box's M (1 or more) or weight of recent means.
Sample = Mapping[tuple[Any, float], tuple[float, ...]]

# Columns: degrees of freedom that a test does not have, and tests that there are not, are NaN.
_WIDTHS = {"reports": 7, "comparisons": 16, "sample": 3}
_OLDER_WIDTHS = {"reports": 6, "comparisons": 12}  # of 0.2.0, without recent means
NAMES = [*_WIDTHS]


def as_arrays(
    reports: Sequence[DriftReport], sample: Sample, classes: np.ndarray
) -> dict[str, np.ndarray]:
    """Return reports and samples as arrays in which classes have their number, all rows -1."""
    codes = dict(zip([ALL, *classes.tolist()], range(-1, classes.size), strict=True))
    tables: dict[str, list[tuple[float, ...]]] = {
        "reports": [
            (each.start, each.stop, *_numbers(each.shares), each.early) for each in reports
        ],
        "comparisons": [
            (
                *(number, codes[label], each.n_rows, each.divergence),
                *(number for test in each.tests.values() for number in _numbers(test)),
            )
            for number, report in enumerate(reports)
            for label, each in report.compared.items()
        ],
        "sample": [
            (codes[label], df, value) for (label, df), values in sample.items() for value in values
        ],
    }
    return {
        name: np.array(rows, np.float64).reshape(len(rows), _WIDTHS[name])
        for name, rows in tables.items()
    }


def from_arrays(
    arrays: Mapping[str, np.ndarray], classes: np.ndarray, level: float
) -> tuple[tuple[DriftReport, ...], dict[tuple[Any, float], tuple[float, ...]]]:
    """Return the reports and the samples of the result of `as_arrays`.

    Raises
    ------
    ValueError, LookupError
        If the arrays do not fit each other or the classes.
    """
    arrays = dict(arrays)
    for name, width in _WIDTHS.items():
        array = arrays[name]
        if array.ndim == 2 and array.shape[1] == _OLDER_WIDTHS.get(name):
            missing = np.full((len(array), width - array.shape[1]), np.nan)
            arrays[name] = array = np.hstack([array, missing])
        if array.ndim != 2 or array.shape[1] != width or array.dtype != np.float64:
            raise ValueError(f"{name} has shape {array.shape} and dtype {array.dtype}")
    labels = [*classes.tolist(), ALL]  # number -1 is the last
    compared: list[dict[Any, Comparison]] = [{} for _ in arrays["reports"]]
    for number, code, n_rows, divergence, *tests in arrays["comparisons"].tolist():
        label = labels[_whole(code, -1, len(labels) - 2)]
        found = Comparison(n_rows, divergence, *(_test(*tests[k : k + 4]) for k in (0, 4, 8)))
        compared[_whole(number, 0, len(compared) - 1)][label] = found
    reports = []
    for (start, stop, *shares, early), classes_found in zip(
        arrays["reports"].tolist(), compared, strict=True
    ):
        rows = _whole(start, 0, MOST_ROWS), _whole(stop, 0, MOST_ROWS)
        overall = classes_found.pop(ALL)
        of_shares, is_early = _test(*shares), early == 1
        report = DriftReport(*rows, level, overall, classes_found, of_shares, early=is_early)
        reports.append(report)
    sample: dict[tuple[Any, float], tuple[float, ...]] = {}
    for code, df, value in arrays["sample"].tolist():
        if not (df > 0 and 0 <= value < np.inf):
            raise ValueError(f"sample has the statistic {value} of {df} degrees of freedom")
        key = labels[_whole(code, -1, len(labels) - 2)], df
        sample[key] = (*sample.get(key, ()), value)
    return tuple(reports), sample


def _numbers(test: Approximation | None) -> tuple[float, ...]:
    """Return a test as four numbers: statistic, two degrees of freedom, p-value."""
    if test is None:
        return (np.nan,) * 4
    return float(test.statistic), test.df[0], [*test.df, np.nan][1], float(test.p_value)


def _test(statistic: float, df1: float, df2: float, p_value: float) -> Approximation | None:
    if np.isnan(df1):
        return None
    return Approximation(statistic, (df1,) if np.isnan(df2) else (df1, df2), p_value)


def _whole(value: float, least: int, most: int) -> int:
    if not (least <= value <= most and value == int(value)):
        raise ValueError(f"{value} is not a whole number from {least} to {most}")
    return int(value)
