"""`RowModel` scores rows in chunks, `Model` classifies them, and answers follow from scores.

Scores are class by class, shape (n_classes, n_rows). The functions that compute answers from them
may overwrite them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import cached_property, partial
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from streamgda.errors import InvalidDataError, InvalidParameterError
from streamgda.kernels import scoring
from streamgda.kernels.scoring import normalise
from streamgda.models.calibration import likelihoods
from streamgda.moments.feature_maps import Lifting, restored_map
from streamgda.moments.lifted import LiftedRows, lifted
from streamgda.moments.roots import NO_LABELS, NO_SCORES, Answers
from streamgda.rows.arrays import as_kernel_rows, read_only, row_type
from streamgda.rows.counting import all_finite, as_matrix, refuse_not_finite
from streamgda.rows.names import join_names, named_rows, restored_names, saved_names
from streamgda.rows.sparse import CompressedRows
from streamgda.runtime import threads
from streamgda.runtime.parameters import as_numbers, check_type
from streamgda.storage.format import check_array, pack_labels, unpack_labels
from streamgda.storage.saved import Saved, State, build

# A chunk has about this many values of rows and scores, because a thread has to wait for Python
# between two chunks. Chunks of wide rows have enough rows to use the root of a class several times
# while it is in the cache.
_CHUNK_ELEMENTS = 1 << 19
_CHUNK_ROWS = 384
_FEW_PRODUCTS = 1 << 18
_PART_PRODUCTS = 3 << 20  # that take longer than to wake up a thread
_VALUE_PRODUCTS = 16  # that take as long as to read a value of a row, or to write a score
_BLOCK = 96  # chunks are multiples of it: whole panels of every kind

_LARGE = 1e100  # values whose squared distances cannot overflow, unless variances are tiny
_FAR_BITS = 400  # of the largest value of a row that is scaled down

_NO_DENSITIES = np.empty(0)
Part = TypeVar("Part")

Finish = Callable[[np.ndarray, np.ndarray], None]  # called as ``finish(scores, part of out)``
# Called as ``write(rows, part of out, *of_rows)``; returns True if it shows that all values are
# finite, and None if scores have to be held.
Write = Callable[..., bool | None]


def scratch_bytes(n_features: int) -> int:
    """Return the most bytes of the chunks that are scored at a time: cast, packed, and scores."""
    return threads.n_threads() * 24 * max(_CHUNK_ELEMENTS, _CHUNK_ROWS * n_features)


# --- answers from scores, which are overwritten --------------------------------------------------


def _write_labels(classes: np.ndarray, scores: np.ndarray, out: np.ndarray) -> None:
    """Write the class of the largest score."""
    codes = np.empty(out.size, np.int64)
    scoring.largest(scores, codes)
    classes.take(codes, out=out, mode="clip")  # other modes make a copy


def checked_rows(model: Any, X: Any, first_row: int = 0, sparse: bool = False) -> Any:
    """Return rows as arrays that fit a model, behind its feature map if it has one."""
    plain = model.feature_map is None
    X = checked_names(X, model.feature_names)
    X = as_matrix(X, first_row, sparse and plain)
    lifting = model.feature_map
    check_width(X, model.n_features if lifting is None else lifting.n_in)
    return lifted(X, lifting, first_row)


def checked_names(X: Any, names: tuple[str, ...] | None) -> Any:
    """Return rows; raise `InvalidDataError` if their features have other names than a model's."""
    if names is not None and type(X) is not np.ndarray:
        X, found = named_rows(X)
        join_names(names, found, "this model", InvalidDataError)
    return X


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


_EPSILON = np.finfo(np.float64).eps
_CLIPPED = np.log(_EPSILON), np.log1p(-_EPSILON)  # as in scikit-learn's log-loss


