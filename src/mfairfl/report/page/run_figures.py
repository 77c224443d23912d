"""The figures of a run's page, each with its title and its meaning in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from mfairfl.report.charts import (
    Guide,
    IntervalRow,
    PlanePoint,
    Series,
    interval_chart,
    line_chart,
    plane_chart,
    strip_chart,
)
from mfairfl.report.charts.marks import Form
from mfairfl.report.document import (
    Change,
    ComparedModel,
    Measured,
    RunReport,
    Section,
    Slice,
    TrainingCourse,
)
from mfairfl.report.page.run_tables import curve_unit
from mfairfl.report.page.wording import PLAIN, POINTS, Unit, Words, capital, unit_of

__all__ = [
    "Figure",
    "change_figures",
    "client_figures",
    "course_figures",
    "goal_figures",
    "group_figures",
    "plane_figures",
]

_RATES = (
    "selection_rate",
    "accuracy",
    "true_positive_rate",
    "false_positive_rate",
    "expected_calibration_error",
)
_IN_POINTS = "In percentage points."
_MOST_ROWS = 60
_MOST_CURVES = 12


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


def goal_figures(report: RunReport, words: Words) -> list[Figure]:
    """Return each goal's violation against its tolerance, the baseline's beside it."""
    figures = []
    models = {model.name: model for model in report.compared if model.kind != "this"}
    for i, judgement in enumerate(report.headline.judgements):
        number = judgement.measure
        unit = unit_of(number.name)
        rows = {"this model": number}
        if (baseline := models.get(report.baseline)) and number.name in baseline.numbers:
            rows[report.baseline] = baseline.numbers[number.name]
        guides = _tolerance(judgement.tolerance, unit)
        chart = interval_chart(
            [_row(label, measured) for label, measured in rows.items()],
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


def group_figures(report: RunReport, section: Section, words: Words, name: str) -> list[Figure]:
    """Return one chart for each rate, and one of the violations."""
    overall = {number.name: number for number in report.overall}
    figures = [
        _slices_figure(section.groups, rate, f"{name}-{rate}", words, overall=overall.get(rate))
        for rate in _RATES
        if any(rate in group.numbers for group in section.groups)
    ]
    violations = [
        number
        for number in section.measures
        if number.name.endswith("_violation") and unit_of(number.name).mark != PLAIN.mark
    ]
    if violations:
        labels = [_notion_label(number.name) for number in violations]
        chart = interval_chart(
            [_row(label, number) for label, number in zip(labels, violations, strict=True)],
            name=f"{name}-violations",
            title=f"Violations on {section.attribute}",
            description=_spoken(violations, labels),
            form=unit_of(violations[0].name).bare,
            tick_form=unit_of(violations[0].name).tick,
            zero=True,
        )
        meaning = "The largest distance of any group from everyone, in percentage points."
        figures.insert(0, Figure(title="Violations", meaning=meaning, chart=chart))
    return figures


def client_figures(report: RunReport, words: Words) -> list[Figure]:
    """Return the accuracy and the goal's violations of each client."""
    tolerances = {j.measure.name: j.tolerance for j in report.headline.judgements}
    overall = {number.name: number for number in report.overall}
    return [
        _slices_figure(
            report.clients, number, f"client-{number}", words, overall=overall.get(number),
            tolerance=tolerances.get(number),
        )
        for number in ("accuracy", *report.goal)
        if any(number in client.numbers for client in report.clients)
    ]  # fmt: skip


def _slices_figure(
    slices: Sequence[Slice],
    number: str,
    name: str,
    words: Words,
    *,
    overall: Measured | None,
    tolerance: float | None = None,
) -> Figure:
    unit = unit_of(number)
    known = [(part.name, part.numbers[number]) for part in slices if number in part.numbers]
    shown = _extremes(known)
    guides = _tolerance(tolerance, unit)
    if overall is not None and overall.value is not None and not number.endswith("_violation"):
        guides.append(Guide(value=overall.value, label=f"everyone {unit.one(overall.value)}"))
    fewer = f" The {len(shown)} most extreme of {len(known)} are shown." * (
        len(shown) < len(known)
    )
    chart = interval_chart(
        [_row(label, measured) for label, measured in shown],
        name=name,
        title=words.label(number),
        description=_spoken([m for _, m in known], [label for label, _ in known]) + fewer,
        form=_written(unit),
        tick_form=unit.tick,
        guides=guides,
        zero=number.endswith(("_violation", "_error")),
        bounds=(0.0, 1.0 if unit.mark == "%" else math.inf),
    )
    parts = [words.meaning(number), _IN_POINTS * (unit is POINTS), fewer]
    meaning = " ".join(part.strip() for part in parts if part)
    return Figure(title=words.label(number), meaning=meaning, chart=chart)


