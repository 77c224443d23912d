"""Messages on their way: whose reply is whose, and which cannot be used."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from flwr.app import Message, RecordDict

from mfairfl.errors import MessageError

__all__ = ["Letters", "leave_out"]

_log = logging.getLogger("mfairfl")
_LONGEST = 200  # letters of a reason
T = TypeVar("T")


def leave_out(who: str, why: str) -> None:
    """Say aloud that somebody does not count this time."""
    _log.warning("%s is left out: %s", who, why)


class Letters:
    """The messages sent last, which wait for replies; nodes are called by name once known."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self._sent: list[Message] = []

    def write(self, contents: Mapping[int, RecordDict], kind: str) -> list[Message]:
        """Return a message for each node. A list: the deployed Grid walks over it twice."""
        self._sent = [
            Message(content, dst_node_id=node, message_type=kind)
            for node, content in contents.items()
        ]
        return self._sent

    def read(
        self, replies: Iterable[Message], read: Callable[[int, RecordDict], T]
    ) -> dict[int, T]:
        """Return what can be used of the replies, by node; say why the rest cannot."""
        # By the message it answers: an error about a node that died comes from the server itself.
        waiting = {m.metadata.message_id: m.metadata.dst_node_id for m in self._sent}
        found: dict[int, T] = {}
        for reply in replies:
            node = waiting.pop(reply.metadata.reply_to_message_id, None)
            if node is None:  # a reply to something else, or a second one
                continue
            try:
                found[node] = read(node, _content(reply))
            except MessageError as error:
                leave_out(self._name(node), str(error))
        for node in waiting.values():
            leave_out(self._name(node), "no answer before the deadline")
        return found

    def _name(self, node: int) -> str:
        return self.names.get(node, f"node {node}")


def _content(reply: Message) -> RecordDict:
    if reply.has_error():
        reason = " ".join((reply.error.reason or "").split())
        if len(reason) > _LONGEST:  # the simulation sends a whole traceback; its end says why
            reason = f"… {reason[-_LONGEST:]}"
        raise MessageError(f"error {reply.error.code}: {reason}")
    return reply.content
