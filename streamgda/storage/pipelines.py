"""Local zarr arrays, whose chunks the package zarrs reads if it is installed."""

from __future__ import annotations

import contextlib
import copy
import os
import sys
import warnings
from collections.abc import Callable
from functools import cached_property
from typing import Any

_PROCESS = os.getpid()


class Reader:
    """Slices of an array, read by zarrs if that can read it, and otherwise as the array does.

    zarrs reads files itself: it can read arrays of numbers in zarr's local stores. Neither the
    array nor the configuration of zarr is changed. A configuration other than zarr's default
    pipeline of codecs is respected.

    Parameters
    ----------
    array : array
        A zarr array, or any other.
    """

    def __init__(self, array: Any) -> None:
        self._array = array

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Reader, (self._array,)

    def __getitem__(self, index: Any) -> Any:
        slices = index if isinstance(index, tuple) else (index,)
        # The threads of zarrs do not survive a fork.
        readable = all(type(s) is slice for s in slices) and os.getpid() == _PROCESS
        if readable and self._by_zarrs is not None:
            with contextlib.suppress(Exception):
                return self._by_zarrs[index]
            self._by_zarrs = None  # zarr reads the same, or raises an error that is its own
        return self._array[index]

    @cached_property
    def _by_zarrs(self) -> Any:
        """The array with the pipeline of zarrs, or None."""
        zarr: Any = sys.modules.get("zarr")
        array = self._array
        if zarr is None or not isinstance(array, zarr.Array):
            return None
        if array.dtype.kind not in "biufc" or not array.dtype.isnative:
            return None
        try:
            from streamgda.storage import zarrs_pipeline  # noqa: PLC0415  (it needs zarrs)
        except ImportError:
            return None
        found = copy.copy(array.async_array)
        if not type(found.codec_pipeline).__module__.startswith("zarr."):
            return None  # the user's choice
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about codecs that zarrs does not have
            pipeline = zarrs_pipeline.pipeline_of(found)
        object.__setattr__(found, "codec_pipeline", pipeline)  # of the copy, which is frozen
        return None if pipeline is None else zarr.Array(found)
