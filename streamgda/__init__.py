"""Gaussian discriminant analysis for data larger than memory, on streams, on many machines.

Names and submodules are imported when they are first used (SPEC 1), as scikit-learn, SciPy and
Numba take seconds that ``streamgda --help`` does not need. `__init__.pyi` lists them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
