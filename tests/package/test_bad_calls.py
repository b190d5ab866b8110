"""Bad calls of the whole public API, a few of those of `badcalls.py`."""

import badcalls
import numpy as np
import pytest
from grids import TIMES
from matplotlib import pyplot as plt

from streamgda import GaussianNB
from streamgda.errors import InvalidParameterError


def test_bad_calls_are_refused_by_name(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(str(tmp_path))  # strings are paths
    assert list(badcalls.wrong(limit=200 * TIMES)) == []
    plt.close("all")


@pytest.mark.parametrize(
    ("argument", "value"), [("on_invalid", np.full(3, "raise")), ("unlabelled", [[1, 2], [3]])]
)
def test_arrays_in_place_of_keywords_are_refused_by_name(argument, value):
    model = GaussianNB().fit([[0.0], [1.0], [2.0], [4.0]], [0, 0, 1, 1])
    with pytest.raises(InvalidParameterError, match=argument):
        model.partial_fit(np.array([[1.0]]), np.array([0]), **{argument: value})
