"""Small synthetic federations, and short ways to run them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mfairfl.coordinator.enrolment import EnrolmentTerms
from mfairfl.data import EncoderConfig, Federation, Table, Task, partition, table_from_frame
from mfairfl.engine.checkpoint import dump, parse
from mfairfl.engine.clients import LocalClients
from mfairfl.engine.embedded import (
    Member,
    clients_of,
    counts_of,
    run_all,
    splits_of,
    summarize,
)
from mfairfl.engine.loop import Result, federate, first_state
from mfairfl.engine.output import Output, Rule
from mfairfl.engine.state import Ask, RoundRecord, RunState, Score, Setup, Split, Train
from mfairfl.fairness.cells import Cells
from mfairfl.fairness.constraints import Goal
from mfairfl.fairness.fitting import Demand
from mfairfl.models import MLP, Model
from mfairfl.silo.policy import OPEN, Disclosure, Limits, Policy
from mfairfl.strategies import Summary, create
from mfairfl.testing import SITES, TASK, people, people_federation
from mfairfl.training.plan import Recipe, Report
from mfairfl.wire.run_messages import Shape, pack_ask, unpack_ask

# A run that takes long enough to be killed in the middle of it.
LONG = {"rounds": 20, "hidden": (8,), "batch_size": 4, "local_epochs": 5, "output_rule": "select"}


# One full batch a round: updates of like clients then agree.
CALM = {"lr": 0.004, "local_epochs": 1, "batch_size": 100}


def alike() -> Federation:
    """Five sites of one kind and size, a to e."""
    return people_federation(people(sites=dict.fromkeys("abcde", 100)), validation=0.2)


def policy(**values: Any) -> Policy:
    """A silo's policy.toml; unless said otherwise it withholds nothing."""
    told = {k: v for k, v in values.items() if k in Disclosure.model_fields}
    limits = {k: v for k, v in values.items() if k not in Disclosure.model_fields}
    return Policy(limits=Limits(**limits), disclosure=Disclosure(**dict(OPEN.disclosure) | told))


def partly_recorded() -> Table:
    """Sex is not recorded in west, sex and age not in south, and some ages not in east."""
    frame = people()
    frame.loc[frame["site"].isin(["west", "south"]), "sex"] = None
    frame.loc[frame["site"] == "south", "age"] = None
    frame.loc[frame.index[:9], "age"] = None
    groups = {"sex": ("F", "M", "?"), "age": ("old", "young", "?")}
    sensitive = [{"column": column, "groups": named} for column, named in groups.items()]
    task = Task.model_validate(TASK.model_dump() | {"sensitive": sensitive})
    return table_from_frame(frame, task, name="people")


def people_table(frame: pd.DataFrame | None = None) -> Table:
    return table_from_frame(people() if frame is None else frame, TASK, name="people")


WIDE = EncoderConfig(bins=4, min_level_rows=2)
"""Merges the towns and streets of a single person."""


def wide_people() -> pd.DataFrame:
    """Applicants with a town and a street, of which there are hundreds; some do not say."""
    frame = people(sites={"east": 220, "north": 140, "south": 100, "west": 240})
    rng = np.random.default_rng(3)
    frame["town"] = [f"town {i}" for i in rng.integers(0, 220, len(frame))]
    frame["street"] = [f"street {i}" for i in rng.integers(0, 220, len(frame))]
    frame.loc[rng.random(len(frame)) < 0.05, "town"] = None
    return frame


def wide_federation(encoder: EncoderConfig = WIDE, **options: Any) -> Federation:
    """Clients whose rows have categories enough to be held as indices."""
    table = people_table(wide_people())
    return partition(table, "column", encoder=encoder, **options)


def write_people(folder: Path) -> Path:
    """Write people.csv and a configuration of runs on it, people.toml; return the latter."""
    people().to_csv(folder / "people.csv", index=False)
    path = folder / "people.toml"
    path.write_text(
        '[data]\ncsv = "people.csv"\n[task]\nlabel = "hired"\nfavourable = "yes"\n'
        'sensitive = ["sex"]\nclient = "site"\n[model]\nhidden = [4]\n',
        encoding="utf-8",
    )
    return path


def exact_thresholds() -> Output:
    """Return the rule of randomised thresholds of groups that allow no violation."""
    return Output(rule="thresholds", tolerance=0.0, demand=Demand(by="group", randomise=True))


