"""Examples show what they claim."""

from pathlib import Path
from runpy import run_path

import numpy as np
import pytest

plt = pytest.importorskip("matplotlib.pyplot")
pytestmark = pytest.mark.soak

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
    "digits": lambda shown: shown["accuracy"] > 0.97,
    "document_000": lambda shown: np.allclose(
        np.hstack([np.ravel(each) for each in shown["coefficients"]["right", "as given"]]),
        [1 / 7, 4 / 7, 4 / 7, 2 / 7, -64 / 7, -60 / 7, 39.8439],
        atol=1e-4,
    ),
    "document_001": lambda shown: (
        np.allclose(shown["lda_of_three"].predict_proba([shown["meeting"]]), 1 / 3)
        and (not shown["folder"] or (shown["same"], shown["lost"]) == (100, 0.049))
    ),
    "document_002": lambda shown: (
        max(shown["differences"][name] for name in ("QDA", "naive Bayes")) < 0.002
        and shown["differences"]["LDA"] > 0.05
    ),
    "document_003": lambda shown: max(shown["differences"]) < 1e-10,
    "document_004": lambda shown: (
        np.allclose(
            np.hstack([*shown["thresholds"].values()]), [1, 1.6931, 0.9288, 3.6427], atol=1e-4
        )
        and np.allclose([*shown["J"].values()], [4.2759, 1.0925], atol=1e-4)
        and shown["mean"][1] < shown["mean"][0] < shown["mean"][2]
    ),
    "mixtures": lambda shown: shown["accuracies"][shown["most"]] > shown["accuracies"][1] + 0.01,
    "raster": lambda shown: (shown["classes"] == shown["truth"] + 1).mean() > 0.98,
    "unknown_classes": lambda shown: shown["areas"]["relative Mahalanobis distance"] > 0.58,
}


@pytest.mark.parametrize("name", CLAIMS)
def test_an_example_shows_what_it_claims(name, monkeypatch):
    if name == "raster":
        for library in ("geopandas", "rioxarray"):
            pytest.importorskip(library)
    monkeypatch.setenv("STREAMGDA_EXAMPLES", "small")
    shown = run_path(str(Path(__file__).parents[2] / "examples" / f"{name}.py"))
    plt.close("all")
    assert CLAIMS[name](shown)
