"""Faults on a real deployment, one after the other: `make deploy-faults`, some minutes.

Not collected with the other tests. Each fault ends as the documentation says; what was seen is
printed, line by line.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import tomli_w
from consortium import TASK, config, digests, embedded, mine, settings, write_files

from mfairfl.deployment.keys import make_key
from mfairfl.deployment.local import nodes, servers, write_deployment
from mfairfl.deployment.process_groups import Command, descendants, stop, watched_group
from mfairfl.deployment.processes import free_ports, silo_command, supernode_command
from mfairfl.deployment.settings import load_federation
from mfairfl.deployment.superlink import APP, SuperLink, run_federation
from mfairfl.errors import FederationError
from mfairfl.silo.silo_file import load_silo

DEADLINE = 40.0
LONG = 30  # rounds within which a silo that was gone is back


class World:
    """Three silos and a coordinator; every fault has a run of its own."""

    def __init__(self, folder, group):
        self.folder, self.group = folder, group
        self.files = write_files(folder)
        self.file = write_deployment(
            config(), folder / "world", silos=self.files, deadline=DEADLINE
        )
        self.settings = load_federation(self.file)
        self.silos = {}

    def federation(self, name, **changes):
        """Write a federation.toml for a run of its own beside the first, with other settings."""
        text = tomli_w.dumps(settings(**changes) | {"task": TASK})
        (self.folder / f"{name}.run.toml").write_text(text)
        (self.file.parent / "run.toml").write_text(text)  # the silos agree to it
        server = self.settings.server
        path = self.folder / f"{name}.toml"
        plain = {
            "run": f"{name}.run.toml",
            "out": f"runs/{name}",
            "minimum": 2,
            "deadline": DEADLINE,
            "wait": 60,
            "server": {
                "host": "127.0.0.1",
                "port": server.port,
                "superlink_port": server.superlink_port,
                "certificates": str(server.certificates),
                "state": str(server.state),
            },
            "silos": {one: str(key) for one, key in self.settings.silos.items()},
        }
        path.write_text(tomli_w.dumps(plain))
        return path, load_federation(path).out

    def silo_file(self, name):
        return self.file.parent / "silos" / name / "silo.toml"

    def start_silo(self, name):
        command = silo_command(load_silo(self.silo_file(name)), self.silo_file(name))
        log = self.settings.server.state / "logs" / f"{name}.log"
        return self.group.start(f"silo {name}", command, log)

    def run(self, name, at=None, **changes):
        """Carry out a run; `at` says what happens after which round. Return its journal too."""
        file, out = self.federation(name, **changes)
        waiting = dict(at or {})

        def follow(line):
            if line["event"] == "round" and line["round"] in waiting:
                waiting.pop(line["round"])()

        record = run_federation(file, follow)
        lines = [json.loads(line) for line in (out / "journal.jsonl").read_text().splitlines()]
        return record, lines, out


def counted(lines):
    return {line["round"]: line["counted"] for line in lines if line["event"] == "round"}


def say(fault, seen):
    plain = re.sub(r"\x1b\[\d+m", "", seen)  # Flower colours its lines
    print(f"{fault}: {plain}", flush=True)


def whole(pid, number):
    """Send a signal to a process and all it started."""
    for each in [pid, *(child.pid for child in descendants(pid))]:
        os.kill(each, number)


def untroubled(world):
    record, _, out = world.run("untroubled", seed=1)
    embedded(world.folder / "here", seed=1)
    assert digests(out) == digests(world.folder / "here")
    say("no fault", f"{record.rounds} rounds, the embedded engine's bytes")


def killed_and_restarted(world, silos):
    """A silo is killed in a round, started again, and comes back in the same run."""
    back = {}

    def kill():
        whole(silos["north"].process.pid, signal.SIGKILL)
        silos["north"].process.wait()
        silos["north"] = world.start_silo("north")
        back["at"] = time.monotonic()

    record, lines, _ = world.run("killed", at={1: kill}, rounds=LONG, seed=2)
    found = counted(lines)
    without = [r for r, names in found.items() if r and "north" not in names]
    assert record.rounds == LONG
    assert without, "nobody noticed"
    assert "north" in found[LONG], f"it never came back: {found}"
    assert all({"east", "west"} <= set(found[r]) for r in range(1, LONG + 1))
    reasons = {line["message"] for line in lines if line["event"] == "warning"}
    say(
        "silo killed with -9 after round 1 and started again",
        f"left out of rounds {without}, back in round {max(without) + 1} of {LONG}; "
        f"journal: {sorted(reasons)}",
    )


def raising(world):
    """A silo cannot answer (its rows are gone for a while): left out, and back."""
    state = load_silo(world.silo_file("east")).state
    hidden, moved = world.folder / "hidden", []

    def hide():
        rows = max(state.glob("mfairfl-*/rows.safetensors"), key=lambda p: p.stat().st_mtime)
        shutil.move(rows, hidden)
        moved.append(rows)

    record, lines, _ = world.run(
        "raising",
        at={1: hide, 3: lambda: shutil.move(hidden, moved[0])},
        rounds=6,
        seed=3,
    )
    found = counted(lines)
    assert record.rounds == 6
    assert "east" not in found[3]
    assert "east" in found[6]
    (reason,) = {line["message"] for line in lines if line["event"] == "warning"}
    assert "east is left out: it reported an error" in reason
    say("client raises", f"counted by round {found}; journal: {reason}")


def sleeping(world, silos):
    """A silo sleeps past the deadline: left out, and back when it wakes."""

    def wake():
        whole(silos["west"].process.pid, signal.SIGCONT)

    record, lines, _ = world.run(
        "sleeping",
        at={1: lambda: whole(silos["west"].process.pid, signal.SIGSTOP), 3: wake},
        rounds=LONG,
        seed=4,
    )
    found = counted(lines)
    assert record.rounds == LONG
    assert "west" not in found[3]
    assert "west" in found[LONG]
    reasons = {line["message"] for line in lines if line["event"] == "warning"}
    say("client sleeps past the deadline", f"counted {found}; journal: {sorted(reasons)}")


def wrong_column(world):
    """A silo's file does not fit: told what differs, stays out; the others train."""
    path = world.files["west"]
    before = path.read_text()
    path.write_text(before.replace("skill", "skil", 1))
    record, lines, _ = world.run("column", seed=5)
    path.write_text(before)
    warning, weight = record.federation.warnings
    assert "weighs more than all others" in weight  # of the two that are left, one is larger
    assert warning.startswith("west stays out: unknown column 'skill': did you mean 'skil'")
    assert counted(lines)[3] == ["east", "north"]
    say("wrong column", warning)


