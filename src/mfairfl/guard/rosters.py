"""Which sums over silos may be told: none from which one silo, or two, could be told apart.

A sum over a roster is one linear equation in the silos' own numbers. Whoever has the sums over
several rosters can add and subtract them, so what counts is the span of the rosters, as vectors of
0 and 1 over the silos: it must hold no vector that is 0 everywhere but at one silo, or at two.

With N a basis of the orthogonal complement, a vector v is in the span exactly if N v = 0. So one
silo is isolated if its column of N is 0, and two are if their columns are multiples of each other.
All of it is done in fractions: nothing depends on rounding.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from fractions import Fraction

__all__ = ["FEWEST", "isolated_silos"]

FEWEST = 3
"""Silos behind every number that is told."""

_Row = list[Fraction]
_Column = tuple[tuple[int, Fraction], ...]  # entries other than 0, with their places


def isolated_silos(rosters: Iterable[Collection[str]]) -> tuple[str, ...]:
    """Return one silo, or two, whose numbers the sums over these rosters tell apart, if any.

    Examples
    --------
    >>> isolated_silos([{"a", "b", "c", "d"}, {"a", "b", "c"}])
    ('d',)
    >>> isolated_silos([{"a", "b", "c", "d", "e", "f"}, {"a", "b", "c"}])
    ()
    """
    sets = [frozenset(one) for one in rosters]
    names = sorted(frozenset().union(*sets))
    rows, pivots = _reduced([[Fraction(name in one) for name in names] for one in sets])
    seen: dict[_Column, str] = {}
    for name, column in zip(names, _complement_columns(rows, pivots, len(names)), strict=True):
        direction = _direction(column)
        if not direction:
            return (name,)
        if direction in seen:
            return seen[direction], name
        seen[direction] = name
    return ()


def _reduced(rows: list[_Row]) -> tuple[list[_Row], list[int]]:
    """Return the reduced row echelon form without its zero rows, and where each row begins."""
    found: list[_Row] = []
    pivots: list[int] = []
    for row in rows:
        rest = row
        for own, pivot in zip(found, pivots, strict=True):
            rest = _minus(rest, own, rest[pivot])
        if not any(rest):
            continue
        pivot = next(i for i, value in enumerate(rest) if value)
        rest = [value / rest[pivot] for value in rest]
        found = [_minus(own, rest, own[pivot]) for own in found]
        found.append(rest)
        pivots.append(pivot)
    return found, pivots


def _minus(row: _Row, other: _Row, times: Fraction) -> _Row:
    return [a - times * b for a, b in zip(row, other, strict=True)] if times else row


def _complement_columns(
    rows: Sequence[_Row], pivots: Sequence[int], size: int
) -> Iterator[_Column]:
    """Yield the columns of N, which has a row for every place without a pivot.

    The row of such a place f is 1 at f and −R[r, f] at the pivot of each row r.
    """
    free = sorted(set(range(size)) - set(pivots))
    row_of = dict(zip(pivots, rows, strict=True))
    for place in range(size):
        if place in row_of:
            own = row_of[place]
            yield tuple((f, -own[f]) for f in free if own[f])
        else:
            yield ((place, Fraction(1)),)


def _direction(column: _Column) -> _Column:
    """Return the multiple of a column whose first entry other than 0 is 1."""
    return tuple((place, value / column[0][1]) for place, value in column)
