"""Exceptions and warnings; each is also the built-in kind that a caller would expect."""

import numpy as np


class StreamGDAError(Exception):
    """Base of every error that streamgda raises on purpose."""


class InvalidDataError(StreamGDAError, ValueError):
    """Rows, labels or weights that cannot be used: NaN, wrong width, wrong length, wrong kind.

    Attributes
    ----------
    array : str or None
        Where it is about one row: whether that is of "X", "y" or "sample_weight",
    row, column : int or None
        and which one it is. Whoever knows where the rows come from has it say more (`place`).
    """

    def __init__(
        self,
        message: str = "",
        array: str | None = None,
        row: int | None = None,
        column: int | None = None,
    ) -> None:
        super().__init__(message)
        self.array, self.row, self.column = array, row, column

    def place(self, where: str) -> None:
        """Have the message begin with where that is."""
        self.args = (f"{where}: {self}",)


class InvalidParameterError(StreamGDAError, ValueError):
    """A parameter value that is out of range, or that does not fit the data."""


class MergeError(StreamGDAError, ValueError):
    """Moments that cannot be combined: other width, other structure, or more removed than added."""


class SingularCovarianceError(StreamGDAError, np.linalg.LinAlgError):
    """A class covariance that has no inverse; the message names classes, ranks and remedies."""


class MemoryBudgetError(StreamGDAError, MemoryError):
    """The work needs more memory than ``max_memory`` allows; raised before any work is done."""


class FormatError(StreamGDAError, ValueError):
    """A saved file that is not ours, is of an unknown version, or is damaged."""


class CheckpointError(StreamGDAError, ValueError):
    """A checkpoint or a half-written output that something else was kept in, or is damaged."""


class SourceError(StreamGDAError, ValueError):
    """A store or file that exists but does not hold what is due there."""


class ReadError(SourceError, OSError):
    """Rows that are there but cannot be read; the message names array, chunk and rows."""


class SourceNotFoundError(StreamGDAError, FileNotFoundError):
    """A store or file that is not there."""


class ClusterError(StreamGDAError, RuntimeError):
    """Workers or the scheduler of a cluster that died, or cannot see a store."""


class ConstantFeatureWarning(UserWarning):
    """Features that are constant over all the data were left out of the density."""
