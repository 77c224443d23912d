"""mfairfl's strategies as a Flower `Strategy`, for apps with their own model and clients.

The round loop of the engines runs here too. Flower's rounds hand it the clients' answers and take
its requests from it: `configure_train` sends the plans it asks for, `aggregate_train` gives it the
updates, and the evaluation that follows is the measurement that the next round is planned from.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from logging import INFO
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.common import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from mfairfl.engine.state import Measured, RoundRecord, Split
from mfairfl.errors import ConfigError, FederationError, MessageError
from mfairfl.fairness.cells import Statistics
from mfairfl.fairness.goal import Goal
from mfairfl.flower.client import Groups, attributes_of
from mfairfl.flower.contents import read_evaluation
from mfairfl.flower.letters import Letters, leave_out
from mfairfl.flower.plans import PLAN, plan_record
from mfairfl.flower.stepper import AppTerms, Course
from mfairfl.flower.suitability import fitting_strategy
from mfairfl.training.plan import Job, Recipe, Report

__all__ = ["FairStrategy"]


class FairStrategy(Strategy):
    """A strategy of mfairfl in a Flower app with its own clients and its own model.

    Clients are known by the names they send, so a node may come back under another number. Those
    who answer the first evaluation are enrolled. Who does not answer an evaluation, or answers
    with something that cannot be used, is left out of the next round, with the reason in the log,
    and may return later. The model has one logit a row and float32 weights.

    Parameters
    ----------
    strategy : str
        A name of `mfairfl.strategies.available()`; one that needs mfairfl's own clients is
        refused.
    sensitive : mapping of str to sequence of str
        The sensitive attributes and their groups; clients number cells by the same mapping.
    notion : str or sequence of str
        What is to be equal, such as "demographic_parity" or "equalized_odds".
    alpha : float
        Tolerance: gaps up to here are left alone.
    intersections : bool
        Whether intersections of the attributes are constrained as well.
    hyper_parameters : mapping, optional
        The strategy's own.
    recipe : Recipe, optional
        Epochs, batch size, optimiser and rates that clients are asked to use.
    seed : int
        Of the server's draws.
    fraction_train : float
        Share of the clients drawn for each round; all are evaluated.
    min_available_nodes : int
        Nodes the first round waits for. Give the number you expect: who comes after the first
        evaluation is not part of the run.

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
    mfairfl.errors.ConfigError: strategy 'ditto' does not fit a plain Flower app: what it serves \
is no global model (personal); those that do, with their defaults: afl, drfl, fairfed, fedavg, \
fedfb, fedfv, fedmgda+, fedprox, fpfl, mfairfl, mfairfl-rev, mfairfl-rnd, qffl, term
    """

    def __init__(
        self,
        strategy: str,
        *,
        sensitive: Groups,
        notion: str | Sequence[str] = "demographic_parity",
        alpha: float = 0.0,
        intersections: bool = False,
        hyper_parameters: Mapping[str, Any] | None = None,
        recipe: Recipe | None = None,
        seed: int = 0,
        fraction_train: float = 1.0,
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
            alpha=alpha,
        )
        self._terms = AppTerms(
            strategy=fitting_strategy(strategy, hyper_parameters or {}, recipe, goal, attributes),
            recipe=recipe,
            goal=goal,
            attributes=attributes,
            seed=seed,
            participation=fraction_train,
        )
        self._name, self._minimum = strategy, min_available_nodes
        self._forget()

    def _forget(self) -> None:
        """Be as before the first round."""
        self.history: list[RoundRecord] = []
        self._rounds, self._timeout, self._evaluate_config = 0, 0.0, ConfigRecord()
        self._course: Course | None = None
        self._letters = Letters()
        self._nodes: dict[str, int] = {}
        self._jobs: dict[int, Job] = {}

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

        `num_rounds` is also what the learning rate's schedule is laid out for.
        """
        self._forget()
        self._rounds, self._timeout = num_rounds, timeout
        self._evaluate_config = evaluate_config or ConfigRecord()
        return super().start(
            grid, initial_arrays, num_rounds, timeout, train_config, evaluate_config, evaluate_fn
        )

    def summary(self) -> None:
        """Log what was decided."""
        card, goal = self._terms.strategy.card, self._terms.goal
        log(INFO, "\t├── %s: %s (%s)", self._name, card.title, card.paper)
        log(INFO, "\t├── %s of %s", ", ".join(goal.notions), ", ".join(goal.attributes or ()))
        log(INFO, "\t└── %s", self._terms.recipe)

    # ------------------------------------------------------------------ training

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Return each participant's plan; measure first where no measurement is at hand."""
        if self._course is None or not self._course.jobs:
            self._measure(server_round - 1, arrays, grid)
        # What Flower sends is the model, also where someone changed it between the rounds.
        self._started.set_model(arrays)
        config = ConfigRecord({**config, "server-round": server_round})
        self._jobs = {self._nodes[job.client]: job for job in self._started.jobs}
        contents = {
            node: RecordDict({"arrays": arrays, "config": config, PLAN: plan_record(job)})
            for node, job in self._jobs.items()
        }
        return self._letters.write(contents, MessageType.TRAIN)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord, MetricRecord]:
        """Return the combined model, and how many clients it is made of."""
        del server_round
        reports = list(self._letters.read(replies, self._report).values())
        self._started.take(reports)
        left_out = len(self._jobs) - len(reports)
        return self._started.model(), MetricRecord({"clients": len(reports), "left_out": left_out})

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
        return self._letters.write(dict.fromkeys(nodes, content), MessageType.EVALUATE)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Return the global numbers; the measurements serve the next round."""
        del server_round
        measured = self._measured(replies)
        if not measured["train"]:
            return None  # the next round asks again
        self._started.take((measured,))
        return MetricRecord({**self._terms.numbers(measured)})

    def _measure(self, server_round: int, arrays: ArrayRecord, grid: Grid) -> None:
        """Ask outside of Flower's own evaluations: before the first round, or if one failed."""
        if not self._rounds:
            raise ConfigError("FairStrategy: call start(grid, arrays, num_rounds=…) to run it")
        needed = 1
        if self._course is None:
            needed = self._minimum
            self._wait(grid)
        messages = self.configure_evaluate(server_round, arrays, self._evaluate_config, grid)
        measured = self._measured(grid.send_and_receive(messages, timeout=self._timeout))
        known = measured["train"]
        if len(known) < needed:
            raise FederationError(
                f"{len(known)} of {len(messages)} nodes measured the model and at least {needed} "
                "must; the log says why the others did not"
            )
        if self._course is None:
            self._course = Course(self._terms, self._rounds, arrays, known, self.history)
        self._course.take((measured,))

    def _measured(self, replies: Iterable[Message]) -> Measured:
        """Return the sound measurements by split and client, and remember who is where."""
        cells = self._terms.cells
        found = self._letters.read(replies, lambda _, content: read_evaluation(content, cells))
        self._nodes = {}
        measured: dict[Split, dict[str, Statistics]] = {"train": {}}
        for node, (name, splits) in sorted(found.items()):
            if name in self._nodes:
                leave_out(f"node {node}", f"node {self._nodes[name]} is '{name}' already")
            elif self._course is not None and not self._course.knows(name):
                leave_out(name, "it was not there when the run began")
            else:
                self._letters.names[node], self._nodes[name] = name, node
                for split, sums in splits.items():
                    measured.setdefault(split, {})[name] = sums
        return measured

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
    def _started(self) -> Course:
        if self._course is None:
            raise ConfigError("FairStrategy: configure_train comes first")
        return self._course
