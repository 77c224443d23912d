"""Start a run on a running SuperLink: bring its keys up to date, submit the app, follow it."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from mfairfl.deployment.credentials import read_public_key
from mfairfl.deployment.journal import JOURNAL, read_journal
from mfairfl.deployment.key_ring import read_registered
from mfairfl.deployment.processes import (
    PRIVATE,
    Program,
    environment,
    require_running,
    silence_flower,
    watched_group,
)
from mfairfl.deployment.revocation import add_revocation, read_revocations
from mfairfl.deployment.settings import FederationSettings, ServerSettings, load_federation
from mfairfl.errors import FederationError, require_known
from mfairfl.files import write_atomically
from mfairfl.runs.record import RunRecord

if TYPE_CHECKING:
    from flwr.supercore.control import ControlHttpClient

APP = Path(__file__).parent / "templates" / "app"
"""The Flower app that runs are started with."""

_POLL = 0.2  # seconds between two looks at the journal, a file
_STATUS_EVERY = 100  # looks between two calls of the SuperLink; each starts a process

Follower = Callable[[dict[str, Any]], None]


class FlowerCli:
    """Flower's command line, for the SuperLink of this machine."""

    def __init__(self, server: ServerSettings) -> None:
        self._port, self._server = server.superlink_port, server
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

    def is_running(self) -> bool:
        """Say whether something listens at the SuperLink's port."""
        try:
            socket.create_connection(("127.0.0.1", self._port), timeout=5).close()
        except OSError:
            return False
        return True

    def _require_superlink(self) -> None:
        """Refuse to go on if nothing listens at the SuperLink's port."""
        if not self.is_running():
            raise FederationError(
                f"no SuperLink answers on 127.0.0.1:{self._port}: start `mfairfl deploy server`, "
                "then run the same command again; it resumes from the last completed round"
            )

    def update_keys(self, settings: FederationSettings) -> None:
        """Register the silos' keys, except those that were revoked: they are taken out."""
        known, revoked = read_registered(self._server.registered), settings.revoked_keys()
        members = settings.members()
        new = [key for key in members if key.decode() not in known and key not in revoked]
        if new:
            self._register({key: members[key] for key in new})
            self._write_known([*known, *(key.decode() for key in new)])
        self.drop_revoked(settings)

    def drop_revoked(self, settings: FederationSettings) -> None:
        """Take revoked keys out of the SuperLink."""
        known, revoked = read_registered(self._server.registered), settings.revoked_keys()
        if gone := {key for key in known if key.encode() in revoked}:
            self._unregister({key.encode() for key in gone})
            self._write_known([key for key in known if key not in gone])

    def _write_known(self, keys: list[str]) -> None:
        write_atomically(self._server.registered, json.dumps(keys).encode(), private=True)

    # `flwr supernode` takes a process for each key, and `list` does not say which node has which.

    def _register(self, names: Mapping[bytes, str]) -> None:
        from flwr.proto import control_pb2  # noqa: PLC0415 - loads Flower

        with self._superlink("a key cannot be registered") as superlink:
            for key, name in names.items():
                try:
                    superlink.RegisterNode(
                        control_pb2.RegisterNodeRequest(public_key=key, name=name)
                    )
                except httpx.HTTPStatusError as error:
                    if "already in use" not in error.response.text:
                        raise

    def _unregister(self, keys: Collection[bytes]) -> None:
        from flwr.proto import control_pb2  # noqa: PLC0415 - loads Flower

        problem = "it keeps a revoked key; the gate refuses it all the same"
        with self._superlink(problem) as superlink:
            for node in superlink.ListNodes(control_pb2.ListNodesRequest()).nodes_info:
                if node.public_key in keys and not node.unregistered_at:
                    superlink.UnregisterNode(
                        control_pb2.UnregisterNodeRequest(node_id=node.node_id)
                    )

    @contextlib.contextmanager
    def _superlink(self, problem: str) -> Iterator[ControlHttpClient]:
        """Connect to the SuperLink as an operator; an error of it is raised with `problem`."""
        silence_flower()
        from flwr.supercore.control import ControlHttpClient  # noqa: PLC0415 - loads Flower

        try:
            with ControlHttpClient.from_server_address(
                f"127.0.0.1:{self._port}",
                insecure=False,
                root_certificates=self._server.ca.read_bytes(),
                interceptors=(),
            ) as superlink:
                yield superlink
        except httpx.HTTPError as error:
            self._require_superlink()
            said = error.response.text if isinstance(error, httpx.HTTPStatusError) else repr(error)
            raise FederationError(f"the SuperLink: {problem} ({said[:300]})") from None

    def submit(self, federation: Path, audit: Path | None = None) -> str:
        """Start a run, or the audit that a file describes, and return its number."""
        files = {"federation": federation} | ({} if audit is None else {"audit": audit})
        named = {k: json.dumps(str(v.resolve()), ensure_ascii=False) for k, v in files.items()}
        config = " ".join(f"{key}={path}" for key, path in named.items())
        answer = self.ask("run", str(APP), "here", "--run-config", config)
        return str(answer["run-id"])

    def status(self, run: str) -> str:
        """Return a run's status, for example ``running`` or ``finished:completed``."""
        answer = self.ask("list", "here", "--run-id", run)
        return str(answer["runs"][0]["status"])

    def stop(self, run: str) -> None:
        """End a run; what it completed is kept."""
        self.ask("stop", run, "here")


