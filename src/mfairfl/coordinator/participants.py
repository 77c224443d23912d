"""Who still takes part in an agreement of several questions, and why others do not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from mfairfl.coordinator.transport import Transport, read_replies
from mfairfl.errors import FederationError
from mfairfl.text import one_line
from mfairfl.wire.codec import Packet

T = TypeVar("T")
_REASON = 500  # characters


@dataclass(slots=True)
class Participants:
    """Those that were asked so far, and why some of them stay out.

    Parameters
    ----------
    minimum : int
        How many must be left after every question.
    """

    transport: Transport
    names: list[str]
    minimum: int
    refused: dict[str, str] = field(default_factory=dict)

    @property
    def left(self) -> list[str]:
        """Those that still take part."""
        return [name for name in self.names if name not in self.refused]

    def ask(self, request: Packet, read: Callable[[str, Packet], T]) -> dict[str, T]:
        """Return each client's parsed answer; one without is refused with the reason."""
        who = self.left
        replies = self.transport.exchange(dict.fromkeys(who, request))
        found, reasons = read_replies(who, replies, read)
        self.refuse(reasons)
        self.require_minimum()
        return {name: found[name] for name in sorted(found)}

    def refuse(self, reasons: Mapping[str, str]) -> None:
        """Let these clients stay out; what they say about themselves is cut to one line each."""
        self.refused |= {name: one_line(why, _REASON) for name, why in reasons.items()}

    def require_minimum(self) -> None:
        """Refuse to go on with too few clients."""
        if len(self.left) < self.minimum:
            why = "; ".join(f"{name}: {reason}" for name, reason in sorted(self.refused.items()))
            raise FederationError(
                f"{len(self.left)} of {len(self.names)} clients take part, at least "
                f"{self.minimum} must ({why})"
            )
