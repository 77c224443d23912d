"""Figures of the numbers that every document has, and of the parts that only an audit has.

Each has a title, its meaning in words, and a description for screen readers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from mfairfl.display.numbers import PLAIN, POINTS, SHARE, Unit, capital, unit_of
from mfairfl.fairness.results import Measured, Number, Section, Slice
from mfairfl.report.body_tables import whom
from mfairfl.report.charts import (
    Form,
    Guide,
    IntervalRow,
    Series,
    interval_chart,
    line_chart,
)
from mfairfl.report.definitions import Words
from mfairfl.report.document import BiasTable, Document, DriftRow, Judgement, Sweep

FOUR_FIFTHS = 0.8

_RATES = (
    "selection_rate",
    "scoring_rate",
    "accuracy",
    "true_positive_rate",
    "false_positive_rate",
    "expected_calibration_error",
)
_IN_POINTS = "In percentage points."
_GAP = "Largest gap between a group and everyone, in percentage points."
_MOST_ROWS = 60
_MOST_CATEGORIES = 40
_MOST_CURVES = 12
_MOST_CHANGES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A chart with what stands above it.

    Parameters
    ----------
    title
        What it shows.
    meaning
        The definition of what it shows, in plain words.
    chart
        The picture.
    """

    title: str
    meaning: str
    chart: Markup


def goal_figures(document: Document, words: Words) -> list[Figure]:
    """Return each goal's violation against its tolerance, beside that of the baseline."""
    baseline = {
        model.name: model.numbers
        for model in document.compared
        if model.kind != "this" and model.name == document.baseline
    }
    subject = "this model" if document.kind == "report" else "these decisions"
    figures = []
    for i, judgement in enumerate(document.headline.judgements):
        name = judgement.measure.name
        unit, title = unit_of(name), words.label(name)
        rows = {subject: judgement.measure}
        rows |= {model: numbers[name] for model, numbers in baseline.items() if name in numbers}
        guides = tolerance_guide(judgement.tolerance, unit)
        limit = f" The tolerance is {unit.one(judgement.tolerance)}." if guides else ""
        chart = interval_chart(
            [IntervalRow(label=label, number=number) for label, number in rows.items()],
            name=f"goal-{i}",
            title=title,
            description=_spoken(rows.items()) + limit,
            form=unit.bare,
            tick_form=unit.tick,
            guides=guides,
            zero=True,
        )
        meaning = f"{words.meaning(name)} {_IN_POINTS * (unit is POINTS)}".strip()
        figures.append(Figure(title=title, meaning=meaning, chart=chart))
    return figures


def group_figures(
    section: Section, overall: Sequence[Measured], words: Words, name: str
) -> list[Figure]:
    """Return one chart of the violations, and one for each rate."""
    everyone = {number.name: number for number in overall}
    rates = [
        _slices_figure(
            section.groups, rate, words, name=f"{name}-{rate}", by=section.attribute,
            overall=everyone.get(rate),
        )
        for rate in _RATES
        if _is_defined(section.groups, rate)
    ]  # fmt: skip
    return [*_violations(section, name), *rates]


def _violations(section: Section, name: str) -> list[Figure]:
    numbers = {
        capital(number.name.removesuffix("_violation").replace("_", " ")): number
        for number in section.measures
        if number.name.endswith("_violation") and unit_of(number.name) is POINTS
    }
    if all(number.value is None for number in numbers.values()):
        return []
    chart = interval_chart(
        [IntervalRow(label=label, number=number) for label, number in numbers.items()],
        name=f"{name}-violations",
        title=f"Violations by {section.attribute}",
        description=_spoken(numbers.items()),
        form=POINTS.bare,
        tick_form=POINTS.tick,
        zero=True,
    )
    meaning = "The largest distance of any group from everyone, in percentage points."
    return [Figure(title="Violations", meaning=meaning, chart=chart)]


def client_figures(document: Document, words: Words) -> list[Figure]:
    """Return each client's accuracy, or else its selection rate, and the goals' violations."""
    clients = document.clients
    tolerances = {j.measure.name: j.tolerance for j in document.headline.judgements}
    everyone = {number.name: number for number in document.overall}
    rate = "accuracy" if _is_defined(clients, "accuracy") else "selection_rate"
    return [
        _slices_figure(
            clients, number, words, name=f"client-{number}", by="client",
            overall=everyone.get(number), tolerance=tolerances.get(number),
        )
        for number in (rate, *tolerances)
        if _is_defined(clients, number)
    ]  # fmt: skip


