"""Runs in which one answer of one client is replaced by a mutated one.

A stage is a part of a run with valid answers at hand. A case of it replaces one of them, and its
`run` says what must not have happened. Rounds, enrolments and audits go through the very functions
that the server calls, `drive`, `enrol` and `gather_counts`, with a transport that replays the
valid answers.
"""

from __future__ import annotations

import copy
import json
import random
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

import audit_silos as audited
import federations as fed
from grids import LocalGrid, transport_over
from mfairfl.coordinator.audit import AuditTerms, gather_counts
from mfairfl.coordinator.enrolment import Enrolled, EnrolmentTerms, enrol
from mfairfl.coordinator.transport import drive, read_replies
from mfairfl.data import EncoderConfig, Task
from mfairfl.engine.checkpoint import parse
from mfairfl.engine.clients import MemorySlots, SoleClient
from mfairfl.engine.output import Output
from mfairfl.engine.state import Absent, Refusal, RunState, Setup
from mfairfl.errors import MfairflError
from mfairfl.fairness.audit_counts import AuditCounts
from mfairfl.fairness.cells import Cells
from mfairfl.flower import FairStrategy
from mfairfl.flower.records import from_records, to_records
from mfairfl.silo.responder import Responder
from mfairfl.silo.silo_file import SiloSettings
from mfairfl.strategies import create
from mfairfl.wire.enrolment_messages import ModelTerms
from mfairfl.wire.packing import ANSWER, Packet, make_packet, pack
from mfairfl.wire.run_messages import Shape, answer_message, unpack_ask
from mutations import mutated, mutated_reply

STRATEGIES: dict[str, Any] = {
    "fedavg": create("fedavg"),
    "mfairfl, every = 1": create("mfairfl", every=1),
    "mfairfl": create("mfairfl"),
    "fpfl": create("fpfl"),
    "fedfb": create("fedfb"),
    "qffl": create("qffl"),
    "fairfed": create("fairfed"),
    "scaffold": create("scaffold"),
    "ditto": create("ditto"),
    "indfair": create("indfair"),
    "fedmgda+": create("fedmgda+"),
    "fedavg-threshold": create("fedavg-threshold"),
}
SECONDS = 2.0
"""Processor time that a case may take."""

SMALL = 1 << 16  # bytes: beside a smaller answer, what an exception remembers would count


class Hung(BaseException):
    """A case does not end; not an `Exception`, which the server would take for the client's."""


@dataclass
class Outcome:
    """What became of a run with one mutated answer.

    Parameters
    ----------
    kind : str
        The answer that was replaced.
    problem : str
        What must not happen; empty if nothing of it did.
    seconds : float
        Processor time.
    """

    kind: str
    problem: str = ""
    seconds: float = 0.0


Change = Callable[[random.Random, Any, Mapping[str, Packet]], RecordDict]
"""Makes a message of a valid packet (or of valid records), and of others."""


def unchanged(rng: random.Random, packet: Packet, others: Mapping[str, Packet]) -> RecordDict:
    """Return the message that an honest client sends."""
    del rng, others
    return to_records(packet, "run")


@dataclass
class Case:
    """One answer that was replaced; `run` goes on and says what is wrong with the outcome."""

    kind: str
    run: Callable[[], str]


