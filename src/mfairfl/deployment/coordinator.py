"""Start a run on a running SuperLink: register keys, submit the app, follow the journal."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mfairfl.deployment.credentials import read_public_key
from mfairfl.deployment.journal import read_journal
from mfairfl.deployment.processes import PRIVATE, environment, watched_group
from mfairfl.deployment.settings import FederationSettings, ServerSettings, load_federation
from mfairfl.errors import FederationError
from mfairfl.files import write_atomically
from mfairfl.runs.record import RunRecord

__all__ = ["APP", "FlowerCli", "run_federation"]

APP = Path(__file__).parent / "templates" / "app"
"""The Flower app that runs are started with."""

_POLL = 0.5  # seconds between two looks at the journal
_STATUS_EVERY = 40  # looks between two calls of the SuperLink; each starts a process

Follower = Callable[[dict[str, Any]], None]


class FlowerCli:
    """Flower's command line, for the SuperLink of this machine."""

    def __init__(self, server: ServerSettings) -> None:
        self._port, self._known = server.superlink_port, server.state / "registered.json"
        self._env = environment(server.state)
        config = (
            '[superlink]\ndefault = "here"\n\n[superlink.here]\n'
            f'address = "127.0.0.1:{server.superlink_port}"\n'
            f"root-certificates = {json.dumps(str(server.ca), ensure_ascii=False)}\n"
        )
        file = server.state / "flwr" / "config.toml"
        write_atomically(file, config.encode(), private=True)

    def ask(self, *words: str) -> dict[str, Any]:
        """Run ``flwr …`` and return its answer."""
        with watched_group() as group:
            done = subprocess.run(
                ["flwr", *words, "--format", "json"],
                env=self._env,
                capture_output=True,
                text=True,
                check=False,
                process_group=group.id,
                umask=PRIVATE,
            )
        answer: dict[str, Any] = {}
        with contextlib.suppress(ValueError):
            answer = json.loads(done.stdout[done.stdout.index("{") :])
        if not answer.get("success", False):
            self._require_superlink()
            said = str(answer.get("error-message") or done.stderr or done.stdout or "no answer")
            raise FederationError(f"flwr {' '.join(words[:2])}: {' '.join(said.split())[-300:]}")
        return answer

    def _require_superlink(self) -> None:
        """Refuse to go on if nothing listens at the SuperLink's port."""
        try:
            socket.create_connection(("127.0.0.1", self._port), timeout=5).close()
        except OSError:
            raise FederationError(
                f"no SuperLink answers on 127.0.0.1:{self._port}: start `mfairfl deploy server`, "
                "then run the same command again; it resumes from the last completed round"
            ) from None

    def register(self, silos: Mapping[str, Path]) -> None:
        """Register the silos' keys; those that are registered already stay."""
        known = json.loads(self._known.read_text()) if self._known.exists() else []
        for name, path in sorted(silos.items()):
            key = read_public_key(path).decode()
            if key in known:
                continue
            try:
                self.ask("supernode", "register", str(path), "here", "--name", name)
            except FederationError as error:
                if "already in use" not in str(error):
                    raise
            known.append(key)
            write_atomically(self._known, json.dumps(known).encode(), private=True)

    def submit(self, federation: Path) -> str:
        """Start a run and return its number."""
        named = json.dumps(str(federation.resolve()), ensure_ascii=False)
        answer = self.ask("run", str(APP), "here", "--run-config", f"federation={named}")
        return str(answer["run-id"])

    def status(self, run: str) -> str:
        """Return a run's status, for example ``running`` or ``finished:completed``."""
        answer = self.ask("list", "here", "--run-id", run)
        return str(answer["runs"][0]["status"])

    def stop(self, run: str) -> None:
        """End a run; what it completed is kept."""
        self.ask("stop", run, "here")


def run_federation(file: Path, follower: Follower) -> RunRecord:
    """Carry out a run, or resume it, and return its record.

    Parameters
    ----------
    follower : callable
        Called with every line of the journal.
    """
    settings = load_federation(file)
    settings.federated(), settings.members()  # so that mistakes in the files are reported here
    flower = FlowerCli(settings.server)
    flower.register(settings.silos)
    run = flower.submit(file)
    try:
        return _follow(flower, settings, run, follower)
    except KeyboardInterrupt:
        flower.stop(run)
        raise


def _follow(
    flower: FlowerCli, settings: FederationSettings, run: str, follower: Follower
) -> RunRecord:
    journal, seen, looks, over = settings.out / "journal.jsonl", 0, 0, False
    while True:
        for line in read_journal(journal, run, seen):
            seen += 1
            follower(line)
            if line["event"] == "failed":
                raise FederationError(line["message"])
            if line["event"] == "finished":
                return RunRecord.read(settings.out)
        if over:
            raise FederationError(
                f"run {run} ended without a result; see the SuperLink's log, and run the same "
                "command again to resume from the last completed round"
            )
        time.sleep(_POLL)
        looks += 1
        if looks % _STATUS_EVERY == 0:
            over = flower.status(run).startswith("finished")
