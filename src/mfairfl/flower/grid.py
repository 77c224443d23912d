"""Flower's Grid as a transport: clients by their enrolled names, a deadline for every exchange."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TypeVar

from flwr.app import Message, MessageType, RecordDict
from flwr.serverapp import Grid

from mfairfl.errors import FederationError, MessageError
from mfairfl.flower.records import from_records, to_records
from mfairfl.remote.codec import Packet, make_packet, read_header
from mfairfl.remote.transport import read_replies

__all__ = ["GridTransport", "match_replies"]

K = TypeVar("K")
_POLL = 0.2  # seconds between two looks for replies
_LONGEST = 200  # characters of a reason
_CAUSES = {  # Flower's codes of messages and replies that are gone, and of a node that is
    3: "it did not fetch the message before the deadline",
    4: "it did not answer before the deadline",
    5: "it went offline",
}


def match_replies(
    sent: Mapping[K, Message], replies: Iterable[Message]
) -> dict[K, RecordDict | str]:
    """Return the first reply to each message, or the error in it, under the message's key.

    Replies to other messages, and second replies, are ignored.
    """
    # By the message it answers: a reply about a node that died comes from the server itself.
    keys = {message.metadata.message_id: key for key, message in sent.items()}
    found: dict[K, RecordDict | str] = {}
    for reply in replies:
        key = keys.pop(reply.metadata.reply_to_message_id, None)
        if key is not None:
            found[key] = _error(reply) if reply.has_error() else reply.content
    return found


def _error(reply: Message) -> str:
    reason = " ".join((reply.error.reason or "").split())
    if len(reason) > _LONGEST:  # the simulation sends a whole traceback; its end says why
        reason = f"… {reason[-_LONGEST:]}"
    return _CAUSES.get(reply.error.code, f"it reported an error: {reason}")


def _name_in(node: int, answer: Packet) -> str:
    kind, header = read_header(answer)
    name = header.get("name")
    if kind != "hello" or not isinstance(name, str):
        raise MessageError(f"node {node} does not say its name")
    return name


@dataclass(slots=True, eq=False)
class GridTransport:
    """Carries packets over a Grid.

    Clients are known by their enrolled names, because a node's number is random.

    Parameters
    ----------
    run : str
        The run that every message belongs to.
    deadline : float
        Seconds after which an exchange goes on without those who have not answered.
    members : mapping of bytes to str, optional
        The name enrolled for each public key (PEM), which Flower checks; nodes with other keys are
        ignored. None, for a Grid without keys: nodes are asked for their names.
    """

    grid: Grid
    run: str
    _: KW_ONLY
    deadline: float
    members: Mapping[bytes, str] | None = None
    _names: dict[int, str] = field(default_factory=dict, init=False)

    def exchange(self, asks: Mapping[str, Packet]) -> dict[str, Packet | str]:
        """Send each client its packet and wait for the answers until the deadline."""
        self._find_nodes()
        nodes = {name: node for node, name in sorted(self._names.items(), reverse=True)}
        offline = dict.fromkeys(set(asks) - set(nodes), "it is not online")
        sent = {name: (nodes[name], asks[name]) for name in asks if name in nodes}
        answers, reasons = self._send(sent)
        return answers | reasons | offline

    def wait_for(self, names: Sequence[str], *, minimum: int, seconds: float) -> list[str]:
        """Wait until all of these clients are online, or the time is up and `minimum` are."""
        end, reached = time.monotonic() + seconds, set[str]()
        while True:
            self._find_nodes()
            listed = set(self._names.values()) & set(names)
            reached = reached & listed | self._reach(listed - reached)
            online = sorted(reached)
            late = time.monotonic() >= end
            if len(online) == len(set(names)) or (late and len(online) >= minimum):
                return online
            if late:
                missing = ", ".join(sorted(set(names) - set(online)))
                raise FederationError(
                    f"{len(online)} clients are online after {seconds:g} s, at least {minimum} "
                    f"must be; missing: {missing}"
                )
            time.sleep(0.5)

    def _reach(self, names: Collection[str]) -> set[str]:
        """Greet clients; return those that are there.

        For a minute Flower lists a node that was killed, and one that takes its place is refused.
        """
        hello = make_packet("hello", {})
        nodes = {name: node for node, name in self._names.items() if name in names}
        sent = {name: self._message(hello, node) for name, node in nodes.items()}
        replies = match_replies(sent, self._collect(list(sent.values())))
        return {name for name, reply in replies.items() if reply not in _CAUSES.values()}

    def _find_nodes(self) -> None:
        """Learn who is online; forget those who are not."""
        if self.members is not None:
            nodes = {node.node_id: bytes(node.public_key) for node in self.grid.get_nodes()}
            known = self.members
            self._names = {node: known[key] for node, key in nodes.items() if key in known}
            return
        online = set(self.grid.get_node_ids())
        self._names = {node: name for node, name in self._names.items() if node in online}
        hello = make_packet("hello", {})
        answers, _ = self._send({n: (n, hello) for n in sorted(online - set(self._names))})
        self._names |= read_replies(answers, answers, _name_in)[0]

    def _send(
        self, packets: Mapping[K, tuple[int, Packet]]
    ) -> tuple[dict[K, Packet], dict[K, str]]:
        """Send packets to nodes; return the answers, and the reasons where there is none."""
        sent = {key: self._message(packet, node) for key, (node, packet) in packets.items()}
        replies = match_replies(sent, self._collect(list(sent.values())))
        return read_replies(sent, replies, lambda _, content: from_records(content)[1])

    def _message(self, packet: Packet, node: int) -> Message:
        content = to_records(packet, self.run)
        # A message that is not fetched before the deadline need not be answered any more.
        return Message(
            content, dst_node_id=node, message_type=MessageType.QUERY, ttl=self.deadline
        )

    def _collect(self, messages: list[Message]) -> list[Message]:
        """Return the replies that arrive before the deadline."""
        if not messages:
            return []
        end = time.monotonic() + self.deadline
        # A list: the deployed Grid iterates over the messages twice. It names those it accepted.
        left = set(filter(None, self.grid.push_messages(messages)))
        replies: list[Message] = []
        while left:  # the Grid's own waiting looks every three seconds only
            found = list(self.grid.pull_messages(sorted(left)))
            replies += found
            left -= {reply.metadata.reply_to_message_id for reply in found}
            if time.monotonic() >= end:
                break
            time.sleep(_POLL if left else 0)
        return replies
