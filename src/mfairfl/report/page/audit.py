"""The page of an audit, from its document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mfairfl.report.document import BiasTable, Document
from mfairfl.report.page import audit_figures, audit_tables, shared_figures, shared_tables
from mfairfl.report.page.attributes import attributes
from mfairfl.report.page.badges import badge
from mfairfl.report.page.environment import fill
from mfairfl.report.page.shared_figures import Figure
from mfairfl.report.page.tables import PageTable
from mfairfl.report.page.wording import Words


@dataclass(frozen=True, slots=True)
class _Bias:
    """One table in the form of 6 RCNY §5-301, ready to be shown."""

    document: BiasTable
    table: PageTable
    figures: list[Figure]


def render_audit(document: Document) -> str:
    """Return the page of an audit: one HTML file that loads nothing and runs nothing.

    Parameters
    ----------
    document
        What the page says.

    Examples
    --------
    >>> from mfairfl.fairness.audit_counts import AuditCounts
    >>> from mfairfl.report.audit.build import build_audit
    >>> from mfairfl.report.audit_settings import AuditSettings
    >>> rows = AuditCounts.from_rows(None, [1, 0], sensitive_features={"sex": ["F", "M"]})
    >>> "not legal advice" in render_audit(build_audit(rows, AuditSettings()))
    True
    """
    words = Words(document.definitions)
    goal = document.goal
    judgements, settings = document.headline.judgements, document.settings
    return fill(
        "audit.html",
        audit=document,
        badge=badge(judgements),
        goal_figures=shared_figures.goal_figures(judgements, words, "these decisions", {}),
        attributes=attributes(document.sections, document.overall, words, goal),
        client_figures=shared_figures.client_figures(
            document.clients, document.overall, judgements, words
        ),
        bias=_bias(document, words),
        stated_tables=[] if settings is None else [audit_tables.stated_table(settings.facts)],
        **_tables(document, words, goal),
        **_sweep_and_drift(document, words),
    )


def _bias(document: Document, words: Words) -> list[_Bias]:
    return [
        _Bias(
            table,
            audit_tables.bias_table(table, words, document.level),
            audit_figures.ratio_figure(table, words, f"ratios-{i}"),
        )
        for i, table in enumerate(document.bias_tables, 1)
    ]


def _tables(document: Document, words: Words, goal: list[str]) -> dict[str, list[PageTable]]:
    level, judgements = document.level, document.headline.judgements
    return {
        "all_tables": [
            shared_tables.judgements_table(judgements, words, level),
            *shared_tables.overall_tables(
                document.overall,
                words,
                level,
                goal=goal,
                caption="All rows together",
                constant=document.constant_classifier,
            ),
        ],
        "rows_tables": [] if document.rows is None else [audit_tables.rows_table(document.rows)],
        "client_tables": shared_tables.clients_tables(document.clients, words, goal),
        "origin_tables": [
            audit_tables.sources_table(document),
            shared_tables.facts_table("What the columns are", _meaning(document), "Role"),
        ],
    }


def _meaning(document: Document) -> dict[str, Any]:
    return {} if document.settings is None else document.settings.meaning.model_dump()


def _sweep_and_drift(
    document: Document, words: Words
) -> dict[str, list[Figure] | list[PageTable]]:
    sweep, drift = document.sweep, document.drift
    found: dict[str, list[Figure] | list[PageTable]] = {
        "sweep_figures": [],
        "sweep_tables": [],
        "drift_figures": [],
        "drift_tables": [],
    }
    if sweep is not None:
        found["sweep_figures"] = audit_figures.sweep_figures(
            sweep, document.headline.judgements, words
        )
        found["sweep_tables"] = [audit_tables.sweep_table(sweep, words)]
    if drift is not None:
        found["drift_figures"] = audit_figures.drift_figures(drift.changes, words)
        found["drift_tables"] = list(
            audit_tables.drift_tables(drift.changes, words, document.level)
        )
    return found
