"""`MixtureDiscriminantAnalysis`: every class is a mixture of Gaussians, from one pass."""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_limits

from streamgda.engine.plan import decoded_once
from streamgda.engine.reading import in_process
from streamgda.errors import SingularCovarianceWarning, UnsupportedError
from streamgda.estimators.base import warn
from streamgda.estimators.discriminant import GaussianDiscriminantAnalysis
from streamgda.models.covariance import Covariances, Summary, check_priors, estimate
from streamgda.models.gaussian import Gaussians
from streamgda.models.mixture import MixtureMoments, Mixtures, Parts, pooled_within
from streamgda.models.scoring import check_finite
from streamgda.moments import ClassMoments
from streamgda.moments.covariance_types import structure_of
from streamgda.moments.feature_maps import lifted
from streamgda.rows import Rows
from streamgda.rows.labels import find
from streamgda.rows.source import as_source, placing
from streamgda.runtime.memory import allowed_bytes
from streamgda.runtime.parameters import as_integer, unexpected
from streamgda.runtime.threads import serial_blas

_ROWS_EACH = 100  # The sample of a class has so many rows for each of its components.
_PARTS = 8  # It comes from at least so many places, if there are as many.
_LEAST_BLOCK, _BLOCKS = 64, 1024  # Rows of a block, if they are not in chunks; blocks, at most.


