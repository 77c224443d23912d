"""What coordinator and silos exchange: typed messages, one way to pack them, one to unpack them.

A message is a class. Its fields are plain values, checked like settings, and arrays, whose `Form`
declares type, shape and bounds. A packed message is one JSON text and named arrays: the array
``update/0`` is entry 0 of the field ``update``. How a `Packet` is carried is up to the transport.

No code is sent, and nothing is trusted: the receiver knows how many weights the model and how many
cells the task has, and refuses anything that does not fit, in one line.
"""

import copy
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, NamedTuple, Self, TypeVar

import numpy as np
from pydantic import BeforeValidator, Field, GetCoreSchemaHandler, ValidationError, ValidationInfo
from pydantic_core import CoreSchema, core_schema

from mfairfl.data.sums import MOST_ROWS
from mfairfl.data.values import StrictModel
from mfairfl.errors import MessageError, MfairflError, first_problem
from mfairfl.strict_json import JsonLimits, parse_json

VERSION = 7
Arrays = Mapping[str, np.ndarray]

REQUEST = JsonLimits(characters=1 << 26, values=1 << 20)
"""The largest text of a request."""

ANSWER = JsonLimits(characters=1 << 23, values=1 << 15)
"""The largest text of an answer: Adult's profile has 3,300 characters and 210 values."""

SILO_NAME = r"^\w[\w. -]{0,59}$"
"""The names that a silo may have."""

Sha256 = Annotated[str, Field(strict=True, pattern="^[0-9a-f]{64}$")]

_SAME_VERSION = "install the same mfairfl on server and clients"
_KIND = 40  # characters
_DEPTH = 3  # parts of an array's name


def require(holds: object, otherwise: str) -> None:
    """Refuse a message in which something does not hold, with this reason."""
    if not holds:
        raise MessageError(otherwise)


# ------------------------------------------------------------------ what a message consists of


class UpTo(NamedTuple):
    """A length of an array that the sender chooses, from 1 to a limit."""

    most: int


@dataclass(frozen=True, slots=True)
class Form:
    """Type, shape and bounds of an array in a message.

    They are checked when the message is unpacked.

    Parameters
    ----------
    dtype : type
        Type of its numbers.
    shape : tuple
        Each length: a number, `UpTo` a number, or the name of a size that the receiver knows.
    low, high : float
        Bounds of every number.
    finite : bool
        Whether every number must be finite.
    stack : int
        If above 0, up to so many arrays of this shape may come as the rows of one.

    Examples
    --------
    >>> Form(np.float32, ("weights",)).fits(np.zeros(3, np.float32), {"weights": 3})
    True
    """

    dtype: type[np.generic]
    shape: tuple[int | str | UpTo, ...]
    low: float = -math.inf
    high: float = math.inf
    finite: bool = True
    stack: int = 0

    @classmethod
    def whole(cls, *shape: int | str | UpTo, most: int = MOST_ROWS) -> Self:
        """Return the form of counts from 0 to `most`."""
        return cls(np.int64, shape, low=0, high=most)

    def fits(self, array: np.ndarray, sizes: Mapping[str, int]) -> bool:
        """Return whether type and shape are as declared; no number is looked at."""
        lengths = self._lengths(sizes)
        if self.stack and array.ndim > len(lengths):
            lengths = [range(1, self.stack + 1), *lengths]
        if array.dtype != self.dtype or array.ndim != len(lengths):
            return False
        return all(n in allowed for n, allowed in zip(array.shape, lengths, strict=True))

    def _lengths(self, sizes: Mapping[str, int]) -> list[range]:
        """Return what each length may be."""
        lengths = [sizes[n] if isinstance(n, str) else n for n in self.shape]
        return [range(1, n.most + 1) if isinstance(n, UpTo) else range(n, n + 1) for n in lengths]

    def _check(self, value: Any, info: ValidationInfo) -> Any:
        if info.context is None:  # a message that is built here
            return value
        if not isinstance(value, np.ndarray):
            raise ValueError("the array is missing")  # noqa: TRY004 - pydantic wants it
        if not self.fits(value, info.context):
            ends = [sorted({n[0], n[-1]}) for n in self._lengths(info.context)]
            lengths = ", ".join("…".join(map(str, pair)) for pair in ends)
            raise ValueError(
                f"{value.dtype} {value.shape}; expected {np.dtype(self.dtype)} ({lengths})"
            )
        problems = {
            "that is not finite": self.finite and not np.isfinite(value).all(),
            f"below {self.low:g}": (value < self.low).any(),
            f"above {self.high:g}": (value > self.high).any(),
        }
        for problem, occurs in problems.items():
            if occurs:
                raise ValueError(f"holds a number {problem}")
        return value

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Return how pydantic checks a field that is annotated with this form."""
        return core_schema.with_info_plain_validator_function(self._check)


def _in_order(value: Any) -> Any:
    """Return the arrays ``0``, ``1``, … in their order."""
    if isinstance(value, np.ndarray):
        raise ValueError("one array; expected numbered ones")  # noqa: TRY004 - pydantic wants it
    if not isinstance(value, dict):
        return value
    names = [str(i) for i in range(len(value))]
    if absent := [name for name in names if name not in value]:
        raise ValueError(f"number {absent[0]} of {len(names)} is missing")
    return tuple(value[name] for name in names)


NUMBERED = BeforeValidator(_in_order)
"""Marks a tuple of arrays, which are named by their numbers."""


@dataclass(frozen=True, slots=True)
class RowChange:
    """What one row of a file, added or taken away, changes in a field of an answer.

    It holds at a silo without a floor. With one, entries appear and vanish as they cross it.

    Parameters
    ----------
    entries : int, optional
        How many of the field's numbers change at most; None if any may.
    most : float, optional
        By how much each of them changes at most; None if no bound holds for all rows.
    """

    entries: int | None = None
    most: float | None = None


class Message(StrictModel):
    """What one side sends to the other; the receiver knows its class by its kind."""

    kind: ClassVar[str]


class SiloAnswer(Message):
    """What a silo answers: all that leaves it.

    Fields that depend on the rows of its file are annotated with a `RowChange`.
    """


class Hello(Message):
    """Asks a node for its name."""

    kind = "hello"


class HelloAnswer(SiloAnswer):
    """A node's name."""

    kind = "hello"

    name: str = Field(pattern=SILO_NAME, strict=True)


