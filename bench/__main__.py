"""Run the benchmarks: ``python -m bench [suite ...] [--repeats N] [--save FILE] [--readme]``."""

from __future__ import annotations

import argparse
import json
import platform
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import llvmlite.binding as llvm
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_info

from bench import peers, scale
from bench.kernels import kernels
from bench.measure import Row, compare
from bench.tasks import SUITES, Tasks
from streamgda.kernels.vectors import SHAPE

README = Path(__file__).parents[1] / "README.md"
PACKAGES = ("numpy", "numba", "scipy", "scikit-learn", "zarr", "dask", *peers.PACKAGES)
# Task and peer of each row of the README's table: the fastest of the peers that begin like this.
HEADLINES = (
    ("MNIST uint8, full, moments", "OpenBLAS ssyrk"),
    ("MNIST uint8, QDA fit", "scikit-learn"),
    ("2,000,000 x 8 float64, 10 classes, QDA fit", "scikit-learn"),
    ("10,000 x 784 float64 (MNIST), 10 classes, QDA predict", "scikit-learn"),
    ("50,000 x 32 float64, 10 classes, choice among 10 QDA models, 5 folds", "scikit-learn"),
    ("200,000 x 20 float64 in batches of 1,000, GaussianNB.partial_fit", "scikit-learn"),
    ("200,000 x 20 zeros and ones in batches of 1,000, BernoulliNB.partial_fit", "river"),
    (
        "200,000 x 128 float64 in batches of 10,000, PCA.partial_fit, 10 components",
        "scikit-learn",
    ),
    ("4,000,000 x 16 float32 in zarr, QDA fit", "reading, then fitting in memory"),
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    every = SUITES | {"kernels": kernels}
    names = [*every, "scale"]
    parser.add_argument("suites", nargs="*", default=[], help=f"suites: {', '.join(names)}")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--save", type=Path, help="JSON file to write")
    parser.add_argument("--readme", action="store_true", help="update the table of the README")
    options = parser.parse_args()
    if unknown := set(options.suites) - set(names):
        parser.error(f"unknown suites {sorted(unknown)}; expected {', '.join(names)}")
    console = Console(width=max(180, Console().width))
    suites: dict[str, list[Row]] = {}
    console.print(machine(), highlight=False)
    for name in options.suites or SUITES:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Constant pixels, and what peers warn of.
            found = scale.rows() if name == "scale" else timed(every[name](), options.repeats)
            suites[name] = list(found)
        console.print(table(name, suites[name]))
        rows = [row for found in suites.values() for row in found]
        if options.save:  # After each suite, so that a later error loses nothing.
            saved = {"machine": machine(), "rows": [asdict(row) for row in rows]}
            options.save.write_text(json.dumps(saved, indent=1))
    if options.readme:
        text = README.read_text()
        if missing := {task for task, _ in HEADLINES} - {row.task for row in rows}:
            console.print(f"No table for the README: it needs {missing}")
        else:
            text = filled(text, "speed", f"{headlines(rows)}\n\n{machine()}")
        if "scale" in suites:
            text = filled(text, "scale", scale.sentence(suites["scale"]))
        README.write_text(text)


def filled(text: str, place: str, content: str) -> str:
    """Return a text with other content between the two comments of a place."""
    before, after = text.split(f"<!-- {place}: start -->")
    after = after.split(f"<!-- {place}: end -->")[1]
    return f"{before}<!-- {place}: start -->\n{content}\n<!-- {place}: end -->{after}"


def timed(tasks: Tasks, repeats: int) -> Iterator[Row]:
    """Yield the rows of the tasks of a suite."""
    for task in tasks:
        yield from compare(task.title, task.ours, task.peers, repeats, task.targets)


def table(title: str, rows: list[Row]) -> Table:
    """Return the rows as a table for the terminal."""
    made = Table("task", "streamgda", "peer", "peer's", "ratio", "target", title=title)
    for row in rows:
        ratio = row.error or f"{row.ratio:.2g}"
        target = "" if row.target is None else f"{row.target:.2g}"
        missed = row.target is not None and not row.ratio >= row.target
        cells = row.task, shown(row.ours, row.unit), row.peer, shown(row.theirs, row.unit), ratio
        made.add_row(*cells, f"{target} missed" if missed else target)
    return made


def headlines(rows: list[Row]) -> str:
    """Return the README's table as Markdown."""
    lines = ["| task | streamgda | peer | peer's time | ratio |", "| --- | --- | --- | --- | --- |"]
    for task, peer in HEADLINES:
        found = [row for row in rows if row.task == task and row.peer.startswith(peer)]
        if ran := [row for row in found if not row.error]:  # Peers may be missing.
            row = min(ran, key=lambda row: row.theirs)
            mine, theirs = shown(row.ours, row.unit), shown(row.theirs, row.unit)
            lines.append(f"| {task} | {mine} | {row.peer} | {theirs} | **{row.ratio:.2g}** |")
    return "\n".join(lines)


def shown(value: float, unit: str) -> str:
    """Return a quantity with three digits."""
    if unit == "s" and value < 1:
        return f"{1000 * value:.3g} ms"
    return f"{value:.3g} {unit}"


def machine() -> str:
    """Return the date, the processor and the versions of a run."""
    model, info = platform.machine(), Path("/proc/cpuinfo")
    if info.exists():
        lines = [line.split(":") for line in info.read_text().splitlines()]
        model = next((line[1].strip() for line in lines if line[0].strip() == "model name"), model)
    blas = {library.get("architecture") for library in threadpool_info()} - {None}
    parts = [f"{date.today()}, {model} ({llvm.get_host_cpu_name()}, {SHAPE.name} tiles"]
    parts += [f"OpenBLAS {', '.join(sorted(blas))})", f"Python {platform.python_version()}"]
    for name in PACKAGES:
        try:
            parts.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return ", ".join(parts) + "."


if __name__ == "__main__":
    main()
