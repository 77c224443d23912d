"""The tables of a run's page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mfairfl.report.document import Change, RunReport
from mfairfl.report.page.shared_tables import plain_text
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
    COUNT,
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
    "coefficients_table",
    "compared_table",
    "course_table",
    "curve_unit",
    "silos_table",
]

_MOST_ROUNDS = 60
_FEW_MODELS = 6


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
                Cell(text="All rows" if change.part == "all" else capital(change.part)),
                Cell(text=words.label(change.number)),
                Cell(text=unit_of(change.number).one(change.before)),
                Cell(text=unit_of(change.number).one(change.after)),
                _change_cell(change),
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


def _change_cell(change: Change) -> Cell:
    unit = unit_of(change.number)
    span = unit.change_span(change.interval)
    return Cell(text=unit.change(change.change), detail=span)


def course_table(report: RunReport, words: Words) -> PageTable:
    """Return accuracy, violation, multipliers and conflicts of each round."""
    course = report.training
    series: dict[str, tuple[Sequence[float | None], Unit]] = {
        words.label(name): (values, curve_unit(name)) for name, values in course.curves.items()
    }
    series |= {f"Multiplier: {name}": (v, PLAIN) for name, v in course.multipliers.items()}
    if course.conflicts:
        series["Conflicts"] = (course.conflicts, COUNT)
    return _rounds_table("course", "Round by round", report, series)


def curve_unit(name: str) -> Unit:
    """Return how the values of a curve over the rounds are written.

    Examples
    --------
    >>> curve_unit("test_accuracy").bare(0.5), curve_unit("test_violation").bare(0.01)
    ('50.0', '1.00')
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
