"""The figures of a run's page, each with its title and its meaning in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from mfairfl.fairness.results import Measured
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
from mfairfl.report.document import Change, ComparedModel, Document, TrainingHistory
from mfairfl.report.page.run_tables import curve_unit
from mfairfl.report.page.shared_figures import Figure, tolerance_guide, written
from mfairfl.report.page.wording import COUNT, PLAIN, POINTS, SHARE, Unit, Words, capital, unit_of

_OF_GROUPS = ("selection_rate", "true_positive_rate", "accuracy")
_MOST_ROWS = 60
_MOST_CURVES = 12


def plane_figures(report: Document, words: Words) -> list[Figure]:
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
            across=f"{words.label(number)}{', points' * (unit is POINTS)}",
            up="accuracy",
            across_form=unit.tick,
            up_form=unit_of("accuracy").tick,
            floor=floors[0],
            guides=tolerance_guide(tolerances.get(number), unit),
        )
        title = "Accuracy and violation"
        meaning = "Better is up and to the left. Whiskers are intervals."
        figures.append(Figure(title=title, meaning=meaning, chart=chart))
    return figures


def _plane_point(model: ComparedModel, number: str) -> PlanePoint | None:
    violation, accuracy = model.numbers.get(number), model.numbers.get("accuracy")
    if violation is None or accuracy is None or violation.value is None or accuracy.value is None:
        return None
    return PlanePoint(label=model.name, across=violation, up=accuracy, comparable=model.same_rows)


def change_figures(report: Document, words: Words) -> list[Figure]:
    """Return, for each number, what it was with the baseline and what it is now."""
    figures = []
    wanted = [("group", number) for number in _OF_GROUPS]
    wanted += [("client", number) for number in ("accuracy", *report.goal)]
    known = {(change.part, change.number) for change in report.changes}
    for part, number in (kind for kind in wanted if kind in known):
        changes = [c for c in report.changes if (c.part, c.number) == (part, number)]
        figures.append(_change_figure(changes, report.baseline, words))
    return figures


def _change_figure(changes: Sequence[Change], baseline: str, words: Words) -> Figure:
    number, part = changes[0].number, changes[0].part
    unit = unit_of(number)
    known = [change for change in changes if change.after is not None]
    rows = [
        IntervalRow(label=c.whom, number=Measured(name=number, value=c.after), before=c.before)
        for c in known
    ]
    spoken = "; ".join(
        f"{c.whom}: {unit.one(c.before)} before, {unit.one(c.after)} now" for c in known[:10]
    )
    title = f"{words.label(number)} of each {part}"
    chart = interval_chart(
        rows[:_MOST_ROWS],
        name=f"change-{part}-{number}",
        title=f"{title}, with {baseline} and with this model",
        description=f"{spoken}.",
        form=written(unit),
        tick_form=unit.tick,
        bounds=(0.0, 1.0 if unit is SHARE else math.inf),
        before=baseline,
    )
    return Figure(title=title, meaning=words.meaning(number), chart=chart)


def course_figures(report: Document, words: Words) -> list[Figure]:
    """Return the curves over the rounds and the clients' coefficients."""
    course = report.training
    figures: list[Figure] = []
    if course is None:
        return figures
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
        meaning = words.meaning("multipliers") or "The price that training put on each constraint."
        figures.append(_curves(course, course.multipliers, "Multipliers", meaning, PLAIN))
    if _has_values([course.conflicts]):
        meaning = words.meaning("conflicts") or "Pairs of clients whose updates disagreed."
        curves = {"pairs of clients": course.conflicts}
        figures.append(_curves(course, curves, "Conflicts", meaning, COUNT))
    if _has_values(course.coefficients.values()):
        figures.append(_strips(course))
    return figures


def _curves(
    course: TrainingHistory,
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
        # After most rounds not all rows are measured.
        [Series(label=name, values=values, joined=True) for name, values in shown.items()],
        name=f"course-{title.lower()}",
        title=f"{title} over {len(course.rounds)} rounds",
        description=_spoken_curves(shown, unit) + _spoken_served(course),
        form=unit.tick,
        across="round",
        marks=_served(course),
        zero=title in ("Violation", "Conflicts"),
        whole=unit is COUNT,
    )
    return Figure(title=title, meaning=meaning, chart=chart)


def _strips(course: TrainingHistory) -> Figure:
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


def _has_values(curves: Iterable[Sequence[float | None]]) -> bool:
    return any(value is not None for values in curves for value in values)


def _reach(values: Sequence[float | None]) -> float:
    return max((abs(value) for value in values if value is not None), default=0.0)


def _served(course: TrainingHistory) -> list[Guide]:
    if len(course.served) != 1:
        return []
    return [Guide(value=course.served[0], label=f"served: round {course.served[0]}")]


def _spoken_served(course: TrainingHistory) -> str:
    if not course.served:
        return ""
    rounds = ", ".join(str(number) for number in course.served[:10])
    return f" The model is that of round {rounds}."


def _spoken_plane(points: Sequence[PlanePoint], unit: Unit) -> str:
    accuracy = unit_of("accuracy")
    return "; ".join(
        f"{point.label}: accuracy {accuracy.one(point.up.value)}, "
        f"violation {unit.one(point.across.value)}"
        for point in points[:12]
    ) + "."  # fmt: skip


def _spoken_curves(curves: Mapping[str, Sequence[float | None]], unit: Unit) -> str:
    said = []
    for name, values in curves.items():
        known = [value for value in values if value is not None]
        if known:
            said.append(f"{name}: from {unit.one(known[0])} to {unit.one(known[-1])}")
    return "; ".join(said) + "."
