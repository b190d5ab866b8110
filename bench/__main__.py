"""Run the benchmarks: ``python -m bench [suite ...] [--repeats N] [--save] [--readme]``.

``python -m bench --readme`` alone renders the tables again from the saved results.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import warnings
from dataclasses import asdict
from datetime import date
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from threadpoolctl import threadpool_info

from bench import cost, limits, peers, report
from bench.measure import Plan, reason
from streamgda.kernels.processors import SHAPE
from streamgda.runtime import threads

# Suites in the order of their tables, with the modules that run them.
SUITES = {
    "fit": "fit",
    "score": "score",
    "stream": "stream",
    "zarr": "zarr_store",
    "frames": "frames",
    "startup": "startup",
    "skew": "skew",
    "curves": "curves",
    "memory": "memory",
    "remote": "remote",
    "cluster": "cluster",
    "workers": "workers",
    "scale": "scale",
    "select": "select",
    "accuracy": "accuracy",
    "features": "features",
    "choice": "choice",
    "drift": "drift",
    "stability": "stability",
    "device": "device",
}
WIDTH = 200  # characters that the tables need
HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results.json"
PAGES = (  # with tables
    "README.md",
    "docs/guide/performance.md",
    "docs/guide/choosing.md",
    "docs/guide/clusters.md",
    "docs/guide/larger-than-memory.md",
    "docs/guide/models.md",
    "docs/guide/least-squares-digits.md",
)
PACKAGES = ("numpy", "numba", "scipy", "scikit-learn", "zarr", "dask", *peers.PACKAGES)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("suites", nargs="*", default=[], help=f"suites to run: {', '.join(SUITES)}")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, for a trial run")
    parser.add_argument("--save", action="store_true", help=f"write bench/{RESULTS.name}")
    parser.add_argument(
        "--readme",
        action="store_true",
        help="update RESULTS.md and the tables of all pages from it",
    )
    options = parser.parse_args()
    if unknown := set(options.suites) - set(SUITES):
        parser.error(f"unknown suites {sorted(unknown)}; expected {', '.join(SUITES)}")
    if options.quick and (options.save or options.readme):
        parser.error("results of --quick are not saved")
    failed = []
    if options.suites or options.save or not options.readme:
        plan = Plan(options.repeats, options.quick, limits.measured(options.quick))
        failed = run(options.suites or list(SUITES), plan, RESULTS if options.save else None)
    if options.readme:
        renew(RESULTS, HERE.parent)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def run(suites: list[str], plan: Plan, results: Path | None) -> list[str]:
    """Run suites, print and save their tables, and return the names of suites that failed."""
    console = Console(width=max(WIDTH, Console().width))
    console.print(report.environment(about()), highlight=False, markup=False)
    kept: report.Rows = []
    if results and results.exists():
        saved = json.loads(results.read_text())
        kept = [row for row in saved["rows"] if row["suite"] not in suites]
    failed, made = [], {"date": date.today().isoformat(), "machine": machine()}
    for suite in suites:
        rows: report.Rows = []
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # constant pixels; peers warn too
                for row in import_module(f"bench.{SUITES[suite]}").run(plan):
                    rows.append({"suite": suite, **made, **row.as_dict()})
                    line = report.table_of(suite, rows[-1:]).rows[0][:5]
                    console.print("  ".join(line), highlight=False, markup=False)
        except Exception as error:  # keep the rows of the other suites
            console.print_exception()
            rows.append({"suite": suite, **made, "failed": reason(error)})
        if any("failed" in row or row.get("missing", "").startswith("ours") for row in rows):
            failed.append(suite)
        show(console, suite, report.table_of(suite, rows))
        kept += rows
        if results:
            results.write_text(json.dumps(as_saved(kept, plan.limits), indent=1) + "\n")
    return failed


def show(console: Console, title: str, table: report.Table) -> None:
    grid = Table(*table.head, title=title)
    for row in table.rows:
        grid.add_row(*map(escape, row))
    console.print(grid)


def as_saved(rows: report.Rows, machine: limits.Limits) -> dict[str, Any]:
    """Return the results of a run for JSON."""
    there = {row["suite"] for row in rows}
    suites = [suite for suite in SUITES if suite in there]
    return {"about": about(), "limits": asdict(machine), "suites": suites, "rows": rows}


def about() -> dict[str, Any]:
    """Return the date, the machine and the versions of a run."""
    return {
        "date": date.today().isoformat(),
        "machine": machine(),
        "python": platform.python_version(),
        "versions": {name: version_of(name) for name in PACKAGES},
    }


def machine() -> str:
    """Return the processor, the tiles of integers and the BLAS kernels chosen for it."""
    model = platform.processor() or platform.machine()
    described = Path("/proc/cpuinfo")
    if described.exists():
        lines = [line.split(":") for line in described.read_text().splitlines()]
        model = next((line[1].strip() for line in lines if line[0].strip() == "model name"), model)
    blas = {
        " ".join(filter(None, (library["internal_api"], library.get("architecture"))))
        for library in threadpool_info()
        if library["user_api"] == "blas"
    }
    return (
        f"{model} ({llvm.get_host_cpu_name()}, {SHAPE.name} tiles, {', '.join(sorted(blas))}), "
        f"{threads.n_threads()} threads"
    )


def version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def renew(results: Path, root: Path) -> None:
    """Write the saved results to RESULTS.md and to the tables of the pages below a folder."""
    saved = json.loads(results.read_text())
    texts = report.tables(saved) | cost.tables(saved)
    for page in PAGES:
        (root / page).write_text(report.renewed((root / page).read_text(), texts))
    (root / "bench" / "RESULTS.md").write_text(report.results(saved))


if __name__ == "__main__":
    main()
