"""Values along an axis: curves over rounds or thresholds, and strips of darker cells."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from mfairfl.colours import DASHES
from mfairfl.report.charts.drawing import (
    LINE,
    SHADES,
    SHAPES,
    SIZE,
    WIDTH,
    Anchor,
    Form,
    Guide,
    Scale,
    bottom_axis,
    coordinate,
    fitted,
    line,
    marker,
    path,
    picture,
    text,
    text_width,
    ticks,
    upright,
)

_PLOT = 150  # height of the plot
_MARKERS = 6  # on each curve
_STYLES = len(SHAPES)  # as many as colours
_STROKE = 1.8  # width of a curve

_LEVELS = len(SHADES)
_PITCH, _CELL = 15, 12  # from strip to strip, and height of a strip
_LABELS = 130  # widest name of a strip
_NEGATIVE = "below zero: a white line through the cell"
_ABSENT = "white: took no part"


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One curve: a value for each place of the axis, None where there is none.

    It is drawn across such places if it is `joined`, else it is broken there.
    """

    label: str
    values: Sequence[float | None]
    joined: bool = False


@dataclass(frozen=True, slots=True)
class _Plot:
    across: Scale
    up: Scale

    @property
    def top(self) -> float:
        return self.up.end

    @property
    def bottom(self) -> float:
        return self.up.start


def line_chart(
    places: Sequence[float],
    series: Sequence[Series],
    *,
    name: str,
    title: str,
    description: str,
    form: Form,
    across: str,
    across_form: Form = "{:g}".format,
    marks: Sequence[Guide] = (),
    guides: Sequence[Guide] = (),
    zero: bool = False,
    whole: bool = False,
) -> Markup:
    """Return curves over one axis; each has a colour, a dash and a marker of its own.

    Parameters
    ----------
    places
        Along the horizontal axis, ascending.
    series
        The curves, each with as many values as there are places.
    name
        Unlike that of any other chart of the page.
    title, description
        What it shows, in words.
    form, across_form
        Write a value of the vertical and of the horizontal axis.
    across
        What the horizontal axis is.
    marks
        Vertical lines, such as the round that is served.
    guides
        Horizontal lines, such as a tolerance.
    zero
        Whether the vertical axis begins at zero.
    whole
        Whether only whole numbers stand at the vertical axis.

    Examples
    --------
    >>> curve = Series(label="test", values=[0.7, 0.8, 0.9])
    >>> chart = line_chart([0, 1, 2], [curve], name="a", title="Accuracy", description="…",
    ...                    form="{:.1f}".format, across="round")
    >>> "round" in chart
    True
    """
    plot = _plot(places, series, marks, guides, form, zero=zero)
    legend = plot.bottom + 2 * LINE + 6
    parts = [
        *_vertical_axis(plot, form, whole=whole),
        line(plot.across.start, plot.bottom, plot.across.end, plot.bottom, "axis"),
        *bottom_axis(
            plot.across, plot.bottom, across, across_form, whole=all(p == int(p) for p in places)
        ),
        *upright(marks, plot.across, plot.bottom),
        *_level(plot, guides),
        *(part for i, curve in enumerate(series) for part in _curve(plot, places, curve, i)),
    ]
    if len(series) == 1:  # the title names it
        return picture(name, legend - LINE, title, description, parts)
    for i, curve in enumerate(series):
        parts += _key(curve.label, i, legend)
    return picture(name, legend + LINE * len(series) - 6, title, description, parts)


def _plot(
    places: Sequence[float],
    series: Sequence[Series],
    marks: Sequence[Guide],
    guides: Sequence[Guide],
    form: Form,
    *,
    zero: bool,
) -> _Plot:
    values = [value for curve in series for value in curve.values]
    values += [guide.value for guide in guides]
    top = 6 + LINE * len(marks)
    up = fitted(values, top + _PLOT, top, zero=zero)
    widest = max((text_width(form(t), SIZE) for t in ticks(up.low, up.high)), default=0.0)
    first, last = (places[0], places[-1]) if places else (0.0, 1.0)
    across = Scale(first, last if last > first else first + 1.0, widest + 8, WIDTH - 12)
    return _Plot(across, up)


def _vertical_axis(plot: _Plot, form: Form, *, whole: bool) -> Iterator[Markup]:
    for value in ticks(plot.up.low, plot.up.high):
        if whole and value != int(value):
            continue
        y = plot.up.at(value)
        yield line(plot.across.start, y, plot.across.end, y, "grid")
        yield text(plot.across.start - 6, y + 4, form(value), anchor="end", kind="dim")


def _level(plot: _Plot, guides: Sequence[Guide]) -> Iterator[Markup]:
    for guide in guides:
        y = plot.up.at(guide.value)
        yield line(plot.across.start, y, plot.across.end, y, guide.kind)
        yield text(plot.across.end, y - 4, guide.label, anchor="end", kind="halo strong")


