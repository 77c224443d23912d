"""Nothing is told to anybody: Flower's telemetry and its update check are off in our processes."""

from __future__ import annotations

import subprocess
import sys

import pytest
from consortium import config, write_files
from outbound import Outbound

from mfairfl.deployment import processes
from mfairfl.deployment.local import write_deployment
from mfairfl.deployment.settings import load_federation
from mfairfl.silo.silo_file import load_silo

pytestmark = pytest.mark.deployment

# What Flower's programs do when they begin and when they end.
PING = (
    "from flwr.supercore.telemetry import EventType, event; print(event(EventType.PING).result())"
)
UPDATE = (
    "from flwr.supercore.update_check import warn_if_flwr_update_available as w; import threading;"
    "w(); [t.join() for t in threading.enumerate() if t is not threading.current_thread()]"
)


def python(code, env, *, check=True):
    words = [sys.executable, "-c", code]
    return subprocess.run(words, env=env, capture_output=True, text=True, check=check).stdout


@pytest.fixture
def outbound(tmp_path):
    return Outbound(tmp_path / "outbound")


def test_listener_receives_telemetry_where_it_is_enabled(outbound, tmp_path):
    """The proof that the other tests can fail."""
    env = outbound.env(FLWR_HOME=str(tmp_path), FLWR_TELEMETRY_ENABLED="1")
    env.pop("FLWR_DISABLE_UPDATE_CHECK", None)
    python(PING, env, check=False)
    assert any("telemetry.flower.ai" in call for call in outbound.calls())
    python(UPDATE, env, check=False)
    assert any("api.flower.ai" in call for call in outbound.calls())


def test_started_programs_send_no_telemetry_with_any_user_settings(
    outbound, tmp_path, monkeypatch
):
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "1")
    monkeypatch.delenv("FLWR_DISABLE_UPDATE_CHECK", raising=False)
    file = write_deployment(config(), tmp_path / "run", silos=write_files(tmp_path), deadline=9)
    settings = load_federation(file)
    silo_file = file.parent / "silos" / "east" / "silo.toml"
    silo = load_silo(silo_file)
    found = [
        processes.superlink_command(settings.server).env,
        processes.gate_command(settings.server, file).env,
        processes.silo_command(silo, silo_file).env,
        processes.supernode_command(silo, silo_file).env,
    ]
    for env in found:
        assert env["FLWR_TELEMETRY_ENABLED"] == "0"
        assert env["FLWR_DISABLE_UPDATE_CHECK"] == "1"
    listened = {**found[0], **{key: outbound.env()[key] for key in ("PYTHONPATH", "OUTBOUND")}}
    assert python(f"{PING}; {UPDATE}", listened) == "disabled\n"
    assert outbound.calls() == []


@pytest.mark.parametrize("first", ["pass", "import flwr.supercore.telemetry"])
def test_flower_in_a_silo_process_sends_no_telemetry(outbound, tmp_path, first):
    code = (
        f"{first}; from mfairfl.deployment.silo_app import SiloTasks; SiloTasks(9).close();"
        "from flwr.supernode.runtime import run_clientapp as r; from flwr.common import EventType;"
        "print(r.event(EventType.FLWR_CLIENTAPP_RUN_ENTER).result())"
    )
    env = outbound.env(FLWR_HOME=str(tmp_path), FLWR_TELEMETRY_ENABLED="1")
    assert python(code, env) == "disabled\n"
    assert outbound.calls() == []


def test_other_flower_apps_keep_the_user_s_choice(outbound):
    code = (
        "import mfairfl.flower, os; from mfairfl.flower import FairStrategy;"
        "from flwr.supercore import telemetry; print(telemetry.FLWR_TELEMETRY_ENABLED)"
    )
    for chosen in ("1", "0"):
        assert python(code, outbound.env(FLWR_TELEMETRY_ENABLED=chosen)) == f"{chosen}\n"
    assert outbound.calls() == []  # importing it sends nothing either way


def test_local_commands_open_no_connection(outbound, tmp_path):
    """A run on a bundled data set, from the command to its tables."""
    code = (
        "import sys; from mfairfl.cli import main;"
        "sys.exit(main(['train', '--data', 'adult', '--rounds', '1', '--local-epochs', '1',"
        " '--out', sys.argv[1], '--json']) or main(['explain', 'noise-floor']))"
    )
    words = [sys.executable, "-c", code, str(tmp_path / "run")]
    subprocess.run(words, env=outbound.env(), capture_output=True, check=True)
    assert outbound.programs()
    assert outbound.calls() == []
