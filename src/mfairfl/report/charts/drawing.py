"""What all charts are drawn with: scales, texts, lines, markers, and the frame around them."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from markupsafe import Markup

from mfairfl.colours import GRID, INK, MUTED, PALETTE, tint
from mfairfl.display.tables import fill, readable

WIDTH = 340
SIZE = 12  # of all texts
LINE = 16  # from one line of text to the next

SHADES = tuple(tint(PALETTE[0], share) for share in (0.08, 0.22, 0.37, 0.52, 0.68, 0.84, 1.0))
"""From the lightest to the darkest."""
SHAPES = ("circle", "square", "triangle", "diamond", "cross", "down")

_CORNERS = {  # around a place, in units of the radius, as SVG has points
    "square": "-0.9,-0.9 0.9,-0.9 0.9,0.9 -0.9,0.9",
    "triangle": "0,-1.2 1.15,0.85 -1.15,0.85",
    "down": "0,1.2 1.15,-0.85 -1.15,-0.85",
    "diamond": "0,-1.3 1.3,0 0,1.3 -1.3,0",
    "cross": "-1.2,-0.4 -0.4,-0.4 -0.4,-1.2 0.4,-1.2 0.4,-0.4 1.2,-0.4 "
    "1.2,0.4 0.4,0.4 0.4,1.2 -0.4,1.2 -0.4,0.4 -1.2,0.4",
}

Anchor = Literal["start", "middle", "end"]
Form = Callable[[float], str]
"""Writes a number for people."""

_APART = 1e-9  # what is nearer is one place
_NARROW = frozenset("fijlrtIJ .,:;!|'`-()[]{}/\\·")
_WIDE = frozenset("mwMW@%…—→")


@dataclass(frozen=True, slots=True, kw_only=True)
class Guide:
    """A straight line across a chart at one value.

    Parameters
    ----------
    value
        Where it is drawn.
    label
        What it says.
    kind
        ``limit`` is dashed and heavy, ``context`` is dotted and light.
    """

    value: float
    label: str
    kind: Literal["limit", "context"] = "context"


def chart_style() -> Markup:
    """Return the style sheet of all charts.

    Examples
    --------
    >>> ".s1{color:" in chart_style()
    True
    """
    colours = {"palette": PALETTE, "shades": SHADES, "ink": INK, "muted": MUTED, "grid": GRID}
    return fill("mfairfl.report", "charts.css", size=SIZE, **colours)


def coordinate(value: float) -> str:
    """Write a coordinate in as few characters as a tenth of a unit needs.

    Examples
    --------
    >>> coordinate(12.04), coordinate(-0.01), coordinate(3.25)
    ('12', '0', '3.2')
    """
    return f"{round(value, 1) + 0.0:.1f}".removesuffix(".0")


def point(x: float, y: float) -> str:
    """Write a place as a path has it."""
    return f"{coordinate(x)} {coordinate(y)}"


def text(
    x: float,
    y: float,
    content: str,
    *,
    anchor: Anchor = "start",
    kind: str = "",
    room: float = WIDTH,
) -> Markup:
    """Return a text whose base line begins, ends or has its middle at a place.

    Examples
    --------
    >>> text(5, 10, "<b>")
    Markup('<text x="5" y="10">&lt;b&gt;</text>')
    """
    looks = Markup("")
    if anchor != "start":
        looks += Markup(' text-anchor="{}"').format(anchor)
    if kind:
        looks += Markup(' class="{}"').format(kind)
    return Markup('<text x="{}" y="{}"{}>{}</text>').format(
        coordinate(x), coordinate(y), looks, shortened(readable(content), room)
    )


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    """Return a straight line."""
    return path(f"M{point(x1, y1)}L{point(x2, y2)}", kind)


def path(shape: str, kind: str, dashes: str = "") -> Markup:
    """Return a path, drawn in the style of its kind."""
    dashed = Markup(' stroke-dasharray="{}"').format(dashes) if dashes else Markup("")
    return Markup('<path d="{}" class="{}"{}/>').format(shape, kind, dashed)


def rectangle(x: float, y: float, width: float, height: float, kind: str) -> Markup:
    """Return a filled rectangle."""
    return Markup('<rect x="{}" y="{}" width="{}" height="{}" class="{}"/>').format(
        coordinate(x), coordinate(y), coordinate(max(width, 0)), coordinate(height), kind
    )


def marker(shape: str, x: float, y: float, kind: str, radius: float = 4.0) -> Markup:
    """Return a marker of one of `SHAPES` around a place.

    Examples
    --------
    >>> marker("circle", 5, 6, "full s1")
    Markup('<circle cx="5" cy="6" r="4" class="full s1"/>')
    """
    if shape == "circle":
        return Markup('<circle cx="{}" cy="{}" r="{}" class="{}"/>').format(
            coordinate(x), coordinate(y), coordinate(radius), kind
        )
    corners = [map(float, corner.split(",")) for corner in _CORNERS[shape].split()]
    outline = [point(x + across * radius, y + down * radius) for across, down in corners]
    return path(f"M{'L'.join(outline)}Z", kind)


def upright(
    guides: Sequence[Guide], scale: Scale, bottom: float, *, below: float = 0.0
) -> Iterator[Markup]:
    """Draw vertical lines up from `bottom`, each to a label of its own height.

    Parameters
    ----------
    guides
        The lines; their labels never meet.
    scale
        The horizontal scale.
    bottom
        Where the lines begin.
    below
        What is free for the labels begins there.
    """
    for i, guide in enumerate(guides, 1):
        x, y = scale.at(guide.value), below + LINE * i - 4
        half = text_width(guide.label) / 2
        middle = min(max(x, half), WIDTH - half)
        yield line(x, y + 3, x, bottom, guide.kind)
        yield text(
            middle, y, guide.label, anchor="middle", kind="strong" * (guide.kind == "limit")
        )


class Drawing(NamedTuple):
    """What a chart shows, as wide as all are."""

    height: float
    parts: Iterable[Markup]


def picture(name: str, title: str, description: str, drawing: Drawing) -> Markup:
    """Return a chart with a title and a description for screen readers.

    Parameters
    ----------
    name
        Unlike that of any other chart of the page.
    """
    return Markup(
        '<svg class="chart" viewBox="0 0 {width} {height}" role="img" '
        'aria-labelledby="{name}-title {name}-text">'
        '<title id="{name}-title">{title}</title><desc id="{name}-text">{description}</desc>'
        "{inside}</svg>"
    ).format(
        width=WIDTH,
        height=coordinate(drawing.height),
        name=name,
        title=readable(title),
        description=readable(description),
        inside=Markup("").join(drawing.parts),
    )


def svg_file(charts: Sequence[Markup]) -> str:
    """Return charts below one another as a picture that stands alone; the same bytes each time.

    Examples
    --------
    >>> chart = picture("a", "Accuracy", "…", Drawing(100, [text(5, 10, "0.9")]))
    >>> svg_file([chart, chart]).splitlines()[1][:60]
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="-10 -10 360'
    """
    top, groups = 0.0, []
    for chart in charts:
        frame, _, inside = str(chart).removesuffix("</svg>").partition(">")
        groups.append(f'<g class="chart" transform="translate(0,{coordinate(top)})">{inside}</g>')
        top += float(re.findall(r'viewBox="0 0 \S+ (\S+)"', frame)[0]) + LINE
    size = f'viewBox="-10 -10 {WIDTH + 20} {coordinate(top + 10)}" width="{2 * WIDTH}"'
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n'
        f"<style>text{{font-family:sans-serif}}{chart_style()}</style>\n"
        f'<rect x="-10" y="-10" width="100%" height="100%" fill="#fff"/>\n'
        + "\n".join(groups)
        + "\n</svg>\n"
    )


@dataclass(frozen=True, slots=True)
class Scale:
    """A linear scale: `low` lies at `start`, `high` at `end`.

    Examples
    --------
    >>> Scale(low=0.0, high=1.0, start=10.0, end=110.0).at(0.25)
    35.0
    """

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Return where a value lies."""
        share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)


