"""From a configuration to a finished run: prepare, lock, resume, train side by side, record."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import BaseModel

from mfairfl.data import (
    DATASETS,
    SPLITS,
    Federation,
    Split,
    Table,
    load_dataset,
    partition,
    read_table,
)
from mfairfl.data.coding import Treated
from mfairfl.data.files import FileContent, read_file
from mfairfl.data.quality import SERIOUS, copies_of, trap_lines, traps_of
from mfairfl.engine.embedded import Member, counts_of, run_all, summarize
from mfairfl.engine.loop import Callback, Result
from mfairfl.engine.output import Output
from mfairfl.engine.state import Setup
from mfairfl.errors import ConfigError
from mfairfl.fairness.worsened import Worsened, worsened
from mfairfl.models import MLP, Model, ModuleModel
from mfairfl.plugins import MODELS, ModuleFactory
from mfairfl.runs.config import Config, OutputConfig, StrategyConfig
from mfairfl.runs.directory import BASELINE, RunDirectory
from mfairfl.runs.history import History
from mfairfl.runs.outcome import finish_run, started_record
from mfairfl.runs.predictor import Predictor, load
from mfairfl.runs.record import FederationFacts, RunRecord, StartedRecord, Timing, reported
from mfairfl.runs.stored_scores import Scores, scores_of
from mfairfl.runs.workers import processors
from mfairfl.strategies.base import Summary
from mfairfl.training.execution import steady_arithmetic

if TYPE_CHECKING:
    from mfairfl.experiments.tradeoff import Tradeoff
    from mfairfl.fairness.fitting import By


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
            if self.config.fairness.blind:
                raise ConfigError("fairness.blind: the rows are encoded; partition table.blind()")
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
    baseline : Run, optional
        FedAvg on the same rows, if it was trained beside.
    kept_scores : mapping
        What clients counted of the model's scores, if no directory holds it.

    Examples
    --------
    >>> import mfairfl
    >>> run = mfairfl.train("adult", notion="eo", rounds=2)  # doctest: +SKIP
    >>> run.metrics["test"]["equalized_odds_violation"]  # doctest: +SKIP
    >>> run.predictor.predict("new-people.csv")  # doctest: +SKIP
    """

    record: RunRecord
    predictor: Predictor
    path: Path | None = None
    baseline: Run | None = None
    kept_scores: Scores = field(default_factory=dict, repr=False)

    @property
    def scores(self) -> Scores:
        """For each split, each client's rows by (cell, label, bin of the served model's logit).

        A mixture has none, nor has a run of a version before 0.10.
        """
        if self.path is None:
            return self.kept_scores
        return RunDirectory(self.path).read_scores(self.record)

    def tradeoff(
        self,
        notions: str | Sequence[str] = (),
        *,
        by: By | None = None,
        local_tolerance: float | Literal["none"] | None = None,
        local: bool = False,
        points: int = 20,
        randomise: bool = False,
    ) -> Tradeoff:
        """Return what other tolerances would cost: accuracy against violation, without training.

        Parameters
        ----------
        notions : str or sequence of str
            By default those that the run was asked to meet.
        by : {"none", "group", "client", "both"}, optional
            What thresholds may depend on; by default the group, unless the run is blind to it.
        local_tolerance : float or "none", optional
            The largest violation at each client, whatever the tolerance; must be stated where
            thresholds depend on the client.
        local : bool
            Whether tolerances are for the rows of each client, in place of everyone's together.
        points : int
            How many tolerances.
        randomise : bool
            Whether some people may be decided by chance.

        Examples
        --------
        >>> print(run.tradeoff("eo"))  # doctest: +SKIP
        >>> run.tradeoff(["dp", "eo"]).plot("tradeoff.svg")  # doctest: +SKIP
        """
        from mfairfl.experiments.tradeoff import tradeoff  # noqa: PLC0415 - a layer above

        names = [notions] if isinstance(notions, str) else notions
        return tradeoff(
            [self],
            names,
            by=by,
            local_tolerance=local_tolerance,
            local=local,
            points=points,
            randomise=randomise,
        )

    @property
    def metrics(self) -> dict[str, Any]:
        """The numbers of each split by name, as in run.json."""
        return self.record.metrics.model_dump(mode="json")

    @property
    def worsened(self) -> list[Worsened] | None:
        """What is worse than under the baseline by more than chance explains; None without one."""
        if self.baseline is None:
            return None
        records, split = (self.baseline.record, self.record), self.record.reported
        return worsened(*(record.tallies[split] for record in records))

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
        if self.baseline is not None:
            accuracy = self.baseline.record.table(split)["accuracy"].value
            lines.append(f"baseline fedavg: {split} accuracy {accuracy:.4f}")
            lines += [f"worse than fedavg: {item}" for item in self.worsened or ()]
        lines.append("in memory only" if self.path is None else f"files: {self.path}")
        return "\n  ".join(lines)


