"""Tables of the numbers that every document has, and of the parts that only an audit has."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from mfairfl.display import Block, Cell, DisplayTable, Head
from mfairfl.display.numbers import NO_VALUE, SHARE, capital, plain_text, probability, unit_of
from mfairfl.display.tables import Entry
from mfairfl.fairness.results import Measured, Section, Slice
from mfairfl.report.audit_settings import AuditFacts, AuditSource
from mfairfl.report.definitions import Words
from mfairfl.report.document import (
    BiasRow,
    BiasTable,
    Change,
    Document,
    DriftRow,
    RowFacts,
    Sweep,
)

Rows = list[Sequence[Entry] | Block]

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
_MOST_THRESHOLDS = 25
_FEW_CHANGES = 10


def main_and_others(
    rows: Iterable[Mapping[str, Measured]], main: Sequence[str]
) -> list[tuple[list[str], str]]:
    """Return the names of the numbers that most readers need, then those of the others.

    Beside the names stands what is added to the caption of their table.

    Examples
    --------
    >>> row = {"loss": Measured(name="loss", value=0.3), "f1": Measured(name="f1", value=0.5)}
    >>> main_and_others([row], ["accuracy", "f1"])
    [(['f1'], ''), (['loss'], ': the other numbers')]
    """
    names = dict.fromkeys(name for row in rows for name in row)
    first = [name for name in main if name in names]
    others = [name for name in names if name not in first]
    if not (first and others):
        return [(first or others, "")]
    return [(first, ""), (others, ": the other numbers")]


def number_columns(names: Iterable[str], words: Words, goal: Sequence[str]) -> list[Head]:
    """Return the head of a column for each number."""
    return [Head(words.label(name), "the goal" if name in goal else "") for name in names]


def evenly(count: int, most: int, keep: Iterable[int] = ()) -> list[int]:
    """Return up to about `most` of the indices below `count`, evenly, with those in `keep`.

    Examples
    --------
    >>> evenly(5, 10), evenly(10, 4, keep=[7])
    ([0, 1, 2, 3, 4], [0, 3, 6, 7, 9])
    """
    if count <= most:
        return list(range(count))
    step = -(-count // most)
    return sorted({*range(0, count, step), count - 1, *keep})


def facts_table(
    caption: str, facts: Mapping[str, Any], head: str, *, aside: bool = False
) -> DisplayTable:
    """Return names and values, two columns.

    Examples
    --------
    >>> facts_table("Versions", {"python": "3.11"}, "Package").rows
    [['python', Cell(text='3.11', detail='', more='', meaning='', note='', code=False)]]
    """
    rows: Rows = [
        [key, Cell(plain_text(value), code=_is_hash(value))] for key, value in facts.items()
    ]
    columns = [Head(head, numeric=False), Head("Value", numeric=False)]
    return DisplayTable(caption=caption, columns=columns, rows=rows, aside=aside)


def _is_hash(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[0-9a-f]{40,}", value) is not None


def _interval(level: float) -> str:
    return f"{100 * level:g} % interval"


# ------------------------------------------------------------------ goals, all rows


def judgements_table(document: Document, words: Words) -> DisplayTable:
    """Return each goal with its value, interval, tolerance and outcome."""
    judgements = document.headline.judgements
    rows: Rows = []
    for judgement in judgements:
        number = judgement.measure
        unit = unit_of(number.name)
        meaning = words.meaning(number.name)
        if len(judgements) > 1:  # of one, the first screen says it
            meaning = f"{judgement.sentence} {capital(judgement.caution)}".strip()
        head = Cell(words.label(number.name), meaning=meaning)
        limits = [unit.one(judgement.tolerance), unit.one(number.noise_floor)]
        rows.append([head, capital(judgement.outcome), number, *limits])
    columns = [
        Head("Goal", numeric=False),
        Head("Verdict", numeric=False),
        Head("Violation", _interval(document.level)),
        Head("Tolerance", "set before training" if document.kind == "report" else ""),
        Head("Noise floor"),
    ]
    caption = "The fairness goals held against their tolerances"
    return DisplayTable(caption=caption, columns=columns, rows=rows, cards=True)


def overall_tables(document: Document, words: Words) -> list[DisplayTable]:
    """Return the numbers of all rows together, those that most readers need first."""
    numbers = {number.name: number for number in document.overall}
    constant = document.constant_classifier
    bounded = any(number.bounds for number in numbers.values())
    columns = [
        Head("Number", numeric=False),
        Head("Value"),
        Head(_interval(document.level)),
        Head("Noise floor"),
        *[Head("Bounds", "over unknown rows")] * bounded,
        *[Head("Constant", "all decided alike")] * bool(constant),
    ]
    caption = f"All {document.split} rows together".replace("  ", " ")
    tables = []
    parts = main_and_others([numbers], [*_QUALITY, *document.goal, *_BETWEEN_CLIENTS])
    for names, more in parts:
        rows: Rows = []
        for name in names:
            number, unit = numbers[name], unit_of(name)
            row: list[Entry] = [
                Cell(words.label(name), meaning=words.meaning(name)),
                _alone(number),
                unit.span(number.interval),
                unit.if_any(number.noise_floor),
            ]
            row += [unit.span(number.bounds)] * bounded
            row += [unit.if_any(constant.get(name))] * bool(constant)
            rows.append(row)
        tables.append(
            DisplayTable(
                caption=caption + more, columns=columns, rows=rows, cards=True, aside=bool(more)
            )
        )
    return tables


def _alone(number: Measured) -> Measured:
    """Return a number whose interval and bounds stand elsewhere."""
    return Measured(name=number.name, value=number.value, undefined=number.undefined)


# ------------------------------------------------------------------ groups and clients


def groups_tables(
    section: Section, words: Words, *, intervals: Collection[str] | None = None
) -> list[DisplayTable]:
    """Return the rates of each group, and its other numbers; `intervals` as for clients."""
    head, caption = "Group", f"Rates of each group of {section.attribute}"
    return _slices(section.groups, words, head=head, caption=caption, intervals=intervals)


def clients_tables(
    document: Document, words: Words, *, intervals: Collection[str] | None = None
) -> list[DisplayTable]:
    """Return the rates and the goals' violations of each client, and its other numbers.

    Where room is scarce, only the numbers in `intervals` have theirs.
    """
    return _slices(
        document.clients, words, head="Client", caption="Rates and violations of each client",
        goal=document.goal, intervals=intervals,
    )  # fmt: skip


def _slices(
    slices: Sequence[Slice],
    words: Words,
    *,
    head: str,
    caption: str,
    goal: Sequence[str] = (),
    intervals: Collection[str] | None,
) -> list[DisplayTable]:
    def entry(part: Slice, name: str) -> Entry:
        number = part.numbers.get(name)
        if number is None or intervals is None or name in intervals:
            return number
        return _alone(number)

    return [
        DisplayTable(
            caption=caption + more,
            columns=[
                Head(head, numeric=False),
                Head("Rows"),
                *number_columns(names, words, goal),
            ],
            rows=[
                [part.name, part.rows, *(entry(part, name) for name in names)] for part in slices
            ],
            meanings=words.meanings(names),
            aside=bool(more),
        )
        for names, more in main_and_others((part.numbers for part in slices), [*_RATES, *goal])
    ]


def measures_table(section: Section, words: Words, goal: Sequence[str]) -> DisplayTable:
    """Return one row for each notion: violation, noise floor, difference, ratio."""
    numbers = {number.name: number for number in section.measures}
    rows: Rows = []
    for notion in dict.fromkeys(map(_notion_of, numbers)):
        violation = f"{notion}_violation"
        main = numbers.get(violation) or numbers.get(notion)
        label = capital(notion.replace("_", " ")) + " (the goal)" * (violation in goal)
        rows.append(
            [
                Cell(label, meaning=words.meaning(main.name if main else notion)),
                main,
                unit_of(violation).if_any(main.noise_floor if main else None),
                numbers.get(f"{notion}_difference"),
                numbers.get(f"{notion}_ratio"),
            ]
        )
    heads = ["Notion of fairness", "Violation", "Noise floor", "Difference", "Ratio"]
    return DisplayTable(
        caption=f"How far apart the groups of {section.attribute} are",
        columns=[Head(head, numeric=head != heads[0]) for head in heads],
        rows=rows,
        meanings=words.meanings(name for name in numbers if not name.endswith("_violation")),
        cards=True,
    )


def _notion_of(number: str) -> str:
    notion, _, kind = number.rpartition("_")
    return notion if kind in _KINDS else number


# ------------------------------------------------------------------ parts of an audit


def rows_table(facts: RowFacts) -> DisplayTable:
    """Return how many rows there are, and of how many something is not known."""
    counts = {
        "Rows that were counted": facts.counted,
        "Of these, with a known label": facts.labelled,
    }
    counts |= {f"Not known: {name}": n for name, n in facts.unknown_group.items() if n}
    counts |= {f"Withheld by {name}, at most": n for name, n in facts.withheld.items()}
    counts |= {f"Left out: {why}": n for why, n in facts.left_out.items()}
    return facts_table("The rows", {name: f"{n:,}" for name, n in counts.items()}, "What")


def stated_table(facts: AuditFacts) -> DisplayTable:
    """Return what the author of the audit stated beside the tables."""
    stated = {
        "Tool": facts.tool,
        "Date of the audit": facts.audit_date,
        "In use since": facts.distribution_date,
        "Source of the data": facts.data_source,
        "Kind of data": facts.data_kind,
    }
    return facts_table("Stated by the author of this audit", stated, "What")


def sources_table(sources: Sequence[AuditSource]) -> DisplayTable:
    """Return the files, frames or silos whose rows were counted."""
    rows: Rows = [
        [source.name, source.rows, Cell(source.sha256 or NO_VALUE, code=bool(source.sha256))]
        for source in sources
    ]
    columns = [Head("Source", numeric=False), Head("Rows"), Head("SHA-256", numeric=False)]
    return DisplayTable(caption="Where the rows come from", columns=columns, rows=rows)


def bias_table(table: BiasTable, words: Words, level: float) -> DisplayTable:
    """Return one table in the form of 6 RCNY §5-301."""
    rate = f"{table.measure}_rate"
    selected = "Number selected" if table.measure == "selection" else "Number above the median"
    labels = {
        rate: words.label(rate),
        "impact_ratio": "Impact ratio",
        "p-value": "p",
        "holm correction": "p, corrected",
    }
    columns = [
        Head("Category", numeric=False),
        Head("Number of applicants"),
        Head(selected),
        Head(labels[rate], _interval(level)),
        Head("Impact ratio", _interval(level)),
        Head("p", "Fisher's exact test"),
        Head("p, corrected", "after Holm"),
    ]
    return DisplayTable(
        caption=f"{table.title}: applicants, rates and impact ratios",
        columns=columns,
        rows=[_bias_row(row) for row in table.rows],
        meanings={
            label: meaning for name, label in labels.items() if (meaning := words.meaning(name))
        },
    )


def _bias_row(row: BiasRow) -> list[Entry]:
    remarks = ["highest rate"] * row.highest
    if row.left_out:
        remarks.append("left out of the ratios")
    elif row.small:
        remarks.append("under 2 % of the rows")
    share = "" if row.share is None else f"{SHARE.one(row.share)} of all"
    return [
        Cell(row.category, capital(", ".join(remarks))),
        Cell(f"{row.applicants:,}", share),
        row.selected,
        row.rate,
        row.impact_ratio,
        probability(row.p_value),
        probability(row.p_holm),
    ]


def sweep_table(sweep: Sweep, words: Words, most: int = _MOST_THRESHOLDS) -> DisplayTable:
    """Return accuracy, selection rate and measures at some thresholds."""
    used = [i for i, row in enumerate(sweep.rows) if row.threshold == sweep.used]
    shown = [sweep.rows[i] for i in evenly(len(sweep.rows), most, keep=used)]
    names = list(dict.fromkeys(name for row in shown for name in row.measures))
    rows: Rows = [
        [
            f"{row.threshold:g}" + " (used)" * (row.threshold == sweep.used),
            SHARE.one(row.selection_rate),
            SHARE.one(row.accuracy),
            *(unit_of(name).one(row.measures.get(name)) for name in names),
        ]
        for row in shown
    ]
    count = f" ({len(shown)} of {len(sweep.rows)})" if len(shown) < len(sweep.rows) else ""
    return DisplayTable(
        caption=f"What other thresholds would give{count}",
        columns=[
            Head("Threshold", numeric=False),
            *number_columns(("selection_rate", "accuracy", *names), words, ()),
        ],
        rows=rows,
        aside=True,
    )


def drift_tables(
    changes: Sequence[DriftRow], words: Words, level: float
) -> Iterator[DisplayTable]:
    """Return the changes that chance hardly explains, then all of them."""
    notable = [change for change in changes if change.beyond_chance]
    if notable and len(changes) > _FEW_CHANGES:
        yield _drift_table(notable, words, level, "Changes that chance hardly explains")
    yield _drift_table(changes, words, level, "Every change since the earlier audit")


def _drift_table(
    changes: Sequence[DriftRow], words: Words, level: float, caption: str
) -> DisplayTable:
    columns = [
        Head("Whom", numeric=False),
        Head("Before"),
        Head("Now"),
        Head("Change", _interval(level)),
        Head("p, corrected", "no change"),
        Head("Beyond chance", numeric=False),
    ]
    beyond = {True: "yes", False: "no", None: "not tested"}
    rows: Rows = [
        [
            Cell(whom(change) or "Everyone", words.label(change.number)),
            *change_cells(change),
            probability(change.p_holm),
            beyond[change.beyond_chance],
        ]
        for change in changes
    ]
    return DisplayTable(caption=caption, columns=columns, rows=rows)


def change_cells(change: Change | DriftRow) -> list[Entry]:
    """Return what a number was, what it is, and the change with its interval."""
    unit = unit_of(change.number)
    difference = Cell(unit.change(change.change), unit.change_span(change.interval))
    return [unit.one(change.before), unit.one(change.after), difference]


def whom(change: DriftRow) -> str:
    """Return the attribute and the group, or the client, that changed; nothing for all rows."""
    return ": ".join(filter(None, (change.attribute, change.whom)))
