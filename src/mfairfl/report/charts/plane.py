"""The accuracy–violation plane: every model a point, with its interval in both directions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from mfairfl.report.charts.marks import (
    LINE,
    SHAPES,
    SIZE,
    WIDTH,
    Anchor,
    Form,
    Guide,
    line,
    marker,
    picture,
    rectangle,
    text,
    upright,
)
from mfairfl.report.charts.scales import Scale, fitted, shortened, text_width, ticks

_PLOT = 200
_TICKS = 5
_LONGEST = 160  # of a name beside its point
_MANY = 8  # more points are numbered
_HALO = "halo"

Box = tuple[float, float, float, float]
Place = tuple[float, float, Anchor]
Span = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanePoint:
    """One model: how unfair it is (across) and how accurate (up).

    Parameters
    ----------
    label
        Its name.
    across, up
        Its place.
    across_interval, up_interval
        The ends of its whiskers.
    comparable
        Whether it was measured on the same rows; if not, its marker is open.
    """

    label: str
    across: float
    up: float
    across_interval: Span | None = None
    up_interval: Span | None = None
    comparable: bool = True


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
    >>> point = PlanePoint(label="mfairfl", across=0.01, up=0.85)
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
    ups = [v for p in points for v in (p.up, *(p.up_interval or ()))]
    acrosses = [v for p in points for v in (p.across, *(p.across_interval or ()))]
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
    at, base = x.at(point.across), y.at(point.up)
    if point.across_interval is not None:
        low, high = (x.at(end) for end in point.across_interval)
        yield line(low, base, high, base, f"thin s{index % 6 + 1}")
    if point.up_interval is not None:
        low, high = (y.at(end) for end in point.up_interval)
        yield line(at, low, at, high, f"thin s{index % 6 + 1}")
    yield marker(SHAPES[index % 6], at, base, _look(point, index), radius=6 if index == 0 else 4.5)


def _labels(points: Sequence[PlanePoint], x: Scale, y: Scale) -> list[Markup] | None:
    """Return all names beside their points, or None if that would hide something."""
    if len(points) > _MANY:
        return None
    taken: list[Box] = [_around(x.at(p.across), y.at(p.up)) for p in points]
    found = []
    for i, point in enumerate(points):
        words = shortened(point.label, _LONGEST, SIZE)
        place = _free_place(words, point, x, y, taken)
        if place is None:
            return None
        taken.append(_box(words, place))
        found.append(text(*place[:2], words, anchor=place[2], kind=_HALO + " strong" * (i == 0)))
    return found


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
    at, base = x.at(point.across), y.at(point.up)
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
    taken: list[Box] = [_around(x.at(p.across), y.at(p.up)) for p in points]
    for i, point in enumerate(points, 1):
        default: Place = (x.at(point.across) + 9, y.at(point.up) - 5, "start")
        place = _free_place(str(i), point, x, y, taken) or default
        taken.append(_box(str(i), place))
        yield text(*place[:2], str(i), anchor=place[2], kind=f"{_HALO} strong")


def _notes(points: Sequence[PlanePoint], floor: float | None) -> list[str]:
    found = []
    if floor is not None:
        found.append("grey: what chance alone gives (noise floor)")
    if any(not point.comparable for point in points):
        found.append("open markers: measured on other rows")
    return found