def with_baseline(request: RunRequest, wanted: bool | None) -> list[RunRequest]:
    """Return a request, and that of FedAvg on the same rows with the same seed and budget.

    Parameters
    ----------
    wanted : bool, optional
        Whether there is to be a baseline. By default there is for rows of the user's own, since
        nobody has published what fairness costs on them.
    """
    config, rows = request.config, request.rows
    plain = config.strategy.name == "fedavg" and config.output_rule() in ("last", "average")
    if plain and wanted:
        raise ConfigError("baseline: the run is FedAvg itself; leave baseline out")
    if wanted is None:
        in_memory = isinstance(rows, Table) and rows.name not in DATASETS.names()
        wanted = not plain and (config.data.csv is not None or in_memory)
    if not wanted:
        return [request]
    changed = {"strategy": StrategyConfig(name="fedavg"), "output": OutputConfig()}
    out = None if request.out is None else request.out / BASELINE
    config = config.model_copy(update=changed)
    return [request, replace(request, config=config, out=out, callbacks=())]


# ------------------------------------------------------------------ prepare


def content_of(config: Config) -> FileContent | None:
    """Read the file as it is, before the task is applied; None for data known by name."""
    csv = config.data.csv
    return None if csv is None else read_file(Path(csv), config.data.format)


def table_of(config: Config, rows: Table | None = None) -> Table:
    """Return the rows, or those the configuration names, as far as the model may see them."""
    data, task = config.data, config.applied_task
    if rows is not None:
        return rows.blind() if config.fairness.blind else rows
    if data.csv is not None and task is not None:
        return read_table(Path(data.csv), task.select(data.sensitive), **asdict(data.format))
    if data.name is None:
        raise ConfigError("no data: give data.name (see `mfairfl data list`) or data.csv")
    options: dict[str, Any] = dict(data.options)
    rows = load_dataset(data.name, data.path, sensitive=data.sensitive, task=task, **options)
    return rows.blind() if config.fairness.blind else rows


def federation_of(config: Config, table: Table) -> Federation:
    """Split the rows among clients as the configuration says."""
    clients = config.clients
    scheme = clients.scheme or ("iid" if table.clients is None else "column")
    return partition(
        table,
        scheme,
        seed=config.seed,
        clients=clients.count,
        test=clients.test,
        validation=clients.validation,
        fold=None if clients.folds is None else (clients.fold, clients.folds),
        encoder=config.encoder,
        **clients.options,
    )


def with_warnings(federation: Federation, table: Table) -> Federation:
    """Add what may mislead a reader of the results to a federation's notes and warnings."""
    lines = trap_lines(traps_of(table))
    copies = copies_of(table, federation)
    serious = [copies.line] * copies.serious + [line for kind, line in lines if kind in SERIOUS]
    notes = [line for kind, line in lines if kind not in SERIOUS]
    proxies = [line for kind, line in lines if kind == "proxy"]
    return replace(
        federation,
        notes=(*federation.notes, *notes),
        warnings=tuple(dict.fromkeys([*table.warnings, *serious, *federation.warnings])),
        treatment=(*federation.treatment, *(Treated("proxy", line) for line in proxies)),
    )


def model_of(config: Config, inputs: int, module: ModuleFactory | None = None) -> Model:
    """Build the model for this many encoded features."""
    factory = module or MODELS.get(config.model.kind)
    if factory is not None:
        return ModuleModel(factory, inputs)
    return MLP(inputs=inputs, hidden=config.model.widths)


def setup_of(config: Config, federation: Federation, model: Model) -> Setup:
    """Return what the loop needs, for clients whose rows are here."""
    names = tuple(attribute.name for attribute in federation.attributes)
    pooled = config.strategy.create().card.trains_on == "pooled"
    return setup_for(
        config,
        size=model.size,
        summary=summarize(federation, config.goal(names), pooled=pooled),
        enrolled={split: counts_of(federation, split) for split in SPLITS},
    )


def setup_for(
    config: Config,
    *,
    size: int,
    summary: Summary,
    enrolled: Mapping[Split, Mapping[str, np.ndarray]],
) -> Setup:
    """Return what the loop needs, wherever the clients with these rows are."""
    training = config.training
    splits: tuple[Split, ...] = tuple(
        split for split in SPLITS if any(rows.sum() for rows in enrolled[split].values())
    )
    measured = enrolled[reported(splits)].values()
    allowed = config.allowed(summary.constraints, measured, trained=summary.pooled)
    return Setup(
        strategy=config.strategy.create(),
        size=size,
        recipe=training.recipe(),
        rounds=config.server_rounds(),
        seed=config.seed,
        summary=replace(summary, goal=replace(summary.goal, dead_zone=allowed.dead_zone)),
        splits=splits,
        enrolled=enrolled,
        output=Output(rule=config.output_rule(), tolerance=allowed.output, demand=config.demand()),
        margin=allowed.margin,
        participation=training.participation,
        patience=training.patience,
        evaluate_every=training.evaluate_every,
        robust=config.robust,
    )


# ------------------------------------------------------------------ carry out


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
        if directory is None:
            return Run(record=record, predictor=predictor, kept_scores=scores_of(result))
        return Run(record=record, predictor=predictor, path=directory.path)


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
        parts = (config.data, config.applied_task, config.clients, config.encoder, config.seed)
        key = (id(request.rows), config.fairness.blind, *map(str, parts))
        if key not in federations:
            table = table_of(config, request.rows)
            federations[key] = with_warnings(federation_of(config, table), table)
        federation = federations[key]
    name = None
    if factory is not None:
        home, path = (getattr(factory, key, "?") for key in ("__module__", "__qualname__"))
        name = f"{home}:{path}"
    record = started_record(config, federation.task, FederationFacts.of(federation), name)
    model = model_of(config, federation.pool.inputs.width, factory)
    member = Member(
        setup=setup_of(config, federation, model),
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
