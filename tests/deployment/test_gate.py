"""The gate passes on what silos need; everything else ends there."""

from __future__ import annotations

import asyncio
import gzip

import httpx
import pytest
from flwr.superlink.routers.fleet.router import router

from mfairfl.deployment.gate import OPEN_PATHS, make_gate


def through(method, path, body=b"", *, answer=None, headers=(), **limits):
    """Ask the gate; return status, body, headers and what arrived behind it."""
    arrived, sent = [], []

    def behind(request):
        arrived.append(request)
        return (answer or (lambda _: httpx.Response(200, content=b"fine")))(request)

    async def ask():
        pieces = [body[i : i + 1000] for i in range(0, len(body), 1000)] or [b""]

        async def receive():
            piece = pieces.pop(0)
            return {"type": "http.request", "body": piece, "more_body": bool(pieces)}

        async def send(message):
            sent.append(message)

        transport = httpx.MockTransport(behind)
        async with httpx.AsyncClient(transport=transport, base_url="https://link") as client:
            scope = {"type": "http", "method": method, "path": path, "headers": list(headers)}
            await make_gate(client, **limits)(scope, receive, send)

    asyncio.run(ask())
    return sent[0]["status"], sent[1]["body"], dict(sent[0]["headers"]), arrived


def test_a_silo_s_request_arrives_whole_with_its_signature():
    headers = [
        (b"x-signature", b"abc"),
        (b"host", b"fl.example.org"),
        (b"content-encoding", b"gzip"),
    ]
    status, body, _, arrived = through(
        "POST", "/v1/fleet/pull-messages", b"x" * 2500, headers=headers
    )
    assert (status, body) == (200, b"fine")
    (request,) = arrived
    assert request.content == b"x" * 2500
    assert request.headers["x-signature"] == "abc"
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
        ("POST", "//v1/control/start-run"),
        ("POST", "/v1/fleet/pull-messages/"),
        ("POST", "/health"),
        ("GET", "/openapi.json"),
    ],
)
def test_nothing_else_gets_through(method, path):
    status, _, _, arrived = through(method, path)
    assert (status, arrived) == (404, [])


def test_answers_keep_their_status_and_their_length_is_true():
    def refuse(_):
        return httpx.Response(401, content=b"who?", headers={"x-why": "key"})

    status, body, headers, _ = through("POST", "/v1/fleet/get-run", answer=refuse)
    assert (status, body) == (401, b"who?")
    assert headers[b"x-why"] == b"key"
    assert headers[b"content-length"] == b"4"


def test_a_server_that_is_down_is_said_so():
    def down(_):
        raise httpx.ConnectError("refused")

    assert through("POST", "/v1/fleet/get-run", answer=down)[0] == 502


def test_a_flood_is_cut_off():
    flood = b"x" * 6000
    status, _, _, arrived = through("POST", "/v1/fleet/push-object", flood, largest_body=5000)
    assert (status, arrived) == (413, [])


def test_a_compressed_answer_is_passed_on_as_plain_bytes():
    def packed(_):
        return httpx.Response(
            200, content=gzip.compress(b"long" * 50), headers={"content-encoding": "gzip"}
        )

    _, body, headers, _ = through("POST", "/v1/fleet/get-fab", answer=packed)
    assert body == b"long" * 50
    assert b"content-encoding" not in headers
    assert headers[b"content-length"] == b"200"


def test_open_paths_are_those_of_an_enrolled_silo():
    there = {route.path for route in router.routes}
    assert there >= OPEN_PATHS
    assert there - OPEN_PATHS == {"/v1/fleet/register-node", "/v1/fleet/unregister-node"}
