"""What all charts are drawn with: texts, lines, markers, and the frame that says it in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup

from mfairfl.colours import GRID, INK, MUTED, PALETTE, tint
from mfairfl.report.charts.scales import Scale, shortened, text_width
from mfairfl.text import one_line

WIDTH = 340
SIZE = 12  # of all texts
LINE = 16  # from one line of text to the next
MARGIN = 2

SHADES = tuple(tint(PALETTE[0], share) for share in (0.08, 0.22, 0.37, 0.52, 0.68, 0.84, 1.0))
"""From the lightest to the darkest."""
SHAPES = ("circle", "square", "triangle", "diamond", "cross", "down")

Anchor = Literal["start", "middle", "end"]
Form = Callable[[float], str]
"""Writes a number for people."""


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
    colours = "".join(f".s{i}{{color:{c}}}" for i, c in enumerate(PALETTE, 1))
    heat = "".join(f".chart .h{i}{{fill:{c}}}" for i, c in enumerate(SHADES, 1))
    return Markup(  # noqa: S704 - nothing in it comes from a file
        f"svg.chart{{display:block;width:100%;height:auto;overflow:visible}}"
        f".chart text{{font-size:{SIZE}px;fill:{INK};unicode-bidi:isolate}}"
        ".chart .halo{paint-order:stroke;stroke:#fff;stroke-width:3px}"
        ".chart .dim{fill:#56606c}.chart .strong{font-weight:600}"
        f".chart .axis{{stroke:{MUTED};fill:none}}.chart .grid{{stroke:{GRID};fill:none}}"
        f".chart .limit{{stroke:{INK};stroke-width:1.5;stroke-dasharray:5 3;fill:none}}"
        f".chart .context{{stroke:{MUTED};stroke-dasharray:1.5 2.5;fill:none}}"
        f".chart .floor{{fill:{GRID}}}.chart .floor-end{{stroke:{MUTED};stroke-width:1.5}}"
        ".chart .curve{stroke:currentColor;stroke-width:1.8;fill:none;stroke-linejoin:round}"
        ".chart .thin{stroke:currentColor;stroke-width:1.5;fill:none}"
        ".chart .full{fill:currentColor;stroke:#fff;stroke-width:.6}"
        ".chart .open{fill:#fff;stroke:currentColor;stroke-width:1.6}"
        f".chart .bracket{{stroke:{MUTED};stroke-width:1.5;stroke-dasharray:2 2;fill:none}}"
        ".chart .below{stroke:#fff;stroke-width:2;fill:none}"
        f"{colours}{heat}"
    )


def coordinate(value: float) -> str:
    """Write a coordinate in as few characters as a tenth of a unit needs.

    Examples
    --------
    >>> coordinate(12.04), coordinate(-0.01), coordinate(3.25)
    ('12', '0', '3.2')
    """
    return f"{round(value, 1) + 0.0:.1f}".removesuffix(".0")


def readable(words: str) -> str:
    r"""Return words without what turns the direction of writing or cannot be seen.

    Examples
    --------
    >>> readable("a\u202eb")
    'a?b'
    """
    return one_line(words, longest=len(words) + 1)


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
    looks = Markup("") if anchor == "start" else Markup(' text-anchor="{}"').format(anchor)
    looks += Markup(' class="{}"').format(kind) if kind else Markup("")
    return Markup('<text x="{}" y="{}"{}>{}</text>').format(
        coordinate(x), coordinate(y), looks, shortened(readable(content), room, SIZE)
    )


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    """Return a straight line."""
    return path(
        f"M{coordinate(x1)} {coordinate(y1)}L{coordinate(x2)} {coordinate(y2)}", kind
    )  # fmt: skip


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
    r = radius
    corners: dict[str, list[tuple[float, float]]] = {
        "square": [(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
        "triangle": [(0, -1.2), (1.15, 0.85), (-1.15, 0.85)],
        "down": [(0, 1.2), (1.15, -0.85), (-1.15, -0.85)],
        "diamond": [(0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)],
        "cross": [
            (-1.2, -0.4), (-0.4, -0.4), (-0.4, -1.2), (0.4, -1.2), (0.4, -0.4), (1.2, -0.4),
            (1.2, 0.4), (0.4, 0.4), (0.4, 1.2), (-0.4, 1.2), (-0.4, 0.4), (-1.2, 0.4),
        ],
    }  # fmt: skip
    at = "L".join(f"{coordinate(x + a * r)} {coordinate(y + b * r)}" for a, b in corners[shape])
    return path(f"M{at}Z", kind)


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
        half = text_width(guide.label, SIZE) / 2
        middle = min(max(x, half), WIDTH - half)
        yield line(x, y + 3, x, bottom, guide.kind)
        yield text(
            middle, y, guide.label, anchor="middle", kind="strong" * (guide.kind == "limit")
        )


def picture(
    name: str, height: float, title: str, description: str, parts: Iterable[Markup]
) -> Markup:
    """Return the chart around its parts, with a title and a description for those who hear it.

    Parameters
    ----------
    name
        Unlike that of any other chart of the page.
    """
    inside: Sequence[Markup] = list(parts)
    return Markup(
        '<svg class="chart" viewBox="0 0 {width} {height}" role="img" '
        'aria-labelledby="{name}-title {name}-text">'
        '<title id="{name}-title">{title}</title><desc id="{name}-text">{description}</desc>'
        "{inside}</svg>"
    ).format(
        width=WIDTH,
        height=coordinate(height),
        name=name,
        title=readable(title),
        description=readable(description),
        inside=Markup("").join(inside),
    )
