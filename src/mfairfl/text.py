"""Plain text: tables, lists of many names, the words of a name."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Sequence

__all__ = ["aligned", "one_line", "some_of", "words_of"]


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
    kept = [(i, width) for i, width in enumerate(widths) if width]
    return [
        "  ".join(row[i].rjust(w) if i in right else row[i].ljust(w) for i, w in kept).rstrip()
        for row in rows
    ]


def one_line(text: str, longest: int = 240) -> str:
    r"""Return what somebody else wrote as one short line that is safe to print and to store.

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
    whole = len(plain) <= longest and len(text) <= 10 * longest
    return plain if whole else plain[: longest - 1] + "…"


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
