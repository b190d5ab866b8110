"""Values of any container as one array."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamgda.rows.dask import DaskRows
from streamgda.rows.frames import FrameRows, LazyFrameRows
from streamgda.rows.masked import as_slab
from streamgda.rows.sources import RowSource
from streamgda.rows.stores import StoredRows


def as_array(values: Any, name: str) -> np.ndarray:
    """Return all values of a container as an array; masked only if some of them are.

    Raises
    ------
    InvalidDataError
        If numpy cannot convert them.
    ReadError
        If a store cannot be read; the message names the array by this name, chunk and rows.
    """
    if isinstance(values, RowSource):
        return values.whole()
    if not isinstance(values, np.ndarray | list | tuple):
        for adapter in (DaskRows, StoredRows, FrameRows, LazyFrameRows):
            if adapter.accepts(values):
                return adapter.of(values, name).whole()
    return as_slab(values, name)
