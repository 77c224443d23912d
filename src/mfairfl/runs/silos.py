"""Clients as silos on this machine: each with a file of its own, and with a policy of its own.

A run with a policy is carried out here as it is over machines: every client answers messages from
its file, in this process, and withholds what the policy says. So it has the bytes of a deployment
under that policy.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from mfairfl.data import SPLITS, Federation, Sensitive, Table, Task
from mfairfl.engine.state import Refusal
from mfairfl.errors import ConfigError, MfairflError
from mfairfl.files import make_private_folder
from mfairfl.plugins import MODELS
from mfairfl.runs.config import ClientsConfig, Config, DataConfig
from mfairfl.runs.consent import consent_of
from mfairfl.runs.execute import Run, RunRequest
from mfairfl.runs.federated import FederatedRequest, run_federated, run_name
from mfairfl.runs.predictor import load
from mfairfl.runs.prepare import federation_of, table_of
from mfairfl.runs.record import RunRecord
from mfairfl.silo.policy import Policy
from mfairfl.silo.responder import Responder
from mfairfl.silo.silo_file import SiloSettings
from mfairfl.wire.packing import Packet


def run_under_policy(request: RunRequest, policy: Policy) -> Run:
    """Carry out a run whose clients let out what a policy says, or resume it.

    The clients' files and what they keep are in the folder ``silos`` of the run.
    """
    if isinstance(request.rows, Federation):
        raise ConfigError(
            "policy: clients with a policy are files of rows; pass a Table or a frame"
        )
    if request.module is not None:
        raise ConfigError(
            "policy: clients build the model by name; pass model='package.module:Name'"
        )
    with ExitStack() as stack:
        out = request.out
        if out is None:
            out = Path(stack.enter_context(tempfile.TemporaryDirectory()), "run")
        record = _carried_out(request, out, policy)
        predictor = load(out, model=MODELS.get(request.config.model.kind))
        return Run(record=record, predictor=predictor, path=request.out)


def _carried_out(request: RunRequest, out: Path, policy: Policy) -> RunRecord:
    config = request.config
    table = request.rows if isinstance(request.rows, Table) else table_of(config)
    plain = silo_config(config, silo_task(table))
    folder = make_private_folder(make_private_folder(out) / "silos")
    files = write_silo_files(table, federation_of(config, table), folder)
    consent = consent_of(plain, "the run's settings")
    silos = {
        name: Responder(
            SiloSettings(name=name, csv=file, state=file.parent / "state"), policy, consent
        )
        for name, file in files.items()
    }
    wanted = FederatedRequest(
        config=plain, clients=tuple(sorted(files)), minimum=len(files), out=out
    )
    transport = _InProcess(silos, run_name(plain))
    return run_federated(wanted, transport, request.callbacks)


@dataclass(frozen=True, slots=True)
class _InProcess:
    """Carries messages to silos in this process."""

    silos: Mapping[str, Responder]
    run: str

    def exchange(self, asks: Mapping[str, Packet]) -> Mapping[str, Packet | Refusal]:
        """Return each silo's answer, or why there is none."""
        return {name: self._answer(name, packet) for name, packet in asks.items()}

    def _answer(self, name: str, packet: Packet) -> Packet | Refusal:
        try:
            return self.silos[name].handle(self.run, packet)
        except MfairflError as error:
            return Refusal(str(error))


def silo_config(config: Config, task: Task | None) -> Config:
    """Return the configuration for silos with their own files."""
    if task is None and config.task is None:
        raise ConfigError("--silo needs a [task] in the TOML file (see `mfairfl init`)")
    clients = ClientsConfig(test=config.clients.test, validation=config.clients.validation)
    update: dict[str, Any] = {
        "data": DataConfig(),
        "task": task or config.task,
        "clients": clients,
    }
    return config.model_copy(update=update)


def silo_task(table: Table) -> Task:
    """Return the task of files that hold a table's features, groups and labels only."""
    task = table.task
    held = set(table.X.columns)
    sensitive = tuple(
        s if s.column in held else Sensitive(column=s.name, groups=s.groups)
        for s in task.sensitive
    )
    return task.model_copy(update={"client": None, "ignore": (), "sensitive": sensitive})


def write_silo_files(table: Table, federation: Federation, folder: Path) -> dict[str, Path]:
    """Write each client's rows, in the table's order, so that its split is the same."""
    task, found = table.task, {}
    values = pd.Series([task.unfavourable, task.favourable])
    whole = table.X.assign(**{task.label: values.to_numpy()[table.y]})
    for column, attribute in enumerate(table.attributes):
        if task.sensitive[column].column not in table.X.columns:
            names = pd.Series(attribute.groups).to_numpy()
            whole[attribute.name] = names[table.groups[:, column]]
    for client in federation.clients:
        rows = sorted(row for part in SPLITS for row in client.shard(part).rows.tolist())
        path = folder / client.name / "rows.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        whole.iloc[rows].to_csv(path, index=False)
        found[client.name] = path
    return found
