"""What the figures of many runs share: a style for each method, and legends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from matplotlib.figure import Figure

from mfairfl.colours import DASHES, INK, PALETTE, tint
from mfairfl.runs.figures import MARKERS

DPI = 160

_POOLED_MARKERS = ("<", ">", "p")
_FILLS = (1.0, 0.0, 0.4)  # how much of the colour a mark is filled with
_HATCHES = ("", "////", "....", "xxxx", "----", "\\\\\\\\", "oo")


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodStyle:
    """How one method is drawn: as a point, as a line and as a bar.

    Parameters
    ----------
    colour
        Of its marks, lines and bars.
    marker, fill, size
        Of its points: full, hollow or half full. No two of 22 methods share marker and filling,
        and no method a marker with a pooled reference, so that they differ in grey as well.
    dashes
        Of its lines, as matplotlib takes them.
    hatch
        Of its bars, white on the colour.
    """

    colour: str
    marker: str
    fill: str
    size: float
    dashes: Any
    hatch: str


def line_style(at: int) -> Any:
    """Return the dashes that go with a colour of the palette, as matplotlib takes them.

    Examples
    --------
    >>> line_style(0), line_style(1)
    ('-', (0, (5, 2)))
    """
    dashes = DASHES[at % len(DASHES)]
    return (0, dashes) if dashes else "-"


def method_styles(
    strategies: Iterable[str], reference: str = "mfairfl", pooled: Sequence[str] = ()
) -> dict[str, MethodStyle]:
    """Return each method's style, `reference` (the star) first, then by appearance.

    Those in `pooled` come last and are black, with markers of their own.

    Examples
    --------
    >>> {name: style.marker for name, style in method_styles(["fedavg", "mfairfl"]).items()}
    {'mfairfl': '*', 'fedavg': 'o'}
    """
    names = list(dict.fromkeys(strategies))
    star = MethodStyle(
        colour=PALETTE[0], marker="*", fill=PALETTE[0], size=12, dashes="-", hatch=""
    )
    found = {reference: star} if reference in names else {}
    own = len(found)  # the star's colour, dashes and hatching are its own
    marks = [mark for mark in MARKERS if mark != "*"]
    for i, name in enumerate(name for name in names if name not in (reference, *pooled)):
        at = own + i % (len(PALETTE) - own)
        found[name] = MethodStyle(
            colour=PALETTE[at],
            marker=marks[i % len(marks)],
            fill=tint(PALETTE[at], _FILLS[i // len(marks) % len(_FILLS)]),
            size=6.5,
            dashes=line_style(at),
            hatch=_HATCHES[(own + i) % len(_HATCHES)],
        )
    for name, marker in zip(pooled, _POOLED_MARKERS, strict=False):
        found[name] = replace(star, colour=INK, fill=INK, marker=marker, size=8)
    return found


def legend_below(figure: Figure, first: Iterable[str] = (), *, title: str = "") -> None:
    """Put one legend for all panels below them, the names in `first` at its beginning."""
    known = {
        str(label): handle
        for panel in figure.axes
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    order = [name for name in first if name in known]
    order += [name for name in known if name not in order]
    across = max(1, int(figure.get_figwidth() / 1.7))
    figure.legend(
        [known[name] for name in order], order, loc="outside lower center", ncols=across,
        fontsize="small", handlelength=3, title=title or None, title_fontsize="small",
    )  # fmt: skip
