"""Tables as plain text."""

from __future__ import annotations

from collections.abc import Collection, Sequence

__all__ = ["aligned"]


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
