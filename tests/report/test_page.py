"""The pages as text: self-contained, well-formed, escaped, and nothing only in a picture."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from samples import (
    HOSTILE,
    SCRIPT,
    hostile_audit,
    hostile_report,
    judgement,
    poor_audit,
    poor_report,
    rich_audit,
    rich_report,
)

from mfairfl.display import DisplayTable
from mfairfl.display.numbers import unit_of
from mfairfl.fairness.results import Measured
from mfairfl.report.document import Definition
from mfairfl.report.page import badge, render
from mfairfl.report.tables import clients_tables, coefficients_table, overall_tables, rounds_table
from mfairfl.report.wording import Words

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
VOID = {"meta", "br", "img", "link", "input", "hr", "path", "rect", "circle"}
PAGES = {
    "rich report": lambda: render(rich_report()),
    "poor report": lambda: render(poor_report()),
    "hostile report": lambda: render(hostile_report()),
    "rich audit": lambda: render(rich_audit()),
    "poor audit": lambda: render(poor_audit()),
    "hostile audit": lambda: render(hostile_audit()),
}


def judged(*judgements, worsened=()):
    headline = rich_report().headline
    return headline.model_copy(update={"judgements": [*judgements], "worsened": [*worsened]})


class Reader(HTMLParser):
    """All elements of a page, and whether they are closed in order."""

    def __init__(self, page):
        super().__init__()
        self.elements, self.open, self.wrong, self.text = [], [], [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs), tuple(self.open)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs), tuple(self.open)))

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data):
        self.text.append(data)

    def all(self, *tags):
        return [attrs for tag, attrs, _ in self.elements if tag in tags]


@pytest.fixture(scope="module", params=PAGES)
def page(request):
    return PAGES[request.param]()


def test_elements_are_closed_in_order(page):
    reader = Reader(page)
    assert reader.wrong == []
    assert reader.open == []


def test_it_loads_and_runs_nothing(page):
    reader = Reader(page)
    policy = [m["content"] for m in reader.all("meta") if m.get("http-equiv")]
    assert policy == [POLICY]
    assert not reader.all("script", "link", "img", "iframe", "object", "embed", "form", "base")
    for _, attributes, _ in reader.elements:
        assert not [name for name in attributes if name.startswith("on")]
        assert attributes.get("href", "#").startswith("#")
        assert not {"src", "srcset", "action", "style"} & set(attributes)
    assert "url(" not in page
    assert "@import" not in page


def test_identities_are_unique_and_links_lead_somewhere(page):
    reader = Reader(page)
    names = [attrs["id"] for _, attrs, _ in reader.elements if "id" in attrs]
    assert len(names) == len(set(names))
    for link in reader.all("a"):
        assert link["href"][1:] in names
    for _, attrs, _ in reader.elements:
        assert set(attrs.get("aria-labelledby", "").split()) <= set(names)


def test_every_picture_has_words(page):
    reader = Reader(page)
    for chart in reader.all("svg"):
        assert chart["role"] == "img"
    assert len(reader.all("title", "desc")) == 1 + 2 * len(reader.all("svg"))


def test_tables_have_captions_and_scopes(page):
    reader = Reader(page)
    tables = len(reader.all("table"))
    assert tables == len(reader.all("caption")) > 0
    assert all(head["scope"] in ("col", "row") for head in reader.all("th"))
    regions = [attrs for _, attrs, _ in reader.elements if attrs.get("role") == "region"]
    assert all(region["tabindex"] == "0" and region["aria-label"] for region in regions)
    labels = [region["aria-label"] for region in regions]
    assert len(labels) == len(set(labels))


def test_headings_descend_one_at_a_time(page):
    levels = [int(tag[1]) for tag, _, _ in Reader(page).elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_language_and_landmarks(page):
    reader = Reader(page)
    assert reader.all("html")[0]["lang"] == "en"
    for landmark in ("header", "nav", "main", "footer"):
        assert len(reader.all(landmark)) == 1


@pytest.mark.parametrize("name", ["hostile report", "hostile audit"])
def test_names_are_escaped(name):
    page = PAGES[name]()
    text = "".join(Reader(page).text)
    assert "<script" not in page.casefold()
    assert SCRIPT in text
    for hostile in HOSTILE:
        assert hostile.replace("\u202e", "?") in text
    assert "\u202e" not in page


def test_a_page_of_a_run_is_small():
    assert len(render(rich_report()).encode()) < 300_000


def test_equal_documents_give_equal_pages():
    assert render(rich_report()) == render(rich_report())
    assert render(rich_audit()) == render(rich_audit())


def test_every_number_of_the_training_is_in_a_table():
    report = rich_report()
    words = Words(report.definitions)
    rows = rounds_table(report.training, words).rows
    assert [row[0] for row in rows][32:35] == ["32", "33 (served)", "34"]
    accuracy = report.training.curves["test_accuracy"]
    assert [row[1] for row in rows] == [f"{100 * v:.1f} %" for v in accuracy]
    coefficients = coefficients_table(report.training)
    assert [column.label for column in coefficients.columns[1:]] == [
        f"client-{i}" for i in range(1, 6)
    ]
    assert coefficients.rows[0][1] == "–"
    first = report.training.coefficients["client-1"][1]
    assert coefficients.rows[1][1] == f"{first:.3f}"


def test_of_many_rounds_some_stand_in_the_table_with_the_served_one():
    report = rich_report()
    training = report.training.model_copy(
        update={
            "rounds": list(range(1000)),
            "served": [777],
            "curves": {"test_accuracy": [0.5] * 1000},
            "multipliers": {},
            "conflicts": [],
        }
    )
    table = rounds_table(training, Words([]))
    assert len(table.rows) <= 62
    assert "777 (served)" in [row[0] for row in table.rows]
    assert "of 1,000 rounds" in table.caption


def test_every_number_of_a_client_is_in_one_of_its_tables():
    report = rich_report()
    words = Words(report.definitions)
    goal = ["equalized_odds_violation"]
    first, others = clients_tables(report.model_copy(update={"goal": goal}), words)
    shown = {column.label for table in (first, others) for column in table.columns}
    assert {words.label(name) for name in report.clients[0].numbers} <= shown
    assert others.folded
    assert not first.folded


def test_the_numbers_of_all_rows_have_their_meaning_beside_them():
    report = rich_report()
    words = Words(report.definitions)
    rows = [row for table in overall_tables(report, words) for row in table.shown()]
    heads = {row[0].text: row[0].meaning for row in rows}
    assert heads["Accuracy"] == "The share of rows whose decision equals the recorded label."
    assert len(heads) == len(report.overall)
    row = next(row for row in rows if row[0].text == "Demographic parity violation")
    assert [cell.text for cell in row[1:]] == ["1.14 points", "0.12–2.16", "0.42 points"]


def test_an_undefined_number_is_a_dash_with_a_reason():
    number = Measured(name="accuracy", value=None, undefined="no rows")
    table = DisplayTable.of(["Group", "Accuracy"], [["F", number], ["M", number]])
    assert [(row[1].text, row[1].note) for row in table.shown()] == [("–", "a"), ("–", "a")]
    assert table.letters == {"no rows": "a"}
    assert "undefined" in table.to_text()
    page = render(poor_report())
    assert "no rows with a label" in page


@pytest.mark.parametrize(
    ("outcomes", "words"),
    [
        ([], "No verdict"),
        (["met"], "Fairness goal met"),
        (["met", "no verdict"], "No verdict"),
        (["met", "too few rows to tell", "no verdict"], "Too few rows to tell"),
        (["too few rows to tell", "not met", "met"], "Fairness goal not met"),
    ],
)
def test_the_badge_is_that_of_the_worst_goal(outcomes, words):
    report = rich_report()
    headline = report.headline.model_copy(
        update={"judgements": [judgement(outcome) for outcome in outcomes], "worsened": []}
    )
    assert badge(headline).words == words
    assert f"</span>{words}</p>" in render(report.model_copy(update={"headline": headline}))


def test_a_goal_met_for_a_bad_reason_is_not_shown_as_good():
    found = judgement("met").model_copy(update={"caution": "everyone is refused"})
    assert badge(judged(found)).kind == "open"
    assert badge(judged(judgement("met"))).kind == "good"


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        ("met", "Fairness goal met, but something got worse"),
        ("not met", "Fairness goal not met"),
        ("too few rows to tell", "Too few rows to tell"),
    ],
)
def test_a_goal_that_is_met_while_something_got_worse_is_not_shown_as_good(outcome, words):
    found = badge(judged(judgement(outcome), worsened=rich_report().headline.worsened))
    assert found.words == words
    assert found.kind != "good"


def test_what_got_worse_is_on_the_first_screen():
    first = render(rich_report()).partition("<nav")[0]
    assert "<dt>What got worse</dt><dd>5 numbers are worse than under fedavg" in first
    assert first.count("<li>true positive rate of client-") == 4
    assert "<summary>1 more</summary>" in first


def test_the_four_badges_differ_in_mark_and_words():
    outcomes = ("met", "not met", "too few rows to tell", "no verdict")
    badges = [badge(judged(judgement(outcome))) for outcome in outcomes]
    assert len({one.mark for one in badges}) == len({one.words for one in badges}) == 4


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("accuracy", "1.3 %"),
        ("demographic_parity_violation", "1.25 points"),
        ("accuracy_parity_difference", "1.25 points"),
        ("accuracy_parity_loss_violation", "0.013"),
        ("demographic_parity_ratio", "0.013"),
        ("roc_auc", "0.013"),
        ("somebodys_violation", "0.013"),
    ],
)
def test_units_by_name(name, written):
    assert unit_of(name).one(0.01251) == written


def test_small_negative_numbers_have_no_sign_once_they_are_written_as_zero():
    unit = unit_of("demographic_parity_violation")
    assert unit.one(-0.00001) == "0.00 points"
    assert unit.change.one(0.00001) == "0.00 points"
    assert unit.change.one(-0.0123) == "−1.23 points"


def test_labels_come_from_the_definitions():
    words = Words([Definition(name="x_y", label="why", meaning="Because.")])
    assert (words.label("x_y"), words.meaning("x_y")) == ("Why", "Because.")
    assert (words.label("z_z"), words.meaning("z_z")) == ("Z z", "")


def test_an_audit_says_what_it_is_not():
    page = render(rich_audit())
    assert page.count("This is not an independent bias audit, and not legal advice.") == 2
    for words in ("Sex × race/ethnicity: selection", "Holm", "used: 0.5", "earlier audit"):
        assert words in page
