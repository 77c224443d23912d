"""Points with their intervals: in rows (groups, clients, goals), and in a plane (models)."""

import math
from collections.abc import Callable, Iterator, Sequence

from markupsafe import Markup

from mfairfl.display.numbers import POINTS, SHARE, Unit, unit_of
from mfairfl.fairness.results import Measured, Number
from mfairfl.report.charts import drawing as draw
from mfairfl.report.charts.drawing import LINE, WIDTH, Drawing, Guide, Scale
from mfairfl.report.document import ComparedModel

_BESIDE = 126  # wider labels stand above their row
_GAP = 10
_FEW = 12  # of more rows, long labels are cut instead
_PITCH = 22
_CAP = 4
_BOLD = 1.1  # how much wider bold letters are

_PLOT = 200  # height of the plane
_TICKS = 5
_LONGEST = 160  # of a name beside its point
_MANY = 8  # more points are numbered

Box = tuple[float, float, float, float]
Place = tuple[float, float, draw.Anchor]


def interval_chart(
    rows: Sequence[tuple[str, Measured]],
    unit: Unit,
    *,
    guides: Sequence[Guide] = (),
    zero: bool = False,
    before: Sequence[Number] = (),
    baseline: str = "",
) -> Drawing:
    """Return a chart with one row for each number: marker and value.

    An interval is a whisker, a noise floor a grey band from zero, bounds over unknown rows are a
    bracket.

    Parameters
    ----------
    rows
        Labels and numbers, from top to bottom.
    unit
        How the numbers are written; only changes can be negative, and no share exceeds 1.
    guides
        Vertical lines, each labelled at the top.
    zero
        Whether the axis begins at zero.
    before, baseline
        What the number of each row was, as an open diamond, and with which model.

    Examples
    --------
    >>> rate = Measured(name="selection_rate", value=0.16, interval=(0.15, 0.17))
    >>> chart = interval_chart([("Female", rate)], SHARE)
    >>> sum(part.startswith("<circle") for part in chart.parts)
    1
    """
    numbers = [number for _, number in rows]
    values = [*before, *(guide.value for guide in guides), *_ends(numbers)]
    for number in numbers:
        values += [number.noise_floor, *(number.bounds or ())]
    labels = [label for label, _ in rows]
    wide = sum(draw.text_width(label) > _BESIDE for label in labels)
    above = len(rows) <= _FEW and 4 * wide > len(rows)
    start = _GAP + (0 if above else min(draw.widest(labels), _BESIDE))
    written = [unit.brief(number.value) for number in numbers if number.value is not None]
    room = max(_BOLD * draw.widest(written) + _GAP, 24)
    bounds = (-math.inf if unit.signed else 0.0, 1.0 if unit is SHARE else math.inf)
    scale = draw.fitted(values, start, WIDTH - room, zero=zero, bounds=bounds)
    top = (LINE * len(guides) + 4) if guides else 2
    pitch = _PITCH + (LINE - 2) * above
    bottom = top + pitch * len(rows)
    middles = [top + pitch * (i + 1) - _PITCH / 2 for i in range(len(rows))]
    parts = [*draw.bottom_axis(scale, bottom, unit.tick, most=4, top=top)]
    for number, y in zip(numbers, middles, strict=True):
        parts += _noise(number, scale, y)
    parts += draw.upright(guides, scale, bottom)
    earlier = before or [None] * len(rows)
    for label, number, old, y in zip(labels, numbers, earlier, middles, strict=True):
        parts.append(_label(label, y, above=above))
        parts += _number(number, old, scale, y, unit)
    end = bottom + LINE + 6
    for mark, words in _legend(numbers, before, baseline):
        end += LINE
        parts += [mark(end - 6), draw.text(20, end - 2, words, kind="dim")]
    return Drawing(end, parts)


def _ends(numbers: Sequence[Measured]) -> list[Number]:
    return [end for number in numbers for end in (number.value, *(number.interval or ()))]


def _label(label: str, y: float, *, above: bool) -> Markup:
    if above:
        return draw.text(0, y - _PITCH / 2 - 1, label, kind="halo")
    return draw.text(0, y + 4, label, room=_BESIDE)


def _noise(number: Measured, scale: Scale, y: float) -> list[Markup]:
    """Draw a number's noise floor, if it has one."""
    if number.noise_floor is None:
        return []
    return floor_band(scale.at(max(scale.low, 0.0)), scale.at(number.noise_floor), y - 8, y + 8)