def revoke_key(settings: FederationSettings, file: Path, name: str) -> str:
    """Revoke a silo's key, for good, and say what follows.

    Once it is written down, the gate and every run refuse the key, whatever the SuperLink knows.

    Parameters
    ----------
    file : Path
        Where the settings are from, for messages.
    """
    records = {one.silo: one for one in read_revocations(settings.revoked).values()}
    if name in settings.silos or name not in records:
        require_known("silo", [name], settings.silos, where=str(file))
        records[name] = add_revocation(
            settings.revoked, name, read_public_key(settings.silos[name])
        )
    said = f"{name}: its key is revoked since {records[name].since:%Y-%m-%d %H:%M} UTC"
    flower = FlowerCli(settings.server)
    if flower.is_running():
        flower.drop_revoked(settings)
        said += "; the running server refuses it"
    else:
        said += "; no server is running here, the next one refuses it"
    return said


def run_federation(file: Path, follower: Follower, needs: Sequence[Program] = ()) -> RunRecord:
    """Carry out a run, or resume it, and return its record.

    Parameters
    ----------
    follower : callable
        Called with every line of the journal.
    needs : sequence of Program
        What must run on this machine meanwhile.
    """
    settings = load_federation(file)
    settings.federated(), settings.members()  # so that mistakes in the files are reported here
    submit_and_follow(settings, file, settings.out, follower, needs)
    return RunRecord.read(settings.out)


def submit_and_follow(
    settings: FederationSettings,
    file: Path,
    out: Path,
    follower: Follower,
    needs: Sequence[Program] = (),
    *,
    audit: Path | None = None,
) -> None:
    """Start a run, or an audit, and wait until it has finished; a failure is raised.

    Parameters
    ----------
    file : Path
        Where the settings are from.
    out : Path
        The folder with the journal.
    needs : sequence of Program
        What must run on this machine meanwhile: if one of them ends, that is raised.
    audit : Path, optional
        What is audited (`AuditRequest`).
    """
    flower = FlowerCli(settings.server)
    try:
        flower.update_keys(settings)
        run = flower.submit(file, audit)
        try:
            _follow(flower, out / JOURNAL, run, follower, needs)
        except KeyboardInterrupt:
            flower.stop(run)
            raise
    except FederationError:
        require_running(needs)  # that is the cause, and the rest followed from it
        raise


def _follow(
    flower: FlowerCli, journal: Path, run: str, follower: Follower, needs: Sequence[Program]
) -> None:
    seen, looks, over = 0, 0, False
    while True:
        for line in read_journal(journal, run, seen):
            seen += 1
            follower(line)
            if line["event"] == "failed":
                raise FederationError(line["message"])
            if line["event"] == "finished":
                return
        if over:
            raise FederationError(
                f"run {run} ended without a result; see the SuperLink's log, and give the same "
                "command again: a run resumes from its last completed round"
            )
        require_running(needs)
        time.sleep(_POLL)
        looks += 1
        if looks % _STATUS_EVERY == 0:
            over = flower.status(run).startswith("finished")
