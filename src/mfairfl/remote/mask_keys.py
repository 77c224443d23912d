"""The server's stock of silos' keys for exchanges to come, and sums over a whole roster.

Keys are fetched for many exchanges at a time; each is used once. Who has no key cannot be in a
roster, and without one of its silos a roster's sum cannot be read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self, TypeVar

from mfairfl.errors import FederationError
from mfairfl.remote.codec import Packet, make_packet
from mfairfl.remote.masked_messages import read_offers, with_roster
from mfairfl.remote.masking import Offer, Roster
from mfairfl.remote.participants import Participants
from mfairfl.remote.transport import Transport, read_replies
from mfairfl.text import one_line

__all__ = ["AllSilos", "KeyStock"]

T = TypeVar("T")

_ATTEMPTS = 3  # silos whose numbers differ (one lost its folder, or missed a message) meet in two


@dataclass(slots=True)
class KeyStock:
    """Unused keys of some silos.

    Parameters
    ----------
    names : sequence of str
        The silos, in the order of names.
    refused : dict of str to str
        Why silos gave no keys when they were last asked.
    """

    transport: Transport
    names: Sequence[str]
    refused: dict[str, str] = field(default_factory=dict)
    _keys: dict[str, dict[int, Offer]] = field(default_factory=dict)
    _next: int = 0

    def fetch(self) -> None:
        """Ask all silos for keys of exchanges that come later than all others."""
        request = make_packet("mask-keys", {"first": self._next})
        replies = self.transport.exchange(dict.fromkeys(self.names, request))
        found, self.refused = read_replies(self.names, replies, read_offers)
        for name, offers in found.items():
            self._keys.setdefault(name, {}).update(offers)
        # Whoever is behind catches up with the others.
        self._next = max((min(offers) for offers in found.values()), default=self._next)

    def roster(self) -> Roster | None:
        """Return the keys of the next exchange; None if a silo has none (`refused`)."""
        for attempt in range(_ATTEMPTS):
            common = self._common()
            if common:
                return self._take(min(common))
            if attempt and self.refused:
                break
            self.fetch()
        return None

    def _common(self) -> set[int]:
        held = [set(self._keys.get(name, ())) for name in self.names]
        return set.intersection(*held)

    def _take(self, exchange: int) -> Roster:
        """Use the keys of an exchange; those of earlier ones are of no use any more."""
        offers = tuple(self._keys[name][exchange] for name in self.names)
        for name in self.names:
            self._keys[name] = {n: key for n, key in self._keys[name].items() if n > exchange}
        self._next = max(self._next, exchange + 1)
        return Roster("", exchange, offers)  # which run it is, silos know from the message


@dataclass(frozen=True, slots=True)
class AllSilos:
    """A roster of silos that all have to answer."""

    keys: KeyStock

    @classmethod
    def ready(cls, clients: Participants) -> Self:
        """Return those of the clients that give keys; the others stay out."""
        keys = KeyStock(clients.transport, clients.left)
        keys.fetch()
        clients.refuse(keys.refused)
        clients.require_minimum()
        keys.names = clients.left
        return cls(keys)

    def ask(self, request: Packet, read: Callable[[str, Packet], T]) -> dict[str, T]:
        """Return every silo's answer, or say whose is missing."""
        names, roster = self.keys.names, self.keys.roster()
        if roster is None:
            raise _incomplete(self.keys.refused)
        asks = dict.fromkeys(names, with_roster(request, roster))
        found, reasons = read_replies(names, self.keys.transport.exchange(asks), read)
        if reasons:
            raise _incomplete(reasons)
        return found


def _incomplete(reasons: Mapping[str, str]) -> FederationError:
    name, why = min(reasons.items(), default=("a silo", "its keys do not fit the others'"))
    return FederationError(
        f"sums over all silos need every one of them ({name}: {one_line(why)}); when all are "
        "there, run the same command again"
    )
