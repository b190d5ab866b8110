"""Arrays of xarray as rows: the elements along one dimension, that of the features, are a row.

xarray is not imported before labels are aligned with such rows: arrays are recognised by their
methods.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from streamgda.errors import InvalidDataError, InvalidParameterError
from streamgda.rows.arrays import ArrayRows
from streamgda.rows.dask import DaskRows
from streamgda.rows.names import as_names
from streamgda.rows.source import RowSource
from streamgda.runtime.parameters import shown, unexpected

# Attributes that describe the values of the rows, and not those of their scores.
_OF_VALUES = ("_FillValue", "scale_factor", "add_offset", "units", "long_name", "standard_name")


def is_labelled(X: Any) -> bool:
    """Return whether this is a DataArray or a Dataset of xarray."""
    return hasattr(X, "isel") and hasattr(X, "coords")


@dataclass(frozen=True)
class LabelledRows(RowSource):
    """Rows of a DataArray, in memory or of dask, in C order of the other dimensions.

    Attributes
    ----------
    array : xarray.DataArray
    features : str or None
        Dimension of the features; None if each element is a row, as labels are.
    """

    array: Any = None
    features: Any = None

    @classmethod
    def accepts(cls, X: Any) -> bool:
        """Accept arrays of xarray, and datasets, for which `of` raises a clear error."""
        return is_labelled(X)

    @classmethod
    def of(cls, X: Any, name: str, features: Any = None) -> Self:
        """Return a source of the rows whose features are along a dimension.

        The attribute ``_FillValue`` of features names a value that means NaN.

        Raises
        ------
        InvalidDataError
            For a Dataset.
        InvalidParameterError
            If there is no such dimension, or it is not given for more than two.
        """
        if hasattr(X, "data_vars"):
            raise InvalidDataError(
                f"{name} is an xarray.Dataset of {', '.join(map(str, X.data_vars))}; expected a "
                f"DataArray: one of them, or all as features, with {name}.to_dataarray('band') "
                f"and features='band'"
            )
        if features is None and X.ndim == 2:
            features = X.dims[-1]
        if features not in X.dims and (features is not None or X.ndim > 2):
            raise unexpected("features", features, f"one of the dimensions of {name}: {X.dims}")
        fill = X.attrs.get("_FillValue")
        found = X if features is None or fill is None else X.where(fill != X)
        values = _stacked(found, features)
        rows = (DaskRows if DaskRows.accepts(values) else ArrayRows).of(values, name)
        about = rows.shape, rows.dtype, name, rows.chunks, 0, False, rows.read_as_views
        return cls(rows.values, *about, rows.executor, array=X, features=features)

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Coordinates of the features, or descriptions of bands, if they are strings."""
        if self.features is None:
            return None
        coordinate = self.array.coords.get(self.features)
        names = as_names(() if coordinate is None else coordinate.values.tolist())
        described = self.array.attrs.get("long_name")  # rioxarray writes it from a GeoTIFF.
        if names is None and isinstance(described, list | tuple):
            names = as_names(described)
        return names if names is not None and len(names) == self.shape[1] else None

    @property
    def _grid(self) -> Any:
        """An array of the coordinates of the rows, with one element for each."""
        array = self.array
        return array if self.features is None else array.isel({self.features: 0}, drop=True)

    def laid_out(self, values: Any, name: str) -> Any:
        """Return labels, groups or weights in the order of the rows if they are a DataArray.

        Those that lack a dimension are the same all along it.

        Raises
        ------
        InvalidDataError
            If their coordinates or sizes differ from those of the rows.
        """
        if not is_labelled(values):
            return values
        import xarray  # noqa: PLC0415

        grid = self._grid
        others = [dim for dim in values.dims if dim not in grid.dims]
        try:
            if others:
                raise ValueError(f"it has the dimensions {values.dims}")
            xarray.align(grid, values, join="exact", copy=False)
        except ValueError as error:
            raise InvalidDataError(
                f"{name} is not on the grid of X, which has the dimensions {grid.dims} with sizes "
                f"{grid.shape} (inconsistent numbers of samples): {error}"
            ) from None
        return _stacked(values.broadcast_like(grid).transpose(*grid.dims), None)

    def wrapped(self, scores: Any, name: str | None, classes: np.ndarray | None, fill: Any) -> Any:
        """Return scores as a DataArray on the grid of the rows.

        Their columns are along ``"class"``, with its labels, or ``"component"``. A number that is
        the fill value of invalid rows is the ``_FillValue`` of the array.
        """
        grid = self._grid
        column = "component" if classes is None else "class"
        dims = (*grid.dims, *(column,)[: scores.ndim - 1])
        attributes = {n: value for n, value in grid.attrs.items() if n not in _OF_VALUES}
        if isinstance(fill, int | float):
            attributes["_FillValue"] = fill
        found = scores.reshape((*grid.shape, *scores.shape[1:]))
        wrapped = type(self.array)(found, grid.coords, dims, name, attributes)
        wrapped.encoding.update(
            {key: value for key, value in grid.encoding.items() if key == "grid_mapping"}
        )
        return wrapped if classes is None else wrapped.assign_coords({"class": classes})

    def place(self, row: int | None = None, column: int | None = None) -> str:
        """Return the name, and the position of a row on the grid."""
        if row is None:
            return self.name
        at = zip(self._grid.dims, np.unravel_index(row, self._grid.shape), strict=True)
        return f"{self.name}: ({', '.join(f'{dim}={index}' for dim, index in at)})"


def along(X: Any, features: Any) -> LabelledRows:
    """Return a source of the rows of a DataArray whose features are along a dimension.

    Raises
    ------
    InvalidParameterError
        If `X` is anything else, or has no such dimension.
    """
    if not is_labelled(X):
        raise InvalidParameterError(
            f"features={shown(features)} names the dimension of a DataArray that holds the "
            f"features, and X is a {type(X).__name__}; leave it out"
        )
    return LabelledRows.of(X, "X", features)


def wrapped(rows: RowSource, scores: Any, name: Any, classes: Any, fill: Any) -> Any:
    """Return scores as a DataArray if the rows are those of one; otherwise as they are."""
    return rows.wrapped(scores, name, classes, fill) if isinstance(rows, LabelledRows) else scores


def _stacked(array: Any, features: Any) -> Any:
    """Return the values of a DataArray, shape (n_rows, n_features) or (n_rows,)."""
    row = "stacked rows"  # No dimension has this name.
    rows = array.variable.stack({row: [dim for dim in array.dims if dim != features]})
    return rows.transpose(row, *([] if features is None else [features])).data