def floor_band(zero: float, floor: float, top: float, bottom: float) -> list[Markup]:
    """Draw what chance alone gives, and where it ends."""
    return [
        draw.rectangle(zero, top, floor - zero, bottom - top, "floor"),
        draw.line(floor, top, floor, bottom, "floor-end"),
    ]


def _bracket(low: float, high: float, y: float) -> Markup:
    ends = f"M{draw.point(low, y - 7)}V{y + 7:g}M{draw.point(high, y - 7)}V{y + 7:g}"
    return draw.path(f"{ends}M{draw.point(low, y)}L{draw.point(high, y)}", "bracket")


def _number(
    number: Measured, before: Number, scale: Scale, y: float, unit: Unit
) -> Iterator[Markup]:
    if number.bounds is not None:
        yield _bracket(scale.at(number.bounds[0]), scale.at(number.bounds[1]), y)
    if number.interval is not None:
        low, high = map(scale.at, number.interval)
        yield draw.line(low, y, high, y, "thin s1")
        for x in (low, high):
            yield draw.line(x, y - _CAP, x, y + _CAP, "thin s1")
    if before is not None:
        yield draw.marker("diamond", scale.at(before), y, "open s2")
    if number.value is None:
        yield draw.text(scale.start + 2, y + 4, "undefined", kind="dim")
    else:
        yield draw.marker("circle", scale.at(number.value), y, "full s1", radius=4.5)
        yield draw.text(WIDTH, y + 4, unit.brief(number.value), anchor="end", kind="strong")


def _legend(
    numbers: Sequence[Measured], before: Sequence[Number], baseline: str
) -> list[tuple[Callable[[float], Markup], str]]:
    """Return what draws each sign at a height, and what the sign means."""
    signs: list[tuple[Callable[[float], Markup], str]] = []
    if any(value is not None for value in before):
        signs.append((lambda y: draw.marker("diamond", 8, y, "open s2"), baseline))
        signs.append((lambda y: draw.marker("circle", 8, y, "full s1"), "this model"))
    if any(number.bounds is not None for number in numbers):
        signs.append((lambda y: _bracket(1, 15, y), "bounds, whatever is true of unknown rows"))
    if any(number.noise_floor is not None for number in numbers):
        words = "what chance alone gives (noise floor)"
        signs.append((lambda y: Markup("").join(floor_band(2, 14, y - 5, y + 5)), words))
    return signs