class RowModel(Saved):
    """Base of what scores rows: frozen dataclasses whose methods are functions of each row.

    Scores of a chunk of rows are class by class, shape (n_classes, n_rows). The public methods
    take an array-like of rows, shape (n_rows, n_features), and `first_row`, the number of the
    first of them in a larger array, from which errors count.

    Attributes
    ----------
    feature_names : tuple of str or None
        Names of the features. Rows with other names are refused; those without names fit any.
    feature_map : Lifting or None
        Map of rows before they are scored; names are those of features before it.
    """

    classes: Any
    feature_names: tuple[str, ...] | None
    feature_map: Lifting | None = None

    # Array with a column for each feature.
    _by_feature: ClassVar[str] = "means"
    # Arrays that estimators return as fitted attributes. Kernels get them as copies only.
    _shown: ClassVar[tuple[str, ...]] = ()
    _by_blas = True  # scores are computed by BLAS
    _degree: int = 0  # of relative scores as polynomials of rows, if they are any
    # Attributes that are saved as JSON.
    _numbers: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for name in self._shown:
            object.__setattr__(self, name, read_only(getattr(self, name)))

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes without what is derived from them, which keeps pickles small."""
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    @property
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
    def _row_scores(self) -> int:
        """Numbers that are held beside a row while it is scored, about."""
        return int(self.classes.size)

    @cached_property
    def n_features(self) -> int:
        """Width of the rows that are scored."""
        return int(getattr(self, self._by_feature).shape[1])

    def _read(self, X: Any, first_row: int) -> Any:
        """Return rows as the scoring kernels read them."""
        return as_kernel_rows(X, row_type(X.dtype).dtype)

    def _refuse_invalid(self, rows: Any, first_row: int) -> bool:
        """Raise `InvalidDataError` for NaN and infinity in rows that `_read` returned.

        Returns True if there are values so large that relative scores may overflow.
        """
        values = rows.values if type(rows) is CompressedRows else rows
        if values.dtype.kind != "f" or all_finite(values, _LARGE):
            return False
        if not all_finite(values):
            refuse_not_finite(rows, first_row)
        return self._degree > 0

    def _far_scores(self, scores_of: Callable[[Any], np.ndarray], rows: Any) -> np.ndarray:
        """Return scores of rows whose own overflow, less the largest of each row.

        Rows are scaled down. So far away neither means nor priors matter, and scores are
        proportional to a power of the scale.
        """
        sparse = type(rows) is CompressedRows
        X = np.array([rows.row(r) for r in range(len(rows))]) if sparse else rows
        exponents = np.frexp(np.abs(X).max(axis=1))[1] - _FAR_BITS
        scores = scores_of(np.ldexp(X, -exponents[:, None]))
        largest = scores.max(axis=0)
        scores -= np.where(np.isfinite(largest), largest, 0.0)
        return np.ldexp(scores, self._degree * exponents)

    def _score(
        self,
        X: Any,
        scores_of: Callable[..., np.ndarray],
        finish: Finish,
        first_row: int,
        out: np.ndarray | None = None,
        *of_rows: np.ndarray,
        columns: int | None = None,
        dtype: Any = np.float64,
        **options: Any,
    ) -> Any:
        """Check rows, and score them as `_by_chunks` does.

        Without `out` there is one number for each row, or `columns` of them.
        """
        X = checked_rows(self, X, first_row, self._takes_sparse)
        if out is None:
            out = np.empty(X.shape[:1] if columns is None else (X.shape[0], columns), dtype)
        return self._by_chunks(X, scores_of, finish, first_row, out, *of_rows, **options)

    def _by_chunks(
        self,
        X: Any,
        scores_of: Callable[..., np.ndarray],
        finish: Finish,
        first_row: int,
        out: np.ndarray,
        *of_rows: np.ndarray,
        write: Write | None = None,
        relative: bool = False,
    ) -> np.ndarray:
        """Score rows chunk by chunk, on all threads, into `out`, which is returned.

        Arrays with an entry for each row are passed to `scores_of` with the rows. `write` does what
        it and `finish` do without holding scores, unless it returns None. Answers are
        `relative` if they follow from differences between the scores of a row.
        """

        def answer(read: Any, out: np.ndarray, *of_rows: np.ndarray) -> bool:
            finite = None if write is None else write(read, out, *of_rows)
            if finite is None:
                finish(scores_of(read, *of_rows), out)
            return bool(finite)

        def answer_far(read: Any, out: np.ndarray) -> None:
            with np.errstate(invalid="ignore", over="ignore"):
                far = np.flatnonzero(~np.isfinite(scores_of(read).max(axis=0)))
                if far.size:
                    answers = out[far]
                    finish(self._far_scores(scores_of, read[far]), answers)
                    out[far] = answers

        def work(start: int, stop: int) -> None:
            rows = slice(start, stop)
            read = self._read(X[rows], first_row + start)
            with np.errstate(invalid="ignore", over="ignore"):  # of rows that are refused below
                finite = answer(read, out[rows], *(values[rows] for values in of_rows))
            # Now that they are in a cache: a pass before would wait for memory.
            if not finite and self._refuse_invalid(read, first_row + start) and relative:
                answer_far(read, out[rows])

        n_rows, products = X.shape[0], X.shape[0] * self._row_products
        if not n_rows:
            return out
        # Distances to the classes of rows are by BLAS. For few products it uses one thread anyway.
        by_blas = self._by_blas or bool(of_rows)
        serial = (by_blas and products > _FEW_PRODUCTS) or type(X) is LiftedRows
        if n_rows <= _BLOCK and not serial:
            read = self._read(X, first_row)
            if not self._refuse_invalid(read, first_row):
                answer(read, out, *of_rows)
                return out
        width = X.row_elements if type(X) is CompressedRows else X.shape[1]
        parts = (products + n_rows * _VALUE_PRODUCTS * (width + self._row_scores)) // _PART_PRODUCTS
        if parts > 1:  # otherwise they take less time than to count threads
            parts = min(parts, threads.n_threads())
        step = max(_CHUNK_ELEMENTS // (width + self._row_scores), _CHUNK_ROWS)
        step = min(step, -(-n_rows // max(parts, 1)))
        step = -(-step // _BLOCK) * _BLOCK
        calls = [(start, min(start + step, n_rows)) for start in range(0, n_rows, step)]
        (threads.run_serial_blas if serial else threads.run)(work, calls)
        return out

    # --- saving -------------------------------------------------------------------------------

    def _state(self) -> State:
        held = self.__getstate__()
        attributes = {name: held[name] for name in self._numbers}
        if "classes" in held:
            attributes["classes"] = pack_labels(held.pop("classes"))
        arrays = {name: value for name, value in held.items() if isinstance(value, np.ndarray)}
        if self.feature_map is not None:
            attributes["feature_map"] = self.feature_map.as_json()
        return attributes | saved_names(self.feature_names), arrays

    @classmethod
    def _from_state(cls, attributes: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        model = build(cls, **cls._restored(attributes, arrays))
        mapped, width = restored_map(attributes, model.n_features)
        names = restored_names(attributes, width)
        model = replace(model, feature_names=names, feature_map=mapped)  # type: ignore[type-var]
        model._check()
        return model

    @classmethod
    def _restored(
        cls, attributes: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> dict[str, Any]:
        """Return attributes of the model from those that were saved."""
        own = {name: attributes[name] for name in cls._numbers if name in attributes}
        if "classes" in attributes:
            own["classes"] = unpack_labels(attributes["classes"])
        return {**arrays, **own}

    def _check(self) -> None:
        """Raise ValueError unless the attributes fit each other."""


class Model(RowModel):
    """Base of the models of classes, which score rows by class-conditional distributions.

    Models without covariances between features take sparse rows, too.

    Attributes
    ----------
    classes : ndarray, shape (n_classes,)
    priors : ndarray of float64, shape (n_classes,)
    """

    priors: np.ndarray

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

    @cached_property
    def log_priors(self) -> np.ndarray:
        """Logarithms of the priors, minus infinity where zero."""
        with np.errstate(divide="ignore"):
            return np.log(self.priors)

    @cached_property
    def _numbered(self) -> bool:
        """True if the classes are their own numbers, as kernels write them."""
        numbers = np.arange(self.classes.size)
        return self.classes.dtype == numbers.dtype and bool((self.classes == numbers).all())

    # --- scores of a chunk of rows ------------------------------------------------------------

    @abstractmethod
    def _relative_scores(self, X: np.ndarray, margin: float = np.inf) -> np.ndarray:
        """Return joint log-likelihoods, up to a term that all classes of a row share.

        Scores that are more than `margin` below the largest of their row need only be upper bounds
        with that property.
        """

    @abstractmethod
    def _joint(self, X: np.ndarray) -> np.ndarray:
        """Return joint log-likelihoods."""

    def _write(self, X: Any, out: Answers, temperature: float = 1.0) -> bool | None:
        """Write what follows from `_relative_scores`, as `LinearFunctions.write` does."""
        return None

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
        rows = self._read(np.asarray(lifted(X, self.feature_map)), 0)
        self._refuse_invalid(rows, 0)
        scores = self._relative_scores(rows)
        if sums is not None:
            sums += likelihoods(scores, truth, weights)
        scores = tempered(scores, temperature)
        codes, logarithms = np.empty(truth.size, np.int64), np.empty(scores.T.shape)
        scoring.largest(scores, codes)
        log_posterior(scores, logarithms)
        right = float(weights @ (codes == truth))
        of_truth = logarithms[np.arange(truth.size), truth]
        return right, float(weights @ of_truth.clip(*_CLIPPED))

    def _by_class(self, *arguments: Any, **options: Any) -> Any:
        """Score rows as `_score` does, with a number for each class."""
        return self._score(*arguments, columns=self.classes.size, **options)

    def predict(self, X: Any, first_row: int = 0, out: Any = None) -> np.ndarray:
        """Return each row's most probable class.

        Parameters
        ----------
        X : array-like, shape (n_rows, n_features)
            Rows.
        first_row : int
            Number of the first row in a larger array, from which errors count.
        out : ndarray, optional
            Array in rows that gets the result, of its shape and type, and which `X` does not share.

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
        classes = self.classes

        def write(rows: Any, out: np.ndarray) -> bool | None:
            codes = out if self._numbered and out.flags.c_contiguous else np.empty(out.size, int)
            finite = self._write(rows, (codes, NO_SCORES, False))
            if finite is not None and codes is not out:
                classes.take(codes, out=out, mode="clip")  # other modes make a copy
            return finite

        scores_of = partial(self._relative_scores, margin=0.0)
        finish = partial(_write_labels, classes)
        options = {"dtype": classes.dtype, "write": write, "relative": True}
        return self._score(X, scores_of, finish, first_row, out, **options)

    def posterior(
        self, X: Any, first_row: int = 0, temperature: float = 1.0, out: Any = None
    ) -> np.ndarray:
        """Return the probability of each class given the row.

        Parameters
        ----------
        X : array-like, shape (n_rows, n_features)
            Rows.
        first_row : int
            Number of the first row in a larger array, from which errors count.
        temperature : float > 0
            Divides the joint log-likelihoods before; see `streamgda.models.calibration`.
        out : ndarray, optional
            Array in rows that gets the result, of its shape and type, and which `X` does not share.

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

        def write(rows: Any, out: np.ndarray) -> bool | None:
            return self._write(rows, (NO_LABELS, out, True), temperature)

        options = {"write": write, "relative": True}
        return self._by_class(X, scores_of, posterior, first_row, out, **options)

    def log_posterior(
        self, X: Any, first_row: int = 0, temperature: float = 1.0, out: Any = None
    ) -> np.ndarray:
        """Return the logarithm of `posterior`, exact even where that is rounded to zero.

        Parameters
        ----------
        X : array-like, shape (n_rows, n_features)
            Rows.
        first_row : int
            Number of the first row in a larger array, from which errors count.
        temperature : float > 0
            See `posterior`.
        out : ndarray, optional
            Array in rows that gets the result, of its shape and type, and which `X` does not share.

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

        return self._by_class(X, scores_of, log_posterior, first_row, out, relative=True)

    def joint_log_likelihood(self, X: Any, first_row: int = 0, out: Any = None) -> np.ndarray:
        r"""Return :math:`\ln p(x, y=k)`.

        Parameters
        ----------
        X : array-like, shape (n_rows, n_features)
            Rows.
        first_row : int
            Number of the first row in a larger array, from which errors count.
        out : ndarray, optional
            Array in rows that gets the result, of its shape and type, and which `X` does not share.

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
        return self._by_class(X, self._joint, copied, first_row, out)

    def relative_scores(self, X: Any, first_row: int = 0, out: Any = None) -> np.ndarray:
        """Return discriminants: joint log-likelihoods, up to a term that all classes share.

        Parameters
        ----------
        X : array-like, shape (n_rows, n_features)
            Rows.
        first_row : int
            Number of the first row in a larger array, from which errors count.
        out : ndarray, optional
            Array in rows that gets the result, of its shape and type, and which `X` does not share.

        Returns
        -------
        ndarray, shape (n_rows, n_classes)
            Discriminants.
        """

        def write(rows: Any, out: np.ndarray) -> bool | None:
            return self._write(rows, (NO_LABELS, out, False))

        return self._by_class(X, self._relative_scores, copied, first_row, out, write=write)

    def log_odds(self, X: Any, first_row: int = 0, out: Any = None) -> np.ndarray:
        """Return the log-odds of the second of two classes; zero if there is one class only.

        Parameters
        ----------
        X : array-like, shape (n_rows, n_features)
            Rows.
        first_row : int
            Number of the first row in a larger array, from which errors count.
        out : ndarray, optional
            Array in rows that gets the result, of its shape and type, and which `X` does not share.

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
        scores_of = self._relative_scores
        return self._score(X, scores_of, difference, first_row, out, relative=True)

    def log_density(self, X: Any, first_row: int = 0, out: Any = None) -> np.ndarray:
        r"""Return :math:`\ln p(x) = \ln \sum_k p(x, y=k)`.

        Parameters
        ----------
        X : array-like, shape (n_rows, n_features)
            Rows.
        first_row : int
            Number of the first row in a larger array, from which errors count.
        out : ndarray, optional
            Array in rows that gets the result, of its shape and type, and which `X` does not share.

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
        return self._score(X, self._joint, log_sum_exp, first_row, out)

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
        return self._score(X, self._own_densities, copied, first_row, None, codes)

    def _own_densities(self, X: Any, codes: np.ndarray) -> np.ndarray:
        """Return the log-densities of rows in their own classes."""
        return self._joint(X)[codes, np.arange(codes.size)] - self.log_priors[codes]


def part_of(name: str, fitted: Any, part: str, kind: type[Part], expected: str) -> Part:
    """Return an attribute of a fitted estimator, search or threshold; or the attribute itself."""
    found = fitted
    for each in ("best_estimator_", "estimator_", part):
        found = found if isinstance(found, type) else getattr(found, each, found)
    if not isinstance(found, kind):
        check_type(name, fitted, kind, expected)  # its message names what was passed
    return found


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
    present = int(np.count_nonzero(count))
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
        one if they are to be normalised, or else not positive and finite.
    """
    if priors is None:
        return np.asarray(count / np.add.reduce(count), np.float64)
    expected = f"one number for each of the {classes.size} classes"
    values = as_numbers(name, priors, expected)
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
    total = values.sum()
    if normalised and not np.isclose(total, 1.0):
        raise InvalidParameterError(
            f"The sum of the priors should be 1; got {total:.6g}. Divide them by their sum"
        )
    if not 0 < total < np.inf:
        raise InvalidParameterError(
            f"the sum of {name} is {total:g}; expected finite numbers, at least one above zero"
        )
    without = (values > 0) & (count == 0)
    if without.any():
        raise InvalidParameterError(
            f"class {classes[without][0]!s} has a prior of {values[without][0]:g} but no rows"
        )
    return values
