"""A real deployment that is killed: nothing of it goes on, and nobody else can read its files."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time

import psutil
import pytest
import tomli_w
from consortium import (
    SITES,
    TASK,
    digests,
    embedded,
    mfairfl_cli,
    mine,
    settings,
    write_files,
)

from mfairfl.deployment.process_groups import descendants, is_alive

PRIVATE = ("state", "state/flwr", "state/logs", "silos/east/state", "")
CLI = "import sys; from mfairfl.cli import main; sys.exit(main())"

pytestmark = pytest.mark.deployment


def wait_for(condition, process, log):
    end = time.monotonic() + 300
    while not condition():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.1)


@pytest.fixture
def words(tmp_path):
    """The command of a run with so many rounds that it never ends by itself."""
    files = write_files(tmp_path)
    long = settings(rounds=100_000) | {"task": TASK}
    (tmp_path / "run.toml").write_text(tomli_w.dumps(long))
    silos = [word for site in SITES for word in ("--silo", f"{site}={files[site]}")]
    out = str(tmp_path / "out")
    return ["deploy", "local", str(tmp_path / "run.toml"), *silos, "--out", out]


def test_a_killed_deployment_takes_all_its_processes_with_it(tmp_path, words):
    log, journal = tmp_path / "log", tmp_path / "out" / "journal.jsonl"
    with log.open("w") as file:
        running = subprocess.Popen(
            [sys.executable, "-c", CLI, *words], stdout=file, stderr=file, umask=0o022
        )
    family = []
    try:
        wait_for(lambda: journal.exists() and '"round"' in journal.read_text(), running, log)

        second = mfairfl_cli(*words)
        assert second.returncode == 2
        (line,) = second.stderr.strip().splitlines()
        assert f"{running.pid} mfairfl deploy local" in line
        assert "flower-superlink" in line
        assert "mfairfl.deployment.gate" in line

        family = descendants(running.pid)
        programs = " ".join(word for process in family for word in words_of(process))
        for program in ("flower-superlink", "flower-superexec", "flwr-serverapp", "supernode"):
            assert program in programs
        assert sum(map(is_alive, family)) >= 10  # those that answer one message come and go
        assert not open_to_others(tmp_path / "out")
        assert stat.S_IMODE((tmp_path / "out" / "run.json").stat().st_mode) == 0o644
    finally:
        running.kill()
        running.wait()
    end = time.monotonic() + 120
    while any(map(is_alive, family)) and time.monotonic() < end:
        time.sleep(0.1)
    assert [words_of(process) for process in family if is_alive(process)] == []
    assert mine(tmp_path) == []


def words_of(process):
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def open_to_others(out):
    """Return what others could read, of all that is private."""
    deployment = out / "deployment"
    kept = [p for name in PRIVATE for p in [deployment / name]]
    kept += [p for state in deployment.glob("**/state") for p in state.rglob("*")]
    kept += [out / "checkpoint", *(out / "checkpoint").iterdir()]
    assert {"superlink.db", "rows.safetensors", "superlink.log"} <= {p.name for p in kept}
    found = []
    for path in kept:
        try:
            mode = os.lstat(path).st_mode
        except FileNotFoundError:
            continue  # a checkpoint that is no longer kept
        if mode & 0o077 and not stat.S_ISLNK(mode):
            found.append(path)
    return found


def test_a_killed_server_is_named_nothing_is_left_and_the_same_command_resumes(tmp_path):
    files, out = write_files(tmp_path), tmp_path / "out"
    (tmp_path / "run.toml").write_text(tomli_w.dumps(settings(rounds=3) | {"task": TASK}))
    silos = [word for site in SITES for word in ("--silo", f"{site}={files[site]}")]
    words = ["deploy", "local", str(tmp_path / "run.toml"), *silos, "--out", str(out)]
    log, journal = tmp_path / "log", out / "journal.jsonl"
    with log.open("w") as file:
        running = subprocess.Popen([sys.executable, "-c", CLI, *words], stdout=file, stderr=file)
    try:
        wait_for(lambda: journal.exists() and '"round": 1,' in journal.read_text(), running, log)
        (superlink,) = (
            process
            for process in descendants(running.pid)
            if any(word.endswith("flower-superlink") for word in words_of(process))
        )
        assert "flwr-serverapp" in str([words_of(p) for p in superlink.children(recursive=True)])
        superlink.kill()
        assert running.wait(40) == 2
    finally:
        running.kill()
        running.wait()
    assert mine(tmp_path) == []
    said = log.read_text().splitlines()[-1]
    named = out / "deployment" / "state" / "logs" / "superlink.log"
    assert said.startswith(f"error: the SuperLink ended with code -9: see {named}, then repeat")
    again = mfairfl_cli(*words)
    assert again.returncode == 0, again.stderr
    embedded(tmp_path / "here", rounds=3)
    assert digests(out) == digests(tmp_path / "here")
    starts = [json.loads(line) for line in journal.read_text().splitlines()]
    assert [line["round"] for line in starts if line["event"] == "started"][-1] >= 1  # resumed
    assert mine(tmp_path) == []
