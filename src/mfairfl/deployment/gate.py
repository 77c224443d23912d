"""The coordinator's only public port: it forwards what silos need, and nothing else.

Flower's SuperLink answers silos, operators and its own processes on one port. Operators need no
credentials there: whoever reaches it can register keys and start code. So the SuperLink listens on
loopback only, and silos connect to this gate, which forwards the paths that they need. Flower
checks the silos' signatures behind it.
"""

from __future__ import annotations

import ssl
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from mfairfl.deployment.settings import ServerSettings, load_federation

__all__ = ["OPEN_PATHS", "make_gate", "serve_gate"]

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

_HEALTH = "/health"
_LARGEST_BODY = 64 << 20  # bytes; Flower cuts arrays into pieces of 5 MB
_CONNECTION_HEADERS = {b"host", b"connection", b"transfer-encoding", b"content-length"}
_REPLY_HEADERS = _CONNECTION_HEADERS | {b"content-encoding"}  # httpx decompresses replies

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]


def make_gate(client: httpx.AsyncClient, *, largest_body: int = _LARGEST_BODY) -> Application:
    """Return the ASGI application that forwards requests for open paths through `client`."""

    async def gate(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # no lifespan, no websockets
            return
        asked = (scope["method"], scope["path"])
        if asked != ("GET", _HEALTH) and not (asked[0] == "POST" and asked[1] in OPEN_PATHS):
            await _answer(send, 404, b"not here")
            return
        body = await _body(receive, largest_body)
        if body is None:
            await _answer(send, 413, b"too large")
            return
        headers = [pair for pair in scope["headers"] if pair[0] not in _CONNECTION_HEADERS]
        try:
            reply = await client.request(asked[0], asked[1], content=body, headers=headers)
        except httpx.HTTPError:
            await _answer(send, 502, b"the SuperLink does not answer")
            return
        kept = [pair for pair in reply.headers.raw if pair[0].lower() not in _REPLY_HEADERS]
        await _answer(send, reply.status_code, reply.content, kept)

    return gate


async def _body(receive: Receive, largest: int) -> bytes | None:
    """Return the request's body; None if it is too large."""
    parts, size = [], 0
    while True:
        message = await receive()
        part = message.get("body", b"")
        size += len(part)
        if size > largest or message["type"] == "http.disconnect":
            return None
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


async def _answer(
    send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]] | None = None
) -> None:
    length = (b"content-length", str(len(body)).encode())
    start = {"type": "http.response.start", "status": status}
    await send(start | {"headers": [*(headers or []), length]})
    await send({"type": "http.response.body", "body": body})


def serve_gate(server: ServerSettings) -> None:
    """Serve the public port until stopped."""
    trusted = ssl.create_default_context(cafile=str(server.ca))
    client = httpx.AsyncClient(
        base_url=f"https://127.0.0.1:{server.superlink_port}",
        verify=trusted,
        timeout=60,
        trust_env=False,  # never through a proxy: the SuperLink is on this machine
    )
    uvicorn.run(
        make_gate(client),
        host=server.host,
        port=server.port,
        ssl_certfile=str(server.certificates / "server.crt"),
        ssl_keyfile=str(server.certificates / "server.key"),
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
    )


if __name__ == "__main__":
    serve_gate(load_federation(Path(sys.argv[1])).server)
