"""The public contract as text, which ``python tests/contract.py`` prints.

It is kept in `contract.txt`, which changes only when the contract is meant to grow.
"""

import inspect
import re
from collections.abc import Callable, Iterator
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import numpy as np
import typer

import streamgda
from streamgda import datasets, plots
from streamgda.cli.app import app

# Methods that modules of the package call on each other's objects; not part of the users' API.
INTERNAL = {"cache", "summed", "state", "from_state", "blockwise"}
OPERATORS = {
    f"__{name}__" for name in ("add", "radd", "sub", "mul", "rmul", "iadd", "isub", "imul")
}
REQUEST = re.compile("set_.*_request")  # made by scikit-learn for all methods of an estimator


def parameters(function: Callable[..., Any]) -> str:
    """The parameters and defaults of a function, without annotations."""
    signature = inspect.signature(function)
    bare = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in signature.parameters.values()
    ]
    return str(inspect.Signature(bare))


def members(kind: type) -> Iterator[str]:
    """Public methods and properties that the package defines, inherited ones included."""
    for name in dir(kind):
        hidden = name.startswith("_") and name not in OPERATORS
        if hidden or name in INTERNAL or REQUEST.fullmatch(name):
            continue
        for owner in kind.__mro__:
            if name in vars(owner):
                break
        if not owner.__module__.startswith("streamgda"):
            continue
        held = vars(owner)[name]
        if isinstance(held, classmethod | staticmethod):
            yield f"{name}{parameters(getattr(kind, name))} [{type(held).__name__}]"
        elif inspect.isfunction(held) or hasattr(held, "fn"):  # the latter: for some parameters
            yield f"{name}{parameters(getattr(held, 'fn', held))}"
        else:
            yield name


def fitted_attributes(kind: type) -> Iterator[str]:
    """Public attributes that end in an underscore, once the estimator is fitted."""
    X = np.random.default_rng(0).normal(size=(60, 3))
    y = np.arange(60) % 2
    fitted = kind().fit(X, y)
    for name in dir(fitted):
        if name.endswith("_") and not name.startswith("_") and hasattr(fitted, name):
            yield name


def python() -> Iterator[str]:
    for module in (streamgda, datasets, plots):
        for name in sorted(module.__all__):
            held = getattr(module, name)
            yield f"{module.__name__}.{name}{parameters(held)}"
            if isinstance(held, type):
                known = set()
                for line in members(held):
                    known.add(re.match(r"\w+", line)[0])
                    yield f"    {line}"
                if hasattr(held, "fit"):
                    more = set(fitted_attributes(held)) - known
                    yield f"    once fitted: {', '.join(sorted(more))}"


def command_line() -> Iterator[str]:
    for command in sorted(app.registered_commands, key=lambda command: command.callback.__name__):
        yield f"streamgda {command.name or command.callback.__name__}"
        for parameter in inspect.signature(command.callback).parameters.values():
            kind, described = get_args(parameter.annotation)
            option = isinstance(described, typer.models.OptionInfo)
            spelled = f"--{parameter.name.replace('_', '-')}" if option else parameter.name.upper()
            given = (described.default, *(described.param_decls or ()))
            names = " ".join(name for name in given if isinstance(name, str)) or spelled
            needed = parameter.default is inspect.Parameter.empty
            default = "" if needed else f" = {parameter.default}"
            yield f"    {names}: {values(kind)}{default}"


def values(kind: Any) -> str:
    """The type of an option, with the names that it may have."""
    if get_origin(kind) in (UnionType, Union):
        return " | ".join(values(part) for part in get_args(kind))
    if get_origin(kind) is Literal:
        return " | ".join(map(repr, get_args(kind)))
    return str(kind) if get_args(kind) else kind.__name__.replace("NoneType", "None")


def contract() -> str:
    return "\n".join([*python(), "", *command_line(), ""])


if __name__ == "__main__":
    print(contract(), end="")
