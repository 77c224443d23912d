"""Tables that reports and audits share: goals, all rows, groups, clients, plain facts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from mfairfl.fairness.results import Measured, Section, Slice
from mfairfl.report.document import Judgement
from mfairfl.report.page.tables import (
    Cell,
    Notes,
    PageColumn,
    PageTable,
    Row,
    first_and_others,
    measured_cell,
    number_columns,
)
from mfairfl.report.page.wording import NO_VALUE, Unit, Words, capital, count, unit_of

_KINDS = ("violation", "difference", "ratio")
_QUALITY = ("accuracy", "balanced_accuracy", "selection_rate", "scoring_rate", "roc_auc")
_BETWEEN_CLIENTS = ("worst_client_accuracy", "client_accuracy_gap", "expected_calibration_error")
_RATES = (
    "accuracy",
    "selection_rate",
    "scoring_rate",
    "true_positive_rate",
    "false_positive_rate",
    "base_rate",
    "expected_calibration_error",
)
_OTHERS = ": the other numbers"


def judgements_table(
    judgements: Sequence[Judgement], words: Words, level: float, since: str = ""
) -> PageTable:
    """Return each goal with its value, interval, tolerance and outcome.

    `since` says when the tolerance was set.
    """
    notes, rows = Notes(), []
    for judgement in judgements:
        number = judgement.measure
        unit = unit_of(number.name)
        cells = [
            Cell(text=capital(judgement.outcome)),
            measured_cell(number, notes),
            Cell(text=unit.one(judgement.tolerance)),
            Cell(text=unit.one(number.noise_floor)),
        ]
        said = [words.meaning(number.name)]
        if len(judgements) > 1:  # of one, the first screen says it
            said = [judgement.sentence, capital(judgement.caution)]
        head = Cell(text=words.label(number.name), detail=" ".join(filter(None, said)))
        rows.append(Row(head=head, cells=cells))
    columns = [
        PageColumn(label="Goal", numeric=False),
        PageColumn(label="Verdict", numeric=False),
        PageColumn(label="Violation", detail=f"{100 * level:g} % interval"),
        PageColumn(label="Tolerance", detail=since),
        PageColumn(label="Noise floor"),
    ]
    return PageTable(
        caption="The fairness goals held against their tolerances",
        columns=columns,
        rows=rows,
        notes=notes.listed(),
        cards=True,
    )


def overall_tables(
    numbers: Sequence[Measured],
    words: Words,
    level: float,
    *,
    goal: Sequence[str],
    caption: str,
    constant: Mapping[str, float | None] | None = None,
) -> list[PageTable]:
    """Return the numbers of all rows together, each with its meaning beside it.

    The first table holds what everybody needs, the second the others.

    Parameters
    ----------
    numbers
        All numbers.
    words
        What they are called.
    level
        Confidence level of the intervals.
    goal
        Names of the violations that are judged.
    caption
        Of the first table.
    constant
        The same numbers if everyone were decided alike, to stand beside them.
    """
    by_name = {number.name: number for number in numbers}
    first, others = first_and_others([by_name], [*_QUALITY, *goal, *_BETWEEN_CLIENTS])
    if not first:
        first, others = others, []
    return [
        _numbers_table(
            [by_name[name] for name in names], words, level, f"{caption}{more}", constant or {}
        )
        for names, more in ((first, ""), (others, _OTHERS))
        if names
    ]


def _numbers_table(
    numbers: Sequence[Measured],
    words: Words,
    level: float,
    caption: str,
    constant: Mapping[str, float | None],
) -> PageTable:
    notes, rows = Notes(), []
    bounded = any(number.bounds for number in numbers)
    for number in numbers:
        unit = unit_of(number.name)
        cells = [
            measured_cell(number, notes, interval=False),
            Cell(text=unit.span(number.interval)),
            Cell(text=_if_any(unit, number.noise_floor)),
        ]
        cells += [Cell(text=unit.span(number.bounds))] * bounded
        cells += [Cell(text=_if_any(unit, constant.get(number.name)))] * bool(constant)
        head = Cell(text=words.label(number.name), detail=words.meaning(number.name))
        rows.append(Row(head=head, cells=cells))
    columns = [
        PageColumn(label="Number", numeric=False),
        PageColumn(label="Value"),
        PageColumn(label=f"{100 * level:g} % interval"),
        PageColumn(label="Noise floor"),
        *[PageColumn(label="Bounds", detail="over unknown rows")] * bounded,
        *[PageColumn(label="Constant", detail="all decided alike")] * bool(constant),
    ]
    return PageTable(
        caption=caption,
        columns=columns,
        rows=rows,
        notes=notes.listed(),
        cards=True,
        aside=caption.endswith(_OTHERS),
    )


def _if_any(unit: Unit, value: float | None) -> str:
    """Write a number that not every row has."""
    return "" if value is None else unit.one(value)


def groups_tables(section: Section, words: Words) -> list[PageTable]:
    """Return the rates of each group, and its other numbers."""
    caption = f"Rates of each group of {section.attribute}"
    return _slices(section.groups, "Group", caption, words, [])


def clients_tables(clients: Sequence[Slice], words: Words, goal: Sequence[str]) -> list[PageTable]:
    """Return the rates and the goals' violations of each client, and its other numbers."""
    return _slices(clients, "Client", "Rates and violations of each client", words, goal)


