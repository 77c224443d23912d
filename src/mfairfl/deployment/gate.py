"""The coordinator's one public port: it passes on what silos need, and nothing else.

Flower's SuperLink answers silos, operators and its own processes on one port. Operators need no
credentials there: whoever reaches it can register keys and start code. So the SuperLink listens on
loopback only, and silos meet this gate, which knows the paths of their side. Flower checks the
silos' signatures behind it.
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

__all__ = ["OPEN", "make_gate", "serve"]

OPEN = frozenset(
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
"""What a silo that is already enrolled may ask; `register-node` is the coordinator's."""

_HEALTH = "/health"
_LARGEST = 64 << 20  # bytes; Flower cuts arrays into pieces of 5 MB
_OF_A_CONNECTION = {b"host", b"connection", b"transfer-encoding", b"content-length"}
_OF_AN_ANSWER = _OF_A_CONNECTION | {b"content-encoding"}  # httpx unpacks what was compressed

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Gate = Callable[[Message, Receive, Send], Awaitable[None]]


def make_gate(client: httpx.AsyncClient) -> Gate:
    """Return the ASGI application that passes open paths on through `client`."""

    async def gate(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # no lifespan, no websockets
            return
        asked = (scope["method"], scope["path"])
        if asked != ("GET", _HEALTH) and not (asked[0] == "POST" and asked[1] in OPEN):
            await _answer(send, 404, b"not here")
            return
        body = await _body(receive)
        if body is None:
            await _answer(send, 413, b"too large")
            return
        headers = [pair for pair in scope["headers"] if pair[0] not in _OF_A_CONNECTION]
        try:
            reply = await client.request(asked[0], asked[1], content=body, headers=headers)
        except httpx.HTTPError:
            await _answer(send, 502, b"the SuperLink does not answer")
            return
        kept = [pair for pair in reply.headers.raw if pair[0].lower() not in _OF_AN_ANSWER]
        await _answer(send, reply.status_code, reply.content, kept)

    return gate


async def _body(receive: Receive) -> bytes | None:
    """Return the request's body; None if it is too large."""
    parts, size = [], 0
    while True:
        message = await receive()
        part = message.get("body", b"")
        size += len(part)
        if size > _LARGEST or message["type"] == "http.disconnect":
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


def serve(server: ServerSettings) -> None:
    """Stand at the public port until told to stop."""
    known = ssl.create_default_context(cafile=str(server.ca))
    client = httpx.AsyncClient(
        base_url=f"https://127.0.0.1:{server.superlink_port}",
        verify=known,
        timeout=60,
        trust_env=False,  # never through a proxy: it is this machine
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
    serve(load_federation(Path(sys.argv[1])).server)
