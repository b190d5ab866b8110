"""`Model`: base of the models, which score rows in chunks, and the answers that scores give.

Scores are class by class, shape (n_classes, n_rows). The functions that compute answers from them
may overwrite them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import fields
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np

from streamgda.errors import InvalidDataError, InvalidParameterError
from streamgda.kernels import scoring
from streamgda.kernels.scoring import normalise
from streamgda.models.calibration import likelihoods
from streamgda.moments.feature_maps import Lifting
from streamgda.moments.roots import NO_SCORES
from streamgda.rows import named_rows, tensors
from streamgda.rows.arrays import as_kernel_rows, row_type
from streamgda.rows.invalid_rows import all_finite, as_matrix, refuse_not_finite
from streamgda.rows.lifted import LiftedRows, lifted
from streamgda.rows.names import join_names, saved_names
from streamgda.rows.sparse import CompressedRows
from streamgda.rows.tensors import DeviceArray
from streamgda.runtime import threads
from streamgda.runtime.parameters import as_numbers
from streamgda.storage.format import check_array, pack_labels
from streamgda.storage.saved import Saved, State

# A chunk has about this many values of rows and scores, because a thread has to wait for Python
# between two chunks. Chunks of wide rows have enough rows to use the root of a class several times
# while it is in the cache.
_CHUNK_ELEMENTS = 1 << 19
_CHUNK_ROWS = 384
_FEW_PRODUCTS = 1 << 18
_PART_PRODUCTS = 1 << 21  # that take longer than to wake up a thread
_BLOCK = 96  # chunks are multiples of it: whole panels of every kind

_NO_DENSITIES = np.empty(0)

Finish = Callable[[np.ndarray, np.ndarray], None]  # called as ``finish(scores, part of out)``


def scratch_bytes(n_features: int) -> int:
    """Return the most bytes of the chunks that are scored at a time: cast, packed, and scores."""
    return threads.n_threads() * 24 * max(_CHUNK_ELEMENTS, _CHUNK_ROWS * n_features)


def by_chunks(
    scores_of: Callable[[np.ndarray, int], np.ndarray],
    finish: Finish,
    X: Any,
    n_scores: int,
    out: np.ndarray,
    first_row: int,
    row_products: int,
    by_blas: bool,
) -> np.ndarray:
    """Score rows chunk by chunk, on all threads, into `out`, which is returned.

    Parameters
    ----------
    scores_of : callable
        Called as ``scores_of(rows, number of the first row)``; returns scores class by class, or
        whatever `finish` takes.
    finish : Finish
    X : ndarray or CompressedRows, shape (n_rows, n_features)
    n_scores : int
        Scores of each row.
    out : ndarray, one entry a row
    first_row : int
        Number of the first row in a larger array.
    row_products : int
        Multiply-adds of a row, about.
    by_blas : bool
        Limit BLAS to one thread of each of ours.
    """
    n_rows = X.shape[0]
    if not n_rows:
        return out
    # For so few products, BLAS uses one thread anyway.
    serial = by_blas and n_rows * row_products > _FEW_PRODUCTS
    serial = serial or type(X) is LiftedRows
    if n_rows <= _BLOCK and not serial:
        finish(scores_of(X, first_row), out)
        return out
    width = X.row_elements if type(X) is CompressedRows else X.shape[1]
    parts = n_rows * row_products // _PART_PRODUCTS
    if parts > 1:  # otherwise they take less time than to count threads
        parts = min(parts, threads.n_threads())
    step = max(_CHUNK_ELEMENTS // (width + n_scores), _CHUNK_ROWS)
    step = min(step, -(-n_rows // max(parts, 1)))
    step = -(-step // _BLOCK) * _BLOCK

    def work(start: int) -> None:
        rows = slice(start, start + step)
        finish(scores_of(X[rows], first_row + start), out[rows])

    calls = [(start,) for start in range(0, n_rows, step)]
    (threads.run_serial_blas if serial else threads.run)(work, calls)
    return out


# --- answers from scores, which are overwritten --------------------------------------------------


def labelled(classes: np.ndarray) -> Finish:
    """Return a function that writes the classes with given numbers."""
    return partial(_write_labels, classes)


def _write_labels(classes: np.ndarray, codes: np.ndarray, out: np.ndarray) -> None:
    classes.take(codes, out=out, mode="clip")  # other modes make a copy


def checked_rows(
    model: Any, X: Any, first_row: int = 0, sparse: bool = False, device: bool = False
) -> Any:
    """Return rows as arrays that fit a model, behind its feature map if it has one."""
    plain = model.feature_map is None
    X = checked_names(X, model.feature_names)
    X = as_matrix(X, first_row, sparse and plain, device and plain)
    lifting = model.feature_map
    check_width(X, model.n_features if lifting is None else lifting.n_in)
    return lifted(X, lifting, first_row)


def checked_names(X: Any, names: tuple[str, ...] | None) -> Any:
    """Return rows; raise `InvalidDataError` if their features have other names than a model's."""
    if names is not None and type(X) is not np.ndarray:
        X, found = named_rows(X)
        join_names(names, found, "this model", InvalidDataError)
    return X


