"""Figures that reports and audits share: goals, groups, clients, with their meaning in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from mfairfl.fairness.results import Measured, Section, Slice
from mfairfl.report.charts import Form, Guide, IntervalRow, interval_chart
from mfairfl.report.document import Judgement
from mfairfl.report.page.wording import POINTS, SHARE, Unit, Words, capital, unit_of

_RATES = (
    "selection_rate",
    "scoring_rate",
    "accuracy",
    "true_positive_rate",
    "false_positive_rate",
    "expected_calibration_error",
)
_IN_POINTS = "In percentage points."
_MOST_ROWS = 60


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


def goal_figures(
    judgements: Sequence[Judgement],
    words: Words,
    subject: str,
    others: Mapping[str, Mapping[str, Measured]],
) -> list[Figure]:
    """Return each goal's violation against its tolerance.

    Parameters
    ----------
    judgements
        The goals.
    words
        What numbers are called.
    subject
        Whose violation it is.
    others
        The numbers of models to show beside it, by the model's name.
    """
    figures = []
    for i, judgement in enumerate(judgements):
        number = judgement.measure
        unit = unit_of(number.name)
        rows = {subject: number}
        rows |= {
            name: found[number.name] for name, found in others.items() if number.name in found
        }
        guides = tolerance_guide(judgement.tolerance, unit)
        chart = interval_chart(
            [IntervalRow(label=label, number=measured) for label, measured in rows.items()],
            name=f"goal-{i}",
            title=words.label(number.name),
            description=_spoken(list(rows.values()), list(rows))
            + (f" The tolerance is {unit.one(judgement.tolerance)}." if guides else ""),
            form=unit.bare,
            tick_form=unit.tick,
            guides=guides,
            zero=True,
        )
        meaning = f"{words.meaning(number.name)} {_IN_POINTS * (unit is POINTS)}".strip()
        figures.append(Figure(title=words.label(number.name), meaning=meaning, chart=chart))
    return figures


def group_figures(
    section: Section, overall: Sequence[Measured], words: Words, name: str
) -> list[Figure]:
    """Return one chart of the violations, and one for each rate."""
    found = {number.name: number for number in overall}
    rates = [
        _slices_figure(
            section.groups, rate, words, name=f"{name}-{rate}", by=section.attribute,
            overall=found.get(rate),
        )
        for rate in _RATES
        if _known(section.groups, rate)
    ]  # fmt: skip
    return [*_violations(section, name), *rates]


def _violations(section: Section, name: str) -> list[Figure]:
    numbers = [
        number
        for number in section.measures
        if number.name.endswith("_violation") and unit_of(number.name) is POINTS
    ]
    if all(number.value is None for number in numbers):
        return []
    labels = [_notion_label(number.name) for number in numbers]
    chart = interval_chart(
        [
            IntervalRow(label=label, number=number)
            for label, number in zip(labels, numbers, strict=True)
        ],
        name=f"{name}-violations",
        title=f"Violations by {section.attribute}",
        description=_spoken(numbers, labels),
        form=POINTS.bare,
        tick_form=POINTS.tick,
        zero=True,
    )
    meaning = "The largest distance of any group from everyone, in percentage points."
    return [Figure(title="Violations", meaning=meaning, chart=chart)]


def client_figures(
    clients: Sequence[Slice],
    overall: Sequence[Measured],
    judgements: Sequence[Judgement],
    words: Words,
) -> list[Figure]:
    """Return each client's accuracy, or else its selection rate, and the goals' violations."""
    tolerances = {judgement.measure.name: judgement.tolerance for judgement in judgements}
    found = {number.name: number for number in overall}
    rate = "accuracy" if _known(clients, "accuracy") else "selection_rate"
    return [
        _slices_figure(
            clients, number, words, name=f"client-{number}", by="client",
            overall=found.get(number), tolerance=tolerances.get(number),
        )
        for number in (rate, *tolerances)
        if _known(clients, number)
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
    known = [(part.name, part.numbers[number]) for part in slices if number in part.numbers]
    shown = _extremes(known)
    guides = tolerance_guide(tolerance, unit)
    if overall is not None and overall.value is not None and not number.endswith("_violation"):
        guides.append(Guide(value=overall.value, label=f"everyone {unit.one(overall.value)}"))
    few = len(shown) < len(known)
    fewer = f"The {len(shown)} most extreme of {len(known)} are shown." if few else ""
    chart = interval_chart(
        [IntervalRow(label=part, number=measured) for part, measured in shown],
        name=name,
        title=f"{label} by {by}",
        description=f"{_spoken([m for _, m in known], [part for part, _ in known])} {fewer}",
        form=written(unit),
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


def _notion_label(violation: str) -> str:
    return capital(violation.removesuffix("_violation").replace("_", " "))


def written(unit: Unit) -> Form:
    """Return how values stand in a figure, whose text names the unit of points."""
    return unit.one if unit is SHARE else unit.bare


def _extremes(known: list[tuple[str, Measured]]) -> list[tuple[str, Measured]]:
    """Return all if they are few; else the lowest and the highest, in their own order."""
    if len(known) <= _MOST_ROWS:
        return known
    half = _MOST_ROWS // 2
    order = sorted(
        range(len(known)), key=lambda i: (known[i][1].value is None, known[i][1].value or 0)
    )
    kept = {*order[:half], *order[-half:]}
    return [item for i, item in enumerate(known) if i in kept]


def _known(slices: Sequence[Slice], number: str) -> bool:
    found = (part.numbers.get(number) for part in slices)
    return any(measured is not None and measured.value is not None for measured in found)


def _spoken(numbers: Sequence[Measured], labels: Sequence[str]) -> str:
    """Say the lowest and the highest of many, or all of few."""
    known = [(label, n) for label, n in zip(labels, numbers, strict=True) if n.value is not None]
    if not known:
        return "No value is defined."
    known.sort(key=lambda item: item[1].value or 0.0)
    few = known if len(known) <= 3 else [known[0], known[-1]]
    said = "; ".join(f"{label} {_with_interval(number)}" for label, number in few)
    return f"{said}." if few is known else f"Of {len(known)}, from {said}."


def _with_interval(number: Measured) -> str:
    unit = unit_of(number.name)
    between = f", interval {unit.span(number.interval)}" if number.interval else ""
    return f"{unit.one(number.value)}{between}"
