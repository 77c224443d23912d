"""The palette: on white, in grey, and to colour-blind readers."""

from __future__ import annotations

from itertools import combinations

import pytest

from eyes import VISIONS, contrast, lab
from mfairfl.colours import DASHES, GRID, INK, MUTED, PALETTE, tint

PAIRS = list(combinations(PALETTE, 2))


def test_the_eyes_see_what_is_known():
    assert contrast("#000000") == pytest.approx(21.0)
    assert contrast("#767676") == pytest.approx(4.54, abs=0.005)  # WCAG's own example
    assert lab("#ffffff") == pytest.approx([100, 0, 0], abs=1e-3)
    assert lab("#ff0000") == pytest.approx([53.24, 80.09, 67.20], abs=0.02)
    # Who lacks the green cones confuses red with green, and not with blue.
    red, green, blue = (lab(c, "deuteranopia") for c in ("#c00000", "#6f6f00", "#0000c0"))
    assert abs(red - green).max() < 15 < abs(red - blue).max()


@pytest.mark.parametrize("colour", [*PALETTE, INK, MUTED])
def test_every_mark_stands_out_from_white(colour):
    assert contrast(colour) >= 3.0


@pytest.mark.parametrize("vision", VISIONS)
def test_any_two_are_told_apart_by_every_eye(vision):
    distance = [float(sum((lab(a, vision) - lab(b, vision)) ** 2) ** 0.5) for a, b in PAIRS]
    assert len(distance) >= 15  # six colours or more
    assert min(distance) >= 20.0


def test_any_two_are_told_apart_in_grey_and_the_first_two_best():
    steps = {(a, b): abs(lab(a)[0] - lab(b)[0]) for a, b in PAIRS}
    assert min(steps.values()) >= 7.5
    assert max(steps, key=steps.get) == PALETTE[:2]


def test_lines_differ_in_dashes_as_well_and_guides_stay_behind():
    assert len(DASHES) == len(set(DASHES)) == len(PALETTE)
    assert contrast(GRID) < 1.5


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_a_tint_lies_between_the_colour_and_white(share):
    mixed = tint("#042a76", share)
    assert [int(mixed[at : at + 2], 16) for at in (1, 3, 5)] == [
        round(255 - share * (255 - part)) for part in (0x04, 0x2A, 0x76)
    ]
