"""Application with all commands, and an exit code for each kind of failure."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

import typer

from streamgda.cli import screen
from streamgda.cli.convert import convert
from streamgda.cli.demo import demo
from streamgda.cli.evaluate import evaluate
from streamgda.cli.fit import fit
from streamgda.cli.info import info
from streamgda.cli.options import current, help_of, in_shell
from streamgda.cli.predict import predict
from streamgda.cli.select import select
from streamgda.errors import StreamGDAError


class _Command(typer.core.TyperCommand):
    """A command whose usage does not show the argument that is deprecated."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [part for part in super().collect_usage_pieces(ctx) if part != "[former]"]


app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (demo, convert, fit, select, predict, evaluate, info):
    about, examples = help_of(command)
    app.command(cls=_Command, help=about, epilog=examples)(command)


def _show_version(wanted: bool) -> None:
    if wanted:
        from streamgda import __version__  # noqa: PLC0415

        typer.echo(f"streamgda {__version__}")
        raise typer.Exit


@app.callback()
def streamgda(
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
            given = sys.argv[1:] if arguments is None else arguments
            app(args=current(given), prog_name="streamgda")
        except MemoryError as error:
            screen.note(in_shell(screen.message_of(error)) if str(error) else "out of memory")
        except (StreamGDAError, OSError) as error:
            screen.note(in_shell(screen.message_of(error)))
        except KeyboardInterrupt:  # before typer is ready to catch it
            sys.exit(130)
    sys.exit(1)
