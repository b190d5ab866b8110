"""`Saved`: objects that are written as a zarr group, and read again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from streamgda.storage import groups


class Saved(ABC):
    """What is written as a zarr group, and read again."""

    _kind: ClassVar[str]  # that saved groups are of

    def save(self, store: Any, *, offset: Any = None) -> None:
        """Write it as a zarr group.

        Parameters
        ----------
        store : path, zarr store or zarr group
            A path that ends in ``.zip`` becomes one file. What stands there is replaced.
        offset : object
            What JSON can hold, to be kept beside: where in a stream it belongs (`Checkpoint`).
        """
        attributes, arrays = self.state()
        groups.write(store, self._kind, attributes | {"offset": offset}, arrays)

    @classmethod
    def load(cls, store: Any) -> Self:
        """Read what `save` wrote.

        Raises
        ------
        SourceNotFoundError
            Where nothing is there.
        FormatError
            Where what is there is something else, or is damaged.
        """
        return cls.from_state(*groups.read(store, cls._kind))

    @abstractmethod
    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Attributes (for JSON) and arrays that `from_state` makes an equal one of."""

    @classmethod
    @abstractmethod
    def from_state(cls, attributes: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        """Make one from what `state` gave.

        Raises
        ------
        FormatError
            Where the parts do not fit each other.
        """
