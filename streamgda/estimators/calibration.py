"""The pass over rows held out that finds the temperature of posteriors."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamgda.engine.plan import plan_labelled
from streamgda.engine.reading import in_process, reading
from streamgda.models.calibration import N_SUMS, SHARPNESS, likelihoods
from streamgda.rows import Rows
from streamgda.rows.labels import check_expected, encode
from streamgda.runtime import threads

_BLOCK_ELEMENTS = 1 << 15  # scores that stay in the cache while their powers are summed


def likelihoods_of(estimator: Any, rows: Rows, max_memory: int | str | None = None) -> np.ndarray:
    """Return the log-likelihood of labelled rows, and its derivatives, at each sharpness.

    Parameters
    ----------
    estimator : MomentClassifier
        A fitted classifier.
    rows : Rows
        Rows with labels among its classes.
    max_memory : int or str, optional

    Returns
    -------
    ndarray, shape (N_SUMS, n_sharpnesses)
        Sums of `streamgda.models.calibration.likelihoods`.

    Raises
    ------
    InvalidDataError
        For rows that cannot be scored, and labels that are not among the classes.
    """
    scorer, classes = estimator._scorer("predict_joint_log_proba"), estimator.classes_
    rows, sparse = in_process(rows), scorer.model._takes_sparse
    slab_rows, rows = plan_labelled(
        rows, max_memory, int(scorer.model.held_bytes), copies=1, out_row_bytes=8 * classes.size
    )
    sums = np.zeros((N_SUMS, SHARPNESS.size))
    with reading(rows, slab_rows) as slabs:
        for slab in slabs:
            start = slab.first_row
            X, y, weights, numbers, _ = rows.rule.counted(slab, sparse)
            codes, found = encode(y, classes)
            check_expected(y, codes, found, classes, start, numbers)
            sums += add_up(scorer.function(X, start).T, codes, weights)
    return sums


def add_up(scores: np.ndarray, codes: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """Return the sums of `likelihoods` over rows, computed block by block on all threads."""
    if weights is None or not weights.size:
        weights = np.ones(codes.size)
    step = max(1, _BLOCK_ELEMENTS // len(scores))
    blocks = [slice(at, at + step) for at in range(0, codes.size, step)]
    calls = ((scores[:, block], codes[block], weights[block]) for block in blocks)
    return sum(threads.run(likelihoods, calls), np.zeros((N_SUMS, SHARPNESS.size)))
