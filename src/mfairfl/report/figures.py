"""The figures of a document: each has a title, its meaning, and a description in words."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from mfairfl.display.numbers import COUNT, PLAIN, POINTS, SHARE, Unit, capital, unit_of
from mfairfl.experiments.tradeoff import Curve, Tradeoff
from mfairfl.fairness.results import Measured, Number, Section, Slice
from mfairfl.files import write_atomically
from mfairfl.report import document as forms
from mfairfl.report.charts.curves import Curves, line_chart, strip_chart
from mfairfl.report.charts.drawing import Guide, picture, svg_file
from mfairfl.report.charts.points import interval_chart, plane_chart
from mfairfl.report.charts.tradeoff import tradeoff_chart
from mfairfl.report.document import Document, TrainingHistory
from mfairfl.report.reported_run import read_runs
from mfairfl.report.tables import curve_unit, whom
from mfairfl.report.training_history import training_history
from mfairfl.report.wording import Words, define, label_of

FOUR_FIFTHS = 0.8
_RATIO = Unit(1.0, 2)

_RATES = (
    "selection_rate",
    "scoring_rate",
    "accuracy",
    "true_positive_rate",
    "false_positive_rate",
    "expected_calibration_error",
)
_CHANGED_OF_GROUPS = ("selection_rate", "true_positive_rate", "accuracy")
_MOST_ROWS = 60
_MOST_CURVES = 12
_MOST_CHANGES = 12
_MOST_SPOKEN = 10


Rows = Sequence[tuple[str, Measured]]
"""Labels and numbers."""


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


# ------------------------------------------------------------------ rows of numbers


def _interval_figure(
    rows: Rows,
    unit: Unit,
    *,
    name: str,
    title: str,
    detail: str = "",
    meaning: str = "",
    guides: Sequence[Guide] = (),
    zero: bool = False,
    before: Sequence[Number] = (),
    baseline: str = "",
    most: int = _MOST_ROWS,
) -> Figure:
    """Return a figure with one row for each number; of many, the lowest and the highest.

    Parameters
    ----------
    rows
        Labels and numbers.
    unit
        How the numbers are written.
    name
        Of the chart in the page.
    title, detail
        What the figure shows; the detail is for screen readers alone.
    meaning
        What the numbers mean.
    most
        How many rows are shown.
    guides, zero, before, baseline
        As in `interval_chart`.
    """
    shown = _extremes(rows, most)
    fewer = f"The {len(shown)} most extreme of {len(rows)} are shown." * (len(shown) < len(rows))
    in_points = "In percentage points." * (unit.mark == POINTS.mark)
    lines = [f"Line: {guide.label}." for guide in guides]
    earlier = [f", {unit.one(value)} with {baseline}, now" for value in before]
    spoken = [
        (label + more, number)
        for (label, number), more in zip(rows, earlier or [""] * len(rows), strict=True)
    ]
    description = " ".join(filter(None, [_spoken(spoken, unit), *lines, fewer]))
    chart = interval_chart(shown, unit, guides=guides, zero=zero, before=before, baseline=baseline)
    return Figure(
        title=title,
        meaning=" ".join(filter(None, [meaning, in_points, fewer])),
        chart=picture(name, title + detail, description, chart),
    )


def _extremes(rows: Rows, most: int) -> Rows:
    """Return the lowest and the highest of too many rows, in their order."""
    if len(rows) <= most:
        return rows
    values = [number.value for _, number in rows]
    order = sorted(range(len(rows)), key=lambda i: (values[i] is None, values[i] or 0))
    return [rows[i] for i in sorted({*order[: most // 2], *order[-(most // 2) :]})]


def _spoken(rows: Rows, unit: Unit) -> str:
    """Return the lowest and the highest of many numbers, or all of few."""
    defined = [(label, number) for label, number in rows if number.value is not None]
    defined.sort(key=lambda item: item[1].value or 0.0)
    texts = []
    for label, number in defined:
        interval = f", interval {unit.span(number.interval)}" * (number.interval is not None)
        texts.append(f"{label} {unit.one(number.value)}{interval}")
    if len(texts) > 3:
        return f"{len(texts)} values: {texts[0]} to {texts[-1]}."
    return f"{'; '.join(texts)}." if texts else "No value is defined."


def _tolerance(tolerance: float | None, unit: Unit) -> list[Guide]:
    """Return the line that a violation should not cross, if there is one."""
    if tolerance is None:
        return []
    return [Guide(value=tolerance, label=f"tolerance {unit.one(tolerance)}", kind="limit")]


def goal_figures(document: Document, words: Words) -> Iterator[Figure]:
    """Yield each goal's violation against its tolerance, beside that of the baseline."""
    subject = "this model" if document.kind == "report" else "these decisions"
    beside = [x for x in document.compared if x.kind != "this" and x.name == document.baseline]
    for i, judgement in enumerate(document.headline.judgements):
        name = judgement.measure.name
        unit = unit_of(name)
        baseline = [(x.name, x.numbers[name]) for x in beside if name in x.numbers]
        yield _interval_figure(
            [(subject, judgement.measure), *baseline],
            unit,
            name=f"goal-{i}",
            title=words.label(name),
            meaning=words.meaning(name),
            guides=_tolerance(judgement.tolerance, unit),
            zero=True,
        )


