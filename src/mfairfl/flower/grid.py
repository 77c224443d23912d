"""Flower's Grid as a transport: clients by their enrolled names, a deadline for every exchange."""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Protocol, TypeVar

from flwr.app import Error, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from mfairfl.coordinator.transport import Reply, read_replies
from mfairfl.engine.state import Absent, Refusal
from mfairfl.errors import FederationError
from mfairfl.flower.records import from_records, to_records
from mfairfl.wire.packing import Hello, Packet, pack

K = TypeVar("K")
_log = logging.getLogger("mfairfl")
_UNREADABLE = 0  # Flower's code of an error that it has no other for
_GLANCE = 0.05  # seconds between two looks at signals, which cost no request
_SURE = 5.0  # seconds after which replies are looked for without a signal: the server's own errors
_REVOKED = "its key was revoked"
_LONGEST = 200  # characters of a reason
# Flower's codes of messages and replies that are gone, and of a node that is.
_CAUSES: dict[int, Refusal | Absent] = {
    3: Refusal("it did not fetch the message before the deadline"),
    4: Refusal("it did not answer before the deadline"),
    5: Absent("it went offline"),
}


def match_replies(
    sent: Mapping[K, Message], replies: Iterable[Message]
) -> dict[K, Reply[RecordDict]]:
    """Return the first reply to each message, or the error in it, under the message's key.

    Replies to other messages, and second replies, are ignored.
    """
    # By the message it answers: a reply about a node that died comes from the server itself.
    keys = {message.metadata.message_id: key for key, message in sent.items()}
    outcomes: dict[K, Reply[RecordDict]] = {}
    for reply in replies:
        key = keys.pop(reply.metadata.reply_to_message_id, None)
        if key is not None:
            outcomes[key] = _outcome(reply.error) if reply.has_error() else reply.content
    return outcomes


def _outcome(error: Error) -> Refusal | Absent:
    # Of a long reason the end: the simulation sends a whole traceback, whose end says why.
    reason = " ".join((error.reason or "")[-10 * _LONGEST :].split())
    shown = reason if len(reason) <= _LONGEST else f"… {reason[-_LONGEST:]}"
    return _CAUSES.get(error.code, Refusal(f"it reported an error: {shown}"))


class MessageSignals(Protocol):
    """Signals when replies may have arrived, so that the server need not be polled."""

    def announce_messages(self) -> None:
        """Announce that messages for silos are on the server."""

    def visit(self, key: bytes) -> bytes:
        """Return a mark that changes whenever the silo with this key has sent all it had."""


class _Lookout:
    """Chooses the messages whose replies are looked for.

    A reply is listed before its arrays have arrived, and asking for them too early takes
    seconds. A silo that has come for its next message has sent its whole reply.
    """

    def __init__(self, signals: MessageSignals, keys: Mapping[int, bytes]) -> None:
        self._signals, self._keys = signals, keys
        self._seen = {node: self._visit(node) for node in self._keys}
        self._sure = time.monotonic()  # the server may refuse a message at once

    def choose(self, messages: list[Message]) -> list[Message]:
        """Return those that may have been answered since the last look."""
        if time.monotonic() >= self._sure:
            self._sure = time.monotonic() + _SURE
            return messages
        nodes = {message.metadata.dst_node_id for message in messages}
        now = {node: self._visit(node) for node in nodes}
        new = {node for node, mark in now.items() if mark != self._seen.get(node)}
        self._seen |= now
        return [message for message in messages if message.metadata.dst_node_id in new]

    def _visit(self, node: int) -> bytes:
        return self._signals.visit(self._keys[node])


