"""One real deployment: TLS, keys, a gate, processes; and what outsiders get."""

from __future__ import annotations

import json
import socket
import ssl
import time
import tomllib

import httpx
import pytest
import tomli_w
from consortium import SETTINGS, SITES, TASK, digests, embedded, mfairfl_cli, mine, write_files
from cryptography.hazmat.primitives import serialization
from flwr.proto.fleet_pb2 import ActivateNodeRequest
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor
from outbound import Outbound

from audit_silos import CONSENT, pooled, predictions
from mfairfl.deployment.local import nodes, servers, write_deployment
from mfairfl.deployment.settings import AuditRequest, load_federation
from mfairfl.deployment.superlink import SuperLink, revoke_key
from mfairfl.report.audit_document import build_audit
from mfairfl.runs.config import make_config
from mfairfl.runs.record import RunRecord

pytestmark = pytest.mark.deployment


def test_a_deployment_ends_in_the_embedded_engine_s_bytes_and_leaves_nothing(tmp_path):
    files = write_files(tmp_path)
    (tmp_path / "run.toml").write_text(tomli_w.dumps(SETTINGS | {"task": TASK}))
    out = tmp_path / "over-flower"
    silos = [word for site in SITES for word in ("--silo", f"{site}={files[site]}")]
    outbound = Outbound(tmp_path / "outbound")
    words = ["deploy", "local", str(tmp_path / "run.toml"), *silos, "--out", str(out)]
    done = mfairfl_cli(*words, env=outbound.env(FLWR_TELEMETRY_ENABLED="1"))
    assert done.returncode == 0, done.stderr
    for program in ("flower-superlink", "flower-supernode", "flwr-serverapp", "silo_process"):
        assert any(program in line for line in outbound.programs()), program
    assert outbound.calls() == []  # no telemetry, and nobody else outside this machine
    assert "round 3/3" in done.stderr
    here = embedded(tmp_path / "here")
    assert digests(out) == digests(tmp_path / "here")
    assert RunRecord.read(out).metrics == here.record.metrics
    assert mine(tmp_path) == []
    lines = (out / "journal.jsonl").read_text().splitlines()
    events = [json.loads(line)["event"] for line in lines]
    assert events == ["waiting", "enrolling", "started", *["round"] * 4, "finished"]


SPARE = "spare"  # a silo whose SuperNode never runs


@pytest.fixture
def standing(tmp_path):
    """The coordinator's two servers, and no silo."""
    config = make_config(SETTINGS | {"task": TASK})
    files = write_files(tmp_path)
    files[SPARE] = files["west"]
    file = write_deployment(config, tmp_path / "run", silos=files, deadline=120)
    settings = load_federation(file)
    with servers(settings, file, lambda line: None):
        yield file


def test_audit_then_refusal_of_outsiders_and_of_a_revoked_silo(standing, tmp_path):
    audited(standing, tmp_path)
    outsider(load_federation(standing).server)
    revoked_silo(standing)


def audited(file, tmp_path):
    """Three silos with predictions of their own answer `mfairfl deploy audit`."""
    frame, values = predictions(), tomllib.loads(file.read_text())
    for name, part in frame.groupby("silo"):
        folder = file.parent / "silos" / name
        part.drop(columns="silo").to_csv(folder / "predictions.csv", index=False)
        consent = CONSENT | {"file": "predictions.csv", "favourable": "yes"}
        with (folder / "silo.toml").open("a") as settings:
            settings.write("\n[audit]\n" + tomli_w.dumps(consent))
    del values["silos"][SPARE]
    asked = {"label": "hired", "prediction": "decision", "score": "score", "favourable": "yes"}
    values |= {"minimum": 3, "audit": asked}
    audit, out = file.with_name("audit.toml"), tmp_path / "audit"
    audit.write_text(tomli_w.dumps(values))
    three = load_federation(audit)
    with nodes(three, file.parent, lambda line: None):
        words = ("--sensitive", "sex,race", "--tolerance", "0.05", "--out", str(out), "--json")
        done = mfairfl_cli("deploy", "audit", str(audit), *words)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    request = AuditRequest.model_validate_json((out / "request.json").read_bytes())
    every = build_audit(pooled(frame, request.columns()), request.settings(request.meaning()))
    assert {k: v for k, v in found.items() if k != "sources"} == json.loads(
        every.model_dump_json(exclude={"sources"})
    )
    assert [one["rows"] for one in found["sources"]] == [400, 400, 400]
    assert json.loads((out / "audit.json").read_text()) == found


def activate(server, port, key):
    """Join as a silo with this key, as a SuperNode does; return the answer's code."""
    private = serialization.load_ssh_private_key(key.read_bytes(), None)
    public = private.public_key()
    with FleetHttpClient.from_server_address(
        f"127.0.0.1:{port}",
        insecure=False,
        root_certificates=server.ca.read_bytes(),
        interceptors=[NodeAuthHttpInterceptor(private, public)],
    ) as client:
        try:
            client.ActivateNode(
                ActivateNodeRequest(public_key=public_key_to_bytes(public), heartbeat_interval=30)
            )
        except httpx.HTTPStatusError as error:
            return error.response.status_code, error.response.text
    return 200, ""


def revoked_silo(file):
    settings = load_federation(file)
    server, key = settings.server, settings.silos["west"].with_suffix("")
    assert "the running server refuses it" in revoke_key(settings, file, "west")
    assert activate(server, server.superlink_port, key)[0] == 412  # Flower does not know it
    end = time.monotonic() + 60
    while "this key was revoked" not in activate(server, server.port, key)[1]:
        assert time.monotonic() < end
        time.sleep(0.2)
    other = settings.silos[SPARE].with_suffix("")
    assert activate(server, server.port, other)[0] == 200
    SuperLink(settings).update_keys()  # as the next start does: it stays out
    assert activate(server, server.superlink_port, key)[0] == 412
    assert "the running server refuses it" in revoke_key(settings, file, "west")


def outsider(standing):
    known = ssl.create_default_context(cafile=str(standing.ca))
    with httpx.Client(
        base_url=f"https://127.0.0.1:{standing.port}", verify=known, trust_env=False
    ) as client:
        assert client.get("/health").is_success
        for path in (
            "/v1/control/start-run",
            "/v1/control/register-node",
            "/v1/control/list-runs",
        ):
            assert client.post(path, content=b"").status_code == 404
        assert client.post("/v1/runtime/pull-messages", content=b"").status_code == 404
        assert client.post("/v1/fleet/register-node", content=b"").status_code == 404
        assert client.get("/docs").status_code == 404
        assert client.get("/openapi.json").status_code == 404
        unsigned = {"content-type": "application/protobuf"}
        reply = client.post("/v1/fleet/pull-messages", content=b"", headers=unsigned)
        assert reply.status_code in (401, 403)
    with pytest.raises(httpx.ConnectError, match="certificate verify failed"):
        httpx.get(f"https://127.0.0.1:{standing.port}/health", trust_env=False)
    for port in (standing.port, standing.superlink_port):  # no plain text is understood
        with socket.create_connection(("127.0.0.1", port), timeout=10) as plain:
            plain.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            assert not plain.recv(100).startswith(b"HTTP/1.1 200")
