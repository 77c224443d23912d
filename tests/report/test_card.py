"""The model card: Markdown that keeps names and values as text, with what is known filled in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from counted_runs import decided, write_counted
from mfairfl.data import Attribute
from mfairfl.display import DisplayTable
from mfairfl.report import build_report, model_card
from mfairfl.text import markdown_escaped, markdown_list, one_line

READER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
HOSTILE = (
    "<script>alert(1)</script>",
    "a | b",
    "[x](https://example.invalid)",
    "](y)",
    "![i](j)",
    "*bold* _it_ ~~no~~ `code`",
    "&lt;b&gt; &amp;",
    "# title",
    "1. one",
    "- item",
    "+ item",
    "---",
    "back\\slash",
    "$x^2$",
    "www.example.invalid https://example.invalid",
    "<!-- hidden -->",
    "=cmd()",
    "> quote",
)


def tokens(markdown):
    for token in READER.parse(markdown):
        yield token
        yield from token.children or ()


def texts(markdown):
    """Return the inline texts of a document, markup read and gone."""
    return [
        "".join(child.content for child in token.children)
        for token in READER.parse(markdown)
        if token.type == "inline"
    ]


def kinds(markdown):
    return {token.type for token in tokens(markdown)}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_text_in_lists_and_tables(name):
    assert texts(markdown_list([name])) == [name]
    markup = kinds(markdown_list([name])) - {"inline", "text"}
    assert markup == {
        f"{part}_{end}"
        for part in ("bullet_list", "list_item", "paragraph")
        for end in ("open", "close")
    }
    assert texts(DisplayTable.of(["client", name], [[name, "3"]]).to_markdown()) == [
        "client",
        name,
        name,
        "3",
    ]
    assert texts(f"Somebody is called {markdown_escaped(name)}, then.") == [
        f"Somebody is called {name}, then."
    ]


@given(st.text(max_size=60))
def test_any_text_is_read_back_as_it_was(text):
    shown = one_line(text)
    assert texts(f"x{markdown_escaped(text)}x") == [f"x{shown}x"]
    assert texts(markdown_list([text])) == ([shown] if shown else [])
    assert texts(DisplayTable.of(["a", "b"], [[text, "3"]]).to_markdown()) == [
        "a",
        "b",
        shown,
        "3",
    ]


def test_autolinks_of_other_readers_find_nothing():
    """GitHub makes links of bare addresses; an escaped dot or slash keeps it from that."""
    said = markdown_escaped("www.example.invalid HTTPS://example.invalid")
    assert "www." not in said
    assert "://" not in said
    assert texts(said) == ["www.example.invalid HTTPS://example.invalid"]


@pytest.fixture
def card(tmp_path):
    groups = Attribute("<script>alert(1)</script>", ("a | b", "](x)"))
    cells = [[[850, 0], [50, 100]], [[340, 0], [160, 500]]]
    folder = write_counted(
        tmp_path / "run",
        cells,
        tolerance=0.05,
        attributes=(groups,),
        clients=("*north*", "south\n# not a heading"),
        federation={"notes": ["[a](b)"], "warnings": ["<img src=x onerror=alert(1)>"]},
    )
    return model_card(build_report([folder]))


def test_names_and_values_of_a_run_are_text(card):
    assert "html_block" not in kinds(card)
    assert "html_inline" not in kinds(card)
    assert "link_open" not in kinds(card)
    assert "image" not in kinds(card)
    assert "em_open" not in kinds(card)
    found = texts(card)
    assert "<script>alert(1)</script>" in found
    assert {"a | b", "](x)", "*north*", "south # not a heading", "[a](b)"} <= set(found)
    headings = [
        token.content
        for before, token in zip(READER.parse(card), READER.parse(card)[1:], strict=False)
        if before.type == "heading_open"
    ]
    assert "not a heading" not in headings


def test_verdict_numbers_and_limits_are_filled_in(card):
    assert "is not met for demographic parity: the largest distance" in card
    # 100 of 1,000 and 500 of 1,000 at either client are selected.
    assert "| a \\| b | 2,000 | 95.0 % (" in card
    assert "| Demographic parity (the goal) | 20.00 points (1" in card
    assert "What fairness cost is not known" in card
    for part in ("Verdict", "Intended use", "Data", "Groups", "Clients", "Limits"):
        assert f"\n## {part}\n" in card
    assert "## How to reproduce" in card
    assert "SHA-256 of run.json: " in card


def test_what_people_must_write_is_marked_with_whom(card):
    use = card.partition("## Intended use")[2].partition("## Data")[0]
    lines = [line for line in use.splitlines() if line]
    assert len(lines) >= 4
    assert all("**to be filled in by " in line for line in lines)


def test_the_points_of_the_law_are_named_by_number_with_a_warning(card):
    act = card.partition("## EU AI Act")[2]
    assert "Check the text of the law; this is not legal advice." in act
    points = [line for line in act.splitlines() if line.startswith("### ")]
    assert points == [
        "### Annex IV, point 2(b)",
        "### Annex IV, point 2(d)",
        "### Annex IV, point 2(g)",
        "### Annex IV, point 3",
        "### Article 10(2)(f)",
        "### Article 10(2)(g)",
        "### Article 10(2)(h)",
    ]
    assert act.count("**to be filled in by the provider of the system**") == len(points)
    # 1,680 of the 2,000 rows of the second group are decided rightly.
    assert "\\](x) 84.0 % (2,000 rows)" in act


def test_numbers_without_a_value_are_said_to_be_undefined(tmp_path):
    cells = [decided(0, 0), decided(100, 40)]
    said = model_card(build_report([write_counted(tmp_path / "run", cells)]))
    assert "| Demographic parity (the goal) | undefined |  |" in said
    assert (
        "demographic parity violation (sex) is undefined: group 'F' of 'sex' has no rows." in said
    )
