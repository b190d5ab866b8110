"""Parametrisation over grids of which a few cases do."""

import os
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations, product
from typing import Any

import pytest

THOROUGH = os.environ.get("STREAMGDA_TESTS") == "thorough"
TIMES = int(os.environ.get("STREAMGDA_TIMES", "1"))  # as many damaged files, kills and bad calls


def pairs(names: str, *values: Iterable[Any]) -> Callable[[Callable], Callable]:
    """Parametrise a test so that any two values of different parameters meet in some case.

    The other cases of the grid run with ``STREAMGDA_TESTS=thorough`` in the environment.
    """
    lists = [list(of_one) for of_one in values]
    grid = list(product(*lists))
    return cases(names, grid, covering([len(v) for v in lists]))


def in_turn(
    names: str, *values: Iterable[Any], indirect: Sequence[str] = ()
) -> Callable[[Callable], Callable]:
    """Parametrise a test by every value of each parameter, which depend on each other nowhere."""
    lists = [list(of_one) for of_one in values]
    turns = range(max(map(len, lists)))
    chosen = [[v[turn % len(v)] for v in lists] for turn in turns]
    return pytest.mark.parametrize(names, chosen, indirect=indirect)


def cases(names: str, grid: Sequence[Any], few: Iterable[int]) -> Callable[[Callable], Callable]:
    """Parametrise a test by a few cases of a grid, given by numbers, or thoroughly by the rest."""
    usual = set(few)
    rest = THOROUGH and len(usual) < len(grid)
    chosen = [case for number, case in enumerate(grid) if rest != (number in usual)]
    return lambda test: pytest.mark.thorough(pytest.mark.parametrize(names, chosen)(test))


def covering(sizes: Sequence[int]) -> list[int]:
    """Numbers of cases of a grid of these sizes, chosen greedily until all pairs are covered."""
    cases = list(product(*map(range, sizes)))
    covers = [
        {(i, case[i], j, case[j]) for i, j in combinations(range(len(sizes)), 2)} for case in cases
    ]
    missing, chosen = set().union(*covers), []
    while missing:
        best = max(range(len(cases)), key=lambda number: len(covers[number] & missing))
        chosen.append(best)
        missing -= covers[best]
    return sorted(chosen)
