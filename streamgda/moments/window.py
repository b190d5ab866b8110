"""`SlidingWindow`: the moments of the last blocks of a stream."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Self

from streamgda.moments.class_moments import ClassMoments
from streamgda.moments.feature_maps import Lifting
from streamgda.runtime.interruption import Lock
from streamgda.runtime.parameters import as_integer, check_type
from streamgda.storage.format import State, check_whole
from streamgda.storage.saved import Saved


class SlidingWindow(Saved):
    """Moments of the last blocks of rows, as if there had been no others.

    Blocks are added but never subtracted: subtracting floats would leave the rounding errors of
    all rows that ever passed through the window, and one huge value would spoil it for good. The
    older blocks are held as sums, each over a block and all that came after it, so that dropping
    one sum drops the oldest block; when none are left, such sums are computed from the newer
    blocks. That takes three additions a block on average for any length, and memory for the
    moments of `n_blocks` blocks. A class disappears with the last block that has rows of it.

    Parameters
    ----------
    n_blocks : int
        Blocks in the window, at least 1.
    covariance_type : str
        Covariance type of the moments; see `ClassMoments`.
    feature_map : RandomFeatures, Standardize, transformer, or list; optional
        Map that is applied to rows before they are added; see `RandomFeatures`.

    Raises
    ------
    InvalidParameterError
        For parameters out of range.

    Examples
    --------
    >>> from streamgda import SlidingWindow
    >>> window = SlidingWindow(2, "diag")
    >>> for X, y in ([[1.0], [2.0]], [0, 0]), ([[3.0], [9.0]], [0, 1]), ([[5.0]], [0]):
    ...     _ = window.update(X, y)
    >>> window.moments.class_count, window.moments.means
    (array([2, 1]), array([[4.],
           [9.]]))
    """

    def __init__(
        self, n_blocks: int, covariance_type: str = "full", *, feature_map: Any = None
    ) -> None:
        self.n_blocks = as_integer("n_blocks", n_blocks, "a whole number above 0", 1)
        self._lock = Lock()
        self._total = ClassMoments(covariance_type, feature_map=feature_map)
        self._newer_total = self._total
        self._older: list[ClassMoments] = []  # The last is the sum of all of them.
        self._newer: list[ClassMoments] = []

    @property
    def covariance_type(self) -> str:
        """Covariance type of the moments."""
        return self._total.covariance_type

    @property
    def moments(self) -> ClassMoments:
        """Copy of the moments of the blocks in the window."""
        return self._total.copy()

    def __len__(self) -> int:
        return len(self._older) + len(self._newer)

    def _description(self) -> dict[str, Any]:
        blocks = f"{len(self)} of {self.n_blocks}"
        return {**self._total._description(), "kind": "SlidingWindow", "blocks": blocks}

    def __repr__(self) -> str:
        return f"SlidingWindow: {len(self)} of {self.n_blocks} blocks, {self._total!r}"

    def update(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Add rows as a block, dropping the oldest block if the window is full.

        Parameters
        ----------
        X : array-like, shape (n_rows, n_features)
            Numbers of any real type.
        y : array-like, shape (n_rows,)
            Class labels; new labels become classes.
        sample_weight : array-like of float, shape (n_rows,), optional
            Weights, not negative; rows of weight zero are ignored.

        Returns
        -------
        SlidingWindow
            The object itself.

        Raises
        ------
        InvalidDataError
            For rows, labels or weights that cannot be used. The window stays as it was.
        MergeError
            For rows with other features.

        Examples
        --------
        >>> from streamgda import SlidingWindow
        >>> window = SlidingWindow(1).update([[1.0], [3.0]], [0, 0])
        >>> window.update([[5.0], [9.0]], [0, 1]).moments.class_count
        array([1, 1])
        """
        block = ClassMoments(self.covariance_type, feature_map=self._total._lifting)
        return self._append(block.update(X, y, sample_weight))

    def append(self, block: ClassMoments) -> Self:
        """Add the moments of a block; otherwise as `update`.

        Parameters
        ----------
        block : ClassMoments
            Moments of the window's covariance type, computed anywhere.

        Returns
        -------
        SlidingWindow
            The object itself.

        Raises
        ------
        TypeError
            For anything but `ClassMoments`. The window stays as it was.
        MergeError
            For moments of another covariance type or of other features.

        Examples
        --------
        >>> from streamgda import ClassMoments, SlidingWindow
        >>> block = ClassMoments().update([[1.0], [3.0]], [0, 0])
        >>> SlidingWindow(2).append(block).append(block).moments.class_count
        array([4])
        """
        check_type("block", block, ClassMoments, "ClassMoments")
        return self._append(block.copy())

    def _append(self, block: ClassMoments) -> Self:
        with self._lock:
            self._total._joined(block)
            older, newer, newer_total = self._older[:], self._newer[:], self._newer_total
            if len(self) == self.n_blocks:
                if not older:
                    total = ClassMoments(self.covariance_type)
                    while newer:
                        total = newer.pop() + total
                        older.append(total)
                    newer_total = ClassMoments(self.covariance_type)
                older.pop()
            newer.append(block)
            newer_total = newer_total + block
            total = older[-1] + newer_total if older else newer_total
            # No call stands between these lines, so that no exception separates them.
            self._older, self._newer = older, newer
            self._newer_total, self._total = newer_total, total
        return self

    # --- saving -------------------------------------------------------------------------------

    def _state(self) -> State:
        lifting = self._total._lifting
        return {
            "n_blocks": self.n_blocks,
            "covariance_type": self.covariance_type,
            "feature_map": None if lifting is None else lifting.as_json(),
            "older": len(self._older),
            "moments": {str(i): m._state() for i, m in enumerate(self._older + self._newer)},
        }

    @classmethod
    def _from_state(cls, state: Mapping[str, Any]) -> Self:
        lifting = Lifting.from_json(state["feature_map"])
        window = cls(state["n_blocks"], state["covariance_type"], feature_map=lifting)
        held = [ClassMoments._from_state(block) for block in state["moments"].values()]
        n_older = check_whole("older", state["older"], 0, max(0, len(held) - 1))
        if len(held) > window.n_blocks:
            raise ValueError(f"it holds {len(held)} blocks of {window.n_blocks}")
        window._older = held[:n_older]
        for part, whole in pairwise(window._older):
            whole._joined(part)
            whole._check_contains(part)
        for block in held[n_older:]:
            window._append(block)
        return window
