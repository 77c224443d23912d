"""Processes end with all they started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from mfairfl.deployment import processes
from mfairfl.deployment.credentials import make_certificates
from mfairfl.deployment.processes import (
    Command,
    descendants,
    environment,
    free_ports,
    is_alive,
    start,
    stop,
)
from mfairfl.errors import FederationError

# A parent that ends at once when told to, a child that does not listen, and its child.
FAMILY = """
import signal, subprocess, sys, time
sleep = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(300)"
child = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', sys.argv[1]])\\n"
subprocess.Popen([sys.executable, "-c", child + sleep, sleep])
time.sleep(300)
"""


def wait_for(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def test_what_a_process_started_ends_with_it(tmp_path):
    parent = start(Command([sys.executable, "-c", FAMILY], os.environ), log=tmp_path / "log")
    wait_for(lambda: len(descendants(parent.pid)) == 2)
    family = descendants(parent.pid)
    assert all(map(is_alive, family))
    assert os.getpgid(parent.pid) == parent.pid  # Ctrl-C reaches it only through us
    stop([parent], seconds=1)
    assert parent.returncode == -signal.SIGTERM
    wait_for(lambda: not any(map(is_alive, family)))


def test_a_process_that_ended_is_not_alive_although_nobody_waited_for_it():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
    try:
        found = next(p for p in descendants(os.getpid()) if p.pid == child.pid)
        assert is_alive(found)
        child.kill()
        wait_for(lambda: not is_alive(found))
    finally:
        child.kill()
        child.wait()
    assert not is_alive(found)
    assert descendants(child.pid) == []


def test_ports_are_free_and_unlike():
    ports = free_ports(20)
    assert len(set(ports)) == 20


def test_a_server_that_ends_is_not_waited_for(tmp_path):
    ended = start(Command([sys.executable, "-c", "raise SystemExit(3)"], {}), log=tmp_path / "log")
    ended.wait()
    make_certificates(tmp_path / "certificates", [])
    with pytest.raises(FederationError, match="ended with code 3"):
        processes.wait_until_healthy("127.0.0.1:9", tmp_path / "certificates" / "ca.crt", ended)


def test_nothing_is_shared_with_other_flower_programs_of_this_user(tmp_path):
    env = environment(tmp_path / "home", tmp_path / "bin")
    assert env["FLWR_HOME"] == str(tmp_path / "home")
    assert env["PATH"].split(os.pathsep)[0] == str(tmp_path / "bin")
    assert env["OMP_NUM_THREADS"] == "1"
    assert env["FLWR_TELEMETRY_ENABLED"] == "0"
