"""Points with their intervals, one row each: groups, clients, fairness goals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from mfairfl.report.charts.marks import (
    LINE,
    SIZE,
    WIDTH,
    Form,
    Guide,
    coordinate,
    line,
    marker,
    path,
    picture,
    rectangle,
    text,
    upright,
)
from mfairfl.report.charts.scales import Scale, fitted, text_width, ticks

_BESIDE = 126  # wider labels stand above their row
_GAP = 10
_FEW = 12  # of more rows, long labels are cut instead
_PITCH = 22
_CAP = 4
_BOLD = 1.1  # how much wider bold letters are


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalRow:
    """One row: a point, its interval, and what it is to be read against.

    Parameters
    ----------
    label
        Whose number it is.
    point
        None is written as *undefined*.
    interval
        Lower and upper end.
    floor
        What chance alone gives: a grey band from zero to there.
    before
        What it was, as an open diamond.
    bounds
        Between which it lies, whatever is true of rows that are not known: a bracket.
    """

    label: str
    point: float | None
    interval: tuple[float, float] | None = None
    floor: float | None = None
    before: float | None = None
    bounds: tuple[float, float] | None = None


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
    >>> rows = [IntervalRow(label="Female", point=0.16, interval=(0.15, 0.17))]
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
    values = [v for row in rows for v in (row.point, row.floor, row.before)]
    values += [v for row in rows for v in (*(row.interval or ()), *(row.bounds or ()))]
    values += [guide.value for guide in guides]
    widths = [text_width(row.label, SIZE) for row in rows]
    long = sum(width > _BESIDE for width in widths)
    above = len(rows) <= _FEW and 4 * long > len(rows)
    points = [row.point for row in rows if row.point is not None]
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
        if row.floor is None:
            continue
        y, x = layout.middle(i), layout.scale.at(row.floor)
        start = layout.scale.at(max(layout.scale.low, 0.0))
        yield rectangle(start, y - 8, x - start, 16, "floor")
        yield line(x, y - 8, x, y + 8, "floor-end")


def _row(row: IntervalRow, layout: _Layout, index: int, form: Form) -> Iterator[Markup]:
    y, scale = layout.middle(index), layout.scale
    if layout.above:
        yield text(0, y - _PITCH / 2 - 1, row.label, kind="halo")
    else:
        yield text(0, y + 4, row.label, room=_BESIDE)
    if row.bounds is not None:
        yield _bracket(scale.at(row.bounds[0]), scale.at(row.bounds[1]), y)
    if row.interval is not None:
        low, high = (scale.at(end) for end in row.interval)
        yield line(low, y, high, y, "thin s1")
        yield from (line(x, y - _CAP, x, y + _CAP, "thin s1") for x in (low, high))
    if row.before is not None:
        yield marker("diamond", scale.at(row.before), y, "open s2")
    if row.point is None:
        yield text(scale.start + 2, y + 4, "undefined", kind="dim")
        return
    yield marker("circle", scale.at(row.point), y, "full s1", radius=4.5)
    yield text(layout.value_end, y + 4, form(row.point), anchor="end", kind="strong")


def _bracket(low: float, high: float, y: float) -> Markup:
    left, right, top, bottom = map(coordinate, (low, high, y - 7, y + 7))
    return path(f"M{left} {top}V{bottom}M{right} {top}V{bottom}M{left} {coordinate(y)}H{right}",
                "bracket")  # fmt: skip


def _legend(rows: Sequence[IntervalRow], before: str) -> list[tuple[str, str]]:
    found = []
    if any(row.before is not None for row in rows):
        found += [("diamond", before), ("circle", "this model")]
    if any(row.bounds is not None for row in rows):
        found.append(("bounds", "bounds, whatever is true of unknown rows"))
    if any(row.floor is not None for row in rows):
        found.append(("floor", "what chance alone gives (noise floor)"))
    return found


def _legend_mark(mark: str, x: float, y: float) -> Markup:
    if mark == "floor":
        band = rectangle(x - 6, y - 5, 12, 10, "floor")
        return band + line(x + 6, y - 5, x + 6, y + 5, "floor-end")
    if mark == "bounds":
        return _bracket(x - 7, x + 7, y)
    return marker(mark, x, y, "full s1" if mark == "circle" else "open s2")
