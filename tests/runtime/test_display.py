"""Objects as tables of notebooks and as data frames."""

import re

import numpy as np
import pandas as pd
import pytest

import streamgda
from streamgda import ClassMoments, accumulate

RANDOM = np.random.default_rng(0)
FRAME = pd.DataFrame(RANDOM.normal(size=(90, 3)), columns=["length", "width", "<mass>"])
Y = np.repeat(["ant", "bee", "<wasp>"], 30)
MOMENTS = accumulate(FRAME, Y)


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (lambda: MOMENTS, ["ClassMoments", "rows 90", "width", "<td>bee</td><td>30</td>"]),
        (lambda: accumulate(FRAME, Y, groups=np.arange(90) % 2), ["rows by group 0=45, 1=45"]),
    ],
)
def test_notebooks_show_one_table(made, told):
    shown = made()._repr_html_()
    assert all(text in shown for text in told), shown
    assert "<wasp>" not in shown
    assert shown.count("<table>") == 1
    tags = re.findall(r"<(/?)(\w+)", shown)
    assert all(
        sum(name == tag and not end for end, name in tags)
        == sum(name == tag and bool(end) for end, name in tags)
        for tag in ("div", "table", "tr", "td", "th", "b")
    )


def test_a_long_table_is_cut_to_a_screen():
    many = ClassMoments().update(RANDOM.normal(size=(1000, 2)), np.arange(1000) % 500)
    shown = many._repr_html_()
    assert shown.count("<tr>") == 13
    assert "and 488 more" in shown


def test_estimators_keep_the_diagram_of_scikit_learn():
    assert "sk-top-container" in streamgda.GaussianNB()._repr_html_()


@pytest.mark.parametrize(
    ("kind", "shape", "cell"),
    [
        ("full", (9, 3), (("bee", "width"), "length")),
        ("tied", (3, 3), ("width", "length")),
        ("diag", (3, 3), ("bee", "length")),
        ("tied_diag", (1, 3), ("variance", "length")),
        ("spherical", (3, 1), ("bee", "variance")),
        ("tied_spherical", (1, 1), ("variance", "variance")),
    ],
)
def test_covariances_come_as_frames(kind, shape, cell):
    moments = MOMENTS.reduce(kind) if kind != "full" else MOMENTS
    frame, values = moments.covariance(1, as_frame=True), moments.covariance(1)
    assert frame.shape == shape
    np.testing.assert_array_equal(frame.to_numpy().ravel(), values.ravel())
    bee = MOMENTS.classes.tolist().index("bee")
    expected = {
        "full": lambda: values[bee, 1, 0],
        "tied": lambda: values[1, 0],
        "diag": lambda: values[bee, 0],
        "tied_diag": lambda: values[0],
        "spherical": lambda: values[bee],
        "tied_spherical": lambda: values,
    }
    assert frame.loc[cell] == expected[kind]()
