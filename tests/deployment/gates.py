"""A gate on loopback, with TLS and real sockets, and a SuperLink that is a function."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import ssl
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx
from cryptography.hazmat.primitives import serialization
from flwr.supercore.protobuf.client import ProtobufRequestContext
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from mfairfl.deployment.admission import KeyRing, Quotas
from mfairfl.deployment.gate import Gate, Signals, WaitingRoom
from mfairfl.deployment.keys import make_certificates, make_key, read_public_key
from mfairfl.deployment.listener import ConnectionLimits, Listener

PUSH = "/v1/fleet/push-object"
BROKEN_OFF = b"the beginning of an ans"


def signed(key, path="/"):
    """The headers that Flower's own SuperNode adds to a request."""
    private = serialization.load_ssh_private_key(key.read_bytes(), None)
    request = httpx.Request("POST", f"https://link{path}")
    context = ProtobufRequestContext(rpc_method="", message=None, request=request)
    NodeAuthHttpInterceptor(private, private.public_key()).intercept(context, lambda _: None)
    names = ("flwr-public-key", "flwr-timestamp", "flwr-signature")
    return {name: request.headers[name] for name in names}


def head(method, path, headers=(), *, size=None):
    """The head of a request, as bytes."""
    lines = [f"{method} {path} HTTP/1.1", "Host: gate"]
    lines += [f"{name}: {value}" for name, value in dict(headers).items()]
    lines += [] if size is None else [f"Content-Length: {size}"]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


@dataclass
class Standing:
    """A running gate, and what arrived behind it."""

    port: int
    ca: str
    key: object
    quotas: Quotas
    room: WaitingRoom
    arrived: list = field(default_factory=list)

    def raw(self):
        """A connection without TLS."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def tls(self):
        known = ssl.create_default_context(cafile=self.ca)
        return known.wrap_socket(self.raw(), server_hostname="127.0.0.1")

    def client(self):
        known = ssl.create_default_context(cafile=self.ca)
        return httpx.Client(
            base_url=f"https://127.0.0.1:{self.port}", verify=known, trust_env=False, timeout=30
        )

    def ask(self, method="POST", path=PUSH, *, content=b"", key=None, headers=()):
        with self.client() as client:
            signature = signed(key or self.key)
            return client.request(method, path, content=content, headers=signature | dict(headers))

    def say(self, data):
        """Send bytes over TLS and return the answer; nothing, if the gate closes without one."""
        with self.tls() as peer:
            peer.sendall(data)
            return response(peer)


class Pieces(httpx.AsyncByteStream):
    """An answer that arrives in pieces, as over a network."""

    def __init__(self, content):
        self.content = content

    async def __aiter__(self):
        for start in range(0, len(self.content), 1 << 16):
            yield self.content[start : start + (1 << 16)]
        if self.content == BROKEN_OFF:
            raise httpx.ReadError("the other side is gone")


def response(peer):
    """One answer: a head and as many bytes as it announces."""
    found = b""
    while b"\r\n\r\n" not in found:
        if not (piece := peer.recv(1 << 16)):
            return found
        found += piece
    top, _, body = found.partition(b"\r\n\r\n")
    size = int(dict(re.findall(rb"(?im)^([\w-]+): *(.*?)\r?$", top)).get(b"content-length", 0))
    while len(body) < size and (piece := peer.recv(1 << 16)):
        body += piece
    return top + b"\r\n\r\n" + body


def everything(peer):
    """What a connection gives until it is closed; a reset is an end, too."""
    found = b""
    try:
        while piece := peer.recv(1 << 16):
            found += piece
    except (ConnectionError, ssl.SSLError):
        pass
    return found


def eventually(condition):
    """Wait for a condition; a loaded machine has a minute."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def enrol(folder, *keys):
    """Write the file of registered keys."""
    known = [read_public_key(key.with_name(f"{key.name}.pub")).decode() for key in keys]
    (folder / "registered.json").write_text(json.dumps(known))


@contextmanager
def standing(folder, *, answer=None, limits=None, quotas=None, hold=0.0, places=128):
    """Run a gate in a thread while the block lasts."""
    if not (folder / "ca.crt").exists():
        make_certificates(folder, [])
    if not (folder / "key").exists():
        make_key(folder / "key")
        enrol(folder, folder / "key")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(folder / "server.crt", folder / "server.key")
    keys = KeyRing(folder / "registered.json", folder / "revoked.json")
    room = WaitingRoom(Signals(folder / "signals"), seconds=hold, places=places)
    with socket.create_server(("127.0.0.1", 0), backlog=512) as door:
        gate = Standing(
            door.getsockname()[1],
            str(folder / "ca.crt"),
            folder / "key",
            quotas or Quotas(),
            room,
        )

        def behind(request):
            gate.arrived.append(request)
            status, headers, content = answer(request) if answer else (200, {}, b"fine")
            headers = {"content-length": str(len(content))} | headers
            return httpx.Response(status, headers=headers, stream=Pieces(content))

        async def serve():
            transport = httpx.MockTransport(behind)
            async with httpx.AsyncClient(transport=transport, base_url="https://link") as client:
                handler = Gate(client, keys, gate.quotas, room).handle
                await Listener(handler, tls, limits or ConnectionLimits()).serve(door)

        loop = asyncio.new_event_loop()
        task = loop.create_task(serve())

        def run():
            asyncio.set_event_loop(loop)
            try:
                loop.run_until_complete(task)
            except asyncio.CancelledError:
                left = asyncio.all_tasks(loop)
                for one in left:
                    one.cancel()
                loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
                loop.run_until_complete(asyncio.sleep(0.05))  # closed sockets leave the loop
                loop.close()

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield gate
        finally:
            loop.call_soon_threadsafe(task.cancel)
            thread.join()
