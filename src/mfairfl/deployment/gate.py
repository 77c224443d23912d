"""The coordinator's only public port: it forwards what silos need, and nothing else.

Flower's SuperLink answers silos, operators and its own processes on one port. Operators need no
credentials there: anyone who reaches it can register keys and start code. So the SuperLink listens
on loopback only, and silos connect to this gate, which forwards the paths that they need, if a key
that is enrolled and not revoked signed the request. Flower checks the signature again behind it.

Silos also wait here for messages. Flower polls: a SuperNode that gets no message always sleeps for
three seconds, and the coordinator's app looks for answers. Both ends of that are processes of the
coordinator, on one machine. So each signals when there is something to fetch, by changing a file,
and looking at a file costs no request. The gate holds a silo's request, and answers it as soon as
there is a message, or when its time is up.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import socket
import ssl
import sys
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

import h11
import httpx

from mfairfl.deployment.admission import KeyRing, Quotas
from mfairfl.deployment.listener import ConnectionLimits, Exchange, Listener, Refused, require
from mfairfl.deployment.settings import FederationSettings, load_federation
from mfairfl.errors import MfairflError
from mfairfl.files import make_private_folder

OPEN_PATHS = frozenset(
    f"/v1/fleet/{name}"
    for name in (
        *("activate-node", "deactivate-node", "send-node-heartbeat"),
        *("pull-messages", "push-messages", "get-run", "get-fab"),
        *("push-object", "pull-object", "confirm-message-received"),
    )
)
"""What an enrolled silo may request; `register-node` is for the coordinator only."""

_PULL = "/v1/fleet/pull-messages"
_ANSWER_SECONDS = 60  # that the SuperLink may take
_RECHECK = 1.0  # seconds after which the key of a waiting request is looked up again
_LOOK = 0.05  # seconds between two looks at a file while a silo waits; no request is made
_SIZE = 16  # bytes of a mark
_ANYONE = ""  # in place of a key: for requests of /health
_HOP_BY_HOP = {b"host", b"connection", b"keep-alive", b"transfer-encoding", b"content-length"}


# ------------------------------------------------------------------ forwarding


@dataclass(frozen=True, slots=True)
class Gate:
    """Forwards requests for open paths through a client of the SuperLink."""

    superlink: httpx.AsyncClient
    keys: KeyRing
    quotas: Quotas
    room: WaitingRoom

    async def handle(self, exchange: Exchange) -> None:
        """Answer a request, or refuse it from its head."""
        if (exchange.method, exchange.path, exchange.size) == ("GET", "/health", 0):
            key = _ANYONE
        else:
            open_path = exchange.method == "POST" and exchange.path in OPEN_PATHS
            require(open_path, 404, b"not here")
            key = self.keys.authenticate(exchange)
        with self.quotas.reserve(key, exchange.size):
            body = await exchange.connection.body()
            if exchange.path == _PULL:
                await self._forward_when_answered(exchange, body, key)
            else:
                await self._forward(exchange, body)

    async def _forward_when_answered(self, exchange: Exchange, body: bytes, key: str) -> None:
        """Ask the SuperLink for a message; as long as there is none, let the silo wait."""
        now, signals = asyncio.get_running_loop().time, self.room.signals
        signals.announce_visit(key.encode())
        with self.room.place(key) as seconds:
            end = now() + seconds
            while True:
                mark = signals.messages()
                if await self._forward(exchange, body, unless_empty=now() < end):
                    return
                while now() < end and signals.messages() == mark:
                    await self.room.wait(mark, min(_RECHECK, end - now()))
                    self.keys.authenticate(exchange)  # it may have been revoked meanwhile
                    if exchange.connection.abandoned:  # a message that it is given now is lost
                        raise ConnectionAbortedError("the silo does not wait any more")

    async def _forward(
        self, exchange: Exchange, body: bytes, *, unless_empty: bool = False
    ) -> bool:
        """Pass a request on, and its answer back as it arrives.

        Parameters
        ----------
        unless_empty : bool
            Keep an answer without content back, and return False.
        """
        headers = [pair for pair in exchange.headers if pair[0] not in _HOP_BY_HOP]
        send, started = exchange.connection.send, False
        try:
            async with self.superlink.stream(
                exchange.method, exchange.path, content=body, headers=headers
            ) as reply:
                empty = reply.is_success and reply.headers.get("content-length") == "0"
                if unless_empty and empty:
                    return False
                raw = [(key.lower(), value) for key, value in reply.headers.raw]
                skipped = _HOP_BY_HOP - {b"content-length"}
                passed = [pair for pair in raw if pair[0] not in skipped]
                await send(h11.Response(status_code=reply.status_code, headers=passed))
                started = True
                async for piece in reply.aiter_raw():
                    await send(h11.Data(data=piece))
        except httpx.HTTPError:
            if started:
                raise ConnectionAbortedError("the SuperLink broke off its answer") from None
            raise Refused(502, b"the SuperLink does not answer") from None
        await send(h11.EndOfMessage())
        return True


# ------------------------------------------------------------------ waiting for messages


class Signals:
    """Marks in a folder that both processes see; a mark that differs means that something is new.

    A lost or additional signal costs time, never an answer: both sides also look now and then.

    Parameters
    ----------
    folder : Path
        Where the marks are.

    Examples
    --------
    >>> import tempfile
    >>> signals = Signals(Path(tempfile.mkdtemp()))
    >>> before = signals.messages()
    >>> signals.announce_messages()
    >>> signals.messages() == before
    False
    """

    def __init__(self, folder: Path) -> None:
        self._folder = make_private_folder(folder)

    def announce_messages(self) -> None:
        """Signal that messages for silos are on the server."""
        self._change("messages")

    def messages(self) -> bytes:
        """Return the mark of the last messages."""
        return self._mark("messages")

    def announce_visit(self, key: bytes) -> None:
        """Signal that the silo with this key asks for a message: its last answer is complete."""
        self._change(hashlib.sha256(key).hexdigest())

    def visit(self, key: bytes) -> bytes:
        """Return the mark of a silo's last visit."""
        return self._mark(hashlib.sha256(key).hexdigest())

    def _change(self, name: str) -> None:
        file = os.open(self._folder / name, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.write(file, os.urandom(_SIZE))  # two marks are never the same
        finally:
            os.close(file)

    def _mark(self, name: str) -> bytes:
        try:
            return (self._folder / name).read_bytes()
        except FileNotFoundError:
            return b""


@dataclass(slots=True)
class WaitingRoom:
    """Holds requests until the server app signals that there are messages.

    Parameters
    ----------
    signals : Signals
        From the server app.
    seconds : float
        How long a request is held; 0 for not at all.
    places : int
        Requests held at once, one for each key; others are answered as if there were no room.

    Attributes
    ----------
    waiting : set of str
        The keys whose requests are held now.
    """

    signals: Signals
    _: KW_ONLY
    seconds: float
    places: int = 128
    waiting: set[str] = field(default_factory=set, init=False)

    @contextlib.contextmanager
    def place(self, key: str) -> Iterator[float]:
        """Take a place; return the seconds for which it may be held, 0 if there is none."""
        if key in self.waiting or len(self.waiting) >= self.places:
            yield 0.0
            return
        self.waiting.add(key)
        try:
            yield self.seconds
        finally:
            self.waiting.remove(key)

    async def wait(self, mark: bytes, seconds: float) -> None:
        """Wait until there are messages with another mark, or until the time is up."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.signals.messages() == mark:
                    await asyncio.sleep(_LOOK)


# ------------------------------------------------------------------ the process


async def serve_gate(settings: FederationSettings) -> None:
    """Serve the public port until stopped."""
    server = settings.server
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(server.certificates / "server.crt", server.certificates / "server.key")
    family = socket.AF_INET6 if ":" in server.host else socket.AF_INET
    superlink = httpx.AsyncClient(
        base_url=f"https://127.0.0.1:{server.superlink_port}",
        verify=ssl.create_default_context(cafile=str(server.ca)),
        timeout=_ANSWER_SECONDS,
        trust_env=False,  # never through a proxy: the SuperLink is on this machine
    )
    keys = KeyRing(server.registered, settings.revoked)
    quotas = Quotas(allowance=server.allowance << 20)
    room = WaitingRoom(Signals(server.signals), seconds=server.hold)
    gate = Gate(superlink, keys, quotas, room)
    with socket.create_server((server.host, server.port), family=family, backlog=512) as door:
        async with superlink:
            await Listener(gate.handle, tls, ConnectionLimits()).serve(door)


if __name__ == "__main__":
    try:
        asyncio.run(serve_gate(load_federation(Path(sys.argv[1]))))
    except (MfairflError, OSError) as error:
        sys.exit(f"error: {error}")
