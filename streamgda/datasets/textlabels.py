"""Labels of a stream, which are given as text, in the type of the classes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from streamgda.datasets.missing import is_number
from streamgda.datasets.textrows import number_reader
from streamgda.errors import InvalidParameterError

_NUMBERS, _TEXTS = "biuf", "UT"
_TRUTH = {"true": "1", "false": "0"}
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")  # 18 digits always fit int64


def as_classes(texts: Sequence[str]) -> np.ndarray:
    """Return labels that are given as text: integers if all are, and texts otherwise."""
    integers = all(map(_INTEGER.fullmatch, texts))
    return np.array([*map(int, texts)] if integers else [*texts])


class TextLabels:
    """Reader of labels that are given as text.

    Parameters
    ----------
    classes : ndarray, optional
        Known classes, whose type all labels have. Without them, all labels are integers if the
        first one is, and texts otherwise.
    closed : bool
        Refuse labels that are not among the classes.

    Raises
    ------
    InvalidParameterError
        If the classes are neither numbers nor texts.

    Examples
    --------
    >>> labels = TextLabels()
    >>> labels.read("3"), labels.read("3.0")
    (3, 3)
    >>> labels.read("three")
    Traceback (most recent call last):
    ValueError: the label 'three' is no int64, as the classes are
    """

    def __init__(self, classes: np.ndarray | None = None, *, closed: bool = False) -> None:
        self.classes = classes
        self.dtype = None if classes is None else classes.dtype
        self._closed = set(classes.tolist()) if classes is not None and closed else None
        self._known: dict[str, Any] = {}
        if self.dtype is not None and self.dtype.kind not in _NUMBERS + _TEXTS:
            raise InvalidParameterError(
                f"the classes are of type {self.dtype}; a stream has labels that are whole numbers "
                f"or texts"
            )

    def read(self, text: str, *, is_text: bool = False) -> Any:
        """Return a label.

        Parameters
        ----------
        text : str
        is_text : bool
            If it is the first label, take it for a text, even if it looks like an integer.

        Raises
        ------
        ValueError
            If it is not of the type of the others.
        """
        if text not in self._known:
            if self.dtype is None:
                integer = not is_text and _INTEGER.fullmatch(text)
                self.dtype = np.dtype(np.int64 if integer else np.str_)
            self._known[text] = self._converted(text, self.dtype)
        return self._known[text]

    def _converted(self, text: str, dtype: np.dtype) -> Any:
        if "\n" in text or "\r" in text:
            raise ValueError(f"the label {text!r} contains a line break")
        label: Any = text
        if dtype.kind in _NUMBERS:
            if dtype.kind == "b":
                text = _TRUTH.get(text.lower(), text)
            try:
                label = number_reader(dtype)(text)
                if label % 1 or not is_number(text):
                    raise ValueError
            except (ValueError, OverflowError):
                raise ValueError(f"the label {text!r} is no {dtype}, as the classes are") from None
        if self._closed is not None and label not in self._closed:
            raise ValueError(f"the label {text!r} is not among the classes, whose priors are given")
        return label
