"""JSON from an untrusted sender, bounded before it is parsed; and the fingerprint of values."""

import hashlib
import json
import math
import re
from dataclasses import dataclass
from typing import Any

_DEPTH = 32  # of lists and objects within each other; no message has more than twelve
_DIGITS = 40  # of a number that is written without an exponent; 2⁶⁴ has 20
# The closing quote is optional, so that every opening one is looked at once only.
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_BRACKET = re.compile(r"[\[\]{}]")


@dataclass(frozen=True, slots=True)
class JsonLimits:
    """How large a text may be.

    Parameters
    ----------
    characters : int
        Its length.
    values : int
        Commas, lists and objects in it: memory goes by them.
    """

    characters: int
    values: int


FILE = JsonLimits(characters=1 << 30, values=1 << 26)
"""Of a file on this machine, whose size is known to be bearable."""


def parse_json(text: str | bytes, limits: JsonLimits = FILE) -> Any:
    """Return the value of a JSON text; a text that is too large or too deep is refused.

    Numbers are finite and have at most 40 digits, and no object names a key twice.

    Raises
    ------
    ValueError
        What is wrong, in one line.

    Examples
    --------
    >>> parse_json('{"a": [1, 2.5]}', JsonLimits(100, 10))
    {'a': [1, 2.5]}
    >>> parse_json("[" * 50 + "]" * 50, JsonLimits(1000, 100))
    Traceback (most recent call last):
    ...
    ValueError: a text whose lists and objects are nested more than 32 deep
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8")
    if len(text) > limits.characters:
        raise ValueError(f"a text of {len(text)} characters; at most {limits.characters} fit")
    bare = _STRING.sub("", text)
    values = sum(map(bare.count, ",[{"))
    if values > limits.values:
        raise ValueError(f"a text of {values} values; at most {limits.values} fit")
    depth = 0
    for bracket in _BRACKET.findall(bare):
        depth += 1 if bracket in "[{" else -1
        if depth > _DEPTH:
            raise ValueError(f"a text whose lists and objects are nested more than {_DEPTH} deep")
    try:
        return json.loads(
            text,
            object_pairs_hook=_distinct,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            parse_int=_integer,
        )
    except json.JSONDecodeError as error:
        raise ValueError(f"a text that is not JSON ({error})") from None


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        raise ValueError("a text in which an object names a key twice")
    return mapping


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"a text with {name}, which is not a number")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError("a text with a number that is too large")
    return number


def _integer(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise ValueError(f"a text with a number of {len(digits)} digits")
    return int(digits)


def fingerprint(values: Any) -> str:
    """Return the SHA-256 of plain values; the order of keys does not matter.

    Examples
    --------
    >>> fingerprint({"rounds": 3, "seed": 0}) == fingerprint({"seed": 0, "rounds": 3})
    True
    """
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
