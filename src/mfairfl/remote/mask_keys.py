"""The server's stock of silos' keys for exchanges to come, and sums over a whole roster.

Keys are fetched for many exchanges at a time; each is used once. Who has no key cannot be in a
roster, and without one of its silos a roster's sum cannot be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mfairfl.remote.codec import make_packet
from mfairfl.remote.masked_messages import read_offers
from mfairfl.remote.masking import Offer, Roster
from mfairfl.remote.transport import Transport, read_replies

__all__ = ["KeyStock"]

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
        return Roster("", exchange, offers)
