"""Bad calls of the whole public API, a few of those of `badcalls.py`."""

import badcalls
import pytest
from matplotlib import pyplot as plt


def test_bad_calls_are_refused_by_name(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(str(tmp_path))  # strings are paths
    assert list(badcalls.wrong(limit=200)) == []
    plt.close("all")
