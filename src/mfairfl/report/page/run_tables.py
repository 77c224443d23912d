"""The tables of a run's page."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from mfairfl.report.document import Measured, RunReport, Section, Slice
from mfairfl.report.page.tables import (
    Cell,
    Column,
    Notes,
    PageTable,
    Row,
    evenly,
    measured_cell,
    number_columns,
)
from mfairfl.report.page.wording import (
    NO_VALUE,
    PLAIN,
    SHARE,
    Unit,
    Words,
    capital,
    count,
    unit_of,
)

__all__ = [
    "changes_table",
    "clients_table",
    "coefficients_table",
    "compared_table",
    "course_table",
    "facts_table",
    "groups_table",
    "judgements_table",
    "measures_table",
    "overall_table",
    "silos_table",
]

_KINDS = ("violation", "difference", "ratio")
_MOST_ROUNDS = 60
_FEW_MODELS = 6


def judgements_table(report: RunReport, words: Words) -> PageTable:
    """Return each goal with its value, interval, tolerance and outcome."""
    notes, rows = Notes(), []
    for judgement in report.headline.judgements:
        number = judgement.measure
        unit = unit_of(number.name)
        cells = [
            Cell(text=capital(judgement.outcome)),
            measured_cell(number, notes),
            Cell(text=unit.one(judgement.tolerance)),
            Cell(text=unit.one(number.noise_floor)),
        ]
        head = Cell(text=words.label(number.name), detail=judgement.sentence)
        rows.append(Row(head=head, cells=cells))
    columns = [
        Column(label="Goal", numeric=False),
        Column(label="Verdict", numeric=False),
        Column(label="Violation", detail=f"{report.level:.0%} interval"),
        Column(label="Tolerance", detail="set before training"),
        Column(label="Noise floor"),
    ]
    return PageTable(
        name="goals",
        caption="The fairness goals held against their tolerances",
        columns=columns,
        rows=rows,
        notes=notes.listed(),
        cards=True,
    )


def overall_table(report: RunReport, words: Words) -> PageTable:
    """Return the numbers of all rows together, each with its meaning beside it."""
    notes = Notes()
    rows = [
        Row(
            head=Cell(text=words.label(number.name), detail=words.meaning(number.name)),
            cells=[
                measured_cell(number, notes, interval=False),
                Cell(text=unit_of(number.name).span(number.interval)),
                Cell(text=_if_any(unit_of(number.name), number.noise_floor)),
            ],
        )
        for number in report.overall
    ]
    columns = [
        Column(label="Number", numeric=False),
        Column(label="Value"),
        Column(label=f"{report.level:.0%} interval"),
        Column(label="Noise floor"),
    ]
    caption = f"All {report.split} rows together"
    return PageTable(
        name="overall", caption=caption, columns=columns, rows=rows, notes=notes.listed(),
        cards=True,
    )  # fmt: skip


def _if_any(unit: Unit, value: float | None) -> str:
    """Write a number that not every row has."""
    return "" if value is None else unit.one(value)


def groups_table(section: Section, words: Words, name: str) -> PageTable:
    """Return the rates of each group."""
    caption = f"Rates of each group of {section.attribute}"
    return _slices(section.groups, "Group", caption, words, name=name)


def clients_table(report: RunReport, words: Words) -> PageTable:
    """Return the rates and violations of each client."""
    caption = "Rates and violations of each client"
    return _slices(report.clients, "Client", caption, words, name="clients", goal=report.goal)


def _slices(
    slices: Sequence[Slice],
    what: str,
    caption: str,
    words: Words,
    *,
    name: str,
    goal: Sequence[str] = (),
) -> PageTable:
    names, columns, meanings = number_columns((part.numbers for part in slices), words, goal)
    notes = Notes()
    rows = [
        Row(
            head=Cell(text=part.name),
            cells=[
                Cell(text=count(part.rows)),
                *(measured_cell(part.numbers.get(number), notes) for number in names),
            ],
        )
        for part in slices
    ]
    return PageTable(
        name=name,
        caption=caption,
        columns=[Column(label=what, numeric=False), Column(label="Rows"), *columns],
        rows=rows,
        notes=notes.listed(),
        meanings=meanings,
    )


def measures_table(section: Section, words: Words, goal: Sequence[str], name: str) -> PageTable:
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
        name=name,
        caption=f"How far apart the groups of {section.attribute} are",
        columns=[
            Column(label="Notion of fairness", numeric=False),
            Column(label="Violation"),
            Column(label="Noise floor"),
            Column(label="Difference"),
            Column(label="Ratio"),
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


def compared_table(report: RunReport, words: Words) -> PageTable:
    """Return every model beside the one that is to be judged."""
    models = report.compared
    names, columns, meanings = number_columns((m.numbers for m in models), words, report.goal)
    notes = Notes()
    rows = []
    for model in models:
        other_rows = "" if model.same_rows else "Measured on other rows."
        detail = " ".join(filter(None, [model.note, other_rows]))
        if model.kind == "this":
            detail = "This model. " + detail
        elif model.name == report.baseline:
            detail = "The baseline. " + detail
        rows.append(
            Row(
                head=Cell(text=model.name, detail=detail.strip()),
                cells=[measured_cell(model.numbers.get(number), notes) for number in names],
            )
        )
    return PageTable(
        name="compared",
        cards=len(rows) <= _FEW_MODELS,
        caption="This model beside others",
        columns=[Column(label="Model", numeric=False), *columns],
        rows=rows,
        notes=notes.listed(),
        meanings=meanings,
    )


def changes_table(report: RunReport, words: Words) -> PageTable:
    """Return what became of everyone, each group and each client."""
    rows = [
        Row(
            head=Cell(text=change.whom or "Everyone"),
            cells=[
                Cell(text=capital(change.part)),
                Cell(text=words.label(change.number)),
                Cell(text=unit_of(change.number).one(change.before)),
                Cell(text=unit_of(change.number).one(change.after)),
                Cell(text=unit_of(change.number).change(change.change)),
            ],
        )
        for change in report.changes
    ]
    columns = [
        Column(label="Whom", numeric=False),
        Column(label="Part", numeric=False),
        Column(label="Number", numeric=False),
        Column(label="Before", detail=report.baseline),
        Column(label="After", detail="this model"),
        Column(label="Change"),
    ]
    caption = f"What changed from {report.baseline} to this model"
    return PageTable(name="changes", caption=caption, columns=columns, rows=rows)


def course_table(report: RunReport, words: Words) -> PageTable:
    """Return accuracy, violation, multipliers and conflicts of each round."""
    course = report.training
    series: dict[str, tuple[Sequence[float | None], Unit]] = {
        words.label(name): (values, curve_unit(name)) for name, values in course.curves.items()
    }
    series |= {f"Multiplier: {name}": (v, PLAIN) for name, v in course.multipliers.items()}
    if course.conflicts:
        series["Conflicts"] = (course.conflicts, Unit(1.0, 0, ""))
    return _rounds_table("course", "Round by round", report, series)


def curve_unit(name: str) -> Unit:
    """Return how the values of a curve over the rounds are written.

    Examples
    --------
    >>> curve_unit("test_accuracy").one(0.5), curve_unit("test_violation").one(0.01)
    ('50.0%', '1.00 points')
    """
    bare = name.partition("_")[2]
    return unit_of("demographic_parity_violation" if bare == "violation" else bare)


def coefficients_table(report: RunReport) -> PageTable:
    """Return each client's coefficient in each round."""
    series: dict[str, tuple[Sequence[float | None], Unit]] = {
        client: (values, PLAIN) for client, values in report.training.coefficients.items()
    }
    return _rounds_table("coefficients", "How much each client counted, by round", report, series)


