"""Tables keep names and numbers whole, whatever the width."""

from __future__ import annotations

import pytest

from mfairfl.cli.show import print_table

NAMES = ["demographic_parity_violation *", "  sex", "equalized_odds_violation", "accuracy"]
HEAD = ["number", "value", "95% interval", "noise floor", "constant classifier"]
ROWS = [[name, "0.1234", "0.1000 to 0.2000", "0.0123", "0.7607"] for name in NAMES]


@pytest.mark.parametrize("width", [40, 80, 120])
def test_names_and_numbers_are_never_broken(capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    print_table(HEAD, ROWS, right=(3, 4))
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
    print_table(["name", "method", "sees"], [["mfairfl-paper", prose, "updates"]], wrap=(1,))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 60
    words = " ".join(" ".join(line.split()) for line in lines)
    for word in ["mfairfl-paper", "updates", *prose.split()]:
        assert word in words.split()


def test_an_empty_table_shows_its_head(capsys):
    print_table(["name", "value"], [])
    assert capsys.readouterr().out.split()[:2] == ["name", "value"]
