"""Parametrisation over grids of which a few cases run by default, and the others by `-m soak`."""

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations, product
from typing import Any

import pytest


def pairs(names: str, *values: Iterable[Any]) -> Callable[[Callable], Callable]:
    """Parametrise a test over a grid; by default, any two values of two parameters meet once."""
    lists = [list(of_one) for of_one in values]
    return cases(names, list(product(*lists)), covering([len(v) for v in lists]))


def cases(names: str, grid: Sequence[Any], few: Iterable[int]) -> Callable[[Callable], Callable]:
    """Parametrise a test over a grid, of which the cases of these numbers run by default."""
    usual = set(few)
    soak = [pytest.param(*case, marks=pytest.mark.soak) for case in grid]
    return pytest.mark.parametrize(
        names, [grid[i] if i in usual else soak[i] for i in range(len(grid))]
    )


def in_turn(
    names: str, *values: Iterable[Any], indirect: Sequence[str] = ()
) -> Callable[[Callable], Callable]:
    """Parametrise a test by every value of each parameter, which depend on each other nowhere."""
    lists = [list(of_one) for of_one in values]
    chosen = [[v[turn % len(v)] for v in lists] for turn in range(max(map(len, lists)))]
    return pytest.mark.parametrize(names, chosen, indirect=indirect)


def covering(sizes: Sequence[int]) -> list[int]:
    """Numbers of cases of a grid of these sizes, chosen greedily until all pairs are covered."""
    grid = list(product(*map(range, sizes)))
    covers = [
        {(i, case[i], j, case[j]) for i, j in combinations(range(len(sizes)), 2)} for case in grid
    ]
    missing, chosen = set().union(*covers), []
    while missing:
        best = max(range(len(grid)), key=lambda number: len(covers[number] & missing))
        chosen.append(best)
        missing -= covers[best]
    return chosen
