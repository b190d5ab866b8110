"""Data sets: handwritten digits, synthetic streams, and conversion to zarr.

Importing this module imports NumPy only.
"""

from streamgda.datasets.conversion import convert
from streamgda.datasets.digits import load_digits, load_mnist
from streamgda.datasets.synthetic import GaussianStream

__all__ = ["GaussianStream", "convert", "load_digits", "load_mnist"]
