"""Base of the covariance structures: groups of classes, and what each kind must define."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from streamgda.errors import MergeError
from streamgda.kernels import scoring


@dataclass(frozen=True)
class Structure(ABC):
    r"""Structure of the covariances of a covariance type.

    Two independent choices make a covariance type. The *groups* of classes that share a covariance
    are handled here: each class is a group, or all of them are one (pooled, "tied"), or as many
    successive classes make each group (`GroupedMoments` of a pooled type). The *kind* of
    covariance is a subclass: what is kept of a group's scatter, and how rows are added to it,
    inverted and scored.

    Scatters, covariances and roots are arrays with one entry a group: shape (groups, \*shape).
    The kernels `merge` and `add_outer` serve lower triangles and diagonals alike.

    Attributes
    ----------
    name : str
        The covariance type.
    per_class : bool
        One covariance for each class; otherwise one, pooled within classes.
    simpler : tuple of str
        Covariance types to advise where a covariance is singular.
    kind : str
        Name of the kind, that of its covariance type per class.
    sources : frozenset of str
        Kinds that determine this one.
    matrix : bool
        Covariances between features are kept.
    sharing : int
        Number of successive classes that share a pooled covariance; 0 if all do.
    """

    name: str
    per_class: bool
    simpler: tuple[str, ...] = ()
    sharing: int = 0

    kind: ClassVar[str]
    sources: ClassVar[frozenset[str]]
    matrix: ClassVar[bool] = False

    # --- groups of classes --------------------------------------------------------------------

    def groups(self, n_classes: int) -> np.ndarray:
        """Return the group of each class."""
        if self.per_class:
            return np.arange(n_classes)
        return np.arange(n_classes) // (self.sharing or max(n_classes, 1))

    def group(self, number: int) -> int:
        """Return the group of one class."""
        return number if self.per_class else 0

    def group_sums(self, values: np.ndarray) -> np.ndarray:
        """Return the sums over the classes of each group, from one entry a class."""
        if self.per_class:
            return values
        if not self.sharing:
            return values.sum(axis=0, keepdims=True)
        return values.reshape(-1, self.sharing, *values.shape[1:]).sum(axis=1)

    def group_weights(self, count: np.ndarray, ddof: float) -> np.ndarray:
        """Return the count of each group, less `ddof` for each of its classes with rows."""
        return self.group_sums(np.where(count > 0, count - float(ddof), 0.0))

    def ungroup(self, values: np.ndarray) -> np.ndarray:
        """Return values of groups in the shape that users see: without the axis of one group."""
        return values if self.per_class else values[0]

    def add_groups(self, scatter: np.ndarray, other: np.ndarray, at: np.ndarray, sign: int) -> None:
        """Add to `scatter`, or subtract, that of other rows, whose class k is class ``at[k]``."""
        groups = at
        if not self.per_class:  # those of the first class of each group
            first = at[:: max(1, at.size // max(1, len(other)))]
            groups = first // self.sharing if self.sharing else np.zeros(len(other), np.int64)
        if np.array_equal(groups, np.arange(len(scatter))):
            add = np.add if sign > 0 else np.subtract
            add(scatter, other, out=scatter)
        else:
            for k, g in enumerate(groups):
                scatter[g] += sign * other[k]

    def scatter_shape(self, n_classes: int, n_features: int) -> tuple[int, ...]:
        """Return the shape of the scatter of all groups."""
        return self._n_groups(n_classes), *self.shape(n_features)

    def state_bytes(self, n_classes: int, n_features: int) -> int:
        """Return the bytes of the moments' arrays: counts, means in two parts, and scatter."""
        scatter = self._n_groups(n_classes) * self.group_bytes(n_features)
        return 8 * n_classes * (1 + 2 * n_features) + scatter

    def _n_groups(self, n_classes: int) -> int:
        if self.per_class:
            return n_classes
        return n_classes // self.sharing if self.sharing else 1

    # --- the scatter of a group ---------------------------------------------------------------

    @abstractmethod
    def shape(self, n_features: int) -> tuple[int, ...]:
        """Return the shape of one group's scatter, covariance or root."""

    def group_bytes(self, n_features: int) -> int:
        """Return the bytes of one group's scatter."""
        return 8 * self.group_size(n_features)

    @abstractmethod
    def group_size(self, n_features: int) -> int:
        """Return the entries of one group's scatter: multiplications to add a row to it."""

    @abstractmethod
    def diagonal(self, values: np.ndarray) -> np.ndarray:
        """Return a view of the entries of single features, shape (groups, d)."""

    def covers(self, other: Structure) -> bool:
        """Return True if moments of this structure determine those of `other`."""
        return self.per_class >= other.per_class and self.kind in other.sources

    @abstractmethod
    def of_kind(self, held: Structure, scatter: np.ndarray) -> np.ndarray:
        """Return scatters of this kind, group by group, from those of a kind that determines it.

        They may be views.
        """

    def reduced(self, held: Structure, scatter: np.ndarray) -> np.ndarray:
        """Return the scatter of this structure from that of one that covers it; maybe a view."""
        scatter = self.of_kind(held, scatter)
        return scatter if held.per_class == self.per_class else self.group_sums(scatter)

    @abstractmethod
    def covariance(self, scatter: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """Return scatters divided by the weights of their groups, whole and not just triangles."""

    @abstractmethod
    def pack(self, values: np.ndarray) -> np.ndarray:
        """Return scatters or roots as they are saved."""

    @abstractmethod
    def unpack(self, values: np.ndarray) -> np.ndarray:
        """Return scatters or roots from what `pack` returned."""

    @abstractmethod
    def select_features(self, scatter: np.ndarray, index: np.ndarray) -> np.ndarray:
        """Return the scatter of some features, in any order."""

    def project(self, scatter: np.ndarray, components: np.ndarray) -> np.ndarray:
        """Return the scatter of projected rows; only kinds with covariances have one."""
        raise NotImplementedError

    def check_covariances(self, method: str) -> None:
        """Raise `MergeError` unless covariances between features are kept."""
        if not self.matrix:
            raise MergeError(
                f"{method}() needs covariances between features, which "
                f"covariance_type={self.name!r} does not keep; use 'full' or 'tied'"
            )

    # --- adding rows --------------------------------------------------------------------------

    @abstractmethod
    def add_centred(
        self,
        X: np.ndarray,
        codes: np.ndarray,
        weights: np.ndarray,
        block_rows: int,
        limit: float,
        count: np.ndarray,
        squares: np.ndarray,
        mean: np.ndarray,
        mean_low: np.ndarray,
        scatter: np.ndarray,
    ) -> bool:
        """Add rows to float64 sums, block by block; return False if a sum is not finite.

        So it does for values and weights beyond `limit`, see `kernels.accumulate.LARGE`. Only kinds
        without covariances between features are given sparse rows, all as one block. `squares` are
        the sums of the squared weights, or empty.
        """

    @abstractmethod
    def add_exact(
        self,
        X: np.ndarray,
        codes: np.ndarray,
        origin: int,
        count: np.ndarray,
        total: np.ndarray,
        scatter: np.ndarray,
    ) -> None:
        """Add rows of integers to int64 sums about an origin, in one kernel call."""

    @abstractmethod
    def add_many_exact(
        self,
        X: np.ndarray,
        codes: np.ndarray,
        origin: int,
        count: np.ndarray,
        total: np.ndarray,
        scatter: np.ndarray,
    ) -> None:
        """Add many rows of integers to int64 sums about an origin, on all threads."""

    @abstractmethod
    def add_rows(
        self,
        X: np.ndarray,
        codes: np.ndarray,
        weights: np.ndarray,
        centre: np.ndarray,
        centre_low: np.ndarray,
        panel_dtype: Any,
        scatter: np.ndarray,
    ) -> None:
        """Add squares or products of many centred rows to the scatter, on all threads."""

    @abstractmethod
    def move_origin(
        self, scatter: np.ndarray, step: int, total: np.ndarray, count: np.ndarray
    ) -> np.ndarray:
        """Return the exact scatter about an origin that is `step` lower.

        `total` and `count` are the groups' sums about the old origin, and their rows.
        """

    @abstractmethod
    def centre_exact(self, *sums: np.ndarray, out: np.ndarray) -> None:
        """Write the scatter about the means, each entry rounded once, from exact sums.

        The sums are the arguments of the kernels in `streamgda.kernels.rounding`. Of matrices, only
        the lower triangles are written.
        """

    def complete(self, values: np.ndarray) -> None:  # noqa: B027  (most kinds have no triangles)
        """Copy the lower triangles of matrices to the upper ones."""

    # --- covariances and their roots ----------------------------------------------------------

    @abstractmethod
    def select_varying(self, scatter: np.ndarray, features: np.ndarray, out: np.ndarray) -> None:
        """Write the scatter of some features, in rising order; whole matrices."""

    def n_averaged(self, n_varying: int, n_features: int) -> int:
        """Return over how many features variances are averaged: all, as in scikit-learn."""
        return n_features

    def constrain(  # noqa: B027  (most kinds have nothing to do)
        self, covariances: np.ndarray, sphere: np.ndarray
    ) -> None:
        """Bring covariances into the form of this kind, in place.

        `sphere` holds the variances if they are equal for all (scaled) features, with the same
        mean; shape (groups, d).
        """

    def shown(self, covariances: np.ndarray) -> np.ndarray:
        """Return regularised covariances in the shape that users see, apart from the groups."""
        return covariances

    @abstractmethod
    def unit(self, n_features: int) -> Any:
        """Return the unit covariance."""

    @abstractmethod
    def invert(
        self, covariances: np.ndarray, tol: float, singular: str, log_determinants: np.ndarray
    ) -> list[int]:
        r"""Replace covariances by roots W of their inverses; return the ranks.

        :math:`(x-m)^T \Sigma^{-1} (x-m)` is the squared length of :math:`W (x-m)`, or for
        diagonals :math:`\sum_j W_j (x_j - m_j)^2`. Kinds with covariances between features drop
        directions if `singular` is not ``"refuse"``: :math:`W^T W` is a pseudo-inverse then, and
        the rank zero if nothing is left. Otherwise, where a rank is not full, what is written has
        no meaning.
        """

    @abstractmethod
    def log_determinants(self, roots: np.ndarray) -> np.ndarray:
        """Return the log-determinants of the covariances with these roots, shape (groups,)."""

    def rank(self, root: np.ndarray) -> int:
        """Return the number of directions that a root keeps."""
        return root.shape[-1]

    def valid_roots(self, roots: np.ndarray) -> bool:
        """Return True if roots have the form that `invert` gives them."""
        return bool((self.diagonal(roots) > 0).all())

    @abstractmethod
    def solve(self, root: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        """Return the products of vectors, shape (n, d), and the inverse covariance."""

    @abstractmethod
    def inverse(self, root: np.ndarray) -> np.ndarray:
        """Return the inverse covariance, shape (d, d)."""

    @abstractmethod
    def whitening(self, root: np.ndarray) -> np.ndarray:
        """Return a matrix that turns the covariance into the unit matrix, shape (rank, d)."""

    @abstractmethod
    def variances_along(self, root: np.ndarray, directions: np.ndarray) -> np.ndarray:
        """Return the variances along directions, shape (..., d), from a root of full rank."""

    @abstractmethod
    def squared_length(self, root: np.ndarray, vector: np.ndarray) -> float:
        """Return the squared Mahalanobis length of a vector."""

    @abstractmethod
    def trace(self, root: np.ndarray, scatter: np.ndarray) -> float:
        """Return the trace of the inverse covariance times a scatter, both whole."""

    @abstractmethod
    def sampling_root(self, covariance: np.ndarray) -> np.ndarray:
        """Return L with L L' = covariance, which may be singular."""

    @abstractmethod
    def colour(self, root: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Return white noise, shape (n_rows, d), with the covariance of a sampling root."""

    # --- scores -------------------------------------------------------------------------------

    @abstractmethod
    def pack_roots(self, roots: np.ndarray) -> Any:
        """Return roots in the layout that `scores` reads."""

    @abstractmethod
    def scores(
        self,
        packed: Any,
        X: np.ndarray,
        features: np.ndarray,
        centres: np.ndarray,
        scale: float,
        offsets: np.ndarray,
        margin: float = np.inf,
    ) -> np.ndarray:
        """Return ``offsets[k] + scale * (squared Mahalanobis distance to centre k)``.

        Scores that are more than `margin` below the largest of their row need only be upper bounds
        with that property; then `scale` is negative.

        Returns
        -------
        ndarray, shape (n_classes, n_rows)
        """

    def closest(self, *arguments: Any, out: np.ndarray) -> None:
        """Write the class with the largest of the `scores`, the first of equal ones."""
        packed, X, features, centres, scale, offsets = arguments
        scoring.largest(self.scores(packed, X, features, centres, scale, offsets, 0.0), out)
