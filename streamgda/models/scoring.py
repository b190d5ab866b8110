"""`ClassModel`: scores of rows in blocks on all threads, and the answers that follow from them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
from scipy import sparse

from streamgda.errors import InvalidDataError
from streamgda.kernels.panels import largest
from streamgda.moments.feature_maps import LiftedRows
from streamgda.rows.counting import as_kernel_rows, as_matrix, kernel_type, raise_not_finite
from streamgda.runtime import threads

# Values of the rows and scores of a block; blocks of many features have some rows, for the sake of
# the matrices, and those of few rows are scored at once.
_BLOCK_VALUES = 1 << 18
_BLOCK_ROWS = 384
_FEW_VALUES = 1 << 15

# It is called as ``finish(scores, part of out)``.
Finish = Callable[[np.ndarray, np.ndarray], None]


def scratch_bytes(n_features: int) -> int:
    """Return the most bytes of the blocks that are scored at a time, in several copies."""
    return threads.n_threads() * 24 * max(_BLOCK_VALUES, _BLOCK_ROWS * n_features)


def in_blocks(work: Callable[[int, int], None], n_rows: int, row_values: int) -> None:
    """Call ``work(start, stop)`` for all rows, in blocks on all threads, each with serial BLAS."""
    step = max(_BLOCK_VALUES // row_values, _BLOCK_ROWS)
    if n_rows * row_values > _FEW_VALUES:
        step = min(step, max(_BLOCK_ROWS // 4, -(-n_rows // threads.n_threads())))
    if n_rows <= step:
        work(0, n_rows)
        return
    calls = ((start, min(start + step, n_rows)) for start in range(0, n_rows, step))
    threads.run_serial_blas(work, calls)


def check_finite(block: Any, first_row: int) -> None:
    """Raise `InvalidDataError` for NaN and infinity in rows."""
    values = block.data if sparse.issparse(block) else block
    if values.dtype.kind == "f":
        with np.errstate(over="ignore", invalid="ignore"):
            finite = np.isfinite(values.sum()) or np.isfinite(values).all()
        if not finite:
            raise_not_finite(block, first_row)


class ClassModel(ABC):
    """Base of the models of classes: frozen dataclasses whose methods are functions of rows.

    The methods take rows, shape (n_rows, n_features), and `first_row`, the number of the first of
    them in a larger array, from which errors count. Scores of a block are class by class.

    Attributes
    ----------
    classes, priors : ndarray, shape (n_classes,)
    n_features : int
    """

    classes: np.ndarray
    priors: np.ndarray
    n_features: int
    takes_sparse = False

    @abstractmethod
    def _joint(self, X: Any) -> np.ndarray:
        """Return ``ln p(x, y=k)`` of a block of rows, shape (n_classes, n_rows)."""

    def _relative(self, X: Any) -> np.ndarray:
        """Return `_joint` but for what is the same for all classes of a row."""
        return self._joint(X)

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes without what follows from them, which keeps pickles small."""
        return {each.name: getattr(self, each.name) for each in fields(self)}  # type: ignore[arg-type]

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays, and of a copy as kernels take them."""
        return 2 * sum(getattr(value, "nbytes", 0) for value in self.__getstate__().values())

    def _rows(self, block: Any, first_row: int) -> Any:
        """Return a block of rows as it is scored; raise `InvalidDataError` for NaN and infinity."""
        if not sparse.issparse(block):
            block = as_kernel_rows(block, kernel_type(block.dtype))
        check_finite(block, first_row)
        return block

    def _answer(
        self,
        X: Any,
        first_row: int,
        scores_of: Callable[[Any], np.ndarray],
        finish: Finish,
        columns: int | None = None,
        dtype: Any = np.float64,
    ) -> np.ndarray:
        """Return one number for each row, or `columns` of them."""
        if not isinstance(X, LiftedRows):  # Blocks of these are mapped when they are read.
            X = as_matrix(X, first_row, self.takes_sparse)
        if X.shape[1] != self.n_features:
            raise InvalidDataError(
                f"X has {X.shape[1]} features, but this model is expecting {self.n_features} "
                f"features as input"
            )
        n_rows = X.shape[0]
        out = np.empty((n_rows,) if columns is None else (n_rows, columns), dtype)

        def work(start: int, stop: int) -> None:
            with np.errstate(over="ignore", invalid="ignore"):
                block = self._rows(X[start:stop], first_row + start)
                finish(scores_of(block), out[start:stop])

        if n_rows:
            width = -(-X.nnz // n_rows) if sparse.issparse(X) else X.shape[1]
            in_blocks(work, n_rows, width + self.classes.size)
        return out

    # --- answers ------------------------------------------------------------------------------

    def predict(self, X: Any, first_row: int = 0) -> np.ndarray:
        """Return the class of the largest score of each row."""

        def finish(scores: np.ndarray, out: np.ndarray) -> None:
            codes = np.empty(out.size, np.int64)
            largest(scores, codes)
            self.classes.take(codes, out=out, mode="clip")  # Other modes make a copy.

        return self._answer(X, first_row, self._relative, finish, dtype=self.classes.dtype)

    def posterior(
        self, X: Any, first_row: int = 0, temperature: float = 1.0, logs: bool = False
    ) -> np.ndarray:
        """Return the probabilities of the classes, shape (n_rows, n_classes), or their logs."""

        def finish(scores: np.ndarray, out: np.ndarray) -> None:
            posteriors(scores / temperature, logs, out)

        return self._answer(X, first_row, self._relative, finish, self.classes.size)

    def log_odds(self, X: Any, first_row: int = 0) -> np.ndarray:
        """Return the score of the last class less that of the first."""

        def finish(scores: np.ndarray, out: np.ndarray) -> None:
            np.subtract(scores[-1], scores[0], out=out)

        return self._answer(X, first_row, self._relative, finish)

    def joint(self, X: Any, first_row: int = 0) -> np.ndarray:
        """Return the joint log-likelihoods, shape (n_rows, n_classes)."""
        return self._answer(X, first_row, self._joint, copied, self.classes.size)

    def log_density(self, X: Any, first_row: int = 0) -> np.ndarray:
        """Return the log-density of each row."""
        return self._answer(X, first_row, self._joint, log_sums)


def copied(scores: np.ndarray, out: np.ndarray) -> None:
    """Write scores, which are class by class, row by row."""
    out[...] = scores.T


def posteriors(scores: np.ndarray, logs: bool, out: np.ndarray) -> None:
    """Write ``exp(scores[k, r])``, normalised over the classes, to ``out[r, k]``; or its logarithm.

    All classes are equally probable where all scores, which are overwritten, are -inf.
    """
    top = scores.max(axis=0)
    impossible = top == -np.inf
    if impossible.any():
        scores[:, impossible] = top[impossible] = 0.0
    scores -= top
    shares = np.exp(scores)
    if logs:
        np.subtract(scores, np.log(_class_sums(shares)), out=out.T)
    else:
        np.divide(shares, _class_sums(shares), out=out.T)


def log_sums(scores: np.ndarray, out: np.ndarray) -> None:
    """Write the logarithm of the sum of ``exp(scores[k, r])`` over the classes to ``out[r]``."""
    top = np.maximum(scores.max(axis=0), np.finfo(np.float64).min)  # -inf - -inf would be NaN
    with np.errstate(divide="ignore"):
        np.add(top, np.log(_class_sums(np.exp(scores - top))), out=out)


def _class_sums(values: np.ndarray) -> np.ndarray:
    """Return sums over the classes, in their order, whatever the number of rows."""
    # NumPy would add those of a single row in pairs.
    return values.sum(axis=0) if values.shape[1] > 1 else np.cumsum(values)[-1:]
