"""Options of the commands, from the signatures and docstrings of the functions that take them.

A keyword parameter ``on_invalid`` is the option ``--on-invalid``: its annotation says how text is
read, its default is that of the option, and its description is the help, where a type in capitals
names the value. The modules of the command line import NumPy, scikit-learn, zarr and rich inside
functions, so that `--help` does not wait for them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterator
from typing import Annotated, Any, TypeVar, Unpack, get_args, get_origin, get_type_hints

import typer

Command = TypeVar("Command", bound=Callable[..., None])

_ENTRY = re.compile(r"^(\w+) : (.*)\n((?: {4}.*\n?)+)", re.MULTILINE)
_OF_TABLES = {  # options whose text has another form than the value
    "drop": list[str] | None,
    "na_values": Annotated[list[str] | None, typer.Option("--na")],
    "keep_default_na": Annotated[bool | None, typer.Option("--default-na/--no-default-na")],
}
_WORDS = {"none": None, "true": True, "false": False}


def takes(*functions: Any, without: Collection[str] = ()) -> Callable[[Command], Command]:
    """Give a command the keyword parameters of functions as options.

    Parameters
    ----------
    *functions : function
        The command gets their options as its ``**options``; `options_of` separates them.
    without : collection of str
        Names of parameters that are no options.
    """

    def derive(command: Command) -> Command:
        described: dict[str, tuple[str, str]] = {}
        found = {p.name: p for p in _parameters(command)}
        for source in (*functions, command):
            for part in (*_unpacked(source), source):
                entries = _ENTRY.findall(inspect.getdoc(part) or "")
                described |= {name: (kind, _plain(text)) for name, kind, text in entries}
            found |= {p.name: p for p in _keywords(source) if p.name not in found}
        signature = [_derived(p, *described[p.name]) for p in found.values()]
        command.__dict__["__signature__"] = inspect.Signature(
            [p for p in signature if p.name not in without]
        )
        return command

    return derive


def options_of(function: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Remove the options that belong to a function from those of a command, and return them."""
    return {p.name: options.pop(p.name) for p in _keywords(function) if p.name in options}


def help_of(command: Callable[..., None]) -> str:
    """Return the description of a command without its parameters."""
    return (inspect.getdoc(command) or "").partition("\n\nParameters\n")[0]


def value_of(text: str) -> Any:
    """Return the number, truth value or None that a text stands for, or the text."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _parameters(function: Any) -> Iterator[inspect.Parameter]:
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        if parameter.kind is not parameter.VAR_KEYWORD:
            yield parameter


def _keywords(function: Any) -> Iterator[inspect.Parameter]:
    """Return the keyword parameters of a function, with those of its unpacked dictionary."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    yield from (p for p in _parameters(function) if p.kind is keyword)
    for options in _unpacked(function):
        for name, kind in get_type_hints(options).items():
            annotation = _OF_TABLES.get(name, kind)
            yield inspect.Parameter(name, keyword, default=None, annotation=annotation)


def _unpacked(function: Any) -> list[Any]:
    annotation = get_type_hints(function).values()
    return [get_args(kind)[0] for kind in annotation if get_origin(kind) is Unpack]


def _plain(text: str) -> str:
    return " ".join(text.replace("`", "").split())


def _derived(parameter: inspect.Parameter, kind: str, text: str) -> inspect.Parameter:
    """Return the parameter with what typer has to know of it."""
    annotation, info = parameter.annotation, typer.Option()
    if parameter.kind is not parameter.KEYWORD_ONLY:
        info = typer.Argument(show_default=False)
    elif get_origin(annotation) is Annotated:
        annotation, info = get_args(annotation)
    elif annotation is bool and not parameter.default:  # a flag without a negation
        info = typer.Option(f"--{parameter.name.replace('_', '-')}")
    info.help, info.metavar = text, kind if kind.isupper() else None
    return parameter.replace(kind=parameter.KEYWORD_ONLY, annotation=Annotated[annotation, info])
