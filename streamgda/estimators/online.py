"""Prediction of the rows of a stream before they are learnt."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any

import numpy as np

from streamgda.errors import (
    CollinearityWarning,
    ConstantFeatureWarning,
    InvalidDataError,
    InvalidParameterError,
    SingularCovarianceError,
)
from streamgda.estimators.base import MomentClassifier
from streamgda.estimators.learning import check_fitted, check_one_pass
from streamgda.moments import name_features, read_twice

_SHARE = 20  # a block has at most one row for so many before it
_TOO_FEW = (InvalidDataError, InvalidParameterError)  # errors of an estimator with too few rows


class OnlineClassifier:
    """A classifier that predicts each row of a stream before it learns from it.

    Rows are learnt in blocks, and predicted by what was learnt from the blocks before theirs. Where
    blocks end depends on the number of rows only, never on how many arrive at a time: a block has
    a twentieth of the rows before it, at least one and at most `batch_rows`.

    Classes whose covariances are still singular, because they have too few rows, are left out of
    predictions. Without a model of the others, there are no predictions.

    Parameters
    ----------
    estimator : MomentClassifier
        Fitted or not; it learns.
    half_life : float, optional
        Number of rows after which a row counts half, see `MomentClassifier.partial_fit`.
    batch_rows : int
        Most rows that are learnt at a time; with 1, each is predicted from all before it.
    classes : array-like, shape (n_labels,), optional
        All labels that may occur; they are classes before their first row.
    rows : int
        Rows of the stream before the first that will be added.

    Attributes
    ----------
    estimator : MomentClassifier
    rows : int
        Rows of the stream so far.
    names : sequence of str, optional
        Names of the features, which an estimator that has learnt nothing gets.
    refusal : str
        Reason that there is no model, if there is none.

    Raises
    ------
    InvalidParameterError
        If the estimator needs to read rows twice.

    Examples
    --------
    >>> from streamgda import GaussianNB
    >>> online = OnlineClassifier(GaussianNB().fit([[1.0], [2.0], [7.0], [9.0]], list("aabb")))
    >>> row = np.array([[8.0]])
    >>> online.predict(row), online.add(row, ["b"]), online.estimator.class_count_
    (['b'], True, array([2., 3.]))
    """

    def __init__(
        self,
        estimator: MomentClassifier,
        *,
        half_life: float | None = None,
        batch_rows: int = 1000,
        classes: Any = None,
        rows: int = 0,
    ) -> None:
        fitted = hasattr(estimator, "moments_")
        if not fitted or read_twice(estimator.moments_):
            check_one_pass(estimator)
        self.estimator, self.rows = estimator, rows
        self._half_life, self._batch_rows = half_life, batch_rows
        self._classes = classes
        self.names: Sequence[str] | None = None
        self._pending: list[tuple[np.ndarray, list[Any]]] = []
        self._left = self._block()
        self._model: Any = None
        self._stale = True  # `_model` is not that of the moments
        self.refusal = ""

    @property
    def left(self) -> int:
        """Number of rows until the end of the block."""
        return self._left

    def predict(self, X: np.ndarray) -> list[Any] | None:
        """Return the class of each row; None as long as there is no model.

        Parameters
        ----------
        X : ndarray of float64, shape (n_rows, n_features)
            Rows of one block.
        """
        model = self._current()
        return None if model is None else model.predict(X).tolist()

    def predict_proba(self, X: np.ndarray) -> tuple[list[Any], list[list[float]]]:
        """Return the classes of the model, none if there is none, and the probabilities of each.

        Parameters
        ----------
        X : ndarray of float64, shape (n_rows, n_features)
            Rows of one block.
        """
        model = self._current()
        return (
            ([], []) if model is None else (model.classes.tolist(), model.posterior(X).T.tolist())
        )

    def add(self, X: np.ndarray, labels: Sequence[Any], rows: int | None = None) -> bool:
        """Add rows of one block, which are learnt at its end.

        Parameters
        ----------
        X : ndarray of float64, shape (n_labelled, n_features)
            Rows with a label.
        labels : sequence, shape (n_labelled,)
        rows : int, optional
            Number of all rows, with and without a label; by default that of those with one.

        Returns
        -------
        bool
            True at the end of a block: all rows so far have been learnt.
        """
        if len(labels):
            self._pending.append((X, [*labels]))
        rows = len(labels) if rows is None else rows
        self.rows, self._left = self.rows + rows, self._left - rows
        if self._left > 0:
            return False
        self.learn()
        return True

    def learn(self) -> None:
        """Learn all rows so far: end the block here."""
        if self._pending:
            X = np.concatenate([rows for rows, _ in self._pending])
            y = np.array([label for _, labels in self._pending for label in labels])
            first = not hasattr(self.estimator, "moments_")
            with quiet():
                self.estimator.partial_fit(X, y, self._classes, half_life=self._half_life)
            if first and self.names is not None:
                self.estimator.feature_names_in_ = np.array(self.names, object)
                name_features(self.estimator.moments_, tuple(self.names))
            self._classes, self._stale = None, True
            self._pending.clear()
        self._left = self._block()

    def _block(self) -> int:
        return max(1, min(self._batch_rows, self.rows // _SHARE))

    def _current(self) -> Any:
        """Return the model of what was learnt; None if there is none."""
        if self._stale:
            with quiet():
                self._model = self._computed()
            self._stale = False
        return self._model

    def _computed(self) -> Any:
        self.refusal, estimator = "", self.estimator
        if not hasattr(estimator, "moments_"):
            return None
        try:
            check_fitted(estimator)
            return estimator.model_
        except SingularCovarianceError as error:
            self.refusal, singular = str(error), error.classes
        except _TOO_FEW as error:
            self.refusal, singular = str(error), []
        if not singular:
            return None
        with contextlib.suppress(SingularCovarianceError, *_TOO_FEW):
            others = copy(estimator).retire(singular)
            check_fitted(others)
            self.refusal = ""
            return others.model_
        return None


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Ignore warnings that concern the first rows of a stream, and rows without names."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConstantFeatureWarning)
        warnings.simplefilter("ignore", CollinearityWarning)
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        yield
