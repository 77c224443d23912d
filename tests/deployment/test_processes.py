"""Processes end with all they started."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from answers import one_line
from mfairfl.deployment import process_groups
from mfairfl.deployment.keys import make_certificates
from mfairfl.deployment.process_groups import Command, descendants, is_alive, stop, watched_group
from mfairfl.deployment.processes import (
    adopted_orphans,
    environment,
    free_ports,
    sole_use,
    use_given_umask,
    wait_until_healthy,
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


@pytest.mark.slow
def test_child_processes_end_with_their_parent(tmp_path):
    with watched_group() as group:
        command = Command([sys.executable, "-c", FAMILY], os.environ)
        parent = group.start("a parent", command, tmp_path / "log").process
        wait_for(lambda: len(descendants(parent.pid)) == 2)
        family = descendants(parent.pid)
        assert all(map(is_alive, family))
        assert os.getpgid(parent.pid) == group.id != os.getpgrp()  # Ctrl-C reaches only us
        stop([parent], seconds=1)
        assert parent.returncode == -signal.SIGTERM
        wait_for(lambda: not any(map(is_alive, family)))


def test_programs_end_with_their_group_by_the_signal_that_lets_them_clean_up(tmp_path):
    clean = (
        "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(7)); print(flush=True)"
    )
    log = tmp_path / "log"
    with watched_group() as group:
        command = Command([sys.executable, "-c", f"{clean}; time.sleep(300)"], os.environ)
        program = group.start("a program", command, log)
        wait_for(lambda: log.read_text() == "\n")
    assert program.process.returncode == 7


def test_zombie_is_not_alive():
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
    log = tmp_path / "gate.log"
    make_certificates(tmp_path / "certificates", [])
    ca = tmp_path / "certificates" / "ca.crt"
    with watched_group() as group:
        command = Command([sys.executable, "-c", "raise SystemExit(3)"], {})
        gate = group.start("the gate", command, log)
        with pytest.raises(FederationError) as caught:
            wait_until_healthy("127.0.0.1:9", ca, gate)
    assert one_line(caught).startswith(f"the gate ended with code 3: see {log}, then repeat")


def test_nothing_is_shared_with_other_flower_programs_of_this_user(tmp_path):
    env = environment(tmp_path / "state")
    assert env["FLWR_HOME"] == str(tmp_path / "state" / "flwr")
    assert env["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)
    assert env["OMP_NUM_THREADS"] == "1"
    assert env["FLWR_TELEMETRY_ENABLED"] == "0"


# ------------------------------------------------------------------ the end of the owner

# A process with: a member of the group, its child in a session of its own, and a fork.
OWNER = """
import os, subprocess, sys, time
from mfairfl.deployment.process_groups import watched_group
sleep = "import time; time.sleep(300)"
away = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', sys.argv[1]]"
away += ", start_new_session=True)\\n" + sleep
with watched_group() as group:
    member = subprocess.Popen([sys.executable, "-c", away, sleep], process_group=group.id)
    if os.fork() == 0:
        group.join()
        time.sleep(300)
    print("ready", flush=True)
    ENDING
