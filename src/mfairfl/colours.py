"""The colours of every figure and report: distinct in grey and for colour-blind readers.

Each colour of the palette stands out from white by 3 : 1 or more (WCAG 2.1, 1.4.11), so it may be
drawn on paper, and white on it. Ordered by lightness they are 8 steps of L* apart, so a grey print
keeps them apart; the first two are farthest from one another. Simulated protanopia, deuteranopia
and tritanopia leave any two of them at least 20 apart in CIELAB (the tests compute all of this).
Colour is never alone: series also differ in mark, dashes or hatching.
"""

PALETTE: tuple[str, ...] = (
    "#042a76",  # navy
    "#d18100",  # orange
    "#8d3672",  # purple
    "#3e8e5b",  # green
    "#bd4016",  # vermilion
    "#474624",  # olive
)
"""In the order of use."""

DASHES: tuple[tuple[float, ...], ...] = (
    (),
    (5, 2),
    (1, 1.5),
    (7, 2, 1, 2),
    (7, 2, 1, 2, 1, 2),
    (3, 1),
)
"""For lines of these colours, in multiples of the width: drawn, left out, ...; () is solid."""

INK = "#1a1a1a"
"""Text, frames, and everything that is not a series."""

MUTED = "#6b6b6b"
"""Lines to compare with, such as a noise floor; 3 : 1 against white as well."""

GRID = "#dcdcdc"
"""Lines that only guide the eye."""


def tint(colour: str, share: float) -> str:
    """Mix a colour with white.

    Parameters
    ----------
    colour : str
        ``#rrggbb``.
    share : float
        How much of the colour is left: 1 is the colour, 0 is white.

    Examples
    --------
    >>> tint("#042a76", 1.0), tint("#000000", 0.5), tint("#042a76", 0.0)
    ('#042a76', '#808080', '#ffffff')
    """
    parts = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{round(255 - share * (255 - part)):02x}" for part in parts)
