"""Tables keep names and numbers whole, whatever the width; numbers say what they mean."""

from __future__ import annotations

from itertools import takewhile

import pytest

import mfairfl
from federations import people_federation
from mfairfl.cli.run_result import print_run
from mfairfl.cli.show import print_table
from mfairfl.display import Cell, DisplayTable, Head
from mfairfl.fairness import Event, Notion, register_notion
from mfairfl.fairness.notions import REGISTRY
from mfairfl.glossary import explain

NAMES = ["demographic_parity_violation *", "  sex", "equalized_odds_violation", "accuracy"]
HEAD = ["number", "value", "95% interval", "noise floor", "constant classifier"]
ROWS = [[name, "0.1234", "0.1000 to 0.2000", "0.0123", "0.7607"] for name in NAMES]


@pytest.mark.parametrize("width", [40, 80, 120])
def test_names_and_numbers_are_never_broken(capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    print_table(DisplayTable.of(HEAD, ROWS, numeric=[3, 4]))
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    for name in NAMES:
        (line,) = [line for line in lines if line.startswith(f"{name} ")]
        assert line.split()[-5:] == ["0.1000", "to", "0.2000", "0.0123", "0.7607"]
    if width >= 80:
        assert max(map(len, lines)) <= width
    # Headings are broken between words only where they must be.
    assert any("constant classifier" in line for line in lines) == (width == 120)


def test_prose_wraps_between_words(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    prose = "the method protects groups and clients alike, by conflict-free updates"
    row = ["mfairfl-paper", prose, "updates"]
    print_table(DisplayTable.of(["name", "method", "sees"], [row], wrap=[1]))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 60
    words = " ".join(" ".join(line.split()) for line in lines)
    for word in ["mfairfl-paper", "updates", *prose.split()]:
        assert word in words.split()


def test_an_empty_table_shows_its_head(capsys):
    print_table(DisplayTable.of(["name", "value"], []))
    assert capsys.readouterr().out.split()[:2] == ["name", "value"]


def test_notes_stand_below_their_rows_and_meanings_below_their_headings(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    first = Cell("first", meaning="a note that is longer than forty characters")
    rows = [[first, "1.0"], ["  part", "0.5"], [Cell("second", meaning="short"), "2.0"]]
    columns = [Head("number", numeric=False), Head("value", "read", numeric=False)]
    print_table(DisplayTable(columns=columns, rows=rows))
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert [line.split() for line in lines if "─" not in line] == [
        ["value"],
        ["number", "read"],
        ["first", "1.0"],
        ["a", "note", "that", "is", "longer", "than", "forty"],
        ["characters"],
        ["part", "0.5"],
        ["second", "2.0"],
        ["short"],
    ]
    assert max(map(len, lines)) <= 40


OWN = Notion("own_equality", (Event("y=0", (0,)),), "selection")
SMALL = {"rounds": 1, "local_epochs": 1, "hidden": (4,)}


@pytest.fixture(scope="module")
def record():
    """A run with a notion of one's own as its goal; the notion is forgotten again."""
    register_notion(OWN)
    run = mfairfl.train(people_federation(), notion=[OWN.name, "dp"], **SMALL)
    REGISTRY.remove(OWN.name)
    return run.record


NUMBERS = [
    *("accuracy", "balanced_accuracy", "roc_auc", "log-loss", "expected_calibration_error"),
    *("demographic_parity_violation", "demographic_parity_difference", "demographic_parity_ratio"),
    *(f"own_equality_{kind}" for kind in ("violation", "difference", "ratio")),
    *("equalized_odds_violation", "equal_opportunity_violation", "accuracy_parity_violation"),
    *("client_accuracy_gap", "client_accuracy_std", "worst_client_accuracy"),
]


def note_below(lines, name):
    """Return the indented lines below a row, as one."""
    at = next(i for i, line in enumerate(lines) if line.split()[:1] == [name])
    return " ".join(
        map(str.strip, takewhile(lambda line: line.startswith("    "), lines[at + 1 :]))
    )


@pytest.mark.parametrize("width", [80, 120])
def test_every_number_is_explained_beside_it(
    record, capsys, monkeypatch, tmp_path, new_names, width
):
    monkeypatch.setenv("COLUMNS", str(width))
    register_notion(OWN)
    print_run(record, tmp_path, as_json=False)
    text = capsys.readouterr().out
    lines = text[text.index("\nmeasured on") : text.index("    AUC: ")].splitlines()
    assert max(len(line.rstrip()) for line in lines) <= width
    for name in NUMBERS:
        said = note_below(lines, name).removeprefix("the goal of this run: ")
        assert f"{said[0].upper()}{said[1:]}." == explain(name).short
    goals = [name for name in NUMBERS if note_below(lines, name).startswith("the goal of this")]
    assert goals == ["demographic_parity_violation", "own_equality_violation"]


def test_unknown_notion_is_explained_by_the_kind_of_measure(record, capsys, tmp_path):
    assert OWN.name not in REGISTRY.names()
    print_run(record, tmp_path, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith(f"{OWN.name}_violation *"))
    assert lines[at + 1].strip().startswith("the goal of this run: the largest gap between")


def test_headings_of_clients_and_groups_are_explained_above_them(record, capsys, tmp_path):
    print_run(record, tmp_path, as_json=False)
    said = capsys.readouterr().out
    clients, groups = said.index("\nclient "), said.index("\nattribute ")
    for heading, table in [("selected", clients), ("base rate", clients), ("true pos.", groups)]:
        short = explain(heading).short
        line = f"    {heading}: {short[0].lower()}{short[1:-1]}"
        assert 0 <= said.index(line) < table
    assert said.rstrip().splitlines()[-1].startswith("see: mfairfl explain noise-floor")
