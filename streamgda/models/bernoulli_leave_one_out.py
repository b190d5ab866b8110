r"""Posteriors of zeros and ones, each row's by the model without that row.

Without a row of weight w, the weights of ones :math:`n_{kj}` and of zeros of its class lose w where
the row has them, and the weight of the class :math:`n_k` loses w:

.. math:: \ln p(x \mid k) = \sum_j \ln \frac{n_{kj}(x_j) - w + \alpha_j}{n_k - w + 2 \alpha_j}

where :math:`n_{kj}(x_j)` is the weight of the rows of class k that have the value of x in feature
j. For rows of weight one that is a linear function of x, with coefficients for each class. Scores
for other classes do not change.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Self

import numpy as np

from streamgda.errors import InvalidDataError
from streamgda.kernels.leave_one_out import pick, place
from streamgda.models.bernoulli import BernoulliModel, log_probabilities, ones_of
from streamgda.models.removals import ROUNDING, LeaveOneOutModel, Removal
from streamgda.moments import ClassMoments
from streamgda.rows.sparse import CompressedRows

_DENSE_VALUES = 1 << 17  # of rows with weights that are scored at a time


@dataclass(frozen=True)
class BernoulliLeaveOneOut(LeaveOneOutModel, BernoulliModel):
    """A model of zeros and ones, each of whose rows is scored without it.

    Parameters
    ----------
    ones : ndarray of float64, shape (n_classes, n_features)
        Weights of the rows with a one.
    count : ndarray of float64, shape (n_classes,)
    alpha : float or ndarray, shape (n_features,)
        Smoothing.
    prior_kind : str
        See `LeaveOneOutModel`.
    """

    ones: np.ndarray = field(kw_only=True)
    count: np.ndarray = field(kw_only=True)
    alpha: float | np.ndarray = field(kw_only=True)
    prior_kind: str = field(kw_only=True)

    @classmethod
    def without_rows(
        cls,
        model: BernoulliModel,
        moments: ClassMoments,
        alpha: float | np.ndarray,
        prior_kind: str,
    ) -> Self:
        """Return the model with what is needed of its moments.

        Parameters
        ----------
        model : BernoulliModel
            Model that was estimated from the moments.
        moments : ClassMoments
            Moments of the rows.
        alpha : float or ndarray, shape (n_features,)
            Smoothing of the model.
        prior_kind : str
            See `LeaveOneOutModel`.

        Returns
        -------
        BernoulliLeaveOneOut
            The model, ready to score rows.
        """
        values: dict[str, Any] = {f.name: getattr(model, f.name) for f in fields(BernoulliModel)}
        values |= {"ones": ones_of(moments), "count": moments.class_count.astype(np.float64)}
        return cls(**values, alpha=alpha, prior_kind=prior_kind)

    @property
    def _factors(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Those of the classes, and below them without a row of weight one and all their values."""
        n = self.count[:, None]
        rest = _left(self.ones, 1.0), _left(n - self.ones, 1.0)
        log_one, log_zero = log_probabilities(*rest, n - 1.0, self.alpha)
        return (
            np.concatenate([self.log_one, log_one]),
            np.concatenate([self.log_zero, log_zero]),
            np.append(self.log_priors, self.log_priors),
        )

    def _scores(self, X: Any, removal: Removal, first: int) -> np.ndarray:
        if self.prior_kind == "given" or self.classes.size == 1:
            self._refuse_emptied(removal, first)
        scores, reduced = np.split(self._joint(X), 2)
        own = np.empty(len(X))
        pick(reduced, removal.codes, own)
        step = max(1, _DENSE_VALUES // self.n_features)
        for start in range(0, 0 if removal.unit else len(X), step):
            part = slice(start, start + step)
            rows = X[part]
            if type(rows) is CompressedRows:
                rows = np.array([rows.row(r) for r in range(len(rows))])
            own[part] = self._own_scores(rows, removal, part)
        own += self._prior_changes(removal)
        place(own, removal.codes, scores)
        return scores

    def _own_scores(self, X: np.ndarray, removal: Removal, part: slice) -> np.ndarray:
        """Return the scores of some rows for their own classes, with the priors of all rows."""
        codes, weights = removal.codes[part], removal.weights[part, None]
        ones, n = self.ones[codes], self.count[codes, None]
        alike = np.where(X, ones, n - ones)
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(_left(alike, weights) + self.alpha)
            logs -= np.log(_left(n, weights) + 2 * self.alpha)
        scores = self.log_priors[codes] + logs.sum(axis=1)
        return np.where(removal.empties[part], 0.0, scores)

    def _refuse_emptied(self, removal: Removal, first: int) -> None:
        """Raise `InvalidDataError` for the only row of a class with a fixed prior."""
        if removal.empties.any():
            at = int(removal.empties.argmax())
            raise InvalidDataError(
                f"row {first + at} is the only one of class "
                f"{self.classes[removal.codes[at]]!s}, which has a fixed prior and no rows "
                f"without it. Leave out the class, or its prior"
            )


def _left(total: np.ndarray, weights: Any) -> np.ndarray:
    """Return totals less weights; zero if that is no more than rounding."""
    return np.where(total - weights > ROUNDING * total, total - weights, 0.0)
