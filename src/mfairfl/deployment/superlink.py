"""Runs on a running SuperLink: bring its keys up to date, submit the app, follow the journal."""

from __future__ import annotations

import contextlib
import hashlib
import json
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from mfairfl.deployment.journal import JOURNAL, read_journal
from mfairfl.deployment.keys import (
    add_revocation,
    read_public_key,
    read_registered,
    read_revocations,
)
from mfairfl.deployment.process_groups import Program, require_running
from mfairfl.deployment.processes import silence_flower
from mfairfl.deployment.settings import FederationSettings, ServerSettings, load_federation
from mfairfl.errors import FederationError, require_known
from mfairfl.files import write_atomically
from mfairfl.runs.record import RunRecord

if TYPE_CHECKING:
    from flwr.supercore.control import ControlHttpClient

APP = Path(__file__).parent / "templates" / "app"
"""The Flower app that runs are started with."""

_POLL = 0.2  # seconds between two looks at the journal, a file
_STATUS_EVERY = 25  # looks between two requests to the SuperLink

Follower = Callable[[dict[str, Any]], None]


class SuperLink:
    """The SuperLink of this machine, as its operator sees it."""

    def __init__(self, server: ServerSettings) -> None:
        silence_flower()
        self._server = server

    def is_running(self) -> bool:
        """Return whether something listens at the SuperLink's port."""
        try:
            socket.create_connection(("127.0.0.1", self._server.superlink_port), timeout=5).close()
        except OSError:
            return False
        return True

    @contextlib.contextmanager
    def _control(self, problem: str) -> Iterator[ControlHttpClient]:
        """Connect as an operator; errors of the SuperLink are raised with `problem`."""
        from flwr.supercore.control import ControlHttpClient  # noqa: PLC0415 - loads Flower

        address = f"127.0.0.1:{self._server.superlink_port}"
        try:
            with ControlHttpClient.from_server_address(
                address,
                insecure=False,
                root_certificates=self._server.ca.read_bytes(),
                interceptors=(),
            ) as client:
                yield client
        except httpx.HTTPError as error:
            if not self.is_running():
                raise FederationError(
                    f"no SuperLink answers on {address}: start `mfairfl deploy server`, then run "
                    "the same command again; it resumes from the last completed round"
                ) from None
            reason = repr(error)
            if isinstance(error, httpx.HTTPStatusError):
                reason = error.response.text
            raise FederationError(f"the SuperLink: {problem} ({reason[:300]})") from None

    def update_keys(self, settings: FederationSettings) -> None:
        """Register the silos' keys, except revoked ones, which are unregistered."""
        from flwr.proto.control_pb2 import RegisterNodeRequest  # noqa: PLC0415 - loads Flower

        registered, revoked = read_registered(self._server.registered), settings.revoked_keys()
        new = {
            key: name
            for key, name in settings.members().items()
            if key.decode() not in registered and key not in revoked
        }
        if new:
            with self._control("a key cannot be registered") as client:
                for key, name in new.items():
                    try:
                        client.RegisterNode(RegisterNodeRequest(public_key=key, name=name))
                    except httpx.HTTPStatusError as error:
                        if "already in use" not in error.response.text:
                            raise
            self._write_registered([*registered, *(key.decode() for key in new)])
        self.drop_revoked(settings)

    def drop_revoked(self, settings: FederationSettings) -> None:
        """Unregister revoked keys."""
        from flwr.proto import control_pb2  # noqa: PLC0415 - loads Flower

        registered, revoked = read_registered(self._server.registered), settings.revoked_keys()
        valid = [key for key in registered if key.encode() not in revoked]
        if len(valid) == len(registered):
            return
        with self._control("it keeps a revoked key; the gate refuses it all the same") as client:
            for node in client.ListNodes(control_pb2.ListNodesRequest()).nodes_info:
                if node.public_key in revoked and not node.unregistered_at:
                    client.UnregisterNode(control_pb2.UnregisterNodeRequest(node_id=node.node_id))
        self._write_registered(valid)

    def _write_registered(self, keys: list[str]) -> None:
        write_atomically(self._server.registered, json.dumps(keys).encode(), private=True)

    def submit(self, config: dict[str, str], app: Path = APP) -> str:
        """Start a Flower app with this configuration, and return the number of its run."""
        from flwr.cli.build import build_fab_from_disk  # noqa: PLC0415 - loads Flower
        from flwr.common.serde import fab_to_proto, user_config_to_proto  # noqa: PLC0415
        from flwr.proto.control_pb2 import StartRunRequest  # noqa: PLC0415
        from flwr.supercore.fab import Fab  # noqa: PLC0415

        data = build_fab_from_disk(app)
        fab = Fab(hashlib.sha256(data).hexdigest(), data, {})
        with self._control("the run cannot be started") as client:
            answer = client.StartRun(
                StartRunRequest(
                    fab=fab_to_proto(fab), override_config=user_config_to_proto({**config})
                )
            )
        return str(answer.run_id)

    def has_finished(self, run: str) -> bool:
        """Return whether a run has ended, with or without a result."""
        from flwr.proto.control_pb2 import ListRunsRequest  # noqa: PLC0415 - loads Flower

        with self._control(f"it does not know run {run}") as client:
            runs = client.ListRuns(ListRunsRequest(run_id=int(run))).run_dict
        return bool(runs[int(run)].status.status == "finished")

    def stop(self, run: str) -> None:
        """End a run; what it completed is kept."""
        from flwr.proto.control_pb2 import StopRunRequest  # noqa: PLC0415 - loads Flower

        with self._control(f"run {run} cannot be stopped") as client:
            client.StopRun(StopRunRequest(run_id=int(run)))


def revoke_key(settings: FederationSettings, file: Path, name: str) -> str:
    """Revoke a silo's key, for good, and return a line about what follows.

    Once it is recorded, the gate and every run refuse the key, whatever the SuperLink has
    registered.

    Parameters
    ----------
    file : Path
        Where the settings are from, for messages.
    """
    records = {record.silo: record for record in read_revocations(settings.revoked).values()}
    if name in settings.silos or name not in records:
        require_known("silo", [name], settings.silos, where=str(file))
        records[name] = add_revocation(
            settings.revoked, name, read_public_key(settings.silos[name])
        )
    superlink, what_follows = SuperLink(settings.server), "the running server refuses it"
    if superlink.is_running():
        superlink.drop_revoked(settings)
    else:
        what_follows = "no server is running here, the next one refuses it"
    since = f"{records[name].since:%Y-%m-%d %H:%M} UTC"
    return f"{name}: its key is revoked since {since}; {what_follows}"


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
    superlink = SuperLink(settings.server)
    files = {"federation": file} | ({} if audit is None else {"audit": audit})
    try:
        superlink.update_keys(settings)
        run = superlink.submit({key: str(path.resolve()) for key, path in files.items()})
        try:
            _follow(superlink, out / JOURNAL, run, follower, needs)
        except KeyboardInterrupt:
            superlink.stop(run)
            raise
    except FederationError:
        require_running(needs)  # that is the cause, and the rest followed from it
        raise


def _follow(
    superlink: SuperLink, journal: Path, run: str, follower: Follower, needs: Sequence[Program]
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
                f"run {run} ended without a result; see the SuperLink's log, and run the same "
                "command again: a run resumes from its last completed round"
            )
        require_running(needs)
        time.sleep(_POLL)
        looks += 1
        if looks % _STATUS_EVERY == 0:
            over = superlink.has_finished(run)
