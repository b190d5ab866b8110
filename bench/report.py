"""Tables of the results for the terminal, the README, the documentation and RESULTS.md."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

Rows = list[dict[str, Any]]

# Suites whose rows have targets.
TIMED = ("fit", "score", "stream", "zarr", "frames", "startup", "skew", "scale", "select")
# Tasks and peers of the README's table: the main uses, and what is slower.
HEADLINES = (
    ("MNIST uint8, full, moments", "OpenBLAS ssyrk"),
    ("MNIST uint8, QDA fit", "scikit-learn QDA"),
    ("2,000,000 x 8 float64, 10 classes, QDA fit", "scikit-learn QDA"),
    ("10,000 x 784 float64 (MNIST), 10 classes, QDA predict", "scikit-learn QDA"),
    (
        "50,000 x 32 float64, 10 classes, choice among 10 QDA models, 5 folds",
        "scikit-learn GridSearchCV",
    ),
    (
        "200,000 x 20 float64 in batches of 1,000, GaussianNB.partial_fit",
        "river GaussianNB.learn_one",
    ),
    ("500,000 x 64 float32, 10 classes, full, moments", "OpenBLAS ssyrk"),
    ("4,000,000 x 16 float32 in zarr (226 MiB), QDA fit", "reading + fitting in memory"),
)


@dataclass(frozen=True)
class Table:
    """Table of text."""

    head: tuple[str, ...]
    rows: list[tuple[str, ...]]

    def markdown(self) -> str:
        """Return the table as Markdown."""
        lines = [self.head, tuple("---" for _ in self.head), *self.rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# --- each kind of row --------------------------------------------------------------------------


def table_of(suite: str, rows: Rows) -> Table:
    """Return the full table of a suite."""
    forms: dict[str, Callable[[Rows], Table]] = {
        "accuracy": accuracies,
        "choice": choices,
        "curves": curves,
        "drift": detections,
        "features": lifted,
        "stability": stabilities,
    }
    made = [row for row in rows if "failed" not in row]
    table = forms.get(suite, ratios)(made)
    failed = [row["failed"] for row in rows if "failed" in row]
    blank = ("",) * (len(table.head) - 2)
    return Table(table.head, [*table.rows, *(("**failed**", text, *blank) for text in failed)])


def times(ratio: float) -> str:
    """Format a ratio with two digits and without exponent."""
    return f"{ratio:.2g}" if ratio < 99.5 else f"{ratio:.0f}"


def ratios(rows: Rows) -> Table:
    """Return a table of ratios to peers, with targets and limits."""
    head = (
        "task",
        "streamgda",
        "peer",
        "peer's time",
        "ratio",
        "range",
        "target",
        "reached",
        "lower bound",
        "bound / streamgda",
    )
    return Table(head, [_ratio(row) for row in rows])


def short(rows: Rows) -> Table:
    """Return the table of ratios without targets and limits."""
    table = ratios(rows)
    return Table(table.head[:5], [row[:5] for row in table.rows])


def _ratio(row: dict[str, Any]) -> tuple[str, ...]:
    unit = row["unit"]
    if row["ratio"] is None:
        ratio, spread = f"no result ({row['missing']})" if row["missing"] else "", ""
    else:
        ratio, spread = f"**{times(row['ratio'])}**", " to ".join(map(times, row["spread"] or ()))
    reached = {True: "yes", False: "no", None: ""}[row["reached"]]
    limit = share = ""
    if row["limit"] is not None:
        limit = f"{quantity(row['limit'], unit)} ({row['bound']})"
        share = f"{row['limit'] / row['ours']:.0%}" if row["ours"] else ""
    return (
        row["work"],
        quantity(row["ours"], unit),
        row["peer"],
        quantity(row["theirs"], unit),
        ratio,
        spread,
        row["target"],
        f"{reached}: {row['why']}" if row["why"] else reached,
        limit,
        share,
    )


def accuracies(rows: Rows) -> Table:
    """Return a table of models and their accuracies."""
    return Table(
        ("model", "fitted to", "accuracy"),
        [(row["model"], row["rows"], f"{100 * row['accuracy']:.1f} %") for row in rows],
    )


def choices(rows: Rows) -> Table:
    """Return a table of the accuracies of models that searches choose."""

    def shown(value: float | None, form: str = "{:.4f}") -> str:
        return "" if value is None else form.format(value)

    accuracies = ("streamgda", "best of scikit-learn", "", "difference", "its error")
    return Table(
        ("data", "rows", *accuracies, "random features"),
        [
            (
                row["data"],
                row["rows"] or f"no result ({row['missing']})",
                shown(row["ours"]),
                shown(row["theirs"]),
                row["best"],
                shown(row["ours"] and row["ours"] - row["theirs"], "{:+.4f}"),
                shown(row["error"]),
                shown(row["lifted"]),
            )
            for row in rows
        ],
    )


def lifted(rows: Rows) -> Table:
    """Return a table of linear discriminants of random features, and the products beside them."""

    def shown(row: dict[str, Any], key: str, form: str = "{:.3g}") -> str:
        return "" if row[key] is None else form.format(row[key])

    return Table(
        ("data", "features", "rows become", "fit, s", "predict, s", "peak, MiB", "accuracy"),
        [
            (
                row["data"],
                f"{row['features']:,}",
                row["kind"],
                shown(row, "fit") or row["missing"],
                shown(row, "predict"),
                shown(row, "memory", "{:.0f}"),
                shown(row, "accuracy", "{:.2%}"),
            )
            for row in rows
        ],
    )


def stabilities(rows: Rows) -> Table:
    """Return a table of the correct digits of solvers of least squares."""
    solvers = list(rows[0]["digits"]) if rows else []
    return Table(
        ("condition", "offset", *solvers),
        [
            (
                *(f"{row['condition']:.0e}", f"{row['offset']:.0e}" if row["offset"] else "0"),
                *(f"{row['digits'][name]:.0f}" for name in solvers),
            )
            for row in rows
        ],
    )


def detections(rows: Rows) -> Table:
    """Return a table of false alarms and delays of detectors of drift."""

    def percent(share: float | None) -> str:
        return "" if share is None else f"{share:.2%}"

    return Table(
        (
            "rows",
            "change",
            "detector",
            "streams",
            "false alarms a window",
            "95 % interval",
            "detected",
            "median delay",
        ),
        [
            (
                *(row["data"], row["change"], row["detector"], f"{row['streams']:,}"),
                f"no result ({row['missing']})" if row["missing"] else percent(row["rate"]),
                "" if row["low"] is None else f"{percent(row['low'])} to {percent(row['high'])}",
                "" if row["detected"] is None else f"{row['detected']:.0%}",
                quantity(row["delay"], "rows"),
            )
            for row in rows
        ],
    )


def curves(rows: Rows) -> Table:
    """Return a table of curves: the largest jump, and the time per row at each point."""
    return Table(
        ("time per row, or of a call", "largest unexplained jump", "measurements"),
        [
            (
                f"{row['work']}, over {row['over']}",
                f"{row['jump']:.2g} x, {row['where'][0]} to {row['where'][1]}",
                ", ".join(
                    f"{at}: {quantity(took, 's')}"
                    for at, took in zip(row["at"], row["seconds"], strict=True)
                ),
            )
            for row in rows
        ],
    )


def skews(rows: Rows) -> Table:
    """Return a table of the lowest ratio of each skewed case."""
    slowest: dict[str, dict[str, Any]] = {}
    for row in rows:
        case = row["work"].split(":")[0]
        if row["ratio"] is not None:
            slowest[case] = min(slowest.get(case, row), row, key=lambda row: row["ratio"])
    return Table(
        ("rows", "lowest ratio to balanced classes", "measured on"),
        [
            (case, f"**{times(row['ratio'])}**", row["work"].split(": ")[1])
            for case, row in slowest.items()
        ],
    )


def quantity(value: float | None, unit: str) -> str:
    """Format a number with its unit; seconds in a suitable unit."""
    if value is None:
        return ""
    if unit == "s":
        for factor, name in ((1, "s"), (1e3, "ms"), (1e6, "µs"), (1e9, "ns")):
            if value * factor >= 1:
                return f"{_digits(value * factor)} {name}"
        return f"{_digits(value * 1e9)} ns"
    return f"{_digits(value)} {unit}"


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


# --- the documents -----------------------------------------------------------------------------


def tables(saved: dict[str, Any]) -> dict[str, str]:
    """Return the tables of the README and of the documentation, by their marks."""
    rows = by_suite({**saved, "rows": _made(saved["rows"])})
    fastest: dict[tuple[str, str], dict[str, Any]] = {}  # peer of each name
    for row in (row for suite in TIMED for row in rows.get(suite, [])):
        key = row["work"], row["peer"].split(" (")[0]
        fastest[key] = min(row, fastest.get(key, row), key=lambda row: row["ratio"] or math.inf)
    made = {
        "speed": short([fastest[key] for key in HEADLINES if key in fastest]),
        "skew": skews(rows.get("skew", [])),
        "memory": short(rows.get("memory", []) + rows.get("scale", [])),
        "accuracy": accuracies(rows.get("accuracy", [])),
        "choice": choices(rows.get("choice", [])),
        "remote": short(rows.get("remote", [])),
        "stability": stabilities(rows.get("stability", [])),
    }
    texts = {mark: table.markdown() for mark, table in made.items() if table.rows}
    if "speed" in texts:
        texts["speed"] += f"\n\n{environment(saved['about'])}"
    return texts


def renewed(text: str, texts: dict[str, str]) -> str:
    """Return a page with the tables that it has marks for; others stay as they are."""
    for mark, table in texts.items():
        if f"<!-- {mark}: start -->" in text:
            text = between(text, mark, table)
    return text


def results(saved: dict[str, Any]) -> str:
    """Return RESULTS.md with all results; suites may be of different days and machines."""
    about, machine = saved["about"], saved["limits"]
    parts = [
        "# Benchmark results",
        "Generated by `python -m bench --save --readme` from `results.json`. A ratio is the peer's "
        "time divided by streamgda's; above 1, streamgda is faster. A lower bound is the time that "
        "the machine needs to move the bytes or to do the multiply-adds, whichever takes longer.",
        environment(about),
    ]
    if machine:
        rates = ", ".join(f"{kind} {rate / 1e9:.3g}" for kind, rate in machine["rates"].items())
        parts.append(
            f"Limits: {machine['bandwidth'] / 1e9:.3g} GB/s read from memory; {rates} billion "
            f"multiply-adds per second (the integer rate is {machine['integer']}); "
            f"{quantity(machine['call'], 's')} per call."
        )
    for suite, rows in by_suite(saved).items():
        runs = sorted({f"{row['date']}, {row['machine']}" for row in rows})
        parts += [f"## {suite}", f"Of {'; '.join(runs)}.", table_of(suite, rows).markdown()]
    return "\n\n".join(parts) + "\n"


def environment(about: dict[str, Any]) -> str:
    """Return date, machine and versions of a run."""
    versions = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
    return f"{about['date']}, {about['machine']}, Python {about['python']}, {versions}."


def by_suite(saved: dict[str, Any]) -> dict[str, Rows]:
    """Return the rows of each suite, in the order of the suites."""
    return {
        suite: [row for row in saved["rows"] if row["suite"] == suite] for suite in saved["suites"]
    }


def between(text: str, mark: str, what: str) -> str:
    """Replace the text between two markers."""
    start, end = f"<!-- {mark}: start -->", f"<!-- {mark}: end -->"
    head, rest = text.split(start)
    return f"{head}{start}\n{what}\n{end}{rest.split(end)[1]}"


def _made(rows: Iterable[dict[str, Any]]) -> Rows:
    return [row for row in rows if "failed" not in row]
