"""The page of a run, from its report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mfairfl.report.document import Measured, RunReport, Section
from mfairfl.report.page import run_figures, run_tables, shared_figures, shared_tables
from mfairfl.report.page.badges import badge
from mfairfl.report.page.environment import fill
from mfairfl.report.page.shared_figures import Figure
from mfairfl.report.page.tables import PageTable
from mfairfl.report.page.wording import Words

__all__ = ["Attribute", "attributes", "render"]


@dataclass(frozen=True, slots=True)
class Attribute:
    """The part of a page on the groups of one attribute."""

    name: str
    figures: list[Figure]
    groups: PageTable
    measures: PageTable


def attributes(
    sections: list[Section], overall: list[Measured], words: Words, goal: list[str]
) -> list[Attribute]:
    """Return what the page shows of the groups of each attribute."""
    return [
        Attribute(
            section.attribute,
            shared_figures.group_figures(section, overall, words, f"groups-{i}"),
            shared_tables.groups_table(section, words, f"groups-{i}"),
            shared_tables.measures_table(section, words, goal, f"measures-{i}"),
        )
        for i, section in enumerate(sections, 1)
    ]


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
    return fill(
        "run.html",
        report=report,
        badge=badge(report.headline.judgements),
        attributes=attributes(report.sections, report.overall, words, report.goal),
        **_figures(report, words),
        **_tables(report, words),
    )


def _figures(report: RunReport, words: Words) -> dict[str, list[Figure]]:
    judgements = report.headline.judgements
    baseline = {
        model.name: model.numbers
        for model in report.compared
        if model.kind != "this" and model.name == report.baseline
    }
    return {
        "goal_figures": shared_figures.goal_figures(judgements, words, "this model", baseline),
        "client_figures": shared_figures.client_figures(
            report.clients, report.overall, judgements, words
        ),
        "compared_figures": [
            *run_figures.plane_figures(report, words),
            *run_figures.change_figures(report, words),
        ],
        "course_figures": run_figures.course_figures(report, words),
    }


def _tables(report: RunReport, words: Words) -> dict[str, Any]:
    judgements, level, origin = report.headline.judgements, report.level, report.provenance
    all_rows = f"All {report.split} rows together"
    facts = shared_tables.facts_table
    return {
        "goals": shared_tables.judgements_table(judgements, words, level),
        "overall": shared_tables.overall_table(report.overall, words, level, all_rows),
        "clients": shared_tables.clients_table(report.clients, words, report.goal),
        "compared": run_tables.compared_table(report, words),
        "changes": run_tables.changes_table(report, words),
        "course_table": run_tables.course_table(report, words),
        "coefficients": run_tables.coefficients_table(report),
        "silos": run_tables.silos_table(report),
        "facts": [
            facts("origin-data", "The data", origin.data, "Fact"),
            facts("origin-files", "SHA-256 of the files", origin.files, "File"),
        ],
        "more_facts": [
            facts("origin-settings", "Settings", origin.settings, "Setting"),
            facts(
                "origin-software",
                "Software and machine",
                {**origin.versions, **origin.machine},
                "What",
            ),
        ],
    }
