"""A run over silos: agree, enrol, train, and the same run directory as any other run.

What was agreed is kept in enrolment.json. A server that is restarted does not enrol again: the
clients still hold their encoded rows, and the run is resumed at its last completed round.

A run with a policy is carried out on this machine as it is over several: every client answers
messages from a file of its own, in this process, and withholds what the policy says. So it has the
bytes of a deployment under that policy.
"""

import hashlib
import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mfairfl.coordinator.enrolment import Enrolled, EnrolmentTerms, enrol
from mfairfl.coordinator.transport import Transport, drive
from mfairfl.data import SPLITS, Federation, Sensitive, Table, Task
from mfairfl.engine.loop import Callback, Result, first_state
from mfairfl.engine.output import single
from mfairfl.engine.state import Refusal
from mfairfl.errors import ConfigError, MfairflError
from mfairfl.fairness.cells import Cells
from mfairfl.fairness.notions import is_built_in
from mfairfl.files import load_toml, make_private_folder, write_atomically
from mfairfl.plugins import MODELS
from mfairfl.runs import record as facts
from mfairfl.runs.config import ClientsConfig, Config, DataConfig, make_config
from mfairfl.runs.directory import RunDirectory
from mfairfl.runs.execute import Run, RunRequest, federation_of, model_of, setup_for, table_of
from mfairfl.runs.history import History
from mfairfl.runs.outcome import finish_run, started_record
from mfairfl.runs.predictor import load
from mfairfl.silo.policy import Policy
from mfairfl.silo.refusals import RunConsent
from mfairfl.silo.responder import Responder
from mfairfl.silo.silo_file import SiloSettings, follow_extensions
from mfairfl.strategies.base import Summary
from mfairfl.strategies.registry import METHODS
from mfairfl.strict_json import fingerprint
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
    plain = re.sub(r"[^\w.-]", "_", config.strategy.name)[:_LONGEST_NAME]
    return f"{plain}-{fingerprint(config.model_dump(mode='json'))[:16]}"


def run_federated(
    request: FederatedRequest, transport: Transport, callbacks: Sequence[Callback] = ()
) -> facts.RunRecord:
    """Carry out a run, or resume it, and return its record."""
    config, directory = request.config, RunDirectory(request.out)
    agreed = request.out / "enrolment.json"
    with directory.locked():
        if agreed.exists():
            remedy = "restore it or choose another out"
            plain = facts.read_json(agreed, remedy)
            enrolled = facts.validated(Enrolled, plain, agreed, remedy)
        else:
            enrolled = _enrol(request, transport)
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
            timing=facts.Timing(train_seconds=seconds, runs_at_once=1),
            directory=directory,
        )


def _enrol(request: FederatedRequest, transport: Transport) -> Enrolled:
    config, task = request.config, request.config.applied_task
    if task is None:
        raise ConfigError("[task]: clients with files of their own need one that all agree on")
    terms = EnrolmentTerms(
        task=task,
        seed=config.seed,
        model=ModelTerms(kind=config.model.kind, hidden=config.model.widths),
        encoder=config.encoder,
        test=config.clients.test,
        validation=config.clients.validation,
        most_rows=request.most_rows,
    )
    return enrol(transport, request.clients, terms, minimum=request.minimum)


def _started(config: Config, enrolled: Enrolled) -> facts.StartedRecord:
    """Return the record of a run over clients whose rows stay with them."""
    names = sorted(enrolled.sha256)
    sums = "".join(f"{name} {enrolled.sha256[name]}\n" for name in names)
    refused = [f"{name} stays out: {why}" for name, why in enrolled.refused.items()]
    clients = []
    for name in names:
        rows = {split: enrolled.rows(name, split) for split in SPLITS}
        clients.append(facts.ClientFacts(name=name, rows=sum(rows.values()), **rows))
    federation = facts.FederationFacts(
        table="silos",
        sha256=hashlib.sha256(sums.encode()).hexdigest(),
        scheme="silos",
        seed=config.seed,
        features=len(enrolled.encoder.feature_names),
        notes=list(enrolled.notes),
        warnings=[*refused, *enrolled.warnings],
        treatment=[facts.TreatedFacts(**line._asdict()) for line in enrolled.treatment],
        clients=clients,
        disclosure={name: _disclosed(enrolled, name) for name in names},
    )
    return started_record(config, enrolled.task, federation)


def _disclosed(enrolled: Enrolled, client: str) -> facts.DisclosureFacts:
    """Return what a client withholds."""
    silo, cells = enrolled.disclosure[client], Cells(enrolled.attributes)
    names = [attribute.name for attribute in enrolled.attributes]
    withheld = [
        facts.WithheldCell(
            split=split, cell=dict(zip(names, cells.names[cell], strict=True)), label=label
        )
        for split in SPLITS
        for cell, label in silo.hidden[split]
    ]
    return facts.DisclosureFacts(
        policy_sha256=silo.policy, min_rows=silo.floor, withheld=withheld, rows_withheld=silo.rows
    )