def server_killed(world, superlink):
    """SuperLink and ServerApp are killed in a run; started again, it ends in the same bytes."""
    file, out = world.federation("server", rounds=5, seed=6, strategy="scaffold")

    def kill(line):
        if line["event"] == "round" and line["round"] == 2:
            whole(superlink.pid, signal.SIGKILL)

    try:
        run_federation(file, kill)
    except FederationError as error:
        first = str(error)
    else:
        raise AssertionError("the run went on without a server")
    superlink.wait()
    return file, out, first


def server_resumed(world, file, out, first):
    started = time.monotonic()
    record = run_federation(file, lambda line: None)
    embedded(world.folder / "here-6", rounds=5, seed=6, strategy="scaffold")
    assert record.rounds == 5
    assert digests(out) == digests(world.folder / "here-6")
    lines = [json.loads(line) for line in (out / "journal.jsonl").read_text().splitlines()]
    went_on = [line["round"] for line in lines if line["event"] == "started"]
    say(
        "SuperLink and ServerApp killed after round 2",
        f"said: {first[:90]}…; started again at round {went_on[-1]}, 5 rounds, the embedded "
        f"engine's bytes (SCAFFOLD: silos keep state), {time.monotonic() - started:.0f} s",
    )


def unknown_key(world):
    """A silo with a key that nobody enrolled is not let in."""
    folder = world.folder / "stranger"
    folder.mkdir()
    make_key(folder / "key")
    text = world.silo_file("east").read_text().replace('name = "east"', 'name = "stranger"')
    (port,) = free_ports(1)
    text = re.sub(r"port = \d+", f"port = {port}", text.replace("../../", f"{world.file.parent}/"))
    (folder / "silo.toml").write_text(text)
    command = supernode_command(load_silo(folder / "silo.toml"), folder / "silo.toml")
    log = folder / "log"
    node = world.group.start("stranger", command, log).process
    end = time.monotonic() + 60
    while "Exit Code" not in log.read_text() and time.monotonic() < end:
        time.sleep(0.5)
    said = log.read_text()
    stop([node])
    assert "SuperNode ID" not in said
    assert "Exit Code: 305" in said, said
    line = next(part for part in said.splitlines() if "Exit Code: 305" in part)
    say("unknown key", f"refused: {line.strip()[-60:]}")


