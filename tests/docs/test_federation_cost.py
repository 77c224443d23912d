"""docs/federation-cost.md: its tables are the benchmark's, add up, and say what the text says."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from mfairfl.strategies import available, create

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "federation-cost.md").read_text(encoding="utf-8")
TEXT = " ".join(PAGE.split())
WIDTHS = (91, 32, 32, 32, 32, 1)
WEIGHTS = sum(a * b + b for a, b in pairwise(WIDTHS))


def blocks(text):
    return dict(re.findall(r"<!-- (\w+) -->\n\n(.*?)\n\n<!-- /\1 -->", text, re.S))


BLOCKS = blocks(PAGE)


def rows(name, table=0):
    """Return a table of a block as {first cell: {column: number}}; empty cells are left out."""
    found = re.findall(r"(?:^\|.*\|\n?)+", BLOCKS[name], re.M)[table]
    cut = [line.strip("|").split("|") for line in found.splitlines()]
    head, _, *lines = ([cell.strip() for cell in line] for line in cut)
    return {
        first: {
            column: float(cell.replace(",", ""))
            for column, cell in zip(head[1:], cells, strict=True)
            if cell
        }
        for first, *cells in lines
    }


def test_the_page_holds_what_the_benchmark_printed():
    kept = blocks((ROOT / "benchmarks" / "federation.txt").read_text(encoding="utf-8"))
    assert list(BLOCKS) == ["machine", "bytes", "exchange", "clients", "deployment"]
    assert kept == BLOCKS


# ------------------------------------------------------------------ bytes


def test_every_method_that_leaves_rows_where_they_are_is_counted():
    federated = [name for name in available() if create(name).card.trains_on == "clients"]
    assert list(rows("bytes")) == federated


def test_the_model_is_the_one_the_page_describes():
    assert f"{WEIGHTS:,} weights" in TEXT
    assert f"are {2 * 4 * WEIGHTS:,} bytes" in TEXT


@pytest.mark.parametrize("method", rows("bytes"))
def test_bytes_add_up(method):
    row = rows("bytes")[method]
    parts = [row[name] for name in ("train ↓", "measure ↓", "updates ↑", "sums ↑")]
    assert row["all"] == pytest.approx(sum(parts), abs=2)  # each is rounded
    assert row["ratio"] == pytest.approx(row["all"] / (8 * WEIGHTS), abs=0.0051)


@pytest.mark.parametrize(
    ("method", "down", "measured", "up"),
    [("fedavg", 1, 1, 1), ("mfairfl", 1, 1.5, 1), ("scaffold", 2, 1, 2), ("indfair", 1, 7.5, 1)],
)
def test_nearly_all_of_it_is_so_many_vectors_of_weights(method, down, measured, up):
    row, vector = rows("bytes")[method], 4 * WEIGHTS
    for name, vectors in (("train ↓", down), ("measure ↓", measured), ("updates ↑", up)):
        assert vectors * vector < row[name] < vectors * vector + 2_500


def test_ratios_in_the_text():
    quoted = {
        "fedavg": "FedAvg moves {} times the bare weights",
        "mfairfl": "mFairFL moves {} times.",
        "scaffold": "SCAFFOLD ({})",
        "indfair": "IndFair ({})",
    }
    for method, words in quoted.items():
        assert words.format(f"{rows('bytes')[method]['ratio']:.2f}") in TEXT
    prices = rows("bytes")["mfairfl"]["train ↓"] - rows("bytes")["fedavg"]["train ↓"]
    assert "Multipliers and prices add about a hundred bytes" in TEXT
    assert prices == pytest.approx(100, abs=25)


def test_enrolment_costs_less_than_a_round():
    once = rows("bytes", 1)
    enrolment = [sum(row.values()) for name, row in once.items() if name.startswith("enrolment")]
    assert len(enrolment) == 3
    assert sum(enrolment) < rows("bytes")["fedavg"]["all"]


def test_scores_cost_about_two_rounds():
    (scores,) = [row for name, row in rows("bytes", 1).items() if name.startswith("scores")]
    assert 1.5 < sum(scores.values()) / rows("bytes")["fedavg"]["all"] < 2.5


# ------------------------------------------------------------------ time


@pytest.mark.parametrize("column", ["fedavg", "mfairfl"])
def test_an_exchange_adds_up_and_is_mostly_training(column):
    table = rows("exchange")
    for way in ("embedded", "Grid"):
        parts = {name: row[f"{column}, {way}"] for name, row in table.items()}
        whole = parts.pop("all")
        assert whole == pytest.approx(sum(parts.values()), abs=0.5)
        assert parts["training and measuring"] > whole / 2
    ratio = table["all"][f"{column}, Grid"] / table["all"][f"{column}, embedded"]
    (said,) = re.findall(rf"Grid over embedded:.*?([\d.]+) \({column}\)", BLOCKS["exchange"])
    assert float(said) == pytest.approx(ratio, abs=0.01)
    more = {n: r[f"{column}, Grid"] - r[f"{column}, embedded"] for n, r in table.items()}
    assert "The largest part of the difference is training" in TEXT
    assert more["training and measuring"] == max(v for n, v in more.items() if n != "all")


SHARES = (
    "packing",
    "checking",
    "Flower's objects",
    "loop and strategy",
    "history, checkpoint",
)


def test_the_server_s_time_adds_up():
    table = rows("clients")
    assert list(table) == [f"{k}, {m}" for k in (5, 50, 500) for m in ("fedavg", "mfairfl")]
    for name, row in table.items():
        clients = int(name.split(",")[0])
        assert row["all"] == pytest.approx(sum(row[share] for share in SHARES), abs=0.3)
        assert row["for a client"] == pytest.approx(row["all"] / clients, abs=0.06)
        updates = clients * 4 * WEIGHTS / 2**20
        assert row["peak / updates"] == pytest.approx(row["peak MB"] / updates, abs=0.6)


def test_a_client_is_no_dearer_among_many():
    assert "What the server pays for a client does not grow with their number" in TEXT
    table = rows("clients")
    for method in ("fedavg", "mfairfl"):
        dear = table[f"5, {method}"]["for a client"]
        assert table[f"500, {method}"]["for a client"] <= dear


def test_tables_of_pairs_are_written_for_few_clients_only():
    assert "in every round, with up to 50 clients" in TEXT
    table = rows("clients")
    written = {name: row["MB written a round"] for name, row in table.items()}
    assert written["50, mfairfl"] > written["500, mfairfl"]
    assert written["500, mfairfl"] < 2 * written["500, fedavg"]


def test_a_deployment_s_seconds_add_up():
    table = rows("deployment")
    seconds = {name: row["deploy local"] for name, row in table.items()}
    whole = seconds.pop("the whole command")
    seconds.pop("processor time of all processes")
    slowest = seconds.pop("slowest round")
    usual = seconds.pop("a round, two exchanges (median of 5)")
    assert usual <= slowest
    assert sum(seconds.values()) + 3 * usual <= whole + 0.5
    assert whole <= sum(seconds.values()) + 5 * slowest + 0.5
    (said,) = re.findall(r"An exchange of a round takes ([\d.]+) s", TEXT)
    assert float(said) == pytest.approx(usual / 2, abs=0.08)  # both are rounded
    for row in table.values():
        if "ratio" in row:
            low = (row["deploy local"] - 0.05) / (row["train"] + 0.005) - 0.5
            high = (row["deploy local"] + 0.05) / (row["train"] - 0.005) + 0.5
            assert low <= row["ratio"] <= high


def test_waiting_and_not_training_takes_the_time_of_a_deployment():
    seconds = rows("deployment")
    assert "An exchange costs time even when nothing is trained" in TEXT
    assert seconds["first measurement, one exchange"]["deploy local"] > 1
    trained = rows("exchange")["training and measuring"]["mfairfl, Grid"] / 1000
    assert seconds["a round, two exchanges (median of 5)"]["deploy local"] > 5 * trained
