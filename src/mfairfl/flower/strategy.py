"""mfairfl's strategies as a Flower `Strategy`, for apps with their own model and clients.

The round loop of the engines runs here too. Flower's rounds hand it the clients' answers and take
its requests from it: `configure_train` sends the plans it asks for, `aggregate_train` gives it the
updates, and the evaluation that follows is the measurement that the next round is planned from.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from logging import INFO
from typing import Any, TypeVar

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.common import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from mfairfl import fairness
from mfairfl.coordinator.transport import answers_of, log_left_out, read_replies, reasons_of
from mfairfl.data import SPLITS, Split
from mfairfl.engine.loop import federate
from mfairfl.engine.state import Answer, Ask, Refusal, RoundRecord, RunState, Setup, Train
from mfairfl.errors import ConfigError, FederationError, MessageError
from mfairfl.fairness.cells import Cells, Statistics
from mfairfl.fairness.constraints import Goal
from mfairfl.flower.client import Groups, attributes_of
from mfairfl.flower.grid import match_replies
from mfairfl.flower.records import PLAN, ModelLayout, plan_record, read_measurement
from mfairfl.strategies import available, create
from mfairfl.strategies import base as methods
from mfairfl.strategies.registry import hyper_parameters_of
from mfairfl.training.plan import Job, Recipe, Report

T = TypeVar("T")
Measured = Mapping[str, Mapping[Split, Statistics]]
"""Each client's sums and counts under one model, on the rows of each split that it sent."""


