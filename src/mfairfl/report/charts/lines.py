"""Curves: over the rounds of a training, over the thresholds of a score."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from mfairfl.colours import DASHES
from mfairfl.report.charts.marks import (
    LINE,
    SHAPES,
    SIZE,
    WIDTH,
    Form,
    Guide,
    coordinate,
    line,
    marker,
    path,
    picture,
    text,
    upright,
)
from mfairfl.report.charts.scales import Scale, fitted, text_width, ticks

_PLOT = 150  # height of the plot
_MARKERS = 6  # on each curve
_STYLES = len(SHAPES)  # as many as colours
_STROKE = 1.8  # width of a curve


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
        *_horizontal_axis(plot, across, across_form, whole=all(p == int(p) for p in places)),
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


def _horizontal_axis(plot: _Plot, across: str, form: Form, *, whole: bool) -> Iterator[Markup]:
    yield line(plot.across.start, plot.bottom, plot.across.end, plot.bottom, "axis")
    taken = WIDTH - text_width(across, SIZE) - 4
    yield text(WIDTH, plot.bottom + LINE, across, anchor="end", kind="dim")
    for value in ticks(plot.across.low, plot.across.high, most=6):
        if whole and value != int(value):
            continue
        x = plot.across.at(value)
        yield line(x, plot.bottom, x, plot.bottom + 4, "axis")
        if x + text_width(form(value), SIZE) / 2 < taken:
            yield text(x, plot.bottom + LINE, form(value), anchor="middle", kind="dim")


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
