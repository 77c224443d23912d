"""What the pictures of many runs share: how methods look, legends, checks of frames, saving."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from mfairfl.errors import DataError
from mfairfl.experiments.figures.runs import MARKERS, STYLE, save

__all__ = ["DPI", "STYLE", "Look", "legend_below", "looks", "need", "once", "save_both"]

DPI = 160

_FILLS = ("white", "0.7", "0.35")
_FACES = ("white", "0.8", "0.6")
_HATCHES = ("", "////", "....", "xxxx", "----", "\\\\\\\\", "oo")
_DASHES: tuple[Any, ...] = ("--", "-.", ":", (0, (7, 2, 1, 2, 1, 2)), (0, (3, 1)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How one method looks: as a point, as a line and as a bar.

    Parameters
    ----------
    marker, fill, size
        Of its points; no two of 22 methods share marker and fill.
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


_REFERENCE = Look(
    marker="*", fill="black", size=12, shade="black", dashes="-", face="0.15", hatch="", over="0.5"
)


def looks(strategies: Iterable[str], reference: str = "mfairfl") -> dict[str, Look]:
    """Return every method's look, `reference` (the black star) first, then by appearance.

    Examples
    --------
    >>> {name: look.marker for name, look in looks(["fedavg", "mfairfl", "fedavg"]).items()}
    {'mfairfl': '*', 'fedavg': 'o'}
    """
    names = list(dict.fromkeys(strategies))
    found = {reference: _REFERENCE} if reference in names else {}
    marks = [mark for mark in MARKERS if mark != "*"]
    for i, name in enumerate(name for name in names if name != reference):
        again = i // len(marks)
        found[name] = Look(
            marker=marks[i % len(marks)],
            fill=_FILLS[again % len(_FILLS)],
            size=6.5,
            shade=("0.3", "0.55")[i % 2],
            dashes=_DASHES[i % len(_DASHES)],
            face=_FACES[again % len(_FACES)],
            hatch=_HATCHES[i % len(_HATCHES)],
        )
    return found


def need(frame: pd.DataFrame, columns: Sequence[str]) -> None:
    """Refuse a frame that is empty or lacks one of the columns."""
    for column in columns:
        if column not in frame.columns:
            raise DataError(f"frame: lacks column '{column}'; add it (it has {[*frame.columns]})")
    if frame.empty:
        raise DataError("frame: has no rows; give at least one run")


def once(frame: pd.DataFrame, key: Sequence[str], fix: str) -> None:
    """Refuse a frame with two rows of the same key: they would mix what is to be told apart."""
    twice = frame[frame.duplicated([*key])]
    if len(twice):
        values = ", ".join(f"{name} {twice.iloc[0][name]}" for name in key)
        raise DataError(f"frame: two rows of {values}; {fix}")


def legend_below(figure: Figure, first: Iterable[str] = ()) -> None:
    """Put one legend for all panels below them: the names in `first` by their order, then more."""
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
        fontsize="small", handlelength=3,
    )  # fmt: skip


def save_both(figure: Figure, path: str | Path) -> None:
    """Write the figure as SVG and as PNG, whatever the ending of `path`."""
    for suffix in (".svg", ".png"):
        save(figure, Path(path).with_suffix(suffix))
