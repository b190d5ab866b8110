"""Exceptions and warnings, each also of the built-in kind that a caller would expect."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np


class StreamGDAError(Exception):
    """Base class of all errors that streamgda raises."""


class InvalidDataError(StreamGDAError, ValueError):
    """Rows, labels or weights that cannot be used: NaN, wrong width, length or type.

    Attributes
    ----------
    array : str or None
        "X", "y" or "sample_weight" if the error concerns one row, None otherwise.
    row, column : int or None
        Position in that array. A caller that knows the origin of the rows adds it with `place`.
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
        """Put the place of the error at the start of the message."""
        self.args = (f"{where}: {self}",)


class SparseDataError(InvalidDataError, TypeError):
    """Sparse rows where dense ones are needed; a TypeError, too, as in scikit-learn."""


class InvalidParameterError(StreamGDAError, ValueError, TypeError):
    """A parameter value that is out of range or does not fit the data.

    It is a TypeError, too, as scikit-learn's is.
    """


class UnsupportedError(InvalidParameterError, NotImplementedError):
    """Parameters or methods that do not go with the solver."""


class MergeError(StreamGDAError, ValueError):
    """Moments that cannot be combined: other width or structure, or more removed than added."""


class SingularCovarianceError(StreamGDAError, np.linalg.LinAlgError):
    """A class covariance that has no inverse; the message names classes, ranks and remedies.

    Attributes
    ----------
    classes : list
        Labels of the classes whose covariances these are; empty for a pooled covariance.
    """

    def __init__(self, message: str = "", classes: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.classes = list(classes)


class MemoryBudgetError(StreamGDAError, MemoryError):
    """More memory needed than ``max_memory`` allows; raised before any work is done."""


class FormatError(StreamGDAError, ValueError):
    """A saved file that is not from streamgda, has an unknown version, or is damaged."""


class CheckpointError(StreamGDAError, ValueError):
    """A checkpoint or partial output that belongs to other work, or is damaged."""


class SourceError(StreamGDAError, ValueError):
    """A store or file that exists but does not have the expected content."""


class ReadError(SourceError, OSError):
    """Rows that exist but cannot be read; the message names array, chunk and rows."""


class WriteError(StreamGDAError, OSError):
    """A remote store that cannot be written."""


class SourceNotFoundError(StreamGDAError, FileNotFoundError):
    """A store or file that does not exist."""


class MissingLibraryError(StreamGDAError, ImportError):
    """An optional library that is not installed; the message names the extra that installs it."""


class ClusterError(StreamGDAError, RuntimeError):
    """A cluster whose workers or scheduler died, or cannot reach a store."""


class CollinearityWarning(UserWarning):
    """Directions without variance within classes, which linear discriminant analysis drops."""


class PrecisionWarning(UserWarning):
    """Digits that statistics from elsewhere have lost, because they were not centred."""


class ConstantFeatureWarning(UserWarning):
    """Features that are constant over all data and left out of the density."""


@cache
def _of_attribute(kind: Any) -> Any:
    """Return the kind of errors that are of a kind and AttributeErrors."""

    def reduced(error: StreamGDAError) -> tuple[Any, ...]:  # other processes know `kind` only
        return kind, error.args, vars(error)

    attributes = {"__module__": kind.__module__, "__doc__": kind.__doc__, "__reduce__": reduced}
    return type(kind.__name__, (kind, AttributeError), attributes)


def as_attribute_error(error: StreamGDAError) -> StreamGDAError:
    """Return an error that is an AttributeError too.

    It is raised where a fitted attribute cannot be computed, for which `hasattr` is then false.
    """
    if isinstance(error, OSError | AttributeError):  # no class can be an OSError too
        return error
    kind: Any = type(error)
    found: StreamGDAError = _of_attribute(kind)(*error.args)
    vars(found).update(vars(error))
    return found.with_traceback(error.__traceback__)
