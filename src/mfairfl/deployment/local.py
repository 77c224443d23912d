"""A whole federation on this machine: TLS, keys, one process per silo, each with its own file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from mfairfl.data import read_frame
from mfairfl.data.columns import columns_of
from mfairfl.data.predictions import PredictionColumns, read_predictions
from mfairfl.deployment.federation_audit import audit_federation, terms_of
from mfairfl.deployment.federation_files import (
    refuse_foreign,
    write_audit_deployment,
    write_deployment,
)
from mfairfl.deployment.process_groups import Program, watched_group
from mfairfl.deployment.processes import (
    adopted_orphans,
    gate_command,
    silo_command,
    sole_use,
    superlink_command,
    wait_until_healthy,
)
from mfairfl.deployment.settings import AuditRequest, FederationSettings, load_federation
from mfairfl.deployment.superlink import Follower, SuperLink, run_federation
from mfairfl.report.document import Document
from mfairfl.runs.config import Config
from mfairfl.runs.directory import RunDirectory
from mfairfl.runs.record import RunRecord, read_record
from mfairfl.silo.policy import OPEN, Policy
from mfairfl.silo.silo_file import load_silo

Say = Callable[[str], None]
_EVERYWHERE = ("0.0.0.0", "")  # noqa: S104 - compared with, not bound to


def run_local(
    config: Config,
    out: Path,
    *,
    follower: Follower,
    say: Say,
    silos: Mapping[str, Path] | None = None,
    deadline: float = 600,
    policy: Policy = OPEN,
) -> RunRecord:
    """Carry out a run over processes on loopback, and return its record.

    Parameters
    ----------
    out : Path
        The run folder; the deployment's own files are in its folder ``deployment``.
    silos : mapping of str to Path, optional
        Files of the silos. By default the configuration's rows are split among clients, and each
        gets a file with its own.
    policy : Policy
        Of every silo; by default nothing is withheld.
    """
    refuse_foreign(out)
    with sole_use(out / "deployment"):
        file = write_deployment(config, out, silos=silos, deadline=deadline, policy=policy)
        if RunDirectory(out).record_path.exists():
            record = read_record(out)
            if isinstance(record, RunRecord):
                say(f"{out}: already complete; this is its result")
                return record
        with _federation(file, say) as needs:
            say("submitting the run")
            return run_federation(file, follower, needs)


def audit_local(
    request: AuditRequest,
    silos: Mapping[str, Path],
    out: Path,
    *,
    follower: Follower,
    say: Say,
    min_rows: int | None = None,
) -> Document:
    """Audit files on this machine as if each were at a silo of its own.

    Parameters
    ----------
    silos : mapping of str to Path
        The silos' files.
    out : Path
        The audit's folder; the deployment's own files are in its folder ``deployment``.
    min_rows : int, optional
        The silos' floor; by default the one of a silo without a policy.toml.
    """
    subject = terms_of(request).subject
    if isinstance(subject, PredictionColumns):
        for path in silos.values():  # a silo would only report that it cannot use its file
            read_predictions(columns_of(read_frame(path), path.name), subject, path.name)
    with sole_use(out / "deployment"):
        file = write_audit_deployment(
            subject, silos, out, score_range=request.score_range, min_rows=min_rows
        )
        with _federation(file, say) as needs:
            say("asking for counts")
            return audit_federation(file, request, out, follower, needs)


@contextmanager
def _federation(file: Path, say: Say) -> Iterator[list[Program]]:
    """Run the coordinator's servers and all silos while the block lasts."""
    settings = load_federation(file)
    with (
        servers(settings, file, say) as server_programs,
        nodes(settings, file.parent, say) as silo_programs,
    ):
        yield [*server_programs, *silo_programs.values()]


@contextmanager
def servers(settings: FederationSettings, file: Path, say: Say) -> Iterator[list[Program]]:
    """Run SuperLink and gate while the block lasts, with the silos' keys registered.

    They end with this process, however it ends.
    """
    server = settings.server
    public = "127.0.0.1" if server.host in _EVERYWHERE else server.host
    behind, front = f"127.0.0.1:{server.superlink_port}", f"{public}:{server.port}"
    with sole_use(server.state), adopted_orphans(server.state), watched_group() as group:
        logs = server.state / "logs"
        say(f"starting the SuperLink at {behind}")
        superlink = group.start("the SuperLink", superlink_command(server), logs / "superlink.log")
        say(f"starting the gate at {front}")
        gate = group.start("the gate", gate_command(server, file), logs / "gate.log")
        wait_until_healthy(behind, server.ca, superlink)
        SuperLink(server).update_keys(settings)  # while the gate starts
        wait_until_healthy(front, server.ca, gate)
        yield [superlink, gate]


@contextmanager
def nodes(settings: FederationSettings, folder: Path, say: Say) -> Iterator[dict[str, Program]]:
    """Run a process for each silo while the block lasts; they end with this process."""
    names, logs = sorted(settings.silos), settings.server.state / "logs"
    say(f"starting {len(names)} silos: {', '.join(names)}")
    with watched_group() as group:
        files = {name: folder / "silos" / name / "silo.toml" for name in names}
        yield {
            name: group.start(
                f"silo {name}", silo_command(load_silo(file), file), logs / f"{name}.log"
            )
            for name, file in files.items()
        }
