"""Figures of the parts that only the report of a run has: models, changes, training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from mfairfl.display.numbers import COUNT, PLAIN, POINTS, SHARE, Unit, unit_of
from mfairfl.fairness.results import Measured
from mfairfl.files import write_atomically
from mfairfl.report.body_figures import (
    Curves,
    Figure,
    curves_figure,
    has_values,
    in_figure,
    spoken_curves,
    tolerance_guide,
)
from mfairfl.report.charts import (
    Guide,
    IntervalRow,
    PlanePoint,
    interval_chart,
    plane_chart,
    strip_chart,
    svg_file,
)
from mfairfl.report.definitions import Words, define
from mfairfl.report.document import Change, ComparedModel, Document, TrainingHistory
from mfairfl.report.reported_run import read_runs
from mfairfl.report.training_history import training_history
from mfairfl.report.training_tables import curve_unit

_OF_GROUPS = ("selection_rate", "true_positive_rate", "accuracy")
_MOST_ROWS = 60
_MOST_SPOKEN = 10


def plane_figures(report: Document, words: Words) -> list[Figure]:
    """Return the plane of accuracy and each of the goal's violations."""
    tolerances = {j.measure.name: j.tolerance for j in report.headline.judgements}
    accuracy = unit_of("accuracy")
    figures = []
    for number in report.goal:
        points = [point for m in report.compared if (point := _plane_point(m, number))]
        if len(points) < 2:
            continue
        unit, label = unit_of(number), words.label(number)
        spoken = [
            f"{point.label}: accuracy {accuracy.one(point.up.value)}, "
            f"violation {unit.one(point.across.value)}"
            for point in points[:_MOST_SPOKEN]
        ]
        chart = plane_chart(
            points,
            name=f"plane-{number}",
            title=f"Accuracy and {label} of {len(points)} models",
            description=f"{'; '.join(spoken)}.",
            across=f"{label}{', points' * (unit is POINTS)}",
            up="accuracy",
            across_form=unit.tick,
            up_form=accuracy.tick,
            floor=points[0].across.noise_floor,
            guides=tolerance_guide(tolerances.get(number), unit),
        )
        meaning = "Better is up and to the left. Whiskers are intervals."
        figures.append(Figure(title="Accuracy and violation", meaning=meaning, chart=chart))
    return figures


def _plane_point(model: ComparedModel, number: str) -> PlanePoint | None:
    violation, accuracy = model.numbers.get(number), model.numbers.get("accuracy")
    if violation is None or accuracy is None or violation.value is None or accuracy.value is None:
        return None
    return PlanePoint(label=model.name, across=violation, up=accuracy, comparable=model.same_rows)


def change_figures(report: Document, words: Words) -> list[Figure]:
    """Return, for each number, what it was with the baseline and what it is now."""
    by_kind: dict[tuple[str, str], list[Change]] = {}
    for change in report.changes:
        by_kind.setdefault((change.part, change.number), []).append(change)
    kinds = [("group", number) for number in _OF_GROUPS]
    kinds += [("client", number) for number in ("accuracy", *report.goal)]
    return [
        _change_figure(by_kind[kind], report.baseline, words) for kind in kinds if kind in by_kind
    ]


def _change_figure(changes: Sequence[Change], baseline: str, words: Words) -> Figure:
    number, part = changes[0].number, changes[0].part
    unit = unit_of(number)
    measured = [change for change in changes if change.after is not None]
    rows = [
        IntervalRow(label=c.whom, number=Measured(name=number, value=c.after), before=c.before)
        for c in measured
    ]
    spoken = [
        f"{c.whom}: {unit.one(c.before)} before, {unit.one(c.after)} now"
        for c in measured[:_MOST_SPOKEN]
    ]
    title = f"{words.label(number)} of each {part}"
    chart = interval_chart(
        rows[:_MOST_ROWS],
        name=f"change-{part}-{number}",
        title=f"{title}, with {baseline} and with this model",
        description=f"{'; '.join(spoken)}.",
        form=in_figure(unit),
        tick_form=unit.tick,
        bounds=(0.0, 1.0 if unit is SHARE else math.inf),
        before=baseline,
    )
    return Figure(title=title, meaning=words.meaning(number), chart=chart)


