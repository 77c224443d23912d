"""Every strategy on every data set, and what a round of each costs beside FedAvg's.

Coverage: adult, compas and bank, split high and low, and with two sensitive attributes (of two or
three values), short runs with warnings as errors. A failure, or a number that is not finite, ends
the script.

Cost: runs of 2 rounds × 5 epochs on Adult, each right after one of FedAvg, in one process. Beside
the measured ratio stands the one that the method's own work explains: training passes (every row
forward and backward) and measuring passes (every row forward), counted from what the loop asks of
the clients and priced by FedAvg's and the constant classifier's times. What is left, measured over
explained, is overhead. Times on a busy machine vary; only ratios are meant to be compared.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from statistics import median
from typing import Any

import numpy as np
import torch

from mfairfl.data import Federation
from mfairfl.engine.embedded import Member, clients_of
from mfairfl.engine.loop import federate, first_state
from mfairfl.engine.state import Ask, Measure, RoundRecord, RunState, Setup, Train
from mfairfl.models import Model
from mfairfl.runs.config import Config, make_config
from mfairfl.runs.execute import (
    Run,
    RunRequest,
    federation_of,
    model_of,
    run_requests,
    setup_of,
    table_of,
)
from mfairfl.strategies import available
from mfairfl.training.execution import steady_arithmetic

SEED = 100
TASKS: dict[str, tuple[str, str, tuple[str, ...] | None]] = {
    f"{data} {scheme}": (data, scheme, None)
    for data in ("adult", "compas", "bank")
    for scheme in ("high", "low")
} | {
    "adult 2×3": ("adult", "high", ("sex", "age")),
    "compas 2×3": ("compas", "high", ("sex", "race")),
    "bank 3×3": ("bank", "high", ("age3", "marital")),
}
# The literal forms of methods whose default trains local epochs, beside those with a name.
LITERAL = {"qffl, gradient": ("qffl", {"update": "gradient"})}
ROUNDS, EPOCHS = 2, 5  # of the cost runs
NOTES = """\
fedavg against itself shows the noise of the ratios. ditto trains two models a client. Literal
forms take one gradient a step and a step for every epoch, and measure after each. indfair's
ensemble is K models on every row, measured every round. Methods that choose among rounds measure
two models a round in the last half. cenfair, alone, takes its 77 steps an epoch one after the
other where five clients take at most 23 side by side. Local multipliers (fedavg-f, indfair,
cenfair) cost a pass more than counted: every job measures once at its start, for counts alone."""
NUMBERS = (
    "accuracy",
    "loss",
    "demographic_parity_violation",
    "equalized_odds_violation",
    "accuracy_parity_violation",
    "client_accuracy_std",
)


def config(task: str, name: str, rounds: int, epochs: int, **options: Any) -> Config:
    data, scheme, sensitive = TASKS[task]
    return make_config(
        {
            "seed": SEED,
            "data": {"name": data, "sensitive": sensitive},
            "clients": {"scheme": scheme},
            "training": {"rounds": rounds, "local_epochs": epochs},
            "strategy": {"name": name, **options},
        }
    )


# ------------------------------------------------------------------ coverage


@dataclass(frozen=True)
class Strict:
    """Callback that refuses updates set aside and numbers that are not finite."""

    name: str

    def on_start(self, setup: Setup, state: RunState) -> None:
        """Nothing has happened yet."""

    def on_round(self, setup: Setup, state: RunState, record: RoundRecord) -> None:
        """Look at everything the round left behind."""
        del setup
        if record.set_aside or not np.isfinite(state.weights).all():
            raise RuntimeError(f"{self.name}, round {record.round}: {record.set_aside or 'nan'}")
        for split, clients in record.measured.items():
            if not all(np.isfinite(s.losses).all() for s in clients.values()):
                raise RuntimeError(f"{self.name}, round {record.round}: a loss on {split} is nan")


def cover(rounds: int, epochs: int) -> None:
    names = available()
    print(f"\nCoverage: {len(names)} strategies × {len(TASKS)} tasks, seed {SEED},")
    print(f"{rounds} rounds of {epochs} epochs (far from converged), demographic parity on all")
    print(
        "attributes: test accuracy/violation on train rows; * = decides alike for nearly everyone"
    )
    print(f"{'':>16}" + "".join(f"{task:>14}" for task in TASKS))
    columns = {}
    for task in TASKS:
        requests = [
            RunRequest(config=config(task, name, rounds, epochs), callbacks=(Strict(name),))
            for name in names
        ]
        columns[task] = [shown(run) for run in run_requests(requests)]
    for i, name in enumerate(names):
        print(f"{name:>16}" + "".join(f"{columns[task][i]:>14}" for task in TASKS))


def shown(run: Run) -> str:
    for part, name in product(("train", "test"), NUMBERS):
        if run.metrics[part][name] is None:
            raise RuntimeError(f"{run.record.strategy}: no {name} on {part}")
    accuracy = run.metrics["test"]["accuracy"]
    violation = run.metrics["train"]["demographic_parity_violation"]
    return f"{accuracy:.3f}/{violation:.3f}{'*' if run.record.warnings else ' '}"


# ------------------------------------------------------------------ cost


@dataclass(slots=True)
class Work:
    """What a run asked of the clients, in passes over all training rows, and how long it took."""

    training: float = 0.0
    measuring: float = 0.0
    train_seconds: float = 0.0
    measure_seconds: float = 0.0
    server_seconds: float = 0.0

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.train_seconds + self.measure_seconds + self.server_seconds

    def add(self, ask: Ask, federation: Federation) -> None:
        """Count the rows that an answer has to go through."""
        rows = {c.name: len(c.train) for c in federation.clients}
        whole = sum(rows.values())
        if isinstance(ask, Measure):
            share = sum(len(federation.pooled(split)) for split in ask.splits) / whole
            self.measuring += share * sum(len(np.atleast_2d(w)) for w in ask.weights)
        elif isinstance(ask, Train):
            for job in ask.jobs:
                plan, share = job.plan, rows.get(job.client, whole) / whole
                literal = plan.optimizer.name == "gradient"
                self.training += share * (1 if literal else plan.epochs)
                if plan.controller is not None:  # gaps on the client's own rows inside the round
                    moves = plan.epochs // plan.controller.every
                    self.measuring += share * (moves + plan.controller.relative)
        else:
            self.measuring += len(federation.pooled(ask.split)) / whole


def driven(setup: Setup, model: Model, federation: Federation) -> Work:
    """Run the loop by hand and watch the clock on both sides of every message."""
    work = Work()
    state = first_state(setup, model)
    clients = clients_of([Member(setup=setup, model=model, federation=federation)], [state])
    loop = federate(setup, state)
    with steady_arithmetic():
        answer: Any = None
        while True:
            start = time.perf_counter()
            try:
                ask = loop.send(answer)
            except StopIteration:
                return work
            finally:
                work.server_seconds += time.perf_counter() - start
            start = time.perf_counter()
            answer = clients.answer({0: ask})[0]
            spent = time.perf_counter() - start
            if isinstance(ask, Train):
                work.train_seconds += spent
            else:
                work.measure_seconds += spent
            work.add(ask, federation)


def cost(repeats: int) -> None:
    first = config("adult high", "fedavg", ROUNDS, EPOCHS)
    federation = federation_of(first, table_of(first))

    def ready(name: str, **options: Any) -> Callable[[], Work]:
        settings = config("adult high", name, ROUNDS, EPOCHS, **options)
        model = model_of(settings, federation.pool.inputs.width)
        made = setup_of(settings, federation, model)
        return lambda: driven(made, model, federation)

    methods = {name: ready(name) for name in available()}
    methods |= {title: ready(name, **options) for title, (name, options) in LITERAL.items()}
    found: dict[str, list[tuple[Work, Work]]] = {title: [] for title in methods}
    for _ in range(repeats):
        for title, run in methods.items():
            found[title].append((methods["fedavg"](), run()))
    table(found)


def table(found: dict[str, list[tuple[Work, Work]]]) -> None:
    plain = [before for pairs in found.values() for before, _ in pairs]
    idle = [work for _, work in found["constant"]]
    per_measure = median(w.measure_seconds for w in idle) / idle[0].measuring
    per_train = median(w.train_seconds for w in plain) / plain[0].training
    base = plain[0].training * per_train + plain[0].measuring * per_measure
    print(
        f"\nCost on Adult, high: {ROUNDS} rounds of {EPOCHS} epochs, median of {len(idle)} pairs;"
    )
    print(f"a measuring pass costs {per_measure / per_train:.2f} of a training pass")
    head = ("training", "measuring", "explained", "measured", "measured/", "server")
    under = ("passes", "passes", "ratio", "ratio", "explained", "share")
    for words in (head, under):
        print(f"{'':>16}" + "".join(f"{word:>11}" for word in words))
    for title, pairs in found.items():
        work = pairs[0][1]
        explained = (work.training * per_train + work.measuring * per_measure) / base
        ratio = median(after.seconds / before.seconds for before, after in pairs)
        server = median(after.server_seconds / after.seconds for _, after in pairs)
        print(
            f"{title:>16}{work.training:11.2f}{work.measuring:11.2f}{explained:11.2f}"
            f"{ratio:11.2f}{ratio / explained:11.2f}{server:11.3f}"
        )
    print(NOTES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6, help="of the coverage runs")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=7, help="of the cost runs")
    options = parser.parse_args()
    warnings.simplefilter("error")
    torch.set_num_threads(1)
    print(f"torch {torch.__version__.split('+')[0]}, one thread")
    cover(options.rounds, options.epochs)
    cost(options.repeats)


if __name__ == "__main__":
    main()
