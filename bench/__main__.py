"""Run the benchmarks: ``python -m bench [suite ...] [--repeats N] [--save] [--readme]``."""

from __future__ import annotations

import argparse
import json
import platform
from datetime import date
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import accuracy, measure
from streamgda import threads

SUITES = ("fit", "score", "memory", "accuracy")
ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results.json"
README = ROOT / "README.md"
# Marks in the README, and the suites whose rows stand there.
TABLES = {"speed": ("fit", "score"), "memory": ("memory",), "accuracy": ("accuracy",)}
PEERS = ("numpy", "numba", "scipy", "scikit-learn")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("suites", nargs="*", default=[], help=f"some of {', '.join(SUITES)}")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--save", action="store_true", help="write bench/results.json")
    parser.add_argument("--readme", action="store_true", help="renew README's tables from it")
    options = parser.parse_args()
    if unknown := set(options.suites) - set(SUITES):
        parser.error(f"unknown suites {sorted(unknown)}; there are {', '.join(SUITES)}")
    if options.suites or options.save or not options.readme:
        run(options.suites or list(SUITES), options.repeats, options.save)
    if options.readme:
        renew_readme()


def run(suites: list[str], repeats: int, save: bool) -> None:
    """Run suites, print their tables, and keep their rows beside those of the others."""
    console = Console()
    kept: list[dict[str, Any]] = []
    if save and RESULTS.exists():
        kept = [r for r in json.loads(RESULTS.read_text())["rows"] if r["suite"] not in suites]
    for suite in suites:
        form = form_of(suite)
        table = Table(*form.HEAD, title=suite)
        for row in import_module(f"bench.{suite}").run(repeats):
            kept.append(row.as_dict())
            table.add_row(*form.cells(kept[-1]))
            console.print("  ".join(form.cells(kept[-1])), highlight=False)
        console.print(table)
        if save:
            about = {
                "date": date.today().isoformat(),
                "machine": f"{platform.machine()}, {threads.n_threads()} threads",
                "python": platform.python_version(),
                "versions": {name: version(name) for name in PEERS},
            }
            RESULTS.write_text(json.dumps({"about": about, "rows": kept}, indent=1) + "\n")


def form_of(suite: str) -> Any:
    """The module that knows how a suite's rows are shown."""
    return accuracy if suite == "accuracy" else measure


def renew_readme() -> None:
    """Write the saved figures into the README, between its marks."""
    saved = json.loads(RESULTS.read_text())
    about = saved["about"]
    versions = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
    text = README.read_text()
    for mark, suites in TABLES.items():
        rows = [row for suite in suites for row in saved["rows"] if row["suite"] == suite]
        form = form_of(suites[0])
        lines = [" | ".join(form.HEAD), " | ".join("---" for _ in form.HEAD)]
        lines += [" | ".join(form.cells(row)) for row in rows]
        table = "\n".join(f"| {line} |" for line in lines)
        if mark == "speed":
            table += (
                f"\n\n{about['date']}, {about['machine']}, Python {about['python']}, {versions}."
            )
        start, end = f"<!-- {mark}: start -->", f"<!-- {mark}: end -->"
        head, rest = text.split(start)
        text = f"{head}{start}\n{table}\n{end}{rest.split(end)[1]}"
    README.write_text(text)


if __name__ == "__main__":
    main()