def plane_figures(report: RunReport, words: Words) -> list[Figure]:
    """Return the plane of accuracy and each of the goal's violations."""
    figures = []
    tolerances = {j.measure.name: j.tolerance for j in report.headline.judgements}
    for number in report.goal:
        points = [point for m in report.compared if (point := _plane_point(m, number))]
        if len(points) < 2:
            continue
        unit = unit_of(number)
        floors = [m.numbers[number].noise_floor for m in report.compared if number in m.numbers]
        chart = plane_chart(
            points,
            name=f"plane-{number}",
            title=f"Accuracy and {words.label(number)} of {len(points)} models",
            description=_spoken_plane(points, unit),
            across=f"{words.label(number)}{', points' * (unit.mark != PLAIN.mark)}",
            up="accuracy",
            across_form=unit.tick,
            up_form=unit_of("accuracy").tick,
            floor=floors[0],
            guides=_tolerance(tolerances.get(number), unit),
        )
        title = f"Accuracy and {words.label(number).lower()}"
        meaning = "Better is up and to the left. Whiskers are intervals."
        figures.append(Figure(title=title, meaning=meaning, chart=chart))
    return figures


def _plane_point(model: ComparedModel, number: str) -> PlanePoint | None:
    violation, accuracy = model.numbers.get(number), model.numbers.get("accuracy")
    if violation is None or accuracy is None or violation.value is None or accuracy.value is None:
        return None
    return PlanePoint(
        label=model.name,
        across=violation.value,
        up=accuracy.value,
        across_interval=violation.interval,
        up_interval=accuracy.interval,
        comparable=model.same_rows,
    )


def change_figures(report: RunReport, words: Words) -> list[Figure]:
    """Return, for each number, what it was with the baseline and what it is now."""
    figures = []
    kinds = dict.fromkeys((c.part, c.number) for c in report.changes if c.part != "all")
    for part, number in kinds:
        changes = [c for c in report.changes if (c.part, c.number) == (part, number)]
        figures.append(_change_figure(changes, report.baseline, words))
    return figures


def _change_figure(changes: Sequence[Change], baseline: str, words: Words) -> Figure:
    number, part = changes[0].number, changes[0].part
    unit = unit_of(number)
    known = [change for change in changes if change.after is not None]
    rows = [IntervalRow(label=c.whom, point=c.after, before=c.before) for c in known]
    spoken = "; ".join(
        f"{c.whom}: {unit.one(c.before)} before, {unit.one(c.after)} now" for c in known[:10]
    )
    title = f"{words.label(number)} of each {part}"
    chart = interval_chart(
        rows[:_MOST_ROWS],
        name=f"change-{part}-{number}",
        title=f"{title}, with {baseline} and with this model",
        description=f"{spoken}.",
        form=_written(unit),
        tick_form=unit.tick,
        bounds=(0.0, 1.0 if unit.mark == "%" else math.inf),
        before=baseline,
    )
    return Figure(title=title, meaning=words.meaning(number), chart=chart)


def course_figures(report: RunReport, words: Words) -> list[Figure]:
    """Return the curves over the rounds and the clients' coefficients."""
    course = report.training
    figures = []
    for measure, meaning in (
        ("accuracy", words.meaning("accuracy")),
        ("violation", words.meaning(report.goal[0]) if report.goal else ""),
    ):
        curves = {n.partition("_")[0]: v for n, v in course.curves.items() if n.endswith(measure)}
        if _has_values(curves.values()):
            figures.append(
                _curves(course, curves, capital(measure), meaning, curve_unit(f"_{measure}"))
            )
    if _has_values(course.multipliers.values()):
        figures.append(
            _curves(course, course.multipliers, "Multipliers", "The price that training put on "
                    "each constraint: the further from zero, the harder it pulled.", PLAIN)
        )  # fmt: skip
    if _has_values([course.conflicts]):
        figures.append(
            _curves(course, {"pairs of clients in conflict": course.conflicts}, "Conflicts",
                    "Pairs of clients whose updates pointed against each other.",
                    Unit(1.0, 0, ""))
        )  # fmt: skip
    if _has_values(course.coefficients.values()):
        figures.append(_strips(course))
    return figures