def fitted(
    values: Iterable[float | None],
    start: float,
    end: float,
    *,
    zero: bool = False,
    bounds: tuple[float, float] = (-math.inf, math.inf),
) -> Scale:
    """Return a scale that shows all values, with a little room around them.

    Parameters
    ----------
    values
        None are left out.
    start, end
        Where the scale begins and ends.
    zero
        Whether it must contain zero.
    bounds
        What no value can exceed; there is no room beyond.

    Examples
    --------
    >>> fitted([0.2, None, 0.4], 0, 100, bounds=(0, 1))
    Scale(low=0.19, high=0.41, start=0, end=100)
    >>> fitted([], 0, 100)
    Scale(low=0.0, high=1.0, start=0, end=100)
    """
    defined = [float(value) for value in values if value is not None] + [0.0] * zero
    low, high = min(defined, default=0.0), max(defined, default=0.0)
    if high - low > _APART * max(1.0, abs(low)):
        room = (high - low) / 20
        low, high = (low if zero and low == 0 else low - room), high + room
    elif abs(low) <= _APART:  # zero alone at the edge, another value in the middle
        high = low + 1.0
    else:
        room = abs(low) / 10
        low, high = low - room, high + room
    low, high = max(low, bounds[0]), min(high, bounds[1])
    return Scale(round(low, 12), round(high, 12), start, end)


