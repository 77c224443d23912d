"""The tables of a run's page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mfairfl.report.document import (
    Change,
    ComparedModel,
    DataTreatment,
    Document,
    ServerView,
    TrainingHistory,
    Withheld,
)
from mfairfl.report.page.shared_tables import plain_text
from mfairfl.report.page.tables import (
    Cell,
    Notes,
    PageColumn,
    PageTable,
    Row,
    evenly,
    first_and_others,
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
from mfairfl.text import some_of

_FIRST = ("accuracy", "selection_rate", "roc_auc")
_LAST = ("worst_client_accuracy", "client_accuracy_gap")
_MOST_ROUNDS = 60
_FEW_MODELS = 6
_MANY_SETS = 5  # that a cell names


def compared_tables(report: Document, words: Words) -> list[PageTable]:
    """Return every model beside the one that is to be judged, and their other numbers."""
    models = report.compared
    numbers = [model.numbers for model in models]
    first, others = first_and_others(numbers, [*_FIRST, *report.goal, *_LAST])
    tables = []
    for names, more in ((first, ""), (others, ": the other numbers")):
        columns, meanings = number_columns(names, words, report.goal)
        notes = Notes()
        rows = [
            Row(
                head=Cell(text=model.name, detail="" if more else _role(model, report.baseline)),
                cells=[measured_cell(model.numbers.get(name), notes) for name in names],
            )
            for model in models
        ]
        table = PageTable(
            caption=f"This model beside others{more}",
            columns=[PageColumn(label="Model", numeric=False), *columns],
            rows=rows,
            notes=notes.listed(),
            meanings=meanings,
            cards=len(rows) <= _FEW_MODELS,
            aside=bool(more),
        )
        tables.append(table)
    return tables if others else tables[:1]


def _role(model: ComparedModel, baseline: str) -> str:
    said = [capital(model.note)]
    if model.kind == "this":
        said.insert(0, "This model")
    elif model.name == baseline:
        said.insert(0, "The baseline")
    if not model.same_rows and "other rows" not in model.note:
        said.append("Measured on other rows")
    return ". ".join(filter(None, (words.rstrip(".") for words in said)))


def changes_tables(report: Document, words: Words) -> list[PageTable]:
    """Return what became of everyone and of each group, then of each client."""
    clients = [change for change in report.changes if change.part == "client"]
    shared = [change for change in report.changes if change.part != "client"]
    caption = f"What changed from {report.baseline} to this model"
    return [
        _changes_table(changes, words, report.baseline, f"{caption}{whom}")
        for changes, whom in ((shared, ""), (clients, ", for each client"))
        if changes
    ]


def _changes_table(
    changes: Sequence[Change], words: Words, baseline: str, caption: str
) -> PageTable:
    rows = [
        Row(
            head=Cell(text=capital(change.whom or "everyone"), detail=words.label(change.number)),
            cells=[
                Cell(text=unit_of(change.number).one(change.before)),
                Cell(text=unit_of(change.number).one(change.after)),
                _change_cell(change),
            ],
        )
        for change in changes
    ]
    columns = [
        PageColumn(label="Whom", numeric=False),
        PageColumn(label="Before", detail=baseline),
        PageColumn(label="After", detail="this model"),
        PageColumn(label="Change"),
    ]
    return PageTable(caption=caption, columns=columns, rows=rows)


def _change_cell(change: Change) -> Cell:
    unit = unit_of(change.number)
    span = unit.change_span(change.interval)
    return Cell(text=unit.change(change.change), detail=span)


def course_table(course: TrainingHistory, words: Words) -> PageTable:
    """Return accuracy, violation, multipliers and conflicts of each round."""
    series: dict[str, tuple[Sequence[float | None], Unit]] = {
        words.label(name): (values, curve_unit(name)) for name, values in course.curves.items()
    }
    series |= {f"Multiplier: {name}": (v, PLAIN) for name, v in course.multipliers.items()}
    if course.conflicts:
        series["Conflicts"] = (course.conflicts, COUNT)
    unmeasured = any(value is None for values, _ in series.values() for value in values)
    caption = "Round by round" + " (–: not measured after this round)" * unmeasured
    return _rounds_table(caption, course, series)


def curve_unit(name: str) -> Unit:
    """Return how the values of a curve over the rounds are written.

    Examples
    --------
    >>> curve_unit("test_accuracy").bare(0.5), curve_unit("test_violation").bare(0.01)
    ('50.0', '1.00')
    """
    bare = name.partition("_")[2]
    return unit_of("demographic_parity_violation" if bare == "violation" else bare)


def coefficients_table(course: TrainingHistory) -> PageTable:
    """Return each client's coefficient in each round."""
    series: dict[str, tuple[Sequence[float | None], Unit]] = {
        client: (values, PLAIN) for client, values in course.coefficients.items()
    }
    return _rounds_table("How much each client counted, by round", course, series)


