"""kill -9 in real deployments, then the same command again: `make deploy-kills`, 20 minutes.

Not collected with the other tests. Every case has a deployment of its own: `mfairfl deploy local`
with three silos. One process is killed, from outside or at a failpoint; the command ends, or is
repeated where it was the one that was killed. The second time it must end in the embedded engine's
bytes, and after each of the two no process may be left.

Ten cases are tried: each kind of process once, and the four failpoints at which files of several
processes must agree. `--every` adds ten more (`make failpoints` tries most of them, and others, in
the embedded engine), `--only WORD …` tries the cases whose name holds one of the words, `--list`
names them. What takes long is Flower: it notices after a minute that a process was killed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import tomli_w
from consortium import SITES, TASK, digests, embedded, mine, settings, write_files

from mfairfl.deployment.process_groups import descendants, is_alive
from mfairfl.failpoints import VARIABLE

ROUNDS = 4
DEADLINE = 60  # seconds that a request waits; Flower keeps the place of a killed node as long
PATIENCE = 400  # seconds within which a command must end
GRACE = 20  # seconds in which processes may notice that another one is gone

COMMAND = "command"
PROGRAMS = {
    "superlink": "flower-superlink",
    "server app": "flwr-serverapp",
    "gate": "mfairfl.deployment.gate",
    "silo": "mfairfl.deployment.silo_process",
    "supernode": "flower-supernode",
}
FAILPOINTS = (
    "slots.unsaved@2",  # at a silo
    "file.written@enrolment.json",
    "file.synced@round-000003.ckpt",
    "run.served",
)
FURTHER = (
    "round.planned@1",
    "round.trained@2",
    "round.advanced@2",
    "journal.round@2",
    "history.rounds@3",
    "checkpoint.committed@3",
    "file.renamed@rows.safetensors",  # this and the next at a silo
    "slots.saved@2",
)


@dataclass(frozen=True)
class Case:
    """Who is killed, and when: a failpoint, or a program once the journal has this round."""

    name: str
    strategy: str
    failpoint: str = ""
    program: str = ""
    after: int | None = None


def cases():
    """Return both tens; the strategy alternates between state at the server and at silos too."""
    kills = [
        {"name": f"{program} after round 1", "program": program, "after": 1}
        for program in (COMMAND, *PROGRAMS)
    ]
    kills += [{"name": f"failpoint {place}", "failpoint": place} for place in FAILPOINTS]
    further = [
        {"name": "client app in round 2", "program": "client app", "after": 1},
        {"name": "command while it starts", "program": COMMAND},
    ]
    further += [{"name": f"failpoint {place}", "failpoint": place} for place in FURTHER]
    strategies = ("scaffold", "mfairfl")
    return tuple(
        [Case(strategy=strategies[i % 2], **one) for i, one in enumerate(ten)]
        for ten in (kills, further)
    )


class Deployment:
    """A deployment that is started, disturbed and started again by the same command."""

    def __init__(self, folder, case):
        self.folder, self.case, self.out = folder, case, folder / "out"
        values = settings(strategy=case.strategy, rounds=ROUNDS) | {"task": TASK}
        (folder / "run.toml").write_text(tomli_w.dumps(values))
        files = write_files(folder)
        silos = [word for site in SITES for word in ("--silo", f"{site}={files[site]}")]
        words = ["deploy", "local", str(folder / "run.toml"), *silos, "--out", str(self.out)]
        code = "import sys; from mfairfl.cli import main; sys.exit(main())"
        self.words = [sys.executable, "-c", code, *words, "--deadline", str(DEADLINE)]

    def start(self, failpoint=""):
        with (self.folder / "said").open("wb") as said:
            env = os.environ | {VARIABLE: failpoint}
            return subprocess.Popen(self.words, env=env, stdout=said, stderr=said)

    def said(self):
        lines = (self.folder / "said").read_text(encoding="utf-8").splitlines()
        return lines[-1].replace(f"{self.folder}/", "") if lines else "nothing"

    def ended(self, command):
        """Wait for the command; end it if it does not, and return its exit code."""
        try:
            return command.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            command.terminate()
            return f"{command.wait()}, ended after {PATIENCE} s"

    def left(self):
        """Return how many processes are left a while later, and end them."""
        end = time.monotonic() + GRACE
        while (found := mine(self.folder)) and time.monotonic() < end:
            time.sleep(0.5)
        for process in _processes(found):
            process.kill()
        return len(found)


def _processes(pids):
    found = []
    for pid in pids:
        try:
            found.append(psutil.Process(pid))
        except psutil.NoSuchProcess:
            continue  # it has just ended
    return found


def reached(deployment, command):
    """Wait for the moment of the kill."""
    journal, after = deployment.out / "journal.jsonl", deployment.case.after
    mark = f'"event": "round", "round": {after},'
    while command.poll() is None:
        if after is None:
            if len(descendants(command.pid)) >= len(SITES):  # SuperLink, gate and some helpers
                return
        elif journal.exists() and mark in journal.read_text(encoding="utf-8"):
            return
        time.sleep(0.01)
    raise AssertionError(f"it ended too early: {deployment.said()}")


def victim(command, program):
    """Return a process of a deployment by its role; one that answers a message may come later."""
    if program == COMMAND:
        return psutil.Process(command.pid)
    text = PROGRAMS.get(program, PROGRAMS["silo"])
    while command.poll() is None:
        running = [p for p in descendants(command.pid) if is_alive(p) and text in _words(p)]
        # A silo answers each message in a fork of itself.
        forks = [p for p in running if text in _words(p.parent())]
        found = forks if program == "client app" else [p for p in running if p not in forks]
        if found:
            return found[0]
    raise AssertionError(f"no process of the {program} was seen")


def _words(process):
    try:
        return "" if process is None else " ".join(process.cmdline())
    except psutil.Error:
        return ""


def kill(deployment):
    """Start a deployment, have one process killed, and return the command's exit code."""
    case = deployment.case
    command = deployment.start(case.failpoint)
    if case.program:
        reached(deployment, command)
        victim(command, case.program).kill()
    return deployment.ended(command)