def training_figures(history: TrainingHistory, goal: Sequence[str], words: Words) -> list[Figure]:
    """Return the curves over the rounds and the clients' coefficients."""
    accuracy, violation = (
        {
            name.partition("_")[0]: values
            for name, values in history.curves.items()
            if name.endswith(measure)
        }
        for measure in ("accuracy", "violation")
    )
    prices = words.meaning("multipliers") or "The price that training put on each constraint."
    conflicts = words.meaning("conflicts") or "Pairs of clients whose updates disagreed."
    panels: list[tuple[str, str, Curves, Unit]] = [
        ("Accuracy", words.meaning("accuracy"), accuracy, SHARE),
        ("Violation", words.meaning(goal[0]) if goal else "", violation, curve_unit("_violation")),
        ("Multipliers", prices, history.multipliers, PLAIN),
        ("Conflicts", conflicts, {"pairs of clients": history.conflicts}, COUNT),
    ]
    figures = [
        curves_figure(
            history.rounds,
            curves,
            unit,
            name=f"course-{title.lower()}",
            title=title,
            meaning=meaning,
            across="round",
            marks=_served(history),
            zero=title in ("Violation", "Conflicts"),
            joined=True,  # after most rounds not all rows are measured
            whole=unit is COUNT,
        )
        for title, meaning, curves, unit in panels
        if has_values(curves)
    ]
    if has_values(history.coefficients):
        figures.append(_coefficients(history))
    return figures


def _coefficients(history: TrainingHistory) -> Figure:
    coefficients = history.coefficients
    shown = {name: coefficients[name] for name in list(coefficients)[:_MOST_ROWS]}
    places = [  # before the first round no client counts
        i
        for i in range(len(history.rounds))
        if any(values[i] is not None for values in coefficients.values())
    ]
    spoken = {name: shown[name] for name in list(shown)[:_MOST_SPOKEN]}
    chart = strip_chart(
        [history.rounds[i] for i in places],
        {name: [values[i] for i in places] for name, values in shown.items()},
        name="course-coefficients",
        title=f"Coefficients of {len(shown)} clients over {len(history.rounds)} rounds",
        description=spoken_curves(history.rounds, spoken, PLAIN),
        form=PLAIN.bare,
        across="round",
        marks=_served(history),
    )
    meaning = "How much each client's update counted in each round; darker is more."
    if len(shown) < len(coefficients):
        meaning += f" The first {len(shown)} of {len(coefficients)} clients are shown."
    return Figure(title="Weight of each client", meaning=meaning, chart=chart)


def _served(history: TrainingHistory) -> list[Guide]:
    if len(history.served) != 1:
        return []
    return [Guide(value=history.served[0], label=f"served: round {history.served[0]}")]


def draw_training(run: str | Path) -> list[Path]:
    """Draw a finished run's curves over the rounds, and how much each client counted.

    Returns
    -------
    list of Path
        rounds.svg and clients.svg in the run's folder; only those that there are rounds for.

    Examples
    --------
    >>> draw_training("runs/adult")  # doctest: +SKIP
    [PosixPath('runs/adult/rounds.svg'), PosixPath('runs/adult/clients.svg')]
    """
    (judged,) = read_runs([run])
    goal = judged.aim.measures
    history = training_history(judged)
    words = Words(define(["accuracy", *goal, "multipliers", "conflicts"]))
    figures = training_figures(history, goal, words)
    coefficients = [figures.pop()] if has_values(history.coefficients) else []
    files = []
    for name, drawn in (("rounds.svg", figures), ("clients.svg", coefficients)):
        if drawn:
            files.append(judged.path / name)
            write_atomically(files[-1], svg_file([figure.chart for figure in drawn]).encode())
    return files
