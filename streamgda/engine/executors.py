"""The choice of what executes a pass: this process, or dask, which is imported only then."""

from __future__ import annotations

import sys
from typing import Any

from streamgda.rows.sources import RowSource


def on_dask() -> Any:
    """Return the package that executes passes on dask."""
    from streamgda.engine import dask  # noqa: PLC0415

    return dask


def read_by_workers(rows: RowSource) -> bool:
    """Return whether the workers of an active `distributed.Client` can read the rows."""
    loaded = "distributed" in sys.modules
    return loaded and on_dask().active_client() is not None and rows.shareable