def _slices_figure(
    slices: Sequence[Slice],
    number: str,
    words: Words,
    *,
    name: str,
    by: str,
    overall: Measured | None,
    tolerance: float | None = None,
) -> Figure:
    unit, label = unit_of(number), words.label(number)
    numbers = [(part.name, part.numbers[number]) for part in slices if number in part.numbers]
    shown = _extremes(numbers)
    guides = tolerance_guide(tolerance, unit)
    if overall is not None and overall.value is not None and not number.endswith("_violation"):
        guides.append(Guide(value=overall.value, label=f"everyone {unit.one(overall.value)}"))
    few = len(shown) < len(numbers)
    fewer = f"The {len(shown)} most extreme of {len(numbers)} are shown." if few else ""
    chart = interval_chart(
        [IntervalRow(label=part, number=measured) for part, measured in shown],
        name=name,
        title=f"{label} by {by}",
        description=f"{_spoken(numbers)} {fewer}",
        form=in_figure(unit),
        tick_form=unit.tick,
        guides=guides,
        zero=number.endswith(("_violation", "_error")),
        bounds=(0.0, 1.0 if unit is SHARE else math.inf),
    )
    meaning = [words.meaning(number), _IN_POINTS * (unit is POINTS), fewer]
    return Figure(title=label, meaning=" ".join(filter(None, meaning)), chart=chart)


def tolerance_guide(tolerance: float | None, unit: Unit) -> list[Guide]:
    """Return the line that a violation should not cross, if there is one."""
    if tolerance is None:
        return []
    return [Guide(value=tolerance, label=f"tolerance {unit.one(tolerance)}", kind="limit")]


def in_figure(unit: Unit) -> Form:
    """Return how values stand in a figure, whose text names the unit of points."""
    return unit.one if unit is SHARE else unit.bare


def _extremes(numbers: list[tuple[str, Measured]]) -> list[tuple[str, Measured]]:
    """Return all if they are few; else the lowest and the highest, in their own order."""
    if len(numbers) <= _MOST_ROWS:
        return numbers
    values = [number.value for _, number in numbers]
    order = sorted(range(len(values)), key=lambda i: (values[i] is None, values[i] or 0))
    half = _MOST_ROWS // 2
    return [numbers[i] for i in sorted({*order[:half], *order[-half:]})]


def _is_defined(slices: Sequence[Slice], name: str) -> bool:
    return any(name in part.numbers and part.numbers[name].value is not None for part in slices)


def _spoken(numbers: Iterable[tuple[str, Measured]]) -> str:
    """Return the lowest and the highest of many, or all of few."""
    defined = [(label, number) for label, number in numbers if number.value is not None]
    if not defined:
        return "No value is defined."
    defined.sort(key=lambda item: item[1].value or 0.0)
    few = len(defined) <= 3
    named = defined if few else [defined[0], defined[-1]]
    text = "; ".join(f"{label} {_with_interval(number)}" for label, number in named)
    return f"{text}." if few else f"Of {len(defined)}, from {text}."


def _with_interval(number: Measured) -> str:
    unit = unit_of(number.name)
    interval = f", interval {unit.span(number.interval)}" if number.interval else ""
    return f"{unit.one(number.value)}{interval}"


# ------------------------------------------------------------------ curves


Curves = Mapping[str, Sequence[Number]]
"""By name: a value for each place of the axis, None where there is none."""


def has_values(curves: Curves) -> bool:
    """Return whether any curve has a value."""
    return any(value is not None for values in curves.values() for value in values)


def curves_figure(
    places: Sequence[float],
    curves: Curves,
    unit: Unit,
    *,
    name: str,
    title: str,
    meaning: str,
    across: str,
    marks: Sequence[Guide] = (),
    guides: Sequence[Guide] = (),
    zero: bool = True,
    joined: bool = False,
    whole: bool = False,
) -> Figure:
    """Return a chart of curves; of many those that reach farthest from zero.

    Parameters
    ----------
    places, across
        Along the horizontal axis, and what it is.
    name
        Unlike that of any other chart of the page.
    title, meaning
        What it shows, and what that means.
    marks, guides, zero, joined, whole
        As in `line_chart` and `Series`.
    """

    def reach(curve: str) -> float:
        return max((abs(value) for value in curves[curve] if value is not None), default=0.0)

    strongest = set(sorted(curves, key=reach, reverse=True)[:_MOST_CURVES])
    shown = {curve: values for curve, values in curves.items() if curve in strongest}
    if len(shown) < len(curves):
        meaning += f" The {len(shown)} strongest of {len(curves)} are shown; the table has all."
    chart = line_chart(
        places,
        [Series(label=curve, values=values, joined=joined) for curve, values in shown.items()],
        name=name,
        title=f"{title} over {len(places)} {across}s",
        description=spoken_curves(places, shown, unit),
        form=unit.tick,
        across=across,
        marks=marks,
        guides=guides,
        zero=zero,
        whole=whole,
    )
    return Figure(title=title, meaning=meaning, chart=chart)


