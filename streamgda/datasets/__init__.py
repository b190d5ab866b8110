"""Data to work with: IDX files, scikit-learn's digits, synthetic streams, and conversion to zarr.

Importing this costs NumPy alone: zarr and scikit-learn are imported by the functions that need
them.
"""

from streamgda.datasets.classic import load_digits, load_mnist
from streamgda.datasets.conversion import convert
from streamgda.datasets.idx import IdxFile, read_idx
from streamgda.datasets.synthetic import GaussianStream

__all__ = ["GaussianStream", "IdxFile", "convert", "load_digits", "load_mnist", "read_idx"]
