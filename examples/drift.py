"""A stream that drifts
====================

A model learns from a stream of rows, batch by batch, and is scored on each batch before it learns
from it (the prequential score). Half-way, the stream changes: the classes move. A model that
forgets follows; a model that keeps everything does not. A monitor says when the change came.

The rows are synthetic: three Gaussian classes in four dimensions.
"""

import os
from collections.abc import Iterator

import matplotlib.pyplot as plt
import numpy as np

from streamgda import DriftMonitor, QuadraticDiscriminantAnalysis, prequential
from streamgda.datasets import GaussianStream
from streamgda.plots import plot_decision_boundary

SMALL = os.environ.get("STREAMGDA_EXAMPLES") == "small"
N_ROWS = 20_000 if SMALL else 400_000
BATCH = 100 if SMALL else 500
CHANGE = N_ROWS // 2

# %%
# The stream
# ----------
#
# Up to the change the class means stand still. From there on they turn about their centre.


def stream() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield batches of rows and labels."""
    before = GaussianStream(4, 3, seed=3, separation=2.0)
    after = GaussianStream(4, 3, seed=3, separation=2.0, period=2 * N_ROWS)
    for start in range(0, N_ROWS, BATCH):
        if start < CHANGE:
            yield before.rows(start, start + BATCH)
        else:  # the moving stream is at the same place at its row 0
            yield after.rows(start - CHANGE, start - CHANGE + BATCH)


batches = list(stream())

# %%
# Two models
# ----------
#
# With ``half_life``, a row counts half after that many further rows. Moments decay by one
# multiplication, whatever the number of rows behind them.

HALF_LIFE = N_ROWS / 40
models = {
    "keeps every row": (QuadraticDiscriminantAnalysis(), None),
    f"half-life of {HALF_LIFE:,.0f} rows": (QuadraticDiscriminantAnalysis(), HALF_LIFE),
}
curves = {}
for name, (model, half_life) in models.items():
    scores = prequential(model, batches, half_life=half_life, faded_half_life=N_ROWS / 50)
    curves[name] = np.array([(score.n_rows, score.faded_accuracy) for score in scores]).T
    last = 100 * curves[name][1, -1]
    print(f"{name}: {last:.1f} % correct at the end")

# %%
# A monitor
# ---------
#
# The monitor compares windows of the stream with the rows of its beginning. It needs the moments of
# these rows, not the rows. Its tests are at a level: without drift, a share of at most ``level`` of
# the windows raises an alarm.

WINDOW = N_ROWS // 80
quiet = GaussianStream(4, 3, seed=3, separation=2.0).rows(N_ROWS, N_ROWS + 20 * WINDOW)
monitor = DriftMonitor(QuadraticDiscriminantAnalysis().fit(*quiet), window=WINDOW, level=0.001)
divergences, alarms = [], []
for X, y in batches:
    for report in monitor.update(X, y):
        rows = (len(divergences) + 1) * WINDOW
        divergences.append((rows, monitor.history[-1]["divergence"]))
        if report.alarm:
            alarms.append(rows)
late = [rows for rows in alarms if rows > CHANGE]
early = sum(rows <= CHANGE for rows in alarms)
print(f"alarms before the change: {early} of {CHANGE // WINDOW} windows")
print(f"first alarm after it: {late[0] - CHANGE:,} rows later" if late else "no alarm after it")

# %%

figure, (top, bottom) = plt.subplots(2, 1, figsize=(8, 6), sharex=True, layout="constrained")
for name, (rows, accuracy) in curves.items():
    top.plot(rows, accuracy, label=name)
top.set(ylabel="faded accuracy", title="scores on rows that the model has not learnt yet")
top.set_ylim(bottom=min(accuracy[5:].min() for _, accuracy in curves.values()) - 0.02)
bottom.plot(*np.array(divergences).T, ".-", color="C2", label="divergence from the reference")
bottom.plot(alarms, np.zeros(len(alarms)), "|", color="C3", markersize=14, label="alarms")
bottom.set(xlabel="rows", ylabel="nats")
for ax in (top, bottom):
    ax.axvline(CHANGE, color="grey", linestyle="--", linewidth=1, label="the change")
    ax.legend(loc="best")

# %%
# What the two models believe at the end, with the last rows of the stream. The Gaussians of the
# model that keeps every row are a mixture of all places where its classes have been.

X, y = (np.concatenate(parts) for parts in zip(*batches[-4:], strict=True))
figure, axes = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
plane = models[f"half-life of {HALF_LIFE:,.0f} rows"][0].moments_.pca(2)
for ax, (name, (model, _)) in zip(axes, models.items(), strict=True):
    plot_decision_boundary(model, X[:400], y[:400], ax, directions=plane)
    ax.set_title(name)
