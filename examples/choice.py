"""Breast cancer: choose a model, and believe its probabilities
============================================================

Which covariances, and how much regularisation? A grid search fits every candidate on every fold.
Here one pass over the rows yields the moments of each fold. The moments of a training set are sums
of those, and each candidate is algebra on them. A second pass scores all candidates on the rows
held out.

The rows are real: 569 tumours of scikit-learn's breast cancer data, 30 features that depend on each
other. Four tenths of them are kept for the end.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from streamgda import (
    GaussianDiscriminantAnalysis,
    GaussianDiscriminantCV,
    GaussianNB,
    Standardize,
)

data = load_breast_cancer()
X, test, y, truth = train_test_split(
    data.data, data.target_names[data.target], test_size=0.4, random_state=0, stratify=data.target
)

# %%
# Forty-five candidates
# ---------------------
#
# Separate covariances with seven amounts of shrinkage, each pooled with the common covariance by
# five amounts (Friedman's regularised discriminant analysis); common covariances, and diagonal
# ones. The features have very different units: a map standardises them, by the moments of each
# training set.

shrinkages, poolings = [0.0, 0.003, 0.01, 0.03, 0.1, 0.2, 0.4], [0.0, 0.1, 0.3, 0.6, 0.9]
smoothing = [1e-9, 1e-3, 1e-2, 1e-1, 1.0]
grid = [
    {"covariance_type": ["full"], "shrinkage": shrinkages, "pooling": poolings},
    {"covariance_type": ["diag", "tied"], "var_smoothing": smoothing},
]
started = time.perf_counter()
search = GaussianDiscriminantCV(grid, scoring="neg_log_loss", feature_map=Standardize()).fit(X, y)
took = time.perf_counter() - started
results = search.cv_results_
print(f"{len(results['params'])} candidates, {search.n_splits_} folds: {took:.2f} s")
for name, value in search.best_params_.items():
    print(f"best {name}: {value}")
print(f"log-loss of the rows held out: {-search.best_score_:.3f}")

# %%
# The scores
# ----------
#
# Between one covariance for each class and one for all, the best is near the latter, with a little
# shrinkage. Without any, the covariances of 30 features are too uncertain; diagonal ones miss that
# the features depend on each other.

losses, parameters = -np.asarray(results["mean_test_score"]), results["params"]
table = np.full((len(poolings), len(shrinkages)), np.nan)
for chosen, loss in zip(parameters, losses, strict=True):
    if chosen["covariance_type"] == "full":
        table[poolings.index(chosen["pooling"]), shrinkages.index(chosen["shrinkage"])] = loss
figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.4), layout="constrained")
image = left.imshow(table, cmap="viridis_r", aspect="auto")
left.set_xticks(range(len(shrinkages)), shrinkages)
left.set_yticks(range(len(poolings)), poolings)
left.set(xlabel="shrinkage", ylabel="pooling", title="separate covariances: log-loss")
figure.colorbar(image, ax=left)
for kind in ("diag", "tied"):
    own = [loss for p, loss in zip(parameters, losses, strict=True) if p["covariance_type"] == kind]
    right.plot(smoothing, own, "o-", label=kind)
right.axhline(losses.min(), color="grey", linestyle="--", label="best of all")
right.set(xscale="log", xlabel="var_smoothing", ylabel="log-loss")
right.legend()

# %%
# Tumours that no model has seen
# ------------------------------
#
# Naive Bayes counts features that say the same as if each said it again, and is much too sure; so
# is QDA without regularisation. ``calibrate`` divides their log-likelihoods by a temperature,
# chosen by rows that they were not fitted to. Accuracies stay the same.

models = {
    "naive Bayes": GaussianNB().fit(X[::2], y[::2]),
    "QDA": GaussianDiscriminantAnalysis().fit(X[::2], y[::2]),
}
probabilities, log_losses = {}, {}
for name, model in models.items():
    before = model.predict_proba(test)
    model.calibrate(X[1::2], y[1::2])
    probabilities |= {name: before, f"{name}, calibrated": model.predict_proba(test)}
    print(f"{name}: temperature {model.temperature:.1f}, {model.score(test, truth):.1%} correct")
probabilities["chosen"] = search.predict_proba(test)
print(f"chosen: {search.score(test, truth):.1%} correct")

# %%
# A model that is sure to 99 % should be wrong about one tumour in a hundred at most. Naive Bayes
# and QDA are sure about nearly all tumours, and wrong about too many of them. Calibrated, they are
# sure about half, and wrong about fewer.

for name, values in probabilities.items():
    log_losses[name] = log_loss(truth, values)
    sure = values.max(axis=1) > 0.99
    wrong = (search.classes_[values.argmax(axis=1)] != truth)[sure].sum()
    print(f"{name}: sure to 99 % about {sure.sum()} of {len(sure)} tumours, {wrong} of them wrong")

figure, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
bars = ax.barh(list(log_losses), list(log_losses.values()))
ax.bar_label(bars, fmt="%.3f", padding=3)
ax.set(xlabel="log-loss of tumours that no model has seen", xlim=(0, 1.2))
ax.invert_yaxis()
