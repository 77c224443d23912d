"""The tables of an audit's page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mfairfl.report.audit_settings import AuditFacts
from mfairfl.report.document import (
    BiasRow,
    BiasTable,
    Document,
    DriftRow,
    RowFacts,
    Sweep,
)
from mfairfl.report.page.shared_tables import facts_table
from mfairfl.report.page.tables import (
    Cell,
    Notes,
    PageColumn,
    PageTable,
    Row,
    evenly,
    measured_cell,
)
from mfairfl.report.page.wording import NO_VALUE, SHARE, Words, capital, count, unit_of

_MOST_THRESHOLDS = 25
_FEW_CHANGES = 10


def probability(value: float | None) -> str:
    """Write a p-value.

    Examples
    --------
    >>> probability(0.01234), probability(1e-9), probability(1.0), probability(None)
    ('0.012', '< 0.001', '1.000', '')
    """
    if value is None:
        return ""
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def rows_table(rows: RowFacts) -> PageTable:
    """Return how many rows there are, and of how many something is not known."""
    facts = {"Rows that were counted": rows.counted, "Of these, with a known label": rows.labelled}
    facts |= {f"Not known: {name}": n for name, n in rows.unknown_group.items() if n}
    facts |= {f"Withheld by {name}, at most": n for name, n in rows.withheld.items()}
    facts |= {f"Left out: {why}": n for why, n in rows.left_out.items()}
    written = {name: count(n) for name, n in facts.items()}
    return facts_table("The rows", written, "What")


def bias_table(table: BiasTable, words: Words, level: float) -> PageTable:
    """Return one table in the form of 6 RCNY §5-301."""
    selected = "Number selected" if table.measure == "selection" else "Number above the median"
    rate = f"{table.measure}_rate"
    notes = Notes()
    columns = [
        PageColumn(label="Category", numeric=False),
        PageColumn(label="Number of applicants"),
        PageColumn(label=selected),
        PageColumn(label=words.label(rate), detail=f"{100 * level:g} % interval"),
        PageColumn(label="Impact ratio", detail=f"{100 * level:g} % interval"),
        PageColumn(label="p", detail="Fisher's exact test"),
        PageColumn(label="p, corrected", detail="after Holm"),
    ]
    defined = [(rate, words.label(rate)), ("impact_ratio", "Impact ratio")]
    defined += [("p-value", "p"), ("holm correction", "p, corrected")]
    return PageTable(
        caption=f"{table.title}: applicants, rates and impact ratios",
        columns=columns,
        rows=[Row(head=_category(row), cells=_bias_cells(row, notes)) for row in table.rows],
        notes=notes.listed(),
        meanings=[(label, words.meaning(name)) for name, label in defined if words.meaning(name)],
    )


def _category(row: BiasRow) -> Cell:
    said = []
    if row.highest:
        said.append("highest rate")
    if row.left_out:
        said.append("left out of the ratios")
    elif row.small:
        said.append("under 2 % of the rows")
    return Cell(text=row.category, detail=capital(", ".join(said)))


def _bias_cells(row: BiasRow, notes: Notes) -> list[Cell]:
    share = "" if row.share is None else f"{SHARE.one(row.share)} of all"
    return [
        Cell(text=count(row.applicants), detail=share),
        Cell(text=count(row.selected)),
        measured_cell(row.rate, notes),
        measured_cell(row.impact_ratio, notes),
        Cell(text=probability(row.p_value)),
        Cell(text=probability(row.p_holm)),
    ]


def stated_table(facts: AuditFacts) -> PageTable:
    """Return what the author of the audit stated beside the tables."""
    stated = {
        "Tool": facts.tool,
        "Date of the audit": facts.audit_date,
        "In use since": facts.distribution_date,
        "Source of the data": facts.data_source,
        "Kind of data": facts.data_kind,
    }
    return facts_table("Stated by the author of this audit", stated, "What")


def sweep_table(sweep: Sweep, words: Words) -> PageTable:
    """Return accuracy, selection rate and measures at some thresholds."""
    thresholds = [row.threshold for row in sweep.rows]
    used = [i for i, threshold in enumerate(thresholds) if threshold == sweep.used]
    kept = [sweep.rows[i] for i in evenly(len(sweep.rows), _MOST_THRESHOLDS, keep=used)]
    names = list(dict.fromkeys(name for row in kept for name in row.measures))
    rows = [
        Row(
            head=Cell(text=f"{row.threshold:g}" + " (used)" * (row.threshold == sweep.used)),
            cells=[
                Cell(text=SHARE.one(row.selection_rate)),
                Cell(text=SHARE.one(row.accuracy)),
                *(Cell(text=unit_of(name).one(row.measures.get(name))) for name in names),
            ],
        )
        for row in kept
    ]
    shown = f" ({len(kept)} of {len(sweep.rows)})" if len(kept) < len(sweep.rows) else ""
    columns = [PageColumn(label="Threshold", numeric=False)]
    columns += [
        PageColumn(label=words.label(name)) for name in ("selection_rate", "accuracy", *names)
    ]
    return PageTable(
        caption=f"What other thresholds would give{shown}", columns=columns, rows=rows, aside=True
    )


def drift_tables(changes: Sequence[DriftRow], words: Words, level: float) -> Iterator[PageTable]:
    """Return the changes that chance hardly explains, then all of them."""
    notable = [change for change in changes if change.beyond_chance]
    if notable and len(changes) > _FEW_CHANGES:
        yield _drift_table(notable, words, level, "Changes that chance hardly explains")
    caption = "Every change since the earlier audit"
    yield _drift_table(changes, words, level, caption)


def _drift_table(
    changes: Sequence[DriftRow], words: Words, level: float, caption: str
) -> PageTable:
    columns = [
        PageColumn(label="Whom", numeric=False),
        PageColumn(label="Before"),
        PageColumn(label="Now"),
        PageColumn(label="Change", detail=f"{100 * level:g} % interval"),
        PageColumn(label="p, corrected", detail="no change"),
        PageColumn(label="Beyond chance", numeric=False),
    ]
    rows = [Row(head=_whom(change, words), cells=_drift_cells(change)) for change in changes]
    return PageTable(caption=caption, columns=columns, rows=rows)


def _whom(change: DriftRow, words: Words) -> Cell:
    parts = [part for part in (change.attribute, change.whom) if part]
    return Cell(text=": ".join(parts) or "Everyone", detail=words.label(change.number))


def _drift_cells(change: DriftRow) -> list[Cell]:
    unit = unit_of(change.number)
    beyond = {True: "yes", False: "no", None: "not tested"}[change.beyond_chance]
    return [
        Cell(text=unit.one(change.before)),
        Cell(text=unit.one(change.after)),
        Cell(text=unit.change(change.change), detail=unit.change_span(change.interval)),
        Cell(text=probability(change.p_holm)),
        Cell(text=beyond),
    ]


def sources_table(document: Document) -> PageTable:
    """Return the files, frames or silos whose rows were counted."""
    rows = [
        Row(
            head=Cell(text=source.name),
            cells=[
                Cell(text=count(source.rows)),
                Cell(text=source.sha256 or NO_VALUE, code=bool(source.sha256)),
            ],
        )
        for source in document.sources
    ]
    columns = [
        PageColumn(label="Source", numeric=False),
        PageColumn(label="Rows"),
        PageColumn(label="SHA-256", numeric=False),
    ]
    return PageTable(caption="Where the rows come from", columns=columns, rows=rows)