def read_dense(X: np.ndarray, first_row: int) -> np.ndarray:
    """Return rows as kernels read them; raise `InvalidDataError` for NaN and infinity."""
    rows = as_kernel_rows(X, row_type(X.dtype).dtype)
    if rows.dtype.kind == "f" and not all_finite(rows):
        refuse_not_finite(rows, first_row)
    return rows


def check_width(X: np.ndarray, n_features: int) -> None:
    """Raise `InvalidDataError` unless rows have the width of the model."""
    if X.shape[1] != n_features:
        raise InvalidDataError(
            f"X has {X.shape[1]} features, but this model is expecting {n_features} features as "
            f"input"
        )


def copied(scores: np.ndarray, out: np.ndarray) -> None:
    """Write the scores."""
    out[...] = scores.T


def difference(scores: np.ndarray, out: np.ndarray) -> None:
    """Write the score of the second of two classes, or of the only one, less that of the first."""
    np.subtract(scores[-1], scores[0], out=out)


def tempered(scores: np.ndarray, temperature: float) -> np.ndarray:
    """Divide scores by a temperature, and return them."""
    if temperature != 1.0:
        scores /= temperature
    return scores


def posterior(scores: np.ndarray, out: np.ndarray) -> None:
    """Write probabilities; all classes are equally probable where all scores are -inf."""
    normalise(scores, False, _NO_DENSITIES, out)


def log_posterior(scores: np.ndarray, out: np.ndarray) -> None:
    """Write logarithms of probabilities, exact even where these are rounded to zero."""
    normalise(scores, True, _NO_DENSITIES, out)


def log_sum_exp(scores: np.ndarray, out: np.ndarray) -> None:
    """Write the logarithm of the sum over the classes."""
    normalise(scores, True, out, NO_SCORES)


# The same of scores on a device; predictions are numbers of classes.
_ON_DEVICE: dict[Callable[..., None], Callable[[Any, Any], Any]] = {
    _write_labels: tensors.as_codes,
    copied: tensors.transposed,
    difference: tensors.difference,
    posterior: tensors.posterior,
    log_posterior: tensors.log_posterior,
    log_sum_exp: tensors.log_sum_exp,
}

_EPSILON = np.finfo(np.float64).eps
_CLIPPED = np.log(_EPSILON), np.log1p(-_EPSILON)  # as in scikit-learn's log-loss