class FairStrategy(Strategy):
    """A strategy of mfairfl in a Flower app with its own clients and its own model.

    Clients are known by the names they send, so a node may come back under another number. Those
    that answer the first evaluation are enrolled. A client that does not answer an evaluation, or
    whose answer cannot be used, is left out of the next round, with the reason in the log, and may
    return later. The model has one logit per row and float32 weights.

    Parameters
    ----------
    strategy : str
        A name of `mfairfl.strategies.available()`; one that needs mfairfl's own clients is
        refused.
    sensitive : mapping of str to sequence of str
        The sensitive attributes and their groups; clients number cells by the same mapping.
    notion : str or sequence of str
        What should be equal across groups, such as "demographic_parity" or "equalized_odds".
    dead_zone : float
        Gaps up to here are not penalised.
    intersections : bool
        Whether intersections of the attributes are constrained as well.
    hyper_parameters : mapping, optional
        Hyper-parameters of the strategy.
    recipe : Recipe, optional
        Epochs, batch size, optimiser and rates that clients are asked to use.
    seed : int
        Seed of the server's random draws.
    fraction_train : float
        Share of the clients drawn for each round; all are evaluated.
    robust : str
        Against clients that lie: "auto", or a rule of the literature (docs/robustness.md).
    min_available_nodes : int
        Nodes the first round waits for. Give the number you expect: a client that comes after the
        first evaluation is not part of the run.

    Attributes
    ----------
    history : list of RoundRecord
        What happened, from round 0 on: measurements, each client's coefficient, the strategy's
        log.

    Examples
    --------
    >>> fair = FairStrategy("fpfl", sensitive={"sex": ["Female", "Male"]}, notion="eo")
    >>> FairStrategy("ditto", sensitive={"sex": ["Female", "Male"]})
    Traceback (most recent call last):
    ...
    mfairfl.errors.ConfigError: strategy 'ditto' does not work in a plain Flower app: its model \
is not a single global one (personal); those that do, with their defaults: afl, drfl, fairfed, \
fedavg, fedfb, fedfv, fedmgda+, fedprox, fpfl, mfairfl, mfairfl-rev, mfairfl-rnd, qffl, term
    """

    def __init__(
        self,
        strategy: str,
        *,
        sensitive: Groups,
        notion: str | Sequence[str] = "demographic_parity",
        dead_zone: float = 0.0,
        intersections: bool = False,
        hyper_parameters: Mapping[str, Any] | None = None,
        recipe: Recipe | None = None,
        seed: int = 0,
        fraction_train: float = 1.0,
        robust: str = "none",
        min_available_nodes: int = 2,
    ) -> None:
        if not 0 < fraction_train <= 1:
            raise ConfigError(f"fraction_train must lie in (0, 1], not {fraction_train}")
        if min_available_nodes < 1:
            raise ConfigError(f"min_available_nodes must be at least 1, not {min_available_nodes}")
        attributes, recipe = attributes_of(sensitive), recipe or Recipe()
        goal = Goal(
            notions=(notion,) if isinstance(notion, str) else tuple(notion),
            attributes=tuple(attribute.name for attribute in attributes),
            intersections=intersections,
            dead_zone=dead_zone,
        )
        # Rounds, weights and clients are known when the first evaluation has been answered.
        no_clients = methods.Summary(counts={}, attributes=attributes, goal=goal)
        self._setup = Setup(
            strategy=_supported(strategy, hyper_parameters or {}, recipe, no_clients),
            size=0,
            recipe=recipe,
            rounds=0,
            seed=seed,
            summary=no_clients,
            participation=fraction_train,
            robust=robust,
            splits=("train",),
        )
        self._name, self._minimum = strategy, min_available_nodes
        self._reset()

    def _reset(self) -> None:
        """Return to the state before the first round."""
        self.history: list[RoundRecord] = []
        self._rounds, self._timeout, self._evaluate_config = 0, 0.0, ConfigRecord()
        self._loop: _StepwiseLoop | None = None
        self._sent: dict[int, Message] = {}
        self._nodes: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._jobs: dict[int, Job] = {}
        self._faults: dict[str, str] = {}

    def start(  # noqa: PLR0917 - Flower's own signature
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Run all rounds; arguments as for any Flower strategy.

        `num_rounds` is also the length of the learning rate's schedule.
        """
        self._reset()
        self._rounds, self._timeout = num_rounds, timeout
        self._evaluate_config = evaluate_config or ConfigRecord()
        return super().start(
            grid, initial_arrays, num_rounds, timeout, train_config, evaluate_config, evaluate_fn
        )

    def summary(self) -> None:
        """Log what was decided."""
        card, goal = self._setup.strategy.card, self._setup.summary.goal
        log(INFO, "\t├── %s: %s (%s)", self._name, card.title, card.paper)
        log(INFO, "\t├── %s of %s", ", ".join(goal.notions), ", ".join(goal.attributes or ()))
        log(INFO, "\t└── %s", self._setup.recipe)

    # ------------------------------------------------------------------ training

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Return each participant's plan; measure first where no measurement is at hand."""
        if self._loop is None or not self._loop.jobs:
            self._measure(server_round - 1, arrays, grid)
        # What Flower sends is the model, also where someone changed it between the rounds.
        self._started.arrays = arrays
        config = ConfigRecord({**config, "server-round": server_round})
        self._jobs = {self._nodes[job.client]: job for job in self._started.jobs}
        contents = {
            node: RecordDict({"arrays": arrays, "config": config, PLAN: plan_record(job)})
            for node, job in self._jobs.items()
        }
        return self._messages(contents, MessageType.TRAIN)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord, MetricRecord]:
        """Return the combined model, and how many clients it is made of."""
        del server_round
        reports = list(self._read(replies, self._report).values())
        self._started.send({report.client: [report] for report in reports}, self._faults)
        left_out = len(self._jobs) - len(reports)
        return self._started.arrays, MetricRecord({"clients": len(reports), "left_out": left_out})

    def _report(self, node: int, content: RecordDict) -> Report:
        records = list(content.array_records.values())
        if len(records) != 1:
            raise MessageError(f"its reply has {len(records)} array records; return one")
        return self._started.report(self._jobs[node], records[0])

    # ------------------------------------------------------------------ evaluation

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Ask every node."""
        config = ConfigRecord({**config, "server-round": server_round})
        content = RecordDict({"arrays": arrays, "config": config})
        nodes = sorted(grid.get_node_ids())
        return self._messages(dict.fromkeys(nodes, content), MessageType.EVALUATE)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Return the metrics of all clients together; the next round uses the measurements."""
        del server_round
        measured = self._measured(replies)
        if not measured:
            return None  # the next round asks again
        self._started.send(_as_answers(measured), self._faults)
        return MetricRecord({**_metrics(measured, self._setup.summary)})

    def _measure(self, server_round: int, arrays: ArrayRecord, grid: Grid) -> None:
        """Ask outside of Flower's own evaluations: before the first round, or if one failed."""
        if not self._rounds:
            raise ConfigError("FairStrategy: call start(grid, arrays, num_rounds=…) to run it")
        needed = 1
        if self._loop is None:
            needed = self._minimum
            self._wait(grid)
        messages = self.configure_evaluate(server_round, arrays, self._evaluate_config, grid)
        measured = self._measured(grid.send_and_receive(messages, timeout=self._timeout))
        if len(measured) < needed:
            raise FederationError(
                f"{len(measured)} of {len(messages)} nodes measured the model and at least "
                f"{needed} must; the log says why the others did not"
            )
        if self._loop is None:
            setup = replace(self._setup, rounds=self._rounds)
            self._loop = _StepwiseLoop(setup, arrays, measured, self.history)
        self._loop.send(_as_answers(measured), self._faults)

    def _measured(self, replies: Iterable[Message]) -> Measured:
        """Return the usable measurements, and remember each client's node."""
        cells, nodes = Cells(self._setup.summary.attributes).size, dict[str, int]()
        replied = self._read(replies, lambda _, content: read_measurement(content, cells))
        measured: dict[str, Mapping[Split, Statistics]] = {}
        for node, (name, splits) in sorted(replied.items()):
            if name in nodes:
                log_left_out(f"node {node}", f"node {nodes[name]} is '{name}' already")
            elif self._loop is not None and name not in self._loop.clients:
                log_left_out(name, "it was not there when the run began")
            else:
                nodes[name], measured[name] = node, splits
        self._nodes = nodes
        self._names |= {node: name for name, node in nodes.items()}
        return measured

    # ------------------------------------------------------------------ messages

    def _messages(self, contents: Mapping[int, RecordDict], kind: str) -> list[Message]:
        """Return a message for each node. A list: the deployed Grid iterates over it twice."""
        self._sent = {
            node: Message(content, dst_node_id=node, message_type=kind)
            for node, content in contents.items()
        }
        return list(self._sent.values())

    def _read(
        self, replies: Iterable[Message], read: Callable[[int, RecordDict], T]
    ) -> dict[int, T]:
        """Return what can be used of the replies, by node; log why the rest cannot."""
        outcomes = read_replies(self._sent, match_replies(self._sent, replies), read)
        self._faults = {
            self._names.get(node, f"node {node}"): reason
            for node, reason in reasons_of(outcomes).items()
        }
        for name, reason in self._faults.items():
            log_left_out(name, reason)
        return answers_of(outcomes)

    def _wait(self, grid: Grid) -> None:
        """Wait until enough nodes are online to begin."""
        end = time.monotonic() + self._timeout
        while (count := len(list(grid.get_node_ids()))) < self._minimum:
            if time.monotonic() >= end:
                raise FederationError(
                    f"{count} nodes are online after {self._timeout:g} s; "
                    f"min_available_nodes = {self._minimum} must be"
                )
            time.sleep(0.2)

    @property
    def _started(self) -> _StepwiseLoop:
        if self._loop is None:
            raise ConfigError("FairStrategy: configure_train comes first")
        return self._loop