"""


def owner(ending):
    words = [sys.executable, "-c", OWNER.replace("ENDING", ending)]
    found = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert found.stdout.readline() == "ready\n"
    wait_for(lambda: len(descendants(found.pid)) == 4)  # with the watchdog
    return found, descendants(found.pid)


def test_a_killed_process_takes_its_group_with_it():
    parent, family = owner("time.sleep(300)")
    with parent:
        sessions = {os.getsid(process.pid) for process in family}
        assert len(sessions) == 2  # a signal to the group would not reach all
        parent.kill()
        wait_for(lambda: not any(map(is_alive, family)))


def test_a_group_ends_with_its_block():
    parent, family = owner("sys.stdin.readline()")
    with parent:
        parent.stdin.close()
        assert parent.wait() == 0
        assert not any(map(is_alive, family))


def test_watchdog_ignores_signals_that_end_the_group():
    parent, family = owner("time.sleep(300)")
    with parent:
        (watchdog,) = (p for p in family if "mfairfl.deployment.process_groups" in p.cmdline())
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            watchdog.send_signal(number)
        time.sleep(0.2)
        assert is_alive(watchdog)
        parent.kill()
        wait_for(lambda: not any(map(is_alive, family)))


def test_a_watchdog_that_would_end_its_starter_does_not_start():
    words = [sys.executable, "-m", "mfairfl.deployment.process_groups"]
    done = subprocess.run(
        words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "use watched_group" in done.stderr


def test_nothing_is_started_without_a_watchdog(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with (
        pytest.raises(FederationError, match="the watchdog does not start"),
        watched_group(),
    ):
        pass


# ------------------------------------------------------------------ the end of a server

# A server, its helper in a session of its own, and what the helper starts.
SERVER = """
import subprocess, sys, time
sleep = "import time; time.sleep(300)"
helper = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', sys.argv[1]])\\n" + sleep
subprocess.Popen([sys.executable, "-c", helper, sleep], start_new_session=True)
time.sleep(300)
"""


def server_of(state):
    words = [sys.executable, "-c", SERVER]
    server = subprocess.Popen(words, env=environment(state), process_group=0)
    wait_for(lambda: len(descendants(server.pid)) == 2)
    return server, descendants(server.pid)


@pytest.mark.skipif(sys.platform != "linux", reason="orphans are adopted on Linux alone")
def test_orphans_of_a_killed_server_are_ended_and_no_others(tmp_path):
    with adopted_orphans(tmp_path / "state"):
        server, helpers = server_of(tmp_path / "state")
        other, spared = server_of(tmp_path / "another")
        for process in (server, other):
            process.kill()
            process.wait()
        assert all(map(is_alive, helpers))
        stop([server])  # by now nothing leads from it to them
        assert all(map(is_alive, helpers))
    assert not any(psutil.pid_exists(process.pid) for process in helpers)  # nor a zombie
    try:
        assert all(map(is_alive, spared))
    finally:
        for process in spared:
            process.kill()
    left_alone = "import subprocess; subprocess.Popen(['sleep', '2'])"
    subprocess.run([sys.executable, "-c", left_alone], check=True)
    assert "sleep" not in [child.name() for child in descendants(os.getpid())]  # as before


# ------------------------------------------------------------------ a folder in use


def test_leftover_processes_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(process_groups, "LEAVING", 0.2)
    state = tmp_path / "state"
    words = [sys.executable, "-c", "import time; time.sleep(300)", "/bin/flower-superlink"]
    left = subprocess.Popen(words, env=environment(state))
    try:
        for folder in (state, tmp_path):
            with pytest.raises(FederationError) as caught, sole_use(folder):
                pass
            assert one_line(caught) == (
                f"{folder}: processes of another deployment use it ({left.pid} flower-superlink); "
                f"wait for them, or end them: kill {left.pid}"
            )
        with sole_use(tmp_path / "another"):
            pass
    finally:
        left.kill()
        left.wait()
    with sole_use(state):
        pass


def test_a_process_that_is_just_ending_is_waited_for(tmp_path):
    wait = "import sys; sys.stdin.read()"
    leaving = subprocess.Popen(
        [sys.executable, "-c", wait], env=environment(tmp_path), stdin=subprocess.PIPE
    )
    leaving.stdin.close()
    with sole_use(tmp_path):
        assert leaving.wait() == 0


def test_second_user_of_a_folder_is_refused_with_the_name_of_the_first(tmp_path, monkeypatch):
    monkeypatch.setattr(process_groups, "LEAVING", 0.2)
    hold = (
        "import sys\nfrom pathlib import Path\n"
        "from mfairfl.deployment.processes import sole_use\n"
        "with sole_use(Path(sys.argv[3])):\n    print('held', flush=True)\n    sys.stdin.read()"
    )
    words = [sys.executable, "-c", hold, "deploy", "local", str(tmp_path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout.readline() == b"held\n"
        with pytest.raises(FederationError) as caught, sole_use(tmp_path):
            pass
        assert f"({first.pid} mfairfl deploy local)" in one_line(caught)
        first.kill()
    with sole_use(tmp_path):
        pass


# ------------------------------------------------------------------ who can read


def mode(path):
    return stat.S_IMODE(Path(path).stat().st_mode)


@pytest.fixture
def open_umask():
    before = os.umask(0)
    yield
    os.umask(before)


def test_files_of_programs_are_private(tmp_path, monkeypatch, open_umask):
    state = tmp_path / "state"
    write = "import os; open(os.environ['FLWR_HOME'] + '/database', 'w'); os.mkdir('made')"
    monkeypatch.chdir(tmp_path)
    words = [sys.executable, "-c", write]
    with watched_group() as group:
        command = Command(words, environment(state))
        started = group.start("a program", command, state / "logs" / "log")
        assert started.process.wait() == 0
    assert [mode(p) for p in (state, state / "flwr", state / "logs", tmp_path / "made")] == [
        0o700
    ] * 4
    assert mode(state / "flwr" / "database") == mode(state / "logs" / "log") == 0o600
    assert os.umask(0) == 0  # ours is as it was


def test_an_open_state_folder_is_closed(tmp_path):
    (tmp_path / "state").mkdir(mode=0o755)
    environment(tmp_path / "state")
    assert mode(tmp_path / "state") == 0o700


def test_results_are_written_as_the_user_would(tmp_path, monkeypatch, open_umask):
    os.umask(0o027)
    given = environment(tmp_path)
    monkeypatch.setattr(os, "environ", given)
    os.umask(0o077)  # as a program is started
    assert environment(tmp_path)["MFAIRFL_UMASK"] == "27"
    use_given_umask()
    assert os.umask(0) == 0o027