def attempt(folder, case):
    """Carry out one case; return whether its bytes are right, and whether nothing was left."""
    began, deployment = time.monotonic(), Deployment(folder, case)
    code = kill(deployment)
    first = deployment.said()
    left = [deployment.left()]
    again = deployment.ended(deployment.start())
    second = deployment.said()
    left.append(deployment.left())
    embedded(folder / "here", strategy=case.strategy, rounds=ROUNDS)
    same = again == 0 and digests(deployment.out) == digests(folder / "here")
    # Where nobody noticed, the failpoint was not passed.
    same &= code != 0 or bool(case.program)
    print(
        f"{case.name} ({case.strategy}): code {code}, then {again}; "
        f"{'the embedded bytes' if same else 'OTHER BYTES'}; "
        f"{left[0]} and {left[1]} processes left; {time.monotonic() - began:.0f} s"
    )
    print(f"    first: {first[:200]}")
    if not same:
        print(f"    then: {second[:200]}")
    sys.stdout.flush()
    return same, sum(left) == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", help="words in the names of the cases")
    parser.add_argument("--every", action="store_true", help="all twenty cases")
    parser.add_argument("--list", action="store_true", help="name the cases and stop")
    args = parser.parse_args()
    chosen, further = cases()
    if args.every or args.only:
        chosen = [
            case
            for case in (*chosen, *further)
            if any(word in case.name for word in args.only or [""])
        ]
    if args.list:
        print(*(case.name for case in chosen), sep="\n")
        return 0
    results = []
    for number, case in enumerate(chosen, 1):
        print(f"[{number}/{len(chosen)}] {case.name}", file=sys.stderr, flush=True)
        folder = Path(tempfile.mkdtemp(prefix="kills-"))
        results.append(attempt(folder, case))
        shutil.rmtree(folder)
    same, clean = (sum(column) for column in zip(*results, strict=True))
    print(
        f"{same} of {len(results)} end in the embedded engine's bytes; "
        f"{clean} of {len(results)} leave no process behind"
    )
    return 0 if same == clean == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
