"""`GroupedMoments`: class moments of each group of rows, such as a site, a subject or a day."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np

from streamgda import storage
from streamgda.errors import InvalidDataError, MergeError
from streamgda.moments.algebra import exceeds
from streamgda.moments.base import add_rows, planned_bytes
from streamgda.moments.cells import Cells, Held, grid
from streamgda.moments.class_moments import ClassMoments
from streamgda.moments.group_labels import encoded, group_labels
from streamgda.moments.group_views import NONE, GroupViews
from streamgda.rows.arrays import is_masked
from streamgda.rows.codes import CodedLabels
from streamgda.rows.invalid_rows import CHECK_SUMS, RowRule
from streamgda.rows.labels import as_labels, encode, find, join_labels
from streamgda.storage.saved import State, nested, restore_nested

_GROUPS_EXPECTED = 10
_CELL_BYTES = 64  # of the labels of a cell, of its count in a table, and so on


class GroupedMoments(GroupViews):
    r"""Class moments of each group of rows: a mapping of groups to `ClassMoments`.

    A group is a site, a subject, a day, a tile: anything that rows belong to besides their class.
    ``accumulate(X, y, groups=g)`` computes the moments of all groups in one pass. Those of several
    groups follow by addition, and those of all groups but one by subtraction; see `ClassMoments`
    for the formulas.

    All groups share the classes: a class of which a group has no rows has a count of zero there.
    Groups and classes may appear at any time. What a method returns is a copy: the moments change
    by `update` and ``+=`` only.

    Parameters
    ----------
    covariance_type, norms : str, bool
        The scatter and norms that are kept of each group; see `ClassMoments`. ``"tied"`` is one
        matrix for each group.

    Raises
    ------
    InvalidParameterError
        For an unknown covariance type, or `norms` with a type other than ``"full"``.

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

    _kind = "grouped"

    # --- adding rows --------------------------------------------------------------------------

    def update(  # type: ignore[override]  # groups are not optional
        self, X: Any, y: Any, groups: Any, sample_weight: Any = None
    ) -> Self:
        """Add rows.

        Parameters
        ----------
        X : array-like, shape (n_rows, n_features)
            Numbers of any real type in any memory order; not copied as a whole. Sparse matrices,
            too, for covariance types without covariances between features.
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
        return self._update_groups(X, y, groups, sample_weight)

    def _update(self, *_: Any, **__: Any) -> Self:
        raise InvalidDataError("groups are missing: call update(X, y, groups)")

    def _update_groups(
        self,
        X: Any,
        y: Any,
        groups: Any,
        sample_weight: Any = None,
        first_row: int = 0,
        rule: RowRule = CHECK_SUMS,
        expected: np.ndarray | None = None,
    ) -> Self:
        labels, of_rows = rule.as_labels(y, first_row), group_labels(groups, first_row)
        if of_rows.shape != labels.shape:
            raise InvalidDataError(
                f"y has {labels.shape[0]} labels but there are {of_rows.shape[0]} groups "
                f"(inconsistent numbers of samples); give one group a row"
            )
        with self._lock:
            before = self._held
            group_codes, all_groups = encode(of_rows, before.groups)
            class_codes, classes = encoded(labels, before.classes)
            if expected is not None and (find(classes, expected) < 0).any():
                check = ClassMoments("diag")  # maybe rows with such labels do not count
                more: Any = {"first_row": first_row, "rule": rule, "expected": expected}
                add_rows(check, X, y, sample_weight, **more)
            held = before.widened(all_groups, classes)
            cells = grid(all_groups.size, classes.size)
            codes = group_codes * classes.size
            codes += class_codes
            values: Any = CodedLabels(cells, codes)
            if is_masked(labels):
                values = np.ma.array(cells[codes] if cells.size else codes, mask=labels.mask)
            unlabelled = None
            if rule.unlabelled is not None:
                found = np.tile(~rule.labelled(classes), all_groups.size)
                unlabelled = cells[found] if found.any() else None
            if rule is not CHECK_SUMS:
                rule = replace(rule, unlabelled=unlabelled)
            before.total.clear()  # large moments change in place
            held.cells._update(X, values, sample_weight, first_row, rule)
            self._held = held.pruned(before.classes)
        return self

    def declare(self, classes: Any) -> Self:
        """Add classes that have no rows yet; there must be rows of at least one other class.

        Parameters
        ----------
        classes : array-like, shape (n_labels,)
            Labels; those that are classes already stay as they are.

        Returns
        -------
        GroupedMoments
            The object itself.

        Raises
        ------
        InvalidDataError
            If there are no rows, or the labels are of another kind than the classes.

        Examples
        --------
        >>> from streamgda import GroupedMoments
        >>> grouped = GroupedMoments().update([[1.0], [3.0]], [0, 0], ["a", "b"]).declare([1])
        >>> grouped["b"].class_count
        array([1, 0])
        """
        labels = np.unique(as_labels(classes, "classes"))
        with self._lock:
            if self.n_features is None:
                self._refuse_empty()
            held = self._held
            held = held.widened(held.groups, join_labels(held.classes, labels))
            held.cells = held.cells.on_grid()
            self._held = held
        return self

    def _bytes(self, n_classes: int, n_features: int) -> tuple[int, int]:
        return planned_group_bytes(self, _GROUPS_EXPECTED, n_classes, n_features)

    def _scratch_bytes(self, n_features: int) -> int:
        return self._held.cells._scratch_bytes(n_features)

    # --- algebra ------------------------------------------------------------------------------

    def __iadd__(self, other: Self) -> Self:
        if not isinstance(other, GroupedMoments):
            return NotImplemented
        with self._lock:
            mine, theirs = self._held, other._held
            labels = (
                join_labels(mine.groups, theirs.groups),
                join_labels(mine.classes, theirs.classes),
            )
            sums = mine.widened(*labels)
            mine.total.clear()  # large moments change in place
            sums.cells += theirs.widened(*labels).cells.on_grid()
            sums.cells = sums.cells.on_grid()
            self._held = sums
        return self

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
        held, theirs = self._held, other._held.pruned(NONE)
        labels = (
            join_labels(held.groups, theirs.groups),
            join_labels(held.classes, theirs.classes),
        )
        wide, subtracted = held.widened(*labels), theirs.widened(*labels)
        lacking = np.argwhere(exceeds(subtracted.counts, wide.counts))
        if lacking.size:
            g, k = lacking[0]
            raise MergeError(
                f"subtracting {subtracted.counts[g, k]:g} rows of class "
                f"{labels[1][k].item()!r} in group {labels[0][g].item()!r} from moments that hold "
                f"{wide.counts[g, k]:g} of them: only rows that were added can be subtracted"
            )
        left = wide.cells.on_grid() - subtracted.cells.on_grid()
        return self._made(Held(*labels, left).pruned(NONE))

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
        with self._lock:
            held = self._held
            return self._made(Held(held.groups, held.classes, held.cells.copy()))

    # --- saving -------------------------------------------------------------------------------

    def _state(self) -> State:
        held = self._held
        states, arrays = nested({"cells": held.cells})
        labels = {
            "groups": storage.pack_labels(held.groups),
            "classes": storage.pack_labels(held.classes),
        }
        return labels | states, arrays

    @classmethod
    def _from_state(cls, attributes: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        groups = storage.unpack_labels(attributes["groups"])
        classes = storage.unpack_labels(attributes["classes"])
        cells = restore_nested(Cells, {"cells": attributes["cells"]}, arrays)["cells"]
        cells.check(groups.size, classes.size)
        grouped = cls(cells.covariance_type, norms=cells.norms)
        grouped._held = Held(groups, classes, cells)
        return grouped


def add_groups(
    moments: GroupedMoments, X: Any, y: Any, groups: Any, *sample_weight: Any, **options: Any
) -> None:
    """Add rows of a larger array to the moments of their groups; `options` as for `add_rows`."""
    moments._update_groups(X, y, groups, *sample_weight, **options)


def planned_group_bytes(
    moments: GroupedMoments, n_groups: int, n_classes: int, n_features: int
) -> tuple[int, int]:
    """Return the bytes of such moments, and of all that is held while rows are added to them."""
    cells = Cells(moments.covariance_type, norms=moments.norms)
    cells = cells.renumbered(NONE, NONE, 0, n_classes)
    state, adding = planned_bytes(cells, n_groups * n_classes, n_features)
    return state, adding + _CELL_BYTES * n_groups * n_classes