def _rounds_table(
    name: str,
    caption: str,
    report: RunReport,
    series: Mapping[str, tuple[Sequence[float | None], Unit]],
) -> PageTable:
    rounds, served = report.training.rounds, report.training.served
    kept = evenly(
        len(rounds), _MOST_ROUNDS, keep=[i for i, number in enumerate(rounds) if number in served]
    )
    if len(kept) < len(rounds):
        caption += f" ({len(kept)} of {len(rounds):,} rounds; rounds.csv has them all)"
    rows = [
        Row(
            head=Cell(text=f"{rounds[i]:,}" + " (served)" * (rounds[i] in served)),
            cells=[Cell(text=unit.one(values[i])) for values, unit in series.values()],
        )
        for i in kept
    ]
    columns = [Column(label="Round", numeric=False), *(Column(label=label) for label in series)]
    return PageTable(name=name, caption=caption, columns=columns, rows=rows)


def silos_table(report: RunReport) -> PageTable:
    """Return each client's rows and base rate."""
    clients = report.data.clients
    keys = list(dict.fromkeys(key for client in clients for key in client if key != "name"))
    rows = [
        Row(
            head=Cell(text=str(client.get("name", NO_VALUE))),
            cells=[Cell(text=_fact(key, client.get(key))) for key in keys],
        )
        for client in clients
    ]
    columns = [
        Column(
            label=capital(key.replace("_", " ")),
            numeric=not any(isinstance(client.get(key), str) for client in clients),
        )
        for key in keys
    ]
    return PageTable(
        name="silos",
        caption="Rows of each client",
        columns=[Column(label="Client", numeric=False), *columns],
        rows=rows,
    )


def _fact(key: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return plain_text(value)
    if isinstance(value, int):
        return count(value)
    return (SHARE if key == "base_rate" else PLAIN).one(value)


def facts_table(name: str, caption: str, facts: Mapping[str, Any], head: str) -> PageTable:
    """Return names and values, two columns.

    Examples
    --------
    >>> table = facts_table("versions", "Versions", {"python": "3.11"}, "Package")
    >>> [(row.head.text, row.cells[0].text) for row in table.rows]
    [('python', '3.11')]
    """
    rows = [
        Row(head=Cell(text=key), cells=[Cell(text=plain_text(value), code=_is_hash(value))])
        for key, value in facts.items()
    ]
    columns = [Column(label=head, numeric=False), Column(label="Value", numeric=False)]
    return PageTable(name=name, caption=caption, columns=columns, rows=rows)


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