# ------------------------------------------------------------------ packing


class Parsed(NamedTuple):
    """The text of a message: its kind, and its fields but for arrays."""

    kind: str
    fields: dict[str, Any]


@dataclass(frozen=True)
class Packet:
    """A packed message: a JSON text and named arrays."""

    text: str
    arrays: Arrays

    @cached_property
    def request(self) -> Parsed:
        """What the text of a request says; it is parsed once."""
        return parse_text(self.text, REQUEST)


M = TypeVar("M", bound=Message)


def pack(message: Message) -> Packet:
    """Return a message as a text and arrays.

    Examples
    --------
    >>> pack(HelloAnswer(name="east")).text
    '{"version": 7, "kind": "hello", "name": "east"}'
    """
    arrays: dict[str, np.ndarray] = {}
    fields = {
        name: plain
        for name, value in message.model_dump().items()
        if (plain := _without_arrays(value, name, arrays)) is not _ONLY_ARRAYS
    }
    return make_packet(message.kind, fields, arrays)


def unpack(message: type[M], packet: Packet, **sizes: int) -> M:
    """Return the message of this class that a packet holds; one that does not fit is refused.

    Parameters
    ----------
    **sizes
        Lengths of arrays that the receiver knows, by the names that forms give them.

    Examples
    --------
    >>> unpack(HelloAnswer, make_packet("hello", {"name": "east"})).name
    'east'
    """
    if issubclass(message, SiloAnswer):
        kind, fields = parse_text(packet.text, ANSWER)
        require(kind == message.kind, f"it answered with '{kind}'; '{message.kind}' was asked for")
        where = ""
    else:
        where, fields = f"a '{message.kind}' message: ", packet.request.fields
    try:
        return message.model_validate(_with_arrays(fields, packet.arrays), context=sizes)
    except ValidationError as error:
        problem = first_problem(error)
    except MfairflError as error:  # no task, plan or rule has such values
        problem = str(error)
    raise MessageError(where + problem)


def make_packet(kind: str, fields: Mapping[str, Any], arrays: Arrays | None = None) -> Packet:
    """Return a packet of a kind with these fields and arrays, whether or not they fit."""
    text = json.dumps({"version": VERSION, "kind": kind, **fields}, allow_nan=False)
    named = {name: np.asarray(array, order="C") for name, array in (arrays or {}).items()}
    return Packet(text, named)


def parse_text(text: str, limits: JsonLimits) -> Parsed:
    """Return what a message's text says; other formats are refused."""
    try:
        header = parse_json(text, limits)
    except ValueError as error:
        raise MessageError(f"{error}; {_SAME_VERSION}") from None
    fields = dict(header) if isinstance(header, dict) else {}
    version, kind = fields.pop("version", None), fields.pop("kind", None)
    shown = version if isinstance(version, int) else None
    formats = f"a message of format {shown}, this mfairfl reads {VERSION}"
    require(version == VERSION, f"{formats}; {_SAME_VERSION}")
    if not isinstance(kind, str) or len(kind) > _KIND:
        raise MessageError(f"a message without a kind; {_SAME_VERSION}")
    return Parsed(kind, fields)


def _with_arrays(fields: Mapping[str, Any], arrays: Arrays) -> dict[str, Any]:
    """Return the fields of a text with the arrays at their places, which must be empty."""
    merged = copy.deepcopy({**fields})
    for name, array in arrays.items():
        unwanted = f"the array '{name}' was not asked for"
        *path, last = name.split("/", _DEPTH - 1)
        entries = merged
        for part in path:
            entries = entries.setdefault(part, {})
            require(isinstance(entries, dict), unwanted)
        require(last not in entries, unwanted)
        entries[last] = array
    return merged


_ONLY_ARRAYS = object()


def _without_arrays(value: Any, name: str, arrays: dict[str, np.ndarray]) -> Any:
    """Return a value without its arrays, which are added to `arrays` under their names."""
    if isinstance(value, np.ndarray):
        arrays[name] = value
        return _ONLY_ARRAYS
    if not isinstance(value, dict | tuple | list):
        return value
    items = value.items() if isinstance(value, dict) else enumerate(value)
    plain = {key: _without_arrays(part, f"{name}/{key}", arrays) for key, part in items}
    left = {key: part for key, part in plain.items() if part is not _ONLY_ARRAYS}
    if plain and not left:
        return _ONLY_ARRAYS
    return left if isinstance(value, dict) else list(left.values())