def _curve(plot: _Plot, places: Sequence[float], curve: Series, index: int) -> Iterator[Markup]:
    """Draw a curve, broken where it has no value, and some markers on it."""
    style = index % _STYLES
    commands, known, pen = [], [], "M"
    for place, value in zip(places, curve.values, strict=True):
        if value is None:
            pen = pen if curve.joined else "M"
            continue
        x, y = plot.across.at(place), plot.up.at(value)
        commands.append(f"{pen}{coordinate(x)} {coordinate(y)}")
        known.append((x, y))
        pen = "L"
    yield path("".join(commands), f"curve s{style + 1}", _dashes(index))
    apart = max(1, round(len(known) / _MARKERS))
    for x, y in known[(index * apart // 3) % apart :: apart]:
        yield marker(SHAPES[style], x, y, f"{_fill(index)} s{style + 1}", radius=3)


def _key(label: str, index: int, y: float) -> Iterator[Markup]:
    """Draw what one curve looks like, and its name."""
    style, base = index % _STYLES, y + LINE * index
    yield path(
        f"M0 {coordinate(base)}L30 {coordinate(base)}", f"curve s{style + 1}", _dashes(index)
    )
    yield marker(SHAPES[style], 15, base, f"{_fill(index)} s{style + 1}", radius=3)
    yield text(38, base + 4, label, room=WIDTH - 38)


def _dashes(index: int) -> str:
    """Return dashes that move on when the colours begin again, so that 36 curves differ."""
    steps = DASHES[(index + index // _STYLES) % len(DASHES)]
    return " ".join(f"{_STROKE * step:g}" for step in steps)


def _fill(index: int) -> str:
    return "open" if index // _STYLES % 2 else "full"


def strip_chart(
    places: Sequence[int],
    strips: Mapping[str, Sequence[float | None]],
    *,
    name: str,
    title: str,
    description: str,
    form: Form,
    across: str,
    marks: Sequence[Guide] = (),
) -> Markup:
    """Return a strip of cells for each name: the darker, the larger its value.

    Seven shades that differ in lightness stand for seven equal steps, written out below.

    Parameters
    ----------
    places
        The columns, ascending.
    strips
        For each name a value for each column; None stays white.
    name
        Unlike that of any other chart of the page.
    title, description
        What it shows, in words.
    form
        Writes a value.
    across
        What the columns are.
    marks
        Columns that are pointed out.

    Examples
    --------
    >>> chart = strip_chart([1, 2], {"a": [0.5, 0.2], "b": [0.5, 0.8]}, name="a", title="Weights",
    ...                     description="…", form="{:.1f}".format, across="round")
    >>> "0.8" in chart
    True
    """
    known = [value for values in strips.values() for value in values if value is not None]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    widest = max((text_width(label, SIZE) for label in strips), default=0.0)
    start = min(widest, _LABELS) + 8
    top = LINE * len(marks) + 4
    bottom = top + _PITCH * len(strips)
    first, last = (places[0], places[-1]) if places else (0, 0)
    columns = Scale(first - 0.5, last + 0.5, start, WIDTH - 4)
    legend = bottom + 2 * LINE
    parts = [
        *_names(strips, top),
        *_cells(places, strips, columns, top, (low, high)),
        *bottom_axis(columns, bottom, across, whole=True),
        *upright(marks, columns, bottom),
        *_legend(legend, low, high, form),
    ]
    notes = [_NEGATIVE] * (low < 0) + [_ABSENT] * any(None in s for s in strips.values())
    for i, note in enumerate(notes):
        parts.append(text(0, legend + LINE * (i + 3), note, kind="dim"))
    return picture(name, legend + LINE * (2 + len(notes)) + 6, title, description, parts)


def _names(strips: Mapping[str, object], top: float) -> Iterator[Markup]:
    for i, label in enumerate(strips):
        yield text(0, top + _PITCH * i + 11, label, room=_LABELS)


def shade(value: float, low: float, high: float) -> int:
    """Return which of the shades a value has, 1 the lightest.

    Examples
    --------
    >>> [shade(v, 0.0, 7.0) for v in (0.0, 0.9, 1.0, 6.9, 7.0)], shade(3.0, 3.0, 3.0)
    ([1, 1, 2, 7, 7], 4)
    """
    if high == low:
        return (_LEVELS + 1) // 2
    return min(_LEVELS, 1 + int(_LEVELS * (value - low) / (high - low)))


def _cells(
    places: Sequence[int],
    strips: Mapping[str, Sequence[float | None]],
    columns: Scale,
    top: float,
    span: tuple[float, float],
) -> Iterator[Markup]:
    """Draw all cells of one shade as one path: a file of many rounds stays small."""
    shapes: dict[int, list[str]] = defaultdict(list)
    below: list[str] = []
    for i, values in enumerate(strips.values()):
        y = top + _PITCH * i
        for place, value in zip(places, values, strict=True):
            if value is None:
                continue
            x1, x2 = columns.at(place - 0.5), columns.at(place + 0.5)
            width, left = coordinate(x2 - x1), coordinate(x1)
            box = f"M{left} {coordinate(y)}h{width}v{_CELL}h-{width}z"
            shapes[shade(value, *span)].append(box)
            if value < 0:
                below.append(f"M{left} {coordinate(y + _CELL / 2)}h{width}")
    for level, boxes in sorted(shapes.items()):
        yield path("".join(boxes), f"h{level}")
    if below:
        yield path("".join(below), "below")
    width = coordinate(columns.end - columns.start)
    for i in range(len(strips)):
        at = f"M{coordinate(columns.start)} {coordinate(top + _PITCH * i)}"
        yield path(f"{at}h{width}v{_CELL}h-{width}z", "axis")


def _legend(y: float, low: float, high: float, form: Form) -> Iterator[Markup]:
    if low == high:
        yield path(f"M0 {coordinate(y)}h24v{_CELL}h-24z", f"h{shade(low, low, high)}")
        yield text(30, y + 10, f"{form(low)} throughout")
        return
    width = 40.0
    for level in range(_LEVELS):
        yield path(
            f"M{coordinate(width * level)} {coordinate(y)}h40v{_CELL}h-40z", f"h{level + 1}"
        )
    places: list[tuple[float, Anchor]] = [(0, "start"), (_LEVELS / 2, "middle"), (_LEVELS, "end")]
    for step, anchor in places:
        value = low + (high - low) * step / _LEVELS
        yield text(width * step, y + _CELL + 13, form(value), anchor=anchor)
