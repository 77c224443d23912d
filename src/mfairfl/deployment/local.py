"""A whole federation on this machine: TLS, keys, one process per silo, each with its own file."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tomli_w

from mfairfl.data import FileFormat, read_frame
from mfairfl.data.columns import columns_of
from mfairfl.data.predictions import read_predictions
from mfairfl.deployment import processes, superlink
from mfairfl.deployment.keys import make_certificates, make_key
from mfairfl.deployment.process_groups import Program, watched_group
from mfairfl.deployment.settings import AuditRequest, FederationSettings, load_federation
from mfairfl.deployment.superlink import Follower
from mfairfl.engine.defence import recommended
from mfairfl.errors import ConfigError
from mfairfl.files import make_private_folder
from mfairfl.report.document import Document
from mfairfl.runs.config import Config
from mfairfl.runs.directory import RunDirectory
from mfairfl.runs.execute import federation_of, table_of
from mfairfl.runs.record import RunRecord, read_record
from mfairfl.runs.silo_runs import silo_config, silo_task, write_silo_files
from mfairfl.silo.policy import OPEN, POLICY, Disclosure, Policy, policy_text
from mfairfl.silo.silo_file import load_silo
from mfairfl.wire.audit_messages import SentModel

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
    begun = (out / "deployment" / "run.toml").exists() or not out.exists()
    if not begun and any(path.name != "deployment" for path in out.iterdir()):
        raise ConfigError(f"{out}: is not empty and holds no federation; choose another --out")
    with processes.sole_use(out / "deployment"):
        file = write_deployment(config, out, silos=silos, deadline=deadline, policy=policy)
        if RunDirectory(out).record_path.exists():
            record = read_record(out)
            if isinstance(record, RunRecord):
                say(f"{out}: already complete; this is its result")
                return record
        with _federation(file, say) as needs:
            say("submitting the run")
            return superlink.run_federation(file, follower, needs)


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
    with processes.sole_use(out / "deployment"):
        file = write_audit_deployment(request, silos, out, min_rows=min_rows)
        with _federation(file, say) as needs:
            say("asking for counts")
            return superlink.audit_federation(file, request, out, follower, needs)


# ------------------------------------------------------------------ the processes


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
    logs, state = server.state / "logs", server.state
    with processes.sole_use(state), processes.adopted_orphans(state), watched_group() as group:
        say(f"starting the SuperLink at {behind}")
        command = processes.superlink_command(server)
        link = group.start("the SuperLink", command, logs / "superlink.log")
        say(f"starting the gate at {front}")
        command = processes.gate_command(server, file)
        gate = group.start("the gate", command, logs / "gate.log")
        processes.wait_until_healthy(behind, server.ca, link)
        started = superlink.SuperLink(settings)  # while the gate starts
        started.stop_orphans()
        started.update_keys()
        processes.wait_until_healthy(front, server.ca, gate)
        yield [link, gate]


@contextmanager
def nodes(settings: FederationSettings, folder: Path, say: Say) -> Iterator[dict[str, Program]]:
    """Run a process for each silo while the block lasts; they end with this process."""
    names, logs = sorted(settings.silos), settings.server.state / "logs"
    say(f"starting {len(names)} silos: {', '.join(names)}")
    with watched_group() as group:
        programs = {}
        for name in names:
            file = folder / "silos" / name / "silo.toml"
            command = processes.silo_command(load_silo(file), file)
            programs[name] = group.start(f"silo {name}", command, logs / f"{name}.log")
        yield programs


# ------------------------------------------------------------------ the files


def write_deployment(
    config: Config,
    out: Path,
    *,
    silos: Mapping[str, Path] | None = None,
    deadline: float = 600,
    policy: Policy = OPEN,
) -> Path:
    """Write the files of a run over silos on this machine, or use existing ones.

    Parameters
    ----------
    silos : mapping of str to Path, optional
        Files of the silos. By default the configuration's rows are split among clients, and each
        gets a file with its own.
    policy : Policy
        Of every silo. All files have one owner: by default nothing is withheld, and the encoding
        is the same as in one table.

    Returns
    -------
    Path
        federation.toml.
    """
    folder, table, file_format = out / "deployment", None, config.data.format
    if silos is None:
        table = table_of(config)
        federation = federation_of(config, table)
    plain = silo_config(config, None if table is None else silo_task(table))
    if "robust" not in config.model_fields_set:  # silos may lie
        robust = recommended(config.strategy.create().card)
        plain = plain.model_copy(update={"robust": robust})
    values = plain.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    # Left out, as a default, a literal preset would take its own number of server steps.
    values.setdefault("training", {})["rounds"] = plain.training.rounds
    run = tomli_w.dumps(values)
    path = folder / "run.toml"
    if path.exists() and path.read_text(encoding="utf-8") != run:
        raise ConfigError(f"{out}: holds another federation; choose another --out")
    make_private_folder(folder)  # the silos' rows and keys are in it
    path.write_text(run, encoding="utf-8")
    if table is not None:
        silos, file_format = write_silo_files(table, federation, folder / "silos"), FileFormat()
    silo = {key: value for key, value in asdict(file_format).items() if value is not None}
    return write_federation(
        out,
        silos or {},
        silo=silo | {"task": "../../run.toml"},
        federation={"run": "run.toml", "deadline": deadline},
        policy=policy,
    )


def write_audit_deployment(
    request: AuditRequest, silos: Mapping[str, Path], out: Path, *, min_rows: int | None = None
) -> Path:
    """Write the files of an audit over silos on this machine, which agree to what is asked for.

    Parameters
    ----------
    min_rows : int, optional
        The silos' floor; by default the one of a silo without a policy.toml.

    Returns
    -------
    Path
        federation.toml.
    """
    folder = out / "deployment"
    if (folder / "run.toml").exists():
        raise ConfigError(f"{out}: holds a run over silos; choose another --out")
    for old in folder.glob(f"silos/*/{POLICY}"):  # of an earlier audit, perhaps with another floor
        old.unlink()
    subject = request.terms().subject
    if isinstance(subject, SentModel):
        columns = [s.column for s in subject.task.sensitive if s.name in subject.audited]
        consent = {"label": subject.task.label, "sensitive": columns, "models": True}
    else:
        for path in silos.values():  # a silo would only report that it cannot use its file
            read_predictions(columns_of(read_frame(path), path.name), subject, path.name)
        consent = subject.model_dump(mode="json", exclude_none=True)
        consent["score_range"] = list(request.score_range)
    # All files have one owner, who may change them between two audits.
    floor = Disclosure().min_rows if min_rows is None else min_rows
    disclosure = OPEN.disclosure.model_copy(update={"min_rows": floor})
    policy = Policy(disclosure=disclosure)
    return write_federation(out, silos, silo={"audit": consent}, federation={}, policy=policy)


def write_federation(
    out: Path,
    files: Mapping[str, Path],
    *,
    silo: dict[str, Any],
    federation: dict[str, Any],
    policy: Policy,
) -> Path:
    """Write keys, certificates and settings of silos on this machine; return federation.toml.

    Parameters
    ----------
    files : mapping of str to Path
        The silos' files.
    silo, federation : mapping of str to values
        What else is in every silo.toml, and in federation.toml.
    policy : Policy
        Of every silo that has none yet.
    """
    folder = make_private_folder(out / "deployment")  # the silos' rows and keys are in it
    if not (folder / "certificates").exists():
        make_certificates(folder / "certificates", [])
    gate, behind, *ports = processes.free_ports(2 + len(files))
    for (name, csv), port in zip(sorted(files.items()), ports, strict=True):
        silo_folder = folder / "silos" / name
        silo_folder.mkdir(parents=True, exist_ok=True)
        if not (silo_folder / "key").exists():
            make_key(silo_folder / "key")
        settings = {
            "name": name,
            "csv": str(csv.resolve()),
            "state": "state",
            "port": port,
            "server": f"127.0.0.1:{gate}",
            "ca": "../../certificates/ca.crt",
            "key": "key",
        }
        (silo_folder / "silo.toml").write_text(tomli_w.dumps(settings | silo), encoding="utf-8")
        if not (silo_folder / POLICY).exists():
            (silo_folder / POLICY).write_text(policy_text(policy), encoding="utf-8")
    values = {
        **federation,
        "out": str(out.resolve()),
        "minimum": len(files),
        "server": {"host": "127.0.0.1", "port": gate, "superlink_port": behind},
        "silos": {name: f"silos/{name}/key.pub" for name in sorted(files)},
    }
    (folder / "federation.toml").write_text(tomli_w.dumps(values), encoding="utf-8")
    return folder / "federation.toml"