def plaintext(world):
    """A node that wants no TLS gets no connection."""
    silo = load_silo(world.silo_file("east"))
    words = ["flower-supernode", "--insecure", "--superlink", silo.server, "--max-retries", "1"]
    env = silo_command(silo, world.silo_file("east")).env
    log = world.folder / "plain.log"
    command = Command([*words, "--host", "127.0.0.1", "--port", "18999"], env)
    node = world.group.start("plaintext", command, log).process
    end = time.monotonic() + 60
    while "could not establish a connection" not in log.read_text() and time.monotonic() < end:
        time.sleep(0.5)
    stop([node])
    said = log.read_text()
    assert "SuperNode ID" not in said
    assert "could not establish a connection" in said, said
    say("plaintext", "the server disconnects without an answer; no connection")


def foreign_code(world):
    """The coordinator hands over an app with code of its own: no silo runs it."""
    app, trace = world.folder / "evil", world.folder / "trace"
    package = app / "mfairfl_app"
    package.mkdir(parents=True)
    (app / "pyproject.toml").write_text((APP / "pyproject.toml").read_text())
    (package / "__init__.py").write_text("")
    mark = f"import pathlib\npathlib.Path({str(trace)!r} + '-client').write_text('x')\n"
    (package / "client_app.py").write_text(
        mark + "from flwr.clientapp import ClientApp\napp = ClientApp()\n"
    )
    (package / "server_app.py").write_text(
        "import pathlib\n"
        "from flwr.app import ConfigRecord, Message, MessageType, RecordDict\n"
        "from flwr.serverapp import ServerApp\napp = ServerApp()\n"
        "@app.main()\ndef main(grid, context):\n"
        "    asks = [Message(RecordDict({'c': ConfigRecord({'a': 1})}), dst_node_id=n,\n"
        "            message_type=MessageType.QUERY) for n in grid.get_node_ids()]\n"
        "    found = list(grid.send_and_receive(asks, timeout=40))\n"
        f"    pathlib.Path({str(trace)!r} + '-server').write_text(\n"
        "        '; '.join(sorted(m.error.reason for m in found)))\n"
    )
    superlink = SuperLink(world.settings)
    run = superlink.submit({}, app)
    end = time.monotonic() + 90
    while not superlink.has_finished(run):
        assert time.monotonic() < end, "it never ended"
        time.sleep(1)
    said = Path(f"{trace}-server").read_text()
    assert not Path(f"{trace}-client").exists(), "a silo ran foreign code"
    assert said.count("is it mfairfl's?") == 3, said
    say("foreign app", f"not run by any silo; each answered: {said.split(';')[0]}")


@contextmanager
def timed():
    before = time.monotonic()
    yield
    print(f"    ({time.monotonic() - before:.0f} s)", flush=True)


def main():
    folder = Path(tempfile.mkdtemp(prefix="faults-"))
    with watched_group() as group, ExitStack() as serving, ExitStack() as taking_part:
        world = World(folder, group)
        quiet = world.settings
        superlink, _ = serving.enter_context(servers(quiet, world.file, lambda line: None))
        silos = taking_part.enter_context(nodes(quiet, world.file.parent, lambda line: None))
        faults = (
            (untroubled, ()),
            (raising, ()),
            (sleeping, (silos,)),
            (wrong_column, ()),
            (unknown_key, ()),
            (plaintext, ()),
            (foreign_code, ()),
            (killed_and_restarted, (silos,)),
        )
        for fault, arguments in faults:
            with timed():
                fault(world, *arguments)
        with timed():
            file, out, first = server_killed(world, superlink.process)
            serving.close()
            with servers(quiet, world.file, lambda line: None):
                server_resumed(world, file, out, first)
    left = mine(folder)
    assert left == [], f"left behind: {left}"
    say("at the end", f"{len(faults) + 1} faults end as documented; no process left behind")
    shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