def plane_chart(
    models: Sequence[ComparedModel], number: str, label: str, *, guides: Sequence[Guide] = ()
) -> Drawing:
    """Return the plane of a violation (across) and accuracy (up); better is up and to the left.

    Intervals are whiskers, and a noise floor is a grey band. Names stand beside their points where
    there is room for all of them; otherwise points are numbered and the names stand below.

    Parameters
    ----------
    models
        With both numbers defined; the first is the one that is to be judged. Those measured on
        other rows have open markers.
    number, label
        The violation, and what it is called.
    guides
        Vertical lines, such as a tolerance.

    Examples
    --------
    >>> values = {"demographic_parity_violation": 0.01, "accuracy": 0.85}
    >>> numbers = {name: Measured(name=name, value=value) for name, value in values.items()}
    >>> model = ComparedModel(name="mfairfl", kind="this", same_rows=True, numbers=numbers)
    >>> chart = plane_chart([model], "demographic_parity_violation", "violation")
    >>> any(">mfairfl</text>" in part for part in chart.parts)
    True
    """
    unit = unit_of(number)
    label += ", points" * (unit is POINTS)
    across = [model.numbers[number] for model in models]
    accuracies = [model.numbers["accuracy"] for model in models]
    floor = across[0].noise_floor if across else None
    top = LINE * (1 + len(guides)) + 4
    y = draw.fitted(_ends(accuracies), top + _PLOT, top, bounds=(0.0, 1.0))
    values = [*_ends(across), floor, *(guide.value for guide in guides)]
    start = draw.side_room(y, SHARE.tick, _TICKS)
    x = draw.fitted(values, start, WIDTH - 8, zero=True, bounds=(0.0, math.inf))
    places = [
        (x.at(violation.value or 0.0), y.at(accuracy.value or 0.0))
        for violation, accuracy in zip(across, accuracies, strict=True)
    ]
    parts = [] if floor is None else floor_band(x.start, x.at(floor), y.end, y.start)
    parts += [
        draw.line(x.start, y.start, x.start, y.end, "axis"),
        *draw.side_axis(y, x, SHARE.tick, most=_TICKS),
        *draw.bottom_axis(x, y.start, unit.tick, most=_TICKS),
        draw.text(0, LINE - 4, "↑ accuracy", kind="dim"),
        draw.text(WIDTH, y.start + 2 * LINE, f"{label} →", anchor="end", kind="dim"),
        *draw.upright(guides, x, y.start, below=LINE),
    ]
    for i, (at, base) in enumerate(places):
        kind = f"thin s{i % 6 + 1}"
        if ends := across[i].interval:
            parts.append(draw.line(x.at(ends[0]), base, x.at(ends[1]), base, kind))
        if ends := accuracies[i].interval:
            parts.append(draw.line(at, y.at(ends[0]), at, y.at(ends[1]), kind))
        parts.append(_model_marker(models[i], i, at, base, radius=4.5 if i else 6))
    end = y.start + 2 * LINE + 10
    names = [draw.shortened(model.name, _LONGEST) for model in models]
    beside = _labels(names, places, x, y) if len(models) <= _MANY else None
    if beside is None:
        parts += _key(models, end)
        end += LINE * len(models)
        numbers = [str(i) for i in range(1, len(models) + 1)]
        beside = _labels(numbers, places, x, y, overlap=True)
    parts += beside or []
    notes = ["grey: what chance alone gives (noise floor)"] * (floor is not None)
    notes += ["open markers: measured on other rows"] * any(
        not model.same_rows for model in models
    )
    for note in notes:
        end += LINE
        parts.append(draw.text(0, end - 4, note, kind="dim"))
    return Drawing(end + 4, parts)


def _key(models: Sequence[ComparedModel], y: float) -> Iterator[Markup]:
    """Draw the names of numbered models below one another."""
    for i, model in enumerate(models):
        yield _model_marker(model, i, 8, y + LINE * (i + 1) - 8)
        yield draw.text(20, y + LINE * (i + 1) - 4, f"{i + 1} {model.name}", room=WIDTH - 20)


def _model_marker(
    model: ComparedModel, index: int, x: float, y: float, radius: float = 4
) -> Markup:
    kind = f"{'full' if model.same_rows else 'open'} s{index % 6 + 1}"
    return draw.marker(draw.SHAPES[index % 6], x, y, kind, radius)


def _labels(
    labels: Sequence[str],
    places: Sequence[tuple[float, float]],
    x: Scale,
    y: Scale,
    *,
    overlap: bool = False,
) -> list[Markup] | None:
    """Return labels beside their points; None if one would hide something, unless it may."""
    taken: list[Box] = [(at - 6, base - 6, at + 6, base + 6) for at, base in places]
    texts = []
    for i, (label, (at, base)) in enumerate(zip(labels, places, strict=True)):
        choices: list[Place] = [
            (at + 9, base - 5, "start"),
            (at - 9, base - 5, "end"),
            (at + 9, base + 14, "start"),
            (at - 9, base + 14, "end"),
            (at + 9, base - 20, "start"),
            (at + 9, base + 29, "start"),
        ]
        free = (place for place in choices if _is_free(_box(label, place), x, y, taken))
        place = next(free, choices[0] if overlap else None)
        if place is None:
            return None
        taken.append(_box(label, place))
        kind = "halo strong" if overlap or i == 0 else "halo"
        texts.append(draw.text(*place[:2], label, anchor=place[2], kind=kind))
    return texts


def _box(label: str, place: Place) -> Box:
    at, base, anchor = place
    width = draw.text_width(label)
    start = at if anchor == "start" else at - width
    return (start, base - draw.SIZE, start + width, base + 3)


def _is_free(box: Box, x: Scale, y: Scale, taken: Sequence[Box]) -> bool:
    left, top, right, bottom = box
    inside = x.start <= left <= right <= WIDTH and y.end <= top <= bottom <= y.start
    return inside and not any(
        max(left, other[0]) < min(right, other[2]) and max(top, other[1]) < min(bottom, other[3])
        for other in taken
    )