def _rounds_table(
    caption: str,
    course: TrainingHistory,
    series: Mapping[str, tuple[Sequence[float | None], Unit]],
) -> PageTable:
    rounds, served = course.rounds, course.served
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
    columns = [
        PageColumn(label="Round", numeric=False),
        *(PageColumn(label=label) for label in series),
    ]
    return PageTable(caption=caption, columns=columns, rows=rows, aside=True)


def silos_table(data: DataTreatment) -> PageTable:
    """Return each client's rows and base rate."""
    clients = data.clients
    keys = list(dict.fromkeys(key for client in clients for key in client if key != "name"))
    rows = [
        Row(
            head=Cell(text=str(client.get("name", NO_VALUE))),
            cells=[Cell(text=_fact(key, client.get(key))) for key in keys],
        )
        for client in clients
    ]
    columns = [
        PageColumn(
            label=capital(key.replace("_", " ")),
            numeric=not any(isinstance(client.get(key), str) for client in clients),
        )
        for key in keys
    ]
    return PageTable(
        caption="Rows of each client",
        columns=[PageColumn(label="Client", numeric=False), *columns],
        rows=rows,
    )


def _fact(key: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return plain_text(value)
    if isinstance(value, int):
        return count(value)
    return (SHARE if key == "base_rate" else PLAIN).one(value)


def server_table(server: ServerView) -> PageTable:
    """Return what crossed from each client to the server, and what it kept."""
    rows = [
        Row(
            head=Cell(text=capital(line.what), detail=capital(line.holds)),
            cells=[
                Cell(text=capital(line.seen)),
                Cell(text=capital(line.when)),
                Cell(text=f"{', '.join(line.rows)}", detail=f"by {line.by}"),
                Cell(text=capital(line.why)),
            ],
        )
        for line in server.lines
    ]
    labels = ("What", "How the server saw it", "How often", "Of which rows", "Why")
    return PageTable(
        caption="What each client sent, and what it kept",
        columns=[PageColumn(label=label, numeric=False) for label in labels],
        rows=rows,
        cards=True,
    )


def withheld_table(withheld: Sequence[Withheld]) -> PageTable:
    """Return what each silo withheld, and by which rules."""
    rows = [
        Row(
            head=Cell(text=one.client),
            cells=[
                Cell(text=count(one.min_rows)),
                Cell(
                    text="; ".join(f"{n:,} {split}" for split, n in one.rows.items()) or NO_VALUE
                ),
                Cell(text=some_of(one.sets, _MANY_SETS) or "None"),
                Cell(text=one.policy_sha256, code=True),
            ],
        )
        for one in withheld
    ]
    return PageTable(
        caption="Withheld by silos",
        columns=[
            PageColumn(label="Silo", numeric=False),
            PageColumn(label="Floor", detail="rows"),
            PageColumn(label="Rows withheld", numeric=False),
            PageColumn(label="Sets of rows withheld", numeric=False),
            PageColumn(label="SHA-256 of its rules", numeric=False),
        ],
        rows=rows,
        cards=True,
    )
