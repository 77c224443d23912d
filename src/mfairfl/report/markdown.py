"""Markdown in which names and values of others stay text: tables, lists, escaped words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from mfairfl.text import markdown_escaped

_FIRST = re.compile(r"^(?:[-+=]|\d+[.)](?=\s|$))")  # would begin a list, a line or a heading


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, right: int) -> str:
    r"""Return a table of escaped texts; columns from number `right` on hold numbers.

    Examples
    --------
    >>> print(table(["client", "rows"], [["a|b", "3"]], right=1))
    | client | rows |
    | --- | ---: |
    | a\|b | 3 |
    """
    ruler = ["---" if i < right else "---:" for i in range(len(head))]
    lines = [[markdown_escaped(cell) for cell in head], ruler]
    lines += [[markdown_escaped(cell) for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def bullets(lines: Iterable[str], nothing: str = "") -> str:
    r"""Return a list of escaped texts; `nothing` is said if there are none.

    Examples
    --------
    >>> print(bullets(["1. x"]), bullets([], "none"))
    - 1\. x - none
    """
    return "\n".join(f"- {_item(line)}" for line in [*lines] or [nothing] * bool(nothing))


def _item(line: str) -> str:
    return _FIRST.sub(lambda found: f"{found[0][:-1]}\\{found[0][-1]}", markdown_escaped(line))
