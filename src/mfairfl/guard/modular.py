"""Numbers as integers modulo 2⁶⁴: what masks are added to, and what sums are read from.

Counts are themselves. Numbers that are not whole are fixed-point, in units of 2⁻³⁰. An exact sum
of floats is a row of 32-bit limbs, in units of 2⁻¹⁰⁷⁴ (the smallest float): each limb has 64 bits
of its own, so the sums of up to 2³¹ silos need no carry and nothing is rounded.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from mfairfl.errors import MessageError

__all__ = [
    "LIMBS",
    "UNIT",
    "Words",
    "exact_sum",
    "fixed_words",
    "float_parts",
    "from_fixed",
    "from_whole",
    "limbs_of",
    "whole_words",
]

Words = NDArray[np.uint64]
"""Integers modulo 2⁶⁴."""

UNIT = 2.0**-30
"""What one stands for in a fixed-point number."""

LIMBS = 67
"""Limbs of an exact sum: 1024 + 1074 bits of any float, 31 of the silos, and the sign."""

_BITS = 32
_LARGEST = 2.0**33  # of a fixed-point sum: it stays within ±2⁶³
_SMALLEST = 1074  # the smallest float is 2⁻¹⁰⁷⁴


def whole_words(numbers: NDArray[np.int64] | NDArray[np.float64]) -> Words:
    """Return whole numbers modulo 2⁶⁴, as one row.

    Examples
    --------
    >>> from_whole(whole_words(np.array([3.0, 4.0])) + whole_words(np.array([-5, 1]))).tolist()
    [-2, 5]
    """
    given = np.asarray(numbers).reshape(-1)
    with np.errstate(invalid="ignore"):  # nan and infinity fail the comparison
        whole = given.astype(np.int64)
    if not np.array_equal(whole, given):
        raise MessageError("a count is not a whole number: it cannot be masked")
    return whole.view(np.uint64)


def from_whole(words: Words) -> NDArray[np.int64]:
    """Return what `whole_words` wrote, or sums of it."""
    return words.view(np.int64)


def fixed_words(numbers: NDArray[np.float64], silos: int) -> Words:
    """Return numbers in units of 2⁻³⁰ modulo 2⁶⁴, as one row, each rounded to the nearest.

    Parameters
    ----------
    silos : int
        How many are summed: a number too large for the sum of so many is refused.

    Examples
    --------
    >>> one, other = (fixed_words(np.array(x), 2) for x in ([0.5, -2.25], [1.0, 2.0]))
    >>> from_fixed(one + other).tolist()
    [1.5, -0.25]
    """
    given = np.asarray(numbers, dtype=np.float64).reshape(-1)
    if not (np.abs(given) < _LARGEST / silos).all():  # nan and infinity as well
        raise MessageError("a number is not finite, or too large to be masked")
    return np.rint(given / UNIT).astype(np.int64).view(np.uint64)


def from_fixed(words: Words) -> NDArray[np.float64]:
    """Return what `fixed_words` wrote, or sums of it."""
    return np.asarray(words.view(np.int64) * UNIT)


def limbs_of(parts: Iterable[float]) -> Words:
    """Return the exact sum of finite floats as limbs, the lowest first.

    Examples
    --------
    >>> two = limbs_of([1e100, 1.0]) + limbs_of([-1e100, 5e-324])
    >>> float(exact_sum(two) - 1)
    5e-324
    """
    total = sum(map(Fraction, parts), Fraction(0)) * 2**_SMALLEST
    data = (int(total) % 2 ** (_BITS * LIMBS)).to_bytes(_BITS // 8 * LIMBS, "little")
    return np.frombuffer(data, dtype="<u4").astype(np.uint64)


def exact_sum(limbs: Words) -> Fraction:
    """Return what `limbs_of` wrote, or sums of up to 2³¹ of it."""
    total = sum(int(limb) << (_BITS * i) for i, limb in enumerate(limbs.tolist()))
    total %= 1 << (_BITS * LIMBS)
    negative = total >> (_BITS * LIMBS - 1)
    return Fraction(total - (negative << (_BITS * LIMBS)), 2**_SMALLEST)


def float_parts(total: Fraction) -> tuple[float, ...]:
    """Write an exact sum as few floats: its rounding, the rounding of the rest, and so on.

    Examples
    --------
    >>> float_parts(Fraction(2**60 + 1))
    (1.152921504606847e+18, 1.0)
    """
    parts: list[float] = []
    while total:
        try:
            parts.append(float(total))  # correctly rounded
        except OverflowError:
            raise MessageError("a sum beyond what a float can hold") from None
        total -= Fraction(parts[-1])
    return tuple(parts)