class MixtureDiscriminantAnalysis(GaussianDiscriminantAnalysis):
    r"""Mixture discriminant analysis: each class is a mixture of Gaussians, from one pass.

    The density of class k is :math:`\sum_j w_{kj} N(x; m_{kj}, \Sigma_{kj})` [1]_. Centres of the
    components come from k-means of a sample of the class: about 100 rows for each component, from
    random places. In the pass, each row is added to the moments of the component of its class that
    has the nearest centre; means, covariances and weights are those of these rows.

    Without labels (``y=None``), all rows are one class, and the model is a Gaussian mixture of rows
    that need not fit in memory: `score_samples` returns log-densities, `sample` draws rows.

    Parameters
    ----------
    n_components : int
        Components of each class. A class whose sample has fewer different rows has fewer.
    covariance_type : {"full", "tied", "diag", "tied_diag", "spherical", "tied_spherical"}
        Structure of the covariances: one for each component, or one for all of all classes.
    n_iter : int
        Further passes of hard EM: each assigns rows to the component of the largest joint score of
        their class, by the model of the pass before. `partial_fit` makes them with the rows in
        which a class appears.
    pooling : float in [0, 1]
        Friedman's :math:`\lambda` [2]_ within each class: with scatters S, and the sum :math:`S_k`
        of those of the class, the covariance of a component is

        .. math:: \Sigma_{kj} = \frac{(1-\lambda) S_{kj} + \lambda S_k}
                                     {(1-\lambda) n_{kj} + \lambda n_k}

        A component of few rows gets more of the others' covariance.
    priors : array-like, shape (n_classes,), optional
        Priors of the sorted classes; by default their shares of the rows.
    shrinkage, reg_param, var_smoothing : see `GaussianDiscriminantAnalysis`
        Regularisation of the covariances of the components, after `pooling`. There is no
        ``shrinkage="auto"``.
    random_state : int
        Seed of the sample and of k-means, at least 0.
    temperature, feature_map : see `GaussianDiscriminantAnalysis`
        Temperature of posteriors, and map of rows.

    Attributes
    ----------
    classes_, class_count_, priors_
    component_classes_ : ndarray, shape (n_components_of_all_classes,)
        Class of each component, in the order of the classes.
    weights_, means_, covariance_ : ndarray
        Share of each component in its class, its mean, and its regularised covariance.
    moments_ : MixtureMoments
        Moments of the components; ``moments_.total()`` are those of the classes.
    constant_features_, n_features_in_, feature_names_in_

    See Also
    --------
    sklearn.mixture.GaussianMixture : Soft EM of rows in memory.

    Notes
    -----
    Rows count for one component only. Where components overlap, this makes them smaller and further
    apart than those of maximum likelihood (soft EM), and log-densities of other rows lower by some
    hundredths a feature. k-means depends on the scales of features: map rows of different units
    by `Standardize`. Behind a `feature_map`, rows are mapped twice, to find their components and
    to add them. The labels are read before the pass, and taken into memory if they are small.

    Centres of a class are found once, in the first rows with its label. States with the same
    centres merge: fit one estimator to some rows, send copies of it to all machines, and
    subtract the first rows from all sums but one. States with other centres raise a `MergeError`.

    Components without an invertible covariance are left out, with a warning.

    References
    ----------
    .. [1] T. Hastie and R. Tibshirani, Discriminant analysis by Gaussian mixtures, JRSS B 58
       (1996), 155-176.
    .. [2] J. H. Friedman, Regularized discriminant analysis, JASA 84 (1989), 165-175.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from streamgda import MixtureDiscriminantAnalysis, QuadraticDiscriminantAnalysis
    >>> X, y = make_moons(2000, noise=0.1, random_state=0)
    >>> qda = QuadraticDiscriminantAnalysis().fit(X[:1000], y[:1000])
    >>> mda = MixtureDiscriminantAnalysis(8).fit(X[:1000], y[:1000])
    >>> qda.score(X[1000:], y[1000:]), mda.score(X[1000:], y[1000:])
    (0.871, 1.0)
    >>> mda.means_.shape
    (16, 2)
    """

    _advice = "Give fewer components, or regularise (pooling, reg_param, shrinkage, var_smoothing)"
    _least_classes = 1
    _kinds = MixtureMoments, "MixtureMoments"
    ddof = 0
    moments_: MixtureMoments  # type: ignore[assignment]

    def __init__(
        self,
        n_components: int = 20,
        covariance_type: str = "full",
        *,
        n_iter: int = 0,
        pooling: float = 0.05,
        priors: Any = None,
        shrinkage: float | str | None = None,
        reg_param: float = 0.0,
        var_smoothing: float = 0.0,
        random_state: int = 0,
        temperature: float = 1.0,
        feature_map: Any = None,
    ) -> None:
        self.n_components = n_components
        self.covariance_type = covariance_type
        self.n_iter = n_iter
        self.pooling = pooling
        self.priors = priors
        self.shrinkage = shrinkage
        self.reg_param = reg_param
        self.var_smoothing = var_smoothing
        self.random_state = random_state
        self.temperature = temperature
        self.feature_map = feature_map

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = False
        return tags

    def _check_parameters(self) -> None:
        as_integer("n_components", self.n_components, "a number of components, at least 1", 1)
        as_integer("n_iter", self.n_iter, "a number of further passes, at least 0", 0)
        as_integer("random_state", self.random_state, "an integer below 2**32", 0, 2**32 - 1)
        if isinstance(self.shrinkage, str) and self.shrinkage == "auto":
            raise unexpected("shrinkage", self.shrinkage, "a number between 0 and 1, or 'oas'")
        super()._check_parameters()

    # --- learning -----------------------------------------------------------------------------

    _scales = False  # Centres are those of mapped rows.

    def _empty(self, kind: str | None = None) -> Any:
        held = vars(self).get("moments_")
        if held is not None:
            return held._emptied()
        return MixtureMoments(kind or self._covariance_type(), feature_map=self._maps())

    def _added(self, moments: Any, rows: Rows, **options: Any) -> Any:
        """Return moments with rows added; classes without centres get theirs from these rows."""
        new = self._parts_of(rows, moments.partition.classes)
        if not new:
            return super()._added(moments, rows, **options)
        labels = np.unique([*new])
        partition = moments.partition.put(labels, [new[label] for label in labels])
        for _ in range(self.n_iter):
            trial: Any = self._copied(vars(self))
            trial.moments_ = moments._emptied()._with_partition(partition)
            trial.moments_ = super()._added(trial.moments_, rows, **options)
            model = trial._make_model(trial._moments_of_kind(), None)
            own = np.intersect1d(find(labels, model.classes), model.alive)
            partition = partition.put(model.classes[own], [model.parts_of(k) for k in own])
        return super()._added(moments._with_partition(partition), rows, **options)

    def _parts_of(self, rows: Rows, known: np.ndarray) -> dict[Any, Parts]:
        """Return parts around the centres of the classes of rows that are not known yet."""
        if type(rows.y) is np.ndarray and (find(rows.rule.class_labels(rows.y), known) >= 0).all():
            return {}
        found = {}
        for label, blocks in self._samples(rows, known).items():
            X, weights = map(np.concatenate, zip(*blocks, strict=True))
            origin, centres = X[0].copy(), np.zeros((1, X.shape[1]))
            X -= origin
            n, scale = min(self.n_components, len(np.unique(X, axis=0))), np.abs(X).max()
            if n > 1:  # Sums of several threads would depend on their order.
                means = KMeans(n, n_init=1, random_state=self.random_state)
                with serial_blas(), threadpool_limits(1, "openmp"), warnings.catch_warnings():
                    # Some centres may be equal.
                    warnings.simplefilter("ignore", ConvergenceWarning)
                    means.fit(X / scale, sample_weight=weights / weights.max())
                centres = origin + scale * means.cluster_centers_
            found[label] = Parts(centres, np.ones(centres.shape), np.zeros(len(centres)))
        return found

    def _samples(self, rows: Rows, known: np.ndarray) -> dict[Any, list[tuple[np.ndarray, ...]]]:
        """Return rows and weights from random places, of each class that is not known yet."""
        rows, _ = decoded_once(in_process(rows).dense(), allowed_bytes(None))
        X, rule, random = rows.X, rows.rule, np.random.RandomState(self.random_state)
        if rows.y is None:
            rows = replace(rows, y=as_source(np.broadcast_to(0, X.n_rows), "y"))
        maps = self._maps()
        step = -(-max(_LEAST_BLOCK, X.n_rows // _BLOCKS) // X.chunk_rows) * X.chunk_rows
        starts = random.permutation(np.arange(0, X.n_rows, step))
        most = self.n_components * _ROWS_EACH
        quota, found = -(-most // min(_PARTS, starts.size)), defaultdict[Any, list[Any]](list)
        taken = Counter[Any]()

        with placing(*rows.sources):
            for start in starts.tolist():
                labels = rule.class_labels(rows.y.read(start, start + step), first_row=start)
                if all(taken[label] >= most for label in np.setdiff1d(labels, known)):
                    continue
                values, y, weights, *_ = rule.counted(rows.read(start, start + step))
                check_finite(values, start)
                values = lifted(values, maps and maps.bound(X.shape[1]))
                weights = weights if weights.size else np.ones(len(y))
                for label in np.setdiff1d(y.values, known):
                    at = np.flatnonzero(y.codes == np.searchsorted(y.values, label))
                    at = random.permutation(at)[: min(quota, most - taken[label])]
                    taken[label] += at.size
                    if at.size:
                        found[label].append((values[at].astype(np.float64), weights[at]))
        return found

    # --- the model ----------------------------------------------------------------------------

    def _moments_of_kind(self) -> ClassMoments:
        """Return the moments of all components, in the order of the classes."""
        return self.moments_._components(structure_of(self._covariance_type()).kind)

    def _priors_of(self, summary: Summary) -> np.ndarray:
        return summary.count  # `_make_model` makes priors of components.

    def _covariances(self, summary: Summary, features: Any = None) -> Covariances:
        how, kind = self._regularisation(), self._model_type
        if how.pooling and not kind.startswith("tied"):
            summary = pooled_within(summary, self.moments_._owners, how.pooling)
        return estimate(summary, kind, replace(how, pooling=0.0), features)

    def _make_model(self, moments: ClassMoments, found: Any) -> Any:
        model: Gaussians = super()._make_model(moments, found)
        held, owners = self.moments_, self.moments_._owners
        priors = check_priors(self.priors, held.classes, held.class_count)
        weights = np.zeros(owners.size)
        weights[model.alive] = model.priors[model.alive]
        total = np.bincount(owners, weights, priors.size)
        components = replace(model, priors=weights * (priors / np.where(total, total, 1))[owners])
        return Mixtures(held.classes, priors, held.class_count * 1.0, components, owners)

    def _check_fit(self, model: Any) -> None:
        super()._check_fit(model)
        self._check_stream(model)

    def _check_stream(self, model: Any) -> None:
        super()._check_stream(model)
        count, own = model.components.count, np.isin(model.owners, model.alive)
        at = np.setdiff1d(np.flatnonzero(own), model.components.alive)
        if at.size:  # These are of classes that have other components.
            warn(
                f"{at.size} of {count.size} components are left out, because their covariances are "
                f"singular; the largest has {count[at].max():g} rows. {self._advice}",
                SingularCovarianceWarning,
            )

    @property
    def component_classes_(self) -> np.ndarray:
        """Class of each component, shape (n_components,)."""
        check_is_fitted(self)
        return self.classes_[self.moments_._owners]

    @property
    def weights_(self) -> np.ndarray:
        """Share of each component in the rows of its class, shape (n_components,)."""
        check_is_fitted(self)
        count, owners = self._moments_of_kind().class_count, self.moments_._owners
        return count / np.bincount(owners, count)[owners]

    @property
    def means_(self) -> np.ndarray:
        """Means of the components, shape (n_components, n_features)."""
        check_is_fitted(self)
        return self._moments_of_kind().means

    # --- answers ------------------------------------------------------------------------------

    def _draw(self, model: Any, codes: np.ndarray, random: np.random.RandomState) -> np.ndarray:
        parts, alive = np.empty_like(codes), model.components.alive
        for k in np.unique(codes):
            own, at = alive[model.owners[alive] == k], np.flatnonzero(codes == k)
            weights = model.components.count[own]
            parts[at] = random.choice(own, at.size, p=weights / weights.sum())
        return super()._draw(model.components, parts, random)

    def _log_proba_without(self, X: Any, y: Any, priors: str) -> Any:
        raise UnsupportedError("leave-one-out has no formula for mixtures; use folds")
