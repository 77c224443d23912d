"""The figures of an audit's page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mfairfl.fairness.results import Measured, Number
from mfairfl.report.charts import Guide, IntervalRow, Series, interval_chart, line_chart
from mfairfl.report.document import BiasTable, DriftRow, Judgement, Sweep
from mfairfl.report.page.shared_figures import Figure, tolerance_guide
from mfairfl.report.page.wording import PLAIN, POINTS, SHARE, Unit, Words, unit_of

FOUR_FIFTHS = 0.8
_GAP = "Largest gap between a group and everyone, in percentage points."
_MOST = 40
_MOST_CURVES = 12
_MOST_CHANGES = 12


def ratio_figure(table: BiasTable, words: Words, name: str) -> list[Figure]:
    """Return the impact ratios of a table; none if no category has one."""
    rows = [
        IntervalRow(label=row.category, number=row.impact_ratio)
        for row in table.rows
        if not row.left_out
    ]
    known = [row for row in rows if row.number.value is not None]
    if not known:
        return []
    spoken = "; ".join(f"{row.label} {PLAIN.one(row.number.value)}" for row in known[:_MOST])
    chart = interval_chart(
        rows[:_MOST],
        name=name,
        title=f"Impact ratios, {table.title}",
        description=f"{spoken}.",
        form="{:.2f}".format,
        tick_form="{:g}".format,
        guides=[Guide(value=FOUR_FIFTHS, label="four fifths (29 CFR 1607.4(D))")],
        zero=True,
    )
    return [Figure(title="Impact ratio", meaning=words.meaning("impact_ratio"), chart=chart)]


def sweep_figures(sweep: Sweep, judgements: Sequence[Judgement], words: Words) -> list[Figure]:
    """Return accuracy, the judged violations, and each attribute's selection rates."""
    violations = {
        words.label(name): [row.measures.get(name) for row in sweep.rows]
        for name in (one.measure.name for one in judgements)
    }
    tolerance = next((one.tolerance for one in judgements), None)
    accuracy = {words.label("accuracy"): [row.accuracy for row in sweep.rows]}
    panels = [
        _Panel("Violation", _GAP, violations, POINTS, tolerance_guide(tolerance, POINTS)),
        _Panel("Accuracy", words.meaning("accuracy"), accuracy, SHARE),
    ]
    for attribute in dict.fromkeys(name for row in sweep.rows for name in row.groups):
        title, meaning = f"Selection rate by {attribute}", words.meaning("selection_rate")
        panels.append(_Panel(title, meaning, _selection_rates(sweep, attribute), SHARE))
    return [
        _panel_figure(panel, sweep, f"sweep-{i}")
        for i, panel in enumerate(panels)
        if any(value is not None for values in panel.curves.values() for value in values)
    ]


@dataclass(frozen=True, slots=True)
class _Panel:
    title: str
    meaning: str
    curves: dict[str, list[Number]]
    unit: Unit
    guides: Sequence[Guide] = ()


def _selection_rates(sweep: Sweep, attribute: str) -> dict[str, list[Number]]:
    groups = dict.fromkeys(group for row in sweep.rows for group in row.groups.get(attribute, {}))
    return {
        group: [
            row.groups.get(attribute, {}).get(group, {}).get("selection_rate")
            for row in sweep.rows
        ]
        for group in groups
    }


def _panel_figure(panel: _Panel, sweep: Sweep, name: str) -> Figure:
    shown = dict(list(panel.curves.items())[:_MOST_CURVES])
    meaning = panel.meaning
    if len(shown) < len(panel.curves):
        meaning += f" The first {len(shown)} of {len(panel.curves)} are shown."
    used = [] if sweep.used is None else [Guide(value=sweep.used, label=f"used: {sweep.used:g}")]
    chart = line_chart(
        [row.threshold for row in sweep.rows],
        [Series(label=label, values=values) for label, values in shown.items()],
        name=name,
        title=f"{panel.title} at {len(sweep.rows)} thresholds",
        description=_spoken(sweep, shown, panel.unit),
        form=panel.unit.tick,
        across="threshold",
        marks=used,
        guides=panel.guides,
        zero=True,
    )
    return Figure(title=panel.title, meaning=meaning, chart=chart)


def _spoken(sweep: Sweep, curves: dict[str, list[Number]], unit: Unit) -> str:
    said = []
    for name, values in curves.items():
        known = [
            (row.threshold, value)
            for row, value in zip(sweep.rows, values, strict=True)
            if value is not None
        ]
        if not known:
            continue
        low, high = min(known, key=lambda one: one[1]), max(known, key=lambda one: one[1])
        said.append(
            f"{name}: lowest {unit.one(low[1])} at {low[0]:g}, highest {unit.one(high[1])} at "
            f"{high[0]:g}"
        )
    return "; ".join(said) + "."


def drift_figures(changes: Sequence[DriftRow], words: Words) -> list[Figure]:
    """Return the changes that chance hardly explains, with their intervals."""
    known = [c for c in changes if c.beyond_chance and unit_of(c.number) in (SHARE, POINTS)]
    rows = [
        IntervalRow(
            label=_label(change, words),
            number=Measured(name=change.number, value=change.change, interval=change.interval),
        )
        for change in known[:_MOST_CHANGES]
    ]
    if not rows:
        return []
    spoken = "; ".join(f"{row.label} {SHARE.change(row.number.value)}" for row in rows)
    chart = interval_chart(
        rows,
        name="drift",
        title="Changes that chance hardly explains",
        description=f"{spoken}.",
        form=lambda value: SHARE.change(value).removesuffix(POINTS.mark),
        tick_form=POINTS.tick,
        guides=[Guide(value=0.0, label="no change")],
        bounds=(-math.inf, math.inf),
    )
    meaning = "In percentage points, with intervals."
    if len(rows) < len(known):
        meaning += f" The first {len(rows)} of {len(known)} are shown; the table has all."
    return [Figure(title="Changes that chance hardly explains", meaning=meaning, chart=chart)]


def _label(change: DriftRow, words: Words) -> str:
    whom = ": ".join(part for part in (change.attribute, change.whom) if part)
    return " – ".join(part for part in (whom, words.label(change.number).lower()) if part)
