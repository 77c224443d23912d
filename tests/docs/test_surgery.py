"""results/surgery.md: its words follow from its tables; the skewed clients are as it says."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "results" / "surgery.md").read_text(encoding="utf-8")
SIZE, OURS, DIFFERENCE = "size-weighted average", "β = .8", "worst − size-weighted"


def numbers(cell):
    """Read "+0.1 (+0.05 to +0.15)" or "0.6 ± 0.1"."""
    return [float(x) for x in re.findall(r"[+-]?\d*\.\d+", cell)]


def table(title):
    """Return the first Markdown table after `title`: rows of cells by column."""
    lines = TEXT.split(title, 1)[1].split("\n| ", 1)[1].split("\n\n")[0].splitlines()
    head, _, *rows = [line.strip("| ").split(" | ") for line in lines]
    return [dict(zip(head, row, strict=True)) for row in rows]


def rules(title):
    return {row["rule"]: row for row in table(title)}


SKEWS = {name: rules(f"### {name}\n") for name in ("COMPAS", "COMPAS mirrored", "Bank")}


@pytest.mark.parametrize("name", SKEWS)
def test_the_worst_client_gains_under_label_skew(name):
    for rule in (OURS, "β = .8, slow goals"):
        for base in (DIFFERENCE, "worst − uniform"):
            mean, low, high = numbers(SKEWS[name][rule][base])
            assert 0 < low < mean < high
    assert numbers(SKEWS[name]["β = .8, size weights"][DIFFERENCE])[0] < mean


@pytest.mark.parametrize("name", SKEWS)
def test_the_numbers_in_the_words_are_the_tables(name):
    before, after = (numbers(SKEWS[name][rule]["worst client"])[0] for rule in (SIZE, OURS))
    said = re.search(rf"{name}\s+(\.\d+) → (\.\d+)", TEXT)
    assert [float(x) for x in said.groups()] == [before, after]
    assert after - before == pytest.approx(numbers(SKEWS[name][OURS][DIFFERENCE])[0], abs=0.0011)


def test_keeping_comes_first_and_the_order_second():
    part = {}  # of the gain of β = .8 that is left
    for name, rows in SKEWS.items():
        gain = {rule: numbers(row[DIFFERENCE])[0] for rule, row in rows.items() if rule != SIZE}
        part[name] = {rule: value / gain[OURS] for rule, value in gain.items()}
        _, low, high = numbers(rows["β = .8, reversed order and keeping"][DIFFERENCE])
        assert low <= 0 <= high
    left = [part[name]["β = .8, reversed order"] for name in ("COMPAS", "COMPAS mirrored", "Bank")]
    assert left[0] == pytest.approx(0.75, abs=0.05)
    assert left[1] == pytest.approx(1.0, abs=0.1)
    assert left[2] == pytest.approx(0.55, abs=0.05)
    assert part["COMPAS"]["β = 1"] < 0.2
    assert all(one["β = 1"] < 1 for one in part.values())


def test_the_cost():
    """Clients 1–4 lose; overall accuracy rises on COMPAS and falls on Bank."""
    for name, rises in (("COMPAS", True), ("Bank", False)):
        before, after = SKEWS[name][SIZE], SKEWS[name][OURS]
        assert numbers(after["clients 1–4"]) < numbers(before["clients 1–4"])
        assert (numbers(after["accuracy"])[0] > numbers(before["accuracy"])[0]) == rises


def test_longer_training_does_more():
    budgets = {(row["rounds × epochs"], row["rule"]): row for row in table("## Where it changes")}
    short = numbers(SKEWS["COMPAS"][OURS]["worst client"])[0]
    for name in ("40 × 1, batch 64", "40 × 5", "10 × 20"):
        assert numbers(budgets[name, SIZE]["worst client"])[0] > short
        assert numbers(budgets[name, OURS][DIFFERENCE])[1] <= 0
    assert numbers(budgets["40 × 1, batch 64", OURS][DIFFERENCE])[2] < 0  # it costs
    # The gain does not hang on weight decay.
    assert numbers(budgets["40 × 1, weight decay 3", OURS][DIFFERENCE])[1] > 0


def test_nothing_changes_on_the_published_splits():
    rows = [row for row in table("The published splits") if row["rule"] != SIZE]
    assert len(rows) == 8  # two data sets, two splits, with and without the constraint
    columns = (DIFFERENCE, "accuracy − size-weighted")
    largest = max(abs(numbers(row[column])[0]) for row in rows for column in columns)
    assert largest < 0.01  # a point of accuracy: half a standard error of a COMPAS client's rows
    said = re.search(r"No difference is larger than (\.\d+)", TEXT)
    assert float(said[1]) == largest


def test_clients_are_dealt_as_the_page_says(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    spec = importlib.util.spec_from_file_location("surgery", ROOT / "benchmarks" / "surgery.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "surgery", module)  # dataclasses look their module up
    spec.loader.exec_module(module)
    labels = np.repeat(["0", "1"], [1000, 500])
    clients = module.deal(labels, {"0": 0.04, "1": 0.52}, seed=3)
    found = Counter(zip(labels.tolist(), clients.tolist(), strict=True))
    # 4 % of 1,000 and 52 % of 500; 960 and 240 rows left for four.
    expected = {("0", "client-5"): 40, ("1", "client-5"): 260}
    expected |= {(y, f"client-{k}"): n for y, n in (("0", 240), ("1", 60)) for k in range(1, 5)}
    assert found == expected
    assert (module.deal(labels, {"0": 0.04, "1": 0.52}, seed=4) != clients).any()
