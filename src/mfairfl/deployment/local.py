"""A whole federation on this machine: TLS, keys, one process per silo, each with its own file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tomli_w

from mfairfl.data import Federation, FileFormat, Table
from mfairfl.deployment.commands import gate_command, silo_command, superlink_command
from mfairfl.deployment.coordinator import FlowerCli, Follower, run_federation
from mfairfl.deployment.credentials import make_certificates, make_key
from mfairfl.deployment.processes import (
    Program,
    adopted_orphans,
    free_ports,
    sole_use,
    start,
    stop,
    wait_until_healthy,
    watched_group,
)
from mfairfl.deployment.settings import FederationSettings, load_federation
from mfairfl.engine.defence import recommended
from mfairfl.errors import ConfigError
from mfairfl.files import make_private_folder
from mfairfl.runs.config import Config
from mfairfl.runs.directory import RunDirectory
from mfairfl.runs.prepare import federation_of, table_of
from mfairfl.runs.record import RunRecord, read_record
from mfairfl.runs.silos import silo_config, silo_task, write_silo_files
from mfairfl.silo.policy import OPEN, POLICY, Policy, policy_text
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
    policy: Policy | None = None,
) -> RunRecord:
    """Carry out a run over processes on loopback, and return its record.

    Parameters
    ----------
    out : Path
        The run folder; the deployment's own files are in its folder ``deployment``.
    silos : mapping of str to Path, optional
        Files of the silos. By default the configuration's rows are split among clients, and each
        gets a file with its own.
    policy : Policy, optional
        Of every silo; by default nothing is withheld.
    """
    _refuse_foreign(out)
    with sole_use(out / "deployment"):
        file = write_deployment(config, out, silos=silos, deadline=deadline, policy=policy)
        settings, directory = load_federation(file), RunDirectory(out)
        if directory.record_path.exists():
            record = read_record(out, to_resume=True)
            if isinstance(record, RunRecord):
                say(f"{out}: already complete; this is its result")
                return record
        with (
            servers(settings, file, say) as server_programs,
            nodes(settings, file.parent, say) as silo_programs,
        ):
            say("submitting the run")
            needs = [*server_programs, *silo_programs.values()]
            return run_federation(file, follower, needs)


def write_deployment(
    config: Config,
    out: Path,
    *,
    silos: Mapping[str, Path] | None,
    deadline: float,
    policy: Policy | None = None,
) -> Path:
    """Write the deployment's files, or use existing ones, and return federation.toml."""
    folder = out / "deployment"
    parts = None if silos is not None else _partition(config)
    plain = silo_config(config, None if parts is None else silo_task(parts[0]))
    if "robust" not in config.model_fields_set:  # silos may lie
        robust = recommended(config.strategy.create().card)
        plain = plain.model_copy(update={"robust": robust})
    run = tomli_w.dumps(plain.model_dump(mode="json", exclude_none=True, exclude_defaults=True))
    path = folder / "run.toml"
    if path.exists() and path.read_text(encoding="utf-8") != run:
        raise ConfigError(f"{out}: holds another federation; choose another --out")
    _refuse_foreign(out)
    make_private_folder(folder)  # the silos' rows and keys are in it
    path.write_text(run, encoding="utf-8")
    files = dict(silos or {}) if parts is None else write_silo_files(*parts, folder / "silos")
    said = asdict(config.data.format if parts is None else FileFormat())
    told = {key: value for key, value in said.items() if value is not None}
    return write_federation(
        out,
        files,
        silo={**told, "task": "../../run.toml"},
        federation={"run": "run.toml", "deadline": deadline},
        # All files have one owner: by default the same encoding as in one table.
        policy=OPEN if policy is None else policy,
    )


def write_federation(
    out: Path,
    files: Mapping[str, Path],
    *,
    silo: Mapping[str, Any],
    federation: Mapping[str, Any],
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
    gate, link, *ports = free_ports(2 + len(files))
    for (name, csv), port in zip(sorted(files.items()), ports, strict=True):
        own: dict[str, Any] = {
            "csv": str(csv.resolve()),
            "server": f"127.0.0.1:{gate}",
            "port": port,
        }
        _write_silo(folder / "silos" / name, {"name": name, **own, **silo}, policy)
    values = {
        **federation,
        "out": str(out.resolve()),
        "minimum": len(files),
        "server": {"host": "127.0.0.1", "port": gate, "superlink_port": link},
        "silos": {name: f"silos/{name}/key.pub" for name in sorted(files)},
    }
    (folder / "federation.toml").write_text(tomli_w.dumps(values), encoding="utf-8")
    return folder / "federation.toml"


def _refuse_foreign(out: Path) -> None:
    """Refuse a folder with files that no federation wrote."""
    begun = (out / "deployment" / "run.toml").exists() or not out.exists()
    if not begun and any(path.name != "deployment" for path in out.iterdir()):
        raise ConfigError(f"{out}: is not empty and holds no federation; choose another --out")


def _write_silo(folder: Path, own: dict[str, Any], policy: Policy) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "key").exists():
        make_key(folder / "key")
    shared = {"state": "state", "ca": "../../certificates/ca.crt", "key": "key"}
    (folder / "silo.toml").write_text(tomli_w.dumps(shared | own), encoding="utf-8")
    if not (folder / POLICY).exists():
        (folder / POLICY).write_text(policy_text(policy), encoding="utf-8")


def _partition(config: Config) -> tuple[Table, Federation]:
    table = table_of(config)
    return table, federation_of(config, table)


@contextmanager
def servers(settings: FederationSettings, file: Path, say: Say) -> Iterator[list[Program]]:
    """Run SuperLink and gate while the block lasts, with the silos' keys registered.

    They end with this process, however it ends.
    """
    server, logs = settings.server, settings.server.state / "logs"
    started: list[Program] = []
    with sole_use(server.state), adopted_orphans(server.state), watched_group() as group:
        try:
            public = "127.0.0.1" if server.host in _EVERYWHERE else server.host
            addresses = (f"127.0.0.1:{server.superlink_port}", f"{public}:{server.port}")
            commands = {
                "SuperLink": superlink_command(server),
                "gate": gate_command(server, file),
            }
            for (name, command), address in zip(commands.items(), addresses, strict=True):
                say(f"starting the {name} at {address}")
                log = logs / f"{name.lower()}.log"
                process = start(command, log=log, group=group.id)
                started.append(Program(f"the {name}", process, log))
            wait_until_healthy(addresses[0], server.ca, started[0])
            FlowerCli(server).update_keys(settings)  # while the gate starts
            wait_until_healthy(addresses[1], server.ca, started[1])
            yield started
        finally:
            stop([program.process for program in started[::-1]])


@contextmanager
def nodes(settings: FederationSettings, folder: Path, say: Say) -> Iterator[dict[str, Program]]:
    """Run a SuperNode for each silo while the block lasts; they end with this process."""
    logs = settings.server.state / "logs"
    started: dict[str, Program] = {}
    with watched_group() as group:
        try:
            say(f"starting {len(settings.silos)} silos: {', '.join(sorted(settings.silos))}")
            for name in sorted(settings.silos):
                file = folder / "silos" / name / "silo.toml"
                command = silo_command(load_silo(file), file)
                log = logs / f"{name}.log"
                process = start(command, log=log, group=group.id)
                started[name] = Program(f"silo {name}", process, log)
            yield started
        finally:
            stop([program.process for program in started.values()])
