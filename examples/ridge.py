"""Regress any column, with the best penalty, in one pass
======================================================

Ridge regression needs no more than the means and the scatter of features and targets. They are
summed once, in groups of rows: every penalty is compared by groups held out, and any column can be
the target, without reading a row again.

The rows are real: 442 people with diabetes, ten features and the progression of the disease after a
year, as scikit-learn has them (features have mean zero and the same variance).
"""

import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes

from streamgda import Ridge, accumulate

data = load_diabetes()
names = [*data.feature_names, "progression"]
columns = np.column_stack([data.data, data.target])
fold = np.random.default_rng(0).integers(0, 10, len(columns))

# %%
# One pass
# --------
#
# Moments of all columns, for each fold.

moments = accumulate(columns, np.zeros(len(columns), int), groups=fold)
print(moments)

# %%
# Penalties
# ---------
#
# Each fold is held out in turn. The scatter of the others gives the coefficients of each penalty,
# and the moments of the fold their squared error.

alphas = np.geomspace(1e-4, 10, 40)
start = time.perf_counter()
ridge = Ridge.from_moments(moments, target=len(names) - 1, alphas=alphas)
print(f"alpha={ridge.alpha_:.3g} of {alphas.size}, in {time.perf_counter() - start:.3f} s")
print(f"R squared {ridge.score(data.data, data.target):.3f}")
for name, coefficient in zip(names, ridge.coef_, strict=False):
    print(f"{name:>4}: {coefficient:7.1f}")

results = ridge.cv_results_
splits = [results[f"split{number}_test_score"] for number in range(10)]
figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
axes.plot(alphas, -np.transpose(splits), color="0.8")
axes.plot(alphas, -results["mean_test_score"], label="mean of the folds")
axes.axvline(ridge.alpha_, linestyle=":", label="chosen")
axes.set(xscale="log", xlabel="alpha", ylabel="squared error of the fold held out")
axes.legend()

# %%
# Another target
# --------------
#
# The same moments regress every other column on the rest: how much of it do the others know?

total, known = moments.total(), {}
for number, name in enumerate(names):
    others = Ridge.from_moments(total, target=number, alpha=1e-4)
    known[name] = others.score(np.delete(columns, number, axis=1), columns[:, number])
figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
axes.barh(list(known), list(known.values()))
axes.set(xlabel="R squared, from all other columns", xlim=(0, 1))
for name in sorted(known, key=known.get)[:-4:-1]:
    print(f"{name}: R squared {known[name]:.3f}")