def _without_personal(result: Result, weights: np.ndarray) -> Result:
    """Serve the server's model where each client keeps its own: those never leave them."""
    if result.served.kind != "personal":
        return result
    note = "each client is served by the model on its own disk; this one is the server's"
    return replace(result, served=single("server", weights, note))


# ------------------------------------------------------------------ what silos agreed to


def consent_of(config: Config, source: str) -> RunConsent:
    """Return what clients agree to that take part in a run with this configuration.

    Examples
    --------
    >>> config = make_config({"task": {"label": "y", "favourable": 1, "sensitive": ["sex"]}})
    >>> consent_of(config, "run.toml").rounds
    40
    """
    task = config.applied_task
    if task is None:
        raise ConfigError(f"{source}: no [task]; copy the one that was agreed on")
    return RunConsent(
        source=source,
        task=task,
        model=ModelTerms(kind=config.model.kind, hidden=config.model.widths),
        recipe=config.training.recipe(),
        rounds=config.server_rounds(),
        goal=config.goal(tuple(s.name for s in task.sensitive)),
        strategy=config.strategy.create(),
        rule=config.output_rule(),
        by_group=config.demand().reads_group,
    )


def read_consent(silo: SiloSettings) -> RunConsent | None:
    """Return what a silo agreed to; None if its silo.toml names no file (``task``).

    Nothing is imported but what the silo lists in its ``extensions``. A method of others runs at
    the coordinator; without its code here, it is held to ``[training]`` alone.
    """
    if silo.task is None:
        return None
    values, source = load_toml(silo.task), silo.task.name

    def named(section: str, key: str) -> Any:
        table = values.get(section)
        return table.get(key) if isinstance(table, dict) else None

    notion, method = named("fairness", "notion"), named("strategy", "name")
    notions = notion if isinstance(notion, list) else [notion]
    names = [("model.kind", named("model", "kind"), MODELS.is_builtin)]
    names += [("fairness.notion", name, is_built_in) for name in notions]
    listed = follow_extensions(silo) | {*silo.extensions}
    for key, name, built_in in names:
        if isinstance(name, str) and not built_in(name) and name not in listed:
            raise ConfigError(
                f"{silo.task}: {key} = '{name}' is not part of mfairfl: install it here and list "
                "it in extensions of silo.toml, if you agree to it"
            )
    if not isinstance(method, str) or METHODS.is_builtin(method):
        return consent_of(make_config(values, str(silo.task)), source)
    plain = values | {"strategy": {"name": "fedavg"}}
    return replace(consent_of(make_config(plain, str(silo.task)), source), strategy=None)


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
    config = request.config
    table = table_of(config, request.rows)
    temporary = tempfile.TemporaryDirectory() if request.out is None else nullcontext(request.out)
    with temporary as out_folder:
        out = Path(out_folder)
        plain = silo_config(config, silo_task(table))
        folder = make_private_folder(make_private_folder(out) / "silos")
        files = write_silo_files(table, federation_of(config, table), folder)
        consent = consent_of(plain, "the run's settings")
        silos = {}
        for name, file in files.items():
            settings = SiloSettings(name=name, csv=file, state=file.parent / "state")
            silos[name] = Responder(settings, policy, consent)
        federated = FederatedRequest(
            config=plain, clients=tuple(sorted(files)), minimum=len(files), out=out
        )
        transport = _InProcess(silos, run_name(plain))
        record = run_federated(federated, transport, request.callbacks)
        predictor = load(out, model=MODELS.get(config.model.kind))
        scores = RunDirectory(out).read_scores(record)
        return Run(record=record, predictor=predictor, path=request.out, kept_scores=scores)


@dataclass(frozen=True, slots=True)
class _InProcess:
    """Carries messages to silos in this process."""

    silos: Mapping[str, Responder]
    run: str

    def exchange(self, asks: Mapping[str, Packet]) -> Mapping[str, Packet | Refusal]:
        """Return each silo's answer, or why there is none."""
        answers: dict[str, Packet | Refusal] = {}
        for name, packet in asks.items():
            try:
                answers[name] = self.silos[name].handle(self.run, packet)
            except MfairflError as error:
                answers[name] = Refusal(str(error))
        return answers


def silo_config(config: Config, task: Task | None) -> Config:
    """Return the configuration for silos with their own files."""
    if task is None and config.task is None:
        raise ConfigError("--silo needs a [task] in the TOML file (see `mfairfl init`)")
    clients = ClientsConfig(test=config.clients.test, validation=config.clients.validation)
    changes = {"data": DataConfig(), "task": task or config.task, "clients": clients}
    return config.model_copy(update=changes)


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
