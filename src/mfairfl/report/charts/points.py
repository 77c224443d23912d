"""Points with their intervals: in rows (groups, clients, goals), and in a plane (models)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from mfairfl.fairness.results import Measured
from mfairfl.report.charts.drawing import (
    LINE,
    SHAPES,
    SIZE,
    WIDTH,
    Anchor,
    Form,
    Guide,
    Scale,
    coordinate,
    fitted,
    line,
    marker,
    path,
    picture,
    rectangle,
    shortened,
    text,
    text_width,
    ticks,
    upright,
)

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
Place = tuple[float, float, Anchor]


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalRow:
    """One row: a number, and what it is to be read against.

    Parameters
    ----------
    label
        Whose number it is.
    number
        Its value, or *undefined*; its interval as a whisker, its noise floor as a grey band from
        zero, its bounds over unknown rows as a bracket.
    before
        What it was, as an open diamond.
    """

    label: str
    number: Measured
    before: float | None = None


@dataclass(frozen=True, slots=True)
class _Layout:
    scale: Scale
    top: float
    bottom: float
    above: bool
    value_end: float

    def middle(self, index: int) -> float:
        pitch = _PITCH + (LINE - 2 if self.above else 0)
        return self.top + pitch * (index + 1) - _PITCH / 2


def interval_chart(
    rows: Sequence[IntervalRow],
    *,
    name: str,
    title: str,
    description: str,
    form: Form,
    tick_form: Form,
    guides: Sequence[Guide] = (),
    zero: bool = False,
    bounds: tuple[float, float] = (0.0, math.inf),
    before: str = "before",
) -> Markup:
    """Return a chart with one row for each point: marker, whisker, value.

    Parameters
    ----------
    rows
        From top to bottom.
    name
        Unlike that of any other chart of the page.
    title, description
        What it shows, in words.
    form, tick_form
        Write a value of a row and of the axis.
    guides
        Vertical lines, each labelled at the top.
    zero
        Whether the axis begins at zero.
    bounds
        What no value can exceed.
    before
        What the open diamonds are.

    Examples
    --------
    >>> rate = Measured(name="selection_rate", value=0.16, interval=(0.15, 0.17))
    >>> rows = [IntervalRow(label="Female", number=rate)]
    >>> chart = interval_chart(rows, name="a", title="Rate", description="…",
    ...                        form="{:.2f}".format, tick_form="{:g}".format)
    >>> chart.count("<circle")
    1
    """
    layout = _layout(rows, guides, form, zero=zero, bounds=bounds)
    legend = _legend(rows, before)
    height = layout.bottom + LINE + 6 + LINE * len(legend)
    parts = [
        *_axis(layout, tick_form),
        *_floors(rows, layout),
        *upright(guides, layout.scale, layout.bottom),
        *(part for i, row in enumerate(rows) for part in _row(row, layout, i, form)),
    ]
    for i, (mark, words) in enumerate(legend):
        y = layout.bottom + 2 * LINE + 4 + LINE * i
        parts += [_legend_mark(mark, 8, y - 4), text(20, y, words, kind="dim")]
    return picture(name, height, title, description, parts)


def _layout(
    rows: Sequence[IntervalRow],
    guides: Sequence[Guide],
    form: Form,
    *,
    zero: bool,
    bounds: tuple[float, float],
) -> _Layout:
    numbers = [row.number for row in rows]
    values = [row.before for row in rows] + [guide.value for guide in guides]
    values += [value for number in numbers for value in (number.value, number.noise_floor)]
    values += [end for n in numbers for end in (*(n.interval or ()), *(n.bounds or ()))]
    widths = [text_width(row.label, SIZE) for row in rows]
    long = sum(width > _BESIDE for width in widths)
    above = len(rows) <= _FEW and 4 * long > len(rows)
    points = [number.value for number in numbers if number.value is not None]
    value_room = max((text_width(form(point), SIZE) for point in points), default=0.0)
    start = _GAP if above else min(max(widths, default=0.0), _BESIDE) + _GAP
    end = WIDTH - max(_BOLD * value_room + _GAP, 24)
    top = (LINE * len(guides) + 4) if guides else 2
    pitch = _PITCH + (LINE - 2 if above else 0)
    scale = fitted(values, start, end, zero=zero, bounds=bounds)
    return _Layout(scale, top, top + pitch * len(rows), above, WIDTH)


def _axis(layout: _Layout, form: Form) -> Iterator[Markup]:
    scale, taken = layout.scale, -math.inf
    yield line(scale.start, layout.bottom, scale.end, layout.bottom, "axis")
    for value in ticks(scale.low, scale.high, most=4):
        x, label = scale.at(value), form(value)
        half = text_width(label, SIZE) / 2
        yield line(x, layout.top, x, layout.bottom, "grid")
        yield line(x, layout.bottom, x, layout.bottom + 4, "axis")
        if x - half > taken and x + half <= WIDTH:
            yield text(max(x, half), layout.bottom + LINE, label, anchor="middle", kind="dim")
            taken = max(x, half) + half + 6


def _floors(rows: Sequence[IntervalRow], layout: _Layout) -> Iterator[Markup]:
    for i, row in enumerate(rows):
        if row.number.noise_floor is None:
            continue
        y, x = layout.middle(i), layout.scale.at(row.number.noise_floor)
        start = layout.scale.at(max(layout.scale.low, 0.0))
        yield rectangle(start, y - 8, x - start, 16, "floor")
        yield line(x, y - 8, x, y + 8, "floor-end")


def _row(row: IntervalRow, layout: _Layout, index: int, form: Form) -> Iterator[Markup]:
    y, scale, number = layout.middle(index), layout.scale, row.number
    if layout.above:
        yield text(0, y - _PITCH / 2 - 1, row.label, kind="halo")
    else:
        yield text(0, y + 4, row.label, room=_BESIDE)
    if number.bounds is not None:
        yield _bracket(scale.at(number.bounds[0]), scale.at(number.bounds[1]), y)
    if number.interval is not None:
        low, high = (scale.at(end) for end in number.interval)
        yield line(low, y, high, y, "thin s1")
        yield from (line(x, y - _CAP, x, y + _CAP, "thin s1") for x in (low, high))
    if row.before is not None:
        yield marker("diamond", scale.at(row.before), y, "open s2")
    if number.value is None:
        yield text(scale.start + 2, y + 4, "undefined", kind="dim")
        return
    yield marker("circle", scale.at(number.value), y, "full s1", radius=4.5)
    yield text(layout.value_end, y + 4, form(number.value), anchor="end", kind="strong")


def _bracket(low: float, high: float, y: float) -> Markup:
    left, right, top, bottom = map(coordinate, (low, high, y - 7, y + 7))
    return path(f"M{left} {top}V{bottom}M{right} {top}V{bottom}M{left} {coordinate(y)}H{right}",
                "bracket")  # fmt: skip


def _legend(rows: Sequence[IntervalRow], before: str) -> list[tuple[str, str]]:
    keys = []
    if any(row.before is not None for row in rows):
        keys += [("diamond", before), ("circle", "this model")]
    if any(row.number.bounds is not None for row in rows):
        keys.append(("bounds", "bounds, whatever is true of unknown rows"))
    if any(row.number.noise_floor is not None for row in rows):
        keys.append(("floor", "what chance alone gives (noise floor)"))
    return keys


def _legend_mark(mark: str, x: float, y: float) -> Markup:
    if mark == "floor":
        band = rectangle(x - 6, y - 5, 12, 10, "floor")
        return band + line(x + 6, y - 5, x + 6, y + 5, "floor-end")
    if mark == "bounds":
        return _bracket(x - 7, x + 7, y)
    return marker(mark, x, y, "full s1" if mark == "circle" else "open s2")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanePoint:
    """One model: how unfair it is (across) and how accurate (up).

    Parameters
    ----------
    label
        Its name.
    across, up
        Its place, both defined; their intervals are its whiskers.
    comparable
        Whether it was measured on the same rows; if not, its marker is open.
    """

    label: str
    across: Measured
    up: Measured
    comparable: bool = True

    def at(self, x: Scale, y: Scale) -> tuple[float, float]:
        """Return its place on a plane."""
        return x.at(self.across.value or 0.0), y.at(self.up.value or 0.0)


def plane_chart(
    points: Sequence[PlanePoint],
    *,
    name: str,
    title: str,
    description: str,
    across: str,
    up: str,
    across_form: Form,
    up_form: Form,
    floor: float | None = None,
    guides: Sequence[Guide] = (),
) -> Markup:
    """Return the plane; better is up and to the left.

    Names stand beside their points where there is room for all of them; otherwise points are
    numbered and the names stand below.

    Parameters
    ----------
    points
        The first is the model that is to be judged.
    name
        Unlike that of any other chart of the page.
    title, description
        What it shows, in words.
    across, up
        What the axes are.
    across_form, up_form
        Write a value of each axis.
    floor
        Up to there chance alone explains the horizontal value: a grey band.
    guides
        Vertical lines, such as a tolerance.

    Examples
    --------
    >>> violation = Measured(name="demographic_parity_violation", value=0.01)
    >>> accuracy = Measured(name="accuracy", value=0.85)
    >>> point = PlanePoint(label="mfairfl", across=violation, up=accuracy)
    >>> chart = plane_chart([point], name="a", title="Plane", description="…", across="violation",
    ...                     up="accuracy", across_form="{:.2f}".format, up_form="{:.2f}".format)
    >>> ">mfairfl</text>" in chart
    True
    """
    x, y = _scales(points, guides, floor, up_form)
    beside = _labels(points, x, y)
    bottom = y.start + 2 * LINE + 10
    keys = [point.label for point in points] if beside is None else []
    notes = _notes(points, floor)
    parts = [
        *_floor(floor, x, y),
        *_axes(x, y, across_form, up_form),
        text(0, LINE - 4, f"↑ {up}", kind="dim"),
        text(WIDTH, y.start + 2 * LINE, f"{across} →", anchor="end", kind="dim"),
        *upright(guides, x, y.start, below=LINE),
        *(part for i, point in enumerate(points) for part in _point(point, x, y, i)),
        *(beside if beside is not None else _numbers(points, x, y)),
    ]
    for i, label in enumerate(keys):
        base = bottom + LINE * (i + 1) - 4
        parts += [
            marker(SHAPES[i % 6], 8, base - 4, _look(points[i], i)),
            text(20, base, f"{i + 1} {label}", room=WIDTH - 20),
        ]
    for i, note in enumerate(notes):
        parts.append(text(0, bottom + LINE * (len(keys) + i + 1) - 4, note, kind="dim"))
    height = bottom + LINE * (len(keys) + len(notes)) + 4
    return picture(name, height, title, description, parts)


def _scales(
    points: Sequence[PlanePoint], guides: Sequence[Guide], floor: float | None, form: Form
) -> tuple[Scale, Scale]:
    top = LINE * (1 + len(guides)) + 4
    ups, acrosses = (
        [value for number in numbers for value in (number.value, *(number.interval or ()))]
        for numbers in ([point.up for point in points], [point.across for point in points])
    )
    y = fitted(ups, top + _PLOT, top, bounds=(0.0, 1.0))
    labels = [form(value) for value in ticks(y.low, y.high, most=_TICKS)]
    widest = max((text_width(label, SIZE) for label in labels), default=0.0)
    known = [*acrosses, floor, *(guide.value for guide in guides)]
    return fitted(known, widest + 8, WIDTH - 8, zero=True, bounds=(0.0, math.inf)), y


def _axes(x: Scale, y: Scale, across_form: Form, up_form: Form) -> Iterator[Markup]:
    yield line(x.start, y.start, x.end, y.start, "axis")
    yield line(x.start, y.start, x.start, y.end, "axis")
    for value in ticks(y.low, y.high, most=_TICKS):
        yield line(x.start, y.at(value), x.end, y.at(value), "grid")
        yield text(x.start - 6, y.at(value) + 4, up_form(value), anchor="end", kind="dim")
    for value in ticks(x.low, x.high, most=_TICKS):
        yield line(x.at(value), y.start, x.at(value), y.start + 4, "axis")
        half = text_width(across_form(value), SIZE) / 2
        at = min(x.at(value), WIDTH - half)
        yield text(at, y.start + LINE, across_form(value), anchor="middle", kind="dim")


def _floor(floor: float | None, x: Scale, y: Scale) -> Iterator[Markup]:
    if floor is not None:
        yield rectangle(x.start, y.end, x.at(floor) - x.start, y.start - y.end, "floor")
        yield line(x.at(floor), y.end, x.at(floor), y.start, "floor-end")


def _look(point: PlanePoint, index: int) -> str:
    return f"{'full' if point.comparable else 'open'} s{index % 6 + 1}"


def _point(point: PlanePoint, x: Scale, y: Scale, index: int) -> Iterator[Markup]:
    at, base = point.at(x, y)
    if point.across.interval is not None:
        low, high = (x.at(end) for end in point.across.interval)
        yield line(low, base, high, base, f"thin s{index % 6 + 1}")
    if point.up.interval is not None:
        low, high = (y.at(end) for end in point.up.interval)
        yield line(at, low, at, high, f"thin s{index % 6 + 1}")
    yield marker(SHAPES[index % 6], at, base, _look(point, index), radius=6 if index == 0 else 4.5)


def _labels(points: Sequence[PlanePoint], x: Scale, y: Scale) -> list[Markup] | None:
    """Return all names beside their points, or None if that would hide something."""
    if len(points) > _MANY:
        return None
    taken: list[Box] = [_around(*point.at(x, y)) for point in points]
    labels = []
    for i, point in enumerate(points):
        words = shortened(point.label, _LONGEST, SIZE)
        place = _free_place(words, point, x, y, taken)
        if place is None:
            return None
        taken.append(_box(words, place))
        labels.append(text(*place[:2], words, anchor=place[2], kind="halo" + " strong" * (i == 0)))
    return labels


def _around(x: float, y: float) -> Box:
    return (x - 6, y - 6, x + 6, y + 6)


def _box(words: str, place: Place) -> Box:
    left, base, anchor = place
    width = text_width(words, SIZE)
    start = left if anchor == "start" else left - width
    return (start, base - SIZE, start + width, base + 3)


def _free_place(
    words: str, point: PlanePoint, x: Scale, y: Scale, taken: Sequence[Box]
) -> Place | None:
    """Return where a point's name hides nothing, if there is such a place."""
    at, base = point.at(x, y)
    places: list[Place] = [
        (at + 9, base - 5, "start"),
        (at - 9, base - 5, "end"),
        (at + 9, base + 14, "start"),
        (at - 9, base + 14, "end"),
        (at + 9, base - 20, "start"),
        (at + 9, base + 29, "start"),
    ]
    for place in places:
        box = _box(words, place)
        inside = x.start <= box[0] and box[2] <= WIDTH and y.end <= box[1] and box[3] <= y.start
        if inside and not any(_meet(box, other) for other in taken):
            return place
    return None


def _meet(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _numbers(points: Sequence[PlanePoint], x: Scale, y: Scale) -> Iterator[Markup]:
    taken: list[Box] = [_around(*point.at(x, y)) for point in points]
    for i, point in enumerate(points, 1):
        at, base = point.at(x, y)
        place = _free_place(str(i), point, x, y, taken) or (at + 9, base - 5, "start")
        taken.append(_box(str(i), place))
        yield text(*place[:2], str(i), anchor=place[2], kind="halo strong")


def _notes(points: Sequence[PlanePoint], floor: float | None) -> list[str]:
    notes = []
    if floor is not None:
        notes.append("grey: what chance alone gives (noise floor)")
    if any(not point.comparable for point in points):
        notes.append("open markers: measured on other rows")
    return notes
