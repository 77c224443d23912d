"""Tables of the parts that only the report of a run has: models, training, data, server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mfairfl.display import Cell, DisplayTable, Head
from mfairfl.display.numbers import (
    COUNT,
    NO_VALUE,
    PLAIN,
    SHARE,
    Unit,
    capital,
    plain_text,
    unit_of,
)
from mfairfl.report.body_tables import (
    Rows,
    change_cells,
    evenly,
    facts_table,
    main_and_others,
    number_columns,
)
from mfairfl.report.definitions import Words
from mfairfl.report.document import (
    ComparedModel,
    DataTreatment,
    Document,
    Provenance,
    ServerView,
    TrainingHistory,
    Withheld,
)
from mfairfl.text import some_of

Series = Mapping[str, tuple[Sequence[float | None], Unit]]
"""By name: a value for each round, and how it is written."""

_MAIN = ("accuracy", "selection_rate", "roc_auc")
_OF_CLIENTS = ("worst_client_accuracy", "client_accuracy_gap")
_MOST_ROUNDS = 60
_FEW_MODELS = 6
_MANY_SETS = 5  # that a cell names


def compared_tables(report: Document, words: Words) -> list[DisplayTable]:
    """Return every model beside the one that is to be judged, and their other numbers."""
    models = report.compared
    parts = main_and_others(
        (model.numbers for model in models), [*_MAIN, *report.goal, *_OF_CLIENTS]
    )
    return [
        DisplayTable(
            caption=f"This model beside others{more}",
            columns=[Head("Model", numeric=False), *number_columns(names, words, report.goal)],
            rows=[
                [
                    Cell(model.name, "" if more else _role(model, report.baseline)),
                    *(model.numbers.get(name) for name in names),
                ]
                for model in models
            ],
            meanings=words.meanings(names),
            cards=len(models) <= _FEW_MODELS,
            aside=bool(more),
        )
        for names, more in parts
    ]


def _role(model: ComparedModel, baseline: str) -> str:
    remarks = [capital(model.note)]
    if model.kind == "this":
        remarks.insert(0, "This model")
    elif model.name == baseline:
        remarks.insert(0, "The baseline")
    if not model.same_rows and "other rows" not in model.note:
        remarks.append("Measured on other rows")
    return ". ".join(filter(None, (remark.rstrip(".") for remark in remarks)))


def changes_tables(report: Document, words: Words) -> list[DisplayTable]:
    """Return what became of everyone and of each group, then of each client."""
    clients = [change for change in report.changes if change.part == "client"]
    shared = [change for change in report.changes if change.part != "client"]
    columns = [
        Head("Whom", numeric=False),
        Head("Before", report.baseline),
        Head("After", "this model"),
        Head("Change"),
    ]
    return [
        DisplayTable(
            caption=f"What changed from {report.baseline} to this model{of_whom}",
            columns=columns,
            rows=[
                [
                    Cell(capital(change.whom or "everyone"), words.label(change.number)),
                    *change_cells(change),
                ]
                for change in changes
            ],
        )
        for changes, of_whom in ((shared, ""), (clients, ", for each client"))
    ]


def rounds_table(history: TrainingHistory, words: Words) -> DisplayTable:
    """Return accuracy, violation, multipliers and conflicts of each round."""
    series = {words.label(name): (v, curve_unit(name)) for name, v in history.curves.items()}
    series |= {f"Multiplier: {name}": (v, PLAIN) for name, v in history.multipliers.items()}
    if history.conflicts:
        series["Conflicts"] = (history.conflicts, COUNT)
    unmeasured = any(value is None for values, _ in series.values() for value in values)
    caption = "Round by round" + " (–: not measured after this round)" * unmeasured
    return _by_round(caption, history, series)


def curve_unit(name: str) -> Unit:
    """Return how the values of a curve over the rounds are written.

    Examples
    --------
    >>> curve_unit("test_accuracy").bare(0.5), curve_unit("test_violation").bare(0.01)
    ('50.0', '1.00')
    """
    measure = name.partition("_")[2]
    return unit_of("demographic_parity_violation" if measure == "violation" else measure)


def coefficients_table(history: TrainingHistory) -> DisplayTable:
    """Return each client's coefficient in each round."""
    series = {client: (values, PLAIN) for client, values in history.coefficients.items()}
    return _by_round("How much each client counted, by round", history, series)


