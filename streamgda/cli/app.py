"""Application with all commands, and an exit code for each kind of failure."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import Annotated, Any, NoReturn

import typer

import streamgda
from streamgda.cli import screen
from streamgda.cli.data import convert, info
from streamgda.cli.demo import demo
from streamgda.cli.fit import fit, select
from streamgda.cli.predict import evaluate, predict
from streamgda.errors import StreamGDAError

EXAMPLES: dict[Callable[..., None], str] = {
    demo: "streamgda demo --out demo",
    convert: "streamgda convert flowers.csv --label kind --out flowers.zarr",
    fit: "streamgda fit flowers.csv --label kind --kind lda --out model.npz",
    select: "streamgda select flowers.zarr --scoring neg_log_loss --out best.npz",
    predict: "streamgda predict flowers.csv --model model.npz --write proba --out p.csv",
    evaluate: "streamgda evaluate flowers.csv --label kind --model model.npz",
    info: "streamgda info model.npz",
}
_ACCESS = re.compile("credential|access ?denied|forbidden|endpoint|region", re.IGNORECASE)
_ITEMS = {"y": "label", "X": "row", "sample_weight": "weight"}  # Their numbers are those of rows.

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command, example in EXAMPLES.items():
    app.command(epilog=f"Example:\n\n\b\n  {example}")(command)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"streamgda {streamgda.__version__}")
        raise typer.Exit


@app.callback()
def shell(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Gaussian discriminant analysis in one pass over data larger than memory."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit.

    Parameters
    ----------
    arguments : sequence of str, optional
        Command-line arguments; those of the process by default.

    Raises
    ------
    SystemExit
        With code 0 on success; 1 if data, files or memory do not suffice; 2 for wrong usage; 130
        if the user interrupts.
    """
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: screen.note(f"warning: {message}")
        try:
            copy_context().run(app, args=arguments, prog_name="streamgda")
        except (MemoryError, StreamGDAError, OSError) as error:
            screen.note(_message(error))
        except KeyboardInterrupt:  # It may come before typer can catch it.
            sys.exit(130)
    sys.exit(1)


def _message(error: BaseException) -> str:
    """Return the message of an error and its notes, without what only Python has."""
    kind = "out of memory" if isinstance(error, MemoryError) else type(error).__name__
    text = ". ".join([str(error) or kind, *getattr(error, "__notes__", ())])
    if "://" in text and _ACCESS.search(text):
        text += ". Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL, AWS_REGION"
    commands: Any = typer.main.get_command(app)
    options = {p.name: p.opts[0] for c in commands.commands.values() for p in c.params}

    def option(found: re.Match[str]) -> str:
        value = "NAME" if "..." in found[2] else found[2].strip("'\"")
        name = options.get(found[1], "")
        return f"{name} {value}" if name.startswith("--") else f"{found[1]}={value}"

    text = re.sub(r"^(X|y|sample_weight): |\[Errno \d+\] |\b[A-Z]\w*(Error|Invalid): ", "", text)
    text = re.sub(r"\b(X|y|sample_weight)\[(\d+)\]", lambda m: f"{_ITEMS[m[1]]} {m[2]}", text)
    text = re.sub(r"(?<!-)\b([a-z_]+)=(\[\.\.\.\]|\.\.\.|'[^']*'|[\w./:+-]*\w)", option, text)
    return text.replace("max_memory", "--max-memory")
