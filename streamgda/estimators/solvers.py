"""Base of LDA and QDA: solvers and covariance estimators, as in scikit-learn."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from streamgda.errors import InvalidParameterError, UnsupportedError
from streamgda.estimators.fitted import fitted
from streamgda.estimators.gaussian import DiscriminantAnalysis
from streamgda.estimators.single import SingleAsRows
from streamgda.estimators.validation import validate_labelled
from streamgda.models.covariance import Covariances
from streamgda.models.gaussian import GaussianModel
from streamgda.moments import ClassMoments
from streamgda.moments.structures import structure_of
from streamgda.rows import adapter_of, as_source
from streamgda.rows.invalid_rows import RowRule, as_matrix, rows_to_count
from streamgda.runtime.parameters import refuse, shown
from streamgda.storage.saved import State


@dataclass(frozen=True)
class GivenCovariances:
    """Covariances that a `covariance_estimator` found.

    Attributes
    ----------
    each : Covariances
        Those of the classes.
    total : ndarray, shape (n_features, n_features)
        That of all rows.
    """

    each: Covariances
    total: np.ndarray

    @classmethod
    def of(cls, estimator: Any, X: np.ndarray, y: np.ndarray, moments: ClassMoments) -> Self:
        """Fit copies of a covariance estimator to the rows of each class, and to all rows."""
        d = X.shape[1]

        def fitted(rows: np.ndarray) -> np.ndarray:
            copied = clone(estimator, safe=False)
            copied.fit(rows)
            if not hasattr(copied, "covariance_"):
                raise InvalidParameterError(
                    f"{type(estimator).__name__} does not have a covariance_ attribute after fit; "
                    f"expected an estimator such as those of sklearn.covariance"
                )
            covariance = np.atleast_2d(np.asarray(copied.covariance_, np.float64))
            if covariance.shape != (d, d) or not np.isfinite(covariance).all():
                raise InvalidParameterError(
                    f"the covariance_ of {type(estimator).__name__} has shape {covariance.shape}; "
                    f"expected finite numbers in shape {(d, d)}"
                )
            return covariance

        classes = moments.classes
        values = np.array([fitted(X[y == label]) for label in classes])
        each = Covariances(
            structure_of("full"),
            classes,
            moments.class_count,
            np.arange(d),
            values,
            epsilon=0.0,
            shrinkage=np.zeros(classes.size),
            means_low=moments.centred().mean_low,
        )
        return cls(each, fitted(X))


class SolvedDiscriminantAnalysis(SingleAsRows, DiscriminantAnalysis):
    """Base of the discriminant analyses with a `solver` and a `covariance_estimator`."""

    _any_sum_of_priors = True
    _SOLVERS: ClassVar[tuple[str, ...]]
    _NOT_WITH_SVD: ClassVar[str]  # the refusal of a covariance estimator

    solver: str
    shrinkage: Any
    covariance_estimator: Any
    store_covariance: bool

    _given: GivenCovariances | None = None

    # --- parameters ---------------------------------------------------------------------------

    def _kept(self) -> dict[str, Any]:
        if not isinstance(self.solver, str) or self.solver not in self._SOLVERS:
            raise refuse("solver", self.solver, f"one of {', '.join(map(repr, self._SOLVERS))}")
        estimator = self.covariance_estimator
        if estimator is not None and not hasattr(estimator, "fit"):
            raise refuse("covariance_estimator", estimator, "an object with a method fit, or None")
        return super()._kept()

    def _check_supported(self) -> None:
        """Raise an error for parameters that the solver does not support.

        Files of earlier versions may have them; their estimators go on as they were saved.
        """
        super()._check_supported()
        if self.solver == "svd":
            others = " or ".join(f"solver={name!r}" for name in self._SOLVERS if name != "svd")
            if self.shrinkage is not None:
                raise UnsupportedError(
                    f"shrinkage not supported with 'svd' solver: shrinkage={shown(self.shrinkage)} "
                    f"needs {others}"
                )
            if self.covariance_estimator is not None:
                raise InvalidParameterError(f"{self._NOT_WITH_SVD}. Try another solver: {others}")
        if self.covariance_estimator is not None and self.shrinkage not in (None, 0):
            raise InvalidParameterError(
                "covariance_estimator and shrinkage parameters are not None. Only one of the two "
                "can be set."
            )

    # --- learning -----------------------------------------------------------------------------

    def _accumulated(
        self,
        settings: Self,
        X: Any,
        y: Any,
        sample_weight: Any,
        rule: RowRule,
        first: bool,
        *more: Any,
    ) -> ClassMoments:
        moments = super()._accumulated(settings, X, y, sample_weight, rule, first, *more)
        if first:
            self._given = settings._given_covariances(self, X, y, sample_weight, rule, moments)
        return moments

    def _with_rows(self, settings: Self, X: Any, *arguments: Any) -> ClassMoments:
        if settings.covariance_estimator is not None:
            raise InvalidParameterError(
                "covariance_estimator needs all rows at once, and partial_fit gets them in parts; "
                "use fit, or a shrinkage"
            )
        return super()._with_rows(settings, X, *arguments)

    def _check_kept(self, settings: Self, rows_change: bool = True) -> None:
        if self._given is not None or settings.covariance_estimator is not None:
            raise InvalidParameterError(
                "covariance_estimator needs all rows at once, so that rows cannot be added or "
                "removed; call fit"
            )
        super()._check_kept(settings, rows_change)

    def _given_covariances(
        self,
        owner: Any,
        X: Any,
        y: Any,
        sample_weight: Any,
        rule: RowRule,
        moments: ClassMoments,
    ) -> GivenCovariances | None:
        """Return the covariances that the covariance estimator finds, if there is one."""
        if self.covariance_estimator is None:
            return None
        if not adapter_of(X).in_memory:
            kind = type(as_source(X).values).__name__
            raise InvalidParameterError(
                f"covariance_estimator needs rows in memory, and X is a {kind}; give "
                f"an array, or use a shrinkage, which follows from sums over the rows"
            )
        if sample_weight is not None:
            raise InvalidParameterError(
                "covariance_estimator takes no sample_weight; leave out one of them"
            )
        rows, labels = validate_labelled(owner, X, y, reset=False, rule=rule)
        rows = as_matrix(as_source(rows).whole())
        rows, labels, *_ = rows_to_count(rows, rule.as_labels(labels), None, rule)
        if rows.dtype.kind != "f":
            rows = rows.astype(np.float64)
        return GivenCovariances.of(self.covariance_estimator, rows, np.asarray(labels), moments)

    def _compute_model(self) -> GaussianModel:
        model = self._settings._make_model(self.moments_, self._given)
        self._report_constant_features(model)
        return model

    def _make_model(
        self, moments: ClassMoments, given: GivenCovariances | None = None
    ) -> GaussianModel:
        raise NotImplementedError

    def _known(self) -> dict[str, Any]:
        return {"given": self._given}

    def _total_covariance(self) -> Covariances | None:
        given = self._given
        if given is None:
            return None
        one, count = given.each, self.moments_.class_count.sum(keepdims=True)
        zero = np.zeros(1)
        return replace(
            one, classes=one.classes[:1], count=count, values=given.total[None], shrinkage=zero
        )

    def _check_removable(self) -> None:
        if self._given is not None:
            raise UnsupportedError(
                "leave-one-out has no formula for a covariance_estimator, which needs all rows "
                "for each fit; use a shrinkage"
            )
        super()._check_removable()

    # --- fitted attributes --------------------------------------------------------------------

    def _needs_solver(self, name: str, *solvers: str) -> None:
        """Raise AttributeError unless the model was found by one of the solvers."""
        check_is_fitted(self)
        if self._settings.solver not in solvers:
            raise AttributeError(
                f"{type(self).__name__} has {name} with solver="
                f"{' or '.join(map(repr, solvers))} only; it was fitted with "
                f"{self._settings.solver!r}"
            )

    def _needs_stored_covariance(self) -> None:
        """Raise AttributeError unless covariances were asked for."""
        check_is_fitted(self)
        if self._numbers is None and not self._settings.store_covariance:
            raise AttributeError(
                f"{type(self).__name__} has covariance_ with store_covariance=True only"
            )

    @fitted
    def means_(self) -> np.ndarray:
        """Class means, shape (n_classes, n_features); NaN for a class without rows."""
        check_is_fitted(self)
        return self._in_type(self._held.means)

    # --- saving -------------------------------------------------------------------------------

    def _state(self) -> State:
        check_is_fitted(self)
        if self._given is not None or self.covariance_estimator is not None:
            raise InvalidParameterError(
                "an estimator with a covariance_estimator cannot be saved, as its type is not one "
                "of this package; use pickle or joblib"
            )
        return super()._state()
