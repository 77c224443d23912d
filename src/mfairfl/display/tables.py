"""A table as plain data, and its renderers: HTML, Markdown, plain text, CSV and LaTeX.

Whatever names and values contain stays text in each of them. `fill` fills all templates.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from string import ascii_lowercase
from typing import Any, Literal

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from mfairfl.display.numbers import NO_VALUE, Unit, unit_of
from mfairfl.fairness.results import Measured
from mfairfl.text import aligned, csv_text, markdown_escaped, one_line

_FEW_ROWS, _FEW_COLUMNS, _LONG = 4, 3, 15
_LONGEST = 80  # characters of a cell in plain text
_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
        "+": "{+}", **{sign: f"\\{sign}" for sign in "%_&#${}"},
    }
)  # fmt: skip
_LATEX_SIGNS = {
    "±": r"$\pm$", "••": r"$\bullet\bullet$", "∘∘": r"$\circ\circ$",
    "•": r"$\bullet$", "∘": r"$\circ$", "†": r"$\dagger$",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell that is more than a text or a number.

    Parameters
    ----------
    text
        What is read first.
    detail, more
        Smaller, a line each below it in HTML, in parentheses elsewhere.
    meaning
        What the row means; below the text in HTML and in the terminal, left out elsewhere.
    note
        Letter of the note that explains why there is no value.
    code
        Whether it is read letter by letter, such as a hash.

    Examples
    --------
    >>> Cell("27.4 %", detail="26.1–28.8").plain
    '27.4 % (26.1–28.8)'
    """

    text: str
    detail: str = ""
    more: str = ""
    meaning: str = ""
    note: str = ""
    code: bool = False

    @property
    def plain(self) -> str:
        """The cell in one line."""
        details = "; ".join(filter(None, [self.detail, self.more]))
        return "undefined" if self.note else f"{self.text} ({details})" if details else self.text


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a column.

    Parameters
    ----------
    label
        Its heading.
    detail
        Smaller, below it.
    numeric
        Whether its cells are numbers, which end alike.
    wrap
        Whether its cells may be broken between words where the terminal is too narrow.

    Examples
    --------
    >>> Head("Rows", detail="test").plain
    'Rows (test)'
    """

    label: str
    detail: str = ""
    numeric: bool = True
    wrap: bool = False

    @property
    def plain(self) -> str:
        """The head in one line."""
        return f"{self.label} ({self.detail})" if self.detail else self.label


@dataclass(frozen=True, slots=True)
class Block:
    """A row that separates the rows above it from those below it, with a heading or empty.

    Examples
    --------
    >>> Block("Each client").heading
    'Each client'
    """

    heading: str = ""


Entry = Cell | Measured | str | float | None
"""What a row may hold: a `Measured` is written with its interval and bounds, None is empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DisplayTable:
    r"""A table that people read, with all that is needed to read it.

    Parameters
    ----------
    caption
        What it shows.
    columns
        Their heads, the first for what a row is about.
    rows
        As many entries as there are columns, or a block.
    unit
        How all measured numbers are written; by default each as its name demands.
    meanings
        What the columns mean, by label.
    cards
        Whether each row is a card on a phone, however many there are.
    aside
        Whether it holds what few readers need.

    Examples
    --------
    >>> rate = Measured(name="selection_rate", value=0.16, interval=(0.15, 0.17))
    >>> columns = [Head("Group", numeric=False), Head("Rows"), Head("Selection rate")]
    >>> table = DisplayTable(caption="Groups", columns=columns, rows=[["a|b", 3108, rate]])
    >>> print(table.to_text())
    Group   Rows      Selection rate
    a|b    3,108  16.0 % (15.0–17.0)
    >>> print(table.to_markdown())
    | Group | Rows | Selection rate |
    | --- | ---: | ---: |
    | a\|b | 3,108 | 16.0 % (15.0–17.0) |
    >>> table.to_csv()
    'Group,Rows,Selection rate\na|b,3108,0.16\n'
    """

    columns: Sequence[Head]
    rows: Sequence[Sequence[Entry] | Block]
    caption: str = ""
    unit: Unit | None = None
    meanings: Mapping[str, str] = field(default_factory=dict)
    cards: bool = False
    aside: bool = False

    @classmethod
    def of(
        cls,
        heads: Sequence[str],
        rows: Iterable[Sequence[Entry] | Block],
        *,
        numeric: Collection[int] = (),
        wrap: Collection[int] = (),
    ) -> DisplayTable:
        """Return a table by the headings of its columns; those in `numeric` hold numbers.

        Examples
        --------
        >>> print(DisplayTable.of(["client", "rows"], [["a", 9769]], numeric=[1]).to_text())
        client   rows
        a       9,769
        """
        columns = [
            Head(head, numeric=i in numeric, wrap=i in wrap) for i, head in enumerate(heads)
        ]
        return cls(columns=columns, rows=list(rows))

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
        return any(cell.detail for row in self.shown() for cell in row[1:])

    @property
    def letters(self) -> dict[str, str]:
        """The reasons of undefined numbers, lettered in the order of appearance."""
        entries = [entry for row in self._entries() for entry in row]
        undefined = [e for e in entries if isinstance(e, Measured) and e.value is None]
        reasons = dict.fromkeys(map(_reason, undefined))
        return {
            reason: f"{ascii_lowercase[i % 26]}{i // 26 or ''}" for i, reason in enumerate(reasons)
        }

    def shown(self) -> list[list[Cell]]:
        """Return all cells as they are written."""
        letters = self.letters
        return [[self._cell(entry, letters) for entry in row] for row in self._entries()]

    def _cell(self, entry: Entry, letters: Mapping[str, str]) -> Cell:
        if isinstance(entry, Cell):
            return entry
        if not isinstance(entry, Measured):
            return Cell("" if entry is None else entry if isinstance(entry, str) else f"{entry:,}")
        if entry.value is None:
            return Cell(NO_VALUE, note=letters[_reason(entry)])
        unit = self.unit or unit_of(entry.name)
        bounds = f"bounds {unit.span(entry.bounds)}" if entry.bounds else ""
        return Cell(unit.one(entry.value), unit.span(entry.interval), bounds)

    def _entries(self) -> Iterator[Sequence[Entry]]:
        empty = [None] * (len(self.columns) - 1)
        for row in self.rows:
            yield [row.heading, *empty] if isinstance(row, Block) else row

    def to_html(self) -> Markup:
        """Return the table for a page; nothing if it has no rows."""
        return fill("mfairfl.display", "table.html", table=self) if self.rows else Markup("")

    def _plain_lines(self) -> list[list[str]]:
        """Return heads and cells, each in one line."""
        heads = [head.plain for head in self.columns]
        return [heads, *([cell.plain for cell in row] for row in self.shown())]

    def to_markdown(self) -> str:
        """Return the table as GitHub's Markdown."""
        head, *lines = ([markdown_escaped(text) for text in row] for row in self._plain_lines())
        ruler = ["---:" if column.numeric else "---" for column in self.columns]
        return "\n".join(f"| {' | '.join(line)} |" for line in [head, ruler, *lines])

    def to_text(self) -> str:
        """Return lines with padded columns."""
        lines = [[_printable(text) for text in line] for line in self._plain_lines()]
        numeric = [i for i, column in enumerate(self.columns) if column.numeric]
        return "\n".join(aligned(lines, right=numeric))

    def to_csv(self) -> str:
        """Return the table as CSV, numbers in full; no cell is a formula."""
        lines = [[_raw(entry) for entry in row] for row in self._entries()]
        return csv_text([column.label for column in self.columns], lines)


