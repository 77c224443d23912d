"""The page of a run, from its report."""

from __future__ import annotations

from mfairfl.report.document import Document, Provenance
from mfairfl.report.page import run_figures, run_tables, shared_figures, shared_tables
from mfairfl.report.page.attributes import attributes
from mfairfl.report.page.badges import badge
from mfairfl.report.page.environment import fill
from mfairfl.report.page.shared_figures import Figure
from mfairfl.report.page.tables import PageTable
from mfairfl.report.page.wording import Words


def render(report: Document) -> str:
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


def _figures(report: Document, words: Words) -> dict[str, list[Figure]]:
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


def _tables(report: Document, words: Words) -> dict[str, list[PageTable]]:
    judgements, level, goal = report.headline.judgements, report.level, report.goal
    course, all_rows = report.training, f"All {report.split} rows together"
    return {
        "all_tables": [
            shared_tables.judgements_table(judgements, words, level, "set before training"),
            *shared_tables.overall_tables(
                report.overall, words, level, goal=goal, caption=all_rows
            ),
        ],
        "client_tables": shared_tables.clients_tables(report.clients, words, goal),
        "compared_tables": [
            *run_tables.compared_tables(report, words),
            *run_tables.changes_tables(report, words),
        ],
        "course_tables": []
        if course is None
        else [
            run_tables.course_table(course, words),
            run_tables.coefficients_table(course),
        ],
        "data_tables": [] if report.data is None else [run_tables.silos_table(report.data)],
        "server_tables": [
            *([] if report.server is None else [run_tables.server_table(report.server)]),
            run_tables.withheld_table(report.withheld),
        ],
        "origin_tables": [] if report.provenance is None else _origin(report.provenance),
    }


def _origin(origin: Provenance) -> list[PageTable]:
    software = {**origin.versions, **origin.machine}
    return [
        shared_tables.facts_table("The data", origin.data, "Fact"),
        shared_tables.facts_table("SHA-256 of the files", origin.files, "File"),
        shared_tables.facts_table("Settings", origin.settings, "Setting", aside=True),
        shared_tables.facts_table("Software and machine", software, "What", aside=True),
    ]
