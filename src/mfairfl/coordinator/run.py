"""Drive the round loop over clients elsewhere: ask, wait, continue with the answers.

A client whose answer is late, missing or wrong is logged and left out, and the round goes on.
Below the minimum the run stops, and can be resumed from its last completed round.
"""

from __future__ import annotations

from collections.abc import Iterable

from mfairfl.coordinator.transport import Transport, log_left_out, read_replies, reasons_of
from mfairfl.engine.loop import Callback, Result, federate
from mfairfl.engine.state import Ask, Measure, Replies, RunState, Setup, Train
from mfairfl.errors import FederationError
from mfairfl.fairness.cells import Cells
from mfairfl.wire.run_messages import Shape, pack_ask, unpack_answer


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
