"""Model choice: every candidate held against rows that it was not fitted to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from numbers import Integral
from operator import add
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from streamgda.engine.folds import FoldedRows, without
from streamgda.errors import InvalidDataError, InvalidParameterError, SingularCovarianceError
from streamgda.estimators.discriminant import GaussianDiscriminantAnalysis
from streamgda.models.gaussian import GaussianModel
from streamgda.models.likelihood import joint_log_likelihood
from streamgda.moments import ClassMoments
from streamgda.moments.structures import structure_of
from streamgda.rows.labels import as_labels, find
from streamgda.rows.sources import is_dask, is_store
from streamgda.runtime.memory import allowed_bytes

_LIKELIHOOD, _ACCURACY, _LOG_LOSS = "joint_log_likelihood", "accuracy", "neg_log_loss"
SCORINGS = (_ACCURACY, _LOG_LOSS, _LIKELIHOOD)

# From each class for itself to all alike, and from as measured to a sphere.
_GRID: tuple[dict[str, list[Any]], ...] = (
    {
        "covariance_type": ["full"],
        "pooling": [0.0, 0.1, 0.5],
        "shrinkage": [1e-3, 1e-2, 0.05, 0.2, 0.5],
    },
    {"covariance_type": ["full"], "var_smoothing": [1e-3, 1e-2, 0.1, 0.3]},
    {"covariance_type": ["tied"], "shrinkage": [1e-3, 1e-2, 0.1, 0.5]},
    {"covariance_type": ["diag", "tied_diag"], "var_smoothing": [1e-9, 1e-3, 1e-2, 0.1]},
)


class GaussianDiscriminantCV(ClassifierMixin, BaseEstimator):
    """Choose the parameters of `GaussianDiscriminantAnalysis` by cross-validation.

    As `sklearn.model_selection.GridSearchCV`, but one pass over the rows makes the moments of all
    folds; the candidates of each split are made of the other folds' moments, which are added. With
    ``scoring="joint_log_likelihood"`` that is all: the mean of ln p(x, y) over the rows held out
    follows from their moments exactly. Otherwise one further pass holds all candidates against
    each row; where their models are more than half of `max_memory`, as many passes as it takes.

    Which fold a row is in is told by a hash of its number and of `random_state`: it does not
    depend on how the rows are stored or read, and neighbouring rows fall in different folds. The
    best candidate is made of the moments of all rows, with no further pass.

    Parameters
    ----------
    param_grid : dict of str to list, or list of such dicts, optional
        Parameters of `GaussianDiscriminantAnalysis` and the values to try, all combinations; a
        list of grids is gone through one by one. By default 31 of covariance type, pooling,
        shrinkage and smoothing.
    cv : int
        Number of folds, at least 2.
    scoring : {"accuracy", "neg_log_loss", "joint_log_likelihood"}
        What is to be largest, averaged over the folds. Where classes are not Gaussian the three
        choose differently, each what is best of its own: log-loss models that are less sure, and
        the likelihood those that fit the rows best, though others tell more of them right.
    random_state : int
        Non-negative; tells the folds.
    max_memory : int or str, optional
        Bytes, or a text such as ``"2GB"``, for rows in flight, moments and models.
    verbose : bool
        Show bars in a terminal.

    Attributes
    ----------
    best_estimator_ : GaussianDiscriminantAnalysis
        Fitted to all rows.
    best_params_ : dict
    best_score_ : float
        Mean score of the best candidate over the splits.
    best_index_ : int
        Its number in `cv_results_`.
    cv_results_ : dict of str to list or ndarray
        As of `GridSearchCV`, an entry for each candidate: ``params``, ``param_...``,
        ``split0_test_score`` and so on, ``mean_test_score``, ``std_test_score`` and
        ``rank_test_score``; and the same of all scores that came with it, by their names. NaN
        where a candidate's covariances are singular, and for a split that nothing can be told by.
    n_splits_ : int
    classes_, n_features_in_, feature_names_in_

    Notes
    -----
    Rows of a class that is in no other fold say nothing of any candidate; they are left out.

    A ``"full"`` candidate is a model for each fold, of ``16 * n_classes * n_features**2`` bytes:
    nothing to speak of up to a hundred features, but of 784 pixels and ten digits 98 MB, times
    five folds. What a candidate costs is the scoring, hardly the reading. Rows projected on
    principal components (`ClassMoments.pca`) are scored in a small part of it, and digits told
    apart better.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from streamgda import GaussianDiscriminantCV
    >>> X, y = load_iris(return_X_y=True)
    >>> grid = {"covariance_type": ["full", "tied", "diag"], "shrinkage": [0.0, 0.1]}
    >>> search = GaussianDiscriminantCV(grid).fit(X, y)
    >>> search.best_params_
    {'covariance_type': 'full', 'shrinkage': 0.1}
    >>> search.predict(X[:2])
    array([0, 0])
    """

    n_features_in_: int

    def __init__(
        self,
        param_grid: Mapping[str, Sequence[Any]]
        | Sequence[Mapping[str, Sequence[Any]]]
        | None = None,
        *,
        cv: int = 5,
        scoring: str = _ACCURACY,
        random_state: int = 0,
        max_memory: int | str | None = None,
        verbose: bool = False,
    ) -> None:
        self.param_grid = param_grid
        self.cv = cv
        self.scoring = scoring
        self.random_state = random_state
        self.max_memory = max_memory
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Choose among the candidates.

        Parameters
        ----------
        X, y, sample_weight
            As of `GaussianDiscriminantAnalysis.fit`; of dask arrays, with chunks of known size.

        Returns
        -------
        self

        Raises
        ------
        InvalidDataError
            For rows, labels or weights that cannot be used, or too few for any split.
        InvalidParameterError
            For parameters, or candidates, that cannot be meant.
        MemoryBudgetError
            Where the folds' moments are more than `max_memory`.
        SingularCovarianceError
            Where that is what all candidates have.
        """
        candidates = self._candidates()
        template = GaussianDiscriminantAnalysis()
        if is_dask(X) or is_store(X):
            template._check_stored(X, first=True)
        else:
            X, y = template._validate(X, y, first=True)
        rows = FoldedRows(
            X,
            y,
            sample_weight,
            self.cv,
            self.random_state,
            allowed_bytes(self.max_memory),
            self.verbose,
        )
        return self._choose(candidates, rows.accumulate(**_kept(candidates)), rows, template)

    def _candidates(self) -> list[dict[str, Any]]:
        """All combinations of the grids, each of which could be meant."""
        from sklearn.model_selection import ParameterGrid  # noqa: PLC0415  (slow to import)

        for name, least in (("cv", 2), ("random_state", 0)):
            value = getattr(self, name)
            if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
                raise InvalidParameterError(f"{name}={value!r}; expected an integer >= {least}")
        if self.scoring not in SCORINGS:
            raise InvalidParameterError(
                f"scoring={self.scoring!r}; expected one of {', '.join(SCORINGS)}"
            )
        try:
            candidates = list(
                ParameterGrid(list(_GRID) if self.param_grid is None else self.param_grid)
            )
            for params in candidates:
                GaussianDiscriminantAnalysis(**params)._kept()
        except InvalidParameterError:
            raise
        except (TypeError, ValueError) as error:
            raise InvalidParameterError(
                f"param_grid={self.param_grid!r} is not parameters of GaussianDiscriminantAnalysis "
                f"with lists of values to try: {error}"
            ) from None
        if not candidates:
            raise InvalidParameterError("param_grid is empty; give at least one candidate")
        return candidates

    def _choose(
        self,
        candidates: list[dict[str, Any]],
        folds: list[ClassMoments],
        rows: FoldedRows,
        template: GaussianDiscriminantAnalysis,
    ) -> Self:
        total = reduce(add, folds)
        if total.n_features is None:
            raise InvalidDataError("every sample_weight is zero: no row is left to fit to")
        present = total.classes[total.class_count > 0]
        if present.size < 2:
            raise InvalidDataError(
                f"The number of classes has to be greater than one; got {present.size} class with "
                f"rows. Give rows of at least one other class"
            )
        splits = _Splits(candidates, folds)
        at_once = [list(range(len(candidates)))]
        if self.scoring != _LIKELIHOOD:
            at_once = _passes(rows, candidates, len(folds), total)
        for numbers in at_once:
            splits.judge(numbers, rows, self.scoring)
        results = _results(candidates, splits.scores, self.scoring)
        mean = results["mean_test_score"]
        if np.isnan(mean).all():
            raise splits.failure or InvalidDataError(
                f"no row can be held out of {self.cv} folds: at least two classes need rows in at "
                f"least two folds; give more rows, or a smaller cv"
            )
        best = int(np.nanargmax(mean))
        chosen = GaussianDiscriminantAnalysis.from_moments(total, **candidates[best])
        self.best_estimator_, self.cv_results_, self.best_index_ = chosen, results, best
        self.n_features_in_ = template.n_features_in_
        for holder in (self, chosen):
            if hasattr(template, "feature_names_in_"):
                holder.feature_names_in_ = template.feature_names_in_
            elif hasattr(holder, "feature_names_in_"):
                del holder.feature_names_in_
        return self

    # --- what was chosen ----------------------------------------------------------------------

    @property
    def best_params_(self) -> dict[str, Any]:
        """Parameters of the best candidate."""
        check_is_fitted(self, "cv_results_")
        return dict(self.cv_results_["params"][self.best_index_])

    @property
    def best_score_(self) -> float:
        """Mean score of the best candidate over the splits."""
        check_is_fitted(self, "cv_results_")
        return float(self.cv_results_["mean_test_score"][self.best_index_])

    @property
    def n_splits_(self) -> int:
        """Number of folds."""
        check_is_fitted(self, "cv_results_")
        return sum(name.endswith("_test_score") for name in self.cv_results_) - 3

    @property
    def classes_(self) -> np.ndarray:
        """Class labels, sorted, shape (n_classes,)."""
        return self._best.classes_

    @property
    def _best(self) -> GaussianDiscriminantAnalysis:
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_

    def predict(self, X: Any, *, out: Any = None) -> Any:
        """Of the best estimator; see `GaussianDiscriminantAnalysis.predict`."""
        return self._best.predict(X, out=out)

    def predict_proba(self, X: Any, *, out: Any = None) -> Any:
        """Of the best estimator; see `GaussianDiscriminantAnalysis.predict_proba`."""
        return self._best.predict_proba(X, out=out)

    def predict_log_proba(self, X: Any, *, out: Any = None) -> Any:
        """Of the best estimator; see `GaussianDiscriminantAnalysis.predict_log_proba`."""
        return self._best.predict_log_proba(X, out=out)

    def decision_function(self, X: Any, *, out: Any = None) -> Any:
        """Of the best estimator; see `GaussianDiscriminantAnalysis.decision_function`."""
        return self._best.decision_function(X, out=out)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy of the best estimator, whatever it was chosen by."""
        return self._best.score(X, y, sample_weight)


class _Splits:
    """Scores of candidates, split by split.

    Attributes
    ----------
    scores : dict of str to ndarray, shape (n_candidates, n_folds)
        NaN where there is none.
    failure : SingularCovarianceError, optional
        What was wrong with the last candidate that could not be made.
    """

    def __init__(self, candidates: list[dict[str, Any]], folds: list[ClassMoments]) -> None:
        self.candidates = candidates
        self.folds = folds
        self.scores: dict[str, np.ndarray] = {}
        self.failure: SingularCovarianceError | None = None

    def judge(self, numbers: Sequence[int], rows: FoldedRows, scoring: str) -> None:
        """Score some of the candidates in all splits; with a pass over the rows, if it takes one.

        The joint log-likelihood is told by the moments, and comes with the other scores.
        """
        held: dict[tuple[int, int], GaussianModel] = {}
        likelihood = self._scores_of(_LIKELIHOOD)
        for f, fold in enumerate(self.folds):
            for c, model in self._models(numbers, f):
                total, weight = joint_log_likelihood(model, fold)
                likelihood[c, f] = total / weight if weight else np.nan
                if scoring != _LIKELIHOOD:
                    held[c, f] = model
        if held:
            self._read(held, rows)

    def _scores_of(self, name: str) -> np.ndarray:
        shape = len(self.candidates), len(self.folds)
        return self.scores.setdefault(name, np.full(shape, np.nan))

    def _models(self, numbers: Sequence[int], f: int) -> Iterator[tuple[int, GaussianModel]]:
        """The candidates of a split, but for those with singular covariances."""
        others = without(self.folds, f)
        if (others.class_count > 0).sum() < 2 or not self.folds[f].class_count.any():
            return
        others = others * 1.0  # integer sums are centred once, not for every candidate
        for c in numbers:
            candidate = GaussianDiscriminantAnalysis(**self.candidates[c])
            how, kind = candidate._regularisation(), candidate.covariance_type
            try:
                yield c, GaussianModel.from_moments(others, kind, how, candidate.priors)
            except SingularCovarianceError as error:
                self.failure = error

    def _read(self, models: dict[tuple[int, int], GaussianModel], rows: FoldedRows) -> None:
        """Hold all models against the rows of their fold, in one pass."""
        right = dict.fromkeys(models, 0.0)
        log_loss = dict.fromkeys(models, 0.0)
        weight = dict.fromkeys(models, 0.0)
        state = rows.held_bytes(self.folds[0].covariance_type)
        state += sum(_bytes_of(model) for model in models.values())
        for _, slab in rows.read(state, "scoring"):
            for (c, f), model in models.items():
                X, labels, *weights = slab[f]
                codes = find(as_labels(labels), model.classes)
                known = (codes >= 0) & ~np.isnan(model.means[codes, 0])
                if weights:
                    known &= weights[0] > 0
                if not known.any():
                    continue
                w = weights[0][known] if weights else np.ones(known.sum())
                scores = model.log_posterior(X)[known]
                truth = codes[known]
                right[c, f] += float(w @ (scores.argmax(axis=1) == truth))
                log_loss[c, f] += float(w @ scores[np.arange(truth.size), truth])
                weight[c, f] += float(w.sum())
        for at, total in weight.items():
            if total:
                self._scores_of(_ACCURACY)[at] = right[at] / total
                self._scores_of(_LOG_LOSS)[at] = log_loss[at] / total


def _kept(candidates: list[dict[str, Any]]) -> dict[str, Any]:
    """What all candidates can be made of, and judged by: parameters of the moments."""
    kept = [GaussianDiscriminantAnalysis(**params)._kept() for params in candidates]
    matrix = any(structure_of(k["covariance_type"]).matrix for k in kept)
    norms = any(k["norms"] for k in kept)
    return {"covariance_type": "full" if matrix else "diag", "norms": norms}


def _bytes_of(model: GaussianModel) -> int:
    """Bytes of a model, whose roots are held as scoring wants them too."""
    return 2 * model.roots.nbytes + 2 * model.means.nbytes


def _passes(
    rows: FoldedRows, candidates: list[dict[str, Any]], n_folds: int, total: ClassMoments
) -> list[list[int]]:
    """Numbers of the candidates that are scored in a pass each: there is room for their models."""
    shape = total.classes.size, rows.rows.shape[1]
    room = left = rows.allowed // 2 - rows.held_bytes(total.covariance_type)
    passes: list[list[int]] = [[]]
    for c, params in enumerate(candidates):
        structure = structure_of(params.get("covariance_type", "full"))
        needed = 2 * n_folds * structure.state_bytes(*shape)  # as of `_bytes_of`
        if passes[-1] and needed > left:
            passes.append([])
            left = room
        passes[-1].append(c)
        left -= needed
    return passes


def _results(
    candidates: list[dict[str, Any]], scores: dict[str, np.ndarray], scoring: str
) -> dict[str, Any]:
    """The scores as `GridSearchCV` has them."""
    results: dict[str, Any] = {"params": candidates}
    for name in sorted({name for params in candidates for name in params}):
        column = np.ma.masked_all(len(candidates), object)
        for c, params in enumerate(candidates):
            if name in params:
                column[c] = params[name]
        results[f"param_{name}"] = column
    chosen = scores.get(scoring, np.full((len(candidates), 1), np.nan))
    for name, table in {"score": chosen, **scores}.items():
        for f, split in enumerate(table.T):
            results[f"split{f}_test_{name}"] = split.copy()
        used = table[:, ~np.isnan(table).all(axis=0)]
        nothing = np.full(len(candidates), np.nan)
        mean = used.mean(axis=1) if used.size else nothing
        order = np.nan_to_num(mean, nan=-np.inf)
        results[f"mean_test_{name}"] = mean
        with np.errstate(invalid="ignore"):  # a likelihood of zero is minus infinity
            results[f"std_test_{name}"] = used.std(axis=1) if used.size else nothing
        results[f"rank_test_{name}"] = 1 + (order[None, :] > order[:, None]).sum(axis=1)
    return results
