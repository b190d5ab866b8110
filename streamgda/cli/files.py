"""Rows, labels and models that a command reads, and checks of the paths that it writes."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Unpack

import numpy as np
import typer

import streamgda
from streamgda.cli.options import warn_deprecated
from streamgda.errors import (
    FormatError,
    InvalidDataError,
    InvalidParameterError,
    SourceNotFoundError,
)
from streamgda.runtime.parameters import TableOptions
from streamgda.storage.files import check_place, is_free, local_path

_NUMBERS, _DATES = "biuf", "mM"
_BOOLEANS = {"true": True, "false": False}  # as tables have them, in lower case


# --- rows -----------------------------------------------------------------------------------------


def open_rows(
    data: str,
    beside: Sequence[str] = (),
    labelled: bool = True,
    *,
    x: str = "X",
    labels: list[str] | None = None,
    features: list[str] | None = None,
    **table: Unpack[TableOptions],
) -> tuple[Any, ...]:
    """Return rows, labels (None unless `labelled`) and each array beside them; see `open_store`.

    Parameters
    ----------
    data : DATA
        Rows and labels: zarr (a directory, .zip or URL); or a table, or a folder of tables:
        .parquet, .arrow, .csv.
    beside : sequence of str
        Names of arrays, or names or numbers of columns of tables, which are then no features.
    x : NAME
        Name of the zarr array of rows.
    labels : NAME|PATH
        Labels: a column of the table, by name or number (from 0), or an array of zarr, y by
        default; or a zarr group that exists. Give it twice for the group and the name in it.
    features : NAME,...
        Tables: names or numbers of the columns of features; those of the model, or all but the
        labels, by default. Double quotes hold a name with a comma.
    """
    # See the note in `options`.
    from streamgda.rows.opening import is_table  # noqa: PLC0415

    options: Any = table_options(**table)
    file, name = file_and_name(labels)
    own = (name or "y") if labelled and file is None else None
    names = (split_names(*features) if isinstance(features, list) else features) or None
    whole = names is None and bool(table.get("format") or is_table(data))  # all other columns
    left_out = {"drop": [*options.get("drop", ()), *beside]} if whole and beside else {}
    X, found = streamgda.open_store(data, x, own, features=names, **(options | left_out))
    names = X.fields if whole else names
    others = [streamgda.open_store(data, x, each, features=names, **options)[1] for each in beside]
    if file is not None:
        found, _ = streamgda.open_store(file, name or "y", None)
    if labelled and found is None:
        raise InvalidParameterError(
            f"{data} holds no {own!r} beside the rows: --labels names the file that holds them"
        )
    return X, found, *others


def file_and_name(labels: Sequence[str] | None) -> tuple[str | None, str | None]:
    """Return the file of labels and the name of a column or an array, each None if not given."""
    given: dict[bool, str] = {}
    for text in labels or ():
        is_file = "://" in text or Path(text).exists()
        if is_file in given:
            raise typer.BadParameter(
                f"{given[is_file]!r} and {text!r}; expected one name, one file that exists, or "
                f"one of each",
                param_hint="--labels",
            )
        given[is_file] = text
    return given.get(True), given.get(False)


def open_both(
    model: str | None, data: str, former: str | None, labelled: bool = True, **options: Any
) -> tuple[Any, ...]:
    """Return the paths of an estimator and of rows, the estimator, the rows and the labels.

    The options are those of `open_rows`. `former` is a second argument, as in MODEL DATA.

    The columns of a table are by default those that the estimator was fitted with.

    Raises
    ------
    SourceNotFoundError, SourceError, FormatError
        If either cannot be opened, or the rows or labels are scores that are not complete.
    InvalidDataError
        If the rows do not have the features that the estimator expects.
    """
    from streamgda.estimators.row_estimator import names_in  # noqa: PLC0415
    from streamgda.rows import names_of  # noqa: PLC0415
    from streamgda.rows.names import join_names  # noqa: PLC0415
    from streamgda.rows.opening import is_table  # noqa: PLC0415
    from streamgda.storage.opening import refuse_half_written  # noqa: PLC0415

    if former is not None and model is None:
        warn_deprecated(f"{data} {former}", f"{former} --model {data}")
        model, data = data, former
    elif former is not None or model is None:
        raise typer.BadParameter("expected DATA --model PATH", param_hint="--model")
    try:
        estimator = streamgda.load(model)
    except (FormatError, SourceNotFoundError) as error:
        error.add_note("--model names what `streamgda fit` or a classifier's save() wrote")
        raise
    if not hasattr(estimator, "predict"):
        raise FormatError(
            f"{model} holds a {type(estimator).__name__}, which predicts no labels; expected a "
            f"model that `streamgda fit` or a classifier's save() wrote"
        )
    if not options["features"] and (options.get("format") or is_table(data)):
        options["features"] = names_in(estimator)
    X, found = open_rows(data, labelled=labelled, **options)
    x = options["x"]
    if len(X.shape) != 2 or X.shape[1] != estimator.n_features_in_:
        raise InvalidDataError(
            f"{data}: {x!r} has shape {X.shape}; {model} expects rows of "
            f"{estimator.n_features_in_} features"
        )
    join_names(names_in(estimator), names_of(X), model, InvalidDataError)
    for name, array in ((x, X), ("y", found)):
        refuse_half_written(array, f"{data}: {name!r}")
    return model, data, estimator, X, found


def table_options(**table: Unpack[TableOptions]) -> TableOptions:
    """Return the options of a table that were given, with values for their texts."""
    given: Any = {name: value for name, value in table.items() if value is not None}
    if "drop" in given:
        given["drop"] = split_names(*given["drop"])
    if "delimiter" in given:
        given["delimiter"] = given["delimiter"].replace("\\t", "\t")
    return given


def split_names(*texts: str) -> list[str]:
    """Return the names in texts, which commas separate; double quotes hold commas, as in CSV."""
    try:
        rows = [next(csv.reader([text], skipinitialspace=True), [""]) for text in texts]
    except csv.Error:
        raise typer.BadParameter(
            "a name has a line break; put double quotes around such a name"
        ) from None
    return [name.strip() for row in rows for name in row]


# --- labels ---------------------------------------------------------------------------------------


def label_like(text: str | None, dtype: Any, option: str) -> Any:
    """Return a label of the kind that an array of labels has, or None for None.

    Parameters
    ----------
    text : str or None
    dtype : numpy.dtype or None
        Data type of the labels; None for texts.
    option : str
        Name of the option in errors.

    Raises
    ------
    typer.BadParameter
        If the text is no such label.
    """
    if text is None:
        return None
    kind = getattr(dtype, "kind", "U")
    try:
        if kind == "b" and text.lower() in _BOOLEANS:
            return _BOOLEANS[text.lower()]
        if kind in _NUMBERS:
            number = float(text)
            return int(text) if not number % 1 else number
        if kind in _DATES:  # dates in their own unit, as another may cut them
            return np.datetime64(text) if kind == "M" else np.array(text, dtype)[()]
        return text.encode() if kind == "S" else text
    except (ValueError, OverflowError):
        what = "a number" if kind in _NUMBERS else "a date"
        raise typer.BadParameter(
            f"{text!r} is not {what}, as the classes or scores are", param_hint=option
        ) from None


def counting(
    found: Any,
    *,
    on_invalid: Literal["raise", "skip"] = "raise",
    nodata: float | None = None,
    unlabelled: list[str] | None = None,
) -> dict[str, Any]:
    """Return the options of `streamgda.accumulate` that say which rows count.

    Parameters
    ----------
    found : array-like
        The labels of the rows.
    on_invalid : {"raise", "skip"}
        Raise an error for rows with NaN, infinity, --nodata or a missing label, or skip.
    nodata : FLOAT
        Value that marks a missing measurement.
    unlabelled : LABEL
        Label of rows that do not count, whatever they hold. Give it several times for more.
    """
    dtype = getattr(found, "dtype", None)
    labels = [label_like(text, dtype, "--unlabelled") for text in unlabelled or ()]
    return {"on_invalid": on_invalid, "nodata": nodata, "unlabelled": labels or None}


# --- what is written ------------------------------------------------------------------------------


def check_distinct(paths: Mapping[str, Path | None]) -> None:
    """Raise BadParameter if two options name the same path."""
    written = [path.resolve() for path in paths.values() if path is not None]
    if len(set(written)) < len(written):
        *names, last = paths
        raise typer.BadParameter(f"{', '.join(names)} and {last} must be different paths")


def refuse_occupied(path: str | Path) -> None:
    """Raise InvalidParameterError if something is at a path, or it is a URL."""
    local_path(path)  # refuses what cannot be one
    if not is_free(Path(path)):
        raise InvalidParameterError(f"{path} exists; name another path")


def check_saving(path: Path, overwrite: bool) -> None:
    """Raise an error unless an object can be saved at a path, replacing one only if it may."""
    check_place(path)
    if path.exists() and not overwrite:
        raise InvalidParameterError(f"{path} exists; --overwrite replaces it")


def stored_bytes(path: str | Path) -> int | None:
    """Return the size of a file, or of all files in a directory; None for a remote store."""
    path = Path(path)
    if path.is_file():
        return path.stat().st_size
    if not path.is_dir():
        return None
    return sum(member.stat().st_size for member in path.rglob("*") if member.is_file())


def stored_size(path: str | Path) -> str:
    """Return `stored_bytes` in a readable unit."""
    from streamgda.runtime.memory import readable  # noqa: PLC0415

    return readable(stored_bytes(path) or 0)