def ticks(low: float, high: float, most: int = 4, *, whole: bool = False) -> list[float]:
    """Return at most `most` round numbers between two values; only integers if `whole`.

    Examples
    --------
    >>> ticks(0.19, 0.41)
    [0.2, 0.3, 0.4]
    >>> ticks(0, 2, most=5), ticks(0, 2, most=5, whole=True)
    ([0.0, 0.5, 1.0, 1.5, 2.0], [0.0, 1.0, 2.0])
    """
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    for step in (factor * power for factor in (1.0, 2.0, 2.5, 5.0, 10.0, 20.0, 25.0)):
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first < most:
            values = [round(i * step, 12) + 0.0 for i in range(first, last + 1)]
            return [value for value in values if not whole or value == int(value)]
    return []


def text_width(text: str) -> float:
    """Return about how wide a text is in a wide sans-serif, which few fonts exceed.

    Examples
    --------
    >>> text_width("abc"), text_width("ill"), text_width("日本")
    (22.32, 13.32, 24.0)
    """
    return round(SIZE * sum(map(_width, text)), 6)


def widest(texts: Iterable[str]) -> float:
    """Return the width of the widest text; 0 without any."""
    return max(map(text_width, texts), default=0.0)


def _width(character: str) -> float:
    if unicodedata.east_asian_width(character) in "WF":
        return 1.0
    if character in _NARROW:
        return 0.37
    if character in _WIDE:
        return 0.94
    return 0.72 if character.isupper() else 0.62


def shortened(text: str, width: float) -> str:
    """Return the text, cut with an ellipsis where it is wider than `width`.

    Examples
    --------
    >>> shortened("Amsterdam", 48.0), shortened("Ams", 48.0)
    ('Amst…', 'Ams')
    """
    if text_width(text) <= width:
        return text
    while text and text_width(text + "…") > width:
        text = text[:-1]
    return text.rstrip() + "…"


def bottom_axis(
    scale: Scale,
    y: float,
    form: Form = "{:g}".format,
    *,
    most: int,
    whole: bool = False,
    room: float = math.inf,
    top: float | None = None,
) -> Iterator[Markup]:
    """Draw a horizontal axis at height `y`.

    Parameters
    ----------
    form
        Writes a value of the axis.
    most, whole
        As in `ticks`.
    room
        Where the labels end; those that would meet another are left out as well.
    top
        To where grid lines rise, if there are any.
    """
    taken = -math.inf
    yield line(scale.start, y, scale.end, y, "axis")
    for value in ticks(scale.low, scale.high, most, whole=whole):
        x, label = scale.at(value), form(value)
        half = text_width(label) / 2
        middle = min(max(x, half), WIDTH - half)
        if top is not None:
            yield line(x, top, x, y, "grid")
        yield line(x, y, x, y + 4, "axis")
        if middle - half > taken and x + half < room:
            yield text(middle, y + LINE, label, anchor="middle", kind="dim")
            taken = middle + half + 6


def named_axis(scale: Scale, y: float, name: str, *, whole: bool) -> Iterator[Markup]:
    """Draw a horizontal axis with its name at the end."""
    yield text(WIDTH, y + LINE, name, anchor="end", kind="dim")
    yield from bottom_axis(scale, y, most=6, whole=whole, room=WIDTH - text_width(name) - 4)


def side_axis(
    scale: Scale, across: Scale, form: Form, *, most: int = 4, whole: bool = False
) -> Iterator[Markup]:
    """Draw the labels of a vertical axis and a grid line at each."""
    for value in ticks(scale.low, scale.high, most, whole=whole):
        y = scale.at(value)
        yield line(across.start, y, across.end, y, "grid")
        yield text(across.start - 6, y + 4, form(value), anchor="end", kind="dim")


def side_room(scale: Scale, form: Form, most: int = 4) -> float:
    """Return the width that the labels of a vertical axis take."""
    return widest(map(form, ticks(scale.low, scale.high, most))) + 8
