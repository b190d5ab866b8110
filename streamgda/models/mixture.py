"""Mixtures of Gaussians: the component of a row, moments of components, densities of classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np

from streamgda.errors import InvalidDataError, MergeError
from streamgda.kernels.panels import diagonal_scores, largest, triangle_scores
from streamgda.models.covariance import Summary
from streamgda.models.gaussian import Gaussians
from streamgda.models.scoring import ClassModel, copied, in_blocks, log_sums
from streamgda.moments import ClassMoments, GroupedMoments, Moments
from streamgda.moments.feature_maps import lifted
from streamgda.moments.grouped import Held
from streamgda.rows.counting import Counted, Slab, as_kernel_rows, as_matrix, kernel_type
from streamgda.rows.labels import NONE, CodedLabels, find, join_labels
from streamgda.runtime.interruption import deferred_interrupts
from streamgda.storage.format import State, check_array, pack_labels, unpack_labels
from streamgda.storage.saved import synchronized


class Parts(NamedTuple):
    r"""What decides to which component of a class a row belongs: the one of the largest score.

    The score of a component is :math:`a - |W (x - c)|^2 / 2`; with unit matrices W and constants a
    of zero, rows belong to the nearest centre.

    Attributes
    ----------
    centres : ndarray, shape (n_components, n_features)
    roots : ndarray, shape (n_components, d, d) or (n_components, d)
        Lower triangular matrices W, or the squares of diagonal ones.
    constants : ndarray, shape (n_components,)
    """

    centres: np.ndarray
    roots: np.ndarray
    constants: np.ndarray

    def components_of(self, X: Any, at: np.ndarray) -> np.ndarray:
        """Return the number of the component of each of the rows that are `at` these places."""
        numbers, d = np.empty(at.size, np.int64), self.centres.shape[1]
        score = diagonal_scores if self.roots.ndim == 2 else triangle_scores

        def work(start: int, stop: int) -> None:
            rows, scores = X[at[start:stop]], np.empty((len(self.centres), stop - start))
            rows = as_kernel_rows(rows, kernel_type(rows.dtype))
            given = np.arange(d), np.zeros(d), self.centres, self.roots, -0.5, self.constants
            score(rows, *given, scores)
            largest(scores, numbers[start:stop])

        in_blocks(work, at.size, sum(self.centres.shape))
        return numbers


class Partition(NamedTuple):
    """The parts of each of some classes, whose labels are sorted."""

    classes: np.ndarray = NONE
    parts: tuple[Parts, ...] = ()

    def put(self, labels: np.ndarray, parts: Any) -> Partition:
        """Return the partition with the parts of some classes, which are new or replaced."""
        classes = join_labels(self.classes, labels)
        found = dict(zip(find(self.classes, classes), self.parts, strict=True))
        found |= dict(zip(find(labels, classes), parts, strict=True))
        return Partition(classes, tuple(found[k] for k in range(classes.size)))

    def joined(self, other: Partition) -> Partition:
        """Return the partition of all classes; raise `MergeError` for others of the same class."""
        for k, parts in zip(find(other.classes, self.classes), other.parts, strict=True):
            if k >= 0 and not all(map(np.array_equal, parts, self.parts[k])):
                raise MergeError(
                    f"components of class {self.classes[k]!s} with other centres do not combine; "
                    f"start both from copies of one estimator, made after its first rows"
                )
        return self.put(other.classes, other.parts)


class MixtureMoments(GroupedMoments):
    """Moments of the components of each class: the state of `MixtureDiscriminantAnalysis`.

    A component is a group of `GroupedMoments`, and its number among those of its class is the label
    of the group. Rows find their components themselves, by the centres that the estimator gave.
    Moments with the same centres combine; ``total()`` are the moments of all rows by class.

    Parameters
    ----------
    covariance_type : str
        The scatter that is kept of each component; see `GroupedMoments`.
    feature_map : RandomFeatures, Standardize, transformer, or list; optional
        Map that is applied to rows first; the centres are those of mapped rows.

    Attributes
    ----------
    partition : Partition
        What decides to which component of its class a row belongs; estimators make it.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from streamgda import MixtureDiscriminantAnalysis
    >>> mda = MixtureDiscriminantAnalysis(2).fit(*load_iris(return_X_y=True))
    >>> mda.moments_.counts.sum(axis=0), mda.moments_.total().class_count
    (array([50, 50, 50]), array([50, 50, 50]))
    """

    _takes_sparse = False
    update = Moments.update  # type: ignore[assignment]  # without groups

    def __init__(self, covariance_type: str = "full", *, feature_map: Any = None) -> None:
        super().__init__(covariance_type, feature_map=feature_map)
        self.partition = Partition()

    def _emptied(self) -> Self:
        return self._made(Held(NONE, NONE, self._held.cells._emptied()))

    def _made(self, held: Held, covariance_type: str | None = None) -> Self:
        made = super()._made(held, covariance_type)
        made.partition = self.partition
        return made

    def _with_partition(self, partition: Partition) -> Self:
        """Return a copy whose further rows are assigned by another partition."""
        made = self.copy()
        made.partition = partition
        return made

    @property
    def means(self) -> np.ndarray:
        """Class means, shape (n_classes, n_features); NaN for a class without rows."""
        return self.total().means

    # --- components ---------------------------------------------------------------------------

    @property
    @synchronized
    def _owners(self) -> np.ndarray:
        """Index of the class of each component that has rows."""
        held = self._held
        return np.sort(held.numbers[1][held.cells.class_count > 0])

    @synchronized
    def _components(self, covariance_type: str) -> ClassMoments:
        """Return the moments of the components that have rows, in the order of the classes."""
        cells, sums = self._held.cells, self._held.cells._sums
        if sums is not None:
            seen = cells.class_count > 0
            at = np.lexsort([each[seen] for each in self._held.numbers]).argsort()
            sums = sums.with_classes(seen).placed(at, at.size)
            cells = cells._with_sums(np.arange(at.size), sums)
        return cells.reduce(covariance_type)

    def _groups_of(self, slab: Slab, rows: Counted, known: np.ndarray) -> CodedLabels:
        """Return the number of the component of each row that counts, within its class."""
        X, codes, maps = as_matrix(rows.X), find(rows.y, self.partition.classes), self._lifting
        numbers = np.zeros(codes.size, np.int64)
        if codes.min(initial=0) < 0:
            label = rows.y.values[rows.y.codes[codes.argmin()]]
            raise InvalidDataError(f"class {label!s} has no centres; partial_fit finds them")
        X = lifted(X, maps and maps.bound(X.shape[1]), slab.first_row, rows.numbers)
        order = np.argsort(codes.astype(np.min_scalar_type(codes.max(initial=0))), kind="stable")
        found, starts = np.unique(codes[order], return_index=True)
        for k, at in zip(found, np.split(order, starts[1:]), strict=False):
            parts = self.partition.parts[k]
            if X.shape[1] != (d := parts.centres.shape[1]):
                raise InvalidDataError(f"X has {X.shape[1]} features, and these moments have {d}")
            numbers[at] = parts.components_of(X, at)
        return CodedLabels(numbers, np.arange(numbers.max(initial=0) + 1))

    def _bytes(self, n_classes: int, n_features: int, n_groups: int = 0) -> tuple[int, int]:
        most = max((len(parts.centres) for parts in self.partition.parts), default=1)
        return super()._bytes(n_classes, n_features, most)

    # --- algebra ------------------------------------------------------------------------------

    def _add(self, other: Any) -> None:
        joined = self.partition.joined(other.partition)
        with deferred_interrupts():
            super()._add(other)
            self.partition = joined

    @synchronized
    def __sub__(self, other: Self) -> Self:
        """Return the moments without the rows of `other`; see `GroupedMoments`."""
        if isinstance(other, MixtureMoments):
            self.partition.joined(other.partition)
        return super().__sub__(other)

    # --- saving -------------------------------------------------------------------------------

    def _state(self) -> State:
        held = {"classes": pack_labels(self.partition.classes)}
        held |= {str(k): parts._asdict() for k, parts in enumerate(self.partition.parts)}
        return super()._state() | {"partition": held}

    @classmethod
    def _from_state(cls, state: Mapping[str, Any]) -> Self:
        moments, held = super()._from_state(state), state["partition"]
        classes = unpack_labels(held["classes"])
        every = tuple(Parts(**held[str(k)]) for k in range(classes.size))
        d = moments.n_features or (every[0].centres.shape[1] if every else 0)
        for centres, roots, constants in every:
            n = len(constants)
            check_array("constants", constants, (max(1, n),), "f8")
            check_array("centres", centres, (n, d), "f8")
            check_array("roots", roots, (n, d) + (d,) * (roots.ndim == 3), "f8")
        if (find(moments.classes[moments.class_count > 0], classes) < 0).any():
            raise ValueError("its centres are of other classes")
        moments.partition = Partition(classes, every)
        return moments


def pooled_within(summary: Summary, owners: np.ndarray, pooling: float) -> Summary:
    """Return a summary whose components' scatters, over their counts, are pooled covariances."""
    n, S = summary.count, summary.scatter
    pooled = np.empty_like(S)
    for k in np.unique(owners):
        at = np.flatnonzero(owners == k)
        shares = n[at] / ((1 - pooling) * n[at] + pooling * n[at].sum())
        both = (1 - pooling) * S[at] + pooling * S[at].sum(axis=0)
        pooled[at] = both * shares.reshape(-1, *[1] * (S.ndim - 1))
    return replace(summary, scatter=pooled)


