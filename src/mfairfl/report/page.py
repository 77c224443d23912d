"""A report or an audit as one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup

from mfairfl.display import DisplayTable
from mfairfl.display.tables import fill
from mfairfl.report import figures, tables
from mfairfl.report.charts.drawing import chart_style
from mfairfl.report.document import Document, Judgement, Outcome
from mfairfl.report.figures import Figure
from mfairfl.report.wording import Words

Content = tuple[Sequence[Figure], Sequence[DisplayTable]]
"""The figures of a part of the page, and its tables."""


@dataclass(frozen=True, slots=True)
class Badge:
    """A verdict at a glance: in words, by a mark, and by a kind that has a colour."""

    words: str
    mark: str
    kind: Literal["good", "bad", "open", "none"]


_BADGES: dict[Outcome, Badge] = {  # the worst first
    "not met": Badge("Fairness goal not met", "✕", "bad"),
    "too few rows to tell": Badge("Too few rows to tell", "?", "open"),
    "no verdict": Badge("No verdict", "–", "none"),
    "met": Badge("Fairness goal met", "✓", "good"),
}
_CONTENTS = {
    "numbers": "All numbers",
    "groups": "Groups",
    "clients": "Clients",
    "compared": "Before and after",
    "training": "Training",
    "data": "Data",
    "group-use": "Use of the group",
    "server": "What the server saw",
    "bias": "Tables after 6 RCNY §5-301",
    "thresholds": "Thresholds",
    "drift": "Since the earlier audit",
    "origin": "Origin",
    "words": "Words",
}
_CAUTION = Badge("Fairness goal met, but that is no good news", "!", "open")


def badge(judgements: Sequence[Judgement]) -> Badge:
    """Return the verdict on several goals together: that on the worst.

    A goal that is met for a bad reason is not shown as good.

    Examples
    --------
    >>> badge([]).words
    'No verdict'
    """
    outcomes: list[Outcome] = [judgement.outcome for judgement in judgements] or ["no verdict"]
    worst = min(outcomes, key=list(_BADGES).index)
    if worst == "met" and any(judgement.caution for judgement in judgements):
        return _CAUTION
    return _BADGES[worst]


def render(document: Document) -> Markup:
    """Return the page of a document: one HTML file that loads nothing and runs nothing.

    Examples
    --------
    >>> from mfairfl.fairness.audit_counts import AuditCounts
    >>> from mfairfl.report.audit_document import build_audit
    >>> from mfairfl.report.audit_settings import AuditSettings
    >>> rows = AuditCounts.from_rows(None, [1, 0], sensitive_features={"sex": ["F", "M"]})
    >>> "not legal advice" in render(build_audit(rows, AuditSettings()))
    True
    """
    words = Words(document.definitions)
    parts = dict(_parts(document, words))
    bias = [
        (
            table.title,
            [*figures.ratio_figures(table, words, f"ratios-{i}")],
            tables.bias_table(table, words, document.level),
            tables.bias_remarks(table),
        )
        for i, table in enumerate(document.bias_tables, 1)
    ]
    use = ["group-use"] * (document.group_use is not None)
    present = {*parts, *use, *["bias"] * bool(bias), "groups", "words"}
    return fill(
        "mfairfl.report",
        "page.html",
        document=document,
        badge=badge(document.headline.judgements),
        goal_figures=[*figures.goal_figures(document, words)],
        attributes=dict(_attributes(document, words)),
        bias=bias,
        parts=parts,
        contents=[(place, label) for place, label in _CONTENTS.items() if place in present],
        chart_style=chart_style(),
    )


def _attributes(document: Document, words: Words) -> Iterator[tuple[str, Content]]:
    for i, section in enumerate(document.sections, 1):
        drawn = figures.group_figures(section, document.overall, words, f"groups-{i}")
        measures = tables.measures_table(section, words, document.goal)
        yield section.attribute, ([*drawn], [measures, *tables.groups_tables(section, words)])


def _parts(document: Document, words: Words) -> Iterator[tuple[str, Content]]:
    """Yield figures and tables of the parts that the document has, by the part's place."""
    numbers = [tables.judgements_table(document, words), *tables.overall_tables(document, words)]
    if document.rows is not None:
        numbers.append(tables.rows_table(document.rows))
    yield "numbers", ([], numbers)
    if document.clients:
        drawn = figures.client_figures(document, words)
        yield "clients", ([*drawn], tables.clients_tables(document, words))
    yield from _run_parts(document, words)
    if document.sweep is not None:
        drawn = figures.sweep_figures(document.sweep, document.headline.judgements, words)
        yield "thresholds", ([*drawn], [tables.sweep_table(document.sweep, words)])
    if document.drift is not None:
        changes = document.drift.changes
        drift = list(tables.drift_tables(changes, words, document.level))
        yield "drift", ([*figures.drift_figures(changes, words)], drift)
    origin: list[DisplayTable] = []
    if document.settings is not None:
        yield "stated", ([], [tables.stated_table(document.settings.facts)])
        columns = document.settings.meaning.model_dump()
        origin.append(tables.sources_table(document.sources))
        origin.append(tables.facts_table("What the columns are", columns, "Role"))
    if document.provenance is not None:
        origin += tables.provenance_tables(document.provenance)
    yield "origin", ([], origin)


def _run_parts(document: Document, words: Words) -> Iterator[tuple[str, Content]]:
    if document.compared:
        planes = figures.plane_figures(document, words)
        drawn = [*planes, *figures.change_figures(document, words)]
        beside = tables.compared_tables(document, words)
        yield "compared", (drawn, beside + tables.changes_tables(document, words))
    history = document.training
    if history is not None:
        rounds = [tables.rounds_table(history, words), tables.coefficients_table(history)]
        yield "training", ([*figures.training_figures(history, document.goal, words)], rounds)
    if document.data is not None:
        yield "data", ([], [tables.clients_rows_table(document.data)])
    if document.server is not None:
        server = tables.server_table(document.server)
        yield "server", ([], [server, tables.withheld_table(document.withheld)])
