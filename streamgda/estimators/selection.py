"""Model selection by cross-validation, from one pass over the rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from operator import add
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from streamgda.engine.folds import FoldedRows, without
from streamgda.errors import InvalidDataError, InvalidParameterError, SingularCovarianceError
from streamgda.estimators.discriminant import GaussianDiscriminantAnalysis
from streamgda.estimators.gaussian import regularisation_of
from streamgda.estimators.learning import check_one_pass, kept_by
from streamgda.estimators.validation import validate_labelled
from streamgda.models.gaussian import GaussianModel
from streamgda.models.likelihood import joint_log_likelihood
from streamgda.moments import ClassMoments
from streamgda.moments.structures import structure_of
from streamgda.rows.labels import as_labels, find
from streamgda.runtime.memory import allowed_bytes
from streamgda.runtime.parameters import as_flag, as_integer, refuse, shown

_LIKELIHOOD, _ACCURACY, _LOG_LOSS = "joint_log_likelihood", "accuracy", "neg_log_loss"
_MOST = (1 << 128) - 1  # seeds have up to 128 bits
SCORINGS = (_ACCURACY, _LOG_LOSS, _LIKELIHOOD)

# From separate to common covariances, and from those of the rows to a sphere.
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

    It corresponds to `sklearn.model_selection.GridSearchCV`, but one pass over the rows yields the
    moments of all folds; the candidates of each split follow from the sum of the moments of the
    other folds. With ``scoring="joint_log_likelihood"`` that is all: the mean of ln p(x, y) over
    the rows held out follows from their moments exactly. Otherwise one further pass scores all
    candidates; if their models exceed half of `max_memory`, it takes several passes.

    The fold of a row is a hash of its number and of `random_state`: it does not depend on how the
    rows are stored or read, and neighbouring rows are in different folds. The best candidate is
    computed from the moments of all rows, without a further pass.

    Parameters
    ----------
    param_grid : dict of str to list, or list of such dicts, optional
        Parameters of `GaussianDiscriminantAnalysis` and values to try in all combinations, or
        several such grids. By default 31 combinations of covariance type, pooling, shrinkage and
        smoothing.
    cv : int
        Number of folds, at least 2.
    scoring : {"accuracy", "neg_log_loss", "joint_log_likelihood"}
        Score to maximise, averaged over the folds. If classes are not Gaussian, the three choose
        different candidates: the log-loss prefers less confident models, and the likelihood those
        that fit the distribution best, even if others classify more rows correctly.
    random_state : int
        Non-negative seed of the folds.
    max_memory : int or str, optional
        Bytes, or a text such as ``"2GB"``, for rows in flight, moments and models.
    verbose : bool
        Show progress.

    Attributes
    ----------
    best_estimator_ : GaussianDiscriminantAnalysis
        The best candidate, fitted to all rows.
    best_params_ : dict
        Its parameters.
    best_score_ : float
        Its mean score over the splits.
    best_index_ : int
        Its number in `cv_results_`.
    cv_results_ : dict of str to list or ndarray
        An entry for each candidate, as in `GridSearchCV`: ``params``, ``param_...``,
        ``split0_test_score`` and so on, ``mean_test_score``, ``std_test_score`` and
        ``rank_test_score``; and the same for the other scores that were computed, by their names.
        NaN if covariances are singular, or if a split has no rows to compare.
    n_splits_ : int
        Number of folds.
    classes_, n_features_in_, feature_names_in_

    Notes
    -----
    Rows of a class that no other fold has are left out, for no candidate could predict it.

    A ``"full"`` candidate has a model for each fold, of ``16 * n_classes * n_features**2`` bytes:
    little up to a hundred features, but 98 MB for 784 pixels and ten digits, times five folds.
    Most of the time goes into scoring rather than reading. Rows projected on principal components
    (`ClassMoments.pca`) take a small part of that time, and digits are classified better.

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
        X, y, sample_weight : see `GaussianDiscriminantAnalysis.fit`
            Rows, labels and weights; dask arrays have chunks of known size.

        Returns
        -------
        GaussianDiscriminantCV
            The fitted search.

        Raises
        ------
        InvalidDataError
            For rows, labels or weights that cannot be used, or too few for any split.
        InvalidParameterError
            For invalid parameters or candidates.
        MemoryBudgetError
            If the moments of the folds exceed `max_memory`.
        SingularCovarianceError
            If all candidates have singular covariances.
        """
        candidates = self._candidates()
        template = GaussianDiscriminantAnalysis()
        X, y = validate_labelled(template, X, y, reset=True)
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
        """Return all combinations of the grids; refuse invalid ones."""
        from sklearn.model_selection import ParameterGrid  # noqa: PLC0415  (slow to import)

        for name, least in (("cv", 2), ("random_state", 0)):
            as_integer(name, getattr(self, name), f"an integer >= {least}", least, _MOST)
        as_flag("verbose", self.verbose)
        if not isinstance(self.scoring, str) or self.scoring not in SCORINGS:
            raise refuse("scoring", self.scoring, f"one of {', '.join(SCORINGS)}")
        try:
            candidates = list(
                ParameterGrid(list(_GRID) if self.param_grid is None else self.param_grid)
            )
            for params in candidates:
                candidate = GaussianDiscriminantAnalysis(**params)
                kept_by(candidate)
                check_one_pass(candidate)
        except InvalidParameterError:
            raise
        except (TypeError, ValueError) as error:
            raise InvalidParameterError(
                f"param_grid={shown(self.param_grid)} is not parameters of "
                f"GaussianDiscriminantAnalysis with lists of values to try: {error}"
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
            splits.score(numbers, rows, self.scoring)
        results = _results(candidates, splits.scores, self.scoring)
        mean = results["mean_test_score"]
        if np.isnan(mean).all():
            raise splits.failure or InvalidDataError(
                f"no row can be held out of {self.cv} folds: at least two classes need rows in at "
                f"least two folds; give more rows, or a smaller cv"
            )
        best = int(np.nanargmax(mean))
        chosen = GaussianDiscriminantAnalysis.from_moments(total, **candidates[best])
        learnt = {"best_estimator_": chosen, "cv_results_": results, "best_index_": best}
        learnt["n_features_in_"] = template.n_features_in_
        state = dict(vars(self))
        state.pop("feature_names_in_", None)
        if hasattr(template, "feature_names_in_"):
            learnt["feature_names_in_"] = chosen.feature_names_in_ = template.feature_names_in_
        self.__dict__ = state | learnt  # at once, whatever exception from outside arrives
        return self

    # --- the best candidate ----------------------------------------------------------------------

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
        """Return the most probable class of each row, as the best estimator does.

        Parameters
        ----------
        X, out : see `GaussianDiscriminantAnalysis.predict`
            Rows, and the destination of the result.

        Returns
        -------
        ndarray, shape (n_rows,); or `out`; or a lazy dask array
            Labels.
        """
        return self._best.predict(X, out=out)

    def predict_proba(self, X: Any, *, out: Any = None) -> Any:
        """Return the probability of each class, as the best estimator does.

        Parameters
        ----------
        X, out : see `predict`
            Rows, and the destination of the result.

        Returns
        -------
        ndarray, shape (n_rows, n_classes); or as for `predict`
            Probabilities.
        """
        return self._best.predict_proba(X, out=out)

    def predict_log_proba(self, X: Any, *, out: Any = None) -> Any:
        """Return the logarithm of `predict_proba`, as the best estimator does.

        Parameters
        ----------
        X, out : see `predict`
            Rows, and the destination of the result.

        Returns
        -------
        ndarray, shape (n_rows, n_classes); or as for `predict`
            Log-probabilities.
        """
        return self._best.predict_log_proba(X, out=out)

    def decision_function(self, X: Any, *, out: Any = None) -> Any:
        """Return the discriminants of the best estimator.

        Parameters
        ----------
        X, out : see `predict`
            Rows, and the destination of the result.

        Returns
        -------
        ndarray, shape (n_rows, n_classes), or (n_rows,) for two classes; or as for `predict`
            Discriminants, or log-odds of the second of two classes.
        """
        return self._best.decision_function(X, out=out)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy of the best estimator, whatever `scoring` is.

        Parameters
        ----------
        X, y, sample_weight : see `fit`
            Rows, true labels and weights.

        Returns
        -------
        float
            Accuracy.
        """
        return self._best.score(X, y, sample_weight)


class _Splits:
    """Scores of candidates, split by split.

    Attributes
    ----------
    scores : dict of str to ndarray, shape (n_candidates, n_folds)
        NaN if there is none.
    failure : SingularCovarianceError, optional
        Error of the last candidate with a singular covariance.
    """

    def __init__(self, candidates: list[dict[str, Any]], folds: list[ClassMoments]) -> None:
        self.candidates = candidates
        self.folds = folds
        self.scores: dict[str, np.ndarray] = {}
        self.failure: SingularCovarianceError | None = None

    def score(self, numbers: Sequence[int], rows: FoldedRows, scoring: str) -> None:
        """Score some of the candidates in all splits, with a pass over the rows if needed.

        The joint log-likelihood follows from the moments, and is computed in any case.
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
            self._score_rows(held, rows)

    def _scores_of(self, name: str) -> np.ndarray:
        shape = len(self.candidates), len(self.folds)
        return self.scores.setdefault(name, np.full(shape, np.nan))

    def _models(self, numbers: Sequence[int], f: int) -> Iterator[tuple[int, GaussianModel]]:
        """Yield the models of a split, without those that have singular covariances."""
        others = without(self.folds, f)
        if (others.class_count > 0).sum() < 2 or not self.folds[f].class_count.any():
            return
        others = others * 1.0  # integer sums are centred once, not for every candidate
        for c in numbers:
            candidate = GaussianDiscriminantAnalysis(**self.candidates[c])
            how, kind = regularisation_of(candidate), candidate.covariance_type
            try:
                yield c, GaussianModel.from_moments(others, kind, how, candidate.priors)
            except SingularCovarianceError as error:
                self.failure = error

    def _score_rows(self, models: dict[tuple[int, int], GaussianModel], rows: FoldedRows) -> None:
        """Score the rows of each fold with its models, in one pass."""
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
                scores = model.log_posterior(X if known.all() else X[known])
                truth = codes[known]
                right[c, f] += float(w @ (scores.argmax(axis=1) == truth))
                log_loss[c, f] += float(w @ scores[np.arange(truth.size), truth])
                weight[c, f] += float(w.sum())
        for at, total in weight.items():
            if total:
                self._scores_of(_ACCURACY)[at] = right[at] / total
                self._scores_of(_LOG_LOSS)[at] = log_loss[at] / total


def _kept(candidates: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the parameters of moments from which all candidates can be computed and scored."""
    kept = [kept_by(GaussianDiscriminantAnalysis(**params)) for params in candidates]
    matrix = any(structure_of(k["covariance_type"]).matrix for k in kept)
    norms = any(k["norms"] for k in kept)
    return {"covariance_type": "full" if matrix else "diag", "norms": norms}


def _bytes_of(model: GaussianModel) -> int:
    """Return the bytes of a model, whose roots are also packed for scoring."""
    return 2 * model.roots.nbytes + 2 * model.means.nbytes


def _passes(
    rows: FoldedRows, candidates: list[dict[str, Any]], n_folds: int, total: ClassMoments
) -> list[list[int]]:
    """Return the numbers of the candidates of each pass, whose models fit in memory together."""
    shape = total.classes.size, rows.rows.shape[1]
    room = left = rows.allowed // 2 - rows.held_bytes(total.covariance_type)
    passes: list[list[int]] = [[]]
    for c, params in enumerate(candidates):
        structure = structure_of(params.get("covariance_type", "full"))
        needed = 2 * n_folds * structure.state_bytes(*shape)  # as in `_bytes_of`
        if passes[-1] and needed > left:
            passes.append([])
            left = room
        passes[-1].append(c)
        left -= needed
    return passes


def _results(
    candidates: list[dict[str, Any]], scores: dict[str, np.ndarray], scoring: str
) -> dict[str, Any]:
    """Return the scores in the form of `GridSearchCV`."""
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