def _by_round(caption: str, history: TrainingHistory, series: Series) -> DisplayTable:
    rounds, served = history.rounds, history.served
    served_places = [i for i, number in enumerate(rounds) if number in served]
    places = evenly(len(rounds), _MOST_ROUNDS, keep=served_places)
    if len(places) < len(rounds):
        caption += f" ({len(places)} of {len(rounds):,} rounds; rounds.csv has them all)"
    rows: Rows = [
        [
            f"{rounds[i]:,}" + " (served)" * (rounds[i] in served),
            *(unit.one(values[i]) for values, unit in series.values()),
        ]
        for i in places
    ]
    columns = [Head("Round", numeric=False), *map(Head, series)]
    return DisplayTable(caption=caption, columns=columns, rows=rows, aside=True)


def clients_rows_table(data: DataTreatment) -> DisplayTable:
    """Return each client's rows and base rate."""
    keys = list(dict.fromkeys(key for facts in data.clients for key in facts if key != "name"))
    columns = [Head("Client", numeric=False)]
    for key in keys:
        texts = any(isinstance(facts.get(key), str) for facts in data.clients)
        columns.append(Head(capital(key.replace("_", " ")), numeric=not texts))
    rows: Rows = [
        [str(facts.get("name", NO_VALUE)), *(_fact(key, facts.get(key)) for key in keys)]
        for facts in data.clients
    ]
    return DisplayTable(caption="Rows of each client", columns=columns, rows=rows)


def _fact(key: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return plain_text(value)
    if isinstance(value, int):
        return f"{value:,}"
    return (SHARE if key == "base_rate" else PLAIN).one(value)


def server_table(server: ServerView) -> DisplayTable:
    """Return what crossed from each client to the server, and what it kept."""
    rows: Rows = [
        [
            Cell(capital(line.what), capital(line.holds)),
            capital(line.seen),
            capital(line.when),
            Cell(", ".join(line.rows), f"by {line.by}"),
            capital(line.why),
        ]
        for line in server.lines
    ]
    heads = ("What", "How the server saw it", "How often", "Of which rows", "Why")
    return DisplayTable(
        caption="What each client sent, and what it kept",
        columns=[Head(head, numeric=False) for head in heads],
        rows=rows,
        cards=True,
    )


def withheld_table(silos: Sequence[Withheld]) -> DisplayTable:
    """Return what each silo withheld, and by which rules."""
    rows: Rows = [
        [
            silo.client,
            silo.min_rows,
            "; ".join(f"{n:,} {split}" for split, n in silo.rows.items()) or NO_VALUE,
            some_of(silo.sets, _MANY_SETS) or "None",
            Cell(silo.policy_sha256, code=True),
        ]
        for silo in silos
    ]
    columns = [
        Head("Silo", numeric=False),
        Head("Floor", "rows"),
        Head("Rows withheld", numeric=False),
        Head("Sets of rows withheld", numeric=False),
        Head("SHA-256 of its rules", numeric=False),
    ]
    return DisplayTable(caption="Withheld by silos", columns=columns, rows=rows, cards=True)


def provenance_tables(origin: Provenance) -> list[DisplayTable]:
    """Return the data, the files, the settings and the software behind a run."""
    software = {**origin.versions, **origin.machine}
    return [
        facts_table("The data", origin.data, "Fact"),
        facts_table("SHA-256 of the files", origin.files, "File"),
        facts_table("Settings", origin.settings, "Setting", aside=True),
        facts_table("Software and machine", software, "What", aside=True),
    ]
