"""Plain text: tables, lists of many names, the words of a name."""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pandas import DataFrame

_FORMULA = re.compile(r"'*[=+\-@\t\r](?s:.)")
_QUOTED = re.compile(r"'+[=+\-@\t\r](?s:.)")
_LONGEST = 2000  # characters of a text in Markdown
_MARKUP = re.compile(r"[\\`*_\[\]<>|#~&$!]")
_LIST_OR_HEADING = re.compile(r"^(?:[-+=]|\d+[.)](?=\s|$))")  # at the beginning of a line
_LINK = re.compile(r"(?<=:)/(?=/)|(?<=www)\.", re.IGNORECASE)  # readers make links of these
_NUMBER = re.compile(r"[+-]?(\d+([.,]\d*)*|[.,]\d+)([eE][+-]?\d+)? ?%?")


def aligned(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    r"""Return a line per row with padded columns; those in `right` end, the others begin, alike.

    A column without any text is left out.

    Examples
    --------
    >>> print("\n".join(aligned([["client", "rows"], ["a", "9,769"]], right=[1])))
    client   rows
    a       9,769
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    shown = [(i, width) for i, width in enumerate(widths) if width]
    return [
        "  ".join(row[i].rjust(w) if i in right else row[i].ljust(w) for i, w in shown).rstrip()
        for row in rows
    ]


def csv_text(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    r"""Return a table as CSV for people: no cell is a formula, None is an empty cell.

    Examples
    --------
    >>> csv_text(["group", "rate"], [["=1+1", 0.5], ["-3", None]])
    "group,rate\n'=1+1,0.5\n-3,\n"
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for row in chain([head], rows):
        writer.writerow([formula_safe(cell) if isinstance(cell, str) else cell for cell in row])
    return text.getvalue()


def formula_safe(text: str) -> str:
    """Return a text that a spreadsheet shows and does not compute.

    A cell that begins with =, +, -, @, a tab or a carriage return gets an apostrophe, unless it
    is a number or that one character.

    Examples
    --------
    >>> [formula_safe(cell) for cell in ("=1+1", "-3.5", "-x", "+", "a=b", "'=1")]
    ["'=1+1", '-3.5', "'-x", '+', 'a=b', "''=1"]
    """
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def formula_safe_frame(frame: DataFrame) -> DataFrame:
    """Return a frame of which no text is a formula, in cells and in names of columns.

    Examples
    --------
    >>> import pandas as pd
    >>> formula_safe_frame(pd.DataFrame({"@a": ["=1", "b"], "n": [-1, 2]})).to_dict("list")
    {"'@a": ["'=1", 'b'], 'n': [-1, 2]}
    """
    safe = frame.copy(deep=False)
    for place, kind in enumerate(frame.dtypes):
        if kind.kind not in "biufcmM":
            cells = frame.iloc[:, place].tolist()
            safe.isetitem(place, [formula_safe(v) if isinstance(v, str) else v for v in cells])
    safe.columns = [formula_safe(str(name)) for name in frame.columns]
    return safe


def formula_unsafe(text: str) -> str:
    """Return the text that `formula_safe` was given.

    Examples
    --------
    >>> formula_unsafe("'=1+1"), formula_unsafe("'quoted'")
    ('=1+1', "'quoted'")
    """
    return text[1:] if _QUOTED.match(text) else text


def markdown_escaped(text: str) -> str:
    r"""Return a text that Markdown shows as it is: untrusted names and values stay text.

    Examples
    --------
    >>> print(markdown_escaped("<b>| [x](y) *z*"))
    \<b\>\| \[x\](y) \*z\*
    >>> print(markdown_escaped("www.example.org"))
    www\.example.org
    """
    plain = _MARKUP.sub(r"\\\g<0>", one_line(text, _LONGEST))
    return _LINK.sub(r"\\\g<0>", plain)


def markdown_list(lines: Iterable[str]) -> str:
    r"""Return a Markdown list of texts that stay text.

    Examples
    --------
    >>> print(markdown_list(["1. x", "*y*"]))
    - 1\. x
    - \*y\*
    """
    return "\n".join(f"- {_list_item(line)}" for line in lines)


def _list_item(line: str) -> str:
    return _LIST_OR_HEADING.sub(lambda m: f"{m[0][:-1]}\\{m[0][-1]}", markdown_escaped(line))


def one_line(text: str, longest: int = 240) -> str:
    r"""Return text from an untrusted source as one short line, safe to print and to store.

    Spaces and line breaks become one space; control characters, marks that turn the direction of
    writing and halves of characters become ``?``. Of a long text the beginning is kept.

    Examples
    --------
    >>> one_line("disk\n full\x1b[2J"), one_line("x" * 300, longest=4)
    ('disk full?[2J', 'xxx…')
    """
    # Cut first: what is thrown away need not be read. Words are joined by one space at most.
    words = " ".join(text[: 10 * longest].split())
    plain = "".join("?" if unicodedata.category(c).startswith("C") else c for c in words)
    complete = len(plain) <= longest and len(text) <= 10 * longest
    return plain if complete else plain[: longest - 1] + "…"


def some_of(names: Sequence[str], most: int = 3) -> str:
    """List the first names and count the others.

    Examples
    --------
    >>> some_of(["a", "b"]), some_of(["a", "b", "c", "d", "e"])
    ('a, b', 'a, b, c and 2 more')
    """
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")


def words_of(name: str) -> list[str]:
    """Cut a column's name into words in lower case.

    Examples
    --------
    >>> words_of("EmployeeNumber"), words_of("id_student"), words_of("customerID")
    (['employee', 'number'], ['id', 'student'], ['customer', 'id'])
    """
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_]+|\d+", name)
    return [part.lower() for part in parts]
