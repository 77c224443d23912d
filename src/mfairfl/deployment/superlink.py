"""Runs and audits on a running SuperLink: its keys are updated, the app submitted and followed.

The process that waits for an audit writes an `AuditRequest` into the audit's folder; the
coordinator's app carries it out and writes audit.json beside it.
"""

import contextlib
import hashlib
import itertools
import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
from flwr.cli.build import build_fab_from_disk
from flwr.common import serde
from flwr.proto import control_pb2
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.fab import Fab

from mfairfl.deployment import keys
from mfairfl.deployment.journal import JOURNAL, read_journal
from mfairfl.deployment.process_groups import Program, require_running
from mfairfl.deployment.processes import silence_flower
from mfairfl.deployment.settings import AuditRequest, FederationSettings, load_federation
from mfairfl.errors import FederationError, require_known
from mfairfl.files import write_atomically
from mfairfl.report.document import Document
from mfairfl.runs.record import RunRecord

APP = Path(__file__).parent / "templates" / "app"
"""The Flower app that runs are started with."""

REQUEST = "request.json"
"""Name of the file in which the coordinator's app finds the request for an audit."""

_POLL = 0.2  # seconds between two looks at the journal, a file
_STATUS_EVERY = 25  # looks between two requests to the SuperLink

Follower = Callable[[dict[str, Any]], None]


class SuperLink:
    """The SuperLink of this machine, as its operator sees it."""

    def __init__(self, settings: FederationSettings) -> None:
        silence_flower()
        self._settings, self._server = settings, settings.server

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
        address = f"127.0.0.1:{self._server.superlink_port}"
        authority = self._server.ca.read_bytes()
        try:
            with ControlHttpClient.from_server_address(
                address, insecure=False, root_certificates=authority, interceptors=()
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

    def update_keys(self) -> None:
        """Register the silos' keys, except revoked ones, which are unregistered."""
        registered = keys.read_registered(self._server.registered)
        revoked, members = self._settings.revoked_keys(), self._settings.members()
        if new := [key for key in members if key not in revoked and key not in registered]:
            with self._control("a key cannot be registered") as client:
                for key in new:
                    request = control_pb2.RegisterNodeRequest(public_key=key, name=members[key])
                    try:
                        client.RegisterNode(request)
                    except httpx.HTTPStatusError as error:
                        if "already in use" not in error.response.text:
                            raise
            self._write_registered([*registered, *new])
        self.drop_revoked()

    def drop_revoked(self) -> None:
        """Unregister revoked keys."""
        registered = keys.read_registered(self._server.registered)
        revoked = self._settings.revoked_keys()
        valid = [key for key in registered if key not in revoked]
        if len(valid) == len(registered):
            return
        with self._control("it keeps a revoked key; the gate refuses it all the same") as client:
            for node in client.ListNodes(control_pb2.ListNodesRequest()).nodes_info:
                if node.public_key in revoked and not node.unregistered_at:
                    client.UnregisterNode(control_pb2.UnregisterNodeRequest(node_id=node.node_id))
        self._write_registered(valid)

    def _write_registered(self, registered: list[bytes]) -> None:
        texts = json.dumps([key.decode() for key in registered])
        write_atomically(self._server.registered, texts.encode(), private=True)

    def stop_orphans(self) -> None:
        """End the runs of an earlier SuperLink, which nothing drives any more.

        Their messages would still be sent to silos. One whose run ends while a SuperNode receives
        it is in the way of the next run's.
        """
        with self._control("an earlier run cannot be stopped") as client:
            for run, facts in client.ListRuns(control_pb2.ListRunsRequest()).run_dict.items():
                if facts.status.status != "finished":
                    client.StopRun(control_pb2.StopRunRequest(run_id=run))

    def submit(self, config: Mapping[str, str], app: Path = APP) -> str:
        """Start a Flower app with this configuration, and return the number of its run."""
        data = build_fab_from_disk(app)
        fab = serde.fab_to_proto(Fab(hashlib.sha256(data).hexdigest(), data, {}))
        override = serde.user_config_to_proto({**config})
        with self._control("the run cannot be started") as client:
            request = control_pb2.StartRunRequest(fab=fab, override_config=override)
            return str(client.StartRun(request).run_id)

    def has_finished(self, run: str) -> bool:
        """Return whether a run has ended, with or without a result."""
        with self._control(f"it does not know run {run}") as client:
            runs = client.ListRuns(control_pb2.ListRunsRequest(run_id=int(run))).run_dict
        return bool(runs[int(run)].status.status == "finished")

    def stop(self, run: str) -> None:
        """End a run; what it completed is kept."""
        with self._control(f"run {run} cannot be stopped") as client:
            client.StopRun(control_pb2.StopRunRequest(run_id=int(run)))


def revoke_key(settings: FederationSettings, file: Path, name: str) -> str:
    """Revoke a silo's key, for good, and return a line about what follows.

    Once it is recorded, the gate and every run refuse the key, whatever the SuperLink has
    registered.

    Parameters
    ----------
    file : Path
        Where the settings are from, for messages.
    """
    revocations = keys.read_revocations(settings.revoked)
    records = {record.silo: record for record in revocations.values()}
    if name in settings.silos or name not in records:
        require_known("silo", [name], settings.silos, where=str(file))
        key = keys.read_public_key(settings.silos[name])
        records[name] = keys.add_revocation(settings.revoked, name, key)
    superlink, what_follows = SuperLink(settings), "the running server refuses it"
    if superlink.is_running():
        superlink.drop_revoked()
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
        What must run on this machine meanwhile: if one of them ends, that is raised.
    """
    settings = load_federation(file)
    settings.federated(), settings.members()  # so that mistakes in the files are reported here
    submit_and_follow(settings, {"federation": file}, settings.out, follower, needs)
    return RunRecord.read(settings.out)


def audit_federation(
    file: Path,
    request: AuditRequest,
    out: Path,
    follower: Follower,
    needs: Sequence[Program] = (),
) -> Document:
    """Ask the silos of a running federation for counts, and return the audit of them.

    Parameters
    ----------
    out : Path
        Folder for the request, the audit and the journal.
    follower, needs
        As for `run_federation`.
    """
    settings = load_federation(file)
    paths = {"run": request.run, "baseline": request.baseline}
    absolute = {key: path.resolve() for key, path in paths.items() if path is not None}
    request = request.model_copy(update=absolute)  # the app has another working directory
    settings.members(), request.terms()  # so that mistakes in the files are reported here
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / REQUEST, request.model_dump_json(indent=1).encode())
    submit_and_follow(settings, {"federation": file, "audit": out / REQUEST}, out, follower, needs)
    return Document.read(out)


def submit_and_follow(
    settings: FederationSettings,
    files: Mapping[str, Path],
    out: Path,
    follower: Follower,
    needs: Sequence[Program],
) -> None:
    """Start the app with these files, and wait until it has finished; a failure is raised.

    The journal is in the folder `out`.
    """
    superlink = SuperLink(settings)
    try:
        superlink.update_keys()
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
    seen, over = 0, False
    for look in itertools.count(1):
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
        over = look % _STATUS_EVERY == 0 and superlink.has_finished(run)
