"""Blocks of dask collections, each made inside of the task that takes it in.

A task that was given its blocks would hold all of them at once, and they might have been made on
other workers. So what is needed for one block only goes into the task that takes it in; what
several blocks need stays a task of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dask
from dask.core import flatten, toposort
from dask.delayed import Delayed
from dask.task_spec import DataNode

from streamgda.engine.dask.cluster import active_client

_SEVERAL = -1  # in the place of a block's number


class Block:
    """How to make a block's values; dask does not look into it for tasks and data.

    Attributes
    ----------
    keys : list
        Of the values: rows, labels and perhaps weights, or a tuple of these.
    graph : dict
        The tasks that make them.
    needs : list
        Keys of what is made elsewhere.
    """

    def __init__(self, keys: list[Any], graph: dict[Any, Any]) -> None:
        self.keys, self.graph = keys, graph
        needed = {*keys}.union(*(task.dependencies for task in graph.values()))
        self.needs = sorted(needed - graph.keys(), key=str)

    def values(self, made: dict[Any, Any]) -> Sequence[Any]:
        """Make the block, given what was made elsewhere."""
        given = {key: DataNode(key, made[key]) for key in self.needs}
        values: Sequence[Any] = dask.get(self.graph | given, self.keys)
        return values


def blocks_of(*columns: Any) -> tuple[list[Block], dict[Any, Any]]:
    """The blocks of collections side by side.

    Parameters
    ----------
    *columns : dask collection, or list of delayed objects
        Of as many blocks each.

    Returns
    -------
    blocks : list of Block
        From the first to the last.
    elsewhere : dict
        What they need and is made elsewhere: delayed objects or futures, by their keys.
    """
    keys: list[list[Any]] = []
    graph: dict[Any, Any] = {}
    for column in dask.optimize(*columns):
        collections = column if isinstance(column, list) else [column]
        keys.append(list(flatten([collection.__dask_keys__() for collection in collections])))
        for collection in collections:
            graph.update(collection.__dask_graph__())
    wanted = [list(block) for block in zip(*keys, strict=True)]
    user: dict[Any, int] = {}

    def use(key: Any, block: int) -> None:
        user[key] = block if user.get(key, block) == block else _SEVERAL

    for number, keys in enumerate(wanted):
        for key in keys:
            use(key, number)
    inner = {key: task.dependencies & graph.keys() for key, task in graph.items()}
    for key in reversed(toposort(graph, dependencies=inner)):
        for needed in graph[key].dependencies if key in user else ():
            use(needed, user[key])
    tasks: dict[int, dict[Any, Any]] = {number: {} for number in (_SEVERAL, *range(len(wanted)))}
    for key, number in user.items():
        if key in graph:
            tasks[number][key] = graph[key]
    blocks = [Block(keys, tasks[number]) for number, keys in enumerate(wanted)]
    shared = tasks[_SEVERAL]
    needs = {key for block in blocks for key in block.needs}
    return blocks, {key: Delayed(key, shared) if key in shared else _held(key) for key in needs}


def _held(key: Any) -> Any:
    """What is persisted on the cluster: no graph makes it."""
    from distributed import Future  # noqa: PLC0415

    return Future(key, active_client())
