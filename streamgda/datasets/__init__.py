"""Data sets: IDX files, scikit-learn's digits, synthetic streams, and conversion to zarr.

Importing this module imports NumPy only: functions that need scikit-learn import it, and `convert`,
which needs zarr and Numba, is imported when it is first used.
"""

from typing import TYPE_CHECKING, Any

from streamgda.datasets.digits import IdxFile, load_digits, load_mnist, read_idx
from streamgda.datasets.synthetic import GaussianStream

if TYPE_CHECKING:
    from streamgda.datasets.conversion import convert

__all__ = ["GaussianStream", "IdxFile", "convert", "load_digits", "load_mnist", "read_idx"]


def __getattr__(name: str) -> Any:
    """Import `convert` when it is first used."""
    if name != "convert":
        raise AttributeError(f"module 'streamgda.datasets' has no attribute {name!r}")
    from streamgda.datasets import conversion  # noqa: PLC0415

    return conversion.convert