@dataclass(frozen=True, eq=False)
class Mixtures(ClassModel):
    """Classes whose densities are mixtures of Gaussians.

    Attributes
    ----------
    classes, priors, count : ndarray, shape (n_classes,)
        Labels, prior probabilities, and rows or their weights.
    components : Gaussians
        Components of all classes, in their order; a prior is that of the class times the weight.
    owners : ndarray of int, shape (n_components,)
        Index of the class of each component.
    """

    classes: np.ndarray
    priors: np.ndarray
    count: np.ndarray
    components: Gaussians
    owners: np.ndarray

    @property
    def n_features(self) -> int:  # type: ignore[override]
        """Width of the rows."""
        return self.components.n_features

    @property
    def features(self) -> np.ndarray:
        """Features of the densities."""
        return self.components.features

    @property
    def alive(self) -> np.ndarray:
        """Indices of the classes that have a density."""
        return np.unique(self.owners[self.components.alive])

    @property
    def ranks(self) -> np.ndarray:
        """The largest rank of a covariance of each class."""
        ranks = np.zeros(self.classes.size, int)
        np.maximum.at(ranks, self.owners, self.components.ranks)
        return ranks

    def _of_classes(
        self, values: np.ndarray, join: Callable[..., Any], fill: float = np.nan
    ) -> np.ndarray:
        """Return what joins the values of the components of each class that are alive."""
        out = np.full((self.classes.size, values.shape[1]), fill)
        owners = self.owners[self.components.alive]
        ends = np.searchsorted(owners, np.arange(self.classes.size + 1))
        for k in self.alive:
            join(values[ends[k] : ends[k + 1]], out=out[k])
        return out

    def _joint(self, X: Any) -> np.ndarray:
        scores = self.components._scores(X, -0.5, self.components._constants)
        return self._of_classes(scores, log_sums, -np.inf)

    def _distances(self, X: Any) -> np.ndarray:
        distances = self.components._distances(X)[self.components.alive]
        return self._of_classes(distances, np.minimum.reduce)

    def _tails(self, X: Any) -> np.ndarray:
        alive = self.components.alive
        tails = self.components._tail(self.components._distances(X)[alive], alive[:, None])
        return self._of_classes(tails, np.maximum.reduce)

    # --- answers ------------------------------------------------------------------------------

    def discriminants(self, X: Any, first_row: int = 0, centred: bool = True) -> np.ndarray:
        """Return the joint log-likelihoods, shape (n_rows, n_classes)."""
        return self.joint(X, first_row)

    def distances(self, X: Any, first_row: int = 0) -> np.ndarray:
        """Return squared Mahalanobis distances to the nearest components of the classes."""
        return self._answer(X, first_row, self._distances, copied, self.classes.size)

    def own_distances(self, X: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Return the squared distance of each row to the class with its code."""
        return self.distances(X)[np.arange(codes.size), codes]

    def p_values(self, X: Any, first_row: int = 0) -> np.ndarray:
        """Return the largest p-value of a component of each class, shape (n_rows, n_classes)."""
        return self._answer(X, first_row, self._tails, copied, self.classes.size)

    def predict_or_reject(
        self, X: Any, first_row: int = 0, *, reject: float, labels: np.ndarray
    ) -> np.ndarray:
        """Return labels: the last for rows whose p-value for their class is below `reject`."""

        def scores_of(block: Any) -> np.ndarray:
            return np.concatenate([self._joint(block), self._tails(block)])

        def finish(both: np.ndarray, out: np.ndarray) -> None:
            scores, tails = np.split(both, 2)
            codes = np.empty(out.size, np.int64)
            largest(scores, codes)
            codes[~(tails[codes, np.arange(out.size)] >= reject)] = self.classes.size
            labels.take(codes, out=out, mode="clip")

        return self._answer(X, first_row, scores_of, finish, dtype=labels.dtype)

    def marginal(self, observed: np.ndarray) -> Self:
        """Return the model of rows of which only some features count, given by their indices."""
        return replace(self, components=self.components.marginal(observed))

    def parts_of(self, k: int) -> Parts:
        """Return the parts of a class by the largest joint scores: the next step of hard EM."""
        model, d = self.components, self.n_features
        own = np.flatnonzero(self.owners[model.alive] == k)
        centres = np.zeros((own.size, d))
        centres[:, model.features] = model.origin + model.centres[model.alive[own]]
        held = model.roots[own if len(model.roots) > 1 else 0 * own]
        roots = np.zeros((own.size, *[d] * (held.ndim - 1)))
        roots[np.ix_(np.arange(own.size), *[model.features] * (held.ndim - 1))] = held
        return Parts(centres, roots, model._constants[own])
