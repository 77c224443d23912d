"""How masked questions and answers are written: questions with a roster, answers with words.

A silo computes its plain answer and takes it apart (`mfairfl.remote.masked_forms`): what it tells
of itself, and numbers of which only the sum over the roster shall be read. Those are sent as words
modulo 2⁶⁴ under masks.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from pydantic import Field, ValidationError

from mfairfl.data.values import StrictModel
from mfairfl.errors import MessageError, first_problem
from mfairfl.guard.modular import Words
from mfairfl.remote.codec import ArrayForm, Packet, expect_answer, make_packet, require_arrays
from mfairfl.remote.masking import KEY, SIGNATURE, Offer, Roster, opened
from mfairfl.strict_json import JsonLimits

__all__ = [
    "MASK",
    "MOST_OFFERS",
    "Parts",
    "pack_masked",
    "pack_offers",
    "quantity_of",
    "read_masked",
    "read_offers",
    "roster_in",
    "total_words",
    "with_roster",
    "without_mask",
]

MASK = "mask"
"""The key of a question's text under which its roster is."""

MOST_OFFERS = 64
"""Keys that are asked for at a time."""

_KEYS, _SIGNATURES, _WORDS = "mask/keys", "mask/signatures", "mask/words"
_MOST_NAMES = 10_000
_Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Parts:
    """An answer taken apart: what is told, as text and arrays, and what is masked."""

    told: Mapping[str, Any] = field(default_factory=dict)
    arrays: _Arrays = field(default_factory=dict)
    words: Words = field(default_factory=lambda: np.zeros(0, np.uint64))


# ------------------------------------------------------------------ questions


class _RosterHeader(StrictModel):
    exchange: Annotated[int, Field(strict=True, ge=0)]
    names: Annotated[tuple[str, ...], Field(max_length=_MOST_NAMES)]
    quantity: Annotated[str, Field(strict=True, pattern="^[0-9a-f]{64}$")]


def with_roster(packet: Packet, roster: Roster | None) -> Packet:
    """Return a question with the roster that its answers are summed over.

    Without one, silos tell what they tell of themselves, and nothing else.
    """
    header = json.loads(packet.text)
    if roster is None:
        return Packet(json.dumps({**header, MASK: {}}), packet.arrays)
    said = {
        "exchange": roster.exchange,
        "names": list(roster.names),
        "quantity": quantity_of(packet).hex(),
    }
    arrays = {
        _KEYS: _rows([offer.key for offer in roster.offers], KEY),
        _SIGNATURES: _rows([offer.signature for offer in roster.offers], SIGNATURE),
    }
    return Packet(json.dumps({**header, MASK: said}), {**packet.arrays, **arrays})


