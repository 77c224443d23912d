"""Charts against coordinates computed by hand."""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mfairfl.colours import PALETTE
from mfairfl.display.numbers import COUNT, Unit
from mfairfl.fairness.results import Measured
from mfairfl.report.charts.curves import line_chart, strip_chart
from mfairfl.report.charts.drawing import (
    SHADES,
    Guide,
    Scale,
    chart_style,
    fitted,
    picture,
    shortened,
    text_width,
    ticks,
)
from mfairfl.report.charts.points import interval_chart, plane_chart
from mfairfl.report.document import ComparedModel

TENTHS = Unit(1.0, 1)
BAD = "<script>alert(1)</script> & \"'"


def parsed(chart):
    return ET.fromstring(str(chart))  # noqa: S314 - it was just made


def texts(chart):
    return [node.text for node in parsed(chart).iter("text")]


def row(label, value, **more):
    return label, Measured(name="n", value=value, **more)


def chart_of(drawing):
    return picture("one", "A title", "What it shows.", drawing)


def point(label, across, up, *, interval=None, floor=None, comparable=True):
    numbers = {
        "x": Measured(name="x", value=across, noise_floor=floor),
        "accuracy": Measured(name="accuracy", value=up, interval=interval),
    }
    return ComparedModel(name=label, kind="run", same_rows=comparable, numbers=numbers)


def intervals(rows, **more):
    return chart_of(interval_chart(rows, TENTHS, **more))


def curves(places, series, unit=TENTHS, **more):
    return chart_of(line_chart(places, series, unit, "round", **more))


def plane(points, **more):
    return chart_of(plane_chart(points, "x", "violation", **more))


def strips(places, values):
    return chart_of(strip_chart(places, values, Unit(1.0, 2, typed=True), "round"))


EVERY = {
    "intervals": lambda: intervals([row(BAD, 0.5, interval=(0.4, 0.6))]),
    "lines": lambda: curves([0, 1], {BAD: [1.0, 2.0], "b": [2.0, None]}),
    "plane": lambda: plane([point(BAD, 0.1, 0.8)]),
    "strip": lambda: strips([1, 2], {BAD: [0.1, None], "b": [0.2, -0.3]}),
    "no rows": lambda: intervals([]),
    "no values": lambda: intervals([row("a", None)]),
    "no curves": lambda: curves([0], {"a": [None]}),
    "no points": lambda: plane([]),
}  # fmt: skip


@pytest.mark.parametrize("chart", EVERY.values(), ids=EVERY)
def test_a_chart_says_in_words_what_it_shows(chart):
    root = parsed(chart())
    assert root.get("role") == "img"
    title, text = root.get("aria-labelledby").split()
    assert {node.get("id"): node.text for node in root[:2]} == {
        title: "A title",
        text: "What it shows.",
    }


@pytest.mark.parametrize("kind", ["intervals", "lines", "plane", "strip"])
def test_names_are_text(kind):
    chart = EVERY[kind]()
    assert "<script" not in chart
    assert any("<script>" in (text or "") for text in texts(chart))


def test_a_name_cannot_turn_the_direction_of_writing():
    assert "\u202e" not in intervals([row("a\u202eb", 1.0)])


def test_a_point_and_its_interval_lie_where_the_scale_puts_them():
    """Label ab: 2 · .62 · 12 = 14.88, then 10; bold 0.5: 1.1 · 1.61 · 12 = 21.252, after 10."""
    shown = row("ab", 0.5, interval=(0.25, 0.75))
    root = parsed(intervals([shown], zero=True))
    start, end, high = 24.88, 340 - 31.252, 0.75 * 1.05
    x = {value: start + value / high * (end - start) for value in (0.25, 0.5, 0.75)}
    (circle,) = root.iter("circle")
    assert float(circle.get("cx")) == pytest.approx(x[0.5], abs=0.051)
    assert float(circle.get("cy")) == 2 + 11
    whisker = next(node for node in root.iter("path") if node.get("class") == "thin s1")
    numbers = [float(number) for number in re.findall(r"[\d.]+", whisker.get("d"))]
    assert numbers == pytest.approx([x[0.25], 13, x[0.75], 13], abs=0.051)


