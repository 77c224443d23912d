"""Values along an axis: curves over rounds or thresholds, and strips of darker cells."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from markupsafe import Markup

from mfairfl.colours import DASHES
from mfairfl.display.numbers import COUNT, Unit
from mfairfl.report.charts import drawing as draw
from mfairfl.report.charts.drawing import LINE, WIDTH, Drawing, Guide, Scale

Curves = Mapping[str, Sequence[float | None]]
"""By name: a value for each place of the axis, None where there is none."""

_PLOT = 150  # height of the plot
_MARKERS = 6  # on each curve
_STROKE = 1.8  # width of a curve

_LEVELS = len(draw.SHADES)
_PITCH, _CELL = 15, 12  # from strip to strip, and height of a strip
_LABELS = 130  # widest name of a strip


def line_chart(
    places: Sequence[float],
    curves: Curves,
    unit: Unit,
    across: str,
    *,
    marks: Sequence[Guide] = (),
    guides: Sequence[Guide] = (),
    zero: bool = False,
    joined: bool = False,
) -> Drawing:
    """Return curves over one axis; each has a colour, a dash and a marker of its own.

    Parameters
    ----------
    places
        Along the horizontal axis, ascending.
    curves
        A value for each place.
    unit
        How the values are written; counts stand at whole numbers only.
    across
        What the horizontal axis is.
    marks
        Vertical lines, such as the round that is served.
    guides
        Horizontal lines, such as a tolerance.
    zero
        Whether the vertical axis begins at zero.
    joined
        Whether curves are drawn across places without a value; else they are broken there.

    Examples
    --------
    >>> from mfairfl.display.numbers import SHARE
    >>> chart = line_chart([0, 1, 2], {"test": [0.7, 0.8, 0.9]}, SHARE, "round")
    >>> chart.height
    178
    """
    top = 6 + LINE * len(marks)
    values = [value for curve in curves.values() for value in curve]
    values += [guide.value for guide in guides]
    up = draw.fitted(values, top + _PLOT, top, zero=zero)
    first, last = places[0], places[-1]
    end = last if last > first else first + 1.0
    x = Scale(first, end, draw.side_room(up, unit.tick), WIDTH - 12)
    parts = [
        *draw.side_axis(up, x, unit.tick, whole=unit is COUNT),
        *draw.named_axis(x, up.start, across, whole=all(p == int(p) for p in places)),
        *draw.upright(marks, x, up.start),
    ]
    for guide in guides:
        y = up.at(guide.value)
        parts.append(draw.line(x.start, y, x.end, y, guide.kind))
        parts.append(draw.text(x.end, y - 4, guide.label, anchor="end", kind="halo strong"))
    legend = up.start + 2 * LINE + 6
    for i, (label, curve) in enumerate(curves.items()):
        parts += _curve(places, curve, x, up, i, joined=joined)
        if len(curves) > 1:  # else the title names it
            base = legend + LINE * i
            parts += stroke(f"M{draw.point(0, base)}L{draw.point(30, base)}", [(15, base)], i)
            parts.append(draw.text(38, base + 4, label, room=WIDTH - 38))
    height = legend - LINE if len(curves) == 1 else legend + LINE * len(curves) - 6
    return Drawing(height, parts)


def _curve(
    places: Sequence[float],
    values: Sequence[float | None],
    x: Scale,
    up: Scale,
    index: int,
    *,
    joined: bool,
) -> Iterator[Markup]:
    """Draw a curve and some markers on it."""
    shape, pen = "", "M"
    drawn = []
    for place, value in zip(places, values, strict=True):
        if value is not None:
            drawn.append((x.at(place), up.at(value)))
            shape += f"{pen}{draw.point(*drawn[-1])}"
            pen = "L"
        elif not joined:
            pen = "M"
    apart = max(1, round(len(drawn) / _MARKERS))
    return stroke(shape, drawn[(index * apart // 3) % apart :: apart], index)


def stroke(shape: str, marked: Sequence[tuple[float, float]], index: int) -> Iterator[Markup]:
    """Draw a line and markers in the style of a curve.

    Dashes move on when the colours begin again, so that 36 curves differ.
    """
    turn, style = divmod(index, len(draw.SHAPES))
    dashes = " ".join(f"{_STROKE * step:g}" for step in DASHES[(index + turn) % len(DASHES)])
    yield draw.path(shape, f"curve s{style + 1}", dashes)
    kind = f"{'open' if turn % 2 else 'full'} s{style + 1}"
    for x, y in marked:
        yield draw.marker(draw.SHAPES[style], x, y, kind, radius=3)


def strip_chart(
    places: Sequence[int],
    strips: Curves,
    unit: Unit,
    across: str,
    *,
    marks: Sequence[Guide] = (),
) -> Drawing:
    """Return a strip of cells for each name: the darker, the larger its value.

    Seven shades that differ in lightness stand for seven equal steps, written out below.

    Parameters
    ----------
    places
        The columns, ascending.
    strips
        A value for each column; None stays white.
    unit
        How the values are written.
    across
        What the columns are.
    marks
        Columns that are pointed out.

    Examples
    --------
    >>> from mfairfl.display.numbers import PLAIN
    >>> chart = strip_chart([1, 2], {"a": [0.5, 0.2], "b": [0.5, 0.8]}, PLAIN, "round")
    >>> ">0.800</text>" in chart.parts[-1]
    True
    """
    values = [value for strip in strips.values() for value in strip]
    defined = [value for value in values if value is not None]
    low, high = min(defined), max(defined)
    if unit.bare(low) == unit.bare(high):  # a difference that no label shows is rounding
        high = low
    top = LINE * len(marks) + 4
    bottom = top + _PITCH * len(strips)
    start = min(draw.widest(strips), _LABELS) + 8
    columns = Scale(places[0] - 0.5, places[-1] + 0.5, start, WIDTH - 4)
    legend = bottom + 2 * LINE
    parts = [
        *(
            draw.text(0, top + _PITCH * i + 11, label, room=_LABELS)
            for i, label in enumerate(strips)
        ),
        *_cells(places, strips, columns, top, (low, high)),
        *draw.named_axis(columns, bottom, across, whole=True),
        *draw.upright(marks, columns, bottom),
        *shades_key(legend, low, high, unit),
    ]
    notes = ["below zero: a white line through the cell"] * (low < 0)
    notes += ["white: took no part"] * (len(defined) < len(values))
    for i, note in enumerate(notes):
        parts.append(draw.text(0, legend + LINE * (i + 3), note, kind="dim"))
    height = legend + LINE * (2 + len(notes)) + 6
    return Drawing(height, parts)


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


def _box(x: float, y: float, width: float) -> str:
    across = draw.coordinate(width)
    return f"M{draw.point(x, y)}h{across}v{_CELL}h-{across}z"


def _cells(
    places: Sequence[int], strips: Curves, columns: Scale, top: float, span: tuple[float, float]
) -> Iterator[Markup]:
    """Draw all cells of one shade as one path: a file of many rounds stays small."""
    shapes: dict[int, str] = defaultdict(str)
    below = ""
    width = columns.at(1) - columns.at(0)
    for i, values in enumerate(strips.values()):
        y = top + _PITCH * i
        for place, value in zip(places, values, strict=True):
            if value is not None:
                x = columns.at(place - 0.5)
                shapes[shade(value, *span)] += _box(x, y, width)
                if value < 0:
                    below += f"M{draw.point(x, y + _CELL / 2)}h{draw.coordinate(width)}"
    for level, boxes in sorted(shapes.items()):
        yield draw.path(boxes, f"h{level}")
    if below:
        yield draw.path(below, "below")
    for i in range(len(strips)):
        yield draw.path(_box(columns.start, top + _PITCH * i, columns.end - columns.start), "axis")


def shades_key(y: float, low: float, high: float, unit: Unit) -> Iterator[Markup]:
    """Draw what the shades stand for."""
    if low == high:
        yield draw.path(_box(0, y, 24), f"h{shade(low, low, high)}")
        yield draw.text(30, y + 10, f"{unit.bare(low)} throughout")
        return
    for level in range(_LEVELS):
        yield draw.path(_box(40 * level, y, 40), f"h{level + 1}")
    written: list[tuple[float, draw.Anchor]] = [(0, "start"), (0.5, "middle"), (1, "end")]
    for share, anchor in written:
        value = low + (high - low) * share
        yield draw.text(40 * _LEVELS * share, y + _CELL + 13, unit.bare(value), anchor=anchor)
