"""Scores of labelled rows that count: for accuracy and temperatures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from streamgda.engine.plan import plan_labelled
from streamgda.engine.reading import in_process, reading
from streamgda.errors import InvalidDataError
from streamgda.estimators.row_estimator import Scorer, validate_rows
from streamgda.models.calibration import N_SUMS, SHARPNESS, likelihoods
from streamgda.rows import Rows
from streamgda.rows.counting import CHECK_SUMS, SKIP_OR_FILL, RowRule, Slab
from streamgda.rows.labels import check_expected, find, label_of_none
from streamgda.rows.source import as_source
from streamgda.runtime import threads

_BLOCK_ELEMENTS = 1 << 15  # scores that stay in the cache while their powers are summed


class Scored(NamedTuple):
    """Scores of the rows of a slab that count, with labels and weights.

    Attributes
    ----------
    scores : ndarray, shape (n_rows,) or (n_rows, n_columns)
    labels : ndarray or CodedLabels
    weights : ndarray, float64, shape (n_rows,)
    numbers : ndarray of int
        Numbers of the rows in the slab.
    first_row : int
        Number of the first row of the slab.
    """

    scores: np.ndarray
    labels: Any
    weights: np.ndarray
    numbers: np.ndarray
    first_row: int

    @classmethod
    def of(cls, slab: Slab, rule: RowRule, invalid: np.ndarray | None) -> Scored:
        """Return what counts of a slab with scores in place of rows.

        Parameters
        ----------
        slab : Slab
        rule : RowRule
        invalid : ndarray of bool or None
            Rows that are invalid; None if there are none.

        Raises
        ------
        InvalidDataError
            For invalid rows that count, if the rule raises an error for them.
        """
        first_row, labels = slab.first_row, rule.labels(slab.y, first_row=slab.first_row)
        counts, weights, _ = rule.labels_to_count(labels, slab.weight, first_row)
        if invalid is not None:
            bad = counts & invalid
            if bad.any() and rule.action == "raise":
                row = first_row + int(bad.argmax())
                raise InvalidDataError(
                    f"Input X has an invalid row: row {row}; it holds NaN, infinity or "
                    f"nodata={rule.nodata}; {SKIP_OR_FILL}",
                    *("X", row),
                )
            counts &= ~invalid
        numbers = np.flatnonzero(counts)
        weights = weights[numbers] if weights.size else np.ones(numbers.size)
        return cls(slab.X[numbers], labels[numbers], weights, numbers, first_row)

    def codes(self, classes: np.ndarray) -> np.ndarray:
        """Return the codes of the labels; raise `InvalidDataError` for others than `classes`."""
        check_expected(self.labels, classes, self.first_row, self.numbers)
        return find(self.labels, classes)


def scored_rows(
    estimator: Any,
    scorer: Scorer,
    rows: Rows,
    max_memory: int | str | None = None,
) -> Callable[[], Iterator[Scored]]:
    """Return a function that scores labelled rows, slab by slab; it may be called repeatedly.

    Parameters
    ----------
    estimator : fitted estimator
    scorer : Scorer
    rows : Rows
    max_memory : int or str, optional
        Memory for rows in flight, their scores and the model.
    """
    rule, model, classes = rows.rule, scorer.model, scorer.labels
    filled = rule is not CHECK_SUMS or rows.weight is not None
    if filled:  # invalid rows that do not count are no error
        fill = None if classes is None else label_of_none(classes)
        scorer = scorer.filling(RowRule("fill", rule.nodata), fill)
    dtype = np.dtype(np.float64) if scorer.labels is None else scorer.labels.dtype
    X = as_source(validate_rows(estimator, rows.X)).map(scorer.function, dtype, scorer.columns)
    if getattr(rows.y, "shape", ())[1:] == (1,):
        rows = replace(rows, y=np.ravel(rows.y))  # as scikit-learn does, with a warning in `fit`
    read = in_process(replace(rows, X=X))
    row_bytes = dtype.itemsize * (scorer.columns or 1)
    slab_rows, read = plan_labelled(
        read, max_memory, int(model.held_bytes), out_row_bytes=row_bytes
    )

    def invalid(scores: np.ndarray) -> np.ndarray | None:
        if not filled:
            return None
        if classes is not None:
            return find(scores, classes) < 0
        return np.isnan(scores.reshape(len(scores), -1)).any(axis=1)

    def scored() -> Iterator[Scored]:
        with reading(read, slab_rows) as slabs:
            for slab in slabs:
                yield Scored.of(slab, rule, invalid(slab.X))

    return scored


def add_up(scores: np.ndarray, codes: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the sums of `likelihoods` over rows, computed block by block on all threads."""
    step = max(1, _BLOCK_ELEMENTS // len(scores))
    blocks = [slice(at, at + step) for at in range(0, codes.size, step)]
    calls = ((scores[:, block], codes[block], weights[block]) for block in blocks)
    return sum(threads.run(likelihoods, calls), np.zeros((N_SUMS, SHARPNESS.size)))