class Stage(Protocol):
    """A part of a run whose answers can be replaced."""

    largest: int
    """Bytes of the largest answer that is read."""

    def case(self, rng: random.Random, change: Change = mutated) -> Case:
        """Replace one answer of one client."""


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Stop what takes more processor time."""

    def stop(*_: object) -> None:
        raise Hung

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def judged(stage: Stage, seed: int) -> Outcome:
    """Play a case; whatever it raises is a problem, and so is the time it takes."""
    case = stage.case(random.Random(seed))
    found, began = Outcome(case.kind), time.process_time()
    try:
        with deadline(5 * SECONDS):
            found.problem = case.run()
    except Hung:
        found.problem = "hangs"
    except Exception as error:
        found.problem = f"ends the run: {type(error).__name__}: {error}"
    found.seconds = time.process_time() - began
    if found.seconds > SECONDS and not found.problem:
        found.problem = f"takes {found.seconds:.1f} s"
    return found


def model_problem(weights: np.ndarray, honest: np.ndarray) -> str:
    """Say what is wrong with a model after a mutated answer."""
    if not np.isfinite(weights).all():
        return "the model is not finite"
    length, usual = (float(np.linalg.norm(w.astype(float))) for w in (weights, honest))
    return f"|w| is {length / usual:.3g} times the honest run's" if length > 10 * usual else ""


def received(client: str, content: RecordDict) -> Packet | Refusal | Absent:
    """Return what `GridTransport` makes of a message, or why it is not used."""
    return read_replies([client], {client: content}, lambda _, c: from_records(c)[1])[client]


# ------------------------------------------------------------------ rounds


class Live:
    """Clients in this process; every exchange is kept."""

    def __init__(self, silos: Mapping[str, SoleClient], shape: Shape) -> None:
        self._silos, self._shape = silos, shape
        self.kept: list[dict[str, Packet]] = []

    def exchange(self, asks: Mapping[str, Packet]) -> dict[str, Packet]:
        self.kept.append(
            {
                name: pack(
                    answer_message(self._silos[name].answer(unpack_ask(ask, name, self._shape)))
                )
                for name, ask in asks.items()
            }
        )
        return self.kept[-1]


class Replay:
    """Answers what was answered before, but for one client in one exchange."""

    def __init__(
        self, exchanges: list[dict[str, Packet]], at: int, client: str, content: RecordDict
    ) -> None:
        self._exchanges, self._at, self._client, self._content = exchanges, at, client, content
        self._next = 0

    def exchange(self, asks: Mapping[str, Packet]) -> dict[str, Packet | Refusal | Absent]:
        honest = self._exchanges[self._next]
        found: dict[str, Packet | Refusal | Absent] = {n: honest[n] for n in asks if n in honest}
        if self._next == self._at and self._client in asks:
            found[self._client] = received(self._client, self._content)
        self._next += 1
        return found


def _all(exchanges: list[dict[str, Packet]]) -> dict[str, Packet]:
    return {f"{i} {n}": packet for i, said in enumerate(exchanges) for n, packet in said.items()}


def _by_kind(rng: random.Random, exchanges: list[dict[str, Packet]]) -> list[int]:
    """Return the exchanges of one kind, whichever kind is drawn."""
    found: dict[str, list[int]] = {}
    for at, said in enumerate(exchanges):
        kind = json.loads(next(iter(said.values())).text)["kind"]
        found.setdefault(kind, []).append(at)
    return found[rng.choice(sorted(found))]


@dataclass
class Rounds:
    """The second and last round of a run, and what follows it."""

    setup: Setup
    state: RunState
    exchanges: list[dict[str, Packet]]
    honest: np.ndarray

    @classmethod
    def of(cls, strategy: Any, federation: fed.Federation) -> Rounds:
        rule = strategy.card.output or "last"
        setup = replace(
            fed.setup_for(federation, strategy, rounds=2),
            output=Output(rule=rule, tolerance=0.05),
        )
        shape = Shape(setup.size, Cells(federation.attributes).size)
        slots = MemorySlots({})
        silos = {
            c.name: SoleClient(c, fed.model_of(setup), federation.attributes, setup.seed, slots)
            for c in federation.clients
        }
        watch = fed.Watch()
        drive(setup, fed.first(setup), Live(silos, shape), callbacks=[watch])
        state, live = parse(watch.dumps[1], "watch"), Live(silos, shape)
        end = copy.deepcopy(state)
        drive(setup, end, live)
        return cls(setup, state, live.kept, end.weights)

    @property
    def largest(self) -> int:
        """Bytes of the largest valid answer."""
        return max(
            len(packet.text) + sum(array.nbytes for array in packet.arrays.values())
            for exchange in self.exchanges
            for packet in exchange.values()
        )

    def case(self, rng: random.Random, change: Change = mutated) -> Case:
        at = rng.choice(_by_kind(rng, self.exchanges))
        client = rng.choice(sorted(self.exchanges[at]))
        packet = self.exchanges[at][client]
        content = change(rng, packet, _all(self.exchanges))
        kind = json.loads(packet.text)["kind"]
        return Case(kind, lambda: self.after(at, client, content))

    def after(self, at: int, client: str, content: RecordDict) -> str:
        """Say what is wrong with a run after this answer of this client."""
        state = copy.deepcopy(self.state)
        drive(self.setup, state, Replay(self.exchanges, at, client, content), minimum=2)
        return model_problem(state.weights, self.honest)


# ------------------------------------------------------------------ enrolment


BINS = EncoderConfig(numeric="bins", bins=4, min_rows=8, min_level_rows=5)
TERMS = EnrolmentTerms(
    task=Task(label="hired", favourable="yes", sensitive=("sex", "age")),
    seed=3,
    model=ModelTerms(hidden=(4,)),
    encoder=BINS,
)


class RememberedSilos:
    """Silos that compute the answer to a request once; one answer may be replaced."""

    def __init__(self, silos: Mapping[str, Responder]) -> None:
        self._silos, self._known = silos, {}
        self.kept: list[dict[str, Packet | Refusal | Absent]] = []
        self.swap: tuple[int, str, Packet | Refusal | Absent] | None = None

    def exchange(self, asks: Mapping[str, Packet]) -> dict[str, Packet | Refusal | Absent]:
        found = {name: self._answer(name, ask) for name, ask in asks.items()}
        if self.swap is not None and self.swap[0] == len(self.kept) and self.swap[1] in found:
            found[self.swap[1]] = self.swap[2]
        self.kept.append(found)
        return found

    def _answer(self, name: str, ask: Packet) -> Packet | Refusal | Absent:
        key = (name, ask.text, *(a.tobytes() for a in ask.arrays.values()))
        if key not in self._known:
            try:
                self._known[key] = self._silos[name].handle("run", ask)
            except MfairflError as error:
                self._known[key] = Refusal(str(error))
        return self._known[key]


@dataclass
class Enrolment:
    """From the clients' profiles to their counts."""

    silos: RememberedSilos
    exchanges: list[dict[str, Packet]]
    largest: int = ANSWER.characters

    @classmethod
    def of(cls, folder: Path) -> Enrolment:
        frame, found = fed.people(), {}
        for site in fed.SITES:
            path = folder / f"{site}.csv"
            frame[frame["site"] == site].drop(columns="site").to_csv(path, index=False)
            settings = SiloSettings(name=site, csv=path, state=folder / "state" / site)
            found[site] = Responder(settings, fed.policy(min_rows=2, requests=10**9))
        silos = RememberedSilos(found)
        enrol(silos, sorted(fed.SITES), TERMS, minimum=len(fed.SITES))
        return cls(silos, silos.kept)

    def case(self, rng: random.Random, change: Change = mutated) -> Case:
        at = rng.choice(_by_kind(rng, self.exchanges))
        client = rng.choice(sorted(fed.SITES))
        packet = self.exchanges[at][client]
        content = change(rng, packet, _all(self.exchanges))
        kind = "enrolment: " + json.loads(packet.text)["kind"]
        return Case(kind, lambda: self.after(at, client, content))

    def after(self, at: int, client: str, content: RecordDict) -> str:
        """Say what is wrong with an enrolment with this answer of this client."""
        self.silos.kept, self.silos.swap = [], (at, client, received(client, content))
        found = enrol(self.silos, sorted(fed.SITES), TERMS, minimum=2)
        if Enrolled.model_validate_json(found.model_dump_json()).task != found.task:
            return "what was agreed is not what is stored"
        if any(len(why) > 500 or not why.isprintable() for why in found.refused.values()):
            return "a reason is not a short line"
        lost = set(fed.SITES) - {client} - set(found.counts["train"])
        return f"honest clients stay out: {sorted(lost)}" if lost else ""