class Model(Saved):
    """Base of the models: frozen dataclasses that score rows of class-conditional distributions.

    Scores of a chunk of rows are class by class, shape (n_classes, n_rows). The public methods
    take an array-like of rows, shape (n_rows, n_features), and `first_row`, the number of the
    first of them in a larger array, from which errors count. Models without covariances between
    features take sparse rows, too.

    Attributes
    ----------
    classes : ndarray, shape (n_classes,)
    priors : ndarray of float64, shape (n_classes,)
    feature_names : tuple of str or None
        Names of the features. Rows with other names are refused; those without names fit any.
    feature_map : Lifting or None
        Map of rows before they are scored; names are those of features before it.
    """

    classes: np.ndarray
    priors: np.ndarray
    feature_names: tuple[str, ...] | None
    feature_map: Lifting | None = None

    # Methods that score rows on a device there; others copy them.
    _on_device: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        # Estimators return these as fitted attributes. Kernels get them as copies only.
        for name in ("priors", "means", "log_one", "log_zero"):
            if name in vars(self):
                values = vars(self)[name].view()
                values.flags.writeable = False
                object.__setattr__(self, name, values)

    def _description(self) -> dict[str, Any]:
        priors = getattr(self, "priors", np.full(self.classes.size, None)).tolist()
        classes = zip(self.classes.tolist(), priors, strict=True)
        mapped = {} if self.feature_map is None else {"feature_map": str(self.feature_map)}
        return {
            **super()._description(),
            "features": self.n_features,
            "feature_names": self.feature_names,
            **mapped,
            "classes": [{"label": label, "prior": prior} for label, prior in classes],
        }

    def _state(self) -> State:
        held = self.__getstate__()
        attributes = {"classes": pack_labels(held.pop("classes"))}
        arrays = {name: value for name, value in held.items() if isinstance(value, np.ndarray)}
        if self.feature_map is not None:
            attributes["feature_map"] = self.feature_map.as_json()
        return attributes | saved_names(self.feature_names), arrays

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes without what is derived from them, which keeps pickles small."""
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    @property
    @abstractmethod
    def packed_bytes(self) -> int:
        """Bytes that scoring packs of the model, at most."""

    @property
    def held_bytes(self) -> int:
        """Bytes that scoring holds: what it packs of the model, and what a feature map needs."""
        if self.feature_map is None:
            return self.packed_bytes
        return self.packed_bytes + self.feature_map.nbytes + scratch_bytes(self.n_features)

    @property
    def _takes_sparse(self) -> bool:
        """True if sparse rows are scored as they are."""
        return False

    @property
    def _row_products(self) -> int:
        """Multiply-adds of the scores of a row, about."""
        return self.n_features * self.classes.size

    @property
    def _by_blas(self) -> bool:
        """True if scores are computed by BLAS."""
        return True

    @property
    @abstractmethod
    def n_features(self) -> int:
        """Width of the rows that are scored."""

    @cached_property
    def log_priors(self) -> np.ndarray:
        """Logarithms of the priors, minus infinity where zero."""
        with np.errstate(divide="ignore"):
            return np.log(self.priors)

    # --- scores of a chunk of rows ------------------------------------------------------------

    @abstractmethod
    def _read(self, X: Any, first_row: int) -> Any:
        """Return rows as the scoring kernels read them; refuse invalid ones."""

    @abstractmethod
    def _relative_scores(self, X: np.ndarray, margin: float = np.inf) -> np.ndarray:
        """Return joint log-likelihoods, up to a term that all classes of a row share.

        Scores that are more than `margin` below the largest of their row need only be upper bounds
        with that property.
        """

    @abstractmethod
    def _joint(self, X: np.ndarray) -> np.ndarray:
        """Return joint log-likelihoods."""

    def _most_probable(self, X: Any) -> Any:
        """Return the number of each row's most probable class, shape (n_rows,)."""
        scores = self._relative_scores(X, margin=0.0)
        if type(X) is DeviceArray:
            return X.xp.argmax(scores, axis=0)
        codes = np.empty(X.shape[0], np.int64)
        scoring.largest(scores, codes)
        return codes

    # --- scores of arrays ---------------------------------------------------------------------

    def held_out(
        self,
        X: np.ndarray,
        truth: np.ndarray,
        weights: np.ndarray,
        temperature: float = 1.0,
        sums: np.ndarray | None = None,
    ) -> tuple[float, float]:
        """Return the weight of the rows that are classified correctly, and their log-likelihood.

        Parameters
        ----------
        X : ndarray, shape (n_rows, n_features)
            Some rows, which the calling thread scores.
        truth : ndarray of int64, shape (n_rows,)
            Numbers of their classes.
        weights : ndarray of float64, shape (n_rows,)
            Their weights.
        temperature : float > 0
            Temperature of the posteriors; see `posterior`.
        sums : ndarray, optional
            What the rows add to `streamgda.models.calibration.likelihoods` is added to it.

        Returns
        -------
        right : float
            Sum of the weights of the rows that are classified correctly.
        log_likelihood : float
            Weighted sum of the logarithms of the posteriors of the true classes, clipped as
            `sklearn.metrics.log_loss` clips them: a single impossible row leaves it finite.

        Raises
        ------
        InvalidDataError
            For rows that cannot be scored.

        Examples
        --------
        >>> import numpy as np
        >>> from streamgda import GaussianNB
        >>> X, y = [[1.0], [3.0], [6.0], [8.0]], ["ant", "ant", "bee", "bee"]
        >>> model = GaussianNB().fit(X, y).model_
        >>> rows, truth = np.array([[2.0], [5.0]]), np.array([0, 0])
        >>> right, log_likelihood = model.held_out(rows, truth, np.ones(2))
        >>> right, round(log_likelihood, 2)
        (1.0, -2.58)
        """
        scores = self._relative_scores(self._read(np.asarray(lifted(X, self.feature_map)), 0))
        if sums is not None:
            sums += likelihoods(scores, truth, weights)
        scores = tempered(scores, temperature)
        codes, logarithms = np.empty(truth.size, np.int64), np.empty(scores.T.shape)
        scoring.largest(scores, codes)
        log_posterior(scores, logarithms)
        right = float(weights @ (codes == truth))
        of_truth = logarithms[np.arange(truth.size), truth]
        return right, float(weights @ of_truth.clip(*_CLIPPED))

    def _score(
        self,
        X: Any,
        scores_of: Callable[[np.ndarray], np.ndarray],
        finish: Finish,
        out: np.ndarray,
        first_row: int,
    ) -> Any:
        """Score rows chunk by chunk, on all threads, into `out`; those on a device there."""
        there = _ON_DEVICE.get(getattr(finish, "func", finish)) if self._on_device else None
        X = checked_rows(self, X, first_row, self._takes_sparse, device=there is not None)
        if there is not None and type(X) is DeviceArray:
            if not np.isfinite(X.largest):
                refuse_not_finite(X, first_row)
            scores = X.scored(scores_of, there, self.classes.size)
            return tensors.as_labels(scores, self.classes) if there is tensors.as_codes else scores
        return by_chunks(
            lambda rows, first: scores_of(self._read(rows, first)),
            finish,
            X,
            self.classes.size,
            out,
            first_row,
            self._row_products,
            self._by_blas,
        )

    def _by_class(
        self,
        X: Any,
        scores_of: Callable[[np.ndarray], np.ndarray],
        finish: Finish,
        first_row: int,
    ) -> Any:
        """Score rows as `_score` does, into an array of shape (n_rows, n_classes)."""
        out = np.empty((length(X), self.classes.size))
        return self._score(X, scores_of, finish, out, first_row)

    def predict(self, X: Any, first_row: int = 0) -> np.ndarray:
        """Return each row's most probable class.

        Parameters
        ----------
        X : array-like, shape (n_rows, n_features)
            Rows.
        first_row : int
            Number of the first row in a larger array, from which errors count.

        Returns
        -------
        ndarray, shape (n_rows,)
            Class labels.

        Raises
        ------
        InvalidDataError
            For rows that cannot be scored: NaN, infinity, or another number of features.

        Examples
        --------
        >>> from streamgda import GaussianNB
        >>> X, y = [[1.0], [3.0], [6.0], [8.0]], ["ant", "ant", "bee", "bee"]
        >>> model = GaussianNB().fit(X, y).model_
        >>> model.predict([[2.0], [5.0]])
        array(['ant', 'bee'], dtype='<U3')
        """
        out = np.empty(length(X), self.classes.dtype)
        return self._score(X, self._most_probable, labelled(self.classes), out, first_row)

    def posterior(self, X: Any, first_row: int = 0, temperature: float = 1.0) -> np.ndarray:
        """Return the probability of each class given the row.

        Parameters
        ----------
        X : array-like, shape (n_rows, n_features)
            Rows.
        first_row : int
            Number of the first row in a larger array, from which errors count.
        temperature : float > 0
            Divides the joint log-likelihoods before; see `streamgda.models.calibration`.

        Returns
        -------
        ndarray, shape (n_rows, n_classes)
            Probabilities; each row sums to one.

        Raises
        ------
        InvalidDataError
            For rows that cannot be scored; see `predict`.

        Examples
        --------
        >>> from streamgda import GaussianNB
        >>> X, y = [[1.0], [3.0], [6.0], [8.0]], ["ant", "ant", "bee", "bee"]
        >>> model = GaussianNB().fit(X, y).model_
        >>> model.posterior([[2.0], [5.0]]).round(3)
        array([[1.   , 0.   ],
               [0.076, 0.924]])
        """

        def scores_of(rows: np.ndarray) -> np.ndarray:
            return tempered(
                self._relative_scores(rows, margin=scoring.FAR * temperature), temperature
            )

        return self._by_class(X, scores_of, posterior, first_row)

    def log_posterior(self, X: Any, first_row: int = 0, temperature: float = 1.0) -> np.ndarray:
        """Return the logarithm of `posterior`, exact even where that is rounded to zero.

        Parameters
        ----------
        X : array-like, shape (n_rows, n_features)
            Rows.
        first_row : int
            Number of the first row in a larger array, from which errors count.
        temperature : float > 0
            See `posterior`.

        Returns
        -------
        ndarray, shape (n_rows, n_classes)
            Logarithms of the probabilities.

        Raises
        ------
        InvalidDataError
            For rows that cannot be scored; see `predict`.

        Examples
        --------
        >>> from streamgda import GaussianNB
        >>> X, y = [[1.0], [3.0], [6.0], [8.0]], ["ant", "ant", "bee", "bee"]
        >>> model = GaussianNB().fit(X, y).model_
        >>> model.log_posterior([[-500.0]]).round(1)
        array([[    0. , -2522.5]])
        """

        def scores_of(rows: np.ndarray) -> np.ndarray:
            return tempered(self._relative_scores(rows), temperature)

        return self._by_class(X, scores_of, log_posterior, first_row)

    def joint_log_likelihood(self, X: Any, first_row: int = 0) -> np.ndarray:
        r"""Return :math:`\ln p(x, y=k)`.

        Parameters
        ----------
        X : array-like, shape (n_rows, n_features)
            Rows.
        first_row : int
            Number of the first row in a larger array, from which errors count.

        Returns
        -------
        ndarray, shape (n_rows, n_classes)
            Joint log-likelihoods.

        Raises
        ------
        InvalidDataError
            For rows that cannot be scored; see `predict`.

        Examples
        --------
        >>> from streamgda import GaussianNB
        >>> X, y = [[1.0], [3.0], [6.0], [8.0]], ["ant", "ant", "bee", "bee"]
        >>> model = GaussianNB().fit(X, y).model_
        >>> model.joint_log_likelihood([[2.0]]).round(3)
        array([[ -1.612, -14.112]])
        """
        return self._by_class(X, self._joint, copied, first_row)

    def relative_scores(self, X: Any, first_row: int = 0) -> np.ndarray:
        """Return discriminants: joint log-likelihoods, up to a term that all classes share.

        Parameters
        ----------
        X : array-like, shape (n_rows, n_features)
            Rows.
        first_row : int
            Number of the first row in a larger array, from which errors count.

        Returns
        -------
        ndarray, shape (n_rows, n_classes)
            Discriminants.
        """
        return self._by_class(X, self._relative_scores, copied, first_row)

    def log_odds(self, X: Any, first_row: int = 0) -> np.ndarray:
        """Return the log-odds of the second of two classes; zero if there is one class only.

        Parameters
        ----------
        X : array-like, shape (n_rows, n_features)
            Rows.
        first_row : int
            Number of the first row in a larger array, from which errors count.

        Returns
        -------
        ndarray, shape (n_rows,)
            Log-odds; positive where the second class is more probable.

        Raises
        ------
        InvalidDataError
            For rows that cannot be scored; see `predict`.

        Examples
        --------
        >>> from streamgda import GaussianNB
        >>> X, y = [[1.0], [3.0], [6.0], [8.0]], ["ant", "ant", "bee", "bee"]
        >>> model = GaussianNB().fit(X, y).model_
        >>> model.log_odds([[2.0], [4.5], [7.0]]).round(2)
        array([-12.5,   0. ,  12.5])
        """
        return self._score(X, self._relative_scores, difference, np.empty(length(X)), first_row)

    def log_density(self, X: Any, first_row: int = 0) -> np.ndarray:
        r"""Return :math:`\ln p(x) = \ln \sum_k p(x, y=k)`.

        Parameters
        ----------
        X : array-like, shape (n_rows, n_features)
            Rows.
        first_row : int
            Number of the first row in a larger array, from which errors count.

        Returns
        -------
        ndarray, shape (n_rows,)
            Log-densities.

        Raises
        ------
        InvalidDataError
            For rows that cannot be scored; see `predict`.

        Examples
        --------
        >>> from streamgda import GaussianNB
        >>> X, y = [[1.0], [3.0], [6.0], [8.0]], ["ant", "ant", "bee", "bee"]
        >>> model = GaussianNB().fit(X, y).model_
        >>> model.log_density([[2.0], [50.0]]).round(1)
        array([  -1.6, -926.1])
        """
        return self._score(X, self._joint, log_sum_exp, np.empty(length(X)), first_row)

    def own_log_density(self, X: Any, first_row: int = 0, *, codes: np.ndarray) -> np.ndarray:
        r"""Return :math:`\ln p(x | y)` of each row, given its class.

        Parameters
        ----------
        X : array-like, shape (n_rows, n_features)
            Rows.
        first_row : int
            Number of the first row in a larger array, from which errors count.
        codes : ndarray of int, shape (n_rows,)
            Numbers of the classes of the rows.

        Returns
        -------
        ndarray, shape (n_rows,)
            Log-densities.

        Raises
        ------
        InvalidDataError
            For rows that cannot be scored; see `predict`.

        Examples
        --------
        >>> import numpy as np
        >>> from streamgda import GaussianNB
        >>> model = GaussianNB().fit([[1.0], [3.0], [6.0], [8.0]], [0, 0, 1, 1]).model_
        >>> model.own_log_density([[2.0], [5.0]], codes=np.array([0, 1])).round(3)
        array([-0.919, -2.919])
        """
        return self._of_own(X, self._own_densities, first_row, codes)

    def _own_densities(self, X: Any, codes: np.ndarray) -> np.ndarray:
        """Return the log-densities of rows in their own classes."""
        return self._joint(X)[codes, np.arange(codes.size)] - self.log_priors[codes]

    def _of_own(
        self,
        X: Any,
        scores_of: Callable[[Any, np.ndarray], np.ndarray],
        first_row: int,
        codes: np.ndarray,
    ) -> np.ndarray:
        """Score rows as `_score` does, each for its own class alone, shape (n_rows,)."""
        X = checked_rows(self, X, first_row, self._takes_sparse)

        def of_chunk(rows: Any, first: int) -> np.ndarray:
            at = first - first_row
            return scores_of(self._read(rows, first), codes[at : at + rows.shape[0]])

        out = np.empty(X.shape[0])
        products = self._row_products
        return by_chunks(of_chunk, copied, X, 1, out, first_row, products, self._by_blas)


