"""Points with their intervals: in rows (groups, clients, goals), and in a plane (models)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from mfairfl.fairness.results import Measured, Number
from mfairfl.report.charts import drawing as draw
from mfairfl.report.charts.drawing import LINE, WIDTH, Form, Guide, Scale

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
    *,
    name: str,
    title: str,
    description: str,
    form: Form,
    tick_form: Form,
    guides: Sequence[Guide] = (),
    zero: bool = False,
    bounds: tuple[float, float] = (0.0, math.inf),
    before: Sequence[Number] = (),
    baseline: str = "",
) -> Markup:
    """Return a chart with one row for each number: marker and value.

    An interval is a whisker, a noise floor a grey band from zero, bounds over unknown rows are a
    bracket.

    Parameters
    ----------
    rows
        Labels and numbers, from top to bottom.
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
    before, baseline
        What the number of each row was, as an open diamond, and with which model.

    Examples
    --------
    >>> rate = Measured(name="selection_rate", value=0.16, interval=(0.15, 0.17))
    >>> chart = interval_chart([("Female", rate)], name="a", title="Rate", description="…",
    ...                        form="{:.2f}".format, tick_form="{:g}".format)
    >>> chart.count("<circle")
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
    written = [form(number.value) for number in numbers if number.value is not None]
    room = max(_BOLD * draw.widest(written) + _GAP, 24)
    scale = draw.fitted(values, start, WIDTH - room, zero=zero, bounds=bounds)
    top = (LINE * len(guides) + 4) if guides else 2
    pitch = _PITCH + (LINE - 2) * above
    bottom = top + pitch * len(rows)
    middles = [top + pitch * (i + 1) - _PITCH / 2 for i in range(len(rows))]
    parts = [*draw.bottom_axis(scale, bottom, tick_form, most=4, top=top)]
    for number, y in zip(numbers, middles, strict=True):
        parts += _noise(number, scale, y)
    parts += draw.upright(guides, scale, bottom)
    earlier = before or [None] * len(rows)
    for label, number, old, y in zip(labels, numbers, earlier, middles, strict=True):
        parts.append(_label(label, y, above=above))
        parts += _number(number, old, scale, y, form)
    end = bottom + LINE + 6
    for mark, words in _legend(numbers, before, baseline):
        end += LINE
        parts += [mark(end - 6), draw.text(20, end - 2, words, kind="dim")]
    return draw.picture(name, end, title, description, parts)


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
    return _floor(scale.at(max(scale.low, 0.0)), scale.at(number.noise_floor), y - 8, y + 8)


def _floor(zero: float, floor: float, top: float, bottom: float) -> list[Markup]:
    """Draw what chance alone gives, and where it ends."""
    return [
        draw.rectangle(zero, top, floor - zero, bottom - top, "floor"),
        draw.line(floor, top, floor, bottom, "floor-end"),
    ]


def _bracket(low: float, high: float, y: float) -> Markup:
    ends = f"M{draw.point(low, y - 7)}V{y + 7:g}M{draw.point(high, y - 7)}V{y + 7:g}"
    return draw.path(f"{ends}M{draw.point(low, y)}L{draw.point(high, y)}", "bracket")


def _number(
    number: Measured, before: Number, scale: Scale, y: float, form: Form
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
        yield draw.text(WIDTH, y + 4, form(number.value), anchor="end", kind="strong")


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
        signs.append((lambda y: Markup("").join(_floor(2, 14, y - 5, y + 5)), words))
    return signs


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
    >>> shown = PlanePoint(label="mfairfl", across=violation, up=accuracy)
    >>> chart = plane_chart([shown], name="a", title="Plane", description="…", across="violation",
    ...                     up="accuracy", across_form="{:.2f}".format, up_form="{:.2f}".format)
    >>> ">mfairfl</text>" in chart
    True
    """
    top = LINE * (1 + len(guides)) + 4
    y = draw.fitted(_ends([one.up for one in points]), top + _PLOT, top, bounds=(0.0, 1.0))
    values = [*_ends([one.across for one in points]), floor, *(guide.value for guide in guides)]
    start = draw.side_room(y, up_form, _TICKS)
    x = draw.fitted(values, start, WIDTH - 8, zero=True, bounds=(0.0, math.inf))
    places = [(x.at(one.across.value or 0.0), y.at(one.up.value or 0.0)) for one in points]
    parts = [] if floor is None else _floor(x.start, x.at(floor), y.end, y.start)
    parts += [
        draw.line(x.start, y.start, x.start, y.end, "axis"),
        *draw.side_axis(y, x, up_form, most=_TICKS),
        *draw.bottom_axis(x, y.start, across_form, most=_TICKS),
        draw.text(0, LINE - 4, f"↑ {up}", kind="dim"),
        draw.text(WIDTH, y.start + 2 * LINE, f"{across} →", anchor="end", kind="dim"),
        *draw.upright(guides, x, y.start, below=LINE),
    ]
    for i, (one, place) in enumerate(zip(points, places, strict=True)):
        parts += _model(one, place, x, y, i)
    end = y.start + 2 * LINE + 10
    names = [draw.shortened(one.label, _LONGEST) for one in points]
    beside = _labels(names, places, x, y) if len(points) <= _MANY else None
    if beside is None:
        parts += _key(points, end)
        end += LINE * len(points)
        numbers = [str(i) for i in range(1, len(points) + 1)]
        beside = _labels(numbers, places, x, y, overlap=True)
    parts += beside or []
    notes = ["grey: what chance alone gives (noise floor)"] * (floor is not None)
    notes += ["open markers: measured on other rows"] * any(not one.comparable for one in points)
    for note in notes:
        end += LINE
        parts.append(draw.text(0, end - 4, note, kind="dim"))
    return draw.picture(name, end + 4, title, description, parts)


def _model(
    model: PlanePoint, place: tuple[float, float], x: Scale, y: Scale, index: int
) -> Iterator[Markup]:
    """Draw a model's marker and whiskers."""
    at, base = place
    kind = f"thin s{index % 6 + 1}"
    if model.across.interval is not None:
        low, high = map(x.at, model.across.interval)
        yield draw.line(low, base, high, base, kind)
    if model.up.interval is not None:
        low, high = map(y.at, model.up.interval)
        yield draw.line(at, low, at, high, kind)
    yield _model_marker(model, index, at, base, radius=4.5 if index else 6)


def _key(models: Sequence[PlanePoint], y: float) -> Iterator[Markup]:
    """Draw the names of numbered models below one another."""
    for i, model in enumerate(models):
        yield _model_marker(model, i, 8, y + LINE * (i + 1) - 8)
        yield draw.text(20, y + LINE * (i + 1) - 4, f"{i + 1} {model.label}", room=WIDTH - 20)


def _model_marker(model: PlanePoint, index: int, x: float, y: float, radius: float = 4) -> Markup:
    kind = f"{'full' if model.comparable else 'open'} s{index % 6 + 1}"
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