def group_figures(
    section: Section, overall: Sequence[Measured], words: Words, name: str
) -> Iterator[Figure]:
    """Yield one figure of the violations, and one for each rate."""
    violations = [
        (capital(number.name.removesuffix("_violation").replace("_", " ")), number)
        for number in section.measures
        if number.name.endswith("_violation") and unit_of(number.name) is POINTS
    ]
    if any(number.value is not None for _, number in violations):
        yield _interval_figure(
            violations,
            POINTS,
            name=f"{name}-violations",
            title="Violations",
            detail=f" by {section.attribute}",
            meaning="The largest distance of any group from everyone.",
            zero=True,
        )
    yield from _slices_figures(
        section.groups, _RATES, overall, words, name=name, by=section.attribute, limits={}
    )


def client_figures(document: Document, words: Words) -> Iterator[Figure]:
    """Yield each client's accuracy, or else its selection rate, and the goals' violations."""
    clients = document.clients
    limits = {j.measure.name: j.tolerance for j in document.headline.judgements}
    accurate = any(client.get("accuracy").value is not None for client in clients)
    numbers = ["accuracy" if accurate else "selection_rate", *limits]
    return _slices_figures(
        clients, numbers, document.overall, words, name="client", by="client", limits=limits
    )


def _slices_figures(
    slices: Sequence[Slice],
    numbers: Iterable[str],
    overall: Sequence[Measured],
    words: Words,
    *,
    name: str,
    by: str,
    limits: Mapping[str, float | None],
) -> Iterator[Figure]:
    """Yield one figure for each number that is defined somewhere."""
    # Everyone's violation is no mark for those of clients.
    everyone = {x.name: x.value for x in overall if not x.name.endswith("_violation")}
    for number in numbers:
        rows = [(part.name, part.numbers[number]) for part in slices if number in part.numbers]
        if all(measured.value is None for _, measured in rows):
            continue
        unit, whole = unit_of(number), everyone.get(number)
        guides = _tolerance(limits.get(number), unit)
        if whole is not None:
            guides.append(Guide(value=whole, label=f"everyone {unit.one(whole)}"))
        yield _interval_figure(
            rows,
            unit,
            name=f"{name}-{number}",
            title=words.label(number),
            detail=f" by {by}",
            meaning=words.meaning(number),
            guides=guides,
            zero=number.endswith(("_violation", "_error")),
        )


def ratio_figures(table: forms.BiasTable, words: Words, name: str) -> Iterator[Figure]:
    """Yield the impact ratios of a table; nothing if no category has one."""
    ratios = [(row.category, row.impact_ratio) for row in table.rows if not row.left_out]
    if any(ratio.value is not None for _, ratio in ratios):
        yield _interval_figure(
            ratios,
            _RATIO,
            name=name,
            title="Impact ratio",
            detail=f", {table.title}",
            meaning=words.meaning("impact_ratio"),
            guides=[Guide(value=FOUR_FIFTHS, label="four fifths (29 CFR 1607.4(D))")],
            zero=True,
        )


def drift_figures(changes: Sequence[forms.DriftRow], words: Words) -> Iterator[Figure]:
    """Yield the changes that chance hardly explains, with their intervals."""
    rows = [
        (
            " – ".join(filter(None, (whom(change), words.label(change.number).lower()))),
            Measured(name=change.number, value=change.change, interval=change.interval),
        )
        for change in changes
        if change.beyond_chance and unit_of(change.number) in (SHARE, POINTS)
    ]
    if rows:
        yield _interval_figure(
            rows,
            POINTS.change,
            name="drift",
            title="Changes that chance hardly explains",
            guides=[Guide(value=0.0, label="no change")],
            most=_MOST_CHANGES,
        )


