"""Drift that is real: one writer after another
=============================================

A model learns from a stream of rows, batch by batch, and is scored on each batch before it learns
from it. Rows that come one after the other resemble each other: a model
that forgets follows them, a model that keeps everything does not.

The stream is real: the 1,797 handwritten digits of scikit-learn in the order of their file, written
by 13 people. For comparison, the same images are shuffled: nothing drifts then, and whatever
differs is due to the order alone.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from streamgda import DriftMonitor, GaussianDiscriminantAnalysis
from streamgda.errors import ConstantFeatureWarning

warnings.simplefilter("ignore", ConstantFeatureWarning)  # Some pixels are empty at first.
BATCH, FIRST = 20, 400  # Numbers of rows.
images, digits = load_digits(return_X_y=True)
shuffled = np.random.default_rng(0).permutation(len(digits))
streams = {
    "in the order of the file": (images, digits),
    "shuffled": (images[shuffled], digits[shuffled]),
}


def batches(X: np.ndarray, y: np.ndarray, start: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return batches of rows and labels."""
    return [(X[i : i + BATCH], y[i : i + BATCH]) for i in range(start, len(y), BATCH)]


# %%
# Forget, or keep everything?
# ---------------------------
#
# With ``half_life``, a row counts half after that many further rows. Moments decay by one
# multiplication, whatever the number of rows behind them. Forgetting helps on the real stream. On
# the shuffled one it only makes the moments less certain.

half_lives = [None, 1000, 500, 250, 130]
scores = {}
for name, stream in streams.items():
    scores[name] = []
    for half_life in half_lives:
        model = GaussianDiscriminantAnalysis("tied", shrinkage=0.1)
        model.partial_fit(*batches(*stream)[0], classes=range(10))
        correct = []
        for X, y in batches(*stream, BATCH):
            correct.extend(model.predict(X) == y)
            model.partial_fit(X, y, half_life=half_life)
        scores[name].append(np.mean(correct))
        print(f"{name}, half-life {half_life}: {scores[name][-1]:.1%} correct")

# %%

figure, ax = plt.subplots(figsize=(6.4, 4), layout="constrained")
for name, values in scores.items():
    ax.plot(range(len(half_lives)), 100 * np.array(values), "o-", label=name)
ax.set_xticks(range(len(half_lives)), ["keeps all", *map(str, half_lives[1:])])
ax.set(xlabel="half-life, rows", ylabel="correct before they are learned, %")
ax.legend()

# %%
# A monitor
# ---------
#
# The monitor compares windows of a stream with the rows of its beginning. It needs the moments of
# these rows, not the rows. Its tests are at a level: without drift, a share of at most ``level`` of
# the windows raises an alarm. The windows are too small to compare each digit by itself, and so all
# images of a window are compared with all of the reference: labels are left out.

WINDOW = 100
reports = {}
for name, (X, y) in streams.items():
    reference = GaussianDiscriminantAnalysis("tied", shrinkage=0.1).fit(X[:FIRST], y[:FIRST])
    monitor = DriftMonitor(reference, window=WINDOW, level=0.01)
    reports[name] = [r for batch in batches(X, y, FIRST) for r in monitor.update(batch[0])]
    alarms = sum(report.alarm for report in reports[name])
    print(f"{name}: alarms in {alarms} of {len(reports[name])} windows")

# %%
# The smallest p-value of each window: below the line, it is an alarm.

figure, ax = plt.subplots(figsize=(8, 4), layout="constrained")
for name, own in reports.items():
    least = [max(min(report.p_values.values()), 1e-20) for report in own]
    ax.plot([FIRST + report.stop for report in own], least, "o-", label=name)
ax.axhline(0.01, color="grey", linestyle="--", label="level of the monitor")
ax.set(xlabel="rows", ylabel="smallest p-value", yscale="log")
ax.legend()

# %%
# A report says which test shows the drift, and how large it is.

print(reports["in the order of the file"][-1])
