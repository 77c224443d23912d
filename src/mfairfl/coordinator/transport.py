"""How the coordinator asks clients, and what it gets: answers, refusals, and those absent.

A `Transport` carries the messages; Flower's Grid is one. Every answer is read without trust. A
client whose answer is late, missing or wrong is left out with the reason, and the work goes on.
Below the minimum a run stops, and can be resumed from its last completed round.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, TypeVar

from mfairfl.engine.loop import Callback, Result, federate
from mfairfl.engine.state import Absent, Ask, Measure, Refusal, Replies, RunState, Setup, Train
from mfairfl.errors import FederationError, MessageError
from mfairfl.fairness.cells import Cells
from mfairfl.text import one_line
from mfairfl.wire.packing import Packet
from mfairfl.wire.run_messages import Shape, pack_ask, unpack_answer

K = TypeVar("K")
R = TypeVar("R")
T = TypeVar("T")
_log = logging.getLogger("mfairfl")
_REASON = 500  # characters


Reply: TypeAlias = T | Refusal | Absent
"""What became of a message: an answer, or why there is none."""


class Transport(Protocol):
    """Carries messages to clients by name, and their answers back."""

    def exchange(self, asks: Mapping[str, Packet]) -> Mapping[str, Reply[Packet]]:
        """Return what became of each message; a client that is not named did not answer."""


def read_replies(
    asked: Iterable[K], replies: Mapping[K, Reply[R]], read: Callable[[K, R], T]
) -> dict[K, Reply[T]]:
    """Return what `read` makes of each answer; one that cannot be read is a refusal.

    Whatever is raised while an answer is read, of whatever kind, is the reason why it is not used:
    nothing that one client sends ends the exchange. A reason is one short line.

    Examples
    --------
    >>> def read(name: str, answer: bytes) -> int:
    ...     return len(answer)
    >>> read_replies(["a", "b"], {"a": b"three"}, read)
    {'a': 5, 'b': Refusal(reason='no answer before the deadline')}
    """
    silent = Refusal("no answer before the deadline")
    return {key: _read(key, replies.get(key, silent), read) for key in asked}


def _read(key: K, reply: Reply[R], read: Callable[[K, R], T]) -> Reply[T]:
    if isinstance(reply, Absent):
        return reply
    if isinstance(reply, Refusal):
        return Refusal(one_line(reply.reason))
    try:
        return read(key, reply)
    except MessageError as error:
        return Refusal(one_line(str(error)))
    except Exception as error:
        _log.debug("the reply of %s cannot be read", key, exc_info=True)
        return Refusal(one_line(f"its reply cannot be read ({type(error).__name__}: {error})"))


def answers_of(replies: Mapping[K, Reply[T]]) -> dict[K, T]:
    """Return the answers alone."""
    return {key: r for key, r in replies.items() if not isinstance(r, Refusal | Absent)}


def reasons_of(replies: Mapping[K, Reply[Any]]) -> dict[K, str]:
    """Return why there is no answer, where there is none."""
    return {key: r.reason for key, r in replies.items() if isinstance(r, Refusal | Absent)}


def log_left_out(client: str, reason: str) -> None:
    """Log that a client does not count this time."""
    _log.warning("%s is left out: %s", client, reason)


@dataclass(slots=True)
class Participants:
    """The clients that were asked several questions so far, and why some of them stay out.

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
        """The clients that still take part."""
        return [name for name in self.names if name not in self.refused]

    def ask(self, request: Packet, read: Callable[[str, Packet], T]) -> dict[str, T]:
        """Return each client's parsed answer; a client without one is refused."""
        clients = self.left
        replies = self.transport.exchange(dict.fromkeys(clients, request))
        outcomes = read_replies(clients, replies, read)
        self.refuse(reasons_of(outcomes))
        self.require_minimum()
        return dict(sorted(answers_of(outcomes).items()))

    def refuse(self, reasons: Mapping[str, str]) -> None:
        """Leave clients out; what they say about themselves is cut to one line each."""
        self.refused |= {name: one_line(why, _REASON) for name, why in reasons.items()}

    def require_minimum(self) -> None:
        """Refuse to go on with too few clients."""
        if len(self.left) < self.minimum:
            why = "; ".join(f"{name}: {reason}" for name, reason in sorted(self.refused.items()))
            raise FederationError(
                f"{len(self.left)} of {len(self.names)} clients take part, at least "
                f"{self.minimum} must ({why})"
            )


# ------------------------------------------------------------------ a run


def drive(
    setup: Setup,
    state: RunState,
    transport: Transport,
    *,
    minimum: int = 1,
    callbacks: Iterable[Callback] = (),
) -> Result:
    """Run the remaining rounds with clients behind a transport.

    Parameters
    ----------
    minimum : int
        Clients that must answer each request.
    """
    if setup.strategy.card.trains_on == "pooled":
        raise FederationError(
            "strategy.name: this method trains on the rows of all clients in one place; choose "
            "one that leaves them where they are (see `mfairfl strategies`)"
        )
    loop = federate(setup, state, callbacks)
    ask = next(loop)
    while True:
        reply = _ask(setup, ask, transport, minimum)
        try:
            ask = loop.send(reply)
        except StopIteration as stop:
            result: Result = stop.value
            return result


def _ask(setup: Setup, ask: Ask, transport: Transport, minimum: int) -> Replies:
    """Return the answers that can be read, in client order, and why others cannot."""
    names = sorted(setup.summary.counts)
    if isinstance(ask, Train):
        names = sorted({job.client for job in ask.jobs})
    elif isinstance(ask, Measure):
        names = ask.asked(names)
    shape = Shape(setup.size, Cells(setup.summary.attributes).size)
    replies = read_replies(
        names,
        transport.exchange({name: pack_ask(ask, name) for name in names}),
        lambda name, packet: unpack_answer(packet, ask, name, shape),
    )
    reasons = reasons_of(replies)
    for name, reason in reasons.items():
        log_left_out(name, reason)
    answered = len(names) - len(reasons)
    if answered < min(minimum, len(names)):
        raise FederationError(
            f"{answered} of {len(names)} clients answered and at least {minimum} must; run the "
            "same command again to resume from the last completed round"
        )
    return replies
