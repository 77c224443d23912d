"""Attack the public port of a real deployment: what grows, what stays open, who is still served.

Starts the coordinator's two processes on loopback, with certificates and keys of their own. Then
20 requests send most of a body of 60 MB and stop, first without a key, then signed by an enrolled
one, and 300 connections stop before TLS, before a head, or within it. Meanwhile a silo sends its
heartbeats. Exits with 1 if an aim is missed.
"""

from __future__ import annotations

import socket
import ssl
import sys
import tempfile
import threading
import time
from base64 import b64encode
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import psutil
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.proto.fleet_pb2 import ActivateNodeRequest
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from mfairfl.deployment.local import servers, write_deployment
from mfairfl.deployment.settings import ServerSettings, load_federation
from mfairfl.runs.config import make_config

BODIES, BODY, KEPT_BACK = 20, 60 << 20, 1 << 20
HALF_OPEN = 300
GROWTH, SECONDS = 100, 15  # the aims: MB, and seconds until the last half-open one is closed
PUSH = "/v1/fleet/push-object"


@dataclass
class Silo:
    """An honest silo that sends a heartbeat twice a second, on a new connection each time."""

    server: ServerSettings
    key: ec.EllipticCurvePrivateKey
    waits: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)

    def client(self) -> FleetHttpClient:
        """Return a client with no connection yet."""
        return FleetHttpClient.from_server_address(
            f"127.0.0.1:{self.server.port}",
            insecure=False,
            root_certificates=self.server.ca.read_bytes(),
            interceptors=[NodeAuthHttpInterceptor(self.key, self.key.public_key())],
        )

    def run(self) -> None:
        """Join, then send heartbeats until stopped."""
        public = public_key_to_bytes(self.key.public_key())
        with self.client() as client:
            request = ActivateNodeRequest(public_key=public, heartbeat_interval=30)
            node = Node(node_id=client.ActivateNode(request).node_id)
        while not self.stopped.wait(0.5):
            began = time.monotonic()
            try:
                with self.client() as client:
                    client.SendNodeHeartbeat(
                        SendNodeHeartbeatRequest(node=node, heartbeat_interval=30)
                    )
            except Exception as error:  # counted, whatever it is
                self.failures.append(repr(error))
            self.waits.append(time.monotonic() - began)


def signature(key: ec.EllipticCurvePrivateKey) -> list[str]:
    """Return the headers by which Flower knows a silo."""
    now = datetime.now(UTC).isoformat()
    signed = key.sign(now.encode(), ec.ECDSA(hashes.SHA256()))
    public = public_key_to_bytes(key.public_key())
    return [
        f"flwr-public-key: {b64encode(public).decode()}",
        f"flwr-timestamp: {now}",
        f"flwr-signature: {b64encode(signed).decode()}",
    ]


def connect(server: ServerSettings, *, tls: bool = True) -> socket.socket:
    plain = socket.create_connection(("127.0.0.1", server.port), timeout=30)
    if not tls:
        return plain
    context = ssl.create_default_context(cafile=str(server.ca))
    return context.wrap_socket(plain, server_hostname="127.0.0.1")


def head(*lines: str) -> bytes:
    return "\r\n".join((*lines, "", "")).encode()


