"""Estimators that options describe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import typer

from streamgda.cli.options import Kind, Solver

_ESTIMATORS = {
    Kind.QDA: "QuadraticDiscriminantAnalysis",
    Kind.LDA: "LinearDiscriminantAnalysis",
    Kind.NB: "GaussianNB",
    Kind.GDA: "GaussianDiscriminantAnalysis",
    Kind.BERNOULLI: "BernoulliNB",
}


@dataclass(frozen=True)
class Recipe:
    """Estimator to fit.

    Attributes
    ----------
    estimator_class : type
    params : dict of str to object
        Parameters that the user gave.
    needs : dict of str to object
        Options of `streamgda.accumulate` for the moments that such a model needs.
    """

    estimator_class: Any
    params: dict[str, Any]
    needs: dict[str, Any]


def recipe_of(kind: Kind, **options: Any) -> Recipe:
    """Return the estimator for the given options; refuse options that it does not have.

    Parameters
    ----------
    kind : Kind
    **options
        Options by the names of the parameters; None and False for those that are not given.
    """
    import streamgda  # noqa: PLC0415  (see the note in `options`)

    estimator_class = getattr(streamgda, _ESTIMATORS[kind])
    given = {
        name: value for name, value in options.items() if value is not None and value is not False
    }
    accepted = [name for name in options if name in estimator_class().get_params()]
    for name in given:
        if name not in accepted:
            raise typer.BadParameter(
                f"--kind {kind} accepts {', '.join(map(_option, accepted))}",
                param_hint=_option(name),
            )
    given |= _solver(kind, given)
    for name, converted in (("shrinkage", _number_or_text), ("priors", _numbers)):
        if name in given:
            given[name] = converted(given[name])
    estimator = estimator_class(**given)
    needs = estimator._kept()
    estimator._check_supported()
    return Recipe(estimator_class, given, needs)


def _solver(kind: Kind, given: dict[str, Any]) -> dict[str, str]:
    """Return the solver, if any: the one that was asked for, or one that takes shrinkage."""
    if "solver" in given:
        return {"solver": Solver(given["solver"]).value}
    if "shrinkage" not in given or kind not in (Kind.QDA, Kind.LDA):
        return {}
    if "reg_param" in given:
        raise typer.BadParameter(
            "qda takes --shrinkage or --reg-param; use --kind gda for both",
            param_hint="--reg-param",
        )
    return {"solver": Solver.EIGEN.value}


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _number_or_text(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a list of numbers separated by commas", param_hint="--priors"
        ) from None
