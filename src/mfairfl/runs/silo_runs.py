"""A run over silos: enrol, train, and the same run directory as any other run.

What was agreed is kept in enrolment.json. A server that is restarted does not enrol again: the
clients still hold their encoded rows, and the run is resumed at its last completed round.

A run with a policy is carried out on this machine as it is over several: every client answers
messages from a file of its own, in this process, and withholds what the policy says. So it has the
bytes of a deployment under that policy.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pydantic import ValidationError

from mfairfl.coordinator.enrolment import Enrolled, EnrolmentTerms, enrol
from mfairfl.coordinator.run import drive
from mfairfl.coordinator.transport import Transport
from mfairfl.data import SPLITS, Federation, Sensitive, Table, Task
from mfairfl.engine.loop import Callback, Result, first_state
from mfairfl.engine.state import Refusal
from mfairfl.errors import (
    ConfigError,
    MfairflError,
    RunDirectoryError,
    first_problem,
    require_known,
)
from mfairfl.fairness.cells import Cells
from mfairfl.files import make_private_folder, write_atomically
from mfairfl.plugins import MODELS
from mfairfl.runs.config import ClientsConfig, Config, DataConfig
from mfairfl.runs.directory import RunDirectory
from mfairfl.runs.execute import Run, RunRequest
from mfairfl.runs.history import History
from mfairfl.runs.outcome import finish_run, started_record
from mfairfl.runs.predictor import load
from mfairfl.runs.prepare import federation_of, model_of, setup_for, table_of
from mfairfl.runs.record import (
    ClientFacts,
    DisclosureFacts,
    FederationFacts,
    RunRecord,
    StartedRecord,
    Timing,
    TreatedFacts,
    WithheldCell,
)
from mfairfl.runs.silo_consent import consent_of
from mfairfl.silo.policy import Policy
from mfairfl.silo.responder import Responder
from mfairfl.silo.silo_file import SiloSettings
from mfairfl.strategies.base import Summary
from mfairfl.wire.audit_messages import SentModel
from mfairfl.wire.enrolment_messages import ModelTerms
from mfairfl.wire.packing import Packet

_LONGEST_NAME = 80  # characters of a strategy's name in that of a run


@dataclass(frozen=True, slots=True, kw_only=True)
class FederatedRequest:
    """A run to be made over clients elsewhere.

    Parameters
    ----------
    clients : tuple of str
        The clients that may take part.
    minimum : int
        How many of them must take part in every round.
    out : Path
        Run directory.
    most_rows : int, optional
        Rows that no client has: one that claims more stays out.
    """

    config: Config
    clients: tuple[str, ...]
    minimum: int
    out: Path
    most_rows: int | None = None


def run_name(config: Config) -> str:
    """Return the name under which clients keep what belongs to a run with this configuration.

    It is the name of a folder: other characters of a strategy's name are replaced.

    Examples
    --------
    >>> from mfairfl.runs.config import make_config
    >>> run_name(make_config({"strategy": {"name": "fedmgda+"}})).partition("-")[0]
    'fedmgda_'
    """
    text = json.dumps(config.model_dump(mode="json"), sort_keys=True)
    plain = re.sub(r"[^\w.-]", "_", config.strategy.name)[:_LONGEST_NAME]
    return f"{plain}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def run_federated(
    request: FederatedRequest, transport: Transport, callbacks: Sequence[Callback] = ()
) -> RunRecord:
    """Carry out a run, or resume it, and return its record."""
    config, directory = request.config, RunDirectory(request.out)
    agreed = request.out / "enrolment.json"
    with directory.locked():
        enrolled = _read_enrolment(agreed) if agreed.exists() else _enrol(request, transport)
        started = _started(config, enrolled)
        finished = directory.claim(started)
        if finished is not None:
            return finished
        write_atomically(agreed, enrolled.model_dump_json(indent=1).encode())
        directory.write_encoder(enrolled.encoder)
        summary = Summary(
            counts=enrolled.counts["train"],
            attributes=enrolled.attributes,
            goal=config.goal(tuple(a.name for a in enrolled.attributes)),
            withheld={name: d.rows["train"] for name, d in enrolled.disclosure.items()},
        )
        model = model_of(config, len(enrolled.encoder.feature_names))
        setup = setup_for(config, size=model.size, summary=summary, enrolled=enrolled.counts)
        checkpoints = directory.checkpoints(started.identity)
        state = checkpoints.latest(setup) or first_state(setup, model)
        watchers = (*callbacks, History(directory.path), checkpoints)
        began = time.perf_counter()
        result = drive(setup, state, transport, minimum=request.minimum, callbacks=watchers)
        seconds = round(time.perf_counter() - began, 3)
        return finish_run(
            started,
            setup,
            model,
            _without_personal(result, state.weights),
            timing=Timing(train_seconds=seconds, runs_at_once=1),
            directory=directory,
        )


def _enrol(request: FederatedRequest, transport: Transport) -> Enrolled:
    config = request.config
    if config.task is None:
        raise ConfigError("[task]: clients with files of their own need one that all agree on")
    terms = EnrolmentTerms(
        task=config.task,
        seed=config.seed,
        model=ModelTerms(kind=config.model.kind, hidden=config.model.widths),
        encoder=config.encoder,
        test=config.clients.test,
        validation=config.clients.validation,
        most_rows=request.most_rows,
    )
    return enrol(transport, request.clients, terms, minimum=request.minimum)


def _read_enrolment(path: Path) -> Enrolled:
    try:
        return Enrolled.model_validate_json(path.read_bytes())
    except ValidationError as error:
        problem = first_problem(error)
    except MfairflError as error:  # a task that contradicts itself
        problem = str(error)
    raise RunDirectoryError(
        f"{path}: not what this version agrees on ({problem}); restore it or choose another out"
    )


def _started(config: Config, enrolled: Enrolled) -> StartedRecord:
    """Return the record of a run over clients whose rows stay with them."""
    sums = "".join(f"{name} {digest}\n" for name, digest in sorted(enrolled.sha256.items()))
    digest = hashlib.sha256(sums.encode()).hexdigest()
    clients = [
        ClientFacts(
            name=name,
            rows=sum(enrolled.rows(name, split) for split in SPLITS),
            **{split: enrolled.rows(name, split) for split in SPLITS},
        )
        for name in sorted(enrolled.sha256)
    ]
    facts = FederationFacts(
        table="silos",
        sha256=digest,
        scheme="silos",
        seed=config.seed,
        features=len(enrolled.encoder.feature_names),
        notes=list(enrolled.notes),
        warnings=[
            *(f"{name} stays out: {why}" for name, why in enrolled.refused.items()),
            *enrolled.warnings,
        ],
        treatment=[TreatedFacts(**one._asdict()) for one in enrolled.treatment],
        clients=clients,
        disclosure={name: _disclosed(enrolled, name) for name in sorted(enrolled.sha256)},
    )
    return started_record(config, enrolled.task, facts)


def _disclosed(enrolled: Enrolled, client: str) -> DisclosureFacts:
    """Return what a client withholds."""
    silo, cells = enrolled.disclosure[client], Cells(enrolled.attributes)
    names = [attribute.name for attribute in enrolled.attributes]
    return DisclosureFacts(
        policy_sha256=silo.policy,
        min_rows=silo.floor,
        withheld=[
            WithheldCell(
                split=split, cell=dict(zip(names, cells.decode(cell), strict=True)), label=label
            )
            for split in SPLITS
            for cell, label in silo.hidden[split]
        ],
        rows_withheld=silo.rows,
    )


def _without_personal(result: Result, weights: np.ndarray) -> Result:
    """Serve the server's model where each client keeps its own: those never leave them."""
    if result.served.kind != "personal":
        return result
    served = replace(
        result.served,
        kind="single",
        members=np.atleast_2d(weights),
        weights=np.ones(1),
        names=("server",),
        clients=(),
        note="each client is served by the model on its own disk; this one is the server's",
    )
    return replace(result, served=served)


