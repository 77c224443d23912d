"""The one text form in which values are compared."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

import numpy as np

__all__ = ["MISSING", "canonical_text", "lookalike"]

MISSING = "?"
"""The text of a missing value: an empty cell, a null and a literal ``?`` are the same."""

_WHOLE = re.compile(r"(-?)(0|[1-9]\d*)\.0+")


def canonical_text(value: object) -> str:
    """Format a scalar as the text by which mfairfl compares values.

    Surrounding spaces go, whole numbers lose their decimals, a missing value is ``?``. Anything
    else stays as it is written: ``"007"`` is not ``"7"``, ``"1.50"`` is not ``"1.5"``.

    Examples
    --------
    >>> [canonical_text(v) for v in (1, 1.0, "1", " 1.0 ", "007", 2.5, True, None, "")]
    ['1', '1', '1', '1', '007', '2.5', 'True', '?', '?']
    """
    if value is None:
        return MISSING
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return str(int(value))
    if isinstance(value, (float, np.floating)):
        number = float(value)
        if math.isnan(number):
            return MISSING
        if number.is_integer() and abs(number) < 1e18:
            return str(int(number))
    text = str(value).strip()
    if whole := _WHOLE.fullmatch(text):
        return whole[2] if whole[2] == "0" else whole[1] + whole[2]
    return text or MISSING


def lookalike(name: str, known: Iterable[str]) -> bool:
    """Say whether a known name differs in nothing but case, spaces and punctuation.

    Examples
    --------
    >>> lookalike("race", ["Race ", "age"]), lookalike("race", ["place"])
    (True, False)
    """

    def bare(text: str) -> str:
        return "".join(filter(str.isalnum, text)).casefold()

    return any(bare(other) == bare(name) for other in known)