def readable(words: str) -> str:
    r"""Return words without characters that are invisible or turn the direction of writing.

    Examples
    --------
    >>> readable("a\u202eb")
    'a?b'
    """
    return one_line(words, longest=len(words) + 1)


def fill(package: str, template: str, **values: Any) -> Markup:
    """Fill a template of a package; an unknown name is an error, and all texts are escaped.

    In a template of Markdown (``.md``) they are escaped as Markdown, elsewhere as HTML.
    """
    escaped = _markdown if template.endswith(".md") else readable
    filled = _environment(package, escaped).get_template(template).render(**values)
    return Markup(filled)  # noqa: S704 - the environment escapes


def _markdown(text: str) -> Markup:
    return Markup(markdown_escaped(text))  # noqa: S704 - it was escaped


@cache
def _environment(package: str, escaped: Callable[[str], str]) -> Environment:
    return Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        # Markup is exempt: it is a text of ours, or was escaped before.
        finalize=lambda value: escaped(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def to_latex(tables: Sequence[DisplayTable], *, caption: str, label: str) -> str:
    r"""Return tables of the same columns as one booktabs table, one below the other.

    Parameters
    ----------
    tables
        Their captions are headings within the table.
    caption
        Of all together.
    label
        For references.

    Examples
    --------
    >>> table = DisplayTable(columns=[Head("method"), Head("accuracy")], rows=[["a+", ".8"]])
    >>> print(to_latex([table], caption="50 %", label="tab:a").splitlines()[9])
        a{+} & .8 \\
    """
    width = len(tables[0].columns)
    lines = [
        r"\begin{table}",
        r"  \centering",
        r"  \footnotesize",
        f"  \\caption{{{_latex(caption)}}}",
        f"  \\label{{{label}}}",
        f"  \\begin{{tabular}}{{{'l' * width}}}",
        r"    \toprule",
        _latex_row(column.label for column in tables[0].columns),
    ]
    for table in tables:
        lines.append(r"    \midrule")
        if table.caption:
            heading = f"\\emph{{{_latex(table.caption)}}}"
            lines.append(f"    \\multicolumn{{{width}}}{{l}}{{{heading}}} \\\\")
        for row, cells in zip(table.rows, table.shown(), strict=True):
            lines += [r"    \addlinespace"] * isinstance(row, Block)
            lines.append(_latex_row(cell.plain for cell in cells))
    return "\n".join([*lines, r"    \bottomrule", r"  \end{tabular}", r"\end{table}", ""])


def _latex_row(texts: Iterable[str]) -> str:
    return f"    {' & '.join(map(_latex, texts))} \\\\"


def _latex(text: str) -> str:
    r"""Return a text as LaTeX shows it.

    Examples
    --------
    >>> print(_latex("fedmgda+ 95 % ••"))
    fedmgda{+} 95 \% $\bullet\bullet$
    """
    text = text.translate(_LATEX)
    for sign, command in _LATEX_SIGNS.items():
        text = text.replace(sign, command)
    return text


def _reason(number: Measured) -> str:
    return number.undefined or "undefined"


def _printable(text: str) -> str:
    safe = text.isprintable() and len(text) <= _LONGEST
    return text if safe else one_line(text, _LONGEST)


def _raw(entry: Entry) -> str | float | None:
    if isinstance(entry, Measured):
        return entry.value
    return entry.text if isinstance(entry, Cell) else entry