def unfinished(server: ServerSettings, size: int, signed: list[str]) -> str:
    """Send all of a body but its end, then wait; return what became of it."""
    with connect(server) as peer:
        start = head(f"POST {PUSH} HTTP/1.1", "Host: x", *signed, f"Content-Length: {size}")
        try:
            peer.sendall(start)
            piece = bytes(1 << 16)
            for _ in range((size - KEPT_BACK) // len(piece)):
                peer.sendall(piece)
            said = peer.recv(100)
        except (ConnectionError, ssl.SSLError):
            return "cut off"
        return said.decode().split(" ")[1] if said else "closed"


def is_closed(peer: socket.socket) -> bool:
    try:
        return peer.recv(1 << 16) == b""
    except (BlockingIOError, ssl.SSLWantReadError):
        return False
    except OSError:
        return True


def half_open(server: ServerSettings) -> tuple[int, float]:
    """Open requests that never end; return how many stayed open, and when the last was closed."""
    began, peers = time.monotonic(), []
    for number in range(HALF_OPEN):
        peer = connect(server, tls=number % 3 > 0)
        if number % 3 == 2:
            peer.sendall(f"POST {PUSH} HTTP/1.1\r\nHost: x\r\nContent-Le".encode())
        peer.setblocking(False)
        peers.append(peer)
    left = peers
    while left and time.monotonic() - began < 3 * SECONDS:
        left = [peer for peer in left if not is_closed(peer)]
        time.sleep(0.1)
    for peer in peers:
        peer.close()
    return len(left), time.monotonic() - began


class Memory:
    """Resident memory of a process above that at the beginning, in MB: now, and at most."""

    def __init__(self, process: psutil.Process) -> None:
        self._process, self._stop = process, threading.Event()
        self._before = self._peak = process.memory_info().rss
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        while not self._stop.wait(0.05):
            self._peak = max(self._peak, self._process.memory_info().rss)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def peak(self) -> int:
        """Return the largest growth since the last call."""
        found, self._peak = self._peak, 0
        return round((found - self._before) / 1e6)

    def now(self) -> int:
        """Return the growth that is left."""
        return round((self._process.memory_info().rss - self._before) / 1e6)


def attack_with_bodies(server: ServerSettings, size: int, signed: Callable[[], list[str]]) -> str:
    with ThreadPoolExecutor(BODIES) as threads:
        ends = list(threads.map(lambda _: unfinished(server, size, signed()), range(BODIES)))
    counts = {end: ends.count(end) for end in sorted(set(ends))}
    return ", ".join(f"{count} × {end}" for end, count in counts.items())


def one_answer(server: ServerSettings, *lines: str) -> str:
    with connect(server) as peer:
        try:
            peer.sendall(head(*lines))
            return peer.recv(100).decode().split(" ")[1]
        except (ConnectionError, ssl.SSLError):
            return "cut off"


def lay_out(folder: Path) -> Path:
    """Write a federation of two silos, which are never started."""
    rows = pd.DataFrame({"y": [0, 1] * 20, "s": ["a", "b"] * 20, "x": range(40)})
    files = {}
    for name in ("honest", "hostile"):
        files[name] = folder / f"{name}.csv"
        rows.to_csv(files[name], index=False)
    task = {"label": "y", "favourable": 1, "sensitive": ["s"]}
    return write_deployment(make_config({"task": task}), folder / "run", silos=files, deadline=60)


def private_key(path: Path) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_ssh_private_key(path.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="gate-") as name:
        file = lay_out(Path(name))
        settings = load_federation(file)
        keys = {silo: private_key(path.with_suffix("")) for silo, path in settings.silos.items()}
        with servers(settings, file, lambda _: None) as (superlink, gate):
            time.sleep(1.5)  # the gate looks for new keys every second
            silo = Silo(settings.server, keys["honest"])
            thread = threading.Thread(target=silo.run)
            thread.start()
            time.sleep(3)  # a few heartbeats before anything else
            with (
                Memory(psutil.Process(gate.process.pid)) as of_gate,
                Memory(psutil.Process(superlink.process.pid)) as of_superlink,
            ):
                try:
                    met = attack(settings.server, keys["hostile"], of_gate, of_superlink)
                finally:
                    silo.stopped.set()
                    thread.join()
    print(
        f"a silo's heartbeats meanwhile: {len(silo.waits)}, {len(silo.failures)} failed, "
        f"the slowest took {max(silo.waits):.2f} s"
    )
    met = met and not silo.failures
    print("all aims are met" if met else "AN AIM IS MISSED")
    return 0 if met else 1


def attack(
    server: ServerSettings,
    hostile: ec.EllipticCurvePrivateKey,
    of_gate: Memory,
    of_superlink: Memory,
) -> bool:
    """Carry out the attacks, print what they did, and say whether memory and time are as aimed."""
    grown = 0
    for what, size, signed in (
        ("60 MB, without a key", BODY, list),
        ("60 MB, with an enrolled key", BODY, lambda: signature(hostile)),
        ("8 MB, with an enrolled key", 8 << 20, lambda: signature(hostile)),
    ):
        ends = attack_with_bodies(server, size, signed)
        both = of_gate.peak(), of_superlink.peak()
        grown = max(grown, sum(both))
        print(f"{BODIES} unfinished bodies of {what}: {ends}")
        print(f"    gate +{both[0]} MB, SuperLink +{both[1]} MB at most")
    left, seconds = half_open(server)
    peak = of_gate.peak()
    grown = max(grown, peak)
    print(f"{HALF_OPEN} half-open requests: {left} left, the last closed after {seconds:.1f} s")
    print(f"    gate +{peak} MB at most")
    start = ("GET /health HTTP/1.1", "Host: x")
    upgrade = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13")
    large = one_answer(server, *start, f"X: {'y' * (1 << 20)}")
    print(f"a head of 1 MB: {large}; a websocket: {one_answer(server, *start, *upgrade)}")
    print(f"growth {grown} MB at most (aim {GROWTH}), gate +{of_gate.now()} MB at the end")
    print(f"half-open requests closed after {seconds:.1f} s (aim {SECONDS})")
    return grown <= GROWTH and not left and seconds <= SECONDS


if __name__ == "__main__":
    sys.exit(main())
