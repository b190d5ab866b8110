"""`GroupViews`: the groups of rows as a mapping, their total, and sums of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

import numpy as np

from streamgda.errors import InvalidParameterError
from streamgda.moments.base import Moments
from streamgda.moments.cells import Cells, Held
from streamgda.moments.class_moments import ClassMoments
from streamgda.moments.group_labels import checked_number, group_labels, number_of
from streamgda.rows.names import Names
from streamgda.runtime.parameters import check_type

NONE = np.empty(0, np.int64)


class GroupViews(Moments, Mapping[Any, ClassMoments]):
    """Base of `GroupedMoments`: what they hold, and what is computed from it."""

    __eq__ = object.__eq__  # a mapping compares its values, which are copies
    __hash__ = object.__hash__

    def __init__(self, covariance_type: str = "full", *, norms: bool = False) -> None:
        super().__init__()
        self._held = Held(NONE, NONE, Cells(covariance_type, norms=norms))

    # --- properties ---------------------------------------------------------------------------

    @property
    def covariance_type(self) -> str:
        """Covariance type of the moments."""
        return self._held.cells.covariance_type

    @property
    def norms(self) -> bool:
        """True if the norms of the rows are kept."""
        return self._held.cells.norms

    @property
    def groups(self) -> np.ndarray:
        """Labels of the groups, sorted, shape (n_groups,)."""
        return self._held.groups

    @property
    def classes(self) -> np.ndarray:
        """Class labels of all groups, sorted, shape (n_classes,)."""
        return self._held.classes

    @property
    def class_count(self) -> np.ndarray:
        """Rows of each class in all groups, or their total weight, shape (n_classes,)."""
        return np.asarray(self._held.counts.sum(axis=0))

    @property
    def counts(self) -> np.ndarray:
        """Rows of each class in each group, or their weight, shape (n_groups, n_classes)."""
        return self._held.counts

    @property
    def n_features(self) -> int | None:
        """Number of features; None before the first row."""
        return self._held.cells.n_features

    @property
    def n_skipped(self) -> int:
        """Rows of all groups that were left out as invalid (``on_invalid="skip"``)."""
        return self._held.cells.n_skipped

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays that hold the moments of all groups."""
        return self._held.cells.nbytes

    @property
    def exact(self) -> bool:
        """True if the moments are integer sums without any rounding."""
        return self._held.cells.exact

    @property
    def _feature_names(self) -> Names | None:
        return self._held.cells._feature_names

    @_feature_names.setter
    def _feature_names(self, names: Names | None) -> None:
        self._held.cells._feature_names = names
        self._held.total.clear()

    def __repr__(self) -> str:
        if self.n_features is None:
            return f"GroupedMoments({self.covariance_type!r}): empty"
        skipped = f", {self.n_skipped} invalid rows left out" if self.n_skipped else ""
        return (
            f"GroupedMoments({self.covariance_type!r}): {self.class_count.sum():g} rows x "
            f"{self.n_features} features in {self.groups.size} groups and {self.classes.size} "
            f"classes, {self.nbytes / 2**20:.3g} MiB{', exact' if self.exact else ''}{skipped}"
        )

    # --- the mapping --------------------------------------------------------------------------

    def __len__(self) -> int:
        return int(self.groups.size)

    def __bool__(self) -> bool:
        return True  # moments without rows are moments

    def __iter__(self) -> Iterator[Any]:
        return iter(self.groups.tolist())

    def __contains__(self, group: object) -> bool:
        return number_of(group, self.groups) >= 0

    def __getitem__(self, group: Any) -> ClassMoments:
        """Return a copy of the moments of a group, with all classes; raise KeyError for others."""
        with self._lock:
            held = self._held
            return held.cells.group(checked_number(group, held.groups, KeyError), held.classes)

    def total(self) -> ClassMoments:
        """Return the moments of the rows of all groups: the sum of those of each.

        Returns
        -------
        ClassMoments
            As if there were no groups: to the bit for exact moments, otherwise to rounding.

        Examples
        --------
        >>> from streamgda import GroupedMoments
        >>> grouped = GroupedMoments().update([[1.0], [3.0], [5.0]], [0, 0, 1], ["a", "b", "b"])
        >>> grouped.total().class_count, grouped.total().means.ravel()
        (array([2, 1]), array([2., 5.]))
        """
        return self._total().copy()

    def _total(self) -> ClassMoments:
        """Return the moments of all rows, which must not be modified."""
        with self._lock:
            held = self._held
            if not held.total:
                held.total.append(held.cells.total(held.classes))
            return held.total[0]

    def without(self, group: Any) -> ClassMoments:
        r"""Return the moments of the rows of all groups but one: the total less that group.

        Chan, Golub and LeVeque's formula is solved for the other part, so that no row is read: the
        result is exact to the bit for exact moments, and to rounding otherwise. The total is
        computed once for all groups.

        Parameters
        ----------
        group : label
            One of the groups.

        Returns
        -------
        ClassMoments
            Moments of the rows of the other groups, with all classes.

        Raises
        ------
        InvalidParameterError
            For any other label.

        Examples
        --------
        >>> from streamgda import GroupedMoments
        >>> grouped = GroupedMoments().update([[1.0], [3.0], [8.0]], [0, 0, 0], ["a", "b", "c"])
        >>> {group: float(grouped.without(group).means[0, 0]) for group in grouped}
        {'a': 5.5, 'b': 4.5, 'c': 2.0}
        """
        with self._lock:
            held = self._held
            number = checked_number(group, held.groups, InvalidParameterError)
            left = self._total() - held.cells.group(number, held.classes)
            return left.declare(held.classes)

    def roll_up(self, to: Mapping[Any, Any] | Callable[[Any], Any]) -> Self:
        """Return the moments of larger groups, which are sums of these.

        Parameters
        ----------
        to : dict or callable
            The new group of each group, as a dict, in which those not named keep their label; or
            as a function, called with the label of each group.

        Returns
        -------
        GroupedMoments
            Moments of the new groups.

        Raises
        ------
        InvalidParameterError
            For labels that are not among the groups.
        InvalidDataError
            For new labels of different kinds, or missing ones.

        Examples
        --------
        >>> from streamgda import GroupedMoments
        >>> X, y, days = [[1.0], [3.0], [8.0]], [0, 0, 0], ["2024-05", "2024-06", "2025-05"]
        >>> grouped = GroupedMoments().update(X, y, days)
        >>> years = grouped.roll_up(lambda day: day[:4])
        >>> years.groups, years["2024"].means
        (array(['2024', '2025'], dtype='<U4'), array([[2.]]))
        >>> list(grouped.roll_up({"2024-06": "summer"}))
        ['2024-05', '2025-05', 'summer']
        """
        with self._lock:
            held = self._held
            new = held.groups.tolist()
            if callable(to):
                new = [to(group) for group in new]
            else:
                check_type("to", to, Mapping, "a dict of groups to new groups, or a function")
                for group in to:
                    new[checked_number(group, held.groups, InvalidParameterError)] = to[group]
            if not new:
                return self.copy()
            labels = np.asarray(group_labels(new, what="new groups"))
            groups, at = np.unique(labels, return_inverse=True)
            cells = held.cells.merged_groups(at, groups.size, held.classes.size)
            return self._made(Held(groups, held.classes, cells))

    def _made(self, held: Held) -> Self:
        made = type(self)(self.covariance_type, norms=self.norms)
        made._held = held
        return made
