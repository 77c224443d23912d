"""What the figures of many runs share: a style for each method, and legends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from matplotlib.figure import Figure

from mfairfl.runs.figures import MARKERS

__all__ = ["DPI", "MethodStyle", "legend_below", "method_styles"]

DPI = 160

_POOLED_MARKERS = ("<", ">", "p")
_FILLS = ("white", "0.7", "0.35")
_FACES = ("white", "0.8", "0.6")
_HATCHES = ("", "////", "....", "xxxx", "----", "\\\\\\\\", "oo")
_DASHES: tuple[Any, ...] = ("--", "-.", ":", (0, (7, 2, 1, 2, 1, 2)), (0, (3, 1)))


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodStyle:
    """How one method is drawn: as a point, as a line and as a bar.

    Parameters
    ----------
    marker, fill, size
        Of its points; no two of 22 methods share marker and fill, and no method a marker with a
        pooled reference.
    shade, dashes
        Of its lines.
    face, hatch, over
        Of its bars; `over` is the colour of a line on them.
    """

    marker: str
    fill: str
    size: float
    shade: str
    dashes: Any
    face: str
    hatch: str
    over: str = "black"


_REFERENCE = MethodStyle(
    marker="*", fill="black", size=12, shade="black", dashes="-", face="0.15", hatch="", over="0.5"
)


def method_styles(
    strategies: Iterable[str], reference: str = "mfairfl", pooled: Sequence[str] = ()
) -> dict[str, MethodStyle]:
    """Return each method's style, `reference` (the black star) first, then by appearance.

    Those in `pooled` come last and have markers of their own.

    Examples
    --------
    >>> {name: style.marker for name, style in method_styles(["fedavg", "mfairfl"]).items()}
    {'mfairfl': '*', 'fedavg': 'o'}
    """
    names = list(dict.fromkeys(strategies))
    found = {reference: _REFERENCE} if reference in names else {}
    marks = [mark for mark in MARKERS if mark != "*"]
    for i, name in enumerate(name for name in names if name not in (reference, *pooled)):
        again = i // len(marks)
        found[name] = MethodStyle(
            marker=marks[i % len(marks)],
            fill=_FILLS[again % len(_FILLS)],
            size=6.5,
            shade=("0.3", "0.55")[i % 2],
            dashes=_DASHES[i % len(_DASHES)],
            face=_FACES[again % len(_FACES)],
            hatch=_HATCHES[i % len(_HATCHES)],
        )
    for name, marker in zip(pooled, _POOLED_MARKERS, strict=False):
        found[name] = replace(_REFERENCE, marker=marker, size=8)
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
