"""The tables of a document, for the page, the model card and the terminal."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from mfairfl.display import Block, Cell, DisplayTable, Head
from mfairfl.display.numbers import (
    COUNT,
    NO_VALUE,
    PLAIN,
    SHARE,
    Unit,
    capital,
    plain_text,
    probability,
    unit_of,
)
from mfairfl.display.tables import Entry
from mfairfl.experiments.tradeoff import Tradeoff
from mfairfl.fairness.results import Measured, Section, Slice
from mfairfl.report import document as forms
from mfairfl.report.audit_settings import AuditFacts, AuditSource
from mfairfl.report.document import Document, DriftRow, TrainingHistory
from mfairfl.report.wording import Words, label_of, plain_name
from mfairfl.text import some_of

Rows = list[Sequence[Entry] | Block]

_QUALITY = ("accuracy", "balanced_accuracy", "selection_rate", "scoring_rate", "roc_auc")
_OF_CLIENTS = ("worst_client_accuracy", "client_accuracy_gap")
_LAST = (*_OF_CLIENTS, "expected_calibration_error")
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
_MOST_ROUNDS = 60
_MOST_TOLERANCES = 7
_FEW_CHANGES = 10
_FEW_MODELS = 6


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
    texts = {key: plain_text(value) for key, value in facts.items()}
    rows: Rows = [
        [key, Cell(text, code=re.fullmatch(r"[0-9a-f]{40,}", text) is not None)]  # a hash
        for key, text in texts.items()
    ]
    return DisplayTable(caption=caption, columns=_texts(head, "Value"), rows=rows, aside=aside)


def _texts(*labels: str) -> list[Head]:
    """Return the heads of columns that hold text."""
    return [Head(label, numeric=False) for label in labels]


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
        rows.append(
            [
                Cell(words.label(number.name), meaning=meaning),
                capital(judgement.outcome),
                number,
                unit.one(judgement.tolerance),
                unit.one(number.noise_floor),
            ]
        )
    columns = [
        *_texts("Goal", "Verdict"),
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
        *_texts("Number"),
        Head("Value"),
        Head(_interval(document.level)),
        Head("Noise floor"),
        *[Head("Bounds", "over unknown rows")] * bounded,
        *[Head("Constant", "all decided alike")] * bool(constant),
    ]
    rows: dict[str, Sequence[Entry]] = {}
    for name, number in numbers.items():
        unit = unit_of(name)
        rows[name] = [
            Cell(words.label(name), meaning=words.meaning(name)),
            _alone(number),
            unit.span(number.interval),
            unit.if_any(number.noise_floor),
            *[unit.span(number.bounds)] * bounded,
            *[unit.if_any(constant.get(name))] * bool(constant),
        ]
    return [
        DisplayTable(
            caption=" ".join(filter(None, ["All", document.split, "rows together"])) + more,
            columns=columns,
            rows=[rows[name] for name in names],
            cards=True,
            aside=bool(more),
        )
        for names, more in main_and_others([numbers], [*_QUALITY, *document.goal, *_LAST])
    ]


def _alone(number: Measured) -> Measured:
    """Return a number whose interval and bounds stand elsewhere."""
    return Measured(name=number.name, value=number.value, undefined=number.undefined)


# ------------------------------------------------------------------ groups and clients


def groups_tables(
    section: Section, words: Words, *, intervals: Collection[str] | None = None
) -> list[DisplayTable]:
    """Return the rates of each group, and its other numbers; `intervals` as for clients."""
    caption = f"Rates of each group of {section.attribute}"
    return _slices("Group", section.groups, caption, (), words, intervals=intervals)


def clients_tables(
    document: Document, words: Words, *, intervals: Collection[str] | None = None
) -> list[DisplayTable]:
    """Return the rates and the goals' violations of each client, and its other numbers.

    Where room is scarce, only the numbers in `intervals` have theirs.
    """
    caption = "Rates and violations of each client"
    return _slices("Client", document.clients, caption, document.goal, words, intervals=intervals)


def _slices(
    head: str,
    slices: Sequence[Slice],
    caption: str,
    goal: Sequence[str],
    words: Words,
    *,
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
            columns=[*_texts(head), Head("Rows"), *number_columns(names, words, goal)],
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
    for notion in dict.fromkeys(name.rpartition("_")[0] for name in numbers):
        name = f"{notion}_violation"
        violation = numbers[name]
        rows.append(
            [
                Cell(
                    capital(plain_name(notion)) + " (the goal)" * (name in goal),
                    meaning=words.meaning(name),
                ),
                violation,
                unit_of(name).if_any(violation.noise_floor),
                numbers.get(f"{notion}_difference"),
                numbers.get(f"{notion}_ratio"),
            ]
        )
    heads = ("Violation", "Noise floor", "Difference", "Ratio")
    return DisplayTable(
        caption=f"How far apart the groups of {section.attribute} are",
        columns=[*_texts("Notion of fairness"), *map(Head, heads)],
        rows=rows,
        meanings=words.meanings(name for name in numbers if not name.endswith("_violation")),
        cards=True,
    )


# ------------------------------------------------------------------ parts of an audit


def rows_table(facts: forms.RowFacts) -> DisplayTable:
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
    columns = [*_texts("Source"), Head("Rows"), *_texts("SHA-256")]
    return DisplayTable(caption="Where the rows come from", columns=columns, rows=rows)


def bias_table(table: forms.BiasTable, words: Words, level: float) -> DisplayTable:
    """Return one table in the form of 6 RCNY §5-301."""
    rate = f"{table.measure}_rate"
    columns = {
        "": Head("Category", numeric=False),
        "applicants": Head("Number of applicants"),
        "selected": Head(
            "Number selected" if table.measure == "selection" else "Number above the median"
        ),
        rate: Head(words.label(rate), _interval(level)),
        "impact_ratio": Head("Impact ratio", _interval(level)),
        "p-value": Head("p", "Fisher's exact test"),
        "holm correction": Head("p, corrected", "after Holm"),
    }
    rows: Rows = []
    for row in table.rows:
        remarks = ["highest rate"] * row.highest
        if row.left_out:
            remarks.append("left out of the ratios")
        elif row.small:
            remarks.append("under 2 % of the rows")
        share = "" if row.share is None else f"{SHARE.one(row.share)} of all"
        rows.append(
            [
                Cell(row.category, capital(", ".join(remarks))),
                Cell(f"{row.applicants:,}", share),
                row.selected,
                row.rate,
                row.impact_ratio,
                probability(row.p_value),
                probability(row.p_holm),
            ]
        )
    meanings = {head.label: words.meaning(name) for name, head in columns.items()}
    return DisplayTable(
        caption=f"{table.title}: applicants, rates and impact ratios",
        columns=list(columns.values()),
        rows=rows,
        meanings={label: meaning for label, meaning in meanings.items() if meaning},
    )


def bias_remarks(table: forms.BiasTable) -> list[str]:
    """Return what stands below a table in the form of 6 RCNY §5-301."""
    remarks = [f"People in unknown categories, in no row: {table.unknown:,}."]
    if table.withheld:
        remarks.append(f"People withheld by silos, at most, in no row: {table.withheld:,}.")
    if table.median is not None:
        remarks.append(f"Scores are counted above {table.median:.4g} ({table.median_kind}).")
    if table.justification:
        remarks.append(f"Why small categories are left out: {table.justification}")
    return remarks + table.notes


def sweep_table(sweep: forms.Sweep, words: Words, most: int = _MOST_THRESHOLDS) -> DisplayTable:
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
            *_texts("Threshold"),
            *number_columns(("selection_rate", "accuracy", *names), words, ()),
        ],
        rows=rows,
        aside=True,
    )


def drift_tables(
    changes: Sequence[DriftRow], words: Words, level: float
) -> Iterator[DisplayTable]:
    """Return the changes that chance hardly explains, then all of them."""
    columns = [
        *_texts("Whom"),
        Head("Before"),
        Head("Now"),
        Head("Change", _interval(level)),
        Head("p, corrected", "no change"),
        *_texts("Beyond chance"),
    ]
    beyond = {True: "yes", False: "no", None: "not tested"}
    notable = [change for change in changes if change.beyond_chance]
    captions = {"Every change since the earlier audit": changes}
    if notable and len(changes) > _FEW_CHANGES:
        captions = {"Changes that chance hardly explains": notable, **captions}
    for caption, shown in captions.items():
        rows: Rows = [
            [
                Cell(whom(change) or "Everyone", words.label(change.number)),
                *change_cells(change),
                probability(change.p_holm),
                beyond[change.beyond_chance],
            ]
            for change in shown
        ]
        yield DisplayTable(caption=caption, columns=columns, rows=rows)


def change_cells(change: forms.Change | DriftRow) -> list[Entry]:
    """Return what a number was, what it is, and the change with its interval."""
    unit = unit_of(change.number)
    difference = Cell(unit.change.one(change.change), unit.change.span(change.interval))
    return [unit.one(change.before), unit.one(change.after), difference]


def whom(change: DriftRow) -> str:
    """Return the attribute and the group, or the client, that changed; nothing for all rows."""
    return ": ".join(filter(None, (change.attribute, change.whom)))


# ------------------------------------------------------------------ parts of the report of a run


def compared_tables(report: Document, words: Words) -> list[DisplayTable]:
    """Return every model beside the one that is to be judged, and their other numbers."""
    models = report.compared
    main = ["accuracy", "selection_rate", "roc_auc", *report.goal, *_OF_CLIENTS]
    return [
        DisplayTable(
            caption=f"This model beside others{more}",
            columns=[*_texts("Model"), *number_columns(names, words, report.goal)],
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
        for names, more in main_and_others((model.numbers for model in models), main)
    ]


def _role(model: forms.ComparedModel, baseline: str) -> str:
    remarks = [capital(model.note).rstrip(".")]
    if model.kind == "this":
        remarks.insert(0, "This model")
    elif model.name == baseline:
        remarks.insert(0, "The baseline")
    return ". ".join(filter(None, remarks))


def changes_tables(report: Document, words: Words) -> list[DisplayTable]:
    """Return what became of everyone and of each group, then of each client."""
    columns = [
        *_texts("Whom"),
        Head("Before", report.baseline),
        Head("After", "this model"),
        Head("Change"),
    ]
    rows: dict[bool, Rows] = {False: [], True: []}  # of clients
    for change in report.changes:
        head = Cell(capital(change.whom or "everyone"), words.label(change.number))
        rows[change.part == "client"].append([head, *change_cells(change)])
    caption = f"What changed from {report.baseline} to this model"
    return [
        DisplayTable(caption=caption, columns=columns, rows=rows[False]),
        DisplayTable(caption=f"{caption}, for each client", columns=columns, rows=rows[True]),
    ]


def tradeoff_tables(tradeoff: Tradeoff) -> Iterator[DisplayTable]:
    """Return some tolerances of each curve, in the units of the page."""
    for curve in tradeoff.curves:
        table = tradeoff.table(curve, most=_MOST_TOLERANCES, unit=None)
        yield replace(table, caption=capital(label_of(curve.measure)))


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


def _by_round(
    caption: str,
    history: TrainingHistory,
    series: Mapping[str, tuple[Sequence[float | None], Unit]],
) -> DisplayTable:
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
    columns = [*_texts("Round"), *map(Head, series)]
    return DisplayTable(caption=caption, columns=columns, rows=rows, aside=True)


def clients_rows_table(data: forms.DataTreatment) -> DisplayTable:
    """Return each client's rows and base rate."""
    columns = [*_texts("Client"), *map(Head, ("Rows", "Train", "Validation", "Test", "Base rate"))]
    rows: Rows = [
        [
            client.name,
            client.rows,
            client.train,
            client.validation,
            client.test,
            SHARE.one(client.base_rate),
        ]
        for client in data.clients
    ]
    return DisplayTable(caption="Rows of each client", columns=columns, rows=rows)


