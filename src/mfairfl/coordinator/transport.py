"""Drive the round loop over clients elsewhere: ask, wait, continue with those who answered.

A `Transport` carries the messages; Flower's Grid is one. Every answer is checked. A client whose
answer is late, missing or wrong is logged and left out, and the round goes on. Below the minimum
the run stops, and can be resumed from its last completed round.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeVar

from mfairfl.engine.loop import Callback, Result, federate
from mfairfl.engine.state import (
    Absent,
    Ask,
    Measure,
    Refusal,
    Replies,
    RunState,
    Setup,
    Train,
)
from mfairfl.errors import FederationError, MessageError
from mfairfl.fairness.cells import Cells
from mfairfl.text import one_line
from mfairfl.wire.codec import Packet, Shape, pack_ask, unpack_answer

K = TypeVar("K")
R = TypeVar("R")
T = TypeVar("T")
_log = logging.getLogger("mfairfl")


class Unreachable(str):
    """Why a client could not be asked: it does not count against it."""

    __slots__ = ()


class Transport(Protocol):
    """Carries messages to clients by name, and their answers back."""

    def exchange(self, asks: Mapping[str, Packet]) -> Mapping[str, Packet | str]:
        """Return each client's answer, or why there is none; a missing one did not answer."""


def read_replies(
    asked: Iterable[K], replies: Mapping[K, R | str], read: Callable[[K, R], T]
) -> tuple[dict[K, T], dict[K, str]]:
    """Return what `read` makes of each reply, and the reasons of those without a usable one.

    Whatever is raised while a reply is read, of whatever kind, is the reason why it is not used:
    nothing that one client sends ends the exchange. A reason is one short line.

    Examples
    --------
    >>> def read(name: str, reply: bytes) -> int:
    ...     return len(reply)
    >>> read_replies(["a", "b", "c"], {"a": b"three", "b": "disk full"}, read)
    ({'a': 5}, {'b': 'disk full', 'c': 'no answer before the deadline'})
    """
    found: dict[K, T] = {}
    reasons: dict[K, str] = {}
    for key in asked:
        reply = replies.get(key, "no answer before the deadline")
        if isinstance(reply, str):
            reasons[key] = reply if isinstance(reply, Unreachable) else one_line(reply)
            continue
        try:
            found[key] = read(key, reply)
        except MessageError as error:
            reasons[key] = one_line(str(error))
        except Exception as error:
            _log.debug("the reply of %s cannot be read", key, exc_info=True)
            reasons[key] = one_line(f"its reply cannot be read ({type(error).__name__}: {error})")
    return found, reasons


def log_left_out(client: str, reason: str) -> None:
    """Log that a client does not count this time."""
    _log.warning("%s is left out: %s", client, reason)


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
    replies = transport.exchange({name: pack_ask(ask, name) for name in names})
    answers, reasons = read_replies(
        names, replies, lambda name, reply: unpack_answer(reply, ask, name, shape)
    )
    for name, reason in reasons.items():
        log_left_out(name, reason)
    if len(answers) < min(minimum, len(names)):
        raise FederationError(
            f"{len(answers)} of {len(names)} clients answered and at least {minimum} must; run "
            "the same command again to resume from the last completed round"
        )
    missing: dict[str, Absent | Refusal] = {
        name: Absent(why) if isinstance(why, Unreachable) else Refusal(why)
        for name, why in reasons.items()
    }
    return {**answers, **missing}
