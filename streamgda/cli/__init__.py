"""The command line: each command calls what the package offers in Python, and shows the result."""

from streamgda.cli.app import main

__all__ = ["main"]
