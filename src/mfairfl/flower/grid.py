"""Flower's Grid as a post: clients by their enrolled names, a deadline for every exchange."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

from flwr.app import Message, MessageType, RecordDict
from flwr.serverapp import Grid

from mfairfl.errors import FederationError, MessageError
from mfairfl.flower.records import from_records, to_records
from mfairfl.remote.codec import Packet, make_packet, read_header

__all__ = ["GridPost"]

_LOOK = 0.2  # seconds between looks for replies
_REFUSED = 2  # Flower's code of an app that raised
_CAUSES = {  # Flower's codes of messages and replies that are gone, and of a node that is
    3: "it did not fetch the message before the deadline",
    4: "it did not answer before the deadline",
    5: "it went offline",
}


class GridPost:
    """Carries packets over a Grid.

    Clients go by their enrolled names; a node's number is random.

    Parameters
    ----------
    run : str
        The run that every message belongs to.
    deadline : float
        Seconds after which an exchange goes on without those who have not answered.
    members : mapping of bytes to str, optional
        The name enrolled for each public key (PEM), which Flower checks; nodes with other keys do
        not exist for us. None, for a Grid without keys: nodes are asked for their names.
    """

    def __init__(
        self,
        grid: Grid,
        run: str,
        *,
        deadline: float,
        members: Mapping[bytes, str] | None = None,
    ) -> None:
        self._grid, self._run, self._deadline = grid, run, deadline
        self._members = members
        self._names: dict[int, str] = {}

    def exchange(self, asks: Mapping[str, Packet]) -> dict[str, Packet | str]:
        """Send each client its packet and wait for the answers until the deadline."""
        self._meet()
        nodes = {name: node for node, name in sorted(self._names.items(), reverse=True)}
        online = {name: packet for name, packet in asks.items() if name in nodes}
        found: dict[str, Packet | str] = dict.fromkeys(set(asks) - set(online), "it is not online")
        sent = {name: self._message(packet, nodes[name]) for name, packet in online.items()}
        return found | self._send(sent)

    def wait_for(self, names: Sequence[str], *, minimum: int, seconds: float) -> list[str]:
        """Wait until all of these clients are online, or the time is up and `minimum` are."""
        end = time.monotonic() + seconds
        while True:
            self._meet()
            there = sorted(set(self._names.values()) & set(names))
            late = time.monotonic() >= end
            if len(there) == len(set(names)) or (late and len(there) >= minimum):
                return there
            if late:
                missing = ", ".join(sorted(set(names) - set(there)))
                raise FederationError(
                    f"{len(there)} clients are online after {seconds:g} s, at least {minimum} "
                    f"must be; missing: {missing}"
                )
            time.sleep(0.5)

    def _meet(self) -> None:
        """Learn who is online; forget those that are gone."""
        if self._members is not None:
            nodes = {node.node_id: bytes(node.public_key) for node in self._grid.get_nodes()}
            known = self._members
            self._names = {node: known[key] for node, key in nodes.items() if key in known}
            return
        present = set(self._grid.get_node_ids())
        self._names = {node: name for node, name in self._names.items() if node in present}
        new = sorted(present - set(self._names))
        sent = {str(node): self._message(make_packet("hello", {}), node) for node in new}
        for node, reply in self._send(sent).items():
            if isinstance(reply, Packet):
                kind, header = read_header(reply)
                if kind == "hello" and isinstance(header.get("name"), str):
                    self._names[int(node)] = header["name"]

    def _message(self, packet: Packet, node: int) -> Message:
        content = to_records(packet, self._run)
        # What is not fetched before the deadline is not worth doing any more.
        return Message(
            content, dst_node_id=node, message_type=MessageType.QUERY, ttl=self._deadline
        )

    def _send(self, sent: Mapping[str, Message]) -> dict[str, Packet | str]:
        """Return what comes back under the key of what was sent."""
        if not sent:
            return {}
        end = time.monotonic() + self._deadline
        # A list: the deployed Grid walks over the messages twice. It names those it accepted.
        left = set(filter(None, self._grid.push_messages(list(sent.values()))))
        replies: list[Message] = []
        while left:  # the Grid's own waiting looks every three seconds only
            found = list(self._grid.pull_messages(sorted(left)))
            replies += found
            left -= {reply.metadata.reply_to_message_id for reply in found}
            if time.monotonic() >= end:
                break
            time.sleep(_LOOK if left else 0)
        return _sorted_out(sent, replies)


def _sorted_out(
    sent: Mapping[str, Message], replies: Iterable[Message]
) -> dict[str, Packet | str]:
    # By the message it answers: a reply about a node that died comes from the server itself.
    keys = {message.metadata.message_id: key for key, message in sent.items()}
    found: dict[str, Packet | str] = {}
    for reply in replies:
        key = keys.get(reply.metadata.reply_to_message_id)
        if key is not None and key not in found:
            found[key] = _read(reply)
    return found


def _read(reply: Message) -> Packet | str:
    if reply.has_error():
        reason = " ".join((reply.error.reason or "").split())
        said = f"it {'refused' if reply.error.code == _REFUSED else 'failed'}: {reason}"
        return _CAUSES.get(reply.error.code, said)
    content: RecordDict = reply.content
    try:
        return from_records(content)[1]
    except MessageError as error:
        return str(error)