def test_tolerance_noise_floor_bounds_and_earlier_value_are_marked_and_named():
    shown = row("a", 0.5, noise_floor=0.2, bounds=(0.1, 1.0))
    chart = intervals([shown], guides=[Guide(value=0.6, label="tolerance 0.6", kind="limit")],
                      zero=True, before=[0.9], baseline="fedavg")  # fmt: skip
    kinds = [node.get("class") for node in parsed(chart).iter() if node.get("class")]
    assert {"limit", "floor", "floor-end", "open s2", "full s1", "bracket"} <= set(kinds)
    words = " ".join(texts(chart))
    assert all(word in words for word in ("tolerance 0.6", "noise floor", "fedavg", "bounds"))


def test_an_undefined_value_is_written_out():
    chart = intervals([row("a", None), row("b", 1.0)])
    assert "undefined" in texts(chart)
    assert chart.count("<circle") == 1


def test_a_few_long_labels_stand_above_their_rows_and_many_are_cut():
    long = "a group with a name that is rather long"
    few = [row(f"{long} {i}", 0.5) for i in range(3)]
    many = [row(f"{long} {i}", 0.5) for i in range(30)]
    assert f"{long} 2" in texts(intervals(few))
    cut = [text for text in texts(intervals(many)) if text.startswith("a group")]
    assert len(cut) == 30
    assert all(text.endswith("…") for text in cut)


def test_a_curve_breaks_where_it_has_no_value():
    """Up: 0 to 2, 5 % more above; the plot is 150 high and begins 6 below the top."""
    chart = curves([0, 1, 2, 3], {"a": [0.0, 1.0, None, 2.0]}, zero=True)
    drawn = next(n for n in parsed(chart).iter("path") if n.get("class") == "curve s1").get("d")
    assert drawn.count("M") == 2
    ys = [float(y) for y in re.findall(r" ([\d.]+)", drawn)]
    assert ys == pytest.approx([156 - 150 * value / 2.1 for value in (0, 1, 2)], abs=0.051)


def test_curves_differ_in_more_than_colour():
    chart = curves([0, 1, 2], {str(i): [i, i, i] for i in range(12)}, zero=True)
    drawn = [n for n in parsed(chart).iter("path") if n.get("class", "").startswith("curve")]
    looks = {(n.get("class"), n.get("stroke-dasharray")) for n in drawn}
    assert len(looks) == 12
    assert texts(chart)[-12:] == [str(i) for i in range(12)]


def test_the_served_round_is_marked():
    chart = curves([0, 40], {"a": [0.0, 1.0]},
                   marks=[Guide(value=20, label="served: round 20")])  # fmt: skip
    mark = next(n for n in parsed(chart).iter("path") if n.get("class") == "context")
    across = [float(x) for x in re.findall(r"[ML]([\d.]+)", mark.get("d"))]
    drawn = next(n for n in parsed(chart).iter("path") if n.get("class") == "curve s1").get("d")
    left, right = (float(x) for x in re.findall(r"[ML]([\d.]+)", drawn))
    assert across == pytest.approx([(left + right) / 2] * 2, abs=0.11)
    assert "served: round 20" in texts(chart)


def test_whole_numbers_only():
    """Rounds are whole; the vertical axis where it is asked for."""
    chart = curves([0, 1], {"a": [0.0, 1.0]}, COUNT, zero=True)
    assert {"0", "1"} <= set(texts(chart))
    assert "0.5" not in texts(chart)


