"""Carry out runs: prepare, lock, resume, train side by side, record."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from mfairfl.data import Federation, Table
from mfairfl.engine.embedded import Member, run_all
from mfairfl.engine.loop import Callback, Result
from mfairfl.errors import ConfigError
from mfairfl.plugins import MODELS, ModuleFactory
from mfairfl.runs import prepare
from mfairfl.runs.config import Config
from mfairfl.runs.directory import RunDirectory
from mfairfl.runs.history import History
from mfairfl.runs.outcome import finish_run, started_record
from mfairfl.runs.predictor import Predictor, load
from mfairfl.runs.record import FederationFacts, RunRecord, StartedRecord, Timing
from mfairfl.runs.workers import processors
from mfairfl.training.execution import steady_arithmetic


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """A run to be made: a configuration, and where its result goes.

    Parameters
    ----------
    out : Path, optional
        Run directory; None keeps the result in memory only.
    rows : Table or Federation, optional
        Data in memory, instead of what the configuration names.
    module : callable, optional
        Factory of a `torch.nn.Module`, instead of the configured model.
    """

    config: Config
    out: Path | None = None
    rows: Table | Federation | None = None
    module: ModuleFactory | None = None
    callbacks: tuple[Callback, ...] = ()

    def __post_init__(self) -> None:
        if self.rows is not None:
            _refuse("data", self.config.data, "the rows are given already")
        if isinstance(self.rows, Federation):
            _refuse("clients", self.config.clients, "the clients are given already")
            _refuse("encoder", self.config.encoder, "the rows are encoded already")


def _refuse(section: str, settings: BaseModel, reason: str) -> None:
    """Refuse settings that could have no effect."""
    for key, default in type(settings)():
        if getattr(settings, key) != default:
            raise ConfigError(f"{section}.{key}: {reason}; remove it")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A finished run.

    Parameters
    ----------
    record : RunRecord
        What run.json holds.
    predictor : Predictor
        The served model with its encoder.
    path : Path, optional
        The run directory, if there is one.
    """

    record: RunRecord
    predictor: Predictor
    path: Path | None = None

    @property
    def metrics(self) -> dict[str, Any]:
        """The numbers of each split by name, as in run.json."""
        return self.record.metrics.model_dump(mode="json")

    def __repr__(self) -> str:
        record, split = self.record, self.record.reported
        table = record.table(split)
        lines = [
            f"Run of {record.strategy} on {record.data.name}: {len(table.clients)} clients, "
            f"{record.rounds} rounds, seed {record.seed}",
            *(f"warning: {warning}" for warning in record.warnings),
        ]
        for name in ("accuracy", *record.goal):
            value, interval = table[name].value, table[name].interval
            line = f"{split} {name}: " + ("undefined" if value is None else f"{value:.4f}")
            if interval is not None:
                line += f" ({table.level:.0%} interval {interval[0]:.4f} to {interval[1]:.4f})"
            lines.append(line)
        lines.append("in memory only" if self.path is None else f"files: {self.path}")
        return "\n  ".join(lines)


def run_requests(requests: Sequence[RunRequest], *, workers: int | None = None) -> list[Run]:
    """Carry out many runs side by side in this process.

    Interrupted runs are resumed at their last checkpoint; finished ones are not repeated.

    Parameters
    ----------
    workers : int, optional
        Threads that the clients of the runs are spread over, by default one for each processor
        that this process may use. The results have the same bits for any number.
    """
    if workers is not None and workers < 1:
        raise ConfigError(f"workers must be at least 1, not {workers}")
    workers = workers or processors()
    with ExitStack() as locks:
        federations: dict[tuple[Any, ...], Federation] = {}
        runs = [_prepare(request, locks, federations) for request in requests]
        members = [run.member for run in runs if isinstance(run, _PreparedRun)]
        began = time.perf_counter()
        with steady_arithmetic():
            results = iter(run_all(members, workers=workers))
        seconds = round(time.perf_counter() - began, 3)
        timing = Timing(train_seconds=seconds, runs_at_once=len(members), workers=workers)
        return [run if isinstance(run, Run) else run.finish(next(results), timing) for run in runs]


@dataclass(frozen=True, slots=True, kw_only=True)
class _PreparedRun:
    """A run that is ready to be trained."""

    member: Member
    record: StartedRecord
    directory: RunDirectory | None

    def finish(self, result: Result, timing: Timing) -> Run:
        """Write model and record, and return the run."""
        member, directory = self.member, self.directory
        record = finish_run(
            self.record, member.setup, member.model, result, timing=timing, directory=directory
        )
        predictor = Predictor(
            model=member.model,
            encoder=member.federation.encoder,
            task=member.federation.task,
            served=result.served,
        )
        path = None if directory is None else directory.path
        return Run(record=record, predictor=predictor, path=path)


def _prepare(
    request: RunRequest, locks: ExitStack, federations: dict[tuple[Any, ...], Federation]
) -> _PreparedRun | Run:
    """Prepare a run, or return it if its directory already holds the result.

    Runs on the same data, split and seed share their `federations`.
    """
    config, factory = request.config, request.module
    if isinstance(request.rows, Federation):
        federation = request.rows
    else:
        parts = (config.data, config.task, config.clients, config.encoder, config.seed)
        key = (id(request.rows), *map(str, parts))
        if key not in federations:
            table = prepare.table_of(config) if request.rows is None else request.rows
            federations[key] = prepare.with_warnings(prepare.federation_of(config, table), table)
        federation = federations[key]
    name = None
    if factory is not None:
        home, path = (getattr(factory, key, "?") for key in ("__module__", "__qualname__"))
        name = f"{home}:{path}"
    record = started_record(config, federation.task, FederationFacts.of(federation), name)
    model = prepare.model_of(config, federation.pool.inputs.width, factory)
    member = Member(
        setup=prepare.setup_of(config, federation, model),
        model=model,
        federation=federation,
        callbacks=request.callbacks,
    )
    if request.out is None:
        return _PreparedRun(member=member, record=record, directory=None)
    directory = RunDirectory(request.out)
    locks.enter_context(directory.locked())
    finished = directory.claim(record)
    if finished is not None:
        predictor = load(request.out, model=factory or MODELS.get(config.model.kind))
        return Run(record=finished, predictor=predictor, path=request.out)
    directory.write_encoder(federation.encoder)
    checkpoints = directory.checkpoints(record.identity)
    member.state = checkpoints.latest(member.setup)
    # The checkpoint comes last of all: it is what makes the round count.
    member.callbacks = (*request.callbacks, History(directory.path), checkpoints)
    return _PreparedRun(member=member, record=record, directory=directory)
