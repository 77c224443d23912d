"""A study's Markdown: names of data, methods, attributes and the title itself stay text."""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from mfairfl.experiments.histories import write_epochs_markdown
from mfairfl.experiments.study_tables import write_markdown
from mfairfl.experiments.tabulate import tabulate
from mfairfl.text import one_line
from table_runs import layout, runs

# HTML is let through, as by most who publish Markdown; bare addresses become links at some.
READER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
EXPECTED = {"heading", "inline", "paragraph", "table", "tbody", "td", "text", "th", "thead", "tr"}
HOSTILE = [
    "<script>alert(1)</script>",
    "a | b",
    "`code`",
    "[x](javascript:alert(1))",
    "![x](https://example.invalid/x.png)",
    "two\n\n# lines",
    "two\n| cells |",
    "<!-- hidden",
    "*bold* _it_ ~~no~~",
]


def kinds(markdown):
    tokens = [t for token in READER.parse(markdown) for t in (token, *(token.children or ()))]
    return {t.type.removesuffix("_open").removesuffix("_close") for t in tokens}


def texts(markdown):
    return [
        "".join(child.content for child in token.children)
        for token in READER.parse(markdown)
        if token.type == "inline"
    ]


def study_page(name):
    """A page in which everything that a study's author names has this name."""
    place = {"data": name, "split": name, "protocol": "10x20"}
    frame = pd.DataFrame([*runs("mfairfl", **place), *runs(name, **place)])
    shown = layout(name, title=name, data=(name,), splits=(name,))
    return write_markdown(tabulate(frame, shown), shown)


def epochs_page(name):
    row = {"protocol": "10x20", "data": name, "strategy": name, "runs": 2, "within": 0.005}
    for number in ("accuracy", "client_accuracy_std"):
        row |= {f"{number}_epochs": 10.0, f"{number}_epochs_std": 0.0}
    return write_epochs_markdown(pd.DataFrame([row]))


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_text(name):
    shown = one_line(name)
    page = study_page(name)
    assert kinds(page) <= EXPECTED
    found = texts(page)
    assert found.count(shown) >= 2  # the title, and the method in a table
    assert f"{shown}, split {shown}" in found
    assert kinds(epochs_page(name)) <= EXPECTED
    assert shown in texts(epochs_page(name))
    assert f"{shown}: accuracy" in texts(epochs_page(name))


@pytest.mark.slow
@given(st.text(min_size=1, max_size=30).filter(lambda text: one_line(text) not in ("", "mfairfl")))
def test_any_name_is_text(name):
    assert kinds(study_page(name)) <= EXPECTED
    assert kinds(epochs_page(name)) <= EXPECTED
    assert one_line(name) in texts(epochs_page(name))
