"""What was measured as tables: for the terminal, the README and RESULTS.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

Rows = list[dict[str, Any]]

# Suites whose rows have targets.
TIMED = ("fit", "score", "stream", "zarr", "startup", "skew", "scale", "select")


@dataclass(frozen=True)
class Table:
    """Cells of text under their heads."""

    head: tuple[str, ...]
    rows: list[tuple[str, ...]]

    def markdown(self) -> str:
        """As Markdown."""
        lines = [self.head, tuple("---" for _ in self.head), *self.rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# --- each kind of row --------------------------------------------------------------------------


def table_of(suite: str, rows: Rows) -> Table:
    """All that is known of a suite's rows."""
    forms: dict[str, Callable[[Rows], Table]] = {"accuracy": accuracies, "curves": curves}
    made = [row for row in rows if "failed" not in row]
    table = forms.get(suite, ratios)(made)
    failed = [row["failed"] for row in rows if "failed" in row]
    blank = ("",) * (len(table.head) - 2)
    return Table(table.head, [*table.rows, *(("**failed**", text, *blank) for text in failed)])


def times(ratio: float) -> str:
    """Two digits, and no exponent."""
    return f"{ratio:.2g}" if ratio < 99.5 else f"{ratio:.0f}"


def ratios(rows: Rows) -> Table:
    """Ours against a peer, with the target and the limit."""
    head = (
        "work",
        "ours",
        "against",
        "theirs",
        "ratio",
        "least to most",
        "target",
        "reached",
        "limit",
        "ours is at",
    )
    return Table(head, [_ratio(row) for row in rows])


def short(rows: Rows) -> Table:
    """The same without targets and limits."""
    table = ratios(rows)
    return Table(table.head[:5], [row[:5] for row in table.rows])


def _ratio(row: dict[str, Any]) -> tuple[str, ...]:
    unit = row["unit"]
    if row["ratio"] is None:
        ratio, spread = f"no figure ({row['missing']})", ""
    else:
        ratio, spread = f"**{times(row['ratio'])}**", " to ".join(map(times, row["spread"]))
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
    """Models and what they tell right."""
    return Table(
        ("model", "fitted to", "accuracy"),
        [(row["model"], row["rows"], f"{100 * row['accuracy']:.1f} %") for row in rows],
    )


def curves(rows: Rows) -> Table:
    """A line for each curve: time per row at each point, after its largest jump."""
    return Table(
        ("time per row", "largest jump not explained", "at"),
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
    """The slowest of each skewed case."""
    slowest: dict[str, dict[str, Any]] = {}
    for row in rows:
        case = row["work"].split(":")[0]
        if row["ratio"] is not None:
            slowest[case] = min(slowest.get(case, row), row, key=lambda row: row["ratio"])
    return Table(
        ("rows", "least ratio to balanced classes", "found at"),
        [
            (case, f"**{times(row['ratio'])}**", row["work"].split(": ")[1])
            for case, row in slowest.items()
        ],
    )


def quantity(value: float | None, unit: str) -> str:
    """A number with its unit; seconds in a unit that suits them."""
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


def readme(text: str, saved: dict[str, Any]) -> str:
    """The README with its tables renewed; a table without any figures stays as it is."""
    rows = by_suite({**saved, "rows": _made(saved["rows"])})
    timed = [row for suite in TIMED for row in rows.get(suite, [])]
    targets = [row for row in timed if row["target"]]
    reached = sum(bool(row["reached"]) for row in targets)
    tables = {
        "speed": short([row for row in timed if row["headline"]]),
        "skew": skews(rows.get("skew", [])),
        "memory": short(rows.get("memory", []) + rows.get("scale", [])),
        "accuracy": accuracies(rows.get("accuracy", [])),
    }
    reach = f"{reached} of {len(targets)} targets are reached."
    after = {"speed": f"\n\n{reach} {said(saved['about'])}"}
    for mark, table in tables.items():
        if table.rows:
            text = between(text, mark, table.markdown() + after.get(mark, ""))
    return text


def results(saved: dict[str, Any]) -> str:
    """RESULTS.md: everything that was measured."""
    about, machine = saved["about"], saved["limits"]
    parts = [
        "# Benchmark results",
        "Made by `python -m bench --save --readme` from `results.json`. A ratio is the peer's "
        "time divided by ours: above 1, streamgda is faster. A limit is the time that the machine "
        "needs at the least to move the bytes or to do the multiply-adds, whichever takes longer; "
        '"ours is at" is the limit\'s share of our time.',
        said(about),
    ]
    if machine:
        rates = ", ".join(f"{kind} {rate / 1e9:.3g}" for kind, rate in machine["rates"].items())
        parts.append(
            f"Limits: {machine['bandwidth'] / 1e9:.3g} GB/s read from memory; {rates} thousand "
            f"million multiply-adds a second (the rate of integers is {machine['integer']}); "
            f"{quantity(machine['call'], 's')} a call."
        )
    for suite, rows in by_suite(saved).items():
        parts += [f"## {suite}", table_of(suite, rows).markdown()]
    return "\n\n".join(parts) + "\n"


def said(about: dict[str, Any]) -> str:
    """Where and with what it was measured."""
    versions = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
    return f"{about['date']}, {about['machine']}, Python {about['python']}, {versions}."


def by_suite(saved: dict[str, Any]) -> dict[str, Rows]:
    """Rows by their suites, in the order of the suites."""
    return {
        suite: [row for row in saved["rows"] if row["suite"] == suite] for suite in saved["suites"]
    }


def between(text: str, mark: str, what: str) -> str:
    """The text with what stands between two marks replaced."""
    start, end = f"<!-- {mark}: start -->", f"<!-- {mark}: end -->"
    head, rest = text.split(start)
    return f"{head}{start}\n{what}\n{end}{rest.split(end)[1]}"


def _made(rows: Iterable[dict[str, Any]]) -> Rows:
    return [row for row in rows if "failed" not in row]
