"""The page of a run, from its report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mfairfl.report.document import Outcome, RunReport
from mfairfl.report.page import run_figures as figures
from mfairfl.report.page import run_tables as tables
from mfairfl.report.page.environment import fill
from mfairfl.report.page.tables import PageTable
from mfairfl.report.page.wording import Words

__all__ = ["Badge", "badge", "render"]

_WORST_FIRST: tuple[Outcome, ...] = ("not met", "too few rows to tell", "no verdict", "met")


@dataclass(frozen=True, slots=True)
class Badge:
    """A verdict in a word, a mark and a colour."""

    words: str
    mark: str
    kind: Literal["good", "bad", "open", "none"]


_BADGES: dict[Outcome, Badge] = {
    "met": Badge("Fairness goal met", "✓", "good"),
    "not met": Badge("Fairness goal not met", "✕", "bad"),
    "too few rows to tell": Badge("Too few rows to tell", "?", "open"),
    "no verdict": Badge("No verdict", "–", "none"),
}


def badge(outcomes: list[Outcome]) -> Badge:
    """Return the verdict of several goals together: that of the worst.

    Examples
    --------
    >>> badge(["met", "not met"]).words, badge([]).words
    ('Fairness goal not met', 'No verdict')
    """
    return _BADGES[min(outcomes, key=_WORST_FIRST.index, default="no verdict")]


@dataclass(frozen=True, slots=True)
class _Attribute:
    name: str
    figures: list[figures.Figure]
    groups: PageTable
    measures: PageTable


def render(report: RunReport) -> str:
    """Return the page of a run: one HTML file that loads nothing and runs nothing.

    Parameters
    ----------
    report
        What the page says.

    Examples
    --------
    >>> from pathlib import Path
    >>> from mfairfl.report.page import render
    >>> Path("report.html").write_text(render(report), encoding="utf-8")  # doctest: +SKIP
    """
    words = Words(report.definitions)
    provenance = report.provenance
    return fill(
        "run.html",
        report=report,
        badge=badge([judgement.outcome for judgement in report.headline.judgements]),
        badges=_BADGES,
        goal_figures=figures.goal_figures(report, words),
        goals=tables.judgements_table(report, words),
        overall=tables.overall_table(report, words),
        attributes=[
            _Attribute(
                section.attribute,
                figures.group_figures(report, section, words, f"groups-{i}"),
                tables.groups_table(section, words, f"groups-{i}"),
                tables.measures_table(section, words, report.goal, f"measures-{i}"),
            )
            for i, section in enumerate(report.sections, 1)
        ],
        client_figures=figures.client_figures(report, words),
        clients=tables.clients_table(report, words),
        compared_figures=[
            *figures.plane_figures(report, words),
            *figures.change_figures(report, words),
        ],
        compared=tables.compared_table(report, words),
        changes=tables.changes_table(report, words),
        course_figures=figures.course_figures(report, words),
        course_table=tables.course_table(report, words),
        coefficients=tables.coefficients_table(report),
        silos=tables.silos_table(report),
        facts=[
            tables.facts_table("origin-data", "The data", provenance.data, "Fact"),
            tables.facts_table("origin-files", "SHA-256 of the files", provenance.files, "File"),
        ],
        more_facts=[
            tables.facts_table("origin-settings", "Settings", provenance.settings, "Setting"),
            tables.facts_table(
                "origin-software",
                "Software and machine",
                {**provenance.versions, **provenance.machine},
                "What",
            ),
        ],
    )
