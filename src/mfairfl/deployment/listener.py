"""HTTP/1.1 over TLS for a port that strangers reach: every wait ends, every size has a limit.

Servers made for applications wait for ever for a request to arrive. Here each connection is one
task, and each of its waits has a deadline: TLS and the head of a request, then its body, then the
other side taking the answer. h11 does the parsing.
"""

from __future__ import annotations

import asyncio
import logging
import math
import socket
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import h11

_PIECE = 16 << 10  # bytes read at once: what a connection holds beside the body itself
_LINGER = 1.0  # seconds for a refused request to end, so that its sender can read why
_NO_MORE_FILES = 0.2  # seconds before the next connection is taken when this one could not be

_log = logging.getLogger("mfairfl")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """How long a connection may keep the server waiting, and how much it may hold.

    Parameters
    ----------
    head_seconds : float
        From a connection's first packet, or from the last answer on it, to the end of a request's
        head; TLS included.
    stall_seconds : float
        How long a body may pause, and how long a piece of the answer may wait to be taken.
    least_rate : int
        Bytes a second below which a body or an answer is given up, `stall_seconds` after it fell
        behind.
    head_bytes, body_bytes : int
        The largest head and body.
    connections : int
        Connections at once. Beyond it the one that has kept the server waiting longest is closed.
    """

    head_seconds: float = 8
    stall_seconds: float = 10
    least_rate: int = 64_000
    head_bytes: int = 16 << 10
    body_bytes: int = 8 << 20  # Flower cuts arrays into pieces of 5 MB
    connections: int = 256


class Refused(Exception):  # noqa: N818 - an answer, not an error
    """A request that gets this answer; its connection is closed."""

    def __init__(self, status: int, why: bytes) -> None:
        super().__init__(status, why)
        self.status, self.why = status, why


def require(holds: bool, status: int, otherwise: bytes) -> None:
    """Refuse a request of which something does not hold."""
    if not holds:
        raise Refused(status, otherwise)


class Exchange:
    """A request whose head is here; `connection` has its body, and takes the answer."""

    def __init__(self, connection: Connection, request: h11.Request) -> None:
        self.connection, limits = connection, connection.limits
        self.method, path = request.method.decode(), request.target.partition(b"?")[0]
        self.path = path.decode("latin-1")
        self.headers = list(request.headers)
        # h11 refuses a large head that arrives in pieces, but not one that arrived at once.
        head_bytes = sum(len(name) + len(value) for name, value in self.headers)
        require(
            head_bytes + len(request.target) <= limits.head_bytes, 431, b"the head is too large"
        )
        require(self.only(b"upgrade") is None, 400, b"no upgrades")
        require(self.only(b"transfer-encoding") is None, 411, b"state the content-length")
        self.size = int(self.only(b"content-length") or 0)  # h11 has checked that it is a number
        require(self.size <= limits.body_bytes, 413, b"too large")

    def only(self, name: bytes) -> bytes | None:
        """Return the value of a header that must not come twice; None without it."""
        values = [value for key, value in self.headers if key == name]
        require(len(values) <= 1, 400, b"a header is repeated")
        return values[0] if values else None


Handler = Callable[[Exchange], Awaitable[None]]


