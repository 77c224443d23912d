"""The folders that a federation starts from: for a consortium, and for silos on this machine."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from string import Template
from typing import Any

import tomli_w

from mfairfl.data import FileFormat
from mfairfl.deployment.keys import make_certificates, make_key
from mfairfl.deployment.processes import free_ports
from mfairfl.deployment.settings import load_federation
from mfairfl.engine.defence import recommended
from mfairfl.errors import ConfigError
from mfairfl.files import load_toml, make_private_folder
from mfairfl.runs.config import Config, make_config
from mfairfl.runs.prepare import federation_of, table_of
from mfairfl.runs.silos import silo_config, silo_task, write_silo_files
from mfairfl.silo.policy import OPEN, POLICY, Disclosure, Policy, load_policy, policy_text
from mfairfl.silo.silo_file import load_silo
from mfairfl.wire.audit_messages import AuditSubject, SentModel

_TEMPLATES = Path(__file__).parent / "templates"
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_SILO_PORT = 9094


def write_consortium(
    folder: Path, *, silos: Sequence[str], host: str, port: int, run: Path | None = None
) -> None:
    """Write a folder for the coordinator and one for each silo; they make their own keys there.

    Parameters
    ----------
    run : Path, optional
        Settings with a ``[task]``; a data file that it names is left out. By default an example
        that has to be edited.
    """
    _require_new(folder, silos)
    names = sorted(silos)
    texts = {"host": host, "port": str(port), "silos": ", ".join(names), "first": names[0]}
    coordinator = folder / "coordinator"
    (coordinator / "keys").mkdir(parents=True)
    _write_run_file(coordinator / "run.toml", run)
    listed = "\n".join(f'{name} = "keys/{name}.pub"' for name in names)
    minimum = str(max(2, len(names) - 1))
    _fill(coordinator / "federation.toml", texts | {"listed": listed, "minimum": minimum})
    _fill(coordinator / "mfairfl-server.service", texts)
    for name in names:
        silo = folder / "silos" / name
        silo.mkdir(parents=True)
        _fill(silo / "silo.toml", texts | {"name": name, "silo_port": str(_SILO_PORT)})
        _fill(silo / "mfairfl-silo.service", texts | {"name": name})
        (silo / POLICY).write_text(policy_text(Policy()), encoding="utf-8")
        shutil.copyfile(coordinator / "run.toml", silo / "run.toml")
        load_silo(silo / "silo.toml")
        load_policy(silo / "silo.toml")
    _fill(folder / "GUIDE.md", texts)
    load_federation(coordinator / "federation.toml")


def _require_new(folder: Path, silos: Sequence[str]) -> None:
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder}: is not empty; choose another folder")
    if len(silos) < 2:
        raise ConfigError("--silo: a federation has at least two silos; name each of them")
    for name in silos:
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"--silo {name}: use lower-case letters, digits, - and _ (it names files)"
            )
        if silos.count(name) > 1:
            raise ConfigError(f"--silo {name}: given twice")


def _write_run_file(path: Path, run: Path | None) -> None:
    if run is None:
        _fill(path, {})
        return
    values = load_toml(run)
    values.pop("data", None)  # each silo names its own file
    if "task" not in values:
        raise ConfigError(f"{run}: no [task]; `mfairfl init` writes one from a CSV")
    values["task"].pop("client", None)
    split = values.get("clients", {})
    values["clients"] = {key: split[key] for key in ("test", "validation") if key in split}
    config = make_config(values, str(run))
    values.setdefault("robust", recommended(config.strategy.create().card))
    path.write_text(tomli_w.dumps(values), encoding="utf-8")


def _fill(path: Path, values: dict[str, str]) -> None:
    text = (_TEMPLATES / path.name).read_text(encoding="utf-8")
    path.write_text(Template(text).substitute(values), encoding="utf-8")


# ------------------------------------------------------------------ silos on this machine


def refuse_foreign(out: Path) -> None:
    """Refuse a folder with files that are not those of a federation."""
    begun = (out / "deployment" / "run.toml").exists() or not out.exists()
    if not begun and any(path.name != "deployment" for path in out.iterdir()):
        raise ConfigError(f"{out}: is not empty and holds no federation; choose another --out")


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
    folder, table = out / "deployment", None
    if silos is None:
        table = table_of(config)
        federation = federation_of(config, table)
    plain = silo_config(config, None if table is None else silo_task(table))
    if "robust" not in config.model_fields_set:  # silos may lie
        robust = recommended(config.strategy.create().card)
        plain = plain.model_copy(update={"robust": robust})
    run = tomli_w.dumps(plain.model_dump(mode="json", exclude_none=True, exclude_defaults=True))
    path = folder / "run.toml"
    if path.exists() and path.read_text(encoding="utf-8") != run:
        raise ConfigError(f"{out}: holds another federation; choose another --out")
    refuse_foreign(out)
    make_private_folder(folder)  # the silos' rows and keys are in it
    path.write_text(run, encoding="utf-8")
    file_format = config.data.format
    if table is not None:
        silos, file_format = write_silo_files(table, federation, folder / "silos"), FileFormat()
    stated = {key: value for key, value in asdict(file_format).items() if value is not None}
    return write_federation(
        out,
        silos or {},
        silo={**stated, "task": "../../run.toml"},
        federation={"run": "run.toml", "deadline": deadline},
        policy=policy,
    )


def write_audit_deployment(
    subject: AuditSubject,
    silos: Mapping[str, Path],
    out: Path,
    *,
    score_range: tuple[float, float] = (0.0, 1.0),
    min_rows: int | None = None,
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
    # All files have one owner, who may change them between two audits.
    floor = Disclosure().min_rows if min_rows is None else min_rows
    disclosure = OPEN.disclosure.model_copy(update={"min_rows": floor})
    return write_federation(
        out,
        silos,
        silo={"audit": _consent(subject, score_range)},
        federation={},
        policy=Policy(disclosure=disclosure),
    )


def _consent(subject: AuditSubject, score_range: tuple[float, float]) -> dict[str, Any]:
    if isinstance(subject, SentModel):
        columns = [s.column for s in subject.task.sensitive if s.name in subject.audited]
        return {"label": subject.task.label, "sensitive": columns, "models": True}
    return subject.model_dump(mode="json", exclude_none=True) | {"score_range": list(score_range)}


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
    gate, superlink, *ports = free_ports(2 + len(files))
    for (name, csv), port in zip(sorted(files.items()), ports, strict=True):
        settings = {
            "name": name,
            "csv": str(csv.resolve()),
            "state": "state",
            "port": port,
            "server": f"127.0.0.1:{gate}",
            "ca": "../../certificates/ca.crt",
            "key": "key",
            **silo,
        }
        _write_silo(folder / "silos" / name, settings, policy)
    values = {
        **federation,
        "out": str(out.resolve()),
        "minimum": len(files),
        "server": {"host": "127.0.0.1", "port": gate, "superlink_port": superlink},
        "silos": {name: f"silos/{name}/key.pub" for name in sorted(files)},
    }
    (folder / "federation.toml").write_text(tomli_w.dumps(values), encoding="utf-8")
    return folder / "federation.toml"


def _write_silo(folder: Path, settings: dict[str, Any], policy: Policy) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "key").exists():
        make_key(folder / "key")
    (folder / "silo.toml").write_text(tomli_w.dumps(settings), encoding="utf-8")
    if not (folder / POLICY).exists():
        (folder / POLICY).write_text(policy_text(policy), encoding="utf-8")
