"""Run the benchmarks: ``python -m bench [suite ...] [--repeats N] [--save] [--readme]``."""

from __future__ import annotations

import argparse
import json
import platform
from datetime import date
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.measure import Row
from streamgda import threads

SUITES = ("fit", "score", "memory")
ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results.json"
README = ROOT / "README.md"
START, END = "<!-- bench: start -->", "<!-- bench: end -->"
PEERS = ("numpy", "numba", "scipy", "scikit-learn")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("suites", nargs="*", default=[], help=f"some of {', '.join(SUITES)}")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--save", action="store_true", help="write bench/results.json")
    parser.add_argument("--readme", action="store_true", help="renew README's table from it")
    options = parser.parse_args()
    if unknown := set(options.suites) - set(SUITES):
        parser.error(f"unknown suites {sorted(unknown)}; there are {', '.join(SUITES)}")
    if not (options.readme and not options.suites and not options.save):
        measure(options.suites or list(SUITES), options.repeats, options.save)
    if options.readme:
        renew_readme()


def measure(suites: list[str], repeats: int, save: bool) -> None:
    console = Console()
    kept: list[dict[str, object]] = []
    if save and RESULTS.exists():
        kept = [r for r in json.loads(RESULTS.read_text())["rows"] if r["suite"] not in suites]
    table = Table("work", "ours", "peer", "theirs", "ratio", "min-max")
    for suite in suites:
        for row in import_module(f"bench.{suite}").run(repeats):
            kept.append(row.as_dict())
            table.add_row(*cells(row))
            console.print(f"{row.work}: {row.ratio:.2f}x {row.peer}")
    console.print(table)
    if save:
        about = {
            "date": date.today().isoformat(),
            "machine": f"{platform.machine()}, {threads.n_threads()} threads",
            "python": platform.python_version(),
            "versions": {name: version(name) for name in PEERS},
        }
        RESULTS.write_text(json.dumps({"about": about, "rows": kept}, indent=1) + "\n")


def cells(row: Row) -> tuple[str, ...]:
    unit = row.note or "s"
    return (
        row.work,
        f"{row.ours:.3g} {unit}",
        row.peer,
        f"{row.theirs:.3g} {unit}",
        f"{row.ratio:.2f}",
        f"{row.spread[0]:.2f}-{row.spread[1]:.2f}",
    )


def renew_readme() -> None:
    """Write the saved figures into the README, between its two marks."""
    saved = json.loads(RESULTS.read_text())
    lines = ["| work | against | ratio |", "|---|---|---|"]
    for row in saved["rows"]:
        lines.append(f"| {row['work']} | {row['peer']} | {row['ratio']:.2g} |")
    about = saved["about"]
    versions = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
    lines += ["", f"{about['date']}, {about['machine']}, Python {about['python']}, {versions}."]
    text = README.read_text()
    head, rest = text.split(START)
    tail = rest.split(END)[1]
    README.write_text(f"{head}{START}\n" + "\n".join(lines) + f"\n{END}{tail}")


if __name__ == "__main__":
    main()
