"""The benchmarks run on a few rows, and their tables come from the saved results."""

import json
import re
import sys
from datetime import date
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MARKS = (
    *("speed", "skew", "memory", "accuracy", "choice", "stability"),
    *("cost", "simulated", "workers", "remote"),
)


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    return import_module("bench.__main__")


@pytest.fixture
def plan(bench):
    measure, limits = import_module("bench.measure"), import_module("bench.limits")
    machine = limits.Limits(1e10, {"float32": 1e10, "float64": 1e10, "integer": 1e10}, 1e-6, "")
    return measure.Plan(repeats=1, quick=True, limits=machine)


@pytest.fixture
def pages(bench, tmp_path):
    """Copies of the pages with tables, which are empty."""
    (tmp_path / "bench").mkdir()
    for name in bench.PAGES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        text = (ROOT / name).read_text()
        (tmp_path / name).write_text(
            import_module("bench.report").renewed(text, dict.fromkeys(MARKS, ""))
        )
    return tmp_path


def everything(pages, bench):
    return "\n".join((pages / name).read_text() for name in (*bench.PAGES, "bench/RESULTS.md"))


@pytest.mark.slow
def test_suites_save_rows_and_make_the_tables(bench, plan, pages, monkeypatch):
    monkeypatch.setitem(sys.modules, "river.naive_bayes", None)  # so that importing it fails
    saved = pages / "r.json"
    suites = ["stream", "skew", "select", "accuracy", "features", "stability"]
    assert bench.run(suites, plan, saved) == []
    assert json.loads(saved.read_text())["suites"] == suites
    bench.renew(saved, pages)
    found = everything(pages, bench)
    assert "no result (ModuleNotFoundError" in found
    assert found.count("river GaussianNB.learn_one") > 1
    assert found.count("1,000 classes, chunks of") > 1
    assert found.count("var_smoothing") > 1


def test_saved_rows_make_the_tables(bench, pages):
    bench.renew(ROOT / "bench" / "results.json", pages)
    for page in (*bench.PAGES, "bench/RESULTS.md"):
        assert (pages / page).read_text() == (ROOT / page).read_text()


def test_the_readme_has_the_rows_it_names(bench):
    report = import_module("bench.report")
    text = (ROOT / "README.md").read_text()
    assert len(report.HEADLINES) == 8
    for work, peer in report.HEADLINES:
        assert re.search(rf"^\| {re.escape(work)} \|[^|]+\| {re.escape(peer)}", text, re.MULTILINE)


def test_pages_have_a_place_for_each_table(bench):
    text = "\n".join((ROOT / page).read_text() for page in bench.PAGES)
    for mark in MARKS:
        assert text.count(f"<!-- {mark}: start -->") == text.count(f"<!-- {mark}: end -->") == 1


def test_a_suite_that_fails_keeps_the_rows_of_others(bench, plan, tmp_path, monkeypatch):
    def broken(plan):
        yield from ()
        raise RuntimeError("no luck")

    def quick(plan):
        times = {"ours": [1.0], "a peer": [2.0]}
        yield from import_module("bench.measure").rows_of("work", (None, ""), times)

    saved = tmp_path / "r.json"
    monkeypatch.setattr(import_module("bench.skew"), "run", broken)
    monkeypatch.setattr(import_module("bench.stream"), "run", quick)
    assert bench.run(["skew", "stream"], plan, saved) == ["skew"]
    rows = json.loads(saved.read_text())["rows"]
    run = {"date": date.today().isoformat(), "machine": bench.machine()}
    assert rows[0] == {"suite": "skew", **run, "failed": "RuntimeError: no luck"}
    assert {row["suite"] for row in rows[1:]} == {"stream"}


def test_curves_have_both_neighbours_of_each_border(bench):
    curves = import_module("bench.curves")
    assert curves.with_borders([1, 10, 20, 30], lambda k: k // 7 > 1) == [1, 10, 13, 14, 20, 30]
    ways = [curves.way(64, "float64", "full", 100_000, k) for k in (1, 1000)]
    assert ways == ["segments", "ranges"]


def test_target_is_for_the_fastest_peer_of_a_name(bench):
    measure = import_module("bench.measure")
    times = {"ours": [1.0, 1.0], "a (slow)": [9.0, 9.0], "a (fast)": [3.0, 3.0], "b": [1.0, 1.0]}
    rows = measure.rows_of("work", (0.5, "memory"), times, {"c": "gone"}, {"a": measure.faster(4)})
    assert [(row.peer, row.ratio, row.target, row.reached) for row in rows] == [
        ("a (slow)", 9.0, "", None),
        ("a (fast)", 3.0, ">= 4x", False),
        ("b", 1.0, "", None),
        ("c", None, "", None),
    ]
    assert measure.of_its_time(0.5).ratio == 2


def test_cost_of_a_fit_on_a_cluster(bench):
    cost = import_module("bench.cost")
    work = cost.Workload(784, "uint8", 10)
    rates = cost.Rates({work.name: 1e8}, 2e9, 1e9, 4e9, 1e-3, 1e-4, 1e4)
    assert cost.rates_of([{"work": of, "ours": n} for of, n, _ in cost.rows_of(rates)]) == rates
    state = 8 * 10 * (1 + 2 * 784 + 784 * 785 // 2)
    alone, ten, many = (cost.cost(rates, work, cost.Cluster(n, 1, 1e9)) for n in (1, 10, 1000))
    n = alone.parts
    assert n == ten.parts == many.parts == 8192
    assert alone.adding == pytest.approx(1e5)
    assert alone.merging == pytest.approx(n * (state / 2e9 + 2e-3) + (n - 1) * state / 1e9)
    assert alone.sending == 0
    assert alone.scheduling == pytest.approx((2 * n - 1) * 1e-4)
    assert ten.sending == pytest.approx((n - 1) / 10 * 0.9 * state / 1e9)
    assert many.last == pytest.approx(10 * (state / 1e9 + state / 1e9) + state / 1e9)
    assert many.seconds == many.adding + many.merging + many.last


@pytest.mark.slow
def test_a_suite_simulates_a_cluster(bench, plan):
    found = [*import_module("bench.cluster").run(plan)]
    assert [row.work for row in found if row.peer][-1].startswith("states of 20 workers")
    assert len(found) == 11