def setup_for(
    federation: Federation,
    strategy: Any = "fedavg",
    *,
    rounds: int = 3,
    seed: int = 0,
    hidden: tuple[int, ...] = (4,),
    output: Output | None = None,
    participation: float = 1.0,
    patience: int | None = None,
    robust: str = "none",
    evaluate_every: int = 1,
    **recipe: Any,
) -> Setup:
    made = create(strategy) if isinstance(strategy, str) else strategy
    defaults: dict[str, Any] = {"local_epochs": 2, "batch_size": 20, "lr": 0.02}
    return Setup(
        strategy=made,
        size=size_of(MLP(inputs=federation.pool.inputs.width, hidden=hidden)),
        recipe=Recipe(**(defaults | recipe)),
        rounds=rounds,
        seed=seed,
        summary=summarize(
            federation,
            Goal(attributes=("sex", "age")),
            pooled=made.card.trains_on == "pooled",
        ),
        output=Output() if output is None else output,
        participation=participation,
        patience=patience,
        splits=splits_of(federation),
        enrolled={split: counts_of(federation, split) for split in splits_of(federation)},
        robust=robust,
        evaluate_every=evaluate_every,
    )


def shape_of(federation: Federation, setup: Setup) -> Shape:
    return Shape(setup.size, Cells(federation.attributes).size)


def honest_asks(federation: Federation, setup: Setup) -> Iterator[Ask]:
    """Yield what a run asks of clients, as each of them reads it; all answer."""
    clients, state = clients_and_state(setup, federation)
    shape, loop = shape_of(federation, setup), federate(setup, state)
    ask = next(loop)
    while True:
        jobs = {job.client for job in ask.jobs} if isinstance(ask, Train) else SITES
        for name in jobs:
            yield unpack_ask(pack_ask(ask, name), name, shape)
        try:
            ask = loop.send(clients.answer({0: ask})[0])
        except StopIteration:
            return


def enrolled_setup(
    strategy: str,
    summary: Summary,
    inputs: int,
    splits: tuple[Split, ...],
    terms: EnrolmentTerms,
    *,
    rule: Rule = "last",
) -> Setup:
    """Return two rounds with what clients agreed on, wherever they are."""
    made = create(strategy)
    return Setup(
        strategy=made,
        size=size_of(MLP(inputs=inputs, hidden=terms.model.hidden)),
        recipe=Recipe(local_epochs=2, batch_size=16, lr=0.02),
        rounds=2,
        seed=terms.seed,
        summary=summary,
        output=Output(rule=made.card.output or rule),
        splits=splits,
    )


def assert_equals_embedded(
    setup: Setup, state: RunState, found: Result, expected: tuple[Result, Watch]
) -> None:
    """A run elsewhere ended with the bits of the embedded engine's."""
    result, watch = expected
    assert np.array_equal(state.weights, watch.weights[-1])
    if setup.strategy.card.serves != "personal":  # those models never reach the server
        assert bits(found) == bits(result)


_MODELS: dict[int, Model] = {}


def size_of(model: Model) -> int:
    """Return what a setup knows of a model; `model_of` finds the model again."""
    _MODELS[model.size] = model
    return model.size


def model_of(setup: Setup) -> Model:
    return _MODELS[setup.size]


def first(setup: Setup) -> RunState:
    return first_state(setup, model_of(setup))


def member_of(setup: Setup, federation: Federation, **more: Any) -> Member:
    return Member(setup=setup, model=model_of(setup), federation=federation, **more)


def clients_and_state(setup: Setup, federation: Federation) -> tuple[LocalClients, RunState]:
    """The clients of one run, as the embedded engine answers for them."""
    state = first(setup)
    return clients_of([member_of(setup, federation)], [state]), state


@dataclass
class Watch:
    """Callback that remembers what it is told; `dumps[r]` is the checkpoint after round r."""

    records: list[RoundRecord] = field(default_factory=list)
    dumps: list[bytes] = field(default_factory=list)
    weights: list[np.ndarray] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)

    def on_start(self, setup: Setup, state: RunState) -> None:
        self.starts.append(state.round)

    def on_round(self, setup: Setup, state: RunState, record: RoundRecord) -> None:
        self.records.append(record)
        self.weights.append(state.weights.copy())
        self.dumps.append(dump(state, "watch"))