def test_points_of_the_plane():
    """Across from 0 to 0.11 (10 % and 5 % more); better is up and to the left."""
    points = [
        point("ours", 0.0, 0.8, interval=(0.78, 0.82), floor=0.05),
        point("theirs", 0.1, 0.9, comparable=False),
    ]
    chart = plane(points, guides=[Guide(value=0.02, label="tolerance", kind="limit")])
    root = parsed(chart)
    (ours,) = root.iter("circle")
    other = next(n for n in root.iter("path") if n.get("class") == "open s2")
    corner = float(re.match(r"M([\d.]+)", other.get("d"))[1])
    assert float(ours.get("cx")) < corner
    band = next(n for n in root.iter("rect") if n.get("class") == "floor")
    axis = float(band.get("x"))
    assert float(ours.get("cx")) == axis
    assert float(band.get("width")) == pytest.approx((332 - axis) * 0.05 / 0.105, abs=0.11)
    assert {"ours", "theirs", "tolerance", "open markers: measured on other rows"} <= set(
        texts(chart)
    )


def test_points_too_close_for_names_are_numbered():
    points = [point(f"model {i}", 0.1, 0.8) for i in range(7)]
    assert {f"{i} model {i - 1}" for i in range(1, 8)} <= set(texts(plane(points)))


def test_strips_are_as_dark_as_their_values():
    """Seven equal steps from −0.35 to 0.35."""
    values = [-0.35, -0.2, -0.1, 0.0, 0.1, 0.2, 0.35]
    chart = strips(list(range(1, 8)), {"a": values, "b": [None] * 7})
    cells = {
        node.get("class"): node.get("d").count("M")
        for node in parsed(chart).iter("path")
        if re.fullmatch(r"h\d", node.get("class"))
    }
    assert cells == {f"h{i}": 1 for i in range(1, 8)}
    below = next(n for n in parsed(chart).iter("path") if n.get("class") == "below")
    assert below.get("d").count("M") == 3
    assert {"-0.35", "0.00", "0.35", "white: took no part"} <= set(texts(chart))


def test_equal_strips_have_one_shade():
    chart = strips([1, 2], {"a": [0.2, 0.2], "b": [0.2, 0.2]})
    assert "0.20 throughout" in texts(chart)


def test_strips_that_differ_by_rounding_are_equal():
    chart = strips([1, 2], {"a": [0.1 + 0.2, 0.3], "b": [0.3, 0.3]})
    assert "0.30 throughout" in texts(chart)
    assert (
        len({n.get("class") for n in parsed(chart).iter("path")} & {f"h{i}" for i in range(1, 8)})
        == 1
    )


def luminance(colour):
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_shades_differ_in_lightness():
    """Each step of CIE L* is at least 8 of 100: told apart without colour."""
    lightness = [116 * luminance(shade) ** (1 / 3) - 16 for shade in SHADES]
    assert all(a - b >= 8 for a, b in pairwise(lightness))


def test_marks_stand_out_from_paper():
    style = chart_style()
    for colour in re.findall(r"(?:stroke|color):(#[0-9a-f]{6})", style):
        if colour in PALETTE:
            assert 1.05 / (luminance(colour) + 0.05) >= 3


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6), st.integers(2, 8))
def test_ticks_are_few_even_and_inside(low, size, most):
    high = low + size
    found = ticks(low, high, most)
    assert len(found) <= most
    slack = 1e-6 * max(abs(low), abs(high), 1)
    assert all(low - slack <= value <= high + slack for value in found)
    steps = [b - a for a, b in pairwise(found)]
    assert all(step == pytest.approx(steps[0], rel=1e-3) for step in steps)


@given(st.lists(st.floats(0, 1), min_size=1))
def test_a_scale_shows_every_value(values):
    scale = fitted(values, 10, 110, bounds=(0.0, 1.0))
    assert scale.low < scale.high
    assert all(10 - 1e-6 <= scale.at(value) <= 110 + 1e-6 for value in values)


def test_a_scale_may_run_downwards():
    assert Scale(0, 10, 100, 0).at(2.5) == 75


@given(st.text(max_size=60), st.floats(12, 200))
def test_a_shortened_text_fits(text, width):
    cut = shortened(text, width)
    assert cut == text or (cut.endswith("…") and text_width(cut) <= width)
