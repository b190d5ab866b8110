"""Blocks of dask collections, and the tasks that evaluate each of them.

Collections that dask describes by layers of one task a block, such as arrays in a store and what
maps make of them, are cut as layers: their tasks are made where they run. Of other collections all
tasks are listed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import dask
import numpy as np
from dask.blockwise import Blockwise, BlockwiseDepDict, optimize_blockwise
from dask.core import flatten, toposort
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer
from dask.task_spec import DataNode, GraphNode

from streamgda.engine.dask import cluster
from streamgda.rows.batches import read_batch
from streamgda.rows.in_memory import SparseRows
from streamgda.rows.sources import Slab

Columns = Mapping[str, Any] | list[Any]  # collections by the fields of a `Slab`, or batches

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

    def slab(self, elsewhere: Mapping[Any, Any], name: str, first_row: int) -> Slab:
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
        if self.names:
            slab = Slab(**dict(zip(self.names, values, strict=True)), first_row=first_row)
        else:
            slab = Slab.of_batch(read_batch(values[0], name))
        if SparseRows.accepts(slab.X):
            return slab._replace(X=SparseRows.of(slab.X, "X").values)
        return slab


class ListedBlocks(list[Block]):
    """Blocks in order, with all of their tasks."""

    def __getitem__(self, which: Any) -> Any:
        """Return a block, or some of the blocks."""
        found = super().__getitem__(which)
        return ListedBlocks(found) if isinstance(which, slice) else found

    @property
    def needs(self) -> set[Any]:
        """Keys of values that are evaluated elsewhere."""
        return {key for block in self for key in block.needs}


@dataclass(frozen=True)
class LayeredBlocks:
    """Neighbouring blocks, as layers that make the tasks of each when it is needed.

    Attributes
    ----------
    names : tuple of str
        Fields of a `Slab`.
    outputs : tuple
        Pairs of the name of the layer with the values of each field, and the rest of its keys
        after the number of the block.
    layers : dict
        Layers by their names; those that are computed from others come first. The key of each of
        their tasks, or arrays, continues with the number of the block.
    start, stop : int
        Numbers of the first block, and of one past the last.
    needs : frozenset
        Keys of values that are evaluated elsewhere.
    """

    names: tuple[str, ...]
    outputs: tuple[tuple[str, tuple[int, ...]], ...]
    layers: Mapping[str, Mapping[Any, Any]]
    start: int
    stop: int
    needs: frozenset[Any] = frozenset()

    def __len__(self) -> int:
        return self.stop - self.start

    def __getitem__(self, which: slice) -> LayeredBlocks:
        """Return some of the blocks, with the layers cut to them."""
        start, stop, _ = which.indices(len(self))
        start, stop = self.start + start, self.start + stop
        wanted: dict[str, set[Any]] = defaultdict(set)
        for number in range(start, stop):
            for name, rest in self.outputs:
                wanted[name].add((name, number, *rest))
        layers: dict[str, Any] = {}
        for name, layer in self.layers.items():
            keys = wanted.pop(name)
            if not isinstance(layer, Blockwise):
                layers[name] = {key: layer[key] for key in keys}
                continue
            cut, needed = layer.cull(keys, ())
            layers[name] = _narrowed(cut)
            for key in set().union(*needed.values()):
                wanted[key[0] if isinstance(key, tuple) else key].add(key)
        needs = frozenset(key for keys in wanted.values() for key in keys)
        return replace(self, layers=layers, start=start, stop=stop, needs=needs)

    def __iter__(self) -> Iterator[Block]:
        """Yield each block with its tasks."""
        tasks: dict[int, dict[Any, Any]] = defaultdict(dict)
        for layer in self.layers.values():
            for key, task in layer.items():
                data = isinstance(task, np.ndarray)
                tasks[key[1]][key] = DataNode(key, task) if data else task
        for number in range(self.start, self.stop):
            keys = [(name, number, *rest) for name, rest in self.outputs]
            yield Block(keys, self.names, tasks.pop(number))

    @classmethod
    def of(cls, columns: Mapping[str, Any]) -> tuple[LayeredBlocks, dict[Any, Any]] | None:
        """Return the blocks of arrays side by side, and values they need, delayed, by their keys.

        Returns
        -------
        None
            If a task needs more than tasks of its own block, and values that all blocks share.
        """
        graph = HighLevelGraph.merge(*(array.__dask_graph__() for array in columns.values()))
        outputs = tuple((array.name, (0,) * (array.ndim - 1)) for array in columns.values())
        graph = optimize_blockwise(graph, keys=[(name, 0, *rest) for name, rest in outputs])
        n_blocks = next(iter(columns.values())).numblocks[0]
        waiting, found = {name for name, _ in outputs}, {}
        while waiting:
            name = waiting.pop()
            found[name] = layer = graph.layers.get(name)
            needed = _layers_beside(layer, n_blocks)
            if needed is None:
                return None
            waiting |= needed - found.keys()
        elsewhere = set().union(*(graph.dependencies[name] for name in found)) - found.keys()
        if graph.cull_layers(elsewhere).layers.keys() & found.keys():
            return None
        inner = {name: graph.dependencies[name] & found.keys() for name in found}
        layers = {name: found[name] for name in reversed(toposort(found, dependencies=inner))}
        blocks = cls((*columns,), outputs, layers, 0, n_blocks)
        blocks = replace(blocks, needs=blocks[:1].needs)
        shared = dict(graph.cull({*blocks.needs}))
        return blocks, {key: Delayed(key, shared) for key in blocks.needs}


def _layers_beside(layer: Any, n_blocks: int) -> set[str] | None:
    """Return the layers of which a task needs the blocks with its own number only.

    Returns
    -------
    None
        If this is another kind of layer.
    """
    if isinstance(layer, MaterializedLayer):  # as of `from_array`
        return set() if all(isinstance(value, np.ndarray) for value in layer.values()) else None
    if not isinstance(layer, Blockwise) or not layer.output_indices:
        return None
    rows, found = layer.output_indices[0], set()
    for value, index in layer.indices:
        if index is None:
            if isinstance(value, GraphNode) and value.dependencies:
                return None
        elif value in layer.io_deps:
            if layer.io_deps[value].produces_keys or {*index} - {*layer.output_indices}:
                return None
        elif rows in index:
            if index.index(rows) or index.count(rows) > 1 or layer.numblocks[value][0] != n_blocks:
                return None
            found.add(value)
    return found


def _narrowed(layer: Blockwise) -> Blockwise:
    """Return a layer that is cut to some blocks with what it reads of these only."""
    places = {index: place for place, index in enumerate(layer.output_indices)}
    narrow = {}
    for value, index in layer.indices:
        if index is None or value not in layer.io_deps:
            continue
        whole = layer.io_deps[value]
        at = [None if n == 1 else places[i] for i, n in zip(index, whole.numblocks, strict=False)]
        read = {
            tuple(0 if place is None else key[1 + place] for place in at)
            for key in layer.get_output_keys()
        }
        parts = {block: whole[block] for block in read}
        narrow[value] = BlockwiseDepDict(parts, whole.numblocks, whole.produces_tasks)
    return Blockwise(
        *(layer.output, layer.output_indices, layer.task, layer.indices, layer.numblocks),
        *(layer.concatenate, layer.new_axes, layer.output_blocks, layer.annotations),
        layer.io_deps | narrow,
    )


def blocks_of(columns: Columns) -> tuple[ListedBlocks | LayeredBlocks, dict[Any, Any]]:
    """Return the blocks of collections side by side.

    Tasks that only one block needs run inside of the task that reads it; those that several
    blocks need stay separate.

    Parameters
    ----------
    columns : dict of str to dask.array.Array, or list of delayed objects
        Arrays with the same number of row blocks, by the fields of a `Slab`; or batches.

    Returns
    -------
    blocks : ListedBlocks or LayeredBlocks
        In order.
    elsewhere : dict
        Values they need that are evaluated elsewhere: delayed objects or futures, by their keys.
    """
    layered = LayeredBlocks.of(columns) if isinstance(columns, Mapping) else None
    return layered or _listed(columns)


def _listed(columns: Columns) -> tuple[ListedBlocks, dict[Any, Any]]:
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
    blocks = ListedBlocks(Block(keys, names, tasks[n]) for n, keys in enumerate(wanted))
    shared = tasks[_SEVERAL]
    return blocks, {
        key: Delayed(key, shared) if key in shared else _held(key) for key in blocks.needs
    }


def _held(key: Any) -> Any:
    """Return a value that is persisted on the cluster, without a graph."""
    from distributed import Future  # noqa: PLC0415

    return Future(key, cluster.active_client())
