"""Optional libraries, each of which comes with an extra of the package."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from streamgda.errors import MissingLibraryError


def require(module: str, extra: str, what: str) -> Any:
    """Import a module of an optional library.

    Parameters
    ----------
    module : str
        For example ``"pyarrow.parquet"``.
    extra : str
        Extra of the package that installs the library.
    what : str
        Subject of the error message, in the plural: those that need the library.

    Returns
    -------
    module

    Raises
    ------
    MissingLibraryError
        If the library is not installed.

    Examples
    --------
    >>> require("nowhere.files", "arrow", "Parquet files")
    Traceback (most recent call last):
    ...
    streamgda.errors.MissingLibraryError: Parquet files need nowhere, which is not installed: \
pip install "streamgda[arrow]"
    """
    try:
        return import_module(module)
    except ImportError as error:
        library = module.partition(".")[0]
        raise MissingLibraryError(
            f'{what} need {library}, which is not installed: pip install "streamgda[{extra}]"'
        ) from error
