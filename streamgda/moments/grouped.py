"""`GroupedMoments`: class moments of each group of rows, such as a site, a subject or a day.

The moments of groups x classes are one state, to which rows are added in one pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, Self

import numpy as np

from streamgda.errors import InvalidDataError, InvalidParameterError, MergeError
from streamgda.moments.base import Moments
from streamgda.moments.class_moments import ClassMoments, check_holds
from streamgda.moments.covariance_types import check_covers, structure_of
from streamgda.moments.feature_maps import Lifting
from streamgda.rows.counting import CHECK_SUMS, Counted, RowRule, Slab, read_only
from streamgda.rows.labels import (
    NONE,
    CodedLabels,
    as_labels,
    as_objects,
    check_expected,
    code,
    find,
    join_labels,
)
from streamgda.rows.names import Names
from streamgda.runtime.parameters import check_type, shown
from streamgda.storage.format import State, pack_labels, unpack_labels
from streamgda.storage.saved import synchronized

_SHIFT = 32  # The index of the group stands above that of the class by so many bits.
_GROUPS_EXPECTED = 10
_CELL_BYTES = 64  # The labels of a cell, its count and the like take about so many bytes.


def group_labels(
    groups: Any, first_row: int = 0, what: str = "groups", known: np.ndarray = NONE
) -> CodedLabels:
    """Return the groups of rows as labels by their codes; see `rows.labels.code`.

    Raises
    ------
    InvalidDataError
        If a group is missing, or for labels that classes cannot have either.
    """
    labels = code(groups, NONE, what, first_row)
    if labels.missing.any():
        row = first_row + int(labels.missing.argmax())
        raise InvalidDataError(
            f"{what}[{row}] is missing (None or NaN), and every row needs a group: give rows of "
            f"unknown origin a group of their own, such as 'unknown', or leave them out",
            *(what, row),
        )
    return code(labels, known)


def number_of(group: object, groups: np.ndarray, error: type[Exception]) -> int:
    """Return the number of a group; raise `error` if it is none of them."""
    with suppress(InvalidDataError):
        number = int(find(as_labels([group], "group"), groups)[0])
        if number >= 0:
            return number
    raise error(f"{shown(group)} is not among the groups {as_objects(groups)!s:.500}")


def grid(n_groups: int, n_classes: int) -> np.ndarray:
    """Return the labels of all cells, sorted."""
    return (np.arange(n_groups)[:, None] << _SHIFT | np.arange(n_classes)).ravel()


class Held(NamedTuple):
    """The moments of all groups, and the labels of groups and classes, which are sorted.

    Attributes
    ----------
    groups, classes : ndarray
    cells : ClassMoments
        Moments with a scatter for each cell that has rows, which is one group and one class. The
        label of a cell holds both numbers, so that cells are in the order of groups.
    """

    groups: np.ndarray
    classes: np.ndarray
    cells: ClassMoments

    @property
    def numbers(self) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of the group and of the class of each cell."""
        return self.cells.classes >> _SHIFT, self.cells.classes & ((1 << _SHIFT) - 1)

    @property
    def counts(self) -> np.ndarray:
        """Rows of each class in each group, or their weight, shape (n_groups, n_classes)."""
        counts = np.zeros((self.groups.size, self.classes.size), self.cells.class_count.dtype)
        counts[self.numbers] = self.cells.class_count
        return counts

    def labels_with(self, other: Held) -> tuple[np.ndarray, np.ndarray]:
        """Return the labels of the groups and of the classes of both."""
        return join_labels(self.groups, other.groups), join_labels(self.classes, other.classes)

    def widened(self, groups: np.ndarray, classes: np.ndarray) -> Held:
        """Return the same moments among other groups and classes, with the same arrays."""
        if groups.size == self.groups.size and classes.size == self.classes.size:
            return Held(groups, classes, self.cells)
        of_group, of_class = find(self.groups, groups), find(self.classes, classes)
        numbers = of_group[self.numbers[0]] << _SHIFT | of_class[self.numbers[1]]
        return Held(groups, classes, self.cells._with_sums(numbers, self.cells._sums))

    def joined(
        self, groups: np.ndarray, of_group: np.ndarray, classes: np.ndarray, of_class: np.ndarray
    ) -> Held:
        """Return the moments of larger groups and classes, of which each group and class is one."""
        g, k = self.numbers
        numbers = of_group[g].astype(np.int64) << _SHIFT | of_class[k]
        cells, places = np.unique(numbers, return_inverse=True)
        sums: Any = self.cells._sums
        sums = None if sums is None else sums.placed(places, cells.size)
        return Held(groups, classes, self.cells._with_sums(cells, sums))

    def together(self, chosen: Any, covariance_type: str) -> ClassMoments:
        """Return the moments of some groups together, with all classes."""
        of_group, of_class = self.numbers
        kept = np.zeros(self.groups.size, bool)
        kept[chosen] = True
        cells = kept[of_group]
        sums = self.cells._sums
        if sums is not None:
            sums = sums.with_classes(cells).placed(of_class[cells], self.classes.size)
        return self.cells._with_sums(self.classes, sums).reduce(covariance_type)

    def pruned(self) -> Held:
        """Return the moments without groups and classes that have no rows."""
        seen = self.counts > 0
        groups, classes = np.asarray(seen.any(axis=1)), np.asarray(seen.any(axis=0))
        if groups.all() and classes.all():
            return self
        kept = self.cells.class_count > 0
        cells = self.cells._keep(kept) if kept.any() else self.cells._with_sums(NONE, None)
        return Held(self.groups, self.classes, cells).widened(
            self.groups[groups], self.classes[classes]
        )


