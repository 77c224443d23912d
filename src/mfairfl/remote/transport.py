"""Drive the round loop over clients elsewhere: ask, wait, go on with those who answered.

How messages travel is a `Post`'s business (Flower's Grid is one). Whatever comes back is checked;
an answer that is late, missing or wrong is as good as none, is said aloud, and the round goes on.
Below the minimum the run stops, and can be taken up again from its last completed round.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from mfairfl.engine.loop import Callback, Result, federate
from mfairfl.engine.state import Answer, Ask, RunState, Score, Setup, Train
from mfairfl.errors import FederationError, MessageError
from mfairfl.fairness.cells import Cells
from mfairfl.remote.codec import Packet, Shape, pack_ask, unpack_answer

__all__ = ["Post", "drive"]

_log = logging.getLogger("mfairfl")


class Post(Protocol):
    """Carries messages to clients by name, and what they answer back."""

    def exchange(self, asks: Mapping[str, Packet]) -> Mapping[str, Packet | str]:
        """Return each client's answer, or why there is none; who is missing did not answer."""


def drive(
    setup: Setup,
    state: RunState,
    post: Post,
    *,
    minimum: int = 1,
    callbacks: Iterable[Callback] = (),
) -> Result:
    """Run the rounds that are left with clients behind a post.

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
        answers = _ask(setup, ask, post, minimum)
        try:
            ask = loop.send(_together(ask, answers))
        except StopIteration as stop:
            result: Result = stop.value
            return result


def _ask(setup: Setup, ask: Ask, post: Post, minimum: int) -> dict[str, Answer]:
    """Return the sound answers, in client order."""
    names = sorted(setup.summary.counts)
    if isinstance(ask, Train):
        names = sorted({job.client for job in ask.jobs})
    shape = Shape(setup.model.size, Cells(setup.summary.attributes).size)
    replies = post.exchange({name: pack_ask(ask, name) for name in names})
    answers: dict[str, Answer] = {}
    for name in names:
        reply = replies.get(name, "no answer before the deadline")
        if isinstance(reply, Packet):
            try:
                answers[name] = unpack_answer(reply, ask, name, shape)
                continue
            except MessageError as error:
                reply = str(error)
        _log.warning("%s is left out: %s", name, reply)
    if len(answers) < min(minimum, len(names)):
        raise FederationError(
            f"{len(answers)} of {len(names)} clients answered and at least {minimum} must; run "
            "the same command again to go on from the last completed round"
        )
    return answers


def _together(ask: Ask, answers: Mapping[str, Any]) -> Any:
    """Return the answers as the loop wants them."""
    if isinstance(ask, Train):
        return [report for reports in answers.values() for report in reports]
    if isinstance(ask, Score):
        return answers
    return tuple(
        {split: {name: said[i][split] for name, said in answers.items()} for split in ask.splits}
        for i in range(len(ask.weights))
    )