def compared_figures(report: Document, words: Words) -> Iterator[Figure]:
    """Yield the models in planes, then each number with the baseline and now."""
    yield from _plane_figures(report, words)
    kinds = [("group", number) for number in _CHANGED_OF_GROUPS]
    kinds += [("client", number) for number in ("accuracy", *report.goal)]
    defined = [change for change in report.changes if change.after is not None]
    for part, number in kinds:
        changes = [x for x in defined if (x.part, x.number) == (part, number)][:_MOST_ROWS]
        if changes:
            yield _interval_figure(
                [(x.whom, Measured(name=number, value=x.after)) for x in changes],
                unit_of(number),
                name=f"change-{part}-{number}",
                title=f"{words.label(number)} of each {part}",
                detail=f", with {report.baseline} and with this model",
                meaning=words.meaning(number),
                before=[x.before for x in changes],
                baseline=report.baseline,
            )


# ------------------------------------------------------------------ models


def _plane_figures(report: Document, words: Words) -> Iterator[Figure]:
    """Yield the plane of accuracy and each of the goal's violations."""
    tolerances = {j.measure.name: j.tolerance for j in report.headline.judgements}
    for number in report.goal:
        unit, label = unit_of(number), words.label(number)
        models = [
            model
            for model in report.compared
            if _is_defined(model, number) and _is_defined(model, "accuracy")
        ]
        if len(models) < 2:
            continue
        spoken = [
            f"{model.name}: accuracy {SHARE.one(model.numbers['accuracy'].value)}, violation "
            f"{unit.one(model.numbers[number].value)}"
            for model in models[:_MOST_SPOKEN]
        ]
        title = f"Accuracy and {label} of {len(models)} models"
        guides = _tolerance(tolerances.get(number), unit)
        chart = plane_chart(models, number, label, guides=guides)
        yield Figure(
            title="Accuracy and violation",
            meaning="Better is up and to the left. Whiskers are intervals.",
            chart=picture(f"plane-{number}", title, f"{'; '.join(spoken)}.", chart),
        )


def _is_defined(model: forms.ComparedModel, number: str) -> bool:
    return number in model.numbers and model.numbers[number].value is not None


# ------------------------------------------------------------------ curves


def _curves_figure(
    places: Sequence[float],
    curves: Curves,
    unit: Unit,
    *,
    name: str,
    title: str,
    meaning: str,
    across: str,
    marks: Sequence[Guide],
    guides: Sequence[Guide] = (),
    zero: bool = True,
    joined: bool = False,
) -> Figure:
    """Return a chart of curves; of many, those that reach farthest from zero."""

    def reach(curve: str) -> float:
        return max((abs(value) for value in curves[curve] if value is not None), default=0.0)

    strongest = set(sorted(curves, key=reach, reverse=True)[:_MOST_CURVES])
    shown = {curve: values for curve, values in curves.items() if curve in strongest}
    if len(shown) < len(curves):
        meaning += f" The {len(shown)} strongest of {len(curves)} are shown; the table has all."
    chart = line_chart(
        places, shown, unit, across, marks=marks, guides=guides, zero=zero, joined=joined
    )
    spoken_title = f"{title} over {len(places)} {across}s"
    description = _spoken_curves(places, shown, unit)
    return Figure(
        title=title, meaning=meaning, chart=picture(name, spoken_title, description, chart)
    )


def _has_values(curves: Curves) -> bool:
    return any(value is not None for values in curves.values() for value in values)


def _spoken_curves(places: Sequence[float], curves: Curves, unit: Unit) -> str:
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


def sweep_figures(
    sweep: forms.Sweep, judgements: Sequence[forms.Judgement], words: Words
) -> Iterator[Figure]:
    """Yield the judged violations, accuracy, and each attribute's selection rates."""
    rows = sweep.rows
    gap = "Largest gap between a group and everyone, in percentage points."
    violations: Curves = {
        words.label(j.measure.name): [row.measures.get(j.measure.name) for row in rows]
        for j in judgements
    }
    accuracy: Curves = {words.label("accuracy"): [row.accuracy for row in rows]}
    tolerance = _tolerance(judgements[0].tolerance, POINTS)
    panels = [
        ("Violation", gap, violations, POINTS, tolerance),
        ("Accuracy", words.meaning("accuracy"), accuracy, SHARE, []),
    ]
    for attribute in rows[0].groups:
        title, meaning = f"Selection rate by {attribute}", words.meaning("selection_rate")
        panels.append((title, meaning, _selection_rates(rows, attribute), SHARE, []))
    used = [] if sweep.used is None else [Guide(value=sweep.used, label=f"used: {sweep.used:g}")]
    for i, (title, meaning, curves, unit, guides) in enumerate(panels):
        if _has_values(curves):
            yield _curves_figure(
                [row.threshold for row in rows],
                curves,
                unit,
                name=f"sweep-{i}",
                title=title,
                meaning=meaning,
                across="threshold",
                marks=used,
                guides=guides,
            )