class Listener:
    """Accepts connections and hands their requests to `handler`."""

    def __init__(self, handler: Handler, tls: ssl.SSLContext, limits: ConnectionLimits) -> None:
        self._handler, self._tls, self._limits = handler, tls, limits
        self._open: dict[asyncio.Task[None], Connection] = {}

    async def serve(self, door: socket.socket) -> None:
        """Accept connections on a listening socket until cancelled."""
        door.setblocking(False)
        while True:
            try:
                peer, _ = await asyncio.get_running_loop().sock_accept(door)
            except OSError as error:  # the peer is gone already, or no file descriptor is left
                _log.warning("a connection could not be accepted: %s", error)
                await asyncio.sleep(_NO_MORE_FILES)
                continue
            if self._make_room():
                connection = Connection(peer, self._tls, self._limits)
                task = asyncio.create_task(connection.run(self._handler))
                self._open[task] = connection
                task.add_done_callback(self._ended)
            else:
                peer.close()
            await asyncio.sleep(0)  # a long queue of connections must not keep the others waiting

    def _make_room(self) -> bool:
        """Close the connection that has kept us waiting longest, if there are too many."""
        if len(self._open) < self._limits.connections:
            return True
        longest = min(self._open, key=lambda task: self._open[task].awaited_since)
        if self._open[longest].awaited_since == math.inf:
            return False
        self._open[longest].awaited_since = math.inf  # it is closed once
        longest.cancel()
        return True

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._open[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a request could not be answered", exc_info=error)


class Connection:
    """One connection: its requests, one after the other.

    `awaited_since` is when we began to wait for a request; infinite while one is here.
    """

    def __init__(self, peer: socket.socket, tls: ssl.SSLContext, limits: ConnectionLimits) -> None:
        self._peer, self._tls, self.limits = peer, tls, limits
        self._parser = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.head_bytes)
        self._answer_began, self._answered = 0.0, 0
        self.awaited_since = time.monotonic()

    async def run(self, handler: Handler) -> None:
        """Serve requests until the peer leaves, is refused, or makes us wait too long."""
        loop = asyncio.get_running_loop()
        due = loop.time() + self.limits.head_seconds
        self._reader = asyncio.StreamReader(limit=_PIECE)
        protocol = asyncio.StreamReaderProtocol(self._reader)
        try:
            async with asyncio.timeout_at(due):
                transport, _ = await loop.connect_accepted_socket(
                    lambda: protocol,
                    self._peer,
                    ssl=self._tls,
                    ssl_handshake_timeout=self.limits.head_seconds,
                    ssl_shutdown_timeout=_LINGER,
                )
        except OSError as error:  # no TLS, or not in time (TimeoutError is one)
            _log.debug("a connection without TLS: %r", error)
            self._peer.close()
            return
        transport.set_write_buffer_limits(high=_PIECE)
        self._writer = asyncio.StreamWriter(transport, protocol, self._reader, loop)
        try:
            await self._serve(handler, due)
            self._writer.close()
            await self._writer.wait_closed()
        except OSError as error:  # it left, or let us wait too long
            _log.debug("a connection was given up: %r", error)
        finally:
            transport.abort()

    async def _serve(self, handler: Handler, due: float) -> None:
        """Answer requests; the head of the first one must be here at `due`."""
        while True:
            try:
                async with asyncio.timeout_at(due):
                    event = await self._event()
                    if not isinstance(event, h11.Request):
                        return  # the peer closed the connection
                await handler(Exchange(self, event))
            except Refused as refusal:
                await self._refuse(refusal)
                return
            except h11.RemoteProtocolError as error:
                await self._refuse(Refused(error.error_status_hint, b"not HTTP/1.1"))
                return
            if self._parser.states != {h11.CLIENT: h11.DONE, h11.SERVER: h11.DONE}:
                return  # someone said `Connection: close`
            self._parser.start_next_cycle()
            self.awaited_since = time.monotonic()
            due = asyncio.get_running_loop().time() + self.limits.head_seconds

    async def _refuse(self, refusal: Refused) -> None:
        if self._parser.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return  # an answer was under way
        length = str(len(refusal.why)).encode()
        headers = [(b"content-length", length), (b"connection", b"close")]
        await self.send(h11.Response(status_code=refusal.status, headers=headers))
        await self.send(h11.Data(data=refusal.why))
        await self.send(h11.EndOfMessage())
        # Closed on unread bytes, the peer would see a reset instead of the reason.
        async with asyncio.timeout(_LINGER):
            while await self._reader.read(_PIECE):
                pass

    @property
    def abandoned(self) -> bool:
        """Whether the other side has closed the connection."""
        return self._reader.at_eof() or self._writer.is_closing()

    async def _event(self) -> object:
        while True:
            event = self._parser.next_event()
            if event is not h11.NEED_DATA:
                return event
            self._parser.receive_data(await self._reader.read(_PIECE))

    async def body(self) -> bytes:
        """Return a request's body, once it has arrived."""
        loop, received = asyncio.get_running_loop(), bytearray()
        if self._parser.they_are_waiting_for_100_continue:
            await self.send(h11.InformationalResponse(status_code=100, headers=[]))
        began = loop.time()
        while True:
            async with asyncio.timeout_at(self._due(began, len(received))):
                event = await self._event()
            if not isinstance(event, h11.Data):
                self.awaited_since = math.inf
                return bytes(received)
            received += event.data

    async def send(self, event: h11.Event) -> None:
        """Send a part of the answer, and wait until the other side has taken most of it."""
        loop = asyncio.get_running_loop()
        data = self._parser.send(event) or b""
        if isinstance(event, h11.InformationalResponse | h11.Response):
            self._answer_began, self._answered = loop.time(), 0
        self._writer.write(data)
        self._answered += len(data)
        async with asyncio.timeout_at(self._due(self._answer_began, self._answered)):
            await self._writer.drain()

    def _due(self, began: float, moved: int) -> float:
        """Return when the next piece must have moved, given what moved since `began`."""
        now, rate = asyncio.get_running_loop().time(), self.limits.least_rate
        return min(now, began + moved / rate) + self.limits.stall_seconds
