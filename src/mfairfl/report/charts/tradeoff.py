"""The plane of accuracy and violation, with a curve through the rules that tolerances lead to."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain

from markupsafe import Markup

from mfairfl.display.numbers import POINTS, SHARE, unit_of
from mfairfl.experiments.tradeoff import Curve, TradeoffPoint
from mfairfl.fairness.results import Measured
from mfairfl.report.charts import drawing as draw
from mfairfl.report.charts.curves import shade, shades_key, stroke
from mfairfl.report.charts.drawing import LINE, WIDTH, Drawing, Guide, Scale
from mfairfl.report.charts.points import floor_band

_PLOT = 230  # height of the plane
_TICKS = 5
_APART = 5  # of so many points one has its intervals drawn
_SHADES = 3 * LINE + 4  # height of the key of the shades

Sign = Callable[[float], Iterable[Markup]]


def tradeoff_chart(
    curves: Sequence[Curve], label: str, *, guides: Sequence[Guide] = ()
) -> Drawing:
    """Return accuracy (up) against a violation (across); better is up and to the left.

    Points of a single curve are the darker, the larger the gap between the clients' accuracies;
    several curves have a colour, dashes and a marker each. A large diamond is what is served.

    Parameters
    ----------
    curves
        Of one notion, measured on the same rows; the violation of what is served is defined.
    label
        What the violation is called.
    guides
        Vertical lines, such as a tolerance.
    """
    unit, constant = unit_of(curves[0].measure), curves[0].constant
    floor = curves[0].served.violation.noise_floor
    shown = [[*filter(_defined, curve.points), curve.served] for curve in curves]
    alone = len(curves) == 1
    drawn = [point for points in shown for point in _with_intervals(points, alone=alone)]
    heights = _extent((p.accuracy for p in chain(*shown)), (p.accuracy for p in drawn))
    low, high = min(heights), max(heights)
    near = _defined(constant) and (constant.accuracy.value or 0.0) > 2 * low - high
    beside = [constant] if near else []
    top = LINE * (1 + len(guides)) + 4
    y = draw.fitted(
        [low, high, *(p.accuracy.value for p in beside)], top + _PLOT, top, bounds=(0.0, 1.0)
    )
    farthest = [*(p.violation.value for p in beside), *(guide.value for guide in guides), floor]
    farthest += _extent((p.violation for p in chain(*shown)), (p.violation for p in drawn))
    start = draw.side_room(y, SHARE.tick, _TICKS)
    x = draw.fitted(farthest, start, WIDTH - 8, zero=True, bounds=(0.0, math.inf))
    parts = [] if floor is None else floor_band(x.start, x.at(floor), y.end, y.start)
    name = f"{label}{', points' * (unit is POINTS)} →"
    parts += [
        draw.line(x.start, y.start, x.start, y.end, "axis"),
        *draw.side_axis(y, x, SHARE.tick, most=_TICKS),
        *draw.bottom_axis(x, y.start, unit.tick, most=_TICKS),
        draw.text(0, LINE - 4, "↑ accuracy", kind="dim"),
        draw.text(WIDTH, y.start + 2 * LINE, name, anchor="end", kind="dim"),
        *draw.upright(guides, x, y.start, below=LINE),
        *chain.from_iterable(
            _curve(points, i, x, y, alone=alone) for i, points in enumerate(shown)
        ),
        *(draw.marker("down", *_place(p, x, y), "open s6", radius=5) for p in beside),
    ]
    end = y.start + 2 * LINE + 12
    for sign, words in _key(curves, near=near):
        parts += [*sign(end), draw.text(38, end + 4, words, room=WIDTH - 38)]
        end += LINE
    for note in _notes(curves, near=near):
        parts.append(draw.text(0, end + 4, note, kind="dim"))
        end += LINE
    if alone:
        gaps = [*map(_gap, shown[0])]
        parts += shades_key(end, min(gaps), max(gaps), POINTS)
        end += _SHADES - LINE
    return Drawing(end, parts)


def _defined(point: TradeoffPoint) -> bool:
    return point.accuracy.value is not None and point.violation.value is not None


def _with_intervals(points: Sequence[TradeoffPoint], *, alone: bool) -> list[TradeoffPoint]:
    """Return some points, and what is served: more whiskers would hide one another."""
    return [*(points[:-1:_APART] if alone else ()), points[-1]]


def _extent(all_: Iterable[Measured], drawn: Iterable[Measured]) -> list[float]:
    """Return all values, and the ends of the intervals that are drawn."""
    ends = [end for number in drawn for end in number.interval or ()]
    return [number.value for number in all_ if number.value is not None] + ends


def _place(point: TradeoffPoint, x: Scale, y: Scale) -> tuple[float, float]:
    return x.at(point.violation.value or 0.0), y.at(point.accuracy.value or 0.0)


def _gap(point: TradeoffPoint) -> float:
    return point.client_accuracy_gap.value or 0.0


def _curve(
    points: Sequence[TradeoffPoint], index: int, x: Scale, y: Scale, *, alone: bool
) -> Iterator[Markup]:
    """Draw intervals, then the line, then the points; the last one is what is served."""
    colour, shape = f"s{index % 6 + 1}", draw.SHAPES[index % 6]
    for point in _with_intervals(points, alone=alone):
        at, base = _place(point, x, y)
        kind = f"thin {colour}" if point is points[-1] else "axis"
        if ends := point.violation.interval:
            yield draw.line(x.at(ends[0]), base, x.at(ends[1]), base, kind)
        if ends := point.accuracy.interval:
            yield draw.line(at, y.at(ends[0]), at, y.at(ends[1]), kind)
    *rules, served = [_place(point, x, y) for point in points]
    if rules:
        yield from stroke(f"M{'L'.join(draw.point(*place) for place in rules)}", [], index)
    gaps = [*map(_gap, points)]
    for place, gap in zip(rules, gaps, strict=False):
        if alone:
            kind = f"open {colour} h{shade(gap, min(gaps), max(gaps))}"
            yield draw.marker("circle", *place, kind)
        else:
            yield draw.marker(shape, *place, f"full {colour}", radius=3)
    yield draw.marker("diamond", *served, f"open {colour}", radius=6)


def _key(curves: Sequence[Curve], *, near: bool) -> Iterator[tuple[Sign, str]]:
    """Yield what draws each sign at a height, and what it means."""
    for i, curve in enumerate(curves):
        if len(curves) > 1:
            yield partial(_line_sign, i), curve.run
    yield lambda y: [draw.marker("diamond", 15, y, "open s1", radius=6)], "as it decides now"
    if near:
        yield lambda y: [draw.marker("down", 15, y, "open s6", radius=5)], "constant classifier"


def _line_sign(index: int, y: float) -> Iterator[Markup]:
    return stroke(f"M{draw.point(0, y)}L{draw.point(30, y)}", [(15, y)], index)


def _notes(curves: Sequence[Curve], *, near: bool) -> Iterator[str]:
    constant = curves[0].constant.accuracy.value
    if not near and constant is not None:
        yield f"constant classifier: {SHARE.one(constant)}, outside the picture"
    if curves[0].served.violation.noise_floor is not None:
        yield "grey: what chance alone gives (noise floor)"
    alone = len(curves) == 1
    yield f"whiskers: intervals, of {'some points' if alone else 'what is served'} only"
    if alone:
        yield "shade: gap between clients' accuracies, points"
