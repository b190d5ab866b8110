"""What a method of an estimator says of a block of rows, for whoever reads the rows himself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamgda.engine.fingerprints import made_by


@dataclass(frozen=True)
class Blockwise:
    """A function of blocks of rows, and what it takes to run it over all of them.

    Attributes
    ----------
    name : str
        What tells it from other functions of the model.
    function : callable
        Called as ``function(rows, first_row)``, the number of the first of these rows for errors
        to count from; gives one entry a row.
    model : GaussianModel or BernoulliModel
        That the function is of.
    dtype : dtype
        Of what it gives.
    columns : int or None
        Numbers that it gives of a row; None for one-dimensional.
    options : dict
        What else makes the function what it is.
    """

    name: str
    function: Callable[..., np.ndarray]
    model: Any
    dtype: Any = np.float64
    columns: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def row_bytes(self) -> int:
        """Bytes of what it gives of a row."""
        return int(np.dtype(self.dtype).itemsize * (self.columns or 1))

    @property
    def held(self) -> int:
        """Bytes that it takes, however many rows there are."""
        return int(self.model.packed_bytes)

    @property
    def made_of(self) -> dict[str, Any]:
        """What tells its scores from others, as JSON."""
        return made_by(self.name, self.model, self.options)
