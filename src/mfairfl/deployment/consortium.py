"""The folder that a consortium starts from: settings, services, a guide."""

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from string import Template

import tomli_w

from mfairfl.deployment.settings import load_federation
from mfairfl.engine.defence import recommended
from mfairfl.errors import ConfigError
from mfairfl.files import load_toml
from mfairfl.runs.config import make_config
from mfairfl.silo.policy import POLICY, Policy, policy_text
from mfairfl.silo.silo_file import load_silo

_TEMPLATES = Path(__file__).parent / "templates"
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")


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
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder}: is not empty; choose another folder")
    if len(silos) < 2:
        raise ConfigError("--silo: a federation has at least two silos; name each of them")
    for name in silos:
        if not _NAME.fullmatch(name):
            rule = "use lower-case letters, digits, - and _ (it names files)"
            raise ConfigError(f"--silo {name}: {rule}")
        if silos.count(name) > 1:
            raise ConfigError(f"--silo {name}: given twice")
    names = sorted(silos)
    texts = {"host": host, "port": str(port), "silos": ", ".join(names)}
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
        _fill(silo / "silo.toml", texts | {"name": name})
        _fill(silo / "mfairfl-silo.service", texts | {"name": name})
        (silo / POLICY).write_text(policy_text(Policy()), encoding="utf-8")
        shutil.copyfile(coordinator / "run.toml", silo / "run.toml")
        load_silo(silo / "silo.toml")  # refuses an invalid host
    _fill(folder / "GUIDE.md", texts)
    load_federation(coordinator / "federation.toml")


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
