"""Rows that are shown: all, or a stratified sample."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamgda.errors import InvalidDataError
from streamgda.plots.projection import Directions
from streamgda.rows import as_source, names_of
from streamgda.rows.labels import as_labels, find
from streamgda.rows.names import join_names
from streamgda.rows.sources import check_lengths
from streamgda.runtime.parameters import as_integer

_BLOCK_VALUES = 1 << 24  # read at a time


@dataclass(frozen=True)
class Points:
    """Projected rows.

    Attributes
    ----------
    positions : ndarray, shape (n, n_directions)
        Inner products with the directions.
    codes : ndarray of int, shape (n,), or None
        Number of each label among the classes, -1 for others; None without labels.
    of : int
        Number of rows that these were chosen from.
    """

    positions: np.ndarray
    codes: np.ndarray | None
    of: int

    @classmethod
    def of_rows(
        cls, X: Any, y: Any, line: Directions, classes: np.ndarray, most: int | None
    ) -> Points:
        """Return the rows, or about `most` of them, with as large a share of each class.

        Raises
        ------
        InvalidDataError
            For rows or labels that cannot be used, or another number of labels than of rows.
        """
        if most is not None:
            most = as_integer("max_points", most, "at least 1 point, or None", 1)
        join_names(line.feature_names, names_of(X), "the estimator", InvalidDataError)
        source = as_source(X)
        labels = None if y is None else as_source(y, "y")
        if labels is not None:
            check_lengths(source, labels)
        codes = None if labels is None else find(as_labels(labels.whole()), classes)
        n = source.n_rows
        if most is None or math.isnan(n) or n <= most:
            positions = line.project(source.whole())
            return cls(positions, codes, len(positions))
        chosen = stratified(np.zeros(n, int) if codes is None else codes, most)
        step = max(1, _BLOCK_VALUES // max(1, *source.shape[1:]))
        parts = []
        for start in range(0, n, step):
            stop = min(start + step, n)
            own = chosen[np.searchsorted(chosen, start) : np.searchsorted(chosen, stop)]
            if own.size:
                parts.append(line.project(source.read(start, stop)[own - start]))
        return cls(np.concatenate(parts), None if codes is None else codes[chosen], n)


def stratified(codes: np.ndarray, most: int) -> np.ndarray:
    """Return the numbers of about `most` rows, in order: of each class as large a share.

    A class has at least one row. The choice is random, but the same for the same codes.
    """
    random = np.random.default_rng(0)
    order = np.argsort(codes, kind="stable")
    _, starts, counts = np.unique(codes[order], return_index=True, return_counts=True)
    shares = np.maximum(1, np.round(counts * (most / codes.size)).astype(int))
    picked = [
        order[start + random.choice(count, share, replace=False)]
        for start, count, share in zip(starts, counts, shares, strict=True)
    ]
    return np.sort(np.concatenate(picked))
