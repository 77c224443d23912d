"""`mfairfl explain`: an entry in lines that fit, all words, or JSON."""

from __future__ import annotations

import json

import pytest

from mfairfl.glossary import entries, explain


@pytest.mark.parametrize("words", [["noise-floor"], ["noise", "floor"], ["NOISE_FLOOR"]])
def test_a_word_is_explained_with_where_to_read_on(cli, words):
    answer = cli("explain", *words)
    assert (answer.code, answer.err) == (0, "")
    name, short, text, see = answer.out.strip().split("\n\n")
    entry = explain("noise floor")
    assert (name, short) == (entry.name, entry.short)
    assert " ".join(text.split()) == entry.text
    assert " ".join(see.split()) == f"see: {', '.join(entry.see)}"


@pytest.mark.parametrize("width", [40, 80, 200])
def test_lines_fit_the_terminal(cli, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    prose, _, _ = cli("explain", "mixture").out.partition("see:")
    assert max(map(len, prose.splitlines())) <= min(width, 90)


def test_without_a_word_all_are_listed(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = cli("explain").out.splitlines()
    assert max(map(len, lines)) <= 80
    for entry in entries():
        assert any(line.startswith(f"{entry.name} ") for line in lines), entry.name
    assert "show by chance on this many rows" in " ".join(" ".join(lines).split())


def test_json(cli):
    found = json.loads(cli("explain", "dp", "--json").out)
    assert found["name"] == "demographic_parity"
    assert set(found) == {"name", "short", "text", "see"}
    assert len(json.loads(cli("explain", "--json").out)) == len(entries())


def test_an_unknown_word_is_one_line_and_code_2(cli):
    answer = cli("explain", "nose", "floor")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == (
        "error: unknown word 'nose floor': did you mean 'noise floor'? "
        "(`mfairfl explain` lists all)\n"
    )
