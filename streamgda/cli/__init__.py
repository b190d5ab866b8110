"""Command line: each command calls the Python interface and shows the result."""

from streamgda.cli.app import main

__all__ = ["main"]