def _as_answers(measured: Measured) -> dict[str, Answer]:
    """Return the measurements of one model as the loop takes them."""
    return {name: (dict(splits),) for name, splits in measured.items()}


def _metrics(measured: Measured, summary: methods.Summary) -> dict[str, float]:
    """Return the metrics of all clients together, for each split that has rows."""
    metrics: dict[str, float] = {}
    for split in SPLITS:
        rows = {
            name: splits[split]
            for name, splits in measured.items()
            if split in splits and splits[split].counts.any()
        }
        if rows:
            tally = fairness.Tally.from_statistics(rows, summary.attributes)
            pooled = Statistics.pooled(rows)
            metrics[f"{split}_accuracy"] = fairness.accuracy(tally)
            metrics[f"{split}_violation"] = summary.constraints.violation(pooled)
            metrics[f"{split}_loss"] = pooled.mean_loss
            metrics[f"{split}_worst_client_accuracy"] = fairness.worst_client_accuracy(tally)
    return metrics


class _StepwiseLoop:
    """The round loop, which waits for an answer between two calls.

    Parameters
    ----------
    setup : Setup
        Without the clients and the number of weights.
    arrays : ArrayRecord
        The first model.
    measured : mapping
        The clients, with sums and counts of their rows under the first model.
    history : list
        Gets the record of every round.
    """

    def __init__(
        self, setup: Setup, arrays: ArrayRecord, measured: Measured, history: list[RoundRecord]
    ) -> None:
        self._layout, self._history = ModelLayout.of(arrays), history
        counts = {name: measured[name]["train"].counts for name in sorted(measured)}
        setup = replace(
            setup,
            size=self._layout.size,
            summary=replace(setup.summary, counts=counts),
            enrolled={"train": counts},
        )
        self._summary = setup.summary
        self._state = RunState(
            round=0,
            weights=self._layout.flat(arrays),
            strategy=setup.strategy.start(setup.summary),
        )
        self._loop = federate(setup, self._state, [self])
        self._ask: Ask = next(self._loop)

    def on_start(self, setup: Setup, state: RunState) -> None:
        """Nothing has happened yet."""

    def on_round(self, setup: Setup, state: RunState, record: RoundRecord) -> None:
        """Keep the record of a round."""
        del setup, state
        self._history.append(record)

    @property
    def clients(self) -> Iterable[str]:
        """Names of the clients that take part in the run."""
        return self._summary.counts.keys()

    @property
    def jobs(self) -> tuple[Job, ...]:
        """What the participants are to train now; empty while a measurement is awaited."""
        return self._ask.jobs if isinstance(self._ask, Train) else ()

    def send(self, answers: Mapping[str, Answer], faults: Mapping[str, str]) -> None:
        """Continue with the clients' answers up to the next request.

        `faults` holds the reasons why an answer could not be read.
        """
        refusals = {name: Refusal(why) for name, why in faults.items() if name in self.clients}
        self._ask = self._loop.send({**answers, **refusals})

    @property
    def arrays(self) -> ArrayRecord:
        """The server's weights, as the model's arrays."""
        return self._layout.record(np.asarray(self._state.weights))

    @arrays.setter
    def arrays(self, arrays: ArrayRecord) -> None:
        self._state.weights = self._layout.flat(arrays)

    def report(self, job: Job, arrays: ArrayRecord) -> Report:
        """Return the update that a client's trained arrays amount to."""
        trained = self._layout.flat(arrays)
        with np.errstate(over="ignore"):  # the loop sets aside what is not finite
            update = self._state.weights - trained
        return Report(
            client=job.client,
            update=update,
            steps=job.plan.steps(int(self._summary.rows(job.client))),
            lr=job.plan.optimizer.lr,
        )


