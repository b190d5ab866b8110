"""Data sets: IDX files, scikit-learn's digits, synthetic streams, and conversion to zarr.

Importing this module imports NumPy only: functions that need zarr or scikit-learn import them.
"""

from streamgda.datasets.classic import load_digits, load_mnist
from streamgda.datasets.conversion import convert
from streamgda.datasets.idx import IdxFile, read_idx
from streamgda.datasets.synthetic import GaussianStream

__all__ = ["GaussianStream", "IdxFile", "convert", "load_digits", "load_mnist", "read_idx"]
