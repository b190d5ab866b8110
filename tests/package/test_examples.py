"""Examples show what they claim."""

from pathlib import Path
from runpy import run_path

import pytest

plt = pytest.importorskip("matplotlib.pyplot")
pytestmark = pytest.mark.slow

CLAIMS = {
    "anomalies": lambda shown: shown["found"] > 0.85,
    "choice": lambda shown: (
        shown["log_losses"]["naive Bayes, calibrated"] < 0.5 * shown["log_losses"]["naive Bayes"]
        and shown["log_losses"]["chosen"] == min(shown["log_losses"].values())
    ),
    "deep_features": lambda shown: shown["ours"][-1] > shown["theirs"][-1] + 0.5,
    "drift": lambda shown: (
        shown["scores"]["in the order of the file"][-1] > shown["scores"]["shuffled"][0] + 0.01
        and not any(report.alarm for report in shown["reports"]["shuffled"])
    ),
    "raster": lambda shown: (shown["classes"] == shown["truth"] + 1).mean() > 0.98,
    "unknown_classes": lambda shown: shown["areas"]["relative Mahalanobis distance"] > 0.58,
}


@pytest.mark.parametrize("name", CLAIMS)
def test_an_example_shows_what_it_claims(name, monkeypatch):
    if name == "raster":
        for library in ("geopandas", "rasterio", "pyogrio"):
            pytest.importorskip(library)
    monkeypatch.setenv("STREAMGDA_EXAMPLES", "small")
    shown = run_path(str(Path(__file__).parents[2] / "examples" / f"{name}.py"))
    plt.close("all")
    assert CLAIMS[name](shown)