def roster_in(
    packet: Packet, header: Mapping[str, Any], run: str, quantity: bytes
) -> Roster | None:
    """Return the roster of a question that belongs to `run`; None if it has none.

    One that was made for another question than this one, which asks for `quantity`, is refused.
    """
    if not header[MASK]:
        return None
    try:
        said = _RosterHeader.model_validate(header[MASK])
    except ValidationError as error:
        raise MessageError(f"a question's roster: {first_problem(error)}") from None
    if said.quantity != quantity.hex():
        raise MessageError("the roster was made for another question than the one it came with")
    count = len(said.names)
    forms = {
        _KEYS: ArrayForm(np.int64, (count, KEY // 8)),
        _SIGNATURES: ArrayForm(np.int64, (count, SIGNATURE // 8)),
    }
    given = {name: packet.arrays[name] for name in forms if name in packet.arrays}
    require_arrays(given, forms)
    return Roster(run, said.exchange, _offers(said.names, given))


def without_mask(packet: Packet, header: Mapping[str, Any]) -> tuple[dict[str, Any], Packet]:
    """Return the plain question: its text as data, and the message."""
    plain = {key: value for key, value in header.items() if key != MASK}
    arrays = {n: a for n, a in packet.arrays.items() if n not in (_KEYS, _SIGNATURES)}
    return plain, Packet(json.dumps(plain), arrays)


def quantity_of(packet: Packet) -> bytes:
    """Return a hash of what a plain question asks for, the same for all silos that it goes to.

    Examples
    --------
    >>> jobs = [[{"client": name, "plan": {}}] for name in ("north", "south")]
    >>> north, south = (quantity_of(make_packet("train", {"jobs": one})) for one in jobs)
    >>> north == south
    True
    """
    header = json.loads(packet.text)
    if isinstance(header.get("jobs"), list):  # a job names its own client
        header["jobs"] = [
            {**job, "client": ""} if isinstance(job, dict) else job for job in header["jobs"]
        ]
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name, array in sorted(packet.arrays.items()):
        digest.update(json.dumps([name, str(array.dtype), array.shape]).encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.digest()


def _rows(values: Sequence[bytes], size: int) -> np.ndarray:
    """Return bytes as one of the few types of arrays that every transport carries."""
    return np.frombuffer(b"".join(values), "<i8").astype(np.int64).reshape(len(values), size // 8)


def _offers(names: Sequence[str], arrays: _Arrays) -> tuple[Offer, ...]:
    keys, signatures = (arrays[name].astype("<i8") for name in (_KEYS, _SIGNATURES))
    pairs = zip(names, keys, signatures, strict=True)
    return tuple(Offer(name, key.tobytes(), signed.tobytes()) for name, key, signed in pairs)


# ------------------------------------------------------------------ answers


class _OffersHeader(StrictModel):
    first: Annotated[int, Field(strict=True, ge=0)]


def pack_offers(first: int, offers: Sequence[Offer]) -> Packet:
    """Return a silo's keys for exchanges from number `first` on."""
    arrays = {
        _KEYS: _rows([offer.key for offer in offers], KEY),
        _SIGNATURES: _rows([offer.signature for offer in offers], SIGNATURE),
    }
    return make_packet("mask-keys", {"first": first}, arrays)


def read_offers(name: str, reply: Packet) -> dict[int, Offer]:
    """Return a silo's keys by the numbers of their exchanges."""
    try:
        said = _OffersHeader.model_validate(expect_answer(reply, "mask-keys"))
    except ValidationError as error:
        raise MessageError(first_problem(error)) from None
    forms = {
        _KEYS: ArrayForm(np.int64, (MOST_OFFERS, KEY // 8)),
        _SIGNATURES: ArrayForm(np.int64, (MOST_OFFERS, SIGNATURE // 8)),
    }
    require_arrays(reply.arrays, forms)
    return dict(enumerate(_offers([name] * MOST_OFFERS, reply.arrays), said.first))


class _MaskedHeader(StrictModel):
    told: dict[str, Any]


def pack_masked(parts: Parts) -> Packet:
    """Return an answer whose words are masked already."""
    words = {_WORDS: parts.words.view(np.int64)}
    return make_packet("masked", {"told": dict(parts.told)}, {**parts.arrays, **words})


def read_masked(
    reply: Packet, forms: Mapping[str, ArrayForm], words: int, limits: JsonLimits
) -> Parts:
    """Return what an answer tells, and its masked words.

    Parameters
    ----------
    forms : mapping
        The arrays that are told.
    words : int
        How many words there are.
    limits : JsonLimits
        The largest text.
    """
    try:
        said = _MaskedHeader.model_validate(expect_answer(reply, "masked", limits))
    except ValidationError as error:
        raise MessageError(first_problem(error)) from None
    require_arrays(reply.arrays, {**forms, _WORDS: ArrayForm(np.int64, (words,))})
    arrays = {name: array for name, array in reply.arrays.items() if name != _WORDS}
    return Parts(said.told, arrays, reply.arrays[_WORDS].view(np.uint64))


def total_words(parts: Sequence[Parts]) -> Words:
    """Return the sum of what all silos of a roster sent under masks."""
    return opened([one.words for one in parts])
