"""Tensors of other libraries, on any device, as arrays of numpy; no library is imported."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamgda.errors import InvalidDataError


def as_numpy(values: Any) -> Any:
    """Return a tensor as an array; return anything else unchanged.

    Tensors of PyTorch are detached and copied from their device; bfloat16, which numpy does not
    have, becomes float32. Those of TensorFlow have a method ``numpy``, and arrays of CuPy ``get``.
    Others are read through DLPack if numpy cannot convert them.

    Raises
    ------
    InvalidDataError
        For tensors that no array can hold, such as sparse ones.
    """
    if type(values) is np.ndarray:
        return values
    try:
        return _converted(values)
    except (BufferError, RuntimeError, TypeError) as error:
        raise InvalidDataError(
            f"a {type(values).__name__} cannot be converted to an array: {error}"
        ) from None


def _converted(values: Any) -> Any:
    if hasattr(values, "detach") and hasattr(values, "cpu"):
        values = values.detach().cpu()
        try:
            return values.numpy()
        except TypeError:
            return values.float().numpy()
    if callable(getattr(values, "numpy", None)):
        return values.numpy()
    if hasattr(values, "__cuda_array_interface__") and hasattr(values, "get"):
        return values.get()
    if hasattr(values, "__dlpack__") and not hasattr(values, "__array__"):
        return np.from_dlpack(values)
    return values
