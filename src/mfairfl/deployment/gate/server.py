"""The gate as a process: open paths are forwarded to the SuperLink, silos wait for messages."""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
from dataclasses import dataclass
from pathlib import Path

import httpx

from mfairfl.deployment.gate.admission import KeyRing, Quotas
from mfairfl.deployment.gate.listener import (
    ConnectionLimits,
    Exchange,
    Handler,
    Listener,
    Refused,
)
from mfairfl.deployment.gate.waiting_room import Signals, WaitingRoom
from mfairfl.deployment.settings import FederationSettings, load_federation
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
_RECHECK = 1.0  # seconds after which the key of a waiting request is looked up again
_ANYONE = ""  # in place of a key: for requests of /health
_HOP_BY_HOP = {b"host", b"connection", b"keep-alive", b"transfer-encoding", b"content-length"}


def make_gate(
    client: httpx.AsyncClient, keys: KeyRing, quotas: Quotas, room: WaitingRoom
) -> Handler:
    """Return the handler that forwards requests for open paths through `client`."""

    async def gate(exchange: Exchange) -> None:
        target = (exchange.method.decode(), exchange.path.decode("latin-1"))
        if target == ("GET", "/health") and exchange.size == 0:
            key = _ANYONE
        elif target[0] == "POST" and target[1] in OPEN_PATHS:
            key = keys.authenticate(exchange)
        else:
            raise Refused(404, b"not here")
        with quotas.reserve(key, exchange.size):
            request = _Request(client, target, await exchange.body(), exchange)
            if target[1] == _PULL:
                await _forward_when_answered(request, keys, key, room)
            else:
                await request.forward()

    return gate


async def _forward_when_answered(
    request: _Request, keys: KeyRing, key: str, room: WaitingRoom
) -> None:
    """Ask the SuperLink for a message; as long as there is none, let the silo wait."""
    now, exchange, signals = asyncio.get_running_loop().time, request.exchange, room.signals
    signals.announce_visit(key.encode())
    with room.place(key) as seconds:
        end = now() + seconds
        while True:
            mark = signals.messages()
            if await request.forward(unless_empty=now() < end):
                return
            while now() < end and signals.messages() == mark:
                await room.wait(min(_RECHECK, end - now()))
                keys.authenticate(exchange)  # it may have been revoked meanwhile
                if exchange.abandoned:  # a message that it is given now would be lost
                    raise ConnectionAbortedError("the silo does not wait any more")


@dataclass(frozen=True, slots=True)
class _Request:
    """A request, and the way behind the gate."""

    client: httpx.AsyncClient
    target: tuple[str, str]
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
                *self.target, content=self.body, headers=headers
            ) as reply:
                empty = reply.is_success and reply.headers.get("content-length") == "0"
                if unless_empty and empty:
                    return False
                skipped = _HOP_BY_HOP - {b"content-length"}
                raw = [(key.lower(), value) for key, value in reply.headers.raw]
                answer_headers = [pair for pair in raw if pair[0] not in skipped]
                await self.exchange.start(reply.status_code, answer_headers)
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
    server = settings.server
    keys = KeyRing(server.registered, settings.revoked)
    quotas = Quotas(allowance=server.allowance << 20)
    room = WaitingRoom(Signals(server.signals), seconds=server.hold)
    superlink = httpx.AsyncClient(
        base_url=f"https://127.0.0.1:{server.superlink_port}",
        verify=ssl.create_default_context(cafile=str(server.ca)),
        timeout=_ANSWER_SECONDS,
        trust_env=False,  # never through a proxy: the SuperLink is on this machine
    )
    async with superlink, asyncio.TaskGroup() as tasks:
        tasks.create_task(room.watch())
        handler = make_gate(superlink, keys, quotas, room)
        await Listener(handler, tls, ConnectionLimits()).serve(door)


if __name__ == "__main__":
    try:
        serve_gate(load_federation(Path(sys.argv[1])))
    except (MfairflError, OSError) as error:
        sys.exit(f"error: {error}")
