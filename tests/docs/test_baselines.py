"""docs/baselines.md: every strategy is in its table as its card has it; tests it names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mfairfl.checks.run_checks import REVEALS
from mfairfl.strategies import available, describe

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "baselines.md").read_text(encoding="utf-8")


def table(text, head):
    """Return the cells of the first table below a line that starts with `head`."""
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith(head):
            break
    assert set(next(lines)) == {"|", "-", " "}
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


METHODS = {row[0].strip("`"): row[1:] for row in table(PAGE, "| name | paper |")}


def test_every_strategy_is_in_the_table_once_and_in_order():
    assert [row[0].strip("`") for row in table(PAGE, "| name | paper |")] == available()


@pytest.mark.parametrize("name", available())
def test_the_table_says_what_the_card_says(name):
    card = describe(name)
    sees = "all rows" if card.trains_on == "pooled" else REVEALS[card.reveals]
    assert METHODS[name][:3] == [card.paper, card.protects, sees]
    assert all(METHODS[name])


def test_the_tests_that_the_page_names_exist():
    named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", PAGE)
    assert len(named) > 20
    for file, function in named:
        (path,) = (ROOT / "tests").rglob(file)
        assert f"\ndef {function}(" in path.read_text(encoding="utf-8"), (file, function)