# ------------------------------------------------------------------ silos on this machine


def run_under_policy(request: RunRequest, policy: Policy) -> Run:
    """Carry out a run whose clients disclose what a policy allows, or resume it.

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
    federated = FederatedRequest(
        config=plain, clients=tuple(sorted(files)), minimum=len(files), out=out
    )
    transport = _InProcess(silos, run_name(plain))
    return run_federated(federated, transport, request.callbacks)


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
    features = set(table.X.columns)
    sensitive = tuple(
        s if s.column in features else Sensitive(column=s.name, groups=s.groups)
        for s in task.sensitive
    )
    return task.model_copy(update={"client": None, "ignore": (), "sensitive": sensitive})


def write_silo_files(table: Table, federation: Federation, folder: Path) -> dict[str, Path]:
    """Write each client's rows, in the table's order, so that its split is the same."""
    task, files = table.task, {}
    values = pd.Series([task.unfavourable, task.favourable])
    frame = table.X.assign(**{task.label: values.to_numpy()[table.y]})
    for column, attribute in enumerate(table.attributes):
        if task.sensitive[column].column not in table.X.columns:
            names = pd.Series(attribute.groups).to_numpy()
            frame[attribute.name] = names[table.groups[:, column]]
    for client in federation.clients:
        rows = sorted(row for part in SPLITS for row in client.shard(part).rows.tolist())
        path = folder / client.name / "rows.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        frame.iloc[rows].to_csv(path, index=False)
        files[client.name] = path
    return files


# ------------------------------------------------------------------ models that silos are sent


def model_to_send(run: str | Path, sensitive: Sequence[str] = ()) -> SentModel:
    """Return the model that a run serves, for an audit over silos.

    Parameters
    ----------
    run : path
        Run directory.
    sensitive : sequence of str
        Names of the attributes to compare; by default all of the run's task.

    Examples
    --------
    >>> model_to_send("runs/adult", ["sex"]).audited  # doctest: +SKIP
    ('sex',)
    """
    directory = RunDirectory(run)
    record = RunRecord.read(directory.path)
    served, encoder = directory.read_model(record.files)
    if served.kind == "personal":
        raise RunDirectoryError(
            f"{directory.path}: each client has a model of its own, which is not sent to others; "
            "audit its predictions instead"
        )
    attributes = [s.name for s in record.task.sensitive]
    require_known("sensitive attribute", sensitive, attributes, where=str(directory.path))
    return SentModel(
        task=record.task.model_copy(update={"client": None}),
        encoder=encoder,
        terms=_terms(record, directory.path),
        combined=served.kind,
        members=served.members,
        weights=served.weights,
        thresholds=served.thresholds,
        audited=tuple(name for name in attributes if name in (sensitive or attributes)),
    )


def _terms(record: RunRecord, path: Path) -> ModelTerms:
    if record.model.kind == "mlp":
        return ModelTerms(hidden=record.model.hidden)
    model = record.config.get("model")
    kind = model.get("kind") if isinstance(model, dict) and "factory" not in model else None
    if not isinstance(kind, str):
        raise RunDirectoryError(
            f"{path}: trained with a module that is code, which silos are not sent; register it "
            "under a name that silos list in extensions of silo.toml"
        )
    return ModelTerms(kind=kind)