def spoken_curves(places: Sequence[float], curves: Curves, unit: Unit) -> str:
    """Return where each curve begins and ends, and its lowest and highest value."""
    texts = []
    for name, values in curves.items():
        points = [(v, at) for at, v in zip(places, values, strict=True) if v is not None]
        if points:
            low, high = min(points), max(points)
            texts.append(
                f"{name}: from {unit.one(points[0][0])} to {unit.one(points[-1][0])}, lowest "
                f"{unit.one(low[0])} at {low[1]:g}, highest {unit.one(high[0])} at {high[1]:g}"
            )
    return "; ".join(texts) + "."


# ------------------------------------------------------------------ parts of an audit


def ratio_figures(table: BiasTable, words: Words, name: str) -> list[Figure]:
    """Return the impact ratios of a table; none if no category has one."""
    ratios = {row.category: row.impact_ratio for row in table.rows if not row.left_out}
    if all(ratio.value is None for ratio in ratios.values()):
        return []
    shown = dict(list(ratios.items())[:_MOST_CATEGORIES])
    chart = interval_chart(
        [IntervalRow(label=category, number=ratio) for category, ratio in shown.items()],
        name=name,
        title=f"Impact ratios, {table.title}",
        description="; ".join(f"{c} {PLAIN.one(ratio.value)}" for c, ratio in shown.items()) + ".",
        form="{:.2f}".format,
        tick_form="{:g}".format,
        guides=[Guide(value=FOUR_FIFTHS, label="four fifths (29 CFR 1607.4(D))")],
        zero=True,
    )
    return [Figure(title="Impact ratio", meaning=words.meaning("impact_ratio"), chart=chart)]


def sweep_figures(sweep: Sweep, judgements: Sequence[Judgement], words: Words) -> list[Figure]:
    """Return the judged violations, accuracy, and each attribute's selection rates."""
    thresholds = [row.threshold for row in sweep.rows]
    used = [] if sweep.used is None else [Guide(value=sweep.used, label=f"used: {sweep.used:g}")]
    tolerance = next((judgement.tolerance for judgement in judgements), None)
    violations = {
        words.label(name): [row.measures.get(name) for row in sweep.rows]
        for name in (judgement.measure.name for judgement in judgements)
    }
    accuracy: Curves = {words.label("accuracy"): [row.accuracy for row in sweep.rows]}
    panels: list[tuple[str, str, Curves, Unit]] = [
        ("Violation", _GAP, violations, POINTS),
        ("Accuracy", words.meaning("accuracy"), accuracy, SHARE),
    ]
    for attribute in dict.fromkeys(name for row in sweep.rows for name in row.groups):
        title, meaning = f"Selection rate by {attribute}", words.meaning("selection_rate")
        panels.append((title, meaning, _selection_rates(sweep, attribute), SHARE))
    return [
        curves_figure(
            thresholds,
            curves,
            unit,
            name=f"sweep-{i}",
            title=title,
            meaning=meaning,
            across="threshold",
            marks=used,
            guides=tolerance_guide(tolerance, POINTS) if title == "Violation" else [],
        )
        for i, (title, meaning, curves, unit) in enumerate(panels)
        if has_values(curves)
    ]


def _selection_rates(sweep: Sweep, attribute: str) -> dict[str, list[Number]]:
    by_threshold = [row.groups.get(attribute, {}) for row in sweep.rows]
    groups = dict.fromkeys(group for numbers in by_threshold for group in numbers)
    return {
        group: [numbers.get(group, {}).get("selection_rate") for numbers in by_threshold]
        for group in groups
    }


def drift_figures(changes: Sequence[DriftRow], words: Words) -> list[Figure]:
    """Return the changes that chance hardly explains, with their intervals."""
    notable = [c for c in changes if c.beyond_chance and unit_of(c.number) in (SHARE, POINTS)]
    if not notable:
        return []
    rows = [
        IntervalRow(
            label=" – ".join(filter(None, (whom(change), words.label(change.number).lower()))),
            number=Measured(name=change.number, value=change.change, interval=change.interval),
        )
        for change in notable[:_MOST_CHANGES]
    ]
    title = "Changes that chance hardly explains"
    chart = interval_chart(
        rows,
        name="drift",
        title=title,
        description="; ".join(f"{r.label} {SHARE.change(r.number.value)}" for r in rows) + ".",
        form=lambda value: SHARE.change(value).removesuffix(POINTS.mark),
        tick_form=POINTS.tick,
        guides=[Guide(value=0.0, label="no change")],
        bounds=(-math.inf, math.inf),
    )
    meaning = "In percentage points, with intervals."
    if len(rows) < len(notable):
        meaning += f" The first {len(rows)} of {len(notable)} are shown; the table has all."
    return [Figure(title=title, meaning=meaning, chart=chart)]