def _curves(
    course: TrainingCourse,
    curves: Mapping[str, Sequence[float | None]],
    title: str,
    meaning: str,
    unit: Unit,
) -> Figure:
    shown = dict(sorted(curves.items(), key=lambda item: -_reach(item[1]))[:_MOST_CURVES])
    shown = {name: values for name, values in curves.items() if name in shown}
    if len(shown) < len(curves):
        meaning += f" The {len(shown)} strongest of {len(curves)} are shown; the table has all."
    chart = line_chart(
        course.rounds,
        [Series(label=name, values=values) for name, values in shown.items()],
        name=f"course-{title.lower()}",
        title=f"{title} over {len(course.rounds)} rounds",
        description=_spoken_curves(shown, unit) + _spoken_served(course),
        form=unit.tick,
        across="round",
        marks=_served(course),
        zero=title in ("Violation", "Conflicts"),
    )
    return Figure(title=title, meaning=meaning, chart=chart)


def _strips(course: TrainingCourse) -> Figure:
    names = list(course.coefficients)[:_MOST_ROWS]
    kept = [  # before the first round nobody counts
        i
        for i in range(len(course.rounds))
        if any(values[i] is not None for values in course.coefficients.values())
    ]
    chart = strip_chart(
        [course.rounds[i] for i in kept],
        {name: [course.coefficients[name][i] for i in kept] for name in names},
        name="course-coefficients",
        title=f"Coefficients of {len(names)} clients over {len(course.rounds)} rounds",
        description=_spoken_curves({name: course.coefficients[name] for name in names[:10]}, PLAIN)
        + _spoken_served(course),
        form=PLAIN.bare,
        across="round",
        marks=_served(course),
    )
    meaning = "How much each client's update counted in each round; darker is more."
    if len(names) < len(course.coefficients):
        meaning += f" The first {len(names)} of {len(course.coefficients)} clients are shown."
    return Figure(title="Weight of each client", meaning=meaning, chart=chart)


def _row(label: str, number: Measured) -> IntervalRow:
    return IntervalRow(
        label=label, point=number.value, interval=number.interval, floor=number.noise_floor
    )


def _tolerance(tolerance: float | None, unit: Unit) -> list[Guide]:
    if tolerance is None:
        return []
    return [Guide(value=tolerance, label=f"tolerance {unit.one(tolerance)}", kind="limit")]


def _notion_label(violation: str) -> str:
    return capital(violation.removesuffix("_violation").replace("_", " "))


def _written(unit: Unit) -> Form:
    """Points are written without their unit, which the figure's text names."""
    return unit.one if unit.mark == "%" else unit.bare


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


def _has_values(curves: Iterable[Sequence[float | None]]) -> bool:
    return any(value is not None for values in curves for value in values)


def _reach(values: Sequence[float | None]) -> float:
    return max((abs(value) for value in values if value is not None), default=0.0)


def _served(course: TrainingCourse) -> list[Guide]:
    if len(course.served) != 1:
        return []
    return [Guide(value=course.served[0], label=f"served: round {course.served[0]}")]


def _spoken_served(course: TrainingCourse) -> str:
    if not course.served:
        return ""
    rounds = ", ".join(str(number) for number in course.served[:10])
    return f" The model is that of round {rounds}."


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


def _spoken_plane(points: Sequence[PlanePoint], unit: Unit) -> str:
    accuracy = unit_of("accuracy")
    return "; ".join(
        f"{point.label}: accuracy {accuracy.one(point.up)}, violation {unit.one(point.across)}"
        for point in points[:12]
    ) + "."  # fmt: skip


def _spoken_curves(curves: Mapping[str, Sequence[float | None]], unit: Unit) -> str:
    said = []
    for name, values in curves.items():
        known = [value for value in values if value is not None]
        if known:
            said.append(f"{name}: from {unit.one(known[0])} to {unit.one(known[-1])}")
    return "; ".join(said) + "."
