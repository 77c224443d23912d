"""The part of a page on the groups of each attribute."""

from __future__ import annotations

from dataclasses import dataclass

from mfairfl.fairness.results import Measured, Section
from mfairfl.report.page import shared_figures, shared_tables
from mfairfl.report.page.shared_figures import Figure
from mfairfl.report.page.tables import PageTable
from mfairfl.report.page.wording import Words


@dataclass(frozen=True, slots=True)
class AttributePart:
    """The part of a page on the groups of one attribute."""

    name: str
    figures: list[Figure]
    tables: list[PageTable]


def attributes(
    sections: list[Section], overall: list[Measured], words: Words, goal: list[str]
) -> list[AttributePart]:
    """Return what the page shows of the groups of each attribute."""
    return [
        AttributePart(
            section.attribute,
            shared_figures.group_figures(section, overall, words, f"groups-{i}"),
            [
                shared_tables.measures_table(section, words, goal),
                *shared_tables.groups_tables(section, words),
            ],
        )
        for i, section in enumerate(sections, 1)
    ]
