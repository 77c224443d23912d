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
from mfairfl.deployment.processes import alive, descendants, environment, free_ports, start, stop
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
    parent = start([sys.executable, "-c", FAMILY], env=os.environ, log=tmp_path / "log")
    wait_for(lambda: len(descendants(parent.pid)) == 2)
    family = [parent.pid, *descendants(parent.pid)]
    assert set(alive(family)) == set(family)
    assert os.getpgid(parent.pid) == parent.pid  # Ctrl-C reaches it only through us
    stop([parent], seconds=1)
    assert parent.returncode == -signal.SIGTERM
    wait_for(lambda: alive(family) == [])


def test_ps_says_the_same_as_proc(monkeypatch):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
    try:
        wait_for(lambda: child.pid in processes._running())
        here = processes._running()
        monkeypatch.setattr(processes.Path, "exists", lambda self: False)
        there = processes._running()
        assert here[child.pid] == there[child.pid] == os.getpid()
    finally:
        child.kill()
        child.wait()
    assert child.pid not in processes._running()


def test_ports_are_free_and_unlike():
    ports = free_ports(20)
    assert len(set(ports)) == 20


def test_a_server_that_ends_is_not_waited_for(tmp_path):
    ended = start([sys.executable, "-c", "raise SystemExit(3)"], env={}, log=tmp_path / "log")
    ended.wait()
    make_certificates(tmp_path / "certificates", [])
    with pytest.raises(FederationError, match="ended with code 3"):
        processes.wait_until_healthy("127.0.0.1:9", tmp_path / "certificates" / "ca.crt", ended)


def test_nothing_is_shared_with_other_flower_programmes_of_this_user(tmp_path):
    env = environment(tmp_path / "home", tmp_path / "bin")
    assert env["FLWR_HOME"] == str(tmp_path / "home")
    assert env["PATH"].split(os.pathsep)[0] == str(tmp_path / "bin")
    assert env["OMP_NUM_THREADS"] == "1"
    assert env["FLWR_TELEMETRY_ENABLED"] == "0"
