"""Markers of missing values in tables of text."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from streamgda.runtime.parameters import refuse

# The markers of pandas.
_COMMON = ("", "NA", "N/A", "NULL", "NaN", "None", "n/a", "nan", "null", "<NA>")
_RARE = ("#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN")


@dataclass(frozen=True)
class Missing:
    """Fields that mean that there is no value.

    Attributes
    ----------
    texts : frozenset of str
        Markers that are compared as text, without the spaces around a field.
    numbers : tuple of float
        Markers that are compared as numbers: -9999 is -9999.0 too.
    """

    texts: frozenset[str]
    numbers: tuple[float, ...]

    @classmethod
    def of(cls, na_values: Any, keep_default_na: bool) -> Self:
        """Return the markers that a user asks for; see `TextOptions`."""
        listed = [na_values] if isinstance(na_values, str | float | int) else na_values
        if listed is None:
            listed = []
        markers = list(listed) if isinstance(listed, Iterable) else [None]
        if not all(isinstance(m, str | float | int | np.number) for m in markers):
            raise refuse("na_values", na_values, "texts or numbers that mark missing values")
        texts = {str(marker).strip() for marker in markers}
        numbers = {float(text) for text in texts if is_number(text)}
        default = {*_COMMON, *_RARE} if keep_default_na else set()
        return cls(frozenset(default | texts), tuple(n for n in numbers if not math.isnan(n)))

    def __contains__(self, text: str) -> bool:
        stripped = text.strip()
        if stripped in self.texts:
            return True
        return bool(self.numbers) and is_number(stripped) and float(stripped) in self.numbers

    def clear(self, values: np.ndarray) -> np.ndarray:
        """Replace the numbers that are markers with NaN, in place."""
        for number in self.numbers:
            values[values == number] = np.nan
        return values


def is_number(text: str) -> bool:
    """Return True if a text is a number, as Python reads one, but without underscores."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text