def _selection_rates(rows: Sequence[forms.SweepRow], attribute: str) -> Curves:
    return {
        group: [row.groups[attribute][group].get("selection_rate") for row in rows]
        for group in rows[0].groups[attribute]
    }


def tradeoff_figures(
    tradeoff: Tradeoff, judgements: Sequence[forms.Judgement] = ()
) -> Iterator[Figure]:
    """Yield the plane of accuracy and violation for each notion.

    Parameters
    ----------
    tradeoff
        Of one run or of several.
    judgements
        Whose tolerance is a vertical line.
    """
    tolerances = {judgement.measure.name: judgement.tolerance for judgement in judgements}
    by_notion: dict[str, list[Curve]] = {}
    for curve in tradeoff.curves:
        if curve.served.violation.value is not None:
            by_notion.setdefault(curve.measure, []).append(curve)
    for measure, curves in by_notion.items():
        unit = unit_of(measure)
        label = label_of(measure) + " at one client" * tradeoff.local
        spoken = [
            f"{curve.run}, tolerance {unit.one(point.tolerance)}: accuracy "
            f"{SHARE.one(point.accuracy.value)}, violation {unit.one(point.violation.value)}"
            for curve in curves
            for point in (curve.points[0], curve.points[-1])
        ]
        yield Figure(
            title=capital(label),
            meaning="Better is up and to the left. Each point is a tolerance.",
            chart=picture(
                f"tradeoff-{measure}",
                f"Accuracy against {label}, {tradeoff.title}",
                f"{'; '.join(spoken)}.",
                tradeoff_chart(curves, label, guides=_tolerance(tolerances.get(measure), unit)),
            ),
        )


def draw_tradeoff(tradeoff: Tradeoff, path: str | Path) -> None:
    """Draw the curves of one run or of several into an SVG file.

    Examples
    --------
    >>> draw_tradeoff(run.tradeoff(), "tradeoff.svg")  # doctest: +SKIP
    """
    text = svg_file([figure.chart for figure in tradeoff_figures(tradeoff)])
    write_atomically(Path(path), text.encode())


def training_figures(
    history: TrainingHistory, goal: Sequence[str], words: Words
) -> Iterator[Figure]:
    """Yield the curves over the rounds and the clients' coefficients."""
    accuracy, violation = (
        {
            name.removesuffix(f"_{measure}"): values
            for name, values in history.curves.items()
            if name.endswith(measure)
        }
        for measure in ("accuracy", "violation")
    )
    panels: list[tuple[str, str, Curves, Unit]] = [
        ("Accuracy", "accuracy", accuracy, SHARE),
        ("Violation", goal[0] if goal else "", violation, curve_unit("_violation")),
        ("Multipliers", "multipliers", history.multipliers, PLAIN),
        ("Conflicts", "conflicts", {"pairs of clients": history.conflicts}, COUNT),
    ]
    for title, number, curves, unit in panels:
        if _has_values(curves):
            yield _curves_figure(
                history.rounds,
                curves,
                unit,
                name=f"training-{title.lower()}",
                title=title,
                meaning=words.meaning(number),
                across="round",
                marks=_served(history),
                zero=title in ("Violation", "Conflicts"),
                joined=True,  # after most rounds not all rows are measured
            )
    if _has_values(history.coefficients):
        yield _coefficients_figure(history)


def _coefficients_figure(history: TrainingHistory) -> Figure:
    coefficients = history.coefficients
    shown = dict(list(coefficients.items())[:_MOST_ROWS])
    places = [  # before the first round no client counts
        i
        for i in range(len(history.rounds))
        if any(values[i] is not None for values in coefficients.values())
    ]
    spoken = dict(list(shown.items())[:_MOST_SPOKEN])
    chart = strip_chart(
        [history.rounds[i] for i in places],
        {name: [values[i] for i in places] for name, values in shown.items()},
        PLAIN,
        "round",
        marks=_served(history),
    )
    title = f"Coefficients of {len(shown)} clients over {len(history.rounds)} rounds"
    description = _spoken_curves(history.rounds, spoken, PLAIN)
    meaning = "How much each client's update counted in each round; darker is more."
    if len(shown) < len(coefficients):
        meaning += f" The first {len(shown)} of {len(coefficients)} clients are shown."
    return Figure(
        title="Weight of each client",
        meaning=meaning,
        chart=picture("training-coefficients", title, description, chart),
    )


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
    figures = [*training_figures(history, goal, words)]
    coefficients = [figures.pop()] if _has_values(history.coefficients) else []
    files = []
    for name, drawn in (("rounds.svg", figures), ("clients.svg", coefficients)):
        if drawn:
            files.append(judged.path / name)
            text = svg_file([figure.chart for figure in drawn])
            write_atomically(files[-1], text.encode())
    return files