def server_table(server: forms.ServerView) -> DisplayTable:
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
    columns = _texts("What", "How the server saw it", "How often", "Of which rows", "Why")
    caption = "What each client sent, and what it kept"
    return DisplayTable(caption=caption, columns=columns, rows=rows, cards=True)


def withheld_table(silos: Sequence[forms.Withheld]) -> DisplayTable:
    """Return what each silo withheld, and by which rules."""
    rows: Rows = [
        [
            silo.client,
            silo.min_rows,
            "; ".join(f"{n:,} {split}" for split, n in silo.rows.items()) or NO_VALUE,
            some_of(silo.sets, 5) or "None",
            Cell(silo.policy_sha256, code=True),
        ]
        for silo in silos
    ]
    columns = [
        *_texts("Silo"),
        Head("Floor", "rows"),
        *_texts("Rows withheld", "Sets of rows withheld", "SHA-256 of its rules"),
    ]
    return DisplayTable(caption="Withheld by silos", columns=columns, rows=rows, cards=True)


def provenance_tables(origin: forms.Provenance) -> list[DisplayTable]:
    """Return the data, the files, the settings and the software behind a run."""
    return [
        facts_table("The data", origin.data, "Fact"),
        facts_table("SHA-256 of the files", origin.files, "File"),
        facts_table("Settings", origin.settings, "Setting", aside=True),
        facts_table("Software and machine", origin.versions | origin.machine, "What", aside=True),
    ]
