"""What the Gaussian estimators share: covariances, distances, rejection, sampling."""

from __future__ import annotations

import warnings
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from streamgda.errors import ConstantFeatureWarning, InvalidDataError, InvalidParameterError
from streamgda.estimators.base import MomentClassifier
from streamgda.estimators.scoring import Blockwise
from streamgda.models.base import check_priors
from streamgda.models.covariance import Covariances, Regularisation, estimate
from streamgda.models.gaussian import GaussianModel
from streamgda.models.sampling import Sampler, sample
from streamgda.rows.labels import as_labels, find, join_labels


class GaussianClassifier(MomentClassifier):
    """Base of the Gaussian estimators; each says which covariances and regularisation it means."""

    _model_type = GaussianModel
    _fitted_model: GaussianModel | None

    def _regularisation(self) -> Regularisation:
        raise NotImplementedError

    def _kept(self) -> dict[str, Any]:
        return self._regularisation().needs(self._covariance_type())

    def _make_model(self) -> GaussianModel:
        model = GaussianModel.from_moments(
            self.moments_,
            self._covariance_type(),
            self._regularisation(),
            getattr(self, "priors", None),
        )
        self._report_constant_features(model)
        return model

    def _forget_model(self) -> None:
        super()._forget_model()
        self._fitted_covariances: Covariances | None = None

    def _report_constant_features(self, model: GaussianModel) -> None:
        constant = self._left_out(model)
        told = getattr(self, "_told_constant", None)
        if constant.size and (told is None or not np.array_equal(told, constant)):
            listed = ", ".join(map(str, constant[:10])) + (", ..." if constant.size > 10 else "")
            warnings.warn(
                f"{constant.size} of {self.n_features_in_} features are constant over all rows "
                f"and are left out of the density: {listed}",
                ConstantFeatureWarning,
                stacklevel=5,
            )
            self._told_constant = constant

    @property
    def _covariances(self) -> Covariances:
        """Of all features, constant ones too."""
        check_is_fitted(self, "moments_")
        if self._fitted_covariances is not None:
            return self._fitted_covariances
        covariances = estimate(
            self.moments_, self._covariance_type(), self._regularisation(), drop_constant=False
        )
        if getattr(self, "store_covariance", False):
            self._fitted_covariances = covariances
        return covariances

    def _left_out(self, model: GaussianModel) -> np.ndarray:
        return np.setdiff1d(np.arange(self.n_features_in_), model.features)

    @property
    def constant_features_(self) -> np.ndarray:
        """Numbers of the features that are constant over all rows: not in the density."""
        return self._left_out(self.model_)

    def predict(
        self, X: Any, *, out: Any = None, reject: float = 0.0, reject_label: Any = -1
    ) -> Any:
        """Most probable class of each row, or a label for rows that are of none.

        Parameters
        ----------
        X, out
            As of the other estimators: any array of rows, and where the result goes.
        reject : float in [0, 1)
            Rows are rejected whose p-value (see `p_values`) for the class predicted is below
            this: about so large a share of good rows is lost to it, if the classes are Gaussian.
        reject_label : label
            What rejected rows get: of the same kind as the classes' labels, and none of them.

        Returns
        -------
        ndarray, shape (n_rows,); or `out`; or a lazy dask array

        Raises
        ------
        InvalidDataError, InvalidParameterError
            For rows, an `out`, a `reject` or a `reject_label` that cannot be used.
        """
        return self._evaluate(
            self.blockwise("predict", reject=reject, reject_label=reject_label), X, out
        )

    def blockwise(self, method: str, **options: Any) -> Blockwise:
        """What a method says of rows, as a function of blocks of them; see `MomentClassifier`."""
        if method != "predict" or not options.keys() <= {"reject", "reject_label"}:
            return super().blockwise(method, **options)
        reject = options.get("reject", 0.0)
        if isinstance(reject, Real) and reject == 0:
            return super().blockwise(method)
        label = self._check_rejection(reject, options.get("reject_label", -1))
        rule = {"reject": float(reject), "label": label}
        function = partial(self.model_.predict_or_reject, **rule)
        return Blockwise("predict_or_reject", function, self.model_, label.dtype, None, rule)

    def _check_rejection(self, reject: Any, label: Any) -> np.ndarray:
        """The label for rejected rows, in a type that holds it and all classes."""
        if not isinstance(reject, Real) or not 0 <= float(reject) < 1:
            raise InvalidParameterError(f"reject={reject!r}; expected a number from 0 to below 1")
        try:
            own = as_labels([label], "reject_label")
            if own.dtype.kind == "i":
                own = own.astype(np.min_scalar_type(own[0]))
            dtype = join_labels(self.classes_, own).dtype
        except InvalidDataError as error:
            raise InvalidParameterError(f"reject_label={label!r}: {error}") from None
        if find(own, self.classes_)[0] >= 0:
            raise InvalidParameterError(
                f"reject_label={label!r} is a class; rows that are rejected need another label"
            )
        return own.astype(dtype)[0]

    def mahalanobis(self, X: Any, *, out: Any = None) -> Any:
        """Squared Mahalanobis distance to each class, shape (n_rows, n_classes)."""
        return self._evaluate(self.blockwise("mahalanobis"), X, out)

    def p_values(self, X: Any, *, out: Any = None) -> Any:
        """Share of each class's rows that lie further from its mean, shape (n_rows, n_classes).

        Of a Gaussian: the chi-square p-value of `mahalanobis`. Small for all classes, it marks an
        outlier.
        """
        return self._evaluate(self.blockwise("p_values"), X, out)

    def sample(
        self, n_samples: int = 1, random_state: Any = None, y: Any = None, *, out: Any = None
    ) -> tuple[Any, Any]:
        """Draw rows from the classes' Gaussians, on all threads.

        What is drawn with a seed depends on nothing else, neither on threads nor on `out`. Unlike
        the other methods this one needs no inverse of a covariance: of a singular one, the rows
        vary as the class does and no further. (`fit` refuses to make a classifier of such rows;
        `partial_fit` takes them in.)

        Parameters
        ----------
        n_samples : int
        random_state : int, RandomState instance or None
        y : label, or array-like of labels of shape (n_samples,); optional
            The classes to draw from; by default drawn from the priors.
        out : numpy.ndarray, zarr.Array, or path or zarr store to create a group in; optional
            An array, of shape (n_samples, n_features), gets the rows; a group gets arrays "X" and
            "y", slab by slab, as `open_store` reads them.

        Returns
        -------
        X : ndarray of float64, shape (n_samples, n_features); or as `out` says
            Features that are constant over all rows have their value.
        y : ndarray, shape (n_samples,); or a zarr.Array where `out` is a group

        Raises
        ------
        InvalidParameterError
            For a class that has no rows, or a number of samples below one.
        InvalidDataError
            For an `out` of another shape or not of floating-point numbers.
        """
        if n_samples < 1:
            raise InvalidParameterError(f"n_samples={n_samples}; expected at least 1")
        random = check_random_state(random_state)
        check_is_fitted(self, "moments_")
        moments = self.moments_
        covariances = estimate(moments, self._covariance_type(), self._regularisation())
        priors = check_priors(getattr(self, "priors", None), moments.classes, moments.class_count)
        sampler = Sampler.of(covariances, moments.means, priors)
        codes = None
        if y is not None:
            labels = as_labels(np.full(1, y) if np.ndim(y) == 0 else y)
            if np.ndim(y) and labels.size != n_samples:
                raise InvalidParameterError(f"y has {labels.size} labels for {n_samples} samples")
            codes = np.broadcast_to(sampler.codes_of(labels), n_samples)
        return sample(sampler, n_samples, random, codes, out)


class DiscriminantAnalysis(GaussianClassifier):
    """Base of the estimators that have scikit-learn's names for discriminant analysis."""

    @property
    def priors_(self) -> np.ndarray:
        """Class priors, shape (n_classes,)."""
        return self.model_.priors

    @property
    def means_(self) -> np.ndarray:
        """Class means, shape (n_classes, n_features); NaN for a class without rows."""
        return self.model_.means
