"""How much each client counted in each round, as strips of darker and lighter cells."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from markupsafe import Markup

from mfairfl.report.charts.marks import (
    LINE,
    SHADES,
    SIZE,
    WIDTH,
    Anchor,
    Form,
    Guide,
    coordinate,
    line,
    path,
    picture,
    text,
    upright,
)
from mfairfl.report.charts.scales import Scale, text_width, ticks

_LEVELS = len(SHADES)
_PITCH = 15
_CELL = 12
_LABELS = 130
_NEGATIVE = "below zero: a white line through the cell"
_ABSENT = "white: took no part"


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
        *_axis(columns, bottom, across),
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


def _axis(columns: Scale, bottom: float, across: str) -> Iterator[Markup]:
    yield text(WIDTH, bottom + LINE, across, anchor="end", kind="dim")
    taken = WIDTH - text_width(across, SIZE) - 4
    for value in ticks(columns.low, columns.high, most=6):
        x = columns.at(value)
        yield line(x, bottom, x, bottom + 4, "axis")
        if value == int(value) and x + text_width(f"{value:g}", SIZE) / 2 < taken:
            yield text(x, bottom + LINE, f"{value:g}", anchor="middle", kind="dim")


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