@dataclass(slots=True, eq=False)
class GridTransport:
    """Carries packets over a Grid.

    Clients are known by their enrolled names, because a node's number is random.

    Parameters
    ----------
    run : str
        The run that every message belongs to.
    deadline : float
        Seconds after which an exchange goes on without the silos that have not answered.
    members : mapping of bytes to str
        The name enrolled for each public key (PEM), which Flower checks; nodes with other keys are
        ignored.
    signals : MessageSignals
        Signals that replies are there.
    revoked : callable
        Returns the keys that no longer count; called before and after every exchange.
    """

    grid: Grid
    run: str
    _: KW_ONLY
    deadline: float
    members: Mapping[bytes, str]
    signals: MessageSignals
    revoked: Callable[[], Collection[bytes]] = frozenset
    _keys: dict[int, bytes] = field(default_factory=dict, init=False)
    _nodes: dict[str, int] = field(default_factory=dict, init=False)
    _one_by_one: bool = field(default=False, init=False)

    def exchange(self, asks: Mapping[str, Packet]) -> dict[str, Reply[Packet]]:
        """Send each client its packet and wait for the answers until the deadline."""
        self._find_nodes()
        offline = dict.fromkeys(asks.keys() - self._nodes, Absent("it is not online"))
        sent = {name: asks[name] for name in asks if name in self._nodes}
        replies = read_replies(sent, self._ask(sent), lambda _, content: from_records(content)[1])
        # Also one whose key was revoked meanwhile does not count any more.
        revoked = dict.fromkeys(self._revoked_names() & set(asks), Refusal(_REVOKED))
        return {**replies, **offline, **revoked}

    def wait_for(self, names: Sequence[str], *, minimum: int, seconds: float) -> list[str]:
        """Wait until all of these clients are online, or the time is up and `minimum` are."""
        end, reached = time.monotonic() + seconds, set[str]()
        while True:
            self._find_nodes()
            revoked = self._revoked_names() & set(names)
            wanted = set(names) - revoked
            listed = self._nodes.keys() & wanted
            reached = reached & listed | self._reach(listed - reached)
            online = sorted(reached)
            late = time.monotonic() >= end or len(wanted) < minimum
            if len(online) >= minimum and (late or len(online) == len(wanted)):
                return online
            if late:
                absent = sorted(set(names) - set(online))
                missing = ", ".join(f"{n} ({_REVOKED})" if n in revoked else n for n in absent)
                raise FederationError(
                    f"{len(online)} clients are online after {seconds:g} s, at least {minimum} "
                    f"must be; missing: {missing}"
                )
            time.sleep(0.5)

    def _reach(self, names: Collection[str]) -> set[str]:
        """Greet clients; return those that are there.

        For a minute Flower lists a node that was killed, and one that takes its place is refused.
        """
        replies = self._ask(dict.fromkeys(names, pack(Hello())))
        return {
            name
            for name, reply in replies.items()
            if not any(reply is cause for cause in _CAUSES.values())
        }

    def _find_nodes(self) -> None:
        """Learn which silos are online, and forget the others."""
        valid = self.members.keys() - set(self.revoked())
        nodes = {node.node_id: bytes(node.public_key) for node in self.grid.get_nodes()}
        self._keys = {node: key for node, key in nodes.items() if key in valid}
        self._nodes = {self.members[key]: node for node, key in self._keys.items()}

    def _revoked_names(self) -> set[str]:
        return {self.members[key] for key in self.revoked() if key in self.members}

    def _ask(self, packets: Mapping[str, Packet]) -> dict[str, Reply[RecordDict]]:
        """Send packets to clients that are online; return what arrives before the deadline."""
        sent = {name: self._message(packet, self._nodes[name]) for name, packet in packets.items()}
        return match_replies(sent, self._collect(list(sent.values())))

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
        end, lookout = time.monotonic() + self.deadline, _Lookout(self.signals, self._keys)
        # A list: the deployed Grid iterates over the messages twice. It names those it accepted.
        left = set(filter(None, self.grid.push_messages(messages)))
        self.signals.announce_messages()
        sent = {message.metadata.message_id: message for message in messages}
        replies: list[Message] = []
        while left:  # the Grid's own waiting looks every three seconds only
            over = time.monotonic() >= end
            waited_for = [sent[name] for name in sorted(left)]
            arrived = self._pull(waited_for if over else lookout.choose(waited_for))
            replies += arrived
            left -= {reply.metadata.reply_to_message_id for reply in arrived}
            if over:
                break
            time.sleep(_GLANCE if left else 0)
        return replies

    def _pull(self, messages: list[Message]) -> list[Message]:
        """Return the replies that are there.

        A reply that Flower cannot read makes it raise, and those it had read before are lost. From
        then on each is pulled by itself: at most one exchange suffers.
        """
        ids = [message.metadata.message_id for message in messages]
        if not ids:
            return []
        if not self._one_by_one:
            try:
                return list(self.grid.pull_messages(ids))
            except Exception:
                _log.exception("a reply cannot be read; from now on they are pulled one by one")
                self._one_by_one = True
        replies: list[Message] = []
        for message in messages:
            try:
                replies += self.grid.pull_messages([message.metadata.message_id])
            except Exception as error:
                reason = f"{type(error).__name__}: {error}"
                replies.append(Message(Error(code=_UNREADABLE, reason=reason), reply_to=message))
        return replies
