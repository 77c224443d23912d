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
from mfairfl.runs.config import Config
from mfairfl.runs.directory import RunDirectory
from mfairfl.runs.history import History
from mfairfl.runs.outcome import finished_record, started_record
from mfairfl.runs.predictor import Predictor, load
from mfairfl.runs.prepare import ModuleFactory, federation_of, model_of, setup_of, table_of
from mfairfl.runs.record import DataFacts, FederationFacts, RunRecord, StartedRecord, Timing
from mfairfl.training.arithmetic import steady_arithmetic

__all__ = ["Run", "RunRequest", "run_requests"]


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
        metrics, ranges = record.metrics[split], record.intervals[split]
        lines = [
            f"Run of {record.strategy} on {record.data.name}: {len(metrics.by_client)} clients, "
            f"{record.rounds} rounds, seed {record.seed}"
        ]
        for name in ("accuracy", *record.goal):
            value, bounds = metrics[name], ranges.get(name)
            shown = "undefined" if value is None else f"{value:.4f}"
            level = f"{ranges.level:.0%} interval"
            shown += "" if bounds is None else f" ({level} {bounds[0]:.4f} to {bounds[1]:.4f})"
            lines.append(f"{split} {name}: {shown}")
        lines.append("in memory only" if self.path is None else f"files: {self.path}")
        return "\n  ".join(lines)


def run_requests(requests: Sequence[RunRequest]) -> list[Run]:
    """Carry out many runs side by side in this process, on one thread.

    Interrupted runs go on from their last checkpoint; finished ones are not repeated.
    """
    with ExitStack() as locks:
        runs: list[Run | None] = []
        begun: list[tuple[int, _Begun]] = []
        federations: dict[tuple[Any, ...], Federation] = {}
        for i, request in enumerate(requests):
            one = _begin(request, locks, federations)
            runs.append(one if isinstance(one, Run) else None)
            if isinstance(one, _Begun):
                begun.append((i, one))
        started = time.perf_counter()
        with steady_arithmetic():
            results = run_all([one.member for _, one in begun])
        seconds = round(time.perf_counter() - started, 3)
        for (i, one), result in zip(begun, results, strict=True):
            timing = Timing(train_seconds=seconds, runs_at_once=len(begun))
            runs[i] = _end(one, result, timing)
        return [run for run in runs if run is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Begun:
    """A run that is prepared and claimed, but not finished."""

    member: Member
    started: StartedRecord
    directory: RunDirectory | None


def _begin(
    request: RunRequest, locks: ExitStack, federations: dict[tuple[Any, ...], Federation]
) -> _Begun | Run:
    """Prepare a run, or return it if its directory already holds the result."""
    federation = _federation(request, federations)
    started = started_record(
        request.config,
        data=DataFacts(
            name=federation.table_name, sha256=federation.sha256, rows=len(federation.pool)
        ),
        task=federation.task,
        federation=FederationFacts.model_validate(federation.summary()),
        module=None if request.module is None else _name(request.module),
    )
    model = model_of(request.config, federation.pool.X.shape[1], request.module)
    setup = setup_of(request.config, federation, model)
    callbacks, state, directory = request.callbacks, None, None
    if request.out is not None:
        directory = RunDirectory(request.out)
        locks.enter_context(directory.locked())
        finished = directory.claim(started)
        if finished is not None:
            predictor = load(request.out, model=request.module)
            return Run(record=finished, predictor=predictor, path=request.out)
        directory.write_encoder(federation.encoder)
        checkpoints = directory.checkpoints(started.identity)
        state = checkpoints.latest()
        # The checkpoint comes last of all: it is what makes the round count.
        callbacks = (*request.callbacks, History(directory.path), checkpoints)
    member = Member(
        setup=setup, model=model, federation=federation, state=state, callbacks=callbacks
    )
    return _Begun(member=member, started=started, directory=directory)


def _federation(request: RunRequest, federations: dict[tuple[Any, ...], Federation]) -> Federation:
    """Return the run's clients; runs on the same data, split and seed share them."""
    config = request.config
    if request.rows is not None:
        _refuse("data", config.data, "the rows are given already")
    if isinstance(request.rows, Federation):
        _refuse("clients", config.clients, "the clients are given already")
        return request.rows
    parts = (config.data, config.task, config.clients, config.seed)
    key = (id(request.rows), *(str(part) for part in parts))
    if key not in federations:
        table = table_of(config) if request.rows is None else request.rows
        federations[key] = federation_of(config, table)
    return federations[key]


def _refuse(section: str, settings: BaseModel, why: str) -> None:
    """Refuse settings that could have no effect."""
    for key, default in type(settings)():
        if getattr(settings, key) != default:
            raise ConfigError(f"{section}.{key}: {why}; leave it out")


def _end(begun: _Begun, result: Result, timing: Timing) -> Run:
    setup, federation = begun.member.setup, begun.member.federation
    predictor = Predictor(
        model=begun.member.model,
        encoder=federation.encoder,
        task=federation.task,
        members=result.served.members,
        weights=result.served.weights,
        kind=result.served.kind,
        clients=result.served.clients,
        thresholds=result.served.thresholds,
    )
    directory, files = begun.directory, {}
    if directory is not None:
        directory.write_model(result.served)
        files = directory.digests()
    model = begun.member.model
    record = finished_record(begun.started, setup, model, result, timing=timing, files=files)
    if directory is not None:
        record.write(directory.path)
    path = None if directory is None else directory.path
    return Run(record=record, predictor=predictor, path=path)


def _name(module: ModuleFactory) -> str:
    return f"{getattr(module, '__module__', '?')}:{getattr(module, '__qualname__', '?')}"
