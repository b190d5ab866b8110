"""Blocks of dask collections, each evaluated inside of the task that accumulates it.

A task that received its blocks as arguments would hold all of them at once, and they might have
been evaluated on other workers. So tasks that only one block needs run inside of the task that
accumulates it; those that several blocks need stay separate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dask
from dask.core import flatten, toposort
from dask.delayed import Delayed
from dask.task_spec import DataNode

from streamgda.engine.dask.cluster import active_client
from streamgda.rows.batches import read_batch
from streamgda.rows.sources import Slab

_SEVERAL = -1  # in place of the number of a block


class Block:
    """The tasks that evaluate a block; dask does not search it for tasks and data.

    Attributes
    ----------
    keys : list
        Keys of the values.
    names : tuple of str
        Their names: fields of a `Slab`, or none if the only value is a batch.
    graph : dict
        The tasks that evaluate them.
    needs : list
        Keys of values that are evaluated elsewhere.
    """

    def __init__(self, keys: list[Any], names: tuple[str, ...], graph: dict[Any, Any]) -> None:
        self.keys, self.names, self.graph = keys, names, graph
        needed = {*keys}.union(*(task.dependencies for task in graph.values()))
        self.needs = sorted(needed - graph.keys(), key=str)

    def slab(self, elsewhere: dict[Any, Any], name: str, first_row: int) -> Slab:
        """Evaluate the block, given the values that were evaluated elsewhere.

        Parameters
        ----------
        elsewhere : dict
        name : str
            Name of a batch in errors.
        first_row : int
            Number of its first row.
        """
        given = {key: DataNode(key, elsewhere[key]) for key in self.needs}
        values: Sequence[Any] = dask.get(self.graph | given, self.keys)
        if not self.names:
            return Slab.of_batch(read_batch(values[0], name))
        return Slab(**dict(zip(self.names, values, strict=True)), first_row=first_row)


def blocks_of(columns: Mapping[str, Any] | list[Any]) -> tuple[list[Block], dict[Any, Any]]:
    """Return the blocks of collections side by side.

    Parameters
    ----------
    columns : dict of str to dask collection, or list of delayed objects
        Collections with the same number of blocks, by the fields of a `Slab`; or batches.

    Returns
    -------
    blocks : list of Block
        In order.
    elsewhere : dict
        Values they need that are evaluated elsewhere: delayed objects or futures, by their keys.
    """
    keys: list[list[Any]] = []
    graph: dict[Any, Any] = {}
    names = tuple(columns) if isinstance(columns, Mapping) else ()
    sides = [*columns.values()] if isinstance(columns, Mapping) else [columns]
    for column in dask.optimize(*sides):
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
    blocks = [Block(keys, names, tasks[number]) for number, keys in enumerate(wanted)]
    shared = tasks[_SEVERAL]
    needs = {key for block in blocks for key in block.needs}
    return blocks, {key: Delayed(key, shared) if key in shared else _held(key) for key in needs}


def _held(key: Any) -> Any:
    """Return a value that is persisted on the cluster, without a graph."""
    from distributed import Future  # noqa: PLC0415

    return Future(key, active_client())