def length(X: Any) -> int:
    """Return the number of rows; sparse matrices have no length."""
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def check_means(name: str, values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return a mask of the classes with rows, which have no NaN among their values.

    Raises
    ------
    ValueError
        If the values of a class are neither all finite nor all NaN, or the shape is another.
    """
    without = np.isnan(values).all(axis=1)
    check_array(name, np.where(without[:, None], 0.0, values), shape, "f8")
    return np.asarray(~without)


def check_classes(classes: np.ndarray, count: np.ndarray, least: int = 1) -> None:
    """Raise `InvalidDataError` unless at least one class, or two, have rows."""
    present = int((count > 0).sum())
    if not present:
        raise InvalidDataError("no class has rows; give rows, not all of them of weight zero")
    if present < least:
        raise InvalidDataError(
            f"The number of classes has to be greater than one; got {present} class "
            f"({classes[count > 0][0]!s}) with rows. Give rows of at least one other class"
        )


def check_priors(
    priors: Any,
    classes: np.ndarray,
    count: np.ndarray,
    name: str = "priors",
    *,
    normalised: bool = True,
) -> np.ndarray:
    """Return one prior for each class; by default the classes' shares of the rows.

    Raises
    ------
    InvalidParameterError
        For negative priors, a number of them other than that of the classes, or a sum that is not
        one if they are to be normalised.
    """
    if priors is None:
        return np.asarray(count / count.sum(), np.float64)
    expected = f"one number for each of the {classes.size} classes"
    values = as_numbers(name, priors, expected).copy()
    if values.shape != (classes.size,):
        raise InvalidParameterError(
            f"{name} has shape {values.shape}; expected one for each of the {classes.size} classes "
            f"{classes.tolist()[:20]}. Number of priors must match number of classes"
        )
    if not (values >= 0).all():
        raise InvalidParameterError(
            f"{name} must be non-negative; got {values.tolist()}. Priors must be non-negative and "
            f"sum to one"
        )
    if normalised and not np.isclose(values.sum(), 1.0):
        raise InvalidParameterError(
            f"The sum of the priors should be 1; got {values.sum():.6g}. Divide them by their sum"
        )
    without = (values > 0) & (count == 0)
    if without.any():
        raise InvalidParameterError(
            f"class {classes[without][0]!s} has a prior of {values[without][0]:g} but no rows"
        )
    return values
