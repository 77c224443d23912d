"""Plain text: tables, lists of many names, the words of a name."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

__all__ = ["aligned", "some_of", "words_of"]


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