def _slices(
    slices: Sequence[Slice], what: str, caption: str, words: Words, goal: Sequence[str]
) -> list[PageTable]:
    first, others = first_and_others((part.numbers for part in slices), [*_RATES, *goal])
    tables = []
    for names, more in ((first, ""), (others, _OTHERS)):
        columns, meanings = number_columns(names, words, goal)
        notes = Notes()
        rows = [
            Row(
                head=Cell(text=part.name),
                cells=[
                    Cell(text=count(part.rows)),
                    *(measured_cell(part.numbers.get(name), notes) for name in names),
                ],
            )
            for part in slices
        ]
        tables.append(
            PageTable(
                caption=f"{caption}{more}",
                columns=[
                    PageColumn(label=what, numeric=False),
                    PageColumn(label="Rows"),
                    *columns,
                ],
                rows=rows,
                notes=notes.listed(),
                meanings=meanings,
                aside=bool(more),
            )
        )
    return tables if others else tables[:1]


def measures_table(section: Section, words: Words, goal: Sequence[str]) -> PageTable:
    """Return one row for each notion: violation, noise floor, difference, ratio."""
    by_name = {number.name: number for number in section.measures}
    notions = dict.fromkeys(_notion_of(number) for number in by_name)
    notes = Notes()
    rows = [_measures_row(notion, by_name, words, goal, notes) for notion in notions]
    meanings = [
        (words.label(number), words.meaning(number))
        for number in by_name
        if words.meaning(number) and not number.endswith("_violation")
    ]
    return PageTable(
        caption=f"How far apart the groups of {section.attribute} are",
        columns=[
            PageColumn(label="Notion of fairness", numeric=False),
            PageColumn(label="Violation"),
            PageColumn(label="Noise floor"),
            PageColumn(label="Difference"),
            PageColumn(label="Ratio"),
        ],
        rows=rows,
        notes=notes.listed(),
        meanings=meanings,
        cards=True,
    )


def _notion_of(number: str) -> str:
    stem, _, kind = number.rpartition("_")
    return stem if kind in _KINDS else number


def _measures_row(
    notion: str, by_name: Mapping[str, Measured], words: Words, goal: Sequence[str], notes: Notes
) -> Row:
    violation = f"{notion}_violation"
    main = by_name.get(violation) or by_name.get(notion)
    label = capital(notion.replace("_", " ")) + " (the goal)" * (violation in goal)
    floor = None if main is None else main.noise_floor
    return Row(
        head=Cell(text=label, detail=words.meaning(main.name if main else notion)),
        cells=[
            measured_cell(main, notes),
            Cell(text=_if_any(unit_of(violation), floor)),
            measured_cell(by_name.get(f"{notion}_difference"), notes),
            measured_cell(by_name.get(f"{notion}_ratio"), notes),
        ],
    )


def facts_table(
    caption: str, facts: Mapping[str, Any], head: str, *, aside: bool = False
) -> PageTable:
    """Return names and values, two columns.

    Examples
    --------
    >>> table = facts_table("Versions", {"python": "3.11"}, "Package")
    >>> [(row.head.text, row.cells[0].text) for row in table.rows]
    [('python', '3.11')]
    """
    rows = [
        Row(head=Cell(text=key), cells=[Cell(text=plain_text(value), code=_is_hash(value))])
        for key, value in facts.items()
    ]
    columns = [PageColumn(label=head, numeric=False), PageColumn(label="Value", numeric=False)]
    return PageTable(caption=caption, columns=columns, rows=rows, aside=aside)


def _is_hash(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[0-9a-f]{40,}", value) is not None


def plain_text(value: Any) -> str:
    """Write a setting for people: lists with commas, nothing as a dash.

    Examples
    --------
    >>> plain_text([64, 64]), plain_text(None), plain_text(True), plain_text(0.004)
    ('64, 64', '–', 'yes', '0.004')
    """
    if value is None or value in ("", [], {}):
        return NO_VALUE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(plain_text(item) for item in value)
    if isinstance(value, dict):
        return ", ".join(f"{key}: {plain_text(item)}" for key, item in value.items())
    return count(value) if isinstance(value, int) and abs(value) >= 10_000 else str(value)
