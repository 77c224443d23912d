"""The coordinator's only public port: it forwards what silos need, and nothing else.

Flower's SuperLink answers silos, operators and its own processes on one port. Operators need no
credentials there: whoever reaches it can register keys and start code. So the SuperLink listens on
loopback only, and silos connect to this gate, which forwards the paths that they need, if a key
that is enrolled and not revoked signed the request. Flower checks the signature again behind it.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
from dataclasses import dataclass
from pathlib import Path

import httpx

from mfairfl.deployment.key_ring import KeyRing
from mfairfl.deployment.listener import ConnectionLimits, Exchange, Handler, Listener, Refused
from mfairfl.deployment.settings import FederationSettings, ServerSettings, load_federation
from mfairfl.deployment.shares import MemoryShares
from mfairfl.deployment.signals import Signals
from mfairfl.deployment.waiting_room import WaitingRoom
from mfairfl.errors import MfairflError

OPEN_PATHS = frozenset(
    f"/v1/fleet/{name}"
    for name in (
        "activate-node",
        "deactivate-node",
        "send-node-heartbeat",
        "pull-messages",
        "push-messages",
        "get-run",
        "get-fab",
        "push-object",
        "pull-object",
        "confirm-message-received",
    )
)
"""What an enrolled silo may request; `register-node` is for the coordinator only."""

_PULL = "/v1/fleet/pull-messages"
_ANSWER_SECONDS = 60  # that the SuperLink may take
_RECHECK = 1.0  # seconds after which the key of a held request is looked up again
_NOBODY = ""  # the share of those who ask for a sign of life
_HOP_BY_HOP = {b"host", b"connection", b"keep-alive", b"transfer-encoding", b"content-length"}


def make_gate(
    client: httpx.AsyncClient, keys: KeyRing, shares: MemoryShares, room: WaitingRoom
) -> Handler:
    """Return the handler that forwards requests for open paths through `client`."""

    async def gate(exchange: Exchange) -> None:
        asked = (exchange.method.decode(), exchange.path.decode("latin-1"))
        if asked == ("GET", "/health") and exchange.size == 0:
            holder = _NOBODY
        elif asked[0] == "POST" and asked[1] in OPEN_PATHS:
            holder = keys.holder(exchange)
        else:
            raise Refused(404, b"not here")
        with shares.hold(holder, exchange.size):
            request = _Forwarded(client, asked, await exchange.body(), exchange)
            if asked[1] == _PULL:
                await _forward_held(request, keys, holder, room)
            else:
                await request.forward()

    return gate


async def _forward_held(
    request: _Forwarded, keys: KeyRing, holder: str, room: WaitingRoom
) -> None:
    """Ask the SuperLink for a message; as long as there is none, let the silo wait."""
    now, exchange, signals = asyncio.get_running_loop().time, request.exchange, room.signals
    signals.announce_visit(holder.encode())
    with room.place(holder) as seconds:
        end = now() + seconds
        while True:
            mark = signals.messages()
            if await request.forward(unless_empty=now() < end):
                return
            while now() < end and signals.messages() == mark:
                await room.wait(min(_RECHECK, end - now()))
                keys.holder(exchange)  # it may have been revoked meanwhile
                if exchange.abandoned:  # a message that it is given now would be lost
                    raise ConnectionAbortedError("the silo does not wait any more")


@dataclass(frozen=True, slots=True)
class _Forwarded:
    """A request, and the way behind the gate."""

    client: httpx.AsyncClient
    asked: tuple[str, str]
    body: bytes
    exchange: Exchange

    async def forward(self, *, unless_empty: bool = False) -> bool:
        """Pass the request on, and its answer back as it arrives.

        Parameters
        ----------
        unless_empty : bool
            Keep an answer without content back, and return False.
        """
        headers = [pair for pair in self.exchange.headers if pair[0] not in _HOP_BY_HOP]
        started = False
        try:
            async with self.client.stream(
                *self.asked, content=self.body, headers=headers
            ) as reply:
                empty = reply.is_success and reply.headers.get("content-length") == "0"
                if unless_empty and empty:
                    return False
                kept = [(key.lower(), value) for key, value in reply.headers.raw]
                skipped = _HOP_BY_HOP - {b"content-length"}
                await self.exchange.start(
                    reply.status_code, [pair for pair in kept if pair[0] not in skipped]
                )
                started = True
                async for piece in reply.aiter_raw():
                    await self.exchange.write(piece)
        except httpx.HTTPError:
            if started:
                raise ConnectionAbortedError("the SuperLink broke off its answer") from None
            raise Refused(502, b"the SuperLink does not answer") from None
        await self.exchange.finish()
        return True


def serve_gate(settings: FederationSettings) -> None:
    """Serve the public port until stopped."""
    server = settings.server
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(server.certificates / "server.crt", server.certificates / "server.key")
    family = socket.AF_INET6 if ":" in server.host else socket.AF_INET
    with socket.create_server((server.host, server.port), family=family, backlog=512) as door:
        asyncio.run(_serve(settings, door, tls))


async def _serve(settings: FederationSettings, door: socket.socket, tls: ssl.SSLContext) -> None:
    keys = KeyRing(settings.server.registered, settings.revoked)
    shares = MemoryShares(allowance=settings.server.allowance << 20)
    room = WaitingRoom(Signals(settings.server.signals), seconds=settings.server.hold)
    async with _superlink(settings.server) as client, asyncio.TaskGroup() as tasks:
        tasks.create_task(room.watch())
        handler = make_gate(client, keys, shares, room)
        await Listener(handler, tls, ConnectionLimits()).serve(door)


def _superlink(server: ServerSettings) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=f"https://127.0.0.1:{server.superlink_port}",
        verify=ssl.create_default_context(cafile=str(server.ca)),
        timeout=_ANSWER_SECONDS,
        trust_env=False,  # never through a proxy: the SuperLink is on this machine
    )


if __name__ == "__main__":
    try:
        serve_gate(load_federation(Path(sys.argv[1])))
    except (MfairflError, OSError) as error:
        sys.exit(f"error: {error}")