# ------------------------------------------------------------------ which strategies work


def _supported(
    name: str, hyper_parameters: Mapping[str, Any], recipe: Recipe, summary: methods.Summary
) -> methods.Strategy:
    """Return a strategy that a plain app can carry out; any other is refused in one line.

    Multipliers that would move inside a round move between rounds instead, unless the
    hyper-parameters say otherwise.
    """
    strategy = _between_rounds(name, hyper_parameters, recipe)
    if recipe.optimizer == "gradient":
        raise ConfigError("recipe.optimizer = 'gradient' sends no weights; use 'adamw' or 'sgd'")
    if obstacle := _obstacle(strategy, recipe, summary):
        supported = [
            other
            for other in available()
            if not _obstacle(_between_rounds(other, {}, recipe), recipe, summary)
        ]
        raise ConfigError(
            f"strategy '{name}' does not work in a plain Flower app: {obstacle}; those that do, "
            f"with their defaults: {', '.join(supported)}"
        )
    return strategy


def _between_rounds(
    name: str, hyper_parameters: Mapping[str, Any], recipe: Recipe
) -> methods.Strategy:
    default = create(name)
    before, after = map(
        hyper_parameters_of, (default, default.between_rounds(recipe.local_epochs))
    )
    changed = {key: value for key, value in after.items() if value != before[key]}
    return create(name, **{**changed, **hyper_parameters})


def _obstacle(strategy: methods.Strategy, recipe: Recipe, summary: methods.Summary) -> str:
    """Return why a strategy does not work, as its own plans show; empty if it does."""
    card = strategy.card
    if card.trains_on == "pooled":
        return "it trains on the rows of all clients in one place"
    if card.serves != "global":
        return f"its model is not a single global one ({card.serves})"
    if card.output == "thresholds":
        return "it fits a threshold for each group when training is over"
    jobs = methods.trial_jobs(strategy, recipe, summary.attributes, summary.goal)
    if not jobs:
        return "no client trains"
    try:
        for job in jobs:
            plan_record(job)
    except ConfigError as error:
        return str(error)
    return ""
