"""Options of the commands, from the signatures and docstrings of the functions that take them.

A keyword parameter ``on_invalid`` is the option ``--on-invalid``: its annotation says how text is
read, its default is that of the option, and its description is the help, where a type in capitals
names the value. The modules of the command line import Numba, scikit-learn, zarr and rich inside
functions, so that `--help` does not wait for them.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Annotated, Any, Unpack, get_args, get_origin, get_type_hints

import typer

from streamgda.cli import screen

Command = Callable[..., dict[str, Any]]
# MODEL DATA and SOURCE STORE are deprecated: what is read or written beside DATA is an option.
FormerArgument = Annotated[str | None, typer.Argument(hidden=True)]

_ENTRY = re.compile(r"^(\w+) : (.*)\n((?: {4}.*\n?)+)", re.MULTILINE)
_OF_TABLES = {  # options whose text has another form than the value
    "drop": list[str] | None,
    "na_values": Annotated[list[str] | None, typer.Option("--na")],
    "keep_default_na": Annotated[bool | None, typer.Option("--default-na/--no-default-na")],
}
_JSON = inspect.Parameter(
    "json",
    inspect.Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[bool, typer.Option("--json", help="Print one JSON object.")],
)
# Parameters of Python functions that messages name, and those that have other names as options.
_SPELLED = {
    "label": "--labels",
    "na_values": "--na",
    "keep_default_na": "--default-na",
    "param_grid": "--grid",
}
_PARAMETER = re.compile(
    r"(?<!\w\()(?<!/)\b([a-z_]+)(?:=(\[?\.\.\.\]?|'[^']*'|\"[^\"]*\"|-?[\w.+-]*\w)"
    r"|(?<=[a-z]_memory)|(?<=param_grid))"
)
_options = {*_SPELLED}  # of all commands
_OF_LABELS = {"--y": "--labels", "--label": "--labels", "--label-column": "--labels"}
_DEPRECATED: dict[str, dict[str, str]] = {  # until streamgda 0.4
    "demo": {"--store": "--out"},
    "convert": {"--label-column": "--labels", "--columns": "--features"},
    "fit": {"--model": "--out", "--moments": "--moments-out", **_OF_LABELS},
    "select": {"--model": "--out", **_OF_LABELS},
    "evaluate": _OF_LABELS,
}
_IN_PYTHON = ", or pass y=None if the rows have no labels"  # where commands need labels
_WORDS = {"none": None, "true": True, "false": False}


def takes(*functions: Any, without: Collection[str] = ()) -> Callable[[Command], Command]:
    """Give a command the keyword parameters of functions as options, and ``--json``.

    A command returns the figures that it prints.

    Parameters
    ----------
    *functions : function
        The command gets their options as its ``**options``; `options_of` separates them.
    without : collection of str
        Names of parameters that are no options.
    """

    def derive(command: Command) -> Command:
        described = {"former": ("", "")}  # which is hidden
        found = {p.name: p for p in _parameters(command)}
        for source in (*functions, command):
            for part in (*_unpacked(source), source):
                entries = _ENTRY.findall(inspect.getdoc(part) or "")
                described |= {name: (kind, _plain(text)) for name, kind, text in entries}
            found |= {p.name: p for p in _keywords(source) if p.name not in found}
        signature = [_derived(p, *described[p.name]) for p in found.values()]
        signature = [p for p in signature if p.name not in without]
        _options.update(p.name for p in signature)

        @functools.wraps(command)
        def run(json: bool, **given: Any) -> dict[str, Any]:
            shown = contextlib.redirect_stdout(io.StringIO()) if json else contextlib.nullcontext()
            with shown, screen.notes_on_interrupt():
                figures = command(**given)
            if json:
                screen.show_json(figures)
            return figures

        run.__dict__["__signature__"] = inspect.Signature([*signature, _JSON])
        return run

    return derive


def options_of(function: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Remove the options that belong to a function from those of a command, and return them."""
    return {p.name: options.pop(p.name) for p in _keywords(function) if p.name in options}


def help_of(command: Command) -> tuple[str, str]:
    """Return the help of a command: its description, and the commands that are its examples."""
    text = inspect.getdoc(command) or ""
    about, _, rest = text.partition("\n\nParameters\n")
    examples = (rest or about).partition("Examples\n--------\n")[2]
    return about.partition("\n\nExamples\n")[0], "\n\n".join(examples.splitlines())


def current(arguments: Sequence[str]) -> list[str]:
    """Return the arguments in their current spelling, and warn about each that is deprecated."""
    names = _DEPRECATED.get(arguments[0], {}) if arguments else {}
    spelled = []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if name in names:
            warn_deprecated(name, names[name])
        spelled.append(f"{names.get(name, name)}{equals}{value}")
    return spelled


def warn_deprecated(old: str, now: str) -> None:
    """Write a warning about a deprecated spelling."""
    screen.note(f"warning: {old} is deprecated, and will be removed in streamgda 0.4: use {now}")


def in_shell(message: str) -> str:
    """Return a message with options in place of parameters: ``--labels NAME`` for ``label=...``."""

    def option(match: re.Match[str]) -> str:
        name, value = match[1], (match[2] or "True").strip("[]'\"")
        if name not in _options:
            return match[0]
        words = [_SPELLED.get(name, f"--{name.replace('_', '-')}")]
        return " ".join(words if value == "True" else [*words, "NAME" if value == "..." else value])

    return _PARAMETER.sub(option, message.replace(_IN_PYTHON, ""))


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
    if get_origin(annotation) is Annotated:
        annotation, info = get_args(annotation)
    elif parameter.kind is not parameter.KEYWORD_ONLY:
        info = typer.Argument(show_default=False)
    elif annotation is bool and not parameter.default:  # a flag without a negation
        info = typer.Option(f"--{parameter.name.replace('_', '-')}")
    info.help, info.metavar = text, kind if kind.isupper() else None
    return parameter.replace(kind=parameter.KEYWORD_ONLY, annotation=Annotated[annotation, info])
