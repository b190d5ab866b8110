"""Hospitals that share moments, not rows
======================================

Five hospitals measure the same quantities, and may not send their patients' rows to anybody. Each
computes the moments of its own rows: for each diagnosis a number of rows, a mean and a scatter
matrix. The sum of the moments is that of all rows, and so is every model that is computed from it.

The patients are synthetic: measurements in whole units, with a bias of each hospital's own. Moments
are sums over many rows, but a class with a row or two would give these away: the last section
leaves such classes out.
"""

import os

import matplotlib.pyplot as plt
import numpy as np

from streamgda import (
    ClassMoments,
    GaussianDiscriminantAnalysis,
    GroupedMoments,
    LinearDiscriminantAnalysis,
)
from streamgda.plots import plot_decision_boundary

SMALL = os.environ.get("STREAMGDA_EXAMPLES") == "small"
HOSPITALS = ("north", "east", "south", "west", "island")
SIZES = [8000, 5000, 3000, 1500, 70] if SMALL else [320_000, 200_000, 120_000, 400, 70]
DIAGNOSES = np.array(["healthy", "acute", "chronic"])
MEASURED = ("glucose", "pressure", "pulse", "sodium", "age", "creatinine")
random = np.random.default_rng(0)

# %%
# Rows that stay where they are
# -----------------------------

centres = np.array(
    [[95, 120, 70, 140, 45, 80], [140, 128, 92, 136, 52, 105], [118, 142, 78, 139, 66, 130]]
)
mixing = np.linalg.qr(random.normal(size=(6, 6)))[0] * [22, 20, 15, 6, 17, 26]
rows, labels = {}, {}
for name, size in zip(HOSPITALS, SIZES, strict=True):
    share = random.dirichlet([6, 2, 3])  # Each hospital has other patients.
    code = random.choice(3, size, p=share)
    noise = random.normal(size=(size, 6)) @ mixing.T
    bias = random.normal(scale=3.0, size=6)  # Its instruments are biased.
    rows[name] = np.rint(centres[code] + noise + bias).clip(0, 255).astype(np.uint8)
    labels[name] = DIAGNOSES[code]

# %%
# What is sent
# ------------
#
# Bytes, without pickle: the receiver runs no code of the sender. Their number does not
# depend on the number of rows.

messages = {name: ClassMoments().update(rows[name], labels[name]).to_bytes() for name in HOSPITALS}
for name, message in messages.items():
    raw = rows[name].nbytes
    print(f"{name:>7}: {len(labels[name]):>7,} rows, {raw:>9,} bytes; sent {len(message):,}")

# %%
# The sum is the whole
# --------------------
#
# Sums of whole numbers are exact: the model has the same bits as that of all rows in one place, in
# whatever order the messages arrive.

shared = sum(map(ClassMoments.from_bytes, messages.values()))
together = ClassMoments().update(
    np.concatenate(list(rows.values())), np.concatenate(list(labels.values()))
)
backwards = sum(map(ClassMoments.from_bytes, reversed(list(messages.values()))))
for found in (shared, backwards):
    assert (found.means == together.means).all()
    assert (found.covariance() == together.covariance()).all()
print("the same bits as of all rows in one place, in both orders")

# %%
# A hospital without labels
# -------------------------
#
# How good is a model for a hospital that has no labels? `GroupedMoments` keeps the moments of each
# hospital apart, and ``without`` subtracts one of them exactly. Each hospital's rows are classified
# by the model of all others together, and by the models of the others one by one.

grouped = GroupedMoments()
for name in HOSPITALS:  # Or sum what the five have sent.
    grouped.update(rows[name], labels[name], np.full(len(labels[name]), name))
equal = [1 / 3] * 3
pooled = GaussianDiscriminantAnalysis.from_moments(shared, priors=equal)
accuracy = {}
for name in HOSPITALS:
    together = GaussianDiscriminantAnalysis.from_moments(grouped.without(name), priors=equal)
    single = [
        GaussianDiscriminantAnalysis.from_moments(grouped[other], reg_param=1e-3, priors=equal)
        for other in HOSPITALS
        if other != name
    ]
    scores = [100 * model.score(rows[name], labels[name]) for model in (*single, together)]
    accuracy[name] = np.mean(scores[:-1]), scores[-1]
    print(f"{name:>7}: right by one other hospital %.1f %%, by all others %.1f %%" % accuracy[name])

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
place = np.arange(len(HOSPITALS))
for shift, name, values in zip(
    (-0.2, 0.2),
    ("of one other hospital, on average", "of all others"),
    np.transpose(list(accuracy.values())),
    strict=True,
):
    left.bar(place + shift, values, 0.38, label=f"moments {name}")
left.set_xticks(place, HOSPITALS)
left.set(ylabel="right, %", ylim=(np.min(list(accuracy.values())) - 5, 100))
left.set_title("accuracy on the rows of each hospital")
left.legend(loc="upper left")
plot_decision_boundary(pooled, rows["north"][:500], labels["north"][:500], right)
right.set_title("the model of all, with rows of one")

# %%
# Groups
# ------
#
# Moments of groups answer questions between groups. In which quantities do the instruments differ?
# With hospitals as classes, LDA finds the directions in which they differ most. Labels are
# replaced by `relabel`, without rows.

healthy = [
    ClassMoments.from_bytes(message).select_classes(["healthy"]).relabel({"healthy": name})
    for name, message in messages.items()
]
sites = LinearDiscriminantAnalysis.from_moments(sum(healthy), priors=[0.2] * 5)
figure, axes = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
image = axes[0].imshow(sites.means_ - pooled.means_[-1], cmap="RdBu", vmin=-6, vmax=6)
axes[0].set_xticks(range(6), MEASURED, rotation=30)
axes[0].set_yticks(range(5), sites.classes_)
axes[0].set_title("healthy people: mean less that of all")
figure.colorbar(image, ax=axes[0], shrink=0.8)
plot_decision_boundary(sites, ax=axes[1])
axes[1].set_title("hospitals as classes")

# %%
# Leaving again, and small classes
# --------------------------------
#
# A hospital that withdraws is subtracted, exactly. And a hospital may leave out classes with too
# few rows before it sends anything.

without = shared - ClassMoments.from_bytes(messages["island"])
rest = [ClassMoments.from_bytes(messages[name]) for name in HOSPITALS if name != "island"]
assert (without.means == sum(rest).means).all()
print(f"without the island: {without.class_count.sum():,.0f} rows")

LEAST = 20
own = ClassMoments.from_bytes(messages["island"])
sent = own.select_classes(own.classes[own.class_count >= LEAST])
print(f"the island sends {', '.join(sent.classes)}: each has {LEAST} rows or more")
