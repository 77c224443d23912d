"""What is said when no server runs, or when a process that a run needs ends."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager

import pytest
from consortium import config, write_files

from answers import one_line
from mfairfl.cli import main
from mfairfl.deployment import local
from mfairfl.deployment.journal import JOURNAL, Journal
from mfairfl.deployment.local import audit_local, run_local, write_deployment
from mfairfl.deployment.process_groups import Program
from mfairfl.deployment.settings import AuditRequest, load_federation
from mfairfl.deployment.superlink import SuperLink, run_federation, submit_and_follow
from mfairfl.errors import FederationError


@pytest.fixture
def files(tmp_path):
    return write_files(tmp_path)


def test_missing_server_gives_one_line_with_the_command_to_start(tmp_path, files):
    file = write_deployment(config(), tmp_path / "run", silos=files, deadline=5)
    with pytest.raises(FederationError, match="start `mfairfl deploy server`") as caught:
        run_federation(file, lambda line: None)
    assert "\n" not in str(caught.value)


# ------------------------------------------------------------------ a process that ends


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Stand-ins for a deployment's processes, and a SuperLink that accepts a run and goes on."""
    monkeypatch.setattr(SuperLink, "update_keys", lambda self: None)
    monkeypatch.setattr(SuperLink, "submit", lambda self, files: "7")
    sleep = [sys.executable, "-c", "import time; time.sleep(300)"]
    names = ("the SuperLink", "the gate", "silo east")
    started = {
        name: Program(name, subprocess.Popen(sleep), tmp_path / f"{name.split()[-1].lower()}.log")
        for name in names
    }

    @contextmanager
    def servers(*_):
        yield [started["the SuperLink"], started["the gate"]]

    @contextmanager
    def nodes(*_):
        yield {"east": started["silo east"]}

    monkeypatch.setattr(local, "servers", servers)
    monkeypatch.setattr(local, "nodes", nodes)
    yield started
    for program in started.values():
        program.process.kill()
        program.process.wait()


def train(tmp_path, files, follower):
    return run_local(config(), tmp_path / "run", follower=follower, say=follower, silos=files)


def audit(tmp_path, files, follower):
    asked = AuditRequest(sensitive=("sex",), prediction="hired", favourable="yes")
    return audit_local(asked, files, tmp_path / "audit", follower=follower, say=follower)


@pytest.mark.parametrize("name", ["the SuperLink", "the gate", "silo east"])
@pytest.mark.parametrize("command", [train, audit])
def test_a_process_that_ends_is_named(tmp_path, files, programs, command, name):
    def kill(said):
        if said in ("submitting the run", "asking for counts"):
            programs[name].process.kill()

    with pytest.raises(FederationError) as caught:
        command(tmp_path, files, kill)
    assert one_line(caught) == (
        f"{name} ended with code -9: see {programs[name].log}, then repeat the command; "
        "a run resumes from its last completed round"
    )


def test_ended_process_is_named_rather_than_the_errors_it_causes(
    tmp_path, files, programs, monkeypatch
):
    def submit(*_):
        programs["the SuperLink"].process.kill()
        programs["the SuperLink"].process.wait()
        raise FederationError("no SuperLink answers")

    monkeypatch.setattr(SuperLink, "submit", submit)
    with pytest.raises(FederationError, match=r"^the SuperLink ended with code -9"):
        train(tmp_path, files, lambda said: None)


def test_finished_run_does_not_need_its_processes(tmp_path, files, programs):
    file = write_deployment(config(), tmp_path / "run", silos=files, deadline=5)
    Journal(tmp_path / "run" / JOURNAL, "7").add("finished", rounds=1)
    for program in programs.values():
        program.process.kill()
        program.process.wait()
    followed = []
    submit_and_follow(
        load_federation(file),
        {"federation": file},
        tmp_path / "run",
        followed.append,
        list(programs.values()),
    )
    assert [line["event"] for line in followed] == ["finished"]


def test_deploy_server_names_the_process_that_ends(tmp_path, files, programs, capsys):
    file = write_deployment(config(), tmp_path / "run", silos=files, deadline=5)
    programs["the gate"].process.kill()
    assert main(["deploy", "server", str(file)]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("error: the gate ended with code -9: see ")
    assert "gate.log" in last
