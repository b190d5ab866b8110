"""Regress any column, with the best penalty, in one pass
======================================================

Ridge regression needs no more than the means and the scatter of features and targets. They are
summed once, in groups of rows: every penalty is compared by groups held out, and any column can be
the target, without reading a row again.

The rows are synthetic: sensors that measure a few hidden quantities, at several sites.
"""

import os
import time

import matplotlib.pyplot as plt
import numpy as np

from streamgda import Ridge, accumulate

SMALL = os.environ.get("STREAMGDA_EXAMPLES") == "small"
N_ROWS, D, HIDDEN, SITES = (600, 12, 4, 6) if SMALL else (20_000, 60, 12, 10)

random = np.random.default_rng(0)
site = random.integers(0, SITES, N_ROWS)
hidden = random.normal(size=(N_ROWS, HIDDEN)) + 0.5 * random.normal(size=(SITES, HIDDEN))[site]
X = hidden @ random.normal(size=(HIDDEN, D)) + random.normal(size=(N_ROWS, D)) + 1e4
X[:, 0] += random.normal(size=SITES)[site]  # drifts from site to site

# %%
# One pass
# --------
#
# Moments of all columns, for each site.

start = time.perf_counter()
moments = accumulate(X, np.zeros(N_ROWS, int), groups=site)
print(f"{moments}, in {time.perf_counter() - start:.2f} s")

# %%
# Penalties
# ---------
#
# Each site is held out in turn. The scatter of the others gives the coefficients of each penalty,
# and the moments of the site their squared error.

alphas = np.geomspace(1, 1e6, 25)
start = time.perf_counter()
ridge = Ridge.from_moments(moments, target=0, alphas=alphas)
print(f"alpha={ridge.alpha_:.3g} of {alphas.size}, in {time.perf_counter() - start:.2f} s")
print(f"R squared {ridge.r2_:.3f}, standard errors to {ridge.standard_errors_.max():.2g}")

results = ridge.cv_results_
splits = [results[f"split{number}_test_score"] for number in range(SITES)]
figure, axes = plt.subplots(figsize=(6, 4))
axes.plot(alphas, -np.transpose(splits), color="0.8")
axes.plot(alphas, -results["mean_test_score"], label="mean of the sites")
axes.axvline(ridge.alpha_, linestyle=":", label="chosen")
axes.set(xscale="log", xlabel="alpha", ylabel="squared error of the site held out")
axes.legend()

# %%
# Another target
# --------------
#
# The same moments regress every other sensor on the rest: what is left over says which of them
# could be spared.

total = moments.total()
left = [Ridge.from_moments(total, target=column, alpha=1.0).r2_ for column in range(D)]
print(f"sensor {int(np.argmax(left))} follows best from the others: R squared {max(left):.3f}")

plt.show()