Tamper = Callable[[Ask, Any, RunState], Any]


def run(
    setup: Setup,
    federation: Federation,
    *,
    state: RunState | None = None,
    tamper: Tamper | None = None,
) -> tuple[Result, Watch]:
    watch = Watch()
    member = member_of(setup, federation, state=state, callbacks=(watch,), tamper=tamper)
    (result,) = run_all([member])
    return result, watch


def assert_same_runs(federation: Federation, *strategies: Any, **options: Any) -> None:
    """These strategies walk through the same weights to the same result, bit for bit."""
    runs = [run(setup_for(federation, one, **options), federation) for one in strategies]
    for result, watch in runs[1:]:
        assert bits(result) == bits(runs[0][0])
        assert np.array_equal(watch.weights, runs[0][1].weights)


def assert_resumes(setup: Setup, federation: Federation, *, tamper: Tamper | None = None) -> Watch:
    """Stopping after any round and going on gives the bits of the undisturbed run."""
    straight, watch = run(setup, federation, tamper=tamper)
    thresholds = straight.served.thresholds
    assert len(watch.dumps) == setup.rounds + 1
    for stopped, data in enumerate(watch.dumps):
        resumed, rest = run(setup, federation, state=parse(data, "watch"), tamper=tamper)
        assert bits(resumed) == bits(straight)
        assert resumed.served.names == straight.served.names
        if thresholds is not None:
            assert resumed.served.thresholds.to_json() == thresholds.to_json()
        assert rest.starts == [stopped]
        assert (resumed.left_out, resumed.warnings) == (straight.left_out, straight.warnings)
        assert rest.dumps == watch.dumps[stopped + 1 if stopped else 0 :]
    return watch


def lying(client: str, lie: Callable[[Ask, Any], Any]) -> Tamper:
    """Change one client's answers on their way to the server: `lie(ask, answer)` of its own.

    Its answer to a `Train` is a report, to a `Measure` or a `Score` the sums of one split.
    """

    def tamper(ask: Ask, answers: Any, state: RunState) -> Any:
        del state
        if client not in answers:
            return answers
        return {**answers, client: with_lie(ask, answers[client], lie)}

    return tamper


def with_lie(ask: Ask, answer: Any, lie: Callable[[Ask, Any], Any]) -> Any:
    """Return one client's answer with every report, or the sums of every split, changed."""
    if isinstance(ask, Train):
        return [lie(ask, report) for report in answer]
    if isinstance(ask, Score):
        return {split: lie(ask, sums) for split, sums in answer.items()}
    return tuple({split: lie(ask, sums) for split, sums in model.items()} for model in answer)


def by_client(reports: Iterable[Report]) -> dict[str, list[Report]]:
    """Return reports as the clients' answers."""
    answers: dict[str, list[Report]] = {}
    for report in reports:
        answers.setdefault(report.client, []).append(report)
    return answers


def reports_in(answers: dict[str, list[Report]]) -> list[Report]:
    """Return the reports in the clients' answers."""
    return [report for reports in answers.values() for report in reports]


def drive(
    setup: Setup, federation: Federation, tamper: Callable[[int, list[Report]], Sequence[Report]]
) -> tuple[Result, Watch]:
    """Run with replies that `tamper(round, replies)` changes on their way to the server."""
    watch = Watch()
    clients, state = clients_and_state(setup, federation)
    loop = federate(setup, state, [watch])
    ask = next(loop)
    while True:
        answers = clients.answer({0: ask})[0]
        if isinstance(ask, Train):
            answers = by_client(tamper(ask.round, reports_in(answers)))
        try:
            ask = loop.send(answers)
        except StopIteration as stop:
            return stop.value, watch


def bits(result: Result) -> list[bytes]:
    """Return every number of a result as bytes, clients in name order."""
    found = [result.served.members.tobytes(), result.served.weights.tobytes()]
    for measured in result.measured:
        for split in sorted(measured):
            for client in sorted(measured[split]):
                s = measured[split][client]
                found += [s.counts.tobytes(), s.positives.tobytes()]
                found += [s.scores.tobytes(), s.losses.tobytes()]
    for split in sorted(result.scored):
        for client in sorted(result.scored[split]):
            s = result.scored[split][client]
            found += [s.histogram.counts.tobytes(), s.rows.tobytes()]
            found += [s.sums.tobytes(), s.losses.tobytes()]
    return found
