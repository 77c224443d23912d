"""The gate passes on what enrolled silos need; everything else ends there, and soon."""

from __future__ import annotations

import gzip
import logging
import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from flwr.superlink.routers.fleet.router import router
from flwr.supernode import node_auth_http_interceptor
from gates import BROKEN_OFF, PUSH, enrol, eventually, everything, head, response, signed, standing

from mfairfl.deployment.admission import Quotas
from mfairfl.deployment.gate import OPEN_PATHS
from mfairfl.deployment.keys import add_revocation, make_key, read_public_key
from mfairfl.deployment.listener import ConnectionLimits

SOON = ConnectionLimits(head_seconds=2, stall_seconds=2)
SIGNATURE = ("flwr-public-key", "flwr-timestamp", "flwr-signature")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Certificates and a key, made once."""
    return tmp_path_factory.mktemp("gate")


@pytest.fixture(scope="module")
def gate(folder):
    with standing(folder) as gate:
        yield gate


@pytest.fixture(scope="module")
def hasty(folder):
    """A gate with short deadlines."""
    with standing(folder, limits=SOON) as gate:
        yield gate


@pytest.fixture(autouse=True)
def _nothing_arrived(gate, hasty):
    gate.arrived.clear()
    hasty.arrived.clear()


def status(answer):
    return int(answer.split(b" ")[1])


# What gets through


def test_a_silo_s_request_arrives_whole_with_its_signature(gate):
    reply = gate.ask(content=b"x" * 250_000, headers={"content-encoding": "gzip"})
    assert (reply.status_code, reply.content) == (200, b"fine")
    (request,) = gate.arrived
    assert (request.method, request.url.path) == ("POST", PUSH)
    assert request.content == b"x" * 250_000
    assert set(SIGNATURE) <= set(request.headers)
    assert request.headers["host"] == "link"
    assert request.headers["content-encoding"] == "gzip"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/control/start-run"),
        ("POST", "/v1/fleet/register-node"),
        ("POST", "/v1/runtime/push-messages"),
        ("GET", "/v1/fleet/pull-messages"),
        ("POST", "/v1/fleet/../control/start-run"),
        ("POST", "/v1/fleet/%70ull-messages"),
        ("POST", "https://link/v1/fleet/pull-messages"),
        ("POST", "//v1/control/start-run"),
        ("POST", "/v1/fleet/pull-messages/"),
        ("POST", "/health"),
        ("GET", "/openapi.json"),
        ("CONNECT", "link:443"),
    ],
)
def test_nothing_else_gets_through_even_with_a_signature(gate, method, path):
    answer = gate.say(head(method, path, signed(gate.key), size=0))
    assert (status(answer), gate.arrived) == (404, [])


def test_anybody_may_ask_whether_it_lives(gate):
    with gate.client() as client:
        assert client.get("/health").content == b"fine"
    assert status(gate.say(head("GET", "/health", size=5) + b"hello")) == 404
    assert len(gate.arrived) == 1


def test_a_connection_serves_several_requests(gate):
    with gate.tls() as peer:
        for _ in range(2):
            peer.sendall(head("POST", PUSH, signed(gate.key), size=3) + b"abc")
            assert response(peer).endswith(b"fine")
    assert [request.content for request in gate.arrived] == [b"abc", b"abc"]


def test_expect_100_continue_is_answered(gate):
    with gate.tls() as peer:
        peer.sendall(head("POST", PUSH, signed(gate.key) | {"Expect": "100-continue"}, size=3))
        assert status(response(peer)) == 100
        peer.sendall(b"abc")
        assert response(peer).endswith(b"fine")


def test_answers_keep_their_status_and_their_length_is_true(folder):
    def refuse(_):
        return 404, {"x-why": "key"}, b"who?"

    with standing(folder, answer=refuse) as gate:
        reply = gate.ask()
    assert (reply.status_code, reply.content) == (404, b"who?")
    assert reply.headers["x-why"] == "key"
    assert reply.headers["content-length"] == "4"


def test_unreachable_superlink_is_a_bad_gateway(folder):
    def down(_):
        raise httpx.ConnectError("refused")

    with standing(folder, answer=down) as gate:
        assert gate.ask().status_code == 502


def test_an_answer_that_breaks_off_is_not_taken_for_a_whole_one(folder):
    with standing(folder, answer=lambda _: (200, {"content-length": "99"}, BROKEN_OFF)) as gate:
        with pytest.raises(httpx.RemoteProtocolError, match="without sending complete message"):
            gate.ask()
        eventually(lambda: gate.quotas.reserved == 0)


def test_a_compressed_answer_arrives_as_it_was_sent(folder):
    packed = gzip.compress(b"long" * 50)

    def answer(_):
        return 200, {"content-encoding": "gzip"}, packed

    with standing(folder, answer=answer) as gate:
        reply = gate.ask()
    assert reply.content == b"long" * 50
    assert reply.headers["content-length"] == str(len(packed))


def test_open_paths_are_those_of_an_enrolled_silo():
    there = {route.path for route in router.routes}
    assert there >= OPEN_PATHS
    assert there - OPEN_PATHS == {"/v1/fleet/register-node", "/v1/fleet/unregister-node"}


# Whose request it is


@pytest.mark.parametrize(
    "change",
    [
        {"flwr-public-key": None},
        {"flwr-public-key": "not base64!"},
        {"flwr-signature": None},
        {"flwr-signature": "AAAA"},
        {"flwr-timestamp": None},
        {"flwr-timestamp": "2020-01-01T00:00:00+00:00"},
        {"flwr-timestamp": "2020-01-01T00:00:00"},
        {"flwr-timestamp": "yesterday"},
    ],
)
def test_a_request_without_a_good_signature_goes_nowhere(gate, change):
    headers = {k: v for k, v in (signed(gate.key) | change).items() if v is not None}
    assert status(gate.say(head("POST", PUSH, headers, size=10))) == 401
    assert gate.arrived == []


@pytest.mark.parametrize("minutes", [-6, 1])
def test_an_old_or_early_signature_does_not_count(gate, monkeypatch, minutes):
    then = datetime.now(UTC) + timedelta(minutes=minutes)
    monkeypatch.setattr(node_auth_http_interceptor, "now", lambda: then)
    assert gate.ask().status_code == 401


def test_a_repeated_header_cannot_name_two_keys(gate, tmp_path):
    make_key(tmp_path / "other")
    both = head("POST", PUSH, signed(gate.key), size=0)
    second = signed(tmp_path / "other")["flwr-public-key"]
    both = both.replace(b"Content-Length", f"FLWR-Public-Key: {second}\r\nContent-Length".encode())
    assert status(gate.say(both)) == 400
    assert gate.arrived == []


@pytest.mark.slow
def test_a_key_counts_once_it_is_enrolled_and_until_it_is_revoked(tmp_path):
    with standing(tmp_path) as gate:
        other = tmp_path / "other"
        make_key(other)
        reply = gate.ask(key=other)
        assert reply.status_code == 412
        assert reply.json()["detail"].startswith("no silo is enrolled with this key")
        enrol(tmp_path, gate.key, other)
        eventually(lambda: gate.ask(key=other).status_code == 200)
        add_revocation(tmp_path / "revoked.json", "other", read_public_key(tmp_path / "other.pub"))
        eventually(lambda: gate.ask(key=other).status_code == 412)
        assert gate.ask(key=other).json()["detail"] == "this key was revoked; ask the coordinator"
        assert gate.ask().status_code == 200  # the others go on
    with standing(tmp_path) as gate:  # and after a restart
        assert gate.ask(key=other).status_code == 412


def test_a_file_that_cannot_be_read_changes_nothing(tmp_path, caplog):
    with standing(tmp_path) as gate, caplog.at_level(logging.WARNING, "mfairfl"):
        (tmp_path / "registered.json").write_text("[")
        eventually(lambda: gate.ask().status_code == 200 and "damaged" in caplog.text)
    assert "the keys read before stay in force" in caplog.text


# Those who keep it waiting


@pytest.mark.slow
@pytest.mark.parametrize("first", [b"", b"\x16\x03\x01"], ids=["silent", "half a hello"])
def test_a_connection_that_never_gets_to_tls_is_closed(hasty, first):
    with hasty.raw() as peer:
        peer.sendall(first)
        assert everything(peer) == b""


@pytest.mark.slow
@pytest.mark.parametrize("first", [b"", head("POST", PUSH)[:-2]], ids=["silent", "half a head"])
def test_a_request_whose_head_never_ends_is_closed(hasty, first):
    with hasty.tls() as peer:
        peer.sendall(first)
        assert everything(peer) == b""


@pytest.mark.slow
def test_a_head_that_trickles_is_closed(hasty):
    with hasty.tls() as peer:
        peer.settimeout(0.05)
        sent = 0
        for byte in head("POST", PUSH, {"x": "y" * 8000}):
            sent += 1
            try:
                peer.sendall(bytes([byte]))
                if peer.recv(1) == b"":
                    break
            except TimeoutError:
                continue
            except OSError:
                break
    assert sent < 1000
    assert hasty.arrived == []


@pytest.mark.slow
def test_an_idle_connection_is_closed_after_its_answer(hasty):
    with hasty.tls() as peer:
        peer.sendall(head("POST", PUSH, signed(hasty.key), size=0))
        assert everything(peer).endswith(b"fine")


@pytest.mark.slow
def test_a_body_that_stalls_is_closed_and_given_back(hasty):
    with hasty.tls() as peer:
        peer.sendall(head("POST", PUSH, signed(hasty.key), size=1000) + b"x" * 900)
        eventually(lambda: hasty.quotas.reserved == 1000)
        assert everything(peer) == b""
    eventually(lambda: hasty.quotas.reserved == 0)
    assert hasty.arrived == []


@pytest.mark.slow
def test_connections_below_the_least_rate_are_closed(folder):
    def arrives(least_rate):
        limits = ConnectionLimits(stall_seconds=2, least_rate=least_rate)
        with standing(folder, limits=limits) as gate, gate.tls() as peer:
            peer.sendall(head("POST", PUSH, signed(gate.key), size=30))
            try:
                for _ in range(30):  # ten bytes a second
                    peer.sendall(b"x")
                    time.sleep(0.1)
                return response(peer).endswith(b"fine")
            except OSError:
                return False

    assert not arrives(least_rate=10_000)
    assert arrives(least_rate=1)


@pytest.mark.slow
def test_client_that_does_not_read_the_answer_is_disconnected(folder):
    def long(_):
        return 200, {}, b"x" * (32 << 20)

    limits = ConnectionLimits(stall_seconds=0.5)
    with standing(folder, answer=long, limits=limits) as gate, gate.tls() as peer:
        peer.sendall(head("POST", PUSH, signed(gate.key), size=0))
        eventually(lambda: gate.arrived)
        time.sleep(2)  # nothing is read meanwhile
        assert len(everything(peer)) < 32 << 20


def test_half_open_requests_make_room_for_honest_ones(folder):
    with standing(folder, limits=ConnectionLimits(connections=8)) as gate, ExitStack() as stack:
        peers = [stack.enter_context(gate.raw()) for _ in range(20)]
        peers += [stack.enter_context(gate.tls()) for _ in range(20)]
        assert gate.ask().status_code == 200
        for peer in peers[:30]:  # of 41, at most eight stay
            assert everything(peer) == b""


def test_every_wait_of_an_unfinished_request_ends_within_fifteen_seconds():
    assert max(ConnectionLimits().head_seconds, ConnectionLimits().stall_seconds) <= 15


# Those who send too much


def test_a_body_is_refused_by_its_declared_size(gate):
    declared = ConnectionLimits().body_bytes + 1
    answer = gate.say(head("POST", PUSH, signed(gate.key), size=declared) + b"x" * 1000)
    assert (status(answer), gate.quotas.reserved, gate.arrived) == (413, 0, [])
    untold = head("POST", PUSH, signed(gate.key) | {"Transfer-Encoding": "chunked"})
    assert status(gate.say(untold + b"3\r\nabc\r\n")) == 411


@pytest.mark.parametrize("pieces", [1, 50])
def test_a_large_head_is_refused(gate, pieces):
    large = head("POST", PUSH, {"x": "y" * ConnectionLimits().head_bytes})
    step = -(-len(large) // pieces)
    with gate.tls() as peer:
        for start in range(0, len(large), step):
            peer.sendall(large[start : start + step])
        assert status(everything(peer)) == 431


@pytest.mark.slow
def test_unfinished_bodies_share_the_quota_of_their_key(folder):
    limits, size = ConnectionLimits(stall_seconds=5), 1 << 20
    quotas = Quotas(total=4 * size, each=3 * size)
    with standing(folder, limits=limits, quotas=quotas) as gate, ExitStack() as stack:
        peers = [stack.enter_context(gate.tls()) for _ in range(20)]
        for peer in peers:
            peer.sendall(head("POST", PUSH, signed(gate.key), size=size) + b"x" * 1000)
        answers = [everything(peer) for peer in peers]
        assert [status(answer) for answer in answers if answer] == [503] * 17
        eventually(lambda: quotas.reserved == 0)
        assert gate.arrived == []
        assert gate.ask(content=b"x" * size).status_code == 200


@pytest.mark.parametrize("protocol", ["websocket", "h2c"])
def test_an_upgrade_is_refused(gate, protocol):
    wish = {"Connection": "Upgrade", "Upgrade": protocol, "Sec-WebSocket-Version": "13"}
    for path in ("/health", PUSH):
        assert status(gate.say(head("GET", path, wish | {"Sec-WebSocket-Key": "AAAA"}))) == 400
    assert gate.arrived == []


@pytest.mark.parametrize(
    "noise", [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x00" * 50 + b"\r\n\r\n", b"GET\r\n\r\n"]
)
def test_other_protocols_are_refused(gate, noise):
    assert status(gate.say(noise)) in (400, 404)