# ------------------------------------------------------------------ audits


@dataclass
class Audit:
    """From the names of groups to counts."""

    silos: RememberedSilos
    exchanges: list[dict[str, Packet]]
    honest: AuditCounts
    largest: int = SMALL

    @classmethod
    def of(cls, folder: Path) -> Audit:
        folder.mkdir()
        limits = audited.policy(requests=10**9)
        settings = audited.write_silos(folder, audited.predictions(rows=200))
        silos = RememberedSilos({n: Responder(one, limits) for n, one in settings.items()})
        found = gather_counts(silos, audited.SILOS, AuditTerms(subject=audited.COLUMNS))
        sizes = [sum(a.nbytes for a in p.arrays.values()) for p in _all(silos.kept).values()]
        # A mutated name is one more group, and every answer is then half as large again.
        return cls(silos, silos.kept, found.counts, 2 * max(sizes))

    def case(self, rng: random.Random, change: Change = mutated) -> Case:
        at, client = rng.randrange(len(self.exchanges)), rng.choice(audited.SILOS)
        packet = self.exchanges[at][client]
        content = change(rng, packet, _all(self.exchanges))
        kind = "audit: " + json.loads(packet.text)["kind"]
        return Case(kind, lambda: self.after(at, client, content))

    def after(self, at: int, client: str, content: RecordDict) -> str:
        """Say what is wrong with an audit with this answer of this client."""
        self.silos.kept, self.silos.swap = [], (at, client, received(client, content))
        terms = AuditTerms(subject=audited.COLUMNS)
        found = gather_counts(self.silos, audited.SILOS, terms, minimum=2)
        if any(len(why) > 500 or not why.isprintable() for why in found.left_out.values()):
            return "a reason is not a short line"
        for k, name in enumerate(self.honest.clients):
            if name == client:
                continue
            if name not in found.counts.clients:
                return f"the honest {name} is left out"
            own = found.counts.rows[found.counts.clients.index(name)].sum()
            if own != self.honest.rows[k].sum():
                return f"{own} rows of the honest {name}"
        return ""


