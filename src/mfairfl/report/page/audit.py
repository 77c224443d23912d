"""The page of an audit, from its document."""

from __future__ import annotations

from dataclasses import dataclass

from mfairfl.report.audit.document import AuditDocument, BiasTable
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


def render_audit(document: AuditDocument) -> str:
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
    goal = [f"{notion}_violation" for notion in document.settings.notions]
    judgements = document.headline.judgements
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
        stated_tables=[audit_tables.stated_table(document)],
        **_tables(document, words, goal),
        **_sweep_and_drift(document, words),
    )


def _bias(document: AuditDocument, words: Words) -> list[_Bias]:
    return [
        _Bias(
            table,
            audit_tables.bias_table(table, words, document.settings.level),
            audit_figures.ratio_figure(table, words, f"ratios-{i}"),
        )
        for i, table in enumerate(document.bias_tables, 1)
    ]


def _tables(document: AuditDocument, words: Words, goal: list[str]) -> dict[str, list[PageTable]]:
    level, judgements = document.settings.level, document.headline.judgements
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
        "rows_tables": [audit_tables.rows_table(document.rows)],
        "client_tables": shared_tables.clients_tables(document.clients, words, goal),
        "origin_tables": [
            audit_tables.sources_table(document),
            shared_tables.facts_table(
                "What the columns are", document.settings.meaning.model_dump(), "Role"
            ),
        ],
    }


def _sweep_and_drift(
    document: AuditDocument, words: Words
) -> dict[str, list[Figure] | list[PageTable]]:
    settings, sweep, drift = document.settings, document.sweep, document.drift
    found: dict[str, list[Figure] | list[PageTable]] = {
        "sweep_figures": [],
        "sweep_tables": [],
        "drift_figures": [],
        "drift_tables": [],
    }
    if sweep is not None:
        found["sweep_figures"] = audit_figures.sweep_figures(
            sweep, settings.notions, settings.tolerance, words
        )
        found["sweep_tables"] = [audit_tables.sweep_table(sweep, words)]
    if drift is not None:
        found["drift_figures"] = audit_figures.drift_figures(drift.changes, words)
        found["drift_tables"] = list(
            audit_tables.drift_tables(drift.changes, words, settings.level)
        )
    return found
