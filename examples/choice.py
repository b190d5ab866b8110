"""Choose among 50 models in one pass
==================================

Which covariances, and how much regularisation? A grid search fits every candidate on every fold.
Here one pass over the rows yields the moments of each fold. The moments of a training set are sums
of those, and each candidate is algebra on them. A second pass scores all candidates on the rows
held out.

The rows are synthetic: eight classes in 40 features with different covariances, and few rows for so
many parameters.
"""

import os
import time

import matplotlib.pyplot as plt
import numpy as np

from streamgda import GaussianDiscriminantAnalysis, GaussianDiscriminantCV
from streamgda.datasets import GaussianStream
from streamgda.plots import plot_confusion_matrix, plot_decision_boundary

SMALL = os.environ.get("STREAMGDA_EXAMPLES") == "small"
N_ROWS, D, K = (400, 16, 8) if SMALL else (800, 40, 8)

stream = GaussianStream(D, K, seed=5, separation=2.5)
X, y = stream.rows(0, N_ROWS)
test, truth = stream.rows(N_ROWS, 11 * N_ROWS)

# %%
# Fifty candidates
# ----------------
#
# Separate covariances with eight amounts of shrinkage, each pooled with the common covariance by
# five amounts (Friedman's regularised discriminant analysis); common covariances, and diagonal
# ones.

shrinkages = [0.0, 0.003, 0.01, 0.03, 0.1, 0.2, 0.4, 0.8]
poolings = [0.01, 0.05, 0.1, 0.3, 0.8]
smoothing = [1e-9, 1e-3, 1e-2, 1e-1, 1.0]
grid = [
    {"covariance_type": ["full"], "shrinkage": shrinkages, "pooling": poolings},
    {"covariance_type": ["diag", "tied"], "var_smoothing": smoothing},
]
started = time.perf_counter()
search = GaussianDiscriminantCV(grid, cv=5, scoring="neg_log_loss").fit(X, y)
took = time.perf_counter() - started
results = search.cv_results_
print(f"{len(results['params'])} candidates, {search.n_splits_} folds: {took:.1f} s")
print(f"best: {search.best_params_}, log-loss {-search.best_score_:.4f}")

# %%
# For comparison, one after the other: each candidate is fitted to each fold's rows. (Here only the
# first folds of some of them, from which the time of all follows.)

few = results["params"][:: len(results["params"]) // 5]
started = time.perf_counter()
for parameters in few:
    model = GaussianDiscriminantAnalysis(**parameters).fit(
        X[: N_ROWS * 4 // 5], y[: N_ROWS * 4 // 5]
    )
    model.predict_log_proba(X[N_ROWS * 4 // 5 :])
alone = (time.perf_counter() - started) / len(few) * len(results["params"]) * search.n_splits_
print(f"one fit a candidate and fold: about {alone:.1f} s, with the same fast fits")

# %%
# The scores
# ----------

losses = -np.asarray(results["mean_test_score"])
parameters = results["params"]
table = np.full((len(poolings), len(shrinkages)), np.nan)
for chosen, loss in zip(parameters, losses, strict=True):
    if chosen["covariance_type"] == "full":
        table[poolings.index(chosen["pooling"]), shrinkages.index(chosen["shrinkage"])] = loss
figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.4), layout="constrained")
image = left.imshow(np.log10(table), cmap="viridis_r", aspect="auto")
left.set_xticks(range(len(shrinkages)), shrinkages)
left.set_yticks(range(len(poolings)), poolings)
left.set(xlabel="shrinkage", ylabel="pooling", title="separate covariances: log10 of the log-loss")
figure.colorbar(image, ax=left)
for kind in ("diag", "tied"):
    own = [loss for p, loss in zip(parameters, losses, strict=True) if p["covariance_type"] == kind]
    right.plot(smoothing, own, "o-", label=kind)
right.axhline(losses.min(), color="grey", linestyle="--", label="best of all")
right.set(xscale="log", yscale="log", xlabel="var_smoothing", ylabel="log-loss")
right.legend()

# %%
# The chosen model on new rows
# ----------------------------
#
# The best candidate is computed from the moments of all rows, without a further pass.

plain = GaussianDiscriminantAnalysis(reg_param=1e-6).fit(X, y)
for name, model in (("chosen", search), ("QDA without regularisation", plain)):
    print(f"{name}: {100 * model.score(test, truth):.1f} % of {len(test):,} new rows are right")

# %%

figure, axes = plt.subplots(1, 2, figsize=(11, 4.8), layout="constrained")
plot_confusion_matrix(search, test, truth, axes[0], normalize="true", text_kw={"fontsize": 8})
plot_decision_boundary(search.best_estimator_, test, truth, axes[1], max_points=600)
