"""Parts of the tests of hypotheses: approximate distributions, and rows with weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from streamgda.errors import MergeError
from streamgda.moments import ClassMoments
from streamgda.moments.centred import CentredSums
from streamgda.moments.class_state import from_sums


@dataclass(frozen=True)
class Approximation:
    """A statistic with its approximate distribution under the hypothesis, chi-square or F.

    Attributes
    ----------
    statistic : float, or ndarray of one for each feature
    df : tuple of float
        One number of degrees of freedom for chi-square, two for F.
    p_value : float, or ndarray of one for each feature
        Zero if it is less than the smallest float64.
    """

    statistic: float | np.ndarray
    df: tuple[float, ...]
    p_value: float | np.ndarray


def by_effective_rows(moments: ClassMoments) -> ClassMoments:
    """Return moments with the weights of each class scaled to sum to its effective number of rows.

    A scatter then has as many degrees of freedom, approximately, as one of that many rows.
    """
    sums = moments.centred()
    if sums.squares is None:
        return moments
    structure, seen = sums.structure, sums.count > 0
    count = sums.effective_count(lambda each: each)
    scale = np.divide(count, sums.count, out=np.zeros_like(count), where=seen)
    if not structure.per_class:
        if np.ptp(scale[seen]) > 1e-9 * scale.max():
            raise MergeError(
                f"means_test() cannot weight the scatter of each class by its effective number of "
                f"rows: moments of covariance_type={structure.name!r} hold one pooled over all. "
                f"Accumulate 'full' moments, or rows without weights"
            )
        scale = scale[seen][:1]
    scatter = sums.scatter * scale.reshape(-1, *[1] * (sums.scatter.ndim - 1))
    scaled = CentredSums(structure, count, sums.mean, sums.mean_low, scatter)
    names = moments.feature_names
    return from_sums(ClassMoments, structure.name, moments.classes, scaled, feature_names=names)


def shown_size(test: Any) -> str:
    """Return the size of the data of a test as text."""
    return f"{test.n_rows:.6g} rows, {test.n_features} features, {test.n_classes} classes"


def shown_p(p_value: float | np.ndarray) -> str:
    """Return a p-value as text; one that is less than any float64 is not shown as zero."""
    return f"p = {p_value:.3g}" if p_value >= 1e-300 else "p < 1e-300"