# ------------------------------------------------------------------ Flower's messages


NODES = {911: "a", 77: "b", 503: "c", 402: "d"}


@dataclass
class Hello:
    """Nodes answer the greeting that asks whether they are there."""

    largest: int = SMALL

    def case(self, rng: random.Random, change: Change = mutated) -> Case:
        liar = rng.choice(sorted(NODES))
        good = {node: make_packet("hello", {"name": name}) for node, name in NODES.items()}
        others = {str(node): packet for node, packet in good.items() if node != liar}
        content = change(rng, good[liar], others)
        return Case("hello", lambda: self.after(liar, content, good))

    @staticmethod
    def after(liar: int, content: RecordDict, good: Mapping[int, Packet]) -> str:
        """Say which honest nodes are not online."""

        def app(message: Message, context: Any) -> Message:
            node = context.node_id
            said = content if node == liar else to_records(good[node], "run")
            return Message(said, reply_to=message)

        grid = LocalGrid(app, {node: {} for node in NODES})
        transport = transport_over(grid, NODES, deadline=1)
        honest = sorted(name for node, name in NODES.items() if node != liar)
        online = transport.wait_for(honest, minimum=3, seconds=0)
        return "" if online == honest else f"only {online} are online"


@dataclass
class App:
    """A `FairStrategy` with clients of somebody's own."""

    strategy: str
    hyper_parameters: Mapping[str, Any] = field(default_factory=dict)
    largest: int = SMALL
    honest: np.ndarray = field(default_factory=lambda: np.zeros(0), init=False)

    def __post_init__(self) -> None:
        self.honest = self._run(lambda node, kind, round_, content: content)

    def case(self, rng: random.Random, change: Change = mutated) -> Case:
        liar, kind, round_ = rng.choice(sorted(NODES)), rng.choice(["train", "evaluate"]), 1
        if kind == "evaluate":
            round_ = rng.choice([0, 1])

        def said(node: int, asked: str, now: int, content: RecordDict) -> RecordDict:
            if change is unchanged or (node, asked, now) != (liar, kind, round_):
                return content
            return mutated_reply(rng, content)

        return Case(f"app: {kind}", lambda: model_problem(self._run(said), self.honest))

    def _run(self, change: Any) -> np.ndarray:
        def app(message: Message, context: Any) -> Message:
            node, kind = context.node_id, message.metadata.message_type
            content = _reply(node, kind, message.content["arrays"])
            round_ = message.content["config"]["server-round"]
            return Message(change(node, kind, round_, content), reply_to=message)

        fair = FairStrategy(
            self.strategy,
            sensitive={"sex": ["F", "M"]},
            hyper_parameters=self.hyper_parameters,
            min_available_nodes=3,
        )
        first = ArrayRecord({"w": Array(np.full((3, 2), 0.5, np.float32))})
        grid = LocalGrid(app, {node: {} for node in NODES})
        result = fair.start(grid, first, num_rounds=2, timeout=1)
        return result.arrays["w"].numpy().reshape(-1)


def _reply(node: int, kind: str, arrays: ArrayRecord) -> RecordDict:
    """Answer as an honest client of forty rows would."""
    if kind == "train":
        moved = arrays["w"].numpy() * np.float32(0.9) + np.float32(node / 1e4)
        return RecordDict({"arrays": ArrayRecord({"w": Array(np.asarray(moved))})})
    sums = {
        "counts": [10.0, 10.0, 10.0, 10.0],
        "positives": [3.0, 6.0, 4.0, 8.0],
        "scores": [4.0, 5.0, 4.5, 6.0],
        "losses": [6.0, 8.0, 7.0, 6.0 + node / 1e3],
    }
    client = ConfigRecord({"name": NODES[node]})
    return RecordDict({"client": client, "train": MetricRecord(sums)})


def all_stages(folder: Path) -> dict[str, Stage]:
    """Return every stage by name: rounds of all strategies, enrolment, and Flower's messages."""
    people = fed.people_federation()
    return {
        **{name: Rounds.of(strategy, people) for name, strategy in STRATEGIES.items()},
        "enrolment": Enrolment.of(folder),
        "audit": Audit.of(folder / "audit"),
        "names of nodes": Hello(),
        **{f"app, {name}": App(name) for name in ("fedavg", "mfairfl", "fpfl", "qffl")},
    }