class GroupedMoments(Moments, Mapping[Any, ClassMoments]):
    r"""Class moments of each group of rows: a mapping of groups to `ClassMoments`.

    A group is a site, a subject, a day, a tile: anything that rows belong to besides their class.
    ``accumulate(X, y, groups=g)`` computes the moments of all groups in one pass. Those of several
    groups, such as all but one, follow by addition; see `ClassMoments` for the formulas.

    All groups share the classes: a class of which a group has no rows has a count of zero there.
    Groups and classes may appear at any time. What a method returns is a copy: the moments change
    by `update` and ``+=`` only.

    Parameters
    ----------
    covariance_type : str
        The scatter that is kept of each group; see `ClassMoments`. Pooled types are summed when
        they are read, and take as much memory as those of each class.
    feature_map : RandomFeatures, Standardize, transformer, or list; optional
        Map that is applied to rows before they are added; see `RandomFeatures`.

    Raises
    ------
    InvalidParameterError
        For an unknown covariance type.

    Examples
    --------
    >>> from streamgda import GroupedMoments
    >>> X, y = [[1.0], [3.0], [4.0], [8.0]], ["ant", "ant", "ant", "bee"]
    >>> grouped = GroupedMoments().update(X, y, ["north", "north", "south", "south"])
    >>> list(grouped), grouped.counts
    (['north', 'south'], array([[2, 0],
           [1, 1]]))
    >>> grouped["south"].classes, grouped["south"].class_count
    (array(['ant', 'bee'], dtype='<U3'), array([1, 1]))
    >>> grouped.without("north").means
    array([[4.],
           [8.]])
    """

    __eq__ = object.__eq__  # A mapping would compare its values, which are copies.
    __hash__ = object.__hash__

    def __init__(self, covariance_type: str = "full", *, feature_map: Any = None) -> None:
        super().__init__()
        self._structure = structure_of(covariance_type)
        cells = ClassMoments(self._structure.kind, feature_map=feature_map)
        self._held = Held(NONE, NONE, cells)

    # --- properties ---------------------------------------------------------------------------

    @property
    def covariance_type(self) -> str:
        """Covariance type of the moments."""
        return self._structure.name

    @property
    def groups(self) -> np.ndarray:
        """Labels of the groups, sorted, shape (n_groups,)."""
        return read_only(self._held.groups)

    @property
    def classes(self) -> np.ndarray:
        """Class labels of all groups, sorted, shape (n_classes,)."""
        return read_only(self._held.classes)

    @property
    @synchronized
    def class_count(self) -> np.ndarray:
        """Rows of each class in all groups, or their total weight, shape (n_classes,)."""
        return np.asarray(self._held.counts.sum(axis=0))

    @property
    @synchronized
    def counts(self) -> np.ndarray:
        """Rows of each class in each group, or their weight, shape (n_groups, n_classes)."""
        return self._held.counts

    @property
    def _sums(self) -> Any:
        return self._held.cells._sums

    @property
    def n_skipped(self) -> int:
        """Rows of all groups that were left out as invalid (``on_invalid="skip"``)."""
        return self._held.cells.n_skipped

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

    @property
    def _lifting(self) -> Lifting | None:
        return self._held.cells._lifting

    @_lifting.setter
    def _lifting(self, lifting: Lifting | None) -> None:
        self._held.cells._lifting = lifting

    @synchronized
    def _description(self) -> dict[str, Any]:
        counts = zip(as_objects(self.groups), self.counts.sum(axis=1).tolist(), strict=True)
        rows = {str(group): n for group, n in counts}
        return {**super()._description(), "rows_by_group": rows}

    # --- the mapping --------------------------------------------------------------------------

    def __len__(self) -> int:
        return int(self.groups.size)

    def __bool__(self) -> bool:
        return True  # A mapping without groups would be false.

    def __iter__(self) -> Iterator[Any]:
        return iter(as_objects(self.groups))

    def __contains__(self, group: object) -> bool:
        with suppress(KeyError):
            return number_of(group, self.groups, KeyError) >= 0
        return False

    @synchronized
    def __getitem__(self, group: Any) -> ClassMoments:
        """Return a copy of the moments of a group, with all classes; raise KeyError for others."""
        number = number_of(group, self._held.groups, KeyError)
        moments = self._held.together(number, self.covariance_type)
        moments._n_skipped = 0  # Skipped rows have no group.
        return moments

    @synchronized
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
        return self._held.together(slice(None), self.covariance_type)

    @synchronized
    def without(self, group: Any) -> ClassMoments:
        """Return the moments of the rows of all groups but one: the sum of those of the others.

        No row is read. The result is that of a pass over these rows: to the bit for exact moments,
        and to rounding otherwise, however many of all rows the group has.

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
        number = number_of(group, self._held.groups, InvalidParameterError)
        others = np.arange(len(self)) != number
        return self._held.together(others, self.covariance_type)

    @synchronized
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
        held = self._held
        new = as_objects(held.groups)
        if callable(to):
            new = [to(group) for group in new]
        else:
            check_type("to", to, Mapping, "a dict of groups to new groups, or a function")
            for group in to:
                new[number_of(group, held.groups, InvalidParameterError)] = to[group]
        if not new:
            return self.copy()
        labels = np.asarray(group_labels(new, what="new groups"))
        groups, at = np.unique(labels, return_inverse=True)
        return self._made(held.joined(groups, at, held.classes, np.arange(held.classes.size)))

    def _in_one_class(self) -> Self:
        """Return the moments of the rows of each group as those of one class."""
        held = self._held
        one = np.arange(held.groups.size), np.zeros(1, np.int64), np.zeros(held.classes.size, int)
        return self._made(held.joined(held.groups, *one), self._structure.kind)

    @synchronized
    def reduce(self, covariance_type: str) -> Self:
        """Return the moments of a simpler covariance type.

        Parameters
        ----------
        covariance_type : str
            See `ClassMoments.reduce`.

        Returns
        -------
        GroupedMoments
            Moments of that type.

        Raises
        ------
        MergeError
            If these moments do not determine it.

        Examples
        --------
        >>> from streamgda import GroupedMoments
        >>> grouped = GroupedMoments().update([[1.0], [3.0]], [0, 0], ["a", "a"])
        >>> grouped.reduce("diag")["a"].covariance()
        array([[1.]])
        """
        wanted = structure_of(covariance_type)
        check_covers(self._structure, wanted)
        cells = self._held.cells.reduce(wanted.kind)
        return self._made(self._held._replace(cells=cells), covariance_type)

    @synchronized
    def select_features(self, index: Any) -> Self:
        """Return the moments of some of the features, in the order of `index`.

        Parameters
        ----------
        index : str, array-like of str, int or bool, or slice
            Features to keep, by name or by index.

        Returns
        -------
        GroupedMoments
            Moments of these features.

        Raises
        ------
        InvalidParameterError
            For features that the moments do not have.

        Examples
        --------
        >>> from streamgda import GroupedMoments
        >>> grouped = GroupedMoments().update([[1.0, 2.0], [3.0, 5.0]], [0, 0], ["a", "a"])
        >>> grouped.select_features([1])["a"].means
        array([[3.5]])
        """
        return self._made(self._held._replace(cells=self._held.cells.select_features(index)))

    def _made(self, held: Held, covariance_type: str | None = None) -> Self:
        made = type(self)(covariance_type or self.covariance_type)
        made._held = held
        return made

    # --- adding rows --------------------------------------------------------------------------

    def update(  # type: ignore[override]  # groups are not optional
        self, X: Any, y: Any, groups: Any, sample_weight: Any = None
    ) -> Self:
        """Add rows.

        Parameters
        ----------
        X : array-like, shape (n_rows, n_features)
            Numbers of any real type in any memory order; not copied as a whole. Sparse matrices are
            accepted by covariance types without covariances between features.
        y : array-like, shape (n_rows,)
            Class labels; new labels become classes.
        groups : array-like, shape (n_rows,)
            Group of each row: a whole number, a string, a boolean or a date; new ones may appear.
        sample_weight : array-like of float, shape (n_rows,), optional
            Weights, not negative; rows of weight zero are ignored.

        Returns
        -------
        GroupedMoments
            The object itself.

        Raises
        ------
        InvalidDataError
            For rows, labels, groups or weights that cannot be used. The moments stay as they were.

        Examples
        --------
        >>> from streamgda import GroupedMoments
        >>> grouped = GroupedMoments().update([[1.0], [3.0]], [0, 0], ["a", "b"])
        >>> grouped.update([[5.0], [9.0]], [1, 0], ["a", "c"]).counts
        array([[1, 1],
               [1, 0],
               [1, 0]])
        """
        return self._update(Slab(X, y, groups, sample_weight))

    @property
    def _takes_sparse(self) -> bool:
        return self._held.cells._takes_sparse

    def _update(
        self, slab: Slab, rule: RowRule = CHECK_SUMS, expected: np.ndarray | None = None
    ) -> Self:
        first_row, known = slab.first_row, self._held
        slab = slab._replace(y=rule.labels(slab.y, known.classes, first_row))
        rows, names = known.cells._counted(slab, rule, known.classes)
        of_rows = self._groups_of(slab, rows, known.groups)
        with self._lock:
            before = self._held
            group, y = code(of_rows, before.groups), code(rows.y, before.classes)
            if expected is not None:
                check_expected(y, expected, first_row, rows.numbers)
            held = before.widened(group.values, y.values)
            numbers = group.codes * y.values.size + y.codes
            cells = CodedLabels(numbers, grid(group.values.size, y.values.size))
            self.changes += 1
            held.cells._add_rows(rows._replace(y=cells), first_row, names)
            self._held = held
        return self

    def _groups_of(self, slab: Slab, rows: Counted, known: np.ndarray) -> CodedLabels:
        """Return the groups of the rows of a slab that count."""
        if slab.groups is None:
            raise InvalidDataError("groups are missing: call update(X, y, groups)")
        of_rows = group_labels(slab.groups, slab.first_row, known=known)
        if len(of_rows) != len(slab.y):
            raise InvalidDataError(
                f"y has {len(slab.y)} labels but there are {len(of_rows)} groups "
                f"(inconsistent numbers of samples); give one group a row"
            )
        return of_rows if rows.numbers is None else of_rows[rows.numbers].used(known)

    def _declare(self, labels: np.ndarray) -> None:
        held = self._held
        self.changes += 1
        self._held = held.widened(held.groups, join_labels(held.classes, labels))

    def _bytes(self, n_classes: int, n_features: int, n_groups: int = 0) -> tuple[int, int]:
        n_cells = (n_groups or _GROUPS_EXPECTED) * n_classes
        state, adding = self._held.cells._bytes(n_cells, n_features)
        return state, adding + _CELL_BYTES * n_cells

    def _scratch_bytes(self, n_features: int) -> int:
        return self._held.cells._scratch_bytes(n_features)

    # --- algebra ------------------------------------------------------------------------------

    @synchronized
    def __mul__(self, gamma: float) -> Self:
        """Return the moments with every weight multiplied by `gamma`; see `ClassMoments`."""
        return self._made(self._held._replace(cells=self._held.cells * gamma))

    def _add(self, other: GroupedMoments) -> None:
        mine, theirs = self._held, other._held
        if self.covariance_type != other.covariance_type:
            raise MergeError(
                f"moments of covariance_type={self.covariance_type!r} and "
                f"{other.covariance_type!r} do not combine"
            )
        labels = mine.labels_with(theirs)
        held = mine.widened(*labels)
        self.changes += 1
        cells = held.cells
        cells += theirs.widened(*labels).cells
        self._held = held

    @synchronized
    def __sub__(self, other: Self) -> Self:
        """Return the moments without the rows of `other`, group by group.

        Groups and classes left without rows are dropped.

        Raises
        ------
        MergeError
            If the features or the covariance types differ, or `other` holds rows that these
            moments do not.
        """
        if not isinstance(other, GroupedMoments):
            return NotImplemented
        if self.covariance_type != other.covariance_type:
            raise MergeError(
                f"moments of covariance_type={self.covariance_type!r} and "
                f"{other.covariance_type!r} do not combine"
            )
        held, theirs = self._held, other._held.pruned()
        labels = held.labels_with(theirs)
        wide, subtracted = held.widened(*labels), theirs.widened(*labels)
        groups, classes = labels
        check_holds(
            wide.counts,
            subtracted.counts,
            lambda g, k: f"class {classes[k].item()!r} in group {groups[g].item()!r}",
        )
        left = wide.cells._less(subtracted.cells, None)
        return self._made(Held(*labels, left).pruned())

    @synchronized
    def copy(self) -> Self:
        """Return independent moments with the same values.

        Returns
        -------
        GroupedMoments
            The copy.

        Examples
        --------
        >>> from streamgda import GroupedMoments
        >>> grouped = GroupedMoments().update([[1.0]], [0], ["a"])
        >>> before = grouped.copy()
        >>> _ = grouped.update([[8.0]], [0], ["b"])
        >>> list(before), list(grouped)
        (['a'], ['a', 'b'])
        """
        held = self._held
        return self._made(Held(held.groups, held.classes, held.cells.copy()))

    # --- saving -------------------------------------------------------------------------------

    def _state(self) -> State:
        held = self._held
        return {
            "covariance_type": self.covariance_type,
            "groups": pack_labels(held.groups),
            "classes": pack_labels(held.classes),
            "cells": held.cells._state(),
        }

    @classmethod
    def _from_state(cls, state: Mapping[str, Any]) -> Self:
        groups = unpack_labels(state["groups"])
        classes = unpack_labels(state["classes"])
        cells = ClassMoments._from_state(state["cells"])
        grouped = cls(state["covariance_type"])
        if cells.covariance_type != grouped._structure.kind:
            raise ValueError(f"its cells are of covariance_type={cells.covariance_type!r}")
        numbers = cells.classes
        if numbers.dtype != np.int64 or not np.isin(numbers, grid(groups.size, classes.size)).all():
            raise ValueError(
                f"its cells are not of {groups.size} groups and {classes.size} classes"
            )
        grouped._held = Held(groups, classes, cells)
        return grouped
