"""Tables as plain data, before any markup: cells, columns, the reasons of missing values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from string import ascii_lowercase
from typing import Literal

from mfairfl.fairness.results import Measured
from mfairfl.report.page.wording import NO_VALUE, Words, unit_of

_FEW_ROWS, _FEW_COLUMNS, _LONG = 4, 3, 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell.

    Parameters
    ----------
    text
        What is read first.
    detail, more
        Smaller, below it, a line each.
    note
        Letter of the note that explains it.
    code
        Whether it is to be read letter by letter.
    """

    text: str
    detail: str = ""
    more: str = ""
    note: str = ""
    code: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PageColumn:
    """The head of one column.

    Parameters
    ----------
    label
        Its heading.
    detail
        Smaller, below it.
    numeric
        Whether its cells are numbers, which end alike.
    """

    label: str
    detail: str = ""
    numeric: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row: what it is about, and its cells."""

    head: Cell
    cells: Sequence[Cell]


@dataclass(frozen=True, slots=True, kw_only=True)
class PageTable:
    """A table with all that is needed to read it.

    Parameters
    ----------
    caption
        What it shows.
    columns
        Including that of the rows' heads.
    notes
        Why values are missing, by letter.
    meanings
        What the columns mean: label and words.
    cards
        Whether each row is a card on a phone, however many there are.
    aside
        Whether it holds what few readers need.
    """

    caption: str
    columns: Sequence[PageColumn]
    rows: Sequence[Row]
    notes: Sequence[tuple[str, str]] = ()
    meanings: Sequence[tuple[str, str]] = ()
    cards: bool = False
    aside: bool = False

    @property
    def layout(self) -> Literal["plain", "stack", "scroll"]:
        """How it fits on a phone: as it is, as one card for each row, or scrolled."""
        if len(self.columns) <= _FEW_COLUMNS:
            return "plain"
        return "stack" if self.cards or len(self.rows) <= _FEW_ROWS else "scroll"

    @property
    def folded(self) -> bool:
        """Whether it is too long to be shown unasked."""
        return self.aside or len(self.rows) > _LONG

    @property
    def detailed(self) -> bool:
        """Whether some cells have a second line."""
        return any(cell.detail for row in self.rows for cell in row.cells)


@dataclass(slots=True)
class Notes:
    """The reasons of missing values, lettered in the order of appearance.

    Examples
    --------
    >>> notes = Notes()
    >>> notes.letter("no rows"), notes.letter("one group only"), notes.letter("no rows")
    ('a', 'b', 'a')
    """

    reasons: dict[str, str] = field(default_factory=dict)

    def letter(self, reason: str) -> str:
        """Return the letter of a reason."""
        letters = f"{ascii_lowercase[len(self.reasons) % 26]}{len(self.reasons) // 26 or ''}"
        return self.reasons.setdefault(reason, letters)

    def listed(self) -> list[tuple[str, str]]:
        """Return letters and reasons."""
        return [(letter, reason) for reason, letter in self.reasons.items()]


def measured_cell(number: Measured | None, notes: Notes, *, interval: bool = True) -> Cell:
    """Return the cell of a number: its value, below it the interval.

    Examples
    --------
    >>> number = Measured(name="accuracy", value=0.858, interval=(0.851, 0.865))
    >>> measured_cell(number, Notes())
    Cell(text='85.8 %', detail='85.1–86.5', more='', note='', code=False)
    """
    if number is None:
        return Cell(text="")
    unit = unit_of(number.name)
    if number.value is None:
        reason = number.undefined or "undefined"
        return Cell(text=NO_VALUE, note=notes.letter(reason))
    if not interval:
        return Cell(text=unit.one(number.value))
    return Cell(
        text=unit.one(number.value),
        detail=unit.span(number.interval),
        more=f"bounds {unit.span(number.bounds)}" if number.bounds else "",
    )


def first_and_others(
    rows: Iterable[Mapping[str, Measured]], first: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Return the names of the numbers in `first` that the rows have, and those of the others.

    Examples
    --------
    >>> row = {"loss": Measured(name="loss", value=0.3), "f1": Measured(name="f1", value=0.5)}
    >>> first_and_others([row], ["accuracy", "f1"])
    (['f1'], ['loss'])
    """
    names = dict.fromkeys(name for row in rows for name in row)
    return [name for name in first if name in names], [n for n in names if n not in first]


def number_columns(
    names: Iterable[str], words: Words, goal: Sequence[str] = ()
) -> tuple[list[PageColumn], list[tuple[str, str]]]:
    """Return a column for each number, and the meanings of those that have one."""
    columns = [
        PageColumn(label=words.label(name), detail="the goal" if name in goal else "")
        for name in names
    ]
    meanings = [(words.label(name), words.meaning(name)) for name in names if words.meaning(name)]
    return columns, meanings


def evenly(count: int, most: int, keep: Iterable[int] = ()) -> list[int]:
    """Return up to about `most` of the indices below `count`, evenly, with those in `keep`.

    Examples
    --------
    >>> evenly(5, 10), evenly(10, 4, keep=[7])
    ([0, 1, 2, 3, 4], [0, 3, 6, 7, 9])
    """
    if count <= most:
        return list(range(count))
    step = -(-count // most)
    return sorted({*range(0, count, step), count - 1, *keep})
