"""Numeric parameters by name, and objects as tables of notebooks and as data frames."""

import re

import numpy as np
import pandas as pd
import pytest

from streamgda import ClassMoments, GaussianNB, accumulate
from streamgda.errors import InvalidParameterError
from streamgda.runtime.parameters import as_flag, as_integer, as_number, as_numbers, shown

HUGE = 10**400
ACCEPTED = {
    as_number: (np.float32(0.5), 2, 1e300),
    as_integer: (np.uint8(3), 0, 2**63 - 1),
    as_flag: (np.bool_(True), False),
    as_numbers: ([1, 2], np.ones(3, "f4")),
}
WRONG = {
    as_number: (True, "1", None, 1j, HUGE, np.nan, np.inf, [1.0], np.ma.masked),
    as_integer: (True, 1.0, "1", None, -1, 2**63, 10**5000),
    as_flag: (2, "yes", None, np.ones(2)),
    as_numbers: ([HUGE], [1j], ["1"], [[1], [2, 3]], np.ma.masked_equal([1, 2], 2)),
}


@pytest.mark.parametrize("check", ACCEPTED)
def test_checks_of_parameters(check):
    expected = () if check is as_flag else ("what is expected",)
    for given in ACCEPTED[check]:
        np.testing.assert_array_equal(check("a", given, *expected), given)
    for given in WRONG[check]:
        with pytest.raises(InvalidParameterError, match=r"a=.*; expected (what|True or False)"):
            check("a", given, *expected)
    assert len(shown(list(range(10_000)))) < 250


@pytest.mark.parametrize("given", ["9" * 400, "1.5" * 20, 10**30])
def test_budgets_that_no_machine_has(given):
    with pytest.raises(InvalidParameterError, match="max_memory="):
        accumulate(np.ones((3, 2)), [0, 1, 1], max_memory=given)


# --- display ----------------------------------------------------------------------------------

FRAME = pd.DataFrame(np.random.default_rng(0).normal(size=(90, 3)), columns=["a", "b", "<mass>"])
Y = np.repeat(["ant", "bee", "<wasp>"], 30)
MOMENTS = accumulate(FRAME, Y)


@pytest.mark.parametrize(
    ("moments", "told", "n_rows"),
    [
        (MOMENTS, "<td>bee</td><td>30</td>", 4),
        (accumulate(FRAME, Y, groups=np.arange(90) % 2), "rows by group 0=45, 1=45", 4),
        (ClassMoments().update(np.eye(500), np.arange(500)), "and 488 more", 13),
    ],
)
def test_notebooks_show_one_table(moments, told, n_rows):
    shown = moments._repr_html_()
    assert told in shown
    assert "<wasp>" not in shown
    assert (shown.count("<table>"), shown.count("<tr>")) == (1, n_rows)
    tags = re.findall(r"<(/?)(?:div|table|tr|td|th|b)\b", shown)
    assert tags.count("") == tags.count("/")
    assert "sk-top-container" in GaussianNB()._repr_html_()  # The class is that of scikit-learn.
