"""Labels that are given as text on the command line."""

from __future__ import annotations

from typing import Any

import typer

_NUMBERS, _DATES = "biuf", "mM"
_BOOLEANS = {"True": True, "False": False}


def label_like(text: str, dtype: Any, option: str) -> Any:
    """Return a label of the kind that an array of labels has.

    Parameters
    ----------
    text : str
    dtype : numpy.dtype or None
        Data type of the labels; None for texts.
    option : str
        Name of the option in errors.

    Raises
    ------
    typer.BadParameter
        If the text is no such label.
    """
    import numpy as np  # noqa: PLC0415

    kind = getattr(dtype, "kind", "U")
    try:
        if kind == "b" and text in _BOOLEANS:
            return _BOOLEANS[text]
        if kind in _NUMBERS:
            number = float(text)
            return int(text) if not number % 1 else number
        if kind in _DATES:  # dates in their own unit, as another may cut them
            return np.datetime64(text) if kind == "M" else np.array(text, dtype)[()]
        return text.encode() if kind == "S" else text
    except (ValueError, OverflowError):
        what = "an integer" if kind in _NUMBERS else "a date"
        raise typer.BadParameter(
            f"{text!r} is not {what}, as the classes are", param_hint=option
        ) from None


def labels_like(texts: list[str] | None, labels: Any, option: str) -> list[Any] | None:
    """Return labels of the kind of an array of labels, as `label_like` does; None for no texts."""
    dtype = getattr(labels, "dtype", None)
    return [label_like(text, dtype, option) for text in texts] if texts else None
